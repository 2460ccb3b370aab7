//! What a log costs the allocator: nothing for each line, once it runs.

#![expect(
    unsafe_code,
    reason = "an allocator that counts is one, and hands all on to the system's"
)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::AtomicU64;

use iottymux::core::hub::memory::{Memory, WORDS, rings_len};
use iottymux::core::hub::{Hub, Room};
use iottymux::core::logfmt::buffer::Buffer;
use iottymux::core::logfmt::encoder::FormatOptions;
use iottymux::core::logfmt::format::FORMATS;
use iottymux::core::logfmt::format::cast::Cast;
use iottymux::core::logfmt::path::LogPath;
use iottymux::core::logfmt::stamp::StampText;
use iottymux::mux::logs::file::LogFile;
use iottymux::mux::logs::pipeline::log_memory::LogMemory;
use iottymux::mux::logs::pipeline::{Log, LogOptions};
use iottymux::mux::logs::writer::{LogSink, LogWriter};
use iottymux::types::size::Size;
use iottymux::types::stream::{Epoch, Stream};
use iottymux::types::time::Now;

use crate::proc::WATCHDOG;
use crate::rig::Rig;

/// The system's, counting what each thread asks of it.
struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

thread_local! {
    static ASKED: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: the system's allocator does everything.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // A thread that ends has no count any more.
        let _ = ASKED.try_with(|asked| asked.set(asked.get() + 1));
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(block, layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        let _ = ASKED.try_with(|asked| asked.set(asked.get() + 1));
        // SAFETY: as the caller promises.
        unsafe { System.realloc(block, layout, size) }
    }
}

/// How often this thread asks for memory while it does this.
fn asked_by(work: impl FnOnce()) -> u64 {
    let before = ASKED.get();
    work();
    ASKED.get() - before
}

const LIMIT: usize = 1000;

/// Lines as they come: usual ones, empty ones, long ones, some that are no text, and a half one.
fn lines() -> Vec<u8> {
    let mut text = Vec::new();
    for number in 0..200 {
        text.extend(format!("{number} a usual line\n\n<3>\x1b[31mred\u{e9}\x1b[0m\n").bytes());
        text.extend(b"\xff\xfe\"<&>\t\n");
        text.extend([&vec![b'x'; number * 20], &b"\n"[..]].concat());
    }
    text.extend(b"prompt$ ");
    text
}

fn options() -> FormatOptions {
    let unit = Some("demo.service".to_owned());
    FormatOptions { app: "demo".into(), unit, ..FormatOptions::default() }
}

#[test]
fn the_counter_counts_allocations() {
    let mut vec = Vec::new();
    assert_eq!(asked_by(|| vec.push(1)), 1);
    assert_eq!(asked_by(|| vec.reserve(1000)), 1);
    assert_eq!(asked_by(|| vec.push(2)), 0);
}

#[test]
fn lines_are_split_and_encoded_without_memory() {
    let text = lines();
    for format in FORMATS {
        let mut encoder = format.encoder(&options());
        let mut splitter = encoder.splitter(LIMIT);
        let mut memory = vec![0; encoder.worst(text.len()) * 100];
        let mut out = Buffer::new(&mut memory);
        let mut entries = 0;
        let mut round = |piece: usize| {
            out.clear();
            for piece in text.chunks(piece) {
                let stamp = StampText::new(Now::read().stamp);
                for stream in Stream::PLAIN.into_iter().filter(|stream| stream.is_output()) {
                    let mut rest = piece;
                    while let Some(entry) = splitter.next(stream, &mut rest) {
                        encoder.encode(&mut out, &stamp, &entry);
                        entries += 1;
                    }
                }
            }
            if let Some(entry) = splitter.flush(Stream::Stdout, false) {
                encoder.encode(&mut out, &StampText::new(Now::read().stamp), &entry);
            }
        };
        // What is kept of half a line, or of a read, grows to its limit once.
        [7, 65_536].into_iter().for_each(&mut round);
        assert_eq!(asked_by(|| [1, 7, 100, 4096, 65_536].into_iter().for_each(&mut round)), 0);
        assert!(entries > 10_000, "{format:?}");
    }
}

/// A hub whose app has stdout and stderr.
fn hub() -> Hub {
    let backlog = 256 * 1024;
    let words = (0..WORDS).map(|_| AtomicU64::new(0)).collect::<Vec<_>>().leak();
    let rings = vec![0; rings_len(&Stream::PLAIN, backlog)].leak();
    Hub::new(&Stream::PLAIN, backlog, Memory { words, rings }, Epoch(1))
}

/// The app writes, as far as there is room; how many bytes.
fn write(hub: &mut Hub, text: &[u8]) -> usize {
    let now = Now::read();
    let Room::Free(room) = hub.make_room(Stream::Stdout, now.at) else { return 0 };
    let len = room.min(text.len());
    let [a, b] = hub.space(Stream::Stdout, len);
    let (head, tail) = text[..len].split_at(a.len());
    a.copy_from_slice(head);
    b.copy_from_slice(tail);
    hub.commit(Stream::Stdout, len, now);
    len
}

#[test]
fn a_log_that_runs_asks_for_nothing_for_a_line() {
    let rig = Rig::new();
    let text = lines();
    let ends = text.split(|byte| *byte == b'\n').count() - 1;
    // Chunks as many as can be, so that what they cost is seen.
    let log_options = LogOptions { line_limit: LIMIT, chunk: 16 * 1024, ..LogOptions::default() };
    for (at, format) in FORMATS.into_iter().enumerate() {
        let path = LogPath::free(&rig.file(&at.to_string())).unwrap();
        let encoder = format.encoder(&options());
        let size = Size { rows: 24, cols: 80 };
        let cast = format.records_terminal.then(|| Cast::new("xterm".into(), size));
        let file = LogFile::new(path, format, None, cast);
        let writer = LogWriter::start("x", LogSink::File(Box::new(file))).unwrap();
        let mut hub = hub();
        let parts = (writer, LogMemory::unkept(&*encoder, &log_options));
        let mut log = Log::new("x".into(), encoder, log_options, parts, &mut hub);
        let mut run = |rounds: usize| {
            let mut todo = rounds * text.len();
            let mut chunks = 0;
            let mut from = 0;
            while todo > 0 {
                let len = write(&mut hub, &text[from..]);
                (todo, from) = (todo - len, (from + len) % text.len());
                log.advance(&mut hub, Now::read().at);
                if len == 0 {
                    log.writer().mailbox.wait(WATCHDOG);
                }
                log.writer().mailbox.clear();
                while let Some(event) = log.writer().receive() {
                    log.on_event(event, Now::read().at);
                    chunks += 1;
                }
            }
            chunks
        };
        run(2);
        let mut chunks = 0;
        let asked = asked_by(|| chunks = run(50));
        println!("{} lines in {chunks} chunks: {asked}", ends * 50);
        assert!(chunks > 100);
        // The channel to the writer has room for some chunks, then for some more.
        assert!(asked <= chunks / 16 + 1, "{asked} for {chunks} chunks");
    }
}
