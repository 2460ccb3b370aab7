//! `tty`: the terminal that an app finds, and what its clients see.

use std::fs;
use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::fd::AsFd;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::thread;

use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::termios::{InputFlags, tcgetattr};
use rustix::termios::tcgetwinsize;

use crate::pattern;
use crate::proc::eventually;
use crate::rig::{APP, Rig, expect};
use crate::skip::skip;

#[test]
fn the_terminal_that_an_app_finds() {
    for (arguments, rows, cols) in [(&[][..], 24, 80), (&["--size", "50x132"], 50, 132)] {
        let rig = Rig::new();
        let mux = rig.mux(["tty", "--app", APP].iter().chain(arguments));
        let slave = rig.slave_as_it_is();
        let size = tcgetwinsize(&slave).unwrap();
        assert_eq!((size.ws_row, size.ws_col), (rows, cols));
        assert!(tcgetattr(&slave).unwrap().input_flags.contains(InputFlags::IUTF8));
        let link = fs::read_link(rig.path("stage2-pts")).unwrap();
        assert!(link.starts_with("/dev/pts/"), "{}", link.display());
        let mode = |name| fs::symlink_metadata(rig.path(name)).unwrap().permissions().mode();
        assert_eq!(mode("sock-tty") & 0o777, 0o600);
        let document = fs::read_to_string(rig.path("endpoints")).unwrap();
        assert!(document.starts_with(r#"{"version":1,"targets":[{"name":"tty","domain":"unix","#));
        assert_eq!(document.matches(r#""name""#).count(), 1);
        drop(mux);
    }
}

/// Whether a descriptor of a process is closed on exec; `None` when it is not open.
fn closes_on_exec(pid: &str, number: i32) -> Option<bool> {
    let info = fs::read_to_string(format!("/proc/{pid}/fdinfo/{number}")).ok()?;
    let flags = info.lines().find_map(|l| l.strip_prefix("flags:"))?;
    Some(i32::from_str_radix(flags.trim(), 8).ok()? & nix::libc::O_CLOEXEC != 0)
}

#[test]
fn no_descriptor_of_a_mux_is_inherited() {
    // What this process was given itself, by whoever started the tests, is no matter.
    let inherited: Vec<i32> =
        (0..4096).filter(|n| !closes_on_exec("self", *n).unwrap_or(true)).collect();
    for kind in ["tty", "stream"] {
        let rig = Rig::new();
        let mux = rig.mux([kind, "--app", APP]);
        let mut seen = 0;
        for entry in fs::read_dir(format!("/proc/{}/fdinfo", mux.pid())).unwrap() {
            let entry = entry.unwrap();
            let number: i32 = entry.file_name().to_str().unwrap().parse().unwrap();
            // What is closed meanwhile is no matter.
            let closes = closes_on_exec(&mux.pid().to_string(), number).unwrap_or(true);
            assert!(closes || inherited.contains(&number), "{kind}: {number} stays open");
            seen += 1;
        }
        assert!(seen > 6, "only {seen} descriptors were seen");
    }
}

#[test]
fn leftovers_of_another_mux_are_replaced() {
    let rig = Rig::new();
    rig.make_app_dir();
    let link = rig.path("stage2-pts");
    for leave in [0, 1, 2] {
        match leave {
            0 => fs::write(&link, "a stale file").unwrap(),
            1 => symlink("/dev/pts/999999", &link).unwrap(),
            _ => {
                symlink("/dev/null", rig.path("sock-tty")).unwrap();
                fs::write(rig.path(".stage2-pts.new"), "half made").unwrap();
            }
        }
        let mut mux = rig.tty();
        let mut client = rig.client("tty");
        rig.slave().write_all(b"here").unwrap();
        expect(&mut client, "here");
        mux.signal(nix::sys::signal::Signal::SIGTERM);
        assert_eq!(mux.ends(), 0);
        assert!(!rig.exists("stage2-pts"));
    }
}

#[test]
fn stale_bind_mounts_are_taken_off() {
    let rig = Rig::new();
    rig.make_app_dir();
    let target = rig.path("stage2-pts");
    fs::write(&target, "").unwrap();
    for _ in 0..2 {
        let bound = mount(Some("/dev/null"), &target, None::<&str>, MsFlags::MS_BIND, None::<&str>);
        if let Err(e) = bound {
            return skip("mount", &format!("nothing can be mounted here: {e}"));
        }
    }
    let mux = rig.tty();
    let mut client = rig.client("tty");
    rig.slave().write_all(b"here").unwrap();
    expect(&mut client, "here");
    let is_link = fs::symlink_metadata(&target).unwrap().file_type().is_symlink();
    drop(mux);
    // Only where the mux failed is there something to take off.
    while umount2(&target, MntFlags::MNT_DETACH | MntFlags::UMOUNT_NOFOLLOW).is_ok() {}
    assert!(is_link);
}

/// Whether the app can write. `status` reports that it cannot.
fn can_write(slave: &fs::File) -> bool {
    let mut fds = [PollFd::new(slave.as_fd(), PollFlags::POLLOUT)];
    poll(&mut fds, PollTimeout::ZERO).unwrap() == 1
}

#[test]
fn the_last_typist_takes_its_stop_along() {
    const SAYS: &str = "output stopped by ^S: ^Q continues it\n";
    let rig = Rig::new();
    let _mux = rig.tty();
    let slave = rig.slave_as_it_is();
    let (mut stops, other) = (rig.client("tty"), rig.client("tty"));
    let says = || rig.run(&["status", APP]).stdout.text().contains(SAYS);
    assert!(!says());
    stops.write_all(b"\x13").unwrap();
    eventually("the output is stopped", || !can_write(&slave));
    eventually("status says that", says);
    // Another typist may want to read what stands there.
    drop(stops);
    eventually("one is left", || rig.status()["clients"].as_array().unwrap().len() == 1);
    assert!(!can_write(&slave));
    drop(other);
    eventually("the output goes on", || can_write(&slave));
    assert!(!says());
}

#[test]
fn an_app_in_raw_mode_gets_each_key() {
    let rig = Rig::new();
    let _mux = rig.tty();
    let mut slave = rig.slave();
    let mut client = rig.client("tty");
    client.write_all(b"\x13\x11").unwrap();
    expect(&mut slave, "\x13\x11");
}

#[test]
fn a_viewer_types_nothing() {
    let rig = Rig::new();
    let mux = rig.tty();
    let mut looks = rig.attach(&["--read-only"]);
    mux.stderr.wait_for("attached to tty\n");
    looks.stdin().write_all(b"typed\n").unwrap();
    let mut types = rig.client("tty");
    types.write_all(b"said\n").unwrap();
    // The terminal echoes what is typed: nothing but this.
    assert_eq!(looks.stdout.wait_len(6), b"said\r\n");
    mux.signal(nix::sys::signal::Signal::SIGTERM);
    assert_eq!(looks.ends(), 0);
    assert_eq!(looks.stdout.text(), "said\r\n");
}

#[test]
fn three_clients_all_see_every_byte() {
    let rig = Rig::new();
    let mut mux = rig.tty();
    let mut slave = rig.slave();
    let clients = [(); 3].map(|()| rig.client("tty"));
    let len = 1 << 20;
    let readers = clients.map(|mut client| {
        thread::spawn(move || {
            pattern::read((&mut client).take(len as u64), 4096);
            client
        })
    });
    pattern::write(&mut slave, len);
    let clients = readers.map(|reader| reader.join().unwrap());
    // Input of each goes to the app, as typed.
    let mut typed = [0; 1];
    for mut client in &clients {
        client.write_all(b"k").unwrap();
        // Some of those bytes ask for something, which is answered.
        while typed != *b"k" {
            slave.read_exact(&mut typed).unwrap();
        }
        typed = [0];
    }
    mux.signal(nix::sys::signal::Signal::SIGTERM);
    assert_eq!(mux.ends(), 0);
    for client in clients {
        assert_eq!(crate::rig::rest(client), "");
    }
}

/// Scripts that write lines at the same time, more than fits anywhere on the way.
#[test]
fn lines_of_several_programs_are_not_mixed() {
    const WRITERS: usize = 6;
    let lines = pattern::volume(3000, 30_000);
    let rig = Rig::new();
    let mux = rig.tty();
    let mut slave = rig.slave();
    let attached = [(); WRITERS].map(|()| rig.attach(&["--mode", "tty-in"]));
    let are_there = || mux.stderr.so_far().matches("attached to typing").count() == WRITERS;
    eventually("all are attached", are_there);
    let mut number = 0;
    let writers = attached.map(|mut attach| {
        let (own, mut input) = (number, attach.stdin());
        number += 1;
        thread::spawn(move || {
            for line in 0..lines {
                writeln!(input, "client {own} line {line} {}", "x".repeat(30)).unwrap();
            }
            drop(input);
            assert_eq!(attach.ends(), 0);
        })
    });
    let mut next = [0; WRITERS];
    let mut reader = std::io::BufReader::new(&mut slave);
    for _ in 0..WRITERS * lines {
        let mut line = String::new();
        std::io::BufRead::read_line(&mut reader, &mut line).unwrap();
        let words: Vec<&str> = line.split_whitespace().collect();
        let ["client", number, "line", count, rest] = words[..] else { panic!("{line:?}") };
        let number: usize = number.parse().unwrap();
        assert_eq!((count.parse(), rest), (Ok(next[number]), &"x".repeat(30)[..]), "{line:?}");
        next[number] += 1;
    }
    for writer in writers {
        writer.join().unwrap();
    }
}

#[test]
fn a_client_that_leaves_takes_nothing_with_it() {
    let rig = Rig::new();
    let mux = rig.tty();
    let mut slave = rig.slave();
    let mut stays = rig.client("tty");
    let mut known = rig.client("tty");
    slave.write_all(b"first").unwrap();
    expect(&mut stays, "first");
    expect(&mut known, "first");
    // Another attached client loses nothing to the one that has gone, nor does the next.
    known.shutdown(Shutdown::Both).unwrap();
    slave.write_all(b"second").unwrap();
    expect(&mut stays, "second");
    stays.shutdown(Shutdown::Both).unwrap();
    mux.rests();
    slave.write_all(b"third").unwrap();
    expect(rig.client("tty"), "third");
}

#[test]
fn every_client_gets_output_however_often_it_reopens_its_terminal() {
    let rig = Rig::new();
    let mux = rig.tty();
    // Attached before the app has ever opened its terminal.
    let mut early = rig.client("tty");
    for round in 0..5 {
        mux.rests();
        let mut late = rig.client("tty");
        let text = format!("round {round} ");
        rig.slave().write_all(text.as_bytes()).unwrap();
        expect(&mut early, &text);
        expect(&mut late, &text);
        let mut slave = rig.slave();
        early.write_all(b"k").unwrap();
        let mut typed = [0; 1];
        slave.read_exact(&mut typed).unwrap();
        assert_eq!(typed, *b"k");
    }
}

#[test]
fn with_nobody_attached_the_app_goes_on() {
    let rig = Rig::new();
    let mux = rig.tty();
    let mut slave = rig.slave();
    // rkt's mux stopped it after 18 KB. That this returns is the test.
    pattern::write(&mut slave, 10 << 20);
    let client = rig.client("tty");
    slave.write_all(b"the end").unwrap();
    mux.signal(nix::sys::signal::Signal::SIGTERM);
    assert!(crate::rig::rest(client).ends_with("the end"));
}
