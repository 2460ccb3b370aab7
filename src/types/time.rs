//! Reads the clocks, in one place. The core takes the time as an argument.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Nanoseconds of a second.
const NANOS: u64 = 1_000_000_000;

/// Nanoseconds since 1970-01-01 UTC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Stamp(pub(crate) u64);

impl Stamp {
    /// The same in whole milliseconds.
    pub(crate) fn millis(self) -> u64 {
        self.0 / 1_000_000
    }

    /// The same in whole seconds.
    pub(crate) fn seconds(self) -> i64 {
        i64::try_from(self.0 / NANOS).unwrap_or(i64::MAX)
    }

    /// So many seconds after 1970-01-01 UTC.
    pub(crate) fn of_seconds(seconds: i64) -> Option<Self> {
        u64::try_from(seconds).ok()?.checked_mul(NANOS).map(Self)
    }

    /// Parses RFC 3339: `2016-10-06T00:17:09.669794202Z`, the fraction with any number of digits or
    /// none, an offset `+02:00` instead of `Z`. Times before 1970 are invalid.
    pub fn parse(text: &str) -> Option<Self> {
        let (local, ahead) = match text.strip_suffix('Z') {
            Some(utc) => (utc, 0),
            None => {
                let (local, offset) = text.split_at_checked(text.len().checked_sub(6)?)?;
                (local, offset_seconds(offset)?)
            }
        };
        let fraction = local.get("2016-10-06T00:17:09".len()..)?;
        let digits =
            fraction.strip_prefix('.').map(|digits| !digits.is_empty() && is_digits(digits));
        if local.as_bytes()[10] != b'T' || !digits.unwrap_or(fraction.is_empty()) {
            return None;
        }
        let time = humantime::parse_rfc3339_weak(local).ok()?;
        let nanos = i128::try_from(time.duration_since(UNIX_EPOCH).ok()?.as_nanos()).ok()?;
        let utc = (nanos - i128::from(ahead) * 1_000_000_000).max(0);
        Some(Self(u64::try_from(utc).unwrap_or(u64::MAX)))
    }

    /// The time that was this long ago.
    pub(crate) fn before(self, ago: Duration) -> Self {
        Self(self.0.saturating_sub(u64::try_from(ago.as_nanos()).unwrap_or(u64::MAX)))
    }
}

fn is_digits(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_digit())
}

/// The seconds of `±hh:mm`.
fn offset_seconds(offset: &str) -> Option<i64> {
    let (hours, minutes) = offset.get(1..)?.split_once(':')?;
    if hours.len() != 2 || !is_digits(hours) || !is_digits(minutes) {
        return None;
    }
    let (hours, minutes): (i64, i64) = (hours.parse().ok()?, minutes.parse().ok()?);
    let seconds = (hours < 24 && minutes < 60).then_some(hours * 3600 + minutes * 60)?;
    match offset.as_bytes()[0] {
        b'+' => Some(seconds),
        b'-' => Some(-seconds),
        _ => None,
    }
}

/// One reading of both clocks.
#[derive(Clone, Copy, Debug)]
pub struct Now {
    /// For waits and patience.
    pub at: Instant,
    /// For stamps in logs.
    pub stamp: Stamp,
}

impl Now {
    /// Reads both clocks. A clock before 1970 reads as 1970, one after 2554 as 2554.
    pub fn read() -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let stamp = Stamp(u64::try_from(since.as_nanos()).unwrap_or(u64::MAX));
        Self { at: Instant::now(), stamp }
    }
}

/// So many milliseconds in their largest unit.
pub(crate) fn rough(ms: u64) -> String {
    match ms / 1000 {
        seconds @ ..120 => format!("{seconds}s"),
        seconds @ 120..7200 => format!("{}m", seconds / 60),
        seconds @ 7200..172_800 => format!("{}h", seconds / 3600),
        seconds => format!("{}d", seconds / 86400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_as_logs_and_people_write_them() {
        let at = 1_475_713_029_000_000_000;
        for (text, want) in [
            ("2016-10-06T00:17:09.669794202Z", Some(at + 669_794_202)),
            ("2016-10-06T00:17:09.6Z", Some(at + 600_000_000)),
            ("2016-10-06T00:17:09.6697942021Z", Some(at + 669_794_202)),
            ("2016-10-06T00:17:09Z", Some(at)),
            ("2016-10-06T02:17:09+02:00", Some(at)),
            ("2016-10-05T19:47:09.000000001-04:30", Some(at + 1)),
            ("1970-01-01T00:00:00+01:00", Some(0)),
            ("9999-12-31T00:00:00Z", Some(u64::MAX)),
            ("2016-10-06 00:17:09Z", None),
            ("2016-10-06T00:17:09", None),
            ("2016-10-06T00:17:09.Z", None),
            ("2016-10-06T00:17:09ZZ", None),
            ("2016-10-06T00:17:09.1+00:00Z", None),
            ("2016-10-06T00:17:09+24:00", None),
            ("2016-10-06T00:17:09+2:000", None),
            ("2016-13-06T00:17:09Z", None),
            ("2016-10-06T00:17:09é02:00", None),
            ("0001-01-01T00:00:00Z", None),
            ("yesterday", None),
            ("", None),
        ] {
            assert_eq!(Stamp::parse(text), want.map(Stamp), "{text}");
        }
    }
}
