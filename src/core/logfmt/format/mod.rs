//! The table of log formats. No I/O, no clock.
//!
//! CONTRIBUTING.md has the steps to add a format.

pub mod cast;
pub(crate) mod cri;
mod journal;
pub(crate) mod journald;
mod json_file;
mod raw;

use super::encoder::{FormatReader, LogFormat};
use super::entry::LoggedEntry;

/// All formats, in the order of `--help`.
pub static FORMATS: [&LogFormat; 6] = [
    &journal::FORMAT,
    &cri::FORMAT,
    &json_file::FORMAT,
    &raw::FORMAT,
    &journald::FORMAT,
    &cast::FORMAT,
];

/// The format with this name.
pub fn find(name: &str) -> Option<&'static LogFormat> {
    FORMATS.into_iter().find(|format| format.name == name)
}

fn readers() -> impl Iterator<Item = &'static FormatReader> {
    FORMATS.into_iter().filter_map(|format| format.reader.as_ref())
}

/// Parses an entry of any format. An entry without a line end is incomplete or torn off, and does
/// not end a line. If no format matches, the error is that of the first one.
pub(crate) fn parse(line: &[u8]) -> Result<LoggedEntry<'_>, &'static str> {
    let (line, is_whole) = line.strip_suffix(b"\n").map_or((line, false), |line| (line, true));
    let reader = readers().find(|reader| (reader.begins)(line)).or_else(|| readers().next());
    let mut entry = (reader.ok_or("no format can be read")?.parse)(line)?;
    entry.ends &= is_whole;
    Ok(entry)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::stream::Stream;
    use crate::types::time::Stamp;
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
            // The rules of the format.
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
        /// All output of the app comes out unchanged.
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
