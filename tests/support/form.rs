//! The short form of the tests, and the long one.

/// Whether the long form is asked for (`IOTTYMUX_LONG=1`).
pub fn is_long() -> bool {
    std::env::var("IOTTYMUX_LONG").is_ok_and(|value| value == "1")
}
