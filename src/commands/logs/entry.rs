//! Entries of a log, in either format: a line of the file each. Pure.
//!
//! An entry that begins with `{` is docker's, any other the kubelet's: one cannot be taken for the
//! other, so nobody need say which file has which. The rules are the kubelet's: a stamp with any
//! number of digits, tags of which only the first counts, and no content but behind its space.

use std::borrow::Cow;
use std::fmt;

use serde::Deserialize;
use serde::de::{Error, Visitor};

use crate::types::stream::Stream;
use crate::types::time::Stamp;

/// An entry: a line of the app's, or a part of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LoggedEntry<'a> {
    /// When it was read from the app.
    pub(crate) stamp: Stamp,
    /// The same as it is written in the log: digits, signs and letters of RFC 3339 only.
    pub(crate) written: Cow<'a, str>,
    /// Standard output or standard error.
    pub(crate) stream: Stream,
    /// What the app wrote, without the end of the line.
    pub(crate) text: Cow<'a, [u8]>,
    /// Whether the line ends with it.
    pub(crate) ends: bool,
}

/// Parses an entry. One whose own line end is missing is being written, or was torn off: nothing
/// ends with it.
pub(crate) fn parse(line: &[u8]) -> Result<LoggedEntry<'_>, &'static str> {
    let (line, whole) = line.strip_suffix(b"\n").map_or((line, false), |line| (line, true));
    let mut entry = if line.starts_with(b"{") { docker(line)? } else { cri(line)? };
    entry.ends &= whole;
    Ok(entry)
}

fn cri(line: &[u8]) -> Result<LoggedEntry<'_>, &'static str> {
    let mut fields = line.splitn(4, |byte| *byte == b' ');
    let mut field = || fields.next().ok_or("it has too few fields");
    let (stamp, written) = stamp(field()?)?;
    let stream = stream(field()?)?;
    let tags = field()?;
    let text = field()?;
    let ends = tags.split(|byte| *byte == b':').next() != Some(b"P");
    Ok(LoggedEntry { stamp, written: written.into(), stream, text: text.into(), ends })
}

fn stamp(text: &[u8]) -> Result<(Stamp, &str), &'static str> {
    let text = std::str::from_utf8(text).ok();
    let stamp = text.and_then(|text| Some((Stamp::parse(text)?, text)));
    stamp.ok_or("it has no time")
}

fn stream(name: &[u8]) -> Result<Stream, &'static str> {
    match name {
        b"stdout" => Ok(Stream::Stdout),
        b"stderr" => Ok(Stream::Stderr),
        _ => Err("its stream is neither stdout nor stderr"),
    }
}

/// docker's own form.
#[derive(Deserialize)]
struct Docker<'a> {
    #[serde(borrow)]
    log: Text<'a>,
    #[serde(borrow)]
    stream: Cow<'a, str>,
    #[serde(borrow)]
    time: Cow<'a, str>,
}

fn docker(line: &[u8]) -> Result<LoggedEntry<'_>, &'static str> {
    let Docker { log: Text(mut text), stream: name, time } =
        serde_json::from_slice(line).map_err(|_| "it is not docker's JSON")?;
    let (stamp, _) = stamp(time.as_bytes())?;
    let stream = stream(name.as_bytes())?;
    let ends = text.ends_with(b"\n");
    if ends {
        match &mut text {
            Cow::Borrowed(text) => *text = &text[..text.len() - 1],
            Cow::Owned(text) => text.truncate(text.len() - 1),
        }
    }
    Ok(LoggedEntry { stamp, written: time, stream, text, ends })
}

/// A text that may have halves of surrogates, or bytes that are none of UTF-8: for these U+FFFD
/// stands, as docker's own reader has it.
struct Text<'a>(Cow<'a, [u8]>);

impl<'de: 'a, 'a> Deserialize<'de> for Text<'a> {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Bytes;
        impl<'de> Visitor<'de> for Bytes {
            type Value = Text<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text")
            }

            fn visit_borrowed_bytes<E: Error>(self, bytes: &'de [u8]) -> Result<Text<'de>, E> {
                Ok(Text(match String::from_utf8_lossy(bytes) {
                    Cow::Borrowed(text) => text.as_bytes().into(),
                    Cow::Owned(text) => text.into_bytes().into(),
                }))
            }

            fn visit_bytes<E: Error>(self, bytes: &[u8]) -> Result<Text<'de>, E> {
                Ok(Text(String::from_utf8_lossy(bytes).into_owned().into_bytes().into()))
            }
        }
        // As bytes: as a string the decoder would refuse half a surrogate.
        from.deserialize_bytes(Bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const STAMP: &str = "2016-10-20T18:39:20.57606443Z";

    fn check(line: impl AsRef<[u8]>, want: Option<(Stream, &[u8], bool)>) {
        let line = line.as_ref();
        let got = parse(line).ok();
        let seen = got.as_ref().map(|e| (e.stream, &*e.text, e.ends));
        assert_eq!(seen, want, "{}", line.escape_ascii());
        if let Some(entry) = got {
            assert_eq!(entry.written, STAMP);
            assert_eq!(Some(entry.stamp), Stamp::parse(STAMP));
        }
    }

    #[test]
    fn entries_of_the_kubelet() {
        use Stream::{Stderr, Stdout};
        // The kubelet's own vectors.
        for (rest, want) in [
            (" stdout F cri stdout test log\n", (Stdout, &b"cri stdout test log"[..], true)),
            (" stderr F cri stderr test log\n", (Stderr, b"cri stderr test log", true)),
            (
                " stdout P cri stdout partial test log\n",
                (Stdout, b"cri stdout partial test log", false),
            ),
            (" stdout P:TAG1:TAG2 cri stdout partial\n", (Stdout, b"cri stdout partial", false)),
            // What its rules say.
            (" stdout F:P x\n", (Stdout, b"x", true)),
            (" stdout Q x\n", (Stdout, b"x", true)),
            (" stdout :P x\n", (Stdout, b"x", true)),
            (" stdout  x\n", (Stdout, b"x", true)),
            (" stdout F \n", (Stdout, b"", true)),
            (" stdout P \n", (Stdout, b"", false)),
            (" stdout F  a  b \r\n", (Stdout, b" a  b \r", true)),
            (" stderr F é\0\x1b\n", (Stderr, b"\xc3\xa9\0\x1b", true)),
            // Torn off, or being written.
            (" stdout F text", (Stdout, b"text", false)),
            (" stdout F ", (Stdout, b"", false)),
        ] {
            check(format!("{STAMP}{rest}"), Some(want));
        }
        check([STAMP.as_bytes(), b" stdout F \xff\n"].concat(), Some((Stdout, b"\xff", true)));
        for bad in ["", " ", " stdout", " stdout F", " tty F x", " stdout", "  F x"] {
            check(format!("{STAMP}{bad}\n"), None);
        }
        for bad in
            ["unsupported log format test log\n", "\n", "", " stdout F x\n", "x stdout F x\n"]
        {
            check(bad, None);
        }
    }

    #[test]
    fn entries_of_docker() {
        use Stream::{Stderr, Stdout};
        let of =
            |log: &str| format!(r#"{{"log":{log},"stream":"stdout","time":"{STAMP}"}}"#) + "\n";
        for (log, want) in [
            (r#""docker stdout test log\n""#, (&b"docker stdout test log"[..], true)),
            (r#""part""#, (b"part", false)),
            (r#""""#, (b"", false)),
            (r#""\n""#, (b"", true)),
            (r#""\n\n""#, (b"\n", true)),
            (r#""\u003c\u0026\"\\\/\t\r\u0000\u2028\n""#, (b"<&\"\\/\t\r\0\xe2\x80\xa8", true)),
            (r#""\ud83d\ude00\n""#, ("\u{1f600}".as_bytes(), true)),
            (r#""é\ufffd\n""#, ("é\u{fffd}".as_bytes(), true)),
        ] {
            check(of(log), Some((Stdout, want.0, want.1)));
        }
        // Halves of surrogates, and bytes that are no UTF-8.
        for log in [
            &br#""a\ud83dz\n""#[..],
            br#""a\ude00z\n""#,
            br#""a\ud83d\u0041z\n""#,
            b"\"a\xffz\\n\"",
        ] {
            let line = [
                b"{\"log\":",
                log,
                b",\"stream\":\"stdout\",\"time\":\"",
                STAMP.as_bytes(),
                b"\"}\n",
            ];
            let line = line.concat();
            let entry = parse(&line).unwrap();
            let text = std::str::from_utf8(&entry.text).unwrap();
            assert!(text.starts_with("a\u{fffd}") && text.ends_with('z'), "{text:?}");
        }
        let other =
            format!(r#" {{"time":"{STAMP}","attrs":{{"a":["b"]}},"stream":"stderr","log":"x\n"}}"#);
        check(&other[1..], Some((Stderr, b"x", false)));
        check(other[1..].to_owned() + "\n", Some((Stderr, b"x", true)));
        for bad in [
            "{\n".to_owned(),
            "{}\n".to_owned(),
            of("\"x\\n\"").replace("stdout", "stdin"),
            of("\"x\\n\"").replace(STAMP, "today"),
            of("\"x\\n\"").replace("\"}", "\"} {}"),
            of("1"),
            of("\"\\x\""),
            of("\"x\\n\"")[..40].to_owned(),
            other,
        ] {
            check(bad, None);
        }
    }

    proptest! {
        /// Whatever the app writes comes out as it is.
        #[test]
        fn any_text_is_read_back(
            text in prop::collection::vec(any::<u8>().prop_filter("ends", |b| *b != b'\n'), 0..60),
            ends: bool,
        ) {
            let line = [STAMP.as_bytes(), b" stderr ", if ends { b"F " } else { b"P " }, &text, b"\n"];
            check(line.concat(), Some((Stream::Stderr, &text, ends)));
            let text = String::from_utf8_lossy(&text).into_owned();
            let log = text.clone() + if ends { "\n" } else { "" };
            let line = serde_json::json!({"log": log, "stream": "stdout", "time": STAMP});
            check(line.to_string() + "\n", Some((Stream::Stdout, text.as_bytes(), ends)));
        }

        /// No bytes at all are more than an error.
        #[test]
        fn rubbish_is_refused(line: Vec<u8>, cut in 0usize..90) {
            let _ = parse(&line);
            let whole = format!(r#"{{"log":"\ud83d\ude00","stream":"stdout","time":"{STAMP}"}}"#);
            let cut = cut.min(whole.len() - 1);
            prop_assert!(parse(&whole.as_bytes()[..cut]).is_err());
        }
    }
}
