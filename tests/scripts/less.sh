# needs: less
# A pager.
seq 1000 >numbers
iottymux run -dt --name less --size 10x40 -- env LESS= less numbers
iottymux wait less --screen '^9$' --timeout 60 >/dev/null
iottymux send less --keys /500 Enter
iottymux wait less --screen '^507$' --timeout 60 >/dev/null
is 500 "$(iottymux screen less | head -n 1)"
iottymux send less --keys G
iottymux wait less --screen '^1000$' --timeout 60 >/dev/null
iottymux send less --keys q
is 'ended with status 0' "$(iottymux wait less --timeout 60)"
