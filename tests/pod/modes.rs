//! Every mode, and every mixture of them that makes sense, in both layouts: what the app finds, and
//! what comes of what it says.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::{self, File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::{ChildStdin, Stdio};

use rustix::pty::{ptsname, unlockpt};

use crate::log::{journal, message, with_journald};
use crate::pod::{Plan, Pod};
use crate::proc::{Proc, Said, eventually};

/// Says something on both outputs, writes down what its streams are, repeats a line, and ends when
/// it may.
const PROBE: &str = r#"
echo "out $1"; echo "err $1" >&2
ttys=
for fd in 0 1 2; do if [ -t $fd ]; then ttys="$ttys yes"; else ttys="$ttys no"; fi; done
read -r stat </proc/self/stat
set -- "$1" $stat
if (: </dev/tty) 2>/dev/null; then own=yes; else own=no; fi
if [ "$2" = "$9" ]; then front=yes; else front=no; fi
links=$(for fd in 0 1 2; do readlink /proc/$$/fd/$fd; done)
{
    echo $ttys; printf "%s\n" "$links"
    echo "number $8 own $own front $front"
} >"/shared/$1.new"
mv "/shared/$1.new" "/shared/$1.report"
read x; echo "got ${x:-nothing}"; echo "end $1" >&2
cat "/shared/$1.go"; exit 3
"#;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    Tty,
    Stream,
    Log,
    Null,
}
use Mode::{Log, Null, Stream, Tty};

impl Mode {
    const fn name(self) -> &'static str {
        match self {
            Tty => "tty",
            Stream => "stream",
            Log => "log",
            Null => "null",
        }
    }
}

/// An app with its modes.
struct Case {
    layout: &'static str,
    modes: [Mode; 3],
}

/// What the app found.
struct Report {
    ttys: String,
    links: Vec<String>,
    terminal: String,
}

impl Report {
    /// Waits until the app has written it.
    fn read(path: &Path) -> Self {
        eventually(&format!("there is {}", path.display()), || path.exists());
        let text = fs::read_to_string(path).unwrap();
        let mut lines = text.lines().map(str::to_owned);
        Self {
            ttys: lines.next().unwrap(),
            links: lines.by_ref().take(3).collect(),
            terminal: lines.next().unwrap(),
        }
    }
}

impl Case {
    fn all() -> Vec<Self> {
        let mut all = Vec::new();
        for layout in ["direct", "sockets"] {
            for stdin in [Null, Stream, Tty] {
                for stdout in [Null, Log, Stream, Tty] {
                    for stderr in [Null, Log, Stream, Tty] {
                        all.push(Self { layout, modes: [stdin, stdout, stderr] });
                    }
                }
            }
        }
        all
    }

    fn name(&self) -> String {
        let [stdin, stdout, stderr] = self.modes.map(Mode::name);
        format!("{}-{stdin}-{stdout}-{stderr}", self.layout)
    }

    fn has(&self, mode: Mode) -> bool {
        self.modes.contains(&mode)
    }

    /// The names by which it is attached: with its streams, and with its terminal.
    fn names(&self) -> [Option<String>; 2] {
        let terminal = if self.has(Stream) { self.name() + "-tty" } else { self.name() };
        [self.has(Stream).then(|| self.name()), self.has(Tty).then_some(terminal)]
    }

    /// What goes to one of its outputs.
    fn says(&self, output: usize) -> Vec<String> {
        let heard = if self.modes[0] == Null { "nothing" } else { "hello" };
        match output {
            1 => vec![format!("out {}", self.name()), format!("got {heard}")],
            _ => vec![format!("err {}", self.name()), format!("end {}", self.name())],
        }
    }

    /// What goes to an output of this mode.
    fn stream(&self, output: usize, mode: Mode) -> Vec<String> {
        if self.modes[output] == mode { self.says(output) } else { Vec::new() }
    }

    /// What its terminal shows: what is typed is repeated by the terminal itself.
    fn terminal(&self) -> Vec<String> {
        let (out, err) = (self.stream(1, Tty), self.stream(2, Tty));
        let typed = (self.modes[0] == Tty).then(|| "hello".to_owned());
        let (first, last) = (0..1, 1..2);
        let at = |lines: &[String], range: std::ops::Range<usize>| {
            lines.get(range).unwrap_or_default().to_vec()
        };
        [
            at(&out, first.clone()),
            at(&err, first),
            typed.into_iter().collect(),
            at(&out, last.clone()),
            at(&err, last),
        ]
        .concat()
    }

    /// The log of its mux, by stream: that of its terminal is of one.
    fn log(&self) -> Option<[Vec<String>; 2]> {
        let logging = self.modes[1..].iter().find(|mode| matches!(mode, Stream | Tty))?;
        Some(match logging {
            Stream => [self.stream(1, Stream), self.stream(2, Stream)],
            _ => [self.terminal().into_iter().map(|line| line + "\r").collect(), Vec::new()],
        })
    }

    fn assert_report(&self, report: &Report) {
        let (name, links) = (self.name(), &report.links);
        let is_tty = self.modes.map(|mode| if mode == Tty { "yes" } else { "no" });
        assert_eq!(report.ttys, is_tty.join(" "), "{name}");
        for ((link, mode), stream) in
            links.iter().zip(self.modes).zip(["stdin", "stdout", "stderr"])
        {
            let is_so = match mode {
                Tty => link.starts_with("/dev/pts/"),
                Stream => *link == format!("/run/iottymux/{name}/ends/stage2-{stream}"),
                Log => link.starts_with("socket:"),
                Null => link == "/dev/null",
            };
            assert!(is_so, "{name}: {stream} is {link}");
        }
        // systemd gives a controlling terminal only to who reads from it.
        let own = self.modes[0] == Tty;
        let has = !report.terminal.starts_with("number 0 ");
        assert_eq!(has, own, "{name}: {}", report.terminal);
        let tells =
            report.terminal.ends_with(if own { "own yes front yes" } else { "own no front no" });
        assert!(tells, "{name}: {}", report.terminal);
    }
}

/// Who is attached to an app.
struct Attached {
    proc: Proc,
    _stdin: ChildStdin,
}

fn attach(pod: &Pod, app: &str, types: bool) -> Attached {
    let mut command = pod.command(&["iottymux", "attach", "--app", app]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut proc = Proc::spawn(command);
    let mut stdin = proc.stdin();
    if types {
        stdin.write_all(b"hello\n").unwrap();
    }
    Attached { proc, _stdin: stdin }
}

fn text(lines: &[String], end: &str) -> String {
    lines.iter().flat_map(|line| [line, end]).collect()
}

/// A pod with these apps, which were given their units and have not been started.
fn boot(plan: Plan, cases: &[Case]) -> Pod {
    let mut plan = with_journald(plan);
    let mut script = "set -e\n".to_owned();
    for case in cases {
        let name = case.name();
        let unit = format!("[Service]\nExecStart=/bin/sh /shared/probe {name}\n");
        plan = plan.unit(&format!("{name}.service"), &unit);
        let [stdin, stdout, stderr] = case.modes.map(Mode::name);
        writeln!(
            script,
            "iottymux units --output /etc/systemd/system --layout {} --app {name} --stdin {stdin} \
             --stdout {stdout} --stderr {stderr} --log cri:/shared/log/{name}.log \"$@\" >/dev/null",
            case.layout
        )
        .unwrap();
    }
    let pod = plan.boot();
    fs::write(pod.shared("probe"), PROBE).unwrap();
    fs::write(pod.shared("units"), script).unwrap();
    pod.make_log_dir();
    for case in cases {
        pod.shared_fifo(&format!("{}.go", case.name()));
    }
    pod.run(&["sh", "/shared/units"]);
    pod.systemctl(&["daemon-reload"]);
    pod
}

#[test]
fn all_mixtures_in_both_layouts() {
    let Some(plan) = Plan::new() else { return };
    let cases = Case::all();
    let pod = boot(plan, &cases);
    let services: Vec<String> = cases.iter().map(|case| case.name() + ".service").collect();
    let with = |words: &[&str]| {
        let services = services.iter().map(String::as_str);
        pod.try_run(&words.iter().copied().chain(services).collect::<Vec<_>>())
    };
    let verified = with(&["systemd-analyze", "verify", "--man=no"]);
    assert!(verified.status.success() && verified.stderr.is_empty(), "{verified:?}");

    let started = with(&["systemctl", "start"]);
    assert!(started.status.success(), "{started:?}");
    let mut attached = Vec::new();
    for case in &cases {
        let report = Report::read(&pod.shared(&format!("{}.report", case.name())));
        case.assert_report(&report);
        let [streams, terminal] = case.names();
        let streams = streams.map(|app| attach(&pod, &app, case.modes[0] == Stream));
        let terminal = terminal.map(|app| attach(&pod, &app, case.modes[0] == Tty));
        attached.push((case, report, streams, terminal));
    }
    for (case, report, mut streams, mut terminal) in attached {
        let name = case.name();
        let out = text(&case.stream(1, Stream), "\n");
        let err = text(&case.stream(2, Stream), "\n");
        let shown = text(&case.terminal(), "\r\n");
        if let Some(Attached { proc, .. }) = &streams {
            proc.stdout.wait_len(out.len());
            proc.stderr.wait_len(err.len());
        }
        if let Some(Attached { proc, .. }) = &terminal {
            proc.stdout.wait_len(shown.len());
        }
        // Opens when the app waits for that.
        drop(OpenOptions::new().write(true).open(pod.shared(&format!("{name}.go"))).unwrap());
        for (who, out, err) in [(&mut streams, &*out, &*err), (&mut terminal, &shown, "")] {
            let Some(Attached { proc, .. }) = who else { continue };
            assert_eq!(proc.ends(), 3, "{name}: the status of the app");
            assert_eq!((&*proc.stdout.text(), &*proc.stderr.text()), (out, err), "{name}");
        }
        println!("{name:32} isatty {:11} {}", report.ttys, report.terminal);
    }
    // The muxes end behind their apps, and the logs are whole then.
    pod.run(&["sh", "-c", "systemctl stop 'iomux@*' 'ttymux@*'"]);
    assert_logs(&pod, &cases);
    assert_nothing_is_left(&pod, &services);
}

/// The journal and the logs of the muxes have what they are to have, and no more.
fn assert_logs(pod: &Pod, cases: &[Case]) {
    pod.run(&["journalctl", "--sync"]);
    let mut journals: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for entry in journal(pod, &["_TRANSPORT=stdout"]) {
        let who = entry["SYSLOG_IDENTIFIER"].as_str().unwrap().to_owned();
        let text = String::from_utf8(message(&entry)).unwrap();
        journals.entry(who).or_default().push(text);
    }
    for case in cases {
        let name = case.name();
        let mut want = [case.stream(1, Log), case.stream(2, Log)].concat();
        let mut got = journals.remove(&name).unwrap_or_default();
        // The two streams have no order among each other there.
        want.sort();
        got.sort();
        assert_eq!(got, want, "{name}: the journal");
        let log = fs::read_to_string(pod.shared(&format!("log/{name}.log"))).ok();
        let of = |log: &str, stream: &str| -> Vec<String> {
            let mark = format!(" {stream} F ");
            let text = |line: &str| line.split_once(&mark).map(|(_, text)| text.to_owned());
            log.split_terminator('\n').filter_map(text).collect()
        };
        let logged = log.map(|log| [of(&log, "stdout"), of(&log, "stderr")]);
        assert_eq!(logged, case.log(), "{name}: the log");
    }
}

/// What is left of muxes: how their apps ended, and in the direct layout the FIFOs for the next start,
/// where nobody opens them before. Nothing at all where they are removed.
fn assert_nothing_is_left(pod: &Pod, services: &[String]) {
    for mux in pod.names("/run/iottymux") {
        let mut left = pod.names(&pod.mux_dir(&mux));
        left.retain(|name| name != "logs");
        assert_eq!(left, ["last.json", "lock"], "{mux}");
    }
    pod.run(&["sh", "/shared/units", "--remove"]);
    assert_eq!(pod.names("/run/iottymux"), Vec::<String>::new());
    let mut left = pod.names("/etc/systemd/system");
    left.retain(|name| !services.contains(name));
    assert_eq!(left, ["default.target", "systemd-journald-audit.socket"]);
}

/// The terminal that the machine was started from: no mux has a part in that.
#[test]
fn interactive() {
    let Some(plan) = Plan::new() else { return };
    let unit = "[Service]\nExecStart=/bin/sh /shared/probe demo\n";
    let pod = plan.unit("demo.service", unit).boot();
    fs::write(pod.shared("probe"), PROBE).unwrap();
    pod.shared_fifo("demo.go");
    // The pod's own console is the terminal of the session that holds the pod: systemd would wait for it.
    let mut how = File::options();
    how.read(true).write(true).custom_flags(nix::libc::O_NOCTTY);
    let mut console = how.open(pod.path("/dev/pts/ptmx")).unwrap();
    unlockpt(&console).unwrap();
    let terminal = ptsname(&console, Vec::new()).unwrap().into_string().unwrap();
    // Or it would hang up whenever nobody has it.
    let _held = how.open(pod.path(&terminal)).unwrap();
    pod.run(&["mount", "--bind", &terminal, "/dev/console"]);
    let shown = Said::follow(console.try_clone().unwrap());

    let mode = ["--stdin", "interactive", "--stdout", "interactive", "--stderr", "interactive"];
    let units = ["iottymux", "units", "--output", "/etc/systemd/system", "--app", "demo"];
    pod.run(&[&units[..], &mode].concat());
    let verified = pod.try_run(&["systemd-analyze", "verify", "--man=no", "demo.service"]);
    assert!(verified.status.success() && verified.stderr.is_empty(), "{verified:?}");
    pod.systemctl(&["daemon-reload"]);
    pod.systemctl(&["start", "demo.service"]);
    shown.wait_for("out demo\r\nerr demo\r\n");
    console.write_all(b"hello\n").unwrap();
    shown.wait_for("hello\r\ngot hello\r\nend demo\r\n");
    let report = Report::read(&pod.shared("demo.report"));
    assert_eq!(report.ttys, "yes yes yes");
    assert_eq!(report.links, ["/dev/console"; 3]);
    assert!(report.terminal.ends_with("own yes front yes"), "{}", report.terminal);
    assert!(!pod.path("/run/iottymux").exists());
    drop(OpenOptions::new().write(true).open(pod.shared("demo.go")).unwrap());
    eventually("it has ended", || pod.property("demo.service", "ExecMainStatus") == "3");
}

/// Names and paths with everything that means something to systemd: what is written is what is meant.
#[test]
fn nasty_values() {
    let Some(plan) = Plan::new() else { return };
    let state = r#"/run/a b%n$HOME"c'd\e;f#"#;
    let dir = r#"/var/log/x y%i${PATH}"z'\w"#;
    let binary = "/opt/p q%u$HOME${PATH};#/iottymux";
    let service = "my app@1 %n.service";
    let pod = plan
        .unit(r"my\x20app@.service", "[Service]\nExecStart=/bin/sh /shared/probe demo\n")
        .boot();
    fs::write(pod.shared("probe"), PROBE).unwrap();
    pod.shared_fifo("demo.go");
    let program = Path::new(binary).parent().unwrap().to_str().unwrap();
    pod.run(&["mkdir", "-p", program, dir]);
    pod.run(&["ln", "-s", "/iottymux", binary]);
    let real = pod.run(&["systemd-escape", "--mangle", service]);
    let real = real.trim();
    for (layout, modes) in [
        ("direct", ["stream", "stream", "stream"]),
        ("sockets", ["stream", "stream", "stream"]),
        ("direct", ["tty", "tty", "tty"]),
        ("direct", ["tty", "stream", "log"]),
    ] {
        let what = format!("{layout} {modes:?}");
        let log = format!("cri:{dir}/log");
        let to = ["--output", "/etc/systemd/system", "--app", "demo", "--service", service];
        let how = ["--binary", binary, "--layout", layout, "--log", &log];
        let streams = ["--stdin", modes[0], "--stdout", modes[1], "--stderr", modes[2]];
        let units = ["iottymux", "--state-dir", state, "units"];
        pod.run(&[&units[..], &to, &how, &streams].concat());
        let verified = pod.try_run(&["systemd-analyze", "verify", "--man=no", real]);
        assert!(verified.status.success() && verified.stderr.is_empty(), "{what}: {verified:?}");
        pod.systemctl(&["daemon-reload"]);
        pod.systemctl(&["start", real]);
        let report = Report::read(&pod.shared("demo.report"));
        for (link, (mode, stream)) in
            report.links.iter().zip(modes.iter().zip(["stdin", "stdout", "stderr"]))
        {
            if *mode == "stream" {
                assert_eq!(*link, format!("{state}/demo/stage2-{stream}"), "{what}");
            }
        }
        let of = |app: &str| {
            let attach = ["iottymux", "--state-dir", state, "attach", "--app", app];
            let mut command = pod.command(&attach);
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
            let mut proc = Proc::spawn(command);
            let stdin = proc.stdin();
            (proc, stdin)
        };
        let has = |mode| modes.contains(&mode);
        let (mut first, mut typed) = of("demo");
        let mut second = (has("tty") && has("stream")).then(|| of("demo-tty"));
        let input = second.as_mut().map_or(&mut typed, |(_, typed)| typed);
        input.write_all(b"hello\n").unwrap();
        first.stdout.wait_for("got hello");
        drop(OpenOptions::new().write(true).open(pod.shared("demo.go")).unwrap());
        assert_eq!(first.ends(), 3, "{what}: {}", pod.console());
        if let Some((second, _)) = &mut second {
            assert_eq!(second.ends(), 3, "{what}");
        }
        pod.run(&["sh", "-c", "systemctl stop 'iomux@*' 'ttymux@*'"]);
        let path = pod.path(dir).join("log");
        let log = fs::read_to_string(&path).unwrap();
        assert!(log.contains(" stdout F out demo"), "{what}: {log}");
        fs::remove_file(path).unwrap();
        fs::remove_file(pod.shared("demo.report")).unwrap();
        pod.run(&[&units[..], &to, &["--remove"]].concat());
        assert_eq!(pod.names(state), Vec::<String>::new(), "{what}");
        let left = pod.names("/etc/systemd/system");
        assert_eq!(left, ["default.target", r"my\x20app@.service"], "{what}");
    }
}

/// What goes to the kubelet's log goes there by a mux, also of streams that nobody is to attach to.
#[test]
fn the_kubelets_log_in_both_layouts() {
    let Some(plan) = Plan::new() else { return };
    let unit = "[Service]\nExecStart=/bin/sh /shared/probe demo\n";
    let pod = plan.unit("demo.service", unit).root_file("rkt/kubernetes/log/.keep", "").boot();
    fs::write(pod.shared("probe"), PROBE).unwrap();
    pod.shared_fifo("demo.go");
    let rkt = |name: &str| format!("--annotation=coreos.com/rkt/{name}");
    let (mode, path) =
        (rkt("experiment/logmode=k8s-plain"), rkt("experiment/kubernetes-log-path=hello/0.log"));
    for (layout, stdout) in [("direct", "log"), ("direct", "stream"), ("sockets", "stream")] {
        let stdout = rkt(&format!("stage2/stdout={stdout}"));
        let units = ["iottymux", "--state-dir", "/rkt/iottymux", "units", "--app", "demo"];
        let units = [&units[..], &["--output", "/etc/systemd/system"]].concat();
        pod.run(&[&units[..], &["--layout", layout, &stdout, &mode, &path]].concat());
        let verified = pod.try_run(&["systemd-analyze", "verify", "--man=no", "demo.service"]);
        assert!(verified.status.success() && verified.stderr.is_empty(), "{verified:?}");
        pod.systemctl(&["daemon-reload"]);
        pod.systemctl(&["start", "demo.service"]);
        let log = pod.path("/rkt/kubernetes/log/hello/0.log");
        let lines = || -> Vec<String> {
            let text = fs::read_to_string(&log).unwrap_or_default();
            let entry = |line: &str| line.split_once("Z ").map(|(_, entry)| entry.to_owned());
            let mut entries: Vec<String> = text.lines().filter_map(entry).collect();
            entries.sort();
            entries
        };
        let want =
            ["stderr F end demo", "stderr F err demo", "stdout F got nothing", "stdout F out demo"];
        eventually("it is logged", || lines() == want);
        drop(OpenOptions::new().write(true).open(pod.shared("demo.go")).unwrap());
        pod.systemctl(&["stop", "demo.service", "iomux@demo.service"]);
        pod.systemctl(&["reset-failed"]);
        fs::remove_file(&log).unwrap();
        pod.run(&[&units[..], &["--remove"]].concat());
    }
}
