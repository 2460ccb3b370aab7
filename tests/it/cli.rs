//! The command line as a person or a unit uses it.

use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::{UnixDatagram, UnixListener};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use crate::proc::{Proc, eventually};
use crate::rig::{APP, Rig};

#[test]
fn help_and_version_are_no_errors() {
    let rig = Rig::new();
    for arguments in [&["--help"][..], &["attach", "--help"], &["--version"], &["-V"]] {
        let mut help = rig.run(arguments);
        assert_eq!(help.ends(), 0, "{arguments:?}");
        assert!(help.stdout.text().contains("iottymux"), "{arguments:?}");
        assert_eq!(help.stderr.text(), "", "{arguments:?}");
    }
    let mut help = rig.run(&["--help"]);
    help.ends();
    let containers = ["iottymux-runc", "containerd-logger"];
    for told in ["Examples:", "Exit status:", "attach", "run", "list"].iter().chain(&containers) {
        assert!(help.stdout.text().contains(told), "{told}");
    }
}

#[test]
fn no_words_show_the_short_help() {
    let rig = Rig::new();
    let (mut nothing, mut asked) = (rig.run(&[]), rig.run(&["-h"]));
    assert_eq!((nothing.ends(), asked.ends()), (2, 0));
    assert_eq!(nothing.stderr.text(), asked.stdout.text());
}

/// Lines of a terminal.
const SCREEN: usize = 24;

/// In `-h`, and of commands: one line each, which begins with the option and fits its screen. Its text
/// has less than 80.
#[test]
fn the_short_help_has_one_line_for_each_option() {
    let rig = Rig::new();
    let commands = [
        "", "stream", "tty", "attach", "list", "status", "logs", "control", "run", "send", "ask",
        "wait", "stop", "kill", "rm", "enable", "disable", "units", "metrics", "install",
    ];
    for command in commands {
        let words: Vec<&str> = command.split_whitespace().collect();
        let mut help = rig.run(&[&words[..], &["-h"]].concat());
        assert_eq!(help.ends(), 0, "{command}");
        let text = help.stdout.text();
        let mut options = 0;
        for section in text.split("\n\n").filter(|section| {
            let title = section.lines().next().unwrap_or_default();
            title.ends_with("ptions:") || title.contains("ommands")
        }) {
            for line in section.lines().skip(1) {
                let is_first = line.starts_with("  ") && !line.starts_with("          ");
                assert!(is_first && line.len() <= 100, "{command}: {line}");
                assert!(!line.ends_with('.'), "{command}: {line}");
                let text = line.trim().rsplit_once("  ").unwrap_or_default().1.trim();
                assert!(!text.is_empty() && text.len() < 80, "{command}: {line}");
                options += 1;
            }
        }
        assert!(options >= 3, "{command}: {text}");
        let is_long = ["", "enable", "units"].contains(&command);
        assert!(is_long || text.lines().count() <= SCREEN, "{command}: {text}");
        let mut long = rig.run(&[&words[..], &["--help"]].concat());
        assert_eq!(long.ends(), 0, "{command}");
        let long = long.stdout.text();
        // The options of all commands are explained in full once.
        let is_full = long.contains("[env: IOTTYMUX_STATE_DIR=");
        assert_eq!(is_full, command.is_empty(), "{command}");
        assert!(long.contains("\nExamples:\n  "), "{command}");
    }
}

/// Columns of the usual terminal.
const COLUMNS: usize = 80;

/// The words of each command and of those below it.
fn all_words(command: &clap::Command, words: &[String], all: &mut Vec<Vec<String>>) {
    all.push(words.to_vec());
    for below in crate::pages::documented(command) {
        all_words(below, &[words, &[below.get_name().to_owned()]].concat(), all);
    }
}

/// Examples, tables and lists of commands are not wrapped: that would break them.
#[test]
fn each_help_fits_the_usual_terminal() {
    let rig = Rig::new();
    let program = iottymux::command_line().disable_help_subcommand(true);
    let mut all = Vec::new();
    all_words(&program, &[], &mut all);
    assert!(all.len() > 20, "{all:?}");
    let mut wrong = Vec::new();
    for (words, asked) in all.iter().flat_map(|words| ["-h", "--help"].map(|asked| (words, asked)))
    {
        let help_in = |columns: usize| {
            let mut command = rig.command(words);
            let output = command.arg(asked).env("COLUMNS", columns.to_string()).output().unwrap();
            assert!(output.status.success(), "{words:?} {asked}");
            String::from_utf8(output.stdout).unwrap()
        };
        let help = help_in(COLUMNS);
        let too_long = help.lines().filter(|line| line.chars().count() > COLUMNS);
        wrong.extend(too_long.map(|line| format!("{words:?} {asked}: too long: {line}")));
        // The blocks that are no paragraphs, as a wide terminal shows them.
        let wide = help_in(4 * COLUMNS);
        let blocks = wide.split("\n\n").filter(|block| block.contains(":\n  iottymux "));
        let lines = blocks.flat_map(str::lines).filter(|line| line.starts_with("  "));
        let broken = lines.filter(|line| !help.lines().any(|narrow| narrow == *line));
        wrong.extend(broken.map(|line| format!("{words:?} {asked}: wrapped: {line}")));
    }
    assert_eq!(wrong, Vec::<String>::new());
}

#[test]
fn a_usage_error_is_one_line() {
    let rig = Rig::new();
    for (arguments, why) in [
        (&["fly"][..], "fly"),
        (&["stream"], "--app"),
        (&["stream", "--app", "demo", "--streams", "tty"], "expected stdin or stdout or stderr"),
        (&["stream", "--app", "demo", "--backlog", "1"], "expected a number of bytes"),
        (&["tty", "--app", "demo", "--size", "0x0"], "expected ROWSxCOLS"),
        (&["attach", "--app", "demo", "--wait=soon"], "expected a duration such as 5s, "),
        (&["ask", "demo", "x", "--timeout", "5x"], "expected a duration such as 5s, "),
        (&["attach", "--app", "demo", "--detach-keys", "ctrl-1"], "is not a key"),
        (&["run", "--foreground", "--app", "demo"], "CMD"),
        (&["uninstall"], "try iottymux install --remove"),
        (&["list", "--nonsense"], "--nonsense' found; try iottymux list --help"),
        (&["enable", "x", "--backlog", "1M"], "; try --env IOTTYMUX_BACKLOG=VALUE, or "),
        (
            &["units", "--app", "x", "--env", "IOTTYMUX_BACKLOG=y"],
            "iottymux: IOTTYMUX_BACKLOG=y: expected a number of bytes from 4K to 1G; try",
        ),
        (&["--log-level", "warn", "disable"], "; try iottymux disable --help"),
        (&["--nonsense"], "--nonsense' found; try iottymux --help"),
    ] {
        let mut process = rig.run(arguments);
        assert_eq!(process.ends(), 2, "{arguments:?}");
        let said = process.stderr.text();
        assert!(said.starts_with("iottymux: ") && said.contains(why), "{arguments:?}: {said}");
        assert_eq!(said.lines().count(), 1, "{arguments:?}: {said}");
    }
    assert!(!rig.state().exists());
}

/// Standard error may also be the app's, as in `attach`. Each write to such a socket is a packet.
#[test]
fn a_line_is_one_write() {
    let (ours, theirs) = UnixDatagram::pair().unwrap();
    let mut command = Rig::new().command(["fly"]);
    command.stderr(OwnedFd::from(theirs));
    assert_eq!(command.status().unwrap().code(), Some(2));
    let mut packet = [0; 1024];
    let len = ours.recv(&mut packet).unwrap();
    assert!(packet[..len].ends_with(b"\n"), "{}", packet[..len].escape_ascii());
}

#[test]
fn a_unit_can_say_everything_by_its_environment() {
    let rig = Rig::new();
    let mut command = rig.command(["tty"]);
    command.envs([("IOTTYMUX_APP", APP), ("IOTTYMUX_SIZE", "30x90")]);
    let _mux = rig.start(command);
    let size = rustix::termios::tcgetwinsize(rig.slave_as_it_is()).unwrap();
    assert_eq!((size.ws_row, size.ws_col), (30, 90));
    let mut command = rig.command(["attach"]);
    command.envs([("IOTTYMUX_APP", APP), ("IOTTYMUX_MODE", "stdout")]);
    let mut attach = Proc::spawn(command);
    assert_eq!(attach.ends(), 1);
    assert!(attach.stderr.text().contains("it has no stdout, only tty; try --mode tty-out"));
}

/// A mux that is replaced is young, and its app as old as before.
#[test]
fn the_list_has_the_time_of_the_app() {
    let rig = Rig::new();
    let command = ["run", "--name", APP, "--detach", "sleep", "1000"];
    assert_eq!(rig.run(&command).ends(), 0);
    let times = || {
        let list = rig.run(&["list", "--json"]).stdout.text();
        let list: Value = serde_json::from_str(&list).unwrap();
        ["app_uptime_ms", "uptime_ms"].map(|name| list[0][name].as_u64())
    };
    eventually("it has run for a second", || times()[0] >= Some(1000));
    let [before, _] = times();
    assert_eq!(rig.run(&["control", APP, "restart"]).ends(), 0);
    let [app, mux] = times();
    assert!(app >= before && mux < app, "{app:?} {mux:?}");
    let table = rig.run(&["list"]).stdout.text();
    assert!(
        table.starts_with("APP   STATE    ENDPOINTS            PID") && table.contains("  UP  "),
        "{table}"
    );
    assert_eq!(rig.run(&["rm", "--force", APP]).ends(), 0);
}

/// After an upgrade. A mux without a keeper is that of a service, whose unit restarts it.
#[test]
fn all_muxes_that_have_a_keeper_are_restarted() {
    let rig = Rig::new();
    for name in ["one", "two"] {
        let command = ["run", "--name", name, "--detach", "sleep", "1000"];
        assert_eq!(rig.run(&command).ends(), 0);
    }
    assert_eq!(rig.run(&["run", "--name", "over", "true"]).ends(), 0);
    let _service = rig.mux(["stream", "--app", APP]);
    let muxes = || {
        let list = rig.run(&["list", "--json"]).stdout.text();
        let list: Value = serde_json::from_str(&list).unwrap();
        let pids = list.as_array().unwrap().iter().map(|row| row["mux_pid"].as_u64());
        pids.collect::<Vec<_>>()
    };
    let before = muxes();
    let mut restart = rig.run(&["control", "--all", "restart"]);
    assert_eq!(restart.ends(), 0, "{}", restart.stderr.so_far());
    let told = "restarted the mux of app one\nrestarted the mux of app two\n";
    assert_eq!((restart.stdout.text(), restart.stderr.text()), (told.into(), String::new()));
    let same: Vec<bool> = before.iter().zip(muxes()).map(|(old, new)| *old == new).collect();
    // In the order of the names: demo, one, over, two.
    assert_eq!(same, [true, false, true, false]);
    // One that hangs is told of, and keeps no other from it.
    let pid = i32::try_from(muxes()[1].unwrap()).unwrap();
    kill(Pid::from_raw(pid), Signal::SIGSTOP).unwrap();
    let mut restart = rig.run(&["control", "--all", "restart"]);
    assert_eq!(restart.ends(), 1);
    assert_eq!(restart.stdout.text(), "restarted the mux of app two\n");
    let said = restart.stderr.text();
    assert!(said.contains("app one: the mux does not answer"), "{said}");
    kill(Pid::from_raw(pid), Signal::SIGCONT).unwrap();
    for words in [&["control", "--all", "reopen-logs"][..], &["control", "--all", APP, "restart"]] {
        assert_eq!(rig.run(words).ends(), 2, "{words:?}");
    }
    for name in ["one", "two"] {
        assert_eq!(rig.run(&["rm", "--force", name]).ends(), 0);
    }
}

/// The list of one app is the same row as in the list of all.
#[test]
fn the_list_of_one_app_has_its_row() {
    let rig = Rig::new();
    let done = |words: &[&str]| {
        let mut list = rig.run(words);
        assert_eq!(list.ends(), 0, "{words:?}: {}", list.stderr.so_far());
        list.stdout.text()
    };
    let json = |words: &[&str]| -> Value {
        let mut json: Value = serde_json::from_str(&done(words)).unwrap();
        json.as_array_mut().unwrap().iter_mut().for_each(|row| row["uptime_ms"] = Value::Null);
        json
    };
    let mut mux = rig.stream();
    let alone = done(&["list"]);
    let _other = rig.mux(["tty", "--app", "another"]);
    for words in [&["list", APP][..], &["ls", "de"], &["list", "--app", APP]] {
        assert_eq!(done(words), alone);
    }
    assert_eq!(done(&["list", "-q", "demo.service"]), "demo\n");
    let all = json(&["list", "--json"]);
    assert_eq!(all[1]["app"], APP);
    assert_eq!(json(&["list", "--json", APP]), Value::Array(vec![all[1].clone()]));
    // Of one that has ended, too.
    mux.signal(Signal::SIGTERM);
    mux.ends();
    assert_eq!(done(&["list", APP]), "APP   STATE   ENDPOINTS\ndemo  exited\n");
    let ended = json(&["list", "--json", APP]);
    assert_eq!((&ended[0]["state"], ended[0]["ended_ms"].is_u64()), (&"exited".into(), true));
    assert!(done(&["list", "--ended", APP]).starts_with("APP   STATE   ENDPOINTS  ENDED"));
}

/// However many hang, they are waited for together.
#[test]
fn all_muxes_that_hang_are_asked_at_the_same_time() {
    const MANY: usize = 150;
    let rig = Rig::new();
    let _mux = rig.tty();
    // Each is a copy of an app, whose socket the test has.
    let hung: Vec<UnixListener> = (0..MANY)
        .map(|number| {
            let dir = rig.state().join(format!("hung-{number}"));
            std::fs::create_dir(&dir).unwrap();
            std::fs::copy(rig.path("endpoints"), dir.join("endpoints")).unwrap();
            UnixListener::bind(dir.join("sock-session")).unwrap()
        })
        .collect();
    let mut list = rig.run(&["list"]);
    let asked: Vec<_> = hung.iter().map(|socket| socket.accept().unwrap().0).collect();
    for socket in &asked {
        let mut fds = [PollFd::new(socket.as_fd(), PollFlags::empty())];
        assert_eq!(poll(&mut fds, PollTimeout::ZERO), Ok(0), "one was given up before the last");
    }
    assert_eq!(list.ends(), 0);
    let table = list.stdout.text();
    assert_eq!(table.matches("unknown").count(), MANY, "{table}");
    assert!(table.contains("prepared"), "{table}");
}

#[test]
fn the_list_has_every_app_and_where_it_is_in_its_life() {
    let rig = Rig::new();
    let mut list = rig.run(&["list"]);
    assert_eq!(list.ends(), 0);
    assert_eq!(list.stdout.text(), "APP  STATE  ENDPOINTS\n");
    let _mux = rig.stream();
    let _other = rig.mux(["tty", "--app", "a-terminal"]);
    let mut dead = rig.mux(["tty", "--app", "dead"]);
    dead.signal(Signal::SIGKILL);
    dead.ends();
    // Those that do not answer are waited for together.
    let hung = ["hung-1", "hung-2", "hung-3", "hung-4", "hung-5", "hung-6", "hung-7", "hung-8"];
    let stopped = hung.map(|name| rig.mux(["tty", "--app", name]));
    stopped.iter().for_each(Proc::stop);
    std::fs::create_dir_all(rig.state().join("empty")).unwrap();
    std::fs::create_dir_all(rig.state().join("NO APP")).unwrap();
    let mut list = rig.run(&["list"]);
    assert_eq!(list.ends(), 0);
    let table = list.stdout.text();
    let want = "\
         APP         STATE     ENDPOINTS            CLIENTS  UNIT\n\
         a-terminal  prepared  tty                  0        a-terminal.service\n\
         dead        unknown   tty\n\
         demo        prepared  stdin,stdout,stderr  0        demo.service\n\
         empty       unknown\n"
        .to_owned()
        + &hung.map(|name| format!("{name}      unknown   tty\n")).concat();
    assert_eq!(table, want);
    let mut names = rig.run(&["ls", "-q"]);
    assert_eq!(names.ends(), 0);
    let want = ["a-terminal", "dead", "demo", "empty"].into_iter().chain(hung);
    assert_eq!(names.stdout.text(), want.fold(String::new(), |all, name| all + name + "\n"));
    let mut json = rig.run(&["ps", "--json", "-a"]);
    assert_eq!(json.ends(), 0);
    let json: Value = serde_json::from_str(&json.stdout.text()).unwrap();
    let demo = &json[2];
    assert_eq!(
        (demo["app"].as_str(), demo["state"].as_str(), demo["clients"].as_u64()),
        (Some("demo"), Some("prepared"), Some(0))
    );
    assert_eq!(demo["streams"], serde_json::json!(["stdin", "stdout", "stderr"]));
    assert_eq!(demo["state_dir"].as_str(), rig.state().to_str());
}

#[test]
fn options_for_input_need_a_mode_with_input() {
    let rig = Rig::new();
    let _mux = rig.tty();
    for option in ["--exclusive", "--take-over", "--stdin-once"] {
        let mut attach = rig.attach(&["--mode", "tty-out", option]);
        assert_eq!(attach.ends(), 2);
        let why = format!("{option} needs an input stream, and this mode has none");
        let said = format!("iottymux: {why}; try iottymux attach --help\n");
        assert_eq!(attach.stderr.text(), said);
    }
}
