//! What survives a mux: the offsets, the backlog, and who is attached.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};
use std::time::Duration;

use iottymux::core::wire::{Hello, Want, Welcome};
use iottymux::sys::session::{self, Patience};
use iottymux::sys::state::StateDir;
use iottymux::types::stream::{Epoch, Position, Stream};

use crate::pod::{BINARY, LOGS, Pod, is_back, rounds};
use crate::proc::eventually;
use crate::pty::Pty;

const MUX: &str = "iomux@demo.service";
/// Says each line that it reads, and its number.
const COUNTER: &str = "[Service]\nExecStart=\nExecStart=/bin/sh -c 'n=0; while read x; do n=$((n+1)); echo $n $x; done'\n";

/// The answer of the mux to a client, and what it then reads first.
fn greet(pod: &Pod, from: Position, epoch: Option<Epoch>, first: &str) -> Welcome {
    let state = StateDir::resolve(Some(pod.path("/run/iottymux"))).unwrap();
    let dir = state.app(&"demo".parse().unwrap());
    let want = Want { stream: Stream::Stdout, from };
    let hello = Hello { streams: vec![want], epoch, ..Hello::default() };
    let (session, welcome) =
        session::open(&dir, Some("sock-session"), &hello, Patience::Endless(&|| ())).unwrap();
    let mut socket = session.socket;
    socket.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let mut got = vec![0; if first.is_empty() { 0 } else { 8 + first.len() }];
    socket.read_exact(&mut got).unwrap();
    assert_eq!(String::from_utf8_lossy(got.get(8..).unwrap_or_default()), first);
    welcome
}

/// Has the app say something, and waits until a client has seen it.
fn say(pod: &Pod, word: &str, answer: &str) {
    let mut stdout = pod.connect("demo", "sock-stdout");
    pod.connect("demo", "sock-stdin").say(&format!("{word}\n"));
    assert_eq!(stdout.line(), answer);
}

#[test]
fn the_next_mux_goes_on_where_the_one_before_was() {
    let Some(pod) = Pod::delivered() else { return };
    pod.set_unit("demo.service.d/x.conf", COUNTER);
    pod.systemctl(&["start", "demo.service"]);
    say(&pod, "a", "1 a");
    let first = greet(&pod, Position::Start, None, "1 a\n");
    let epoch = first.epoch.unwrap();
    let ends: [&dyn Fn(); 2] = [
        &|| {
            pod.systemctl(&["kill", "--kill-who=main", "--signal=KILL", MUX]);
            pod.await_mux("demo", "stdin");
        },
        &|| {
            pod.systemctl(&["restart", MUX]);
        },
    ];
    let (mut all, mut n) = ("1 a\n".to_owned(), 1);
    for end in ends.into_iter().cycle().take(6) {
        end();
        // Everything before is there, and seen: who wants what is new gets what comes.
        let welcome = greet(&pod, Position::Start, Some(epoch), &all);
        assert_eq!((welcome.epoch, welcome.streams[0].offset), (Some(epoch), 0));
        let welcome = greet(&pod, Position::Unseen, None, "");
        assert_eq!(welcome.streams[0].offset, all.len() as u64);
        n += 1;
        say(&pod, "b", &format!("{n} b"));
        let at = all.len() as u64;
        let new = format!("{n} b\n");
        greet(&pod, Position::Offset(at), Some(epoch), &new);
        all += &new;
    }
    assert_eq!(pod.property(MUX, "NFileDescriptorStore"), "7");

    // With another size nothing of it fits; the one before is let go of.
    pod.set_unit(&format!("{MUX}.d/x.conf"), "[Service]\nEnvironment=IOTTYMUX_BACKLOG=1M\n");
    pod.systemctl(&["restart", MUX]);
    let welcome = greet(&pod, Position::Offset(5), Some(epoch), "");
    let other = welcome.epoch.unwrap();
    assert_ne!(other, epoch);
    assert_eq!(welcome.streams[0].offset, 0);
    assert_eq!(pod.property(MUX, "NFileDescriptorStore"), "7");
    say(&pod, "c", &format!("{} c", n + 1));
    pod.systemctl(&["restart", MUX]);
    let welcome = greet(&pod, Position::Start, None, &format!("{} c\n", n + 1));
    assert_eq!(welcome.epoch, Some(other));
}

/// The output of an app ends with it: its next start has a stream of its own, from offset 0.
#[test]
fn a_new_start_of_the_app_starts_a_new_stream() {
    let Some(pod) = Pod::delivered() else { return };
    pod.set_unit("demo.service.d/x.conf", COUNTER);
    let mut epochs = Vec::new();
    for _ in 0..2 {
        pod.systemctl(&["start", "demo.service"]);
        say(&pod, "a", "1 a");
        let welcome = greet(&pod, Position::Start, None, "1 a\n");
        assert_eq!(welcome.streams[0].offset, 0);
        epochs.push(welcome.epoch);
        pod.systemctl(&["stop", "demo.service"]);
        pod.systemctl(&["stop", MUX]);
        assert_eq!(pod.property(MUX, "NFileDescriptorStore"), "0");
    }
    assert_ne!(epochs[0], epochs[1]);
}

/// Writes numbered lines, all but the first when it is told to, until it is told to end; a burst is as many as it writes at once.
const WRITER: &str = "n=1; echo 1; while [ ! -e /shared/go ]; do sleep 0.005; done; \
    while [ ! -e /shared/stop ]; do n=$((n+1)); echo $n; \
    [ $((n % burst)) != 0 ] || sleep 0.005; done; echo $n >/shared/count";

/// The lines that the app wrote up to a number.
fn lines(last: u64) -> impl Iterator<Item = String> {
    (1..=last).map(|n| format!("{n}\n"))
}

/// The mux is killed and restarted under an app that writes on, and under a client with a file.
/// Returns how many lines the app wrote, what the client got, and how many bytes it was told are
/// missing.
fn over_many_muxes(pod: &Pod, burst: &str) -> (u64, String, u64) {
    fs::write(pod.shared("app.sh"), format!("burst={burst}; {WRITER}")).unwrap();
    pod.set_unit(
        "demo.service.d/x.conf",
        "[Service]\nRestart=no\nExecStart=\nExecStart=/bin/sh /shared/app.sh\n",
    );
    pod.systemctl(&["start", "demo.service"]);
    let got = pod.shared("got");
    let words = ["iottymux", "attach", "--app", "demo", "--mode", "stdout", "--reconnect", "5"];
    let mut attach = pod
        .command(&words)
        .stdout(File::create(&got).unwrap())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = BufReader::new(attach.stderr.take().unwrap());
    let mut line = || loop {
        let mut line = String::new();
        said.read_line(&mut line).unwrap();
        // Of what a slow machine costs only the sum matters, which is told at the end.
        if !line.contains(" bytes were lost here: ") {
            return line;
        }
    };
    eventually("it is attached", || fs::metadata(&got).unwrap().len() > 0);
    fs::write(pod.shared("go"), "").unwrap();
    for round in 0..rounds(10, 200) {
        if round % 3 == 2 {
            pod.systemctl(&["restart", MUX]);
            assert_eq!(line(), "iottymux: app demo: the mux has ended; trying again for 5s\n");
        } else {
            pod.systemctl(&["kill", "--kill-who=main", "--signal=KILL", MUX]);
            assert_eq!(line(), "iottymux: app demo: the mux is gone; trying again for 5s\n");
        }
        assert_eq!(line(), "iottymux: app demo: attached again\n", "{}", pod.console());
    }
    fs::write(pod.shared("stop"), "").unwrap();
    // The app has ended, and its mux knows.
    let told = line();
    let missing = match told.split_once(" bytes were lost: ") {
        Some((before, _)) => before.rsplit(' ').next().unwrap().parse().unwrap(),
        None => 0,
    };
    let code = attach.wait().unwrap().code();
    assert_eq!(code, Some(if missing == 0 { 0 } else { 124 }), "{told}");
    let count = fs::read_to_string(pod.shared("count")).unwrap().trim().parse().unwrap();
    (count, fs::read_to_string(got).unwrap(), missing)
}

#[test]
fn a_client_misses_nothing_over_many_muxes() {
    let Some(pod) = Pod::delivered() else { return };
    let (last, got, missing) = over_many_muxes(&pod, "40");
    assert_eq!(missing, 0);
    assert!(got == lines(last).collect::<String>());
}

/// The app writes as fast as it can: more than is kept while the client is away.
#[test]
fn a_client_learns_to_the_byte_what_it_missed_over_many_muxes() {
    let Some(pod) = Pod::delivered() else { return };
    let (last, got, missing) = over_many_muxes(&pod, "1000000000");
    let wrote: u64 = lines(last).map(|line| line.len() as u64).sum();
    println!("{wrote} bytes, {missing} missing");
    assert_eq!(got.len() as u64 + missing, wrote);
}

/// A person's terminal goes on, on the same terminal of the app.
#[test]
fn a_person_stays_at_the_terminal_over_many_muxes() {
    let Some(pod) = Pod::delivered() else { return };
    pod.systemctl(&["start", "shell.service"]);
    let local = Pty::open(24, 80);
    let mut command = Command::new(BINARY);
    command.arg("--state-dir").arg(pod.path("/run/iottymux"));
    command.args(["attach", "--app", "shell", "--reconnect", "5"]);
    let mut attach = local.spawn(command);
    let shown = |text: &str| local.shown.so_far().matches(text).count();
    for round in 0..rounds(6, 100) {
        // From the same shell, which counts.
        local.press(b"n=$((n+1)); echo answer'-'$n\r");
        local.shown.wait_for(&format!("answer-{}\r\n", round + 1));
        let unit = "ttymux@shell.service";
        let before = local.shown.so_far().len();
        pod.await_next_mux("shell", unit, || {
            if round % 2 == 0 {
                pod.systemctl(&["kill", "--kill-who=main", "--signal=KILL", unit]);
            } else {
                pod.systemctl(&["restart", unit]);
            }
        });
        // Told by the newest line, however many there are.
        eventually("it is attached again", || is_back(&local.shown.so_far()[before..]));
        assert!(local.is_raw());
    }
    assert_eq!(shown("may be missing"), 0);
    assert_eq!(pod.property("ttymux@shell.service", "NFileDescriptorStore"), "3");
    local.press(b"\x10\x11");
    assert_eq!(attach.ends(), 0);
    assert!(local.is_as_before());
}

/// A log goes on as well: after a mux that had time to end each line is there once, after one that
/// was killed at least once, the last few perhaps twice.
#[test]
fn a_log_has_every_line_over_many_muxes() {
    let Some(pod) = Pod::delivered() else { return };
    let script = "n=0; while [ ! -e /shared/stop ]; do n=$((n+1)); echo $n; \
                  [ $((n % 50)) != 0 ] || sleep 0.005; done; echo $n >/shared/count";
    fs::write(pod.shared("app.sh"), script).unwrap();
    let unit = "[Service]\nRestart=no\nExecStart=\nExecStart=/bin/sh /shared/app.sh\n";
    pod.set_unit("demo.service.d/x.conf", unit);
    let log = "[Service]\nEnvironment=IOTTYMUX_LOG=cri:/var/log/iottymux/demo/app.log\n";
    pod.set_unit("iomux@demo.service.d/x.conf", log);
    pod.systemctl(&["start", "demo.service"]);
    let len = || fs::metadata(pod.path(&format!("{LOGS}/app.log"))).map_or(0, |file| file.len());
    let is_logged = || {
        let before = len();
        eventually("it is logged", || len() > before);
    };
    let mut killed = 0;
    for round in 0..rounds(6, 100) {
        is_logged();
        if round % 2 == 0 {
            pod.systemctl(&["restart", MUX]);
        } else {
            killed += 1;
            pod.systemctl(&["kill", "--kill-who=main", "--signal=KILL", MUX]);
        }
    }
    // A mux that is stopped before it was started again writes nothing more.
    is_logged();
    fs::write(pod.shared("stop"), "").unwrap();
    let has_counted = || fs::read(pod.shared("count")).is_ok_and(|count| count.ends_with(b"\n"));
    eventually("the app has counted", has_counted);
    pod.systemctl(&["stop", "demo.service"]);
    pod.systemctl(&["stop", MUX]);
    let count: u64 = fs::read_to_string(pod.shared("count")).unwrap().trim().parse().unwrap();
    let text = fs::read_to_string(pod.path(&format!("{LOGS}/app.log"))).unwrap();
    let mut next = 1;
    let lines: Vec<&str> =
        text.lines().filter_map(|line| Some(line.split_once(" stdout F ")?.1)).collect();
    for line in &lines {
        let n: u64 = line.parse().unwrap_or_else(|_| panic!("{line:?}"));
        assert!(n <= next, "{n} after {}", next - 1);
        next = next.max(n + 1);
    }
    assert_eq!(next, count + 1);
    println!("{count} lines, {} written again after {killed} kills", lines.len() as u64 - count);
}

/// More than one client comes back, and each has all: the first one back does not let the app
/// overwrite what the others have not got.
#[test]
fn several_clients_miss_nothing_over_many_muxes() {
    let Some(pod) = Pod::delivered() else { return };
    let script = "n=0; while [ ! -e /shared/stop ]; do n=$((n+1)); \
                  echo $n-xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx; \
                  [ $((n % 200)) != 0 ] || sleep 0.002; done; exit 0";
    fs::write(pod.shared("app.sh"), script).unwrap();
    let unit = "[Service]\nRestart=no\nExecStart=\nExecStart=/bin/sh /shared/app.sh\n";
    pod.set_unit("demo.service.d/x.conf", unit);
    pod.systemctl(&["start", "demo.service"]);
    let attach = |n: usize| {
        let got = pod.shared(&format!("got{n}"));
        let words = ["iottymux", "attach", "--app", "demo", "--mode", "stdout", "--from", "start"];
        let words = [&words[..], &["--reconnect", "5"]].concat();
        let child = pod.command(&words).stdout(File::create(&got).unwrap()).spawn().unwrap();
        (child, got)
    };
    let clients: Vec<_> = (0..3).map(attach).collect();
    let lens = || clients.iter().map(|(_, got)| fs::metadata(got).unwrap().len());
    for round in 0..rounds(4, 60) {
        let before: Vec<_> = lens().collect();
        eventually("all go on", || lens().zip(&before).all(|(now, before)| now > *before));
        if round % 4 == 3 {
            pod.systemctl(&["restart", MUX]);
        } else {
            pod.systemctl(&["kill", "--kill-who=main", "--signal=KILL", MUX]);
        }
    }
    fs::write(pod.shared("stop"), "").unwrap();
    for (mut child, got) in clients {
        assert_eq!(child.wait().unwrap().code(), Some(0));
        let text = fs::read_to_string(got).unwrap();
        // Who came late begins in the middle of a line.
        let (_, text) = text.split_once('\n').unwrap();
        let mut numbers = text.lines().map(|line| line.split_once('-').unwrap().0.parse().unwrap());
        let first: u64 = numbers.next().unwrap();
        assert!(numbers.eq(first + 1..first + text.lines().count() as u64));
    }
}
