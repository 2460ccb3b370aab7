//! Reading the log of an app: what it wrote, as it wrote it.
//!
//! The log is read from its files, with no help of a mux, which may be long gone. One thread: it
//! reads, prints, and sleeps until a file changes. Nothing is written anywhere but to the two
//! outputs. What is read may be what others have written: it is taken apart, never believed.

mod colours;
mod files;
mod lines;
mod output;
mod reader;
mod tail;
mod watch;

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use nix::errno::Errno;

use super::logs::files::{Files, Named};
pub(crate) use super::logs::lines::Wants;
use super::logs::output::Output;
use super::logs::reader::Reader;
use super::logs::tail::Start;
use super::logs::watch::{FileWatch, Woken, ends_in};
use crate::logfmt::format;
use crate::os::state::AppDir;
use crate::wire::logged::Logged;

/// What is to be read.
#[derive(Clone, Debug)]
pub(crate) struct LogsRequest {
    /// The app: its log, and whether it has ended.
    pub(crate) app: Option<AppDir>,
    /// This file instead of the app's own log.
    pub(crate) file: Option<PathBuf>,
    /// Go on with what is still to be written, until the app ends.
    pub(crate) follow: bool,
    /// Begin with this many lines at most.
    pub(crate) tail: Option<usize>,
    /// What to print.
    pub(crate) wants: Wants,
}

/// Prints a log. That its reader has seen enough is no error.
pub(crate) fn show(request: &LogsRequest) -> Result<()> {
    let is_closed = |e: &io::Error| e.kind() == ErrorKind::BrokenPipe;
    match read(request) {
        Err(e) if e.downcast_ref().is_some_and(is_closed) => Ok(()),
        done => done,
    }
}

fn read(request: &LogsRequest) -> Result<()> {
    let (path, named) = path(request)?;
    let mut files = Files::new(path.clone(), named, request.wants.since);
    let watch = if request.follow { Some(FileWatch::new()?) } else { None };
    look(&mut files, watch.as_ref(), request)?;
    if files.open().is_empty() && watch.is_none() {
        return Err(io::Error::from(Errno::ENOENT))
            .with_context(|| format!("opening {}", path.display()));
    }
    let start = match request.tail {
        Some(count) => tail::find(files.open(), count, &request.wants)
            .with_context(|| format!("reading {}", path.display()))?,
        None => Start::default(),
    };
    if let (None, Some(compressed)) = (start.at, files.compressed()) {
        log::warn!("{} and what is older is compressed, and left out", compressed.display());
    }
    let mut reader = Reader::new(files, start);
    let mut output = Output::new(request.wants);
    let mut hidden = false;
    loop {
        // Asked before reading: what an app that has ended wrote is all there.
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
        // It may have been the mux that has gone, of which nothing else will tell.
        if reader.files.are_cut() || names_changed {
            let found = match &watch {
                Some(watch) => look_again(&mut reader.files, watch, request, &mut hidden)?,
                None => look(&mut reader.files, None, request).map(|()| true)?,
            };
            if found {
                continue;
            }
        }
        let Some(watch) = watch.as_ref().filter(|_| ends_in != Some(Duration::ZERO)) else {
            reader.finish(false, &mut |entry| output.print(entry))?;
            return output.rest();
        };
        output.rest()?;
        match watch.wait(&request.wants, ends_in)? {
            Woken::Writing => {}
            Woken::Names => {
                look_again(&mut reader.files, watch, request, &mut hidden)?;
            }
            Woken::Closed => return Ok(()),
        }
    }
}

/// As [`look`], while following: what hides the log then may go again, and is waited for. Whether
/// nothing does; `hidden` is whether something did, which is told once.
fn look_again(
    files: &mut Files,
    watch: &FileWatch,
    request: &LogsRequest,
    hidden: &mut bool,
) -> Result<bool> {
    match look(files, Some(watch), request) {
        Err(e) if files::is_hidden(&e) => {
            if !std::mem::replace(hidden, true) {
                log::warn!("{e:#}; waiting until it is a log that can be read");
            }
        }
        looked => {
            looked?;
            *hidden = false;
        }
    }
    Ok(!*hidden)
}

/// Opens the files that have come, and watches for others from before that on.
fn look(files: &mut Files, watch: Option<&FileWatch>, request: &LogsRequest) -> Result<()> {
    if let Some(watch) = watch {
        let dir = files.path().parent().unwrap_or(Path::new("/")).to_owned();
        let watched = watch.dir(&dir);
        // Without its log the directory may go, too, and does not tell while a file of it is open:
        // the one above does, if that may be watched.
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
    files.look(request.tail.is_some())
}

/// The file that is written, and who has named it. What the mux of another root names is looked for there.
fn path(request: &LogsRequest) -> Result<(PathBuf, Named)> {
    if let Some(file) = &request.file {
        let path = std::path::absolute(file);
        let path = path.with_context(|| format!("opening {}", file.display()))?;
        return Ok((path, Named::ByUser));
    }
    let Some(app) = &request.app else { bail!("logs: which app, or which file?") };
    let Some(logged) = Logged::read(app)? else {
        bail!(
            "app {}: no log file is known (its mux writes none, or has never run; see journalctl)",
            app.name()
        );
    };
    let readers = |name: &str| format::find(name)?.reader;
    let Some((reader, path)) = logged.readable(readers) else {
        bail!("app {}: it has no log in a file, as cri or json-file (see journalctl)", app.name());
    };
    let root = app.root().with_context(|| format!("app {}", app.name()))?;
    let path = match (root, path.strip_prefix("/")) {
        (Some(root), Ok(below)) => root.join(below),
        _ => path.to_owned(),
    };
    Ok((path, Named::ByMux(reader)))
}
