//! A client's way into a session: connect, say hello, be welcomed.
//!
//! Invariant: a session that was opened is one that a living mux serves; nothing that follows the
//! welcome has been read.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;

use anyhow::{Context, Result, bail};

use crate::proto::{Decoder, Hello, Item, Kind, Refusal};
use crate::state::AppDir;

/// Opens a session at a socket of an app's directory.
///
/// # Errors
/// Those of the connection, to be told apart by their kind: a mux that is going ends it. Others
/// when the mux refuses, with its reason.
pub fn open(dir: &AppDir, file: &str, hello: &Hello) -> Result<UnixStream> {
    let what = || format!("connecting to {}", dir.path(file).display());
    let mut socket = dir.connect(file).map(UnixStream::from).with_context(what)?;
    socket.write_all(&Kind::Hello.message(hello)).with_context(what)?;
    let mut decoder = Decoder::default();
    let mut buffer = vec![0; 64];
    loop {
        buffer.resize(decoder.wants(), 0);
        socket.read_exact(&mut buffer).with_context(what)?;
        match decoder.next(&mut &buffer[..])? {
            Some(Item::Control(Kind::Welcome, _)) => return Ok(socket),
            Some(Item::Control(Kind::Error, body)) => {
                let Refusal { error } = serde_json::from_slice(&body)?;
                bail!("app {}: the mux refuses: {}", dir.name(), error.escape_debug());
            }
            Some(Item::Control(Kind::Closing, _)) => {
                return Err(io::Error::from(io::ErrorKind::ConnectionReset)).with_context(what);
            }
            Some(_) => bail!("app {}: the mux does not begin with a welcome", dir.name()),
            None => {}
        }
    }
}
