//! The other processes of a run: the app that writes, and the clients that read and forget.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::{Duration, Instant};

use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockType, UnixAddr, connect, recv, socket,
};
use nix::unistd::write as write_fd;
use std::os::fd::AsRawFd;

/// The last line that the app writes: who has got it has got all.
pub const LAST: &[u8] = b"this is the last line of the run\n";
/// Bytes between two looks at the clock.
const LOOK: usize = 1024 * 1024;

/// Says to whoever waits for it at this FIFO that he may go on.
pub fn say(go: &Path) {
    drop(OpenOptions::new().write(true).open(go).unwrap());
}

/// The app: waits until it may go, writes lines in pieces for so many seconds and then the last
/// line, puts the number of bytes into the file `told`, and ends when it may go.
pub fn write(piece: usize, line: usize, seconds: f64, go: &str, told: &str) {
    let out = io::stdout();
    let write_all = |mut bytes: &[u8]| {
        while !bytes.is_empty() {
            bytes = &bytes[write_fd(&out, bytes).unwrap()..];
        }
    };
    // Each piece begins in the line where the one before it has ended.
    let mut text: Vec<u8> =
        b"abcdefghijklmnopqrstuvwxyz".iter().copied().cycle().take(line + piece).collect();
    text.iter_mut().skip(line - 1).step_by(line).for_each(|byte| *byte = b'\n');
    let (mut at, mut written) = (0, 0);
    fs::read(go).unwrap();
    let until = Instant::now() + Duration::from_secs_f64(seconds);
    while Instant::now() < until {
        for _ in 0..LOOK / piece {
            write_all(&text[at..at + piece]);
            at = (at + piece) % line;
        }
        written += LOOK / piece * piece;
    }
    let rest = &text[at..line];
    write_all(rest);
    write_all(LAST);
    let fresh = format!("{told}.new");
    fs::write(&fresh, (written + rest.len() + LAST.len()).to_string()).unwrap();
    fs::rename(fresh, told).unwrap();
    fs::read(go).unwrap();
}

/// A client: reads until the last line. A `packets` socket gives a byte of its own before each.
pub fn read(kind: &str, path: &str) {
    let (kind, own) = match kind {
        "stream" => (SockType::Stream, 0),
        _ => (SockType::SeqPacket, 1),
    };
    let to = UnixAddr::new(path).unwrap();
    let fd: OwnedFd = socket(AddressFamily::Unix, kind, SockFlag::SOCK_CLOEXEC, None).unwrap();
    connect(fd.as_raw_fd(), &to).unwrap();
    io::stdout().write_all(b"!").unwrap();
    io::stdout().flush().unwrap();
    let mut buffer = vec![0; 256 * 1024];
    let mut tail: Vec<u8> = Vec::new();
    loop {
        let len = recv(fd.as_raw_fd(), &mut buffer, MsgFlags::empty()).unwrap();
        assert!(len > 0, "it ended before the last line");
        let got = &buffer[own..len];
        tail.extend_from_slice(&got[got.len().saturating_sub(LAST.len())..]);
        tail.drain(..tail.len().saturating_sub(LAST.len()));
        if tail == LAST {
            return;
        }
    }
}
