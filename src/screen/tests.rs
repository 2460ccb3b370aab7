//! The screen as a whole: a redraw shows the same screen.

use proptest::prelude::*;

use super::grid::{Cell, Row};
use super::model::CursorPlace;
use super::query::Strip;
use super::style::{Attributes, Colour, Look, SELECTED, Style};
use super::*;

const SIZE: Size = Size { rows: 6, cols: 20 };

fn shown(size: Size, bytes: &[u8]) -> Screen {
    let mut screen = Screen::new(size);
    screen.process(bytes);
    screen
}

/// A cursor as text: one after the last column is in the column after it.
fn place(cursor: &StyledCursor) -> String {
    let CursorPlace { row, col, wraps } = cursor.at;
    let Style { look, underline, link } = &cursor.style;
    format!("({row}, {}) {} {link:?}", col + usize::from(wraps), look_text(*look, *underline))
}

/// The colours and attributes, and nothing for the usual ones.
fn look_text(look: Look, underline: Colour) -> String {
    let flags = look.flags.without(Attributes::WIDE | Attributes::TAIL);
    let Look { text, back, .. } = look;
    let (mut out, mut on) = (String::new(), Vec::new());
    on.extend(SELECTED.iter().filter(|(.., f)| flags.has(*f)).map(|(n, ..)| n.to_string()));
    match flags.underline() {
        0 => {}
        1 => on.push("4".into()),
        kind => on.push(format!("4:{kind}")),
    }
    for (name, colour) in [("text", text), ("back", back), ("underline", underline)] {
        if let Some(index) = colour.index() {
            on.push(format!("{name} {index}"));
        } else if let Some([r, g, b]) = colour.parts() {
            on.push(format!("{name} {r}/{g}/{b}"));
        }
    }
    if !on.is_empty() {
        out = format!("<{}>", on.join(";"));
    }
    out
}

/// Everything visible, row by row.
fn cells(model: &Model, of_main: bool) -> Vec<String> {
    let mut rows = Vec::new();
    for row in model.screen(of_main) {
        let mut line = String::new();
        let mut before = String::new();
        for cell in
            (0..model.cols).map(|col| row.cell(col)).filter(|cell| !cell.has(Attributes::TAIL))
        {
            // A space that cannot be seen counts as erased.
            let is_plain =
                cell.look == Look { text: cell.look.text, ..Cell::erased(cell.look).look };
            let cell = if cell.text == ' ' && is_plain { Cell::erased(cell.look) } else { cell };
            let extra = model.extras.get(cell.look.extra).cloned().unwrap_or_default();
            let link = extra.link.map_or(String::new(), |link| format!("[{link}]"));
            let look = look_text(cell.look, extra.underline) + &link;
            if look != before {
                line += if look.is_empty() { "<>" } else { &look };
                before = look;
            }
            line.push(if cell.is_erased() { '.' } else { cell.text });
            line += &extra.marks;
        }
        rows.push(line);
    }
    rows
}

/// The state that two terminals share when they show the same.
pub(super) fn state(screen: &Screen) -> Vec<String> {
    let State { modes, model, title, titles, .. } = &screen.state;
    let mut all = vec![format!("{} {}", place(&model.cursor()), model.is_alternate())];
    all.extend(cells(model, false));
    if model.is_alternate() {
        all.extend(cells(model, true));
    }
    all.push(format!(
        "{:?} {:?} {title:?} {titles:?} {:?}",
        screen.state.region(),
        screen.state.margins(),
        model.tabs.all().collect::<Vec<_>>()
    ));
    all.push(modes.set_changed(false) + &modes.charsets.select() + &modes.undo_colours());
    all.push(modes.shows_cursor().to_string());
    all
}

/// The cursors that the program has saved.
fn saved(screen: &Screen) -> Vec<String> {
    let State { modes, model, .. } = &screen.state;
    let screens = if model.is_alternate() { &[false, true][..] } else { &[false] };
    let saved = |of_main| format!("{} {:?}", place(model.saved(of_main)), modes.saved(of_main));
    screens.iter().map(|of_main| saved(*of_main)).collect()
}

/// The text of the rows up to its last character, without looks.
fn text(screen: &Screen) -> String {
    let rows = screen.state.model.screen(false).iter();
    let text = |row: &Row| -> String {
        let cells = row.cells.iter().filter(|cell| !cell.has(Attributes::TAIL));
        cells.map(|cell| if cell.is_erased() { ' ' } else { cell.text }).collect()
    };
    rows.map(|row| text(row).trim_end().to_owned()).collect::<Vec<_>>().join("|")
}

/// A terminal that showed something else and then gets the redraw.
fn redrawn(screen: &Screen, window: Size) -> Screen {
    let mut other = shown(window, b"\x1b[31mdirt\x1b[?1049h\x1b[42m\x1b[2Jdirt\x1b[2;3r\x1b[?6;1000;2004h\x1b[?7l\x1b(0\x1b[4h\x1b[12;3");
    other.process(&screen.redraw(window));
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
        screen.redraw(SIZE).escape_ascii()
    );
    assert_eq!(other.scanner.held(), screen.scanner.held());
    assert_eq!(saved(&other), saved(&screen), "{}", bytes.escape_ascii());
}

/// Found by fuzzing: two incomplete characters that the bytes after a query do not complete.
#[test]
fn invalid_characters_are_replaced_however_they_are_cut() {
    let bytes = b"\xdb\xc5\x05\x85\x85x";
    for at in 0..=bytes.len() {
        let mut screen = shown(SIZE, &bytes[..at]);
        screen.process(&bytes[at..]);
        assert_eq!(
            text(&screen).trim_end_matches('|'),
            "\u{fffd}\u{fffd}\u{fffd}\u{fffd}x",
            "{at}"
        );
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
        "\x1b[1;2;3;4:3;5;7;8;9;53;58:5:9mall\x1b[m \x1b[58;2;1;2;3;4mrgb\x1b[K",
        "\x1b]8;id=a;http://b\x07link\x1b[31mred\x1b]8;;\x07 none \x1b]8;;x\x1b\\open",
        "\x1b]4;1;red;2;rgb:1/2/3\x07\x1b]11;blue\x07\x1b]104;1\x07",
        "\x1b#8\x1b[3;3H\x1b[41m\x1b[K",
        "\x1b[3g\x1b[5G\x1bH\x1b[4hx\ty",
        "\x1b[3g\x1b[?5Wx\ty",
        "\x1b[?1007l",
        "e\u{301}\u{302}\u{303}\u{304}\u{305}\u{306}\u{307}\u{308}\u{309}\u{30a}",
    ] {
        assert_redrawn(bytes.as_bytes());
    }
    assert_redrawn(b"half a character \xe6\xbc");
}

#[test]
fn what_it_looks_like() {
    let line = |bytes: &str| cells(&shown(SIZE, bytes.as_bytes()).state.model, false)[0].clone();
    for (bytes, want) in [
        ("\x1b(0lqk\x1b(Bq", "┌─┐q"),
        ("\x1b[?7l01234567890123456789abc", "0123456789012345678c"),
        ("\x1b[20G\x1b[?7ly\x1b[?7hx", "...................y"),
        ("abcdefghi\x1b[Z\x1b[Zx", "xbcdefghi"),
        ("\x1b[4:3mx", "<4:3>x<>"),
        ("\x1b[58;5;1mx", "<underline 1>x<>"),
        ("\x1b[21;31mx", "<4:2;text 1>x<>"),
        ("\x1b[38:2::1:2:3mx", "<text 1/2/3>x<>"),
        ("\x1b[2;4r12", "12"),
        ("\x1b[1;2;5;8;9;53mx", "<1;2;5;8;9;53>x<>"),
        ("\x1b]8;id=1;http://a;b\x1b\\x\x1b]8;;\x07y", "[id=1;http://a;b]x<>y"),
        (
            "e\u{301}\u{302}\u{303}\u{304}\u{305}\u{306}\u{307}\u{308}\u{309}\u{30a}",
            "e\u{301}\u{302}\u{303}\u{304}\u{305}\u{306}\u{307}\u{308}\u{309}\u{30a}",
        ),
        // Inserting.
        ("abc\x1b[G\x1b[4hxy\x1b[4lz", "xyzbc"),
        ("ab\u{6f22}c\x1b[4G\x1b[@", "ab...c"),
        ("ab\u{6f22}c\x1b[3G\x1b[Px", "abxc"),
        ("ab\u{6f22}\u{5b57}\x1b[4Gx", "ab.x\u{5b57}"),
        // Background colours where cells are inserted or erased.
        ("abc\x1b[41m\x1b[2G\x1b[@", "a<back 1>.<>bc"),
        ("abc\x1b[41m\x1b[2G\x1b[P", "ac.................<back 1>."),
        ("abc\x1b[1;41m\x1b[2G\x1b[X", "a<back 1>.<>c"),
        ("ab\x1b[42m\x1b[K", "ab<back 2>.................."),
        // No cell is protected.
        ("a\x1b[1\"qb\x1b[0\"qc\x1b[?2K", "...................."),
        ("a\x1b[1\"qb\x1b[0\"qc\x1b[?2J", "...................."),
        // Tab stops.
        ("\x1b[3G\x1bH\x1b[G\tx\ty", "..x.....y"),
        ("\x1b[3g\tx", "...................x"),
        ("\x1b[9G\x1b[g\x1b[G\tx", "................x"),
        ("\x1b[3g\x1b[?5W\tx", "........x"),
        // After the last column.
        ("01234567890123456789\x1b[Kx\x1b[H", "01234567890123456789"),
        ("01234567890123456789\x08x", "012345678901234567x9"),
        ("01234567890123456789\x1b[Dx", "012345678901234567x9"),
        ("01234567890123456789\x1b[A\x1b[Bx", "01234567890123456789"),
        ("01234567890123456789\tx\x1b[H", "01234567890123456789"),
        ("01234567890123456789\x1b7\x1b[H\x1b8x", "01234567890123456789"),
        // Invalid bytes, and characters without a width.
        ("a\u{9b}b\u{7f}c", "abc"),
        ("\x1b[2\nCx", "...................."),
        ("ab\x1b[3bc\x1b[bd\x1b[m\x1b[b", "abbbbccd"),
    ] {
        assert_eq!(line(bytes).trim_end_matches('.'), want.trim_end_matches('.'), "{bytes:?}");
    }
    let line = cells(&shown(SIZE, b"a\xff\xe6\xbcb\xf0\x9f").state.model, false)[0].clone();
    assert!(line.starts_with("a\u{fffd}\u{fffd}b."), "{line}");
}

/// Where rows move, what is new has the background colour that is selected.
#[test]
fn scrolling_and_other_rows() {
    let rows = |bytes: &str| {
        let rows = cells(&shown(Size { rows: 4, cols: 2 }, bytes.as_bytes()).state.model, false);
        rows.join("|")
    };
    let lines = "1\r\n2\r\n3\r\n4\x1b[41m";
    for (bytes, want) in [
        ("\n", "2.|3.|4.|<back 1>.."),
        ("\x1b[H\x1bM", "<back 1>..|1.|2.|3."),
        ("\x1b[S", "2.|3.|4.|<back 1>.."),
        ("\x1b[2T", "<back 1>..|<back 1>..|1.|2."),
        ("\x1b[2;1H\x1b[L", "1.|<back 1>..|2.|3."),
        ("\x1b[2;1H\x1b[9M", "1.|<back 1>..|<back 1>..|<back 1>.."),
        ("\x1b[2;3r\x1b[3;1H\n", "1.|3.|<back 1>..|4."),
        ("\x1b[2;3r\x1b[2;1H\x1bM", "1.|<back 1>..|2.|4."),
        // Above the region, and below it.
        ("\x1b[3;4r\x1b[2;1H\x1bMx", "<back 1>x<>.|2.|3.|4."),
        ("\x1b[1;2r\x1b[4;1H\n\x1b[mx", "1.|2.|3.|x."),
        ("\x1b[1;2r\x1b[4;1H\x1b[L", "1.|2.|3.|4."),
        // A line that wraps at the end.
        ("\x1b[mxyz", "2.|3.|4x|yz"),
        ("\x1b#8", "EE|EE|EE|EE"),
        ("\x1b[2;1H\x1b[J", "1.|<back 1>..|<back 1>..|<back 1>.."),
        ("\x1b[3;1H\x1b[1J", "<back 1>..|<back 1>..|<back 1>.<>.|4."),
        ("\x1b[?1049hx", "<back 1>..|<back 1>..|<back 1>..|<back 1>.x"),
        ("\x1b[H\x1b[?1049h\x1b7\x1b[4;1H\x1b8\x1b[mx\x1b[?1049l\x1b[my", "y.|2.|3.|4."),
    ] {
        assert_eq!(rows(&format!("{lines}{bytes}")), want, "{bytes:?}");
    }
}

#[test]
fn windows_of_other_sizes() {
    let rows = |window: Size, bytes: &str| {
        let screen = shown(SIZE, bytes.as_bytes());
        let seen = redrawn(&screen, window);
        let CursorPlace { row, col, .. } = seen.state.model.cursor().at;
        (format!("({row}, {col}) {}", seen.state.model.is_alternate()), text(&seen))
    };
    let lines = "1\r\n2\r\n3\r\n4\r\n5\r\n6 漢x";
    for (rows_, cols, bytes, cursor, want) in [
        (6, 20, lines, "(5, 5) false", "1|2|3|4|5|6 漢x"),
        (3, 20, lines, "(2, 5) false", "4|5|6 漢x"),
        (3, 3, lines, "(2, 2) false", "4|5|6"),
        (8, 30, lines, "(5, 5) false", "1|2|3|4|5|6 漢x||"),
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

/// Not a viewer's terminal, whose window may be another one.
#[test]
fn only_another_model_reports_sizes() {
    let mut screen = shown(SIZE, b"text\x1b[?1004;2048h");
    let mut copy = shown(SIZE, &screen.copy());
    assert_eq!(state(&copy), state(&screen));
    assert!(redrawn(&screen, SIZE).size_report().is_none());
    for screen in [&mut screen, &mut copy] {
        // The model has limits.
        screen.resize(Size { rows: 2000, cols: 7 });
        assert_eq!(screen.size_report().as_deref(), Some(&b"\x1b[48;2000;7;0;0t"[..]));
        screen.process(b"\x1b[?2048l");
        assert!(screen.size_report().is_none());
    }
}

#[test]
fn the_window_changes() {
    let mut screen = shown(SIZE, b"one\r\ntwo\x1b[2;4r\x1b[?1049h\x1b[6;20Hx");
    for (rows, cols) in [(3, 10), (10, 40), (1, 1), (65535, 65535), (6, 20)] {
        screen.resize(Size { rows, cols });
        assert_eq!(screen.modes().region, None);
        screen.process("text ❤\u{fe0f}\r\n\x1b[?1049l\x1b[?1049h".as_bytes());
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
    for (enter, leave) in
        [("", ""), ("\x1b[?1049h", "\x1b[?1049l"), ("\x1b7\x1b[?47h", "\x1b[?47l\x1b8")]
    {
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
        prop::sample::select(&b"@ABCDEFGHIJKLMPSTXZ^`abdefghjklmnqrstu"[..]).prop_map(char::from);
    let modes = prop::sample::select(
        &[
            1u16, 5, 6, 7, 9, 12, 25, 47, 1000, 1002, 1003, 1004, 1006, 1007, 1047, 1048, 1049,
            2004, 2026,
        ][..],
    );
    let markers = prop::sample::select(&["", "", "", "", "?", ">", "=", "<"][..]);
    prop_oneof![
        6 => "[ -~]{1,30}".prop_map(String::into_bytes),
        2 => prop::sample::select(&["漢", "e\u{301}", "\u{301}", "é", "👩\u{200d}🚀", "❤\u{fe0f}", "\u{ad}"][..]).prop_map(|s| s.as_bytes().to_vec()),
        3 => prop::sample::select(&["\r", "\n", "\r\n", "\t", "\x08", "\x0e", "\x0f", "\x07"][..]).prop_map(|s| s.as_bytes().to_vec()),
        6 => (markers, numbers, finals).prop_map(|(marker, numbers, last)| format!("\x1b[{marker}{numbers}{last}").into_bytes()),
        3 => (modes, any::<bool>()).prop_map(|(mode, on)| format!("\x1b[?{mode}{}", if on { 'h' } else { 'l' }).into_bytes()),
        2 => prop::sample::select(&["\x1b7", "\x1b8", "\x1bM", "\x1bD", "\x1bE", "\x1bc", "\x1b=", "\x1b>", "\x1b(0", "\x1b(B", "\x1b)0", "\x1b[!p", "\x1b[2 q", "\x1b[4h", "\x1b[4l", "\x1b[20h", "\x1b#8", "\x1bH", "\x1b[?5W", "\x1b[1\"q", "\x1b[0\"q",
            "\x1b[?J", "\x1b[?1K", "\x1b]8;;http://a\x07", "\x1b]8;;\x07", "\x1b]4;1;red\x07", "\x1b]104\x07", "\x1b]11;blue\x07",
            "\x1b[4:3m", "\x1b[58:5:9m", "\x1b[1;2;5;8;9;53;58;2;1;2;3m"][..]).prop_map(|s| s.as_bytes().to_vec()),
        1 => prop::sample::select(&["\x1b[22;0t", "\x1b[22;2t", "\x1b[23t"][..]).prop_map(Vec::from),
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
        let redraw = shown(SIZE, &pieces.concat()).redraw(Size { rows, cols });
        let (mut strip, mut out) = (Strip::default(), Vec::new());
        strip.push(&redraw, &mut out);
        out.extend_from_slice(strip.held());
        prop_assert_eq!(out, redraw);
    }
}

/// Lines of a program that prints a lot, a few of them without the usual end.
fn lines() -> impl Strategy<Value = Vec<u8>> {
    let pieces = prop::sample::select(
        &[
            "some text",
            "\x1b[31m",
            "\x1b[m",
            "\x1b[1;4:3;44m",
            "\x1b[K",
            "\x1b[58;5;1m",
            "\t",
            "\x08",
            "\u{6f22}",
            "e\u{301}",
            "a line that is longer than a row of the screen",
            "\x0b",
            "\x0f",
            "\x07",
            "\x7f",
            "\u{e9}",
            "0;1",
            "\x1b[38;2;1;2;3m",
        ][..],
    );
    let ends = prop::sample::select(&["\r\n", "\r\n", "\r\n", "\r\n", "\n", "\r\n\r\n"][..]);
    let line =
        (prop::collection::vec(pieces, 0..5), ends).prop_map(|(line, end)| line.concat() + end);
    prop::collection::vec(line, 0..300).prop_map(|lines| lines.concat().into_bytes())
}

proptest! {
    /// Skipping what scrolls away changes nothing. Small pieces are not skipped.
    #[test]
    fn a_flood_leaves_what_its_end_shows(
        before in prop::collection::vec(printed(), 0..5),
        floods in prop::collection::vec((lines(), printed()), 1..4),
        smaller in any::<bool>(),
    ) {
        let lines = floods.into_iter().flat_map(|(lines, after)| [lines, after]).collect::<Vec<_>>().concat();
        let [mut whole, mut cut] = [(); 2].map(|()| {
            let mut screen = shown(Size { rows: 9, ..SIZE }, &before.concat());
            screen.resize(Size { rows: if smaller { 4 } else { 9 }, ..SIZE });
            screen
        });
        whole.process(&lines);
        lines.chunks(100).for_each(|piece| cut.process(piece));
        prop_assert_eq!(state(&whole), state(&cut));
        for screen in [&mut whole, &mut cut] {
            screen.resize(SIZE);
        }
        prop_assert_eq!(state(&whole), state(&cut));
    }
}

/// A row is full also without wrapping: what is printed when it wraps again goes to the next row.
#[test]
fn a_full_row_without_wrapping_is_full() {
    let screen = shown(Size { rows: 2, cols: 4 }, b"\x1b[?7labcdef\x1b[?7hg");
    assert_eq!(text(&screen), "abcf|g");
}

/// What a larger window adds has no colour.
#[test]
fn a_background_ends_where_the_window_ended() {
    let mut screen = shown(Size { rows: 2, cols: 3 }, b"\x1b[?1049h\x1b[44m\x1b[2J");
    screen.resize(Size { rows: 2, cols: 5 });
    assert_eq!(cells(&screen.state.model, false), ["<back 4>...<>.."; 2]);
}

/// A smaller window drops rows of the alternate screen at the top, so that the cursor stays.
#[test]
fn the_row_of_the_cursor_stays_on_the_alternate_screen() {
    let mut screen = shown(Size { rows: 4, cols: 3 }, b"\x1b[?1049ha\r\nb\x1b7\r\nc\r\nd\x1b[3;1H");
    screen.resize(Size { rows: 2, cols: 3 });
    assert_eq!(cells(&screen.state.model, false), ["b..", "c.."]);
    assert_eq!(screen.state.model.place(), (2, 1));
    assert_eq!(screen.state.model.saved(false).at.row, 0);
}

/// What another emulator (the vt100 crate) shows, in the sequences that it knows.
mod another {
    use super::*;

    fn known() -> impl Strategy<Value = String> {
        let count = || prop_oneof![Just(String::new()), (1u16..9).prop_map(|n| n.to_string())];
        let numbers = prop::sample::select(
            &[
                "",
                "0",
                "1",
                "2",
                "3",
                "7",
                "31",
                "42",
                "97",
                "104",
                "38;5;9",
                "48;2;1;2;3",
                "39",
                "49",
                "23",
                "27",
            ][..],
        );
        prop_oneof![
            6 => "[ -~]{1,9}",
            2 => prop::sample::select(&["\r", "\n", "\r\n", "\t", "\u{e9}"][..]).prop_map(str::to_owned),
            3 => (count(), prop::sample::select(&["C", "D", "G", "d", "L\r", "M\r", "S", "T", "X", "P", "@"][..]))
                .prop_map(|(count, last)| format!("\x1b[{count}{last}")),
            2 => (1u16..8, 1u16..25).prop_map(|(row, col)| format!("\x1b[{row};{col}H")),
            3 => numbers.prop_map(|numbers| format!("\x1b[{numbers}m")),
            1 => prop::sample::select(&["\x1b[J", "\x1b[1J", "\x1b[2J", "\x1b[K", "\x1b[1K", "\x1b[2K", "\x1b7", "\x1b8"][..]).prop_map(str::to_owned),
            1 => (1u16..4, 4u16..7).prop_map(|(first, last)| format!("\x1b[{first};{last}r\x1b[H")),
        ]
    }

    proptest! {
        /// The text of both, cell by cell. The other one forgets the colour of what scrolls in or is
        /// inserted, and differs in full rows, outside of regions and over halves of characters.
        #[test]
        fn shows_the_same(pieces in prop::collection::vec(known(), 0..40)) {
            let mut other = vt100();
            let mut screen = Screen::new(SIZE);
            for piece in &pieces {
                screen.process(piece.as_bytes());
                other.process(piece.as_bytes());
                // A full row is where they differ: both leave it.
                if screen.state.model.cursor().at.wraps || other.screen().cursor_position().1 >= SIZE.cols {
                    screen.process(b"\r");
                    other.process(b"\r");
                }
            }
            let (row, col) = other.screen().cursor_position();
            prop_assert_eq!(screen.state.model.place(), (row + 1, col + 1), "{:?}", pieces);
            for row in 0..SIZE.rows {
                for col in 0..SIZE.cols {
                    let theirs = other.screen().cell(row, col).unwrap();
                    let ours = screen.state.model.screen(false)[usize::from(row)].cell(usize::from(col));
                    let text = if ours.is_erased() { ' '.into() } else { ours.text.to_string() };
                    let theirs = if theirs.has_contents() { theirs.contents() } else { " " };
                    prop_assert!(text == theirs, "{} {} of {:?}", row, col, pieces);
                }
            }
        }
    }
}

/// The lines above a screen of four rows.
fn lines_above(keeps: usize, pieces: &[&[u8]]) -> String {
    let mut screen = Screen::new(Size { rows: 4, cols: 10 }).keeping(keeps);
    for piece in pieces {
        screen.process(piece);
    }
    String::from_utf8(screen.state.model.lines_above(0)).unwrap()
}

/// The same with `\r\n` as `|` and `ESC [` as `^`.
fn history(keeps: usize, pieces: &[&[u8]]) -> String {
    lines_above(keeps, pieces).replace("\r\n", "|").replace("\x1b[", "^")
}

#[test]
fn lines_that_scroll_off_are_kept() {
    for (bytes, want) in [
        (&b"a\r\nb\r\nc\r\nd"[..], ""),
        (b"a\r\nb\r\nc\r\nd\r\n", "a|"),
        (b"a\r\n\r\n b\r\n\r\n\r\n\r\n", "a|| b|"),
        // A long line is one line, also while its end is on the screen.
        (b"0123456789abc\r\n\n\n\n", "0123456789abc|"),
        (b"0123456789abc\r\n\n\n", "0123456789|"),
        ("漢字漢字漢\r\n012345678漢\r\n\n\n\n".as_bytes(), "漢字漢字漢|012345678漢|"),
        // Colours, and a background up to the end of the line.
        (b"\x1b[31mred\x1b[m \x1b[44mx\x1b[K\x1b[m\r\n\n\n\n", "^0;31mred^0m ^0;44mx^K^0m|"),
        (b"a\x1b[4Gb\r\n\n\n\n", "a  b|"),
        (b"e\xcc\x81\r\n\n\n\n", "e\u{301}|"),
        // In a scroll region at the top, by `CSI S`, and in no other way.
        (b"\x1b[1;2rab\r\ncd\r\n\n", "ab|cd|"),
        (b"\x1b[2;4rab\r\ncd\r\n\n\n\n", ""),
        (b"ab\r\n\ncd\x1b[4S", "ab||cd|"),
        (b"ab\x1b[H\x1b[M", ""),
        (b"\x1b[?1049hab\r\n\n\n\n\n", ""),
        // Erased by the app.
        (b"ab\r\n\n\n\n\x1b[3J", ""),
        (b"ab\r\n\n\n\n\x1bc", ""),
        // The oldest are forgotten.
        (b"1\r\n2\r\n3\r\n4\r\n5\r\n6\r\n7\r\n8\r\n", "3|4|5|"),
    ] {
        assert_eq!(history(3, &[bytes]), want, "{:?}", bytes.escape_ascii().to_string());
    }
    assert_eq!(history(0, &[b"a\r\n\n\n\n\n\n"]), "");
}

/// Rows that a smaller window hides are lines above it, and are lines again in their order.
#[test]
fn a_smaller_window_makes_history() {
    let mut screen = Screen::new(Size { rows: 6, cols: 10 }).keeping(100);
    screen.process(b"1\r\n2\r\n3\r\n4\r\n5");
    screen.resize(Size { rows: 2, cols: 10 });
    let lines = |screen: &Screen| String::from_utf8(screen.text()).unwrap().replace('\n', "|");
    assert_eq!(screen.state.model.lines_above(0), b"1\r\n2\r\n3\r\n");
    screen.process(b"\r\n6\r\n7\r\n8\r\n9\r\n10\r\n11\r\n12");
    assert_eq!(lines(&screen), "1|2|3|4|5|6|7|8|9|10|11|12|");
    screen.resize(Size { rows: 6, cols: 10 });
    assert_eq!(lines(&screen), "1|2|3|4|5|6|7|8|9|10|11|12|");
    // A small window of a viewer shows the last rows; those before are above it.
    let above = String::from_utf8(screen.scrollback(Size { rows: 3, cols: 10 })).unwrap();
    assert!(above.ends_with("8\r\n9\r\n\n\n"), "{above:?}");
}

/// What scrolls away at once is copied, and everything else is drawn: the lines are the same.
#[test]
fn a_flood_leaves_the_same_lines() {
    let mut all = b"\x1b[35mfirst".to_vec();
    for number in 0..3000 {
        let text: &[u8] =
            [&b"plain"[..], b"\x1b[31mred", b"\x1b[0mno", b"", b"longer than a row"][number % 5];
        all.extend_from_slice(text);
        all.extend(format!(" {number}\r\n").as_bytes());
    }
    let plain = |text: String| {
        let mut scanner = Scanner::default();
        let (mut out, mut at) = (Vec::new(), 0);
        while let Some(piece) = scanner.next(text.as_bytes(), &mut at) {
            if let Piece::Text(text) = piece {
                out.extend_from_slice(text);
            }
        }
        String::from_utf8(out).unwrap()
    };
    for keeps in [1, 500, 2999, 100_000] {
        let drawn: Vec<&[u8]> = all.chunks(100).collect();
        let want = plain(lines_above(keeps, &drawn));
        assert_eq!(want.matches('\n').count(), keeps.min(2999));
        assert!(want.ends_with(" 2998\r\n"), "{want:?}");
        for len in [1500, 7000, 16 * 1024, all.len()] {
            let pieces: Vec<&[u8]> = all.chunks(len).collect();
            assert_eq!(plain(lines_above(keeps, &pieces)), want, "{keeps} lines, by {len}");
        }
    }
    // The look of the first line that is kept was selected before it.
    let flood = [b"\x1b[31m\r\n", &b"red text\r\n".repeat(2000)[..]].concat();
    assert!(history(20, &[&flood]).starts_with("^0;31mred text|red text|"));
}

/// Also more of them than the screen has rows.
#[test]
fn a_character_behind_an_escape_is_whole_however_it_is_cut() {
    let bytes = "a\x1b\u{1f469}b\x1b[1\u{1f680}".as_bytes();
    let whole = shown(SIZE, bytes);
    for size in 1..bytes.len() {
        let mut cut = Screen::new(SIZE);
        bytes.chunks(size).for_each(|piece| cut.process(piece));
        assert_eq!(state(&cut), state(&whole), "{size}");
    }
    // The rest comes with the app's next bytes.
    let begun = shown(SIZE, &bytes[..4]);
    assert!(begun.redraw(SIZE).ends_with(&bytes[1..4]));
}

/// Another terminal.
fn vt100() -> vt100::Parser {
    let [rows, cols] = [SIZE.rows, SIZE.cols].map(|number| number.try_into().unwrap());
    vt100::Parser::new(rows, cols, 0)
}

/// A picture or a clipboard of which only the end is to come.
#[test]
fn the_rest_of_a_long_string_is_no_text() {
    for (begin, end) in [("\x1bPq", "\x1b\\"), ("\x1b]52;c;", "\x07"), ("\x1b_G", "\x1b\\")] {
        for cut in [3000, 3000 + end.len() - 1] {
            let string = format!("{begin}{}{end}", "x".repeat(3000 - begin.len()));
            let (before, after) = string.split_at(cut);
            let mut seen = vt100();
            seen.process(&shown(SIZE, format!("text{before}").as_bytes()).redraw(SIZE));
            seen.process(format!("{after} goes on").as_bytes());
            assert_eq!(seen.screen().contents(), "text goes on", "{begin:?} {cut}");
        }
    }
}

/// As terminals have it: no region stops VPR, CHT keeps a pending wrap, and HPB and VPB are nothing.
#[test]
fn rare_movements() {
    let place = |bytes: &[u8]| {
        let cursor = shown(SIZE, bytes).state.model.cursor();
        (cursor.at.row, cursor.at.col, cursor.at.wraps)
    };
    assert_eq!(place(b"\x1b[2;3r\x1b[2;4H\x1b[3e"), (4, 3, false));
    assert_eq!(place(b"\x1b[2;3r\x1b[?6h\x1b[1;4H\x1b[3e"), (2, 3, false));
    assert_eq!(place(b"\x1b[20Gx\x1b[I"), (0, 19, true));
    assert_eq!(place(b"\x1b[3;4H\x1b[2j\x1b[2k"), (2, 3, false));
}

#[test]
fn empty_lines_are_kept_however_they_are_cut() {
    let bytes = b"a\n\n\n\n\nb";
    let [mut whole, mut cut] = [(); 2].map(|()| Screen::new(Size { rows: 1, cols: 9 }).keeping(9));
    for screen in [&mut whole, &mut cut] {
        screen.resize(Size { rows: 9, cols: 9 });
        screen.resize(Size { rows: 1, cols: 9 });
    }
    whole.process(bytes);
    bytes.chunks(1).for_each(|piece| cut.process(piece));
    for screen in [&mut whole, &mut cut] {
        screen.resize(Size { rows: 9, cols: 9 });
        assert_eq!(text(screen).trim_end_matches('|'), "a||||| b");
    }
    assert_eq!(history(9, &[b"a\n\n\n\n\n\n\n\n\nb"]), history(9, &[b"a\n\n\n\n", b"\n\n\n\n\nb"]));
}

#[test]
fn lines_that_scrolled_off_are_bounded() {
    let mut screen = Screen::new(Size { rows: 4, cols: 1000 }).keeping(usize::MAX);
    let line = [&b"\x1b[1;31mx\x1b[32my"[..], &[b'z'; 900], b"\r\n"].concat();
    for _ in 0..3 * limits::SCROLLBACK / line.len() {
        screen.process(&line);
    }
    let len = screen.text().len();
    assert!(
        (limits::SCROLLBACK - 64 * 1024..=limits::SCROLLBACK + 64 * 1024).contains(&len),
        "{len}"
    );
}

/// As xterm has them.
#[test]
fn margins_bound_what_moves() {
    let fill = b"\x1b[?7l\x1b[H01234567890123456789\r\nabcdefghijabcdefghij\r\nABCDEFGHIJABCDEFGHIJ\x1b[?7h";
    for (bytes, want) in [
        // Text wraps at the right margin, and scrolls only what is between the margins.
        (
            "\x1b[3;5H12345678901234",
            ["01231234560123456789", "abcd789012abcdefghij", "ABCD34....ABCDEFGHIJ"],
        ),
        ("\x1b[3;5H\n", ["0123efghij0123456789", "abcdEFGHIJabcdefghij", "ABCD......ABCDEFGHIJ"]),
        ("\x1b[3;1H\n", ["01234567890123456789", "abcdefghijabcdefghij", "ABCDEFGHIJABCDEFGHIJ"]),
        (
            "\x1b[1;6H\x1bM",
            ["0123......0123456789", "abcd456789abcdefghij", "ABCDefghijABCDEFGHIJ"],
        ),
        (
            "\x1b[2;6H\x1b[L",
            ["01234567890123456789", "abcd......abcdefghij", "ABCDefghijABCDEFGHIJ"],
        ),
        (
            "\x1b[1;6H\x1b[M",
            ["0123efghij0123456789", "abcdEFGHIJabcdefghij", "ABCD......ABCDEFGHIJ"],
        ),
        (
            "\x1b[1;1H\x1b[M",
            ["01234567890123456789", "abcdefghijabcdefghij", "ABCDEFGHIJABCDEFGHIJ"],
        ),
        (
            "\x1b[1;6H\x1b[2@",
            ["01234..5670123456789", "abcdefghijabcdefghij", "ABCDEFGHIJABCDEFGHIJ"],
        ),
        (
            "\x1b[1;6H\x1b[2P",
            ["01234789..0123456789", "abcdefghijabcdefghij", "ABCDEFGHIJABCDEFGHIJ"],
        ),
        (
            "\x1b[1;8H\rx\x1b[9Cy",
            ["0123x5678y0123456789", "abcdefghijabcdefghij", "ABCDEFGHIJABCDEFGHIJ"],
        ),
        (
            "\x1b[1;7H\x1b[9Dx\x1b[1;3H\ry",
            ["y123x567890123456789", "abcdefghijabcdefghij", "ABCDEFGHIJABCDEFGHIJ"],
        ),
        (
            "\x1b[?6h\x1b[2;2Hx\x1b[9`y",
            ["01234567890123456789", "abcdexghiyabcdefghij", "ABCDEFGHIJABCDEFGHIJ"],
        ),
        (
            "\x1b[42;1;3;2;6$x",
            ["01****67890123456789", "ab****ghijabcdefghij", "ABCDEFGHIJABCDEFGHIJ"],
        ),
    ] {
        let size = Size { rows: 3, cols: 20 };
        let bytes = [&fill[..], b"\x1b[?69h\x1b[5;10s", bytes.as_bytes()].concat();
        let screen = shown(size, &bytes);
        assert_eq!(cells(&screen.state.model, false), want, "{}", bytes.escape_ascii());
        let again = shown(size, &screen.redraw(size));
        assert_eq!(state(&again), state(&screen), "{}", bytes.escape_ascii());
        for probe in [&b"z"[..], b"\r\n\n\nnext", b"\x1b[H\x1bMtop"] {
            let (mut one, mut other) = (shown(size, &bytes), shown(size, &screen.redraw(size)));
            one.process(probe);
            other.process(probe);
            assert_eq!(state(&other), state(&one), "{}", bytes.escape_ascii());
        }
    }
}

#[test]
fn the_british_set_has_pounds() {
    let screen = shown(SIZE, b"\x1b(A#\x1b(R#\x1b(0q\x1b(B#");
    assert_eq!(text(&screen).trim_end_matches('|'), "£#─#");
}

/// As xterm, tmux and the C library have it. What is behind it has its place also where it has none.
#[test]
fn a_soft_hyphen_has_a_column() {
    let screen = shown(SIZE, "ab\u{ad}cd".as_bytes());
    assert_eq!(screen.state.model.cursor().at.col, 5);
    let redraw = String::from_utf8(screen.redraw(SIZE)).unwrap();
    assert!(redraw.contains("ab\u{ad}\x1b[1;4Hcd"), "{redraw:?}");
}
