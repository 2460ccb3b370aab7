# needs: bash
# A shell that marks its commands.
cat >marks <<'MARKS'
HISTFILE=
PS0='\e]133;C\e\\'
PROMPT_COMMAND='printf "\e]133;D;%s\e\\" $?'
MARKS
iottymux run -dt --name shell -- bash --rcfile marks
iottymux wait shell --idle 0.3
is "$(seq 500)" "$(iottymux ask shell --command 'seq 500' --timeout 60)"
status=0
iottymux ask shell --command '(exit 7)' --timeout 60 || status=$?
is 7 $status
is "$PWD" "$(iottymux ask shell --command pwd --timeout 60)"
