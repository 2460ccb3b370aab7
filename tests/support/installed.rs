//! The programs of this machine.

use std::env;

/// Whether a program is in a directory of `PATH`.
pub fn is_installed(program: &str) -> bool {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path).any(|dir| dir.join(program).exists())
}
