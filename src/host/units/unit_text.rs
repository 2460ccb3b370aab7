//! Escaping in unit files and env files, and the header line with the owner of a file. No I/O, no
//! clock.

use std::fmt::Write as _;

use crate::types::name::AppName;
use crate::types::service::ServiceName;

/// The beginning of the first line in each of our files.
const CHECKSUM_LINE: &str = "# iottymux units ";
/// Its second line, for people.
const NOTE: &str = "# Written by `iottymux units` or `iottymux enable`. Change it by these: what was \
                    changed here by hand is refused, neither overwritten nor taken away.\n";

/// Whether a text can be a path in a unit: absolute, and without characters that systemd would
/// trim, read as a continuation, or refuse.
pub(crate) fn is_path(text: &str) -> bool {
    text.starts_with('/')
        && !text.chars().any(char::is_control)
        && text.trim_end() == text
        && !text.ends_with('\\')
}

/// Whether a text can be the program of a command in a unit: systemd refuses quotes and backslashes
/// there, even escaped ones.
pub(crate) fn is_program(text: &str) -> bool {
    is_path(text) && !text.contains(['"', '\'', '\\'])
}

/// Escapes a text that is a whole value: only `%` is special there (systemd.unit(5)).
pub(crate) fn value(text: &str) -> String {
    text.replace('%', "%%")
}

/// Escapes a value in which only the backslash is special to systemd, as in a pattern of files.
pub(crate) fn backslashed(value: &str) -> String {
    value.replace('\\', r"\\")
}

/// Quotes a value as one of several words, where quotes and backslashes are special, too.
pub(crate) fn word(value: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || "/._-:@=+,%$".contains(c);
    if !value.is_empty() && value.chars().all(plain) {
        return value.to_owned();
    }
    let mut out = String::from("\"");
    for c in value.chars() {
        match c {
            '\\' | '"' => out.extend(['\\', c]),
            // Writing into a string does not fail.
            c if c.is_ascii_control() => drop(write!(out, "\\x{:02x}", u32::from(c))),
            c => out.push(c),
        }
    }
    out + "\""
}

/// Quotes a path as the program of a command, where `$` is not special.
pub(crate) fn program(path: &str) -> String {
    word(&value(path))
}

/// Quotes a value as an argument of a command, where `$` is special, too.
pub(crate) fn argument(value: &str) -> String {
    word(value).replace('$', "$$")
}

/// Quotes the value of a variable in an env file (`EnvironmentFile=` of systemd.exec(5)).
pub(crate) fn env_value(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        if matches!(c, '"' | '\\' | '`' | '$') {
            out.push('\\');
        }
        out.push(c);
    }
    out + "\""
}

/// The owner of a file.
pub(crate) type UnitOwner<'a> = (&'a AppName, &'a ServiceName);

/// The content of a checksum header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ChecksumHeader {
    /// `None` for a template.
    pub(crate) owner: Option<(AppName, ServiceName)>,
    /// Whether the rest of the file is unchanged.
    pub(crate) is_whole: bool,
}

/// A text with its checksum header.
pub(crate) fn with_checksum(owner: Option<UnitOwner>, text: &str) -> String {
    let mut out = String::from(CHECKSUM_LINE);
    if let Some((app, service)) = owner {
        // Writing into a string does not fail.
        let _ = write!(out, "app={app} service={service} ");
    }
    let _ = writeln!(out, "sum={:016x}", sum(text));
    out + NOTE + text
}

/// The checksum header of a text, if `units` wrote it.
pub(crate) fn read_checksum(text: &str) -> Option<ChecksumHeader> {
    let (first, rest) = text.strip_prefix(CHECKSUM_LINE)?.split_once('\n')?;
    let (owner, written) = first.rsplit_once("sum=")?;
    let owner = match owner.trim_end() {
        "" => None,
        words => {
            let (app, service) = words.strip_prefix("app=")?.split_once(" service=")?;
            Some((app.parse().ok()?, service.parse().ok()?))
        }
    };
    let is_whole =
        rest.strip_prefix(NOTE).is_some_and(|text| format!("{:016x}", sum(text)) == written);
    Some(ChecksumHeader { owner, is_whole })
}

/// The 64-bit FNV-1a hash, which detects edits, not attacks.
fn sum(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |sum, byte| {
        (sum ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_and_values() {
        for (text, as_word, as_variable) in [
            ("", r#""""#, r#""""#),
            ("/a/b-c_d.e", "/a/b-c_d.e", r#""/a/b-c_d.e""#),
            ("100%", "100%%", r#""100%""#),
            ("a b", r#""a b""#, r#""a b""#),
            ("a\\x20b", r#""a\\x20b""#, r#""a\\x20b""#),
            ("$HOME", "$HOME", r#""\$HOME""#),
            ("\"'$`", r#""\"'$`""#, r#""\"'\$\`""#),
        ] {
            assert_eq!(word(&value(text)), as_word);
            assert_eq!(env_value(text), as_variable);
        }
        assert_eq!(argument("/$a b"), r#""/$$a b""#);
        for bad in ["", "a/b", "/a\nb", "/a ", "/a\\"] {
            assert!(!is_path(bad), "{bad:?}");
        }
        assert!(is_path("/a b/c\\d%") && is_program("/$a b%"));
        assert_eq!(program("/$a b%"), r#""/$a b%%""#);
        for bad in ["a", "/a\"b", "/a'b", "/a\\b"] {
            assert!(!is_program(bad), "{bad:?}");
        }
    }

    #[test]
    fn a_checksum_header_has_the_owner_and_detects_changes() {
        let (app, service): (AppName, ServiceName) =
            ("demo".parse().unwrap(), "my_app@1".parse().unwrap());
        let owner = Some((app.clone(), service.clone()));
        for (of, owner) in [(Some((&app, &service)), owner), (None, None)] {
            let text = with_checksum(of, "[Unit]\nx=1\n");
            assert_eq!(
                read_checksum(&text),
                Some(ChecksumHeader { owner: owner.clone(), is_whole: true })
            );
            for (from, to) in [("x=1", "x=2"), ("hand", "foot"), ("[Unit]", "#\n[Unit]")] {
                let changed = read_checksum(&text.replace(from, to));
                assert_eq!(
                    changed,
                    Some(ChecksumHeader { owner: owner.clone(), is_whole: false }),
                    "{to}"
                );
            }
        }
        for foreign in
            ["", "[Unit]\n", "# iottymux units\n", "# iottymux units app=../x service=y sum=\n"]
        {
            assert_eq!(read_checksum(foreign), None, "{foreign:?}");
        }
    }
}
