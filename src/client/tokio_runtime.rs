//! Waiting for many things in one thread.

use std::future::Future;
use std::pin::{Pin, pin};

use anyhow::{Context, Result};
use tokio::runtime::Builder;

/// Runs what waits, in this thread. What still waits for a mux then is left behind.
pub(crate) fn block_on<T>(work: impl Future<Output = Result<T>>) -> Result<T> {
    let mut done = None;
    run(pin!(async { done = Some(work.await) }))?;
    done.context("the work was not finished")?
}

/// One for all kinds of work: each takes some kB of the program.
fn run(work: Pin<&mut dyn Future<Output = ()>>) -> Result<()> {
    let runtime = Builder::new_current_thread().enable_all().build();
    let runtime = runtime.context("cannot start the runtime")?;
    runtime.block_on(work);
    runtime.shutdown_background();
    Ok(())
}
