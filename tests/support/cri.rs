//! A reader of CRI logs, as strict as the strictest that people use.

/// An entry of a CRI log.
#[derive(Debug, PartialEq, Eq)]
pub struct Entry<'a> {
    pub stamp: &'a str,
    pub stream: &'a str,
    /// Whether it ends a line.
    pub last: bool,
    pub text: &'a [u8],
}

/// Where a stamp has digits, and what else it has.
const STAMP: &[u8] = b"0000-00-00T00:00:00.000000000Z";

/// The entries of a CRI log. It takes only what the kubelet and podman both take: a stamp of nine
/// digits in UTC, one space after each field, also before an empty text, and a line end at the end.
/// Stamps do not go back.
pub fn cri(log: &[u8]) -> Vec<Entry<'_>> {
    let mut entries: Vec<Entry<'_>> = Vec::new();
    let Some(log) = log.strip_suffix(b"\n") else {
        assert!(log.is_empty(), "it ends in the middle: {}", log.escape_ascii());
        return entries;
    };
    for (at, line) in log.split(|byte| *byte == b'\n').enumerate() {
        let bad = || panic!("entry {at}: {}", line.escape_ascii());
        let mut fields = line.splitn(4, |byte| *byte == b' ');
        let mut word = || str::from_utf8(fields.next().unwrap_or_else(bad)).unwrap();
        let (stamp, stream, tag) = (word(), word(), word());
        let like = |(byte, want): (u8, &u8)| match want {
            b'0' => byte.is_ascii_digit(),
            want => byte == *want,
        };
        let is_right = stamp.len() == STAMP.len()
            && stamp.bytes().zip(STAMP).all(like)
            && ["stdout", "stderr"].contains(&stream)
            && ["P", "F"].contains(&tag)
            && entries.last().is_none_or(|before| before.stamp <= stamp);
        assert!(is_right, "entry {at}: {}", line.escape_ascii());
        let text = fields.next().unwrap_or_else(bad);
        entries.push(Entry { stamp, stream, last: tag == "F", text });
    }
    entries
}

/// The bytes of a stream, of which these are the entries.
pub fn joined(entries: &[Entry<'_>], stream: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    for entry in entries.iter().filter(|entry| entry.stream == stream) {
        bytes.extend_from_slice(entry.text);
        bytes.extend_from_slice(if entry.last { b"\n" } else { b"" });
    }
    bytes
}
