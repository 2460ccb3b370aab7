//! The template units are valid and leave the muxes few rights, and the skip of these tests works.

use std::fs;

use crate::pod::{MUX_USER, Pod, check, reason_to_skip};

#[test]
fn systemd_has_nothing_to_say_about_the_templates() {
    let Some(pod) = Pod::delivered() else { return };
    let templates = ["iomux@.service", "ttymux@.service", "iojournal@.service"];
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

/// The highest figure of `systemd-analyze security` that a template may have, of 10.
const EXPOSURE: f64 = 2.0;

#[test]
fn the_templates_leave_few_rights() {
    let Some(pod) = Pod::delivered() else { return };
    pod.systemctl(&["start", "demo.service", "shell.service"]);
    for (template, mux) in
        [("iomux@.service", "iomux@demo.service"), ("ttymux@.service", "ttymux@shell.service")]
    {
        let file = format!("/etc/systemd/system/{template}");
        // As it is written, and as it is loaded.
        for unit in [&["--offline=true", &file][..], &[mux]] {
            let said = pod.run(&[&["systemd-analyze", "security", "--no-pager"], unit].concat());
            let figure = said.rsplit_once("Overall exposure level for ").unwrap().1.trim();
            println!("{figure}");
            let exposure = figure.split_once(": ").unwrap().1.split_once(' ').unwrap().0;
            assert!(exposure.parse::<f64>().unwrap() <= EXPOSURE, "{said}");
        }
        // And as the kernel has it: what is not possible systemd may leave out without a word.
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
        for place in ["/usr", "/etc", "/root"] {
            let is_read_only = |line: &str| line.contains(&format!(" {place} ro,"));
            assert!(mounts.lines().any(is_read_only), "{place}: {mounts}");
        }
    }
}

#[test]
fn an_ordinary_user_learns_why_pods_are_skipped() {
    use std::os::unix::process::CommandExt;
    let mut check = check();
    if nix::unistd::geteuid().is_root() {
        // The conventional number of nobody.
        check.uid(65534).gid(65534);
    }
    assert_eq!(reason_to_skip(&mut check).as_deref(), Some("not root"));
}
