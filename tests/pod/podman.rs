//! A service that is a container of podman, whose streams podman passes on.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use crate::installed::is_installed;
use crate::log::{journal, message, with_journald};
use crate::pod::{Plan, Pod, Raw};
use crate::proc::{Proc, eventually};
use crate::skip::skip;

/// Without what a pod of a test does not have: networks, cgroups of its own, and a higher limit.
const HERE: &str =
    "--cgroups=disabled --network=none --ulimit nofile=1024:1024 --ulimit nproc=1024:1024";
const APP: &str =
    "echo up; echo warn >&2; while read x; do echo got $x; test $x = quit && exit 3; done";

fn web() -> Option<Pod> {
    for program in ["podman", "busybox"] {
        // In the pod's own root, where it has one.
        let root = std::env::var("PODSD_ROOT").map(|root| root + "/usr/bin");
        if !root
            .map_or_else(|_| is_installed(program), |bin| Path::new(&bin).join(program).exists())
        {
            skip("podman", &format!("there is no {program}; tests/engines installs it"));
            return None;
        }
    }
    let plan = with_journald(Plan::new()?);
    let bin = plan.dir.path().join("shared/rootfs/bin");
    fs::create_dir_all(&bin).unwrap();
    fs::copy("/usr/bin/busybox", bin.join("busybox")).unwrap();
    symlink("busybox", bin.join("sh")).unwrap();
    let run = "podman --storage-driver vfs run --rm --name web --log-driver passthrough";
    let unit = format!("[Service]\nExecStart={run} {HERE} --rootfs /shared/rootfs sh -c '{APP}'\n");
    let pod = plan.unit("web.service", &unit).boot();
    // Which forgets what PID 1 was told by its command line.
    pod.systemctl(&["daemon-reload"]);
    Some(pod)
}

fn attach(pod: &Pod) -> (Proc, Raw) {
    let attach = ["iottymux", "attach", "--wait=20", "--app", "web", "--from", "start"];
    Raw::of(pod.command(&[&attach[..], &["--reconnect", "20"]].concat()))
}

#[test]
fn a_container_of_podman_is_attached_as_a_service() {
    let Some(pod) = web() else { return };
    let streams = ["--stdin", "stream", "--stdout", "stream", "--stderr", "stream"];
    pod.run(&[&["iottymux", "enable", "web", "--now"], &streams[..]].concat());
    let (mut first, mut one) = attach(&pod);
    assert_eq!(one.line(), "up");
    let (mut second, mut other) = attach(&pod);
    assert_eq!(other.line(), "up");
    one.say("hello\n");
    assert_eq!(one.line(), "got hello");
    assert_eq!(other.line(), "got hello");
    // The container does not notice the end of its mux.
    pod.systemctl(&["kill", "--kill-who=main", "--signal=KILL", "iomux@web.service"]);
    other.say("again\n");
    assert_eq!(one.line(), "got again");
    assert_eq!(other.line(), "got again");
    one.say("quit\n");
    for (client, raw) in [(&mut first, &mut one), (&mut second, &mut other)] {
        assert_eq!(raw.line(), "got quit");
        assert_eq!(client.ends(), 3);
    }
    eventually("the service has ended", || pod.property("web.service", "ActiveState") == "failed");
    assert_eq!(pod.property("web.service", "ExecMainStatus"), "3");
    let status = pod.run(&["iottymux", "status", "--app", "web"]);
    assert!(status.starts_with("app web: ended with status 3"), "{status}");
    // Its lines, once each, and as those of the service.
    for line in ["up", "warn", "got hello", "got again", "got quit"] {
        let count = || {
            let entries = journal(&pod, &["-u", "web.service"]);
            entries.iter().filter(|entry| message(entry) == line.as_bytes()).count()
        };
        eventually(line, || count() == 1);
    }
    // And back.
    pod.run(&["iottymux", "disable", "web"]);
    let left = |name: &String| name.starts_with("web.service.d") || name.starts_with("iomux@");
    assert!(!pod.names("/etc/systemd/system").iter().any(left));
}
