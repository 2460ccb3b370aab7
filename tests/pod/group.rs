//! What ends a control group signals app, mux and keeper at once: the stop of a unit, a logout, a shutdown. Nothing
//! is lost by that, and the app gets each signal once.

use std::fs;

use crate::pod::Plan;

/// Counts its signals, and is busy for a moment when it is asked to end. What bash says of its children depends on time.
const APP: &str = "\
exec 2>/dev/null
trap 'echo hup' HUP; trap 'echo term; sleep 0.2; echo bye; exit 5' TERM; echo up; while :; do sleep 0.05; done
";

/// Starts `$1` apps with the options `$2`, each in a unit of its own (options `$3`, its kind `$4`), and stops these.
const UNITS: &str = "
for n in $(seq $1); do
  systemd-run -q --collect $3 --unit=u$n sh -c \"iottymux run --scope=never -d $2 --name e$n --log cri:/shared/log$n bash /shared/app; exec sleep inf\" </dev/null >/dev/null 2>&1 &
done
for n in $(seq $1); do until iottymux wait e$n --for up --from start --timeout 30; do sleep 0.1; done; done
for n in $(seq $1); do systemctl stop u$n$4 & p=\"$p $!\"; done; wait $p
for n in $(seq $1); do while ! iottymux status e$n --json | grep -q '\"state\":\"ended\"'; do sleep 0.1; done; done
";

/// How many at a time.
const APPS: usize = 6;

#[test]
fn the_end_of_a_unit_loses_nothing_of_its_commands() {
    let Some(plan) = Plan::new() else { return };
    let pod = plan.write("shared/app", APP).boot();
    // A service gets SIGTERM again when its main process has ended.
    for (options, scope, kind) in
        [("", "--scope", ".scope"), ("-t", "--scope", ".scope"), ("", "", "")]
    {
        pod.run(&["bash", "-c", UNITS, "bash", &APPS.to_string(), options, scope, kind]);
        for n in 1..=APPS {
            let log = fs::read_to_string(pod.shared(&format!("log{n}"))).unwrap();
            let lines: Vec<&str> = log.lines().filter_map(|line| line.rsplit(' ').next()).collect();
            let mut lines: Vec<&str> =
                lines.iter().map(|line| line.trim_end_matches('\r')).collect();
            if scope.is_empty() {
                lines.dedup();
            }
            assert_eq!(lines, ["up", "term", "bye"], "{options} {scope} {n}: {log}");
            let status = pod.run(&["iottymux", "status", &format!("e{n}")]);
            assert!(status.contains("ended with status 5"), "{options} {n}: {status}");
            pod.run(&["iottymux", "rm", &format!("e{n}")]);
            fs::remove_file(pod.shared(&format!("log{n}"))).unwrap();
        }
    }
}

/// By whoever stops both at once.
#[test]
fn a_service_that_is_stopped_with_its_mux_loses_nothing() {
    let unit = "[Service]\nExecStart=/bin/bash /shared/app\n";
    let Some(plan) = Plan::new() else { return };
    let pod = plan.write("shared/app", APP).unit("demo.service", unit).boot();
    for (options, mux) in [("--streams", "iomux@demo"), ("--tty", "ttymux@demo")] {
        let log = "--log=cri:/var/log/iottymux/demo/log";
        pod.run(&["iottymux", "enable", "demo", "--reset", options, log]);
        pod.systemctl(&["start", "demo"]);
        pod.run(&["iottymux", "wait", "demo", "--for", "up", "--from", "start"]);
        pod.systemctl(&["stop", "demo", mux]);
        let status = pod.run(&["iottymux", "status", "demo"]);
        assert!(status.contains("ended with status 5"), "{options}: {status}");
        let log = pod.run(&["iottymux", "logs", "demo"]);
        assert!(log.replace('\r', "").ends_with("term\nbye\n"), "{log:?}");
    }
}
