//! A mux of another user than root restarts under a running service while `/run/iottymux` is full.

use std::fs;

use crate::pod::Pod;
use crate::wait::eventually;

const MUX: &str = "iomux@demo.service";
const RUN: &str = "/run/iottymux";
const RUN_SIZE: &str = "size=256k,nr_inodes=200,mode=0755";
/// Takes all room, once, before a mux starts: what the mux before it has removed as well.
const FULL: &str = "\
[ -e /shared/filled ] && exit; touch /shared/filled
mkdir /run/iottymux/demo/mux/ballast; cat /dev/zero >/run/iottymux/demo/mux/ballast/room
i=0; while touch /run/iottymux/demo/mux/ballast/$i; do i=$((i+1)); done
";

#[test]
fn a_mux_is_started_until_there_is_room_and_the_app_is_the_same() {
    let Some(pod) = Pod::delivered() else { return };
    pod.run(&["mkdir", "-p", RUN]);
    pod.run(&["mount", "-t", "tmpfs", "-o", RUN_SIZE, "run", RUN]);
    pod.systemctl(&["start", "demo.service"]);
    let status = || {
        let asked = pod.try_run(&["iottymux", "status", "--json", "--app", "demo"]);
        serde_json::from_slice::<serde_json::Value>(&asked.stdout).ok()
    };
    let app = status().unwrap()["app_pid"].clone();
    assert!(app.is_u64(), "{app}");
    fs::write(pod.shared("full.sh"), FULL).unwrap();
    pod.set_unit(
        "iomux@.service.d/full.conf",
        "[Service]\nExecStartPre=-+/bin/sh /shared/full.sh\nStandardError=append:/shared/muxes\n",
    );
    pod.try_run(&["systemctl", "restart", MUX]);
    let muxes = || fs::read_to_string(pod.shared("muxes")).unwrap();
    let failures = || muxes().matches("No space left").count();
    eventually("more than one mux has failed", || failures() > 1);
    pod.run(&["rm", "-r", &format!("{RUN}/demo/mux/ballast")]);
    eventually("there is one", || status().is_some());
    let listed = pod.run(&["iottymux", "list"]);
    assert!(listed.contains("stdin,stdout,stderr"), "{listed}");
    assert_eq!(status().unwrap()["app_pid"], app);
    pod.run(&["sh", "-c", "echo heard | iottymux attach demo --mode stdin"]);
    let read = "iottymux attach demo --mode stdout --from start | head -1";
    assert_eq!(pod.run(&["sh", "-c", read]).trim_end(), "heard");
}
