# SPDX-License-Identifier: Apache-2.0
# Completion of iottymux for bash: the program itself knows the words.

_iottymux() {
  local line=${COMP_LINE:0:COMP_POINT} words word
  read -ra words <<<"$line"
  [[ $line != *[[:blank:]] ]] || words+=("")
  # bash also breaks words at characters such as '=' and '@', and replaces only the last piece.
  local typed=${words[-1]%"$2"}
  COMPREPLY=()
  while IFS=$'\t' read -r word _; do
    case $word in
      :files) compopt -o filenames; mapfile -t COMPREPLY < <(compgen -f -- "${words[-1]#--*=}") ;;
      :commands) mapfile -t COMPREPLY < <(compgen -c -- "${words[-1]}") ;;
      *) COMPREPLY+=("${word#"$typed"}") ;;
    esac
  done < <("$1" complete-words "${words[@]:1}" 2>/dev/null)
  # The value follows.
  [[ ${COMPREPLY[0]-} != *= ]] || compopt -o nospace
}
complete -F _iottymux iottymux
