//! What survives a mux: the offsets and the backlog, for as long as its app lives.

use std::io::Read;
use std::time::Duration;

use iottymux::proto::{Hello, Want, Welcome};
use iottymux::session;
use iottymux::state::StateDir;
use iottymux::stream::{Epoch, Position, Stream};

use crate::pod::Pod;

const MUX: &str = "iomux@demo.service";
/// Says each line that it reads, and its number.
const COUNTER: &str = "[Service]\nExecStart=\nExecStart=/bin/sh -c 'n=0; while read x; do n=$((n+1)); echo $n $x; done'\n";

/// The answer of the mux to a client, and what it then reads first.
fn greet(pod: &Pod, from: Position, epoch: Option<Epoch>, first: &str) -> Welcome {
    let state = StateDir::resolve(Some(pod.path("/run/iottymux"))).unwrap();
    let dir = state.app(&"demo".parse().unwrap());
    let want = Want { stream: Stream::Stdout, from };
    let hello = Hello { streams: vec![want], epoch, ..Hello::default() };
    let (mut socket, welcome) = session::open(&dir, "sock-session", &hello, None).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let mut got = vec![0; if first.is_empty() { 0 } else { 8 + first.len() }];
    socket.read_exact(&mut got).unwrap();
    assert_eq!(String::from_utf8_lossy(got.get(8..).unwrap_or_default()), first);
    welcome
}

/// Has the app say something, and waits until a client has seen it.
fn say(pod: &Pod, word: &str, answer: &str) {
    let mut stdout = pod.connect("demo", "sock-stdout");
    pod.connect("demo", "sock-stdin").say(&format!("{word}\n"));
    assert_eq!(stdout.line(), answer);
}

#[test]
fn the_next_mux_goes_on_where_the_one_before_was() {
    let Some(pod) = Pod::delivered() else { return };
    pod.set_unit("demo.service.d/x.conf", COUNTER);
    pod.systemctl(&["start", "demo.service"]);
    say(&pod, "a", "1 a");
    let first = greet(&pod, Position::Start, None, "1 a\n");
    let epoch = first.epoch.unwrap();
    let ends: [&dyn Fn(); 2] = [
        &|| {
            pod.systemctl(&["kill", "--kill-who=main", "--signal=KILL", MUX]);
            pod.await_mux("demo", "stdin");
        },
        &|| {
            pod.systemctl(&["restart", MUX]);
        },
    ];
    let (mut all, mut n) = ("1 a\n".to_owned(), 1);
    for end in ends.into_iter().cycle().take(6) {
        end();
        // Everything before is there, and seen: who wants what is new gets what comes.
        let welcome = greet(&pod, Position::Start, Some(epoch), &all);
        assert_eq!((welcome.epoch, welcome.streams[0].offset), (Some(epoch), 0));
        let welcome = greet(&pod, Position::Unseen, None, "");
        assert_eq!(welcome.streams[0].offset, all.len() as u64);
        n += 1;
        say(&pod, "b", &format!("{n} b"));
        let at = all.len() as u64;
        let new = format!("{n} b\n");
        greet(&pod, Position::Offset(at), Some(epoch), &new);
        all += &new;
    }
    assert_eq!(pod.property(MUX, "NFileDescriptorStore"), "6");

    // With another size nothing of it fits; the one before is let go of.
    pod.set_unit(&format!("{MUX}.d/x.conf"), "[Service]\nEnvironment=IOTTYMUX_BACKLOG=1M\n");
    pod.systemctl(&["restart", MUX]);
    let welcome = greet(&pod, Position::Offset(5), Some(epoch), "");
    let other = welcome.epoch.unwrap();
    assert_ne!(other, epoch);
    assert_eq!(welcome.streams[0].offset, 0);
    assert_eq!(pod.property(MUX, "NFileDescriptorStore"), "6");
    say(&pod, "c", &format!("{} c", n + 1));
    pod.systemctl(&["restart", MUX]);
    let welcome = greet(&pod, Position::Start, None, &format!("{} c\n", n + 1));
    assert_eq!(welcome.epoch, Some(other));
}

/// The end of the app is the end of what it wrote: the next start of it begins anew.
#[test]
fn a_new_start_of_the_app_begins_anew() {
    let Some(pod) = Pod::delivered() else { return };
    pod.set_unit("demo.service.d/x.conf", COUNTER);
    let mut epochs = Vec::new();
    for _ in 0..2 {
        pod.systemctl(&["start", "demo.service"]);
        say(&pod, "a", "1 a");
        let welcome = greet(&pod, Position::Start, None, "1 a\n");
        assert_eq!(welcome.streams[0].offset, 0);
        epochs.push(welcome.epoch);
        pod.systemctl(&["stop", "demo.service"]);
        pod.systemctl(&["stop", MUX]);
        assert_eq!(pod.property(MUX, "NFileDescriptorStore"), "0");
    }
    assert_ne!(epochs[0], epochs[1]);
}
