//! `ask`: types a line and prints what the app prints in answer.

use std::time::Duration;

use anyhow::{Result, bail};
use regex_lite::Regex;
use serde::Serialize;
use tokio::time::{Instant, timeout_at};

use super::session::{AT_ONCE, News, Purpose, Session, Typing};
use crate::core::screen::lines::{Part, PlainLines};
use crate::os::diagnostics;
use crate::os::print::print;
use crate::os::state::AppDir;
use crate::types::exit::Exit;
use crate::types::stream::{Position, Stream};
use crate::wire::{AppStatus, Begin, Gap};

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

/// What ends an answer, beside the end of the app.
#[derive(Clone, Debug)]
pub(crate) enum AnswerEnd {
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
    pub(crate) end: AnswerEnd,
    pub(crate) timeout: Duration,
    /// Whether others may type meanwhile.
    pub(crate) is_shared: bool,
    /// Whether each line is printed as a JSON document.
    pub(crate) json: bool,
}

/// The document of a line.
#[derive(Serialize)]
struct JsonLine<'a> {
    stream: Stream,
    text: &'a str,
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
enum Outcome {
    Matched,
    Paused,
    Command(Option<u8>),
    NoCommand,
    AppEnded(Option<AppStatus>),
    TimedOut,
}

/// Types the line, and prints the answer as it comes.
pub(crate) fn ask(request: &AskRequest) -> Result<Exit> {
    super::block_on(answer(request))
}

async fn answer(request: &AskRequest) -> Result<Exit> {
    let (dir, deadline) = (&request.dir, super::until(Some(request.timeout)));
    let purpose = Purpose { from: Some(Position::Now), ..Purpose::default() };
    let session = Session::open(dir, purpose, AT_ONCE).await?;
    if matches!(request.end, AnswerEnd::Command) && !session.has_terminal() {
        bail!("app {} has no terminal, so it is no shell that marks commands", dir.name());
    }
    let mut answer = Answer::new(request, session.outputs());
    let text = request.line.clone().into_bytes();
    let before = BEFORE + text.len() as u64;
    let typing = Typing { text, is_line: true, is_apart: true, is_alone: !request.is_shared };
    let mut session = session.type_text(typing, before).await?;
    let outcome = answer.read(&mut session, deadline).await?;
    answer.finish(&outcome)
}

/// An answer that comes.
struct Answer<'a> {
    request: &'a AskRequest,
    outputs: Vec<Output>,
    /// Why the app does not have the line yet.
    waits: Option<String>,
    /// Whether the command of a shell has begun to run.
    has_begun: bool,
    /// When something came last.
    last_output: Option<Instant>,
    is_incomplete: bool,
    /// What is to be printed next.
    text: String,
}

/// One output of the app.
struct Output {
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

impl<'a> Answer<'a> {
    fn new(request: &'a AskRequest, outputs: impl Iterator<Item = Stream>) -> Self {
        let is_command = matches!(request.end, AnswerEnd::Command);
        let output = |stream| Output {
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
            text: String::new(),
        }
    }

    async fn read(&mut self, session: &mut Session, deadline: Instant) -> Result<Outcome> {
        loop {
            let pause = self.pause_ends();
            let until = pause.map_or(deadline, |at| at.min(deadline));
            match timeout_at(until, session.next()).await {
                Ok(Ok(news)) => {
                    if let Some(outcome) = self.take(news)? {
                        return Ok(outcome);
                    }
                    print(&std::mem::take(&mut self.text))?;
                    // A flood leaves the timer no time.
                    if Instant::now() >= deadline {
                        return Ok(Outcome::TimedOut);
                    }
                }
                Ok(Err(e)) => return super::ended(e).map(Outcome::AppEnded),
                Err(_) if pause.is_none_or(|at| at > deadline) => return Ok(Outcome::TimedOut),
                Err(_) => {
                    if let Some(outcome) = self.pause()? {
                        return Ok(outcome);
                    }
                }
            }
        }
    }

    fn take(&mut self, news: News) -> Result<Option<Outcome>> {
        Ok(match news {
            News::Output(stream, bytes, end) => self.output(stream, &bytes, end)?,
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
        })
    }

    fn awaits_echo(&self) -> bool {
        self.outputs.iter().any(|output| output.awaits_echo)
    }

    /// When a pause is over that means something.
    fn pause_ends(&self) -> Option<Instant> {
        let pause = match self.request.end {
            AnswerEnd::Command if !self.has_begun => MARKS,
            AnswerEnd::Idle(pause) => pause,
            _ if self.awaits_echo() => IDLE,
            _ => return None,
        };
        self.last_output.map(|at| at + pause)
    }

    /// The pause is over.
    fn pause(&mut self) -> Result<Option<Outcome>> {
        if !self.has_begun {
            return Ok(Some(Outcome::NoCommand));
        }
        if !self.awaits_echo() {
            return Ok(Some(Outcome::Paused));
        }
        // The terminal does not show what is typed.
        for index in 0..self.outputs.len() {
            self.outputs[index].awaits_echo = false;
            if self.open_line(index)? {
                return Ok(Some(Outcome::Matched));
            }
        }
        Ok(None)
    }

    fn output(&mut self, stream: Stream, bytes: &[u8], end: u64) -> Result<Option<Outcome>> {
        let Some(index) = self.outputs.iter().position(|output| output.stream == stream) else {
            return Ok(None);
        };
        let output = &mut self.outputs[index];
        let first = end - bytes.len() as u64;
        let before = output.begin.unwrap_or(u64::MAX).saturating_sub(first);
        let before = usize::try_from(before).unwrap_or(usize::MAX);
        let (before, bytes) = bytes.split_at(before.min(bytes.len()));
        output.lines.parts(before);
        if bytes.is_empty() {
            return Ok(None);
        }
        let open = output.lines.open_line();
        output.before.get_or_insert(open);
        if output.awaits_echo || !self.has_begun {
            self.last_output = Some(Instant::now());
        }
        for (part, _) in self.outputs[index].lines.parts(bytes) {
            match part {
                Part::Begun => self.has_begun = true,
                Part::Ended(status) if matches!(self.request.end, AnswerEnd::Command) => {
                    if self.has_begun {
                        return Ok(Some(Outcome::Command(status)));
                    }
                }
                Part::Line(line) if self.has_begun => {
                    if self.line(index, &line)? {
                        return Ok(Some(Outcome::Matched));
                    }
                }
                Part::Ended(_) | Part::Line(_) => {}
            }
        }
        Ok(self.open_line(index)?.then_some(Outcome::Matched))
    }

    /// Takes a whole line. Whether the answer ends in it.
    fn line(&mut self, index: usize, line: &str) -> Result<bool> {
        let question = &self.request.line;
        let output = &mut self.outputs[index];
        let before = output.before.replace(String::new()).unwrap_or_default();
        if output.awaits_echo && is_echo(line, question) {
            line.strip_suffix(question).unwrap_or(&before).clone_into(&mut output.prompt);
            output.awaits_echo = false;
            // Only what follows is an answer that may pause.
            self.last_output = None;
            return Ok(false);
        }
        if !before.is_empty() {
            output.prompt.clone_from(&before);
        }
        self.last_output = Some(Instant::now());
        let line = line.strip_prefix(&before).unwrap_or(line);
        let end = self.find(line);
        self.print(index, &line[..end.unwrap_or(line.len())], end.is_none())?;
        Ok(end.is_some())
    }

    /// Looks at the line that is not whole. Whether the answer ends in it.
    fn open_line(&mut self, index: usize) -> Result<bool> {
        let Some(open) = self.unfinished(index).filter(|open| !open.is_empty()) else {
            return Ok(false);
        };
        self.last_output = Some(Instant::now());
        let Some(end) = self.find(&open) else { return Ok(false) };
        self.print(index, &open[..end], false)?;
        Ok(true)
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
        let AnswerEnd::Until(regex, prints_match) = &self.request.end else { return None };
        let found = regex.find(line)?;
        Some(if *prints_match { found.end() } else { found.start() })
    }

    /// Prints a line, or nothing for a part that is empty.
    fn print(&mut self, index: usize, text: &str, is_whole: bool) -> Result<()> {
        if text.is_empty() && !is_whole {
            return Ok(());
        }
        let stream = self.outputs[index].stream;
        if self.request.json {
            self.text.push_str(&super::document(&JsonLine { stream, text })?);
        } else {
            self.text.extend([text, "\n"]);
        }
        Ok(())
    }

    /// Prints what is left, and says how it ended.
    fn finish(mut self, outcome: &Outcome) -> Result<Exit> {
        // Behind the end of a command is only the next prompt.
        if !matches!(outcome, Outcome::Matched | Outcome::Command(_)) {
            for index in 0..self.outputs.len() {
                if let Some(open) = self.unfinished(index) {
                    let prompt = std::mem::take(&mut self.outputs[index].prompt);
                    // The last prompt may stand behind a line that has no end, or this one.
                    let answer = if prompt.ends_with(&open) { "" } else { &open };
                    let answer = answer.strip_suffix(&prompt).unwrap_or(answer);
                    self.print(index, answer, false)?;
                }
            }
        }
        print(&self.text)?;
        let name = self.request.dir.name();
        let say = |text: &str| diagnostics::say(&format!("app {name}{text}"));
        if let Some(why) = &self.waits {
            match outcome {
                Outcome::AppEnded(_) => say(" has ended, and has not taken the line"),
                _ => say(&format!(" has not taken the line in time: {why}")),
            }
            return Ok(Exit::Failed);
        }
        let (end, exit, status) = match outcome {
            Outcome::Matched => ("until", Exit::Done, None),
            Outcome::Paused => ("idle", Exit::Done, None),
            Outcome::Command(status) => ("command", Exit::App(status.unwrap_or(0)), *status),
            Outcome::NoCommand => {
                say(
                    " has the line, but no command began: the shell is busy, waits for more, or marks \
                     no commands (iottymux ask --help)",
                );
                ("unmarked", Exit::Incomplete, None)
            }
            Outcome::AppEnded(Some(status)) => {
                say(&format!(" ended {status}"));
                ("app", Exit::App(status.code()), Some(status.code()))
            }
            Outcome::AppEnded(None) => {
                say(" has ended; its exit status is unknown");
                ("app", Exit::Lost, None)
            }
            Outcome::TimedOut => {
                say(&format!(": the answer did not end within {:?}", self.request.timeout));
                ("timeout", Exit::Incomplete, None)
            }
        };
        let incomplete = self.is_incomplete;
        if incomplete {
            say(": a part of the answer is lost");
        }
        if self.request.json {
            print(&super::document(&JsonEnd { end, status, incomplete })?)?;
        }
        Ok(if incomplete && exit == Exit::Done { Exit::Incomplete } else { exit })
    }
}

/// Whether a line is what a terminal shows of a question.
fn is_echo(line: &str, question: &str) -> bool {
    let tail = question.char_indices().rev().nth(ECHO_TAIL - 1).map_or(0, |(at, _)| at);
    line.contains(question[tail..].trim_end())
}
