//! A client of ttrpc, the protocol of containerd's shims: a header of ten bytes, then a message of
//! protocol buffers.
//!
//! Nothing here blocks: a request is small and is written at once, and an answer is read as it
//! comes. One that is too long or cannot be read ends the connection.

use std::io::{self, ErrorKind, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;

use rustix::net::{
    AddressFamily, SendFlags, SocketAddrUnix, SocketFlags, SocketType, connect, send, socket_with,
};

use super::protobuf::{self, FieldWriter, NoMessage};

/// Bytes of a header: length and stream as u32 big-endian, kind, flags.
const HEADER: usize = 10;
/// Longest message of the protocol, bytes.
const MESSAGE_MAX: usize = 4 << 20;
/// The kinds of messages.
const REQUEST: u8 = 1;
const RESPONSE: u8 = 2;
/// Bytes per read: an answer that is waited for fits.
const READ: usize = 4096;
/// The code of an answer: no such task or process.
pub(super) const NOT_FOUND: u64 = 5;

/// A connection to a shim.
#[derive(Debug)]
pub(super) struct ShimConnection {
    socket: UnixStream,
    received: Vec<u8>,
    /// The number of the next request: they are odd.
    next: u32,
}

/// The answer to a request.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Response {
    /// The number of the request.
    pub(super) request: u32,
    pub(super) result: Result<Vec<u8>, RefusedByShim>,
}

/// Why a request failed, as the shim says.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct RefusedByShim {
    pub(super) code: u64,
    pub(super) message: String,
}

impl ShimConnection {
    /// Connects to the socket of a shim.
    pub(super) fn connect(path: &Path) -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket: OwnedFd = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        connect(&socket, &SocketAddrUnix::new(path)?)?;
        Ok(Self { socket: socket.into(), received: Vec::new(), next: 1 })
    }

    /// Sends a request, and returns its number.
    pub(super) fn ask(&mut self, service: &str, method: &str, body: &[u8]) -> io::Result<u32> {
        let number = self.next;
        self.next = self.next.wrapping_add(2);
        let frame = request(number, service, method, body);
        // It fits into the empty buffer of a socket.
        if send(&self.socket, &frame, SendFlags::NOSIGNAL)? < frame.len() {
            return Err(io::Error::other("it does not take a request"));
        }
        Ok(number)
    }

    /// The next answer, if one has come.
    pub(super) fn receive(&mut self) -> io::Result<Option<Response>> {
        loop {
            if let Some(response) = take_response(&mut self.received)? {
                return Ok(Some(response));
            }
            let mut piece = [0; READ];
            match self.socket.read(&mut piece) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(len) => self.received.extend_from_slice(&piece[..len]),
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(None),
                Err(e) => return Err(e),
            }
        }
    }
}

impl AsFd for ShimConnection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// The bytes of a shim are not ttrpc, or of another kind than answers.
fn malformed() -> io::Error {
    io::Error::new(ErrorKind::InvalidData, "its message is malformed")
}

/// A whole request.
fn request(number: u32, service: &str, method: &str, body: &[u8]) -> Vec<u8> {
    let message = FieldWriter::default().text(1, service).text(2, method).bytes(3, body).done();
    let length = u32::try_from(message.len()).unwrap_or(u32::MAX);
    [&length.to_be_bytes()[..], &number.to_be_bytes(), &[REQUEST, 0], &message].concat()
}

/// Takes the first answer out of what was received, if it is complete.
fn take_response(received: &mut Vec<u8>) -> io::Result<Option<Response>> {
    let Some([l0, l1, l2, l3, s0, s1, s2, s3, kind, _]) = received.first_chunk().copied() else {
        return Ok(None);
    };
    let length = u32::from_be_bytes([l0, l1, l2, l3]) as usize;
    if length > MESSAGE_MAX || kind != RESPONSE {
        return Err(malformed());
    }
    if received.len() < HEADER + length {
        return Ok(None);
    }
    let message: Vec<u8> = received.drain(..HEADER + length).skip(HEADER).collect();
    let request = u32::from_be_bytes([s0, s1, s2, s3]);
    let result = result(&message).map_err(|NoMessage| malformed())?;
    Ok(Some(Response { request, result }))
}

/// The content of an answer.
fn result(message: &[u8]) -> Result<Result<Vec<u8>, RefusedByShim>, NoMessage> {
    let fields = protobuf::fields(message)?;
    let status = protobuf::fields(protobuf::bytes(&fields, 1))?;
    Ok(match protobuf::number(&status, 1) {
        0 => Ok(protobuf::bytes(&fields, 2).to_vec()),
        code => {
            let message = String::from_utf8_lossy(protobuf::bytes(&status, 2)).into_owned();
            Err(RefusedByShim { code, message })
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A frame of this kind.
    fn frame(kind: u8, number: u32, message: &[u8]) -> Vec<u8> {
        let length = u32::try_from(message.len()).unwrap();
        [&length.to_be_bytes()[..], &number.to_be_bytes(), &[kind, 0], message].concat()
    }

    #[test]
    fn a_request_in_bytes() {
        let bytes = request(3, "s", "m", b"b");
        let want = [&[0, 0, 0, 9, 0, 0, 0, 3, 1, 0][..], b"\x0a\x01s\x12\x01m\x1a\x01b"].concat();
        assert_eq!(bytes, want);
    }

    #[test]
    fn answers_come_whole_in_any_pieces() {
        let found = FieldWriter::default().bytes(2, b"body").done();
        let status = FieldWriter::default().number(1, NOT_FOUND).text(2, "no task").done();
        let missing = FieldWriter::default().bytes(1, &status).done();
        let bytes = [frame(2, 1, &found), frame(2, 5, &missing), frame(2, 7, b"")];
        let (mut received, mut seen) = (Vec::new(), Vec::new());
        for byte in bytes.concat() {
            received.push(byte);
            seen.extend(take_response(&mut received).unwrap());
        }
        let refused = RefusedByShim { code: NOT_FOUND, message: "no task".into() };
        assert_eq!(
            seen,
            [
                Response { request: 1, result: Ok(b"body".to_vec()) },
                Response { request: 5, result: Err(refused) },
                Response { request: 7, result: Ok(Vec::new()) },
            ]
        );
    }

    #[test]
    fn garbage_and_long_messages_are_refused() {
        let length = (4 << 20) + 1;
        let long = [&u32::to_be_bytes(length)[..], &[0, 0, 0, 1, 2, 0]].concat();
        for mut received in [
            long,
            b"HTTP/1.1 400 Bad Request".to_vec(),
            frame(2, 1, &[0x0a, 99]),
            frame(3, 1, b"data"),
        ] {
            let why = take_response(&mut received).unwrap_err().to_string();
            assert_eq!(why, "its message is malformed");
        }
        assert_eq!(take_response(&mut vec![0, 0, 0]).unwrap(), None);
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(mut received in prop::collection::vec(any::<u8>(), 0..100)) {
            let _ = take_response(&mut received);
        }
    }
}
