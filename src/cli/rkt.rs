//! rkt's spelling of the command line: `--action=… --app=…`, as Go's flag package reads it, its
//! variables, and its exit codes: 0, 2 for a bad flag, 254 for everything else.

use std::ffi::OsString;
use std::fmt;

use anyhow::{Context, Result, bail};

use super::{MuxArgs, resolve};
use crate::client::attach::AttachRequest;
use crate::client::attach::mode::{AttachMode, WantedStreams};
use crate::mux::{MuxPlan, Origin};
use crate::sys::state::StateDir;
use crate::types::exit::Exit;
use crate::types::name::AppName;
use crate::types::size::Size;
use crate::types::stream::Stream;

/// The flags, as far as they were given.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Flags {
    /// The action.
    action: Option<String>,
    /// Which app.
    app: Option<String>,
    /// Whether help was asked for instead.
    pub(crate) help: bool,
}

/// An action of rkt's spelling.
#[derive(Debug)]
pub(crate) enum Action {
    /// Be a mux.
    Mux(Box<MuxPlan>),
    /// Attach.
    Attach(AttachRequest),
    /// Show the endpoints of an app.
    List(AppName),
}

/// The flags, for people.
pub(crate) const USAGE: &str = "\
Usage of iottymux:
  -action string
    \tiomux, ttymux, auto-attach, custom-attach or list (default \"list\")
  -app string
    \tname of the app
";

/// A flag that Go would refuse.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct FlagError(String);

impl fmt::Display for FlagError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for FlagError {}

/// Whether a command line is in rkt's spelling: it begins with one of rkt's two flags.
pub(crate) fn is_spelling(arguments: &[OsString]) -> bool {
    let first = arguments.first().and_then(|first| first.to_str()).and_then(flag);
    first.is_some_and(|(name, _)| matches!(name, "action" | "app"))
}

/// Reads the flags. The first argument that is not a flag, or `--`, ends them.
///
/// Errors: For a flag that is not known or lacks its value.
pub(crate) fn parse(arguments: &[OsString]) -> Result<Flags, FlagError> {
    let mut flags = Flags::default();
    let mut rest = arguments.iter().map(|argument| argument.to_string_lossy());
    while let Some(argument) = rest.next() {
        let Some((name, value)) = flag(&argument) else { break };
        let target = match name {
            "action" => &mut flags.action,
            "app" => &mut flags.app,
            "h" | "help" => {
                flags.help = true;
                return Ok(flags);
            }
            other => {
                return Err(FlagError(format!(
                    "flag provided but not defined: -{}",
                    other.escape_debug()
                )));
            }
        };
        let next = || rest.next().map(std::borrow::Cow::into_owned);
        let value = value.map(str::to_owned).or_else(next);
        *target = Some(value.ok_or_else(|| FlagError(format!("flag needs an argument: -{name}")))?);
    }
    Ok(flags)
}

/// Name and value of a flag: `-x`, `--x`, `-x=v`, `--x=v`.
fn flag(argument: &str) -> Option<(&str, Option<&str>)> {
    let name = argument.strip_prefix("--").or_else(|| argument.strip_prefix('-'))?;
    if name.is_empty() {
        return None;
    }
    Some(name.split_once('=').map_or((name, None), |(name, value)| (name, Some(value))))
}

impl Flags {
    /// The action of these flags.
    pub(crate) fn resolve(self, state: &StateDir) -> Result<Action> {
        let app = self.app.unwrap_or_default();
        let name: AppName =
            app.parse().with_context(|| format!("invalid app name ({})", app.escape_debug()))?;
        let dir = state.app(&name);
        let args = MuxArgs::defaults()?;
        let mux = |plan| Action::Mux(Box::new(MuxPlan { origin: Origin::Rkt, ..plan }));
        // Under rkt's units the app does not outlive its mux.
        let attach = |mode| Action::Attach(AttachRequest::new(state.app(&name), mode));
        Ok(match self.action.as_deref().unwrap_or("list") {
            "iomux" => {
                let enabled = resolve::rkt_streams().unwrap_or_default();
                mux(resolve::fifos(dir, (enabled, false), &args)?)
            }
            "ttymux" => mux(resolve::terminal(dir, Size::DEFAULT, &args)?),
            "auto-attach" => attach(AttachMode::Auto),
            "custom-attach" => attach(AttachMode::Only(wanted()?)),
            "list" => Action::List(name),
            other => bail!("unknown action \"{}\"", other.escape_debug()),
        })
    }
}

/// The mode of attach in rkt's variables.
fn wanted() -> Result<WantedStreams> {
    let mut wanted = WantedStreams::default();
    for (name, input, output, stream) in [
        ("STAGE2_ATTACH_TTYIN", true, false, Stream::Tty),
        ("STAGE2_ATTACH_TTYOUT", false, true, Stream::Tty),
        ("STAGE2_ATTACH_STDIN", true, false, Stream::Stdin),
        ("STAGE2_ATTACH_STDOUT", false, true, Stream::Stdout),
        ("STAGE2_ATTACH_STDERR", false, true, Stream::Stderr),
    ] {
        if resolve::go_bool(name) {
            wanted.add(input, output, stream).with_context(|| name.to_owned())?;
        }
    }
    if wanted.all().next().is_none() {
        bail!("custom-attach: none of the STAGE2_ATTACH_* variables is true");
    }
    Ok(wanted)
}

/// An outcome in rkt's codes.
pub(crate) fn exit(exit: Exit) -> Exit {
    match exit {
        Exit::Done | Exit::App(_) => Exit::Done,
        Exit::Usage => Exit::Usage,
        _ => Exit::Rkt,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(words: &[&str]) -> Vec<OsString> {
        words.iter().map(OsString::from).collect()
    }

    #[test]
    fn flags_as_go_reads_them() {
        let flags = |action: &str, app: &str| {
            let some = |s: &str| (!s.is_empty()).then(|| s.to_owned());
            Ok(Flags { action: some(action), app: some(app), help: false })
        };
        for (line, want) in [
            (&["--action=iomux", "--app=demo"][..], flags("iomux", "demo")),
            (&["-action=iomux", "-app", "demo"], flags("iomux", "demo")),
            (&["--app", "a=b"], flags("", "a=b")),
            (&["-app=x", "--", "-action=y"], flags("", "x")),
            (&["-app=x", "word", "-action=y"], flags("", "x")),
            (&["-app=x", "-"], flags("", "x")),
            (&["-app"], Err(FlagError("flag needs an argument: -app".into()))),
            (&["-app=x", "--foo"], Err(FlagError("flag provided but not defined: -foo".into()))),
        ] {
            assert_eq!(parse(&words(line)), want, "{line:?}");
        }
    }

    #[test]
    fn rkts_spelling_is_recognized() {
        for (line, rkts) in [
            (&["--action=list"][..], true),
            (&["-app", "x"], true),
            (&["attach", "--app", "x"], false),
            (&["--state-dir", "/x", "list"], false),
            (&["--application"], false),
            (&[], false),
        ] {
            assert_eq!(is_spelling(&words(line)), rkts, "{line:?}");
        }
    }
}
