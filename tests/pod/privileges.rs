//! The mux of a host is a user of its own: what it cannot do, and what it takes over from a mux that is root.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};

use crate::log::with_journald;
use crate::pod::{AS_ROOT, MUX_USER, Plan, Pod, rounds};
use crate::proc::eventually;
use crate::skip::skip;

const MUX: &str = "iomux@demo.service";

/// Runs a script as the mux of demo.service would, with its view of all files.
fn as_mux(pod: &Pod, script: &str) -> String {
    let pid = pod.property(MUX, "MainPID");
    let user = [format!("--reuid={MUX_USER}"), format!("--regid={MUX_USER}")];
    let enter = ["nsenter", "-t", &pid, "-m", "setpriv", &user[0], &user[1], "--clear-groups"];
    pod.run(&[&enter[..], &["sh", "-c", script]].concat())
}

fn assert_echo(pod: &Pod, word: &str) {
    let mut stdout = pod.connect("demo", "sock-stdout");
    pod.connect("demo", "sock-stdin").say(&format!("{word}\n"));
    assert_eq!(stdout.line_ending(word), word);
}

/// A mux that has been taken over: what it can write leads PID 1, which is root, nowhere.
#[test]
fn a_hostile_mux_gains_nothing() {
    let Some(plan) = Plan::new() else { return };
    let pod = plan
        .with_delivered_units()
        .unit("demo.service.d/x.conf", "[Service]\nUser=nobody\nRestart=no\n")
        .root_file("secret", "secret\n")
        .root_mode("secret", 0o600)
        .boot();
    pod.systemctl(&["start", "demo.service"]);
    assert_echo(&pod, "hello");
    let names = as_mux(&pod, "cd /run/iottymux; find . -not -type s | sort");
    // Its own files, no end of the app, and nothing of other apps.
    assert_eq!(
        names.lines().collect::<Vec<_>>(),
        [
            ".",
            "./demo",
            "./demo/mux",
            "./demo/mux/endpoints",
            "./demo/mux/life.json",
            "./demo/mux/lock"
        ]
    );
    for name in ["/run/iottymux/demo/x", "/run/iottymux/x", "/run/iottymux/demo/ends/x", "/etc/x"] {
        let refused = as_mux(&pod, &format!("touch {name} 2>/dev/null || echo refused"));
        assert_eq!(refused, "refused\n", "{name}");
    }
    // Another mux is the same user, and not even seen; nor could this one be looked into.
    pod.systemctl(&["start", "shell.service"]);
    let other = pod.property("ttymux@shell.service", "MainPID");
    let own = pod.property(MUX, "MainPID");
    let sees = |pid: &str| as_mux(&pod, &format!("ls /proc/{pid}/fd/ 2>/dev/null | wc -l"));
    assert_eq!((&*sees(&other), &*sees(&own)), ("0\n", "0\n"));
    assert_ne!(sees("self"), "0\n");
    // What it leaves in its own directory keeps no later mux from starting.
    pod.systemctl(&["stop", "demo.service"]);
    pod.set_unit(&format!("{MUX}.d/x.conf"), "[Unit]\nStopWhenUnneeded=no\n");
    pod.systemctl(&["stop", MUX]);
    let junk = "cd /run/iottymux/demo/mux; rm -f *; mkdir -p endpoints/x last.json .endpoints.new; mkfifo lock";
    pod.run(&["setpriv", "--reuid=900", "--clear-groups", "sh", "-c", junk]);
    pod.systemctl(&["start", MUX]);
    // A link where root's hook, and a root that attaches, look for the mux's own files.
    as_mux(&pod, "cd /run/iottymux/demo/mux; rm endpoints; ln -s /secret endpoints");
    let attach = pod.try_run(&["iottymux", "attach", "--app", "demo"]);
    let said = String::from_utf8(attach.stderr).unwrap();
    assert!(!attach.status.success() && !said.contains("secret\n"), "{said}");
    pod.systemctl(&["restart", MUX]);
    assert_eq!(fs::metadata(pod.path("/secret")).unwrap().uid(), 0);
    assert_eq!(fs::read_to_string(pod.path("/secret")).unwrap(), "secret\n");
}

/// What a mux has put in the place of the directory of its log does not widen the view of the next one.
#[test]
fn a_link_of_a_mux_shows_it_nothing() {
    let Some(plan) = Plan::new() else { return };
    let log = "[Service]\nEnvironment=IOTTYMUX_LOG=raw:/var/log/iottymux/demo/sub/log\n";
    let pod = plan.with_delivered_units().unit("iomux@demo.service.d/x.conf", log).boot();
    pod.systemctl(&["start", "demo.service", "shell.service"]);
    for place in ["/run/iottymux/shell/mux", "/var/log/iottymux/shell", "/root", "/tmp"] {
        let plant = format!("cd /var/log/iottymux/demo; rm -rf sub; ln -s {place} sub");
        as_mux(&pod, &plant);
        pod.systemctl(&["restart", MUX]);
        let seen = as_mux(
            &pod,
            "cd /; ls /run/iottymux /var/log/iottymux; find /root /tmp -mindepth 1 | wc -l",
        );
        assert_eq!(seen, "/run/iottymux:\ndemo\n\n/var/log/iottymux:\ndemo\n0\n", "{place}");
    }
}

/// From a mux that is root, with all in one directory, to one that is not, and back, under apps that run.
#[test]
fn from_root_and_back_under_a_running_app() {
    let Some(pod) = Pod::delivered() else { return };
    for unit in ["iomux@.service.d/root.conf", "ttymux@.service.d/root.conf"] {
        pod.set_unit(unit, AS_ROOT);
    }
    let muxes = [MUX, "ttymux@shell.service"];
    pod.systemctl(&["start", "demo.service", "shell.service"]);
    let pids = || ["demo.service", "shell.service"].map(|app| pod.property(app, "MainPID"));
    let before = pids();
    assert!(!pod.path("/run/iottymux/demo/mux").exists());
    let say_in_shell = |word: &str| {
        let mut tty = pod.connect("shell", "sock-tty");
        tty.say(&format!("echo in'-'{word}\n"));
        tty.line_ending(&format!("in-{word}"));
    };
    for round in 0..2 {
        assert_echo(&pod, &format!("root {round}"));
        say_in_shell(&format!("root{round}"));
        for unit in ["iomux@.service.d", "ttymux@.service.d"] {
            fs::remove_dir_all(pod.path(&format!("/etc/systemd/system/{unit}"))).unwrap();
        }
        pod.systemctl(&["daemon-reload"]);
        pod.systemctl(&[&["restart"], &muxes[..]].concat());
        for (app, mux) in [("demo", muxes[0]), ("shell", muxes[1])] {
            let dir = format!("/run/iottymux/{app}/mux");
            assert_eq!(fs::metadata(pod.path(&dir)).unwrap().uid(), MUX_USER);
            assert_eq!(pod.property(mux, "NRestarts"), "0");
        }
        assert_echo(&pod, &format!("own {round}"));
        say_in_shell(&format!("own{round}"));
        // Its offsets went on, so a client that comes again misses nothing.
        let status = pod.run(&["iottymux", "status", "--app", "demo", "--json"]);
        let status: serde_json::Value = serde_json::from_str(&status).unwrap();
        assert!(status["streams"][0]["bytes"].as_u64().unwrap() > 10, "{status}");
        assert_eq!(pids(), before);
        if round == 0 {
            for unit in ["iomux@.service.d/root.conf", "ttymux@.service.d/root.conf"] {
                pod.set_unit(unit, AS_ROOT);
            }
            pod.systemctl(&[&["restart"], &muxes[..]].concat());
            assert_eq!(pids(), before);
        }
    }
    // The input that was root's is one that this mux can end.
    pod.systemctl(&["restart", "demo.service"]);
    assert_echo(&pod, "again");
}

/// The user is made where it is missing, and a log where it cannot write is refused with the way that works.
#[test]
fn enable_makes_the_user_and_looks_where_it_can_log() {
    let Some(plan) = Plan::new() else { return };
    let unit = "[Service]\nExecStart=/bin/sh -c 'echo up; exec sleep 1000'\n";
    let pod = plan.unit("game.service", unit).boot();
    pod.run(&["sed", "-i", "/^iottymux:/d", "/etc/passwd", "/etc/group"]);
    let enable = |log: &str| {
        pod.try_run(&["iottymux", "enable", "game", "--stdout", "stream", "--now", "--log", log])
    };
    // The first time for the user alone: its home is looked for after that.
    let refused = enable("cri:/srv/log/game.log");
    let said = String::from_utf8(refused.stderr).unwrap();
    let way = "install -d -o iottymux -g iottymux /srv/log";
    assert!(!refused.status.success() && said.contains(way), "{said}");
    assert_eq!(String::from_utf8(refused.stdout).unwrap(), "created user iottymux\n");
    assert!(fs::read_to_string(pod.path("/etc/passwd")).unwrap().contains("\niottymux:"));
    // A directory that is there belongs to somebody: the command would take it away from them.
    for log in ["cri:/var/log/game.log", "cri:/etc/game.log", "cri:/root/game.log"] {
        let refused = enable(log);
        let said = String::from_utf8(refused.stderr).unwrap();
        assert!(!refused.status.success() && said.contains("/var/log/iottymux/game"), "{said}");
        assert!(!said.contains("install -d"), "{said}");
    }
    assert_eq!(pod.names("/etc/systemd/system"), ["default.target", "game.service"]);
    pod.run(&way.split(' ').collect::<Vec<_>>());
    // What its mux cannot see, though the user may write there.
    pod.run(&["install", "-d", "-o", "iottymux", "/var/log/iottymux/other"]);
    for log in ["other/log", "game/../other/log", "log"] {
        let refused = enable(&format!("cri:/var/log/iottymux/{log}"));
        let said = String::from_utf8(refused.stderr).unwrap();
        let why = "Try a log below /var/log/iottymux/game";
        assert!(!refused.status.success() && said.contains(why), "{log}: {said}");
    }
    let enabled = enable("cri:/srv/log/game.log");
    assert!(enabled.status.success(), "{enabled:?}");
    let log = pod.path("/srv/log/game.log");
    eventually("it is logged", || fs::read_to_string(&log).is_ok_and(|t| t.ends_with("F up\n")));
    assert_ne!(fs::metadata(&log).unwrap().uid(), 0);
}

/// A user that another name service has is not created a second time, and its rights count.
#[test]
fn enable_knows_a_user_of_another_name_service() {
    let Some(plan) = Plan::new() else { return };
    let unit = "[Service]\nExecStart=/bin/sh -c 'exec sleep 1000'\n";
    let user = r#"{"userName":"iottymux","uid":643,"gid":643,"disposition":"system"}"#;
    let group = r#"{"groupName":"iottymux","gid":643,"disposition":"system"}"#;
    let plan = plan.unit("game.service", unit);
    let plan = plan.root_file("etc/userdb/iottymux.user", user);
    let pod = plan.root_file("etc/userdb/iottymux.group", group).boot();
    pod.run(&["sed", "-i", "/^iottymux:/d", "/etc/passwd", "/etc/group"]);
    if !pod.try_run(&["id", "-u", "iottymux"]).status.success() {
        return skip("nss-systemd", "the name service of systemd is not installed");
    }
    let log = "cri:/srv/log/game.log";
    let refused = pod.try_run(&["iottymux", "enable", "game", "--stdout", "stream", "--log", log]);
    let said = String::from_utf8(refused.stderr).unwrap();
    assert!(!refused.status.success() && said.contains("cannot create files"), "{said}");
    assert_eq!(refused.stdout, b"");
    assert!(!fs::read_to_string(pod.path("/etc/passwd")).unwrap().contains("iottymux:"));
}

/// What a shell tries that has taken the place of a mux, with all that it sees: each line of the output is one that it
/// should not have done. What the filters refuse beyond that, namespaces among it, no shell can try: it would not get as
/// far (`os::sys` has a test of each call).
const BREAKS_OUT: &str = r#"
try() { "$@" >/dev/null 2>&1 && echo "$*"; }
into() { { echo 1 >"$1"; } 2>/dev/null && echo "into $1"; }
for dir in / /etc /usr /usr/lib /boot /root /home /run /run/systemd /sys /sys/fs/cgroup /dev /proc /var /srv; do
  into "$dir/planted"; try mkdir "$dir/planted-dir"
done
for file in /proc/sys/kernel/hostname /proc/sys/kernel/core_pattern /proc/sys/kernel/modprobe /proc/sys/vm/swappiness   /proc/sysrq-trigger /sys/kernel/uevent_helper /sys/power/state /dev/kmsg /dev/mem; do
  into "$file"
done
into /sys/fs/cgroup/cgroup.procs
for device in kmsg mem kvm fuse net/tun rtc rtc0 sda vda loop-control mapper/control input/event0; do try head -c1 "/dev/$device"; done
try mknod /tmp/null c 1 3
try hostname planted
try date -s @0
try dmesg
try mount -t tmpfs none /tmp
try mount --bind /etc /tmp
try umount /run/iottymux
for space in --mount --uts --pid --net --ipc --cgroup; do try unshare "$space" true; done
try chroot / true
try kill -0 1
for pid in $(cd /proc; echo [0-9]*); do
  # Its own mux is the only other process that it sees.
  test "$(stat -c %u "/proc/$pid" 2>/dev/null)" = "$(id -u)" || try ls "/proc/$pid/fd"
done
try ls /home/you /root/.profile /tmp/left /var/tmp/left /run/user/7 /run/iottymux/other /var/log/iottymux/other
for dir in /home /root /tmp /var/tmp /run/user /run/iottymux /var/log/iottymux /run/iottymux/demo /run/iottymux/demo/ends; do
  into "$dir/planted"; try mkdir "$dir/planted-dir"
done
try cat /proc/1/environ
try cat /etc/shadow
try modprobe loop
try setpriv --reuid=0 true
echo ended
"#;

#[test]
fn a_shell_in_the_place_of_a_mux_breaks_nothing() {
    let Some(plan) = Plan::new() else { return };
    let pod = plan.with_delivered_units().root_program("attack", BREAKS_OUT).boot();
    let places = "mkdir -p /home/you /root /tmp/left /var/tmp/left /run/user/7 /run/iottymux/other /var/log/iottymux/other; \
                  touch /root/.profile; chmod 755 /root /home/you";
    pod.run(&["sh", "-c", places]);
    pod.systemctl(&["start", "demo", "shell"]);
    let user = [format!("--reuid={MUX_USER}"), format!("--regid={MUX_USER}")];
    let rights = ["--clear-groups", "--inh-caps=-all", "--bounding-set=-all", "--no-new-privs"];
    let shell = [&["setpriv", &user[0], &user[1]], &rights[..], &["sh", "/attack"]].concat();
    for mux in [MUX, "ttymux@shell.service"] {
        let pid = pod.property(mux, "MainPID");
        let enter = ["nsenter", "-t", &pid, "-m"];
        assert_eq!(pod.run(&[&enter[..], &shell].concat()), "ended\n", "{mux}");
    }
    // The same user with another view does some of it.
    let done = pod.run(&shell);
    assert!(done.lines().count() > 1 && done.ends_with("ended\n"), "{done}");
}

/// All muxes are one user, which may have 64 pipes of full size: root makes them.
#[test]
fn many_muxes_have_fifos_of_full_size() {
    const FULL: i32 = 1 << 20;
    let Some(plan) = Plan::new() else { return };
    let unit = "[Unit]\nWants=iomux@%p.service\nAfter=iomux@%p.service\n[Service]\nExecStart=/bin/sleep 1000\n\
                StandardInput=file:/run/iottymux/%p/stage2-stdin\nStandardOutput=file:/run/iottymux/%p/stage2-stdout\n\
                StandardError=file:/run/iottymux/%p/stage2-stderr\n";
    let apps: Vec<String> = (0..rounds(24, 100)).map(|n| format!("app{n}")).collect();
    let mut plan = plan.with_delivered_units();
    for app in &apps {
        plan = plan.unit(&format!("{app}.service"), unit);
    }
    let pod = plan.boot();
    let names: Vec<&str> = apps.iter().map(String::as_str).collect();
    pod.systemctl(&[&["start"], &names[..]].concat());
    for app in &apps {
        for stream in ["stdout", "stderr"] {
            let fifo = pod.path(&format!("/run/iottymux/{app}/ends/stage2-{stream}"));
            let fifo = fs::OpenOptions::new()
                .write(true)
                .custom_flags(nix::libc::O_NONBLOCK)
                .open(fifo)
                .unwrap();
            let size = nix::fcntl::fcntl(&fifo, nix::fcntl::FcntlArg::F_GETPIPE_SZ).unwrap();
            assert_eq!(size, FULL, "{app} {stream}");
        }
    }
}

/// A mux that has been taken over could send signals to the muxes of other apps, which are the same user, by a
/// descriptor, and more: the mux refuses itself that, in each of its threads.
#[test]
fn a_mux_cannot_reach_other_muxes() {
    let Some(plan) = Plan::new() else { return };
    let log = "[Service]\nEnvironment=IOTTYMUX_LOG=raw:/var/log/iottymux/demo/log\n";
    let pod = plan.with_delivered_units().unit("iomux@demo.service.d/x.conf", log).boot();
    pod.systemctl(&["start", "demo.service"]);
    assert_echo(&pod, "hello");
    let tasks = format!("/proc/{}/task", pod.property(MUX, "MainPID"));
    let threads = pod.names(&tasks);
    assert!(threads.len() > 1, "it has a thread for its log");
    let counts: BTreeSet<String> = threads
        .iter()
        .filter_map(|thread| {
            let status = fs::read_to_string(pod.path(&format!("{tasks}/{thread}/status"))).unwrap();
            status
                .lines()
                .find_map(|line| Some(line.strip_prefix("Seccomp_filters:")?.trim().to_owned()))
        })
        .collect();
    if counts.is_empty() {
        return skip("filters", "this kernel does not count the filters of a process");
    }
    assert_eq!(counts.iter().collect::<Vec<_>>(), ["3"]);
}

/// The app's user may write its root directory, or the file of its variables: neither has a command of root run what
/// that user likes.
#[test]
fn an_app_decides_nothing_that_root_runs() {
    let Some(plan) = Plan::new() else { return };
    let app = "[Service]\nExecStart=/bin/sh -c 'echo up; exec sleep 1000'\nUser=nobody\n";
    let root = "RootDirectory=/srv/root\n\
                BindReadOnlyPaths=/usr/bin /usr/lib /lib64 /usr/lib:/lib /usr/bin:/bin\n";
    let program = "#!/bin/sh\necho planted >/planted\n";
    // The loader writes such a file for each program that it starts.
    let variables = "LD_DEBUG=libs\nLD_DEBUG_OUTPUT=/srv/env/loaded\n";
    let pod = plan
        .unit("rooted.service", &format!("{app}{root}"))
        .unit("varied.service", &format!("{app}EnvironmentFile=-/srv/env/file\n"))
        .unit(
            "loading.service",
            &format!("{app}Environment={}\n", variables.trim().replace('\n', " ")),
        )
        .unit("filed.service", &format!("{app}EnvironmentFile=/etc/filed\n"))
        .root_file("etc/filed", variables)
        .unit("plain.service", &format!("{app}EnvironmentFile=-/etc/none\n"))
        .root_program("srv/root/usr/local/bin/iottymux", program)
        .root_file("srv/env/file", variables)
        .boot();
    pod.run(&["chown", "-R", "nobody", "/srv/root", "/srv/env"]);
    let mut warned = Vec::new();
    for name in ["rooted", "varied", "loading", "filed", "plain"] {
        let enabled = pod.try_run(&["iottymux", "enable", name, "--stdout", "stream", "--now"]);
        let said = String::from_utf8(enabled.stderr).unwrap();
        assert!(enabled.status.success(), "{said}");
        warned.push(said.contains("could let other users decide"));
        pod.systemctl(&["restart", name]);
        pod.connect(name, "sock-stdout").line_ending("up");
        pod.systemctl(&["stop", name]);
    }
    assert!(!pod.path("/srv/root/planted").exists());
    let names = pod.names("/srv/env");
    let of_root = |name: &&String| {
        let path = pod.path(&format!("/srv/env/{name}"));
        fs::metadata(path).unwrap().uid() == 0
    };
    assert_eq!(names.iter().filter(of_root).collect::<Vec<_>>(), Vec::<&String>::new());
    assert_eq!(warned, [true, true, true, true, false]);
}

/// What was right at `enable` may not be so after the service was changed; and a file of options is root's.
#[test]
fn changes_that_let_others_decide_what_root_runs() {
    let Some(plan) = Plan::new() else { return };
    let app = "[Service]\nExecStart=/bin/sh -c 'exec sleep 1000'\n";
    let pod = with_journald(plan.unit("game.service", app))
        .root_file("etc/iottymux/game.env", "IOTTYMUX_BACKLOG=64K\n")
        .root_file("srv/.keep", "")
        .boot();
    let enable = ["iottymux", "enable", "game", "--stdout", "stream", "--now"];
    for (path, fault, cure) in [
        ("/etc/iottymux/game.env", ["chown", "1"], ["chown", "0"]),
        ("/etc/iottymux/game.env", ["chmod", "664"], ["chmod", "644"]),
        ("/etc/iottymux", ["chmod", "775"], ["chmod", "755"]),
    ] {
        pod.run(&[&fault[..], &[path]].concat());
        let output = pod.try_run(&enable);
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{said}");
        let why = "other users can change /etc/iottymux/game.env, and commands of root read it. Try: chown root ";
        assert!(said.contains(why), "{said}");
        pod.run(&[&cure[..], &[path]].concat());
    }
    pod.run(&enable);
    let has_hook = || pod.property("game.service", "ExecStopPost").contains("control --app game");
    assert!(has_hook());
    pod.set_unit("game.service.d/later.conf", "[Service]\nEnvironmentFile=-/srv/env\n");
    pod.run(&["chown", "1", "/srv"]);
    pod.systemctl(&["daemon-reload"]);
    pod.run(&enable);
    assert!(!has_hook());
}

/// A user whom the mux lets in finds it without being told where it is; one whom it does not is told so.
#[test]
fn an_allowed_user_needs_no_state_directory() {
    let Some(plan) = Plan::new() else { return };
    let unit = "[Service]\nExecStart=/bin/sh -c 'echo up; exec sleep 1000'\n";
    let pod = plan.unit("game.service", unit).root_file("home/session/.keep", "").boot();
    let enable = ["iottymux", "enable", "game", "--stdout", "stream"];
    pod.run(&[&enable[..], &["--now"]].concat());
    let user = |id: u32, session: &str, words: &[&str]| {
        let (uid, gid) = (format!("--reuid={id}"), format!("--regid={id}"));
        let user = ["setpriv", &uid, &gid, "--clear-groups", "env", session, "iottymux"];
        let output = pod.try_run(&[&user[..], words].concat());
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (output.status.success(), text(output.stdout), text(output.stderr))
    };
    let status = ["status", "--app", "game"];
    for session in ["NONE=1", "XDG_RUNTIME_DIR=/home/session"] {
        let (done, _, said) = user(1, session, &status);
        assert!(!done && said.contains(" (1) may not attach to app game"), "{said}");
        let (done, listed, _) = user(1, session, &["list"]);
        assert!(done && listed.contains("game  refused"), "{listed}");
    }
    pod.run(&[&enable[..], &["--env", "IOTTYMUX_ALLOW_UID=1"]].concat());
    for session in ["NONE=1", "XDG_RUNTIME_DIR=/home/session"] {
        let (done, told, said) = user(1, session, &status);
        assert!(done && told.starts_with("app game: "), "{told}{said}");
        let (done, listed, _) = user(1, session, &["list"]);
        assert!(done && listed.contains("stdout"), "{listed}");
        let attach = ["attach", "--app", "game", "--mode", "list"];
        assert!(user(1, session, &attach).0);
        // Who does what the error says takes nothing away from user 1.
        let (done, _, said) = user(2, session, &status);
        assert!(!done && said.contains("(2) may not attach"), "{said}");
        assert!(said.contains("enable game.service --env IOTTYMUX_VIEW_UID="), "{said}");
        assert!(said.contains(" to watch, or IOTTYMUX_ALLOW_UID=1,"), "{said}");
    }
    // A command of the same name leaves the service within reach.
    let session = "XDG_RUNTIME_DIR=/home/session";
    pod.run(&["chown", "1:1", "/home/session"]);
    let run = ["run", "-d", "--name", "game", "sh", "-c", "echo own; exec sleep 1000"];
    let (done, _, said) = user(1, session, &run);
    assert!(done, "{said}");
    for (name, want) in [("game", "own\n"), ("game.service", "up\n")] {
        let (done, told, said) = user(1, session, &["logs", name]);
        assert!(done && told == want, "{name}: {told}{said}");
    }
    // What only root can do is said before anything is tried.
    for words in [&["enable", "game", "--tty"][..], &["disable", "game"]] {
        let (done, _, said) = user(1, "NONE=1", words);
        assert!(!done && said.contains("only root can") && said.contains("--user"), "{said}");
    }
}

#[test]
fn an_allowed_user_who_may_not_read_the_journal_gets_the_backlog() {
    let Some(plan) = Plan::new() else { return };
    let unit = "[Service]\nExecStart=/bin/sh -c 'echo up; exec sleep 1000'\n";
    let pod = with_journald(plan).unit("game.service", unit).boot();
    // By its command line PID 1 has no service log to the journal.
    pod.systemctl(&["daemon-reload"]);
    let enable = ["iottymux", "enable", "game", "--stdout", "stream", "--now"];
    pod.run(&[&enable[..], &["--env", "IOTTYMUX_ALLOW_UID=1"]].concat());
    eventually("it is in the journal", || pod.run(&["iottymux", "logs", "game"]).contains("up\n"));
    let user = ["setpriv", "--reuid=1", "--regid=1", "--clear-groups", "iottymux", "logs", "game"];
    let output = pod.try_run(&user);
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.stdout, b"up\n", "{said}");
    assert!(said.contains("user 1 may not read the journal"), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
}
