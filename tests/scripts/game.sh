# needs: bash
# A server that talks all the time, while it is backed up.
cat >server <<'SERVER'
while sleep 0.02; do echo "tick $((n += 1))"; done &
trap 'kill %1' EXIT
while read -r line; do
  case $line in
    save-off | save-on) echo "$line is done" ;;
    save-all) sleep 0.2; echo world >world; echo 'Saved the game' ;;
    list) echo '2 players: ann bob' ;;
    stop) exit 0 ;;
  esac
done
SERVER
iottymux run -di --name game -- bash server
say() { iottymux ask game "$1" --until "$2" --timeout 60 | tail -n 1; }
is 'save-off is done' "$(say save-off 'save-off is done')"
is 'Saved the game' "$(say save-all '^Saved the game$')"
is world "$(cat world)"
is 'save-on is done' "$(say save-on 'save-on is done')"
is '2 players: ann bob' "$(say list '^[0-9]+ players: .* bob')"
iottymux send game stop
is 'ended with status 0' "$(iottymux wait game --timeout 60)"
