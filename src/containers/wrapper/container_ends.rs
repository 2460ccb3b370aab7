//! The ends between a container, its mux and the engine: pipes, or two terminals.
//!
//! Each end has one of three owners: the container gets `for_container`, and the mux keeps `kept`,
//! by the names in its store. What the engine gave this process as 0, 1 and 2 becomes the mux's, too.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::PathBuf;
use std::process::Stdio;

use nix::libc::{O_NOCTTY, O_NONBLOCK};
use rustix::fs::{Gid, Mode, OFlags, Uid, fchmod, fchown};
use rustix::pipe::{PipeFlags, pipe_with};

use crate::mux::engine_end;
use crate::sys::pty_pair;
use crate::types::stream::Stream;

/// The device number of /dev/null: 1, 3.
const NULL: u64 = 0x103;

/// The ends of a container without a terminal.
pub(super) struct PipeEnds {
    /// Its stdin, stdout and stderr.
    pub(super) for_container: [Stdio; 3],
    /// The streams that the mux has.
    pub(super) streams: Vec<Stream>,
    /// The mux's descriptors, with their names.
    pub(super) kept: Vec<(String, OwnedFd)>,
}

impl PipeEnds {
    /// Puts a pipe between the container and each descriptor of this process. Its stdin is left as
    /// it is unless the engine types through a pipe.
    pub(super) fn new() -> io::Result<Self> {
        let mut ends = Self {
            for_container: [Stdio::inherit(), Stdio::inherit(), Stdio::inherit()],
            streams: Vec::new(),
            kept: Vec::new(),
        };
        let stdin = own(io::stdin())?;
        if stdin.metadata()?.file_type().is_fifo() {
            let (read, write) = pipe_like(&stdin)?;
            ends.for_container[0] = read.into();
            ends.keep(Stream::Stdin.name().to_owned(), write);
            ends.keep(engine_end(Stream::Stdin), again(&stdin)?);
            ends.streams.push(Stream::Stdin);
        }
        let (stdout, stderr) = (own(io::stdout())?, own(io::stderr())?);
        let are_one = are_one(&stdout, &stderr)?;
        let output = ends.output(Stream::Stdout, stdout)?;
        // The order of the two is that of one pipe.
        let errors =
            if are_one { output.try_clone()? } else { ends.output(Stream::Stderr, stderr)? };
        [ends.for_container[1], ends.for_container[2]] = [output.into(), errors.into()];
        Ok(ends)
    }

    /// The container's end of a pipe to the engine's output.
    fn output(&mut self, stream: Stream, given: File) -> io::Result<OwnedFd> {
        let (read, write) = pipe_like(&given)?;
        self.keep(stream.name().to_owned(), read);
        self.streams.push(stream);
        if let Some(end) = output(given)? {
            self.keep(engine_end(stream), end);
        }
        Ok(write)
    }

    fn keep(&mut self, name: String, fd: OwnedFd) {
        self.kept.push((name, fd));
    }
}

/// A copy of a descriptor of this process.
fn own(fd: impl AsFd) -> io::Result<File> {
    fd.as_fd().try_clone_to_owned().map(File::from)
}

/// Whether two descriptors lead to the same file. /dev/null has no order.
fn are_one(a: &File, b: &File) -> io::Result<bool> {
    let (a, b) = (a.metadata()?, b.metadata()?);
    Ok((a.dev(), a.ino()) == (b.dev(), b.ino()) && a.rdev() != NULL)
}

/// A pipe with the owner and the mode of the engine's, so that the container's user can open
/// /dev/stdout again.
fn pipe_like(given: &File) -> io::Result<(OwnedFd, OwnedFd)> {
    let (read, write) = pipe_with(PipeFlags::CLOEXEC)?;
    let there = given.metadata()?;
    if there.file_type().is_fifo() {
        fchown(&write, Some(Uid::from_raw(there.uid())), Some(Gid::from_raw(there.gid())))?;
        fchmod(&write, Mode::from_raw_mode(there.mode()))?;
    }
    Ok((read, write))
}

/// The end to which the engine's output goes, unless that is /dev/null. It does not block, where
/// that can be had without a change for other processes.
fn output(given: File) -> io::Result<Option<OwnedFd>> {
    let there = given.metadata()?;
    let kind = there.file_type();
    if kind.is_char_device() && there.rdev() == NULL {
        return Ok(None);
    }
    if kind.is_fifo() || kind.is_char_device() {
        return again(&given).map(Some);
    }
    Ok(Some(given.into()))
}

/// Opens a file again that this process has open, for the same directions, with flags of its own.
fn again(given: &File) -> io::Result<OwnedFd> {
    let path = PathBuf::from(format!("/proc/self/fd/{}", given.as_raw_fd()));
    let mode = rustix::fs::fcntl_getfl(given)? & OFlags::RWMODE;
    let mut how = OpenOptions::new();
    how.read(mode != OFlags::WRONLY).write(mode != OFlags::RDONLY);
    Ok(how.custom_flags(O_NONBLOCK | O_NOCTTY).open(path)?.into())
}

/// A terminal for the engine: what it gets, and what the mux keeps.
#[derive(Debug)]
pub(super) struct EngineTerminal {
    pub(super) master: OwnedFd,
    pub(super) kept: OwnedFd,
}

impl EngineTerminal {
    /// A terminal with the size of the container's, which changes no byte.
    pub(super) fn new(container: &OwnedFd) -> io::Result<Self> {
        let (master, kept) = pty_pair::raw_pair()?;
        rustix::io::ioctl_fionbio(&kept, true)?;
        let size = rustix::termios::tcgetwinsize(container)?;
        rustix::termios::tcsetwinsize(&kept, size)?;
        Ok(Self { master, kept })
    }
}
