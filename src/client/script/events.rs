//! `events`: what happens to apps, as JSON documents, a line each.

use std::str;

use anyhow::Result;
use base64::prelude::{BASE64_STANDARD, Engine};
use serde::Serialize;
use tokio::task::JoinSet;

use super::script_session::{AT_ONCE, Session, SessionEvent};
use crate::client::tokio_runtime::block_on;
use crate::core::wire::{AppStatus, ClientEvent, Gap, Hello};
use crate::sys::diagnostics;
use crate::sys::print::{Unread, print_on, unless_unread};
use crate::sys::state::AppDir;
use crate::types::exit::Exit;
use crate::types::stream::{Epoch, Position, Stream};

/// Which events are wanted.
#[derive(Debug)]
pub(crate) struct EventsRequest {
    pub(crate) apps: Vec<AppDir>,
    /// Where the output begins, if that is an event.
    pub(crate) from: Option<Position>,
}

/// The document of an event.
#[derive(Serialize)]
struct EventLine<'a> {
    app: &'a str,
    time: String,
    #[serde(flatten)]
    event: EventBody<'a>,
}

#[derive(Serialize)]
#[serde(tag = "event", rename_all = "lowercase")]
enum EventBody<'a> {
    Data {
        stream: Stream,
        /// Of the first byte.
        offset: u64,
        #[serde(skip_serializing_if = "Option::is_none")]
        epoch: Option<Epoch>,
        #[serde(flatten)]
        content: Content<'a>,
    },
    Gap {
        #[serde(flatten)]
        gap: Option<Gap>,
    },
    Started,
    Ended {
        #[serde(flatten)]
        status: Option<AppStatus>,
    },
    Restarted,
    #[serde(untagged)]
    Client(&'a ClientEvent),
}

#[derive(Serialize)]
#[serde(rename_all = "lowercase")]
enum Content<'a> {
    Text(&'a str),
    Base64(String),
}

/// Prints the events of these apps until all have ended.
pub(crate) fn events(request: &EventsRequest) -> Result<Exit> {
    unless_unread(block_on(print_all(request)))
}

async fn print_all(request: &EventsRequest) -> Result<Exit> {
    let mut apps = JoinSet::new();
    for dir in &request.apps {
        let (dir, from) = (dir.clone(), request.from);
        apps.spawn(async move { print_events(&dir, from).await });
    }
    let mut exit = Exit::Done;
    while let Some(done) = apps.join_next().await {
        if let Err(error) = done? {
            if error.is::<Unread>() {
                return Err(error);
            }
            exit = diagnostics::failed(&error, Exit::Failed);
        }
    }
    Ok(exit)
}

async fn print_events(dir: &AppDir, from: Option<Position>) -> Result<()> {
    let hello = Hello { events: true, ..Hello::default() };
    let mut session = Session::open(dir, hello, from, None, AT_ONCE).await?;
    let mut output = HeldOutput::default();
    // The end of a service comes before that of its mux.
    let mut has_ended = false;
    loop {
        let news = session.next_or_over().await?;
        let event = match &news {
            SessionEvent::Output(stream, bytes, end) => {
                output.print(dir, (*stream, bytes, *end), session.epoch())?;
                continue;
            }
            SessionEvent::Client(event) => EventBody::Client(event),
            SessionEvent::Lost(gap) => EventBody::Gap { gap: *gap },
            SessionEvent::Started => EventBody::Started,
            SessionEvent::Restarted => EventBody::Restarted,
            SessionEvent::Ended(status) => EventBody::Ended { status: Some(*status) },
            SessionEvent::Over(_) if has_ended => return output.finish(dir, session.epoch()),
            SessionEvent::Over(status) => EventBody::Ended { status: *status },
            _ => continue,
        };
        // What clients do may come within a character.
        if !matches!(event, EventBody::Client(_) | EventBody::Restarted) {
            output.finish(dir, session.epoch())?;
        }
        print_event(dir, event)?;
        match news {
            SessionEvent::Over(_) => return Ok(()),
            SessionEvent::Ended(_) => has_ended = true,
            SessionEvent::Started => has_ended = false,
            _ => {}
        }
    }
}

/// The begin of a character at the end of the output so far.
#[derive(Default)]
struct HeldOutput {
    held: Vec<(Stream, Vec<u8>, u64)>,
}

impl HeldOutput {
    fn print(
        &mut self,
        dir: &AppDir,
        (stream, bytes, end): (Stream, &[u8], u64),
        epoch: Option<Epoch>,
    ) -> Result<()> {
        let at = self.held.iter().position(|(held, ..)| *held == stream);
        let mut all = at.map(|at| self.held.swap_remove(at).1).unwrap_or_default();
        all.extend_from_slice(bytes);
        let offset = end - all.len() as u64;
        let whole = match str::from_utf8(&all) {
            Err(e) if e.error_len().is_none() => e.valid_up_to(),
            _ => all.len(),
        };
        let rest = all.split_off(whole);
        if !rest.is_empty() {
            self.held.push((stream, rest, offset + whole as u64));
        }
        print_data(dir, (stream, &all, offset), epoch)
    }

    /// Prints what has no rest.
    fn finish(&mut self, dir: &AppDir, epoch: Option<Epoch>) -> Result<()> {
        self.held.drain(..).try_for_each(|(stream, bytes, offset)| {
            print_data(dir, (stream, &bytes, offset), epoch)
        })
    }
}

fn print_data(
    dir: &AppDir,
    (stream, bytes, offset): (Stream, &[u8], u64),
    epoch: Option<Epoch>,
) -> Result<()> {
    if bytes.is_empty() {
        return Ok(());
    }
    let content = match str::from_utf8(bytes) {
        Ok(text) => Content::Text(text),
        Err(_) => Content::Base64(BASE64_STANDARD.encode(bytes)),
    };
    print_event(dir, EventBody::Data { stream, offset, epoch, content })
}

fn print_event(dir: &AppDir, event: EventBody<'_>) -> Result<()> {
    let line = EventLine { app: dir.name().as_str(), time: super::now(), event };
    print_on(&super::document(&line)?)
}
