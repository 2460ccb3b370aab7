//! The app's status reaches those who are attached, and its restarts are told.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, Stdio};

use crate::pod::{Plan, Pod};
use crate::proc::eventually;

/// An attach inside, with pipes.
pub struct Attach {
    child: Child,
    stdin: Option<ChildStdin>,
    pub stdout: BufReader<ChildStdout>,
    pub stderr: BufReader<ChildStderr>,
}

impl Attach {
    pub fn new(pod: &Pod, app: &str) -> Self {
        Self::with(pod, app, &[])
    }

    pub fn with(pod: &Pod, app: &str, more: &[&str]) -> Self {
        let mut child = pod
            .command(&[&["iottymux", "attach", "--app", app], more].concat())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let stdin = child.stdin.take();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let stderr = BufReader::new(child.stderr.take().unwrap());
        Self { child, stdin, stdout, stderr }
    }

    pub fn say(&mut self, text: &str) {
        self.stdin.as_mut().unwrap().write_all(text.as_bytes()).unwrap();
    }

    /// Its exit code, and what it had still to say on both outputs.
    pub fn ends(mut self) -> (i32, String, String) {
        let mut said = (String::new(), String::new());
        self.stdout.read_to_string(&mut said.0).unwrap();
        self.stderr.read_to_string(&mut said.1).unwrap();
        (self.child.wait().unwrap().code().unwrap(), said.0, said.1)
    }
}

pub fn line(from: &mut impl BufRead) -> String {
    let mut line = String::new();
    from.read_line(&mut line).unwrap();
    line
}

fn status(pod: &Pod, app: &str) -> serde_json::Value {
    let status = pod.run(&["iottymux", "status", "--app", app, "--json"]);
    serde_json::from_str(&status).unwrap()
}

/// demo.service runs this when it is told to, once.
fn script(script: &str) -> String {
    format!("[Service]\nExecStart=\nExecStart=/bin/sh -c 'read x; {script}'\nRestart=no\n")
}

const ENDS: [(&str, i32); 3] = [("exit 0", 0), ("exit 3", 3), ("kill -KILL $$$$", 128 + 9)];

/// Each way to end is the attach's, with the app's unit changed like this.
fn assert_ends(pod: &Pod, more: &str, ends: &[(&str, i32)]) {
    for (end, code) in ends {
        pod.set_unit("demo.service.d/x.conf", &(script(&format!("echo got $x; {end}")) + more));
        pod.systemctl(&["start", "demo.service"]);
        let mut attach = Attach::new(pod, "demo");
        attach.say("it\n");
        let told = attach.ends();
        assert_eq!(told, (*code, "got it\n".into(), String::new()), "{end}\n{}", pod.console());
        pod.systemctl(&["stop", "iomux@demo.service"]);
        pod.systemctl(&["reset-failed"]);
    }
}

#[test]
fn the_status_of_a_service_with_streams() {
    let Some(pod) = Pod::delivered() else { return };
    assert_ends(&pod, "", &ENDS);
}

#[test]
fn the_status_of_a_service_of_another_user() {
    let Some(pod) = Pod::delivered() else { return };
    assert_ends(&pod, "User=nobody\n", &ENDS);
}

#[test]
fn the_status_of_a_service_with_a_terminal() {
    let Some(pod) = Pod::delivered() else { return };
    // Its mux sees the directory of the app in another one.
    pod.systemctl(&["start", "shell.service"]);
    let listed = pod.run(&["iottymux", "list", "--all", "--quiet"]);
    assert_eq!(listed.lines().filter(|app| *app == "shell").count(), 1, "{listed}");
    pod.systemctl(&["stop", "shell.service", "ttymux@shell.service"]);
    for (end, code) in ENDS {
        pod.set_unit("shell.service.d/x.conf", "[Service]\nRestart=no\n");
        pod.systemctl(&["start", "shell.service"]);
        let mut attach = Attach::new(&pod, "shell");
        assert_eq!(status(&pod, "shell")["app_pid"].to_string(), pod.property("shell", "MainPID"));
        attach.say(&format!("{}\n", end.replace("$$$$", "$$")));
        let (ended, out, err) = attach.ends();
        assert_eq!(ended, code, "{end}: {out} {err}\n{}", pod.console());
        pod.systemctl(&["stop", "ttymux@shell.service"]);
        pod.systemctl(&["reset-failed"]);
    }
}

#[test]
fn a_stop_is_the_end_of_the_app_and_a_restart_of_the_mux_is_not() {
    let Some(pod) = Pod::delivered() else { return };
    pod.systemctl(&["start", "demo.service"]);
    let mut attach = Attach::new(&pod, "demo");
    assert_eq!(line(&mut attach.stderr), "demo: tell me something\n");
    pod.systemctl(&["restart", "iomux@demo.service"]);
    // Whether it goes on or has ended, it does not tell a status.
    drop(attach);
    let mut attach = Attach::new(&pod, "demo");
    attach.say("hello\n");
    assert_eq!(line(&mut attach.stdout), "hello\n");
    pod.systemctl(&["stop", "demo.service"]);
    assert_eq!(attach.ends(), (128 + 15, String::new(), String::new()));
}

#[test]
fn restarts_are_reported_and_end_nothing() {
    let Some(pod) = Pod::delivered() else { return };
    // The last of its ends is not tried again.
    let more = "Restart=on-failure\nRestartPreventExitStatus=7\n";
    pod.set_unit("demo.service.d/x.conf", &(script("echo got $x; exit $x") + more));
    pod.systemctl(&["start", "demo.service"]);
    let mut attach = Attach::new(&pod, "demo");
    for status in 1..=3 {
        attach.say(&format!("{status}\n"));
        assert_eq!(line(&mut attach.stdout), format!("got {status}\n"));
        let told = format!("iottymux: app demo ended with status {status} and was started again\n");
        assert_eq!(line(&mut attach.stderr), told);
    }
    let status = status(&pod, "demo");
    assert_eq!(status["app_pid"].to_string(), pod.property("demo.service", "MainPID"));
    assert_eq!(status["app_ended"], serde_json::json!({"status": 3}));
    assert_eq!(status["restarts"], 3);
    attach.say("7\n");
    assert_eq!(attach.ends(), (7, "got 7\n".into(), String::new()));
}

/// The next mux knows the app's process, how the run before ended, and how often the app was restarted.
#[test]
fn what_is_known_of_the_app_survives_a_restart_of_the_mux() {
    let Some(pod) = Pod::delivered() else { return };
    let more = "Restart=on-failure\n";
    pod.set_unit("demo.service.d/x.conf", &(script("echo got $x; exit $x") + more));
    pod.systemctl(&["start", "demo.service"]);
    let restarts = |restarts: u64| {
        eventually("the restart is reported", || status(&pod, "demo")["restarts"] == restarts);
        let status = status(&pod, "demo");
        assert_eq!(status["app_pid"].to_string(), pod.property("demo.service", "MainPID"));
        assert_eq!(status["app_ended"], serde_json::json!({"status": 3}));
    };
    for round in 1..=2 {
        pod.connect("demo", "sock-stdin").say("3\n");
        restarts(round);
        pod.systemctl(&["restart", "iomux@demo.service"]);
        restarts(round);
        pod.systemctl(&["kill", "--kill-who=main", "--signal=KILL", "iomux@demo.service"]);
        pod.await_mux("demo", "stdin");
        restarts(round);
    }
    pod.systemctl(&["stop", "demo.service"]);
    pod.systemctl(&["stop", "iomux@demo.service"]);
    assert_eq!(pod.names("/run/iottymux/demo/mux"), ["last.json", "lock"]);
    // Another start of the app has another life.
    pod.systemctl(&["start", "demo.service"]);
    assert_eq!(status(&pod, "demo")["restarts"], 0);
}

/// The app waits to be started again when the client comes.
#[test]
fn a_client_between_end_and_restart_learns_about_it() {
    let Some(pod) = Pod::delivered() else { return };
    let more = "Restart=on-failure\nRestartSec=infinity\n";
    pod.set_unit("demo.service.d/x.conf", &(script("echo bye; exit 4") + more));
    pod.systemctl(&["start", "demo.service"]);
    let mut first = Attach::new(&pod, "demo");
    first.say("x\n");
    assert_eq!(line(&mut first.stdout), "bye\n");
    // Nobody tells that the hook has run, so this is asked again and again.
    let waits = "until systemctl show -p SubState demo | grep -q auto-restart; do :; done";
    pod.run(&["timeout", "20", "sh", "-c", waits]);
    let status = pod.run(&["iottymux", "status", "--app", "demo"]);
    assert!(status.contains(", app ended with status 4\n"), "{status}");
    let mut late = Attach::with(&pod, "demo", &["--from", "start"]);
    assert_eq!(line(&mut late.stdout), "bye\n");
    pod.systemctl(&["stop", "demo.service"]);
    for attach in [first, late] {
        assert_eq!(attach.ends(), (4, String::new(), String::new()), "{}", pod.console());
    }
}

/// The smallest root directory in which a shell runs; without our program.
const ROOT: &str = "\
RootDirectory=/srv/root
BindReadOnlyPaths=/usr/bin /usr/lib /lib64 /usr/lib:/lib /usr/bin:/bin
";

/// The hooks are skipped there, and the mux asks PID 1.
#[test]
fn the_status_of_a_service_with_a_root_directory() {
    let Some(plan) = Plan::new() else { return };
    let pod = plan.with_delivered_units().root_file("srv/root/.keep", "").boot();
    assert_ends(&pod, ROOT, &ENDS);
    assert_ends(&pod, "RootDirectory=/\n", &ENDS[1..2]);

    pod.set_unit("demo.service.d/x.conf", &(script("cat") + ROOT));
    pod.systemctl(&["start", "demo.service"]);
    let status = status(&pod, "demo");
    assert_eq!(status["app_pid"], serde_json::Value::Null, "the hook has run");
    // A mux that ends alone does not take the app for ended.
    let mut attach = Attach::new(&pod, "demo");
    attach.say("\nhello\n");
    assert_eq!(line(&mut attach.stdout), "hello\n");
    pod.systemctl(&["restart", "iomux@demo.service"]);
    drop(attach);
    let mut attach = Attach::new(&pod, "demo");
    attach.say("again\n");
    assert_eq!(line(&mut attach.stdout), "again\n");
    pod.systemctl(&["stop", "demo.service"]);
    assert_eq!(pod.property("demo.service", "Result"), "success", "{}", pod.console());
    assert_eq!(attach.ends(), (128 + 15, String::new(), String::new()), "{}", pod.console());
}

/// systemd opens the app's FIFOs for each hook, and without a mux would wait in that.
#[test]
fn a_mux_that_was_stopped_alone_holds_up_nothing() {
    let Some(pod) = Pod::delivered() else { return };
    let unit = "[Service]\nExecStart=\nExecStart=/bin/sleep 1000\n";
    for _ in 0..2 {
        pod.set_unit("demo.service.d/x.conf", unit);
        pod.systemctl(&["start", "demo.service"]);
        pod.systemctl(&["stop", "iomux@demo.service"]);
        assert_eq!(pod.property("demo.service", "ActiveState"), "active");
        pod.run(&["timeout", "20", "systemctl", "stop", "demo.service"]);
        assert_eq!(pod.property("demo.service", "Result"), "success", "{}", pod.console());
        // And with one that comes again under the app it goes on.
        pod.systemctl(&["start", "demo.service"]);
        pod.systemctl(&["stop", "iomux@demo.service"]);
        pod.systemctl(&["start", "iomux@demo.service"]);
        let attach = Attach::new(&pod, "demo");
        eventually("it is attached", || {
            let status = status(&pod, "demo");
            status["clients"].as_array().unwrap().iter().any(|client| client["types"] == true)
        });
        pod.run(&["timeout", "20", "systemctl", "stop", "demo.service"]);
        assert_eq!(attach.ends().0, 128 + 15, "{}", pod.console());
    }
}
