//! What a service says is in the journal after `enable` as it was before.

use std::collections::BTreeSet;
use std::fs::{self, OpenOptions};
use std::io::Write;

use serde_json::Value;

use crate::log::{journal, message, with_journald};
use crate::pod::{Plan, Pod, rounds};
use crate::proc::eventually;

/// The mux of the app of these tests.
const MUX: &str = "iomux@app.service";
/// How to find the writer.
const WRITER: &str = "journal-writer --unit app.service";

/// A pod with journald and this service, to which PID 1's own defaults apply.
fn pod(service: &str) -> Option<Pod> {
    let pod = with_journald(Plan::new()?).unit("app.service", service).boot();
    // Which forgets what PID 1 was told by its command line.
    pod.systemctl(&["daemon-reload"]);
    Some(pod)
}

/// What a service with this script is.
fn service(script: &str, more: &str) -> String {
    format!("[Service]\nExecStart=/bin/sh -c '{script}'\n{more}")
}

/// What people see of an entry: priority, facility, name, text.
type Shown = (String, String, String, String);

fn shown(entry: &Value) -> Shown {
    let word = |name: &str| entry[name].as_str().unwrap_or_default().to_owned();
    let text = message(entry).escape_ascii().to_string();
    (word("PRIORITY"), word("SYSLOG_FACILITY"), word("SYSLOG_IDENTIFIER"), text)
}

/// The entries that are the service's own, not PID 1's, by what `journalctl -u` shows.
fn lines(pod: &Pod) -> Vec<Shown> {
    let all = journal(pod, &["-u", "app.service"]);
    let own = |entry: &&Value| entry["_PID"] != "1" && entry["_COMM"] != "systemd";
    all.iter().filter(own).map(shown).collect()
}

fn texts(pod: &Pod) -> Vec<String> {
    lines(pod).into_iter().map(|line| line.3).collect()
}

/// Waits until a line is in the journal: by then what came before it on its stream is, too.
fn await_text(pod: &Pod, text: &str) {
    eventually(text, || texts(pod).iter().any(|line| line == text));
}

fn enable(pod: &Pod, words: &[&str]) -> String {
    pod.run(&[&["iottymux", "enable", "app", "--now"], words].concat())
}

fn pid(pod: &Pod, unit: &str) -> String {
    pod.property(unit, "MainPID")
}

/// The writer's process, if there is one.
fn writer(pod: &Pod) -> Option<String> {
    let found = pod.try_run(&["pgrep", "-f", WRITER]);
    let found = String::from_utf8(found.stdout).unwrap();
    let mut all = found.lines().map(str::to_owned);
    let one = all.next();
    assert_eq!(all.next(), None, "{found}");
    one
}

/// Waits until the writer has refused itself all but reading and writing; its process.
fn await_writer(pod: &Pod) -> String {
    let strict = || {
        let status = pod.path(&format!("/proc/{}/status", writer(pod).unwrap_or_default()));
        let status = fs::read_to_string(status).unwrap_or_default();
        status.contains("Name:\tiottymux") && status.contains("\nSeccomp:\t2\n")
    };
    eventually("it is strict", strict);
    writer(pod).unwrap()
}

/// Stops the writer, and returns its process once it stands still: before that, it may still take what is said now.
fn stop_writer(pod: &Pod) -> String {
    let by = await_writer(pod);
    pod.run(&["kill", "-STOP", &by]);
    let stat = pod.path(&format!("/proc/{by}/stat"));
    eventually("it stands still", || fs::read_to_string(&stat).unwrap().contains(") T "));
    by
}

/// Waits until the writer has ended with its mux.
fn await_no_writer(pod: &Pod) {
    eventually("the writer has ended", || writer(pod).is_none());
    // systemd would warn of it in each journal.
    let said = pod.run(&["journalctl", "-u", MUX]);
    assert!(!said.contains("remains running") && !said.contains("left-over"), "{said}");
}

/// Those that an administrator or PID 1 gives each service, and those of a mux that stays root.
#[test]
fn beside_filters_of_systemd() {
    let script = "echo before; read x </wait; echo behind; exec sleep 1000";
    let Some(pod) = pod(&service(script, "")) else { return };
    pod.run(&["mkfifo", "/wait"]);
    pod.set_unit(
        "service.d/hard.conf",
        "[Service]\nSystemCallArchitectures=native\nProtectClock=yes\nProtectKernelModules=yes\n",
    );
    enable(&pod, &STREAMS);
    await_text(&pod, "before");
    await_writer(&pod);
    pod.systemctl(&["kill", "--kill-whom=main", "--signal=KILL", MUX]);
    pod.run(&["sh", "-c", "echo >/wait"]);
    await_text(&pod, "behind");
    assert_eq!(pod.property(MUX, "NRestarts"), "1");
}

const STREAMS: [&str; 4] = ["--stdout", "stream", "--stderr", "stream"];

/// All that one can print, with the streams apart: their order is that of reading.
const SCRIPT: &str = r#"echo out; echo "<4>warning"; echo "<05>notice"; echo "<31>none"; echo; \
echo "  spaces  "; printf "a\\0b\\n"; printf "\\0\\n"; printf "cr\\r\\n"; printf "\\377 \\033[1mbytes\\n"; \
head -c 307200 /dev/zero | tr "\\0" x; echo; printf "x\\nOBJECT_SYSTEMD_UNIT=other.service\\n_UID=7\\n"; \
echo "done 1"; echo err >&2; echo "<2>critical" >&2; echo "done 2" >&2; exec sleep 1000"#;

#[test]
fn lines_are_as_they_were_before() {
    for more in [
        "",
        "SyslogIdentifier=my %%n\"x\nSyslogFacility=local3\nSyslogLevel=notice\nLogLevelMax=debug\n",
        "StandardOutput=journal+console\nSyslogLevelPrefix=no\nSyslogLevel=warning\n",
    ] {
        let Some(pod) = pod(&service(SCRIPT, more)) else { return };
        let both = |pod: &Pod| {
            await_text(pod, "done 1");
            await_text(pod, "done 2");
            let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
            for line in lines(pod) {
                let is_stderr =
                    ["err", "critical", "<2>critical", "done 2"].contains(&line.3.as_str());
                if is_stderr { &mut stderr } else { &mut stdout }.push(line);
            }
            [stdout, stderr]
        };
        pod.systemctl(&["start", "app"]);
        let before = both(&pod);
        pod.systemctl(&["stop", "app"]);
        pod.run(&["journalctl", "--rotate", "--vacuum-time=1us"]);
        assert_eq!(lines(&pod), []);

        if more.contains("+console") {
            // The journal keeps its lines, and the console loses them.
            let words = [&["iottymux", "enable", "app", "--now"][..], &STREAMS].concat();
            let output = pod.try_run(&words);
            let said = String::from_utf8(output.stderr).unwrap();
            assert_eq!(output.status.code(), Some(1), "{said}");
            assert!(said.contains("StandardOutput=journal+console"), "{said}");
            enable(&pod, &[&STREAMS[..], &["--force"]].concat());
        } else {
            enable(&pod, &STREAMS);
        }
        assert_eq!(both(&pod), before);
        let writer = await_writer(&pod);
        let status = pod.run(&["systemctl", "status", "app"]);
        assert!(status.contains("OBJECT_SYSTEMD_UNIT=other.service"), "{status}");
        // It has no rights, and lives.
        let file = pod.path(&format!("/proc/{writer}/status"));
        let status = fs::read_to_string(file).unwrap();
        for line in ["CapEff:\t0000000000000000", "CapBnd:\t0000000000000000", "NoNewPrivs:\t1"] {
            assert!(status.contains(line), "{status}");
        }
        assert_eq!(pod.property(MUX, "NRestarts"), "0");
        assert!(journal(&pod, &["-u", "other.service"]).is_empty());
        pod.run(&["iottymux", "disable", "app", "--now"]);
        pod.systemctl(&["stop", "app"]);
        await_no_writer(&pod);
        assert!(!pod.path("/run/iottymux/app").exists());
    }
}

/// Who attaches can be asked of the journal. The mux's own lines are attributed as before.
#[test]
fn what_clients_do_has_fields_in_the_journal() {
    let Some(pod) = pod(&service("exec cat", "")) else { return };
    enable(&pod, &["--stdin=stream", "--stdout=stream"]);
    pod.run(&["sh", "-c", "echo hello | iottymux attach app --mode stdin"]);
    for event in ["attached", "detached"] {
        let matches = ["-u", MUX, &format!("IOTTYMUX_EVENT={event}")];
        eventually(event, || journal(&pod, &matches).len() == 1);
        let entry = journal(&pod, &matches).remove(0);
        let word = |name: &str| entry[name].as_str().unwrap_or_default();
        let said = format!("iottymux: app app: uid=0 pid={} {event} ", word("IOTTYMUX_PID"));
        assert!(word("MESSAGE").starts_with(&said), "{entry}");
        assert_eq!(
            [word("IOTTYMUX_UID"), word("PRIORITY"), word("_TRANSPORT")],
            ["0", "6", "journal"]
        );
        assert_eq!(word("SYSLOG_IDENTIFIER"), "iottymux");
    }
    // What has no fields comes as it did.
    let all = journal(&pod, &["-u", MUX, "_TRANSPORT=stdout"]);
    let texts: Vec<_> = all.iter().filter_map(|entry| entry["MESSAGE"].as_str()).collect();
    assert!(texts.iter().any(|text| text.starts_with("iottymux: app app: ready at ")), "{texts:?}");
    assert!(!texts.iter().any(|text| text.contains("attached to")), "{texts:?}");
}

/// An app that repeats what it is told, and says good-bye.
const ECHO: &str =
    r#"trap "echo good-bye; exit 0" TERM; while :; do read x && echo "$x" || sleep 0.1; done"#;

/// Lines said one after the other while this or that is killed, restarted or stopped: none is missing, none torn,
/// and none there twice.
#[test]
fn whatever_is_restarted() {
    let Some(pod) = pod(&service(ECHO, "")) else { return };
    enable(&pod, &[&STREAMS[..], &["--stdin", "stream"]].concat());
    await_writer(&pod);
    let mut want = Vec::new();
    let mut say = |pod: &Pod, awaited: bool| {
        for _ in 0..20 {
            let line = format!("line {}", want.len());
            let mut out = pod.connect("app", "sock-stdout");
            pod.connect("app", "sock-stdin").say(&format!("{line}\n"));
            out.line_ending(&line);
            want.push(line);
        }
        if awaited {
            await_text(pod, want.last().unwrap());
        }
        want.clone()
    };
    let journald = "systemd-journald.service";
    let sockets = ["systemd-journald.socket", "systemd-journald-dev-log.socket"];
    for _ in 0..rounds(1, 10) {
        for unit in [MUX, journald] {
            for words in [&["kill", "--kill-whom=main", "--signal=KILL"][..], &["restart"]] {
                say(&pod, true);
                let before = pod.property(unit, "MainPID");
                let by = await_writer(&pod);
                pod.systemctl(&[words, &[unit]].concat());
                // What a process that dies still reads is lost with it.
                eventually("it has died", || pod.property(unit, "MainPID") != before);
                if unit == MUX {
                    pod.await_mux("app", "stdin");
                }
                say(&pod, true);
                // It outlives a mux that is killed, and ends with one that ends.
                let is_same = unit != MUX || words[0] == "kill";
                assert_eq!(await_writer(&pod) == by, is_same, "{unit} {words:?}");
            }
        }
        // Signals for all of the unit are for the mux.
        pod.systemctl(&["kill", "--signal=HUP", MUX]);
        say(&pod, true);
        // Stopped, the writer has what was said still to come; and so has it when journald's socket is gone.
        let by = stop_writer(&pod);
        say(&pod, false);
        pod.run(&["kill", "-CONT", &by]);
        say(&pod, true);
        pod.systemctl(&["kill", "--signal=STOP", journald]);
        say(&pod, false);
        pod.systemctl(&["kill", "--signal=CONT", journald]);
        say(&pod, true);
    }
    // Without its sockets journald is gone, and so is what the writer had in hand: one line at most, as it may end first.
    let (mux, by) = (pid(&pod, MUX), await_writer(&pod));
    pod.systemctl(&[&["stop", journald], &sockets[..]].concat());
    pod.connect("app", "sock-stdin").say("in hand\n");
    eventually("it has ended", || writer(&pod).as_ref() != Some(&by));
    eventually("another mux", || pid(&pod, MUX) != mux);
    pod.await_mux("app", "stdin");
    pod.connect("app", "sock-stdin").say("kept\n");
    pod.systemctl(&[&["start"], &sockets[..], &[journald]].concat());
    await_text(&pod, "kept");
    let want = say(&pod, true);
    let mut got = texts(&pod);
    got.retain(|text| text != "in hand");
    assert_eq!(got.remove(want.len() - 20), "kept");
    assert_eq!(got, want);
    pod.systemctl(&["stop", "app"]);
    await_text(&pod, "good-bye");
    eventually("the writer has ended", || writer(&pod).is_none());
    assert_eq!(pod.systemctl(&["--failed", "--no-legend", "--plain"]), "");
}

/// A mux without a writer starts again with another one, and no line is lost.
#[test]
fn a_mux_whose_writer_is_killed() {
    let Some(pod) = pod(&service(ECHO, "")) else { return };
    enable(&pod, &[&STREAMS[..], &["--stdin", "stream"]].concat());
    for round in 0..rounds(3, 30) {
        let (mux, by) = (pid(&pod, MUX), await_writer(&pod));
        pod.run(&["kill", "-KILL", &by]);
        eventually("it has died", || writer(&pod).as_ref() != Some(&by));
        eventually("another mux", || pid(&pod, MUX) != mux);
        pod.await_mux("app", "stdin");
        let line = format!("line {round}");
        pod.connect("app", "sock-stdin").say(&format!("{line}\n"));
        await_text(&pod, &line);
    }
    let want: Vec<_> = (0..rounds(3, 30)).map(|round| format!("line {round}")).collect();
    assert_eq!(texts(&pod), want);
    let said = pod.run(&["journalctl", "-u", MUX, "-t", "iottymux", "-o", "cat"]);
    assert!(said.contains("the journal writer has ended; starting again"), "{said}");
}

/// It is for the next writer, also if the app says nothing more.
#[test]
fn what_a_killed_writer_has_not_read() {
    let Some(pod) = pod(&service(ECHO, "")) else { return };
    enable(&pod, &[&STREAMS[..], &["--stdin", "stream"]].concat());
    for round in 0..rounds(3, 30) {
        let by = stop_writer(&pod);
        let line = format!("line {round}");
        pod.connect("app", "sock-stdin").say(&format!("{line}\n"));
        {
            let fifo = fs::File::open(pod.path(&format!("/proc/{by}/fd/0"))).unwrap();
            let unread = || rustix::io::ioctl_fionread(&fifo).unwrap();
            eventually("it is in the FIFO", || unread() > 0);
        }
        pod.run(&["kill", "-KILL", &by]);
        await_text(&pod, &line);
        pod.await_mux("app", "stdin");
    }
}

/// A flood, and what is killed in it: every line is whole; a mux that is killed costs no more than it tells of, since it is a
/// whole backlog behind, and a writer what it had in hand.
#[test]
fn a_flood_in_which_all_are_killed() {
    const LINES: usize = 60_000;
    const LINE: usize = 60;
    let script = "read x; seq -f \"line %%048.0f is there\" 60000; exec cat";
    let Some(pod) = pod(&service(script, "")) else { return };
    enable(&pod, &[&STREAMS[..], &["--stdin", "stream"]].concat());
    let all = "journalctl -u app -o cat _COMM=iottymux";
    let line = |n: usize| format!("line {n:048} is there");
    // Of a mux three chunks that were encoded and not written; not all of that is known to the next one.
    for (unit, lost) in [(MUX, 3 * 8 * 1024 / LINE + 1), (WRITER, 4096 / LINE + 1)] {
        pod.systemctl(&["stop", "app"]);
        pod.run(&["journalctl", "--rotate", "--vacuum-time=1us"]);
        pod.systemctl(&["start", "app"]);
        await_writer(&pod);
        pod.connect("app", "sock-stdin").say("go on\n");
        let kills = 3;
        for kill in 1..=kills {
            let much = kill * LINES / 10;
            let wait = format!("until [ $({all} | wc -l) -gt {much} ]; do :; done");
            pod.run(&["timeout", "25", "sh", "-c", &wait]);
            // The last kill may have left no mux for a moment: its PID is 0, and that would be this test.
            eventually("there is a mux", || pid(&pod, MUX) != "0");
            let victim = if unit == MUX { pid(&pod, MUX) } else { await_writer(&pod) };
            pod.run(&["kill", "-KILL", &victim]);
        }
        let wait = format!("until {all} -n 5 | grep -q '{}'; do sleep 0.1; done", line(LINES));
        pod.run(&["timeout", "25", "sh", "-c", &wait]);
        let got = pod.run(&all.split(' ').collect::<Vec<_>>());
        let known: BTreeSet<_> = (1..=LINES).map(line).collect();
        let told: BTreeSet<_> = got.lines().map(str::to_owned).collect();
        // What a mux tells of, and behind that the rest of a line.
        let mut lost = kills * lost;
        let (mut torn, mut told_of) = (0, 0);
        for strange in told.difference(&known) {
            let bytes = strange.strip_prefix("iottymux: 0 lines (");
            match bytes.and_then(|rest| rest.strip_suffix(" bytes) were lost here")) {
                Some(bytes) => told_of += bytes.parse::<usize>().unwrap(),
                None if known.iter().any(|line| line.ends_with(strange.as_str())) => torn += 1,
                None => panic!("{unit}: {strange}"),
            }
        }
        assert!(told_of <= if unit == MUX { kills * 3 * (8 * 1024 + LINE) } else { 0 });
        assert!(torn <= kills);
        lost += told_of / LINE + torn;
        let missing = known.difference(&told).count();
        let twice = got.lines().filter(|line| known.contains(*line)).count() + missing - LINES;
        println!("{unit}: {missing} missing, {told_of} bytes told of, {twice} twice");
        assert!(missing <= lost, "{unit}: {missing} are missing, and no more than {lost} may be");
        // Nothing is there twice but of the last writes of a mux that was killed.
        let chunks = if unit == MUX { 2 * (8 * 1024 / LINE + 1) } else { 0 };
        assert!(twice <= kills * chunks, "{unit}: {twice} are there twice");
    }
}

/// A mux that is somebody else's program can say lines in this service's name, and nothing else.
#[test]
fn a_hostile_mux() {
    let Some(pod) = pod(&service("exec sleep 1000", "")) else { return };
    enable(&pod, &STREAMS);
    let by = await_writer(&pod);
    let mut fifo = pod_fifo(&pod, &by);
    let mut frame = |flags: u8, priority: u8, text: &[u8]| {
        let len = u16::try_from(text.len()).unwrap().to_le_bytes();
        let all = [&[0xf1, flags, priority, 0, len[0], len[1]], text].concat();
        fifo.write_all(&all).unwrap();
    };
    let hostile = b"x\nOBJECT_SYSTEMD_UNIT=other.service\nMESSAGE=y\n\n_UID=7";
    frame(3, 1, hostile);
    frame(3, 9, b"no priority");
    frame(0, 6, b"neither the first nor the last ");
    frame(1, 6, b"begun and left");
    frame(3, 6, &[b'y'; 4090]);
    for _ in 0..100 {
        frame(0, 6, &[b'z'; 4090]);
    }
    for _ in 0..100 {
        fifo.write_all(b"OBJECT_SYSTEMD_UNIT=other.service\nMESSAGE=y\n\xf1\x03\x06\x00\xff\xff")
            .unwrap();
    }
    let mut frame = |text: &[u8]| {
        let head = [0xf1, 3, 6, 0, u8::try_from(text.len()).unwrap(), 0];
        fifo.write_all(&[&head, text].concat()).unwrap();
    };
    // One write of such may be read with what came before.
    for _ in 0..3 {
        eventually("it is read", || rustix::io::ioctl_fionread(pod_fifo(&pod, &by)).unwrap() == 0);
        frame(b"the end");
    }
    await_text(&pod, "the end");
    let all = journal(&pod, &[&format!("_SYSTEMD_UNIT={MUX}"), "_TRANSPORT=journal", "_UID=0"]);
    assert!(all.len() > 3, "{all:?}");
    for entry in &all {
        assert_eq!(entry["OBJECT_SYSTEMD_UNIT"], "app.service", "{entry}");
        assert_eq!((&entry["_UID"], &entry["SYSLOG_IDENTIFIER"]), (&"0".into(), &"sh".into()));
    }
    assert!(all.iter().any(|entry| message(entry) == hostile));
    assert!(journal(&pod, &["-u", "other.service"]).is_empty());
    assert_eq!(await_writer(&pod), by);
}

/// The FIFO that this writer reads.
fn pod_fifo(pod: &Pod, writer: &str) -> fs::File {
    let path = pod.path(&format!("/proc/{writer}/fd/0"));
    OpenOptions::new().read(true).write(true).open(path).unwrap()
}

/// A terminal's lines are what it showed when they ended.
#[test]
fn a_terminals_lines() {
    let script = r#"stty -echo; printf "\\033]0;title\\007\\033[1;32mgreen\\033[0m line\\n"; \
for i in 10 50 100; do printf "\\r%%d%%%%\\033[K" $i; done; echo; printf "long text\\rdone\\033[K\\n"; \
echo "<3>error"; echo; echo "ready"; exec cat"#;
    let Some(pod) = pod(&service(script, "")) else { return };
    enable(&pod, &["--tty"]);
    await_text(&pod, "ready");
    let got: Vec<_> = lines(&pod).into_iter().map(|line| (line.0, line.2, line.3)).collect();
    let want = [("6", "green line"), ("6", "100%"), ("6", "done"), ("3", "error"), ("6", "ready")];
    let want = want.map(|(level, text)| (level.to_owned(), "sh".to_owned(), text.to_owned()));
    assert_eq!(got, want);
    pod.connect("app", "sock-tty").say("typed \u{e9}\n");
    await_text(&pod, &"typed \u{e9}".as_bytes().escape_ascii().to_string());
    assert!(pod.run(&["journalctl", "-u", "app", "-o", "cat"]).contains("typed \u{e9}\n"));
}

/// What the service's own files say is known when it is enabled again, and holds until it is disabled.
#[test]
fn what_is_asked_for() {
    let Some(pod) = pod(&service(
        "echo up; echo err >&2; exec sleep 1000",
        "StandardError=null\n[Unit]\nStartLimitIntervalSec=0\n",
    )) else {
        return;
    };
    let env = || {
        let path = pod.path("/etc/systemd/system/iomux@app.service.d/iottymux.env");
        let text = fs::read_to_string(path).unwrap();
        let log = text.lines().find_map(|line| line.strip_prefix("IOTTYMUX_LOG="));
        log.unwrap_or_default().trim_matches('"').to_owned()
    };
    for (words, want) in [
        (&[][..], "journal:stdout"),
        (
            &["--log", "raw:/var/log/iottymux/app/log"],
            "journal:stdout,raw:/var/log/iottymux/app/log",
        ),
        (&["--log", "none"], ""),
        (
            &["--log", "none", "--log", "raw:/var/log/iottymux/app/log"],
            "raw:/var/log/iottymux/app/log",
        ),
        (&["--log", "journal"], "journal"),
        // What is not named stays.
        (&[], "journal"),
        (&["--reset"], "journal:stdout"),
    ] {
        pod.run(&["journalctl", "--rotate", "--vacuum-time=1us"]);
        enable(&pod, &[&STREAMS[..], words].concat());
        // With these streams already it runs on, and says nothing.
        pod.systemctl(&["restart", "app"]);
        assert_eq!(env(), want, "{words:?}");
        let all: BTreeSet<_> = match want {
            "journal" => ["up", "err"].into(),
            _ if want.starts_with("journal") => ["up"].into(),
            _ => [].into(),
        };
        // It says this to whoever attaches, in any case.
        pod.connect("app", "sock-stdout").line_ending("up");
        pod.connect("app", "sock-stderr").line_ending("err");
        eventually("it is in the journal", || {
            texts(&pod).iter().map(String::as_str).collect::<BTreeSet<_>>() == all
        });
        assert_eq!(writer(&pod).is_some(), !all.is_empty());
        pod.run(&["iottymux", "status", "--app", "app"]);
    }
    pod.run(&["iottymux", "disable", "app", "--now"]);
    assert_eq!(pod.property("app.service", "StandardOutput"), "journal");
    pod.systemctl(&["stop", "app"]);
    let both =
        pod.try_run(&["iottymux", "enable", "app", "--tty", "--log", "none", "--log", "journal"]);
    assert_eq!(both.status.code(), Some(2), "{both:?}");
}

/// What a service says when all stops at once is in the journal: its writer is not stopped before.
#[test]
fn the_last_words_when_all_is_stopped() {
    let script = r#"trap "echo good-bye; exit 0" TERM; echo up; while :; do sleep 0.1; done"#;
    let Some(pod) = pod(&service(script, "DefaultDependencies=no\n")) else { return };
    let rest = "[Unit]\nDefaultDependencies=no\nAllowIsolate=yes\nWants=systemd-journald.service\n";
    pod.set_unit("rest.target", rest);
    for tty in [false, true] {
        let modes = if tty { &["--tty"][..] } else { &STREAMS };
        enable(&pod, modes);
        await_text(&pod, "up");
        pod.run(&["journalctl", "--rotate", "--vacuum-time=1us"]);
        pod.systemctl(&["isolate", "rest.target"]);
        await_text(&pod, "good-bye");
        eventually("the writer has ended", || writer(&pod).is_none());
    }
}
