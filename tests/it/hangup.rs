//! Every way in which a terminal can go, for every command that a person has there: the app runs on.

use std::fs::{self, File};
use std::io::Read;
use std::os::fd::AsFd;
use std::process::{Command, Stdio};
use std::time::Instant;

use iottymux::types::size::Size;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::installed::is_installed;
use crate::pair::pair;
use crate::proc::{Proc, WATCHDOG, eventually};
use crate::rig::{APP, Rig};
use crate::skip::skip;
use crate::tmux::Tmux;

/// What the app does besides answering: nothing, a line now and then, lines without a pause.
const FLOWS: [&str; 3] = ["", "while echo tick; do sleep 0.02; done &", "yes tick &"];

/// How the terminal goes.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Way {
    /// The window, the ssh connection or the tmux server is gone.
    MasterCloses,
    /// What getty does.
    Vhangup,
    /// The group in its foreground is told, and the terminal stays.
    Hangup,
    /// The client is killed.
    Kill,
}
const WAYS: [Way; 4] = [Way::MasterCloses, Way::Vhangup, Way::Hangup, Way::Kill];

/// An app that answers each line that it reads: by a file, which no flood delays.
fn app(rig: &Rig, flow: &str) -> String {
    format!("echo up; {flow} while read x; do : >{}; done", rig.file("answer").display())
}

/// A new terminal, whose other side the test has, and a shell that leads its session.
struct Local {
    master: Option<File>,
    slave: File,
    shell: Proc,
}

impl Local {
    fn new(rig: &Rig, line: &str) -> Self {
        let (master, slave) = pair();
        let plain = rig.command(["--version"]);
        let mut command = Command::new("sh");
        // What follows keeps the shell from replacing itself: the client is its child, as usual.
        command.args(["-c", &format!("{line}; exit $?")]);
        for (name, value) in plain.get_envs() {
            if let Some(value) = value {
                command.env(name, value);
            }
        }
        let end = || Stdio::from(slave.try_clone().unwrap());
        command.stdin(end()).stdout(end()).stderr(end()).env("TERM", "xterm");
        iottymux::sys::calls::in_own_session(&mut command, true);
        Self { master: Some(master), slave, shell: Proc::spawn(command) }
    }

    /// Reads what is shown until this is there, and nothing after it.
    fn wait_for(&self, text: &str) {
        let mut master = self.master.as_ref().unwrap();
        let (mut shown, mut byte) = (String::new(), [0]);
        let until = Instant::now() + WATCHDOG;
        while !shown.ends_with(text) {
            let left = PollTimeout::try_from(until.saturating_duration_since(Instant::now()));
            let mut fds = [PollFd::new(master.as_fd(), PollFlags::POLLIN)];
            let ready = poll(&mut fds, left.unwrap()).unwrap();
            assert!(ready > 0, "waited in vain for {text:?}, shown: {shown}");
            master.read_exact(&mut byte).unwrap_or_else(|e| panic!("{e}, shown: {shown}"));
            shown.push(char::from(byte[0]));
        }
    }

    /// The process of this program that the shell has started.
    fn client(&self) -> Pid {
        let shell = self.shell.pid();
        let children = fs::read_to_string(format!("/proc/{shell}/task/{shell}/children")).unwrap();
        let is_client = |pid: &&str| {
            fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name == "iottymux\n")
        };
        let client = children.split(' ').find(is_client).expect("no client runs");
        Pid::from_raw(client.parse().unwrap())
    }

    fn goes(&mut self, way: Way) {
        match way {
            Way::MasterCloses => self.master = None,
            Way::Vhangup => {
                let mut perl = Command::new("perl");
                // TIOCVHANGUP. The program has no use for it.
                perl.args(["-e", "ioctl(STDIN, 0x5437, 0) or die $!"]);
                perl.stdin(self.slave.try_clone().unwrap());
                assert!(perl.status().unwrap().success());
            }
            Way::Hangup => kill(Pid::from_raw(-self.shell.pid().as_raw()), Signal::SIGHUP).unwrap(),
            Way::Kill => kill(self.client(), Signal::SIGKILL).unwrap(),
        }
    }
}

/// The ways that this user can try.
fn ways() -> impl Iterator<Item = Way> {
    let can_hang_up = nix::unistd::geteuid().is_root() && is_installed("perl");
    if !can_hang_up {
        skip("root", "only root may hang a terminal up");
    }
    WAYS.into_iter().filter(move |way| *way != Way::Vhangup || can_hang_up)
}

/// No client is left, and the app takes a line and answers.
fn runs_on(rig: &Rig, what: &str) {
    println!("{what}");
    eventually("no client is left", || {
        let status = rig.status();
        let clients = status["clients"].as_array().expect("the app has ended");
        clients.iter().all(|client| client["streams"].as_array().is_none_or(Vec::is_empty))
    });
    let mut send = rig.run(&["send", APP, "alive"]);
    assert_eq!(send.ends(), 0, "{}", send.stderr.so_far());
    eventually("the app answers", || rig.file("answer").exists());
}

/// Runs this at a terminal that goes in each way, with an app that writes in each way.
fn all(lines: &[&str], has_app: bool) {
    for line in lines {
        let stays = |way: &Way| *way != Way::Kill || !line.contains("list");
        for way in ways().filter(stays) {
            for flow in FLOWS {
                let rig = Rig::new();
                let app = app(&rig, flow);
                let program = env!("CARGO_BIN_EXE_iottymux");
                let run = ["run", "--foreground", "--name", APP, "--", "sh", "-c", &app];
                let _mux = has_app.then(|| rig.mux(run));
                let shell = line.replace("iottymux", program).replace("NAME", APP);
                let mut local = Local::new(&rig, &shell.replace("APP", &format!("'{app}'")));
                // A flood that began before has pushed out the first line.
                let shown = if flow.is_empty() { "up" } else { "tick" };
                local.wait_for(if line.contains("list") { APP } else { shown });
                local.goes(way);
                runs_on(&rig, &format!("{line}, {way:?}, {flow:?}"));
                rig.run(&["rm", "--force", APP]).ends();
            }
        }
    }
}

#[test]
fn of_run() {
    all(
        &[
            "iottymux run -it --name NAME -- sh -c APP",
            "iottymux run -t --name NAME -- sh -c APP",
            "iottymux run -i --name NAME -- sh -c APP",
            "iottymux run --name NAME -- sh -c APP",
        ],
        false,
    );
}

/// The reader of the output ends, too, because its terminal has gone. That is no wish to end the app.
#[test]
fn of_run_in_a_pipeline() {
    for flow in FLOWS {
        for options in ["", "-i"] {
            let rig = Rig::new();
            let program = env!("CARGO_BIN_EXE_iottymux");
            let line = format!(
                "{program} run {options} --name {APP} -- sh -c '{}' | cat",
                app(&rig, flow)
            );
            let mut local = Local::new(&rig, &line);
            local.wait_for("up");
            local.goes(Way::MasterCloses);
            runs_on(&rig, &line);
            rig.run(&["rm", "--force", APP]).ends();
        }
    }
}

#[test]
fn of_attach() {
    all(&["iottymux attach NAME", "iottymux attach NAME --stdin-once | cat"], true);
}

#[test]
fn of_logs_and_list() {
    all(&["iottymux logs -f NAME", "iottymux list | cat"], true);
}

#[test]
fn of_a_tmux_server_that_is_killed() {
    let Some(tmux) = Tmux::start() else { return };
    let rig = Rig::new();
    let command = format!(
        "IOTTYMUX_STATE_DIR={} exec {} run -it --name {APP} -- sh -c '{}'",
        rig.state().display(),
        env!("CARGO_BIN_EXE_iottymux"),
        app(&rig, FLOWS[1]),
    );
    let window = tmux.window(Size { rows: 24, cols: 80 }, "record", &command);
    window.wait_for("tick");
    let server = window.run(&["display-message", "-p"], &["#{pid}"]);
    kill(Pid::from_raw(server.trim().parse().unwrap()), Signal::SIGKILL).unwrap();
    std::mem::forget(window);
    runs_on(&rig, "tmux");
    rig.run(&["rm", "--force", APP]).ends();
}

/// nohup(1) opens its input for writing only, and has SIGHUP ignored.
#[test]
fn under_nohup_a_command_goes_on() {
    let rig = Rig::new();
    let program = env!("CARGO_BIN_EXE_iottymux");
    let app = "echo up; while ! test -e go; do sleep 0.02; done; echo after; exit 3";
    let out = rig.file("out");
    for stdin in ["", "<.", "<&-"] {
        let line = format!(
            "cd {}; rm -f go; nohup {program} run --name {APP} -- sh -c '{app}' {stdin} >out",
            rig.file("").display()
        );
        let _ = fs::remove_file(&out);
        let mut local = Local::new(&rig, &line);
        let wrote = |text| fs::read_to_string(&out).is_ok_and(|all| all.contains(text));
        eventually("the command has begun", || wrote("up"));
        let client = local.client();
        kill(client, Signal::SIGHUP).unwrap();
        fs::write(rig.file("go"), "").unwrap();
        assert_eq!(local.shell.ends(), 3, "{stdin}");
        assert!(wrote("after"), "{stdin}");
    }
    drop(rig);
}
