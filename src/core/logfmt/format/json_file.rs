//! docker's json-file log: `{"log":"text\n","stream":"stdout","time":"…"}`, keys in this order. No
//! I/O, no clock.
//!
//! Only the last part of a line has a line end. Reading accepts the keys in any order, and other
//! keys.

use std::borrow::Cow;

use serde::Deserialize;

use crate::core::logfmt::buffer::Buffer;
use crate::core::logfmt::encoder::{self, Encoder, FormatReader, LogFormat};
use crate::core::logfmt::entry::{self, LoggedEntry};
use crate::core::logfmt::json;
use crate::core::logfmt::lines::Entry;
use crate::core::logfmt::stamp::StampText;

pub(crate) static FORMAT: LogFormat = LogFormat {
    name: "json-file",
    argument: ":PATH",
    help: "the format of docker",
    target: encoder::file,
    records_terminal: false,
    is_lines: true,
    encoder: |_| Box::new(JsonFile),
    reader: Some(FormatReader { begins: |head| head.starts_with(b"{"), parse }),
};

/// Bytes around a text, at most.
const AROUND: usize = 80;

#[derive(Debug)]
struct JsonFile;

impl Encoder for JsonFile {
    fn encode(&mut self, out: &mut Buffer<'_>, stamp: &StampText, entry: &Entry<'_>) {
        out.extend_from_slice(b"{\"log\":\"");
        json::text(out, entry.pieces);
        let end = if entry.last { b"\\n\",\"stream\":\"" } else { &b"\",\"stream\":\""[..] };
        out.extend_from_slice(end);
        out.extend_from_slice(entry.stream.logged_as().as_bytes());
        out.extend_from_slice(b"\",\"time\":\"");
        out.extend_from_slice(stamp.as_bytes());
        out.extend_from_slice(b"\"}\n");
    }

    fn worst(&self, text: usize) -> usize {
        AROUND + json::WIDEST * text
    }
}

/// An entry.
#[derive(Deserialize)]
struct Docker<'a> {
    #[serde(borrow)]
    log: Cow<'a, str>,
    #[serde(borrow)]
    stream: Cow<'a, str>,
    #[serde(borrow)]
    time: Cow<'a, str>,
}

fn parse(line: &[u8]) -> Result<LoggedEntry<'_>, &'static str> {
    let Docker { log, stream: name, time } =
        serde_json::from_slice(line).map_err(|_| "it is not docker's JSON")?;
    let (stamp, _) = entry::stamp(time.as_bytes())?;
    let stream = entry::stream(name.as_bytes())?;
    let ends = log.ends_with('\n');
    let len = log.len() - usize::from(ends);
    let text = match log {
        Cow::Borrowed(log) => log.as_bytes()[..len].into(),
        Cow::Owned(mut log) => {
            log.truncate(len);
            log.into_bytes().into()
        }
    };
    Ok(LoggedEntry { stamp, written: time, stream, text, ends })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::stream::Stream;
    use crate::types::time::Stamp;
    use proptest::prelude::*;

    fn encoded(last: bool, pieces: [&[u8]; 2]) -> String {
        let mut memory = vec![0; JsonFile.worst(pieces.concat().len())];
        let mut out = Buffer::new(&mut memory);
        let stamp = StampText::new(Stamp(1_475_713_029_669_794_202));
        JsonFile.encode(
            &mut out,
            &stamp,
            &Entry { stream: Stream::Stderr, first: true, last, pieces },
        );
        String::from_utf8(out.to_vec()).unwrap()
    }

    #[test]
    fn a_line_as_docker_writes_it() {
        assert_eq!(
            encoded(true, [b"a \"b\" <c> & \\\t\x7f", "\r\u{e9}\u{2028}".as_bytes()]),
            "{\"log\":\"a \\\"b\\\" \\u003cc\\u003e \\u0026 \\\\\\u0009\x7f\\r\u{e9}\\u2028\\n\",\"stream\":\"stderr\",\"time\":\"2016-10-06T00:17:09.669794202Z\"}\n"
        );
        assert!(encoded(false, [b"part", b""]).starts_with("{\"log\":\"part\",\"stream\""));
        assert!(encoded(false, [b"\xff\xfe", b"\x80"]).contains("\"\\ufffd\\ufffd\\ufffd\""));
    }

    proptest! {
        /// Any bytes give JSON with the same text, even if they are split anywhere.
        #[test]
        fn it_is_read_back(
            bytes in prop::collection::vec(
                prop_oneof![Just(0xe2), Just(0x80), Just(0xa8), Just(0xf0), any::<u8>()], 0..80),
            cut in 0usize..80,
        ) {
            let (a, b) = bytes.split_at(cut.min(bytes.len()));
            let line = encoded(true, [a, b]);
            let ends = line.find('\n');
            prop_assert_eq!(ends, Some(line.len() - 1));
            let value: serde_json::Value = serde_json::from_str(&line).unwrap();
            let want: String = bytes
                .utf8_chunks()
                .map(|c| c.valid().to_owned() + &"\u{fffd}".repeat(c.invalid().len()))
                .collect();
            prop_assert_eq!(value["log"].as_str().unwrap(), want + "\n");
        }
    }
}
