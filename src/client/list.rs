//! Lists apps, or one of them, or what can be attached of it.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use anyhow::Result;
use serde::Serialize;

use super::each::Asked;
use super::find::{self, Hint};
use super::status::Known;
use crate::core::wire::AppStatus;
use crate::sys::documents::container::Container;
use crate::sys::documents::endpoints::Endpoints;
use crate::sys::print::print;
use crate::sys::process;
use crate::sys::state::AppDir;
use crate::types::escape::{self, ascii_json};
use crate::types::name::AppName;
use crate::types::time::{Now, rough};

/// The titles of the table. UP is for how long the app has run.
const COLUMNS: [&str; 12] = [
    "APP",
    "STATE",
    "ENDPOINTS",
    "STATUS",
    "ENDED",
    "PID",
    "UP",
    "CLIENTS",
    "UNIT",
    "LOG",
    "CONTAINER",
    "STATE DIR",
];
/// Columns that the table always has.
const ALWAYS: usize = 3;

/// Prints the endpoints of an app; rkt has no line end.
pub(crate) fn endpoints(dir: &AppDir, wait: Duration, line_end: &str) -> Result<()> {
    let endpoints = find::retry(dir, wait, Hint::Start, |endpoints| Ok(endpoints.clone()))?;
    print(&format!("{}{line_end}", endpoints.pretty()))
}

/// What `list` prints of each app.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ListForm {
    /// A table.
    Table,
    /// Its name only.
    Names,
    /// A JSON document.
    Json,
}

/// Which apps `list` shows, and what of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Extent {
    /// Those of all directories, with these.
    pub(crate) all: bool,
    /// Containers that have ended, too, with the status and the time.
    pub(crate) ended: bool,
}

/// An app in the list.
#[derive(Debug, Default, Serialize)]
struct ListRow {
    app: String,
    /// `refused` if its mux does not let us in.
    state: &'static str,
    streams: Vec<&'static str>,
    app_pid: Option<u32>,
    /// For how long that process has run.
    app_uptime_ms: Option<u64>,
    mux_pid: Option<u32>,
    /// Of its mux.
    uptime_ms: Option<u64>,
    /// How and when it ended, of an app without a mux.
    app_ended: Option<AppStatus>,
    ended_ms: Option<u64>,
    /// Attached clients.
    clients: Option<usize>,
    unit: Option<String>,
    logs: Vec<String>,
    container: Option<String>,
    /// As Kubernetes or Docker has it.
    container_name: Option<String>,
    state_dir: String,
    #[serde(skip)]
    is_ended_container: bool,
}

/// Prints each of these apps. `enabled` are the apps with units, which can be started, with their
/// services. Containers that have ended come last, the newest of them first.
pub(crate) fn all(
    asked: Vec<Asked>,
    enabled: &BTreeMap<AppName, String>,
    (form, extent): (ListForm, Extent),
) -> Result<()> {
    let rows = asked.into_iter().map(|mut asked| {
        let endpoints = asked.endpoints.take();
        let (dir, known) = Known::of(asked);
        row((&dir, endpoints), known, enabled)
    });
    let mut rows: Vec<ListRow> =
        rows.filter(|row| extent.ended || !row.is_ended_container).collect();
    rows.sort_by_key(|row| row.is_ended_container.then_some(Reverse(row.ended_ms)));
    print_rows(&rows, form, extent)
}

/// Prints the row of one app. It fails as `status` does.
pub(crate) fn one(
    dir: &AppDir,
    enabled: &BTreeMap<AppName, String>,
    (form, extent): (ListForm, Extent),
) -> Result<()> {
    let known = Known::asked(dir)?;
    let endpoints = Endpoints::read(dir).ok();
    print_rows(&[row((dir, endpoints), known, enabled)], form, extent)
}

fn print_rows(rows: &[ListRow], form: ListForm, extent: Extent) -> Result<()> {
    match form {
        ListForm::Table => print(&table(rows, extent)),
        ListForm::Names => {
            print(&rows.iter().fold(String::new(), |all, row| all + &row.app + "\n"))
        }
        ListForm::Json => print(&(ascii_json(&serde_json::to_string(rows)?) + "\n")),
    }
}

/// An app, as its mux and its directory describe it.
fn row(
    (dir, endpoints): (&AppDir, Option<Endpoints>),
    known: Known,
    enabled: &BTreeMap<AppName, String>,
) -> ListRow {
    let unit = enabled.get(dir.name()).cloned();
    let container = Container::read(dir);
    let mut row = ListRow {
        app: dir.name().to_string(),
        state: known.state(),
        streams: endpoints
            .iter()
            .flat_map(Endpoints::streams)
            .map(|(stream, _)| stream.name())
            .collect(),
        unit,
        container: container.as_ref().map(Container::to_string),
        container_name: container.as_ref().and_then(Container::name),
        state_dir: dir.state().display().to_string(),
        is_ended_container: known.is_ended_container(container.as_ref()),
        ..ListRow::default()
    };
    match known {
        Known::Report(report, _) => {
            row.clients = Some(report.attached());
            (row.app_pid, row.mux_pid) = (report.app_pid, Some(report.mux_pid));
            let age = report.app_pid.and_then(process::age);
            row.app_uptime_ms = age.map(|age| u64::try_from(age.as_millis()).unwrap_or(u64::MAX));
            row.uptime_ms = Some(report.uptime_ms);
            row.logs = report.logs.into_iter().map(|log| log.log).collect();
            row.unit = row.unit.or(report.service);
        }
        Known::Last(last) => (row.app_ended, row.ended_ms) = (last.status, Some(last.ended_ms)),
        Known::State(_) => {}
    }
    row
}

/// The apps as a table. A column without any value is left out.
fn table(rows: &[ListRow], extent: Extent) -> String {
    let text =
        |value: &Option<String>| escape::line(value.as_deref().unwrap_or_default()).into_owned();
    let number = |value: Option<u64>| value.map_or(String::new(), |number| number.to_string());
    let now = Now::read().stamp.millis();
    let ago = |ended: u64| format!("{} ago", rough(now.saturating_sub(ended)));
    let cells = |row: &ListRow| {
        let (status, ended) = match row.ended_ms.filter(|_| extent.ended) {
            Some(ended) => (row.app_ended, ago(ended)),
            None => (None, String::new()),
        };
        [
            row.app.clone(),
            row.state.to_owned(),
            row.streams.join(","),
            number(status.map(|status| status.code().into())),
            ended,
            number(row.app_pid.map(u64::from)),
            row.app_uptime_ms.map_or(String::new(), rough),
            number(row.clients.and_then(|clients| u64::try_from(clients).ok())),
            text(&row.unit),
            escape::line(&row.logs.join(",")).into_owned(),
            text(if row.container_name.is_some() { &row.container_name } else { &row.container }),
            if extent.all { escape::line(&row.state_dir).into_owned() } else { String::new() },
        ]
    };
    let titles = COLUMNS.map(str::to_owned);
    let lines: Vec<_> = rows.iter().map(cells).collect();
    let widths: Vec<usize> = (0..COLUMNS.len())
        .map(|column| {
            let widest = lines.iter().map(|line| line[column].chars().count()).max();
            match widest.unwrap_or_default() {
                0 if column >= ALWAYS => 0,
                widest => widest.max(COLUMNS[column].len()),
            }
        })
        .collect();
    let mut out = String::new();
    for line in [titles].iter().chain(&lines) {
        let shown = line.iter().zip(&widths).filter(|(_, width)| **width > 0);
        let cells: Vec<String> = shown.map(|(cell, width)| format!("{cell:width$}")).collect();
        // Writing into a string does not fail.
        let _ = writeln!(out, "{}", cells.join("  ").trim_end());
    }
    out
}
