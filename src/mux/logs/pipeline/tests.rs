//! Muxes that are killed at any moment: each file has what the app wrote, once.

use std::os::fd::OwnedFd;
use std::path::Path;

use super::log_memory::{LogMemory, MemoryLayout};
use super::{Log, LogOptions};
use crate::core::hub::Hub;
use crate::core::hub::memory::{Memory, WORDS, rings_len};
use crate::core::logfmt::chunk::Lost;
use crate::core::logfmt::encoder::{FormatOptions, LogFormat};
use crate::core::logfmt::format::cast::Cast;
use crate::core::logfmt::format::find;
use crate::core::logfmt::path::LogPath;
use crate::mux::kept_memory::MemoryPiece;
use crate::mux::logs::file::{LogFile, Rotation};
use crate::mux::logs::writer::ByHand;
use crate::sys::calls;
use crate::types::limits;
use crate::types::record::kills;
use crate::types::size::Size;
use crate::types::stream::{Epoch, Stream};
use crate::types::time::Now;

const SIZE: Size = Size { rows: 24, cols: 80 };
/// Bytes of a ring: less than what the chunks have.
const BACKLOG: usize = 4096;
/// How many muxes run in a row, at most.
const MUXES: u64 = 20;

/// What outlives a mux.
struct World {
    format: &'static LogFormat,
    streams: &'static [Stream],
    rotation: Option<Rotation>,
    dir: tempfile::TempDir,
    hub: OwnedFd,
    log: OwnedFd,
    /// What the app writes, in pieces, and how many are written.
    script: Vec<(Stream, Vec<u8>)>,
    at: usize,
}

impl World {
    fn new(format: &str, rotation: Option<Rotation>) -> Self {
        let format = find(format).unwrap();
        let streams: &[_] = if format.records_terminal {
            &[Stream::Tty]
        } else {
            &[Stream::Stdout, Stream::Stderr]
        };
        let layout = MemoryLayout::new(&*format.encoder(&FormatOptions::default()), &options());
        let (hub, log) = (memory((WORDS, rings_len(streams, BACKLOG))), memory(layout.size()));
        let (dir, script) = (tempfile::tempdir().unwrap(), script(streams));
        Self { format, streams, rotation, dir, hub, log, script, at: 0 }
    }

    fn file(&self) -> LogFile {
        let path = LogPath::free(&self.dir.path().join("log")).unwrap();
        let cast = self.format.records_terminal.then(|| Cast::new("xterm".into(), SIZE));
        LogFile::new(path, self.format, self.rotation, cast)
    }

    fn hub(&self) -> Hub {
        let rings = rings_len(self.streams, BACKLOG);
        let (words, rings) = calls::map_memory(&self.hub, 0, WORDS, rings).unwrap().unwrap();
        Hub::new(self.streams, BACKLOG, Memory { words, rings }, Epoch(7))
    }

    /// The parts of a mux that takes over.
    fn open(&self) -> (Hub, Log, ByHand) {
        let mut hub = self.hub();
        let encoder = self.format.encoder(&FormatOptions::default());
        let layout = MemoryLayout::new(&*encoder, &options());
        let (words, bytes) = layout.size();
        let (words, bytes) = calls::map_memory(&self.log, 0, words, bytes).unwrap().unwrap();
        let (writer, thread) = ByHand::new(self.file());
        let piece = MemoryPiece { words, bytes, was_stored: true };
        let parts = (writer, LogMemory::new(layout, piece));
        let log = Log::new("test".into(), encoder, options(), parts, &mut hub);
        (hub, log, thread)
    }

    /// A mux that takes over and goes on to the end of the app.
    fn mux(&mut self) {
        let (mut hub, mut log, mut thread) = self.open();
        self.at = self.written_pieces(&hub);
        while let Some((stream, text)) = self.script.get(self.at) {
            write(&mut hub, *stream, text);
            self.at += 1;
            log.advance(&mut hub, Now::read().at);
            // The thread is behind, and sometimes a chunk waits for the loop.
            let steps = [0, 0, 1, 0, 2][self.at % 5];
            let _ = (0..steps).take_while(|_| thread.step()).count();
            if self.at.is_multiple_of(3) {
                hear(&mut log, &mut hub);
            }
            while hub.unread_first(log.id).is_some() {
                if !thread.step() {
                    // One stream waits for the end of the other one's line, but not for long.
                    log.advance(&mut hub, Now::read().at + 2 * limits::LOG_FLUSH);
                }
                hear(&mut log, &mut hub);
            }
        }
        self.end(hub, log, thread);
    }

    /// How many pieces of the script this hub has.
    fn written_pieces(&self, hub: &Hub) -> usize {
        let mut left = Stream::ALL.map(|stream| hub.extent(stream).map_or(0, |(end, _)| end));
        let is_written = |(stream, text): &&(Stream, Vec<u8>)| {
            let left = &mut left[*stream as usize];
            left.checked_sub(text.len() as u64).map(|rest| *left = rest).is_some()
        };
        self.script.iter().take_while(is_written).count()
    }

    /// The mux ends with its app. Returns what the target has.
    fn end(&self, mut hub: Hub, mut log: Log, mut thread: ByHand) -> String {
        while !log.finish(&mut hub, false, Now::read().at) {
            thread.step();
            hear(&mut log, &mut hub);
        }
        String::from_utf8_lossy(&std::fs::read(self.dir.path().join("log")).unwrap()).into_owned()
    }

    /// Muxes until one comes to its end; the first one is killed after so many moments, and some
    /// others soon. Returns the moments of the last one.
    fn run(&mut self, moments: u64) -> u64 {
        for mux in 0..MUXES {
            let moments = match mux {
                0 => moments,
                1..4 => 1 + moments * mux * 31 % 199,
                _ => u64::MAX,
            };
            if let Some(moments) = kills::run(moments, || self.mux()) {
                return moments;
            }
        }
        panic!("no mux came to its end");
    }

    /// The files, the oldest first.
    fn text(&self) -> String {
        let name = |number: u32| self.dir.path().join(format!("log.{number}"));
        let rotated = (1..100).rev().map(name);
        let read = |path: &Path| std::fs::read_to_string(path).unwrap_or_default();
        let all = rotated.chain([self.dir.path().join("log")]);
        all.map(|path| read(&path)).collect()
    }

    /// What the app wrote to a stream.
    fn written(&self, stream: Stream) -> String {
        let pieces = self.script.iter().filter(|(of, _)| *of == stream);
        pieces.map(|(_, text)| str::from_utf8(text).unwrap()).collect()
    }

    fn check(&self, moments: u64) {
        let text = self.text();
        for stream in self.streams {
            let logged = match self.format.name {
                "cri" => text.lines().map(|line| cri(line, *stream)).collect(),
                "json-file" => text.lines().map(|line| json_file(line, *stream)).collect(),
                "raw" => {
                    let letter = letter(*stream);
                    text.split_inclusive('\n').filter(|line| line.starts_with(letter)).collect()
                }
                _ => recorded(&text),
            };
            assert!(
                logged == self.written(*stream),
                "killed after {moments} moments: {} of {} bytes of {stream:?} are in the log:\n{text}",
                logged.len(),
                self.written(*stream).len()
            );
        }
    }
}

fn memory((words, bytes): (usize, usize)) -> OwnedFd {
    calls::new_memory("test", words * size_of::<u64>() + bytes).unwrap()
}

fn options() -> LogOptions {
    LogOptions { line_limit: 100, chunk: 4096, ..LogOptions::default() }
}

/// The app writes this.
fn write(hub: &mut Hub, stream: Stream, text: &[u8]) {
    let [a, b] = hub.space(stream, text.len());
    let (head, tail) = text.split_at(a.len());
    a.copy_from_slice(head);
    b.copy_from_slice(tail);
    hub.commit(stream, text.len(), Now::read());
}

/// Handles the events of the thread.
fn hear(log: &mut Log, hub: &mut Hub) {
    while let Some(event) = log.writer().receive() {
        log.on_event(event, Now::read().at);
    }
    log.advance(hub, Now::read().at);
}

fn letter(stream: Stream) -> char {
    if stream == Stream::Stderr { 'e' } else { 'o' }
}

/// Numbered lines in pieces that end amid lines; some lines are longer than an entry, as is the
/// first one, of which a mux has a part when it is killed before it knows of anything written.
fn script(streams: &[Stream]) -> Vec<(Stream, Vec<u8>)> {
    let mut texts = streams.iter().map(|stream| {
        let line = |number: usize| {
            let is_long = number == 0 && *stream != Stream::Stderr || number % 40 == 39;
            let filler = "x".repeat(if is_long { 250 } else { number * 7 % 60 });
            format!("{}{number} {filler}\n", letter(*stream))
        };
        (*stream, (0..250).map(line).collect::<String>())
    });
    let mut rests: Vec<_> = texts.by_ref().collect();
    let mut script = Vec::new();
    let mut write = |(stream, rest): &mut (Stream, String), len: usize| {
        let piece: String = rest.drain(..len.min(rest.len())).collect();
        if !piece.is_empty() {
            script.push((*stream, piece.into_bytes()));
        }
    };
    // The parts of the first line have nothing between them.
    for len in [150, 150] {
        write(&mut rests[0], len);
    }
    let mut lens = [1, 700, 30, 1500, 2, 999, 90].into_iter().cycle();
    while rests.iter().any(|(_, rest)| !rest.is_empty()) {
        let len = lens.next().unwrap_or_default();
        for rest in &mut rests {
            write(rest, len);
        }
    }
    script
}

fn cri(line: &str, stream: Stream) -> String {
    let [stamp, of, tag, text] = line.splitn(4, ' ').collect::<Vec<_>>()[..] else {
        panic!("torn: {line}")
    };
    assert!(stamp.len() == 30 && ["P", "F"].contains(&tag), "torn: {line}");
    let end = if tag == "F" { "\n" } else { "" };
    if of == stream.name() { format!("{text}{end}") } else { String::new() }
}

fn json_file(line: &str, stream: Stream) -> String {
    let entry: serde_json::Value = serde_json::from_str(line).unwrap();
    let text = if entry["stream"] == stream.name() { entry["log"].as_str() } else { None };
    text.unwrap_or_default().to_owned()
}

fn recorded(text: &str) -> String {
    let mut lines = text.lines();
    assert!(lines.next().unwrap().starts_with("{\"version\":2,"));
    let mut last = 0.0;
    let event = |line| {
        let (time, kind, text): (f64, char, String) = serde_json::from_str(line).unwrap();
        assert!(time >= last && kind == 'o', "{line}");
        last = time;
        text
    };
    lines.map(event).collect()
}

/// Kills muxes of this log, the first one at every `step`th moment.
fn kill_everywhere(format: &str, rotation: Option<Rotation>, step: u64) {
    let mut world = World::new(format, rotation);
    let all = world.run(u64::MAX);
    world.check(all);
    if rotation.is_some() {
        assert!(world.dir.path().join("log.3").exists());
    }
    let step = if std::env::var_os("IOTTYMUX_LONG").is_some() { 1 } else { step };
    for moments in (1..all).step_by(usize::try_from(step).unwrap()) {
        let mut world = World::new(format, rotation);
        world.run(moments);
        world.check(moments);
    }
    println!("{format}: {} of {all} moments", all / step);
}

#[test]
fn a_file_has_each_line_once_whenever_its_muxes_are_killed() {
    for format in ["cri", "json-file", "raw"] {
        kill_everywhere(format, None, 37);
    }
}

#[test]
fn a_recording_has_each_event_once_whenever_its_muxes_are_killed() {
    kill_everywhere("cast", None, 37);
}

#[test]
fn rotated_files_have_each_line_once_whenever_their_muxes_are_killed() {
    kill_everywhere("cri", Some(Rotation { size: 8192, files: 100 }), 37);
}

/// The text of a stream as a reader of CRI shows it: a part has no line end.
fn shown_of_cri(log: &str, stream: Stream) -> String {
    log.lines().map(|line| cri(line, stream)).collect()
}

fn shown_of_json_file(log: &str, stream: Stream) -> String {
    log.lines().map(|line| json_file(line, stream)).collect()
}

/// As a reader that joins `CONTAINER_PARTIAL_MESSAGE`.
fn shown_of_journald(log: &str, stream: Stream) -> String {
    let entries = log.split("SYSLOG_IDENTIFIER").skip(1);
    let of_stream = format!("IOTTYMUX_STREAM={}\n", stream.name());
    let text = |entry: &str| {
        let text = entry.split_once("\nMESSAGE=").unwrap().1.split_once('\n').unwrap().0;
        let end = if entry.contains("PARTIAL") { "" } else { "\n" };
        format!("{text}{end}")
    };
    entries.filter(|entry| entry.contains(&of_stream)).map(text).collect()
}

/// In the log of a service each message is a line. Its text is behind its length.
fn shown_of_journal(log: &str, stream: Stream) -> String {
    let log = shown_of_journald(&log.replace("MESSAGE\n", "MESSAGE="), stream);
    let text = |line: &str| line.trim_start_matches(|c: char| !c.is_alphabetic()).to_owned();
    log.lines().map(|line| text(line) + "\n").collect()
}

/// The app writes a part of a line, and the target gets it.
fn write_half(hub: &mut Hub, log: &mut Log, thread: &mut ByHand, (stream, half): (Stream, &str)) {
    let mut now = Now::read().at;
    for piece in half.as_bytes().chunks(BACKLOG) {
        write(hub, stream, piece);
        log.advance(hub, now);
    }
    // First the other stream waits, then the unfinished line.
    for _ in 0..4 {
        now += 2 * limits::LOG_FLUSH;
        log.advance(hub, now);
        while thread.step() {}
        hear(log, hub);
    }
}

/// The unfinished line of each of these streams, if there is one, is in the target when lines are
/// lost; then the app ends it. Returns what the target has.
fn log_with_marker(format: &str, halves: &[Stream], half: &str, takes_over: bool) -> String {
    let world = World::new(format, None);
    let (mut hub, mut log, mut thread) = world.open();
    for stream in halves {
        write_half(&mut hub, &mut log, &mut thread, (*stream, half));
    }
    if takes_over {
        drop((log, thread));
        (hub, log, thread) = world.open();
    }
    // The second loss finds nothing that is unfinished.
    for line in ["rest\n", "next\n"] {
        log.losses.count(Lost { lines: 3, bytes: 30 }, Now::read().stamp);
        for stream in world.streams {
            write(&mut hub, *stream, line.as_bytes());
        }
        log.advance(&mut hub, Now::read().at);
        while thread.step() {}
        hear(&mut log, &mut hub);
    }
    world.end(hub, log, thread)
}

#[test]
fn a_marker_is_a_line_of_its_own() {
    use Stream::{Stderr, Stdout};
    type Reader = fn(&str, Stream) -> String;
    let long = "x".repeat(limits::JOURNAL_LINE);
    let formats: [(_, _, Reader); 4] = [
        ("cri", "half", shown_of_cri),
        ("json-file", "half", shown_of_json_file),
        ("container-journal", "half", shown_of_journald),
        // Only a line that is too long has parts.
        ("journal", &format!("{long}y"), shown_of_journal),
    ];
    let marker = "iottymux: 3 lines (30 bytes) were lost here";
    for takes_over in [false, true] {
        for halves in [&[][..], &[Stdout], &[Stderr], &[Stdout, Stderr]] {
            for (format, half, shown) in formats {
                let log = log_with_marker(format, halves, half, takes_over);
                for stream in [Stdout, Stderr] {
                    let (begin, rest) = match (halves.contains(&stream), format) {
                        (false, _) => (vec![], "rest"),
                        (true, "journal") => (vec![long.as_str()], "yrest"),
                        (true, _) => (vec![half], "rest"),
                    };
                    let markers = if stream == Stderr { &[marker][..] } else { &[] };
                    let want = [&begin, markers, &[rest], markers, &["next"]].concat();
                    let got = shown(&log, stream);
                    let what = format!("{format}, {halves:?}, {stream:?}, {takes_over}");
                    assert_eq!(got.lines().collect::<Vec<_>>(), want, "{what}:\n{log}");
                }
            }
            let log = log_with_marker("raw", halves, "half", takes_over);
            let half = "half".repeat(halves.len());
            let begin = if halves.is_empty() { vec![] } else { vec![half.as_str()] };
            let want = [&begin[..], &[marker, "rest", "rest", marker, "next", "next"]].concat();
            assert_eq!(log.lines().collect::<Vec<_>>(), want, "raw, {halves:?}, {takes_over}");
        }
        let log = log_with_marker("cast", &[Stream::Tty], "half", takes_over);
        let events = log.lines().skip(1).map(|line| serde_json::from_str(line).unwrap());
        let events = events.map(|(_, kind, text): (f64, char, String)| (kind, text));
        let want = [('o', "half"), ('m', "iottymux: 30 bytes were lost here"), ('o', "rest\n")];
        let want = [&want[..], &[want[1], ('o', "next\n")]].concat();
        assert!(events.eq(want.iter().map(|(kind, text)| (*kind, (*text).to_owned()))), "{log}");
    }
}
