//! The other processes of a run: apps that write, and clients that read and forget.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::thread::sleep;
use std::time::{Duration, Instant};

use iottymux::core::wire::{Decoder, FrameKind, Hello, Item, Want};
use iottymux::types::stream::{Position, Stream};
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockType, UnixAddr, connect, recv, socket,
};
use nix::unistd::write as write_fd;
use rustix::termios::{OptionalActions, tcdrain, tcgetattr, tcsetattr};
use std::os::fd::{AsRawFd, OwnedFd};

use super::confined::now;

/// The first word of a process of a run.
pub const ROLE: &str = "role";
/// The last line that the app writes: a reader that has it has all.
pub const LAST: &[u8] = b"this is the last line of the run\n";
/// Bytes of a line that says when it was written.
pub const TIMED: usize = 100;
/// Bytes between two looks at the clock.
const LOOK: usize = 1024 * 1024;
/// Bytes of one read of a client.
const READ: usize = 256 * 1024;
/// Digits of a time, nanoseconds.
const DIGITS: usize = 20;

/// Replaces a file in one step.
fn tell(path: &str, text: &str) {
    let fresh = format!("{path}.new");
    fs::write(&fresh, text).unwrap();
    fs::rename(fresh, path).unwrap();
}

fn write_all(mut bytes: &[u8]) {
    let out = io::stdout();
    while !bytes.is_empty() {
        bytes = &bytes[write_fd(&out, bytes).unwrap()..];
    }
}

/// An app: waits at the FIFO `go`, writes lines in pieces for so many seconds and then the last
/// line, puts the number of bytes into the file `told`, and ends when it may go on.
pub fn write(piece: usize, line: usize, seconds: f64, go: &str, told: &str) {
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
    tell(told, &(written + rest.len() + LAST.len()).to_string());
    fs::read(go).unwrap();
}

/// An app as [`write`] that writes a line with its time in each millisecond.
pub fn tick(seconds: f64, go: &str, told: &str) {
    fs::read(go).unwrap();
    let began = Instant::now();
    let mut written = 0;
    for n in 1.. {
        let next = Duration::from_millis(n);
        if next.as_secs_f64() > seconds {
            break;
        }
        sleep(next.saturating_sub(began.elapsed()));
        let mut line = format!("{:0DIGITS$} ", now()).into_bytes();
        line.resize(TIMED - 1, b'x');
        line.push(b'\n');
        write_all(&line);
        written += TIMED;
    }
    write_all(LAST);
    tell(told, &written.to_string());
    fs::read(go).unwrap();
}

/// An app that prints on its terminal for so many seconds, waits until all has been read there, and
/// says how many bytes it were in how many seconds.
pub fn print(coloured: bool, seconds: f64, go: &str, told: &str) {
    let out = io::stdout();
    let mut modes = tcgetattr(out.as_fd()).unwrap();
    modes.make_raw();
    tcsetattr(out.as_fd(), OptionalActions::Now, &modes).unwrap();
    let line = |n: usize| {
        let rest = "the quick brown fox jumps over the lazy dog";
        let colour = 30 + n % 8;
        if coloured {
            format!("\x1b[1;{colour}m{n:06}\x1b[0m {rest}\r\n")
        } else {
            format!("{n:06} {rest}, again\r\n")
        }
    };
    let text = (0..1000).map(line).collect::<String>().into_bytes();
    fs::read(go).unwrap();
    let began = Instant::now();
    let mut written = 0;
    while began.elapsed().as_secs_f64() < seconds {
        write_all(&text);
        written += text.len();
    }
    tcdrain(out.as_fd()).unwrap();
    tell(told, &format!("{written} {}", began.elapsed().as_secs_f64()));
    fs::read(go).unwrap();
}

/// A socket file is there a moment before its program listens.
fn connected(path: &str) -> UnixStream {
    loop {
        match UnixStream::connect(path) {
            Err(e) if e.kind() == ErrorKind::ConnectionRefused => sleep(Duration::from_millis(1)),
            result => return result.unwrap(),
        }
    }
}

/// Where a client reads.
enum Input {
    /// A FIFO, a pipe or a stream socket.
    File(File),
    /// conmon's packets, each with a byte of its own in front.
    Packets(OwnedFd),
    /// The frames of a session.
    Session(UnixStream, Decoder),
}

impl Input {
    fn open(kind: &str, path: &str) -> Self {
        let connected = || connected(path);
        match kind {
            "fifo" => Self::File(File::open(path).unwrap()),
            "stdin" => Self::File(io::stdin().as_fd().try_clone_to_owned().unwrap().into()),
            "stream" => Self::File(OwnedFd::from(connected()).into()),
            "dtach" => {
                let mut socket = connected();
                // MSG_ATTACH.
                socket.write_all(&[1, 0, 0, 0, 0, 0, 0, 0, 0, 0]).unwrap();
                Self::File(OwnedFd::from(socket).into())
            }
            "session" | "terminal session" => {
                let mut socket = connected();
                let stream = if kind == "session" { Stream::Stdout } else { Stream::Tty };
                let want = Want { stream, from: Position::Now };
                let hello = Hello { streams: vec![want], ..Hello::default() };
                socket.write_all(&FrameKind::Hello.message(&hello)).unwrap();
                Self::Session(socket, Decoder::default())
            }
            _ => {
                let (to, flags) = (UnixAddr::new(path).unwrap(), SockFlag::SOCK_CLOEXEC);
                let fd = socket(AddressFamily::Unix, SockType::SeqPacket, flags, None).unwrap();
                connect(fd.as_raw_fd(), &to).unwrap();
                Self::Packets(fd)
            }
        }
    }

    /// Hands the app's bytes of one read to `each`; false at the end.
    fn next(&mut self, buffer: &mut [u8], mut each: impl FnMut(&[u8])) -> bool {
        let len = match self {
            Self::File(file) => file.read(buffer).unwrap(),
            Self::Packets(fd) => recv(fd.as_raw_fd(), buffer, MsgFlags::empty()).unwrap(),
            Self::Session(socket, _) => socket.read(buffer).unwrap(),
        };
        match self {
            _ if len == 0 => {}
            Self::File(_) => each(&buffer[..len]),
            Self::Packets(_) => each(&buffer[1..len]),
            Self::Session(_, decoder) => {
                let mut rest = &buffer[..len];
                while let Some(item) = decoder.next(&mut rest).unwrap() {
                    match item {
                        Item::Data(_, bytes) => each(bytes),
                        Item::Control(FrameKind::Gap, _) => panic!("it has lost output"),
                        _ => {}
                    }
                }
            }
        }
        len > 0
    }
}

/// A client: says that it is there, and reads until the last line or, if it is not for one app, the
/// end. Then it says how long timed lines took: p50 and p99 in microseconds.
pub fn read(kind: &str, path: &str) {
    let mut input = Input::open(kind, path);
    io::stdout().write_all(b"!").unwrap();
    io::stdout().flush().unwrap();
    let mut buffer = vec![0; READ];
    let (mut tail, mut times): (Vec<u8>, Vec<u64>) = (Vec::new(), Vec::new());
    while tail != LAST {
        let more = input.next(&mut buffer, |got| {
            times.extend(time_of(got).map(|then| now().saturating_sub(then)));
            tail.extend_from_slice(&got[got.len().saturating_sub(LAST.len())..]);
            tail.drain(..tail.len().saturating_sub(LAST.len()));
        });
        if !more {
            break;
        }
    }
    times.sort_unstable();
    let micros = |percent: usize| times.get(times.len() * percent / 100).map_or(0, |ns| ns / 100);
    // In tenths.
    print!("{} {}", micros(50), micros(99));
}

/// The time in the first line of these bytes, if it has one.
fn time_of(bytes: &[u8]) -> Option<u64> {
    let digits = bytes.get(..DIGITS)?;
    std::str::from_utf8(digits).ok()?.parse().ok()
}
