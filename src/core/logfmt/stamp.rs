//! Times as logs write them: RFC 3339 in UTC with nine digits. No I/O, no clock.

use std::io::Write;
use std::time::{Duration, UNIX_EPOCH};

use crate::types::time::Stamp;

/// The length of each such time.
pub(crate) const LEN: usize = "2016-10-06T00:17:09.669794202Z".len();

/// A time and its text, which is formatted once for all lines of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StampText {
    stamp: Stamp,
    text: [u8; LEN],
}

impl StampText {
    /// The text of a time. A stamp ends in 2554, before the year needs five digits.
    pub fn new(stamp: Stamp) -> Self {
        let mut text = [b'0'; LEN];
        let time = UNIX_EPOCH + Duration::from_nanos(stamp.0);
        // The text has this length for all times up to the year 9999.
        let _ = write!(&mut text[..], "{}", humantime::format_rfc3339_nanos(time));
        Self { stamp, text }
    }

    /// The time.
    pub(crate) fn stamp(&self) -> Stamp {
        self.stamp
    }

    /// Its text.
    pub(crate) fn as_bytes(&self) -> &[u8; LEN] {
        &self.text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_stamp_has_nine_digits() {
        for (nanos, want) in [
            (0, "1970-01-01T00:00:00.000000000Z"),
            (1_475_713_029_000_000_001, "2016-10-06T00:17:09.000000001Z"),
            (1_709_164_800_100_000_000, "2024-02-29T00:00:00.100000000Z"),
            (u64::MAX, "2554-07-21T23:34:33.709551615Z"),
        ] {
            let text = StampText::new(Stamp(nanos));
            assert_eq!(text.as_bytes(), want.as_bytes());
        }
    }
}
