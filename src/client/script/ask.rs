//! `ask`: types a line and prints what the app prints in answer.

use anyhow::Result;
use serde::Serialize;

use super::answer::{AnswerLine, AnswerUntil, AskRequest, Outcome, answer};
use crate::client::tokio_runtime::block_on;
use crate::sys::diagnostics;
use crate::sys::print::print;
use crate::types::exit::Exit;

/// The last document.
#[derive(Serialize)]
struct JsonEnd {
    end: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<u8>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    incomplete: bool,
}

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
        Outcome::TimedOut | Outcome::NoAnswer => ("timeout", Exit::Incomplete, None),
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
