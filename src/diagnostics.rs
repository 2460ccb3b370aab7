//! What this program says about itself, on standard error: one line each, never more.

use std::collections::VecDeque;
use std::env;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::sync::{Mutex, PoisonError};

use anyhow::Error;
use env_logger::Target;
use log::{Level, LevelFilter};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::exit::Exit;
use crate::limits;
use crate::time::{Now, Stamp};

/// Begins to log. rkt's debug variables are honoured where no level was given.
pub fn start(level: Option<LevelFilter>, is_mux: bool) {
    let debug =
        ["STAGE1_DEBUG", "STAGE2_DEBUG"].iter().any(|n| env::var(n).is_ok_and(|v| v == "true"));
    let usual = match (debug, is_mux) {
        (true, _) => LevelFilter::Debug,
        (_, true) => LevelFilter::Info,
        (_, false) => LevelFilter::Warn,
    };
    env_logger::Builder::new()
        .target(Target::Pipe(Box::new(Unwaiting)))
        .filter_level(level.unwrap_or(usual))
        .format(|out, record| match record.level() {
            Level::Info => writeln!(out, "iottymux: {}", record.args()),
            level => {
                if level <= Level::Warn {
                    keep(record.args().to_string());
                }
                let level = level.as_str().to_ascii_lowercase();
                writeln!(out, "iottymux: {level}: {}", record.args())
            }
        })
        .init();
}

/// What was complained of last (warnings and errors), oldest first.
static COMPLAINTS: Mutex<VecDeque<(Stamp, String)>> = Mutex::new(VecDeque::new());

/// What this process has complained of last, oldest first, and when.
#[must_use]
pub fn complaints() -> Vec<(Stamp, String)> {
    COMPLAINTS.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect()
}

fn keep(mut complaint: String) {
    let mut end = complaint.len().min(limits::COMPLAINT);
    while !complaint.is_char_boundary(end) {
        end -= 1;
    }
    complaint.truncate(end);
    let mut kept = COMPLAINTS.lock().unwrap_or_else(PoisonError::into_inner);
    if kept.len() == limits::COMPLAINTS {
        kept.pop_front();
    }
    kept.push_back((Now::read().stamp, complaint));
}

/// Standard error for a process that must not wait for it: a line that is not taken at once is lost.
struct Unwaiting;

impl Write for Unwaiting {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let stderr = io::stderr();
        let mut fds = [PollFd::new(stderr.as_fd(), PollFlags::POLLOUT)];
        // Room for a page at least, and lines are shorter.
        match poll(&mut fds, PollTimeout::ZERO) {
            Ok(1..) => stderr.lock().write(line),
            _ => Ok(line.len()),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Says why all failed, and returns the code to end with.
#[must_use]
pub fn failed(error: &Error, exit: Exit) -> Exit {
    say(&format!("{error:#}"));
    exit
}

/// Says what is wrong with a command line; or shows the help that was asked for.
#[must_use]
pub fn usage(error: &clap::Error) -> Exit {
    if !error.use_stderr() {
        // A reader that has seen enough of the help is no error.
        let _ = error.print();
        return Exit::Done;
    }
    if error.kind() == clap::error::ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        let _ = error.print();
        return Exit::Usage;
    }
    say(&format!("{} (see iottymux --help)", one_line(error)));
    Exit::Usage
}

/// What is wrong with a command line, without what else might have been meant.
#[must_use]
pub fn one_line(error: &clap::Error) -> String {
    let text = error.to_string();
    let message: Vec<&str> =
        text.lines().map(str::trim).take_while(|line| !line.is_empty()).collect();
    let message = message.join(" ");
    message.strip_prefix("error: ").unwrap_or(&message).to_owned()
}

/// One line, whatever is in it. That nobody hears it is no reason to panic, and that standard error
/// takes nothing (a stuck terminal) none to stay.
pub fn say(text: &str) {
    say_between("", text, "\n");
}

/// As [`say`], on a terminal that is raw or was: on a line of its own, whatever is before it.
pub fn say_on_screen(text: &str) {
    say_between("\r\n", text, "\r\n");
}

/// A text without what a terminal would obey.
#[must_use]
pub fn visible(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

fn say_between(before: &str, text: &str, after: &str) {
    let line = visible(text);
    let stderr = io::stderr();
    let wait = PollTimeout::try_from(limits::STUCK).unwrap_or(PollTimeout::ZERO);
    if let Ok(1..) = poll(&mut [PollFd::new(stderr.as_fd(), PollFlags::POLLOUT)], wait) {
        let _ = write!(stderr.lock(), "{before}iottymux: {line}{after}");
    }
}
