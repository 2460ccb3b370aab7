//! What is in the logs.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::stage::Sink;

impl Sink {
    /// The lines of a log, their parts put together.
    pub fn lines(self, disk: &Path) -> Vec<Vec<u8>> {
        let log = files(disk, self.file());
        let lines = log.split(|byte| *byte == b'\n');
        match self {
            Self::Cri => lines_of(lines.map(cri)),
            Self::JsonFile => lines_of(lines.map(json_file)),
            _ => lines.map(<[u8]>::to_vec).collect(),
        }
    }

    /// The name of a log.
    fn file(self) -> &'static str {
        match self {
            Self::Cri => "cri",
            Self::JsonFile => "json",
            Self::Raw => "raw",
            Self::Attach | Self::Input => unreachable!("it is not a log"),
        }
    }
}

/// What is in the files of a log, the oldest first.
fn files(disk: &Path, name: &str) -> Vec<u8> {
    let names = fs::read_dir(disk).unwrap();
    let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    // NAME-001 is older than NAME-002, NAME.2 than NAME.1, and both than NAME.
    let age = |file: &str| {
        let rest = file.strip_prefix(name)?.trim_end_matches(".gz");
        let number = |rest: &str| rest[1..].parse::<i64>().unwrap();
        Some(match rest.chars().next() {
            Some('-') => number(rest) - 1_000_000,
            Some('.') => -number(rest),
            _ => 0,
        })
    };
    let mut files: Vec<_> = names.filter_map(|file| Some((age(&file)?, file))).collect();
    files.sort();
    let mut all = Vec::new();
    for (at, (_, file)) in files.iter().enumerate() {
        let text = read(&disk.join(file));
        let end = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        // An entry that did not fit into a file is whole in the next one; bytes go on there.
        let is_whole = name == "raw" || at + 1 == files.len();
        all.extend_from_slice(if is_whole { &text } else { &text[..end] });
    }
    all
}

pub fn is_compressed(file: &Path) -> bool {
    file.extension().is_some_and(|extension| extension == "gz")
}

fn read(file: &Path) -> Vec<u8> {
    if is_compressed(file) {
        Command::new("gzip").arg("-dc").arg(file).output().unwrap().stdout
    } else {
        fs::read(file).unwrap()
    }
}

/// An entry of a log: its stream, its text, and whether it ends a line; nothing of what is no entry.
type Entry = Option<(String, Vec<u8>, bool)>;

fn cri(line: &[u8]) -> Result<Entry, Vec<u8>> {
    if line.is_empty() {
        return Ok(None);
    }
    let mut fields = line.splitn(4, |byte| *byte == b' ');
    let mut word = || String::from_utf8_lossy(fields.next().unwrap_or_default()).into_owned();
    let (stamp, stream, tag) = (word(), word(), word());
    let is_entry = stamp.len() == 30 && stamp.ends_with('Z') && (tag == "P" || tag == "F");
    match fields.next() {
        Some(text) if is_entry => Ok(Some((stream, text.to_vec(), tag == "F"))),
        _ => Err(line.to_vec()),
    }
}

fn json_file(line: &[u8]) -> Result<Entry, Vec<u8>> {
    if line.is_empty() {
        return Ok(None);
    }
    let Ok(entry) = serde_json::from_slice::<Value>(line) else { return Err(line.to_vec()) };
    let (Some(text), Some(stream)) = (entry["log"].as_str(), entry["stream"].as_str()) else {
        return Err(line.to_vec());
    };
    let whole = text.strip_suffix('\n');
    let bytes = whole.unwrap_or(text).as_bytes().to_vec();
    Ok(Some((stream.to_owned(), bytes, whole.is_some())))
}

/// The lines of a log, their parts put together.
fn lines_of(entries: impl Iterator<Item = Result<Entry, Vec<u8>>>) -> Vec<Vec<u8>> {
    let mut parts: BTreeMap<String, Vec<u8>> = BTreeMap::new();
    let mut lines = Vec::new();
    for entry in entries {
        match entry {
            Ok(Some((stream, text, is_end))) => {
                let part = parts.entry(stream).or_default();
                part.extend_from_slice(&text);
                if is_end {
                    lines.push(std::mem::take(part));
                }
            }
            Ok(None) => {}
            Err(torn) => lines.push(torn),
        }
    }
    lines.extend(parts.into_values());
    lines
}
