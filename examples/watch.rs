//! Prints what happens to an app until it and its mux have ended: output, who comes and goes, restarts. A mux that is
//! killed costs no byte of it.
//!
//! `cargo run --example watch game`

use std::env;
use std::io::{self, Write};
use std::path::Path;

use anyhow::{Context, Result};
use iottymux::client::{App, ClientEvent, Event, Position};
use tokio::runtime::Builder;

async fn watch(app: &App) -> Result<()> {
    // From the first byte that is kept.
    let mut events = app.events(Some(Position::Start)).await?;
    while let Some(event) = events.next().await? {
        match event {
            Event::Output { bytes, .. } => io::stdout().write_all(&bytes)?,
            Event::Lost(gap) => println!("-- output is lost: {gap:?}"),
            Event::Client(ClientEvent::Attached(who)) => println!("-- user {} is here", who.uid),
            Event::Client(ClientEvent::Detached(who)) => println!("-- user {} has left", who.uid),
            Event::Client(_) | Event::Restarted => {}
            Event::Started => println!("-- started"),
            Event::Ended(status) => println!("-- ended: {status:?}"),
        }
    }
    Ok(())
}

fn main() -> Result<()> {
    let name = env::args().nth(1).context("expected: APP")?;
    // Where the program looks, too.
    let app = match env::var_os("IOTTYMUX_STATE_DIR") {
        Some(dir) => App::in_directory(Path::new(&dir), &name)?,
        None => App::find(&name)?,
    };
    Builder::new_current_thread().enable_all().build()?.block_on(watch(&app))
}
