//! The template units are valid and leave the muxes few rights, and the skip of these tests works.

use std::fs;

use crate::pod::{MUX_USER, Pod, check, reason_to_skip};

#[test]
fn systemd_has_nothing_to_say_about_the_templates() {
    let Some(pod) = Pod::delivered() else { return };
    let templates = ["iomux@.service", "ttymux@.service"];
    for unit in templates.into_iter().chain(["demo.service", "shell.service"]) {
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
fn a_mux_has_few_rights() {
    let Some(pod) = Pod::delivered() else { return };
    pod.systemctl(&["start", "demo.service", "shell.service"]);
    for mux in ["iomux@demo.service", "ttymux@shell.service"] {
        // As the kernel has it: the mux begins as root, and gives the rest up itself.
        let pid = pod.property(mux, "MainPID");
        let read =
            |file: &str| fs::read_to_string(pod.path(&format!("/proc/{pid}/{file}"))).unwrap();
        let status = read("status");
        let field = |name: &str| {
            status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(":\t")).unwrap()
        };
        assert_eq!((field("NoNewPrivs"), field("Seccomp")), ("1", "2"));
        let may = u64::from_str_radix(field("CapBnd"), 16).unwrap();
        assert_eq!(may, 0, "{status}");
        let user = MUX_USER.to_string();
        assert!(field("Uid").split('\t').all(|uid| uid == user), "{status}");
        let mounts = read("mountinfo");
        for place in ["/root", "/tmp", "/run/iottymux"] {
            let is_read_only = |line: &str| line.contains(&format!(" {place} ro,"));
            assert!(mounts.lines().any(is_read_only), "{place}: {mounts}");
        }
    }
}

#[test]
fn an_ordinary_user_learns_why_pods_are_skipped() {
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::process::CommandExt;
    // The checkout may be closed to others.
    let dir = tempfile::tempdir().unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let copy = dir.path().join("podsd");
    fs::copy(check().get_program(), &copy).unwrap();
    let mut check = std::process::Command::new(&copy);
    check.arg("check").current_dir("/");
    if nix::unistd::geteuid().is_root() {
        // The conventional number of nobody.
        check.uid(65534).gid(65534);
    }
    assert_eq!(reason_to_skip(&mut check).as_deref(), Some("not root"));
}
