//! A judge of sequences: a window of tmux, told by its control mode.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use iottymux::types::size::Size;
use nix::libc::O_NOCTTY;
use tempfile::TempDir;

use crate::view::{Cursor, Seen, View};
use crate::wait::eventually;

/// Asked behind the bytes: what answers has shown them. CAN ends what they leave open.
const ASK: &[u8] = b"\x18\x1b[5n";
const ANSWER: &[u8] = b"\x1b[0n";
/// Undoes what the bytes before have left.
const RESET: &[u8] = b"\x18\x1b\\\x1b[?1049l\x1b[r\x1b[3g\x1bc\x1b[H\x1b[2J";
/// The cursor and the modes.
const STATE: &str = "#{cursor_y} #{cursor_x} #{alternate_on} #{insert_flag} #{origin_flag} \
    #{wrap_flag} #{keypad_cursor_flag} #{keypad_flag}";
/// What lines are drawn with, from `` ` `` on.
const DRAWN: &str = "◆▒␉␌␍␊°±␤␋┘┐┌└┼⎺⎻─⎼⎽├┤┴┬│≤≥π≠£·";

/// A tmux with one window. It ends with this.
pub struct Pane {
    server: Child,
    commands: ChildStdin,
    told: BufReader<ChildStdout>,
    terminal: File,
    cols: usize,
    _dir: TempDir,
}

impl Pane {
    pub fn new(size: Size) -> Self {
        let dir = tempfile::Builder::new().prefix("pane").tempdir().unwrap();
        let file = |name: &str| dir.path().join(name);
        let window = format!("{}x{}", size.cols, size.rows);
        let conf = format!("set -g status off\nset -g default-size {window}\n");
        fs::write(file("conf"), conf).unwrap();
        let mut command = Command::new("tmux");
        command.env_clear().env("LANG", "C.UTF-8").env("HOME", dir.path()).env("SHELL", "/bin/sh");
        command.env("PATH", std::env::var_os("PATH").unwrap_or_default());
        command.arg("-u").arg("-S").arg(file("socket")).arg("-f").arg(file("conf")).arg("-C");
        let shell = format!(
            "stty raw -echo; tty >{0}; mv {0} {0}.done; exec sleep 100000",
            file("tty").display()
        );
        command.args(["new-session", &shell]);
        let mut server = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let commands = server.stdin.take().unwrap();
        let told = BufReader::new(server.stdout.take().unwrap());
        eventually("tmux has a terminal", || file("tty.done").exists());
        let name = fs::read_to_string(file("tty.done")).unwrap();
        let mut options = File::options();
        options.read(true).write(true).custom_flags(O_NOCTTY);
        let terminal = options.open(name.trim()).unwrap();
        let mut pane = Self { server, commands, told, terminal, cols: size.cols.into(), _dir: dir };
        // The answer to new-session comes first.
        pane.answer();
        writeln!(pane.commands, "refresh-client -f no-output").unwrap();
        pane.answer();
        pane
    }

    /// What it shows of these bytes, from an empty screen.
    pub fn view(&mut self, bytes: &[u8]) -> View {
        let bytes = [RESET, bytes].concat();
        self.terminal.write_all(&[&bytes, ASK].concat()).unwrap();
        // The bytes may ask the same.
        let count =
            |bytes: &[u8], part: &[u8]| bytes.windows(part.len()).filter(|w| *w == part).count();
        let expected = count(&bytes, &ASK[1..]) + 1;
        let (mut answers, mut buffer) = (Vec::new(), [0; 4096]);
        while count(&answers, ANSWER) < expected {
            let len = self.terminal.read(&mut buffer).unwrap();
            answers.extend_from_slice(&buffer[..len]);
        }
        writeln!(self.commands, "capture-pane -p -e -N ; display-message -p '{STATE}'").unwrap();
        let rows = self.answer();
        let state = self.answer().concat();
        let state: Vec<usize> = state.split(' ').map(|word| word.parse().unwrap()).collect();
        let cursor = Cursor::after(state[0], state[1], self.cols);
        let modes = std::array::from_fn(|at| state[at + 2] == 1);
        let mut pen = Pen::default();
        View::new(rows.iter().map(|row| pen.row(row)), &cursor, modes)
    }

    /// The lines that the next command has printed.
    fn answer(&mut self) -> Vec<String> {
        let mut lines: Option<Vec<String>> = None;
        loop {
            let mut line = Vec::new();
            assert!(self.told.read_until(b'\n', &mut line).unwrap() > 0, "tmux has ended");
            let line = String::from_utf8_lossy(&line).trim_end_matches('\n').to_owned();
            match &mut lines {
                None if line.starts_with("%begin") => lines = Some(Vec::new()),
                None => {}
                Some(_) if line.starts_with("%end ") => return lines.unwrap_or_default(),
                Some(lines) => {
                    assert!(!line.starts_with("%error "), "tmux: {lines:?}");
                    lines.push(line);
                }
            }
        }
    }
}

impl Drop for Pane {
    fn drop(&mut self) {
        let _ = writeln!(self.commands, "kill-server");
        let _ = self.server.wait();
    }
}

/// The look of what tmux has captured, which goes on over the lines.
#[derive(Default)]
struct Pen {
    flags: Vec<String>,
    fore: String,
    back: String,
    draws: bool,
}

impl Pen {
    /// The cells of a captured line.
    fn row(&mut self, line: &str) -> Vec<Seen> {
        let mut cells: Vec<String> = Vec::new();
        let mut looks = Vec::new();
        let mut rest = line;
        while let Some(next) = rest.chars().next() {
            if let Some((numbers, behind)) =
                rest.strip_prefix("\x1b[").and_then(|rest| rest.split_once('m'))
            {
                self.select(numbers);
                rest = behind;
                continue;
            }
            if rest.starts_with("\x1b]8;") {
                rest = rest.split_once("\x1b\\").unwrap().1;
                continue;
            }
            rest = &rest[next.len_utf8()..];
            let index = usize::try_from(u32::from(next)).unwrap().wrapping_sub(0x60);
            match next {
                '\x0e' | '\x0f' => self.draws = next == '\x0e',
                _ if self.draws => {
                    cells.push(DRAWN.chars().nth(index).unwrap_or(next).to_string());
                    looks.push(self.look());
                }
                _ if unicode_width::UnicodeWidthChar::width(next) == Some(0)
                    && !cells.is_empty() =>
                {
                    cells.last_mut().unwrap().push(next);
                }
                _ => {
                    cells.push(next.to_string());
                    looks.push(self.look());
                }
            }
        }
        let pairs = cells.iter().zip(looks);
        pairs
            .map(|(text, (flags, fore, back))| {
                let has = |name: &'static str| (flags.iter().any(|flag| flag == name), name);
                let flags =
                    ["bold", "dim", "italic", "underline", "inverse", "hidden", "strike"].map(has);
                Seen::new(text, &flags, [&fore, &back, ""])
            })
            .collect()
    }

    fn look(&self) -> (Vec<String>, String, String) {
        (self.flags.clone(), self.fore.clone(), self.back.clone())
    }

    /// The numbers of a `CSI … m`, as tmux writes them.
    fn select(&mut self, numbers: &str) {
        let mut parts = numbers.split(';');
        while let Some(part) = parts.next() {
            let flag = match part.split(':').next().unwrap() {
                "" | "0" => {
                    *self = Self { draws: self.draws, ..Self::default() };
                    continue;
                }
                "1" => "bold",
                "2" => "dim",
                "3" => "italic",
                "4" | "21" => "underline",
                "5" | "53" => "other",
                "7" => "inverse",
                "8" => "hidden",
                "9" => "strike",
                "38" | "48" | "58" => {
                    let colour = if parts.next() == Some("2") {
                        let mut part = || parts.next().unwrap().parse::<u8>().unwrap();
                        let [r, g, b] = [part(), part(), part()];
                        format!("#{r:02x}{g:02x}{b:02x}")
                    } else {
                        parts.next().unwrap().to_owned()
                    };
                    match part {
                        "38" => self.fore = colour,
                        "48" => self.back = colour,
                        _ => {}
                    }
                    continue;
                }
                _ => {
                    let number: usize = part.parse().unwrap();
                    match number {
                        30..=37 => self.fore = (number - 30).to_string(),
                        39 => self.fore.clear(),
                        40..=47 => self.back = (number - 40).to_string(),
                        49 => self.back.clear(),
                        90..=97 => self.fore = (number - 82).to_string(),
                        100..=107 => self.back = (number - 92).to_string(),
                        _ => panic!("tmux wrote {numbers}"),
                    }
                    continue;
                }
            };
            self.flags.push(flag.to_owned());
        }
    }
}
