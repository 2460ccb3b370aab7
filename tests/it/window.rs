//! What only these tests do with a window of tmux.

use std::fs::File;
use std::os::unix::fs::OpenOptionsExt;
use std::thread;
use std::time::{Duration, Instant};

use iottymux::types::size::Size;

use crate::tmux::Window;
use crate::wait::PAUSE;

/// How long two windows may take to show the same, before the difference is reported.
const SETTLE: Duration = Duration::from_secs(10);

impl Window {
    pub fn resize(&self, size: Size) {
        let (rows, cols) = (size.rows.to_string(), size.cols.to_string());
        self.run(&["resize-window", "-x", &cols, "-y", &rows], &[]);
    }

    pub fn close(&self) {
        self.run(&["kill-window"], &[]);
    }

    /// The same, below what was scrolled away.
    pub fn all_text(&self) -> String {
        self.run(&["capture-pane", "-p", "-S", "-"], &[])
    }

    /// Its terminal.
    pub fn terminal(&self) -> File {
        let path = self.run(&["display-message", "-p"], &["#{pane_tty}"]);
        let flags = nix::libc::O_NOCTTY;
        File::options().read(true).write(true).custom_flags(flags).open(path.trim()).unwrap()
    }

    /// Waits until it shows what another one shows now, in all that can be seen and known.
    pub fn assert_same(&self, other: &Self, when: &str) {
        let until = Instant::now() + SETTLE;
        let (mut got, mut want) = (self.state(), other.state());
        while got != want && Instant::now() < until {
            thread::sleep(PAUSE);
            (got, want) = (self.state(), other.state());
        }
        let lines = |text: &str| text.escape_debug().to_string().replace("\\n", "\n");
        assert!(got == want, "{when}:\n{}\ninstead of\n{}", lines(&got), lines(&want));
    }
}
