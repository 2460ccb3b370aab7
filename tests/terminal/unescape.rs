//! Bytes as the tables have them.

use crate::sequences::SIZE;

/// The bytes of a text with the escapes `\e \n \r \t \b \\ \xHH`; `{N:text}` is the text N times.
pub fn unescape(text: &str) -> Vec<u8> {
    let mut out = Vec::new();
    let mut rest = text;
    while let Some(next) = rest.chars().next() {
        rest = &rest[next.len_utf8()..];
        match next {
            '\\' => {
                let (kind, behind) = rest.split_at(1);
                rest = behind;
                out.push(match kind {
                    "e" => 0x1b,
                    "n" => b'\n',
                    "r" => b'\r',
                    "t" => b'\t',
                    "b" => 8,
                    "\\" => b'\\',
                    "x" => {
                        let (digits, behind) = rest.split_at(2);
                        rest = behind;
                        u8::from_str_radix(digits, 16).unwrap()
                    }
                    _ => panic!("unknown escape: {text}"),
                });
            }
            '{' => {
                let (inner, behind) = rest.split_once('}').unwrap();
                rest = behind;
                if inner == "fill" {
                    out.extend((0..SIZE.rows).flat_map(row));
                } else {
                    let (count, repeated) = inner.split_once(':').unwrap();
                    out.extend(unescape(repeated).repeat(count.parse().unwrap()));
                }
            }
            _ => out.extend_from_slice(next.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
    out
}

/// What `{fill}` prints in a row: its number, and letters.
fn row(number: u16) -> Vec<u8> {
    let newline = if number == 0 { "" } else { "\r\n" };
    format!("{newline}{number}bcdefghijklmno").into_bytes()
}
