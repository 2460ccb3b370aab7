//! Real programs, redrawn in a real terminal emulator: tmux shows each of them, and beside it what our
//! model of the screen makes of the very same bytes.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use iottymux::proto::Size;
use iottymux::screen::Screen;
use tempfile::TempDir;

use crate::proc::eventually;

const SIZE: Size = Size { rows: 24, cols: 80 };
/// How long tmux may take to show what it has been given, before the difference is reported.
const SETTLE: Duration = Duration::from_secs(10);
/// What is set as the title when all has been shown.
const MARK: &str = "all has been shown";
/// All that tmux tells of a terminal beside its text.
const STATE: &str = "#{cursor_x} #{cursor_y} shown #{cursor_flag} alternate #{alternate_on} \
    mouse #{mouse_any_flag}#{mouse_standard_flag}#{mouse_button_flag}#{mouse_all_flag}#{mouse_sgr_flag}#{mouse_utf8_flag} \
    keys #{keypad_cursor_flag}#{keypad_flag} insert #{insert_flag} origin #{origin_flag} wrap #{wrap_flag} \
    region #{scroll_region_upper}-#{scroll_region_lower} title #{pane_title}";

struct Tmux {
    dir: TempDir,
}

impl Tmux {
    /// A server of its own, with an empty session.
    fn start() -> Self {
        let tmux = Self { dir: tempfile::Builder::new().prefix("tmux").tempdir().unwrap() };
        fs::write(tmux.file("conf"), "set -g status off\nset -g remain-on-exit on\n").unwrap();
        let (rows, cols) = (SIZE.rows.to_string(), SIZE.cols.to_string());
        tmux.run(&["new-session", "-d", "-x", &cols, "-y", &rows, "exec sleep 1000"]);
        tmux
    }

    fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn command(&self) -> Command {
        let mut command = Command::new("tmux");
        command.arg("-u").arg("-S").arg(self.file("socket")).arg("-f").arg(self.file("conf"));
        command.env_clear().env("PATH", std::env::var_os("PATH").unwrap());
        command.env("LANG", "C.UTF-8").env("HOME", self.dir.path()).env("TERM", "xterm-256color");
        command.env("SHELL", "/bin/sh");
        command
    }

    fn run(&self, arguments: &[&str]) -> String {
        let output = self.command().args(arguments).stdin(Stdio::null()).output().unwrap();
        assert!(output.status.success(), "tmux {arguments:?}: {}", output.stderr.escape_ascii());
        String::from_utf8(output.stdout).unwrap()
    }

    /// A new window in which a shell command runs; returns its pane.
    fn window(&self, command: &str) -> String {
        self.run(&["new-window", "-d", "-P", "-F", "#{pane_id}", command]).trim().to_owned()
    }

    fn text(&self, pane: &str) -> String {
        self.run(&["capture-pane", "-p", "-t", pane])
    }

    /// All that can be seen and known of a pane.
    fn state(&self, pane: &str) -> String {
        self.run(&["capture-pane", "-e", "-p", "-t", pane])
            + &self.run(&["display-message", "-p", "-t", pane, STATE])
    }

    /// Prints something in a pane, as if the program there had.
    fn print(&self, pane: &str, bytes: &[u8]) {
        let path = self.run(&["display-message", "-p", "-t", pane, "#{pane_tty}"]);
        fs::write(path.trim(), bytes).unwrap();
    }

    /// What makes bytes appear in a pane of their own.
    fn show(&self, name: &str, bytes: &[u8]) -> String {
        fs::write(self.file(name), bytes).unwrap();
        let path = self.file(name);
        self.window(&format!("stty raw -echo; cat {}; exec sleep 1000", path.display()))
    }
}

impl Drop for Tmux {
    fn drop(&mut self) {
        let _ = self.command().arg("kill-server").output();
    }
}

/// Runs a shell command in tmux, types `keys`, and waits until `until` is on the screen. Then redraws
/// the same bytes, and others from their middle on, and compares.
fn same_as_direct(program: &str, command: &str, keys: &[&str], until: &str) {
    for needed in ["tmux", program] {
        if Command::new(needed)
            .arg("-V")
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .is_err()
        {
            println!("skipped: there is no {needed}");
            return;
        }
    }
    let tmux = Tmux::start();
    let direct = tmux
        .window(&format!("tmux wait-for go; export TERM=xterm-256color LESS= PS1='$ '; {command}"));
    let record = tmux.file("record");
    tmux.run(&["pipe-pane", "-O", "-t", &direct, &format!("exec cat >{}", record.display())]);
    tmux.run(&["wait-for", "-S", "go"]);
    eventually("the program is there", || !tmux.text(&direct).trim().is_empty());
    for key in keys {
        tmux.run(&["send-keys", "-t", &direct, key]);
    }
    eventually(until, || tmux.text(&direct).contains(until));
    tmux.print(&direct, format!("\x1b]2;{MARK}\x1b\\").as_bytes());
    let bytes = || fs::read(&record).unwrap_or_default();
    eventually("all is recorded", || {
        bytes().windows(MARK.len()).any(|part| part == MARK.as_bytes())
    });
    eventually("all is shown", || tmux.state(&direct).contains(MARK));

    let bytes = bytes();
    let redraw = |cut: usize| {
        let mut screen = Screen::new(SIZE);
        screen.process(&bytes[..cut]);
        assert_eq!(screen.why_off(), None);
        [screen.redraw(SIZE).unwrap(), bytes[cut..].to_vec()].concat()
    };
    for cut in [bytes.len(), bytes.len() / 2, bytes.len() / 3] {
        let redrawn = tmux.show(&format!("redraw{cut}"), &redraw(cut));
        assert_same(&tmux, &direct, &redrawn, cut);
    }
    if tmux.state(&direct).contains("alternate 1") {
        // What is behind the alternate screen.
        const LEAVE: &[u8] = b"\x1b[?1049l";
        let redrawn = tmux.show("left", &[&redraw(bytes.len()), LEAVE].concat());
        tmux.print(&direct, LEAVE);
        eventually("the main screen is shown", || tmux.state(&direct).contains("alternate 0"));
        assert_same(&tmux, &direct, &redrawn, bytes.len());
    }
}

/// Two panes show the same in all that can be seen and known of them.
fn assert_same(tmux: &Tmux, direct: &str, redrawn: &str, cut: usize) {
    let want = tmux.state(direct);
    let until = Instant::now() + SETTLE;
    while tmux.state(redrawn) != want && Instant::now() < until {}
    let lines = |text: &str| text.escape_debug().to_string().replace("\\n", "\n");
    let got = tmux.state(redrawn);
    assert!(got == want, "redrawn at {cut}:\n{}\ninstead of\n{}", lines(&got), lines(&want));
}

#[test]
fn vim_with_a_split() {
    let command = "seq 100 >f; echo before; exec vim -u NONE -N -c 'set mouse=a number hlsearch laststatus=2' -c split -c 'syntax on' f";
    same_as_direct(
        "vim",
        &format!("cd $HOME; {command}"),
        &["40G", "/5\n", "ix\u{6f22}\x1b", ":set ru\n"],
        "45,3",
    );
}

#[test]
fn less() {
    same_as_direct("less", "seq 1000 | less", &["G", "b"], "\n976");
}

#[test]
fn top() {
    same_as_direct("top", "exec top -d 1000", &[], "PID");
}

#[test]
fn htop() {
    same_as_direct("htop", "exec htop -d 1000", &[], "F10");
}

#[test]
fn man() {
    let page = r"(printf '.TH TEST 1\n.SH NAME\ntest \\- of \\fBbold\\fP\n'; seq 1000) >test.1";
    same_as_direct(
        "man",
        &format!("cd $HOME; {page}; exec man -l test.1"),
        &["\x06"],
        "Manual page",
    );
}

#[test]
fn a_line_that_is_edited() {
    let keys = ["echo hello world", "\x01", "\x1bf", "\x1b[D", "XX", "\x05", "\x17", "end of it"];
    same_as_direct("bash", "exec bash --norc --noprofile -i", &keys, "end of it");
}

#[test]
fn a_program_with_a_mouse() {
    let script = r"printf '\033[?1049h\033[?1003;1006h\033[?25l\033=\033[?1h\033[3;5r\033[10;10Hclick \033[1;4;38;5;99mhere\033[48;2;9;8;7m\033[K'; exec sleep 1000";
    same_as_direct("sh", script, &[], "here");
}

#[test]
fn wide_and_combining_characters() {
    let script = r"printf '\346\274\242\345\255\227 e\314\201 %079d\r\n\033[7m\346\274\242\033[m\033[5;79H\346\274\242x'; exec sleep 1000";
    same_as_direct("sh", script, &[], "x");
}
