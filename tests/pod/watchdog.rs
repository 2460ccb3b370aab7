//! A mux that hangs is killed and started again, and the app does not notice.

use crate::pod::{Plan, Pod};
use crate::proc::eventually;

const MUX: &str = "iomux@demo.service";

/// A pod with this watchdog, if any, and an app that says a number for each line that it reads, or all the time.
fn pod(watchdog: &str, script: &str) -> Option<Pod> {
    let app = format!("[Service]\nExecStart=\nExecStart=/bin/sh -c '{script}'\n");
    let plan = Plan::new()?.with_delivered_units().unit("demo.service.d/x.conf", &app);
    let pod = plan.unit(&format!("{MUX}.d/x.conf"), &format!("[Service]\n{watchdog}\n")).boot();
    pod.systemctl(&["start", "demo.service"]);
    Some(pod)
}

/// How long the mux may be silent now.
fn time(pod: &Pod) -> String {
    pod.property(MUX, "WatchdogUSec")
}

#[test]
fn a_mux_that_hangs_is_replaced() {
    let script = "n=0; while :; do n=$((n+1)); echo $n; sleep 0.01; done";
    let Some(pod) = pod("WatchdogSec=2s", script) else { return };
    let app = pod.property("demo.service", "MainPID");
    let mut before = 0;
    for round in 1..=2 {
        let mux = pod.property(MUX, "MainPID");
        pod.connect("demo", "sock-stdout").line();
        pod.run(&["kill", "-STOP", &mux]);
        eventually("it is started again", || pod.property(MUX, "NRestarts") == round.to_string());
        pod.await_mux("demo", "stdin");
        let mut stdout = pod.connect("demo", "sock-stdout");
        stdout.line();
        let number: u64 = stdout.line().parse().unwrap();
        assert!(number > before);
        before = number;
    }
    assert!(pod.console().contains("iomux@demo.service: Watchdog timeout"), "{}", pod.console());
    assert_eq!(pod.property("demo.service", "MainPID"), app);
}

/// It is armed when there is something to do and disarmed soon after it, again and again. Meanwhile the mux is
/// silent for longer than its time.
#[test]
fn an_idle_mux_has_no_watchdog() {
    let Some(pod) = pod("WatchdogSec=1s", "exec cat") else { return };
    let mux = pod.property(MUX, "MainPID");
    for word in ["one", "two", "three"] {
        eventually("it is disarmed", || time(&pod) == "0");
        let mut stdout = pod.connect("demo", "sock-stdout");
        eventually("it is armed", || time(&pod) == "1s");
        eventually("it is disarmed", || time(&pod) == "0");
        pod.run(&["sleep", "1.5"]);
        pod.connect("demo", "sock-stdin").say(&format!("{word}\n"));
        assert_eq!(stdout.line(), word);
    }
    assert_eq!(pod.property(MUX, "MainPID"), mux);
}

/// Without a line in the unit it has its usual time.
#[test]
fn a_mux_has_a_watchdog_by_itself() {
    let Some(pod) = pod("", "exec cat") else { return };
    let _stdout = pod.connect("demo", "sock-stdout");
    eventually("it is armed", || time(&pod) == "30s");
}
