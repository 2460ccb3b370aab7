//! `tty --console-socket`: the terminal that a container runtime sends, and what is sent instead.

use std::fs::{self, File};
use std::io::{IoSlice, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{FileTypeExt, PermissionsExt, chown};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use nix::sys::signal::Signal;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use rustix::termios::tcgetwinsize;

use crate::pair::pair;
use crate::proc::{Proc, eventually};
use crate::pty::Pty;
use crate::rig::{APP, Rig, expect};
use crate::skip::skip;
use crate::users::{as_user, shared_rig};

/// What runc sends beside the descriptor.
const RUNC: &[u8] = b"/dev/ptmx";

fn socket(rig: &Rig) -> PathBuf {
    rig.file("console.sock")
}

fn arguments(rig: &Rig) -> [String; 5] {
    let socket = socket(rig).to_str().unwrap().to_owned();
    ["tty".into(), "--app".into(), APP.into(), "--console-socket".into(), socket]
}

/// A mux that waits for a console.
fn mux(rig: &Rig) -> Proc {
    rig.mux(arguments(rig))
}

/// As [`mux`], after these words of a shell.
fn mux_after(rig: &Rig, words: &str) -> Proc {
    let inner = rig.command(arguments(rig));
    let mut command = Command::new("sh");
    command.args(["-c", &format!("{words}; exec \"$@\""), "sh"]);
    command.arg(inner.get_program()).args(inner.get_args());
    command.env("IOTTYMUX_STATE_DIR", rig.state()).stderr(Stdio::piped());
    rig.start(command)
}

/// Sends a message, as a runtime does.
fn send(rig: &Rig, payload: &[u8], fds: &[BorrowedFd<'_>]) -> UnixStream {
    let stream = UnixStream::connect(socket(rig)).unwrap();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() {
        assert!(control.push(SendAncillaryMessage::ScmRights(fds)));
    }
    sendmsg(&stream, &[IoSlice::new(payload)], &mut control, SendFlags::empty()).unwrap();
    stream
}

/// A console is sent and works: the mux has it, and the socket is gone.
fn assert_taken(rig: &Rig, mux: &Proc, payload: &[u8]) -> File {
    let (master, slave) = pair();
    drop(send(rig, payload, &[master.as_fd()]));
    mux.stderr.wait_for("its console has come");
    assert!(!socket(rig).exists());
    slave
}

#[test]
fn a_console_that_comes_is_the_apps_terminal() {
    for payload in [RUNC, b" ", b"\x1b[2J\n\xff"] {
        let rig = Rig::new();
        // The socket's mode does not depend on the umask, for a moment either.
        let mut mux = mux_after(&rig, "umask 0");
        let file = fs::symlink_metadata(socket(&rig)).unwrap();
        assert!(file.file_type().is_socket());
        assert_eq!(file.permissions().mode() & 0o777, 0o600);
        // A client that comes first types, and decides the size.
        let local = Pty::open(33, 99);
        let mut attach = local.spawn(rig.command(["attach", "--app", APP]));
        mux.stderr.wait_for("attached to tty");
        local.press(b"early\r");
        eventually("the size is decided", || {
            rig.status()["clients"][0]["types"] == true && local.is_raw()
        });
        let mut slave = assert_taken(&rig, &mux, payload);
        eventually("the terminal has a size", || tcgetwinsize(&slave).unwrap().ws_row == 33);
        expect(&slave, "early\n");
        local.shown.wait_for("early");
        slave.write_all(b"hello\n").unwrap();
        local.shown.wait_for("hello");
        // No service has started it.
        assert_eq!(rig.status()["service"], serde_json::Value::Null);
        let mut stop = rig.run(&["stop", APP]);
        assert_eq!(stop.ends(), 1);
        assert!(stop.stderr.text().contains("it is a container, which its runtime stops"));
        local.resize(40, 120);
        eventually("the size follows", || tcgetwinsize(&slave).unwrap().ws_col == 120);
        // The last bytes are read before the end.
        slave.write_all(b"last words\n").unwrap();
        drop(slave);
        assert_eq!(mux.ends(), 0);
        assert_eq!(attach.ends(), 0);
        local.shown.wait_for("last words");
        local.shown.wait_for("app demo has ended; its exit status is unknown");
        assert!(local.is_as_before());
        let last = fs::read_to_string(rig.path("last.json")).unwrap();
        assert!(last.contains("last words"), "{last}");
        assert!(!rig.exists("endpoints") && !socket(&rig).exists());
    }
}

/// As systemd starts it: the service may start another container.
#[test]
fn the_mux_of_a_unit_waits_for_the_next_console() {
    let rig = Rig::new();
    let mut mux = mux_after(&rig, "export SYSTEMD_EXEC_PID=$$ INVOCATION_ID=0123");
    let mut client = rig.client("tty");
    let mut typed = "early\n".to_owned();
    let come = || mux.stderr.so_far().matches("its console has come").count();
    let mut last: Option<File> = None;
    for n in 0..3 {
        let types = || (&client).write_all(typed.as_bytes()).unwrap();
        let is_first = last.is_none();
        if is_first {
            types();
        }
        let (master, mut slave) = pair();
        // The end of the one before may not be read yet.
        drop(send(&rig, RUNC, &[master.as_fd()]));
        drop((master, last.take()));
        eventually("it has come", || come() == n + 1);
        if !is_first {
            types();
        }
        expect(&slave, &typed);
        let line = format!("container {n}\n");
        slave.write_all(line.as_bytes()).unwrap();
        expect(&mut client, &format!("{typed}{line}").replace('\n', "\r\n"));
        typed = format!("again {n}\n");
        last = Some(slave);
    }
    drop(last);
    assert!(mux.runs());
    mux.signal(Signal::SIGTERM);
    assert_eq!(mux.ends(), 0);
    assert!(!socket(&rig).exists() && !rig.exists("endpoints"));
    let last = fs::read_to_string(rig.path("last.json")).unwrap();
    assert!(last.contains("container 2"), "{last}");
}

/// The size is set before anything is read, also without a client.
#[test]
fn a_console_has_its_size_before_it_is_read() {
    let rig = Rig::new();
    let mux = rig.mux(arguments(&rig).iter().map(String::as_str).chain(["--size", "50x132"]));
    let slave = assert_taken(&rig, &mux, RUNC);
    let size = tcgetwinsize(&slave).unwrap();
    assert_eq!((size.ws_row, size.ws_col), (50, 132));
}

#[test]
fn what_is_no_console_is_refused_and_the_wait_goes_on() {
    let rig = Rig::new();
    let mux = mux(&rig);
    let (master, slave) = pair();
    let file = File::open("/dev/null").unwrap();
    let regular = File::create(rig.file("regular")).unwrap();
    let not_a_master = "it sent a descriptor that is not the master of a terminal";
    let more = "it sent more than one descriptor";
    let none = "it sent no descriptor";
    let garbage = vec![0xff; 100_000];
    let (m, s) = (master.as_fd(), slave.as_fd());
    let table: [(&str, &[u8], &[BorrowedFd<'_>], &str); 8] = [
        ("no descriptor", RUNC, &[], none),
        ("garbage", &garbage, &[], none),
        ("two masters", RUNC, &[m, m], more),
        ("a master and a file", b" ", &[m, file.as_fd()], more),
        ("three", RUNC, &[m, s, m], more),
        ("a regular file", RUNC, &[regular.as_fd()], not_a_master),
        ("a device", RUNC, &[file.as_fd()], not_a_master),
        ("a slave", RUNC, &[s], not_a_master),
    ];
    let refused = |text: &str| {
        mux.stderr.so_far().matches(&format!("a sender of a console is refused: {text}\n")).count()
    };
    for (what, payload, fds, why) in table {
        let before = refused(why);
        let stream = send(&rig, payload, fds);
        eventually(&format!("it is refused: {what}"), || refused(why) == before + 1);
        // It learns of that by the end of its connection.
        let ended = matches!((&stream).read(&mut [0]), Ok(0) | Err(_));
        assert!(ended, "{what}");
    }
    // One that goes without a word.
    let before = refused(none);
    drop(UnixStream::connect(socket(&rig)).unwrap());
    eventually("it is refused", || refused(none) == before + 1);
    // One that says nothing, while another waits behind it.
    let silent = UnixStream::connect(socket(&rig)).unwrap();
    let second = send(&rig, RUNC, &[m]);
    mux.stderr.wait_for("a sender of a console is refused: it sent nothing for 2s\n");
    mux.stderr.wait_for("its console has come");
    drop((silent, second));
    assert_eq!(tcgetwinsize(&slave).unwrap().ws_row, 24);
    assert!(UnixStream::connect(socket(&rig)).is_err());
}

/// A descriptor that cannot be written is no terminal for clients.
#[test]
fn a_master_for_one_direction_is_refused() {
    let rig = Rig::new();
    let mux = mux(&rig);
    let master: File = {
        use std::os::unix::fs::OpenOptionsExt;
        let mut how = File::options();
        how.read(true).custom_flags(nix::libc::O_NOCTTY).open("/dev/ptmx").unwrap()
    };
    drop(send(&rig, RUNC, &[master.as_fd()]));
    mux.stderr.wait_for("refused: it sent a master that is not open for reading and writing\n");
    drop(assert_taken(&rig, &mux, b" "));
}

/// There is one terminal: a second runtime finds no socket, and what it sent before is dropped.
#[test]
fn a_second_console_is_not_taken() {
    let rig = Rig::new();
    let mux = mux(&rig);
    mux.stop();
    let [(first, mut slave), (second, other)] = [pair(), pair()];
    let streams = [send(&rig, RUNC, &[first.as_fd()]), send(&rig, RUNC, &[second.as_fd()])];
    drop((first, second));
    mux.signal(Signal::SIGCONT);
    mux.stderr.wait_for("its console has come");
    for mut stream in streams {
        assert!(matches!(stream.read(&mut [0]), Ok(0) | Err(_)));
    }
    slave.write_all(b"first\n").unwrap();
    expect(&mut rig.client("tty"), "first\r\n");
    // No process has the other one's master.
    eventually("it is closed", || (&other).write(b"x").is_err());
}

#[test]
fn another_user_is_refused() {
    let Some(rig) = shared_rig() else { return };
    let mux = mux(&rig);
    let path = socket(&rig);
    fs::set_permissions(&path, PermissionsExt::from_mode(0o666)).unwrap();
    if !crate::installed::is_installed("perl") {
        return skip("perl", "another user connects with it");
    }
    let connect = "use Socket; socket(S, AF_UNIX, SOCK_STREAM, 0); \
         connect(S, sockaddr_un($ARGV[0])) or die; sysread(S, $x, 1); print 'over'";
    let mut command = as_user(&rig, 54321, "", "perl".as_ref());
    command.args(["-e", connect]).arg(&path);
    let mut other = Proc::spawn(command);
    assert_eq!(other.ends(), 0, "{}", other.stderr.text());
    assert_eq!(other.stdout.text(), "over");
    mux.stderr.wait_for("refused: it belongs to user 54321; expected root or user 0\n");
    drop(assert_taken(&rig, &mux, b" "));
}

#[test]
fn a_stale_socket_is_replaced_and_nothing_else() {
    let rig = Rig::new();
    let path = socket(&rig);
    // Of a mux that was killed.
    let mut killed = mux(&rig);
    killed.signal(Signal::SIGKILL);
    killed.ends();
    assert!(path.exists());
    let first = mux(&rig);
    // Of one that lives.
    let fails = |why: &str| {
        let app = ["tty", "--app", "other", "--console-socket", path.to_str().unwrap()];
        let mut other = rig.run(&app);
        assert_eq!(other.ends(), 1);
        let said = other.stderr.text();
        let line = format!("cannot listen on console socket {}: {why}\n", path.display());
        assert!(said.ends_with(&line), "{said}");
        let left = fs::read_dir(rig.state().join("other")).unwrap().map(|e| e.unwrap().file_name());
        let left: Vec<_> = left.collect();
        assert!(left.iter().all(|name| name == "lock"), "{left:?}");
        assert!(!rig.file(".console.sock.new").exists());
    };
    fails("another process listens there");
    drop(assert_taken(&rig, &first, RUNC));
    fs::write(&path, "a file").unwrap();
    fails("there is another file");
    assert_eq!(fs::read_to_string(&path).unwrap(), "a file");
    fs::remove_file(&path).unwrap();
    std::os::unix::fs::symlink("/dev/null", &path).unwrap();
    fails("there is another file");
    fs::remove_file(&path).unwrap();
    if nix::unistd::Uid::effective().is_root() {
        drop(UnixListener::bind(&path).unwrap());
        chown(&path, Some(54321), None).unwrap();
        fails("there is a socket of user 54321");
        assert!(path.exists());
    }
    let long = format!("{}/{}", rig.file("").display(), "x".repeat(120));
    let mut other = rig.run(&["tty", "--app", "other", "--console-socket", &long]);
    assert_eq!(other.ends(), 1);
    assert!(other.stderr.text().ends_with(": the path is longer than 102 bytes\n"));
}

#[test]
fn a_console_that_never_comes_leaves_nothing_behind() {
    let rig = Rig::new();
    for signal in [Signal::SIGTERM, Signal::SIGINT] {
        let mut mux = mux(&rig);
        let mut attach = rig.attach(&[]);
        mux.stderr.wait_for("attached to tty");
        let silent = UnixStream::connect(socket(&rig)).unwrap();
        mux.signal(signal);
        assert_eq!(mux.ends(), 0);
        assert_eq!(attach.ends(), 0);
        drop(silent);
        assert!(!socket(&rig).exists());
        for file in ["endpoints", "sock-tty", "sock-session", "last.json", "stage2-pts"] {
            assert!(!rig.exists(file), "{file} is left");
        }
    }
}

/// A file that took the place of the socket is not the mux's to remove.
#[test]
fn a_file_in_the_place_of_the_socket_stays() {
    let rig = Rig::new();
    let mut mux = mux(&rig);
    fs::remove_file(socket(&rig)).unwrap();
    fs::write(socket(&rig), "new").unwrap();
    mux.signal(Signal::SIGTERM);
    assert_eq!(mux.ends(), 0);
    assert_eq!(fs::read_to_string(socket(&rig)).unwrap(), "new");
}
