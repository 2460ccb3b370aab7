//! `wait`: returns when apps are ready, have said something, are quiet or have ended.

use std::time::Duration;

use anyhow::{Result, bail};
use regex_lite::{Captures, Match, Regex};
use serde::Serialize;
use tokio::task::{JoinSet, yield_now};
use tokio::time::{Instant, timeout, timeout_at};

use super::super::find::{self, Hint};
use super::quiet::{BUSY, Quiet, SETTLES};
use super::script_session::{AT_ONCE, MuxWait, Session, SessionEvent};
use super::view::{self, View, no_terminal};
use crate::client::tokio_runtime::block_on;
use crate::core::wire::{AppState, AppStatus, Hello, Report};
use crate::screen::Screen;
use crate::screen::transcript::{LinePart, LineParts, Lines};
use crate::sys::diagnostics;
use crate::sys::documents::last::StreamTail;
use crate::sys::print::print;
use crate::sys::state::AppDir;
use crate::types::exit::Exit;
use crate::types::limits;
use crate::types::stream::{Position, Stream};

/// What is waited for: the first of these.
#[derive(Clone, Debug, Default)]
pub(crate) struct WaitConditions {
    /// Text in a line of the output, from this position on.
    pub(crate) text: Option<Regex>,
    pub(crate) from: Position,
    /// Text in a row of the terminal's screen.
    pub(crate) screen: Option<Regex>,
    /// A pause of the output.
    pub(crate) idle: Option<Duration>,
    /// The app runs and can be attached.
    pub(crate) ready: bool,
    /// The app ends.
    pub(crate) exit: bool,
}

/// A wait.
#[derive(Debug)]
pub(crate) struct WaitRequest {
    pub(crate) apps: Vec<AppDir>,
    pub(crate) conditions: WaitConditions,
    pub(crate) timeout: Option<Duration>,
    pub(crate) json: bool,
}

/// What has come about.
#[derive(Debug, Default, Serialize)]
pub struct Met {
    /// The name of the app.
    pub app: String,
    /// What was waited for: `for`, `screen`, `idle`, `ready` or `exit`.
    pub condition: &'static str,
    /// The stream of the text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stream: Option<Stream>,
    /// Where the line of the text ends, or as much of it as there is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub offset: Option<u64>,
    /// What matched, or how the app has ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// The groups of the match.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<Option<String>>,
    /// The exit status of an app that has ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<u8>,
    /// When, as RFC 3339 has it, in UTC.
    pub time: String,
}

impl Met {
    fn new(dir: &AppDir, condition: &'static str) -> Self {
        Self { app: dir.name().to_string(), condition, time: super::now(), ..Self::default() }
    }

    fn ended(dir: &AppDir, status: Option<AppStatus>) -> Self {
        let text = status.map_or_else(|| "ended".to_owned(), |status| format!("ended {status}"));
        let status = status.map(AppStatus::code);
        Self { text: Some(text), status, ..Self::new(dir, "exit") }
    }

    /// A text in the output, which is there, or on the screen.
    fn matched(dir: &AppDir, place: Option<(Stream, u64)>, found: &Captures<'_>) -> Self {
        // A row may have blanks up to the cursor.
        let shown = |it: Match<'_>| match place {
            Some(_) => it.as_str().to_owned(),
            None => it.as_str().trim_end().to_owned(),
        };
        let group = |at| found.get(at).map(shown);
        Self {
            stream: place.map(|(stream, _)| stream),
            offset: place.map(|(_, offset)| offset),
            text: group(0),
            groups: (1..found.len()).map(group).collect(),
            ..Self::new(dir, if place.is_some() { "for" } else { "screen" })
        }
    }

    /// The text by itself if nothing else can have come about.
    fn line(&self, is_only: bool) -> String {
        let text = self.text.as_deref().unwrap_or_default();
        match (is_only, text) {
            (true, "") => String::new(),
            (true, _) => format!("{text}\n"),
            (false, _) => {
                format!("{} {} {text}", self.app, self.condition).trim_end().to_owned() + "\n"
            }
        }
    }
}

impl WaitConditions {
    /// What is waited for, for people.
    fn words(&self) -> Vec<&'static str> {
        let Self { text, screen, idle, ready, exit, .. } = self;
        let asked = [
            (text.is_some(), "such output"),
            (screen.is_some(), "such screen"),
            (idle.is_some(), "pause of its output"),
            (*ready, "start"),
            (*exit, "end"),
        ];
        asked.into_iter().filter(|(is_asked, _)| *is_asked).map(|(_, word)| word).collect()
    }

    fn needs_output(&self) -> bool {
        self.text.is_some() || self.screen.is_some() || self.idle.is_some()
    }
}

/// Waits for each of the apps.
pub(crate) fn wait(request: &WaitRequest) -> Result<Exit> {
    block_on(wait_for_all(request))
}

async fn wait_for_all(request: &WaitRequest) -> Result<Exit> {
    let deadline = super::until(request.timeout);
    let mut waits = JoinSet::new();
    for dir in &request.apps {
        let (dir, conditions) = (dir.clone(), request.conditions.clone());
        waits.spawn(async move {
            let met = timeout_at(deadline, Wait::new(&dir, &conditions).run()).await;
            (dir, met)
        });
    }
    let is_only = request.apps.len() == 1 && request.conditions.words().len() == 1;
    let mut exit = Exit::Done;
    while let Some(done) = waits.join_next().await {
        match done? {
            (_, Ok(Ok(met))) if request.json => print(&super::document(&met)?)?,
            (_, Ok(Ok(met))) => print(&met.line(is_only))?,
            (_, Ok(Err(error))) => exit = diagnostics::failed(&error, Exit::Failed),
            (dir, Err(_)) => {
                let what = request.conditions.words().join(" and no ");
                let time = super::within(request.timeout.unwrap_or_default());
                diagnostics::say(&format!("app {}: no {what} {time}", dir.name()));
                exit = if exit == Exit::Done { Exit::Incomplete } else { exit };
            }
        }
    }
    Ok(exit)
}

/// The wait for one app.
pub(crate) struct Wait<'a> {
    dir: &'a AppDir,
    conditions: &'a WaitConditions,
    /// The lines of each output.
    lines: Vec<(Stream, Lines)>,
    /// When those of a terminal are looked at, and where they end.
    quiet: Quiet,
    end: u64,
    view: View,
    /// Whether the mux has ended with its app.
    is_over: bool,
}

impl<'a> Wait<'a> {
    pub(crate) fn new(dir: &'a AppDir, conditions: &'a WaitConditions) -> Self {
        let quiet = Quiet::new(SETTLES, BUSY);
        Self {
            dir,
            conditions,
            lines: Vec::new(),
            quiet,
            end: 0,
            view: View::default(),
            is_over: false,
        }
    }

    pub(crate) async fn run(mut self) -> Result<Met> {
        match self.run_to_end().await {
            Ok(met) => {
                if self.is_over {
                    // Then another app may have the name. An error is that of whoever starts that.
                    let dir = self.dir.clone();
                    let unlocked = tokio::task::spawn_blocking(move || dir.await_unlocked());
                    let _ = timeout(limits::ANSWER, unlocked).await;
                }
                Ok(met)
            }
            Err(e) => self.ended_before(e),
        }
    }

    /// The app has ended before: that, or its last output, is what was waited for, or an error.
    fn ended_before(&mut self, error: anyhow::Error) -> Result<Met> {
        let Some(find::Ended { last, .. }) = error.downcast_ref() else { return Err(error) };
        if self.conditions.from != Position::Now {
            for StreamTail { stream, bytes, tail } in &last.streams {
                let met = self.output(*stream, tail.as_bytes(), *bytes);
                if let Some(met) = met.or_else(|| self.settle()) {
                    return Ok(met);
                }
            }
        }
        if self.conditions.exit { Ok(Met::ended(self.dir, last.status)) } else { Err(error) }
    }

    async fn run_to_end(&mut self) -> Result<Met> {
        // One that is to be ready may still have to start.
        let wait = match self.conditions {
            WaitConditions { ready: true, exit: false, .. } => (limits::AGES, Hint::Nothing),
            _ => AT_ONCE,
        };
        let mut session = self.open(wait).await?;
        if let Some(met) = self.screen() {
            return Ok(met);
        }
        if self.conditions.ready || self.conditions.exit {
            session.ask_status();
        }
        let mut last_output = Instant::now();
        loop {
            let idle = self.conditions.idle.map(|pause| last_output + pause);
            let until = [idle, self.quiet.due()].into_iter().flatten().min();
            match timeout_at(until.unwrap_or_else(|| super::until(None)), session.next()).await {
                Ok(news) => {
                    let news = news?;
                    if matches!(news, SessionEvent::Output(..)) {
                        last_output = Instant::now();
                        // A flood leaves the timer no time.
                        yield_now().await;
                    }
                    if let Some(met) = self.take(news)? {
                        return Ok(met);
                    }
                }
                Err(_) if idle.is_some_and(|at| Instant::now() >= at) => {
                    return Ok(Met::new(self.dir, "idle"));
                }
                Err(_) => {}
            }
            if self.quiet.take()
                && let Some(met) = self.settle()
            {
                return Ok(met);
            }
        }
    }

    async fn open(&mut self, wait: MuxWait) -> Result<Session> {
        let WaitConditions { text, from, screen, .. } = self.conditions;
        if text.is_none() && screen.is_none() {
            let from = self.conditions.needs_output().then_some(*from);
            return Session::open(self.dir, Hello::default(), from, None, wait).await;
        }
        let (session, view) = view::open(self.dir, 0, wait).await?;
        if screen.is_some() && !session.has_terminal() {
            bail!(no_terminal(self.dir));
        }
        if screen.is_some() {
            self.view = view;
            return Ok(session);
        }
        let now = view.into_screen();
        // What was printed before now is read in the same window.
        let size = now.as_ref().map(Screen::size);
        let first = now.filter(|_| *from == Position::Now).or(size.map(Screen::new));
        self.lines = vec![(Stream::Tty, Lines::of(Stream::Tty, first))];
        let from = Some(*from).filter(|from| *from != Position::Now);
        session.again(from, None).await
    }

    fn take(&mut self, news: SessionEvent) -> Result<Option<Met>> {
        let (dir, conditions) = (self.dir, self.conditions);
        if self.view.take(&news)
            && let Some(met) = self.screen()
        {
            return Ok(Some(met));
        }
        self.is_over = matches!(news, SessionEvent::Over(_));
        if self.is_over
            && let Some(met) = self.settle()
        {
            return Ok(Some(met));
        }
        Ok(match news {
            SessionEvent::Output(stream, bytes, end) => self.output(stream, &bytes, end),
            SessionEvent::Started if conditions.ready => Some(Met::new(dir, "ready")),
            SessionEvent::Report(report) => self.report(&report),
            SessionEvent::Ended(status) if conditions.exit => Some(Met::ended(dir, Some(status))),
            SessionEvent::Over(status) if conditions.exit => Some(Met::ended(dir, status)),
            SessionEvent::Over(status) => {
                let how = status.map_or_else(String::new, |status| format!(" {status}"));
                bail!("app {} has ended{how}", dir.name());
            }
            _ => None,
        })
    }

    fn report(&self, report: &Report) -> Option<Met> {
        match report.app_state() {
            AppState::Running if self.conditions.ready => Some(Met::new(self.dir, "ready")),
            AppState::Exited if self.conditions.exit => {
                Some(Met::ended(self.dir, report.app_ended))
            }
            _ => None,
        }
    }

    /// Looks at each row of the screen.
    fn screen(&self) -> Option<Met> {
        let regex = self.conditions.screen.as_ref()?;
        let shown = self.view.shown()?;
        let look = |row: String| Some(Met::matched(self.dir, None, &regex.captures(&row)?));
        shown.texts().find_map(look)
    }

    /// Looks at each line, and at the begin of the last one.
    fn output(&mut self, stream: Stream, bytes: &[u8], end: u64) -> Option<Met> {
        self.conditions.text.as_ref()?;
        self.end = end;
        if !self.lines.iter().any(|(of, _)| *of == stream) {
            self.lines.push((stream, Lines::of(stream, None)));
        }
        let (_, lines) = self.lines.iter_mut().find(|(of, _)| *of == stream)?;
        let parts = lines.feed(bytes, end.saturating_sub(bytes.len() as u64));
        let settles = lines.settles();
        if settles {
            self.quiet.disturb();
        }
        let open = (!settles).then(|| (lines.open_line(), end));
        self.look(stream, parts, open)
    }

    /// The app is quiet: its terminal shows what it is to show.
    fn settle(&mut self) -> Option<Met> {
        let (stream, lines) = self.lines.iter_mut().find(|(_, lines)| lines.settles())?;
        let (stream, parts) = (*stream, lines.settle());
        let open = (lines.open_line(), self.end);
        self.look(stream, parts, Some(open))
    }

    fn look(&self, stream: Stream, parts: LineParts, open: Option<(String, u64)>) -> Option<Met> {
        let regex = self.conditions.text.as_ref()?;
        let lines = parts.into_iter().filter_map(|(part, at)| match part {
            LinePart::Line(line) => Some((line, at)),
            LinePart::Begun | LinePart::Ended(_) => None,
        });
        lines.chain(open).find_map(|(line, at)| {
            Some(Met::matched(self.dir, Some((stream, at)), &regex.captures(&line)?))
        })
    }
}
