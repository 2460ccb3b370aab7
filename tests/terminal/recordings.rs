//! Recorded programs: what the oracle shows of redraws of their bytes, beside the bytes themselves.

use std::path::{Path, PathBuf};
use std::{fs, mem};

use iottymux::screen::Screen;

use crate::cast::{self, Event};
use crate::oracle::Oracle;
use crate::situations::{
    Changed, Detached, FIRST, Larger, Live, Same, Situation, Smaller, Table, Verdicts, left_wrong,
};

pub const RECORDINGS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/terminal/recordings");
/// Redraws of a recording at other places than its marks.
const CUTS: usize = 12;

/// The app's terminal as its bytes show it, as its screen is kept, and as a client sees it.
struct Replay {
    direct: Oracle,
    screen: Screen,
    client: Option<Oracle>,
    verdicts: Verdicts,
}

impl Replay {
    fn new() -> Self {
        let screen = Screen::new(FIRST);
        let mut replay =
            Self { direct: Oracle::new(FIRST), screen, client: None, verdicts: Vec::new() };
        replay.attach();
        replay
    }

    /// A client with a terminal of the same size.
    fn attach(&mut self) {
        let size = self.direct.size();
        let mut client = Oracle::new(size);
        client.process(&self.screen.redraw(size));
        self.client = Some(client);
    }

    fn judge(&mut self, situation: Situation) {
        let client = self.client.as_mut().unwrap();
        let difference = situation.difference(&client.view(), &self.direct.view());
        self.verdicts.push((situation, difference));
    }

    fn event(&mut self, event: &Event) {
        match event {
            Event::Output(bytes) => {
                self.direct.process(bytes);
                self.screen.process(bytes);
                if let Some(client) = &mut self.client {
                    client.process(bytes);
                }
            }
            Event::Size(size) => {
                self.direct.resize(*size);
                self.screen.resize(*size);
                self.attach();
            }
            Event::Mark(name) => self.mark(name),
        }
    }

    fn mark(&mut self, name: &str) {
        match name {
            "live" => {
                self.judge(Live);
                let mut client = self.client.take().unwrap();
                let undo = self.screen.modes().undo(FIRST.cols);
                client.process(undo.as_bytes());
                self.verdicts.push((Detached, left_wrong(&mut client, FIRST)));
                self.attach();
                self.judge(Same);
            }
            "larger" => self.judge(Larger),
            "smaller" => self.judge(Smaller),
            "away" => self.client = None,
            "changed" => {
                self.attach();
                self.judge(Changed);
            }
            _ => panic!("unknown mark: {name}"),
        }
    }
}

/// Judges a recording.
pub fn judge(events: &[Event]) -> Verdicts {
    let mut replay = Replay::new();
    for event in events {
        replay.event(event);
    }
    let mut verdicts = mem::take(&mut replay.verdicts);
    if let Some(why) = cut(events) {
        verdicts[0].1.get_or_insert(why);
    }
    verdicts
}

/// Judges clients who come in the middle of the output until the first mark.
fn cut(events: &[Event]) -> Option<String> {
    let first: Vec<&Event> =
        events.iter().take_while(|event| !matches!(event, Event::Mark(_))).collect();
    let bytes: Vec<u8> = first
        .iter()
        .flat_map(|event| match event {
            Event::Output(bytes) => bytes.as_slice(),
            _ => &[],
        })
        .copied()
        .collect();
    let mut direct = Oracle::new(FIRST);
    direct.process(&bytes);
    let want = direct.view();
    (1..CUTS).find_map(|part| {
        let at = bytes.len() * part / CUTS;
        let mut screen = Screen::new(FIRST);
        screen.process(&bytes[..at]);
        let mut client = Oracle::new(FIRST);
        client.process(&screen.redraw(FIRST));
        client.process(&bytes[at..]);
        Some(format!("redrawn at {at}: {}", client.view().difference(&want)?))
    })
}

/// The recordings, by name.
fn all() -> Vec<(String, PathBuf)> {
    let paths = fs::read_dir(RECORDINGS).unwrap().map(|entry| entry.unwrap().path());
    let name = |path: &Path| path.file_stem().unwrap().to_str().unwrap().to_owned();
    let mut all: Vec<_> = paths.map(|path| (name(&path), path)).collect();
    all.sort();
    all
}

/// What a terminal shows that only prints what `screen` says of this one.
fn printed(replay: &Replay) -> Vec<String> {
    let shown = replay.screen.shown();
    let mut terminal = Oracle::new(shown.size);
    let lines = shown.ansi();
    terminal.process(lines.trim_end_matches('\n').replace('\n', "\r\n").as_bytes());
    let text: Vec<String> =
        terminal.view().text().lines().map(|line| line.trim_end().to_owned()).collect();
    assert_eq!(text.join("\n").trim_end(), shown.lines().trim_end());
    rows(&mut terminal)
}

/// The rows of a terminal, without its cursor and modes.
fn rows(terminal: &mut Oracle) -> Vec<String> {
    terminal.view().0.into_iter().filter(|line| line.starts_with('|')).collect()
}

/// At each mark, until the size changes: then emulators show different lines of those above.
#[test]
fn recordings_are_printed() {
    for (name, path) in all() {
        let mut replay = Replay::new();
        let mut marks = 0;
        for event in cast::parse(&fs::read_to_string(path).unwrap()) {
            if matches!(event, Event::Size(_)) && marks > 0 {
                break;
            }
            if matches!(event, Event::Mark(_)) {
                assert_eq!(printed(&replay), rows(&mut replay.direct), "{name}");
                marks += 1;
            }
            replay.event(&event);
        }
        assert!(marks > 0, "{name} has no marks");
    }
}

#[test]
fn recordings_are_redrawn() {
    let mut table = Table::default();
    for (name, path) in all() {
        table.add(&name, judge(&cast::parse(&fs::read_to_string(path).unwrap())));
    }
    let wrong = table.sum_up("recorded programs");
    assert!(wrong.is_empty(), "wrong: {wrong:?}");
}
