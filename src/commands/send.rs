//! `send`: types a line. It is an attach whose input is that line.

use std::fs::File;
use std::io::{Seek, Write};
use std::time::Duration;

use anyhow::{Context, Result};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::unistd::dup2_stdin;

use super::attach::mode::{AttachMode, WantedStreams};
use super::attach::{AttachRequest, attach};
use super::find::{self, Cure};
use crate::os::print::print;
use crate::os::state::AppDir;
use crate::types::exit::Exit;
use crate::types::limits;
use crate::types::stream::Stream;

/// Types a line. Returns when the app has taken it, also if the app ends on it. The line and its end
/// are sent in one piece: otherwise the app's end could overtake the mux's answer.
pub(crate) fn send(dir: &AppDir, line: &str) -> Result<Exit> {
    let has_terminal = find::retry(dir, Some(Duration::ZERO), Cure::Start, |endpoints| {
        Ok(endpoints.streams().iter().any(|(stream, _)| *stream == Stream::Tty))
    })?;
    // A key of a terminal, which may be raw.
    let (stream, end) = if has_terminal { (Stream::Tty, "\r") } else { (Stream::Stdin, "\n") };
    let line = input(&format!("{line}{end}")).context("cannot keep the line")?;
    dup2_stdin(line).context("cannot replace standard input")?;
    let only = WantedStreams { input: Some(stream), outputs: Vec::new() };
    let plain = AttachRequest::new(dir.clone(), AttachMode::Only(only));
    let exit =
        attach(&AttachRequest { reconnect: limits::RECONNECT, must_deliver: true, ..plain })?;
    if exit == Exit::Done {
        print(&format!("the line is in the input of app {}\n", dir.name()))?;
    }
    Ok(exit)
}

/// A file in memory with this text, at its beginning.
fn input(text: &str) -> Result<File> {
    let mut file = File::from(memfd_create("iottymux-line", MFdFlags::MFD_CLOEXEC)?);
    file.write_all(text.as_bytes())?;
    file.rewind()?;
    Ok(file)
}
