//! `ask`: types a line and prints what the app prints in answer.

use std::time::Duration;

use anyhow::{Result, bail};
use regex_lite::Regex;
use serde::Serialize;
use tokio::time::{Instant, timeout_at};

use super::session::{AT_ONCE, News, Purpose, Session, Typing};
use crate::client::runtime::block_on;
use crate::core::wire::{AppStatus, Begin, Exclusive, Gap};
use crate::screen::lines::{LinePart, PlainLines};
use crate::sys::diagnostics;
use crate::sys::print::print;
use crate::sys::state::AppDir;
use crate::types::exit::Exit;
use crate::types::stream::{Position, Stream};

/// Pause after which an answer without another end is whole.
pub(crate) const IDLE: Duration = Duration::from_millis(300);
/// Pause after the last output in which a shell marks the begin of a command, if it marks it at all:
/// shells do so at once.
const MARKS: Duration = Duration::from_secs(2);
/// Bytes before an answer in which the line is looked for that the question continues.
const BEFORE: u64 = 4096;
/// Characters at the end of a question by which its echo is known: a line editor may have broken the
/// line before them.
const ECHO_TAIL: usize = 16;

/// What ends an answer, besides the end of the app.
#[derive(Clone, Debug)]
pub(crate) enum AnswerUntil {
    /// Text that matches; whether it is printed.
    Until(Regex, bool),
    /// A pause of this length after some output.
    Idle(Duration),
    /// The mark of a shell that its command has ended.
    Command,
}

/// A question.
#[derive(Debug)]
pub(crate) struct AskRequest {
    pub(crate) dir: AppDir,
    pub(crate) line: String,
    pub(crate) end: AnswerUntil,
    pub(crate) timeout: Duration,
    /// Whether others may type meanwhile.
    pub(crate) is_shared: bool,
    /// Whether each line is printed as a JSON document.
    pub(crate) json: bool,
}

/// The last document.
#[derive(Serialize)]
struct JsonEnd {
    end: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<u8>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    incomplete: bool,
}

/// How the answer ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Matched,
    Paused,
    Command(Option<u8>),
    NoCommand,
    AppEnded(Option<AppStatus>),
    TimedOut,
    /// The app does not have the line: it has ended, or why.
    NotTaken(Option<String>),
}

/// A line of an answer; the last one may have no end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct AnswerLine {
    /// Of this stream.
    pub stream: Stream,
    /// Without control sequences and its end.
    pub text: String,
}

/// What takes the lines of an answer as they come.
pub(crate) type Sink<'a> = dyn FnMut(Vec<AnswerLine>) -> Result<()> + Send + 'a;

/// Types the line, and prints the answer as it comes.
pub(crate) fn ask(request: &AskRequest) -> Result<Exit> {
    let mut print_lines = |lines: Vec<AnswerLine>| {
        let line = |line: &AnswerLine| {
            if request.json { super::document(line) } else { Ok(line.text.clone() + "\n") }
        };
        print(&lines.iter().map(line).collect::<Result<String>>()?)
    };
    let (outcome, is_incomplete) = block_on(answer(request, &mut print_lines))?;
    report(request, &outcome, is_incomplete)
}

/// Types the line, and reads the answer. Returns how it ended, and whether a part of it is lost.
pub(crate) async fn answer(request: &AskRequest, sink: &mut Sink<'_>) -> Result<(Outcome, bool)> {
    let (dir, deadline) = (&request.dir, super::until(Some(request.timeout)));
    let purpose = Purpose { from: Some(Position::Now), ..Purpose::default() };
    let session = Session::open(dir, purpose, AT_ONCE).await?;
    if matches!(request.end, AnswerUntil::Command) && !session.has_terminal() {
        bail!("app {} has no terminal, so it is no shell that marks commands", dir.name());
    }
    let mut answer = ComingAnswer::new(request, session.outputs());
    let text = request.line.clone().into_bytes();
    let before = BEFORE + text.len() as u64;
    let alone = (!request.is_shared).then_some(Exclusive::Wait);
    let typing = Typing { text, is_line: true, is_apart: true, alone };
    let mut session = session.type_text(typing, before).await?;
    let outcome = answer.read(&mut session, (deadline, sink)).await?;
    answer.finish(outcome, sink)
}

/// An answer that comes.
struct ComingAnswer<'a> {
    request: &'a AskRequest,
    outputs: Vec<AnswerOutput>,
    /// Why the app does not have the line yet.
    waits: Option<String>,
    /// Whether the command of a shell has begun to run.
    has_begun: bool,
    /// When something came last.
    last_output: Option<Instant>,
    is_incomplete: bool,
    /// What is not handed on yet.
    lines: Vec<AnswerLine>,
}

/// One output of the app.
struct AnswerOutput {
    stream: Stream,
    lines: PlainLines,
    /// Where the answer begins, once the app has the line.
    begin: Option<u64>,
    /// The line that the question continues, until the answer has a line.
    before: Option<String>,
    /// What an unfinished line is if it is not an answer.
    prompt: String,
    /// Whether the terminal will show the question.
    awaits_echo: bool,
}

impl<'a> ComingAnswer<'a> {
    fn new(request: &'a AskRequest, outputs: impl Iterator<Item = Stream>) -> Self {
        let is_command = matches!(request.end, AnswerUntil::Command);
        let output = |stream| AnswerOutput {
            stream,
            lines: PlainLines::default(),
            begin: None,
            before: None,
            prompt: String::new(),
            awaits_echo: stream == Stream::Tty && !is_command,
        };
        Self {
            request,
            outputs: outputs.map(output).collect(),
            waits: Some("it may read it later".to_owned()),
            has_begun: !is_command,
            last_output: None,
            is_incomplete: false,
            lines: Vec::new(),
        }
    }

    async fn read(
        &mut self,
        session: &mut Session,
        (deadline, sink): (Instant, &mut Sink<'_>),
    ) -> Result<Outcome> {
        loop {
            let pause = self.pause_ends();
            let until = pause.map_or(deadline, |at| at.min(deadline));
            match timeout_at(until, session.next()).await {
                Ok(Ok(news)) => {
                    if let Some(outcome) = self.take(news) {
                        return Ok(outcome);
                    }
                    sink(std::mem::take(&mut self.lines))?;
                    // A flood leaves the timer no time.
                    if Instant::now() >= deadline {
                        return Ok(Outcome::TimedOut);
                    }
                }
                Ok(Err(e)) => return super::ended(e).map(Outcome::AppEnded),
                Err(_) if pause.is_none_or(|at| at > deadline) => return Ok(Outcome::TimedOut),
                Err(_) => {
                    if let Some(outcome) = self.pause() {
                        return Ok(outcome);
                    }
                }
            }
        }
    }

    fn take(&mut self, news: News) -> Option<Outcome> {
        match news {
            News::Output(stream, bytes, end) => self.output(stream, &bytes, end),
            News::Lost(gap) => {
                // What is lost before the answer is not missed.
                let is_before = |gap: Gap| {
                    let output = self.outputs.iter().find(|out| out.stream == gap.stream);
                    output.is_none_or(|output| output.begin.is_none_or(|begin| gap.to <= begin))
                };
                self.is_incomplete |= !gap.is_some_and(is_before);
                None
            }
            News::Waits(why) => {
                self.waits = Some(why + ", and it is not typed");
                None
            }
            News::Taken(taken) => {
                self.waits = None;
                for Begin { stream, offset } in taken.outputs {
                    for output in self.outputs.iter_mut().filter(|it| it.stream == stream) {
                        output.begin = Some(offset);
                        output.awaits_echo &= !taken.hidden;
                    }
                }
                None
            }
            News::Ended(status) => Some(Outcome::AppEnded(Some(status))),
            News::Over(status) => Some(Outcome::AppEnded(status)),
            _ => None,
        }
    }

    fn awaits_echo(&self) -> bool {
        self.outputs.iter().any(|output| output.awaits_echo)
    }

    /// When a pause is over that means something.
    fn pause_ends(&self) -> Option<Instant> {
        let pause = match self.request.end {
            AnswerUntil::Command if !self.has_begun => MARKS,
            AnswerUntil::Idle(pause) => pause,
            _ if self.awaits_echo() => IDLE,
            _ => return None,
        };
        self.last_output.map(|at| at + pause)
    }

    /// The pause is over.
    fn pause(&mut self) -> Option<Outcome> {
        if !self.has_begun {
            return Some(Outcome::NoCommand);
        }
        if !self.awaits_echo() {
            return Some(Outcome::Paused);
        }
        // The terminal does not show what is typed.
        for index in 0..self.outputs.len() {
            self.outputs[index].awaits_echo = false;
            if self.open_line(index) {
                return Some(Outcome::Matched);
            }
        }
        None
    }

    fn output(&mut self, stream: Stream, bytes: &[u8], end: u64) -> Option<Outcome> {
        let index = self.outputs.iter().position(|output| output.stream == stream)?;
        let output = &mut self.outputs[index];
        let first = end - bytes.len() as u64;
        let before = output.begin.unwrap_or(u64::MAX).saturating_sub(first);
        let before = usize::try_from(before).unwrap_or(usize::MAX);
        let (before, bytes) = bytes.split_at(before.min(bytes.len()));
        output.lines.parts(before);
        if bytes.is_empty() {
            return None;
        }
        let open = output.lines.open_line();
        output.before.get_or_insert(open);
        if output.awaits_echo || !self.has_begun {
            self.last_output = Some(Instant::now());
        }
        for (part, _) in self.outputs[index].lines.parts(bytes) {
            match part {
                LinePart::Begun => self.has_begun = true,
                LinePart::Ended(status) if matches!(self.request.end, AnswerUntil::Command) => {
                    if self.has_begun {
                        return Some(Outcome::Command(status));
                    }
                }
                LinePart::Line(line) if self.has_begun => {
                    if self.line(index, &line) {
                        return Some(Outcome::Matched);
                    }
                }
                LinePart::Ended(_) | LinePart::Line(_) => {}
            }
        }
        self.open_line(index).then_some(Outcome::Matched)
    }

    /// Takes a whole line. Whether the answer ends in it.
    fn line(&mut self, index: usize, line: &str) -> bool {
        let question = &self.request.line;
        let output = &mut self.outputs[index];
        let before = output.before.replace(String::new()).unwrap_or_default();
        if output.awaits_echo && is_echo(line, question) {
            line.strip_suffix(question).unwrap_or(&before).clone_into(&mut output.prompt);
            output.awaits_echo = false;
            // Only what follows is an answer that may pause.
            self.last_output = None;
            return false;
        }
        if !before.is_empty() {
            output.prompt.clone_from(&before);
        }
        self.last_output = Some(Instant::now());
        let line = line.strip_prefix(&before).unwrap_or(line);
        let end = self.find(line);
        self.add(index, &line[..end.unwrap_or(line.len())], end.is_none());
        end.is_some()
    }

    /// Looks at the line that is not whole. Whether the answer ends in it.
    fn open_line(&mut self, index: usize) -> bool {
        let Some(open) = self.unfinished(index).filter(|open| !open.is_empty()) else {
            return false;
        };
        self.last_output = Some(Instant::now());
        let Some(end) = self.find(&open) else { return false };
        self.add(index, &open[..end], false);
        true
    }

    /// The line that is not whole, as far as it belongs to the answer.
    fn unfinished(&self, index: usize) -> Option<String> {
        let output = &self.outputs[index];
        if !self.has_begun || output.awaits_echo {
            return None;
        }
        let open = output.lines.open_line();
        let before = output.before.as_ref()?;
        Some(open.strip_prefix(before).unwrap_or(&open).to_owned())
    }

    /// Where the printed part of a line ends, if the answer ends in it.
    fn find(&self, line: &str) -> Option<usize> {
        let AnswerUntil::Until(regex, prints_match) = &self.request.end else { return None };
        let found = regex.find(line)?;
        Some(if *prints_match { found.end() } else { found.start() })
    }

    /// Adds a line, or nothing for a part that is empty.
    fn add(&mut self, index: usize, text: &str, is_whole: bool) {
        if !text.is_empty() || is_whole {
            let stream = self.outputs[index].stream;
            self.lines.push(AnswerLine { stream, text: text.to_owned() });
        }
    }

    /// Hands on what is left. Returns how it ended, and whether a part is lost.
    fn finish(mut self, outcome: Outcome, sink: &mut Sink<'_>) -> Result<(Outcome, bool)> {
        // Behind the end of a command is only the next prompt.
        if !matches!(outcome, Outcome::Matched | Outcome::Command(_)) {
            for index in 0..self.outputs.len() {
                if let Some(open) = self.unfinished(index) {
                    let prompt = std::mem::take(&mut self.outputs[index].prompt);
                    // The last prompt may stand behind a line that has no end, or this one.
                    let answer = if prompt.ends_with(&open) { "" } else { &open };
                    let answer = answer.strip_suffix(&prompt).unwrap_or(answer);
                    self.add(index, answer, false);
                }
            }
        }
        sink(self.lines)?;
        let outcome = match (self.waits, outcome) {
            (None, outcome) => outcome,
            (Some(_), Outcome::AppEnded(_)) => Outcome::NotTaken(None),
            (Some(why), _) => Outcome::NotTaken(Some(why)),
        };
        Ok((outcome, self.is_incomplete))
    }
}

/// Says how the answer ended.
fn report(request: &AskRequest, outcome: &Outcome, incomplete: bool) -> Result<Exit> {
    let (end, exit, status) = match outcome {
        Outcome::NotTaken(_) => ("", Exit::Failed, None),
        Outcome::Matched => ("until", Exit::Done, None),
        Outcome::Paused => ("idle", Exit::Done, None),
        Outcome::Command(status) => ("command", Exit::App(status.unwrap_or(0)), *status),
        Outcome::NoCommand => ("unmarked", Exit::Incomplete, None),
        // Only a pause or a command may end by the end of the app.
        Outcome::AppEnded(Some(status))
            if status.code() == 0 && matches!(request.end, AnswerUntil::Until(..)) =>
        {
            ("app", Exit::Incomplete, Some(0))
        }
        Outcome::AppEnded(Some(status)) => ("app", Exit::App(status.code()), Some(status.code())),
        Outcome::AppEnded(None) => ("app", Exit::Lost, None),
        Outcome::TimedOut => ("timeout", Exit::Incomplete, None),
    };
    let say = |text: &str| diagnostics::say(&format!("app {}{text}", request.dir.name()));
    if let Some(what) = outcome.what(request.timeout) {
        say(&what);
    }
    if exit == Exit::Failed {
        return Ok(exit);
    }
    if incomplete {
        say(": a part of the answer is lost");
    }
    if request.json {
        print(&super::document(&JsonEnd { end, status, incomplete })?)?;
    }
    Ok(if incomplete && exit == Exit::Done { Exit::Incomplete } else { exit })
}

impl Outcome {
    /// What a person is told, behind the name of the app, of an answer that did not end as it was to.
    pub(crate) fn what(&self, timeout: Duration) -> Option<String> {
        Some(match self {
            Self::Matched | Self::Paused | Self::Command(_) => return None,
            Self::NoCommand => {
                " has the line, but no command began: the shell is busy, waits for more, or \
                 marks no commands (iottymux ask --help)"
                    .to_owned()
            }
            Self::AppEnded(Some(status)) => format!(" ended {status}"),
            Self::AppEnded(None) => " has ended; its exit status is unknown".to_owned(),
            Self::TimedOut => format!(": the answer did not end within {timeout:?}"),
            Self::NotTaken(None) => " has ended, and has not taken the line".to_owned(),
            Self::NotTaken(Some(why)) => format!(" has not taken the line in time: {why}"),
        })
    }
}

/// Whether a line is what a terminal shows of a question.
fn is_echo(line: &str, question: &str) -> bool {
    let tail = question.char_indices().rev().nth(ECHO_TAIL - 1).map_or(0, |(at, _)| at);
    line.contains(question[tail..].trim_end())
}
