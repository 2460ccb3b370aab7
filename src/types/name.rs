//! The name of an app, checked once and trusted afterwards.
//!
//! Invariant: an [`AppName`] cannot leave the state directory and needs no escaping, neither in a
//! path nor in a log line. This module reads and writes nothing.

use std::fmt;
use std::iter;
use std::str::FromStr;

/// Longest name, in bytes: one component of a path on every Linux file system (`NAME_MAX`).
pub(crate) const NAME_MAX: usize = 255;
/// The same of a derived name, which may get a number.
const DERIVED_MAX: usize = 200;
/// Names that are tried for things that would be called the same.
pub(crate) const NAMES: u32 = 1000;
/// What the name of each service ends with.
pub(crate) const SERVICE: &str = ".service";

/// Whether the name of a unit may have this character.
pub(crate) fn is_of_units(c: char) -> bool {
    c.is_ascii_alphanumeric() || ":-_.\\@".contains(c)
}

fn is_of_words(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

/// A valid app name: what a unit may be called, with a letter, a digit or `_` at both ends, and
/// without `.service`, which the app's service has.
///
/// So each `ACName` is one that rkt takes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct AppName(String);

/// Why a text is not a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NameError(pub(crate) &'static str);

impl fmt::Display for NameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for NameError {}

const EMPTY: NameError = NameError("an app name cannot be empty");
const TOO_LONG: NameError = NameError("an app name can have at most 255 characters");
const CHARACTER: NameError =
    NameError("an app name can only have letters, digits and the characters :-_.\\@");
const EDGE: NameError = NameError("an app name begins and ends with a letter, a digit or '_'");
const OF_SERVICE: NameError = NameError("an app name does not end with .service");

impl FromStr for AppName {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        if text.is_empty() {
            return Err(EMPTY);
        }
        if text.len() > NAME_MAX {
            return Err(TOO_LONG);
        }
        if !text.chars().all(is_of_units) {
            return Err(CHARACTER);
        }
        if !text.starts_with(is_of_words) || !text.ends_with(is_of_words) {
            return Err(EDGE);
        }
        if text.ends_with(SERVICE) {
            return Err(OF_SERVICE);
        }
        Ok(Self(text.to_owned()))
    }
}

impl AppName {
    /// A name that is valid by the way in which it was made.
    pub(crate) fn made(text: String) -> Self {
        debug_assert!(text.parse::<Self>().is_ok(), "{text:?}");
        Self(text)
    }

    /// The beginning of a text, with `-` instead of characters that no name has; `None` if that is
    /// none.
    pub(crate) fn derived(text: &str) -> Option<Self> {
        let plain = |c| if is_of_units(c) { c } else { '-' };
        let text: String = text.chars().take(DERIVED_MAX).map(plain).collect();
        text.trim_matches(|c| !is_of_words(c)).parse().ok()
    }

    /// The name, and those of others that would be called so.
    pub(crate) fn numbered(&self) -> impl Iterator<Item = Self> {
        let others = (2..NAMES).map(move |number| Self::made(format!("{self}-{number}")));
        iter::once(self.clone()).chain(others)
    }

    /// The name as text.
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for AppName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_from_files() {
        let derived = |text: &str| AppName::derived(text).map(|name| name.to_string());
        assert_eq!(derived("bash").as_deref(), Some("bash"));
        assert_eq!(derived("-Game Server.sh").as_deref(), Some("Game-Server.sh"));
        assert_eq!(derived(&"x".repeat(300)), Some("x".repeat(DERIVED_MAX)));
        assert_eq!((derived(""), derived("..."), derived("é")), (None, None, None));
    }

    #[test]
    fn names_of_rkt_and_of_units() {
        let long = "x".repeat(NAME_MAX);
        let of_rkt = ["demo", "a", "0", "a--b", "my-app-2", &long];
        for good in of_rkt.into_iter().chain(["my_web", "game@EU", "a.b:c", r"my\x20app", "_"]) {
            assert_eq!(good.parse::<AppName>().map(|n| n.to_string()), Ok(good.to_owned()));
        }
        let long = "x".repeat(NAME_MAX + 1);
        for (bad, why) in [
            ("", EMPTY),
            (long.as_str(), TOO_LONG),
            ("foo#", CHARACTER),
            ("a/b", CHARACTER),
            ("../x", CHARACTER),
            ("a\n", CHARACTER),
            ("a*", CHARACTER),
            ("ä", CHARACTER),
            ("-app", EDGE),
            ("app-", EDGE),
            ("app@", EDGE),
            ("..", EDGE),
            (".app", EDGE),
            ("app.service", OF_SERVICE),
        ] {
            assert_eq!(bad.parse::<AppName>(), Err(why), "{bad:?}");
        }
    }
}
