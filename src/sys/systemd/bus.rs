//! Questions to systemd over D-Bus: properties of a unit and of logind; and a scope for a process.
//!
//! `systemctl show` asks for all properties, and for some of them systemd looks at the unit files of
//! the machine: 20 ms of a processor at each start of a service. This asks for single ones.
//!
//! Format: the D-Bus specification, of which this speaks what these questions need: calls whose replies
//! are a value, all sent at once. Between the replies come signals, which systemd sends to each such
//! connection. All is parsed within limits, and never trusted.

use std::cell::Cell;
use std::fmt::Write as _;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::types::escape;

/// The most bytes of the replies to all questions: command lines and environments fit.
const MOST: usize = 4 * 1024 * 1024;
/// How long systemd may take: it answers between other work, and a busy machine is slow.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);
/// Values within values: systemd's have four at most.
const DEPTH: usize = 8;
/// Bytes of a message before its header fields.
const HEADER: usize = 16;
/// How messages say the order of their bytes.
const ORDER: u8 = if cfg!(target_endian = "little") { b'l' } else { b'B' };

/// Of a service systemd is asked for more properties than these by one question for all: it loads a unit
/// for which it has no other use anew for each. Those that all units have are not asked for so: for some
/// it looks at the unit files of the machine.
const FEW: usize = 3;
/// What a service has besides what all units have, and that.
const SERVICE: &str = "org.freedesktop.systemd1.Service";
const UNIT: &str = "org.freedesktop.systemd1.Unit";
/// Properties that all units have.
const OF_UNITS: [&str; 16] = [
    "ActiveState",
    "BindsTo",
    "BoundBy",
    "ConsistsOf",
    "DropInPaths",
    "FragmentPath",
    "Id",
    "Job",
    "LoadState",
    "Names",
    "RequiredBy",
    "Requires",
    "SubState",
    "Transient",
    "WantedBy",
    "Wants",
];

/// The system's bus, over which systemd answers all users.
const SYSTEM_BUS: &str = "/run/dbus/system_bus_socket";
/// The names of its ends there.
const SYSTEMD: &str = "org.freedesktop.systemd1";
const LOGIND: &str = "org.freedesktop.login1";
const BUS: &str = "org.freedesktop.DBus";
/// What has the properties of an object.
const PROPERTIES: &str = "org.freedesktop.DBus.Properties";
/// The object that is systemd itself, and its interface.
const MANAGER: (&str, &str) = ("/org/freedesktop/systemd1", "org.freedesktop.systemd1.Manager");
/// The serial number of the call that a bus expects first. Those of the questions follow.
const HELLO: u32 = 1;

/// Kinds of messages.
const CALL: u8 = 1;
const RETURN: u8 = 2;
const ERROR: u8 = 3;
/// Header fields.
const PATH: u8 = 1;
const INTERFACE: u8 = 2;
const MEMBER: u8 = 3;
const ERROR_NAME: u8 = 4;
const REPLY_SERIAL: u8 = 5;
const DESTINATION: u8 = 6;
const SIGNATURE: u8 = 8;

/// Errors that say no more than that a unit of its kind, or this systemd, has no such property.
const ABSENT: [&str; 2] =
    ["org.freedesktop.DBus.Error.UnknownProperty", "org.freedesktop.DBus.Error.UnknownInterface"];

/// The value of a property.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Value {
    Text(String),
    Number(i64),
    /// What an array or a structure has.
    Many(Vec<Value>),
}

impl Value {
    /// The value of this name in a dictionary.
    fn entry(&self, name: &str) -> Option<&Self> {
        let Self::Many(all) = self else { return None };
        all.iter().find_map(|entry| {
            let Self::Many(pair) = entry else { return None };
            let [Self::Text(key), value] = &pair[..] else { return None };
            (key == name).then_some(value)
        })
    }

    /// All texts in it.
    pub(crate) fn texts(&self) -> Vec<&str> {
        match self {
            Self::Text(text) => vec![text],
            Self::Number(_) => Vec::new(),
            Self::Many(all) => all.iter().flat_map(Self::texts).collect(),
        }
    }
}

/// The values of properties of a unit, by their names; without those that this systemd does not know.
#[derive(Clone, Debug, Default)]
pub(crate) struct Properties(Vec<(&'static str, Value)>);

impl FromIterator<(&'static str, Value)> for Properties {
    fn from_iter<I: IntoIterator<Item = (&'static str, Value)>>(all: I) -> Self {
        Self(all.into_iter().collect())
    }
}

impl Properties {
    fn get(&self, name: &str) -> Option<&Value> {
        self.0.iter().find(|(other, _)| *other == name).map(|(_, value)| value)
    }

    /// The value of a property that is a text; empty if it has none.
    pub(crate) fn text(&self, name: &str) -> &str {
        match self.get(name) {
            Some(Value::Text(text)) => text,
            _ => "",
        }
    }

    /// The value of a property that is a number or a flag.
    pub(crate) fn number(&self, name: &str) -> Option<i64> {
        match self.get(name) {
            Some(Value::Number(number)) => Some(*number),
            _ => None,
        }
    }

    /// All texts in the value of a property.
    pub(crate) fn texts(&self, name: &str) -> Vec<&str> {
        self.get(name).map_or_else(Vec::new, Value::texts)
    }

    /// The path of the program of the first command in a property such as `ExecStart`.
    pub(crate) fn program(&self, name: &str) -> &str {
        self.texts(name).first().copied().unwrap_or_default()
    }
}

/// Where systemd is asked.
#[derive(Clone, Debug)]
pub(crate) enum Bus {
    /// A socket of its own, for root or for the user of a user manager.
    Private(PathBuf),
    /// The system's bus.
    System,
    /// logind, on the system's bus.
    Logind,
}

/// What logind does with the processes of a login that ends.
pub(crate) fn of_logind(names: &[&'static str], patience: Duration) -> Result<Properties> {
    let (object, interface) = ("/org/freedesktop/login1", "org.freedesktop.login1.Manager");
    let calls = names.iter().map(|name| BusCall::get(object, interface, name)).collect();
    let values = Bus::Logind.ask(calls, patience).context("cannot ask logind")?;
    Ok(names.iter().zip(values).filter_map(|(name, value)| Some((*name, value?))).collect())
}

impl Bus {
    pub(crate) fn path(&self) -> &Path {
        match self {
            Self::Private(path) => path,
            Self::System | Self::Logind => Path::new(SYSTEM_BUS),
        }
    }

    /// Asks for the values of properties of a unit.
    pub(crate) fn properties(
        &self,
        unit: &str,
        names: &[&'static str],
        patience: Duration,
    ) -> Result<Properties> {
        let object = object(unit);
        let asks_all = names.iter().filter(|name| !OF_UNITS.contains(name)).count() > FEW;
        let (single, others): (Vec<&str>, Vec<&str>) =
            names.iter().partition(|name| !asks_all || OF_UNITS.contains(name));
        let interface = |name: &&str| if OF_UNITS.contains(name) { UNIT } else { SERVICE };
        let mut calls: Vec<BusCall> =
            single.iter().map(|name| BusCall::get(&object, interface(name), name)).collect();
        if asks_all {
            calls.push(BusCall::with_texts([&object, PROPERTIES, "GetAll"], &[SERVICE]));
        }
        let mut values = self.ask(calls, patience).with_context(|| self.what(unit))?;
        let all = values.split_off(single.len()).pop().flatten();
        let of_all = |name| Some((name, all.as_ref()?.entry(name)?.clone()));
        let found = single.into_iter().zip(values).filter_map(|(name, value)| Some((name, value?)));
        Ok(found.chain(others.into_iter().filter_map(of_all)).collect())
    }

    /// Has systemd move this process to a new scope in this slice. It answers before it has done that.
    pub(crate) fn start_scope(
        &self,
        scope: &str,
        description: &str,
        slice: Option<&str>,
        patience: Duration,
    ) -> Result<()> {
        let (object, interface) = MANAGER;
        let mut body = Writer::default();
        body.text(scope);
        // Another job for this name is an error.
        body.text("fail");
        body.array(|all| {
            all.property("Description", "s", |value| value.text(description));
            // When it has ended it is forgotten, also if systemd counts that as a failure.
            all.property("CollectMode", "s", |value| value.text("inactive-or-failed"));
            if let Some(slice) = slice {
                all.property("Slice", "s", |value| value.text(slice));
            }
            all.property("PIDs", "au", |value| {
                value.number(size_of::<u32>());
                // The sender: its number is another one in a PID namespace.
                value.number(0);
            });
        });
        // No other units.
        body.array(|_| {});
        let method = [object, interface, "StartTransientUnit"];
        let call = BusCall { method, signature: "ssa(sv)a(sa(sv))".into(), body: body.0 };
        self.ask(vec![call], patience).with_context(|| self.what(scope)).map(drop)
    }

    fn what(&self, about: &str) -> String {
        format!("cannot ask systemd about {}: {}", escape::line(about), self.path().display())
    }

    /// Calls all of these methods at once. Returns the replies in their order.
    fn ask(&self, calls: Vec<BusCall>, patience: Duration) -> Result<Vec<Option<Value>>> {
        let until = Instant::now() + patience;
        let (mut bytes, destination) = match self {
            Self::Private(_) => (Vec::new(), None),
            Self::System | Self::Logind => {
                let hello = BusCall::with_texts(["/org/freedesktop/DBus", BUS, "Hello"], &[]);
                let of = if matches!(self, Self::Logind) { LOGIND } else { SYSTEMD };
                (hello.message(HELLO, Some(BUS)), Some(of))
            }
        };
        let count = calls.len();
        for (serial, call) in (HELLO + 1..).zip(calls) {
            bytes.extend(call.message(serial, destination));
        }
        let mut conversation = match KEPT.take().filter(|kept| kept.of == *self.path()) {
            Some(kept) => Conversation { until, ..kept },
            None => Conversation::begin(self.path(), until)?,
        };
        conversation.socket.write_all(&bytes)?;
        let replies = conversation.replies(count)?;
        if KEEPS.get() && matches!(self, Self::Private(_)) {
            KEPT.set(Some(conversation));
        }
        Ok(replies)
    }
}

thread_local! {
    /// Whether the last connection is kept for the next question, and that.
    static KEEPS: Cell<bool> = const { Cell::new(false) };
    static KEPT: Cell<Option<Conversation>> = const { Cell::new(None) };
}

/// From now on this thread asks systemd by one connection: each new one costs systemd a millisecond of
/// processor time. It ends with the process, which must be soon: systemd sends it signals all the time.
pub(crate) fn keep_connection() {
    KEEPS.set(true);
}

/// Ends the connection that is kept, before something that takes long.
pub(super) fn end_connection() {
    KEPT.set(None);
}

/// The path of a unit's object: what is no letter or digit is in hexadecimal.
fn object(unit: &str) -> String {
    let mut path = "/org/freedesktop/systemd1/unit/".to_owned();
    for (at, byte) in unit.bytes().enumerate() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' => path.push(byte.into()),
            b'0'..=b'9' if at > 0 => path.push(byte.into()),
            _ => drop(write!(path, "_{byte:02x}")),
        }
    }
    path
}

/// A call of a method, which has an object, an interface and a name.
struct BusCall<'a> {
    method: [&'a str; 3],
    /// The types of the arguments.
    signature: String,
    /// The arguments.
    body: Vec<u8>,
}

impl<'a> BusCall<'a> {
    fn with_texts(method: [&'a str; 3], texts: &[&str]) -> Self {
        let mut body = Writer::default();
        for text in texts {
            body.text(text);
        }
        Self { method, signature: "s".repeat(texts.len()), body: body.0 }
    }

    /// The question for a property of an object.
    fn get(object: &'a str, interface: &str, name: &str) -> Self {
        Self::with_texts([object, PROPERTIES, "Get"], &[interface, name])
    }

    fn message(&self, serial: u32, destination: Option<&str>) -> Vec<u8> {
        let mut fields = Writer::default();
        let [path, interface, member] = self.method;
        let named = [(PATH, "o", path), (INTERFACE, "s", interface), (MEMBER, "s", member)];
        for (code, kind, value) in
            named.into_iter().chain(destination.map(|to| (DESTINATION, "s", to)))
        {
            fields.align(8);
            fields.0.push(code);
            fields.signature(kind);
            fields.text(value);
        }
        if !self.signature.is_empty() {
            fields.align(8);
            fields.0.push(SIGNATURE);
            fields.signature("g");
            fields.signature(&self.signature);
        }
        let mut all = Writer(vec![ORDER, CALL, 0, 1]);
        all.number(self.body.len());
        all.0.extend(serial.to_ne_bytes());
        all.number(fields.0.len());
        all.0.extend(fields.0);
        all.align(8);
        all.0.extend(&self.body);
        all.0
    }
}

/// Bytes of a message. They begin at a multiple of eight bytes of it.
#[derive(Default)]
struct Writer(Vec<u8>);

impl Writer {
    fn align(&mut self, to: usize) {
        self.0.resize(self.0.len().next_multiple_of(to), 0);
    }

    fn number(&mut self, number: usize) {
        self.align(4);
        let number = u32::try_from(number).unwrap_or(u32::MAX);
        self.0.extend(number.to_ne_bytes());
    }

    fn text(&mut self, text: &str) {
        self.number(text.len());
        self.0.extend(text.as_bytes());
        self.0.push(0);
    }

    fn signature(&mut self, text: &str) {
        self.0.push(u8::try_from(text.len()).unwrap_or(u8::MAX));
        self.0.extend(text.as_bytes());
        self.0.push(0);
    }

    /// An array of structures.
    fn array(&mut self, elements: impl FnOnce(&mut Self)) {
        self.number(0);
        let len_at = self.0.len() - size_of::<u32>();
        self.align(8);
        let from = self.0.len();
        elements(self);
        let len = u32::try_from(self.0.len() - from).unwrap_or(u32::MAX);
        self.0[len_at..len_at + size_of::<u32>()].copy_from_slice(&len.to_ne_bytes());
    }

    /// An element of an array of properties.
    fn property(&mut self, name: &str, signature: &str, value: impl FnOnce(&mut Self)) {
        self.align(8);
        self.text(name);
        self.signature(signature);
        value(self);
    }
}

/// A connection whose replies are awaited.
struct Conversation {
    /// The path of its socket.
    of: PathBuf,
    socket: UnixStream,
    /// What has come and is not parsed.
    buffer: Vec<u8>,
    /// When all replies must have come.
    until: Instant,
}

impl Conversation {
    fn begin(path: &Path, until: Instant) -> Result<Self> {
        let mut socket = UnixStream::connect(path)?;
        socket.write_all(b"\0AUTH EXTERNAL\r\nDATA\r\nBEGIN\r\n")?;
        let mut begun = Self { of: path.to_owned(), socket, buffer: Vec::new(), until };
        // systemd may overlook a call that comes together with the authentication, until the next one.
        begun.authenticated()?;
        Ok(begun)
    }

    fn authenticated(&mut self) -> Result<()> {
        // One line to AUTH, one to DATA.
        while !self.line()?.starts_with("OK ") {}
        Ok(())
    }

    /// The replies to the calls behind [`HELLO`], in their order.
    fn replies(&mut self, count: usize) -> Result<Vec<Option<Value>>> {
        let mut found: Vec<Option<Reply>> = (0..count).map(|_| None).collect();
        while found.iter().any(Option::is_none) {
            let Some(len) = message_len(&self.buffer)? else {
                self.more()?;
                continue;
            };
            while self.buffer.len() < len {
                self.more()?;
            }
            if let Some((serial, reply)) = parse(&self.buffer[..len])?
                && let Some(place) =
                    serial.checked_sub(HELLO + 1).and_then(|at| usize::try_from(at).ok())
                && let Some(place) = found.get_mut(place)
            {
                *place = Some(reply);
            }
            self.buffer.drain(..len);
        }
        found.into_iter().flatten().map(Reply::value).collect()
    }

    fn more(&mut self) -> Result<()> {
        let mut bytes = [0; 16 * 1024];
        let left = self.until.saturating_duration_since(Instant::now());
        // Also of one that goes on answering other things.
        let read = if left.is_zero() {
            Err(ErrorKind::WouldBlock.into())
        } else {
            self.socket.set_read_timeout(Some(left))?;
            self.socket.read(&mut bytes)
        };
        let len = match read {
            Err(e) if e.kind() == ErrorKind::WouldBlock => {
                bail!("systemd has not answered in time")
            }
            len => len?,
        };
        if len == 0 {
            bail!("systemd ended the connection");
        }
        if self.buffer.len() + len > MOST {
            bail!("systemd answers with more than {MOST} bytes");
        }
        self.buffer.extend_from_slice(&bytes[..len]);
        Ok(())
    }

    /// The next line of the authentication.
    fn line(&mut self) -> Result<String> {
        loop {
            if let Some(len) = self.buffer.windows(2).position(|end| end == b"\r\n") {
                let line: Vec<u8> = self.buffer.drain(..len + 2).take(len).collect();
                let line = String::from_utf8_lossy(&line).into_owned();
                if line.starts_with("REJECTED") || line.starts_with("ERROR") {
                    bail!("systemd refuses this user ({})", escape::line(&line));
                }
                return Ok(line);
            }
            self.more()?;
        }
    }
}

/// What came back for a call.
enum Reply {
    Value(Value),
    /// The name of an error, and what it says.
    Error(String, String),
}

impl Reply {
    fn value(self) -> Result<Option<Value>> {
        match self {
            Self::Value(value) => Ok(Some(value)),
            Self::Error(name, _) if ABSENT.contains(&name.as_str()) => Ok(None),
            Self::Error(name, said) => bail!("{}: {}", escape::line(&name), escape::line(&said)),
        }
    }
}

/// The length of the message that begins here, once its header is there.
fn message_len(bytes: &[u8]) -> Result<Option<usize>> {
    if bytes.len() < HEADER {
        return Ok(None);
    }
    if bytes[0] != ORDER {
        bail!("a message of systemd in another order of bytes");
    }
    let mut reader = MessageReader { bytes, at: 4 };
    let body = reader.len()?;
    reader.take(4)?;
    let fields = reader.len()?;
    let len = (HEADER + fields).next_multiple_of(8) + body;
    if len > MOST {
        bail!("a message of systemd with {len} bytes");
    }
    Ok(Some(len))
}

/// A whole message: which call it replies to, and the reply. `None` for what is no reply.
fn parse(message: &[u8]) -> Result<Option<(u32, Reply)>> {
    let mut reader = MessageReader { bytes: message, at: HEADER - 4 };
    let end = HEADER + reader.len()?;
    let (mut serial, mut error, mut signature) = (None, None, String::new());
    while reader.at < end {
        reader.align(8)?;
        let code = reader.take(1)?[0];
        let kind = reader.signature()?;
        match (code, reader.one(kind.as_bytes(), DEPTH)?.0) {
            (REPLY_SERIAL, Value::Number(number)) => serial = u32::try_from(number).ok(),
            (ERROR_NAME, Value::Text(name)) => error = Some(name),
            (SIGNATURE, Value::Text(text)) => signature = text,
            _ => {}
        }
    }
    reader.align(8)?;
    let Some(serial) = serial else { return Ok(None) };
    let kind = message.get(1).copied();
    Ok(match (kind, error) {
        // The bus tells a name, which nobody needs.
        (Some(RETURN), _) if serial == HELLO => None,
        (Some(RETURN), _) if ["v", "o", "a{sv}"].contains(&&*signature) => {
            Some((serial, Reply::Value(reader.one(signature.as_bytes(), DEPTH)?.0)))
        }
        (Some(ERROR), Some(name)) => {
            let said = match signature.as_str() {
                "s" => reader.text()?,
                _ => String::new(),
            };
            Some((serial, Reply::Error(name, said)))
        }
        _ => bail!("a reply of systemd with the signature \"{}\"", escape::line(&signature)),
    })
}

/// Parses a message.
struct MessageReader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> MessageReader<'a> {
    fn take(&mut self, len: usize) -> Result<&'a [u8]> {
        let end = self.at.checked_add(len).context("a length of systemd")?;
        let bytes = self.bytes.get(self.at..end).context("a message of systemd ends too early")?;
        self.at = end;
        Ok(bytes)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        self.align(N)?;
        Ok(self.take(N)?.try_into()?)
    }

    fn align(&mut self, to: usize) -> Result<()> {
        self.take(self.at.next_multiple_of(to) - self.at).map(drop)
    }

    fn len(&mut self) -> Result<usize> {
        Ok(u32::from_ne_bytes(self.array()?).try_into()?)
    }

    fn characters(&mut self, len: usize) -> Result<String> {
        let text = String::from_utf8_lossy(self.take(len)?).into_owned();
        self.take(1)?;
        Ok(text)
    }

    fn text(&mut self) -> Result<String> {
        let len = self.len()?;
        self.characters(len)
    }

    fn signature(&mut self) -> Result<String> {
        let len = self.take(1)?[0];
        self.characters(len.into())
    }

    /// The value of the first type of a signature, and the rest of that.
    fn one<'s>(&mut self, signature: &'s [u8], depth: usize) -> Result<(Value, &'s [u8])> {
        let (first, rest) = signature.split_first().context("a signature of systemd ends early")?;
        let depth = depth.checked_sub(1).context("a value of systemd has too many levels")?;
        let number = Value::Number;
        let value = match first {
            b's' | b'o' => Value::Text(self.text()?),
            b'g' => Value::Text(self.signature()?),
            b'y' => number(self.take(1)?[0].into()),
            b'n' => number(i16::from_ne_bytes(self.array()?).into()),
            b'q' => number(u16::from_ne_bytes(self.array()?).into()),
            b'i' => number(i32::from_ne_bytes(self.array()?).into()),
            b'b' | b'u' | b'h' => number(u32::from_ne_bytes(self.array()?).into()),
            b'x' | b'd' => number(i64::from_ne_bytes(self.array()?)),
            // Times that never come are the largest number.
            b't' => number(i64::try_from(u64::from_ne_bytes(self.array()?)).unwrap_or(i64::MAX)),
            b'v' => {
                let signature = self.signature()?;
                self.one(signature.as_bytes(), depth)?.0
            }
            b'(' | b'{' => {
                self.align(8)?;
                let (mut all, mut rest) = (Vec::new(), rest);
                while !matches!(rest.first(), Some(b')' | b'}')) {
                    let (value, behind) = self.one(rest, depth)?;
                    all.push(value);
                    rest = behind;
                }
                return Ok((Value::Many(all), &rest[1..]));
            }
            b'a' => {
                let len = self.len()?;
                let (element, rest) = rest.split_at(type_len(rest, DEPTH)?);
                self.align(alignment(element))?;
                let end = self.at.checked_add(len).context("a length of systemd")?;
                let mut all = Vec::new();
                while self.at < end {
                    let before = self.at;
                    all.push(self.one(element, depth)?.0);
                    if self.at == before {
                        bail!("an array of nothing from systemd");
                    }
                }
                return Ok((Value::Many(all), rest));
            }
            _ => bail!("a type of systemd: {:?}", char::from(*first)),
        };
        Ok((value, rest))
    }
}

/// The length of the first type of a signature.
fn type_len(signature: &[u8], depth: usize) -> Result<usize> {
    let depth = depth.checked_sub(1).context("a type of systemd has too many levels")?;
    match signature.first().context("a signature of systemd ends early")? {
        b'a' => Ok(1 + type_len(&signature[1..], depth)?),
        b'(' | b'{' => {
            let mut len = 1;
            while !matches!(signature.get(len), Some(b')' | b'}')) {
                len += type_len(&signature[len..], depth)?;
            }
            Ok(len + 1)
        }
        _ => Ok(1),
    }
}

fn alignment(signature: &[u8]) -> usize {
    match signature.first() {
        Some(b'(' | b'{' | b'x' | b't' | b'd') => 8,
        Some(b'n' | b'q') => 2,
        Some(b'y' | b'g' | b'v') => 1,
        _ => 4,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn message(kind: u8, fields: &[(u8, &str, &[u8])], body: &[u8]) -> Vec<u8> {
        let mut all = Writer::default();
        for (code, kind, value) in fields {
            all.align(8);
            all.0.push(*code);
            all.signature(kind);
            all.align(alignment(kind.as_bytes()));
            all.0.extend(*value);
        }
        let mut out = Writer(vec![ORDER, kind, 1, 1]);
        out.number(body.len());
        out.number(7);
        out.number(all.0.len());
        out.0.extend(all.0);
        out.align(8);
        out.0.extend(body);
        out.0
    }

    fn reply(signature: &str, value: &[u8]) -> Vec<u8> {
        let mut body = Writer::default();
        body.signature(signature);
        body.align(alignment(signature.as_bytes()));
        body.0.extend(value);
        let serial = 3_u32.to_ne_bytes();
        message(RETURN, &[(REPLY_SERIAL, "u", &serial), (SIGNATURE, "g", b"\x01v\0")], &body.0)
    }

    fn text(text: &str) -> Value {
        Value::Text(text.into())
    }

    #[test]
    fn one_that_never_comes_to_the_answer_is_given_up() {
        let (socket, mut peer) = UnixStream::pair().unwrap();
        let talks = std::thread::spawn(move || while peer.write_all(b"NO\r\n").is_ok() {});
        let until = Instant::now() + Duration::from_millis(100);
        let of = PathBuf::new();
        let mut conversation = Conversation { of, socket, buffer: Vec::new(), until };
        let why = conversation.authenticated().unwrap_err().to_string();
        assert_eq!(why, "systemd has not answered in time");
        drop(conversation);
        talks.join().unwrap();
    }

    #[test]
    fn names_of_units_are_paths() {
        for (unit, name) in
            [("demo.service", "demo_2eservice"), ("9@a-b.service", "_39_40a_2db_2eservice")]
        {
            assert_eq!(object(unit), format!("/org/freedesktop/systemd1/unit/{name}"));
        }
    }

    #[test]
    #[cfg(target_endian = "little")]
    fn a_call_in_bytes() {
        let path = object("a.service");
        let get = [&*path, "org.freedesktop.DBus.Properties", "Get"];
        let call = BusCall::with_texts(get, &[SERVICE, "Type"]).message(2, None);
        assert_eq!(call.len() % 8, 1, "the body is last, and has no padding");
        assert_eq!(&call[..16], b"l\x01\0\x01\x31\0\0\0\x02\0\0\0\x78\0\0\0");
        assert_eq!(&call[16..24], b"\x01\x01o\0\x2a\0\0\0");
        assert_eq!(message_len(&call).unwrap(), Some(call.len()));
    }

    #[test]
    fn values_of_properties() {
        let mut pair = Writer::default();
        pair.number(0);
        pair.align(8);
        let from = pair.0.len();
        pair.text("/srv/a b");
        pair.number(1);
        let len = u32::try_from(pair.0.len() - from).unwrap().to_ne_bytes();
        pair.0[..4].copy_from_slice(&len);
        for (signature, bytes, value) in [
            ("u", 12_u32.to_ne_bytes().to_vec(), Value::Number(12)),
            ("i", (-1_i32).to_ne_bytes().to_vec(), Value::Number(-1)),
            ("t", u64::MAX.to_ne_bytes().to_vec(), Value::Number(i64::MAX)),
            ("s", b"\x02\0\0\0hi\0".to_vec(), text("hi")),
            ("as", vec![0; 4], Value::Many(Vec::new())),
            (
                "a(sb)",
                pair.0,
                Value::Many(vec![Value::Many(vec![text("/srv/a b"), Value::Number(1)])]),
            ),
        ] {
            let bytes = reply(signature, &bytes);
            assert_eq!(message_len(&bytes).unwrap(), Some(bytes.len()), "{signature}");
            let Some((3, Reply::Value(found))) = parse(&bytes).unwrap() else {
                panic!("{signature}")
            };
            assert_eq!(found, value, "{signature}");
        }
    }

    #[test]
    fn what_is_not_there_is_no_error() {
        let serial = 1_u32.to_ne_bytes();
        let mut said = Writer::default();
        said.text("no such thing");
        for (name, is_known) in
            [(ABSENT[0], true), ("org.freedesktop.DBus.Error.AccessDenied", false)]
        {
            let mut error = Writer::default();
            error.text(name);
            let fields = [
                (ERROR_NAME, "s", &error.0[..]),
                (REPLY_SERIAL, "u", &serial),
                (SIGNATURE, "g", b"\x01s\0"),
            ];
            let Some((1, reply)) = parse(&message(ERROR, &fields, &said.0)).unwrap() else {
                panic!("{name}")
            };
            assert_eq!(reply.value().is_ok(), is_known, "{name}");
        }
    }

    proptest! {
        #[test]
        fn damaged_messages_are_errors(
            signature in "[sogynqiubxtdva(){}]{0,20}", at in 0_usize..200, byte: u8,
            value in prop::collection::vec(any::<u8>(), 0..80),
        ) {
            let mut bytes = reply(&signature, &value);
            let at = at % bytes.len();
            bytes[at] = byte;
            if let Ok(Some(len)) = message_len(&bytes) {
                prop_assert!(len <= MOST, "{len}");
                let _ = parse(&bytes[..len.min(bytes.len())]);
            }
        }
    }
}
