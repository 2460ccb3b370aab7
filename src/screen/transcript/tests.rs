use proptest::prelude::*;

use super::*;

const WINDOW: Size = Size { rows: 5, cols: 20 };

fn lines(of: &mut Lines, pieces: &[&[u8]]) -> (Vec<String>, String) {
    let mut all = Vec::new();
    for piece in pieces {
        let mut parts = of.feed(piece, 0);
        parts.extend(of.settle());
        for (part, _) in parts {
            let LinePart::Line(line) = part else { panic!("{part:?}") };
            all.push(line);
        }
    }
    (all, of.open_line())
}

fn terminal() -> Lines {
    Lines::Terminal(Box::new(Transcript::new(Screen::new(WINDOW))))
}

fn pipe() -> Lines {
    Lines::Pipe(Box::default())
}

#[test]
fn lines_of_a_terminal_as_somebody_reads_them() {
    let all: Vec<String> = (0..50).map(|n| format!("line {n}")).collect();
    let many = all.join("\r\n") + "\r\n";
    let long = "x".repeat(45);
    for (pieces, want, open) in [
        (&["one\r\ntwo\r\nthr"][..], &["one", "two"][..], "thr"),
        (&["\x1b[?2004h\x1b[1mbold\x1b[0m\r\n$ "], &["bold"], "$ "),
        (&["10%\r20%\rdone\r\n"], &["done"], ""),
        (&["100%\rok\x1b[K\r\n"], &["ok"], ""),
        (&["10%\r"], &[], "10%"),
        (&["axe\x08\x08bc\x07\r\n"], &["abc"], ""),
        // As fish and readline edit a line.
        (&["> ecno\x1b[2Dh\x1b[C x\r\n"], &["> echo x"], ""),
        (&["\x1b]0;title\x07> \x1b[38;5;1mx"], &[], "> x"),
        (&["grün\x1b[2Dx\r\n"], &["grxn"], ""),
        // A line over several rows, on the screen and above it.
        (&[&long, "\r\n"], &[&long], ""),
        (&[&long, "\r\n\n\n\n\n\n\n"], &[&*long, "", "", "", "", "", ""], ""),
        (&[&many], &all.iter().map(String::as_str).collect::<Vec<_>>(), ""),
        // A menu below the line that is typed, and a line above it.
        (&["> he", "\r\nhello help\x1b[A\x1b[4G"], &[], "> he"),
        (
            &[
                "> he",
                "\r\nhello help\x1b[A\x1b[4G",
                "\r\x1b[Jlog\r\n> he\r\nhello help\x1b[A\x1b[4G",
            ],
            &["log"],
            "> he",
        ),
        // A prompt behind output without a line end, as zsh and fish put it.
        (&["abc\x1b[7m%\x1b[27m                   \r \r", "\r\x1b[J$ "], &["abc"], "$ "),
        (&["\x1b[7m%\x1b[27m                   \r \r", "\r\x1b[J$ "], &[], "$ "),
        (&["a\r\n\x1b[?1049hfull\r\nscreen\x1b[?1049lb\r\n"], &["a", "b"], ""),
        (&["a\r\nb\r\n", "\x1b[H\x1b[2Jc\r\nd\r\n"], &["a", "b", "c", "d"], ""),
        (&["a\r\nb\r\n\x1b[0;0Hc\r\n"], &["a", "b", "c"], "b"),
        (&["a\r\nb\r\n\x1b[2;5r"], &["a", "b"], "a"),
        (&["1/2\r\n0/3\r\n", "\x1b[2A2/2\r\n1/3\r\n"], &["1/2", "0/3"], ""),
        (&[""], &[], ""),
    ] {
        let bytes: Vec<&[u8]> = pieces.iter().map(|piece| piece.as_bytes()).collect();
        let (lines, line) = lines(&mut terminal(), &bytes);
        assert_eq!(lines, want, "{pieces:?}");
        assert_eq!(line, open, "{pieces:?}");
    }
}

#[test]
fn lines_of_a_pipe_are_as_they_are() {
    for (output, want, open) in [
        (&b"one\r\ntwo\nthr"[..], &["one", "two"][..], "thr"),
        (b"a\tb\n", &["a\tb"], ""),
        (b"\x1b[1mbold\x1b[0m\n$ ", &["bold"], "$ "),
        (b"10%\r20%\rdone\n", &["done"], ""),
        (b"10%\r", &[], "10%"),
        // What has no end does not hide the next lines.
        (b"a\x1b]0;b\nc\n\x1b[3\nd\x1b[1me\n", &["a", "c", "", "de"], ""),
        ("\u{9b}2J\u{85}a\x00\x7fb".as_bytes(), &[], "2Jab"),
    ] {
        let shown = String::from_utf8_lossy(output);
        let (lines, line) = lines(&mut pipe(), &[output]);
        assert_eq!(lines, want, "{shown:?}");
        assert_eq!(line, open, "{shown:?}");
    }
}

#[test]
fn output_is_read_without_sequences_and_returns() {
    for (output, want) in [
        ("a\x1b[31mb\x1b[m\r\nc\r\r\n", "ab\nc\n"),
        ("\x1b[?2004l\rhello\r\n> ", "hello\n> "),
        ("10%\r20%\r100%\r\n", "100%\n"),
        ("\x1b]2;title\x07é\x1b[", "é"),
        ("a\r\n\x1b[?1049h\x1b[Hmenu\r\nrow", "a\nmenu\nrow\n"),
        ("", ""),
    ] {
        assert_eq!(readable(Stream::Tty, output), want, "{output:?}");
    }
}

#[test]
fn the_marks_of_a_command_stand_between_lines() {
    let output = b"$ \x1b]133;B\x07x\r\n\x1b]133;C;x\x07out\r\nno end\x1b]133;D;3;y\x1b\\\
        \x1b]133;D\x07\x1b]133;A\x07$ ";
    let line = |text: &str| LinePart::Line(text.into());
    for mut lines in [terminal(), pipe()] {
        let is_terminal = matches!(lines, Lines::Terminal(_));
        let parts: Vec<LinePart> =
            lines.feed(output, 0).into_iter().map(|(part, _)| part).collect();
        let (out, no_end) = (line("out"), line("no end"));
        let (ended, unknown) = (LinePart::Ended(Some(3)), LinePart::Ended(None));
        let want = [line("$ x"), LinePart::Begun, out, no_end, ended, unknown];
        if is_terminal {
            assert_eq!(parts, want);
            assert_eq!(lines.open_line(), "$ ");
        } else {
            assert_eq!(parts, [line("$ x"), line("out")]);
        }
    }
}

#[test]
fn a_part_says_where_it_ends() {
    for mut lines in [terminal(), pipe()] {
        let output = b"a\r\n\x1b[1mb\r\nc";
        let mut parts = lines.feed(&output[..5], 100);
        parts.extend(lines.feed(&output[5..], 105));
        parts.extend(lines.settle());
        assert_eq!(parts.into_iter().map(|(_, end)| end).collect::<Vec<_>>(), [103, 110]);
    }
}

#[test]
fn memory_and_time_are_bounded() {
    let many = vec![b'x'; LINE + 1];
    assert_eq!(pipe().feed(&many, 0).len(), 1);
    for hostile in ["\x1b[999999999C", "\x1b[16384@", "\x1b[16384C", "x\x1b[65535b", "\x1b[2J\n"] {
        let mut lines = terminal();
        let output = hostile.repeat(500);
        for _ in 0..5 {
            lines.feed(output.as_bytes(), 0);
            assert!(lines.open_line().len() <= LINE, "{hostile:?}");
            let Lines::Terminal(lines) = &lines else { panic!() };
            assert!(lines.screen.state.model.history.begun().len() <= LINE, "{hostile:?}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    /// The lines of what ends with a line are the same in any pieces that end at lines.
    #[test]
    fn any_split_of_plain_text_gives_the_same(
        texts in proptest::collection::vec("[ -~é汉]{0,50}", 0..12),
        cut in 0usize..12,
    ) {
        let (a, b) = texts.split_at(cut.min(texts.len()));
        let joined = |texts: &[String]| texts.iter().map(|t| t.clone() + "\r\n").collect::<String>();
        let (a, b) = (joined(a), joined(b));
        let whole = lines(&mut terminal(), &[(a.clone() + &b).as_bytes()]);
        prop_assert_eq!(&lines(&mut terminal(), &[a.as_bytes(), b.as_bytes()]), &whole);
        let want: Vec<String> = texts.iter().map(|text| text.trim_end().to_owned()).collect();
        prop_assert_eq!(whole.0, want);
    }

    #[test]
    fn any_bytes_are_taken(
        bytes in proptest::collection::vec(prop_oneof![
            Just(b'\n'), Just(b'\r'), Just(0x1b), Just(b'['), Just(b'm'), Just(b'a'), Just(8u8),
            Just(b'A'), Just(b'H'), Just(b'J'), Just(b'S'), Just(b'2'), Just(0xc3), Just(0xbc),
        ], 0..200),
        cut in 0usize..200,
    ) {
        let (a, b) = bytes.split_at(cut.min(bytes.len()));
        lines(&mut terminal(), &[a, b]);
        lines(&mut pipe(), &[a, b]);
    }
}
