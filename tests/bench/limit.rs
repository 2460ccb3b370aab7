//! Programs that do the least that a mux can do: what they reach is the limit of the machine.
//!
//! One client that stalls would stall the app and all others. They show a speed, and are no way to
//! build a mux.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, SpliceFFlags, fcntl, splice, tee};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{setsockopt, sockopt};
use nix::unistd::{pipe, read};

/// Size of each pipe, bytes: what an ordinary user may have.
const PIPE: i32 = 1024 * 1024;
/// Bytes of one read.
const READ: usize = 64 * 1024;

/// From a FIFO to this many clients at a socket. `wide` is the size of their send buffers, bytes;
/// 0 for the system's.
pub fn run(kind: &str, fifo: &str, socket: &str, clients: usize, wide: usize) {
    // With both ends it never sees an end, and is killed.
    let source = File::options().read(true).write(true).open(fifo).unwrap();
    enlarge(&source);
    let listener = UnixListener::bind(socket).unwrap();
    let accept = |_| {
        let (client, _) = listener.accept().unwrap();
        if wide > 0 {
            // The kernel doubles it.
            setsockopt(&client, sockopt::SndBuf, &(wide / 2)).unwrap();
        }
        client
    };
    let clients: Vec<UnixStream> = (0..clients).map(accept).collect();
    match kind {
        "tee" => tee_all(&source, &clients),
        _ => copy_all(source, clients),
    }
}

fn enlarge(pipe: impl AsFd) {
    fcntl(pipe, FcntlArg::F_SETPIPE_SZ(PIPE)).unwrap();
}

fn copy_all(mut source: File, mut clients: Vec<UnixStream>) {
    let mut buffer = vec![0; READ];
    loop {
        let len = source.read(&mut buffer).unwrap();
        for client in &mut clients {
            client.write_all(&buffer[..len]).unwrap();
        }
    }
}

/// The pages of the source go to the pipe of each client, and from there to its socket.
fn tee_all(source: &File, clients: &[UnixStream]) {
    let Some((_, others)) = clients.split_last() else {
        let null = File::options().write(true).open("/dev/null").unwrap();
        loop {
            moved(source, &null, PIPE.cast_unsigned() as usize);
        }
    };
    let pipes: Vec<(OwnedFd, OwnedFd)> = others.iter().map(|_| pipe().unwrap()).collect();
    for (_, end) in &pipes {
        enlarge(end);
    }
    for client in clients {
        client.set_nonblocking(true).unwrap();
    }
    let from: Vec<BorrowedFd<'_>> =
        pipes.iter().map(|(from, _)| from.as_fd()).chain([source.as_fd()]).collect();
    loop {
        let mut len = PIPE.cast_unsigned() as usize;
        for (_, to) in &pipes {
            // All get as much as the first: their pipes are empty, and as large.
            len = tee(source, to, len, SpliceFFlags::empty()).unwrap();
        }
        let mut left: Vec<_> = from.iter().zip(clients).map(|(from, to)| (from, to, len)).collect();
        // All clients read at the same time, but none is a whole pipe ahead of another.
        while !left.is_empty() {
            let mut is_stuck = true;
            for (from, to, len) in &mut left {
                match splice(*from, None, *to, None, *len, SpliceFFlags::empty()) {
                    Ok(moved) => (*len, is_stuck) = (*len - moved, false),
                    Err(e) => assert_eq!(e, Errno::EAGAIN),
                }
            }
            left.retain(|(_, _, len)| *len > 0);
            if is_stuck {
                let sockets = left.iter().map(|(_, to, _)| to.as_fd());
                let mut sockets: Vec<_> =
                    sockets.map(|to| PollFd::new(to, PollFlags::POLLOUT)).collect();
                poll(&mut sockets, PollTimeout::NONE).unwrap();
            }
        }
    }
}

fn moved(from: impl AsFd, to: impl AsFd, len: usize) -> usize {
    splice(from, None, to, None, len, SpliceFFlags::empty()).unwrap()
}

/// From a socket to standard output, which is a pipe.
pub fn pass(socket: &str) {
    let socket = UnixStream::connect(socket).unwrap();
    let out = io::stdout();
    // A splice(2) that waits for the socket holds the lock of the pipe, and stops its reader.
    socket.set_nonblocking(true).unwrap();
    loop {
        poll(&mut [PollFd::new(socket.as_fd(), PollFlags::POLLIN)], PollTimeout::NONE).unwrap();
        match splice(
            &socket,
            None,
            &out,
            None,
            PIPE.cast_unsigned() as usize,
            SpliceFFlags::empty(),
        ) {
            Ok(0) => return,
            Ok(_) | Err(Errno::EAGAIN) => {}
            Err(e) => panic!("splice: {e}"),
        }
    }
}

/// Reads a terminal, and forgets it.
pub fn forget(master: impl AsFd) {
    let mut buffer = vec![0; READ];
    // Without its app, the terminal ends with an error.
    while read(&master, &mut buffer).is_ok_and(|len| len > 0) {}
}
