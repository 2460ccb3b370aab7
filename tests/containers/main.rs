//! Tests with real container runtimes and engines.
//!
//! Each test of the wrapper shows that our session served the bytes: a wrapper that fell back to the
//! real runtime would pass everything else.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests fail by panics")]

#[path = "../support/form.rs"]
mod form;
#[path = "../support/installed.rs"]
mod installed;
#[path = "../support/proc.rs"]
mod proc;
#[path = "../support/skip.rs"]
mod skip;
#[path = "../support/wait.rs"]
mod wait;

mod containerd;
mod engine;
mod logger;
