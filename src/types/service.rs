//! The name of a service of systemd, checked once and trusted afterwards.
//!
//! Invariant: a [`ServiceName`] is the name of a file and of a directory, and needs no quoting in a
//! unit. This module reads and writes nothing.

use std::fmt;
use std::fmt::Write as _;
use std::str::FromStr;

use super::name::{AppName, NameError, SERVICE as SUFFIX, is_of_units};

/// Longest name of a unit, in bytes: `UNIT_NAME_MAX` of systemd, which counts the end of the text.
const UNIT_NAME_MAX: usize = 255;

/// A valid name of a service that can run, its `.service` included: no template, no alias by path.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ServiceName(String);

const EMPTY: NameError = NameError("a service name cannot be empty");
const TOO_LONG: NameError = NameError("a service name must be shorter than 255 bytes");
const PATH: NameError = NameError("expected the name of a service, got a path");
/// A pattern of services, as systemctl takes it.
pub(crate) const PATTERN: NameError = NameError("expected the name of a service, got a pattern");
/// A template without an instance.
pub(crate) const TEMPLATE: NameError =
    NameError("expected an instance of the template (NAME@INSTANCE)");
const PREFIX: NameError =
    NameError("a name that ends with '-' is a prefix: its drop-ins apply to other services too");

impl FromStr for ServiceName {
    type Err = NameError;

    /// Takes a name as `systemctl` does: without its ending, and with characters that are not of a
    /// unit's name, which are escaped (`systemd-escape --mangle`).
    fn from_str(text: &str) -> Result<Self, NameError> {
        if text.is_empty() {
            return Err(EMPTY);
        }
        if text.contains('/') {
            return Err(PATH);
        }
        let mut name = String::with_capacity(text.len());
        for byte in text.bytes() {
            if is_of_units(char::from(byte)) {
                name.push(char::from(byte));
            } else {
                // Writing into a string does not fail.
                let _ = write!(name, "\\x{byte:02x}");
            }
        }
        if !name.ends_with(SUFFIX) {
            name.push_str(SUFFIX);
        }
        if name.len() > UNIT_NAME_MAX {
            return Err(TOO_LONG);
        }
        let stem = &name[..name.len() - SUFFIX.len()];
        match stem.split_once('@') {
            _ if stem.is_empty() || stem.starts_with('@') => Err(EMPTY),
            Some((_, "")) => Err(TEMPLATE),
            // systemd.unit(5): `a-.service.d` is of `a-b.service`, too.
            _ if stem.split('@').next().is_some_and(|prefix| prefix.ends_with('-')) => Err(PREFIX),
            _ => Ok(Self(name)),
        }
    }
}

impl ServiceName {
    /// The service that has the name of an app.
    pub(crate) fn of(app: &AppName) -> Self {
        Self(format!("{app}{SUFFIX}"))
    }

    /// The name as text.
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    /// The app that has the name of this service, with `-` for a backslash: systemd 257 cannot start the
    /// mux of one with that.
    pub(crate) fn app(&self) -> Result<AppName, NameError> {
        self.0.strip_suffix(SUFFIX).unwrap_or(&self.0).replace('\\', "-").parse()
    }
}

impl fmt::Display for ServiceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_as_systemctl_takes_them() {
        for (text, want, app) in [
            ("demo", "demo.service", "demo"),
            ("demo.service", "demo.service", "demo"),
            ("my_app@1.service", "my_app@1.service", "my_app@1"),
            ("Game@EU-1", "Game@EU-1.service", "Game@EU-1"),
            ("my game", "my\\x20game.service", "my-x20game"),
            ("a\nb", "a\\x0ab.service", "a-x0ab"),
            ("dbus-org.x", "dbus-org.x.service", "dbus-org.x"),
            ("demo.socket", "demo.socket.service", "demo.socket"),
            ("game@a@b", "game@a@b.service", "game@a@b"),
        ] {
            let name: ServiceName = text.parse().unwrap();
            assert_eq!(name.as_str(), want, "{text:?}");
            assert_eq!(name.app().map(|app| app.to_string()), Ok(app.to_owned()), "{text:?}");
        }
        for (bad, why) in [
            ("", EMPTY),
            (".service", EMPTY),
            ("/etc/systemd/system/demo.service", PATH),
            ("../x", PATH),
            ("@a", EMPTY),
            ("game@", TEMPLATE),
            ("game-", PREFIX),
            ("game-@1", PREFIX),
            ("game@.service", TEMPLATE),
            (&"x".repeat(UNIT_NAME_MAX), TOO_LONG),
            (&"\n".repeat(100), TOO_LONG),
        ] {
            assert_eq!(bad.parse::<ServiceName>(), Err(why), "{bad:?}");
        }
        for nameless in ["é", "-.x", "game@a-", "a.service.service"] {
            assert!(nameless.parse::<ServiceName>().unwrap().app().is_err(), "{nameless}");
        }
        assert_eq!(ServiceName::of(&"a-b".parse().unwrap()).as_str(), "a-b.service");
    }
}
