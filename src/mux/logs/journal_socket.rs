//! The socket of journald: a datagram for each entry, or a memfd if the entry is too long for one.

use std::fs::File;
use std::io::{self, ErrorKind, IoSlice, Write as _};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;

use nix::errno::Errno;
use nix::sys::socket::{ControlMessage, MsgFlags, UnixAddr, sendmsg};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};

use crate::core::logfmt::chunk::Chunk;
use crate::core::logfmt::format::journald::LENGTH;
use crate::types::limits;

/// See the module.
#[derive(Debug)]
pub struct JournalSocket {
    path: PathBuf,
    socket: UnixDatagram,
}

impl JournalSocket {
    /// Sends to the journald that listens at this path, now or later.
    pub(crate) fn new(path: PathBuf) -> io::Result<Self> {
        let socket = UnixDatagram::unbound()?;
        // If journald does not read for this long, the log fails.
        socket.set_write_timeout(Some(limits::LOG_STUCK))?;
        Ok(Self { path, socket })
    }

    /// Sends the next entry of a chunk.
    pub(crate) fn write(&mut self, chunk: &mut Chunk) -> io::Result<()> {
        let Some((len, rest)) = chunk.bytes[chunk.done..].split_first_chunk::<LENGTH>() else {
            return Ok(());
        };
        let len = u32::from_ne_bytes(*len) as usize;
        match self.send(&UnixAddr::new(&self.path)?, &rest[..len.min(rest.len())]) {
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            sent => {
                sent?;
                chunk.done += LENGTH + len;
                chunk.note_progress(Default::default(), 0);
            }
        }
        Ok(())
    }

    fn send(&self, address: &UnixAddr, entry: &[u8]) -> io::Result<()> {
        let send = |body: &[u8], control: &[ControlMessage<'_>]| {
            let body = [IoSlice::new(body)];
            let flags = MsgFlags::MSG_NOSIGNAL;
            sendmsg(self.socket.as_raw_fd(), &body, control, flags, Some(address)).map(drop)
        };
        match send(entry, &[]) {
            Err(Errno::EMSGSIZE | Errno::ENOBUFS) => {
                let sealed = sealed(entry)?;
                Ok(send(&[], &[ControlMessage::ScmRights(&[sealed.as_raw_fd()])])?)
            }
            sent => Ok(sent?),
        }
    }
}

/// A file in memory that cannot be changed any more.
fn sealed(bytes: &[u8]) -> io::Result<OwnedFd> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let mut file = File::from(memfd_create("entry", flags)?);
    file.write_all(bytes)?;
    let seals = SealFlags::SEAL | SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE;
    fcntl_add_seals(&file, seals)?;
    Ok(file.into())
}
