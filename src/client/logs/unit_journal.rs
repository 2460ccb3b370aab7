//! The lines of a service in the journal, by `journalctl`.
//!
//! Its entries become those of a log file, so that all options of `logs` work as they do there.

use std::io::{BufRead, BufReader, Read};
use std::os::fd::AsFd;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, UNIX_EPOCH};

use anyhow::{Context, Result, bail};
use nix::unistd::Uid;
use serde::Deserialize;
use serde_json::Value;

use super::LogsRequest;
use super::line_output::Output;
use super::watch::{FileWatch, Woken, ends_in};
use crate::core::logfmt::entry::LoggedEntry;
use crate::sys::state::AppDir;
use crate::types::limits;
use crate::types::stream::Stream;
use crate::types::time::Stamp;

/// Nanoseconds of a microsecond: the journal has these.
const MICRO: u64 = 1000;

/// Prints the entries of a service, which is this app, and with --follow new ones until the app ends. Returns whether there was a
/// line, or `None` if the journal has no entry.
pub(super) fn show(request: &LogsRequest, app: &AppDir, service: &str) -> Result<Option<bool>> {
    // With --since, journalctl has --lines count from there.
    let has_start = request.wants.since > Stamp::default();
    let by_lines = has_start || request.has_conditions() || request.wants.stream.is_some();
    let mut log = JournalReader {
        app,
        service,
        request,
        output: Output::new(request.wants, request.whole_lines(by_lines)),
        cursor: None,
    };
    let tail = request.tail.filter(|_| !by_lines);
    log.read_all(tail.map_or_else(Vec::new, |count| vec![format!("--lines={count}")]))?;
    if request.follow {
        log.output.rest()?;
        if !log.follow()? {
            return Ok(Some(true));
        }
        // A journald that is still writing has the last lines. Only root may wait for it.
        let _ = Command::new("journalctl").arg("--sync").stderr(Stdio::null()).status();
        log.read_all(Vec::new())?;
    }
    let has_lines = log.output.finish()?;
    Ok(log.cursor.map(|_| has_lines))
}

/// Whether this user may read the journal, and not only root and the group systemd-journal. A journal
/// that is only in memory has no file for a user.
pub(super) fn is_readable() -> bool {
    let mut command = Command::new("journalctl");
    command.args(["--quiet", "--lines=0"]).stdin(Stdio::null());
    command.stdout(Stdio::null()).stderr(Stdio::null());
    Uid::effective().is_root() || command.status().is_ok_and(|end| end.success())
}

/// An entry in journalctl's JSON. A field that occurs twice is an array, and so are bytes that are
/// not UTF-8.
#[derive(Deserialize)]
struct JournalEntry {
    #[serde(rename = "__CURSOR")]
    cursor: String,
    #[serde(rename = "__REALTIME_TIMESTAMP")]
    time: String,
    #[serde(rename = "MESSAGE", default)]
    message: Value,
    #[serde(rename = "IOTTYMUX_STREAM", default)]
    stream: Value,
    #[serde(rename = "CONTAINER_PARTIAL_MESSAGE", default)]
    partial: Value,
}

/// The fields of [`JournalEntry`] that journalctl leaves out unless asked.
const FIELDS: &str = "--output-fields=MESSAGE,IOTTYMUX_STREAM,CONTAINER_PARTIAL_MESSAGE";

impl JournalEntry {
    fn text(&self) -> Vec<u8> {
        let byte = |value: &Value| value.as_u64().and_then(|byte| u8::try_from(byte).ok());
        match &self.message {
            Value::String(text) => text.clone().into_bytes(),
            Value::Array(bytes) => bytes.iter().filter_map(byte).collect(),
            _ => Vec::new(),
        }
    }
}

struct JournalReader<'a> {
    app: &'a AppDir,
    service: &'a str,
    request: &'a LogsRequest,
    output: Output,
    /// The last entry.
    cursor: Option<String>,
}

impl JournalReader<'_> {
    /// Starts journalctl for the entries after the last one.
    fn start(&self, options: Vec<String>) -> Result<(Child, ChildStdout)> {
        let service = self.service;
        let mut command = Command::new("journalctl");
        command.args(["--no-pager", "--all", "--output=json", FIELDS]).args(options);
        let seconds =
            |stamp: Stamp| format!("@{}.{:06}", stamp.seconds(), stamp.0 / MICRO % 1_000_000);
        match &self.cursor {
            Some(cursor) => drop(command.arg(format!("--after-cursor={cursor}"))),
            None if self.request.wants.since > Stamp::default() => {
                command.arg(format!("--since={}", seconds(self.request.wants.since)));
            }
            None => {}
        }
        if let Some(until) = self.request.wants.until {
            command.arg(format!("--until={}", seconds(until)));
        }
        // Not --unit, which also shows what systemd reports about the service.
        if let Some(user) = self.app.user() {
            let user = format!("_UID={user}");
            command.args([&user, &format!("_SYSTEMD_USER_UNIT={service}"), "+"]);
            command.args([&user, &format!("OBJECT_SYSTEMD_USER_UNIT={service}")]);
        } else {
            command.args([&format!("_SYSTEMD_UNIT={service}"), "+"]);
            command.args(["_UID=0", &format!("OBJECT_SYSTEMD_UNIT={service}")]);
        }
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = command.spawn().context("cannot run journalctl")?;
        let stdout = child.stdout.take().context("cannot read journalctl")?;
        Ok((child, stdout))
    }

    /// Prints the entries after the last one.
    fn read_all(&mut self, options: Vec<String>) -> Result<()> {
        let (mut child, stdout) = self.start(options)?;
        let mut lines = BufReader::new(stdout);
        let mut line = Vec::new();
        let mut printed = Ok(());
        while printed.is_ok()
            && lines.read_until(b'\n', &mut line).context("cannot read journalctl")? > 0
        {
            printed = self.print(&line);
            line.clear();
        }
        // A journalctl that is not read any more ends.
        drop(lines);
        let status = child.wait().context("cannot wait for journalctl")?;
        printed?;
        if !status.success() {
            bail!("journalctl failed ({status})");
        }
        Ok(())
    }

    /// Prints new entries until the app ends. Returns whether an output is still open.
    fn follow(&mut self) -> Result<bool> {
        let watch = FileWatch::new()?;
        watch.dir(&self.app.dir())?;
        let (mut child, stdout) =
            self.start(vec!["--follow".to_owned(), "--no-tail".to_owned()])?;
        let done = self.read_until_end(&watch, stdout);
        // It may have ended by itself.
        let _ = child.kill();
        let _ = child.wait();
        done
    }

    fn read_until_end(&mut self, watch: &FileWatch, mut stdout: ChildStdout) -> Result<bool> {
        let mut buffer = Vec::new();
        loop {
            let ends_in = ends_in(self.app);
            if ends_in == Some(Duration::ZERO) {
                return Ok(true);
            }
            match watch.wait(&self.request.wants, ends_in, Some(stdout.as_fd()))? {
                Woken::Readable => {}
                Woken::Closed => return Ok(false),
                Woken::Writing | Woken::Names => continue,
            }
            let filled = buffer.len();
            buffer.resize(filled + limits::LOG_READ, 0);
            let len = stdout.read(&mut buffer[filled..]).context("cannot read journalctl")?;
            buffer.truncate(filled + len);
            if len == 0 {
                bail!("journalctl has ended");
            }
            let end = buffer.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
            for line in buffer[..end].split_inclusive(|byte| *byte == b'\n') {
                self.print(line)?;
            }
            buffer.drain(..end);
            self.output.rest()?;
        }
    }

    fn print(&mut self, line: &[u8]) -> Result<()> {
        // journalctl also prints remarks.
        let Ok(entry) = serde_json::from_slice::<JournalEntry>(line) else { return Ok(()) };
        let micros: u64 = entry.time.parse().context("cannot read the time of an entry")?;
        let time = UNIX_EPOCH + Duration::from_micros(micros);
        let is_stderr = entry.stream.as_str() == Some("stderr");
        self.output.print(&LoggedEntry {
            stamp: Stamp(micros.saturating_mul(MICRO)),
            written: humantime::format_rfc3339_micros(time).to_string().into(),
            stream: if is_stderr { Stream::Stderr } else { Stream::Stdout },
            text: entry.text().into(),
            ends: entry.partial.is_null(),
        })?;
        self.cursor = Some(entry.cursor);
        Ok(())
    }
}
