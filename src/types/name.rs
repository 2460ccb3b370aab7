//! The name of an app, checked once and trusted afterwards.
//!
//! Invariant: an [`AppName`] cannot leave the state directory and needs no escaping, neither in a
//! path nor in a log line. This module reads and writes nothing.

use std::fmt;
use std::str::FromStr;

use strsim::osa_distance;

/// Longest name, in bytes: one component of a path on every Linux file system (`NAME_MAX`).
pub(crate) const NAME_MAX: usize = 255;
/// Letters of a name that may be wrong, missing, too many or exchanged, for it to be similar.
const MISTYPED: usize = 2;

/// Whether somebody who typed `typed` may have meant `other`.
pub(crate) fn is_similar(other: &str, typed: &str) -> bool {
    other.starts_with(typed) || osa_distance(other, typed) <= MISTYPED.min(typed.len() / 2)
}

/// A valid app name: lower-case letters, digits and `-`, not empty, no `-` at either end.
///
/// This is the appc `ACName` as rkt checks it (`a--b` passes, although the specification's own
/// expression refuses it).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct AppName(String);

/// Why a text is not an [`AppName`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameError {
    /// Nothing was given.
    Empty,
    /// Longer than [`NAME_MAX`] bytes.
    TooLong,
    /// A character other than `a-z`, `0-9`, `-`.
    Character,
    /// A `-` is the first or the last character.
    Edge,
    /// It stands for several names.
    Pattern,
}

impl fmt::Display for NameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => write!(f, "an app name cannot be empty"),
            Self::TooLong => write!(f, "an app name can have at most {NAME_MAX} characters"),
            Self::Character => {
                write!(f, "an app name can only have the characters a-z, 0-9 and '-'")
            }
            Self::Edge => write!(f, "an app name cannot begin or end with '-'"),
            Self::Pattern => write!(f, "expected one name, not a pattern"),
        }
    }
}

impl std::error::Error for NameError {}

impl FromStr for AppName {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        if text.is_empty() {
            return Err(NameError::Empty);
        }
        if text.len() > NAME_MAX {
            return Err(NameError::TooLong);
        }
        if !text.bytes().all(|b| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'-')) {
            return Err(NameError::Character);
        }
        if text.starts_with('-') || text.ends_with('-') {
            return Err(NameError::Edge);
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

    /// The text in lower case, with `-` instead of other characters; `None` if nothing is left.
    pub(crate) fn derived(text: &str) -> Option<Self> {
        let plain = |c: char| {
            let c = c.to_ascii_lowercase();
            if c.is_ascii_lowercase() || c.is_ascii_digit() { c } else { '-' }
        };
        let text: String = text.chars().take(NAME_MAX).map(plain).collect();
        text.trim_matches('-').parse().ok()
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
        let derived = |text| AppName::derived(text).map(|name| name.to_string());
        assert_eq!(derived("bash").as_deref(), Some("bash"));
        assert_eq!(derived("_Game Server.sh").as_deref(), Some("game-server-sh"));
        assert_eq!((derived(""), derived("..."), derived("é")), (None, None, None));
    }

    #[test]
    fn names_as_rkt_checks_them() {
        for good in ["demo", "a", "0", "a--b", "my-app-2", &"x".repeat(NAME_MAX)] {
            assert_eq!(good.parse::<AppName>().map(|n| n.to_string()), Ok(good.to_owned()));
        }
        let long = "x".repeat(NAME_MAX + 1);
        for (bad, why) in [
            ("", NameError::Empty),
            (long.as_str(), NameError::TooLong),
            ("foo#", NameError::Character),
            ("example.com", NameError::Character),
            ("EXAMPLE", NameError::Character),
            ("a/b", NameError::Character),
            ("a_b", NameError::Character),
            ("../x", NameError::Character),
            (".app", NameError::Character),
            ("a\n", NameError::Character),
            ("ä", NameError::Character),
            ("-app", NameError::Edge),
            ("app-", NameError::Edge),
        ] {
            assert_eq!(bad.parse::<AppName>(), Err(why), "{bad:?}");
        }
    }
}
