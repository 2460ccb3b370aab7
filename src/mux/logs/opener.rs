//! Logs that the user of a mux may not open: its keeper, which is root, opens them for it.
//!
//! The mux of a container gets a socket to a thread of its keeper. That opens, reads and rotates the
//! files of the mux's own options, and no others, as carefully as a mux that is root. It reads no
//! data. Each mux has a socket of its own, so no answer comes to another one. A file that hangs
//! keeps this thread waiting, and so the logs of this mux, but neither the keeper nor the app.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use rustix::fs::OFlags;
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, socketpair};

use super::file::{OpenedLog, remove_beyond};
use crate::logfmt::path::LogPath;
use crate::os::fd_message;
use crate::os::walk::refusal;

/// The name of the mux's end among the descriptors that its keeper passes.
pub(crate) const STORED: &str = "opener";
/// Longest message, bytes: a path of 4 KiB, and a few numbers.
const MESSAGE: usize = 4096 + 64;
/// The tasks of the keeper. The first byte of a request names one, four bytes are a number for it,
/// and a path follows.
const APPEND: u8 = b'a';
const READ: u8 = b'r';
const ROTATE: u8 = b'm';
/// The first byte of an answer.
const DONE: u8 = 0;
const FAILED: u8 = 1;
/// Bytes before the path of a request.
const HEAD: usize = 5;

/// The mux's end.
#[derive(Clone, Debug)]
pub(crate) struct Opener(Arc<Mutex<OwnedFd>>);

impl Opener {
    pub(crate) fn new(socket: OwnedFd) -> Self {
        Self(Arc::new(Mutex::new(socket)))
    }

    /// Opens a log for appending.
    pub(super) fn append(&self, path: &LogPath) -> io::Result<OpenedLog> {
        let (answer, fds) = self.ask(APPEND, 0, path, None)?;
        let size = answer.first_chunk().map(|size| u64::from_le_bytes(*size));
        let [dir, file] = <[OwnedFd; 2]>::try_from(fds).map_err(|_| malformed())?;
        let size = size.ok_or_else(malformed)?;
        let is_torn = answer.get(size_of::<u64>()).is_some_and(|torn| *torn != 0);
        Ok(OpenedLog { dir, file: file.into(), size, is_torn })
    }

    /// Opens a log for reading.
    pub(super) fn read(&self, path: &LogPath) -> io::Result<File> {
        let (_, fds) = self.ask(READ, 0, path, None)?;
        fds.into_iter().next().map(File::from).ok_or_else(malformed)
    }

    /// Rotates a log, if it is in this directory.
    pub(super) fn rotate(&self, path: &LogPath, dir: &OwnedFd, files: u32) -> io::Result<()> {
        self.ask(ROTATE, files, path, Some(dir)).map(drop)
    }

    fn ask(
        &self,
        task: u8,
        number: u32,
        path: &LogPath,
        dir: Option<&OwnedFd>,
    ) -> io::Result<(Vec<u8>, Vec<OwnedFd>)> {
        let path = path.path();
        let request = [&[task][..], &number.to_le_bytes(), path.as_os_str().as_bytes()].concat();
        let fds: Vec<BorrowedFd<'_>> = dir.iter().map(|dir| dir.as_fd()).collect();
        let socket = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        fd_message::send(&*socket, &request, &fds)?;
        let mut answer = vec![0; MESSAGE];
        let (len, fds) = receive(&socket, &mut answer)?;
        match answer[..len].split_first() {
            Some((&DONE, rest)) => Ok((rest.to_vec(), fds)),
            Some((_, rest)) => Err(error(rest)),
            None => Err(ErrorKind::BrokenPipe.into()),
        }
    }
}

/// Waits for a message.
fn receive(socket: &OwnedFd, bytes: &mut [u8]) -> io::Result<(usize, Vec<OwnedFd>)> {
    loop {
        match fd_message::receive(socket, bytes, RecvFlags::empty()) {
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            received => return received,
        }
    }
}

fn malformed() -> io::Error {
    io::Error::new(ErrorKind::InvalidData, "the answer of its keeper is malformed")
}

/// The error in an answer: a number of the kernel, and a text for those that have none.
fn error(answer: &[u8]) -> io::Error {
    let (number, text) = answer.split_first_chunk().unwrap_or((&[0; 4], answer));
    match i32::from_le_bytes(*number) {
        0 => refusal(String::from_utf8_lossy(text).into_owned()),
        number => io::Error::from_raw_os_error(number),
    }
}

/// Starts the keeper's thread for one mux; it ends with the returned descriptor, the mux's end.
pub(crate) fn start(logs: &[LogPath]) -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC;
    let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
    let logs = logs.to_vec();
    thread::Builder::new().name("logs".into()).spawn(move || serve(&ours, &logs))?;
    Ok(theirs)
}

/// Answers requests until the mux has gone.
fn serve(socket: &OwnedFd, logs: &[LogPath]) {
    let mut request = vec![0; MESSAGE];
    while let Ok((len @ 1.., fds)) = receive(socket, &mut request) {
        let (answer, fds) = match answer(&request[..len], &fds, logs) {
            Ok((answer, fds)) => ([&[DONE], &answer[..]].concat(), fds),
            Err(e) => {
                let (number, text) = (e.raw_os_error().unwrap_or(0), e.to_string());
                let text = &text.as_bytes()[..text.len().min(MESSAGE / 2)];
                ([&[FAILED], &number.to_le_bytes()[..], text].concat(), Vec::new())
            }
        };
        let fds: Vec<BorrowedFd<'_>> = fds.iter().map(AsFd::as_fd).collect();
        if fd_message::send(socket, &answer, &fds).is_err() {
            return;
        }
    }
}

fn answer(
    request: &[u8],
    fds: &[OwnedFd],
    logs: &[LogPath],
) -> io::Result<(Vec<u8>, Vec<OwnedFd>)> {
    let (&[task, number @ ..], path) =
        request.split_first_chunk::<HEAD>().ok_or(ErrorKind::InvalidInput)?;
    let number = u32::from_le_bytes(number);
    let path = Path::new(std::ffi::OsStr::from_bytes(path));
    let log = logs.iter().find(|log| log.path() == path);
    let log = log.ok_or_else(|| refusal("it is no log of this app".into()))?;
    match (task, fds) {
        (APPEND, []) => {
            let OpenedLog { dir, file, size, is_torn } = log.open()?;
            let answer = [&size.to_le_bytes()[..], &[u8::from(is_torn)]].concat();
            Ok((answer, vec![dir, file.into()]))
        }
        (READ, []) => {
            let dir = log.open_dir()?;
            Ok((Vec::new(), vec![log.open_name(&dir, OFlags::RDONLY)?]))
        }
        (ROTATE, [dir]) => {
            log.rotate(dir, number)?;
            remove_beyond(&log.open_dir()?, &log.name, number);
            Ok((Vec::new(), Vec::new()))
        }
        _ => Err(ErrorKind::InvalidInput.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::io::Write;

    #[test]
    fn a_keeper_opens_reads_and_rotates_its_logs_and_no_others() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| LogPath::free(&dir.path().join(name)).unwrap();
        let opener = Opener::new(start(&[path("a/log")]).unwrap());
        let mut open = opener.append(&path("a/log")).unwrap();
        open.file.write_all(b"torn").unwrap();
        let again = opener.append(&path("a/log")).unwrap();
        assert_eq!((again.size, again.is_torn), (4, true));
        let mut text = String::new();
        io::Read::read_to_string(&mut opener.read(&path("a/log")).unwrap(), &mut text).unwrap();
        assert_eq!(text, "torn");
        opener.rotate(&path("a/log"), &open.dir, 1).unwrap();
        assert_eq!(fs::read_to_string(dir.path().join("a/log.1")).unwrap(), "torn");
        // Another directory, which the log is not in.
        let other = opener.rotate(&path("a/log"), &File::open(dir.path()).unwrap().into(), 1);
        assert!(other.is_ok() && fs::metadata(dir.path().join("a/log")).unwrap().len() == 0);
        let said = opener.append(&path("b")).unwrap_err().to_string();
        assert!(said.contains("no log of this app") && !dir.path().join("b").exists(), "{said}");
        fs::remove_file(dir.path().join("a/log")).unwrap();
        let missing = opener.read(&path("a/log")).unwrap_err();
        assert_eq!(missing.kind(), ErrorKind::NotFound);
    }
}
