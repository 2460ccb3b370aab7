//! Entries of a log file, as they are read. No I/O, no clock.

use std::borrow::Cow;

use crate::types::stream::Stream;
use crate::types::time::Stamp;

/// An entry: a line of the app, or a part of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LoggedEntry<'a> {
    /// When it was read from the app.
    pub(crate) stamp: Stamp,
    /// The same as text, as it is in the log: only digits, signs and letters of RFC 3339.
    pub(crate) written: Cow<'a, str>,
    /// Standard output or standard error.
    pub(crate) stream: Stream,
    /// The app's text, without the end of the line.
    pub(crate) text: Cow<'a, [u8]>,
    /// Whether the line ends with it.
    pub(crate) ends: bool,
}

/// Parses the time of an entry; also returns its text.
pub(crate) fn stamp(text: &[u8]) -> Result<(Stamp, &str), &'static str> {
    let text = std::str::from_utf8(text).ok();
    let stamp = text.and_then(|text| Some((Stamp::parse(text)?, text)));
    stamp.ok_or("it has no time")
}

/// Parses the stream of an entry.
pub(crate) fn stream(name: &[u8]) -> Result<Stream, &'static str> {
    match name {
        b"stdout" => Ok(Stream::Stdout),
        b"stderr" => Ok(Stream::Stderr),
        _ => Err("its stream is neither stdout nor stderr"),
    }
}
