//! rkt's spelling of the command line: `--action=… --app=…`, as Go's flag package reads it, its
//! variables for attach, and its exit codes: 0, 2 for a bad flag, 254 for everything else.
//!
//! What else is rkt's: its variables for a mux ([`super::rkt_variables`]), its directories and reapers
//! (`sys/state/rkt.rs`), its pod manifests (`host/units/manifest.rs`), a mux that keeps nothing for the
//! next one ([`Origin::Rkt`]), and the sockets without a protocol, of which
//! `sys/documents/endpoints.rs` tells.

use std::env;
use std::ffi::OsString;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};

use super::rkt_variables::{go_bool, streams};
use super::{MuxArgs, resolve};
use crate::client::attach::attach_mode::{AttachMode, WantedStreams};
use crate::client::attach::{self, AttachRequest};
use crate::client::list;
use crate::keeper::run;
use crate::mux::{MuxPlan, Origin};
use crate::sys::diagnostics::{self, Speaker};
use crate::sys::state::StateDir;
use crate::types::exit::Exit;
use crate::types::name::AppName;
use crate::types::size::Size;
use crate::types::stream::Stream;

/// The flags, as far as they were given.
#[derive(Debug, Default, PartialEq, Eq)]
struct Flags {
    /// The action.
    action: Option<String>,
    /// Which app.
    app: Option<String>,
    /// Whether help was asked for instead.
    help: bool,
}

/// The flags, for people.
const USAGE: &str = "\
Usage of iottymux:
  -action string
    \tiomux, ttymux, auto-attach, custom-attach or list (default \"list\")
  -app string
    \tname of the app
";

/// Whether a command line is in rkt's spelling: it begins with one of rkt's two flags.
pub(super) fn is_spelling(arguments: &[OsString]) -> bool {
    let first = arguments.first().and_then(|first| first.to_str()).and_then(flag);
    first.is_some_and(|(name, _)| matches!(name, "action" | "app"))
}

/// Reads the flags. The first argument that is not a flag, or `--`, ends them.
///
/// Errors: For a flag that is not known or lacks its value.
fn parse(arguments: &[OsString]) -> Result<Flags, String> {
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
                return Err(format!("flag provided but not defined: -{}", other.escape_debug()));
            }
        };
        let next = || rest.next().map(std::borrow::Cow::into_owned);
        let value = value.map(str::to_owned).or_else(next);
        *target = Some(value.ok_or_else(|| format!("flag needs an argument: -{name}"))?);
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

/// The program in rkt's spelling: returns rkt's exit codes.
pub(super) fn main(arguments: &[OsString]) -> Exit {
    let flags = match parse(arguments) {
        Ok(flags) if flags.help => {
            eprint!("{USAGE}");
            return Exit::Done;
        }
        Ok(flags) => flags,
        Err(e) => return diagnostics::failed(&anyhow!(e), Exit::Usage),
    };
    diagnostics::start(None, Speaker::Mux);
    match act(flags) {
        Ok(Exit::Done | Exit::App(_)) => Exit::Done,
        Ok(Exit::Usage) => Exit::Usage,
        Ok(_) => Exit::Rkt,
        Err(e) => diagnostics::failed(&e, Exit::Rkt),
    }
}

/// Does what the flags say.
fn act(flags: Flags) -> Result<Exit> {
    let state = StateDir::resolve(env::var_os("IOTTYMUX_STATE_DIR").map(Into::into))?;
    let app = flags.app.unwrap_or_default();
    let name =
        parse_name(&app).with_context(|| format!("invalid app name ({})", app.escape_debug()))?;
    let dir = state.app(&name);
    let args = MuxArgs::defaults()?;
    let mux = |plan| run::mux(MuxPlan { origin: Origin::Rkt, ..plan });
    // Under rkt's units the app does not outlive its mux.
    let attach = |mode| attach::attach(&AttachRequest::new(state.app(&name), mode));
    match flags.action.as_deref().unwrap_or("list") {
        "iomux" => mux(resolve::fifos(dir, (streams().unwrap_or_default(), false), &args)),
        "ttymux" => mux(resolve::terminal(dir, Size::DEFAULT, &args)),
        "auto-attach" => attach(AttachMode::Auto),
        "custom-attach" => attach(AttachMode::Only(wanted()?)),
        "list" => list::endpoints(&dir, Duration::ZERO, "").map(|()| Exit::Done),
        other => bail!("unknown action \"{}\"", other.escape_debug()),
    }
}

/// An `ACName` as rkt checks it (`a--b` passes, although the specification's own expression refuses
/// it): rkt takes no other name that an app may have.
fn parse_name(text: &str) -> Result<AppName> {
    if !text.bytes().all(|b| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'-')) {
        bail!("the name of an app of rkt can only have the characters a-z, 0-9 and '-'");
    }
    Ok(text.parse()?)
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
        if go_bool(name) {
            wanted.add(input, output, stream).map_err(|why| anyhow!("{name}: {why}"))?;
        }
    }
    if wanted.all().next().is_none() {
        bail!("custom-attach: none of the STAGE2_ATTACH_* variables is true");
    }
    Ok(wanted)
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
            (&["-app"], Err("flag needs an argument: -app".to_owned())),
            (&["-app=x", "--foo"], Err("flag provided but not defined: -foo".to_owned())),
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
