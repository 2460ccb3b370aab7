//! Other users can do nothing to the files of a mux, nor to their readers.
//!
//! Other users are real: where this process is root, the attacks run as another one through setpriv.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::{Sender, channel};
use std::thread;

use nix::errno::Errno;
use nix::sched::{CloneFlags, unshare};
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};
use nix::sys::signal::Signal;
use nix::sys::stat::Mode;
use nix::unistd::{Uid, chroot, getpid, gettid, mkfifo};
use serde_json::Value;

use crate::cri::cri;
use crate::log_failure::disk;
use crate::numbered::write_numbered;
use crate::proc::{Proc, eventually};
use crate::rig::{APP, Rig};
use crate::skip::skip;
use crate::users::{as_user, shared_rig};

/// Users that no system gives to anybody: the app's, and one more.
const OTHER: u32 = 54321;
const THIRD: u32 = 54400;

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap().permissions().mode() & 0o7777
}

/// A directory of this user, with this mode.
fn dir_of(path: &Path, uid: u32, mode: u32) {
    fs::create_dir_all(path).unwrap();
    chown(path, Some(uid), Some(uid)).unwrap();
    set_mode(path, mode);
}

/// A mux of another user.
fn mux_of(rig: &Rig, uid: u32, options: &[&str]) -> Command {
    let mut command = as_user(rig, uid, "", &rig.file("iottymux"));
    command.args(["stream", "--app", APP]).args(options).stdin(Stdio::null());
    command
}

/// Whether a shell of another user succeeds with this.
fn sh(rig: &Rig, uid: u32, script: &str) -> bool {
    let mut shell = as_user(rig, uid, "", Path::new("/bin/sh"));
    shell.args(["-c", script]).stdin(Stdio::null()).status().unwrap().success()
}

/// Waits until the first log of the app fails, with this in the reason.
fn wait_failing(rig: &Rig, why: &str) {
    eventually(&format!("the log fails: {why}"), || {
        let failing = rig.status()["logs"][0]["failing"].clone();
        failing.as_str().is_some_and(|text| text.contains(why))
    });
}

fn wait_works(rig: &Rig) {
    eventually("the log works", || rig.status()["logs"][0]["failing"].is_null());
}

fn spec(path: &Path) -> String {
    format!("cri:{}", path.display())
}

fn end(mut mux: Proc) {
    mux.signal(Signal::SIGTERM);
    assert_eq!(mux.ends(), 0, "{}", mux.stderr.text());
}

/// The owner of a directory could lead root elsewhere by a link in it.
#[test]
fn root_removes_no_app_of_another_user() {
    let Some(rig) = shared_rig() else { return };
    let (theirs, victim) = (rig.file("theirs"), rig.file("victim"));
    dir_of(&theirs, OTHER, 0o700);
    fs::create_dir(&victim).unwrap();
    fs::write(victim.join("stage2-stdin"), "").unwrap();
    let link = format!("cd {}; mkdir d; ln -s {} d/ends", theirs.display(), victim.display());
    assert!(sh(&rig, OTHER, &link));
    let rm = rig.command(["--state-dir", theirs.to_str().unwrap(), "rm", "d"]).output().unwrap();
    let said = String::from_utf8(rm.stderr).unwrap();
    assert_eq!(rm.status.code(), Some(1), "{said}");
    assert!(said.contains("belongs to user 54321, who can replace its files"), "{said}");
    assert!(victim.join("stage2-stdin").exists());
}

/// A mux that was taken over could leave anything in the place of its lock.
#[test]
fn a_lock_that_is_no_file_is_replaced() {
    let Some(rig) = shared_rig() else { return };
    fs::create_dir_all(rig.state().join(APP)).unwrap();
    mkfifo(&rig.state().join(APP).join("lock"), Mode::S_IRWXU).unwrap();
    let mut mux = rig.mux(["stream", "--app", APP]);
    mux.signal(Signal::SIGTERM);
    assert_eq!(mux.ends(), 0);
    assert!(mux.stderr.text().contains("lock: removed: it was not a regular file"));
}

// ---- logs ----

/// The app's user replaces its log by a link to a file of root's.
#[test]
fn a_log_of_root_never_follows_the_apps_user() {
    let Some(rig) = shared_rig() else { return };
    let (dir, victim) = (rig.file("app"), rig.file("crontab"));
    dir_of(&dir, OTHER, 0o755);
    fs::write(&victim, "of root\n").unwrap();
    let log = dir.join("app.log");
    assert!(sh(&rig, OTHER, &format!("ln -s {} {}", victim.display(), log.display())));
    let mux = rig.mux(["stream", "--app", APP, "--log", &spec(&log)]);
    write_numbered(rig.writer("stdout"), 0, 10);
    wait_failing(&rig, "belongs to user 54321, who can replace its files");
    // The directory is root's by now, but the link is still there.
    chown(&dir, Some(0), Some(0)).unwrap();
    wait_failing(&rig, "app.log is a symbolic link to ");
    wait_failing(&rig, "remove it, or name the file itself");
    fs::remove_file(&log).unwrap();
    wait_works(&rig);
    end(mux);
    assert_eq!(fs::read_to_string(&victim).unwrap(), "of root\n");
    assert_eq!(cri(&fs::read(&log).unwrap()).len(), 10);
}

/// A mux without rights can be led only where it may write itself: not even there.
#[test]
fn a_log_of_a_user_never_follows_the_apps_user() {
    let Some(rig) = shared_rig() else { return };
    let (dir, own) = (rig.file("app"), rig.file("own"));
    dir_of(&dir, OTHER, 0o777);
    dir_of(&own, THIRD, 0o755);
    dir_of(&rig.state(), THIRD, 0o755);
    fs::write(own.join("app.log"), "of the mux\n").unwrap();
    chown(own.join("app.log"), Some(THIRD), None).unwrap();
    let script =
        format!("cd {}; ln -s {1}/app.log link; ln -s {1} dir", dir.display(), own.display());
    assert!(sh(&rig, OTHER, &script));
    for (log, why) in [
        (dir.join("link"), "link is a symbolic link to"),
        (dir.join("dir/app.log"), "dir is a symbolic link of user 54321"),
    ] {
        let mux = rig.start(mux_of(&rig, THIRD, &["--log", &spec(&log)]));
        write_numbered(rig.writer("stdout"), 0, 10);
        wait_failing(&rig, why);
        drop(mux);
    }
    assert_eq!(fs::read_to_string(own.join("app.log")).unwrap(), "of the mux\n");
}

#[test]
fn root_logs_only_where_nobody_else_can_replace_the_log() {
    let Some(rig) = shared_rig() else { return };
    for (above, log, why) in [
        ((0, 0o755), (0, 0o755), None),
        // As /var/log is root's and syslog's.
        ((0, 0o775), (0, 0o775), None),
        ((0, 0o1777), (0, 0o755), None),
        ((0, 0o755), (0, 0o1777), Some("log is writable by all users")),
        ((0, 0o755), (0, 0o777), Some("log is writable by all users")),
        ((0, 0o777), (0, 0o755), Some("above is writable by all users")),
        ((0, 0o755), (OTHER, 0o755), Some("log belongs to user 54321")),
        ((OTHER, 0o755), (0, 0o755), Some("above belongs to user 54321")),
    ] {
        let dir = rig.file("above/log");
        dir_of(&dir, log.0, log.1);
        dir_of(&rig.file("above"), above.0, above.1);
        let mux = rig.mux(["stream", "--app", APP, "--log", &spec(&dir.join("app.log"))]);
        write_numbered(rig.writer("stdout"), 0, 1);
        match why {
            Some(why) => wait_failing(&rig, why),
            None => eventually("it is written", || dir.join("app.log").exists()),
        }
        // It would wait for a log that fails.
        drop(mux);
        assert_eq!(dir.join("app.log").exists(), why.is_none(), "{above:?} {log:?}");
        fs::remove_dir_all(rig.file("above")).unwrap();
    }
}

/// What has changed since the log was opened is seen when it is opened again or rotated.
#[test]
fn the_directory_of_a_log_is_looked_at_again() {
    let Some(rig) = shared_rig() else { return };
    let dir = rig.file("log");
    dir_of(&dir, 0, 0o755);
    let log = dir.join("app.log");
    let words = ["stream", "--app", APP, "--log", &spec(&log), "--log-max-size", "4K"];
    let mux = rig.mux(words);
    let stdout = rig.writer("stdout");
    write_numbered(&stdout, 0, 10);
    eventually("it is written", || fs::metadata(&log).is_ok_and(|log| log.len() > 0));
    dir_of(&dir, OTHER, 0o755);
    write_numbered(&stdout, 10, 1000);
    mux.stderr.wait_for("cannot rotate it: directory");
    let mut control = rig.run(&["control", "--app", APP, "reopen-logs"]);
    assert_eq!(control.ends(), 1);
    assert!(control.stderr.text().contains("belongs to user 54321"), "{}", control.stderr.text());
    end(mux);
    // The file that was open has it all.
    assert_eq!(cri(&fs::read(&log).unwrap()).len(), 1000);
}

#[test]
fn rotated_names_and_recordings_follow_no_links() {
    let rig = Rig::new();
    let (log, cast, victim) = (rig.file("app.log"), rig.file("app.cast"), rig.file("victim"));
    fs::write(&victim, "untouched").unwrap();
    symlink(&victim, rig.file("app.log.1")).unwrap();
    let mux = rig.mux(["stream", "--app", APP, "--log", &spec(&log), "--log-max-size", "4K"]);
    write_numbered(rig.writer("stdout"), 0, 1000);
    end(mux);
    assert!(fs::symlink_metadata(rig.file("app.log.1")).unwrap().is_file());
    fs::write(&victim, "").unwrap();
    symlink(&victim, &cast).unwrap();
    let record = format!("cast:{}", cast.display());
    let mux = rig.mux(["tty", "--app", APP, "--record", &record]);
    rig.slave().write_all(b"shown").unwrap();
    wait_failing(&rig, "app.cast is a symbolic link to");
    drop(mux);
    assert_eq!(fs::read_to_string(&victim).unwrap(), "");
}

/// A link of root's to the mux's own output is the one that may be a log.
#[test]
fn the_output_of_the_mux_may_be_a_log() {
    let dev = Rig::new();
    // As some systems have them.
    symlink("/proc/self/fd", dev.file("fd")).unwrap();
    symlink("fd/1", dev.file("stdout")).unwrap();
    let relative = dev.file("stdout");
    for name in ["/dev/stdout", "/proc/self/fd/1", "/dev/fd/1", relative.to_str().unwrap()] {
        let rig = Rig::new();
        let mux = rig.mux(["stream", "--app", APP, "--log", &spec(Path::new(name))]);
        write_numbered(rig.writer("stdout"), 0, 10);
        end_and(mux, |said| assert_eq!(cri(said).len(), 10, "{name}"));
    }
}

fn end_and(mut mux: Proc, check: impl Fn(&[u8])) {
    mux.signal(Signal::SIGTERM);
    assert_eq!(mux.ends(), 0, "{}", mux.stderr.text());
    check(&mux.stdout.bytes());
}

// ---- the state directory ----

/// As the documentation had people make it, for `env`.
#[test]
fn a_directory_that_was_open_is_closed() {
    let rig = Rig::new();
    for (before, lists, after) in
        [(0o755, &[][..], 0o700), (0o777, &[], 0o700), (0o755, &["--view-uid", "1"], 0o711)]
    {
        rig.make_app_dir();
        set_mode(&rig.path(""), before);
        let mux = rig.mux([&["stream", "--app", APP], lists].concat());
        assert_eq!(mode(&rig.path("")), after, "{before:o} {lists:?}");
        end(mux);
    }
    // An `ends` that somebody has opened.
    fs::create_dir_all(rig.path("ends")).unwrap();
    set_mode(&rig.path("ends"), 0o755);
    let mux = rig.mux(["stream", "--app", APP, "--view-uid", "1"]);
    assert_eq!(mode(&rig.path("ends")), 0o700);
    end(mux);
}

#[test]
fn no_other_user_reaches_a_fifo() {
    let Some(rig) = shared_rig() else { return };
    rig.make_app_dir();
    set_mode(&rig.state(), 0o755);
    set_mode(&rig.path(""), 0o755);
    let mux = rig.stream();
    for (name, script) in
        [("stage2-stdin", "timeout 1 sh -c ': <>"), ("stage2-stdout", "timeout 1 sh -c ': <>")]
    {
        assert!(!sh(&rig, OTHER, &format!("{script}{}'", rig.path(name).display())), "{name}");
    }
    end(mux);
}

/// What others have put there while they could is gone before it is used.
#[test]
fn planted_files_are_removed() {
    let Some(rig) = shared_rig() else { return };
    rig.make_app_dir();
    set_mode(&rig.state(), 0o755);
    set_mode(&rig.path(""), 0o777);
    let script = format!(
        "cd {}; umask 0; mkfifo stage2-stdout stage2-stdin; ln -s /x stage2-stderr; touch lock .lock.new",
        rig.path("").display()
    );
    assert!(sh(&rig, OTHER, &script));
    let mux = rig.stream();
    for name in ["stage2-stdin", "stage2-stdout", "stage2-stderr", "lock"] {
        let there = fs::symlink_metadata(rig.path(name)).unwrap();
        assert_eq!(there.uid(), 0, "{name}");
        assert_eq!(there.file_type().is_fifo(), name != "lock", "{name}");
    }
    mux.stderr.wait_for("stage2-stdout: removed: it belonged to user 54321");
    end(mux);
}

#[test]
fn a_directory_of_another_user_is_refused() {
    let refused = |rig: &Rig, why: &str| {
        let mut mux = rig.run(&["stream", "--app", APP]);
        assert_eq!(mux.ends(), 1, "{why}");
        let said = mux.stderr.text();
        assert!(said.contains(why) && said.lines().count() == 1, "{said}");
    };
    let Some(rig) = shared_rig() else { return };
    dir_of(&rig.path(""), OTHER, 0o700);
    refused(&rig, "it belongs to user 54321; try to remove it");
    let link = rig.state().join(APP);
    fs::remove_dir(&link).unwrap();
    symlink(rig.file("elsewhere"), &link).unwrap();
    refused(&rig, "it is a symbolic link; try to remove it");
    fs::remove_file(&link).unwrap();
    for (uid, mode, why) in [
        (OTHER, 0o755, "state belongs to user 54321, who can replace its files"),
        (0, 0o777, "state is writable by all users, who can replace its files"),
    ] {
        dir_of(&rig.state(), uid, mode);
        refused(&rig, why);
    }
    dir_of(&rig.state(), 0, 0o1777);
    end(rig.stream());
    fs::create_dir_all(rig.path("")).unwrap();
    dir_of(&rig.path("ends"), OTHER, 0o700);
    refused(&rig, "it belongs to user 54321");
    // A user has no directory that root has opened to others.
    let Some(rig) = shared_rig() else { return };
    dir_of(&rig.path(""), 0, 0o777);
    let mut mux = Proc::spawn(mux_of(&rig, OTHER, &[]));
    assert_eq!(mux.ends(), 1);
    assert!(mux.stderr.text().contains("other users can write to it"), "{}", mux.stderr.text());
}

/// A umask of 0 opens nothing.
#[test]
fn a_umask_changes_nothing() {
    let script = "umask 0; exec \"$@\"";
    let run = |rig: &Rig, words: &[&str]| {
        let inner = rig.command(words);
        let mut command = Command::new("sh");
        command.args(["-c", script, "sh"]).arg(inner.get_program()).args(inner.get_args());
        command.env("IOTTYMUX_STATE_DIR", rig.state()).env("PATH", std::env::var("PATH").unwrap());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    };
    for lists in [&[][..], &["--view-uid", "1"]] {
        let rig = Rig::new();
        let log = rig.file("made/too/app.log");
        let spec = spec(&log);
        let words = [&["stream", "--app", APP, "--log", &spec][..], lists].concat();
        let mux = rig.start(run(&rig, &words));
        write_numbered(rig.writer("stdout"), 0, 1);
        eventually("it is written", || log.exists());
        let mut seen = 0;
        for path in [rig.state(), rig.file("made")].iter().flat_map(|path| below(path)) {
            let is_open = fs::symlink_metadata(&path).unwrap().file_type();
            // The directories around these decide.
            if is_open.is_fifo() || is_open.is_socket() || is_open.is_symlink() {
                continue;
            }
            assert_eq!(mode(&path) & 0o022, 0, "{} {:o}", path.display(), mode(&path));
            seen += 1;
        }
        assert!(seen > 5, "{seen}");
        assert_eq!(mode(&rig.path("")), if lists.is_empty() { 0o700 } else { 0o711 });
        end(mux);
        assert_eq!(mode(&rig.path("last.json")), 0o600);
    }
    let rig = Rig::new();
    let words = ["units", "--output", "out/units", "--app", "demo", "--stdout", "stream"];
    let mut command = run(&rig, &words);
    command.current_dir(rig.file(""));
    let mut units = Proc::spawn(command);
    assert_eq!(units.ends(), 0, "{}", units.stderr.text());
    let all = below(&rig.file("out"));
    assert!(all.len() > 5, "{all:?}");
    for path in all {
        assert_eq!(mode(&path) & 0o022, 0, "{} {:o}", path.display(), mode(&path));
    }
}

/// A directory, and all that is in it.
fn below(path: &Path) -> Vec<PathBuf> {
    let mut all = vec![path.to_owned()];
    if fs::symlink_metadata(path).unwrap().is_dir() {
        for entry in fs::read_dir(path).unwrap() {
            all.extend(below(&entry.unwrap().path()));
        }
    }
    all
}

// ---- other roots ----

/// Another root as a pod has it, seen through /proc for as long as this lives.
struct Pod {
    rig: Rig,
    seen: PathBuf,
    _ends: Sender<()>,
}

impl Pod {
    /// `None` where no root can be changed.
    fn new() -> Option<Self> {
        if !Uid::effective().is_root() {
            skip("root", "only root can make another root");
            return None;
        }
        let rig = Rig::new();
        let root = rig.file("pod");
        fs::create_dir_all(root.join("rkt/iottymux")).unwrap();
        let ((told, tells), (ends, ended)) = (channel(), channel::<()>());
        thread::spawn(move || {
            unshare(CloneFlags::CLONE_FS).unwrap();
            chroot(&root).unwrap();
            told.send(gettid()).unwrap();
            let _ = ended.recv();
        });
        let seen = PathBuf::from(format!("/proc/{}/task/{}/root", getpid(), tells.recv().unwrap()));
        Some(Self { rig, seen, _ends: ends })
    }

    /// A file of the pod, as its own processes name it.
    fn file(&self, name: &str) -> PathBuf {
        self.rig.file("pod").join(name)
    }

    fn state(&self) -> PathBuf {
        self.file("rkt/iottymux")
    }

    /// A mux of the pod, ready.
    fn mux(&self, more: &[&str]) -> Proc {
        self.mux_at(&self.state(), more)
    }

    fn mux_at(&self, state: &Path, more: &[&str]) -> Proc {
        let mut command = self.rig.command([&["stream", "--app", APP], more].concat());
        command.env("IOTTYMUX_STATE_DIR", state);
        self.rig.start(command)
    }

    /// The binary, which looks into the pod from outside.
    fn look(&self, arguments: &[&str]) -> Proc {
        let mut command = self.rig.command(arguments);
        command.env("IOTTYMUX_STATE_DIR", self.seen.join("rkt/iottymux"));
        Proc::spawn(command)
    }

    /// Each client fails, and says why.
    fn assert_refused(&self, why: &str) {
        for words in [
            &["attach", "--app", APP][..],
            &["status", "--app", APP],
            &["list", "--app", APP],
            &["logs", "--app", APP],
            &["control", "--app", APP, "reopen-logs"],
        ] {
            let mut client = self.look(words);
            assert_eq!(client.ends(), 1, "{words:?}");
            let said = client.stderr.text();
            assert!(said.contains(why) && said.lines().count() == 1, "{words:?}: {said}");
            assert_eq!(client.stdout.text(), "", "{words:?}");
        }
    }
}

#[test]
fn a_pod_is_reached_from_outside() {
    let Some(pod) = Pod::new() else { return };
    let mux = pod.mux(&["--log", &spec(&pod.file("var/log/app.log"))]);
    let mut stdout =
        File::options().write(true).open(pod.state().join("demo/stage2-stdout")).unwrap();
    stdout.write_all(b"from the pod\n").unwrap();
    let attach = pod.look(&["attach", "--app", APP, "--mode", "stdout"]);
    attach.stdout.wait_for("from the pod\n");
    let mut list = pod.look(&["list"]);
    assert_eq!(list.ends(), 0);
    assert!(list.stdout.text().contains("demo  "), "{}", list.stdout.text());
    eventually("it is logged", || {
        fs::read_to_string(pod.file("var/log/app.log")).is_ok_and(|log| log.contains("from"))
    });
    // Its document names the file as the pod has it.
    let document = pod.state().join("demo/logs");
    let text = fs::read_to_string(&document).unwrap();
    fs::write(&document, text.replace(pod.file("").to_str().unwrap(), "/")).unwrap();
    let mut logs = pod.look(&["logs", "--app", APP]);
    assert_eq!(
        (logs.ends(), logs.stdout.text()),
        (0, "from the pod\n".into()),
        "{}",
        logs.stderr.text()
    );
    end(mux);
}

/// A pod replaces one directory after the other, and then the files, by links to those of the host.
#[test]
fn a_pod_leads_nobody_out_of_its_tree() {
    let Some(pod) = Pod::new() else { return };
    let host = pod.rig.file("host");
    let _mux = pod.mux_at(&host.join("iottymux"), &["--log", &spec(&pod.rig.file("host.log"))]);
    let write = || {
        let fifo = host.join("iottymux/demo/stage2-stdout");
        File::options().write(true).open(fifo).unwrap().write_all(b"secret\n").unwrap();
    };
    write();
    eventually("it is logged", || {
        fs::read_to_string(pod.rig.file("host.log")).is_ok_and(|log| log.contains("secret"))
    });
    let demo = pod.state().join("demo");
    for (link, to) in [
        ("rkt", host.clone()),
        ("rkt/iottymux", host.join("iottymux")),
        ("rkt/iottymux/demo", host.join("iottymux/demo")),
    ] {
        let link = pod.file(link);
        fs::remove_dir_all(&link).unwrap();
        symlink(to, &link).unwrap();
        pod.assert_refused("is a symbolic link in another root");
        fs::remove_file(&link).unwrap();
        fs::create_dir_all(&demo).unwrap();
    }
    // The app's directory is one, and what is in it leads out.
    fs::copy(host.join("iottymux/demo/endpoints"), demo.join("endpoints")).unwrap();
    symlink(host.join("iottymux/demo/sock-session"), demo.join("sock-session")).unwrap();
    for words in [&["attach", "--app", APP][..], &["status", "--app", APP]] {
        let mut client = pod.look(words);
        assert_eq!(client.ends(), 1);
        let said = client.stderr.text();
        assert!(said.contains("sock-session: it is not a socket"), "{said}");
    }
    // A log by its path on the host, and by links in the pod.
    let log = pod.rig.file("host.log");
    let document = |path: &Path| {
        let path = path.to_str().unwrap();
        fs::write(
            demo.join("logs"),
            format!(r#"{{"version":1,"logs":[{{"format":"cri","path":"{path}"}}]}}"#),
        )
        .unwrap();
    };
    fs::create_dir(pod.file("var")).unwrap();
    symlink(&log, pod.file("var/link.log")).unwrap();
    symlink(pod.rig.file(""), pod.file("var/dir")).unwrap();
    for path in [
        log.clone(),
        "/var/link.log".into(),
        "/var/dir/host.log".into(),
        Path::new("/var/../..").join(log.strip_prefix("/").unwrap()),
    ] {
        document(&path);
        let mut logs = pod.look(&["logs", "--app", APP]);
        assert_eq!(logs.ends(), 1, "{}", path.display());
        let said = logs.stdout.text() + &logs.stderr.text();
        assert!(!said.contains("secret"), "{}: {said}", path.display());
    }
}

/// A document may name any file: text that is not a log is not printed, not even in an error.
#[test]
fn a_file_that_is_not_a_log_is_not_printed() {
    let rig = Rig::new();
    rig.make_app_dir();
    let file = rig.file("shadow");
    let line = "2020-01-01T00:00:00.000000001Z stdout F text\n";
    for (text, format, is_log) in [
        ("root:secret:1\n", "cri", false),
        ("{\"secret\":1}\n", "json-file", false),
        ("root:secret:1", "cri", false),
        // Of the other format than the document claims.
        (line, "json-file", false),
        (line, "cri", true),
        ("", "cri", true),
    ] {
        fs::write(&file, text).unwrap();
        let path = file.to_str().unwrap();
        let document =
            format!(r#"{{"version":1,"logs":[{{"format":"{format}","path":"{path}"}}]}}"#);
        fs::write(rig.path("logs"), document).unwrap();
        for more in [&[][..], &["--tail", "1"]] {
            let mut logs = rig.run(&[&["logs", "--app", APP], more].concat());
            assert_eq!(logs.ends(), i32::from(!is_log), "{text:?}");
            let said = logs.stderr.text();
            assert!(
                !said.contains("secret")
                    && logs.stdout.text().contains("text") == (text == line && is_log)
            );
            assert_eq!(
                said.contains("it is not a log in the format that the mux names"),
                !is_log,
                "{said}"
            );
        }
    }
}

/// The same for lines that are appended to an empty file.
#[test]
fn lines_that_are_not_log_entries_are_not_printed() {
    let rig = Rig::new();
    rig.make_app_dir();
    let file = rig.file("app.log");
    fs::write(&file, "").unwrap();
    let path = file.to_str().unwrap();
    let document = format!(r#"{{"version":1,"logs":[{{"format":"cri","path":"{path}"}}]}}"#);
    fs::write(rig.path("logs"), document).unwrap();
    let logs = rig.run(&["logs", "--app", APP, "--follow"]);
    logs.waits();
    let append = |text: &str| {
        let mut log = File::options().append(true).open(&file).unwrap();
        log.write_all(text.as_bytes()).unwrap();
    };
    append("root:secret:1\n");
    logs.stderr.wait_for("byte 0 is not an entry: it has no time; skipped: \"\u{2026}\"\n");
    append("2020-01-01T00:00:00.000000001Z stdout F text\n");
    logs.stdout.wait_for("text\n");
    append("shown\n");
    logs.stderr.wait_for("skipped: \"shown\"");
    assert!(!logs.stderr.so_far().contains("secret"));
}

/// Whoever can write a directory could serve a socket there in the place of its mux.
#[test]
fn a_socket_is_served_by_root_or_the_owner_of_its_directory() {
    let Some(rig) = shared_rig() else { return };
    let elsewhere = rig.file("elsewhere");
    dir_of(&elsewhere, THIRD, 0o711);
    let mut command = mux_of(&rig, THIRD, &[]);
    command.env("IOTTYMUX_STATE_DIR", &elsewhere);
    let _mux = rig.start(command);
    let look = |state: &Path| {
        let mut command = rig.command(["status", "--app", APP]);
        command.env("IOTTYMUX_STATE_DIR", state);
        Proc::spawn(command)
    };
    // Its own directory, as of a mux in a user namespace.
    let mut status = look(&elsewhere);
    assert_eq!(status.ends(), 0, "{}", status.stderr.text());
    dir_of(&rig.path(""), OTHER, 0o777);
    for name in ["sock-session", "endpoints"] {
        fs::hard_link(elsewhere.join(APP).join(name), rig.path(name)).unwrap();
    }
    let mut status = look(&rig.state());
    assert_eq!(status.ends(), 1);
    let said = status.stderr.text();
    assert!(
        said.contains("user 54400 serves it; expected root, user 54321 or your own user"),
        "{said}"
    );
}

/// With `XDG_RUNTIME_DIR=/tmp` another user may have been faster.
#[test]
fn the_sessions_directory_is_this_users_own() {
    let Some(rig) = shared_rig() else { return };
    let session = rig.file("tmp");
    dir_of(&session, 0, 0o1777);
    let state = session.join("iottymux");
    dir_of(&state, THIRD, 0o755);
    // A name of its own: clients look in the directory of the machine as well, which is not ours.
    let app = format!("session-{}", getpid());
    let mux = |state: &Path| {
        let mut command = as_user(&rig, THIRD, "", &rig.file("iottymux"));
        command.args(["stream", "--app", &app, "--allow-uid", &OTHER.to_string()]);
        command.env("IOTTYMUX_STATE_DIR", state).stdin(Stdio::null());
        rig.start(command)
    };
    let _mux = mux(&state);
    let client = |uid: u32, command: &str| {
        let mut client = as_user(&rig, uid, "", &rig.file("iottymux"));
        client.env_remove("IOTTYMUX_STATE_DIR").env("XDG_RUNTIME_DIR", &session);
        client.args([command, "--app", &app]).stdin(Stdio::null());
        Proc::spawn(client)
    };
    assert_eq!(client(THIRD, "status").ends(), 0);
    for command in ["status", "attach", "stream"] {
        let mut client = client(OTHER, command);
        assert_eq!(client.ends(), 1, "{command}: {}", client.stdout.text());
        let said = client.stderr.text();
        assert!(
            said.contains("tmp/iottymux belongs to user 54400; try export IOTTYMUX_STATE_DIR=DIR"),
            "{said}"
        );
    }
    // Nor if it comes while a client waits for it.
    let session = rig.file("later");
    dir_of(&session, 0, 0o1777);
    let mut waiting = as_user(&rig, OTHER, "", &rig.file("iottymux"));
    waiting.env_remove("IOTTYMUX_STATE_DIR").env("XDG_RUNTIME_DIR", &session);
    waiting.args(["--log-level=debug", "attach", "--app", &app, "--wait"]);
    let mut waiting = Proc::spawn(waiting);
    waiting.stderr.wait_for("waiting for app");
    let _mux = mux(&session.join("iottymux"));
    assert_eq!(waiting.ends(), 1);
    let said = waiting.stderr.text();
    assert!(said.contains("later/iottymux belongs to user 54400"), "{said}");
}

/// Opening a device of a pod could start a watchdog of the host, or rewind a tape. A FIFO shows that
/// nothing but plain files is opened.
#[test]
fn only_plain_files_of_a_pod_are_opened() {
    let Some(pod) = Pod::new() else { return };
    let demo = pod.state().join("demo");
    fs::create_dir(&demo).unwrap();
    let opened = Inotify::init(InitFlags::IN_NONBLOCK).unwrap();
    for name in ["endpoints", "last.json", "logs", "lock"] {
        mkfifo(&demo.join(name), Mode::S_IRUSR).unwrap();
        opened.add_watch(&demo.join(name), AddWatchFlags::IN_OPEN).unwrap();
    }
    pod.assert_refused("it is not a regular file");
    let mut list = pod.look(&["list"]);
    assert_eq!(list.ends(), 0);
    assert!(list.stdout.text().contains("demo  unknown"), "{}", list.stdout.text());
    assert_eq!(opened.read_events().unwrap_err(), Errno::EAGAIN);
}

/// A `lock` that is a FIFO, or leads to one, keeps nobody waiting.
#[test]
fn a_lock_keeps_no_reader_waiting() {
    let rig = Rig::new();
    rig.make_app_dir();
    rig.make_fifo("lock");
    let mut list = rig.run(&["list"]);
    assert_eq!(list.ends(), 0);
    assert!(list.stdout.text().contains("demo  unknown"), "{}", list.stdout.text());
}

#[test]
fn units_are_not_written_by_a_link() {
    let rig = Rig::new();
    let (out, elsewhere) = (rig.file("out"), rig.file("elsewhere"));
    fs::create_dir(&out).unwrap();
    fs::create_dir(&elsewhere).unwrap();
    symlink(&elsewhere, out.join("demo.service.d")).unwrap();
    let words = ["--output", out.to_str().unwrap(), "--app", "demo", "--stdout", "stream"];
    let mut units = rig.run(&[&["units"][..], &words].concat());
    assert_eq!(units.ends(), 1);
    let said = units.stderr.text();
    assert!(said.contains("demo.service.d is a symbolic link"), "{said}");
    assert_eq!(fs::read_dir(&elsewhere).unwrap().count(), 0);
    // In another root, neither on the way there.
    let Some(pod) = Pod::new() else { return };
    fs::create_dir(pod.file("etc")).unwrap();
    symlink(&elsewhere, pod.file("etc/systemd")).unwrap();
    let seen = pod.seen.join("etc/systemd/system");
    let words = ["--output", seen.to_str().unwrap(), "--app", "demo", "--stdout", "stream"];
    let mut units = rig.run(&[&["units"][..], &words].concat());
    assert_eq!(units.ends(), 1);
    let said = units.stderr.text();
    assert!(said.contains("is a symbolic link in another root"), "{said}");
    assert_eq!(fs::read_dir(&elsewhere).unwrap().count(), 0);
}

/// A user's session, and a process that has another /run, as each in a pod has.
#[test]
fn root_lists_the_apps_of_other_users_and_pods() {
    let Some(rig) = shared_rig() else { return };
    let users = rig.file("user");
    if !disk(&users, "mode=755") {
        return;
    }
    let theirs = users.join(OTHER.to_string()).join("iottymux");
    dir_of(&theirs, OTHER, 0o700);
    let mut mux = mux_of(&rig, OTHER, &[]);
    mux.env("IOTTYMUX_STATE_DIR", &theirs);
    let _of_user = rig.start(mux);
    let with_own_run = |more: &str, words: &[&str], state: &str| {
        let inner = rig.command(words);
        let script = format!("mount -t tmpfs tmpfs /run; {more} exec \"$@\"");
        let mut command = Command::new("unshare");
        command.args(["-m", "sh", "-c", &script]).arg(&users);
        command.arg(inner.get_program()).args(inner.get_args());
        command.env("IOTTYMUX_STATE_DIR", state).stdin(Stdio::null());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    };
    let pod = rig.start(with_own_run("", &["stream", "--app", APP], "/run/iottymux"));
    let of_pod = format!("/proc/{}/root/run/iottymux", pod.pid());
    let more = "mkdir /run/user; mount --bind \"$0\" /run/user;";
    for (words, are_there) in
        [(&["list", "--all", "--json"][..], true), (&["list", "--json"], false)]
    {
        let mut command = with_own_run(more, words, "");
        command.env_remove("IOTTYMUX_STATE_DIR");
        let mut list = Proc::spawn(command);
        assert_eq!(list.ends(), 0, "{}", list.stderr.text());
        let list: Vec<Value> = serde_json::from_str(&list.stdout.text()).unwrap();
        for state in [format!("/run/user/{OTHER}/iottymux"), of_pod.clone()] {
            let is_it = |row: &Value| row["state_dir"] == *state && row["app"] == APP;
            assert_eq!(list.iter().any(is_it), are_there, "{state}: {list:?}");
        }
    }
}
