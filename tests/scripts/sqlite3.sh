# needs: sqlite3
# A program that reads whole lines of a terminal.
iottymux run -dt --name db -- sqlite3 -interactive test.db
iottymux wait db --for '^sqlite> $' --from start --timeout 60
prompt() { iottymux ask db "$1" --until '^sqlite> $' --omit-match --timeout 60; }
is '' "$(prompt 'create table t(a, b);')"
is '' "$(prompt "insert into t values(1, 'one'), (2, 'two words');")"
is "1|one
2|two words" "$(prompt 'select * from t order by a;')"
contains 'no such table' "$(prompt 'select * from missing;')"
iottymux send db .quit
# One of its statements was wrong.
is 'ended with status 1' "$(iottymux wait db)"
