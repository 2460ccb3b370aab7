//! How long a key takes to its echo: from a client by way of a mux to an app on a terminal, and
//! back.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Instant;

use iottymux::core::wire::{FrameKind, Hello, Redraw, Want};
use iottymux::types::size::Size;
use iottymux::types::stream::{Position, Stream};
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockType, UnixAddr, connect, recv, send, socket,
};

use super::process::{Bench, cpu, open_directory, wait_for};
use super::sample::{Metric, Values};
use super::terminal;
use super::tools::Tool;

/// Keys of one run, and those before it that warm up.
const KEYS: usize = 4000;
const WARMING: usize = 400;
const SIZE: Size = Size { rows: 24, cols: 80 };
/// What the app is: it gives back what it reads, byte for byte, once the file is there that it is
/// given.
const APP: &str = "stty raw -echo; : >\"$0\"; exec cat";

/// How the keys go.
enum Way {
    /// To the terminal itself, without a mux.
    Bare(File),
    /// To our raw socket, and conmon's, whose packets begin with a byte of its own.
    Raw(OwnedFd),
    /// In frames of a session.
    Session(UnixStream),
    /// In dtach's packets.
    Dtach(UnixStream),
}

impl Way {
    fn open(tool: Tool, path: &Path, master: Option<File>) -> Self {
        let connected = || UnixStream::connect(path).unwrap();
        match (tool, master) {
            (_, Some(master)) => Self::Bare(master),
            (Tool::Session, _) => {
                let mut socket = connected();
                let hello = Hello {
                    streams: vec![Want { stream: Stream::Tty, from: Position::Now }],
                    stdin: true,
                    size: Some(SIZE.into()),
                    redraw: Some(Redraw::Screen),
                    ..Hello::default()
                };
                socket.write_all(&FrameKind::Hello.message(&hello)).unwrap();
                Self::Session(socket)
            }
            (Tool::Dtach, _) => {
                let mut socket = connected();
                // MSG_ATTACH.
                socket.write_all(&[1, 0, 0, 0, 0, 0, 0, 0, 0, 0]).unwrap();
                Self::Dtach(socket)
            }
            (Tool::Conmon, _) => {
                let (to, flags) = (UnixAddr::new(path).unwrap(), SockFlag::SOCK_CLOEXEC);
                let fd = socket(AddressFamily::Unix, SockType::SeqPacket, flags, None).unwrap();
                connect(fd.as_raw_fd(), &to).unwrap();
                Self::Raw(fd)
            }
            _ => Self::Raw(connected().into()),
        }
    }

    fn press(&mut self, key: u8) {
        match self {
            Self::Bare(master) => master.write_all(&[key]).unwrap(),
            Self::Raw(fd) => drop(send(fd.as_raw_fd(), &[key], MsgFlags::empty()).unwrap()),
            Self::Session(socket) => socket.write_all(&FrameKind::Stdin.frame(&[key])).unwrap(),
            // MSG_PUSH, one byte.
            Self::Dtach(socket) => socket.write_all(&[0, 1, key, 0, 0, 0, 0, 0, 0, 0]).unwrap(),
        }
    }

    /// Reads until this key has come back.
    fn await_echo(&mut self, key: u8, buffer: &mut [u8]) {
        loop {
            let len = match self {
                Self::Bare(master) => master.read(buffer).unwrap(),
                Self::Raw(fd) => recv(fd.as_raw_fd(), buffer, MsgFlags::empty()).unwrap(),
                Self::Session(socket) | Self::Dtach(socket) => socket.read(buffer).unwrap(),
            };
            assert!(len > 0, "it has ended");
            if buffer[..len].contains(&key) {
                return;
            }
        }
    }
}

/// One run.
pub fn run(bench: &Bench, tool: Tool) -> Values {
    let dir = open_directory();
    // The user of the mux may not write it; the app is not that user.
    let ready = dir.path().join("ready");
    let words = ["sh", "-c", APP, ready.to_str().unwrap()].map(str::to_owned);
    let mut terminal = terminal::start(bench, tool, dir.path(), &words);
    // Before that the terminal's own echo is heard.
    wait_for("the app is there", || ready.exists());
    let mut way = Way::open(tool, &terminal.socket, terminal.master.take());
    let mut buffer = vec![0; 64 * 1024];
    let mut press = |n: usize| {
        let key = b'a' + u8::try_from(n % 26).unwrap();
        let began = Instant::now();
        way.press(key);
        way.await_echo(key, &mut buffer);
        began.elapsed().as_secs_f64() * 1e6
    };
    for n in 0..WARMING {
        press(n);
    }
    let before = cpu(terminal.pid);
    let mut times: Vec<f64> = (0..KEYS).map(press).collect();
    let used = cpu(terminal.pid).saturating_sub(before).as_secs_f64();
    times.sort_by(f64::total_cmp);
    let keys = f64::from(u32::try_from(KEYS).unwrap());
    let mut values = vec![(Metric::P50, times[KEYS / 2]), (Metric::P99, times[KEYS * 99 / 100])];
    if tool != Tool::NoMux {
        values.push((Metric::EachCpu, used / keys * 1e6));
    }
    values
}
