//! This process as systemd started it: its variables, see systemd.exec(5).

use std::env;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

use nix::unistd::getppid;

/// The variables that systemd sets for one process only; children must not inherit them.
pub(crate) const PRIVATE_ENV: [&str; 5] =
    ["NOTIFY_SOCKET", "LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES", KEEPER];
/// The variable by which the keeper of `run` starts its mux: the PID of the keeper. It stands for
/// `LISTEN_PID`, which a parent cannot know in advance.
pub(crate) const KEEPER: &str = "IOTTYMUX_KEEPER";

/// The name of this program for its own processes: that of its file may be another one, such as that of
/// the container runtime.
pub(crate) const PROGRAM: &str = "iottymux";

/// Whether the keeper of `run` started this process as its mux.
pub(crate) fn is_kept() -> bool {
    env::var(KEEPER).is_ok_and(|pid| pid == getppid().to_string())
}

/// Whether systemd started this very process: most of its variables are inherited by all
/// descendants.
pub(crate) fn is_of_unit() -> bool {
    // Systemd 248 and later; earlier versions set INVOCATION_ID only.
    let of_unit = if is_kept() { getppid().to_string() } else { std::process::id().to_string() };
    let is_this = |pid: String| pid == of_unit;
    env::var("SYSTEMD_EXEC_PID").map_or(true, is_this) && invocation().is_some()
}

/// The invocation id of the unit that this process belongs to.
pub(crate) fn invocation() -> Option<String> {
    env::var("INVOCATION_ID").ok()
}

/// Whether a user's manager started this process: only such a manager sets this variable.
pub(crate) fn is_of_user() -> bool {
    env::var_os("MANAGERPID").is_some()
}

/// Set for a program that has been executed again, so that it happens once only.
const HAS_READ: &str = "IOTTYMUX_HAS_READ_ENV";

/// Executes this program again with the variables of a file that begin with `prefix` and are not
/// set yet. Returns if there are none, if this has been done before, or on failure.
pub(crate) fn restart_with(text: &str, prefix: &str) {
    let is_new = |(name, _): &(&str, String)| {
        name.starts_with(prefix) && !name.contains('\0') && env::var_os(name).is_none()
    };
    let mut new: Vec<_> = variables(text).filter(is_new).collect();
    if env::var_os(HAS_READ).is_none() && !new.is_empty() {
        new.push((HAS_READ, "1".to_owned()));
        let _ = execute_again(new);
    }
}

/// Executes this program again with these variables in the same process: its open descriptors stay,
/// and $LISTEN_PID stays valid. Returns why that fails.
pub(crate) fn execute_again<'a>(
    variables: impl IntoIterator<Item = (&'a str, String)>,
) -> io::Error {
    match env::current_exe() {
        Ok(program) => Command::new(program).args(env::args_os().skip(1)).envs(variables).exec(),
        Err(e) => e,
    }
}

/// The variables of a file in the format of `EnvironmentFile=` of systemd.exec(5); other lines are
/// skipped.
pub(crate) fn variables(text: &str) -> impl Iterator<Item = (&str, String)> {
    let variable = |line| {
        let (name, value) = str::split_once(line, '=')?;
        let (name, value) = (name.trim(), value.trim());
        let quoted = |quote| value.strip_prefix(quote)?.strip_suffix(quote);
        let value = match (quoted('\''), quoted('"')) {
            (Some(literal), _) => literal.to_owned(),
            (None, within) => unescape(within.unwrap_or(value)),
        };
        (!name.starts_with(['#', ';'])).then_some((name, value))
    };
    text.lines().filter_map(variable)
}

/// A value without its escaping backslashes.
fn unescape(value: &str) -> String {
    let mut escaped = false;
    let keep = |c: &char| {
        escaped = *c == '\\' && !escaped;
        !escaped
    };
    value.chars().filter(keep).collect()
}

/// Whether systemd passed descriptors to this process: then an app may be running that depends on
/// it.
pub(crate) fn has_descriptors() -> bool {
    passed_descriptors() > 0
}

/// The number of descriptors that systemd passed to this process.
pub(super) fn passed_descriptors() -> usize {
    let number = |name| env::var(name).ok()?.parse::<usize>().ok();
    let is_ours = number("LISTEN_PID") == Some(std::process::id() as usize);
    number("LISTEN_FDS").filter(|_| is_ours || is_kept()).unwrap_or(0)
}
