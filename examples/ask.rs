//! Types a line at the console of an app, and prints the answer: what comes until the app is silent.
//!
//! `cargo run --example ask game 'say hello'`

use std::env;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use iottymux::client::{AnswerEnd, App};
use tokio::runtime::Builder;

/// How long an app is silent after an answer.
const PAUSE: Duration = Duration::from_millis(500);
/// When the answer should have ended.
const TIMEOUT: Duration = Duration::from_secs(10);

fn main() -> Result<()> {
    let mut words = env::args().skip(1);
    let (name, line) = words.next().zip(words.next()).context("expected: APP LINE")?;
    // Where the program looks, too.
    let app = match env::var_os("IOTTYMUX_STATE_DIR") {
        Some(dir) => App::in_directory(Path::new(&dir), &name)?,
        None => App::find(&name)?,
    };
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let answer = runtime.block_on(app.ask(&line, AnswerEnd::Idle(PAUSE), TIMEOUT))?;
    print!("{}", answer.text());
    Ok(())
}
