//! `iottymux logs`: prints the log of an app as the app wrote it: from its files, else from the
//! journal, else from what its mux keeps of the output.
//!
//! It reads the files itself, since the mux may have ended. One thread reads, prints,
//! and sleeps until a file changes. It writes only to its two outputs. The files may belong to
//! another user: all input is checked.

mod kept_output;
mod line_output;
mod log_files;
mod pattern;
mod printed_lines;
mod reader;
mod screen_lines;
mod tail;
mod unit_journal;
mod watch;
mod whole;

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use nix::errno::Errno;
use nix::unistd::Uid;

use self::line_output::Output;
use self::log_files::{Files, Named};
pub(crate) use self::pattern::Pattern;
pub(crate) use self::printed_lines::Wants;
use self::reader::Reader;
use self::tail::Start;
use self::watch::{FileWatch, Woken, ends_in};
use self::whole::WholeLines;
use super::{find, status};
use crate::core::logfmt::format;
use crate::host::enable;
use crate::sys::documents::logged::Logged;
use crate::sys::files::{is_closed_to_user, raise_descriptor_limit};
use crate::sys::state::AppDir;
use crate::types::exit::Exit;
use crate::types::time::Stamp;

/// The arguments of `logs`.
#[derive(Clone, Debug)]
pub(crate) struct LogsRequest {
    /// The app.
    pub(crate) app: Option<AppDir>,
    /// This file instead of the app's log.
    pub(crate) file: Option<PathBuf>,
    /// Whether to print new entries until the app ends.
    pub(crate) follow: bool,
    /// Begin with the last lines: this many at most.
    pub(crate) tail: Option<usize>,
    /// Which lines to print.
    pub(crate) wants: Wants,
    /// Only lines that match.
    pub(crate) grep: Option<Pattern>,
}

impl LogsRequest {
    /// The last lines of the files are not those that are wanted. Times need not be in order.
    fn has_conditions(&self) -> bool {
        self.grep.is_some() || self.wants.until.is_some() || self.wants.since != Stamp::default()
    }

    /// For options that need whole lines. `counts`: the last lines are found by reading all.
    fn whole_lines(&self, counts: bool) -> Option<WholeLines> {
        let tail = self.tail.filter(|_| counts);
        let is_needed = self.grep.is_some() || self.wants.json || tail.is_some();
        is_needed.then(|| WholeLines::new(self.grep.clone(), tail))
    }
}

/// Prints a log. A closed output is not an error; --grep fails if no line matches, as grep does.
pub(crate) fn show(request: &LogsRequest) -> Result<Exit> {
    let is_closed = |e: &io::Error| e.kind() == ErrorKind::BrokenPipe;
    match read(request) {
        Err(e) if e.downcast_ref().is_some_and(is_closed) => Ok(Exit::Done),
        Ok(false) if request.grep.is_some() => Ok(Exit::Failed),
        done => done.map(|_| Exit::Done),
    }
}

/// Returns whether there was a line that is wanted.
fn read(request: &LogsRequest) -> Result<bool> {
    if let Some(file) = &request.file {
        let path = std::path::absolute(file);
        let path = path.with_context(|| format!("cannot open {}", file.display()))?;
        return read_files(request, &path, Named::ByUser);
    }
    let Some(app) = &request.app else { bail!("logs: expected an app or a file") };
    if let Some(why) = enable::waits_for_restart(app) {
        log::warn!("{why}");
    }
    let readers = |name: &str| format::find(name)?.reader;
    let logged = match Logged::read(app) {
        // The mux may let this user in all the same.
        Err(e) if find::is_forbidden(&e) => return without_files(request, app, true),
        read => read?,
    };
    let Some((reader, path)) = logged.as_ref().and_then(|log| log.readable(readers)) else {
        return without_files(request, app, false);
    };
    let root = app.root().with_context(|| format!("app {}", app.name()))?;
    // The path of a mux in another root is below that root.
    let path = match (root, path.strip_prefix("/")) {
        (Some(root), Ok(below)) => root.join(below),
        _ => path.to_owned(),
    };
    let dir = path.parent().unwrap_or(Path::new("/"));
    if is_closed_to_user(&path) || is_closed_to_user(dir) {
        return without_files(request, app, true);
    }
    read_files(request, &path, Named::ByMux(reader))
}

/// Prints the lines of an app without a log file, or with one that this user may not read.
fn without_files(request: &LogsRequest, app: &AppDir, is_file_closed: bool) -> Result<bool> {
    let mut report = match status::report(app) {
        Ok(report) => report,
        Err(e) => {
            let last = e.downcast_ref::<find::Ended>().map(|ended| &ended.last);
            if let Some(service) = enable::service_of(app).filter(|_| unit_journal::is_readable())
                && let has_lines = unit_journal::show(request, app, &service)?
                && (has_lines.is_some() || last.is_none())
            {
                return Ok(has_lines == Some(true));
            }
            let Some(last) = last else { return Err(e) };
            return kept_output::show_last(request, app, last);
        }
    };
    // Until a restart its lines go where they went before.
    let is_elsewhere = enable::with_earlier_streams(app).is_some();
    let is_logged = is_elsewhere || report.logs.iter().any(|log| log.log.starts_with("journal"));
    let service = report.service.take();
    let is_journal_closed = is_logged && service.is_some() && !unit_journal::is_readable();
    // A service without output streams has its lines in the journal.
    let is_in_journal = is_logged && !is_journal_closed || report.streams.is_empty();
    if let Some(service) = service.filter(|_| is_in_journal) {
        return Ok(unit_journal::show(request, app, &service)? == Some(true));
    }
    warn_of_closed_log(app, is_journal_closed, is_file_closed);
    // A terminal's lines are those of its screen.
    if report.terminal.is_some() && !request.follow {
        return screen_lines::show(request, app);
    }
    kept_output::show(request, app, &report)
}

fn read_files(request: &LogsRequest, path: &Path, named: Named) -> Result<bool> {
    let mut files = Files::new(path.to_owned(), named, request.wants.since);
    let watch = if request.follow { Some(FileWatch::new()?) } else { None };
    // Rotated files are held open until they are read.
    raise_descriptor_limit();
    look(&mut files, watch.as_ref(), request)?;
    if files.open().is_empty() && watch.is_none() {
        return Err(io::Error::from(Errno::ENOENT))
            .with_context(|| format!("cannot open {}", path.display()));
    }
    let start = match request.tail.filter(|_| !request.has_conditions()) {
        Some(count) => tail::find(files.open(), count, &request.wants)
            .with_context(|| format!("cannot read {}", path.display()))?,
        None => Start::default(),
    };
    if let (None, Some(compressed)) = (start.at, files.compressed()) {
        log::warn!("skipping {} and older files: they are compressed", compressed.display());
    }
    let mut reader = Reader::new(files, start);
    let mut output = Output::new(request.wants, request.whole_lines(request.has_conditions()));
    let mut hidden = false;
    loop {
        // Checked before reading: after the end of the app, nothing is added.
        let ends_in = request.app.as_ref().filter(|_| request.follow).and_then(ends_in);
        if ends_in == Some(Duration::ZERO) {
            look(&mut reader.files, watch.as_ref(), request)?;
        }
        let mut names_changed = false;
        while reader.read(&mut |entry| output.print(entry))? {
            if let Some(watch) = &watch
                && watch.names_changed()?
            {
                names_changed = true;
                look_again(&mut reader.files, watch, request, &mut hidden)?;
            }
        }
        // The end of the mux causes no other event.
        if let Some(watch) = watch.as_ref().filter(|_| names_changed)
            && look_again(&mut reader.files, watch, request, &mut hidden)?
        {
            continue;
        }
        let Some(watch) = watch.as_ref().filter(|_| ends_in != Some(Duration::ZERO)) else {
            reader.finish(false, &mut |entry| output.print(entry))?;
            return output.finish();
        };
        output.rest()?;
        match watch.wait(&request.wants, ends_in, None)? {
            Woken::Writing | Woken::Readable => {}
            Woken::Names => {
                look_again(&mut reader.files, watch, request, &mut hidden)?;
            }
            Woken::Closed => return Ok(true),
        }
    }
}

/// Like [`look`], while following: waits until a hidden log is there again. Returns whether it is
/// there. `hidden` says whether it was hidden before, which is reported once.
fn look_again(
    files: &mut Files,
    watch: &FileWatch,
    request: &LogsRequest,
    hidden: &mut bool,
) -> Result<bool> {
    match look(files, Some(watch), request) {
        Err(e) if log_files::is_hidden(&e) => {
            if !std::mem::replace(hidden, true) {
                log::warn!("{e:#}; waiting for a readable log");
            }
        }
        looked => {
            looked?;
            *hidden = false;
        }
    }
    Ok(!*hidden)
}

/// Watches for new files, then opens those that exist.
fn look(files: &mut Files, watch: Option<&FileWatch>, request: &LogsRequest) -> Result<()> {
    if let Some(watch) = watch {
        let dir = files.path().parent().unwrap_or(Path::new("/")).to_owned();
        let watched = watch.dir(&dir);
        // The directory may be removed with its log, without an event while a file of it is open.
        // So its parent is watched, if that is allowed.
        if (watched.is_err() || !files.path().exists())
            && let Some(above) = dir.parent()
            && watch.dir(above).is_ok()
        {
            watch.dir(&dir)?;
        }
        watched?;
        if let Some(app) = &request.app {
            watch.dir(&app.dir())?;
        }
    }
    files.look()
}

/// Says that there is a log, and why the lines are not from there.
fn warn_of_closed_log(app: &AppDir, is_journal_closed: bool, is_file_closed: bool) {
    let what = match (is_journal_closed, is_file_closed) {
        (true, _) => "the journal, unlike the group systemd-journal".to_owned(),
        (_, true) => format!("the log of app {}", app.name()),
        _ => return,
    };
    let user = Uid::effective();
    log::warn!("user {user} may not read {what}; these lines are what the mux keeps");
}
