//! A service with a terminal, and a person at a real one: job control, restarts of both, what was drawn long
//! ago.

use std::fs;

use iottymux::types::size::Size;

use crate::pod::{BINARY, Pod};
use crate::proc::eventually;
use crate::tmux::{Tmux, Window};

const SIZE: Size = Size { rows: 30, cols: 100 };
const MUX: &str = "ttymux@shell.service";
/// What a terminal is like that nobody has changed.
const USUAL: &str = "cursor 1 alternate 0 mouse 000000 keys 00 insert 0 origin 0 wrap 1\n";
/// How each drawing of a screen begins.
const SCREEN: &[u8] = b"\x18\x1b[?1049l";

/// A pod, and a person's terminal outside of it.
struct Scene {
    pod: Pod,
    tmux: Tmux,
}

impl Scene {
    fn new() -> Option<Self> {
        let tmux = Tmux::start()?;
        Some(Self { pod: Pod::delivered()?, tmux })
    }

    /// The service runs a script in the place of its shell.
    fn runs(&self, script: &str, more: &str) {
        fs::write(self.pod.shared("app.sh"), script).unwrap();
        let unit = format!("[Service]\nExecStart=\nExecStart=/bin/sh /shared/app.sh\n{more}");
        self.pod.set_unit("shell.service.d/x.conf", &unit);
        self.pod.systemctl(&["start", "shell.service"]);
    }

    fn attach(&self, record: &str) -> Window {
        let state = self.pod.path("/run/iottymux");
        let attach = format!("{BINARY} --state-dir {} attach --app shell", state.display());
        self.tmux.window(SIZE, record, &format!("{attach}; printf '%s\\n' 'it is over'; exec cat"))
    }

    fn detach(window: &Window) {
        window.press(&["C-p", "C-q"]);
        window.wait_for("it is over");
    }

    fn kill_mux(&self) {
        self.pod.systemctl(&["kill", "--kill-who=main", "--signal=KILL", MUX]);
        self.pod.await_mux("shell", "tty-in");
    }

    fn exists(&self, name: &str) -> bool {
        self.pod.shared(name).exists()
    }
}

#[test]
fn job_control() {
    let Some(scene) = Scene::new() else { return };
    scene.pod.systemctl(&["start", "shell.service"]);
    let window = scene.attach("record");
    let asks = |keys: &str, answer: &str| {
        window.type_in(keys);
        window.wait_for(answer);
    };
    asks("PS1='ready$((n+=1)) '\r", "\nready1");
    asks("sh -c 'echo be\"\"gun; exec sleep 1000'\r", "\nbegun");
    asks("\x1a", "Stopped");
    asks("jobs | tr S s\r", "stopped");
    window.type_in("fg\r");
    window.wait_for("fg\nsh -c");
    // One that is not in front yet does not hear it.
    eventually("it is interrupted", || {
        window.type_in("\x03");
        window.text().contains("\nready4")
    });
    // Nor is it known which of the last ones the shell still hears.
    eventually("there is no job left", || {
        window.type_in("\x15echo left$(jobs | wc -l)\r");
        window.text().contains("left0")
    });
    asks("sleep 1000 & kill -0 $! && echo in the background $((1+1))\r", "background 2");
    asks("kill %1; wait; echo none$(jobs -r | wc -l)\r", "none0");
    asks("echo $TERM $(tty </dev/tty | tr d D)\r", "xterm-256color /Dev/tty");
    asks("stty size\r", "30 100");
    asks("stty -echo; stty -a | grep -o -- '-echo '; stty echo\r", "\n-echo");
}

/// ^S holds the output back, and with it the service; ^Q lets it go on.
#[test]
fn flow_control() {
    let Some(scene) = Scene::new() else { return };
    let script = "echo up; read x; : >/shared/read; echo \"got $x\"; : >/shared/written; read x";
    scene.runs(script, "");
    let window = scene.attach("record");
    window.wait_for("up");
    window.press(&["C-s"]);
    window.type_in("word\r");
    eventually("the service has read", || scene.exists("read"));
    let pid = scene.pod.property("shell", "MainPID");
    let stat = scene.pod.path(&format!("/proc/{pid}/stat"));
    eventually("it waits in writing", || fs::read_to_string(&stat).unwrap().contains(") S "));
    assert!(!scene.exists("written"));
    assert!(!window.text().contains("got"));
    window.press(&["C-q"]);
    window.wait_for("got word");
    eventually("it goes on", || scene.exists("written"));
}

/// The service dies and leaves its terminal changed in every way: the next start finds it as the first did,
/// and who is attached stays, is told, and sees it.
#[test]
fn a_restart_begins_with_a_usual_terminal() {
    let Some(scene) = Scene::new() else { return };
    let script = "n=$(cat /shared/n 2>/dev/null || echo 0); n=$((n+1)); echo $n >/shared/n\n\
        stty -a >/shared/modes$n; echo start $n; read x\n\
        stty raw -echo -iexten; printf '\\033[?1049h\\033[?1000;1006h\\033[?25l\\033=\\033[?1h\\033[?7lfull screen'\n\
        read x </shared/go; exit 3\n";
    let go = scene.pod.shared_fifo("go");
    scene.runs(script, "Restart=always\nRestartSec=100ms\n");
    let window = scene.attach("record");
    window.wait_for("start 1");
    for n in 1..3 {
        window.type_in("\r");
        window.wait_for("full screen");
        let changed = "cursor 0 alternate 1 mouse 110010 keys 11 insert 0 origin 0 wrap 0\n";
        eventually("the terminal is changed", || window.modes() == changed);
        fs::write(&go, "go\n").unwrap();
        window.wait_for("app shell ended with status 3 and was started again");
        window.wait_for(&format!("start {}", n + 1));
        eventually("the terminal is as usual", || window.modes() == USUAL);
        assert!(!window.text().contains("full screen"));
        let modes = |n| fs::read_to_string(scene.pod.shared(&format!("modes{n}"))).unwrap();
        // The window may have come after the first start.
        let behind_size = |text: String| {
            text.split_once("columns").unwrap().1.split_once(';').unwrap().1.to_owned()
        };
        assert_eq!(behind_size(modes(n + 1)), behind_size(modes(1)));
    }
}

/// What was drawn before all that the backlog keeps is there with the next mux, too, and so is the size.
#[test]
fn the_screen_and_the_size_survive_the_mux() {
    let Some(scene) = Scene::new() else { return };
    let script = "read x; printf '\\033[H\\033[2J\\033[1;34mdrawn\\033[m long ago\\033[30;1Hstatus line\\033[3;20r\\033[20;1H'\n\
        seq 100000; echo the end of it\n\
        while read x; do echo \"got $x\"; [ \"$x\" != size ] || stty size; done\n";
    scene.runs(script, "");
    let window = scene.attach("record");
    let shows = |window: &Window, last: &str| {
        window.wait_for(last);
        let (text, state) = (window.text(), window.state());
        for part in ["drawn long ago", "status line"] {
            assert!(text.contains(part), "{text}");
        }
        assert!(
            state.contains("<1;34;49>drawn<39;49>") || state.contains("<1;34;49>drawn<49>"),
            "{state}"
        );
        assert!(state.contains("region 2-19"), "{state}");
    };
    let screens = || {
        let record = fs::read(scene.tmux.file("record")).unwrap();
        record.windows(SCREEN.len()).filter(|part| *part == SCREEN).count()
    };
    // The line that says how to leave goes away with a screen.
    window.wait_for("ctrl-p ctrl-q leaves");
    eventually("the greeting is gone", || !window.text().contains("ctrl-p ctrl-q leaves"));
    window.type_in("\r");
    shows(&window, "the end of it");
    let before = screens();
    // It goes on with the next byte, and needs no screen.
    for (round, word) in ["one", "two"].into_iter().enumerate() {
        scene.kill_mux();
        let told = || window.text().matches("attached again").count();
        eventually("it is attached again", || told() == round + 1);
        window.type_in(&format!("{word}\r"));
        shows(&window, &format!("got {word}"));
    }
    assert_eq!(screens(), before);
    Scene::detach(&window);
    for (round, kills) in [true, false].into_iter().enumerate() {
        if kills {
            scene.kill_mux();
        } else {
            scene.pod.systemctl(&["restart", MUX]);
        }
        // Nobody with a window is there.
        let mut tty = scene.pod.connect("shell", "sock-tty");
        tty.say("size\n");
        tty.line_ending("30 100");
        let window = scene.attach(&format!("record{round}"));
        shows(&window, "30 100");
        Scene::detach(&window);
    }
}

/// A person at a line editor, and one who watches a full screen: what they are told of another mux goes again.
#[test]
fn another_mux_leaves_the_screen_as_it_was() {
    let Some(scene) = Scene::new() else { return };
    let script = "exec bash --norc -c 'IFS= read -e -r -p \"ready> \" x; printf \"\\033[?1049h\\033[30;1Hstatus\"; read -r x'";
    scene.runs(script, "");
    let window = scene.attach("record");
    window.wait_for("ready>");
    window.type_in("say he");
    window.wait_for("ready> say he");
    scene.kill_mux();
    window.wait_for("attached again");
    window.type_in("llo");
    window.wait_for("ready> say hello");
    eventually("no message is left", || !window.text().contains("iottymux"));
    let state = scene.pod.path("/run/iottymux");
    let watch = format!("{BINARY} --state-dir {} attach --app shell --read-only", state.display());
    let watcher = scene.tmux.window(SIZE, "watcher", &watch);
    watcher.wait_for("ready> say hello");
    window.type_in("\r");
    watcher.wait_for("status");
    scene.kill_mux();
    watcher.wait_for("attached again");
    eventually("the row is back", || watcher.text().contains("\nstatus"));
}
