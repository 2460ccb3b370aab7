//! The screen as a whole: a redraw shows the same screen.

use proptest::prelude::*;

use super::query::Strip;
use super::*;

const SIZE: Size = Size { rows: 6, cols: 20 };

fn shown(size: Size, bytes: &[u8]) -> Screen {
    let mut screen = Screen::new(size);
    screen.process(bytes);
    assert_eq!(screen.why_off(), None, "{}", bytes.escape_ascii());
    screen
}

/// The state that two terminals share when they show the same.
fn state(screen: &Screen) -> Vec<String> {
    let State { modes, model, title, .. } = &screen.state;
    let saved = modes.is_set(true, 1049) == Some(true);
    let mut all = model.seen();
    if let Some((first, last)) = screen.state.region().filter(|_| modes.counts_from_region()) {
        // The emulator has a cursor for each screen, which may be where terminals do not allow it.
        let (row, col) = model.cursor();
        all[0] = format!("{:?} {}", (row.clamp(first - 1, last - 1), col), model.is_alternate());
    }
    if model.is_alternate() {
        all.extend(
            model.main(saved).seen().into_iter().skip(1).take(usize::from(model.size().rows)),
        );
    }
    all.push(format!("{:?} {title:?}", screen.state.region()));
    all.push(modes.set_changed() + &modes.select_charsets());
    all.push(modes.shows_cursor().to_string());
    all
}

/// A terminal that showed something else and then gets the redraw.
fn redrawn(screen: &Screen, window: Size) -> Screen {
    let mut other = shown(window, b"\x1b[31mdirt\x1b[?1049h\x1b[42m\x1b[2Jdirt\x1b[2;3r\x1b[?6;1000;2004h\x1b[?7l\x1b(0\x1b[4h\x1b[12;3");
    other.process(&screen.redraw(window).unwrap());
    other
}

fn assert_redrawn(bytes: &[u8]) {
    let screen = shown(SIZE, bytes);
    let other = redrawn(&screen, SIZE);
    assert_eq!(
        state(&other),
        state(&screen),
        "{}\nredrawn by {}",
        bytes.escape_ascii(),
        screen.redraw(SIZE).unwrap().escape_ascii()
    );
    assert_eq!(other.scanner.held(), screen.scanner.held());
    if screen.modes().saved().is_some() {
        let saved = |screen: &Screen| {
            let mut seen = screen.state.model.restored().seen();
            (screen.modes().saved(), seen.swap_remove(0), seen.pop())
        };
        assert_eq!(saved(&other), saved(&screen), "{}", bytes.escape_ascii());
    }
}

/// Found by fuzzing: two incomplete characters that the bytes after a query do not complete.
#[test]
fn incomplete_characters_show_nothing_however_they_are_cut() {
    let bytes = b"\xdb\xc5\x05\x85\x85x";
    for at in 0..=bytes.len() {
        let mut screen = shown(SIZE, &bytes[..at]);
        screen.process(&bytes[at..]);
        assert_eq!(state(&screen), state(&shown(SIZE, b"x")), "{at}");
    }
}

#[test]
fn the_screen_as_it_is() {
    for bytes in [
        "",
        "plain\r\ntext",
        "\x1b[1;31mred\x1b[44m on blue\x1b[K\r\n\x1b[0;7mback\x1b[27;4m\x1b[38;5;200munder\x1b[48;2;1;2;3m",
        "\x1b[?1049h\x1b[2;3Halternate\x1b[?25l\x1b[?1h\x1b=",
        "$ vim\r\n\x1b[?1049h\x1b[1;1Hfile\x1b[6;1H\x1b[?1002;1006h\x1b[?2004h",
        "wide 漢字 and e\u{301} and ❤\u{fe0f}x",
        "exactly twenty chars",
        "exactly twenty chars and it goes on behind",
        "\x1b]2;title; of it\x07",
        "\x1b[2;5r\x1b[3;3Hin a region",
        "\x1b[2;5r\x1b[?6h\x1b[2;2Hin origin mode",
        "\x1b[?7lno wrapping lines here at all",
        "\x1b[6;18Hcor\x1b[?7ln\x1b[?7h",
        "\x1b[6;20HF\u{301}\x1b[?7l",
        "\x1b(0lqqk\x1b(B plain",
        "\x1b(0lqqk",
        "\x1b)0\x0elqqk\x0f plain \x0eqq",
        "\x1b[>1u\x1b[?1049h\x1b[>5u\x1b[4 q\x1b[>4;2m\x1b[?1004h",
        "\x1b[4:3mcurly\x1b[58;2;1;2;3m colour\x1b[4:0m no",
        "\x1b[38:2::1:2:3mrgb\x1b[38:5:9m",
        "text\x1bD\x1bEnext\x1b[s\x1b[3;3H\x1b[u",
        "cut in the middle é\x1b[3",
        "\x1b[?1047hother\x1b[?1047l\x1b[?1048h",
        "a\tb\x1b[Z\x1b[Ic",
        "x\x1b[65535b",
        "\x1b[3;10H\x1b[1;31m\x1b7\x1b[H\x1b[0mplain",
        "\x1b[?1049h\x1b[3;10H\x1b(0\x1b7\x1b[H\x1b(Bplain",
        "\x1b[2;5r\x1b[?6h\x1b[2;2H\x1b7\x1b[?6l",
        "\x1b[2r\x1b[?6h\x1b[?1048l",
        "\x1b[?6h\x1b[2r\x1b[?47h",
    ] {
        assert_redrawn(bytes.as_bytes());
    }
    assert_redrawn(b"half a character \xe6\xbc");
}

#[test]
fn what_it_looks_like() {
    let line =
        |bytes: &str, row: usize| shown(SIZE, bytes.as_bytes()).state.model.seen()[row + 1].clone();
    for (bytes, want) in [
        ("\x1b(0lqk\x1b(Bq", "┌─┐q"),
        ("\x1b[?7l01234567890123456789abc", "0123456789012345678c"),
        ("\x1b[20G\x1b[?7ly\x1b[?7hx", "...................x"),
        ("abcdefghi\x1b[Z\x1b[Zx", "xbcdefghi"),
        ("\x1b[4:3mx", "\x1b[0;4mx"),
        ("\x1b[58;5;1mx", "x"),
        ("\x1b[21;31mx", "\x1b[0;4;31mx"),
        ("\x1b[38:2::1:2:3mx", "\x1b[0;38;2;1;2;3mx"),
        ("\x1b[2;4r12", "12"),
    ] {
        assert_eq!(line(bytes, 0).trim_end_matches('.'), want, "{bytes:?}");
    }
}

#[test]
fn windows_of_other_sizes() {
    let rows = |window: Size, bytes: &str| {
        let screen = shown(SIZE, bytes.as_bytes());
        let seen = redrawn(&screen, window).state.model.seen();
        let text = |row: &String| row.trim_end_matches('.').to_owned();
        (
            seen[0].clone(),
            seen[1..=usize::from(window.rows)].iter().map(text).collect::<Vec<_>>().join("|"),
        )
    };
    let lines = "1\r\n2\r\n3\r\n4\r\n5\r\n6 漢x";
    for (rows_, cols, bytes, cursor, want) in [
        (6, 20, lines, "(5, 5) false", "1|2|3|4|5|6.漢.x"),
        (3, 20, lines, "(2, 5) false", "4|5|6.漢.x"),
        (3, 3, lines, "(2, 2) false", "4|5|6"),
        (8, 30, lines, "(5, 5) false", "1|2|3|4|5|6.漢.x||"),
        (1, 2, lines, "(0, 1) false", "6"),
        (3, 20, "1\r\n2\r\n3\r\n4\x1b[2A", "(1, 1) false", "1|2|3"),
    ] {
        let (at, text) = rows(Size { rows: rows_, cols }, bytes);
        assert_eq!((at.as_str(), text.as_str()), (cursor, want), "{rows_}x{cols}");
        let (at, text) = rows(Size { rows: rows_, cols }, &format!("\x1b[?1049h\x1b[H{bytes}"));
        let first: Vec<_> = "1|2|3".split('|').take(usize::from(rows_)).collect();
        assert!(at.ends_with("true") && text.starts_with(&first.join("|")), "{at} {text}");
    }
    // A window without a size counts as the app's.
    let screen = shown(SIZE, lines.as_bytes());
    assert_eq!(screen.redraw(Size { rows: 0, cols: 0 }), screen.redraw(SIZE));
}

#[test]
fn queries_and_where_they_were() {
    let mut screen = Screen::new(SIZE);
    screen.process(b"ab\x1b[");
    screen.process(b"6n\r\n\x1b[6n\x05\x1b]11;?\x07");
    let asked: Vec<_> = screen.queries().collect();
    let wheres: Vec<_> = asked.iter().map(|asked| (asked.query, asked.end, asked.cursor)).collect();
    assert_eq!(
        wheres,
        [
            (Query::Cursor, 6, (1, 3)),
            (Query::Cursor, 12, (2, 1)),
            (Query::Enquiry, 13, (2, 1)),
            (Query::Value(11), 20, (2, 1)),
        ]
    );
    assert_eq!(screen.answer(&asked[0]).as_deref(), Some(&b"\x1b[1;3R"[..]));
    assert_eq!(screen.queries().count(), 0);
    screen.process(&b"\x1b[c".repeat(limits::QUERIES + 10));
    assert_eq!(screen.queries().count(), limits::QUERIES);
}

#[test]
fn the_window_changes() {
    let mut screen = shown(SIZE, b"one\r\ntwo\x1b[2;4r\x1b[?1049h\x1b[6;20Hx");
    for (rows, cols) in [(3, 10), (10, 40), (1, 1), (65535, 65535), (6, 20)] {
        screen.resize(Size { rows, cols });
        assert_eq!(screen.modes().region(), None);
        screen.process("text ❤\u{fe0f}\r\n\x1b[?1049l\x1b[?1049h".as_bytes());
        assert_eq!(screen.why_off(), None);
        let size = screen.state.model.size();
        assert_eq!(state(&redrawn(&screen, size)), state(&screen));
    }
}

/// Output of a program.
/// Text of any kind, a program that comes or not, and a window that is smaller for a while.
#[test]
fn wide_characters_that_did_not_fit_go_on_in_the_next_row() {
    let text = "\u{6f22}\u{5b57}\u{6f22}\u{5b57}x\u{6f22}e\u{301}y0123456789";
    let whole = state(&shown(Size { rows: 6, cols: 40 }, text.as_bytes()));
    for cols in 5..40 {
        let mut screen = shown(Size { rows: 6, cols }, text.as_bytes());
        screen.resize(Size { rows: 6, cols: 40 });
        assert_eq!(state(&screen), whole, "{cols}");
    }
}

#[test]
fn what_a_smaller_window_hides_comes_back() {
    let printed = "\x1b[42;31mone\x1b[m\r\n\u{6f22}\u{5b57} and 0123456789\r\n\x1b[7m0123456789012345678901234567890123456789\
        \x1b[m\r\nfour\x1b[43m\x1b[K\x1b[m\r\n\x1b7$ \x1b[1mtyped";
    for (enter, leave) in [("", ""), ("\x1b[?1049h", "\x1b[?1049l"), ("\x1b[?47h", "\x1b[?47l")] {
        for small in [(6, 7), (2, 20), (2, 3), (3, 40), (40, 3), (2, 2)] {
            let mut screen = shown(SIZE, printed.as_bytes());
            let before = state(&screen);
            screen.process(enter.as_bytes());
            screen.resize(Size { rows: small.0, cols: small.1 });
            screen.resize(SIZE);
            screen.process(leave.as_bytes());
            assert_eq!(state(&screen), before, "{small:?} {enter:?}");
            // Left while the window is small.
            let mut screen = shown(SIZE, printed.as_bytes());
            screen.process(enter.as_bytes());
            screen.resize(Size { rows: small.0, cols: small.1 });
            screen.process(leave.as_bytes());
            screen.resize(SIZE);
            assert_eq!(state(&screen), before, "{small:?} {enter:?}, left in it");
        }
    }
}

fn printed() -> impl Strategy<Value = Vec<u8>> {
    let number = prop_oneof![4 => 0u16..10, 2 => 0u16..60, 1 => Just(1049u16), 1 => any::<u16>()];
    let numbers = prop::collection::vec(number, 0..4)
        .prop_map(|numbers| numbers.iter().map(u16::to_string).collect::<Vec<_>>().join(";"));
    let finals =
        prop::sample::select(&b"@ABCDEFGHIJKLMPSTXZ`abdefghlmnqrstu"[..]).prop_map(char::from);
    let modes = prop::sample::select(
        &[1u16, 5, 6, 7, 9, 12, 25, 47, 1000, 1002, 1003, 1004, 1006, 1047, 1048, 1049, 2004, 2026]
            [..],
    );
    let markers = prop::sample::select(&["", "", "", "", "?", ">", "=", "<"][..]);
    prop_oneof![
        6 => "[ -~]{1,30}".prop_map(String::into_bytes),
        2 => prop::sample::select(&["漢", "e\u{301}", "\u{301}", "é", "👩\u{200d}🚀", "❤\u{fe0f}", "\u{ad}"][..]).prop_map(|s| s.as_bytes().to_vec()),
        3 => prop::sample::select(&["\r", "\n", "\r\n", "\t", "\x08", "\x0e", "\x0f", "\x07"][..]).prop_map(|s| s.as_bytes().to_vec()),
        6 => (markers, numbers, finals).prop_map(|(marker, numbers, last)| format!("\x1b[{marker}{numbers}{last}").into_bytes()),
        3 => (modes, any::<bool>()).prop_map(|(mode, on)| format!("\x1b[?{mode}{}", if on { 'h' } else { 'l' }).into_bytes()),
        2 => prop::sample::select(&["\x1b7", "\x1b8", "\x1bM", "\x1bD", "\x1bE", "\x1bc", "\x1b=", "\x1b>", "\x1b(0", "\x1b(B", "\x1b)0", "\x1b[!p", "\x1b[2 q", "\x1b[4h"][..]).prop_map(|s| s.as_bytes().to_vec()),
        1 => "[ -~]{0,10}".prop_map(|title| format!("\x1b]2;{title}\x07").into_bytes()),
        1 => prop::collection::vec(any::<u8>(), 0..8),
    ]
}

proptest! {
    #[test]
    fn what_is_redrawn_is_what_was_there(pieces in prop::collection::vec(printed(), 0..30)) {
        assert_redrawn(&pieces.concat());
    }

    #[test]
    fn any_cut_is_the_same(pieces in prop::collection::vec(printed(), 0..30), size in 1usize..50) {
        let bytes = pieces.concat();
        let mut whole = shown(SIZE, &bytes);
        let mut cut = Screen::new(SIZE);
        bytes.chunks(size).for_each(|piece| cut.process(piece));
        prop_assert_eq!(state(&cut), state(&whole));
        prop_assert_eq!(cut.redraw(SIZE), whole.redraw(SIZE));
        prop_assert_eq!(cut.queries().collect::<Vec<_>>(), whole.queries().collect::<Vec<_>>());
    }

    #[test]
    fn a_redraw_asks_nothing(pieces in prop::collection::vec(printed(), 0..30), rows in 1u16..10, cols in 1u16..30) {
        let redraw = shown(SIZE, &pieces.concat()).redraw(Size { rows, cols }).unwrap();
        let (mut strip, mut out) = (Strip::default(), Vec::new());
        strip.push(&redraw, &mut out);
        out.extend_from_slice(strip.held());
        prop_assert_eq!(out, redraw);
    }
}

#[test]
fn erasing_an_erased_screen_costs_nothing() {
    for (piece, most) in [
        ("\x1b[J", 1),
        ("\x1b[2J", 1),
        ("\x1b[H\x1b[J", 2),
        ("\x1b[H\x1b[2J\x1b[m", 1),
        ("\x1b[3;4H\x1b[0J\x1b[A", 2),
    ] {
        let screen = shown(SIZE, piece.repeat((1 << 20) / piece.len()).as_bytes());
        assert!(screen.state.model.erasures <= most, "{piece:?}: {}", screen.state.model.erasures);
    }
    // Text that was printed since is erased.
    let screen = shown(SIZE, "x\x1b[H\x1b[J".repeat(100).as_bytes());
    assert_eq!(screen.state.model.erasures, 100);
    assert!(!screen.state.model.seen().concat().contains('x'));
}

proptest! {
    #[test]
    fn erasing_what_is_erased_changes_nothing(
        pieces in prop::collection::vec(prop::sample::select(&[
            "\x1b[J", "\x1b[2J", "\x1b[0J", "\x1b[H", "\x1b[3;5H", "\x1b[B", "\x1b[20C", "x", "some text", "\r\n", "\n",
            "\x1b[41m", "\x1b[m", "\x1b[1m", "\x1b[K", "\x1b[1J", "\x1b[2L", "\x1b[S", "\x1b[?1049h", "\x1b[?1049l", "\x1bM", "\x1bc",
            "\x1b[2;4r", "\u{4e2d}",
        ][..]), 0..60),
    ) {
        let (mut model, mut plain) = (Model::new(SIZE), Model::new(SIZE));
        for piece in pieces {
            plain.process(piece.as_bytes());
            match piece {
                "\x1b[J" | "\x1b[0J" => model.erase(piece.as_bytes(), false),
                "\x1b[2J" => model.erase(piece.as_bytes(), true),
                _ => model.process(piece.as_bytes()),
            }
            prop_assert_eq!(model.seen(), plain.seen());
        }
        prop_assert!(model.erasures <= 60);
    }
}
