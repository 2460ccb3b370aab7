//! A service that is a container of runc, whose terminal a mux takes from runc.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use crate::installed::is_installed;
use crate::pod::{Plan, Pod};
use crate::proc::{Proc, eventually};
use crate::pty::Pty;
use crate::skip::skip;

const MUX: &str = "web-console.service";
/// A shell that is the first process of a container ignores SIGTERM.
const APP_MORE: &str = "[Service]\nTimeoutStopSec=1\n";

/// A section of `docs/containers.md`: the unit that begins with this line.
fn documented_unit(first: &str) -> String {
    let text = crate::pod::project_file("docs/containers.md");
    let (_, rest) = text.split_once(&format!("# {first}\n")).expect("the unit is not documented");
    rest.split_once("```").unwrap().0.to_owned()
}

/// The service in a pod, started.
fn web() -> Option<Pod> {
    for program in ["runc", "busybox"] {
        if !is_installed(program) {
            skip("runc", &format!("there is no {program}"));
            return None;
        }
    }
    let plan = Plan::new()?;
    make_bundle(&plan.dir.path().join("shared/web"));
    let plan = plan
        .unit(MUX, &documented_unit("/etc/systemd/system/web-console.service"))
        .unit("web.service", &documented_unit("/etc/systemd/system/web.service"))
        .unit("web.service.d/x.conf", APP_MORE)
        .root_file("srv/.here", "");
    let pod = plan.boot();
    pod.run(&["ln", "-s", "/shared/web", "/srv/web"]);
    pod.systemctl(&["start", "web.service"]);
    Some(pod)
}

fn make_bundle(bundle: &Path) {
    let bin = bundle.join("rootfs/bin");
    fs::create_dir_all(&bin).unwrap();
    fs::copy("/usr/bin/busybox", bin.join("busybox")).unwrap();
    for name in ["sh", "stty"] {
        symlink("busybox", bin.join(name)).unwrap();
    }
    let spec = Command::new("runc").arg("spec").current_dir(bundle).output().unwrap();
    assert!(spec.status.success(), "{spec:?}");
    let path = bundle.join("config.json");
    let mut config: serde_json::Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    config["process"]["env"] = serde_json::json!(["PATH=/bin", "PS1=ready> ", "TERM=xterm"]);
    for (list, key) in [("/linux/namespaces", "type"), ("/mounts", "type")] {
        let list = config.pointer_mut(list).unwrap().as_array_mut().unwrap();
        list.retain(|entry| entry[key] != "cgroup");
    }
    fs::write(path, config.to_string()).unwrap();
}

fn attach(pod: &Pod, local: &Pty) -> Proc {
    local.spawn(pod.command(&["iottymux", "attach", "--app", "web", "--reconnect", "20"]))
}

#[test]
fn a_container_outlives_its_mux_and_its_service_restarts() {
    let Some(pod) = web() else { return };
    let local = Pty::open(33, 99);
    let mut attach = attach(&pod, &local);
    let asks = |keys: &str, answer: &str| {
        local.press(keys.as_bytes());
        local.shown.wait_for(answer);
    };
    asks("\r", "ready> ");
    asks("stty size\r", "\r\n33 99\r\n");
    // A mux that is killed, and one that is restarted: systemd has the master.
    for (n, words) in [&["kill", "--kill-who=main", "--signal=KILL", MUX][..], &["restart", MUX]]
        .into_iter()
        .enumerate()
    {
        asks(&format!("still{n}=here\r"), &format!("still{n}=here\r\n"));
        pod.systemctl(words);
        let again = |count: usize| local.shown.so_far().matches("attached again").count() > count;
        eventually("it is attached again", || again(n));
        asks(&format!("echo $still{n} go''on{n}\r"), &format!("\r\nhere goon{n}\r\n"));
    }
    assert_eq!(pod.property("web.service", "NRestarts"), "0");
    // The service is restarted, and so is the container: the client stays, and types into it.
    pod.systemctl(&["restart", "web.service"]);
    local.shown.wait_for("app web ended by signal 9 and was started again");
    asks("echo a''new\r", "\r\nanew\r\n");
    asks("stty size\r", "\r\n33 99\r\n");
    // How it ended is reported by the hook of its service, and systemd then stops the mux.
    local.press(b"exit 3\r");
    assert_eq!(attach.ends(), 3, "{}", pod.console());
    assert!(local.is_as_before());
    eventually("the mux has ended", || pod.property(MUX, "ActiveState") == "inactive");
    assert!(!pod.path("/run/web.console").exists());
    let status = pod.run(&["iottymux", "status", "--app", "web"]);
    assert!(status.starts_with("app web: ended with status 3"), "{status}");
}
