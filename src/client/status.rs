//! Requests to a mux: show its status, or control it.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Write as _;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde::Serialize;

use super::each::{self, Asked};
use super::find::{self, Hint};
use crate::core::wire::session_reader::MuxEvent;
use crate::core::wire::{
    AppState, AppStatus, ClientReport, ControlRequest, ErrorReport, FrameKind, Hello, LogReport,
    Report, RequestOutcome,
};
use crate::host::enable::{self, account};
use crate::screen::transcript::readable;
use crate::sys::documents::container::Container;
use crate::sys::documents::endpoints::Endpoints;
use crate::sys::documents::last::{Last, StreamTail};
use crate::sys::print::print;
use crate::sys::session::{self, Patience};
use crate::sys::state::AppDir;
use crate::types::escape::{self, ascii_json};
use crate::types::limits;
use crate::types::time::{Now, rough};

/// Lines of each stream of an ended app that `status` shows, as many as systemctl does.
const LAST_LINES: usize = 10;

/// The state of an app whose mux does not let this user in.
const REFUSED: &str = "refused";

/// What is known of an app.
pub(crate) enum Known {
    /// What its mux reports, and the app's state.
    Report(Box<Report>, AppState),
    /// What its last mux has left.
    Last(Last),
    /// Only its state.
    State(&'static str),
}

impl Known {
    /// What an app's mux has answered, or else what is known without it.
    pub(crate) fn of(Asked { dir, is_enabled, answer, .. }: Asked) -> (AppDir, Self) {
        let known = match answer {
            Ok(report) => Self::reported(&dir, report),
            Err(e) if find::is_absence(&e) || has_no_document(&dir, &e) => match find::last(&dir) {
                Ok(Some(last)) if !dir.is_locked() => Self::Last(last),
                _ => Self::State(find::state_without_mux(&dir, is_enabled).word()),
            },
            // It refuses this user, or its directory does.
            Err(e) if find::is_forbidden(&e) || find::is_unlisted(&e) => Self::State(REFUSED),
            // It does not answer, or is no mux.
            Err(_) => Self::State(AppState::Unknown.word()),
        };
        (dir, known)
    }

    /// What the mux of this app answers, or has left at its end.
    pub(crate) fn asked(dir: &AppDir) -> Result<Self> {
        match report(dir) {
            Ok(report) => Ok(Self::reported(dir, report)),
            Err(e) => Ok(Self::Last(e.downcast::<find::Ended>()?.last)),
        }
    }

    fn reported(dir: &AppDir, report: Report) -> Self {
        let state = app_state(dir, &report);
        Self::Report(Box::new(report), state)
    }

    /// The word for the app's state.
    pub(crate) fn state(&self) -> &'static str {
        match self {
            Self::Report(_, state) => state.word(),
            Self::Last(_) => AppState::Exited.word(),
            Self::State(state) => state,
        }
    }

    /// Whether it is a container that has ended, and so has its mux.
    pub(crate) fn is_ended_container(&self, container: Option<&Container>) -> bool {
        matches!(self, Self::Last(_)) && container.is_some()
    }

    /// How the app ended last, if that is known.
    pub(crate) fn exit_code(&self) -> Option<u8> {
        match self {
            Self::Report(report, _) => report.app_ended.map(AppStatus::code),
            Self::Last(last) => last.status.map(AppStatus::code),
            Self::State(_) => None,
        }
    }

    /// As text; the name of the app's container is its second line.
    fn text(&self, dir: &AppDir, users: &mut Users) -> String {
        let mut text = match self {
            Self::Report(report, state) => {
                let is_pending = *state == AppState::Pending;
                let waits = is_pending.then(|| enable::waits_for_restart(dir)).flatten();
                text(report, *state, users) + &waits.map(|line| line + "\n").unwrap_or_default()
            }
            Self::Last(last) => last_text(dir, last),
            Self::State(REFUSED) => format!("app {}: you have no access to it\n", dir.name()),
            Self::State(state) => format!("app {}: {state}\n", dir.name()),
        };
        if let Some((name, end)) = Container::name_of(dir).zip(text.find('\n')) {
            text.insert_str(end + 1, &format!("container {}\n", escape::line(&name)));
        }
        text
    }

    fn json(self, dir: &AppDir) -> serde_json::Result<String> {
        let container_name = Container::name_of(dir);
        let (app_state, app) = (self.state(), dir.name().to_string());
        let rest = match self {
            Self::Report(report, _) => JsonRest::Report(report),
            Self::Last(Last { ended_ms, status: app_ended, streams, .. }) => {
                JsonRest::Ended { app, state: "ended", ended_ms, app_ended, streams }
            }
            Self::State(_) => JsonRest::Other { app },
        };
        serde_json::to_string(&JsonStatus { app_state, container_name, rest })
    }
}

/// Whether a mux was not asked, because its document cannot be read though this user may.
fn has_no_document(dir: &AppDir, error: &anyhow::Error) -> bool {
    !find::is_forbidden(error) && Endpoints::read(dir).is_err()
}

/// Prints the status of an app's mux, as text or JSON; or `last.json`, if the mux has ended.
pub(crate) fn show(dir: &AppDir, json: bool) -> Result<()> {
    let known = Known::asked(dir)?;
    let text = if json {
        ascii_json(&known.json(dir)?) + "\n"
    } else {
        known.text(dir, &mut Users::new())
    };
    print(&text)
}

/// Prints the status of these apps, as text, or as a JSON array.
pub(crate) fn show_all(all: Vec<Asked>, json: bool) -> Result<()> {
    let mut users = Users::new();
    let one = |asked| {
        let (dir, known) = Known::of(asked);
        if json { known.json(&dir) } else { Ok(known.text(&dir, &mut users)) }
    };
    let all = all.into_iter().map(one).collect::<serde_json::Result<Vec<_>>>()?;
    print(&if json { ascii_json(&format!("[{}]", all.join(","))) + "\n" } else { all.join("\n") })
}

/// The document of `--json`.
#[derive(Serialize)]
struct JsonStatus {
    app_state: &'static str,
    /// As Kubernetes or Docker has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    container_name: Option<String>,
    #[serde(flatten)]
    rest: JsonRest,
}

#[derive(Serialize)]
#[serde(untagged)]
enum JsonRest {
    Report(Box<Report>),
    /// Its mux has ended.
    Ended {
        app: String,
        state: &'static str,
        ended_ms: u64,
        app_ended: Option<AppStatus>,
        streams: Vec<StreamTail>,
    },
    /// Only the state is known.
    Other {
        app: String,
    },
}

/// The status of an app's mux, without the client that asks for it here.
pub(crate) fn report(dir: &AppDir) -> Result<Report> {
    report_within(dir, Duration::ZERO)
}

/// The same; waits so long for a mux to appear.
pub(crate) fn report_within(dir: &AppDir, appears: Duration) -> Result<Report> {
    let wait = (appears, appears + limits::ANSWER);
    match ask(dir, &FrameKind::Status.frame(b""), wait, Hint::Start)? {
        MuxEvent::Report(report) => Ok(each::without_asker(*report)),
        _ => bail!("app {}: its mux has not reported", dir.name()),
    }
}

/// The app's state: as its mux reports it, unless the app does not have the mux's streams yet.
pub(crate) fn app_state(dir: &AppDir, report: &Report) -> AppState {
    match report.app_state() {
        AppState::Prepared if enable::with_earlier_streams(dir).is_some() => AppState::Pending,
        state => state,
    }
}

/// Sends a request to a mux. Waits for a mux that is restarting if a hook of the app's unit asks.
pub(crate) fn control(dir: &AppDir, request: &ControlRequest) -> Result<()> {
    // It was restarted with its app, and its next start waits for this hook.
    let has_stopped = || find::state_without_mux(dir, false) == AppState::Exited;
    let wait = match request {
        ControlRequest::Ended(_) if has_stopped() => return Ok(()),
        // Without a directory there has been no mux: the hook runs in its own root.
        ControlRequest::Ended(_) | ControlRequest::Started(_) if dir.dir().is_dir() => {
            (limits::HOOK, limits::HOOK)
        }
        ControlRequest::Ended(_) | ControlRequest::Started(_) => (Duration::ZERO, limits::HOOK),
        _ => (Duration::ZERO, limits::ANSWER),
    };
    match tell(dir, request, wait) {
        // The next one resumes the output anyway.
        Err(e) if *request == ControlRequest::Stopping && find::is_absence(&e) => Ok(()),
        told => told,
    }
}

/// Sends a request to a mux. The two times limit the wait for a mux, and the whole.
pub(crate) fn tell(
    dir: &AppDir,
    request: &ControlRequest,
    wait: (Duration, Duration),
) -> Result<()> {
    // A hook of the app's unit is run by the start that one would be told of.
    let hint = match request {
        ControlRequest::Ended(_) | ControlRequest::Started(_) => Hint::Nothing,
        _ => Hint::Start,
    };
    match ask(dir, &FrameKind::Request.message(request), wait, hint)? {
        MuxEvent::Answer(RequestOutcome { error: Some(error) }) => {
            bail!("app {}: {}", dir.name(), escape::line(&error))
        }
        _ => Ok(()),
    }
}

/// Sends a question over a session without streams, and returns the report or the answer. The two
/// times limit the wait for a mux, and the whole.
fn ask(
    dir: &AppDir,
    question: &[u8],
    (appears, answers): (Duration, Duration),
    hint: Hint,
) -> Result<MuxEvent> {
    let until = Instant::now() + answers;
    // A timeout of zero would mean none.
    let left = || until.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
    find::retry(dir, appears, hint, |endpoints| {
        let patience = Patience::For(left());
        let (mut session, _) =
            session::open(dir, endpoints.session(), &Hello::default(), patience)?;
        session.socket.write_all(question).context("cannot send the request")?;
        loop {
            let message = session.next(dir, Some(until))?;
            if matches!(message, MuxEvent::Report(_) | MuxEvent::Answer(_)) {
                return Ok(message);
            }
        }
    })
}

/// The names of users that were looked up.
type Users = BTreeMap<u32, String>;

/// A client as a person knows it, and what it does.
fn about(client: &ClientReport, users: &mut Users) -> String {
    let who = if client.engine {
        "container engine".to_owned()
    } else {
        let named = |uid| account::name(uid).map(|name| escape::line(&name).into_owned());
        let user = users.entry(client.uid);
        user.or_insert_with_key(|uid| named(*uid).unwrap_or_else(|| format!("uid {uid}"))).clone()
    };
    // 0 is a process in another pid namespace.
    let pid = u32::try_from(client.pid).ok().filter(|pid| *pid > 0 && !client.engine);
    let place = pid.map(|pid| format!(", pid {pid}"));
    let does = match client {
        ClientReport { exclusive: true, .. } => "holds the input lock",
        ClientReport { types: true, .. } => "types",
        _ => "watches",
    };
    let since = Some(client.connected_ms).filter(|since| *since > 0);
    let since = since.map(|since| format!(", attached {} ago", rough(since)));
    format!("{who}{}{}, {does}", place.unwrap_or_default(), since.unwrap_or_default())
}

/// A client that has taken nothing for so many milliseconds is stuck, and not just slow.
const STALLED: u64 = 1000;

/// The report as text. It contains no bytes of the app or a client.
fn text(report: &Report, state: AppState, users: &mut Users) -> String {
    let mut out = String::new();
    let seconds = report.uptime_ms / 1000;
    // Writing into a string does not fail.
    let _ = write!(
        out,
        "app {}: {}, mux {} {} and up {seconds} s",
        escape::line(&report.app),
        state.word(),
        report.mux_pid,
        escape::line(&report.state),
    );
    let _ = match (report.app_pid, report.app_ended) {
        (Some(pid), None) => writeln!(out, ", app {pid}"),
        (Some(pid), Some(before)) => {
            writeln!(out, ", app {pid} started again after it ended {before}")
        }
        (None, Some(status)) => writeln!(out, ", app ended {status}"),
        (None, None) => writeln!(out),
    };
    if report.restarts > 0 {
        let _ = writeln!(out, "restarts {}", report.restarts);
    }
    for stream in &report.streams {
        let _ = write!(out, "{:8} {} bytes", stream.stream.name(), stream.bytes);
        let _ = match stream.unseen {
            0 => writeln!(out),
            unseen => writeln!(out, ", {unseen} of them sent to no client yet"),
        };
    }
    if report.unread > 0 {
        let _ = writeln!(out, "input    {} bytes that the app has not read", report.unread);
    }
    if !report.refused.is_empty() {
        let words = report.refused.words().into_iter().filter(|(_, number)| *number > 0);
        let words: Vec<String> = words.map(|(word, number)| format!("{word} {number}")).collect();
        let _ = writeln!(out, "not shown without --pass: {}", words.join(", "));
    }
    if let Some(why) = report.stopped() {
        let _ = writeln!(out, "{why}");
    }
    for client in report.clients.iter().filter(|client| client.is_attached()) {
        let _ = write!(out, "client {} {}", client.client, about(client, users));
        for place in &client.streams {
            let _ = write!(
                out,
                ", {} at {} ({} behind, {} lost",
                place.stream, place.position, place.lag, place.lost
            );
            if place.skipped > 0 {
                let _ = write!(out, ", {} skipped", place.skipped);
            }
            out.push(')');
        }
        // A slow one takes something each moment.
        if client.stalled_ms >= STALLED {
            let _ = write!(out, ", takes nothing for {}", rough(client.stalled_ms));
        }
        let _ = writeln!(out);
    }
    if report.unlisted > 0 {
        let _ = writeln!(out, "and {} more clients", report.unlisted);
    }
    for LogReport { log, failing, lost_lines, lost_bytes } in &report.logs {
        let _ = write!(out, "log {}", escape::line(log));
        if *lost_bytes > 0 {
            let _ = write!(out, ", {lost_lines} lines ({lost_bytes} bytes) lost");
        }
        let _ = match failing {
            Some(why) => writeln!(out, ", failing: {}", escape::line(why)),
            None => writeln!(out),
        };
    }
    let now = Now::read().stamp.millis();
    for ErrorReport { at_ms, error } in &report.errors {
        let ago = now.saturating_sub(*at_ms) / 1000;
        let _ = writeln!(out, "{ago} s ago: {}", escape::line(error));
    }
    out
}

/// `last.json` as text, with the app's last lines as they are read, escaped and indented.
fn last_text(dir: &AppDir, last: &Last) -> String {
    let name = dir.name();
    let mut out = format!("app {name}: {last}\n");
    for StreamTail { stream, bytes, tail } in &last.streams {
        let _ = writeln!(out, "{:8} {bytes} bytes", stream.name());
        let tail = readable(*stream, tail);
        let lines: Vec<&str> = tail.lines().collect();
        let more = lines.len().saturating_sub(LAST_LINES);
        if more > 0 {
            let _ = writeln!(out, "  (more: iottymux logs {name})");
        }
        for line in &lines[more..] {
            let _ = writeln!(out, "  {}", escape::line(line));
        }
    }
    out
}
