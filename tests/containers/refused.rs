//! Containers that `iottymux-runc` leaves alone, and calls that fail.

use std::ffi::OsStr;
use std::fs;
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use serde_json::json;

use crate::bundle::{Bundle, Rig};
use crate::proc::{Said, eventually};
use crate::skip::skip;

/// A user without rights.
const USER: u32 = 1000;

#[test]
fn a_sandbox_and_a_container_that_says_so_are_left_alone() {
    let Some(rig) = Rig::new() else { return };
    for (id, annotation, value) in [
        ("sandbox", "io.kubernetes.cri.container-type", "sandbox"),
        ("off", "org.iottymux.enabled", "false"),
    ] {
        let mut bundle = rig.bundle(id, "echo out");
        bundle.config["annotations"] = json!({ annotation: value });
        assert_eq!(bundle.engine().run()[0], b"out\n");
        assert_eq!(rig.status(id), None);
    }
}

/// The wrapper would wait for ever, or take all memory.
#[test]
fn a_bundle_whose_config_is_no_plain_file_is_refused() {
    let Some(rig) = Rig::new() else { return };
    let bundle = rig.bundle("config", "echo out");
    let config = bundle.dir().join("config.json");
    let refused = |why: &str| {
        let mut create = bundle.create();
        make_config(&config, why);
        let output = create.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{said}");
        let path = config.display();
        assert!(said.contains(&format!("iottymux: cannot read {path}: {why}")), "{said}");
        fs::remove_file(&config).unwrap();
    };
    refused("it is not a regular file");
    refused("it is larger than 16777216 bytes");
}

/// Puts a FIFO or a large file in the place of a config.
fn make_config(path: &Path, why: &str) {
    if why.contains("larger") {
        let file = fs::OpenOptions::new().write(true).open(path).unwrap();
        return file.set_len(1 << 32).unwrap();
    }
    fs::remove_file(path).unwrap();
    let mode = nix::sys::stat::Mode::from_bits_truncate(0o600);
    nix::unistd::mkfifo(path, mode).unwrap();
}

/// For the runtimes this is the same as none.
#[test]
fn a_container_whose_annotations_are_null_has_a_mux() {
    let Some(rig) = Rig::new() else { return };
    let mut bundle = rig.bundle("null", "echo out");
    bundle.config["annotations"] = json!(null);
    assert_eq!(bundle.engine().run()[0], b"out\n");
    assert_eq!(rig.served("null", "stdout"), 4);
}

#[test]
fn options_may_have_any_spelling() {
    let Some(rig) = Rig::new() else { return };
    let script = rig.path("fake");
    let text = "#!/bin/sh\nprintf '%s\\n' \"$@\" >>arguments\nfor a; do shift; \
                [ \"$a\" = --unknown ] || set -- \"$@\" \"$a\"; done\nexec runc \"$@\"\n";
    fs::write(&script, text).unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    let log = rig.path("log");
    let mut bundle = rig.bundle("spelled", "echo out");
    bundle.globals = vec!["--unknown".to_owned(), format!("--log={}", log.display())];
    // Without a file for the PID, the wrapper has one of its own.
    bundle.options = vec!["--no-pivot".to_owned()];
    bundle.variables = vec![("IOTTYMUX_OCI_RUNTIME".to_owned(), script.display().to_string())];
    assert_eq!(bundle.engine().run()[0], b"out\n");
    assert_eq!(rig.served("spelled", "stdout"), 4);
    let arguments = fs::read_to_string(rig.path("arguments")).unwrap();
    for word in ["--unknown", "--no-pivot", "--pid-file", "create", "spelled"] {
        assert!(arguments.lines().any(|line| line == word), "{arguments}");
    }
}

#[test]
fn a_create_that_fails_says_what_the_runtime_says_and_leaves_nothing() {
    let Some(rig) = Rig::new() else { return };
    let fails = |plain: bool| {
        let mut bundle = rig.bundle("fails", "echo out");
        bundle.config["process"]["args"] = json!(["/bin/missing"]);
        bundle.globals =
            vec!["--log".to_owned(), rig.path(&format!("log-{plain}")).display().to_string()];
        if plain { bundle.plain().output() } else { bundle.output() }
    };
    let (plain, wrapped) = (fails(true), fails(false));
    assert_eq!(wrapped.status.code(), plain.status.code());
    assert_eq!(String::from_utf8_lossy(&wrapped.stderr), String::from_utf8_lossy(&plain.stderr));
    assert!(rig.processes().is_empty(), "{:?}", rig.processes());
    let left: Vec<_> =
        fs::read_dir(rig.path("state")).unwrap().map(|e| e.unwrap().path()).collect();
    assert!(left.is_empty(), "{left:?}");
}

/// Its files are gone after the next call.
#[test]
fn a_wrapper_that_was_killed_leaves_nothing_for_ever() {
    let Some(rig) = Rig::new() else { return };
    let mut ended = Command::new("true").spawn().unwrap();
    ended.wait().unwrap();
    let [left, others] =
        [ended.id(), std::process::id()].map(|pid| rig.path(&format!("state/.process-{pid}")));
    for dir in [&left, &others] {
        fs::create_dir_all(dir).unwrap();
        fs::write(dir.join("pid"), "1").unwrap();
    }
    assert_eq!(rig.bundle("next", "echo out").engine().run()[0], b"out\n");
    assert!(!left.exists() && others.exists());
    fs::remove_dir_all(others).unwrap();
}

/// The runtime itself then says what is wrong.
#[test]
fn an_engine_that_does_not_take_its_terminal_gets_the_runtimes_error() {
    let Some(rig) = Rig::new() else { return };
    let fails = |plain: bool| {
        let mut bundle = rig.bundle("untaken", "echo out").terminal();
        bundle.options.extend(["--console-socket", "/none/console"].map(String::from));
        if plain { bundle.plain().output() } else { bundle.output() }
    };
    let (plain, wrapped) = (fails(true), fails(false));
    assert!(!plain.status.success());
    assert_eq!(wrapped.status.code(), plain.status.code());
    // Without the time.
    let said = |output: &std::process::Output| {
        String::from_utf8_lossy(&output.stderr)
            .split_once(" level")
            .map(|(_, said)| said.to_owned())
    };
    assert_eq!(said(&wrapped), said(&plain));
    assert!(rig.processes().is_empty(), "{:?}", rig.processes());
}

#[test]
fn a_second_create_of_an_id_is_refused_by_the_runtime() {
    let Some(rig) = Rig::new() else { return };
    let mut container = rig.bundle("twice", "read x; echo out").engine();
    let log = rig.path("log");
    let mut bundle = rig.bundle("twice", "read x; echo out");
    bundle.globals = ["--log", log.to_str().unwrap()].map(String::from).into();
    let create = bundle.create();
    // Only the runtime knows where its containers are.
    let (script, root) = (rig.path("script"), rig.path("runtime/default"));
    let text = format!("#!/bin/sh\nexec runc --root {} \"$@\"\n", root.display());
    fs::write(&script, text).unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    let mut without_root = Command::new(rig.wrapper());
    without_root.args(create.get_args().skip(2)).env("IOTTYMUX_OCI_RUNTIME", script);
    without_root.env("IOTTYMUX_STATE_DIR", &rig.state).stdin(Stdio::null());
    for mut command in [create, without_root] {
        let output = command.output().unwrap();
        assert!(!output.status.success());
        // At once: it has not waited for the other's mux.
        let log = fs::read_to_string(&log).unwrap();
        assert!(!log.contains("it has no mux"), "{log}");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(said.contains("already exists"), "{said}");
    }
    let [stdout, _] = container.read();
    container.start();
    container.stdin.as_ref().unwrap().write_all(b"\n").unwrap();
    assert_eq!(stdout.text(), "out\n");
    assert_eq!(rig.served("twice", "stdout"), 4);
}

#[test]
fn without_a_mux_the_container_is_created_untouched() {
    let Some(rig) = Rig::new() else { return };
    // There can be no directory there.
    fs::write(rig.path("state"), "a file").unwrap();
    let log = rig.path("log");
    let mut bundle = rig.bundle("untouched", "echo out");
    bundle.globals =
        ["--log", log.to_str().unwrap(), "--log-format", "json"].map(String::from).into();
    assert_eq!(bundle.engine().run()[0], b"out\n");
    let log = fs::read_to_string(log).unwrap();
    assert!(log.contains("it has no mux") && log.contains("\"level\":\"warning\""), "{log}");
    fs::remove_file(rig.path("state")).unwrap();
}

/// Its mux may not run just now, and finds its files again.
#[test]
fn a_container_does_not_take_the_name_of_a_service() {
    let Some(rig) = Rig::new() else { return };
    for dir in ["mux", "ends"] {
        fs::create_dir_all(rig.path("state/served").join(dir)).unwrap();
    }
    let log = rig.path("log");
    let mut bundle = rig.bundle("served", "echo out");
    bundle.globals = ["--log", log.to_str().unwrap()].map(String::from).into();
    assert_eq!(bundle.engine().run()[0], b"out\n");
    let log = fs::read_to_string(log).unwrap();
    assert!(log.contains("it has no mux: app served is a service"), "{log}");
    assert!(!rig.path("state/served/mux/container.json").exists());
}

/// The mux fails beside the runtime, which has created the container by then.
#[test]
fn a_container_whose_mux_fails_is_created_again() {
    let Some(rig) = Rig::new() else { return };
    let (log, calls, script) = (rig.path("log"), rig.path("calls"), rig.path("counts"));
    let text = "#!/bin/sh\nfor a; do case $a in create|delete) echo $a >>calls;; esac; done\n\
                exec runc \"$@\"\n";
    fs::write(&script, text).unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    for is_terminal in [false, true] {
        let id = format!("again-{is_terminal}");
        fs::create_dir_all(rig.path("state")).unwrap();
        // There can be no directory of the app.
        fs::write(rig.path("state").join(&id), "a file").unwrap();
        let mut bundle = rig.bundle(&id, "read x; echo out; exit 3");
        bundle.globals = ["--log", log.to_str().unwrap()].map(String::from).into();
        bundle.variables = vec![("IOTTYMUX_OCI_RUNTIME".into(), script.display().to_string())];
        let said = if is_terminal {
            let (container, mut engine) = bundle.terminal().engine_terminal();
            container.start();
            let said = Said::follow(engine.try_clone().unwrap());
            engine.write_all(b"\n").unwrap();
            said.text()
        } else {
            let mut container = bundle.engine();
            container.start();
            container.stdin.as_ref().unwrap().write_all(b"\n").unwrap();
            container.read()[0].text()
        };
        assert!(said.ends_with("out\n") || said.ends_with("out\r\n"), "{said:?}");
        let log = fs::read_to_string(&log).unwrap();
        assert!(log.contains(&format!("container {id}: it has no mux")), "{log}");
        fs::remove_file(rig.path("state").join(&id)).unwrap();
    }
    // With a terminal it need not be deleted. The last one each is the test's.
    let calls = fs::read_to_string(calls).unwrap();
    assert_eq!(calls, "create\ndelete\ncreate\ndelete\ncreate\ndelete\n");
}

/// The engine has moved it away, or has another directory than the runtime. If the runtime does not say it either,
/// nobody would read the output.
#[test]
fn the_runtime_is_asked_for_a_pid_that_no_file_has() {
    let Some(rig) = Rig::new() else { return };
    let (log, calls, script) = (rig.path("log"), rig.path("calls"), rig.path("moves"));
    for (id, state, want) in [("said", "", "state "), ("unsaid", "exit 1", "state delete create ")]
    {
        let text = format!(
            "#!/bin/sh\nfor a; do case $a in create|state|delete) call=$a;; esac; done\n\
             printf '%s ' $call >>calls\n\
             case $call in state) {state};; esac\n\
             runc \"$@\" || exit\n\
             case $call in create) mv bundle-{id}/pid taken;; esac\n"
        );
        fs::write(&script, text).unwrap();
        fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
        let mut bundle = rig.bundle(id, "echo out");
        bundle.globals = ["--log", log.to_str().unwrap()].map(String::from).into();
        bundle.variables = vec![("IOTTYMUX_OCI_RUNTIME".into(), script.display().to_string())];
        fs::write(&calls, "").unwrap();
        let mut container = bundle.engine();
        assert_eq!(fs::read_to_string(&calls).unwrap(), format!("create {want}"));
        let said = container.read();
        container.start();
        assert_eq!(said[0].text(), "out\n");
    }
    assert_eq!(rig.served("said", "stdout"), 4);
    let log = fs::read_to_string(log).unwrap();
    assert!(log.contains("container unsaid: it has no mux: its PID is not known"), "{log}");
    assert_eq!(log.matches("it has no mux").count(), 1, "{log}");
}

/// The program that is to be the mux hangs. It has the name by which the running one, whose file is
/// gone, starts itself.
#[test]
fn a_container_whose_mux_is_not_ready_in_time_is_created_again() {
    let Some(rig) = Rig::new() else { return };
    let executable = |path: &Path, text: String| {
        fs::write(path, text).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    };
    let (program, log, counts) = (rig.path("program"), rig.path("log"), rig.path("counts"));
    fs::copy(env!("CARGO_BIN_EXE_iottymux"), &program).unwrap();
    let file = fs::File::open(&program).unwrap();
    fs::remove_file(&program).unwrap();
    let held = format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd());
    let text = format!(
        "#!/bin/sh\ncase $1 in oci-*) exec {held} \"$@\";; esac\necho >>{}\nexec sleep 1000\n",
        rig.path("hangs").display()
    );
    executable(&rig.path("program (deleted)"), text);
    let text = "#!/bin/sh\nfor a; do case $a in create|delete) echo $a >>calls;; esac; done\n\
                exec runc \"$@\"\n";
    executable(&counts, text.to_owned());
    fs::create_dir(rig.path("links")).unwrap();
    let mut bundle = rig.bundle("hangs", "read x; echo out; exit 3");
    bundle.runtime = rig.path("links/iottymux-runc");
    symlink(held, &bundle.runtime).unwrap();
    bundle.globals = ["--log", log.to_str().unwrap()].map(String::from).into();
    bundle.variables = vec![("IOTTYMUX_OCI_RUNTIME".into(), counts.display().to_string())];
    let mut container = bundle.engine();
    assert!(rig.path("hangs").exists());
    let log = fs::read_to_string(log).unwrap();
    assert!(log.contains("it has no mux: its mux was not ready in 2s"), "{log}");
    let calls = fs::read_to_string(rig.path("calls")).unwrap();
    assert_eq!(calls, "create\ndelete\ncreate\n");
    container.start();
    container.stdin.as_ref().unwrap().write_all(b"\n").unwrap();
    assert_eq!(container.read()[0].text(), "out\n");
}

/// The runtime then says it to a pipe that nobody reads.
#[test]
fn a_create_that_fails_without_a_mux_says_what_the_runtime_says() {
    let Some(rig) = Rig::new() else { return };
    fs::create_dir_all(rig.path("state")).unwrap();
    // There can be no directory of the app.
    fs::write(rig.path("state/mute"), "a file").unwrap();
    let fails = |plain: bool| {
        let mut bundle = rig.bundle("mute", "echo out");
        bundle.config["process"]["args"] = json!(["/bin/missing"]);
        let bundle = if plain { bundle.plain() } else { bundle };
        let output = bundle.output();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        (output.status.code(), said.split_once(" level").map(|(_, said)| said.to_owned()))
    };
    assert_eq!(fails(false), fails(true));
    fs::remove_file(rig.path("state/mute")).unwrap();
}

/// Whatever the author of a container and the engine have set.
#[test]
fn strange_annotations_and_variables_leave_calls_alone() {
    let Some(rig) = Rig::new() else { return };
    let mut bundle = rig.bundle("strange", "echo out");
    let names = (0..2000).map(|n| format!("org.iottymux.x{n}"));
    bundle.config["annotations"] = names.map(|name| (name, json!("1\0"))).collect();
    assert_eq!(bundle.engine().run()[0], b"out\n");
    assert_eq!(rig.served("strange", "stdout"), 4);
    let mut list = rig.call(rig.wrapper());
    list.arg("list").env("STRANGE", OsStr::from_bytes(b"\xff"));
    let output = list.output().unwrap();
    assert!(output.status.success(), "{output:?}");
}

/// The keeper has no variables of the engine, such as that of a user's session.
#[test]
fn a_user_has_a_mux_as_well() {
    let Some(rig) = Rig::new() else { return };
    let program = fs::metadata(env!("CARGO_BIN_EXE_iottymux")).unwrap();
    let home = rig.path("home");
    fs::create_dir(&home).unwrap();
    chown(&home, Some(USER), Some(USER)).unwrap();
    fs::set_permissions(rig.path(""), fs::Permissions::from_mode(0o755)).unwrap();
    let as_user = |program: &Path, words: &[&str]| {
        let mut command = Command::new(program);
        command.uid(USER).gid(USER).args(words).current_dir(&home).env("XDG_RUNTIME_DIR", &home);
        command.env_remove("IOTTYMUX_STATE_DIR");
        // The container has them as well, so they have no end.
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status()
    };
    let call = |program: &Path, words: &[&str]| {
        as_user(program, &[&["--root", "rootless"], words].concat()).unwrap()
    };
    let runc = Path::new("runc");
    let is_allowed = program.permissions().mode() & 0o001 != 0
        && as_user(&rig.wrapper(), &["--version"]).is_ok_and(|status| status.success())
        && as_user(runc, &["spec", "--rootless"]).is_ok_and(|status| status.success());
    if !is_allowed {
        return skip("another user", "it cannot execute the program");
    }
    let config = home.join("config.json");
    let mut value: serde_json::Value = serde_json::from_slice(&fs::read(&config).unwrap()).unwrap();
    value["process"]["terminal"] = json!(false);
    value["process"]["args"] = json!(["/bin/echo", "out"]);
    value["root"] = json!({ "path": rig.path("root"), "readonly": true });
    fs::write(&config, value.to_string()).unwrap();
    for program in [runc, &rig.wrapper()] {
        let created = call(program, &["create", "rootless"]);
        if program == runc && !created.success() {
            return skip("containers of users", "this machine has none");
        }
        assert!(created.success(), "{created:?}");
        if program == runc {
            assert!(call(program, &["delete", "--force", "rootless"]).success());
        }
    }
    let has_mux = home.join("iottymux").read_dir().is_ok_and(|mut apps| apps.next().is_some());
    let deleted = call(&rig.wrapper(), &["delete", "--force", "rootless"]);
    assert!(has_mux && deleted.success(), "{deleted:?}");
}

#[test]
fn a_missing_runtime_is_named() {
    let Some(rig) = Rig::new() else { return };
    let mut bundle = rig.bundle("missing", "echo out");
    bundle.variables = vec![("IOTTYMUX_OCI_RUNTIME".to_owned(), "/no/runtime".to_owned())];
    let output = bundle.output();
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("IOTTYMUX_OCI_RUNTIME=/no/runtime: there is no such program"), "{said}");
}

/// Has a shell of another name create a container; its exit code, and what was said.
fn create_under(rig: &Rig, mut parent: Command, bundle: &Bundle<'_>) -> (Option<i32>, String) {
    let create = bundle.create();
    let words: Vec<_> = create.get_args().map(|word| word.to_str().unwrap()).collect();
    let line = format!("{} {} || exit $?", rig.wrapper().display(), words.join(" "));
    parent.args(["-c", &line]).current_dir(rig.path("")).env("IOTTYMUX_STATE_DIR", &rig.state);
    // The container has its streams as well, so a pipe would have no end.
    let said = fs::File::create(rig.path("said")).unwrap();
    parent.stdin(Stdio::null()).stdout(Stdio::null()).stderr(said);
    let status = parent.status().unwrap();
    (status.code(), fs::read_to_string(rig.path("said")).unwrap())
}

fn delete(rig: &Rig, id: &str) -> bool {
    rig.call(rig.wrapper()).args(["delete", "--force", id]).status().unwrap().success()
}

/// Its first process may end before the others.
#[test]
fn a_container_without_a_pid_namespace_of_its_own_has_no_mux() {
    let Some(rig) = Rig::new() else { return };
    let (log, go) = (rig.path("log"), rig.path("root/tmp/go"));
    let script = "(until test -e /tmp/go; do sleep 0.02; done; echo late) & echo out";
    let mut bundle = rig.bundle("pids", script);
    bundle.globals = ["--log", log.to_str().unwrap()].map(String::from).into();
    let namespaces = bundle.config["linux"]["namespaces"].as_array_mut().unwrap();
    namespaces.retain(|namespace| namespace["type"] != "pid");
    let mut container = bundle.engine();
    let [stdout, _] = container.read();
    container.start();
    stdout.wait_for("out\n");
    eventually("the first one has ended", || {
        String::from_utf8_lossy(&container.call(&["state"])).contains("\"stopped\"")
    });
    fs::write(go, "").unwrap();
    assert_eq!(stdout.text(), "out\nlate\n");
    assert_eq!(rig.status("pids"), None);
    let log = fs::read_to_string(log).unwrap();
    assert!(log.contains("it has no mux: without a PID namespace of its own"), "{log}");
}

/// What counts is the name of the parent.
#[test]
fn under_an_engine_that_does_not_wait_a_container_has_no_mux() {
    let Some(rig) = Rig::new() else { return };
    let conmon = rig.path("conmon");
    fs::copy("/bin/sh", &conmon).unwrap();
    let mut buildah = Command::new("sh");
    buildah.arg0("buildah-oci-runtime");
    for (id, parent) in [("conmon", Command::new(conmon)), ("buildah", buildah)] {
        let log = rig.path(id).with_extension("log");
        let mut bundle = rig.bundle(id, "echo out");
        bundle.globals = ["--log", log.to_str().unwrap()].map(String::from).into();
        let (code, said) = create_under(&rig, parent, &bundle);
        assert!(code == Some(0) && delete(&rig, id), "{said}");
        assert_eq!(rig.status(id), None);
        let log = fs::read_to_string(log).unwrap();
        assert!(
            log.contains("it has no mux: its engine does not wait for its last output"),
            "{log}"
        );
    }
}

/// Root runs what the file names.
#[test]
fn the_administrators_file_counts_only_if_it_is_roots() {
    const FILE: &str = "/etc/iottymux/oci.env";
    let Some(rig) = Rig::new() else { return };
    let (dir, none) = (Path::new(FILE).parent().unwrap(), None::<&str>);
    fs::create_dir_all(dir).unwrap();
    unshare(CloneFlags::CLONE_NEWNS).unwrap();
    mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none).unwrap();
    mount(none, dir, Some("tmpfs"), MsFlags::empty(), none).unwrap();
    let write = |text: &str, mode: u32, owner: u32| {
        let _ = fs::remove_file(FILE);
        fs::write(FILE, text).unwrap();
        fs::set_permissions(FILE, fs::Permissions::from_mode(mode)).unwrap();
        chown(FILE, Some(owner), Some(owner)).unwrap();
    };
    let missing = "IOTTYMUX_OCI_RUNTIME=/no/runtime\n";
    for (id, mode, owner) in [("mode", 0o666, 0), ("owner", 0o644, USER)] {
        write(missing, mode, owner);
        assert_eq!(rig.bundle(id, "echo out").engine().run()[0], b"out\n");
        assert_eq!(rig.served(id, "stdout"), 4);
    }
    write(missing, 0o644, 0);
    let output = rig.bundle("roots", "echo out").output();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && said.contains("/no/runtime"), "{said}");
    // The engine's own variable comes first.
    let mut bundle = rig.bundle("engines", "echo out");
    let runc =
        ["/usr/sbin/runc", "/usr/bin/runc"].into_iter().find(|path| Path::new(path).exists());
    bundle.variables = vec![("IOTTYMUX_OCI_RUNTIME".to_owned(), runc.unwrap().to_owned())];
    assert_eq!(bundle.engine().run()[0], b"out\n");
}
