//! Docker's names of containers, as its daemon tells them.
//!
//! Docker is optional and never trusted: without an answer in time, or with a strange one, no
//! container has a name. Names are not escaped.

use std::env;
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use memchr::memmem;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, UnixAddr, connect, socket};
use serde_json::Value;

use crate::types::container_id::app;
use crate::types::limits;
use crate::types::name::{AppName, NAME_MAX};

/// The variable that names Docker's socket, and what it begins with if that is here.
const VARIABLE: &str = "DOCKER_HOST";
const HERE: &str = "unix://";
/// Where the socket is otherwise.
const SOCKET: &str = "/run/docker.sock";
/// The whole wait for Docker, which answers within milliseconds: the apps are there without it.
const PATIENCE: Duration = Duration::from_secs(1);
/// Bytes of an answer: 4 KB, which is much, for each of a thousand containers.
const MOST: usize = 4 * 1024 * 1024;
/// HTTP/1.0, whose answers are whole and end with the connection.
const QUESTION: &[u8] = b"GET /containers/json?all=1 HTTP/1.0\r\nHost: docker\r\n\r\n";
const YES: &[u8] = b"200";
const END_OF_HEAD: &[u8] = b"\r\n\r\n";

/// A container, as Docker lists it.
#[derive(Debug)]
pub(crate) struct Listed {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) is_running: bool,
}

/// The container with this name, or the only one whose name is read as this one: Docker's own
/// inventions, such as `quirky_turing`, are no names of apps. So it is not asked for one name.
pub(crate) fn called(name: &AppName) -> Option<Listed> {
    let mut found = listed();
    found.retain(|listed| app(&listed.name).as_ref() == Ok(name));
    let exact = found.iter().position(|listed| listed.name == name.as_str());
    let one = exact.or_else(|| (found.len() == 1).then_some(0))?;
    Some(found.swap_remove(one))
}

/// What Docker says; nothing if it does not.
pub(crate) fn listed() -> Vec<Listed> {
    let path = path();
    let answer = ask(&path).unwrap_or_else(|e| {
        log::debug!("cannot ask {}: {e}", path.display());
        Vec::new()
    });
    parse(&answer).unwrap_or_default()
}

fn path() -> PathBuf {
    let given = env::var(VARIABLE).unwrap_or_default();
    given.strip_prefix(HERE).unwrap_or(SOCKET).into()
}

/// The answer, or as much of it as is read.
fn ask(path: &Path) -> io::Result<Vec<u8>> {
    let until = Instant::now() + PATIENCE;
    let socket = socket(AddressFamily::Unix, SockType::Stream, SockFlag::SOCK_CLOEXEC, None)?;
    let mut socket = UnixStream::from(socket);
    // That also limits the connect, if its listen queue is full.
    socket.set_write_timeout(Some(PATIENCE))?;
    connect(socket.as_raw_fd(), &UnixAddr::new(path)?)?;
    socket.write_all(QUESTION)?;
    let mut answer = Vec::new();
    let mut piece = vec![0; limits::READ];
    while answer.len() < MOST {
        let left = until.saturating_duration_since(Instant::now());
        // If none is left, that is an error.
        socket.set_read_timeout(Some(left))?;
        match socket.read(&mut piece)? {
            0 => break,
            len => answer.extend_from_slice(&piece[..len]),
        }
    }
    Ok(answer)
}

/// The containers of a whole answer.
fn parse(answer: &[u8]) -> Option<Vec<Listed>> {
    let end = memmem::find(answer, END_OF_HEAD)?;
    let is_list = answer.split(|byte| *byte == b' ').nth(1) == Some(YES);
    let list = is_list.then(|| serde_json::from_slice(&answer[end + END_OF_HEAD.len()..]))?;
    let list: Value = list.inspect_err(|e| log::debug!("Docker: {e}")).ok()?;
    Some(list.as_array()?.iter().filter_map(container).collect())
}

/// Its names stand behind a slash each, and so does `OTHER/NAME`, by which another container calls it.
fn container(listed: &Value) -> Option<Listed> {
    let text = |key| listed.get(key)?.as_str();
    let names = listed.get("Names")?.as_array()?.iter();
    let mut names = names.filter_map(|name| name.as_str()?.strip_prefix('/'));
    let is_own = |name: &&str| !name.contains('/') && (1..=NAME_MAX).contains(&name.len());
    Some(Listed {
        name: names.find(is_own)?.to_owned(),
        id: text("Id")?.to_owned(),
        is_running: text("State") == Some("running"),
    })
}
