//! The description of a log format: its name, its writer and its reader. No I/O, no clock.
//!
//! A format is one file: a [`LogFormat`], its [`Encoder`], and its [`FormatReader`] if `iottymux
//! logs` can read it. [`super::format::FORMATS`] lists them.

use std::fmt;
use std::time::Duration;

use super::buffer::Buffer;
use super::chunk::{Chunk, Lost};
use super::entry::LoggedEntry;
use super::lines::{Entry, Splitter};
use super::path::LogPath;
use super::stamp::StampText;
use super::syslog::{self, Syslog};
use crate::types::size::Size;
use crate::types::stream::Stream;
use crate::types::time::Stamp;

/// A log format.
#[derive(Debug)]
pub struct LogFormat {
    /// The name before the colon in `--log`, and in the document `logs`.
    pub(crate) name: &'static str,
    /// The syntax after the name in `--log`.
    pub(crate) argument: &'static str,
    /// A noun phrase for `--help`.
    pub(crate) help: &'static str,
    /// The target, from the text after the colon.
    pub(crate) target: fn(Option<&str>) -> Result<LogTarget, String>,
    /// Whether it records a terminal: then `--record` takes it instead of `--log`.
    pub records_terminal: bool,
    /// Whether each entry is one line of the file, so that a file can be cut between two of them.
    pub(crate) is_lines: bool,
    /// Makes an encoder.
    pub(crate) encoder: fn(&FormatOptions) -> Box<dyn Encoder>,
    /// How its files are read.
    pub(crate) reader: Option<FormatReader>,
}

/// Where a log goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum LogTarget {
    /// A file.
    File(LogPath),
    /// journald.
    Journald,
    /// The journal, as the lines of the service itself, or of one of its streams.
    Journal(Option<Stream>),
}

/// Parses the target of a format that goes to a file.
pub(crate) fn file(path: Option<&str>) -> Result<LogTarget, String> {
    let path = path.filter(|path| !path.is_empty() && !path.ends_with('/'));
    LogPath::free(path.ok_or("expected the path of a file")?.as_ref()).map(LogTarget::File)
}

/// How the files of a format are read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FormatReader {
    /// Whether an entry of this format can begin with these bytes, which may end amid the entry.
    /// `format::parse` picks the reader of each entry by it: it must not accept an entry of
    /// another format.
    pub(crate) begins: fn(&[u8]) -> bool,
    /// Parses an entry without its line end, or returns the error in it.
    pub(crate) parse: fn(&[u8]) -> Result<LoggedEntry<'_>, &'static str>,
}

/// The facts that encoders need about the app, the service and the command line.
#[derive(Clone, Debug)]
pub struct FormatOptions {
    /// The name of the app.
    pub app: String,
    /// The unit under which journald shows the entries, where the mux may choose it.
    pub unit: Option<String>,
    /// Kubernetes' namespace, pod and container that the app is, which need no escaping.
    pub kubernetes: Option<[String; 3]>,
    /// How lines of the service become messages.
    pub syslog: Syslog,
    /// The facility of syslog(3) of these messages.
    pub facility: u8,
    /// The name of the program in the journal, if not the app's.
    pub identifier: Option<String>,
    /// Whether the messages go through the journal writer.
    pub uses_journal_writer: bool,
    /// The kind of terminal that the app sees (`TERM`).
    pub term: String,
    /// Whether a recording includes the input.
    pub record_input: bool,
}

impl Default for FormatOptions {
    fn default() -> Self {
        Self {
            app: String::new(),
            unit: None,
            kubernetes: None,
            syslog: Syslog::new(syslog::INFO, true, None),
            facility: syslog::DAEMON,
            identifier: None,
            uses_journal_writer: false,
            term: String::new(),
            record_input: false,
        }
    }
}

/// What happens at a terminal besides its output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Note<'a> {
    /// It has this size.
    Size(Size),
    /// The app was given this input, of at most [`Note::TYPED`] bytes.
    Typed(&'a [u8]),
    /// A client did this.
    Client(&'a str),
}

impl Note<'_> {
    /// Bytes of input in a note, at most.
    pub const TYPED: usize = 4096;
}

/// Encodes entries. Invariant: it allocates nothing but room in `out`.
pub trait Encoder: fmt::Debug + Send {
    /// Appends an entry.
    fn encode(&mut self, out: &mut Buffer<'_>, stamp: &StampText, entry: &Entry<'_>);

    /// An upper bound for the size of an entry whose text has `text` bytes. The caller provides
    /// that room, and [`encode`](Self::encode) may panic if it needs more.
    fn worst(&self, text: usize) -> usize;

    /// Splits streams into entries, of at most `line_limit` bytes each unless the format has a
    /// limit of its own.
    fn splitter(&self, line_limit: usize) -> Splitter {
        Splitter::new(line_limit)
    }

    /// How long an unfinished line waits; `asked` is the user's value.
    fn flush(&self, asked: Duration) -> Duration {
        asked
    }

    /// Whether the parts of a line may have entries of another stream between them.
    fn may_mix_lines(&self) -> bool {
        false
    }

    /// Whether an unfinished line ends when the app ends.
    fn ends_lines_with_app(&self) -> bool {
        true
    }

    /// The line that a reader adds an entry of this stream to while it is unfinished, named by a
    /// stream; `None` if a reader adds nothing to it.
    fn line_of(&self, stream: Stream) -> Option<Stream> {
        Some(stream)
    }

    /// The stream of entries that iottymux itself adds.
    fn own_stream(&self) -> Stream {
        Stream::Stderr
    }

    /// Whether nothing marks a part of a line: the streams have one line together.
    fn runs_lines_together(&self) -> bool {
        false
    }

    /// The text that stands for lost output.
    fn marker(&self, Lost { lines, bytes }: Lost) -> String {
        format!("iottymux: {lines} lines ({bytes} bytes) were lost here")
    }

    /// Encodes a note, if it is recorded: else it is empty.
    fn note(&mut self, _stamp: Stamp, _note: Note<'_>) -> Vec<u8> {
        Vec::new()
    }
}

impl dyn Encoder {
    /// Appends an entry to a chunk, and counts it there.
    pub(crate) fn put(&mut self, chunk: &mut Chunk, stamp: &StampText, entry: &Entry<'_>) {
        self.encode(&mut chunk.bytes, stamp, entry);
        let text = entry.pieces.iter().map(|piece| piece.len()).sum();
        chunk.count(u64::from(entry.last), text, stamp.stamp());
        if let Some(line) = self.line_of(entry.stream) {
            chunk.unfinished[line as usize] = Some(!entry.last);
        }
    }

    /// Appends the entry that ends an unfinished line.
    pub(crate) fn end_line(&mut self, out: &mut Buffer<'_>, stamp: &StampText, stream: Stream) {
        let end = Entry { stream, first: false, last: true, pieces: [&[]; 2] };
        self.encode(out, stamp, &end);
    }
}

impl PartialEq for LogFormat {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for LogFormat {}

impl LogFormat {
    /// Makes an encoder.
    pub fn encoder(&self, options: &FormatOptions) -> Box<dyn Encoder> {
        (self.encoder)(options)
    }

    /// How `--log` or `--record` takes it, for people.
    pub(crate) fn form(&self) -> String {
        format!("{}{}", self.name, self.argument)
    }
}
