//! Readers take our files whole, whatever the app writes and however it comes.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::Command;

use nix::sys::signal::Signal;

use crate::cri::{cri, joined};
use crate::pattern::volume;
use crate::proc::Said;
use crate::random::{Random, seed};
use crate::rig::{APP, Rig};
use crate::skip::skip;

const GOLDEN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/golden");

/// Bytes as apps write them, and worse: text, colours, controls, anything.
fn nasty(random: &mut Random) -> Vec<u8> {
    let mut bytes = Vec::new();
    for _ in 0..random.below(40) {
        match random.below(8) {
            0 => bytes.push(b'\n'),
            1 => {
                let len = random.below(200);
                bytes.extend(random.bytes(len));
            }
            2 => {
                let special = ["\r\n", "\u{e9}", "\u{1f600}", "\u{2028}", "\0"];
                bytes.extend(random.pick(&special).bytes());
            }
            3 => bytes.extend(b"\x1b[1;38;5;196m"),
            4 => bytes.extend(random.pick(&["<3>", "stdout P ", "{\"log\":\"", "2016 "]).bytes()),
            5 => bytes.extend(vec![random.byte(); random.below(3000)]),
            _ => bytes.extend(b"a usual line\n"),
        }
    }
    bytes
}

#[test]
fn any_bytes_in_any_pieces_are_read_back() {
    let mut random = Random::new(seed());
    for _ in 0..volume(25, 500) {
        let rig = Rig::new();
        let (log, json, raw) = (rig.file("cri"), rig.file("json"), rig.file("raw"));
        let limit = random.pick(&["1", "7", "100", "1000", "16384"]);
        let flush = random.pick(&["0.001", "1"]);
        let specs = [("cri", &log), ("json-file", &json), ("raw", &raw)]
            .map(|(f, p)| format!("{f}:{}", p.display()));
        let mut mux = rig.mux([
            "stream",
            "--app",
            APP,
            "--log",
            &specs[0],
            "--log",
            &specs[1],
            "--log",
            &specs[2],
            "--log-line-limit",
            limit,
            "--log-flush",
            flush,
        ]);
        // What somebody sees, a mux need not wait with.
        let _seen = ["stdout", "stderr"].map(|stream| Said::follow(rig.client(stream)));
        let mut app = [(rig.writer("stdout"), Vec::new()), (rig.writer("stderr"), Vec::new())];
        for _ in 0..random.below(20) {
            let (to, said) = &mut app[random.below(2)];
            let bytes = nasty(&mut random);
            for piece in random.cut(&bytes) {
                to.write_all(piece).unwrap();
            }
            said.extend(bytes);
            if random.one_in(3) {
                mux.rests();
            }
        }
        mux.signal(Signal::SIGTERM);
        assert_eq!(mux.ends(), 0);
        let limit: usize = limit.parse().unwrap();
        let log = fs::read(log).unwrap();
        let entries = cri(&log);
        assert!(entries.iter().all(|entry| entry.text.len() <= limit));
        let json = fs::read_to_string(json).unwrap();
        for (stream, (_, said)) in ["stdout", "stderr"].into_iter().zip(&app) {
            // The mux ends the last line.
            let is_whole = said.last().is_none_or(|byte| *byte == b'\n');
            let said = [&said[..], if is_whole { b"" } else { b"\n" }].concat();
            let got = joined(&entries, stream);
            assert!(got == said, "{stream}: {} for {}", got.escape_ascii(), said.escape_ascii());
            let text = docker(&json, stream);
            if limit >= 100 {
                // No part ends within a character, so that what is one stays one.
                assert_eq!(text, lossy(&said), "{stream}");
            }
        }
        // The lines are the same, whichever stream they come from.
        let [(_, out), (_, err)] = &app;
        assert_eq!(fs::read(raw).unwrap().len(), out.len() + err.len());
    }
}

/// What collectors of logs take for an entry, as they have published it: fluent-bit's parser `cri`,
/// which is also that of fluentd's plugin, and vector's.
const COLLECTORS: [&str; 2] = [
    "^(?<time>[^ ]+) (?<stream>stdout|stderr) (?<logtag>[^ ]*) (?<message>.*)$",
    "^(?P<timestamp>.*) (?P<stream>(stdout|stderr)) (?P<logtag>(P|F)) (?P<message>.*)(?P<newline>\\n?)$",
];

/// Prints the stream, the tag, and the message in hexadecimal of each line, which must be an entry.
const COLLECT: &str = r#"
    my ($entry, $file) = @ARGV;
    open(my $log, '<:raw', $file) or die;
    while (<$log>) {
        chomp;
        /$entry/ or die "line $. is no entry: $_\n";
        print "$+{stream} $+{logtag} ", unpack('H*', $+{message}), "\n";
    }
"#;

#[test]
fn collectors_take_our_files_whole() {
    let mut random = Random::new(seed());
    let rig = Rig::new();
    let log = rig.file("app.log");
    let spec = format!("cri:{}", log.display());
    let mut mux = rig.mux(["stream", "--app", APP, "--log", &spec, "--log-line-limit", "100"]);
    let _seen = ["stdout", "stderr"].map(|stream| Said::follow(rig.client(stream)));
    let mut app = ["stdout", "stderr"].map(|stream| rig.writer(stream));
    for _ in 0..volume(100, 2000) {
        app[random.below(2)].write_all(&nasty(&mut random)).unwrap();
    }
    mux.signal(Signal::SIGTERM);
    assert_eq!(mux.ends(), 0);
    let text = fs::read(&log).unwrap();
    let entries = cri(&text);
    for entry in COLLECTORS {
        let mut collector = Command::new("perl");
        collector.args(["-e", COLLECT, entry]).arg(&log).env_remove("PERL_UNICODE");
        let Ok(output) = collector.output() else {
            return skip("perl", "it is not installed");
        };
        assert!(output.status.success(), "{}", output.stderr.escape_ascii());
        let read = String::from_utf8(output.stdout).unwrap();
        assert_eq!(read.lines().count(), entries.len());
        for (read, entry) in read.lines().zip(&entries) {
            // vector's takes the last place in a line that looks like the first.
            let looks_like_one =
                |at: &[u8]| at.starts_with(b"stdout ") || at.starts_with(b"stderr ");
            if (0..entry.text.len()).any(|at| looks_like_one(&entry.text[at..])) {
                continue;
            }
            let hex =
                entry.text.iter().fold(String::new(), |hex, byte| hex + &format!("{byte:02x}"));
            let tag = if entry.last { "F" } else { "P" };
            assert_eq!(read, format!("{} {tag} {hex}", entry.stream));
        }
    }
}

/// What a reader of docker's files makes of a stream.
fn docker(log: &str, stream: &str) -> String {
    let entries = log.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    let keys = ["log", "stream", "time"];
    entries
        .inspect(|entry| assert!(entry.as_object().unwrap().keys().eq(keys), "{entry}"))
        .filter(|entry| entry["stream"] == stream)
        .map(|entry| entry["log"].as_str().unwrap().to_owned())
        .collect()
}

/// With one replacement character for each byte that is none.
fn lossy(bytes: &[u8]) -> String {
    let one = |chunk: std::str::Utf8Chunk<'_>| {
        chunk.valid().to_owned() + &"\u{fffd}".repeat(chunk.invalid().len())
    };
    bytes.utf8_chunks().map(one).collect()
}

/// What a short life of an app leaves in each format, byte by byte but for the stamps.
#[test]
fn the_formats_are_what_they_were() {
    let rig = Rig::new();
    let files = ["cri", "json-file", "raw"].map(|format| (format, rig.file(format)));
    let specs = files.each_ref().map(|(format, path)| format!("{format}:{}", path.display()));
    let logs = specs.iter().flat_map(|spec| ["--log", spec]);
    let more = ["--log-line-limit", "40", "--log-flush", "3600"];
    let mut mux = rig.mux(["stream", "--app", APP].into_iter().chain(logs).chain(more));
    let (out, err) = (&rig.writer("stdout"), &rig.writer("stderr"));
    for (mut to, text) in [
        (out, &b"a line\n\n  with spaces  \r\n"[..]),
        (err, b"<3>an error: \"quoted\" <tag> & \\ \t\x01\x7f\n"),
        (out, "caf\u{e9} \u{1f600} \u{2028}\n".as_bytes()),
        (out, b"not UTF-8: \xff\xfe\xc3\n"),
        (out, b"0123456789012345678901234567890123456789\n"),
        (out, b"01234567890123456789012345678901234567890123456789\n"),
        (out, "0123456789012345678901234567890123456\u{1f600}\u{1f600}\n".as_bytes()),
        (out, b"01234567890123456789012345678901234\x1b[31mred\x1b[0m\n"),
        (err, b"half a line"),
        (out, b"and half a line"),
    ] {
        to.write_all(text).unwrap();
        mux.rests();
    }
    mux.signal(Signal::SIGTERM);
    assert_eq!(mux.ends(), 0);
    for (format, path) in files {
        let text = without_stamps(&fs::read(path).unwrap());
        let golden = Path::new(GOLDEN).join(format!("{format}.log"));
        if std::env::var_os("IOTTYMUX_GOLDEN").is_some() {
            fs::write(&golden, &text).unwrap();
        }
        let want = fs::read(&golden).unwrap();
        assert!(text == want, "{format}:\n{}\nfor\n{}", text.escape_ascii(), want.escape_ascii());
    }
}

/// With this stamp for every one.
fn without_stamps(log: &[u8]) -> Vec<u8> {
    const STAMP: &[u8] = b"2016-10-06T00:17:09.669794202Z";
    let digits = |bytes: &[u8]| -> Vec<u8> {
        bytes.iter().map(|b| if b.is_ascii_digit() { b'0' } else { *b }).collect()
    };
    let mut log = log.to_vec();
    for at in 0..(log.len() + 1).saturating_sub(STAMP.len()) {
        let here = at..at + STAMP.len();
        if digits(&log[here.clone()]) == digits(STAMP) {
            log[here].copy_from_slice(STAMP);
        }
    }
    log
}
