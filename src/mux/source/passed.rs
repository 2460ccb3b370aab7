//! The ends of a container: pipes, or the master of a terminal, which another program made.
//!
//! The keeper was given them, so they are in its store before the first mux starts. Nothing else
//! leads to them: a stream whose end is missing there is not served.

use std::io;
use std::os::fd::OwnedFd;

use anyhow::{Context, Result};

use super::pace::Pace;
use super::stage::Stage;
use super::{AppInput, Source, held_name, pty};
use crate::sys;
use crate::sys::files::resize_pipe;
use crate::sys::systemd::notify::Notify;
use crate::sys::systemd::store::Stored;
use crate::types::limits;
use crate::types::size::Size;
use crate::types::stream::Stream;

/// An output, which may be that of a terminal: a pipe. The keeper may have the app's end, too.
pub(crate) fn source(stream: Stream, stored: &mut Stored, notify: &Notify) -> Result<Source> {
    let read = take(stream.name(), stored)?;
    let held = stored.remove(&held_name(stream));
    let size = resize_pipe(&read, limits::PIPE);
    let mut source = Source::new(stream, read, held);
    source.pace = (stream != Stream::Tty).then(|| Pace::new(size));
    let stage =
        Stage::open(stream.name(), limits::STAGE, stored, notify).context("cannot make a pipe")?;
    Ok(source.staged(stage))
}

/// The input, a pipe; `None` if an earlier mux has ended it.
pub(crate) fn input(stored: &mut Stored) -> Result<Option<AppInput>> {
    let name = Stream::Stdin.name();
    stored.has(name).then(|| take(name, stored).map(AppInput::new)).transpose()
}

/// Whether the end of this stream is the master of a terminal.
pub(crate) fn is_terminal(stored: &Stored) -> bool {
    stored.get(pty::STORED).is_some_and(|end| pty::size(end).is_ok())
}

/// A terminal. It gets this size if it has none.
pub(crate) fn terminal(size: Size, stored: &mut Stored, notify: &Notify) -> Result<pty::Master> {
    let master = take(pty::STORED, stored)?;
    let open = || -> io::Result<pty::Master> {
        let now = pty::size(&master)?;
        if now.is_none() {
            pty::resize(&master, size.into())?;
        }
        // Not by its path, which may be one of another mount namespace.
        let held = sys::pty_pair::slave(&master)?;
        pty::Master::new(master, held, stored, notify)
    };
    open().context("cannot use the terminal")
}

/// An end from the store, which does not block from here on.
fn take(name: &str, stored: &mut Stored) -> Result<OwnedFd> {
    let end = stored.remove(name).with_context(|| format!("{name} was not passed to this mux"))?;
    rustix::io::ioctl_fionbio(&end, true).with_context(|| format!("cannot use {name}"))?;
    Ok(end)
}
