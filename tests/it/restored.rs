//! However an attach ends, the terminal is as it was: with tmux as the terminal, and an app that has
//! changed all of it.

use std::fs::{self, File};
use std::io::{Read, Write};

use iottymux::types::size::Size;
use nix::sys::signal::{Signal, kill};
use nix::sys::termios::{FlowArg, tcflow};
use nix::unistd::Pid;

use crate::at_terminal::size_of;
use crate::link::Link;
use crate::proc::{Proc, eventually};
use crate::rig::{APP, Rig};
use crate::tmux::{Tmux, Window};

/// Alternate screen, keys of the cursor and keypad, mouse in all its forms, focus, paste, no cursor, no
/// wrapping, colours.
const CHANGES: &str = "\x1b[?1049h\x1b[?1h\x1b=\x1b[?1000;1002;1003;1006h\x1b[?1004h\x1b[?2004h\
    \x1b[?25l\x1b[?7l\x1b[1;31;44m\x1b[2;2Hfull screen";
const SIZE: Size = Size { rows: 30, cols: 90 };
const KEYS: [&str; 2] = ["C-p", "C-q"];

struct Scene {
    rig: Rig,
    mux: Proc,
    /// The app's side, where the test is the app.
    app: Option<File>,
    tmux: Tmux,
    window: Window,
    /// The attach.
    pid: Pid,
    others: Vec<Proc>,
}

impl Scene {
    /// An attach by this line, in which `ATTACH` is replaced, to an app that has changed the screen.
    /// With `run` the app is a command.
    fn new(tmux: Tmux, line: &str, run: bool) -> Self {
        Self::of(Rig::new(), tmux, line, run)
    }

    fn of(rig: Rig, tmux: Tmux, line: &str, run: bool) -> Self {
        let app =
            "stty -echo; printf '%s' \"$1\"; read how; [ $how = kill ] && kill -9 $$; exit $how";
        let mux = if run {
            rig.mux([
                "run",
                "--foreground",
                "--app",
                APP,
                "--tty",
                "--",
                "sh",
                "-c",
                app,
                "sh",
                CHANGES,
            ])
        } else {
            rig.tty()
        };
        let app = (!run).then(|| rig.slave());
        let attach = format!("{} attach --app {APP}", env!("CARGO_BIN_EXE_iottymux"));
        let line = line.replace("ATTACH", &attach);
        let (state, dir) = (rig.state(), tmux.file(""));
        let script = format!(
            "export IOTTYMUX_STATE_DIR={} IOTTYMUX_RECONNECT=0\ncd {}\nstty -a >before\n{line}\necho $? >code\nstty -a >after\nprintf '%s\\n' 'it is over'\n\
             exec cat >typed\n",
            state.display(),
            dir.display()
        );
        fs::write(tmux.file("script"), script).unwrap();
        let command = format!("exec sh {}", tmux.file("script").display());
        let window = tmux.window(SIZE, "record", &command);
        Self { rig, mux, app, tmux, window, pid: Pid::from_raw(0), others: Vec::new() }
    }

    fn client(&self) -> Option<Pid> {
        let status = self.rig.status();
        let client = status["clients"].as_array()?.iter().find(|c| c["streams"][0].is_object())?;
        Some(Pid::from_raw(i32::try_from(client["pid"].as_i64()?).unwrap()))
    }

    /// It is attached, the app changes the screen, and that is seen.
    fn change(&mut self) {
        eventually("it is attached", || self.client().is_some());
        self.pid = self.client().unwrap();
        if let Some(app) = &mut self.app {
            app.write_all(CHANGES.as_bytes()).unwrap();
        }
        self.window.wait_for("full screen");
        let changed = "cursor 0 alternate 1 mouse 100110 keys 11 insert 0 origin 0 wrap 0\n";
        eventually("the terminal is changed", || self.window.modes() == changed);
        eventually("all is recorded", || is_set("1004", &self.shown()));
    }

    /// The process of a line that writes its number into a file.
    fn own_pid(&self) -> Pid {
        let pid = fs::read_to_string(self.tmux.file("pid")).unwrap();
        Pid::from_raw(pid.trim().parse().unwrap())
    }

    fn kill(&self, signal: Signal) {
        kill(self.pid, signal).unwrap();
    }

    fn is_gone(&self) -> bool {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.pid));
        stat.is_ok_and(|stat| stat.contains(") Z ")) || !self.exists()
    }

    fn exists(&self) -> bool {
        fs::exists(format!("/proc/{}", self.pid)).unwrap()
    }

    fn answer(&self, word: &str) {
        self.window.press(&[word, "Enter"]);
    }

    fn detach(&self) {
        self.window.press(&KEYS);
    }

    /// What the app reads next must be this.
    fn assert_typed(&mut self, keys: &str) {
        let mut got = vec![0; keys.len()];
        self.app.as_mut().unwrap().read_exact(&mut got).unwrap();
        assert_eq!(String::from_utf8_lossy(&got), keys);
    }

    /// All that the terminal was given.
    fn shown(&self) -> String {
        let record = fs::read(self.tmux.file("record")).unwrap_or_default();
        String::from_utf8_lossy(&record).into_owned()
    }

    fn assert_modes(&self, when: &str) {
        let read = |name| fs::read_to_string(self.tmux.file(name)).unwrap();
        assert_eq!(read(when), read("before"));
    }

    fn assert_screen(&self, until: &str) {
        let usual = "cursor 1 alternate 0 mouse 000000 keys 00 insert 0 origin 0 wrap 1\n";
        eventually("the terminal is as usual", || self.window.modes() == usual);
        let text = self.window.text();
        assert!(!text.contains("full screen"), "{text}");
        // It was not written over what was told before it.
        assert!(text.lines().any(|line| line.trim_end().ends_with(until)), "{text}");
        let shown = self.shown();
        if let Some((_, behind)) = shown.split_once("iottymux: detached from") {
            assert!(!behind.contains("\x1b[?"), "{behind:?}");
        }
        // What tmux does not tell.
        eventually("all is recorded", || self.shown().contains(until));
        for mode in ["1004", "2004"] {
            assert!(!is_set(mode, &self.shown()), "{mode} is still set");
        }
    }

    /// The script goes on behind the attach.
    fn assert_over(&self, code: i32, screen: bool) {
        self.window.wait_for("it is over");
        let told = fs::read_to_string(self.tmux.file("code")).unwrap();
        assert_eq!(told.trim(), code.to_string());
        self.assert_modes("after");
        if screen {
            self.assert_screen("it is over");
        }
    }
}

/// Whether this mode was set last, alone or among others.
fn is_set(mode: &str, shown: &str) -> bool {
    let switch = |sequence: &str| {
        let end = sequence.find(|c: char| !c.is_ascii_digit() && c != ';')?;
        let named = sequence[..end].split(';').any(|number| number == mode);
        named.then(|| sequence[end..].starts_with('h'))
    };
    shown.split("\x1b[?").skip(1).filter_map(switch).last() == Some(true)
}

type Act = fn(&mut Scene);

/// What is run, whether the app is a command, what happens, and with which code it ends.
const WAYS: &[(&str, &str, bool, Act, i32)] = &[
    ("the app ends", "ATTACH", true, |s| s.answer("0"), 0),
    ("the app fails", "ATTACH", true, |s| s.answer("3"), 3),
    ("the app is killed", "ATTACH", true, |s| s.answer("kill"), 137),
    ("detached", "ATTACH", false, |s| s.detach(), 0),
    ("detached in the C locale", "LC_ALL=C ATTACH", false, |s| s.detach(), 0),
    ("detached in UTF-8", "LC_ALL=C.UTF-8 ATTACH", false, |s| s.detach(), 0),
    ("SIGTERM", "ATTACH", false, |s| s.kill(Signal::SIGTERM), 143),
    ("SIGHUP", "ATTACH", false, |s| s.kill(Signal::SIGHUP), 129),
    ("SIGINT", "ATTACH", false, |s| s.kill(Signal::SIGINT), 130),
    ("SIGQUIT", "ATTACH", false, |s| s.kill(Signal::SIGQUIT), 131),
    ("the mux is killed", "ATTACH", false, |s| s.mux.signal(Signal::SIGKILL), 125),
    ("the mux ends", "ATTACH", false, |s| s.mux.signal(Signal::SIGTERM), 0),
    ("another mux comes", "ATTACH --reconnect 60", false, another_mux, 124),
    ("the mux is stopped", "ATTACH", false, stopped_mux, 0),
    ("detached by request", "ATTACH", false, by_request, 0),
    ("taken over", "ATTACH --exclusive", false, taken_over, 0),
    // ^Z would leave a terminal that nobody has restored.
    (
        "^Z and ^C, only looking",
        "set -m; trap : INT; ATTACH --read-only",
        false,
        |s| s.window.press(&["C-z", "C-c"]),
        130,
    ),
    ("no input", "ATTACH </dev/null", false, by_request, 0),
    ("input closed", "ATTACH <&-", false, by_request, 0),
    ("detached in a string", "ATTACH", false, in_a_string, 0),
    ("under script(1)", "script -qec 'ATTACH' /dev/null", false, |s| s.detach(), 0),
    ("input from a pipe", "head -1 | ATTACH", true, |s| s.answer("3"), 3),
];

fn another_mux(scene: &mut Scene) {
    scene.mux.signal(Signal::SIGKILL);
    scene.mux.ends();
    scene.mux = scene.rig.tty();
    // Not for long on the screen, which the new mux draws.
    eventually("it is attached again", || scene.shown().contains("attached again"));
    scene.detach();
}

/// In tmux an ESC or CAN does not end such a string: what comes then would be a part of it.
fn in_a_string(scene: &mut Scene) {
    scene.app.as_mut().unwrap().write_all(b"\x1bP$q\x1b[mshown").unwrap();
    eventually("it is recorded", || scene.shown().contains("shown"));
    scene.detach();
}

fn stopped_mux(scene: &mut Scene) {
    scene.mux.stop();
    scene.detach();
}

fn by_request(scene: &mut Scene) {
    let status = scene.rig.status();
    let number = status["clients"][0]["client"].to_string();
    assert_eq!(scene.rig.run(&["control", "--app", APP, "detach", &number]).ends(), 0);
}

fn taken_over(scene: &mut Scene) {
    scene.others.push(scene.rig.attach(&["--take-over"]));
    scene.window.wait_for("you cannot type: client");
    scene.detach();
}

/// What is told is there behind a screen that is drawn, and stays.
#[test]
fn what_is_told_stays_over_other_screens() {
    let Some(tmux) = Tmux::start() else { return };
    let mut scene = Scene::new(tmux, "ATTACH", false);
    scene.change();
    scene.others.push(scene.rig.attach(&["--take-over"]));
    scene.window.wait_for("you cannot type");
    for (size, text) in [(Size { rows: 20, ..SIZE }, "more"), (SIZE, "and more")] {
        scene.window.resize(size);
        // tmux takes its time.
        let terminal = scene.window.terminal();
        eventually("it is", || size_of(&terminal).0 == size.rows);
        write!(scene.app.as_mut().unwrap(), "\x1b[5H{text}").unwrap();
        scene.window.wait_for(text);
        scene.window.wait_for("you cannot type");
    }
    scene.detach();
    scene.assert_over(0, true);
}

/// Nor are they there for ever, in what is scrolled away or on the screen.
#[test]
fn our_lines_do_not_move_with_those_of_the_app() {
    let Some(tmux) = Tmux::start() else { return };
    let mut scene = Scene::new(tmux, "ATTACH", false);
    eventually("it is attached", || scene.client().is_some());
    scene.app.as_mut().unwrap().write_all(b"\r\n\ntyped and not ended").unwrap();
    scene.window.wait_for("ended");
    scene.others.push(scene.rig.attach(&["--take-over"]));
    scene.window.wait_for("you cannot type");
    assert!(scene.window.text().contains("\ntyped and not ended\n"), "{}", scene.window.text());
    let lines = (1..60).map(|number| format!("\r\nline {number}")).collect::<Vec<_>>().concat();
    scene.app.as_mut().unwrap().write_all(lines.as_bytes()).unwrap();
    scene.window.wait_for("line 59");
    scene.window.wait_for("you cannot type");
    scene.detach();
    scene.assert_over(0, true);
    let all = scene.window.all_text();
    assert!(all.contains("typed and not ended\nline 1\n") && !all.contains("you only"), "{all}");
}

#[test]
fn the_terminal_is_as_before() {
    for (name, line, run, act, code) in WAYS {
        let Some(tmux) = Tmux::start() else { return };
        println!("{name}");
        let mut scene = Scene::new(tmux, line, *run);
        scene.change();
        act(&mut scene);
        scene.assert_over(*code, true);
    }
}

/// A terminal that takes nothing gets its modes back, and its screen stays as it was.
#[test]
fn the_terminal_is_stopped() {
    let Some(tmux) = Tmux::start() else { return };
    let mut scene = Scene::new(tmux, "ATTACH", false);
    scene.change();
    let terminal = scene.window.terminal();
    tcflow(&terminal, FlowArg::TCOOFF).unwrap();
    scene.kill(Signal::SIGTERM);
    eventually("it has ended", || scene.is_gone());
    tcflow(&terminal, FlowArg::TCOON).unwrap();
    scene.assert_over(143, false);
}

#[test]
fn the_terminal_is_gone() {
    let Some(tmux) = Tmux::start() else { return };
    let mut scene = Scene::new(tmux, "ATTACH", false);
    scene.change();
    scene.window.close();
    eventually("it has ended", || scene.is_gone());
    assert!(scene.mux.runs());
}

#[test]
fn there_is_nothing_to_attach_to() {
    let Some(tmux) = Tmux::start() else { return };
    Scene::new(tmux, "ATTACH --mode stdout", false).assert_over(1, true);
}

/// What is shown goes elsewhere: the keys are the app's still, and the terminal has nothing to undo but
/// its modes.
#[test]
fn the_output_is_closed() {
    let Some(tmux) = Tmux::start() else { return };
    let mut scene = Scene::new(tmux, "ATTACH | head -c 5 >head", false);
    scene.window.press(&["k", "C-p", "?"]);
    scene.assert_typed("k\x10?");
    scene.app.as_mut().unwrap().write_all(CHANGES.as_bytes()).unwrap();
    scene.assert_over(0, true);
    assert_eq!(fs::read(scene.tmux.file("head")).unwrap(), b"\x1b[?10");
}

/// What tmux can be asked for, and what is only in its input.
#[test]
fn tab_stops_title_colours_and_links_are_as_before() {
    let Some(tmux) = Tmux::start() else { return };
    let mut scene = Scene::new(tmux, "ATTACH --pass title", false);
    let known = |scene: &Scene| {
        let asked = "#{pane_tabs} #{pane_title}";
        scene.window.run(&["display-message", "-p"], &[asked])
    };
    eventually("it is attached", || scene.client().is_some());
    let before = known(&scene);
    scene.app.as_mut().unwrap().write_all(b"\x1b[3g\x1b[4G\x1bH\x1b]2;another\x07\x1b]4;1;#010203\x07\x1b]11;#010203\x07\x1b]8;;http://x\x07link").unwrap();
    scene.window.wait_for("link");
    eventually("all is changed", || known(&scene).starts_with("3 another"));
    scene.detach();
    scene.assert_over(0, true);
    assert_eq!(known(&scene), before);
    let shown = scene.shown();
    let undone = shown.split("link").last().unwrap();
    for sequence in ["\x1b]104\x1b\\", "\x1b]111\x1b\\", "\x1b]8;;\x1b\\", "\x1b[23;0t"] {
        assert!(undone.contains(sequence), "{sequence:?} in {undone:?}");
    }
}

/// The app's bytes and nothing else go into a pipe, and the keys detach.
#[test]
fn the_output_is_a_pipe() {
    let Some(tmux) = Tmux::start() else { return };
    let mut scene = Scene::new(tmux, "ATTACH | cat >shown", false);
    scene.app.as_mut().unwrap().write_all(CHANGES.as_bytes()).unwrap();
    let shown = || fs::read_to_string(scene.tmux.file("shown")).unwrap_or_default();
    eventually("all is in the pipe", || shown() == CHANGES);
    scene.detach();
    scene.assert_over(0, true);
    assert_eq!(shown(), CHANGES);
}

/// With files at both ends the terminal is not touched, and keys of a person have no meaning.
#[test]
fn there_is_no_terminal_at_either_end() {
    let Some(tmux) = Tmux::start() else { return };
    let line = "printf 'a\\020\\021\\020?b' >keys; ATTACH <keys >shown 2>said";
    let mut scene = Scene::new(tmux, line, false);
    scene.assert_typed("a\x10\x11\x10?b");
    scene.app.as_mut().unwrap().write_all(CHANGES.as_bytes()).unwrap();
    let shown = || fs::read_to_string(scene.tmux.file("shown")).unwrap_or_default();
    eventually("all is in the file", || shown() == CHANGES);
    scene.mux.signal(Signal::SIGTERM);
    scene.assert_over(0, true);
    assert_eq!((shown().as_str(), fs::read(scene.tmux.file("said")).unwrap().len()), (CHANGES, 0));
}

type Cut = fn(&Scene, &Link);

/// What happens to an app of another machine, or on the way there, and with which code it ends.
const LINKS: &[(&str, bool, Cut, i32)] = &[
    ("the app fails", true, |s, _| s.answer("3"), 3),
    ("detached", false, |s, _| s.detach(), 0),
    ("the link is lost", false, |_, link| link.cut(), 255),
    ("ssh is killed", false, |_, link| kill(link.ssh(), Signal::SIGKILL).unwrap(), 137),
    ("SIGTERM", false, |s, _| kill(s.own_pid(), Signal::SIGTERM).unwrap(), 255),
    ("SIGHUP", false, |s, _| kill(s.own_pid(), Signal::SIGHUP).unwrap(), 255),
];

/// What the app has changed is undone here, where nobody there can do it any more.
#[test]
fn the_app_is_on_another_machine() {
    for (name, run, act, code) in LINKS {
        let Some(tmux) = Tmux::start() else { return };
        println!("{name}");
        let (rig, dir) = (Rig::new(), tmux.file("").display().to_string());
        let Some(link) = Link::new(&rig) else { return };
        let line = format!(
            "PATH={}:$PATH sh -c 'echo $$ >pid; HOME={dir} exec ATTACH -H there'",
            link.bin().display()
        );
        let mut scene = Scene::of(rig, tmux, &line, *run);
        scene.change();
        // The size there is that of the window here, at once and later.
        let larger = Size { rows: SIZE.rows + 3, ..SIZE };
        for size in [larger, SIZE] {
            scene.window.resize(size);
            let terminal = scene.rig.slave_as_it_is();
            eventually("it has the size", || size_of(&terminal).0 == size.rows);
        }
        act(&scene, &link);
        scene.assert_over(*code, true);
        let text = scene.window.text();
        assert_eq!(text.contains("lost the connection to there"), *code > 3, "{text}");
    }
}
