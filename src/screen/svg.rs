//! A picture of what a screen shows, as SVG: for documents and reports.
//!
//! Text is escaped, and links are left out: a picture is opened by those who do not know the app.

use std::fmt::Write;

use super::shown::{Run, Shown};
use super::style::{Attributes, Colour, Look, Style};

/// Pixels of a character.
const WIDTH: f64 = 8.4;
const HEIGHT: f64 = 18.0;
/// Pixels from the top of a row to the line on which its characters stand.
const BASE: f64 = 13.5;
/// Pixels around the screen.
const MARGIN: f64 = 14.0;
/// Where no colour is selected.
const TEXT: [u8; 3] = [0xe6, 0xed, 0xf3];
const BACK: [u8; 3] = [0x0d, 0x11, 0x17];

/// The colours 0 to 15, as xterm has them.
const NAMED: [[u8; 3]; 16] = [
    [0, 0, 0],
    [205, 0, 0],
    [0, 205, 0],
    [205, 205, 0],
    [0, 0, 238],
    [205, 0, 205],
    [0, 205, 205],
    [229, 229, 229],
    [127, 127, 127],
    [255, 0, 0],
    [0, 255, 0],
    [255, 255, 0],
    [92, 92, 255],
    [255, 0, 255],
    [0, 255, 255],
    [255, 255, 255],
];

/// The colour with this number: 16 named ones, a cube of 6, and 24 greys.
fn of_palette(index: u8) -> [u8; 3] {
    let level = |step: u8| if step == 0 { 0 } else { 55 + 40 * step };
    match index {
        0..16 => NAMED[usize::from(index)],
        16..232 => [(index - 16) / 36, (index - 16) / 6 % 6, (index - 16) % 6].map(level),
        232.. => [8 + 10 * (index - 232); 3],
    }
}

/// As an attribute has it.
fn hex([red, green, blue]: [u8; 3]) -> String {
    format!("#{red:02x}{green:02x}{blue:02x}")
}

fn rgb(colour: Colour, otherwise: [u8; 3]) -> [u8; 3] {
    colour.parts().or_else(|| colour.index().map(of_palette)).unwrap_or(otherwise)
}

/// As XML has it; characters that it does not allow are replaced.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '\u{fffe}' | '\u{ffff}' => out.push(char::REPLACEMENT_CHARACTER),
            _ if character.is_control() => out.push(char::REPLACEMENT_CHARACTER),
            _ => out.push(character),
        }
    }
    out
}

/// The attributes of an element, for what is not a colour.
fn style(look: Look, underline: Colour) -> String {
    let has = |flag| look.flags.has(flag);
    let mut out = String::new();
    for (flag, what) in [
        (Attributes::BOLD, " font-weight=\"bold\""),
        (Attributes::ITALIC, " font-style=\"italic\""),
        (Attributes::DIM, " opacity=\"0.6\""),
    ] {
        out.push_str(if has(flag) { what } else { "" });
    }
    let kinds = ["", "underline", "underline double", "underline wavy", "underline dotted"];
    let underlined = kinds.get(usize::from(look.flags.underline())).unwrap_or(&"underline dashed");
    let strike = if has(Attributes::STRIKE) { "line-through" } else { "" };
    let overline = if has(Attributes::OVERLINE) { "overline" } else { "" };
    let lines = [*underlined, strike, overline].join(" ");
    if !lines.trim().is_empty() {
        let _ = write!(out, " style=\"text-decoration:{}", lines.trim());
        if underline != Colour::DEFAULT {
            let _ = write!(out, ";text-decoration-color:{}", hex(rgb(underline, TEXT)));
        }
        out.push('"');
    }
    out
}

/// A filled rectangle.
fn rectangle(out: &mut String, (x, y): (f64, f64), cols: u16, colour: [u8; 3]) {
    let (width, colour) = (f64::from(cols) * WIDTH, hex(colour));
    let _ = writeln!(
        out,
        "<path fill=\"{colour}\" d=\"M{x:.1} {y:.1}h{width:.1}v{HEIGHT}h-{width:.1}z\"/>"
    );
}

impl Shown {
    /// A picture of the rows and the cursor.
    pub fn svg(&self) -> String {
        let above = u32::try_from(self.above.len()).unwrap_or(u32::MAX);
        let rows = above.saturating_add(u32::from(self.size.rows));
        let width = f64::from(self.size.cols) * WIDTH + 2.0 * MARGIN;
        let height = f64::from(rows) * HEIGHT + 2.0 * MARGIN;
        let title = escaped(self.title.as_deref().unwrap_or("A terminal"));
        let back = hex(BACK);
        let mut out = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {height:.0}\" role=\"img\" xml:space=\"preserve\" \
             font-family=\"monospace\" font-size=\"14\">\n<title>{title}</title>\n\
             <path fill=\"{back}\" d=\"M0 0h{width:.0}v{height:.0}H0z\"/>\n"
        );
        let place = |row: u32, col: u16| {
            (MARGIN + f64::from(col) * WIDTH, MARGIN + f64::from(row) * HEIGHT)
        };
        if self.shows_cursor {
            let (row, col) = self.cursor;
            rectangle(&mut out, place(above + u32::from(row) - 1, col - 1), 1, [0x6e, 0x76, 0x81]);
        }
        for (row, runs) in (0..).zip(self.above.iter().chain(&self.rows)) {
            let mut col = 0;
            for run in runs {
                draw(&mut out, run, place(row, col));
                col += run.cols;
            }
        }
        out + "</svg>\n"
    }
}

fn draw(out: &mut String, run: &Run, (x, y): (f64, f64)) {
    let Run { text, style: Style { look, underline, .. }, cols } = run;
    let is_inverse = look.flags.has(Attributes::INVERSE);
    let named = look.text.index().filter(|index| *index < 8 && look.flags.has(Attributes::BOLD));
    // As xterm does: programs write what is hardly readable in bold black.
    let text_colour = named.map_or_else(|| rgb(look.text, TEXT), |index| of_palette(index + 8));
    let back = rgb(look.back, BACK);
    let (text_colour, back) = if is_inverse { (back, text_colour) } else { (text_colour, back) };
    if back != BACK {
        rectangle(out, (x, y), *cols, back);
    }
    if look.flags.has(Attributes::HIDDEN) || (text.trim().is_empty() && look.flags.underline() == 0)
    {
        return;
    }
    let (colour, length) = (hex(text_colour), f64::from(*cols) * WIDTH);
    let (base, style, text) = (y + BASE, style(*look, *underline), escaped(text));
    let _ = writeln!(
        out,
        "<text x=\"{x:.1}\" y=\"{base:.1}\" textLength=\"{length:.1}\" fill=\"{colour}\"{style}>{text}</text>"
    );
}

#[cfg(test)]
mod tests {
    use super::of_palette;
    use crate::screen::Screen;
    use crate::types::size::Size;

    #[test]
    fn colours_have_their_numbers() {
        let known = [(9, [255, 0, 0]), (16, [0; 3]), (196, [255, 0, 0]), (231, [255; 3])];
        let greys = [(232, [8; 3]), (255, [238; 3])];
        for (index, rgb) in known.into_iter().chain(greys) {
            assert_eq!(of_palette(index), rgb, "{index}");
        }
    }

    #[test]
    fn what_an_app_says_stays_text() {
        let mut screen = Screen::new(Size { rows: 2, cols: 40 });
        screen.process("\x1b]2;</title><script>\x07\x1b]8;;javascript:alert(1)\x07".as_bytes());
        screen.process("\u{4e2d}\x1b[7m<a href='x'>\x1b[m\u{fffe}\x1b[8mhidden".as_bytes());
        let svg = screen.shown().svg();
        assert!(svg.contains("<title>&lt;/title&gt;&lt;script&gt;</title>"), "{svg}");
        assert!(!svg.contains("javascript") && !svg.contains("hidden"), "{svg}");
        // The wide character takes two columns, and colours are exchanged.
        let inverse =
            "x=\"30.8\" y=\"27.5\" textLength=\"100.8\" fill=\"#0d1117\">&lt;a href='x'&gt;<";
        assert!(svg.contains(inverse), "{svg}");
    }
}
