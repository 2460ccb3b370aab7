# SPDX-License-Identifier: Apache-2.0
# Completion of iottymux for fish: the program itself knows the words.

function __iottymux_complete
    set -l words (commandline -opc) (commandline -ct)
    set -l found ($words[1] complete-words $words[2..-1] 2>/dev/null)
    switch "$found[1]"
        case :files
            __fish_complete_path (string replace -r '^--[^=]*=' '' -- $words[-1])
        case :commands
            __fish_complete_command
        case '*'
            printf '%s\n' $found
    end
end

complete -c iottymux -f -a '(__iottymux_complete)'
