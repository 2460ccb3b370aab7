//! A person's terminal that is a real one: a window of tmux, with a server of its own.

use std::fs::{self, File};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use tempfile::TempDir;

use crate::proc::eventually;

/// What tmux tells of a terminal beside its text.
const STATE: &str = "cursor #{cursor_flag} alternate #{alternate_on} mouse #{mouse_any_flag}\
    #{mouse_standard_flag}#{mouse_button_flag}#{mouse_all_flag}#{mouse_sgr_flag}#{mouse_utf8_flag} \
    keys #{keypad_cursor_flag}#{keypad_flag} insert #{insert_flag} origin #{origin_flag} wrap #{wrap_flag}";

pub struct Tmux {
    dir: TempDir,
}

impl Tmux {
    /// None, and why is printed, where there is no tmux.
    pub fn start() -> Option<Self> {
        if Command::new("tmux").arg("-V").output().is_err() {
            println!("skipped: there is no tmux here");
            return None;
        }
        let tmux = Self { dir: tempfile::Builder::new().prefix("tmux").tempdir().unwrap() };
        fs::write(tmux.file("conf"), "set -g status off\nset -g remain-on-exit on\n").unwrap();
        tmux.run(&["new-session", "-d", "-x", "90", "-y", "30", "exec sleep 1000"]);
        Some(tmux)
    }

    pub fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// A new window in which a shell command begins; all that is shown there goes to the file `record`.
    pub fn window(&self, command: &str) {
        // The record must have the first byte.
        let waits = format!("tmux wait-for go; {command}");
        self.run(&["new-window", &waits]);
        let record = format!("exec cat >{}", self.file("record").display());
        self.run(&["pipe-pane", "-O", &record]);
        self.run(&["wait-for", "-S", "go"]);
    }

    /// Types: names of keys, as tmux has them.
    pub fn press(&self, keys: &[&str]) {
        self.run(&[&["send-keys"], keys].concat());
    }

    pub fn close_window(&self) {
        self.run(&["kill-window"]);
    }

    /// The text in the window.
    pub fn text(&self) -> String {
        self.run(&["capture-pane", "-p"])
    }

    pub fn state(&self) -> String {
        self.run(&["display-message", "-p", STATE])
    }

    /// The window's terminal.
    pub fn terminal(&self) -> File {
        let path = self.run(&["display-message", "-p", "#{pane_tty}"]);
        let flags = nix::libc::O_NOCTTY;
        File::options().read(true).write(true).custom_flags(flags).open(path.trim()).unwrap()
    }

    /// Waits until this is shown.
    pub fn wait_for(&self, text: &str) {
        eventually(&format!("{text:?} is shown"), || self.text().contains(text));
    }

    fn run(&self, arguments: &[&str]) -> String {
        let mut command = Command::new("tmux");
        command.env_remove("TMUX").env("LC_ALL", "C.UTF-8").arg("-S").arg(self.file("socket"));
        command.arg("-f").arg(self.file("conf")).args(arguments).stdin(Stdio::null());
        let output = command.output().unwrap();
        assert!(output.status.success(), "tmux {arguments:?}: {}", output.stderr.escape_ascii());
        String::from_utf8_lossy(&output.stdout).into_owned()
    }
}

impl Drop for Tmux {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("--- {}\n{}", self.state(), self.text());
        }
        self.run(&["kill-server"]);
    }
}
