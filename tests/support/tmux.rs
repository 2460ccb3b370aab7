//! A person's terminal that is a real one: windows of tmux, with a server of its own.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::rc::Rc;

use iottymux::types::size::Size;
use tempfile::TempDir;

use crate::installed::is_installed;
use crate::skip::skip;
use crate::wait::eventually;

/// What tmux tells of a terminal's modes.
const MODES: &str = "cursor #{cursor_flag} alternate #{alternate_on} mouse #{mouse_any_flag}\
    #{mouse_standard_flag}#{mouse_button_flag}#{mouse_all_flag}#{mouse_sgr_flag}#{mouse_utf8_flag} \
    keys #{keypad_cursor_flag}#{keypad_flag} insert #{insert_flag} origin #{origin_flag} wrap #{wrap_flag}";
/// What else it tells beside the text. The cursor in the last column and beyond it are one: tmux keeps a cursor
/// in the column that an app fills with wrapping off, other terminals put it beyond, and so does a redraw.
const PLACE: &str = "at #{?#{e|>=|:#{e|+|:#{cursor_x},1},#{pane_width}},last,#{cursor_x}} #{cursor_y} \
    region #{scroll_region_upper}-#{scroll_region_lower} title #{pane_title}";

/// A server, which ends with this.
pub struct Tmux(Rc<Server>);

/// A window with one pane, in which a shell command runs.
pub struct Window {
    server: Rc<Server>,
    pane: String,
}

struct Server {
    dir: TempDir,
}

impl Tmux {
    /// None, and why is printed, where there is no tmux, or one of these programs.
    pub fn with(programs: &[&str]) -> Option<Self> {
        for program in [&["tmux"], programs].concat() {
            if !is_installed(program) {
                skip(program, "it is not installed");
                return None;
            }
        }
        let dir = tempfile::Builder::new().prefix("tmux").tempdir().unwrap();
        let server = Server { dir };
        let conf = "set -g status off\nset -g remain-on-exit on\n";
        fs::write(server.dir.path().join("conf"), conf).unwrap();
        server.run(&["new-session", "-d", "exec sleep 1000"]);
        Some(Self(Rc::new(server)))
    }

    /// As [`Tmux::with`], without programs.
    pub fn start() -> Option<Self> {
        Self::with(&[])
    }

    /// A place for files of the test, and the home of what runs in the windows.
    pub fn file(&self, name: &str) -> PathBuf {
        self.0.dir.path().join(name)
    }

    /// A window of this size; all that is shown there goes to this file, from the first byte.
    pub fn window(&self, size: Size, record: &str, command: &str) -> Window {
        let size = format!("{}x{}", size.cols, size.rows);
        self.0.run(&["set", "-g", "default-size", &size]);
        let waits = format!("tmux wait-for go; {command}");
        let pane = self.0.run(&["new-window", "-d", "-P", "-F", "#{pane_id}", &waits]);
        let window = Window { server: Rc::clone(&self.0), pane: pane.trim().to_owned() };
        let record = format!("exec cat >{}", self.file(record).display());
        window.run(&["pipe-pane", "-O"], &[&record]);
        self.0.run(&["wait-for", "-S", "go"]);
        window
    }
}

impl Window {
    /// Types: names of keys, as tmux has them.
    pub fn press(&self, keys: &[&str]) {
        self.run(&["send-keys"], keys);
    }

    /// Types this text, whatever is in it.
    pub fn type_in(&self, text: &str) {
        if !text.is_empty() {
            self.run(&["send-keys", "-l"], &[text]);
        }
    }

    /// The text in it.
    pub fn text(&self) -> String {
        self.run(&["capture-pane", "-p"], &[])
    }

    /// The modes that are set.
    pub fn modes(&self) -> String {
        self.run(&["display-message", "-p"], &[MODES])
    }

    /// All that can be seen and known of it.
    pub fn state(&self) -> String {
        looks(&self.run(&["capture-pane", "-e", "-p", "-N"], &[]))
            + &self.modes()
            + &self.run(&["display-message", "-p"], &[PLACE])
    }

    /// Waits until this is shown.
    pub fn wait_for(&self, text: &str) {
        eventually(&format!("{text:?} is shown"), || self.text().contains(text));
    }

    /// A command of tmux for this window, with options that come before the arguments.
    pub fn run(&self, what: &[&str], arguments: &[&str]) -> String {
        let (name, options) = what.split_first().unwrap();
        let target = ["-t", &self.pane];
        self.server.run(&[&[*name], &target[..], options, arguments].concat())
    }
}

/// What tmux has captured, each piece with its look before it. A space has only what can be seen of it,
/// and those at the end of a line that cannot be seen are none: whether a cell was ever written is not
/// to be seen.
fn looks(captured: &str) -> String {
    let mut flags: Vec<&str> = Vec::new();
    let mut colours = ["39", "49"].map(str::to_owned);
    let mut out = String::new();
    for line in captured.split_inclusive('\n') {
        let mut cells: Vec<(char, String)> = Vec::new();
        let mut rest = line.trim_end_matches('\n');
        while let Some(next) = rest.chars().next() {
            if let Some((numbers, behind)) =
                rest.strip_prefix("\x1b[").and_then(|rest| rest.split_once('m'))
            {
                choose(numbers, &mut flags, &mut colours);
                rest = behind;
                continue;
            }
            let is_seen = |flag: &&&str| next != ' ' || matches!(**flag, "4" | "7" | "9");
            let mut look: Vec<&str> = flags.iter().filter(is_seen).copied().collect();
            let is_inverse = look.contains(&"7");
            look.extend(colours.iter().enumerate().filter_map(|(at, colour)| {
                (next != ' ' || at == 1 || is_inverse).then_some(colour.as_str())
            }));
            cells.push((next, look.join(";")));
            rest = &rest[next.len_utf8()..];
        }
        while cells.pop_if(|(cell, look)| *cell == ' ' && look == "49").is_some() {}
        let mut before = String::new();
        for (cell, look) in cells {
            if look != before {
                out = out + "<" + &look + ">";
                before = look;
            }
            out.push(cell);
        }
        out.push('\n');
    }
    out
}

/// The numbers of a `CSI … m`, as tmux writes them.
fn choose<'a>(numbers: &'a str, flags: &mut Vec<&'a str>, colours: &mut [String; 2]) {
    let mut parts = numbers.split(';');
    while let Some(part) = parts.next() {
        match part {
            "" | "0" => {
                flags.clear();
                *colours = ["39", "49"].map(str::to_owned);
            }
            "38" | "48" => {
                let kind = parts.next().unwrap();
                let count = if kind == "2" { 3 } else { 1 };
                let value: Vec<&str> = parts.by_ref().take(count).collect();
                colours[usize::from(part == "48")] = format!("{part}:{kind}:{}", value.join(":"));
            }
            _ if part.len() == 1 => flags.push(part),
            _ => {
                let is_back = part.starts_with('4') || part.starts_with("10");
                part.clone_into(&mut colours[usize::from(is_back)]);
            }
        }
    }
}

impl Server {
    fn run(&self, arguments: &[&str]) -> String {
        let output = self.output(arguments);
        assert!(output.status.success(), "tmux {arguments:?}: {}", output.stderr.escape_ascii());
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    fn output(&self, arguments: &[&str]) -> Output {
        let file = |name| self.dir.path().join(name);
        let mut command = Command::new("tmux");
        command.env_clear().env("LANG", "C.UTF-8").env("HOME", self.dir.path());
        command.env("TERM", "xterm-256color").env("SHELL", "/bin/sh");
        for kept in ["PATH", "LLVM_PROFILE_FILE"] {
            if let Some(value) = std::env::var_os(kept) {
                command.env(kept, value);
            }
        }
        command.arg("-u").arg("-S").arg(file("socket")).arg("-f").arg(file("conf"));
        command.args(arguments).stdin(Stdio::null()).output().unwrap()
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let shown = self.server.output(&["capture-pane", "-p", "-t", &self.pane]);
            eprintln!("--- window {}\n{}", self.pane, String::from_utf8_lossy(&shown.stdout));
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.output(&["kill-server"]);
    }
}
