//! The commands of scripts: they type and wait for output, by positions and not by time.
//!
//! | module | is |
//! |---|---|
//! | [`ask`] | typing a line and printing the answer |
//! | [`send`] | typing lines, keys or a paste |
//! | [`wait`] | waiting until an app is ready, says something, is quiet or ends |
//! | [`screen`] | printing what a terminal shows |
//! | [`events`] | printing what happens |
//! | [`view`] | the screen of a terminal, from a session |
//! | [`session`] | the output of an app, and a line that is typed, over the death of its mux |
//! | [`keys`] | what a terminal sends for a key |

pub(crate) mod ask;
pub(crate) mod events;
mod keys;
pub(crate) mod screen;
pub(crate) mod send;
pub(crate) mod session;
pub(crate) mod view;
pub(crate) mod wait;

use std::future::Future;
use std::pin::{Pin, pin};
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result};
use serde::Serialize;
use tokio::runtime::Builder;
use tokio::time::Instant;

use super::find;
use crate::core::wire::AppStatus;
use crate::types::limits;

/// Runs what waits, in this thread. What still waits for a mux then is left behind.
fn block_on<T>(work: impl Future<Output = Result<T>>) -> Result<T> {
    let mut done = None;
    run(pin!(async { done = Some(work.await) }))?;
    done.context("the work was not finished")?
}

/// One for all kinds of work: each takes some kB of the program.
fn run(work: Pin<&mut dyn Future<Output = ()>>) -> Result<()> {
    let runtime = Builder::new_current_thread().enable_all().build();
    let runtime = runtime.context("cannot start the runtime")?;
    runtime.block_on(work);
    runtime.shutdown_background();
    Ok(())
}

/// When something is over that may take so long.
fn until(timeout: Option<Duration>) -> Instant {
    Instant::now() + timeout.unwrap_or(limits::AGES)
}

/// The time of an event, for a document.
fn now() -> String {
    humantime::format_rfc3339_millis(SystemTime::now()).to_string()
}

/// A JSON document, in a line.
fn document(content: &impl Serialize) -> Result<String> {
    Ok(serde_json::to_string(content)? + "\n")
}

/// How an app has ended whose mux is gone with it, if that is what the error says.
pub(crate) fn ended(error: anyhow::Error) -> Result<Option<AppStatus>> {
    error.downcast::<find::Ended>().map(|ended| ended.last.status)
}
