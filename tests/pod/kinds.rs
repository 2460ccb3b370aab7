//! `enable` with services of all kinds, as one finds them: attached with streams in both layouts and with a
//! terminal, the log, the status, and a restart. With socket units nobody tells the restart, and what is not
//! read when the app ends is lost: there it waits until it is.

use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::process::{ChildStdin, Stdio};

use crate::pod::{Plan, Pod};
use crate::proc::{Proc, eventually};

/// Ends with the status that it is told.
const APP: &str = r#"
case $1 in notify*) systemd-notify --ready ;; esac
echo "up $1"; echo "err $1" >&2; read x; echo "got $x"
case $1 in *-sockets*) read y ;; esac
exit $x
"#;
/// The same as a daemon: in a session of its own, and its parent has ended.
const FORK: &str = r#"
exec 3<&0
setsid sh -c 'echo $$ >"$1.new"; mv "$1.new" "$1.pid"; exec sh /shared/app "${1##*/}"' sh "/shared/$1" <&3 3<&- &
exec 3<&-
until [ -e "/shared/$1.pid" ]; do sleep 0.01; done
"#;
/// The smallest root directory in which a shell runs; without our program.
const ROOT: &str = "RootDirectory=/srv/root\n\
    BindReadOnlyPaths=/shared /usr/bin /usr/lib /lib64 /usr/lib:/lib /usr/bin:/bin\n";

/// A kind of service.
struct Kind {
    name: &'static str,
    /// Its lines.
    lines: &'static str,
    /// Whether somebody tells that it was started again.
    tells: bool,
}

const fn kind(name: &'static str, lines: &'static str) -> Kind {
    Kind { name, lines, tells: true }
}

const KINDS: [Kind; 14] = [
    kind("simple", "Type=simple\n"),
    kind("exec", "Type=exec\n"),
    kind("notify", "Type=notify\nNotifyAccess=all\n"),
    kind(
        "forking",
        "Type=forking\nExecStart=\nExecStart=/bin/sh /shared/fork %N\nPIDFile=/shared/%N.pid\n",
    ),
    // Its hook runs when it has ended already.
    Kind { tells: false, ..kind("oneshot", "Type=oneshot\n") },
    kind("user", "User=nobody\n"),
    kind("dynamic", "DynamicUser=yes\n"),
    // Its hooks are looked for in that directory.
    Kind { tells: false, ..kind("root", ROOT) },
    kind("tmp", "PrivateTmp=yes\n"),
    kind("devices", "PrivateDevices=yes\n"),
    kind("strict", "ProtectSystem=strict\nProtectHome=yes\n"),
    kind("all", "User=nobody\nProtectSystem=strict\nPrivateTmp=yes\n"),
    kind("always", "Restart=always\n"),
    kind("instance@x", "StandardOutput=null\n"),
];

/// How it gets its streams.
#[derive(Clone, Copy, PartialEq, Eq)]
enum How {
    Stream,
    Tty,
}

impl How {
    const ALL: [Self; 2] = [Self::Stream, Self::Tty];

    const fn name(self) -> &'static str {
        match self {
            Self::Stream => "stream",
            Self::Tty => "tty",
        }
    }

    const fn options(self) -> &'static str {
        match self {
            Self::Stream => "--streams",
            Self::Tty => "--tty",
        }
    }
}

/// A kind with streams or with a terminal.
struct Case<'a> {
    kind: &'a Kind,
    how: How,
}

impl Case<'_> {
    /// The name of the service, without `.service`.
    fn service(&self) -> String {
        let (name, instance) = self.kind.name.split_once('@').unwrap_or((self.kind.name, ""));
        let at = if instance.is_empty() { "" } else { "@" };
        format!("{name}-{}{at}{instance}", self.how.name())
    }

    fn unit(&self) -> String {
        format!(
            "[Service]\nExecStart=/bin/sh /shared/app %N\nRestart=on-failure\n\
             RestartPreventExitStatus=7\n{}",
            self.kind.lines
        )
    }

    /// What is on stdout, or on the terminal, of the runs that have read these, and of the last one.
    fn said(&self, typed: &[&str], last: &str) -> String {
        let up = self.up();
        let run = |x: &&str| {
            if self.how == How::Tty {
                format!("{up}{x}\r\ngot {x}\r\n")
            } else {
                format!("{up}got {x}\n")
            }
        };
        typed.iter().map(run).collect::<String>() + last
    }

    fn up(&self) -> String {
        let name = self.service();
        if self.how == How::Tty {
            format!("up {name}\r\nerr {name}\r\n")
        } else {
            format!("up {name}\n")
        }
    }

    fn stderr(&self) -> String {
        if self.how == How::Tty {
            String::new()
        } else {
            format!("err {}\n", self.service()).repeat(2)
        }
    }

    /// Its log, where its mux may always log.
    fn log(&self) -> String {
        format!("/var/log/iottymux/{}/log", self.service())
    }

    /// A daemon that ends before systemd has seen it run has failed for that.
    fn await_start(&self, pod: &Pod) {
        if self.kind.name == "forking" {
            let unit = self.service() + ".service";
            eventually("it runs", || pod.property(&unit, "ActiveState") == "active");
        }
    }
}

fn told(case: &Case) -> String {
    format!("iottymux: app {} ended with status 3 and was started again\n", case.service())
}

fn attach(pod: &Pod, app: &str) -> (Proc, ChildStdin) {
    let mut command = pod.command(&["iottymux", "attach", "--wait=25", "--app", app]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut proc = Proc::spawn(command);
    let stdin = proc.stdin();
    (proc, stdin)
}

fn boot(plan: Plan, cases: &[Case]) -> Pod {
    let mut plan = plan.root_file("srv/root/.keep", "");
    let mut script = "set -e\n".to_owned();
    for case in cases {
        let service = case.service();
        let file = service.split_once('@').map_or(service.clone(), |(name, _)| format!("{name}@"));
        plan = plan.unit(&format!("{file}.service"), &case.unit());
        let modes = case.how.options();
        let log = format!("--log cri:{}", case.log());
        // It reads its terminal, which enable cannot know.
        let force = if case.kind.name == "forking" { "--force" } else { "" };
        writeln!(script, "iottymux enable {service} {modes} {log} {force}").unwrap();
    }
    let pod = plan.boot();
    fs::write(pod.shared("app"), APP).unwrap();
    fs::write(pod.shared("fork"), FORK).unwrap();
    fs::write(pod.shared("enable"), script).unwrap();
    pod.run(&["sh", "/shared/enable"]);
    pod
}

#[test]
fn services_of_all_kinds() {
    let Some(plan) = Plan::new() else { return };
    let cases: Vec<Case> =
        KINDS.iter().flat_map(|kind| How::ALL.map(|how| Case { kind, how })).collect();
    let pod = boot(plan, &cases);
    let services: Vec<String> = cases.iter().map(Case::service).collect();
    let all: Vec<&str> = services.iter().map(String::as_str).collect();
    pod.systemctl(&[&["start", "--no-block"], &all[..]].concat());
    let mut attached: Vec<_> =
        cases.iter().map(|case| (case, attach(&pod, &case.service()))).collect();
    // Once to be started again, and once to end.
    for (case, (proc, stdin)) in &mut attached {
        proc.stdout.wait_len(case.up().len());
        case.await_start(&pod);
        stdin.write_all(b"3\n").unwrap();
    }
    for (case, (proc, stdin)) in &mut attached {
        let name = case.service();
        let want = case.said(&["3"], &case.up());
        let got = proc.stdout.wait_len(want.len());
        assert_eq!(String::from_utf8_lossy(&got), want, "{name}");
        if case.kind.tells {
            proc.stderr.wait_for(&told(case));
        }
        case.await_start(&pod);
        stdin.write_all(b"7\n").unwrap();
    }
    for (case, (proc, _stdin)) in &mut attached {
        let name = case.service();
        assert_eq!(proc.ends(), 7, "{name}: {}", pod.console());
        assert_eq!(proc.stdout.text(), case.said(&["3", "7"], ""), "{name}");
        let told = if case.kind.tells { told(case) } else { String::new() };
        let said = proc.stderr.text();
        assert!(said.contains(&told) && said.replace(&told, "") == case.stderr(), "{name}: {said}");
    }
    pod.run(&["sh", "-c", "systemctl stop 'iomux@*' 'ttymux@*'"]);
    for case in &cases {
        let name = case.service();
        let log = fs::read_to_string(pod.path(&case.log())).unwrap();
        let of = |stream: &str| -> String {
            let mark = format!(" {stream} F ");
            let text = |line: &str| line.split_once(&mark).map(|(_, text)| format!("{text}\n"));
            log.split_terminator('\n').filter_map(text).collect()
        };
        assert_eq!(of("stdout"), case.said(&["3", "7"], ""), "{name}");
        assert_eq!(of("stderr"), case.stderr(), "{name}");
    }
}

/// Nobody but the app and its own hooks writes into its streams, also where there is no process of which
/// the hooks of the mux could tell.
#[test]
fn hooks_say_nothing() {
    let Some(plan) = Plan::new() else { return };
    let log = "[Service]\nStandardError=append:/shared/mux-log\n";
    let pod = plan.unit("iomux@.service.d/log.conf", log).unit("demo.service", "").boot();
    for (lines, code, out) in [
        ("Type=oneshot\nExecStart=/bin/sh -c 'echo once; echo error >&2'\n", 0, "once\n"),
        (
            "Type=oneshot\nExecStart=/bin/echo one\nExecStart=/bin/sh -c 'echo two; echo error >&2; exit 5'\n",
            5,
            "one\ntwo\n",
        ),
        // It never ran, so there is no status of it.
        (
            "ExecStartPre=/bin/sh -c 'echo before; echo error >&2; exit 4'\nExecStart=/bin/echo never\n",
            0,
            "before\n",
        ),
    ] {
        pod.set_unit("demo.service", &format!("[Service]\n{lines}"));
        pod.run(&["iottymux", "enable", "demo", "--stdout", "stream", "--stderr", "stream"]);
        let (mut proc, _stdin) = attach(&pod, "demo");
        pod.systemctl(&["start", "--no-block", "demo"]);
        assert_eq!(proc.ends(), code, "{lines}: {}", proc.stderr.text());
        assert_eq!((&*proc.stdout.text(), &*proc.stderr.text()), (out, "error\n"), "{lines}");
        pod.systemctl(&["stop", "iomux@demo.service"]);
    }
    // One that remains has not ended.
    let stays = "[Service]\nType=oneshot\nRemainAfterExit=yes\nExecStart=/bin/echo done\n\
                 ExecStop=/bin/echo undone\n";
    pod.set_unit("demo.service", stays);
    pod.systemctl(&["start", "demo"]);
    let (mut proc, _stdin) = attach(&pod, "demo");
    proc.stdout.wait_for("done\n");
    pod.systemctl(&["stop", "demo"]);
    assert_eq!(proc.ends(), 0, "{}", proc.stderr.text());
    assert_eq!((&*proc.stdout.text(), &*proc.stderr.text()), ("done\nundone\n", ""));
}
