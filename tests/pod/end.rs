//! The end of an app is reported only when all of its output is read, also while its mux is restarted.

use std::fs;
use std::io::Read;

use nix::sys::signal::Signal;

use crate::cri::{cri, joined};
use crate::log::{journal, message, with_journald};
use crate::pod::{AS_ROOT, LOGS, Plan, Pod};
use crate::proc::eventually;
use crate::status::{Attach, line};

const MUX: &str = "iomux@demo.service";
/// Half a line, which ends amid a character.
const HALF: &[u8] = b"half \xc3";
/// Writes that, and when it is asked to the rest, with more lines than its pipe holds; then it ends.
const SCRIPT: &str = "read x; printf 'half \\303'; read x; printf '\\251\\n'; seq 20000; exit 0";

/// All that the app writes.
fn written() -> String {
    let numbers = (1..=20_000).map(|number| format!("{number}\n"));
    std::iter::once("half \u{e9}\n".to_owned()).chain(numbers).collect()
}

/// A plan for this app, with a drop-in for its mux.
fn plan(more: &str) -> Option<Plan> {
    let app = "[Service]\nExecStart=\nExecStart=/bin/sh /shared/app.sh\nRestart=no\n";
    let plan = Plan::new()?.with_delivered_units();
    let plan = plan.unit(&format!("{MUX}.d/x.conf"), more).unit("demo.service.d/x.conf", app);
    Some(plan.write("shared/app.sh", SCRIPT))
}

/// Lets the app write half a line, which the client gets.
fn begin(pod: &Pod) -> Attach {
    pod.systemctl(&["start", "demo.service"]);
    let mut attach = Attach::with(pod, "demo", &["--mode", "stdout", "--reconnect", "20"]);
    pod.connect("demo", "sock-stdin").say("\n");
    let mut half = [0; HALF.len()];
    attach.stdout.read_exact(&mut half).unwrap();
    assert_eq!(half, HALF);
    attach
}

/// The client gets the rest, and the app's status.
fn assert_complete(mut attach: Attach) {
    let mut rest = Vec::new();
    attach.stdout.read_to_end(&mut rest).unwrap();
    let (code, _, said) = attach.ends();
    let all = [HALF, &rest].concat();
    assert!(all == written().as_bytes(), "{code}, {} bytes: {said}", all.len());
    assert_eq!(code, 0, "{said}");
}

fn is_zombie(pod: &Pod, pid: &str) -> bool {
    let stat = fs::read_to_string(pod.path(&format!("/proc/{pid}/stat"))).unwrap();
    stat.rsplit(") ").next().unwrap().starts_with('Z')
}

fn mux_state(pod: &Pod) -> String {
    let status = pod.run(&["iottymux", "status", "--app", "demo", "--json"]);
    let status: serde_json::Value = serde_json::from_str(&status).unwrap();
    status["state"].as_str().unwrap().to_owned()
}

/// The mux is told to end, and asks a PID 1 that does not answer; meanwhile the app writes the rest and ends.
#[test]
fn what_an_app_writes_while_its_mux_asks_how_it_ended() {
    // As root it asks itself. It is started again, whatever ended it.
    let log = "Environment=IOTTYMUX_LOG=cri:/shared/log";
    let Some(plan) = plan(&format!("{AS_ROOT}Restart=always\n{log}\n")) else { return };
    let pod = plan.boot();
    let attach = begin(&pod);
    let (app, mux) = (pod.property("demo", "MainPID"), pod.property(MUX, "MainPID"));
    pod.signal_init(Signal::SIGSTOP);
    pod.run(&["kill", &mux]);
    eventually("it drains", || mux_state(&pod) == "draining");
    pod.connect("demo", "sock-stdin").say("\n");
    eventually("the app has ended", || is_zombie(&pod, &app));
    pod.signal_init(Signal::SIGCONT);
    assert_complete(attach);
    pod.systemctl(&["stop", MUX]);
    let log = fs::read(pod.shared("log")).unwrap();
    assert!(joined(&cri(&log), "stdout") == written().as_bytes(), "{}", log.escape_ascii());
}

/// Half a line of one mux is finished by the next one, in each format.
#[test]
fn half_a_line_is_finished_by_the_next_mux() {
    let logs = ["cri", "raw", "json-file"].map(|format| format!("{format}:{LOGS}/{format}"));
    let logs = [&logs.join(",")[..], "journal"].join(",");
    let Some(plan) = plan(&format!("[Service]\nEnvironment=IOTTYMUX_LOG={logs}\n")) else {
        return;
    };
    let pod = with_journald(plan).boot();
    let mut attach = begin(&pod);
    for _ in 0..2 {
        pod.systemctl(&["restart", MUX]);
        assert!(line(&mut attach.stderr).contains("the mux has ended"));
        assert!(line(&mut attach.stderr).contains("attached again"));
    }
    pod.connect("demo", "sock-stdin").say("\n");
    assert_complete(attach);
    pod.systemctl(&["stop", MUX]);
    let read = |name: &str| fs::read(pod.path(&format!("{LOGS}/{name}"))).unwrap();
    assert!(read("raw") == written().as_bytes());
    assert!(joined(&cri(&read("cri")), "stdout") == written().as_bytes());
    let json = String::from_utf8(read("json-file")).unwrap();
    let text = |line: &str| {
        let entry: serde_json::Value = serde_json::from_str(line).unwrap();
        entry["log"].as_str().unwrap().to_owned()
    };
    assert!(json.lines().map(text).collect::<String>() == written(), "{json:.300}");
    let newest = ["journalctl", "-u", "demo.service", "-o", "cat", "-n", "9"];
    eventually("the journal has all", || pod.run(&newest).lines().any(|line| line == "20000"));
    let own = |entry: &&serde_json::Value| entry["IOTTYMUX_STREAM"] == "stdout";
    let entries = journal(&pod, &["-u", "demo.service"]);
    let texts: Vec<_> = entries.iter().filter(own).map(message).collect();
    assert_eq!(texts[0], "half \u{e9}".as_bytes());
    assert!(texts.concat() == written().replace('\n', "").as_bytes());
}

/// Both streams of an app share a raw log. A line of which one mux has written the first part is finished
/// before the other stream continues.
#[test]
fn a_long_line_in_a_raw_log_is_finished_first() {
    let log = format!("raw:{LOGS}/log");
    let env = format!("[Service]\nEnvironment=IOTTYMUX_LOG={log} IOTTYMUX_LOG_LINE_LIMIT=10\n");
    let Some(plan) = plan(&env) else { return };
    let script = "read x; printf 0123456789abcde >&2; read x; echo out; echo end >&2; exit 0";
    let pod = plan.write("shared/app.sh", script).boot();
    pod.systemctl(&["start", "demo.service"]);
    let mut said = pod.connect("demo", "sock-stdin");
    said.say("\n");
    let log = || fs::read(pod.path(&format!("{LOGS}/log"))).unwrap_or_default();
    eventually("the first part is logged", || log() == b"0123456789");
    pod.systemctl(&["restart", MUX]);
    pod.connect("demo", "sock-stdin").say("\n");
    eventually("all is logged", || log().len() == 23);
    assert_eq!(log().escape_ascii().to_string(), "0123456789abcdeend\\nout\\n");
}
