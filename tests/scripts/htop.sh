# needs: htop
# A program that draws by itself, and has function keys.
iottymux run -dt --name htop --size 30x100 -- env HOME="$PWD" htop
iottymux wait htop --screen 'Load average: ([0-9.]+)' --timeout 60 >/dev/null
iottymux send htop --keys F1
iottymux wait htop --screen 'show this help screen' --timeout 60 >/dev/null
iottymux send htop --keys Space
iottymux wait htop --screen 'PID.*USER' --timeout 60 >/dev/null
iottymux send htop --keys F10
is 'ended with status 0' "$(iottymux wait htop --timeout 60)"
