//! What needs rights works with the few that the templates leave: logs wherever they are, whatever happens to
//! their directories and file systems, and apps that have few rights themselves.

use std::fs;
use std::path::PathBuf;

use nix::sys::signal::Signal;
use serde_json::Value;

use crate::log::{journal, message, with_journald};
use crate::pod::{Plan, Pod};
use crate::proc::eventually;
use crate::status::{Attach, line};

const MUX: &str = "iomux@demo.service";

/// An app that repeats what it is told, with a raw log of that.
struct Logged {
    pod: Pod,
    log: PathBuf,
}

impl Logged {
    fn new(log: &str) -> Option<Self> {
        let logs = format!("[Service]\nEnvironment=IOTTYMUX_LOG=raw:{log}\n");
        let pod = Plan::new()?
            .with_delivered_units()
            .unit("demo.service.d/app.conf", "[Service]\nExecStart=\nExecStart=/bin/cat\n")
            .unit("iomux@demo.service.d/log.conf", &logs)
            .root_file("srv/log/.keep", "")
            .root_file("home/other/.keep", "")
            .root_file("tmp/other/.keep", "")
            .root_file("etc/demo/.keep", "")
            .boot();
        let dir = std::path::Path::new(log).parent().unwrap().to_str().unwrap();
        pod.run(&["install", "-d", "-o", "iottymux", dir]);
        pod.run(&["chown", "iottymux", "/srv"]);
        pod.systemctl(&["start", "demo.service"]);
        let log = pod.path(log);
        Some(Self { pod, log })
    }

    fn sh(&self, script: &str) {
        self.pod.run(&["sh", "-ec", script]);
    }

    fn kill_mux(&self) {
        self.pod.systemctl(&["kill", "--kill-who=main", "--signal=KILL", MUX]);
        self.pod.await_mux("demo", "stdin");
    }

    /// Whatever becomes of the log, the app and its clients go on.
    fn say(&self, word: &str) {
        let mut out = self.pod.connect("demo", "sock-stdout");
        self.pod.connect("demo", "sock-stdin").say(&format!("{word}\n"));
        out.line_ending(word);
    }

    fn has(&self, text: &str) {
        eventually("it is logged", || fs::read_to_string(&self.log).is_ok_and(|t| t == text));
    }

    /// Why the log cannot be written.
    fn failing(&self) -> Option<String> {
        let status = self.pod.run(&["iottymux", "status", "--app", "demo", "--json"]);
        let status: Value = serde_json::from_str(&status).unwrap();
        status["logs"][0]["failing"].as_str().map(str::to_owned)
    }

    fn is_refused(&self) {
        let is_refused = || self.failing().is_some_and(|why| why.contains("Read-only"));
        eventually("it fails", is_refused);
    }
}

/// The places of a log come and go while its mux runs, and nothing is pinned by what protects it.
#[test]
fn a_log_whose_places_come_and_go() {
    let Some(app) = Logged::new("/srv/log/demo.log") else { return };
    app.say("one");
    app.has("one\n");
    // The directory is removed and made again, by somebody or by the mux.
    app.sh("rm -r /srv/log; install -d -o iottymux /srv/log");
    app.say("two");
    app.has("two\n");
    app.sh("rm -r /srv; install -d -o iottymux /srv");
    app.say("three");
    app.has("three\n");
    // A file system is mounted where the log was, becomes read-only, and is so no more.
    app.sh("rm -r /srv/log; mount -t tmpfs tmpfs /srv; mount -o remount,ro /srv");
    app.say("four");
    app.is_refused();
    app.sh("mount -o remount,rw /srv");
    app.has("four\n");
    // It goes, and the log is where it was.
    app.sh("rm -r /srv/log; umount -l /srv");
    app.say("five");
    app.has("five\n");
    // One of another app goes at once, for the mux's view of it holds it nowhere.
    app.sh("mkdir -p /opt; mount -t tmpfs tmpfs /opt");
    app.pod.systemctl(&["restart", MUX]);
    app.sh("umount /opt");
    let mounts = format!("/proc/{}/mountinfo", app.pod.property(MUX, "MainPID"));
    assert!(!fs::read_to_string(app.pod.path(&mounts)).unwrap().contains(" /opt "));
}

/// What was read-only when the mux was started remains so for it: the next one has all that was said.
#[test]
fn a_log_below_a_path_that_was_read_only_at_the_start() {
    let Some(app) = Logged::new("/srv/log/demo.log") else { return };
    app.sh("mount -t tmpfs tmpfs /srv; mount -o remount,ro /srv");
    app.kill_mux();
    app.say("one");
    app.is_refused();
    app.sh("mount -o remount,rw /srv");
    app.kill_mux();
    app.say("two");
    app.has("one\ntwo\n");
}

/// As docs/units-reference.md says: what a mux does not see of others it sees for its own log, wherever that becomes of it.
#[test]
fn a_log_below_a_directory_that_muxes_do_not_see() {
    for dir in ["/home/you", "/etc/demo", "/tmp/demo"] {
        let Some(app) = Logged::new(&format!("{dir}/log/demo.log")) else { return };
        app.say("one");
        app.has("one\n");
        app.sh(&format!("rm -r {dir}; install -d -o iottymux {dir}"));
        app.say("two");
        app.has("two\n");
        let seen = |place: &str| {
            let pid = app.pod.property(MUX, "MainPID");
            app.pod.run(&["nsenter", "-t", &pid, "-m", "sh", "-c", &format!("ls {place} | wc -l")])
        };
        for place in ["/home", "/tmp"] {
            let is_seen = seen(place) != "0\n";
            assert_eq!(is_seen, dir.starts_with(place), "{place} beside {dir}");
        }
    }
}

/// A user who is neither root nor the app's.
const OTHER: u32 = 1;

/// A service of an ordinary user, with a view of its own of all files: attached, typed to by another user, and
/// logged in every way.
#[test]
fn an_app_with_few_rights() {
    let script = "stty -echo 2>/dev/null; id -un; echo mine >/tmp/mine && cat /tmp/mine; \
        tty -s && echo terminal >/dev/tty; exec cat";
    let app = format!(
        "[Service]\nUser=nobody\nProtectSystem=strict\nPrivateTmp=yes\nRestart=no\nExecStart=\n\
         ExecStart=/bin/sh -c '{script}'\n"
    );
    let log = |name: &str| {
        let files =
            ["cri", "json-file", "raw"].map(|f| format!("{f}:/var/log/iottymux/{name}/{f}"));
        let log = format!("IOTTYMUX_LOG={},journald", files.join(","));
        format!("[Service]\nEnvironment={log} IOTTYMUX_ALLOW_UID={OTHER}\n")
    };
    let Some(plan) = Plan::new() else { return };
    let pod = with_journald(plan.with_delivered_units())
        .unit("demo.service.d/app.conf", &app)
        .unit("shell.service.d/app.conf", &app)
        .unit("iomux@demo.service.d/log.conf", &log("demo"))
        .unit("ttymux@shell.service.d/log.conf", &log("shell"))
        .boot();
    for (app, mux, mode, says, end, signal) in [
        ("demo", "iomux", "stdin", &["nobody", "mine"][..], "\n", Signal::SIGTERM),
        ("shell", "ttymux", "tty-in", &["nobody", "mine", "terminal"], "\r\n", Signal::SIGHUP),
    ] {
        pod.systemctl(&["start", app]);
        let mut attach = Attach::new(&pod, app);
        let types = format!(
            "echo typed | setpriv --reuid={OTHER} --clear-groups \
             iottymux --state-dir /run/iottymux attach --app {app} --mode {mode}"
        );
        let mut shows = |want: &str| {
            assert_eq!(line(&mut attach.stdout), format!("{want}{end}"), "{app}");
        };
        for want in says {
            shows(want);
        }
        // Before that its terminal may show what is typed.
        pod.run(&["sh", "-ec", &types]);
        shows("typed");
        let said = [says, &["typed"]].concat();
        pod.systemctl(&["stop", app, &format!("{mux}@{app}.service")]);
        let (code, out, err) = attach.ends();
        assert_eq!((code, &*out), (128 + signal as i32, ""), "{app}: {err}");
        let files = ["cri", "json-file", "raw"].map(|format| {
            fs::read_to_string(pod.path(&format!("/var/log/iottymux/{app}/{format}"))).unwrap()
        });
        let cr = end.trim_end_matches('\n');
        let want: Vec<_> = said.iter().map(|line| format!("{line}{cr}")).collect();
        let cri = files[0].split_terminator('\n').map(|l| l.split_once(" stdout F ").unwrap().1);
        assert_eq!(cri.collect::<Vec<_>>(), want);
        let json = files[1].lines().map(|l| serde_json::from_str::<Value>(l).unwrap());
        let json =
            json.map(|entry| entry["log"].as_str().unwrap().trim_end_matches('\n').to_owned());
        assert_eq!(json.collect::<Vec<_>>(), want);
        assert_eq!(files[2].split_terminator('\n').collect::<Vec<_>>(), want);
        assert!(!pod.path("/tmp/mine").exists());
        let container = format!("CONTAINER_NAME={app}");
        let texts = || -> Vec<_> {
            let entries = journal(&pod, &["_COMM=iottymux", &container]);
            entries.iter().map(|e| String::from_utf8(message(e)).unwrap()).collect()
        };
        eventually("it is in the journal", || texts() == want);
    }
}
