use std::collections::BTreeSet;
use std::fmt::Write as _;

use super::*;
use crate::screen::Screen;
use crate::screen::modes::ScreenModes;
use crate::screen::query::{PendingQuery, Query};
use crate::screen::scan::Piece;
use crate::screen::tests::state;
use crate::types::size::{Size, Window};

const PAGE: &str = include_str!("../../../docs/sequences.md");
/// Sequences with these numbers show whether something lasts, or is asked.
const NUMBERS: [&str; 13] =
    ["", "0", "1", "2", "3", "4", "5", "6", "2;20", "4;2", "996", "1;1;1", "65;1;1;2;2"];
/// So do strings with these texts.
const TEXTS: [&str; 7] = ["", ";red", ";1;red", ";;http://a", ";4;1", ";?", ";1;?"];

/// Sequences of this form.
fn samples(form: &Form) -> Vec<String> {
    let character = |byte: &u8| if *byte == 0 { String::new() } else { char::from(*byte).into() };
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    match form {
        Form::Control(marker, numbers, mark, last) => {
            let numbers: Vec<String> = match numbers {
                Any => NUMBERS.map(str::to_owned).to_vec(),
                NumberPattern::None => vec![String::new()],
                First(range) => range.clone().map(|number| format!("{number};2")).collect(),
            };
            let (marker, mark) = (character(marker), character(mark));
            let ends = last.iter().map(character);
            ends.flat_map(|last| {
                numbers.iter().map(|n| format!("\x1b[{marker}{n}{mark}{last}")).collect::<Vec<_>>()
            })
            .collect()
        }
        Escape(mark, b"") => vec![format!("\x1b{}R", character(mark))],
        Escape(mark, last) => last
            .iter()
            .map(|last| format!("\x1b{}{}", character(mark), char::from(*last)))
            .collect(),
        Command(ranges) => {
            let numbers = ranges.iter().cloned().flatten();
            numbers.flat_map(|n| TEXTS.map(|text| format!("\x1b]{n}{text}\x1b\\"))).collect()
        }
        CommandLetter(letters) => {
            let text = |letter| if letter == b'P' { "1ff00e5" } else { "\x1b\\" };
            letters.iter().map(|l| format!("\x1b]{}{}", char::from(*l), text(*l))).collect()
        }
        Device(head, last) => vec![format!("\x1bP{}{}m\x1b\\", text(head), char::from(*last))],
    }
}

/// The form for people: what is not fixed is `…`.
fn shown(form: &Form) -> String {
    let some = |byte: &u8| match byte {
        0 => String::new(),
        b' ' => " SP".to_owned(),
        byte => format!(" {}", char::from(*byte)),
    };
    let letters = |all: &[u8]| {
        let all: Vec<String> = all.iter().map(|byte| some(byte).trim().to_owned()).collect();
        all.join(" ")
    };
    let numbers = |ranges: &[RangeInclusive<u16>]| {
        let one = |range: &RangeInclusive<u16>| match (range.start(), range.end()) {
            (start, end) if start == end => start.to_string(),
            (start, end) => format!("{start} to {end}"),
        };
        ranges.iter().map(one).collect::<Vec<_>>().join(", ")
    };
    match form {
        Form::Control(marker, which, mark, last) => {
            let which = match which {
                Any => " …".to_owned(),
                NumberPattern::None => String::new(),
                First(range) => format!(" {}", numbers(std::slice::from_ref(range))),
            };
            format!("CSI{}{which}{} {}", some(marker), some(mark), letters(last))
        }
        Escape(mark, b"") => format!("ESC{} …", some(mark)),
        Escape(mark, last) => format!("ESC{} {}", some(mark), letters(last)),
        Command(ranges) => format!("OSC {}", numbers(ranges)),
        CommandLetter(last) => format!("OSC {}", letters(last)),
        Device(head, last) => {
            let head: Vec<String> = head.iter().map(some).collect();
            format!("DCS{} {}", head.concat(), char::from(*last))
        }
    }
}

/// What attach does with it, or the word that lets it pass.
fn passes(class: Class) -> &'static str {
    match class {
        Drawing | Class::Part => "shown",
        Title | SaveTitle | RestoreTitle => "`title`",
        Clipboard => "`clipboard`",
        Notify => "`notify`",
        Other => "`other`",
        Unknown => "`unknown`",
    }
}

/// Whether the samples change what is undone, and who answers what they ask.
fn row_of(known: &KnownSequence) -> String {
    let window = Window { width: 800, height: 480, ..Size::DEFAULT.into() };
    let (mut is_undone, mut asks, mut is_answered) = (false, false, false);
    for sample in samples(&known.form) {
        let piece = Piece::Sequence(sample.as_bytes());
        let found = class(sample.as_bytes(), true);
        assert_eq!(found, Some(known.class), "{:?}", sample.escape_debug());
        let mut modes = ScreenModes::default();
        modes.read(piece);
        is_undone |= !modes.undo(80).is_empty();
        Query::of(piece, |query| {
            let pending = PendingQuery { query, end: 0, cursor: (1, 1) };
            asks = true;
            is_answered |= pending.answer(window, &modes).is_some();
        });
    }
    // The filter keeps the title from before.
    is_undone |= matches!(known.class, Title | SaveTitle);
    let answer = match (asks, is_answered) {
        (false, _) => "",
        (true, false) => "a client",
        (true, true) => "a client, else the mux",
    };
    let undone = if is_undone { "undone" } else { "" };
    let (form, effect) = (shown(&known.form).replace('`', "\\`"), known.effect);
    let form = form.replace('|', "\\|");
    format!("| {form} | {effect} | {} | {undone} | {answer} |\n", passes(known.class))
}

fn tables() -> String {
    let mut out = String::from(
        "| sequence | what it does | attach | at the end | who answers |\n|---|---|---|---|---|\n",
    );
    out.extend(KNOWN.iter().map(row_of));
    out.push_str("\n| mode | while it is set | attach | in a shell |\n|---|---|---|---|\n");
    for mode in &MODES {
        let (marker, number) = (if mode.private { "? " } else { "" }, mode.number);
        let raw = format!("\x1b[{}{number}h", marker.trim());
        let class = passes(class(raw.as_bytes(), true).unwrap());
        let usual = if mode.usual { "set" } else { "reset" };
        let _ = writeln!(out, "| CSI {marker}{number} h | {} | {class} | {usual} |", mode.effect);
    }
    out
}

/// The page has the table as it is here; with `IOTTYMUX_GOLDEN=1` it is written.
#[test]
fn the_page_has_all_that_is_known() {
    let start = PAGE.find("| sequence |").unwrap();
    let page = PAGE[..start].to_owned() + &tables();
    if std::env::var_os("IOTTYMUX_GOLDEN").is_some() {
        std::fs::write(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/sequences.md"), &page).unwrap();
    } else {
        assert_eq!(PAGE, page, "IOTTYMUX_GOLDEN=1 writes it");
    }
}

#[test]
fn no_row_is_hidden_by_one_before_it() {
    for (at, known) in KNOWN.iter().enumerate() {
        for sample in samples(&known.form) {
            let find = |rows: &[KnownSequence]| {
                rows.iter().position(|row| samples(&row.form).contains(&sample))
            };
            assert_eq!(find(&KNOWN[..at]), None, "{:?}", sample.escape_debug());
        }
    }
}

/// What a terminal may show before a sequence, so that each has something to change.
const BEFORE: [&str; 7] = [
    "one\r\ntwo and more of it\r\n\x1b[1mthree\x1b[m\r\nfour\x1b[2;3H",
    "one\r\ntwo\r\nthree\x1b7\x1b[2;4r\x1b[31m\x1b[4;2H",
    "\x1b[?69h\x1b[3;9sone\r\ntwo\x1b[2;6Hthree\x1b[2;6H",
    "\x1b[>1u\x1b[>5u\x1b[>4;2m\x1b[?2004h\x1b=\x1b[4 qone",
    "\x1b]4;1;red\x1b\\\x1b]10;red\x1b\\\x1b]11;red\x1b\\\x1b]8;;http://b\x1b\\one",
    "\x1b(0\x1b)0one",
    "\x1b[3gone",
];
/// What comes behind it: sets, tab stops and a saved cursor show then.
const BEHIND: &str = "q#\x0eq#\x0f\tx\x1b8y";

/// What reaches a viewer though the kept screen is without it, and why.
const NOT_KEPT: [(&str, &str); 12] = [
    ("ends a string \\", "there is none"),
    (
        "prints large letters, a test pattern 3",
        "lines of double height look so when they are drawn again",
    ),
    ("prints large letters, a test pattern 4", "the same"),
    ("prints large letters, a test pattern 5", "lines are of single width"),
    (
        "prints large letters, a test pattern 6",
        "lines of double width look so when they are drawn again",
    ),
    ("selects 7-bit controls F", "they are so"),
    ("selects UTF-8 G", "it is so"),
    ("changes the palette of the Linux console 5", "other terminals have none; it is undone"),
    ("changes the palette of the Linux console \\", "other terminals have none"),
    ("shows a picture (sixel) \\", "pictures are seen when they are drawn again"),
    ("begins a synchronized update \\", "a redraw is whole"),
    ("ends it \\", "a redraw is whole"),
];

/// What attach shows, the kept screen has, too: a sequence that draws changes it, or is a limit.
#[test]
fn what_is_shown_is_kept() {
    let size = Size { rows: 6, cols: 20 };
    let kept = |bytes: &str| {
        let mut screen = Screen::new(size);
        screen.process(bytes.as_bytes());
        state(&screen)
    };
    let changes = |sample: &String| {
        BEFORE.iter().any(|before| {
            kept(&format!("{before}{sample}{BEHIND}")) != kept(&format!("{before}{BEHIND}"))
        })
    };
    let asks = |sample: &String| {
        let mut asks = false;
        Query::of(Piece::Sequence(sample.as_bytes()), |_| asks = true);
        asks
    };
    let mut wrong = Vec::new();
    let draws = |known: &&KnownSequence| {
        matches!(known.class, Drawing | Class::Part) && !known.effect.starts_with("asks")
    };
    for known in KNOWN.iter().filter(draws) {
        let all: Vec<String> = samples(&known.form).into_iter().filter(|one| !asks(one)).collect();
        // Each letter of a row is another sequence.
        let ends: BTreeSet<char> = all.iter().filter_map(|one| one.chars().last()).collect();
        for end in ends {
            let is_kept = all.iter().filter(|one| one.ends_with(end)).any(changes);
            let name = format!("{} {end}", known.effect);
            if is_kept == NOT_KEPT.iter().any(|(limit, _)| *limit == name) {
                wrong.push(name);
            }
        }
    }
    assert_eq!(wrong, [""; 0]);
}
