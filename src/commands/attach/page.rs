//! The page of attach itself: its keys, and the clients of the app.
//!
//! Pure. Everything on it is our own text or a number, never text of the app or a peer.

use super::keys::{KeyCommand, Keys, Sequence};
use super::mode::WantedStreams;
use crate::types::escape;
use crate::types::name::AppName;
use crate::types::size::Size;
use crate::types::stream::Stream;
use crate::wire::{ClientReport, Report, STOPPED};

/// The clients of the app.
#[derive(Debug)]
pub(crate) enum ClientList {
    /// The mux has not answered yet.
    Requested,
    Known(Box<Report>),
    /// Why the mux did not answer, in one line.
    Unknown(String),
}

/// The number of other clients in one line, with the keys of the page.
pub(crate) fn others(app: &AppName, count: usize, keys: &Keys) -> String {
    let are = if count == 1 { "other is" } else { "others are" };
    let keys =
        keys.of(KeyCommand::Page).map_or(String::new(), |keys| format!(" ({keys} shows them)"));
    format!("app {app}: {count} {are} attached{keys}")
}

/// Why the terminal of the app shows nothing, in one line.
pub(crate) fn stopped(app: &AppName) -> String {
    format!("app {app}: {STOPPED}")
}

/// What this terminal is attached to, how to leave, and where ^C goes, in one line. `service` is given
/// if the app has another name than it.
pub(crate) fn greeting(
    (app, service): (&AppName, Option<&str>),
    wanted: &WantedStreams,
    (keys, sends_interrupt): (&Keys, bool),
) -> String {
    let on_tty = wanted.all().any(|stream| stream == Stream::Tty);
    let streams: Vec<&str> = wanted.all().map(Stream::name).collect();
    let what = if on_tty { "terminal".to_owned() } else { streams.join(",") };
    let only = if wanted.input.is_none() { ", read-only" } else { "" };
    let leave = keys.of(KeyCommand::Detach).map(Sequence::to_string);
    let how = match (leave, sends_interrupt) {
        (Some(leave), true) => format!("{leave} leaves, ^C or ^D may end it"),
        (Some(leave), false) => format!("^C or {leave} leaves"),
        (None, true) => "^C or ^D may end it".to_owned(),
        (None, false) => "^C leaves".to_owned(),
    };
    let service = service.map_or(String::new(), |service| format!(" ({service})"));
    format!("{what} of app {app}{service}{only}: {how}")
}

/// Our right to type, which decides what keys the page has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TypingState {
    /// No input is sent (any more).
    Never,
    /// Other clients may type, too, or one of them types alone.
    Shared,
    /// Only we type.
    Alone,
}

/// The command of a key while the page is shown.
pub(crate) fn command(key: u8, typing: TypingState) -> Option<KeyCommand> {
    match (key, typing) {
        (b'd', _) => Some(KeyCommand::Detach),
        (b'z', _) => Some(KeyCommand::Suspend),
        (b't', TypingState::Shared) => Some(KeyCommand::TakeOver),
        (b'a', TypingState::Alone) => Some(KeyCommand::LetGo),
        _ => None,
    }
}

/// The keys of the page itself.
fn here(typing: TypingState) -> impl Iterator<Item = &'static str> {
    let alone = match typing {
        TypingState::Never => None,
        TypingState::Shared => Some("      t  type alone, even if another client does now"),
        TypingState::Alone => Some("      a  let all clients type again"),
    };
    let keys = ["", "Here  d  detach               z  suspend"].into_iter().chain(alone);
    keys.chain(["", "Any other key returns to the app.", ""])
}

/// The page's text for a raw terminal with a window of this size. `own` is our process.
pub(crate) fn text(
    app: &AppName,
    (keys, typing): (&Keys, TypingState),
    clients: &ClientList,
    size: Size,
    own: u32,
) -> String {
    let mut head = vec![format!("iottymux: attached to app {app}"), String::new()];
    for (command, does) in [
        (KeyCommand::Detach, "detach; the app keeps running"),
        (KeyCommand::Suspend, "suspend attach until fg"),
        (KeyCommand::Page, "show this page"),
    ] {
        if let Some(sequence) = keys.of(command) {
            head.push(format!("  {:16} {does}", sequence.to_string()));
        }
    }
    head.extend(here(typing).map(str::to_owned));
    let clients = match clients {
        ClientList::Requested => vec!["Asking for the attached clients ...".to_owned()],
        ClientList::Unknown(why) => {
            vec![format!("Cannot list the attached clients: {}", escape::line(why))]
        }
        ClientList::Known(report) => client_lines(report, own),
    };
    // A line says that clients are hidden. The last row stays empty for the cursor.
    let room = usize::from(size.rows).saturating_sub(head.len() + 1);
    let hidden = clients.len().saturating_sub(room);
    head.extend(clients);
    if hidden > 0 {
        head.truncate(usize::from(size.rows).saturating_sub(2));
        head.push("... and more, see iottymux status".to_owned());
    }
    let width = usize::from(size.cols);
    let lines = head.iter().map(|line| line.chars().take(width).collect::<String>() + "\r\n");
    lines.collect()
}

fn client_lines(report: &Report, own: u32) -> Vec<String> {
    let line = |client: &ClientReport| {
        let ClientReport { client: number, uid, pid, types, exclusive, engine, .. } = client;
        let does = match (types, exclusive) {
            (_, true) => "types alone",
            (true, _) => "types",
            (false, _) => "reads only",
        };
        let is_own = u32::try_from(*pid) == Ok(own);
        let own = if is_own { " (here)" } else { "" };
        if *engine {
            return format!("  client {number}  container engine  {does}");
        }
        let skipped = match client.streams.iter().map(|place| place.skipped).sum::<u64>() {
            0 => String::new(),
            bytes => format!(", {bytes} bytes skipped"),
        };
        // The mux cannot see a process in another pid namespace.
        let pid = if *pid == 0 { String::new() } else { format!("  pid {pid}") };
        format!("  client {number}  uid {uid}{pid}  {does}{skipped}{own}")
    };
    let listed = report.clients.iter().filter(|client| client.is_attached()).map(line);
    let more = (report.unlisted > 0).then(|| format!("  and {} more", report.unlisted));
    let stopped = report.stopped().map(|why| format!("The {why}."));
    stopped.into_iter().chain(["Attached clients:".to_owned()]).chain(listed).chain(more).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::attach::mode::AttachMode;
    use crate::wire::PlaceReport;
    use serde_json::json;

    fn report(clients: u64) -> Report {
        let client = |number| ClientReport {
            client: number,
            uid: 1000,
            // The last one of four is in another pid namespace.
            pid: if number == 4 { 0 } else { i32::try_from(number).unwrap() + 70 },
            types: number != 2,
            exclusive: false,
            engine: false,
            streams: vec![PlaceReport {
                stream: Stream::Tty,
                position: 0,
                lag: 0,
                lost: 0,
                skipped: 0,
            }],
        };
        let clients: Vec<_> = (1..=clients).map(client).collect();
        serde_json::from_value(json!({
            "app": "x", "state": "ready", "mux_pid": 1, "uptime_ms": 0, "app_pid": null,
            "streams": [], "clients": clients, "errors": [],
        }))
        .unwrap()
    }

    fn shown(clients: &ClientList, rows: u16, cols: u16) -> Vec<String> {
        let keys =
            Keys::new(&"ctrl-p,ctrl-q".parse().unwrap(), &"ctrl-z".parse().unwrap(), true).unwrap();
        let app: AppName = "demo".parse().unwrap();
        let text = text(&app, (&keys, TypingState::Shared), clients, Size { rows, cols }, 71);
        text.split_terminator("\r\n").map(str::to_owned).collect()
    }

    #[test]
    fn it_shows_the_keys_and_the_clients() {
        let lines = shown(&ClientList::Known(report(4).into()), 24, 80);
        for line in [
            "iottymux: attached to app demo",
            "  ctrl-p ctrl-q    detach; the app keeps running",
            "  ctrl-z           suspend attach until fg",
            "  ctrl-p ?         show this page",
            "  client 1  uid 1000  pid 71  types (here)",
            "  client 2  uid 1000  pid 72  reads only",
            "  client 3  uid 1000  pid 73  types",
            "  client 4  uid 1000  types",
        ] {
            assert!(lines.iter().any(|shown| shown == line), "{line:?} is not in {lines:?}");
        }
        let lines = shown(&ClientList::Unknown("why".into()), 24, 80);
        assert_eq!(lines.last().unwrap(), "Cannot list the attached clients: why");
    }

    #[test]
    fn the_greeting_says_how_to_leave() {
        let keys =
            |detach: &str| Keys::new(&detach.parse().unwrap(), &Sequence::none(), true).unwrap();
        let app: AppName = "demo".parse().unwrap();
        for (has, reads_only, detach, interrupts, want) in [
            (
                &[Stream::Tty][..],
                false,
                "ctrl-p,ctrl-q",
                true,
                "terminal of app demo: ctrl-p ctrl-q leaves, ^C or ^D may end it",
            ),
            (
                &[Stream::Tty],
                true,
                "ctrl-p,ctrl-q",
                false,
                "terminal of app demo, read-only: ^C or ctrl-p ctrl-q leaves",
            ),
            (&[Stream::Tty], false, "", true, "terminal of app demo: ^C or ^D may end it"),
            (
                &[Stream::Stdin, Stream::Stdout],
                false,
                "ctrl-],q",
                false,
                "stdin,stdout of app demo: ^C or ctrl-] q leaves",
            ),
            (&[Stream::Stdout], true, "", false, "stdout of app demo, read-only: ^C leaves"),
        ] {
            let mut wanted = AttachMode::Auto.resolve(has).unwrap();
            wanted.input = wanted.input.filter(|_| !reads_only);
            assert_eq!(greeting((&app, None), &wanted, (&keys(detach), interrupts)), want);
        }
        let wanted = AttachMode::Auto.resolve(&[Stream::Tty]).unwrap();
        let line = greeting((&app, Some("game.service")), &wanted, (&keys(""), true));
        assert_eq!(line, "terminal of app demo (game.service): ^C or ^D may end it");
    }

    #[test]
    fn only_keys_with_an_effect_are_shown() {
        use TypingState::{Alone, Never, Shared};
        for (typing, takes, lets_go) in
            [(Never, false, false), (Shared, true, false), (Alone, false, true)]
        {
            let lines: Vec<_> = here(typing).collect();
            let shows = |key: &str| lines.iter().any(|line| line.trim_start().starts_with(key));
            assert_eq!((shows("t  "), shows("a  ")), (takes, lets_go), "{typing:?}");
            assert_eq!(command(b't', typing).is_some(), takes, "{typing:?}");
            assert_eq!(command(b'a', typing).is_some(), lets_go, "{typing:?}");
        }
    }

    #[test]
    fn it_fits_any_window() {
        for (rows, cols) in [(24, 80), (12, 40), (8, 10), (2, 3), (1, 1)] {
            for clients in [ClientList::Requested, ClientList::Known(report(100).into())] {
                let lines = shown(&clients, rows, cols);
                // The last line ends the one before the last row, or is the only one.
                assert!(lines.len() < usize::from(rows).max(2), "{rows}: {lines:?}");
                assert!(lines.iter().all(|line| line.chars().count() <= usize::from(cols)));
            }
        }
        let lines = shown(&ClientList::Known(report(100).into()), 24, 80);
        assert_eq!(lines.last().unwrap(), "... and more, see iottymux status");
        assert_eq!(lines.len(), 23);
    }
}
