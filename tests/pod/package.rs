//! The packages, and the life of the Debian one in a pod whose root is made of Debian packages:
//! installed, used, upgraded under a running app, removed, purged. And the program without a package.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::fs::{FlockOperation, flock};
use tempfile::TempDir;

use crate::documented::type_tutorial;
use crate::form;
use crate::installed::is_installed;
use crate::log::with_journald;
use crate::pod::{BINARY, Plan, Pod};
use crate::proc::{Said, eventually};
use crate::skip::skip;

const PROJECT: &str = env!("CARGO_MANIFEST_DIR");
/// Where the root of the pod is kept for the next run.
const KEPT: &str = env!("CARGO_TARGET_TMPDIR");
/// A service that keeps what is typed to it.
const GAME: &str = "\
[Service]
ExecStart=/bin/bash -c 'echo server up; while read -r line; do echo \"$line\" >>/shared/said; echo \"did $line\"; done; exec sleep 1000'
";
/// A command that finds each file of ours.
const FIND: &str = "find / -xdev ( -path /proc -o -path /shared -o -path /var/log/apt -o -path /var/cache ) \
    -prune -o -name *iottymux* -print -o -name *iomux* -print -o -name *ttymux* -print";

/// Runs a command, which must succeed. Its output.
fn done(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// Whether all of these are here; else the test is skipped.
fn has(programs: &[&str]) -> bool {
    let missing = programs.iter().find(|program| !is_installed(program));
    if let Some(program) = missing {
        skip(program, "it is not installed");
    }
    missing.is_none()
}

/// The revision of the package whose program does not start.
const BROKEN: u32 = 3;

/// What is made of packages, and the root of the pod, is in one place for all tests: one at a time.
fn alone() -> File {
    let lock = File::create(Path::new(KEPT).join("package.lock")).unwrap();
    flock(&lock, FlockOperation::LockExclusive).unwrap();
    lock
}

/// The Debian package of a build: this one, or another one, which differs in its last byte, or one
/// that does not start.
fn package(dir: &Path, revision: u32) -> PathBuf {
    let binary = dir.join("iottymux");
    done(Command::new("strip").arg("-o").arg(&binary).arg(BINARY));
    let mut bytes = fs::read(&binary).unwrap();
    bytes.extend(revision.to_string().bytes());
    if revision == BROKEN {
        bytes = b"#!/bin/false\n".to_vec();
    }
    fs::write(&binary, bytes).unwrap();
    let revision = revision.to_string();
    let mut stage = Command::new("packaging/stage");
    done(stage.arg(&binary).arg(&revision).current_dir(PROJECT));
    let mut cargo = Command::new("cargo");
    cargo.args([
        "deb",
        "--no-build",
        "--no-strip",
        "--fast",
        "--deb-revision",
        &revision,
        "--output",
    ]);
    let package = dir.join(format!("{revision}.deb"));
    done(cargo.arg(&package).current_dir(PROJECT));
    package
}

/// The package has no fault that lintian knows, but for those that a file names with their reasons. A
/// debug build is not static, and versions of lintian differ in the tags that they know.
fn check(package: &Path) {
    if has(&["lintian"]) {
        let mut lintian = Command::new("lintian");
        lintian.args(["--allow-root", "--fail-on", "error,warning"]);
        done(
            lintian.args(["--suppress-tags", "missing-dependency-on-libc,alien-tag"]).arg(package),
        );
    }
}

/// The files and scripts of the RPM package of what [`package`] has laid out.
fn check_rpm(dir: &Path) {
    if !has(&["cargo-generate-rpm", "rpm"]) {
        return;
    }
    let rpm = dir.join("iottymux.rpm");
    let mut cargo = Command::new("cargo");
    cargo.args(["generate-rpm", "--auto-req", "disabled", "--output"]).arg(&rpm);
    done(cargo.current_dir(PROJECT));
    let query =
        |what: &str| done(Command::new("rpm").args(["-qp", "--nosignature", what]).arg(&rpm));
    let files = query("--list");
    for file in
        ["bin/iottymux", "lib/systemd/system/iomux@.service", "share/man/man1/iottymux.1.gz"]
    {
        assert!(files.lines().any(|line| line == format!("/usr/{file}")), "{files}");
    }
    let scripts = query("--scripts");
    for script in ["systemd-sysusers iottymux.conf", "iottymux disable --all --now", "rmdir"] {
        assert!(scripts.contains(script), "{scripts}");
    }
    assert!(query("--requires").contains("systemd >= 246"));
    assert!(query("--docfiles").contains("/usr/share/man/man1/iottymux.1.gz"));
    // Its scripts need an RPM system.
    let root = dir.join("rpm");
    let run = |words: &[&str]| done(Command::new("rpm").arg("--root").arg(&root).args(words));
    run(&["--initdb"]);
    run(&["-i", "--nodeps", "--noscripts", "--nosignature", rpm.to_str().unwrap()]);
    run(&["-V", "--nodeps", "iottymux"]);
    run(&["-e", "--noscripts", "iottymux"]);
    let left = done(Command::new("find").arg(&root).args(["-name", "*iottymux*"]));
    let made = ["share/doc/iottymux", "share/licenses/iottymux"];
    for left in left.lines() {
        // A script removes the directories.
        assert!(made.iter().any(|made| left.ends_with(made)), "{left}");
    }
}

/// The root of a small Debian with systemd, made once; `None` if that cannot be done here.
fn debian() -> Option<PathBuf> {
    let root = Path::new(KEPT).join("debian");
    if root.exists() {
        return Some(root);
    }
    let new = TempDir::with_prefix_in("debian", KEPT).unwrap();
    let mut make = Command::new("mmdebstrap");
    make.args(["--quiet", "--variant=minbase", "--include=systemd,systemd-sysv,procps"]);
    make.arg("bookworm").arg(new.path().join("root"));
    let output = make.stdin(Stdio::null()).output().unwrap();
    if !output.status.success() {
        skip("debian", &format!("mmdebstrap: {}", String::from_utf8_lossy(&output.stderr)));
        return None;
    }
    fs::rename(new.path().join("root"), &root).unwrap();
    Some(root)
}

/// The names in the pod that are ours, and the files of units.
fn ours(pod: &Pod) -> BTreeSet<String> {
    let words: Vec<&str> = FIND.split(' ').collect();
    let units = pod.run(&["find", "/etc/systemd"]);
    pod.run(&words).lines().chain(units.lines()).map(str::to_owned).collect()
}

/// What apt and the scripts of packages say.
fn apt(pod: &Pod, words: &[&str]) -> String {
    let (succeeds, said) = try_apt(pod, words);
    assert!(succeeds, "{words:?}: {said}");
    said
}

/// Whether apt succeeds, and the same.
fn try_apt(pod: &Pod, words: &[&str]) -> (bool, String) {
    let apt = ["env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "-qq", "-y"];
    let output = pod.try_run(&[&apt, words].concat());
    let said = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&said).into_owned())
}

/// Types a line to the game, which takes it.
fn say(pod: &Pod, line: &str) {
    pod.run(&["sh", "-c", &format!("echo {line} | iottymux attach game --mode tty-in")]);
    let said = || fs::read_to_string(pod.shared("said")).unwrap_or_default();
    eventually("the game has the line", || said().lines().last() == Some(line));
}

#[test]
fn installed_upgraded_removed_purged() {
    if !has(&["cargo-deb", "mmdebstrap"]) {
        return;
    }
    let Some(plan) = Plan::new() else { return };
    let alone = alone();
    let Some(root) = debian() else { return };
    let dir = form::directory("package");
    for revision in [1, 2, BROKEN] {
        fs::rename(
            package(dir.path(), revision),
            plan.dir.path().join(format!("shared/{revision}.deb")),
        )
        .unwrap();
    }
    check(&plan.dir.path().join("shared/1.deb"));
    check_rpm(dir.path());
    drop(alone);
    let plan = plan.unit("game.service", GAME).unit("idle.service", GAME);
    let pod = plan.boot_with("PODSD_ROOT", &root);
    let before = ours(&pod);

    apt(&pod, &["install", "/shared/1.deb"]);
    pod.run(&["iottymux", "--version"]);
    for file in
        ["man/man1/iottymux-attach.1.gz", "man/man5/iottymux.env.5.gz", "doc/iottymux/copyright"]
    {
        assert!(pod.path("/usr/share").join(file).exists(), "{file}");
    }
    let user = pod.run(&["getent", "passwd", "iottymux"]);
    assert!(user.contains("/nologin"), "{user}");
    pod.systemctl(&["start", "game"]);
    pod.run(&["iottymux", "enable", "game", "--tty", "--now"]);
    pod.run(&["iottymux", "enable", "idle", "--stdin", "stream", "--stdout", "stream"]);
    // The templates are those of the package.
    assert!(
        pod.property("ttymux@game", "FragmentPath")
            .ends_with("/lib/systemd/system/ttymux@.service")
    );
    let mut attach = pod.command(&[
        "iottymux",
        "attach",
        "game",
        "--mode=tty-out",
        "--from=start",
        "--reconnect=30",
    ]);
    let mut attach = attach.stdout(Stdio::piped()).spawn().unwrap();
    let shown = Said::follow(attach.stdout.take().unwrap());
    say(&pod, "before");
    shown.wait_for("did before");

    let (app, mux) = (pod.property("game", "MainPID"), pod.property("ttymux@game", "MainPID"));
    apt(&pod, &["install", "/shared/2.deb"]);
    assert_eq!(pod.property("game", "MainPID"), app, "the app runs on");
    let next = pod.property("ttymux@game", "MainPID");
    assert_ne!(next, mux, "the mux is another one");
    let program = fs::read(pod.path(&format!("/proc/{next}/exe"))).unwrap();
    assert_eq!(program.last(), Some(&b'2'));
    say(&pod, "after");
    shown.wait_for("did after");
    assert_eq!(shown.so_far().matches("did ").count(), 2, "{}", shown.so_far());

    // The muxes are not given to a program that does not start.
    let (succeeds, told) = try_apt(&pod, &["install", "/shared/3.deb"]);
    assert!(!succeeds, "{told}");
    assert!(told.contains("the muxes were not restarted"), "{told}");
    assert_eq!(pod.property("ttymux@game", "MainPID"), next);
    apt(&pod, &["install", "--allow-downgrades", "/shared/2.deb"]);
    say(&pod, "after all");
    shown.wait_for("did after all");

    apt(&pod, &["remove", "iottymux"]);
    attach.wait().unwrap();
    assert_eq!(pod.property("game", "ActiveState"), "active");
    assert_ne!(pod.property("game", "MainPID"), app, "it was restarted with its own streams");
    for (service, property) in
        ["game", "idle"].iter().flat_map(|s| [(s, "StandardInput"), (s, "StandardOutput")])
    {
        let own = if property == "StandardInput" { "null" } else { "inherit" };
        let holds = pod.property(service, property);
        assert!(holds == own || holds == "journal", "{service}: {property}={holds}");
    }
    pod.systemctl(&["start", "idle"]);
    assert_eq!(pod.systemctl(&["--failed", "--no-legend"]), "");
    let muxes = ["list-units", "--all", "--no-legend", "iomux@*", "ttymux@*", "iottymux-*"];
    assert_eq!(pod.systemctl(&muxes), "");
    assert!(!pod.try_run(&["pgrep", "-x", "iottymux"]).status.success());

    apt(&pod, &["purge", "iottymux"]);
    assert_eq!(ours(&pod), before);
    assert!(!pod.try_run(&["getent", "passwd", "iottymux"]).status.success());
    assert!(!pod.try_run(&["getent", "group", "iottymux"]).status.success());
    assert_eq!(pod.systemctl(&["--failed", "--no-legend"]), "");

    // An account of somebody else stays, and a program that is gone keeps no package from its end.
    pod.run(&["useradd", "--system", "iottymux"]);
    // A copy that is found before the package's is named.
    pod.run(&["touch", "/usr/local/bin/iottymux"]);
    let told = apt(&pod, &["install", "/shared/1.deb"]);
    assert!(told.contains("/usr/local/bin/iottymux is used instead"), "{told}");
    pod.run(&["rm", "/usr/local/bin/iottymux"]);
    pod.run(&["rm", "/usr/bin/iottymux"]);
    apt(&pod, &["purge", "iottymux"]);
    assert_eq!(ours(&pod), before);
    pod.run(&["getent", "passwd", "iottymux"]);
}

/// Without a package: what `install` says comes next works as it stands, and muxes get another program when they are
/// to have it, under their services.
#[test]
fn installed_and_upgraded_by_itself() {
    let Some(plan) = Plan::new() else { return };
    let pod = plan.unit("game.service", GAME).boot();
    let (program, copy) = ("/usr/local/bin/iottymux", "/shared/iottymux");
    pod.run(&["umount", program]);
    // The machine's own is read-only.
    pod.run(&["mount", "-t", "tmpfs", "-o", "mode=0755", "tmpfs", "/usr/local"]);
    pod.systemctl(&["start", "game"]);
    pod.run(&["install", "-m", "755", "/iottymux", copy]);
    let first = pod.run(&[copy, "install"]);
    assert!(first.ends_with("\nnext: iottymux enable SERVICE --now\n"), "{first}");
    let next = first.rsplit_once("next: ").unwrap().1.replace("SERVICE", "game");
    pod.run(&["sh", "-c", &next]);
    let template = pod.property("ttymux@game", "FragmentPath");
    assert_eq!(template, "/usr/local/lib/systemd/system/ttymux@.service");
    assert!(pod.path("/usr/local/share/man/man1/iottymux-attach.1").exists());
    say(&pod, "before");

    let pids = || [pod.property("game", "MainPID"), pod.property("ttymux@game", "MainPID")];
    let before = pids();
    // The same program is not another one.
    let same = pod.run(&[copy, "install", "--restart"]);
    assert!(same.ends_with("\nrestarted muxes: 0\n"), "{same}");
    pod.run(&["sh", "-c", &format!("echo >>{copy}")]);
    let other = pod.run(&[copy, "install"]);
    let told = "muxes that still run another program: 1\nnext: iottymux install --restart\n";
    assert!(other.ends_with(told), "{other}");
    assert_eq!(pids(), before, "nothing is restarted unasked");
    let next = other.rsplit_once("next: ").unwrap().1;
    let done = pod.run(&["sh", "-c", next]);
    assert!(done.ends_with("\nrestarted muxes: 1\n"), "{done}");
    let [app, mux] = pids();
    assert_eq!(app, before[0], "the app runs on");
    assert_eq!(pod.run(&["readlink", &format!("/proc/{mux}/exe")]), format!("{program}\n"));
    say(&pod, "after");
    let done = pod.run(&["sh", "-c", next]);
    assert!(done.ends_with("\nrestarted muxes: 0\n"), "{done}");
    assert_eq!(pids(), [app, mux]);

    pod.run(&["iottymux", "disable", "--all", "--now"]);
    pod.run(&["iottymux", "install", "--remove"]);
    assert_eq!(pod.run(&["find", "/usr/local", "-type", "f"]), "");
}

/// The tutorial, typed in order on a new system.
#[test]
fn the_tutorial() {
    if !has(&["mmdebstrap"]) {
        return;
    }
    let Some(plan) = Plan::new() else { return };
    let alone = alone();
    let Some(root) = debian() else { return };
    drop(alone);
    type_tutorial(&with_journald(plan).boot_with("PODSD_ROOT", &root), true);
}
