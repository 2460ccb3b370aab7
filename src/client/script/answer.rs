//! The answer to a line that is typed: what the app prints from there on, as it comes, and what ends it.

use std::time::Duration;

use anyhow::{Result, bail};
use regex_lite::Regex;
use serde::Serialize;
use tokio::time::{Instant, timeout_at};

use super::echo::{Echo, begins, ends};
use super::quiet::{BUSY, Quiet, SETTLES};
use super::script_session::{AT_ONCE, Session, SessionEvent, Typing};
use super::view;
use crate::core::wire::{AppStatus, Begin, ClientEvent, Exclusive, Gap};
use crate::screen::Screen;
use crate::screen::transcript::{LinePart, LineParts, Lines};
use crate::sys::state::AppDir;
use crate::types::stream::Stream;

/// Pause after which an answer without another end is whole.
pub(crate) const IDLE: Duration = Duration::from_millis(300);
/// Pause after the last output in which a shell marks the begin of a command, if it marks it at all:
/// shells do so at once.
const MARKS: Duration = Duration::from_secs(2);

/// Bytes of a pipe in which the line is looked for that the question continues.
const BEFORE: u64 = 4096;
/// Lines among which a terminal shows the question: those that an app prints meanwhile.
const ECHO_LINES: usize = 100;

/// Blank lines that wait for another line, at most.
const BLANKS: usize = 100;

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

/// How the answer ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Matched,
    Paused,
    Command(Option<u8>),
    NoCommand,
    AppEnded(Option<AppStatus>),
    TimedOut,
    /// The same, and there was none.
    NoAnswer,
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

/// Types the line, and reads the answer. Returns how it ended, and whether a part of it is lost.
pub(crate) async fn answer(request: &AskRequest, sink: &mut Sink<'_>) -> Result<(Outcome, bool)> {
    let (dir, deadline) = (&request.dir, super::until(Some(request.timeout)));
    let (mut session, view) = view::open(dir, 0, AT_ONCE).await?;
    if matches!(request.end, AnswerUntil::Command) && !session.has_terminal() {
        bail!("app {} has no terminal, so it is no shell that marks commands", dir.name());
    }
    let mut answer = ComingAnswer::new(request, session.outputs(), view.into_screen());
    let text = request.line.clone().into_bytes();
    let alone = (!request.is_shared).then_some(Exclusive::Wait);
    let typing = Typing { text, is_line: true, is_apart: true, alone };
    if !session.has_terminal() {
        session.rewind(BEFORE);
    }
    let mut session = session.again(None, Some(typing)).await?;
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
    /// What a shell says of a line that it cannot run, which has an end without a begin: the lines since the
    /// question, and the status.
    unrun: (Vec<String>, Option<u8>),
    /// When something came last.
    last_output: Option<Instant>,
    /// When the lines of a terminal are looked at.
    quiet: Quiet,
    is_incomplete: bool,
    /// Whether there was a line of it.
    has_lines: bool,
    /// What is not handed on yet.
    lines: Vec<AnswerLine>,
}

/// One output of the app.
struct AnswerOutput {
    stream: Stream,
    lines: Lines,
    /// Blank lines that are handed on with the next one: a prompt may come first.
    blanks: usize,
    /// Whether the answer has no line yet.
    is_first: bool,
    /// Where the answer begins, once the app has the line.
    begin: Option<u64>,
    /// The open line at that place.
    before: Option<String>,
    /// The prompt before the question, and what a shell shows behind it.
    prompt: String,
    behind: String,
    /// The lines that may be what the terminal shows of the question, as long as that is awaited.
    echo: Option<Vec<String>>,
}

impl<'a> ComingAnswer<'a> {
    fn new(
        request: &'a AskRequest,
        outputs: impl Iterator<Item = Stream>,
        mut screen: Option<Screen>,
    ) -> Self {
        let is_command = matches!(request.end, AnswerUntil::Command);
        let output = |stream| {
            let lines = Lines::of(stream, screen.take_if(|_| stream == Stream::Tty));
            AnswerOutput {
                stream,
                prompt: String::new(),
                behind: String::new(),
                lines,
                blanks: 0,
                is_first: true,
                begin: None,
                before: None,
                echo: (stream == Stream::Tty && !is_command).then(Vec::new),
            }
        };
        Self {
            request,
            outputs: outputs.map(output).collect(),
            waits: Some("it may read it later".to_owned()),
            has_begun: !is_command,
            unrun: (Vec::new(), None),
            last_output: None,
            quiet: Quiet::new(SETTLES, BUSY),
            is_incomplete: false,
            has_lines: false,
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
            let until =
                [pause, self.quiet.due()].into_iter().flatten().fold(deadline, Instant::min);
            match timeout_at(until, session.next_or_over()).await {
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
                Ok(Err(e)) => return Err(e),
                Err(_) if Instant::now() >= deadline => return Ok(Outcome::TimedOut),
                Err(_) if pause.is_some_and(|at| Instant::now() >= at) => {
                    if let Some(outcome) = self.pause() {
                        return Ok(outcome);
                    }
                }
                Err(_) => {}
            }
            if self.quiet.take() {
                if let Some(outcome) = self.settle() {
                    return Ok(outcome);
                }
                sink(std::mem::take(&mut self.lines))?;
            }
        }
    }

    fn take(&mut self, news: SessionEvent) -> Option<Outcome> {
        match news {
            SessionEvent::Output(stream, bytes, end) => self.output(stream, &bytes, end),
            SessionEvent::Lost(gap) => {
                // What is lost before the answer is not missed.
                let is_before = |gap: Gap| {
                    let output = self.outputs.iter().find(|out| out.stream == gap.stream);
                    output.is_none_or(|output| output.begin.is_none_or(|begin| gap.to <= begin))
                };
                self.is_incomplete |= !gap.is_some_and(is_before);
                None
            }
            SessionEvent::Waits(why) => {
                self.waits = Some(why + ", and it is not typed");
                None
            }
            SessionEvent::Types => {
                self.outputs.iter_mut().for_each(AnswerOutput::note_prompt);
                None
            }
            SessionEvent::Taken(taken) => {
                self.waits = None;
                for Begin { stream, offset } in taken.outputs {
                    for output in self.outputs.iter_mut().filter(|it| it.stream == stream) {
                        output.begin = Some(offset);
                        if taken.hidden {
                            output.echo = None;
                        }
                    }
                }
                None
            }
            SessionEvent::Client(ClientEvent::Resized(size)) => {
                for output in &mut self.outputs {
                    output.lines.resize(size);
                }
                None
            }
            SessionEvent::Ended(status) => Some(Outcome::AppEnded(Some(status))),
            SessionEvent::Over(status) => Some(Outcome::AppEnded(status)),
            _ => None,
        }
    }

    fn awaits_echo(&self) -> bool {
        self.outputs.iter().any(|output| output.echo.is_some())
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
            let (mut lines, status) = std::mem::take(&mut self.unrun);
            let Some(status) = status else { return Some(Outcome::NoCommand) };
            let echo = Echo::find(&lines, &self.request.line);
            lines.drain(..echo.map_or(0, |echo| echo.lines.end));
            for line in lines {
                self.add(0, line, true);
            }
            let failed = Some(status).filter(|status| *status != 0);
            return Some(failed.map_or(Outcome::NoCommand, |it| Outcome::Command(Some(it))));
        }
        if !self.awaits_echo() {
            return Some(Outcome::Paused);
        }
        // The terminal does not show what is typed.
        for index in 0..self.outputs.len() {
            let held = self.outputs[index].echo.take().unwrap_or_default();
            if held.iter().any(|line| self.line(index, line)) || self.open_line(index) {
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
        output.lines.feed(before, first);
        if bytes.is_empty() {
            return None;
        }
        if output.before.is_none() {
            output.lines.settle();
            output.before = Some(output.lines.before_cursor());
        }
        // Once there is something of the answer, it goes on with whatever the app writes.
        if output.echo.is_some() || !self.has_begun || self.last_output.is_some() {
            self.last_output = Some(Instant::now());
        }
        let parts = output.lines.feed(bytes, first + before.len() as u64);
        if output.lines.settles() {
            self.quiet.disturb();
            return self.take_parts(index, parts);
        }
        let outcome = self.take_parts(index, parts);
        outcome.or_else(|| self.open_line(index).then_some(Outcome::Matched))
    }

    /// The app is quiet: its terminal shows what it is to show.
    fn settle(&mut self) -> Option<Outcome> {
        let index = self.outputs.iter().position(|output| output.lines.settles())?;
        let parts = self.outputs[index].lines.settle();
        let outcome = self.take_parts(index, parts);
        outcome.or_else(|| self.open_line(index).then_some(Outcome::Matched))
    }

    fn take_parts(&mut self, index: usize, parts: LineParts) -> Option<Outcome> {
        let mut has_lines = false;
        for (part, _) in parts {
            match part {
                LinePart::Begun => self.has_begun = true,
                LinePart::Ended(status) if matches!(self.request.end, AnswerUntil::Command) => {
                    if self.has_begun {
                        return Some(Outcome::Command(status));
                    }
                    self.unrun.1 = status;
                }
                LinePart::Line(line) if self.has_begun => {
                    has_lines = true;
                    if self.take_line(index, line) {
                        return Some(Outcome::Matched);
                    }
                }
                LinePart::Line(line) if self.unrun.0.len() < ECHO_LINES => self.unrun.0.push(line),
                LinePart::Ended(_) | LinePart::Line(_) => {}
            }
        }
        (has_lines && self.take_echo(index)).then_some(Outcome::Matched)
    }

    /// Takes a whole line, which may be the question. Whether the answer ends in it.
    fn take_line(&mut self, index: usize, line: String) -> bool {
        match &mut self.outputs[index].echo {
            Some(held) => {
                held.push(line);
                held.len() >= ECHO_LINES && self.take_echo(index)
            }
            None => self.line(index, &line),
        }
    }

    /// Finds the question in the lines that may be it. Whether the answer ends in those behind it.
    fn take_echo(&mut self, index: usize) -> bool {
        let question = &self.request.line;
        let output = &mut self.outputs[index];
        let Some(held) = &mut output.echo else { return false };
        let shown = output.before.as_ref().filter(|shown| **shown != output.prompt);
        let prompt = output.prompt.trim_end().to_owned();
        let Some(echo) = Echo::of(held, question, shown.map(String::as_str), &prompt) else {
            if held.len() < ECHO_LINES {
                return false;
            }
            let held = output.echo.take().unwrap_or_default();
            return held.iter().any(|line| self.line(index, line));
        };
        if !echo.prompt.trim().is_empty() {
            output.prompt = echo.prompt;
        }
        let rest = Some(echo.rest).filter(|rest| !rest.is_empty() && *rest != output.behind);
        let rest = rest.filter(|rest| !prompt.ends_with(rest));
        (output.is_first, output.before) = (false, Some(String::new()));
        let mut before = output.echo.take().unwrap_or_default();
        let behind = before.split_off(echo.lines.end);
        before.truncate(echo.lines.start);
        before.retain(|line| !begins(&prompt, line));
        // Only what follows is an answer that may pause.
        self.last_output = None;
        before.into_iter().chain(rest).chain(behind).any(|line| self.line(index, &line))
    }

    /// Takes a whole line of the answer. Whether that ends in it.
    fn line(&mut self, index: usize, line: &str) -> bool {
        self.last_output = Some(Instant::now());
        let line = self.outputs[index].answer_in(line);
        self.outputs[index].is_first = false;
        let end = self.find(line);
        let text = line[..end.unwrap_or(line.len())].to_owned();
        self.add(index, text, end.is_none());
        end.is_some()
    }

    /// Looks at the line that is not whole. Whether the answer ends in it.
    fn open_line(&mut self, index: usize) -> bool {
        let Some(open) = self.unfinished(index) else { return false };
        // Behind a return, the cursor stands before it.
        if open.is_empty() && self.outputs[index].lines.open_line().is_empty() {
            return false;
        }
        self.last_output.get_or_insert_with(Instant::now);
        let Some(end) = self.find(&open) else { return false };
        self.add(index, open[..end].to_owned(), false);
        true
    }

    /// The line that is not whole, as far as it belongs to the answer.
    fn unfinished(&self, index: usize) -> Option<String> {
        let output = &self.outputs[index];
        if !self.has_begun || output.echo.is_some() || output.before.is_none() {
            return None;
        }
        let open = output.lines.before_cursor();
        Some(output.answer_in(&open).to_owned())
    }

    /// Where the printed part of a line ends, if the answer ends in it.
    fn find(&self, line: &str) -> Option<usize> {
        let AnswerUntil::Until(regex, prints_match) = &self.request.end else { return None };
        let found = regex.find(line)?;
        Some(if *prints_match { found.end() } else { found.start() })
    }

    /// Adds a line, or nothing for a part that is empty.
    fn add(&mut self, index: usize, text: String, is_whole: bool) {
        if text.is_empty() && !is_whole {
            return;
        }
        self.has_lines = true;
        let output = &mut self.outputs[index];
        let stream = output.stream;
        if stream == Stream::Tty && text.trim().is_empty() && output.blanks < BLANKS {
            output.blanks += 1;
            return;
        }
        let blanks = std::mem::take(&mut output.blanks);
        let blank = AnswerLine { stream, text: String::new() };
        self.lines.extend(std::iter::repeat_n(blank, blanks));
        self.lines.push(AnswerLine { stream, text });
    }

    /// Hands on what is left. Returns how it ended, and whether a part is lost.
    fn finish(mut self, outcome: Outcome, sink: &mut Sink<'_>) -> Result<(Outcome, bool)> {
        let outcome = match outcome {
            Outcome::Matched | Outcome::Command(_) => outcome,
            _ => self.settle().unwrap_or(outcome),
        };
        // Behind the end of a command is only the next prompt.
        if !matches!(outcome, Outcome::Matched | Outcome::Command(_)) {
            for index in 0..self.outputs.len() {
                for line in self.outputs[index].echo.take().unwrap_or_default() {
                    self.add(index, line, true);
                }
                if let Some(open) = self.unfinished(index) {
                    let answer = self.outputs[index].without_prompt(&open).to_owned();
                    self.add(index, answer, false);
                }
            }
        }
        sink(self.lines)?;
        let outcome = match (self.waits, outcome) {
            (None, Outcome::TimedOut) if !self.has_lines => Outcome::NoAnswer,
            (None, outcome) => outcome,
            (Some(_), Outcome::AppEnded(_)) => Outcome::NotTaken(None),
            (Some(why), _) => Outcome::NotTaken(Some(why)),
        };
        Ok((outcome, self.is_incomplete))
    }
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
            Self::TimedOut => format!(": the answer did not end {}", super::within(timeout)),
            Self::NoAnswer => format!(": no answer {}", super::within(timeout)),
            Self::NotTaken(None) => " has ended, and has not taken the line".to_owned(),
            Self::NotTaken(Some(why)) => format!(" has not taken the line in time: {why}"),
        })
    }
}

impl AnswerOutput {
    /// What the terminal shows now stands before the question.
    fn note_prompt(&mut self) {
        self.lines.settle();
        (self.prompt, self.behind) = (self.lines.before_cursor(), self.lines.behind_cursor());
    }

    /// What of a line belongs to the answer: the first one may begin before that.
    fn answer_in<'l>(&self, line: &'l str) -> &'l str {
        match &self.before {
            Some(before) if self.is_first => line.strip_prefix(before.as_str()).unwrap_or(line),
            _ => line,
        }
    }

    /// The open line behind an answer, without the prompt. That may be the one from before the question
    /// with another number, or place: then it has the same first and last characters.
    fn without_prompt<'l>(&self, open: &'l str) -> &'l str {
        // Without an echo, the question continues what was there.
        let prompts = [Some(&self.prompt), self.before.as_ref()];
        let mut rest = open;
        for prompt in prompts.into_iter().flatten().filter(|prompt| !prompt.trim().is_empty()) {
            let (shown, text) = (rest.trim_end(), prompt.trim_end());
            match shown.strip_suffix(text) {
                Some(answer) => rest = answer,
                None if text.ends_with(shown) => return "",
                None if ends(prompt).is_some_and(|it| Some(it) == ends(open)) => return "",
                None => {}
            }
        }
        rest
    }
}
