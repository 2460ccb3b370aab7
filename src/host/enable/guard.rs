//! Services that `enable` refuses: those that the machine needs, and those that set their own
//! streams.

use std::path::PathBuf;

use crate::types::service::ServiceName;

/// Services of init and of logins, by name or prefix (`*`). A mistake with one of them locks all
/// users out or stops other services.
const PROTECTED: [&str; 20] = [
    "dbus.service",
    "dbus-broker.service",
    "dbus-daemon.service",
    "messagebus.service",
    "systemd-*",
    "getty@*",
    "serial-getty@*",
    "console-getty.service",
    "container-getty@*",
    "autovt@*",
    "user@*",
    "user-runtime-dir@*",
    "ssh.service",
    "ssh@*",
    "sshd*",
    "emergency.service",
    "rescue.service",
    "debug-shell.service",
    "initrd-*",
    "modprobe@*",
];

/// Guests, which the machine does not need.
const GUESTS: [&str; 2] = ["systemd-nspawn@", "systemd-vmspawn@"];

/// The first of a service's names and aliases that the machine needs.
pub(crate) fn protected<'a>(names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let matches = |name: &str, pattern: &str| match pattern.strip_suffix('*') {
        Some(prefix) => name.starts_with(prefix),
        None => name == pattern,
    };
    let is_guest = |name: &&str| GUESTS.iter().any(|guest| name.starts_with(guest));
    let is_needed = |name: &&str| PROTECTED.iter().any(|pattern| matches(name, pattern));
    names.into_iter().find(|name| is_needed(name) && !is_guest(name))
}

/// The effective lines in a service's own files that connect its streams to something other than
/// the journal or /dev/null, each with its file.
pub(crate) fn own_streams(files: &[(PathBuf, String)]) -> Vec<String> {
    const KEYS: [&str; 3] = ["StandardInput", "StandardOutput", "StandardError"];
    const DATA: [&str; 2] = ["StandardInputText", "StandardInputData"];
    // The defaults, to which an empty value resets.
    const USUAL: [&str; 5] = ["", "null", "journal", "syslog", "inherit"];
    let mut holds: [Option<String>; 4] = [const { None }; 4];
    for (file, text) in files {
        let mut in_service = false;
        for line in text.lines().map(str::trim) {
            if line.starts_with('[') {
                in_service = line == "[Service]";
            }
            let Some((key, value)) = line.split_once('=').filter(|_| in_service) else { continue };
            let (key, value) = (key.trim(), value.trim());
            let at = KEYS.iter().position(|known| *known == key);
            let at = at.or_else(|| DATA.contains(&key).then_some(KEYS.len()));
            if let Some(at) = at {
                let line = || format!("{key}={value} ({})", file.display());
                holds[at] = (!USUAL.contains(&value)).then(line);
            }
        }
    }
    holds.into_iter().flatten().collect()
}

/// Whether a service's own files set `TERM`: a program may be meant to see a simple terminal.
pub(crate) fn sets_term(files: &[(PathBuf, String)]) -> bool {
    let lines = files.iter().flat_map(|(_, text)| text.lines());
    let mut sets = false;
    for line in lines.map(str::trim) {
        let Some(value) = line.strip_prefix("Environment=") else { continue };
        let words = value.split_whitespace().map(|word| word.trim_start_matches(['"', '\'']));
        // An empty line forgets the earlier ones.
        sets =
            !value.is_empty() && (sets || words.into_iter().any(|word| word.starts_with("TERM=")));
    }
    sets
}

/// Programs that give what they start a terminal of their own, and leave ours unread.
const MULTIPLEXERS: [&str; 10] =
    ["abduco", "atch", "dtach", "herdr", "rmux", "screen", "shpool", "tmux", "zellij", "zmx"];

/// Why nobody would read the console of a service: `kind` is its `Type=`, `program` the path of its
/// program.
pub(crate) fn unread(kind: &str, program: &str, has_terminal: bool) -> Option<String> {
    let name = program.rsplit('/').next().unwrap_or_default();
    if MULTIPLEXERS.contains(&name) {
        return Some(format!(
            "its program is {name}, whose own terminal the app uses; start the app itself in ExecStart= \
             instead; --force enables it anyway"
        ));
    }
    (kind == "forking" && has_terminal).then(|| {
        "it is a daemon (Type=forking), and few daemons read their terminal; name the streams \
         (--stdout stream), or --force enables it anyway"
            .to_owned()
    })
}

/// The error for a protected service.
pub(crate) fn protects(service: &ServiceName, name: &str) -> String {
    let alias = if name == service.as_str() { String::new() } else { format!(" (as {name})") };
    format!("the machine needs this service{alias} to boot or to log in; --force enables it anyway")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn services_that_set_their_terminal() {
        for (text, sets) in [
            ("[Service]\nEnvironment=TERM=dumb", true),
            ("[Service]\nEnvironment=A=b \"TERM=dumb\"\n", true),
            ("[Service]\nEnvironment=TERM=dumb\nEnvironment=\n", false),
            ("[Service]\nEnvironment=TERMINAL=x\n#Environment=TERM=x\n", false),
        ] {
            assert_eq!(sets_term(&[("a".into(), text.to_owned())]), sets, "{text}");
        }
    }

    #[test]
    fn services_that_leave_their_console_unread() {
        for (kind, program, has_terminal, why) in [
            ("forking", "/usr/bin/screen", true, Some("screen")),
            ("simple", "/usr/bin/tmux", false, Some("tmux")),
            ("forking", "/usr/sbin/daemon", true, Some("daemon")),
            ("forking", "/usr/sbin/daemon", false, None),
            ("simple", "/usr/bin/tmuxinator", true, None),
        ] {
            let told = unread(kind, program, has_terminal);
            assert_eq!(told.is_some(), why.is_some(), "{program}");
            assert!(why.is_none_or(|why| told.is_some_and(|told| told.contains(why))), "{program}");
        }
    }

    #[test]
    fn services_that_the_machine_needs() {
        for (name, is_protected) in [
            ("dbus.service", true),
            ("dbus-broker.service", true),
            ("systemd-logind.service", true),
            ("systemd-nspawn@web.service", false),
            ("getty@tty1.service", true),
            ("user@1000.service", true),
            ("rescue.service", true),
            ("dbus-org.example.game.service", false),
            ("game.service", false),
            ("gettysburg.service", false),
            ("rescue-game.service", false),
        ] {
            assert_eq!(protected([name]).is_some(), is_protected, "{name}");
        }
        let names = ["mine.service", "systemd-else.service"];
        assert_eq!(protected(names), Some("systemd-else.service"));
    }

    #[test]
    fn streams_of_its_own() {
        let files = [
            (
                "/lib/a.service",
                "[Unit]\nStandardError=kmsg\n[Service]\n StandardOutput = append:/a b\n\
                 StandardError=socket\n#StandardInput=fd\n",
            ),
            ("/etc/z.conf", "[Service]\nStandardError=journal\nStandardInputText=x\n"),
        ];
        let files = files.map(|(path, text)| (PathBuf::from(path), text.to_owned()));
        let want =
            ["StandardOutput=append:/a b (/lib/a.service)", "StandardInputText=x (/etc/z.conf)"];
        assert_eq!(own_streams(&files), want);
        assert_eq!(own_streams(&[]), Vec::<String>::new());
    }
}
