//! The report that `status` shows.

use std::time::Duration;

use nix::unistd::{Uid, getpid};

use super::{Mux, Phase};
use crate::core::wire::{ClientReport, ErrorReport, PlaceReport, Report, StreamReport};
use crate::mux::clients::client::Client;
use crate::mux::source::pty;
use crate::mux::terminal::Terminal;
use crate::sys::diagnostics;
use crate::types::rights::Right;
use crate::types::stream::Stream;

/// Clients in one report: each takes less than 512 bytes, and the report must fit a frame.
const REPORTED: usize = 128;

impl Mux {
    /// The state of everything, now.
    pub(super) fn report(&self) -> Report {
        let state = match self.phase {
            Phase::Ready => "ready",
            Phase::Draining { .. } => "draining",
            Phase::Delivering { .. } | Phase::Done => "delivering",
        };
        let stream = |stream: Stream| {
            let (bytes, unseen) = self.hub.extent(stream)?;
            Some(StreamReport { stream, bytes, unseen })
        };
        // A client that has gone may have left input that the app does not take yet.
        let present = || self.clients.iter().filter(|(_, client)| !client.is_gone());
        let skipped = |client: &Client, stream| {
            let session = client.session().filter(|_| stream == Stream::Tty);
            session.map_or(0, |session| session.skipped)
        };
        let clients = present().take(REPORTED).map(|(id, client)| ClientReport {
            client: id.0,
            uid: client.peer.uid,
            pid: client.peer.pid,
            connected_ms: millis(client.since.elapsed()),
            stalled_ms: client.stalled.map_or(0, |since| millis(since.elapsed())),
            types: self.types(id),
            exclusive: self.input.queue.only() == Some(id),
            engine: false,
            streams: Stream::ALL
                .into_iter()
                .filter_map(|stream| {
                    let (position, lag, lost) = self.hub.place(id, stream)?;
                    let skipped = skipped(client, stream);
                    Some(PlaceReport { stream, position, lag, lost, skipped })
                })
                .collect(),
        });
        let clients = self.engine_report().into_iter().chain(clients);
        Report {
            app: self.files.name().to_string(),
            state: state.to_owned(),
            mux_pid: std::process::id(),
            uptime_ms: millis(self.since.elapsed()),
            app_pid: self.life.pid,
            app_ended: self.life.ended,
            service: self.life.service().map(ToString::to_string),
            restarts: self.life.restarts,
            is_stopped: self.is_output_stopped(),
            terminal: self.sources.tty().and_then(|source| pty::id(&source.fd)),
            refused: self.terminal.as_ref().map(Terminal::refused).unwrap_or_default(),
            streams: Stream::ALL.into_iter().filter_map(stream).collect(),
            clients: clients.collect(),
            logs: self.logs.reports(),
            unread: self.input.unread() + self.sources.tty().map_or(0, pty::unread),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            unlisted: present().count().saturating_sub(REPORTED),
            errors: diagnostics::complaints()
                .into_iter()
                .map(|(at, error)| ErrorReport { at_ms: at.millis(), error })
                .collect(),
        }
    }

    /// The engine of a container, if it reads or types.
    fn engine_report(&self) -> Option<ClientReport> {
        let engine = self.engine.as_ref()?;
        let types = engine.input().is_some() && self.input.is_open();
        let place = |(stream, position)| {
            let (end, _) = self.hub.extent(stream)?;
            let lag = end.saturating_sub(position);
            Some(PlaceReport { stream, position, lag, lost: 0, skipped: 0 })
        };
        let streams: Vec<PlaceReport> = engine.places().filter_map(place).collect();
        (types || !streams.is_empty()).then(|| ClientReport {
            client: engine.id.0,
            uid: Uid::effective().as_raw(),
            pid: getpid().as_raw(),
            connected_ms: millis(self.since.elapsed()),
            stalled_ms: 0,
            types: types && self.input.queue.is_free_for(engine.id, Right::Own),
            exclusive: false,
            engine: true,
            streams,
        })
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
