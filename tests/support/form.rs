//! What a developer sets for the tests: the long form, and keeping their files.

use tempfile::TempDir;

/// Whether the long form is asked for (`IOTTYMUX_LONG=1`).
pub fn is_long() -> bool {
    is_on("IOTTYMUX_LONG")
}

/// A directory for the files of a test. `IOTTYMUX_KEEP=1` keeps it, and prints its path.
pub fn directory(prefix: &str) -> TempDir {
    let is_kept = is_on("IOTTYMUX_KEEP");
    let dir = tempfile::Builder::new().prefix(prefix).disable_cleanup(is_kept).tempdir().unwrap();
    if is_kept {
        println!("kept: {}", dir.path().display());
    }
    dir
}

fn is_on(variable: &str) -> bool {
    std::env::var(variable).is_ok_and(|value| value == "1")
}
