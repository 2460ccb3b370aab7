//! Tests with real container runtimes and engines.
//!
//! Each test of the wrapper shows that our session served the bytes: a wrapper that fell back to the
//! real runtime would pass everything else.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests fail by panics")]

#[path = "../support/form.rs"]
mod form;
#[path = "../support/installed.rs"]
mod installed;
#[path = "../support/pair.rs"]
mod pair;
#[path = "../support/proc.rs"]
#[allow(dead_code, reason = "other tests use the rest")]
mod proc;
#[path = "../support/pty.rs"]
#[allow(dead_code, reason = "other tests use the rest")]
mod pty;
#[path = "../support/skip.rs"]
mod skip;
#[path = "../support/wait.rs"]
mod wait;

mod bundle;
mod containerd;
mod engine;
mod logger;
mod oci;
mod refused;
mod slow;
mod wrapped;
