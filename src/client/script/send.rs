//! `send`: types lines, keys or a paste into an app.

use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use tokio::time::{Instant, timeout_at};

use super::key_names;
use super::script_session::{AT_ONCE, MuxWait, NEXT_MUX, Session, SessionEvent, Typing};
use super::view;
use crate::client::tokio_runtime::block_on;
use crate::core::wire::{Exclusive, Hello, InputTaken};
use crate::screen::shown::KeyModes;
use crate::sys::print::print;
use crate::sys::state::AppDir;
use crate::types::exit::Exit;

/// How long `send` waits before it says what for.
const PATIENCE: Duration = Duration::from_secs(3);
/// Most bytes of a paste, and of lines from standard input: it is kept in memory.
const PASTE: u64 = 16 * 1024 * 1024;

/// What is typed.
#[derive(Debug)]
pub(crate) enum Sent {
    /// A line, and whether Enter follows.
    Line(String, bool),
    /// Each line of standard input.
    Lines,
    /// Keys, by their names.
    Keys(Vec<String>),
    /// The content of a file (`-`: standard input), and whether it may have control characters.
    Paste(PathBuf, bool),
}

/// What is to be sent.
#[derive(Debug)]
pub(crate) struct SendRequest {
    pub(crate) dir: AppDir,
    pub(crate) sent: Sent,
    /// Whether it is printed where the app took it.
    pub(crate) json: bool,
}

/// Types it. Returns when the app has taken it, also if the app ends on it.
pub(crate) fn send(request: &SendRequest) -> Result<Exit> {
    block_on(send_all(request))
}

async fn send_all(request: &SendRequest) -> Result<Exit> {
    let dir = &request.dir;
    let mut taken = InputTaken::default();
    match &request.sent {
        Sent::Line(line, has_enter) => taken = type_line(dir, line.as_bytes(), *has_enter).await?,
        Sent::Lines => {
            let text = read_all(Path::new("-"))?;
            for line in text.split_inclusive(|byte| *byte == b'\n') {
                let line = line.strip_suffix(b"\n").unwrap_or(line);
                taken = type_line(dir, line.strip_suffix(b"\r").unwrap_or(line), true).await?;
            }
        }
        Sent::Keys(words) => taken = type_keys(dir, words).await?,
        Sent::Paste(path, may_control) => {
            let modes = key_modes(dir).await?;
            let text = paste(&read_all(path)?, modes, *may_control)?;
            taken = type_into(dir, Typing { text, ..Typing::default() }, AT_ONCE).await?;
        }
    }
    if request.json {
        print(&super::document(&taken)?)?;
    }
    Ok(Exit::Done)
}

/// Types keys, by their names. What comes behind Escape is another read of the app, to which both in one
/// may be a key with Alt.
pub(crate) async fn type_keys(dir: &AppDir, words: &[impl AsRef<str>]) -> Result<InputTaken> {
    let modes = key_modes(dir).await?;
    let (mut texts, mut text) = (Vec::new(), Vec::new());
    for word in words.iter().map(AsRef::as_ref) {
        let key = key_names::bytes(word, modes.unwrap_or_default());
        let key = key.map_err(|why| anyhow!("{}", why.escape_debug()))?;
        match &key[..] {
            b"\r" if modes.is_none() => text.push(b'\n'),
            [byte, ..] if modes.is_none() && byte.is_ascii_control() && *byte != b'\t' => {
                let (name, word) = (dir.name(), word.escape_debug());
                bail!(
                    "app {name} has no terminal, and so no key {word}; try iottymux send {name} LINE"
                )
            }
            b"\x1b" => {
                text.extend(key);
                texts.push(std::mem::take(&mut text));
            }
            _ => text.extend(key),
        }
    }
    if !text.is_empty() || texts.is_empty() {
        texts.push(text);
    }
    let mut taken = InputTaken::default();
    for text in texts {
        let typing = Typing { text, is_apart: true, ..Typing::default() };
        taken = type_into(dir, typing, AT_ONCE).await?;
    }
    Ok(taken)
}

/// Types a text, and its end if it is a line.
pub(crate) async fn type_line(dir: &AppDir, line: &[u8], is_line: bool) -> Result<InputTaken> {
    let text = line.to_vec();
    type_into(dir, Typing { text, is_line, is_apart: true, ..Typing::default() }, AT_ONCE).await
}

/// Types a line before everybody else's input, whoever types alone. Fails if the app has not taken it
/// until then.
pub(crate) fn type_first(dir: &AppDir, line: &str, until: std::time::Instant) -> Result<()> {
    let text = line.as_bytes().to_vec();
    let alone = Some(Exclusive::Take);
    let typing = Typing { text, is_line: true, is_apart: true, alone };
    let typed = async {
        match timeout_at(until.into(), type_into(dir, typing, NEXT_MUX)).await {
            Ok(taken) => taken.map(drop),
            Err(_) => bail!("app {} has not taken the line", dir.name()),
        }
    };
    block_on(typed)
}

async fn type_into(dir: &AppDir, typing: Typing, wait: MuxWait) -> Result<InputTaken> {
    let name = dir.name();
    let mut session = Session::open(dir, Hello::default(), None, Some(typing), wait).await?;
    let mut notice = Instant::now() + PATIENCE;
    let mut waits = String::new();
    loop {
        match timeout_at(notice, session.next()).await {
            Ok(Ok(SessionEvent::Taken(taken))) => return Ok(taken),
            Ok(Ok(SessionEvent::Waits(why))) => waits = format!("; {why}"),
            Ok(Ok(SessionEvent::Ended(status) | SessionEvent::Over(Some(status)))) => {
                bail!("app {name} ended {status} before it took the line");
            }
            Ok(Ok(SessionEvent::Over(None))) => bail!("app {name} did not take the line"),
            Ok(news) => drop(news?),
            Err(_) => {
                log::warn!(
                    "app {name} has not taken the line yet{waits}; waiting until it does (^C gives up)"
                );
                notice = super::until(None);
            }
        }
    }
}

/// What the app makes of keys, if it has a terminal.
async fn key_modes(dir: &AppDir) -> Result<Option<KeyModes>> {
    let (_, view) = view::open(dir, 0, AT_ONCE).await?;
    Ok(view.shown().map(|shown| shown.keys))
}

fn read_all(path: &Path) -> Result<Vec<u8>> {
    let mut text = Vec::new();
    let read = if path.as_os_str() == "-" {
        io::stdin()
            .lock()
            .take(PASTE + 1)
            .read_to_end(&mut text)
            .context("cannot read standard input")
    } else {
        let what = || format!("cannot read {}", path.display());
        let file = fs::File::open(path).with_context(what)?;
        file.take(PASTE + 1).read_to_end(&mut text).with_context(what)
    };
    if read? as u64 > PASTE {
        bail!("it has more than {PASTE} bytes");
    }
    Ok(text)
}

/// A text as a terminal pastes it: lines end with a return, and the app is told where it begins and ends
/// if it asked for that.
fn paste(text: &[u8], modes: Option<KeyModes>, may_control: bool) -> Result<Vec<u8>> {
    let is_control = |byte: &u8| byte.is_ascii_control() && !b"\t\r\n".contains(byte);
    if !may_control && let Some(at) = text.iter().position(is_control) {
        bail!("byte {at} of it is a control character; try --raw");
    }
    let Some(modes) = modes else { return Ok(text.to_vec()) };
    let before = std::iter::once(&0).chain(text);
    let text = text.iter().zip(before).filter_map(|pair| match pair {
        (b'\n', b'\r') => None,
        (b'\n', _) => Some(b'\r'),
        (byte, _) => Some(*byte),
    });
    let (begin, end): (&[u8], &[u8]) =
        if modes.bracketed_paste { (b"\x1b[200~", b"\x1b[201~") } else { (b"", b"") };
    Ok(begin.iter().copied().chain(text).chain(end.iter().copied()).collect())
}
