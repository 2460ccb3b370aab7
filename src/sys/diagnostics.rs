//! Messages of this program on standard error, one line each.

use std::collections::VecDeque;
use std::env;
use std::fmt::{Arguments, Write as _};
use std::io::{self, ErrorKind, Write};
use std::os::unix::net::UnixDatagram;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Error;
use env_logger::Target;
use log::kv::{self, VisitSource};
use log::{Level, LevelFilter, Record};
use nix::poll::PollFlags;
use rustix::fs::fstat;

use crate::sys::ready;
use crate::types::escape;
use crate::types::exit::Exit;
use crate::types::limits;
use crate::types::time::{Now, Stamp};

/// Errors that a mux keeps for its status.
const COMPLAINTS_KEPT: usize = 8;
/// Bytes kept of an error: a line or two of a screen.
const COMPLAINT: usize = 256;
/// Log lines of one kind (attached and detached, requests, refusals, dropped clients, slow clients)
/// within [`LINES_TIME`], counted separately for root with the mux's own user, and for all others.
/// Of further lines only the number is logged: journald drops lines of a unit that logs too many,
/// also those of the app.
const LINES: u64 = 20;
/// See [`LINES`].
const LINES_TIME: Duration = Duration::from_secs(10);

/// Where journald listens.
pub(crate) const JOURNAL: &str = "/run/systemd/journal/socket";

/// What a process is, which decides what it says unless a level is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Speaker {
    Command,
    Mux,
    /// A mux of a container, or its keeper: engines start hundreds of them. What clients do is logged.
    Container,
}

/// Begins to log. rkt's debug variables are honoured where no level was given: what a mux says is on
/// the console of `rkt run`, among the lines of the apps.
pub(crate) fn start(level: Option<LevelFilter>, speaker: Speaker) {
    let [of_mux, of_attach] = ["STAGE1_DEBUG", "STAGE2_DEBUG"].map(|name| env::var(name).ok());
    let usual = match (of_mux.as_deref(), of_attach.as_deref()) {
        (Some("true"), _) | (_, Some("true")) => LevelFilter::Debug,
        (None, _) if speaker == Speaker::Mux => LevelFilter::Info,
        _ => LevelFilter::Warn,
    };
    let of_clients =
        if speaker == Speaker::Container { usual.max(LevelFilter::Info) } else { usual };
    let journal = (speaker != Speaker::Command).then(journal).flatten();
    env_logger::Builder::new()
        .target(Target::Pipe(Box::new(Unwaiting)))
        .filter_level(level.unwrap_or(usual))
        .filter_module(CLIENTS, level.unwrap_or(of_clients))
        .format(move |out, record| match record.level() {
            _ if journal.as_ref().is_some_and(|journal| is_sent(journal, record)) => Ok(()),
            Level::Info => writeln!(out, "iottymux: {}", line(&record.args().to_string())),
            level => {
                let text = record.args().to_string();
                let line = line(&text);
                let level_name = level.as_str().to_ascii_lowercase();
                let written = writeln!(out, "iottymux: {level_name}: {line}");
                if level <= Level::Warn && record.target() != CLIENTS {
                    keep(text);
                }
                written
            }
        })
        .init();
}

/// A socket for journald, if standard error leads there.
fn journal() -> Option<UnixDatagram> {
    let variable = env::var("JOURNAL_STREAM").ok()?;
    let stderr = fstat(io::stderr()).ok()?;
    let socket = UnixDatagram::unbound().ok()?;
    socket.set_nonblocking(true).ok()?;
    (variable == format!("{}:{}", stderr.st_dev, stderr.st_ino)).then_some(socket)
}

/// Sends a line that has fields to journald, which has no other way for these. Whether it is sent.
fn is_sent(journal: &UnixDatagram, record: &Record<'_>) -> bool {
    let entry = entry(record);
    entry.is_some_and(|entry| journal.send_to(entry.as_bytes(), JOURNAL).is_ok())
}

/// The entry of a line with its fields, as journald takes it (systemd's journal-native protocol): no
/// value has a line end. `None` for a line without fields.
fn entry(record: &Record<'_>) -> Option<String> {
    struct Fields(String);
    impl VisitSource<'_> for Fields {
        fn visit_pair(&mut self, key: kv::Key<'_>, value: kv::Value<'_>) -> Result<(), kv::Error> {
            let name = key.as_str().to_ascii_uppercase();
            Ok(writeln!(self.0, "IOTTYMUX_{name}={}", line(&value.to_string()))?)
        }
    }
    let mut fields = Fields(String::new());
    record.key_values().visit(&mut fields).ok()?;
    // As syslog(3) numbers them.
    let priority = if record.level() <= Level::Warn { 4 } else { 6 };
    let text = record.args().to_string();
    (!fields.0.is_empty()).then(|| {
        let text = line(&text);
        format!(
            "SYSLOG_IDENTIFIER=iottymux\nPRIORITY={priority}\nMESSAGE=iottymux: {text}\n{}",
            fields.0
        )
    })
}

/// The last warnings and errors, oldest first.
static COMPLAINTS: Mutex<VecDeque<(Stamp, String)>> = Mutex::new(VecDeque::new());

/// The last warnings and errors of this process with their times, oldest first.
pub(crate) fn complaints() -> Vec<(Stamp, String)> {
    COMPLAINTS.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect()
}

fn keep(mut complaint: String) {
    let mut end = complaint.len().min(COMPLAINT);
    while !complaint.is_char_boundary(end) {
        end -= 1;
    }
    complaint.truncate(end);
    let mut kept = COMPLAINTS.lock().unwrap_or_else(PoisonError::into_inner);
    if kept.len() == COMPLAINTS_KEPT {
        kept.pop_front();
    }
    kept.push_back((Now::read().stamp, complaint));
}

/// The target of log lines that clients can cause: they do not displace the mux's own errors in its
/// status.
const CLIENTS: &str = "clients";

/// What a client did, as fields of a line in the journal: `IOTTYMUX_EVENT`, `IOTTYMUX_UID` and
/// `IOTTYMUX_PID`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EventFields {
    pub(crate) name: &'static str,
    pub(crate) uid: u32,
    pub(crate) pid: i32,
}

/// A rate limit for log lines that clients can cause: of more than [`LINES`] within
/// [`LINES_TIME`] only the number is logged, so that journald does not drop lines of the
/// app.
#[derive(Debug)]
pub(crate) struct Limited {
    what: &'static str,
    window: Mutex<Period>,
}

/// A time in which lines are counted.
#[derive(Debug)]
struct Period {
    since: Option<Instant>,
    lines: u64,
}

impl Limited {
    /// Lines about `what`: the name of the kind in the plural.
    pub(crate) const fn new(what: &'static str) -> Self {
        Self { what, window: Mutex::new(Period { since: None, lines: 0 }) }
    }

    /// Logs a line about what a process did, unless the limit is reached.
    pub(crate) fn log(&self, level: Level, event: EventFields, line: Arguments<'_>) {
        let mut window = self.window.lock().unwrap_or_else(PoisonError::into_inner);
        let (may, left_out) = window.next(Instant::now());
        if left_out > 0 {
            let what = self.what;
            log::log!(target: CLIENTS, level, "{left_out} lines about {what} were suppressed");
        }
        if may {
            let EventFields { name, uid, pid } = event;
            log::log!(target: CLIENTS, level, event = name, uid, pid; "{line}");
        }
    }

    /// Logs how many lines were left out since the last that was not: at the end of the process.
    pub(crate) fn finish(&self) {
        let mut window = self.window.lock().unwrap_or_else(PoisonError::into_inner);
        let left_out = window.left_out();
        if left_out > 0 {
            log::info!("{left_out} lines about {} were suppressed", self.what);
        }
        *window = Period { since: None, lines: 0 };
    }
}

impl Period {
    /// Counts a line: whether it may be logged, and how many of the time before it were not.
    fn next(&mut self, now: Instant) -> (bool, u64) {
        let is_over = |since| now.saturating_duration_since(since) >= LINES_TIME;
        let mut left_out = 0;
        if self.since.is_none_or(is_over) {
            left_out = self.left_out();
            *self = Self { since: Some(now), lines: 0 };
        }
        self.lines += 1;
        (self.lines <= LINES, left_out)
    }

    fn left_out(&self) -> u64 {
        self.lines.saturating_sub(LINES)
    }
}

/// Standard error for a process that must not block: a line that cannot be written at once is lost.
struct Unwaiting;

impl Write for Unwaiting {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let stderr = io::stderr();
        // Room for a page at least, and lines are shorter.
        if ready::is(&stderr, PollFlags::POLLOUT) {
            stderr.lock().write(line)
        } else {
            Ok(line.len())
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A message as one line, without the number that Rust puts behind an error of the system.
fn line(text: &str) -> String {
    const NUMBER: &str = " (os error ";
    let mut pieces = text.split(NUMBER);
    let mut plain = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        match piece.split_once(')') {
            Some((number, rest)) if number.bytes().all(|byte| byte.is_ascii_digit()) => {
                plain.push_str(rest);
            }
            _ => plain.extend([NUMBER, piece]),
        }
    }
    escape::line(&plain).into_owned()
}

/// Prints the error, and returns the exit code.
pub(crate) fn failed(error: &Error, exit: Exit) -> Exit {
    say(&format!("{error:#}"));
    exit
}

/// Reports an invalid command line and the `help` command for it, or prints the requested help.
///
/// With a `way` to do what was meant, names that are similar would only distract from it.
pub(crate) fn usage(
    error: &clap::Error,
    variable: Option<(String, String)>,
    way: Option<&str>,
    help: &str,
) -> Exit {
    if !error.use_stderr() {
        return match error.print() {
            // A reader that closes its end is not an error.
            Err(e) if e.kind() != ErrorKind::BrokenPipe => {
                failed(&Error::new(e).context("cannot write to standard output"), Exit::Failed)
            }
            _ => Exit::Done,
        };
    }
    if error.kind() == clap::error::ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        let _ = error.print();
        return Exit::Usage;
    }
    let (text, help) = match way {
        Some(way) => (message(&error.to_string()), format!("{way}, or {help}")),
        None => (one_line(error), help.to_owned()),
    };
    let text = match variable {
        Some((option, variable)) => text.replace(&format!("'{option}'"), &variable),
        None => text,
    };
    say(&format!("{text}; try {help}"));
    Exit::Usage
}

/// The error in a command line, with the names that clap found to be similar.
pub(crate) fn one_line(error: &clap::Error) -> String {
    let text = error.to_string();
    let message = message(&text);
    let mut tips = text.lines().filter_map(|line| line.trim().strip_prefix("tip: "));
    match tips.find(|tip| tip.contains("similar")) {
        Some(tip) => format!("{message}; {tip}"),
        None => message,
    }
}

/// The first paragraph of an error in a command line.
fn message(error: &str) -> String {
    let lines = error.lines().map(str::trim).take_while(|line| !line.is_empty());
    let message = lines.collect::<Vec<_>>().join(" ");
    // This list has the commands that are not for people, too.
    let message = message.split(" [subcommands: ").next().unwrap_or_default().to_owned();
    message.strip_prefix("error: ").unwrap_or(&message).to_owned()
}

/// Prints one line. Ignores failures, and does not wait for a stuck terminal.
pub(crate) fn say(text: &str) {
    say_between("", text, "\n");
}

/// Like [`say`], on a terminal that may be raw: the text begins on a new line if this one is
/// not empty. On a `screen` it may have text of the app, which is erased.
pub(crate) fn say_on_screen(text: &str, is_inside_line: bool, screen: bool) {
    let before = if is_inside_line { "\r\n" } else { "\r" };
    say_between(before, text, if screen { "\x1b[K\r\n" } else { "\r\n" });
}

fn say_between(before: &str, text: &str, after: &str) {
    let line = line(text);
    let stderr = io::stderr();
    if ready::wait_for(&stderr, PollFlags::POLLOUT, Some(limits::STUCK)) == Ok(true) {
        // In one piece: in `attach` another thread writes the app's lines there.
        let text = format!("{before}iottymux: {line}{after}");
        let _ = stderr.lock().write_all(text.as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_message_has_no_number_of_an_error() {
        let error = io::Error::from_raw_os_error(2);
        let text = format!("cannot open x: {error}; again: {error}");
        assert_eq!(
            line(&text),
            "cannot open x: No such file or directory; again: No such file or directory"
        );
        assert_eq!(line("a (os error x) b"), "a (os error x) b");
    }

    #[test]
    fn so_many_lines_in_a_time_and_then_their_number() {
        let mut window = Period { since: None, lines: 0 };
        let now = Instant::now();
        let mut logged = 0;
        for line in 0..1000u32 {
            let (may, left_out) = window.next(now + Duration::from_millis(line.into()));
            logged += u64::from(may);
            assert_eq!(left_out, 0);
        }
        assert_eq!(logged, LINES);
        let later = now + LINES_TIME;
        assert_eq!(window.next(later), (true, 1000 - LINES));
        assert_eq!(window.next(later + LINES_TIME), (true, 0));
    }
}
