//! The process that reads frames from a FIFO and sends them to journald as messages of another unit,
//! which only root may do. The mux of a service starts it while it is still root.
//!
//! The mux that fills the FIFO is not trusted. So this process opens everything that it needs
//! first. Then it may only read, write and exit, and the kernel kills it for any other system call.
//! Its command line names the unit of the messages. A frame chooses only the text, one of eight
//! priorities and one of two streams. After the start it allocates no memory.
//!
//! It outlives a killed mux, and the next mux finds it by the FIFO, which has a reader then. It ends
//! when the mux tells it so, or when neither a mux nor systemd's store has the FIFO any more.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixDatagram;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use nix::sys::prctl;
use nix::sys::signal::Signal;
use nix::sys::socket::{setsockopt, sockopt};
use rustix::io::Errno;
use rustix::thread::CapabilitySet;

use crate::core::logfmt::frame::{self, Frame, PACKET};
use crate::core::logfmt::syslog::{LOCAL7, is_identifier};
use crate::sys::diagnostics::JOURNAL;
use crate::sys::systemd::own_process::PROGRAM;
use crate::sys::{call_filter, calls, confine};
use crate::types::exit::Exit;
use crate::types::limits;
use crate::types::service::ServiceName;

/// The command of this process. It is for muxes, so the help does not list it.
pub(crate) const JOURNAL_WRITER: &str = "journal-writer";
/// Signals for all processes of a mux's unit: the mux obeys them, and this process ends behind it.
const FOR_THE_MUX: [Signal; 4] = [Signal::SIGHUP, Signal::SIGINT, Signal::SIGQUIT, Signal::SIGTERM];
/// Send buffer requested for the socket to journald, bytes: a datagram with the longest message
/// fits.
const JOURNAL_SEND: usize = 128 * 1024;
/// Pause between two attempts to reach a missing journald.
const JOURNAL_RETRY: Duration = Duration::from_secs(1);

/// Bytes of the length of a message.
const LENGTH: usize = size_of::<u64>();
/// Bytes of a datagram besides the constant fields and the message, at most.
const AROUND: usize = 64;

/// Starts the process, which reads this end of the FIFO.
pub(super) fn start(fifo: OwnedFd, identity: &Identity) -> io::Result<()> {
    let Identity { unit, identifier, facility } = identity;
    // This very program, also if its file was replaced.
    let mut command = Command::new("/proc/self/exe");
    command.arg0(PROGRAM).args([JOURNAL_WRITER, "--unit", unit.as_str(), "--identifier"]);
    command.args([identifier, "--facility", &facility.to_string()]);
    command.env_clear().stdin(fifo).stdout(Stdio::null());
    calls::closing_from(&mut command, 3);
    // It is the mux's child as long as that lives, and then systemd's.
    command.spawn().map(drop)
}

/// Runs the process with the arguments after [`JOURNAL_WRITER`]. Returns only if it cannot start.
pub(crate) fn main(arguments: &[OsString]) -> Exit {
    let (why, exit) = match Identity::parse(arguments) {
        Err(why) => (why, Exit::Usage),
        Ok(identity) => match begin(&identity) {
            Err(e) => (e.to_string(), Exit::Failed),
            Ok(never) => match never {},
        },
    };
    eprintln!("iottymux: {JOURNAL_WRITER}: {why}");
    exit
}

fn begin(identity: &Identity) -> io::Result<std::convert::Infallible> {
    let socket = UnixDatagram::unbound()?;
    let mut told = false;
    while let Err(e) = socket.connect(Path::new(JOURNAL)) {
        if !told {
            eprintln!("iottymux: cannot connect to {JOURNAL}: {e}; trying again");
            told = true;
        }
        thread::sleep(JOURNAL_RETRY);
    }
    setsockopt(&socket, sockopt::SndBuf, &JOURNAL_SEND)?;
    let mut packet = vec![0; PACKET].into_boxed_slice();
    let mut entry = JournalDatagram::new(identity);
    // As the kernel names a process by its file, this is `exe`.
    prctl::set_name(c"iottymux")?;
    calls::ignore(&FOR_THE_MUX)?;
    // It can use none behind its filter, so a failure costs nothing.
    let none = CapabilitySet::empty();
    let _ = confine::drop_bounding_set().and_then(|()| confine::keep_capabilities(none));
    // A failure costs only memory.
    let _ = calls::forget_startup();
    call_filter::allow_only_reading_and_writing()?;
    let send = |datagram: &[u8]| {
        loop {
            match rustix::io::write(&socket, datagram) {
                Err(Errno::INTR) => {}
                // A message that is too long for journald is dropped.
                Ok(_) | Err(Errno::MSGSIZE) => return true,
                Err(_) => return false,
            }
        }
    };
    // For people only: the mux sees that nobody reads the FIFO.
    calls::exit_now(u8::from(!relay(&mut entry, &mut packet, rustix::stdio::stdin(), send)))
}

/// Reads and sends until the input ends, or else returns false. `send` returns whether journald still
/// receives.
fn relay(
    entry: &mut JournalDatagram,
    packet: &mut [u8],
    input: impl AsFd,
    mut send: impl FnMut(&[u8]) -> bool,
) -> bool {
    loop {
        let len = match rustix::io::read(&input, &mut *packet) {
            // No mux is left that could send the rest.
            Ok(0) => return entry.finish().is_none_or(&mut send),
            // The beginning of a message is sent again by the next mux.
            Ok(len) if packet.get(..len) == Some(&[frame::END]) => return true,
            Ok(len) => len,
            Err(Errno::INTR) => continue,
            Err(_) => return false,
        };
        if !entry.take(packet.get(..len).unwrap_or_default(), &mut send) {
            return false;
        }
    }
}

/// The owner of the messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Identity {
    pub(super) unit: ServiceName,
    pub(super) identifier: String,
    pub(super) facility: u8,
}

impl Identity {
    /// Parses `--unit UNIT --identifier TEXT --facility NUMBER`. clap would keep memory for the
    /// life of the process.
    fn parse(arguments: &[OsString]) -> Result<Self, String> {
        let words: Vec<&str> = arguments.iter().filter_map(|word| word.to_str()).collect();
        let ["--unit", unit, "--identifier", identifier, "--facility", facility] = words[..] else {
            return Err("expected --unit UNIT --identifier TEXT --facility NUMBER".to_owned());
        };
        let unit = unit.parse().map_err(|why| format!("--unit: {why}"))?;
        if !is_identifier(identifier) {
            return Err(
                "--identifier: expected 1 to 255 bytes without control characters".to_owned()
            );
        }
        let facility = facility.parse().ok().filter(|number| *number <= LOCAL7);
        let facility = facility.ok_or("--facility: expected a number from 0 to 23")?;
        let identifier = identifier.to_owned();
        Ok(Self { unit, identifier, facility })
    }
}

/// A datagram for journald: constant fields, a priority, a stream, and the message in the form for
/// arbitrary bytes.
#[derive(Debug)]
struct JournalDatagram {
    /// It never grows beyond its first capacity.
    bytes: Vec<u8>,
    /// Bytes of the constant fields.
    fields: usize,
    /// Where the message begins, if one has begun.
    message: Option<usize>,
}

impl JournalDatagram {
    fn new(identity: &Identity) -> Self {
        let Identity { unit, identifier, facility } = identity;
        let fields = format!(
            "OBJECT_SYSTEMD_UNIT={unit}\nSYSLOG_IDENTIFIER={identifier}\n\
             SYSLOG_FACILITY={facility}\nPRIORITY="
        );
        // Memory that no message needs is never touched.
        let mut bytes = Vec::with_capacity(fields.len() + AROUND + limits::JOURNAL_LINE);
        bytes.extend_from_slice(fields.as_bytes());
        Self { bytes, fields: fields.len(), message: None }
    }

    /// Takes the frames of a packet, and sends each whole message. Returns whether journald
    /// receives.
    fn take(&mut self, mut packet: &[u8], send: &mut impl FnMut(&[u8]) -> bool) -> bool {
        std::iter::from_fn(|| frame::next(&mut packet)).all(|frame| self.add(&frame, send))
    }

    fn add(&mut self, frame: &Frame<'_>, send: &mut impl FnMut(&[u8]) -> bool) -> bool {
        if frame.first {
            // A killed mux left half a message; the next mux sends all of it again.
            self.message = None;
        }
        let len = self.message.map_or(0, |message| self.bytes.len() - message);
        if len + frame.text.len() > limits::JOURNAL_LINE && !self.finish().is_none_or(&mut *send) {
            return false;
        }
        self.append(frame.priority, frame.is_stderr, frame.text);
        !frame.last || self.finish().is_none_or(send)
    }

    /// Adds text to the message, which begins with it or has room for it.
    fn append(&mut self, priority: u8, is_stderr: bool, text: &[u8]) {
        if self.message.is_none() {
            let stream = if is_stderr { b"stderr" } else { b"stdout" };
            self.bytes.truncate(self.fields);
            self.bytes.push(b'0' + priority);
            for part in [b"\nIOTTYMUX_STREAM=", &stream[..], b"\nMESSAGE\n", &[0; LENGTH]] {
                self.bytes.extend_from_slice(part);
            }
            self.message = Some(self.bytes.len());
        }
        self.bytes.extend_from_slice(text);
    }

    /// The datagram of the message, if one has begun. The next message begins.
    fn finish(&mut self) -> Option<&[u8]> {
        let message = self.message.take()?;
        let len = (self.bytes.len() - message) as u64;
        self.bytes[message - LENGTH..message].copy_from_slice(&len.to_le_bytes());
        self.bytes.push(b'\n');
        Some(&self.bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::logfmt::buffer::Buffer;
    use crate::core::logfmt::syslog::Message;
    use crate::types::stream::Stream;
    use proptest::prelude::*;
    use rustix::pipe::{PipeFlags, pipe_with};

    fn identity() -> Identity {
        Identity { unit: "demo".parse().unwrap(), identifier: "x y".into(), facility: 3 }
    }

    fn frames(text: &[u8]) -> Vec<u8> {
        let mut memory = vec![0; frame::worst(text.len())];
        let mut out = Buffer::new(&mut memory);
        let (stream, pieces) = (Stream::Stderr, [text, &[][..]]);
        frame::encode(&mut out, &Message { stream, priority: 5, pieces });
        out.to_vec()
    }

    /// The fields of a datagram, as journald reads it.
    fn fields(mut datagram: &[u8]) -> Vec<(String, Vec<u8>)> {
        let mut fields = Vec::new();
        while !datagram.is_empty() {
            let end = datagram.iter().position(|byte| *byte == b'\n').unwrap();
            let (line, rest) = (&datagram[..end], &datagram[end + 1..]);
            let (name, value) = match line.iter().position(|byte| *byte == b'=') {
                Some(at) => {
                    datagram = rest;
                    (&line[..at], &line[at + 1..])
                }
                None => {
                    let (len, rest) = rest.split_first_chunk().unwrap();
                    let (value, rest) =
                        rest.split_at(usize::try_from(u64::from_le_bytes(*len)).unwrap());
                    assert_eq!(rest[0], b'\n');
                    datagram = &rest[1..];
                    (line, value)
                }
            };
            fields.push((String::from_utf8(name.to_vec()).unwrap(), value.to_vec()));
        }
        fields
    }

    /// The messages of these packets.
    fn sent(packets: &[&[u8]]) -> Vec<Vec<u8>> {
        let mut entry = JournalDatagram::new(&identity());
        let memory = entry.bytes.capacity();
        let mut sent = Vec::new();
        let mut send = |datagram: &[u8]| {
            let fields = fields(datagram);
            let names: Vec<_> = fields.iter().map(|(name, _)| name.as_str()).collect();
            assert_eq!(names, NAMES);
            assert_eq!((&*fields[0].1, &*fields[1].1), (&b"demo.service"[..], &b"x y"[..]));
            assert!([&b"stdout"[..], b"stderr"].contains(&&*fields[4].1), "{fields:?}");
            sent.push(fields[5].1.clone());
            true
        };
        for packet in packets {
            assert!(entry.take(packet, &mut send));
        }
        if let Some(rest) = entry.finish() {
            send(rest);
        }
        assert_eq!(entry.bytes.capacity(), memory, "after the start it allocates none");
        sent
    }

    const NAMES: [&str; 6] = [
        "OBJECT_SYSTEMD_UNIT",
        "SYSLOG_IDENTIFIER",
        "SYSLOG_FACILITY",
        "PRIORITY",
        "IOTTYMUX_STREAM",
        "MESSAGE",
    ];

    #[test]
    fn an_entry_has_its_fields_and_no_other() {
        let hostile = b"x\nOBJECT_SYSTEMD_UNIT=other.service\n_UID=0\n";
        for text in [&b"text"[..], hostile, &[0; 10], &vec![b'x'; limits::JOURNAL_LINE]] {
            let all = frames(text);
            let packets: Vec<_> = all.chunks(PACKET).collect();
            assert_eq!(sent(&packets), [text]);
        }
    }

    #[test]
    fn half_a_message_of_a_killed_mux_is_left_out() {
        let long = frames(&[b'x'; 10_000]);
        assert_eq!(sent(&[&long[..PACKET], &frames(b"next")]), [b"next"]);
        // If no mux continues a message, its beginning is sent, and so is the end of a killed
        // writer's message.
        assert_eq!(sent(&[&long[..PACKET]])[0].len(), 4090);
        assert_eq!(sent(&[&long[PACKET..2 * PACKET], &long[2 * PACKET..]])[0].len(), 10_000 - 4090);
    }

    #[test]
    fn it_ends_when_its_mux_says_so() {
        let (input, fifo) = pipe_with(PipeFlags::DIRECT).unwrap();
        let long = frames(&[b'x'; 10_000]);
        for packet in [&frames(b"whole")[..], &long[..PACKET], &[frame::END], &frames(b"after")] {
            rustix::io::write(&fifo, packet).unwrap();
        }
        let (mut entry, mut packet) = (JournalDatagram::new(&identity()), vec![0; PACKET]);
        let mut sent = 0;
        let is_done = relay(&mut entry, &mut packet, &input, |_| {
            sent += 1;
            true
        });
        // The next mux sends all of the message that has begun.
        assert_eq!((is_done, sent), (true, 1));
    }

    #[test]
    fn bytes_that_are_no_frame_are_dropped() {
        let good = frames(b"good");
        let bad = [&frames(b"one")[..], b"hello\n_UID=0\n", &good].concat();
        assert_eq!(sent(&[&bad, b"\0\0\0", &good]), [&b"one"[..], b"good"]);
    }

    #[test]
    fn arguments() {
        let parse = |words: &str| {
            Identity::parse(&words.split('|').map(OsString::from).collect::<Vec<_>>())
        };
        let right = "--unit|demo.service|--identifier|x y|--facility|3";
        assert_eq!(parse(right), Ok(identity()));
        for wrong in [
            "",
            "--unit|demo.service",
            "--unit|../x|--identifier|x|--facility|3",
            "--unit|a|--identifier|x\ny|--facility|3",
            "--unit|a|--identifier||--facility|3",
            "--unit|a|--identifier|x|--facility|24",
            "--unit|a|--facility|3|--identifier|x",
        ] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }

    proptest! {
        /// Each datagram has the same fields and nothing panics, even for arbitrary input from a
        /// mux.
        #[test]
        fn whatever_comes(packets in prop::collection::vec(
            prop_oneof![
                prop::collection::vec(any::<u8>(), 0..50),
                prop::collection::vec(any::<u8>(), 0..5000).prop_map(|text| {
                    let mut all = frames(&text);
                    all.truncate(PACKET);
                    all
                }),
                (any::<u8>(), any::<u8>(), any::<u8>(), any::<u16>(), 0usize..4096).prop_map(
                    |(flags, priority, stream, len, have)| {
                        let mut packet = vec![0xf1, flags % 5, priority % 9, stream % 3];
                        packet.extend_from_slice(&(len % 4096).to_le_bytes());
                        packet.resize(6 + have.min(PACKET - 6), b'\n');
                        packet
                    }
                ),
            ],
            0..40,
        )) {
            let packets: Vec<_> = packets.iter().map(Vec::as_slice).collect();
            for message in sent(&packets) {
                prop_assert!(!message.is_empty() && message.len() <= limits::JOURNAL_LINE);
            }
        }
    }
}
