//! What the help shows besides options: the commands in groups, and examples of each.

use std::fmt::Write;

/// The commands, by what people do with them.
/// Those that units of systemd start have only man pages.
const GROUPS: [(&str, &[&str]); 5] = [
    ("Commands for services", &["enable", "disable"]),
    ("Commands that run programs", &["run", "stop", "kill", "rm"]),
    ("Commands for both", &["attach", "list", "status", "logs", "send", "ask"]),
    ("Commands for scripts", &["wait", "screen", "events", "metrics"]),
    ("Other commands", &["control", "units", "install", "completion"]),
];

/// Has the program's help list its commands in groups.
pub(super) fn grouped(program: clap::Command) -> clap::Command {
    let mut text = String::new();
    for (title, names) in GROUPS {
        let _ = writeln!(text, "{title}:");
        for command in names.iter().filter_map(|name| program.find_subcommand(name)) {
            let about = command.get_about().map(ToString::to_string).unwrap_or_default();
            let names = command
                .get_visible_aliases()
                .fold(command.get_name().to_owned(), |names, alias| names + ", " + alias);
            let _ = writeln!(text, "  {names:<14}{about}");
        }
        text.push('\n');
    }
    program
        .mut_subcommands(|command| command.hide(true))
        .override_usage("iottymux [OPTIONS] <COMMAND>")
        .help_template(format!(
            "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{text}{{all-args}}{{after-help}}"
        ))
}

pub(super) const PROGRAM: &str = "\
Examples:
  iottymux run -it --name demo bash                a shell; leave: ctrl-p ctrl-q
  iottymux attach demo                             again, from any terminal
  iottymux send demo reload                        type a line
  iottymux ask demo status                         and print the answer
  iottymux list                                    list the apps
  iottymux enable demo.service --tty --now         a terminal for a service

Containers (engines start these; see docs/containers.md):
  iottymux-runc (or iottymux oci-runtime)          OCI runtime, around runc
  binary:///usr/local/bin/iottymux?containerd-logger=  logger of containerd

Exit status: 0 success, 1 failure, 2 usage error, 124 output incomplete, 125 connection lost. \
Otherwise attach and run exit with the app's own status (128 + n for signal n).";

pub(super) const STREAM: &str = "\
Examples:
  systemctl start iomux@demo.service               the usual way to start it
  iottymux stream --app demo --streams stdin,stdout
  iottymux stream --app demo --log cri:/var/log/iottymux/demo/log
  iottymux stream --app demo --allow-gid 1000 --view-uid 1001";

pub(super) const TTY: &str = "\
Examples:
  systemctl start ttymux@demo.service              the usual way to start it
  iottymux tty --app demo --size 40x132
  iottymux tty --app demo --record cast:/var/log/iottymux/demo/cast";

pub(super) const ATTACH: &str = "\
Examples:
  iottymux attach game                             leave: ctrl-p ctrl-q
  iottymux attach --read-only game                 watch it, and type nothing
  iottymux attach --from start --mode stdout game  what its mux keeps
  iottymux attach --mode stdout game | grep error  (a terminal: tty-out)
  iottymux attach --wait=60 --mode stdin game <file  (a terminal: tty-in)";

pub(super) const LIST: &str = "\
Examples:
  iottymux list                                    all apps that you may see
  iottymux list --json | jq '.[].app'              for scripts
  iottymux list --ended                            ended containers, too
  iottymux list --all                              as root: of all users, pods
  iottymux list 'agent-*'                          those whose name fits";

pub(super) const STATUS: &str = "\
Examples:
  iottymux status game
  iottymux status game --json | jq .clients        who is attached
  iottymux status --all --json                     for monitoring";

pub(super) const METRICS: &str = "\
Examples:
  iottymux metrics
  cd /var/lib/node_exporter
  iottymux metrics >.iottymux.prom && mv .iottymux.prom iottymux.prom";

pub(super) const LOGS: &str = "\
Examples:
  iottymux logs demo -n 20 -f                      the last lines, and new ones
  iottymux logs demo --since 10m                   the last ten minutes
  iottymux logs demo --since yesterday --until 21:00 --grep error
  iottymux logs demo --stream stderr --since '2026-11-21 21:00' --json
  iottymux logs --file /var/log/pods/x/0.log       in cri or json-file format

Exit status: 0 success; 1 no log, or no line that matches --grep.";

pub(super) const CONTROL: &str = "\
Examples:
  iottymux control game detach 3                   client 3 of `status game`
  iottymux control game resize 40x132
  iottymux control game reopen-logs                after renaming them
  iottymux control --all restart                   after an upgrade";

pub(super) const RUN: &str = "\
Examples:
  iottymux run -it bash                            a shell; leave: ctrl-p ctrl-q
  iottymux run -d --name web ./server --port 80    in the background
  iottymux run make | tee log                      in a pipe
  iottymux run -t --record cast:demo.cast bash     record a terminal

man iottymux.env explains the options of access and logs.

Exit status: the command's; 127 if it is not found, 126 if it cannot be executed, 125 if it cannot \
be started for another reason.";

pub(super) const SEND: &str = "\
Examples:
  iottymux send game save-all                      type save-all and Enter
  iottymux send game 'say \"hello\"'                 with blanks and quotes
  iottymux send vim --keys Escape :wq Enter        keys, named as in tmux
  iottymux send vim --paste notes.txt              a file, as a paste
  iottymux send game - <commands                   each line of standard input

Write -- before words that begin with a hyphen: iottymux send game -- say -v";

pub(super) const ASK: &str = "\
Examples:
  iottymux ask game list                           what comes until a pause
  iottymux ask game save-all --until 'Saved the game' --timeout 60
  iottymux ask repl 'sum(range(10))' --until '^>>> ' --omit-match
  iottymux ask shell --command 'make test'         exits as make does

For --command, in ~/.bashrc:
  PS0+='\\e]133;C\\e\\\\'
  PROMPT_COMMAND=\"printf '\\e]133;D;%s\\e\\\\\\\\' \\$?;$PROMPT_COMMAND\"

The answer ends right after the match, even in an unfinished line: a prompt matches, and $ may match \
before the rest of a line has come. Output after a prompt is in one line with it: > Saved. Write -- \
before words that begin with a hyphen.

Exit status: 0 answered; 124 no end within the timeout, or a part is lost (what came is printed); \
1 the app did not take the line. If the app ends: the app's, but 124 instead of 0 if --until has not \
matched. With --command: the command's.";

pub(super) const WAIT: &str = "\
Examples:
  iottymux wait game --ready --timeout 60          it runs
  iottymux wait game --for 'Done \\(.*s\\)!' --from start
  iottymux wait a b 'agent-*'                      all have ended
  iottymux wait vim --screen '^-- INSERT --'       on the terminal's screen
  iottymux wait job --exit --json | jq .status     128 + n for signal n

An unfinished line matches, too.

Exit status: 0 it has happened; 124 not within the timeout; 1 something failed.";

pub(super) const SCREEN: &str = "\
Examples:
  iottymux screen top                              as text
  iottymux screen top --ansi                       with colours
  iottymux screen top --follow --json              a line for each change
  iottymux wait top --screen 'load average'        wait for a text

If the app has ended, the screen is drawn from its last 4 KiB of output.";

pub(super) const EVENTS: &str = "\
Examples:
  iottymux events game                             a line of JSON each
  iottymux events --all --no-data                  of all apps, without output
  iottymux events game | jq -r 'select(.event == \"data\").text'

A reader that is too slow for what clients do loses its connection, and a line says so.";

pub(super) const STOP: &str = "\
Examples:
  iottymux stop web                                SIGTERM; SIGKILL after 10 s
  iottymux stop 'agent-*'                          all that run of this name
  iottymux kill -s HUP web                         another signal
  iottymux rm web                                  forget an app that has ended
  systemctl stop game.service                      services: by systemd";

pub(super) const ENABLE_USAGE: &str = "\
iottymux enable [OPTIONS] <SERVICE>...
       iottymux enable --list [SERVICE]...";

pub(super) const ENABLE: &str = "\
Examples:
  iottymux enable game --now                       a terminal; restarts it now
  iottymux enable game --env IOTTYMUX_ALLOW_GID=games  let a group attach
  iottymux enable --list                           what is enabled, and how
  iottymux enable game@eu.service --tty            one instance of a template
  iottymux enable web --streams --log cri:/var/log/iottymux/web/log
  iottymux disable --all --now                     before you remove iottymux";

pub(super) const DISABLE_USAGE: &str = "\
iottymux disable [OPTIONS] <SERVICE>...
       iottymux disable [OPTIONS] --all";

pub(super) const DISABLE: &str = "\
Examples:
  iottymux disable game                            of a stopped service
  iottymux disable --now game                      restarts it
  iottymux disable --all --now                     before you remove iottymux";

pub(super) const UNITS: &str = "\
Examples:
  iottymux units --app demo --stdin stream --stdout stream  show the units
  iottymux units --app demo --tty --output /etc/systemd/system
  iottymux units --app demo --remove --output /etc/systemd/system
  iottymux units --pod-manifest pod --state-dir /rkt/iottymux \\
      --binary /iottymux --output rootfs/etc/systemd/system \\
      --seen-as /etc/systemd/system

Modes:
  stream, tty  clients can attach
  log          the journal
  null         /dev/null
  interactive  the terminal from which the machine or pod was started";

pub(super) const COMPLETION: &str = "\
Examples:
  source <(iottymux completion bash)               .bashrc; zsh: after compinit
  iottymux completion fish | source                in fish's config.fish";

pub(super) const INSTALL: &str = "\
Examples:
  sudo iottymux install                            below /usr/local
  sudo iottymux install --restart                  and upgrade the muxes, too
  iottymux install --prefix ./root/usr             for an image
  sudo iottymux install --remove                   after `disable --all --now`
  sudo iottymux install --runtime containerd       on a node of Kubernetes";

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::cli::Cli;

    #[test]
    fn each_command_is_in_one_group() {
        let program = Cli::command();
        let mut named: Vec<&str> =
            GROUPS.iter().flat_map(|(_, names)| names.iter().copied()).collect();
        named.sort_unstable();
        let visible = program.get_subcommands().filter(|command| !command.is_hide_set());
        let mut all: Vec<&str> = visible.map(clap::Command::get_name).collect();
        all.retain(|name| !["stream", "tty"].contains(name));
        all.sort_unstable();
        assert_eq!(named, all);
    }
}
