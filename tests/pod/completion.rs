//! The names of services that a shell completes.

use std::time::{Duration, Instant};

use crate::pod::{Plan, Pod};

const SLEEP: &str = "[Service]\nExecStart=/bin/sleep 1000\n";
const NEEDS: &str = "[Unit]\nAfter=ghost.service\n[Service]\nExecStart=/bin/sleep 1000\n";
/// How long a person may wait, and a debug build on a busy machine five times that.
const PROMPT: Duration = Duration::from_millis(250);

fn words(pod: &Pod, line: &str) -> Vec<String> {
    let line: Vec<&str> = line.split(' ').collect();
    let said = pod.run(&[&["iottymux", "complete-words"], &line[..]].concat());
    said.lines().map(str::to_owned).collect()
}

#[test]
fn of_services() {
    let Some(plan) = Plan::new() else { return };
    let plan =
        plan.unit("game.service", SLEEP).unit("game@.service", SLEEP).unit("web.service", SLEEP);
    let pod = plan.unit("needs.service", NEEDS).boot();
    assert_eq!(words(&pod, "enable ga"), ["game.service"]);
    pod.systemctl(&["start", "game@eu.service"]);
    assert_eq!(words(&pod, "enable ga"), ["game.service", "game@eu.service"]);
    let all = words(&pod, "enable ");
    assert!(all.contains(&"web.service".to_owned()), "{all:?}");
    // Those that `enable` refuses are not offered.
    assert!(
        !all.iter().any(|name| name.starts_with("systemd-") || name.contains("getty@")),
        "{all:?}"
    );
    // Nor are those that are not there, though another unit names them, or that are masked.
    std::os::unix::fs::symlink("/dev/null", pod.path("/etc/systemd/system/masked.service"))
        .unwrap();
    pod.systemctl(&["daemon-reload"]);
    pod.systemctl(&["start", "needs.service"]);
    for (line, want) in
        [("enable gh", &[][..]), ("enable mask", &[]), ("enable nee", &["needs.service"])]
    {
        assert_eq!(words(&pod, line), want, "{line}");
    }
    assert_eq!(words(&pod, "disable "), [""; 0]);
    pod.run(&["iottymux", "enable", "web", "--tty"]);
    assert_eq!(words(&pod, "disable "), ["web.service"]);
    assert_eq!(words(&pod, "attach "), ["web"]);
    let all = words(&pod, "enable ");
    assert!(!all.iter().any(|name| name.contains("mux@")), "{all:?}");
    let quickest = (0..5).map(|_| {
        let from = Instant::now();
        words(&pod, "enable ga");
        from.elapsed()
    });
    let quickest = quickest.min().unwrap();
    assert!(quickest < PROMPT, "{quickest:?}");
}
