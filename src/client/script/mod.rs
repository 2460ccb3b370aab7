//! The commands of scripts: they type and wait for output, by positions and not by time.
//!
//! | module | is |
//! |---|---|
//! | [`ask`] | typing a line and printing the answer |
//! | [`answer`] | the answer to a line, as it comes |
//! | [`echo`] | what a terminal shows of the line, and of a prompt |
//! | [`send`] | typing lines, keys or a paste |
//! | [`wait`] | waiting until an app is ready, says something, is quiet or ends |
//! | [`screen`] | printing what a terminal shows |
//! | [`events`] | printing what happens |
//! | [`view`] | the screen of a terminal, from a session |
//! | [`script_session`] | the output of an app, and a line that is typed, over the death of its mux |
//! | [`quiet`] | when output is looked at |
//! | [`key_names`] | what a terminal sends for a key |

pub(crate) mod answer;
pub(crate) mod ask;
mod echo;
pub(crate) mod events;
mod key_names;
mod quiet;
pub(crate) mod screen;
pub(crate) mod script_session;
pub(crate) mod send;
pub(crate) mod view;
pub(crate) mod wait;

use std::time::{Duration, SystemTime};

use anyhow::Result;
use regex_lite::{Regex, RegexBuilder};
use serde::Serialize;
use tokio::time::Instant;

use crate::types::escape::ascii_json;
use crate::types::limits;

/// When something is over that may take so long.
fn until(timeout: Option<Duration>) -> Instant {
    Instant::now() + timeout.unwrap_or(limits::AGES)
}

/// The same for people.
fn within(timeout: Duration) -> String {
    if timeout.is_zero() { "at once".to_owned() } else { format!("within {timeout:?}") }
}

/// The time of an event, for a document.
fn now() -> String {
    humantime::format_rfc3339_millis(SystemTime::now()).to_string()
}

/// A JSON document, in a line, as all commands print it.
fn document(content: &impl Serialize) -> Result<String> {
    Ok(ascii_json(&serde_json::to_string(content)?) + "\n")
}

/// Compiles the expression that is searched for.
pub(crate) fn regex(text: &str) -> Result<Regex, regex_lite::Error> {
    RegexBuilder::new(text).size_limit(limits::PATTERN).build()
}
