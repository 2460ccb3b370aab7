//! Parsers for the values of options and variables, with an error for the user. No I/O but for names of
//! users and groups, no clock.

use std::ops::RangeInclusive;
use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

use log::LevelFilter;
use nix::sys::signal::Signal;
use regex_lite::Regex;

use crate::client::script;
use crate::core::logfmt::encoder::LogTarget;
use crate::core::logfmt::spec::LogSpec;
use crate::core::logfmt::syslog;
use crate::core::wire::ControlRequest;
use crate::host::enable::account;
use crate::sys::calls;
use crate::types::limits;
use crate::types::stream::Stream;
use crate::types::time::Stamp;

/// Sizes of a backlog, bytes: below a page the ring costs more than it holds.
pub(super) const BACKLOG: RangeInclusive<usize> = 4096..=1 << 30;
/// Longest texts of an entry, bytes: as much memory is kept per stream and log. 0 stands for the most.
pub(super) const LOG_LINE: RangeInclusive<usize> = 0..=1 << 20;
/// Sizes of a log file, bytes.
pub(super) const LOG_SIZE: RangeInclusive<usize> = 4096..=1 << 40;
/// Bytes that are kept for a log that fails.
pub(super) const LOG_BUFFER: RangeInclusive<usize> = limits::LOG_CHUNK..=1 << 30;

/// Time that an app has to end after the line that stops it.
pub(super) const STOP_TIMEOUT: Duration = Duration::from_secs(60);

/// A time as a person writes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LogTime {
    /// This time.
    At(Stamp),
    /// This long ago.
    Ago(Duration),
    /// This time of the local day that is so many days after today.
    Day { days: i32, seconds: i32 },
    /// This time of the local day that is so many days after the first one of 1970.
    Date { days: i32, seconds: i32 },
}

impl LogTime {
    /// The time, if the clock of this machine has it.
    pub(crate) fn stamp(self, now: Stamp) -> Option<Stamp> {
        let (date, days, seconds) = match self {
            Self::At(stamp) => return Some(stamp),
            Self::Ago(ago) => return Some(now.before(ago)),
            Self::Day { days, seconds } => (calls::local_date(now.seconds())?, days, seconds),
            Self::Date { days, seconds } => ([1970, 1, 1], days, seconds),
        };
        calls::local_time([date[0], date[1], date[2] + days], seconds).and_then(Stamp::of_seconds)
    }
}

/// Parses a time as journalctl and docker take it.
pub(crate) fn log_time(text: &str) -> Result<LogTime, String> {
    // A bare number may be a year.
    let has_unit = |text: &&str| !text.ends_with(|c: char| c.is_ascii_digit());
    let ago = |text: &str| Some(text).filter(has_unit).and_then(time_span).map(LogTime::Ago);
    let day = |days| Some(LogTime::Day { days, seconds: 0 });
    let time = match text {
        "now" => Some(LogTime::Ago(Duration::ZERO)),
        "today" => day(0),
        "yesterday" => day(-1),
        _ => None,
    };
    let since_1970 = || text.strip_prefix('@')?.parse().ok().and_then(Stamp::of_seconds);
    time.or_else(|| Stamp::parse(text).or_else(since_1970).map(LogTime::At))
        .or_else(|| ago(text.strip_prefix('-').unwrap_or(text)))
        .or_else(|| ago(text.strip_suffix(" ago")?))
        .or_else(|| local_time(text))
        .ok_or_else(|| {
            "expected a time such as \"2026-01-31 21:00\", 21:00, yesterday, -1h or 10m".to_owned()
        })
}

/// `2026-01-31`, `21:00:05`, or both. Seconds may be left out.
fn local_time(text: &str) -> Option<LogTime> {
    let (date, time) = match text.split_once([' ', 'T']) {
        Some((date, time)) => (Some(date), time),
        None if text.contains(':') => (None, text),
        None => (Some(text), "00:00"),
    };
    let has_minutes_only = time.len() == "21:00".len();
    let time = if has_minutes_only { format!("{time}:00") } else { time.to_owned() };
    // No zone and no fraction may be behind it.
    let time = Some(time).filter(|time| time.len() == "21:00:05".len())?;
    let text = format!("{} {time}", date.unwrap_or("1970-01-01"));
    let time = humantime::parse_rfc3339_weak(&text).ok()?.duration_since(UNIX_EPOCH).ok()?;
    let days = i32::try_from(time.as_secs() / 86_400).ok()?;
    let seconds = i32::try_from(time.as_secs() % 86_400).ok()?;
    Some(match date {
        Some(_) => LogTime::Date { days, seconds },
        None => LogTime::Day { days, seconds },
    })
}

/// Parses one of these streams.
pub(crate) fn stream_of(
    streams: &'static [Stream],
) -> impl Fn(&str) -> Result<Stream, String> + Clone {
    |text| {
        let names: Vec<&str> = streams.iter().map(|stream| stream.name()).collect();
        let found = streams.iter().copied().find(|stream| stream.name() == text);
        found.ok_or_else(|| format!("expected {}", names.join(" or ")))
    }
}

/// Parses a signal by its name, with or without SIG, or by its number.
pub(crate) fn signal(text: &str) -> Result<Signal, String> {
    let number = text.parse::<i32>().ok().and_then(|number| Signal::try_from(number).ok());
    let name = text.to_ascii_uppercase();
    let name = name.strip_prefix("SIG").unwrap_or(&name);
    let named = || format!("SIG{name}").parse().ok();
    number.or_else(named).ok_or_else(|| "expected a signal such as TERM, SIGHUP or 9".to_owned())
}

/// Parses how many lines `logs` begins with, or `screen` prints above. All of them are `all` as in
/// docker and journalctl, and -1 as in kubectl.
pub(crate) fn tail(text: &str) -> Result<usize, String> {
    match text {
        "all" | "-1" => Ok(usize::MAX),
        _ => text.parse().map_err(|_| "expected a number of lines, or all".to_owned()),
    }
}

/// Parses a line that stops a service, which may have keys; empty for none.
pub(crate) fn stop_line(text: &str) -> Result<String, String> {
    if text.contains(['\0', '\n', '\r']) {
        return Err("expected one line".to_owned());
    }
    Ok(text.to_owned())
}

/// Parses the client to detach: its number, or `self` for the one that typed last.
pub(crate) fn detached(text: &str) -> Result<ControlRequest, String> {
    if text == "self" {
        return Ok(ControlRequest::DetachTypist);
    }
    let number = text.parse().map(|client| ControlRequest::Detach { client });
    number.map_err(|_| "expected the number of a client, as in `status`, or self".to_owned())
}

/// Parses a log level.
pub(crate) fn level(text: &str) -> Result<LevelFilter, String> {
    text.parse().map_err(|_| "expected off, error, warn, info, debug or trace".to_owned())
}

/// Parses a duration, or `inf`.
pub(crate) fn wait(text: &str) -> Result<Duration, String> {
    if text == "inf" {
        return Ok(limits::AGES);
    }
    duration(text).map_err(|why| why + ", or inf")
}

/// Parses a duration, from 0 to 49 days.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    // So that it is a number of milliseconds that fits 32 bits.
    let duration = time_span(text).filter(|time| u32::try_from(time.as_millis()).is_ok());
    duration
        .ok_or_else(|| "expected a duration such as 5s, 300ms or 2min, up to 49 days".to_owned())
}

/// Parses a duration that is not 0, which in systemd often stands for no limit.
pub(crate) fn some_duration(text: &str) -> Result<Duration, String> {
    let some =
        |time: Duration| if time.is_zero() { Err("expected more than 0".into()) } else { Ok(time) };
    duration(text).and_then(some)
}

/// A time span as in systemd.time(7): `1h 30min`. A number without a unit is seconds.
fn time_span(text: &str) -> Option<Duration> {
    if let Ok(seconds) = text.trim().parse() {
        return Duration::try_from_secs_f64(seconds).ok();
    }
    // humantime takes blanks within a number, and panics near the largest time.
    let is_small = |number: &str| number.parse().is_ok_and(|number: f64| number < 1e10);
    let mut numbers = text.split(char::is_alphabetic).map(str::trim);
    let are_small = numbers.all(|number| number.is_empty() || is_small(number));
    are_small.then(|| humantime::parse_duration(text).ok())?
}

/// Parses a part of a line that is typed.
pub(crate) fn words(text: &str) -> Result<String, String> {
    let has_control = text.contains(|c: char| c != '\t' && c.is_control());
    if has_control {
        return Err("expected one line, without control characters".to_owned());
    }
    Ok(text.to_owned())
}

/// Parses a regular expression.
pub(crate) fn regex(text: &str) -> Result<Regex, String> {
    if text.is_empty() {
        return Err("expected a regular expression that is not empty".to_owned());
    }
    script::regex(text).map_err(|e| format!("expected a regular expression: {e}"))
}

/// Parses a number of bytes in this range.
pub(crate) fn bytes_in(
    range: RangeInclusive<usize>,
) -> impl Fn(&str) -> Result<usize, String> + Clone {
    move |text| {
        let [least, most] = [range.start(), range.end()].map(|bytes| bytes_text(*bytes));
        bytes(text)
            .filter(|bytes| range.contains(bytes))
            .ok_or_else(|| format!("expected a number of bytes from {least} to {most}"))
    }
}

/// Parses a number of lines to keep.
pub(crate) fn scrollback(text: &str) -> Result<usize, String> {
    text.parse()
        .ok()
        .filter(|lines| *lines <= limits::SCROLLBACK_MOST)
        .ok_or_else(|| format!("expected a number of lines up to {}", limits::SCROLLBACK_MOST))
}

/// A number of bytes, with `K`, `M` or `G` behind it or not.
fn bytes(text: &str) -> Option<usize> {
    let (digits, unit) = match text.as_bytes().last() {
        Some(b'K') => (&text[..text.len() - 1], 1 << 10),
        Some(b'M') => (&text[..text.len() - 1], 1 << 20),
        Some(b'G') => (&text[..text.len() - 1], 1 << 30),
        _ => (text, 1),
    };
    digits.parse::<usize>().ok()?.checked_mul(unit)
}

/// A number of bytes as [`bytes`] reads it, with the largest unit that divides it.
pub(crate) fn bytes_text(bytes: usize) -> String {
    let units = [("G", 1 << 30), ("M", 1 << 20), ("K", 1 << 10)];
    let fits = units.into_iter().find(|(_, unit)| bytes >= *unit && bytes.is_multiple_of(*unit));
    fits.map_or_else(|| bytes.to_string(), |(name, unit)| format!("{}{name}", bytes / unit))
}

/// A time as [`duration`] reads it.
pub(crate) fn duration_text(time: Duration) -> String {
    format!("{time:?}")
}

/// Checks a log for a mux that is started elsewhere, and among others in one variable.
pub(crate) fn log_spec_text(text: &str) -> Result<String, String> {
    let path = text.split_once(':').map(|(_, path)| Path::new(path));
    match LogSpec::log(text).map(|spec| spec.target) {
        _ if text == "none" => Ok(text.to_owned()),
        Err(why) => Err(why + ", or none"),
        Ok(LogTarget::Journal(Some(_))) => {
            Err("expected journal: the service's own settings select its streams".to_owned())
        }
        Ok(LogTarget::File(_)) if path.is_some_and(Path::is_relative) => {
            Err("expected an absolute path".to_owned())
        }
        _ if text.contains(',') || text.chars().any(char::is_control) => {
            Err("the path cannot have commas or control characters".to_owned())
        }
        _ => Ok(text.to_owned()),
    }
}

/// Parses the name of a program, as the journal has it.
pub(crate) fn syslog_identifier(text: &str) -> Result<String, String> {
    let identifier = Some(text).filter(|text| syslog::is_identifier(text)).map(str::to_owned);
    identifier.ok_or_else(|| "expected 1 to 255 bytes without control characters".to_owned())
}

/// Parses `NAME=VALUE`.
pub(crate) fn assignment(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("expected NAME=VALUE")?;
    if value.chars().any(char::is_control) {
        return Err("a value cannot have control characters".to_owned());
    }
    Ok((name.to_owned(), value.to_owned()))
}

/// A user, by name or number.
pub(super) fn user(word: &str) -> Result<u32, String> {
    account::number(word, false).map_err(|e| format!("{e:#}"))
}

/// A group, by name or number.
pub(super) fn group(word: &str) -> Result<u32, String> {
    account::number(word, true).map_err(|e| format!("{e:#}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_as_journalctl_and_docker_take_them() {
        let ago = |seconds| Ok(LogTime::Ago(Duration::from_secs(seconds)));
        let date = |seconds| Ok(LogTime::Date { days: 20_484, seconds });
        for (text, want) in [
            ("1970-01-01T01:00:00+01:00", Ok(LogTime::At(Stamp(0)))),
            ("@5", Ok(LogTime::At(Stamp(5_000_000_000)))),
            ("now", ago(0)),
            ("1h30m", ago(5400)),
            ("-1h 30min", ago(5400)),
            ("2 hours ago", ago(7200)),
            ("today", Ok(LogTime::Day { days: 0, seconds: 0 })),
            ("yesterday", Ok(LogTime::Day { days: -1, seconds: 0 })),
            ("21:00", Ok(LogTime::Day { days: 0, seconds: 75600 })),
            ("2026-01-31", date(0)),
            ("2026-01-31 21:00", date(75600)),
            ("2026-01-31T21:00:05", date(75605)),
        ] {
            assert_eq!(log_time(text), want, "{text}");
        }
        for bad in [
            "",
            "5",
            "1h 5",
            "m",
            "2026-1-31",
            "2026-13-01",
            "2026-02-31",
            "24:00",
            "1:2",
            "@",
            "@-1",
            "--1h",
        ] {
            assert!(log_time(bad).is_err(), "{bad}");
        }
        let now = Stamp::parse("2026-01-31T12:00:00Z").unwrap();
        let yesterday = log_time("yesterday").unwrap().stamp(now).unwrap();
        let today = log_time("today").unwrap().stamp(now).unwrap();
        assert!(yesterday < today && today <= now);
    }

    #[test]
    fn values_and_their_limits() {
        for (text, want) in [
            ("4096", Some(4096)),
            ("256K", Some(262_144)),
            ("1G", Some(1 << 30)),
            ("4095", None),
            ("2G", None),
            ("K", None),
            ("", None),
            ("99999999999999999999G", None),
            ("1é", None),
        ] {
            assert_eq!(bytes_in(BACKLOG)(text).ok(), want, "{text}");
        }
        assert_eq!(stream_of(&Stream::PLAIN)("stderr"), Ok(Stream::Stderr));
        let why = "expected stdin or stdout or stderr".to_owned();
        assert_eq!(stream_of(&Stream::PLAIN)("tty"), Err(why));
        let most = "expected a number of bytes from 0 to 1M".to_owned();
        assert_eq!(bytes_in(LOG_LINE)("2M"), Err(most));
        for (text, want) in [("hup", 1), ("SIGKILL", 9), ("15", 15)] {
            assert_eq!(signal(text).map(|signal| signal as i32), Ok(want));
        }
        assert!(signal("0").is_err() && signal("SIGSIGHUP").is_err() && signal("").is_err());
    }

    #[test]
    fn durations_as_systemd_takes_them() {
        // As `systemd-analyze timespan` prints them.
        for (text, millis) in [
            ("0", 0),
            ("5", 5_000),
            ("1.5", 1_500),
            ("0.5s", 500),
            ("300ms", 300),
            ("2min", 120_000),
            ("2 min", 120_000),
            ("5m", 300_000),
            ("1h 30min", 5_400_000),
            ("5s 300ms", 5_300),
            ("55s500ms", 55_500),
            (" 2 h ", 7_200_000),
            ("1500us", 1),
            ("1w1d", 691_200_000),
            ("1M", 2_630_016_000),
        ] {
            assert_eq!(duration(text).map(|time| time.as_millis()), Ok(millis), "{text}");
        }
        for bad in [
            "",
            " ",
            "-1",
            "NaN",
            "inf",
            "s",
            "1x",
            "5S",
            "5 sec.",
            "1..5",
            ".5s",
            "1 30s",
            "1s -1s",
            "50d",
            "2M",
            "18446744073709551615s 500ms 500ms",
            "99999999999999999999999y",
            "1:30",
            "é",
        ] {
            assert!(duration(bad).is_err(), "{bad}");
        }
        for time in [Duration::from_millis(300), limits::PATIENCE, Duration::from_micros(1500)] {
            assert_eq!(duration(&duration_text(time)), Ok(time));
        }
        assert_eq!(wait("1.5s"), Ok(Duration::from_millis(1500)));
        assert_eq!(wait("inf"), Ok(limits::AGES));
        assert!(
            wait("1x").is_err() && some_duration("0ms").is_err() && some_duration("1ms").is_ok()
        );
    }
}
