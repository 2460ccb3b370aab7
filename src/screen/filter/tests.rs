use super::*;
use crate::screen::Screen;
use crate::screen::restore::Restorer;
use crate::types::size::Size;
use proptest::prelude::*;

#[path = "terminal_model.rs"]
mod terminal_model;

fn shown(pass: &str, pieces: &[&[u8]]) -> Vec<u8> {
    let mut filter = Filter::new(pass.parse().unwrap());
    let mut out = Vec::new();
    pieces.iter().flat_map(|piece| filter.read(piece, &mut out).to_vec()).collect()
}

fn check(pass: &str, bytes: &[u8], want: &[u8]) {
    let context = || format!("{pass}: {}", bytes.escape_ascii());
    let escaped = |bytes: Vec<u8>| bytes.escape_ascii().to_string();
    let want = escaped(want.to_vec());
    assert_eq!(escaped(shown(pass, &[bytes])), want, "{}", context());
    let cut: Vec<_> = bytes.chunks(1).collect();
    assert_eq!(escaped(shown(pass, &cut)), want, "cut: {}", context());
}

#[test]
fn drawing_is_shown() {
    for bytes in [
        &b"plain\r\n\ttext\x07\x0e\x0f"[..],
        "é \u{201d} \u{1f600} 你好 \u{85}".as_bytes(),
        b"\x1b[1;31mred\x1b[m\x1b[?1049h\x1b7\x1b(0\x1b#8\x1bc\x1b[2 q\x1b[18t\x1b[?1;25;1048h",
        b"\x1b]8;;http://x\x1b\\link\x1b]8;;\x07\x1b]4;1;rgb:0/0/0\x07\x1b]11;?\x1b\\\x1b]104\x07",
        b"\x1bPq#0;2;0;0;0~~\x1b\\\x1bP0;1q~\x1b\\\x1bP$qm\x1b\\\x1bP+q544e\x1b\\\x1bP=1s\x1b\\",
        b"\xff\xfe\xc3(\xe2\x82(",
    ] {
        check("none", bytes, bytes);
        check("all", bytes, bytes);
    }
}

/// It has no end, so a terminal that does not know it would take what follows for a part of it. xterm
/// takes any seven bytes for one.
#[test]
fn the_palette_of_the_linux_console_is_ended() {
    check("none", b"\x1b]P0112233text\x1b]R$ ", b"\x1b]P0112233\x1b\\text\x1b]R\x1b\\$ ");
    check("none", b"a\x1b]P1ff000\x05\x05\x07b", b"ab");
    check("none", b"a\x1b]P\x05\x05\x07b\x1b]P12\x18c", b"abc");
}

/// In tmux an ESC or CAN is a part of a string that begins with `ESC P`: all that follows would be, too.
#[test]
fn what_is_broken_off_is_ended_or_dropped() {
    for (bytes, want) in [
        (&b"\x1bP$q\x1b[mx"[..], &b"\x1bP$q\x1b\\\x1b[mx"[..]),
        (b"\x1bP$qm\x18x\x1bPq~\x1ay", b"\x1bP$qm\x1b\\x\x1bPq~\x1b\\y"),
        (b"\x1bP+q\x1b]52;c;aGk=\x07x", b"\x1bP+q\x1b\\x"),
        (b"\x1b]8;;a\x18x\x1b]8;;b\x1b[1mx", b"\x1b]8;;a\x1b\\x\x1b]8;;b\x1b\\\x1b[1mx"),
        (b"\x1b[1\x18x\x1b[1\x1b[2m\x1b\x1b[m", b"x\x1b[2m\x1b[m"),
        (b"\x18\x1b[H", b"\x18\x1b[H"),
        // Their control characters go.
        (b"\x1b]8;;a\x05\x0e\0b\x07\x1bP+q\x0f5\x1b\\", b"\x1b]8;;ab\x07\x1bP+q5\x1b\\"),
        // So does a character that is broken off, if a byte of it could introduce something.
        (
            b"\x1b]4;1;\xf0\x9f\x18\x9d52;c;QQ",
            "\x1b]4;1;\u{f0}\u{fffd}\x1b\\\u{fffd}52;c;QQ".as_bytes(),
        ),
        (b"\xe2\x9d0;T\x07", "\u{e2}\u{fffd}0;T\x07".as_bytes()),
        (b"\xe2\x9b\x1b[m\xe2\x9b", "\u{e2}\u{fffd}\x1b[m".as_bytes()),
    ] {
        // Latin-1, where it is no replacement.
        let want: Vec<u8> = String::from_utf8_lossy(want)
            .chars()
            .flat_map(|c| match u32::from(c) {
                code @ 0x80..=0xff => vec![code.try_into().unwrap()],
                _ => c.to_string().into_bytes(),
            })
            .collect();
        check("none", bytes, &want);
    }
}

#[test]
fn a_terminal_without_sequences_gets_the_text() {
    let stream = "\x7f\u{9d}a\x1b[1;31mb\x0e\x0f\x05\x18\x1b]0;t\x07\x1bP1$qx\x1b\\\x1b(0é漢\t\r\n\x08\x07\x1b[3\x18c\x1bM\x1b\x1b[mz";
    for size in 1..=stream.len() {
        let (mut filter, mut memory) = (Filter::of_text(), Vec::new());
        let pieces = stream.as_bytes().chunks(size);
        let out: Vec<u8> =
            pieces.flat_map(|piece| filter.read(piece, &mut memory).to_vec()).collect();
        assert_eq!(String::from_utf8(out).unwrap(), "\u{fffd}abé漢\t\r\n\x08\x07cz", "{size}");
    }
    assert_eq!(Filter::of_text().restore_title(), "");
}

#[test]
fn other_strings_are_dropped_whole() {
    for (word, string) in [
        ("title", &b"\x1b]0;t\x07"[..]),
        ("title", b"\x1b]2;t\x1b\\"),
        ("title", b"\x1b]1;t\x07"),
        ("title", b"\x1b]002;t\x07"),
        ("title", b"\x1b];t\x07"),
        ("title", b"\x1b]lt\x1b\\"),
        ("title", b"\x1bkt\x1b\\"),
        ("unknown", b"\x1b[>2t"),
        ("title", b"\x1b[22;0t"),
        ("title", b"\x1b[23t"),
        ("clipboard", b"\x1b]52;c;aGk=\x07"),
        ("clipboard", b"\x1b]52;c;?\x1b\\"),
        ("clipboard", b"\x1b]5522;x\x1b\\"),
        ("notify", b"\x1b]9;hi\x07"),
        ("notify", b"\x1b]777;notify;a;b\x1b\\"),
        ("notify", b"\x1b]99;;hi\x1b\\"),
        ("other", b"\x1b]1337;File=name=eA==:eA==\x07"),
        ("other", b"\x1b]50;x\x07"),
        ("other", b"\x1b]5\x002;c;aGk=\x07"),
        ("other", b"\x1b]99999999999999999999;x\x07"),
        ("other", b"\x1bP1000p\x1b\\"),
        ("other", b"\x1bP0;1|17/68656c6c6f\x1b\\"),
        ("other", b"\x1bP@kitty-cmd{}\x1b\\"),
        ("other", b"\x1b_Gt=t,f=100;L2V0Yw==\x1b\\"),
        ("other", b"\x1b^pm\x07more\x1b\\"),
        ("other", b"\x1bXsos\x1b\\"),
        ("unknown", b"\x05"),
        // VT52, 8-bit controls, another character set, locked keys, pages.
        ("unknown", b"\x1b[?2l"),
        ("unknown", b"\x1b G"),
        ("unknown", b"\x1b%@"),
        ("unknown", b"\x1b[2h"),
        ("unknown", b"\x1bn"),
        ("unknown", b"\x1b[2V"),
        // Keys of Windows, 132 columns, levels and status lines, the window itself.
        ("unknown", b"\x1b[?9001h"),
        ("unknown", b"\x1b[?3;40h"),
        ("unknown", b"\x1b[61\"p"),
        ("unknown", b"\x1b[1\"q"),
        // What few terminals answer: lines, tab stops, a checksum.
        ("unknown", b"\x1b[1x"),
        ("unknown", b"\x1b[1$w"),
        ("unknown", b"\x1b[1;1;1;1;9;9*y"),
        ("unknown", b"\x1b[1$}"),
        ("unknown", b"\x1b[2t"),
        ("unknown", b"\x1b[4;500;500t"),
        ("unknown", b"\x1b[8;24;80t"),
        ("unknown", b"\x1b[24t"),
        ("unknown", b"\x1b[>1m"),
        ("unknown", b"\x1b]22;wait\x1b\\"),
        ("unknown", b"\x1b]133;A\x07"),
        ("unknown", b"\x1b[5i"),
        ("unknown", b"\x1b[?4i"),
        ("other", b"\x1b[21t"),
        ("other", b"\x1b[20t"),
    ] {
        let bytes = [b"a", string, b"b"].concat();
        check("none", &bytes, b"ab");
        let others: Vec<_> = WORDS.into_iter().filter(|w| *w != word).collect();
        check(&others.join(","), &bytes, b"ab");
        if word != "title" {
            check(word, &bytes, &bytes);
        }
    }
    // Of several modes those that are undone.
    check("none", b"a\x1b[?1;9001;25hb\x1b[4;2lc", b"a\x1b[?1;25hb\x1b[4lc");
    check("unknown", b"a\x1b[?1;9001;25hb", b"a\x1b[?1;9001;25hb");
    // Passthrough of tmux and screen.
    check("none", b"a\x1bPtmux;\x1b\x1b]52;c;aGk=\x07\x1b\x1b[m\x1b\\b", b"ab");
    let title = b"a\x1bPtmux;\x1b\x1b]2;title\x07\x1b\x1b]2;b\x1b\x1b\\\x1b\\b";
    check("all", title, title);
    check("none", b"a\x1bP\x1b]52;c;aGk=\x07\x1b\\b", b"a\x1b\\b");
    // Broken off, and after a sequence that is shown.
    check("none", b"a\x1b]52;c;aGk=\x18b", b"ab");
    check("none", b"a\x1b]52;c;\x1b[1mb", b"a\x1b[1mb");
    check("none", b"a\x1b]8;;x\x1b]52;c;aGk=\x07b", b"a\x1b]8;;x\x1b\\b");
    check("none", b"a\x1b[1\x1b]52;c;aGk=\x07b", b"ab");
    // 8-bit introducers.
    let c1 = "a\u{9d}52;c;aGk=\u{9c}\u{90}x\u{9b}5ib";
    check("none", c1.as_bytes(), "a\u{fffd}52;c;aGk=\u{9c}\u{fffd}x\u{fffd}5ib".as_bytes());
    check(
        "none",
        b"a\x9d52;c;aGk=\x9c",
        "a\u{fffd}52;c;aGk=".bytes().chain([0x9c]).collect::<Vec<_>>().as_slice(),
    );
    check("none", b"\x1b[\xc2\x9d52;cx", "\u{fffd}52;cx".as_bytes());
    check("none", "\x1bém\x1b[1é".as_bytes(), "émé".as_bytes());
    // Control characters within, which terminals execute apart.
    check("none", b"a\x1b\0]52;c;aGk=\x07b", b"a\0b");
    check("none", b"a\x1b\n_Gx\x1b\\\x1b\x7fP1000p\x1b\\b", b"a\n\x7fb");
    check("none", b"a\x1b[\0>2tb\x1b[2\r1tc", b"a\0b\rc");
    check("none", b"a\x1b\0ktitle\x1b\\b", b"a\0b");
    check("none", b"\x1b[1\n;31mred", b"\n\x1b[1;31mred");
    check("none", b"\xe0\x9dx", b"\xe0\xef\xbf\xbdx");
    check("none", b"a\xe2\x9d", b"a");
    check("all", c1.as_bytes(), c1.as_bytes());
}

#[test]
fn a_string_without_end_takes_no_memory() {
    let mut filter = Filter::new(Pass::default());
    let mut out = Vec::new();
    assert_eq!(filter.read(b"a\x1b]52;c;", &mut out), b"a");
    for _ in 0..1000 {
        assert_eq!(filter.read(&[b'x'; 4096], &mut out), b"");
    }
    assert!(out.capacity() < 4096 && filter.head.capacity() < 4096);
    assert_eq!(filter.read(b"\x07b", &mut out), b"b");
    // A sequence whose class is known at its end.
    assert_eq!(filter.read(&[&b"\x1b["[..], &[b'1'; 4096]].concat(), &mut out), b"");
    assert!(filter.head.len() <= limits::SEQUENCE);
    assert_eq!(filter.read(b"mb", &mut out), b"b");
}

#[test]
fn an_allowed_title_is_restored() {
    let mut filter = Filter::new("title".parse().unwrap());
    let mut out = Vec::new();
    filter.read(b"text\x1b[1m", &mut out);
    assert_eq!(filter.restore_title(), "");
    assert_eq!(filter.read(b"a\x1b]2;t\x07", &mut out), b"a\x1b[22;0t\x1b]2;t\x07");
    assert_eq!(filter.read(b"\x1b]2;u\x07", &mut out), b"\x1b]2;u\x07");
    assert_eq!(filter.restore_title(), "\x1b[23;0t");
    // The app restores only titles that it has saved, and saves no more than a terminal keeps.
    assert_eq!(filter.read(b"\x1b[23;2t", &mut out), b"");
    assert_eq!(filter.read(b"\x1b[22;2t", &mut out), b"\x1b[22;2t");
    assert_eq!(filter.restore_title(), "\x1b[23;0t\x1b[23;0t");
    assert_eq!(filter.read(b"\x1b[23;2t\x1b[23;2t", &mut out), b"\x1b[23;2t");
    filter.read(&b"\x1b[22t".repeat(100), &mut out);
    assert_eq!(filter.restore_title(), RESTORE_TITLE.repeat(9));
    filter.forget_title();
    assert_eq!(filter.restore_title(), "");
    filter.read(b"\x1b]2;begun", &mut out);
    assert_eq!(filter.restore_title(), "\x1b\\\x1b[23;0t");
    filter.cancel_sequence();
    assert_eq!(filter.read(b"text\x1b[1", &mut out), b"text");
    filter.cancel_sequence();
    assert_eq!(filter.read(b"mtext", &mut out), b"mtext");
}

#[test]
fn the_words_of_the_option() {
    let all: Pass = "all".parse().unwrap();
    let unknown =
        "unknown word \"titles\": expected none, all, title, clipboard, notify, other or unknown";
    for (text, want) in [
        ("none", Ok(Pass::default())),
        ("", Ok(Pass::default())),
        ("title,clipboard,notify,other,unknown", Ok(all)),
        ("all,none", Ok(Pass::default())),
        ("title", Ok(Pass([true, false, false, false, false]))),
        ("titles", Err(unknown.to_owned())),
    ] {
        assert_eq!(text.parse::<Pass>(), want, "{text:?}");
    }
}

/// The programs of the recordings draw as before: what is dropped of them is of no use, or lasts.
#[test]
fn what_programs_draw_is_shown() {
    const KNOWN: [(&str, &[u8]); 7] = [
        ("saving a mode of the mouse", b"\x1b[?1001s"),
        ("restoring it", b"\x1b[?1001r"),
        ("keys with bit 8", b"\x1b[?1034h"),
        ("80 columns, no smooth scrolling", b"\x1b[?3;4l"),
        ("keys of mintty", b"\x1b[?7727h"),
        ("vim's test of a bad sequence", b"\x1b[0%m"),
        ("another one", b"\x1bPzz\x1b\\"),
    ];
    let recordings = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/terminal/recordings");
    let mut dropped = std::collections::BTreeSet::new();
    let mut programs = 0;
    for file in std::fs::read_dir(recordings).unwrap() {
        let cast = std::fs::read_to_string(file.unwrap().path()).unwrap();
        let events = cast.lines().skip(1).filter_map(|line| {
            let (_, kind, text) = serde_json::from_str::<(f64, String, String)>(line).ok()?;
            (kind == "o").then_some(text)
        });
        let bytes = events.collect::<String>().into_bytes();
        let (mut scanner, mut at) = (Scanner::default(), 0);
        while let Some(piece) = scanner.next(&bytes, &mut at) {
            if let Piece::Sequence(raw) = piece
                && matches!(class(raw, true), Some(Class::Unknown | Class::Other))
            {
                dropped.insert(raw.escape_ascii().to_string());
            }
        }
        programs += 1;
    }
    assert!(programs > 60, "{programs}");
    for (_, raw) in KNOWN {
        dropped.remove(&raw.escape_ascii().to_string());
    }
    assert_eq!(dropped.into_iter().collect::<Vec<_>>(), Vec::<String>::new());
}

const LASTING: &[&[u8]] = &[
    b"\x1b=",
    b"\x1b>",
    b"\x1b7",
    b"\x1b8",
    b"\x1bc",
    b"\x1b[!p",
    b"\x1b(0",
    b"\x1b)0",
    b"\x0e",
    b"\x0f",
    b"\x1b[>1u",
    b"\x1b[>5u",
    b"\x1b[=3u",
    b"\x1b[<u",
    b"\x1b[>4;2m",
    b"\x1b[>4m",
    b"\x1b[4 q",
    b"\x1b[0 q",
    b"\x1b[3;5r",
    b"\x1b[r",
    b"\x1b]4;1;red\x07",
    b"\x1b]11;blue\x07",
    b"\x1b]104\x07",
    b"\x1b]8;;http://a\x07",
    b"\x1b[22t",
    b"\x1b[23t",
    b"\x1b]2;t\x07",
    b"\x1b]52;c;aGk=\x07",
];

/// Parts of sequences, of those that set what lasts above all. The judge does not know the older
/// modes of the alternate screen.
fn parts() -> impl Strategy<Value = Vec<u8>> {
    let modes = "1 2 3 4 5 6 7 9 12 20 25 40 45 66 69 1000 1002 1003 1004 1005 1006 1007 1015 1016 1034 1042 \
                     1048 1049 2004 2026 2027 2031 2048 9001";
    let modes: Vec<&str> = modes.split_whitespace().collect();
    prop_oneof![
        4 => (prop::sample::select(&["", "?"][..]), prop::sample::select(modes), any::<bool>()).prop_map(
            |(marker, mode, on)| format!("\x1b[{marker}{mode}{}", if on { 'h' } else { 'l' }).into_bytes()
        ),
        3 => prop::sample::select(LASTING).prop_map(<[u8]>::to_vec),
        1 => "[ -~]{0,5}".prop_map(String::into_bytes),
        1 => prop::collection::vec(any::<u8>(), 0..6),
    ]
}

/// A program with a full screen saves the title of the window, which is not the app's.
#[test]
fn a_redraw_leaves_a_title_that_the_app_has_only_saved() {
    let window = Size { rows: 4, cols: 20 };
    let (mut app, mut viewer) = (Screen::new(window), Screen::new(window));
    app.process(b"\x1b[?1049h\x1b[22;0;0t");
    viewer.process(b"\x1b]2;mine\x07");
    let (mut filter, mut memory) = (Filter::new("title".parse().unwrap()), Vec::new());
    for _ in 0..3 {
        viewer.process(filter.read(&app.redraw(window), &mut memory));
        assert_eq!(viewer.shown().title.as_deref(), Some("mine"));
    }
}

/// A terminal behind the filter, which shows the screen of another one, restores the title that the app
/// has saved there, however often it is redrawn.
#[test]
fn a_redraw_has_the_titles_that_the_app_has_saved() {
    let window = Size { rows: 4, cols: 20 };
    let mut app = Screen::new(window);
    app.process(b"\x1b]2;shell\x07\x1b[22;0t\x1b]2;editor\x07\x1b[22;2t\x1b]2;dialog\x07");
    let (mut filter, mut viewer) = (Filter::new("title".parse().unwrap()), Screen::new(window));
    let mut memory = Vec::new();
    viewer.process(b"\x1b]2;before\x07");
    let mut titles = Vec::new();
    for _ in 0..20 {
        viewer.process(filter.read(&app.redraw(window), &mut memory));
    }
    for restore in ["", "\x1b[23;2t", "\x1b[23;0t", "\x1b[23;0t"] {
        app.process(restore.as_bytes());
        viewer.process(filter.read(restore.as_bytes(), &mut memory));
        titles.push((app.shown().title.unwrap(), viewer.shown().title.unwrap()));
    }
    let same = |title: &str| (title.to_owned(), title.to_owned());
    assert_eq!(titles, ["dialog", "editor", "shell", "shell"].map(same));
    viewer.process(filter.restore_title().as_bytes());
    assert_eq!(viewer.shown().title.unwrap(), "before");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]
    /// In a terminal that is not ours nothing happens but drawing, and after it its modes are as
    /// before.
    #[test]
    fn a_real_terminal_is_as_before(pieces in prop::collection::vec(parts(), 0..40), size in 1usize..40) {
        let mut terminal = terminal_model::Real::new();
        let (mut filter, mut out) = (Filter::new(Pass::default()), Vec::new());
        let mut restorer = Restorer::default();
        for piece in pieces.concat().chunks(size) {
            let passed = filter.read(piece, &mut out);
            restorer.observe(passed);
            terminal.show(passed);
        }
        terminal.show(&restorer.sequence(80));
        prop_assert_eq!(terminal.changes(), Vec::<String>::new());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]
    /// No refused string gets through, however the stream is cut.
    #[test]
    fn nothing_that_is_refused_gets_through(
        bytes in prop::collection::vec(prop_oneof![
            1 => any::<u8>(),
            5 => prop::sample::select(&b"\x1b\x1b[]P_k\\\x0705289;ctiqhlGV?> \"$%#\0\n\x7f\x18\xc2\x9d\x9c"[..]),
        ], 0..300),
        cuts in prop::collection::vec(0usize..300, 0..4),
    ) {
        let mut cuts: Vec<_> = cuts.into_iter().map(|cut| cut.min(bytes.len())).collect();
        cuts.extend([0, bytes.len()]);
        cuts.sort_unstable();
        let pieces: Vec<_> = cuts.windows(2).map(|pair| &bytes[pair[0]..pair[1]]).collect();
        let got = shown("none", &pieces);
        prop_assert_eq!(terminal_model::refused(&got), None, "{}", got.escape_ascii());
        for text in got.utf8_chunks() {
            let introducers = ['\u{9d}', '\u{90}', '\u{9b}'];
            prop_assert!(!text.valid().contains(introducers));
        }
    }
}
