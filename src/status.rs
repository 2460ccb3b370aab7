//! Asking a mux: for its status, which is shown, or to do something.

use std::fmt::Write as _;
use std::io::Write as _;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::find;
use crate::limits;
use crate::print::print;
use crate::proto::{Answer, ClientReport, ErrorReport, Hello, Kind, Report, Request};
use crate::session;
use crate::state::AppDir;
use crate::time::Now;

/// Prints the status of an app's mux, for people or as JSON.
///
/// # Errors
/// When there is no mux that answers.
pub fn show(dir: &AppDir, json: bool) -> Result<()> {
    let report = report(dir)?;
    if json {
        return print(&format!("{}\n", serde_json::to_string(&report)?));
    }
    print(&text(&report))
}

/// The status of an app's mux.
///
/// # Errors
/// When there is no mux that answers.
pub fn report(dir: &AppDir) -> Result<Report> {
    let body = ask(dir, &Kind::Status.frame(b""), Kind::Report)?;
    Ok(serde_json::from_slice(&body)?)
}

/// Has a mux do something.
///
/// # Errors
/// When there is no mux that answers, or it says why it does not.
pub fn control(dir: &AppDir, request: Request) -> Result<()> {
    let body = ask(dir, &Kind::Request.message(&request), Kind::Answer)?;
    match serde_json::from_slice::<Answer>(&body)?.error {
        Some(error) => bail!("app {}: {}", dir.name(), error.escape_debug()),
        None => Ok(()),
    }
}

/// Asks over a session that attaches nothing; the body of the answer, which is of this kind.
fn ask(dir: &AppDir, question: &[u8], answer: Kind) -> Result<Vec<u8>> {
    let name = dir.name();
    let mut socket =
        find::retry(dir, Some(Duration::ZERO), |endpoints| match endpoints.session() {
            Some(file) => Ok(session::open(dir, file, &Hello::default())?.0),
            None => bail!("app {name}: its mux has no sessions"),
        })?;
    socket.set_read_timeout(Some(limits::ANSWER))?;
    socket.write_all(question).context("asking")?;
    loop {
        let (kind, body) = session::next(&mut socket, dir)?;
        if kind == answer {
            return Ok(body);
        }
    }
}

/// The report as a few lines. Nothing in it was said by the app or a client.
fn text(report: &Report) -> String {
    let mut out = String::new();
    let seconds = report.uptime_ms / 1000;
    // Writing into a string does not fail.
    let _ = write!(
        out,
        "app {}: {}, mux {} up {seconds} s",
        report.app.escape_debug(),
        report.state.escape_debug(),
        report.mux_pid
    );
    let _ = match report.app_pid {
        Some(pid) => writeln!(out, ", app {pid}"),
        None => writeln!(out),
    };
    for stream in &report.streams {
        let _ = writeln!(
            out,
            "{:8} {} bytes, {} unseen",
            stream.stream.name(),
            stream.bytes,
            stream.unseen
        );
    }
    for client in report.clients.iter().filter(|c| c.types || !c.streams.is_empty()) {
        let types = match client {
            ClientReport { exclusive: true, .. } => " types alone",
            ClientReport { types: true, .. } => " types",
            _ => "",
        };
        let _ =
            write!(out, "client {} uid {} pid {}{types}", client.client, client.uid, client.pid);
        for place in &client.streams {
            let _ = write!(
                out,
                ", {} at {} ({} behind, {} lost)",
                place.stream, place.position, place.lag, place.lost
            );
        }
        let _ = writeln!(out);
    }
    let now = Now::read().stamp.millis();
    for ErrorReport { at_ms, error } in &report.errors {
        let ago = now.saturating_sub(*at_ms) / 1000;
        let _ = writeln!(out, "{ago} s ago: {}", error.escape_debug());
    }
    out
}
