//! Logs in a pod: a real journald, and the kubelet's directory as rkt's stage1 has it.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::pod::{AS_ROOT, Plan, Pod, rounds};
use crate::proc::eventually;

/// Where the mux is, whatever else is in the pod.
const STATE: &str = "/run/iottymux";

/// A pod with journald, which keeps to itself and limits nothing.
pub fn with_journald(plan: Plan) -> Plan {
    plan.unit("default.target", "[Unit]\nDefaultDependencies=no\nWants=systemd-journald.service\n")
        .unit("systemd-journald-audit.socket", "")
        .root_file(
            "etc/systemd/journald.conf",
            "[Journal]\nAudit=no\nReadKMsg=no\nStorage=volatile\nRateLimitIntervalSec=0\n",
        )
}

/// An app that says what is in /shared/input, to stdout, then to stderr when it is told to go on.
const APP: &str = "\
[Service]
ExecStart=
ExecStart=/bin/sh -c 'cat /shared/input; read x; echo an error >&2; echo \"<4>a warning\" >&2; exec cat'
";

pub fn journal(pod: &Pod, more: &[&str]) -> Vec<Value> {
    let words = [&["journalctl", "--no-pager", "--all", "-o", "json"], more].concat();
    pod.run(&words).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// What is in there: text is a string, and anything else a list of its bytes.
pub fn message(entry: &Value) -> Vec<u8> {
    match &entry["MESSAGE"] {
        Value::String(text) => text.as_bytes().to_vec(),
        Value::Array(bytes) => {
            bytes.iter().map(|b| u8::try_from(b.as_u64().unwrap()).unwrap()).collect()
        }
        other => panic!("{other}"),
    }
}

/// Waits until a line of the app is in the journal: by then what came before it is, too.
fn await_line(pod: &Pod, line: &str) {
    let wait = format!(
        "until journalctl -u demo.service -o cat | grep -qxF '{line}'; do sleep 0.05; done"
    );
    pod.run(&["timeout", "25", "sh", "-c", &wait]);
}

#[test]
fn the_journal_has_all_under_the_apps_own_unit() {
    let Some(plan) = Plan::new() else { return };
    let pod = with_journald(plan.with_delivered_units())
        .unit("iomux@.service.d/root.conf", AS_ROOT)
        .unit("ttymux@.service.d/root.conf", AS_ROOT)
        .unit("demo.service.d/app.conf", APP)
        .unit(
            "iomux@demo.service.d/log.conf",
            "[Service]\nEnvironment=IOTTYMUX_LOG=journald IOTTYMUX_LOG_LINE_LIMIT=1M\n",
        )
        .boot();
    // A usual line, an empty one, one that is no text, and some that fit no datagram.
    let long = |len: usize| "0123456789abcdef".repeat(len / 16).into_bytes();
    let lines = [
        b"usual".to_vec(),
        b"".to_vec(),
        b"\x00\xff\x1b[1m\tbinary\r".to_vec(),
        long(300 * 1024),
        long(1024 * 1024 + 32),
        b"last".to_vec(),
    ];
    fs::write(pod.shared("input"), [lines.join(&b'\n'), b"\n".to_vec()].concat()).unwrap();
    pod.systemctl(&["start", "demo.service"]);
    await_line(&pod, "last");
    pod.connect("demo", "sock-stdin").say("go on\n");
    await_line(&pod, "a warning");
    let ours = journal(&pod, &["-u", "demo.service", "CONTAINER_NAME=demo"]);
    let shape = |entry: &Value| {
        let word = |name: &str| entry[name].as_str().unwrap_or_default().to_owned();
        assert_eq!(word("SYSLOG_IDENTIFIER"), "demo");
        (word("IOTTYMUX_STREAM"), word("PRIORITY"), word("CONTAINER_PARTIAL_MESSAGE"))
    };
    let told = |stream: &str, priority: &str, partial: &str| {
        (stream.to_owned(), priority.to_owned(), partial.to_owned())
    };
    let usual = told("stdout", "6", "");
    let want = [
        (usual.clone(), lines[0].clone()),
        (usual.clone(), lines[1].clone()),
        (usual.clone(), lines[2].clone()),
        (usual.clone(), lines[3].clone()),
        (told("stdout", "6", "true"), lines[4][..1024 * 1024].to_vec()),
        (usual.clone(), lines[4][1024 * 1024..].to_vec()),
        (usual, lines[5].clone()),
        (told("stderr", "3", ""), b"an error".to_vec()),
        (told("stderr", "4", ""), b"a warning".to_vec()),
    ];
    assert_eq!(ours.len(), want.len());
    for (at, (entry, (fields, text))) in ours.iter().zip(&want).enumerate() {
        assert_eq!(shape(entry), *fields, "{at}");
        assert!(message(entry) == *text, "{at}: {:.300}", message(entry).escape_ascii());
    }
}

/// journald is stopped, and started again: what was kept follows, and the app does not notice.
#[test]
fn journald_goes_and_comes_again() {
    let Some(plan) = Plan::new() else { return };
    let pod = with_journald(plan.with_delivered_units())
        .unit("iomux@.service.d/root.conf", AS_ROOT)
        .unit("ttymux@.service.d/root.conf", AS_ROOT)
        .unit("demo.service.d/app.conf", "[Service]\nExecStart=\nExecStart=/bin/cat\n")
        .unit("iomux@demo.service.d/log.conf", "[Service]\nEnvironment=IOTTYMUX_LOG=journald\n")
        .boot();
    pod.systemctl(&["start", "demo.service"]);
    let mut out = pod.connect("demo", "sock-stdout");
    let mut typed = pod.connect("demo", "sock-stdin");
    let mut said = 0;
    let mut say = |lines: usize| {
        for _ in 0..lines {
            typed.say(&format!("{said:099}\n"));
            assert_eq!(out.line(), format!("{said:099}"));
            said += 1;
        }
        format!("{:099}", said - 1)
    };
    await_line(&pod, &say(10));
    let sockets = ["systemd-journald.socket", "systemd-journald-dev-log.socket"];
    let all = [&["stop", "systemd-journald.service"], &sockets[..]].concat();
    for round in 0..2 {
        if round == 0 {
            pod.systemctl(&all);
        } else {
            // Killed, with the socket there: what is sent waits in it.
            pod.systemctl(&["kill", "-s", "KILL", "systemd-journald.service"]);
        }
        let last = say(50);
        pod.systemctl(&[&["start"], &sockets[..], &["systemd-journald.service"]].concat());
        await_line(&pod, &last);
        await_line(&pod, &say(10));
    }
    let entries = journal(&pod, &["-u", "demo.service", "CONTAINER_NAME=demo"]);
    let got: Vec<_> = entries.iter().map(message).collect();
    let want: Vec<_> = (0..130).map(|n| format!("{n:099}").into_bytes()).collect();
    assert!(
        got == want,
        "{:?}",
        got.iter().map(|m| m.escape_ascii().to_string()).collect::<Vec<_>>()
    );
}

/// journald hangs, and is not gone: the app and its clients go on, and what had to go is counted.
#[test]
fn journald_stops_and_goes_on() {
    const LINES: u64 = 40_000;
    const LINE: usize = 99;
    let Some(plan) = Plan::new() else { return };
    let script = "ExecStart=/bin/sh -c 'echo first; read x; cat /shared/input; exec cat'\n";
    let pod = with_journald(plan.with_delivered_units())
        .unit("iomux@.service.d/root.conf", AS_ROOT)
        .unit("ttymux@.service.d/root.conf", AS_ROOT)
        .unit("demo.service.d/app.conf", &format!("[Service]\nExecStart=\n{script}"))
        .unit("iomux@demo.service.d/log.conf", "[Service]\nEnvironment=IOTTYMUX_LOG=journald\n")
        .boot();
    // Far more than what is kept for it and what its socket takes.
    let input: String = (0..LINES).fold(String::new(), |all, n| all + &format!("{n:0LINE$}\n"));
    fs::write(pod.shared("input"), &input).unwrap();
    pod.systemctl(&["start", "demo.service"]);
    await_line(&pod, "first");
    let mut out = pod.connect("demo", "sock-stdout");
    assert_eq!(out.line(), "first");
    let mut typed = pod.connect("demo", "sock-stdin");
    pod.systemctl(&["kill", "-s", "STOP", "systemd-journald.service"]);
    typed.say("go on\n");
    for n in 0..LINES {
        assert_eq!(out.line(), format!("{n:0LINE$}"));
    }
    typed.say("still there\n");
    assert_eq!(out.line(), "still there");
    pod.systemctl(&["kill", "-s", "CONT", "systemd-journald.service"]);
    await_line(&pod, "still there");
    let entries = journal(&pod, &["-u", "demo.service", "CONTAINER_NAME=demo"]);
    let messages: Vec<_> = entries.iter().map(|e| String::from_utf8(message(e)).unwrap()).collect();
    let (mut next, mut markers) = (0, 0);
    for text in &messages[1..messages.len() - 1] {
        if let Some(lost) = text.strip_prefix("iottymux: ") {
            let (lines, rest) = lost.split_once(" lines (").unwrap();
            let lines: u64 = lines.parse().unwrap();
            assert_eq!(rest, format!("{} bytes) were lost here", lines * LINE as u64));
            next += lines;
            markers += 1;
        } else {
            assert_eq!(*text, format!("{next:0LINE$}"), "after {markers} markers");
            next += 1;
        }
    }
    assert_eq!((next, markers), (LINES, 1));
    assert_eq!((&*messages[0], messages.last().unwrap().as_str()), ("first", "still there"));
}

/// A terminal's logs and its recording, of all kinds at once, over muxes that are killed and restarted.
#[test]
fn a_terminal_in_all_logs_over_many_muxes() {
    let Some(plan) = Plan::new() else { return };
    let script = "ExecStart=/bin/sh -c 'stty -echo; echo ready; exec cat'\n";
    let logs = "cri:/shared/cri,json-file:/shared/json-file,raw:/shared/raw,journald";
    let mux = "ttymux@shell.service";
    let pod = with_journald(plan.with_delivered_units())
        .unit("iomux@.service.d/root.conf", AS_ROOT)
        .unit("ttymux@.service.d/root.conf", AS_ROOT)
        .unit("shell.service.d/app.conf", &format!("[Service]\nRestart=no\nExecStart=\n{script}"))
        .unit(
            "ttymux@shell.service.d/log.conf",
            &format!(
                "[Service]\nEnvironment=IOTTYMUX_LOG={logs} IOTTYMUX_RECORD=cast:/shared/cast\n"
            ),
        )
        .boot();
    let log = |format: &str| fs::read_to_string(pod.shared(format)).unwrap_or_default();
    let formats = ["cri", "json-file", "raw", "cast"];
    pod.systemctl(&["start", "shell.service"]);
    let mut want = vec!["ready\r".to_owned()];
    pod.connect("shell", "sock-tty").line_ending("ready");
    for round in 0..rounds(6, 60) {
        let line = format!("line {round} \u{e9}");
        pod.connect("shell", "sock-tty").say(&format!("{line}\n"));
        eventually("it is logged", || formats.iter().all(|format| log(format).contains(&line)));
        want.push(line + "\r");
        if round % 2 == 0 {
            pod.systemctl(&["kill", "--kill-who=main", "--signal=KILL", mux]);
        } else {
            pod.systemctl(&["restart", mux]);
        }
        pod.await_mux("shell", "tty-in");
    }
    pod.systemctl(&["stop", "shell.service", mux]);
    // What nobody could confirm when the mux was killed may be there twice: one entry of journald.
    let check = |what: &str, lines: Vec<String>, again: usize| {
        let mut once: Vec<String> = Vec::new();
        for line in &lines {
            if !once.contains(line) {
                once.push(line.clone());
            }
        }
        assert!(once == want && lines.len() <= want.len() + again, "{what}: {lines:?}");
    };
    let cri = log("cri");
    let text = |line: &str| line.split_once(" stdout F ").expect(line).1.to_owned();
    check("cri", cri.split_terminator('\n').map(text).collect(), want.len() - 1);
    let json = log("json-file");
    let text = |line: &str| {
        let entry: Value = serde_json::from_str(line).unwrap();
        assert_eq!(entry["stream"], "stdout");
        entry["log"].as_str().unwrap().strip_suffix('\n').unwrap().to_owned()
    };
    check("json-file", json.lines().map(text).collect(), want.len() - 1);
    check("raw", log("raw").split_terminator('\n').map(str::to_owned).collect(), want.len() - 1);
    let cast = log("cast");
    let events = cast.lines().skip(1).map(|line| serde_json::from_str(line).expect(line));
    let events: Vec<(f64, char, String)> = events.collect();
    assert!(events.iter().is_sorted_by(|a, b| a.0 <= b.0), "{cast}");
    let shown = events.iter().filter(|event| event.1 == 'o').map(|event| event.2.as_str());
    let shown: String = shown.collect();
    check("cast", shown.split_terminator('\n').map(str::to_owned).collect(), want.len() - 1);
    let entries = journal(&pod, &["-u", "shell.service", "CONTAINER_NAME=shell"]);
    assert!(entries.iter().all(|entry| entry["IOTTYMUX_STREAM"] == "stdout"), "{entries:?}");
    let text = |entry: &Value| String::from_utf8(message(entry)).unwrap();
    check("journald", entries.iter().map(text).collect(), want.len() / 2);
}

/// What rkt's variables ask for: a file below the directory that the kubelet reads.
#[test]
fn the_kubelets_directory() {
    let Some(plan) = Plan::new() else { return };
    let pod = plan
        .with_delivered_units()
        .unit("demo.service.d/app.conf", "[Service]\nExecStart=\nExecStart=/bin/cat\n")
        .unit(
            "iomux@demo.service.d/log.conf",
            "[Service]\nEnvironment=STAGE1_LOGMODE=k8s-plain KUBERNETES_LOG_PATH=hello/0.log\n",
        )
        .unit("iomux@demo.service.d/root.conf", AS_ROOT)
        .root_file("rkt/kubernetes/log/.keep", "")
        .root_file("elsewhere/.keep", "")
        .boot();
    let dir = pod.path("/rkt/kubernetes/log");
    let say = |text: &str| {
        let mut out = pod.connect("demo", "sock-stdout");
        pod.connect("demo", "sock-stdin").say(text);
        out.line_ending(text.trim_end());
    };
    pod.systemctl(&["start", "demo.service"]);
    let made = fs::read(dir.join("hello/0.log"));
    assert_eq!(made.ok(), Some(vec![]), "it is there with the app: {}", pod.console());
    say("one\n");
    pod.systemctl(&["stop", "demo.service", "iomux@demo.service"]);
    assert_eq!(texts(&dir.join("hello/0.log")), ["stdout F one"]);

    // Somebody who fills that directory cannot lead the log elsewhere; the app is not touched.
    fs::rename(dir.join("hello"), dir.join("old")).unwrap();
    for (link, to) in [("hello", "/elsewhere"), ("hello", "old"), ("hello/0.log", "/elsewhere/x")] {
        if link != "hello" {
            fs::create_dir(dir.join("hello")).unwrap();
        }
        std::os::unix::fs::symlink(to, dir.join(link)).unwrap();
        pod.systemctl(&["start", "demo.service"]);
        say(&format!("past {link}\n"));
        // The writer may not have tried yet.
        eventually("the log fails", || {
            let status =
                pod.run(&["iottymux", "--state-dir", STATE, "status", "--app", "demo", "--json"]);
            let status: Value = serde_json::from_str(&status).unwrap();
            status["logs"][0]["failing"].is_string()
        });
        fs::remove_file(dir.join(link)).unwrap();
        // It is tried again, and then has what was said meanwhile.
        say("and again\n");
        pod.systemctl(&["stop", "demo.service", "iomux@demo.service"]);
        let log = dir.join("hello/0.log");
        assert_eq!(texts(&log), [format!("stdout F past {link}"), "stdout F and again".into()]);
        fs::remove_dir_all(dir.join("hello")).unwrap();
    }
    assert_eq!(pod.names("/elsewhere"), [".keep"]);
    assert_eq!(texts(&dir.join("old/0.log")), ["stdout F one"]);

    // Whose directory it is, and who else may write there, the owner of the host has chosen.
    pod.run(&["chown", "1000:1000", "/rkt/kubernetes/log"]);
    pod.run(&["chmod", "0777", "/rkt/kubernetes/log"]);
    pod.systemctl(&["start", "demo.service"]);
    say("in a directory of everybody\n");
    pod.systemctl(&["stop", "demo.service", "iomux@demo.service"]);
    assert_eq!(texts(&dir.join("hello/0.log")), ["stdout F in a directory of everybody"]);

    // The app is served, though nothing is written out of there.
    pod.set_unit(
        "iomux@demo.service.d/log.conf",
        "[Service]\nEnvironment=STAGE1_LOGMODE=k8s-plain KUBERNETES_LOG_PATH=../0.log\n",
    );
    pod.systemctl(&["start", "demo.service"]);
    say("without a log\n");
    assert!(!pod.path("/rkt/kubernetes/0.log").exists());
}

/// The entries of a CRI log without their stamps.
fn texts(log: &Path) -> Vec<String> {
    let text = fs::read_to_string(log).unwrap();
    text.lines().map(|line| line.split_once(' ').unwrap().1.to_owned()).collect()
}
