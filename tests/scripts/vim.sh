# needs: vim
# A full-screen editor: a line is changed, and the change is checked on the screen and in the file.
printf 'one\ntwo\nthree\n' >text
iottymux run -dt --name vim --size 20x60 -- vim -u NONE -i NONE -n -N text
iottymux wait vim --screen '3L, 14B' --timeout 60 >/dev/null
iottymux send vim --keys 2G cc
iottymux wait vim --screen '^-- INSERT --' --timeout 60 >/dev/null
iottymux send -n vim 'the second'
iottymux wait vim --screen '^the second$' --timeout 60 >/dev/null
iottymux send vim --keys Escape :w Enter
iottymux wait vim --screen '"text" .* written' --timeout 60 >/dev/null
is "one
the second
three" "$(cat text)"
iottymux send vim --keys Down Up Down
is 3 "$(iottymux wait vim --idle 0.3; iottymux screen vim --json | sed 's/.*"cursor":{[^}]*"row":\([0-9]*\).*/\1/')"
iottymux send vim --keys :q Enter
is 'ended with status 0' "$(iottymux wait vim --timeout 60)"
