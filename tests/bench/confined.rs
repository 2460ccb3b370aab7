//! How each mux is run: with the rights that its unit gives it, and with the time of its start.

use std::ffi::OsString;
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

/// Becomes this program after it has written the time to a file.
pub fn stamp(file: &str, words: &[String]) -> ! {
    fs::write(file, now().to_string()).unwrap();
    let error = Command::new(&words[0]).args(&words[1..]).exec();
    panic!("cannot run {}: {error}", words[0])
}

/// Nanoseconds, for two processes to compare.
pub fn now() -> u64 {
    let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    u64::try_from(time.as_nanos()).unwrap()
}

/// A command as the units run a mux: as another user without capabilities, if this is root.
pub fn command(program: &Path, user: Option<u32>) -> Command {
    let mut command = Command::new("setpriv");
    if let Some(user) = user {
        let ids = [format!("--reuid={user}"), format!("--regid={user}")];
        command.args(ids).args(["--clear-groups", "--inh-caps=-all", "--bounding-set=-all"]);
    }
    command.arg("--no-new-privs").arg(program);
    let path: OsString = std::env::var_os("PATH").unwrap_or_default();
    command.env_clear().env("PATH", path);
    command
}
