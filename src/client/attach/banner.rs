//! What attach says of itself: where it is, how to leave, and who else is there.
//!
//! No I/O, no clock. Everything is our own text or a number, never text of the app or a peer.

use super::attach_mode::WantedStreams;
use super::keys::{KeyCommand, Keys, Sequence};
use crate::core::wire::STOPPED;
use crate::types::name::AppName;
use crate::types::stream::Stream;

/// The number of other clients, in one line.
pub(crate) fn others(app: &AppName, count: usize) -> String {
    let are = if count == 1 { "other is" } else { "others are" };
    format!("app {app}: {count} {are} attached (iottymux status {app} shows them)")
}

/// The keys of attach, in one line. The window may cut its end.
pub(crate) fn help(app: &AppName, keys: &Keys) -> String {
    let leave = keys.of(KeyCommand::Detach).map(|keys| format!("{keys} leaves; "));
    format!("{}iottymux status {app} shows the clients", leave.unwrap_or_default())
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
    // On a screen of 80 columns it covers what the app shows, so it is short there.
    let what = if on_tty { String::new() } else { streams.join(",") + " of app " };
    let only = if wanted.input.is_none() { ", read-only" } else { "" };
    let leave = keys.of(KeyCommand::Detach).map(Sequence::to_string);
    let how = match (leave, sends_interrupt) {
        (Some(leave), true) => format!("{leave} leaves, ^C or ^D may end it"),
        (Some(leave), false) => format!("^C or {leave} leaves"),
        (None, true) => "^C or ^D may end it".to_owned(),
        (None, false) => "^C leaves".to_owned(),
    };
    let service = service.map_or(String::new(), |service| format!(" ({service})"));
    format!("{what}{app}{service}{only}: {how}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::attach::attach_mode::AttachMode;

    #[test]
    fn the_greeting_says_how_to_leave() {
        let keys = |detach: &str| Keys::new(&detach.parse().unwrap(), true);
        let app: AppName = "demo".parse().unwrap();
        for (has, reads_only, detach, interrupts, want) in [
            (
                &[Stream::Tty][..],
                false,
                "ctrl-p,ctrl-q",
                true,
                "demo: ctrl-p ctrl-q leaves, ^C or ^D may end it",
            ),
            (
                &[Stream::Tty],
                true,
                "ctrl-p,ctrl-q",
                false,
                "demo, read-only: ^C or ctrl-p ctrl-q leaves",
            ),
            (&[Stream::Tty], false, "", true, "demo: ^C or ^D may end it"),
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
        assert_eq!(line, "demo (game.service): ^C or ^D may end it");
    }

    #[test]
    fn the_help_has_the_keys_there_are() {
        let app: AppName = "demo".parse().unwrap();
        for (detach, want) in [
            ("ctrl-p,ctrl-q", "ctrl-p ctrl-q leaves; "),
            ("ctrl-],q", "ctrl-] q leaves; "),
            ("", ""),
        ] {
            let keys = Keys::new(&detach.parse().unwrap(), true);
            let want = format!("{want}iottymux status demo shows the clients");
            assert_eq!(help(&app, &keys), want);
        }
        let want = "app demo: 1 other is attached (iottymux status demo shows them)";
        assert_eq!(others(&app, 1), want);
    }
}
