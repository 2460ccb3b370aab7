//! `producer | attach` over many muxes: each byte is with the app exactly once, or `attach` says
//! how many may not be.

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::FileExt;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::pod::{BINARY, Pod, is_back, other_release, rounds};
use crate::proc::eventually;
use crate::pty::Pty;
use crate::random::{self, Random};
use crate::status::Attach;

/// Bytes of a numbered line.
const LINE: usize = 10;
/// The longest pause between two faults, in milliseconds.
const PAUSE: usize = 30;
/// What a killed mux may leave unknown of the input of a terminal: one write.
const TERMINAL_WINDOW: u64 = 4096;

/// A program's output: numbered lines, in pieces of any length.
fn numbered(first: usize) -> Vec<u8> {
    format!("{:09}\n", first / LINE).into_bytes().split_off(first % LINE)
}

/// An `attach --mode …` that a program types into, as fast as it may.
struct Piped {
    attach: Child,
    /// Ends with the number of bytes that the attach has read.
    producer: JoinHandle<usize>,
    stops: Arc<AtomicBool>,
}

impl Piped {
    fn new(pod: &Pod, app: &str, more: &[&str], seed: u64) -> Self {
        Self::from(0, pod, app, more, seed)
    }

    /// Its first line is that at this offset.
    fn from(first: usize, pod: &Pod, app: &str, more: &[&str], seed: u64) -> Self {
        let words = ["iottymux", "attach", "--app", app, "--reconnect=20", "--wait=20"];
        let mut attach = pod
            .command(&[&words[..], more].concat())
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut into = attach.stdin.take().unwrap();
        let stops = Arc::new(AtomicBool::new(false));
        let is_over = Arc::clone(&stops);
        let producer = thread::spawn(move || {
            let (mut random, mut sent) = (Random::new(seed), 0);
            while !is_over.load(Ordering::Relaxed) {
                let longest = if random.one_in(3) { 100_000 } else { 50 };
                let wanted = sent + 1 + random.below(longest);
                let mut piece = Vec::new();
                while sent + piece.len() < wanted {
                    piece.extend(numbered(first + sent + piece.len()));
                }
                piece.truncate(wanted - sent);
                match into.write(&piece) {
                    Ok(len) => sent += len,
                    Err(e) if e.kind() == ErrorKind::BrokenPipe => break,
                    Err(e) => panic!("{e}"),
                }
            }
            // The last line is whole.
            let rest = numbered(first + sent);
            let rest = if sent % LINE == 0 { &[][..] } else { &rest };
            into.write_all(rest).map_or(sent, |()| sent + rest.len())
        });
        Self { attach, producer, stops }
    }

    /// Its input ends. Returns its exit code, its messages, and how many bytes it has read.
    fn ends(mut self) -> (i32, String, usize) {
        self.stops.store(true, Ordering::Relaxed);
        let sent = self.producer.join().unwrap();
        let mut said = String::new();
        self.attach.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        (self.attach.wait().unwrap().code().unwrap(), said, sent)
    }

    fn has_ended(&mut self) -> bool {
        self.attach.try_wait().unwrap().is_some()
    }
}

fn kill(pod: &Pod, mux: &str) {
    let before = pod.property(mux, "MainPID");
    pod.systemctl(&["kill", "--kill-who=main", "--signal=KILL", mux]);
    eventually("there is another mux", || {
        let now = pod.systemctl(&["show", "--value", "-p", "MainPID,SubState", mux]);
        now.contains("running") && now.lines().all(|word| word != before)
    });
}

fn restart(pod: &Pod, mux: &str) {
    pod.systemctl(&["restart", mux]);
}

fn pause(random: &mut Random) {
    thread::sleep(Duration::from_millis(random.below(PAUSE) as u64));
}

/// The app has this much, and each byte is in its place.
fn assert_exact(pod: &Pod, len: usize, said: &str) {
    let len_now = || fs::metadata(pod.shared("got")).map_or(0, |file| file.len());
    eventually(&format!("the app has {len} bytes: {said}"), || len_now() >= len as u64);
    let got = fs::read(pod.shared("got")).unwrap();
    let wrong =
        got.chunks(LINE).enumerate().find(|(at, line)| !numbered(at * LINE).starts_with(line));
    let shown = wrong.map(|(at, line)| (at, String::from_utf8_lossy(line).into_owned()));
    assert_eq!((got.len(), shown), (len, None), "{said}");
}

/// Reads as fast as it can, or byte by byte: then the pipe and the queues are full.
const APPS: [&str; 2] = ["exec cat", "while read -r x; do echo $x; done"];

fn goes_on_over(fault: fn(&Pod, &str), seed: u64) {
    const MUX: &str = "iomux@demo.service";
    let mut random = Random::new(seed);
    for app in APPS {
        let Some(pod) = Pod::delivered() else { return };
        let unit = format!(
            "[Service]\nExecStart=\nExecStart=/bin/sh -c '{app}'\nStandardOutput=append:/shared/got\n"
        );
        pod.set_unit("demo.service.d/x.conf", &unit);
        pod.systemctl(&["start", "demo.service"]);
        let process = pod.property("demo.service", "MainPID");
        let mut piped = Piped::new(&pod, "demo", &["--mode", "stdin"], random.number());
        for round in 0..rounds(10, 100) {
            pause(&mut random);
            fault(&pod, MUX);
            assert!(!piped.has_ended(), "in round {round}: {:?}", piped.ends());
        }
        let (code, said, sent) = piped.ends();
        assert_eq!(code, 0, "{said}");
        assert_exact(&pod, sent, &said);
        assert_eq!(pod.property("demo.service", "MainPID"), process, "the app noticed");
    }
}

#[test]
fn a_programs_input_goes_on_over_restarts() {
    goes_on_over(restart, random::seed());
}

#[test]
fn a_programs_input_goes_on_over_kills() {
    goes_on_over(kill, random::seed());
}

/// An older release keeps no input: then what it had is unknown, and `attach` says so and ends. The
/// app runs on.
#[test]
fn a_programs_input_over_two_releases_is_exact_or_its_end_is_told() {
    const MUX: &str = "iomux@demo.service";
    let Some(other) = other_release() else { return };
    let Some(pod) = Pod::delivered() else { return };
    pod.alternate_with(&other);
    let unit = "[Service]\nExecStart=\nExecStart=/bin/cat\nStandardOutput=append:/shared/got\n";
    pod.set_unit("demo.service.d/x.conf", unit);
    let mut random = Random::new(random::seed());
    for round in 0..rounds(10, 100) {
        pod.systemctl(&["start", "demo.service"]);
        let process = pod.property("demo.service", "MainPID");
        let piped = Piped::new(&pod, "demo", &["--mode", "stdin"], random.number());
        for _ in 0..=random.below(3) {
            pause(&mut random);
            random.pick::<fn(&Pod, &str)>(&[kill, restart, Pod::upgrade])(&pod, MUX);
        }
        let (code, said, sent) = piped.ends();
        println!("round {round}: {code} after {sent} bytes");
        if code == 0 {
            assert_exact(&pod, sent, &said);
        } else {
            assert_eq!(code, 125, "{said}");
            assert!(said.ends_with("may not have received all of the input\n"), "{said}");
        }
        assert_eq!(pod.property("demo.service", "MainPID"), process, "the app noticed");
        pod.systemctl(&["stop", "demo.service"]);
        fs::remove_file(pod.shared("got")).unwrap();
    }
}

/// Lines of several programs are not mixed, and each program's are in order.
#[test]
fn the_lines_of_two_programs_stay_whole_over_kills() {
    const MUX: &str = "iomux@demo.service";
    /// The first line of the second one.
    const SECOND: usize = 500_000_000;
    let Some(pod) = Pod::delivered() else { return };
    let unit = "[Service]\nExecStart=\nExecStart=/bin/cat\nStandardOutput=append:/shared/got\n";
    pod.set_unit("demo.service.d/x.conf", unit);
    pod.systemctl(&["start", "demo.service"]);
    let mut random = Random::new(random::seed());
    let mode = ["--mode", "stdin"];
    let programs =
        [0, SECOND].map(|first| Piped::from(first * LINE, &pod, "demo", &mode, random.number()));
    for _ in 0..rounds(10, 100) {
        pause(&mut random);
        kill(&pod, MUX);
    }
    let mut sent = Vec::new();
    for program in programs {
        let (code, said, len) = program.ends();
        assert_eq!(code, 0, "{said}");
        sent.push(len / LINE);
    }
    let len = || fs::metadata(pod.shared("got")).map_or(0, |file| file.len());
    eventually("the app has it all", || len() == (LINE * (sent[0] + sent[1])) as u64);
    let mut next = [0, SECOND];
    for line in fs::read_to_string(pod.shared("got")).unwrap().lines() {
        let expected = next.iter_mut().find(|next| line == format!("{next:09}"));
        *expected.unwrap_or_else(|| panic!("{line:?}")) += 1;
    }
    assert_eq!(next, [sent[0], SECOND + sent[1]]);
}

/// A terminal's input cannot be counted: what is unknown is told, and is not sent again.
#[test]
fn a_programs_input_to_a_terminal_is_never_repeated_and_what_is_unknown_is_told() {
    const MUX: &str = "ttymux@shell.service";
    let Some(pod) = Pod::delivered() else { return };
    let unit = "[Service]\nExecStart=\nExecStart=/bin/sh -c 'stty raw -echo; : >/shared/raw; exec cat'\n\
        StandardOutput=append:/shared/got\n";
    pod.set_unit("shell.service.d/x.conf", unit);
    let mut random = Random::new(random::seed());
    for round in 0..rounds(4, 100) {
        pod.systemctl(&["start", "shell.service"]);
        eventually("the app reads", || pod.shared("raw").exists());
        let mut piped = Piped::new(&pod, "shell", &["--mode", "tty-in"], random.number());
        for _ in 0..3 {
            pause(&mut random);
            restart(&pod, MUX);
            assert!(!piped.has_ended(), "in round {round}: {:?}", piped.ends());
        }
        pause(&mut random);
        kill(&pod, MUX);
        let (code, said, sent) = piped.ends();
        let told = said.lines().find_map(|line| {
            line.split_once(" bytes of input may not have arrived")?
                .0
                .rsplit(' ')
                .next()?
                .parse()
                .ok()
        });
        match told {
            None => {
                assert_eq!(code, 0, "{said}");
                assert_exact(&pod, sent, &said);
            }
            Some(unknown) => {
                assert_eq!(code, 125, "{said}");
                assert!(unknown <= TERMINAL_WINDOW, "{said}");
                pod.systemctl(&["stop", "shell.service"]);
                assert_missing(&fs::read(pod.shared("got")).unwrap(), unknown);
            }
        }
        println!("round {round}: {told:?} of {sent} bytes are unknown");
        pod.systemctl(&["stop", "shell.service"]);
        fs::remove_file(pod.shared("raw")).unwrap();
        fs::remove_file(pod.shared("got")).unwrap();
    }
}

/// As a mux leaves its memory that is killed while it writes to a terminal: this many bytes are on
/// their way.
fn kill_in_a_write(pod: &Pod, mux: &str, len: u64) {
    const DELIVERED: u64 = 8;
    pod.systemctl(&["kill", "--kill-who=main", "--signal=STOP", mux]);
    let fds = pod.run(&["find", "/proc/1/fd", "-lname", "*memfd:iottymux*"]);
    let path = pod.path(fds.trim());
    let memory = fs::OpenOptions::new().read(true).write(true).open(path).unwrap();
    let word = |at: u64| {
        let mut word = [0; 8];
        memory.read_exact_at(&mut word, at).unwrap();
        u64::from_ne_bytes(word)
    };
    // Behind the first word of the table are entries of six: a name, where that piece begins, and more.
    let input =
        (8..4096).step_by(6 * 8).find(|at| word(*at) == u64::from_le_bytes(*b"input\0\0\0"));
    let at = word(input.unwrap() + 8) + DELIVERED;
    let delivered = word(at).checked_sub(len).unwrap();
    memory.write_all_at(&delivered.to_ne_bytes(), at).unwrap();
    kill(pod, mux);
}

#[test]
fn input_that_may_not_have_arrived_ends_a_program_and_is_told_to_a_person() {
    const MUX: &str = "ttymux@shell.service";
    let Some(pod) = Pod::delivered() else { return };
    pod.systemctl(&["start", "shell.service"]);
    let local = Pty::open(24, 80);
    let mut command = Command::new(BINARY);
    command.arg("--state-dir").arg(pod.path("/run/iottymux"));
    command.args(["attach", "--app", "shell", "--reconnect", "20"]);
    let mut person = local.spawn(command);
    local.press(b"echo ans'w'er\r");
    local.shown.wait_for("answer\r\n");
    let mut program = Attach::with(&pod, "shell", &["--reconnect", "20"]);
    program.say("echo pro'gram'\n");
    local.shown.wait_for("program\r\n");
    kill_in_a_write(&pod, MUX, 5);
    let (code, _, said) = program.ends();
    assert!(said.ends_with("the mux is gone; 5 bytes of input may not have arrived\n"), "{said}");
    assert_eq!(code, 125);
    // Those were not the person's; these are.
    local.shown.wait_for("attached again");
    local.press(b"echo oth'er'\r");
    local.shown.wait_for("other\r\n");
    assert_eq!(local.shown.so_far().matches("may not have arrived").count(), 0);
    kill_in_a_write(&pod, MUX, 3);
    local.shown.wait_for("3 bytes of input may not have arrived");
    // Once, and the person goes on.
    let before = local.shown.so_far().len();
    pod.await_next_mux("shell", MUX, || restart(&pod, MUX));
    eventually("it is attached again", || is_back(&local.shown.so_far()[before..]));
    local.press(b"echo sti'l'l\r");
    local.shown.wait_for("still\r\n");
    // Lines over the screen come again with later ones.
    let told = |text: &str| local.shown.so_far().matches(text).count();
    assert_eq!(told("may not have arrived"), told("3 bytes of input may not have arrived"));
    local.press(b"\x10\x11");
    assert_eq!(person.ends(), 0);
}

/// One hole of at most so many bytes, and nothing twice.
fn assert_missing(got: &[u8], most: u64) {
    let at = |place: usize| numbered(place)[0];
    let Some(hole) = (0..got.len()).find(|place| got[*place] != at(*place)) else { return };
    let most = usize::try_from(most).unwrap();
    let fits = |len: &usize| (hole..got.len()).all(|place| got[place] == at(place + len));
    assert!((1..=most).any(|len| fits(&len)), "{:?}", &got[hole..got.len().min(hole + 40)]);
}
