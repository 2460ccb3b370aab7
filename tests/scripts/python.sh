# needs: python3
# A REPL with a line editor.
iottymux run -dt --name py -- python3 -q
iottymux wait py --for '^>>> $' --from start --timeout 60
iottymux wait py --screen '^>>> $' >/dev/null
is 45 "$(iottymux ask py 'sum(range(10))' --until '^>>> $' --omit-match --timeout 60)"
is "grün 'it'" "$(iottymux ask py "print('grün \\'it\\'')" --until '^>>> $' --omit-match --timeout 60)"
is 1000 "$(iottymux ask py 'for i in range(1000): print(i)' --until '^\.\.\. $' --omit-match --timeout 60; \
  iottymux ask py '' --until '^>>> $' --omit-match --timeout 60 | grep -c '^[0-9]')"
contains "NameError: name 'x' is not defined" "$(iottymux ask py x --until '^>>> $' --timeout 60)"
iottymux ask py 'exit(3)' --timeout 60 && fail 'it goes on'
is 'ended with status 3' "$(iottymux wait py --exit)"
