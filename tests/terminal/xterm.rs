//! A judge of sequences: headless xterm.js, where Node finds it (`NODE_PATH`).

use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use iottymux::types::size::Size;
use serde::Deserialize;

use crate::view::{Cursor, Seen, View};

const PROGRAM: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/terminal/xterm.js");
const FLAGS: [&str; 7] = ["bold", "dim", "italic", "underline", "inverse", "hidden", "strike"];

/// A process that shows bytes. It ends with this.
pub struct Xterm {
    node: Child,
    bytes: ChildStdin,
    shown: BufReader<ChildStdout>,
    cols: usize,
}

/// A character, its attributes, its colours.
type Cell = (String, [bool; 7], String, String);

#[derive(Deserialize)]
struct Shown {
    lines: Vec<Vec<Cell>>,
    cursor: (usize, usize),
    modes: [bool; 6],
}

impl Xterm {
    /// None where there is no xterm.js.
    pub fn new(size: Size) -> Option<Self> {
        let mut command = Command::new("node");
        command.args([PROGRAM, &size.rows.to_string(), &size.cols.to_string()]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut node = command.spawn().ok()?;
        let (bytes, shown) = (node.stdin.take().unwrap(), node.stdout.take().unwrap());
        let mut xterm = Self { node, bytes, shown: BufReader::new(shown), cols: size.cols.into() };
        xterm.try_view(b"")?;
        Some(xterm)
    }

    /// What it shows of these bytes, from an empty screen.
    pub fn view(&mut self, bytes: &[u8]) -> View {
        self.try_view(bytes).expect("xterm.js answers")
    }

    fn try_view(&mut self, bytes: &[u8]) -> Option<View> {
        let mut line = bytes.iter().fold(String::new(), |mut line, byte| {
            let _ = write!(line, "{byte:02x}");
            line
        });
        line.push('\n');
        self.bytes.write_all(line.as_bytes()).ok()?;
        line.clear();
        self.shown.read_line(&mut line).ok()?;
        let shown: Shown = serde_json::from_str(&line).ok()?;
        let cursor = Cursor::after(shown.cursor.0, shown.cursor.1, self.cols);
        let row = |cells: Vec<Cell>| {
            let seen = cells.into_iter().map(|(text, flags, fore, back)| {
                let flags: Vec<_> = flags.into_iter().zip(FLAGS).collect();
                Seen::new(&text, &flags, [&fore, &back, ""])
            });
            seen.collect()
        };
        Some(View::new(shown.lines.into_iter().map(row), &cursor, shown.modes))
    }
}

impl Drop for Xterm {
    fn drop(&mut self) {
        let _ = self.node.kill();
        let _ = self.node.wait();
    }
}
