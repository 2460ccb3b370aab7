//! The template units are valid, and the skip of these tests works.

use crate::pod::{Pod, check, reason_to_skip};

#[test]
fn systemd_has_nothing_to_say_about_the_templates() {
    let Some(pod) = Pod::delivered() else { return };
    for unit in ["iomux@.service", "ttymux@.service", "demo.service", "shell.service"] {
        let path = format!("/etc/systemd/system/{unit}");
        let output = pod.try_run(&["systemd-analyze", "verify", "--man=no", &path]);
        assert!(output.status.success(), "{output:?}");
        assert_eq!(String::from_utf8_lossy(&output.stdout), "", "{unit}");
        assert_eq!(String::from_utf8_lossy(&output.stderr), "", "{unit}");
    }
    // That verify looks at all, and finds the binary by its bare name, shows where it is not so.
    pod.set_unit("wrong@.service", "[Service]\nExecStart=iottymux-missing\nNoSuchKey=1\n");
    let path = "/etc/systemd/system/wrong@.service";
    let output = pod.try_run(&["systemd-analyze", "verify", "--man=no", path]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("NoSuchKey") && said.contains("iottymux-missing"), "{said}");
}

#[test]
fn an_ordinary_user_is_told_why_pods_are_skipped() {
    use std::os::unix::process::CommandExt;
    let mut check = check();
    if nix::unistd::geteuid().is_root() {
        // The conventional number of nobody.
        check.uid(65534).gid(65534);
    }
    assert_eq!(reason_to_skip(&mut check).as_deref(), Some("not root"));
}
