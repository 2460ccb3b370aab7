//! The user of the muxes, where an engine starts them as root.
//!
//! This program looks up no names in general (`docs/dev/architecture.md`), and an engine gives it no
//! variables. So it reads the file of the system's users.

use std::path::{Component, Path, PathBuf};

use super::escape;

/// The user in the units, which `enable` creates.
const NAME: &str = "iottymux";
/// The file of users.
pub(crate) const PASSWD: &str = "/etc/passwd";
/// Where each mux has a directory for its logs, as under the units.
pub(crate) const LOGS: &str = "/var/log/iottymux";

/// The numbers of the user and its group in the text of [`PASSWD`]. Never root's.
pub(crate) fn mux_user(passwd: &str) -> Option<(u32, u32)> {
    let line = passwd.lines().find(|line| line.split(':').next() == Some(NAME))?;
    let number = |field: &str| field.parse().ok().filter(|number| *number != 0);
    let mut fields = line.split(':').skip(2);
    Some((number(fields.next()?)?, number(fields.next()?)?))
}

/// The directory for the logs of an app.
pub(crate) fn log_dir(app: &str) -> PathBuf {
    Path::new(LOGS).join(app)
}

/// Whether a log of an app is in that directory.
pub(crate) fn is_own_log(app: &str, log: &Path) -> bool {
    let climbs = log.components().any(|part| part == Component::ParentDir);
    !climbs && dir_of(log).starts_with(log_dir(app))
}

/// Why a log elsewhere is refused; `own` is where it can be.
pub(crate) fn refused_log(app: &str, log: &Path, own: &Path) -> String {
    let dir = dir_of(log).display().to_string();
    let (dir, own) = (escape::line(&dir), own.display());
    format!("the mux of app {app} cannot write in {dir}. Try a log below {own}")
}

fn dir_of(log: &Path) -> &Path {
    log.parent().unwrap_or(Path::new("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_user_of_the_muxes() {
        let root = "root:x:0:0:root:/root:/bin/sh";
        for (line, want) in [
            ("iottymux:x:990:980::/:/usr/sbin/nologin", Some((990, 980))),
            ("iottymux:x:0:980::/:", None),
            ("iottymux:x:990:0::/:", None),
            ("iottymux:x:990", None),
            ("iottymux", None),
            ("iottymuxes:x:990:980::/:", None),
            ("", None),
        ] {
            assert_eq!(mux_user(&format!("{root}\n{line}\n")), want, "{line}");
        }
    }

    #[test]
    fn logs_of_an_app() {
        for (log, is_own) in [
            ("/var/log/iottymux/web/x.log", true),
            ("/var/log/iottymux/web/a/b", true),
            ("/var/log/iottymux/web/../db/x", false),
            ("/var/log/iottymux/web2/x", false),
            ("/var/log/iottymux/web", false),
            ("/var/log/web.log", false),
            ("x", false),
        ] {
            assert_eq!(is_own_log("web", Path::new(log)), is_own, "{log}");
        }
    }
}
