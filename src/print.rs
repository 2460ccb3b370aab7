//! Printing on standard output. A reader that has seen enough is no error.

use std::io::{self, ErrorKind, Write};

use anyhow::{Context, Result};

/// Prints text, all of it unless its reader goes.
///
/// # Errors
/// When standard output cannot be written.
pub fn print(text: &str) -> Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(e) if e.kind() != ErrorKind::BrokenPipe => Err(e).context("writing standard output"),
        _ => Ok(()),
    }
}
