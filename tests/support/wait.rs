//! Waiting for events, with a watchdog.

use std::thread;
use std::time::{Duration, Instant};

/// How long an event may take before the test fails: far beyond a loaded machine's worst.
pub const WATCHDOG: Duration = Duration::from_secs(30);
/// The pause between two looks: short for a test, long enough to leave the processor to others.
pub const PAUSE: Duration = Duration::from_millis(1);

/// Waits for what the kernel tells nobody, by looking again and again.
pub fn eventually(what: &str, holds: impl Fn() -> bool) {
    looking_each(PAUSE, what, holds);
}

/// The same with another pause between two looks.
pub fn looking_each(pause: Duration, what: &str, holds: impl Fn() -> bool) {
    let until = Instant::now() + WATCHDOG;
    while !holds() {
        assert!(Instant::now() < until, "waited in vain until {what}");
        thread::sleep(pause);
    }
}
