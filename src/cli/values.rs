//! Parsers for the values of options and variables, with an error for the user. Pure.

use std::path::Path;
use std::time::Duration;

use log::LevelFilter;

use crate::containers::name;
use crate::logfmt::encoder::LogTarget;
use crate::logfmt::spec::LogSpec;
use crate::logfmt::syslog;
use crate::types::limits;
use crate::types::name::{AppName, NameError};
use crate::types::service::ServiceName;
use crate::types::size::Size;
use crate::types::stream::Stream;
use crate::types::time::Stamp;

/// Smallest backlog, bytes: below a page the ring costs more than it holds.
const BACKLOG_MIN: usize = 4096;
/// Largest backlog, bytes.
const BACKLOG_MAX: usize = 1 << 30;
/// Largest `--log-line-limit`, bytes: as much memory is kept per stream and log.
const LOG_LINE_MAX: usize = 1024 * 1024;
/// Smallest `--log-max-size`, bytes.
const LOG_SIZE_MIN: u64 = 4096;

/// How long to wait; `None` means without a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Wait(pub(crate) Option<Duration>);

/// Since when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Since {
    /// This time.
    At(Stamp),
    /// This long ago.
    Ago(Duration),
}

/// Parses the name of an app, or that of a service, whose app has the name that `enable` derives, or
/// `NAMESPACE/ID` of a container.
pub(crate) fn app(text: &str) -> Result<AppName, NameError> {
    if let Some(container) = name::parse(text) {
        return Ok(container);
    }
    text.parse().or_else(|e| match text.parse::<ServiceName>() {
        Ok(service) if !text.chars().all(char::is_alphanumeric) => service.app(),
        _ => Err(e),
    })
}

/// Parses a time of RFC 3339, or how long ago it was.
pub(crate) fn since(text: &str) -> Result<Since, String> {
    let ago = || humantime::parse_duration(text).ok().map(Since::Ago);
    Stamp::parse(text).map(Since::At).or_else(ago).ok_or_else(|| {
        "expected a time such as 2026-01-31T12:00:00Z, or a duration such as 10m or 1h30m"
            .to_owned()
    })
}

/// Parses one of the streams that a log has.
pub(crate) fn logged_stream(text: &str) -> Result<Stream, String> {
    let logged = [Stream::Stdout, Stream::Stderr].into_iter().find(|s| s.name() == text);
    logged.ok_or_else(|| "expected stdout or stderr".to_owned())
}

/// Parses one of the streams that can have a FIFO.
pub(crate) fn plain_stream(text: &str) -> Result<Stream, String> {
    let plain = Stream::PLAIN.into_iter().find(|s| s.name() == text);
    plain.ok_or_else(|| "expected stdin, stdout or stderr".to_owned())
}

/// Parses any stream.
pub(crate) fn any_stream(text: &str) -> Result<Stream, String> {
    let any = Stream::ALL.into_iter().find(|s| s.name() == text);
    any.ok_or_else(|| "expected stdin, stdout, stderr or tty".to_owned())
}

/// Parses a log level.
pub(crate) fn level(text: &str) -> Result<LevelFilter, String> {
    text.parse().map_err(|_| "expected off, error, warn, info, debug or trace".to_owned())
}

/// Parses `ROWSxCOLS`.
pub(crate) fn size(text: &str) -> Result<Size, String> {
    text.parse()
}

/// Parses a time in seconds, or `inf`.
pub(crate) fn wait(text: &str) -> Result<Wait, String> {
    if text == "inf" {
        return Ok(Wait(None));
    }
    seconds(text).map(|wait| Wait(Some(wait))).map_err(|why| why + ", or inf")
}

/// Parses a time in seconds, from 0 to 4 million.
pub(crate) fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().and_then(|s| Duration::try_from_secs_f64(s).ok());
    // So that it is a number of milliseconds that fits 32 bits.
    seconds
        .filter(|time| u32::try_from(time.as_millis()).is_ok())
        .ok_or_else(|| "expected a number of seconds".to_owned())
}

/// Parses the size of the backlog in bytes.
pub(crate) fn backlog(text: &str) -> Result<usize, String> {
    bytes(text)
        .filter(|bytes| (BACKLOG_MIN..=BACKLOG_MAX).contains(bytes))
        .ok_or_else(|| "expected a number of bytes from 4K to 1G".to_owned())
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

/// A time as [`seconds`] reads it.
pub(crate) fn seconds_text(time: Duration) -> String {
    time.as_secs_f64().to_string()
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

/// Parses a level or a facility of syslog(3), by its number.
pub(crate) fn syslog_number(text: &str, most: u8) -> Result<u8, String> {
    let number = text.parse().ok().filter(|number| *number <= most);
    number.ok_or_else(|| format!("expected a number from 0 to {most}"))
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

/// Parses the longest text of an entry; 0 stands for the most.
pub(crate) fn line_limit(text: &str) -> Result<usize, String> {
    match bytes(text) {
        Some(0) => Ok(LOG_LINE_MAX),
        Some(limit) if limit <= LOG_LINE_MAX => Ok(limit),
        _ => Err("expected a number of bytes up to 1M, or 0".to_owned()),
    }
}

/// Parses the most that a log file may hold.
pub(crate) fn log_size(text: &str) -> Result<u64, String> {
    let size = bytes(text).and_then(|size| u64::try_from(size).ok());
    size.filter(|size| *size >= LOG_SIZE_MIN)
        .ok_or_else(|| "expected a number of bytes, at least 4K".to_owned())
}

/// Parses how much is kept for a log that fails.
pub(crate) fn log_buffer(text: &str) -> Result<usize, String> {
    bytes(text)
        .filter(|bytes| (limits::LOG_CHUNK..=BACKLOG_MAX).contains(bytes))
        .ok_or_else(|| "expected a number of bytes from 256K to 1G".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_and_their_limits() {
        assert_eq!(size("24x80"), Ok(Size { rows: 24, cols: 80 }));
        for bad in ["", "24", "0x80", "24x0", "24x65536", "x", "-1x2", "24x80x1"] {
            assert!(size(bad).is_err(), "{bad}");
        }
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
            assert_eq!(backlog(text).ok(), want, "{text}");
        }
        assert_eq!(since("1970-01-01T01:00:00+01:00"), Ok(Since::At(Stamp(0))));
        assert_eq!(since("1h30m"), Ok(Since::Ago(Duration::from_secs(5400))));
        for bad in ["", "5", "-1m", "m", "2026-01-31", "yesterday"] {
            assert!(since(bad).is_err(), "{bad}");
        }
        assert_eq!(logged_stream("stderr"), Ok(Stream::Stderr));
        assert!(logged_stream("stdin").is_err() && logged_stream("tty").is_err());
        assert_eq!((line_limit("0"), line_limit("2K")), (Ok(LOG_LINE_MAX), Ok(2048)));
        assert!(
            line_limit("2M").is_err() && log_size("4095").is_err() && log_buffer("1K").is_err()
        );
        assert_eq!(wait("1.5"), Ok(Wait(Some(Duration::from_millis(1500)))));
        assert_eq!(wait("inf"), Ok(Wait(None)));
        for bad in ["", "-1", "NaN", "1s"] {
            assert!(wait(bad).is_err(), "{bad}");
        }
    }
}
