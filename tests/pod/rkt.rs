//! rkt's own units as they stand, all twelve kinds: the app starts, is attached, stops, starts again, and
//! nothing hangs or stays. What systemd itself loses in this layout is not asked for (docs/rkt.md).

use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};

use iottymux::core::wire::{Decoder, FrameKind, Hello, Item, Want};
use iottymux::types::stream::{Position, Stream};

use crate::pod::{Plan, Pod, Raw, rounds};
use crate::proc::{Proc, eventually};
use crate::skip::skip;

const FIXTURES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/pod/fixtures/rkt");
const STATE: &str = "/rkt/iottymux/demo";
const ROOTFS: &str = "/opt/stage2/demo/rootfs";
/// The image's command, of which rkt's capture has `/bin/sleep 600`. It notes which of its ends are
/// terminals, tells its process, so that a line of the last start is not taken for one of this, and
/// then prints more than a pipe holds, and less than the backlog.
const COMMAND: &str = "\
[Service]
ExecStart=
ExecStart=/bin/sh -c 'for end in 0 1 2; do test -t $$end && ends=$$ends$$end; done; echo $$ends >/terminals; \
    echo up $$$$; echo error $$$$ >&2; seq 20000; cat; exec sleep 600'
";
const NUMBERS: usize = 20_000;
/// The console of a pod of rkt is nobody's controlling terminal, as that of podsd's is.
const CONSOLE: &str = "[Service]\nStandardInput=tty-force\n";
/// An immutable pod ends with its app; with this it does not.
const STAY: &str = "[Service]\nExecStop=\nExecStop=/bin/true\n";
/// More starts in a row than systemd allows by itself.
const OFTEN: &str = "[Unit]\nStartLimitIntervalSec=0\n";
/// More than any stop that does not hang takes, and less than systemd's patience of 90 s.
const NO_HANG: &str = "40";
/// The variables by which rkt asks for an endpoint, and the endpoint.
const ASKED_FOR: [(&str, &str); 5] = [
    ("STAGE2_ATTACH_TTYIN", "tty"),
    ("STAGE2_ATTACH_TTYOUT", "tty"),
    ("STAGE2_ATTACH_STDIN", "stdin"),
    ("STAGE2_ATTACH_STDOUT", "stdout"),
    ("STAGE2_ATTACH_STDERR", "stderr"),
];

/// A kind of pod, and what is to be found in it.
struct Kind {
    fixture: &'static str,
    /// The endpoints of the app; without any it has no mux.
    targets: &'static [&'static str],
    /// Which of its ends the app finds to be terminals.
    terminals: &'static str,
    /// Which of its first words are on the pod's console.
    console: &'static str,
    /// Its log below the kubelet's directory; the test asks for it where rkt has not. "" is none.
    log: &'static str,
}

const NONE: &[&str] = &[];
const ALL: &[&str] = &["stdin", "stdout", "stderr"];
const TTY: &[&str] = &["tty"];

/// Without names for its `fd`s the app's stderr is its stdout, where that is one: systemd, not the mux,
/// mixes them, up to some version after 257. In the mixed mode rkt starts the mux of streams alone; the terminal is the console.
#[rustfmt::skip]
const KINDS: [Kind; 12] = [
    kind("immutable-interactive", NONE, "012", "up error", ""),
    kind("immutable-log", NONE, "", "up error", ""),
    kind("immutable-mixed-stdin-tty-stdout-stream", &["stdout", "stderr"], "0", "", "hello/0.log"),
    kind("immutable-null", NONE, "", "", ""),
    kind("immutable-stdout-stream-only", &["stdout"], "", "error", "hello/0.log"),
    kind("immutable-stream", ALL, "", "", "hello/0.log"),
    kind("immutable-tty", TTY, "012", "", "hello/0.log"),
    kind("mutable-k8s-plain", ALL, "", "", "hello_0.log"),
    kind("mutable-log", NONE, "", "up error", ""),
    kind("mutable-null", NONE, "", "", ""),
    kind("mutable-stream", ALL, "", "", ""),
    kind("mutable-tty", TTY, "012", "", ""),
];

const fn kind(
    fixture: &'static str,
    targets: &'static [&'static str],
    terminals: &'static str,
    console: &'static str,
    log: &'static str,
) -> Kind {
    Kind { fixture, targets, terminals, console, log }
}

impl Kind {
    fn named(fixture: &str) -> &'static Self {
        KINDS.iter().find(|kind| kind.fixture == fixture).unwrap()
    }

    /// Whether the app starts with the pod, and the pod ends with the app.
    fn is_immutable(&self) -> bool {
        self.fixture.starts_with("immutable")
    }

    fn has_terminal(&self) -> bool {
        self.targets == TTY
    }

    /// The unit of its mux.
    fn mux(&self) -> Option<&'static str> {
        match self.targets {
            [] => None,
            TTY => Some("ttymux@demo.service"),
            _ => Some("iomux@demo.service"),
        }
    }

    /// A raw connection to its output.
    fn output(&self, pod: &Pod) -> Raw {
        let target = if self.has_terminal() { "tty" } else { "stdout" };
        pod.connect_at(&format!("{STATE}/sock-{target}"))
    }

    /// Writes lines where its app writes, which then need not be asked to.
    fn print(&self, pod: &Pod, command: &str) {
        let end = if self.has_terminal() { "stage2-pts" } else { "stage2-stdout" };
        pod.run(&["timeout", NO_HANG, "sh", "-c", &format!("{command} >{STATE}/{end}")]);
    }

    /// The whole lines of stdout that are in its log now.
    fn logged(&self, pod: &Pod) -> Vec<String> {
        let path = pod.path(&format!("/rkt/kubernetes/log/{}", self.log));
        let text = fs::read_to_string(path).unwrap_or_default();
        let (mut lines, mut line) = (Vec::new(), String::new());
        for entry in text.split_inclusive('\n').filter_map(|entry| entry.strip_suffix('\n')) {
            match entry.splitn(4, ' ').collect::<Vec<_>>()[..] {
                [_, "stdout", tag, part] => {
                    line.push_str(part);
                    if tag == "F" {
                        lines.push(std::mem::take(&mut line).trim_end().to_owned());
                    }
                }
                [_, "stderr", ..] => {}
                _ => panic!("{entry:?}"),
            }
        }
        lines
    }
}

fn plan(kind: &Kind) -> Option<Plan> {
    println!("--- {}", kind.fixture);
    let mut plan = Plan::new()?
        .unit("demo.service.d/command.conf", COMMAND)
        .unit("service.d/often.conf", OFTEN)
        .unit("socket.d/often.conf", OFTEN)
        .root_file("rkt/env/demo", "PATH=/bin\n")
        .root_file("rkt/status/.keep", "")
        .root_file(&format!("{ROOTFS}/.keep"), "");
    if kind.fixture.ends_with("interactive") {
        plan = plan.unit("demo.service.d/console.conf", CONSOLE);
    }
    for dir in [kind.fixture, "both"] {
        for entry in fs::read_dir(Path::new(FIXTURES).join(dir)).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap().to_owned();
            let mut text = fs::read_to_string(&path).unwrap();
            plan = match name.as_str() {
                "prepare-app" | "reaper.sh" => plan.root_program(&name, &text),
                "env" => {
                    if !kind.log.is_empty() && !text.contains("KUBERNETES_LOG_PATH") {
                        text.push_str("STAGE1_LOGMODE=k8s-plain\nKUBERNETES_LOG_PATH=");
                        text.push_str(kind.log);
                    }
                    // The mode that rkt gives the directory.
                    plan.root_file(&format!("{STATE}/env"), &text).root_mode(STATE, 0o644)
                }
                _ => plan.unit(&name, &text),
            };
        }
    }
    Some(plan)
}

fn start(pod: &Pod) {
    pod.run(&["timeout", NO_HANG, "systemctl", "start", "demo.service"]);
}

/// Waits until the app can be attached: its mux may start after it, and nobody tells then. A mux that
/// was killed has left a document, and sockets that accept nobody.
fn await_mux(pod: &Pod) {
    let [socket, document] =
        ["sock-session", "endpoints"].map(|n| pod.path(&format!("{STATE}/{n}")));
    eventually("there is a mux", || UnixStream::connect(&socket).is_ok() && document.exists());
}

/// This binary as rkt calls it, with these of its variables set.
fn rkt_command(pod: &Pod, binary: &str, action: &str, set: &[&str]) -> Command {
    let is = |name: &str| if set.contains(&name) { "true" } else { "false" };
    let mut words = vec!["env".to_owned(), "STAGE2_DEBUG=false".to_owned()];
    words.extend(ASKED_FOR.map(|(name, _)| format!("{name}={}", is(name))));
    words.extend([binary.to_owned(), format!("--action={action}"), "--app=demo".to_owned()]);
    let words: Vec<_> = words.iter().map(String::as_str).collect();
    pod.command(&words)
}

fn act(pod: &Pod, action: &str, set: &[&str]) -> Proc {
    let mut command = rkt_command(pod, "/iottymux", action, set);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    Proc::spawn(command)
}

/// How many clients see what the app writes.
fn viewers(pod: &Pod) -> usize {
    let status = pod.run(&["/iottymux", "status", "--app", "demo", "--json"]);
    let status: serde_json::Value = serde_json::from_str(&status).unwrap();
    let clients = status["clients"].as_array().unwrap();
    clients.iter().filter(|client| client["streams"] != serde_json::json!([])).count()
}

/// It fails in rkt's way: its code, and one line.
fn assert_fails(mut process: Proc, why: &str) {
    assert_eq!(process.ends(), 254, "{}", process.stderr.so_far());
    let said = process.stderr.text();
    assert!(said.lines().count() == 1 && said.contains(why), "{said:?}");
}

/// The first words of the app are where they belong, and the numbers behind them are complete.
fn assert_began(pod: &Pod, kind: &Kind, output: Option<&mut Raw>) {
    let pid = pod.property("demo.service", "MainPID");
    let words = ["up", "error"].map(|word| (word, format!("{word} {pid}")));
    for (word, line) in &words {
        if kind.console.contains(word) {
            eventually(&format!("{line:?} is on the console"), || pod.console().contains(line));
        }
    }
    if let Some(output) = output {
        // Some systemds mix the two, see KINDS.
        let is_alone =
            pod.run(&["readlink", &format!("/proc/{pid}/fd/2")]).contains("stage2-stderr");
        for (word, line) in words.iter().filter(|(word, _)| !kind.console.contains(word)) {
            if *word == "error" && is_alone {
                pod.connect_at(&format!("{STATE}/sock-stderr")).line_ending(line);
            } else {
                output.line_ending(line);
            }
        }
        for number in 1..=NUMBERS {
            assert_eq!(output.line(), number.to_string());
        }
        let console = pod.console();
        let elsewhere =
            |(word, line): &&(&str, String)| !kind.console.contains(word) && console.contains(line);
        assert!(words.iter().find(elsewhere).is_none(), "{console}");
    }
    let noted = pod.path(&format!("{ROOTFS}/terminals"));
    eventually("the app knows its ends", || {
        fs::read_to_string(&noted).is_ok_and(|noted| noted.trim_end() == kind.terminals)
    });
}

/// The app is what rkt promises, and can be attached by the sockets and in rkt's spelling.
fn assert_works(pod: &Pod, kind: &Kind) {
    if kind.mux().is_none() {
        assert_began(pod, kind, None);
        assert_fails(act(pod, "list", &[]), "app");
        assert_fails(act(pod, "auto-attach", &[]), "app");
        return;
    }
    await_mux(pod);
    let mut output = kind.output(pod);
    assert_began(pod, kind, Some(&mut output));

    let list = pod.run(&["/iottymux", "--app=demo"]);
    let list: serde_json::Value = serde_json::from_str(&list).unwrap();
    let target = |name: &&str| serde_json::json!({"name": name, "domain": "unix", "address": format!("{STATE}/sock-{name}")});
    let targets: Vec<_> = kind.targets.iter().map(target).collect();
    assert_eq!((&list["version"], &list["targets"]), (&1.into(), &targets.into()));

    let mut auto = act(pod, "auto-attach", &[]);
    let (typed, shown) = if kind.has_terminal() {
        ("STAGE2_ATTACH_TTYIN", "STAGE2_ATTACH_TTYOUT")
    } else {
        ("STAGE2_ATTACH_STDIN", "STAGE2_ATTACH_STDOUT")
    };
    let mut custom = act(pod, "custom-attach", &[shown]);
    if kind.targets.iter().any(|target| ["stdin", "tty"].contains(target)) {
        let mut once = act(pod, "custom-attach", &[typed]);
        once.stdin().write_all(b"as rkt does\n").unwrap();
        assert_eq!(once.ends(), 0, "{}", once.stderr.so_far());
        output.line_ending("as rkt does");
        auto.stdin().write_all(b"hello\n").unwrap();
        output.line_ending("hello");
        let input = if kind.has_terminal() { "sock-tty" } else { "sock-stdin" };
        pod.connect_at(&format!("{STATE}/{input}")).say("raw\n");
        output.line_ending("raw");
    }
    eventually("both are attached", || viewers(pod) == 3);
    kind.print(pod, "echo shown");
    output.line_ending("shown");
    for attach in [&auto, &custom] {
        attach.stdout.wait_for("shown");
    }
    for (variable, target) in ASKED_FOR {
        if !kind.targets.contains(&target) {
            assert_fails(act(pod, "custom-attach", &[variable]), &format!("it has no {target}"));
        }
    }
    if kind.log.is_empty() {
        assert!(!pod.path("/rkt/kubernetes").exists());
    } else {
        let up = format!("up {}", pod.property("demo.service", "MainPID"));
        // The log has the runs before this one as well; the last line of one may have no end.
        let run = || {
            kind.logged(pod).into_iter().skip_while(|line| !line.ends_with(&up)).collect::<Vec<_>>()
        };
        let has = |line: &str| run().iter().any(|logged| logged == line);
        eventually("it is in the kubelet's log", || has("shown"));
        let numbers = run().into_iter().skip_while(|line| line != "1").take(NUMBERS);
        assert!(numbers.eq((1..=NUMBERS).map(|number| number.to_string())));
    }
    stop(pod, kind);
    // In rkt's spelling every end of the app is a success.
    assert_eq!((auto.ends(), custom.ends()), (0, 0), "{}", auto.stderr.so_far());
}

/// Stops app and mux, and finds nothing stale.
fn stop(pod: &Pod, kind: &Kind) {
    stop_what_runs(pod, kind);
    let Some(mux) = kind.mux() else { return };
    assert_eq!(pod.property(mux, "Result"), "success", "{}", pod.console());
    let mut left = vec!["env", "last.json", "lock"];
    if !kind.log.is_empty() {
        left.push("logs");
    }
    assert_eq!(pod.names(STATE), left);
}

/// Stops app and mux, whatever has become of them.
fn stop_what_runs(pod: &Pod, kind: &Kind) {
    pod.run(&["timeout", NO_HANG, "systemctl", "stop", "demo.service"]);
    if let Some(mux) = kind.mux() {
        // It is bound to the app; this waits for its end.
        pod.run(&["timeout", NO_HANG, "systemctl", "stop", mux]);
    }
    pod.systemctl(&["reset-failed"]);
}

/// The app starts and stops again and again, with its mux.
fn cycles(pod: &Pod, kind: &Kind) {
    for _ in 0..rounds(3, 12) {
        assert_works(pod, kind);
        start(pod);
    }
    for _ in 0..rounds(2, 6) {
        pod.run(&["timeout", NO_HANG, "systemctl", "restart", "demo.service"]);
    }
    assert_works(pod, kind);
}

/// What is in the pipe or the terminal when the mux is told to end is delivered.
fn assert_drains(pod: &Pod, kind: &Kind) {
    let Some(mux) = kind.mux() else { return };
    start(pod);
    await_mux(pod);
    let mut output = kind.output(pod);
    assert_began(pod, kind, Some(&mut output));
    let signal = |signal| pod.systemctl(&["kill", "--kill-who=main", signal, mux]);
    signal("--signal=STOP");
    kind.print(pod, "seq 700");
    signal("--signal=TERM");
    signal("--signal=CONT");
    let rest = String::from_utf8(output.rest()).unwrap();
    let numbers: Vec<String> = (1..=700).map(|number| number.to_string()).collect();
    assert!(rest.lines().eq(&numbers), "{rest}");
    stop(pod, kind);
}

/// A mux that is killed is not started again by these units. An app with streams does not notice, for
/// PID 1 has its FIFOs open as well: a mux that is started by hand has all that was written meanwhile. An
/// app with a terminal ends with it. After either app and mux start as ever.
fn assert_survives(pod: &Pod, kind: &Kind) {
    let Some(mux) = kind.mux() else { return };
    start(pod);
    await_mux(pod);
    let mut output = kind.output(pod);
    assert_began(pod, kind, Some(&mut output));
    pod.systemctl(&["kill", "--kill-who=main", "--signal=KILL", mux]);
    if kind.has_terminal() {
        eventually("the app has ended", || pod.property("demo.service", "MainPID") == "0");
    } else {
        output.rest();
        kind.print(pod, "echo meanwhile");
        pod.systemctl(&["start", mux]);
        await_mux(pod);
        assert_eq!(kind.output(pod).line(), "meanwhile");
    }
    stop_what_runs(pod, kind);
    start(pod);
    assert_works(pod, kind);
}

fn serve(kind: &Kind) {
    let Some(mut plan) = plan(kind) else { return };
    if kind.is_immutable() {
        plan = plan.unit("shutdown.service.d/stay.conf", STAY);
    }
    let pod = plan.boot();
    if !kind.is_immutable() {
        if kind.mux().is_some() {
            let list = pod.run(&["/iottymux", "list"]);
            assert!(list.lines().any(|line| line.starts_with("demo  prepared")), "{list}");
        }
        start(&pod);
    }
    cycles(&pod, kind);
    assert_drains(&pod, kind);
    assert_survives(&pod, kind);
}

/// All kinds with this mux, and with a pod that ends with its app, or does not.
fn serve_all(mux: Option<&str>, immutable: &[bool]) {
    let asked_for = |k: &&Kind| k.mux() == mux && immutable.contains(&k.is_immutable());
    KINDS.iter().filter(asked_for).for_each(serve);
}

#[test]
fn apps_without_a_mux() {
    serve_all(None, &[true, false]);
}

#[test]
fn streams_in_immutable_pods() {
    serve_all(Some("iomux@demo.service"), &[true]);
}

#[test]
fn streams_in_mutable_pods() {
    serve_all(Some("iomux@demo.service"), &[false]);
}

#[test]
fn terminals() {
    serve_all(Some("ttymux@demo.service"), &[true, false]);
}

/// The chain from the app's end, or the halt, to the pod's end is not held up by the mux.
#[test]
fn the_end_of_a_pod() {
    for kind in &KINDS {
        let Some(plan) = plan(kind) else { return };
        let pod = plan.boot();
        if !kind.is_immutable() {
            start(&pod);
        }
        if kind.mux().is_some() {
            await_mux(&pod);
        }
        let end =
            if kind.is_immutable() { ["stop", "demo.service"] } else { ["start", "halt.target"] };
        pod.systemctl(&["--no-block", end[0], end[1]]);
        pod.await_end();
        // The mux says nothing on the console of a pod without --debug.
        assert!(!pod.console().contains("iottymux:"), "{}", pod.console());
    }
}

/// The mux of these units asks PID 1 how the app has ended. What a reaper writes does not count.
#[test]
fn the_status_without_hooks() {
    let kind = Kind::named("mutable-k8s-plain");
    let Some(plan) = plan(kind) else { return };
    let pod = plan.boot();
    let cannot_ask = "[Service]\nInaccessiblePaths=/run/systemd/private\n";
    for (more, end, code) in [
        ("", "exit 0", 0),
        ("", "exit 3", 3),
        ("", "kill -KILL $$$$", 128 + 9),
        // Not known.
        (cannot_ask, "exit 5", 0),
    ] {
        pod.set_unit("iomux@demo.service.d/more.conf", more);
        let command =
            format!("[Service]\nExecStart=\nExecStart=/bin/sh -c 'read x; printf tail; {end}'\n");
        pod.set_unit("demo.service.d/command.conf", &command);
        start(&pod);
        pod.await_mux("demo", "stdin");
        let mut attach = pod
            .command(&["iottymux", "attach", "--app", "demo"])
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        attach.stdin.as_mut().unwrap().write_all(b"go\n").unwrap();
        assert_eq!(attach.wait().unwrap().code(), Some(code), "{more}{end}\n{}", pod.console());
        stop_what_runs(&pod, kind);
        // No mux follows that could go on with the last line.
        let log = pod.path(&format!("/rkt/kubernetes/log/{}", kind.log));
        let log = fs::read_to_string(log).unwrap();
        assert!(log.ends_with(" stdout F tail\n"), "{end}: {log}");
    }
}

/// The last that a session of an app is told, once the pod has been ended by this command.
fn farewell_of(pod: &Pod, kind: &Kind, end: &[&str]) -> (FrameKind, String) {
    let stream = if kind.has_terminal() { Stream::Tty } else { Stream::Stdout };
    let streams = vec![Want { stream, from: Position::Now }];
    let mut session = UnixStream::connect(pod.path(&format!("{STATE}/sock-session"))).unwrap();
    let hello = FrameKind::Hello.message(&Hello { streams, ..Hello::default() });
    session.write_all(&hello).unwrap();
    let (mut decoder, mut buffer, mut last) = (Decoder::default(), vec![0; 1 << 16], None);
    let mut is_welcome = false;
    loop {
        let len = session.read(&mut buffer).unwrap();
        let mut bytes = &buffer[..len];
        while let Some(item) = decoder.next(&mut bytes).unwrap() {
            if let Item::Control(kind, body) = item {
                last = Some((kind, String::from_utf8(body).unwrap()));
            }
        }
        if len == 0 {
            return last.unwrap();
        }
        if !is_welcome {
            is_welcome = true;
            pod.try_run(end);
        }
    }
}

/// At a pod's halt systemd stops the mux before the app, and the reaper asks how the app has ended while
/// it still runs: that is 0. An app that was killed by itself is known to PID 1.
#[test]
fn a_killed_app_is_no_success_at_halt() {
    let halt = &["systemctl", "--no-block", "start", "halt.target"][..];
    let isolate = &["systemctl", "--no-block", "isolate", "halt.target"];
    let stop = &["systemctl", "--no-block", "stop", "demo.service"];
    let kill = &["systemctl", "kill", "--kill-who=main", "--signal=KILL", "demo.service"];
    let fixtures = ["immutable-stream", "mutable-tty", "mutable-stream", "immutable-tty"];
    for fixture in &fixtures[..rounds(2, 4)] {
        for end in [halt, isolate, stop, kill] {
            // An app that takes its time, and one that does not care.
            for trap in ["", "trap \"\" TERM; "] {
                let kind = Kind::named(fixture);
                let Some(plan) = plan(kind) else { return };
                let command = format!(
                    "[Service]\nTimeoutStopSec=1s\nExecStart=\nExecStart=/bin/sh -c '{trap}while sleep 1000; do :; done'\n"
                );
                let pod = plan.unit("demo.service.d/command.conf", &command).boot();
                if !kind.is_immutable() {
                    start(&pod);
                }
                await_mux(&pod);
                let (told, body) = farewell_of(&pod, kind, end);
                println!("{fixture} {end:?} {trap:?}: {told:?} {body}");
                let is_honest = told == FrameKind::Closing
                    || told == FrameKind::Exit && body.starts_with("{\"signal\":");
                assert!(is_honest, "{told:?} {body}\n{}", pod.console());
            }
        }
    }
}

/// Removes what rkt's own mux leaves behind, with which it cannot start again.
fn remove_leftovers(pod: &Pod) {
    for name in pod.names(STATE) {
        if name.starts_with("sock-") || name == "endpoints" {
            fs::remove_file(pod.path(&format!("{STATE}/{name}"))).unwrap();
        }
    }
}

/// Starts the app with a mux, and attaches with the mux's own client. rkt's own mux discards output that no
/// client sees, and does not report a client, so the test writes lines beside the app until one arrives.
fn attach_as_rkt(pod: &Pod, binary: &str) -> (Proc, Raw) {
    /// Lines before the test fails; after each it waits for a moment.
    const TRIES: usize = 300;
    start(pod);
    let document = pod.path(&format!("{STATE}/endpoints"));
    eventually("there is a mux", || document.exists());
    let (attach, mut streams) = Raw::of(rkt_command(pod, binary, "auto-attach", &[]));
    let fifo = pod.path(&format!("{STATE}/stage2-stdout"));
    let mut fifo = fs::OpenOptions::new().write(true).open(fifo).unwrap();
    let is_attached = (0..TRIES).any(|_| {
        fifo.write_all(b"probe\n").unwrap();
        streams.has_bytes()
    });
    assert!(is_attached, "no line arrives\n{}", pod.console());
    fifo.write_all(b"attached\n").unwrap();
    streams.line_ending("attached");
    (attach, streams)
}

/// Upstream's smoke test of streams: a client is attached, the app asks, receives a line, answers, and ends.
/// PID 1 has the FIFO open, too, and may discard the answer. The test reports how often the answer is complete,
/// for this mux and for the other binaries in `IOTTYMUX_RACE` (separated by colons), in turns, on a busy machine.
#[test]
fn the_answer_of_an_app_that_ends() {
    const OTHERS: &str = "/others";
    /// Runs between two reports.
    const REPORT: usize = 20;
    let kind = Kind::named("immutable-stream");
    let Some(plan) = plan(kind) else { return };
    // It asks on a line of input, since rkt's own mux does not keep the question for a client.
    let command = "[Service]\nExecStart=\n\
        ExecStart=/bin/sh -c 'read go; echo question; read x; echo answer to $$x'\n";
    let env = fs::read_to_string(Path::new(FIXTURES).join(kind.fixture).join("env")).unwrap();
    let pod = plan
        .unit("demo.service.d/command.conf", command)
        .unit("shutdown.service.d/stay.conf", STAY)
        .root_file(&format!("{OTHERS}/.keep"), "")
        .root_file(&format!("{STATE}/env"), &env)
        .boot();
    // A job that is still under way would be in the way of the stop.
    await_mux(&pod);
    stop_what_runs(&pod, kind);
    let mut binaries = vec![("ours".to_owned(), "/iottymux".to_owned())];
    let others = std::env::var("IOTTYMUX_RACE").unwrap_or_default();
    for (number, other) in others.split(':').filter(|other| !other.is_empty()).enumerate() {
        let inside = format!("{OTHERS}/{number}");
        fs::copy(other, pod.path(&inside)).unwrap();
        binaries.push((other.to_owned(), inside));
    }
    if binaries.len() == 1 {
        skip("race", "IOTTYMUX_RACE names no other mux to compare with");
    }
    let is_long = rounds(0, 1) == 1;
    // One for each processor, as the rest of a busy machine.
    let busy = if is_long { std::thread::available_parallelism().unwrap().get() } else { 0 };
    let busy = (0..busy).map(|_| {
        let mut command = Command::new("sh");
        command.args(["-c", "while :; do :; done"]);
        Proc::spawn(command)
    });
    let busy: Vec<_> = busy.collect();
    let mut complete = vec![0; binaries.len()];
    let runs = rounds(3, 200);
    for run in 1..=runs {
        for ((_, binary), complete) in binaries.iter().zip(&mut complete) {
            let exec =
                format!("[Service]\nExecStart=\nExecStart={binary} --action=iomux --app=%i\n");
            pod.set_unit("iomux@demo.service.d/exec.conf", &exec);
            remove_leftovers(&pod);
            let (mut attach, mut streams) = attach_as_rkt(&pod, binary);
            streams.say("go\n");
            assert_eq!(streams.line(), "question");
            streams.say("it\n");
            let rest = streams.rest();
            attach.ends();
            assert!(rest.is_empty() || rest == b"answer to it\n", "{}", rest.escape_ascii());
            *complete += usize::from(!rest.is_empty());
            stop_what_runs(&pod, kind);
        }
        if run % REPORT == 0 || run == runs {
            for ((name, _), complete) in binaries.iter().zip(&complete) {
                println!("{name}: {complete} of {run} complete");
            }
        }
    }
    drop(busy);
    for ((name, _), other) in binaries.iter().zip(&complete) {
        assert!(complete[0] >= *other, "{name} loses less: {complete:?} of {runs} complete");
    }
}
