//! Recordings of terminals: the output, the sizes and the marks of a file in asciicast format.

use std::path::Path;
use std::{fs, io};

use iottymux::types::size::Size;
use serde_json::{Value, json};

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    Output(Vec<u8>),
    Size(Size),
    /// What has been reached, see [`Situation`](crate::situations::Situation).
    Mark(String),
}

/// The events in this text, up to the last complete line.
pub fn parse(text: &str) -> Vec<Event> {
    let complete = &text[..text.rfind('\n').map_or(0, |at| at + 1)];
    // After the header.
    complete.lines().skip(1).map(event).collect()
}

fn event(line: &str) -> Event {
    let (_, kind, text): (f64, char, String) = serde_json::from_str(line).unwrap();
    match kind {
        'o' => Event::Output(text.into_bytes()),
        'm' => Event::Mark(text),
        'r' => {
            let (cols, rows) = text.split_once('x').unwrap();
            Event::Size(Size { rows: rows.parse().unwrap(), cols: cols.parse().unwrap() })
        }
        _ => panic!("unknown event: {line}"),
    }
}

/// Writes events without their times: pieces of output that follow each other are one.
pub fn write(path: &Path, first: Size, events: &[Event]) -> io::Result<()> {
    let header = json!({ "version": 2, "width": first.cols, "height": first.rows });
    let mut lines: Vec<Value> = vec![header];
    let mut output = Vec::new();
    for event in events.iter().chain([&Event::Mark(String::new())]) {
        let (kind, text) = match event {
            Event::Output(bytes) => {
                output.extend_from_slice(bytes);
                continue;
            }
            Event::Size(Size { rows, cols }) => ("r", format!("{cols}x{rows}")),
            Event::Mark(name) => ("m", name.clone()),
        };
        if !output.is_empty() {
            lines.push(json!([0, "o", String::from_utf8_lossy(&output)]));
            output.clear();
        }
        lines.push(json!([0, kind, text]));
    }
    lines.pop();
    let lines: Vec<String> = lines.iter().map(|line| line.to_string() + "\n").collect();
    fs::write(path, lines.concat())
}
