//! A user's own services, those of `systemctl --user`, with a manager that runs as that user.

use std::thread::sleep;
use std::time::Instant;

use serde_json::Value;

use crate::log::with_journald;
use crate::pod::{Plan, Pod};
use crate::wait::{PAUSE, WATCHDOG};

/// The manager of user 1, as `user@.service` of systemd starts it.
const MANAGER: &str = "\
[Service]
Type=notify
User=1
ExecStartPre=+/bin/mkdir -p /run/user/1 /home/one/.config/systemd/user
ExecStartPre=+/bin/chown -R 1 /run/user/1 /home/one
Environment=XDG_RUNTIME_DIR=/run/user/1 HOME=/home/one
ExecStart=/usr/lib/systemd/systemd --user
Delegate=yes
KillMode=mixed
";
const ENV: [&str; 2] = ["XDG_RUNTIME_DIR=/run/user/1", "HOME=/home/one"];

/// The words of a command of that user.
fn words<'a>(command: &[&'a str]) -> Vec<&'a str> {
    let user = ["setpriv", "--reuid=1", "--regid=1", "--clear-groups", "env"];
    [&user[..], &ENV, command].concat()
}

/// Waits until a text has this part; a failure shows the text.
fn eventually_in(part: &str, text: impl Fn() -> String) {
    let until = Instant::now() + WATCHDOG;
    loop {
        let now = text();
        if now.contains(part) {
            return;
        }
        assert!(Instant::now() < until, "waited in vain for {part:?} in:\n{now}");
        sleep(PAUSE);
    }
}

fn run(pod: &Pod, command: &[&str]) -> String {
    pod.run(&words(command))
}

/// In a job of cron and after runuser there is no variable, and after su it is that of another user.
#[test]
fn a_user_needs_no_variable_of_the_session() {
    let Some(plan) = Plan::new() else { return };
    let unit = "[Service]\nExecStart=/bin/cat\n";
    let pod = plan.unit("manager.service", MANAGER).unit("bot.service", unit).boot();
    pod.systemctl(&["start", "manager"]);
    pod.run(&["mkdir", "-p", "-m", "0700", "/run/user/0"]);
    std::fs::write(pod.path("/home/one/.config/systemd/user/bot.service"), unit).unwrap();
    // The system has a service of the same name.
    pod.run(&["iottymux", "enable", "bot", "--tty", "--now", "--env", "IOTTYMUX_ALLOW_UID=1"]);
    for session in ["NONE=1", "XDG_RUNTIME_DIR=/run/user/0"] {
        let user = ["setpriv", "--reuid=1", "--regid=1", "--clear-groups", "env"];
        let user = [&user[..], &["HOME=/home/one", session, "iottymux"]].concat();
        let run = |words: &[&str]| pod.run(&[&user[..], words].concat());
        run(&["enable", "--user", "bot", "--tty", "--now"]);
        assert!(run(&["list"]).contains("bot  running"));
        run(&["send", "bot", "hello"]);
        let mut own = pod.connect_at("/run/user/1/iottymux/bot/mux/sock-tty");
        own.line_ending("hello");
        run(&["disable", "--user", "bot", "--now"]);
    }
    // What a user's mux cannot do is refused.
    let admit = ["iottymux", "enable", "--user", "bot", "--tty", "--env", "IOTTYMUX_VIEW_UID=2"];
    let output = pod.try_run(&words(&admit));
    let said = String::from_utf8(output.stderr).unwrap();
    let why = "IOTTYMUX_VIEW_UID does not go with --user";
    assert!(!output.status.success() && said.contains(why), "{said}");
}

/// As another user by `sudo -u`, or in a job of cron: there is no session.
#[test]
fn a_user_needs_no_session() {
    let Some(plan) = Plan::new() else { return };
    let pod = plan.boot();
    let words = |uid: u32, session: &str, words: &[&str]| -> Vec<String> {
        let user = format!("--reuid={uid} --regid={uid} --clear-groups env {session} iottymux");
        let all = ["setpriv"].into_iter().chain(user.split(' ')).chain(words.iter().copied());
        all.map(str::to_owned).collect()
    };
    let command = |uid: u32, session: &str, rest: &[&str]| {
        let words = words(uid, session, rest);
        pod.try_run(&words.iter().map(String::as_str).collect::<Vec<_>>())
    };
    let says = |uid: u32, session: &str, rest: &[&str]| {
        let output = command(uid, session, rest);
        assert!(output.status.success(), "{rest:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let none = "-u XDG_RUNTIME_DIR";
    assert_eq!(says(1, none, &["run", "-dt", "--name", "bot", "cat"]), "bot\n");
    assert_eq!(pod.run(&["stat", "-c", "%a %u", "/tmp/iottymux-1"]), "700 1\n");
    assert!(says(1, none, &["list"]).contains("bot  running"));
    // Nor does anything clean it up while there is a mux.
    pod.run(&[
        "sh",
        "-c",
        "mkdir -p /etc/tmpfiles.d; echo 'e /tmp - - - 0' >/etc/tmpfiles.d/x.conf; touch /tmp/old",
    ]);
    pod.run(&["systemd-tmpfiles", "--clean", "/etc/tmpfiles.d/x.conf"]);
    assert!(!pod.path("/tmp/old").exists());
    // It is found with a session, too, and by root.
    pod.run(&["install", "-d", "-m", "700", "-o", "1", "-g", "1", "/run/user/1"]);
    for session in [none, "XDG_RUNTIME_DIR=/run/user/1"] {
        assert!(says(1, session, &["list"]).contains("bot  running"));
        says(1, session, &["ask", "bot", "hello"]);
    }
    let all = pod.run(&["iottymux", "list", "--all"]);
    assert!(all.contains("bot") && all.contains("/tmp/iottymux-1"), "{all}");
    let lost = pod.try_run(&["iottymux", "status", "bot"]);
    let said = String::from_utf8_lossy(&lost.stderr).into_owned();
    assert!(said.contains("(there is one in /tmp/iottymux-1: pass --state-dir /tmp/iottymux-1)"));
    pod.run(&["iottymux", "--state-dir", "/tmp/iottymux-1", "status", "bot"]);
    // It is not started twice.
    let session = "XDG_RUNTIME_DIR=/run/user/1";
    says(1, session, &["run", "-A", "-dt", "--name", "bot", "cat"]);
    assert!(!command(1, session, &["run", "-dt", "--name", "bot", "cat"]).status.success());
    assert_eq!(says(1, session, &["list", "-q"]).lines().filter(|name| *name == "bot").count(), 1);
    // Others do not see it.
    assert!(!says(7, none, &["list", "--all"]).contains("bot"));
    // Others may have been faster.
    for (uid, plant) in [
        (2, "mkdir -m 777 /tmp/iottymux-2"),
        (3, "mkdir -m 777 /tmp/theirs; ln -s theirs /tmp/iottymux-3"),
        (5, "ln -s /tmp/iottymux-1 /tmp/iottymux-5"),
        (6, "touch /tmp/iottymux-6"),
    ] {
        pod.run(&["setpriv", "--reuid=4", "--regid=4", "--clear-groups", "sh", "-c", plant]);
        for rest in [&["run", "-dt", "cat"][..], &["run", "-A", "-dt", "--name", "bot", "cat"]] {
            let refused = command(uid, none, rest);
            let said = String::from_utf8(refused.stderr).unwrap();
            let why =
                format!("/tmp/iottymux-{uid} belongs to user 4; try export IOTTYMUX_STATE_DIR=DIR");
            assert!(!refused.status.success() && said.contains(&why), "{said}");
        }
        assert!(!says(uid, none, &["list"]).contains("bot"));
    }
    assert_eq!(pod.run(&["ls", "/tmp/iottymux-2"]), "");
}

#[test]
fn services_of_a_user() {
    let Some(plan) = Plan::new() else { return };
    let pod = plan.unit("manager.service", MANAGER).boot();
    pod.systemctl(&["start", "manager"]);
    let unit = "[Service]\nExecStart=/bin/sh -c 'echo up; exec cat'\nStandardInput=null\n";
    std::fs::write(pod.path("/home/one/.config/systemd/user/bot.service"), unit).unwrap();
    run(&pod, &["systemctl", "--user", "daemon-reload"]);
    for (modes, socket) in
        [(&["--tty"][..], "sock-tty"), (&["--stdin=stream", "--stdout=stream"], "sock-stdout")]
    {
        run(&pod, &[&["iottymux", "enable", "--user", "bot", "--now"], modes].concat());
        let state = "/run/user/1/iottymux/bot";
        let mut output = pod.connect_at(&format!("{state}/mux/{socket}"));
        output.line_ending("up");
        let attach = ["iottymux", "attach", "--app", "bot", "--mode"];
        let input = if socket == "sock-tty" { "tty-in" } else { "stdin" };
        let mut attach = pod
            .command(&words(&[&attach[..], &[input]].concat()))
            .stdin(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        std::io::Write::write_all(attach.stdin.as_mut().unwrap(), b"hello\n").unwrap();
        drop(attach.stdin.take());
        assert!(attach.wait().unwrap().success());
        output.line_ending("hello");
        assert!(run(&pod, &["iottymux", "list"]).contains("bot  running"));

        // A user's manager cannot hide files. The mux itself gives up calls, as others do.
        let unit = if socket == "sock-tty" { "ttymux@bot" } else { "iomux@bot" };
        let mux = run(&pod, &["systemctl", "--user", "show", "-P", "MainPID", unit]);
        let status = std::fs::read_to_string(pod.path(&format!("/proc/{}/status", mux.trim())));
        let status = status.unwrap();
        for line in ["NoNewPrivs:\t1", "Seccomp:\t2"] {
            assert!(status.lines().any(|l| l == line), "{line}: {status}");
        }
        // The mux is killed: the app goes on, for the user's manager keeps its ends, too.
        let pid = || run(&pod, &["systemctl", "--user", "show", "-P", "MainPID", "bot"]);
        let before = pid();
        run(&pod, &["systemctl", "--user", "kill", "--signal=KILL", unit]);
        let again = [
            &["timeout", "30", "iottymux", "attach", "--wait=25", "--app", "bot", "--mode"][..],
            &[input],
        ];
        run(&pod, &again.concat());
        assert_eq!(pid(), before);
        run(&pod, &["iottymux", "disable", "--user", "--now", "bot"]);
        run(&pod, &["systemctl", "--user", "stop", "bot"]);
        assert_eq!(pod.names("/home/one/.config/systemd/user"), ["bot.service"]);
        assert!(!pod.path(state).exists());
    }
}

/// A user's own journal has the lines as before: their mux sends them itself.
#[test]
fn the_journal_of_a_users_service() {
    let Some(plan) = Plan::new() else { return };
    // The name and place by which journald knows a user's manager.
    let manager = format!("{MANAGER}Slice=user-1.slice\n");
    let pod = with_journald(plan.unit("user@1.service", &manager)).boot();
    pod.systemctl(&["daemon-reload"]);
    pod.systemctl(&["start", "user@1"]);
    // `systemctl status` leaves out what comes before systemd has noted that the service starts, and
    // a service may be faster than that note. So this one waits until it has started.
    let script = "until test -e /run/user/1/go; do sleep 0.01; done; echo up; echo \"<4>warning\"; echo err >&2";
    let unit = format!("[Service]\nExecStart=/bin/sh -c '{script}; exec sleep 1000'\n");
    std::fs::write(pod.path("/home/one/.config/systemd/user/bot.service"), unit).unwrap();
    let go = pod.path("/run/user/1/go");
    run(&pod, &["systemctl", "--user", "daemon-reload"]);
    let shown = || {
        let journalctl = ["journalctl", "--user-unit=bot", "-o", "json", "SYSLOG_IDENTIFIER=sh"];
        let reader = ["setpriv", "--reuid=1", "--regid=1", "--groups=systemd-journal"];
        let text = pod.run(&[&reader[..], &journalctl].concat());
        let entries = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let told = |entry: Value| {
            ["PRIORITY", "SYSLOG_FACILITY", "MESSAGE"]
                .map(|name| entry[name].as_str().unwrap().to_owned())
        };
        let mut lines: Vec<_> = entries.map(told).collect();
        lines.sort();
        lines
    };
    let want = [["4", "3", "warning"], ["6", "3", "err"], ["6", "3", "up"]];
    let want = want.map(|line| line.map(str::to_owned)).to_vec();
    run(&pod, &["systemctl", "--user", "start", "bot"]);
    std::fs::write(&go, "").unwrap();
    crate::proc::eventually("as systemd has them", || shown() == want);
    std::fs::remove_file(&go).unwrap();
    let enable = ["iottymux", "enable", "--user", "bot", "--now"];
    run(&pod, &[&enable[..], &["--stdout=stream", "--stderr=stream"]].concat());
    std::fs::write(&go, "").unwrap();
    let twice = [want.clone(), want].concat();
    crate::proc::eventually("and again", || {
        let mut twice = twice.clone();
        twice.sort();
        shown() == twice
    });
    let reader = ["setpriv", "--reuid=1", "--regid=1", "--groups=systemd-journal", "env"];
    let status = ["systemctl", "--user", "status", "--lines=100", "bot"];
    let status = || pod.run(&[&reader[..], &ENV, &status].concat());
    eventually_in(": err", status);
    assert!(!pod.try_run(&["pgrep", "-f", "journal-writer"]).status.success());

    // root is shown the lines of this service, and not those of the system's of the same name.
    let other = "[Service]\nExecStart=/bin/sh -c 'echo the system; exec sleep 1000'\n";
    pod.set_unit("bot.service", other);
    pod.systemctl(&["start", "bot"]);
    pod.run(&["journalctl", "--sync"]);
    let state = ["iottymux", "--state-dir", "/run/user/1/iottymux", "logs", "bot"];
    let said = pod.run(&state);
    assert!(said.contains("up\n") && !said.contains("the system"), "{said}");
    // A journal in memory is closed to the user, who is shown what the mux keeps.
    let said = run(&pod, &["iottymux", "logs", "bot"]);
    assert!(said.contains("up\n"), "{said}");
}
