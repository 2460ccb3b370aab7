//! `iottymux-runc`, called as an engine calls it.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::process::Stdio;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, unshare};
use nix::sys::prctl;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::Pid;
use rustix::termios::{Winsize, tcsetwinsize};
use serde_json::json;

use crate::bundle::{Rig, be_a_shim, pipe, size_of};
use crate::engine::USER;
use crate::form::is_long;
use crate::installed::is_installed;
use crate::proc::Said;
use crate::proc::eventually;
use crate::skip::skip;

/// Output of both streams, with an end that has no line end, and an exit status.
const MUCH: &str = "seq 1 200000; seq 1 2000 >&2; seq 300000 400000; printf end; exit 7";

#[test]
fn the_engine_gets_the_bytes_that_it_gets_of_plain_runc() {
    let Some(rig) = Rig::new() else { return };
    let plain = rig.bundle("plain", MUCH).plain().engine().run();
    let wrapped = rig.bundle("wrapped", MUCH).engine().run();
    assert!(plain == wrapped, "{:?} {:?}", plain.map(|s| s.len()), wrapped.map(|s| s.len()));
    for (stream, said) in ["stdout", "stderr"].iter().zip(&wrapped) {
        assert_eq!(rig.served("wrapped", stream), said.len() as u64);
    }
    assert_eq!(rig.status("plain"), None);
}

/// As an image or a DaemonSet has it: a file of its own.
#[test]
fn a_copy_or_a_hard_link_of_the_program_is_the_runtime_as_well() {
    let Some(rig) = Rig::new() else { return };
    let program = rig.path("iottymux");
    std::fs::copy(env!("CARGO_BIN_EXE_iottymux"), &program).unwrap();
    for (id, is_link) in [("copied", false), ("linked", true)] {
        std::fs::remove_file(rig.wrapper()).unwrap();
        if is_link {
            std::fs::hard_link(&program, rig.wrapper()).unwrap();
        } else {
            std::fs::copy(&program, rig.wrapper()).unwrap();
        }
        assert_eq!(rig.bundle(id, "echo out").engine().run()[0], b"out\n");
        assert_eq!(rig.served(id, "stdout"), 4);
    }
}

#[test]
fn short_containers_end_completely() {
    let Some(rig) = Rig::new() else { return };
    for round in 0..20 {
        let id = format!("short-{round}");
        let [stdout, stderr] = rig.bundle(&id, "echo out; echo err >&2").engine().run();
        assert_eq!((&stdout[..], &stderr[..]), (&b"out\n"[..], &b"err\n"[..]));
        assert_eq!(rig.served(&id, "stdout"), 4);
    }
}

#[test]
fn crun_is_wrapped_as_well() {
    let Some(rig) = Rig::new() else { return };
    if !is_installed("crun") {
        return skip("crun", "it is not installed");
    }
    // It refuses a machine that has the old control groups and the new ones.
    unshare(CloneFlags::CLONE_NEWNS).unwrap();
    let none = None::<&str>;
    mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none).unwrap();
    let _ = umount2("/sys/fs/cgroup/unified", MntFlags::MNT_DETACH);
    let crun = || vec![("IOTTYMUX_OCI_RUNTIME".to_owned(), "/usr/bin/crun".to_owned())];
    let mut bundle = rig.bundle("crun", MUCH);
    bundle.variables = crun();
    let [stdout, stderr] = bundle.engine().run();
    assert!(stdout.ends_with(b"400000\nend") && stderr.ends_with(b"2000\n"));
    assert_eq!(rig.served("crun", "stdout"), stdout.len() as u64);
    assert_eq!(rig.status("crun").unwrap()["app_ended"]["status"], 7);
    let mut bundle = rig.bundle("crun-tty", "read x; echo \"got $x\"; exit 3");
    bundle.variables = crun();
    let (container, mut engine) = bundle.terminal().engine_terminal();
    let shown = Said::follow(engine.try_clone().unwrap());
    container.start();
    engine.write_all(b"a line\n").unwrap();
    shown.wait_for("got a line\r\n");
    assert!(rig.served("crun-tty", "tty") > 0);
    assert_eq!(rig.status("crun-tty").unwrap()["app_ended"]["status"], 3);
}

#[test]
fn two_clients_beside_the_engine_get_the_output_and_the_status() {
    let Some(rig) = Rig::new() else { return };
    let mut container = rig.bundle("two", MUCH).engine();
    let attach = || rig.client(&["attach", "--app", "two", "--mode", "stdout,stderr"]);
    let mut clients = [attach(), attach()];
    eventually("both have attached", || {
        rig.status("two").is_some_and(|status| status["clients"].as_array().unwrap().len() >= 3)
    });
    let said = container.read();
    container.start();
    let [stdout, stderr] = said.map(|said| said.bytes());
    for client in &mut clients {
        assert_eq!(client.ends(), 7, "{}", client.stderr.text());
        assert!(client.stdout.bytes() == stdout && client.stderr.bytes() == stderr);
    }
    assert_eq!(rig.served("two", "stdout"), stdout.len() as u64);
}

/// Only the parent of a process can wait for it.
#[test]
fn an_engine_that_collects_orphans_waits_for_its_container() {
    let Some(rig) = Rig::new() else { return };
    prctl::set_child_subreaper(true).unwrap();
    let container = rig.bundle("waited", "echo out; exit 5").engine();
    let app = std::fs::read_to_string(container.bundle.dir().join("pid")).unwrap();
    let app = Pid::from_raw(app.trim().parse().unwrap());
    assert_eq!(parent(app.as_raw()), Pid::this());
    container.start();
    assert_eq!(waitpid(app, None), Ok(WaitStatus::Exited(app, 5)));
    assert_eq!(rig.served("waited", "stdout"), 4);
}

/// It gives up the output soon after it knows of the end.
#[test]
fn the_engine_learns_of_the_end_when_it_has_the_output() {
    let Some(rig) = Rig::new() else { return };
    be_a_shim();
    let script = "trap 'echo out; exit 3' USR1; echo up; while :; do sleep 0.02; done";
    let mut container = rig.bundle("late", script).engine();
    let [stdout, _] = container.read();
    container.start();
    stdout.wait_for("up\n");
    let app = || rig.status("late").and_then(|status| status["app_pid"].as_i64());
    eventually("it runs", || app().is_some());
    let app = i32::try_from(app().unwrap()).unwrap();
    let stat = |pid: i32| std::fs::read_to_string(format!("/proc/{pid}/stat"));
    let is_in = |pid: i32, state: &str| stat(pid).is_ok_and(|stat| stat.contains(state));
    let holder = parent(app);
    let words = std::fs::read_to_string(format!("/proc/{holder}/cmdline")).unwrap();
    assert!(words.contains("oci-holder"), "{words}");
    let mux = rig.mux("late");
    kill(Pid::from_raw(mux), Signal::SIGSTOP).unwrap();
    eventually("the mux is stopped", || is_in(mux, ") T "));
    kill(Pid::from_raw(app), Signal::SIGUSR1).unwrap();
    eventually("the container has ended", || is_in(app, ") Z "));
    assert_eq!(parent(app), holder);
    kill(Pid::from_raw(mux), Signal::SIGCONT).unwrap();
    stdout.wait_for("out\n");
    // It is handed over, and its new parent may have collected it already.
    eventually("the holder has ended", || {
        stat(app).map_or(true, |stat| !stat.contains(&format!(") Z {holder} ")))
    });
}

#[test]
fn a_killed_mux_costs_the_engine_nothing() {
    let Some(rig) = Rig::new() else { return };
    let script = "seq 1 1500000; echo end >&2; exit 3";
    let mut container = rig.bundle("killed", script).engine();
    let [stdout, stderr] = container.read();
    let args = ["attach", "--app", "killed", "--mode", "stdout", "--reconnect", "30"];
    let mut client = rig.client(&args);
    eventually("it has attached", || {
        rig.status("killed").is_some_and(|status| status["clients"].as_array().unwrap().len() >= 2)
    });
    container.start();
    let (mut kills, mut last) = (0, 0);
    while !stderr.so_far().contains("end") && kills < 30 {
        let Some(status) = rig.status("killed") else { continue };
        let Some(mux) = status["mux_pid"].as_i64().filter(|mux| *mux != last) else { continue };
        last = mux;
        if kill(Pid::from_raw(mux.try_into().unwrap()), Signal::SIGKILL).is_ok() {
            kills += 1;
        }
    }
    assert!(kills > 2, "it was too fast");
    let want: Vec<u8> = (1..=1_500_000).flat_map(|n| format!("{n}\n").into_bytes()).collect();
    let got = stdout.bytes();
    assert!(got == want, "{} bytes of {}, {kills} kills", got.len(), want.len());
    assert_eq!(client.ends(), 3, "{}", client.stderr.text());
    assert!(client.stdout.bytes() == want);
    assert_eq!(rig.served("killed", "stdout"), want.len() as u64);
}

/// It is not started again while the mux goes on, which ends with the container.
#[test]
fn a_killed_keeper_costs_the_container_nothing() {
    let Some(rig) = Rig::new() else { return };
    let script = "while read x; do echo \"got $x\"; done; seq 1 100000; exit 3";
    let mut container = rig.bundle("alone", script).engine();
    let [stdout, _] = container.read();
    container.start();
    let mut client = rig.client(&["attach", "--app", "alone", "--mode", "stdout"]);
    eventually("it has attached", || {
        rig.status("alone").is_some_and(|status| status["clients"].as_array().unwrap().len() >= 2)
    });
    let (terminal, mut engine) =
        rig.bundle("alone-tty", "read x; echo \"got $x\"").terminal().engine_terminal();
    let shown = Said::follow(engine.try_clone().unwrap());
    terminal.start();
    eventually("it runs", || rig.status("alone-tty").is_some_and(|s| s["app_pid"].is_i64()));
    for id in ["alone", "alone-tty"] {
        let mux = rig.mux(id);
        let keeper = parent(mux);
        kill(keeper, Signal::SIGKILL).unwrap();
        eventually("it is gone", || parent(mux) != keeper);
    }
    container.stdin.as_ref().unwrap().write_all(b"a line\n").unwrap();
    stdout.wait_for("got a line\n");
    drop(container.stdin.take());
    assert!(stdout.text().ends_with("\n100000\n"));
    client.ends();
    assert!(client.stdout.text() == stdout.text(), "{}", client.stderr.text());
    engine.write_all(b"a line\n").unwrap();
    shown.wait_for("got a line\r\n");
}

/// They may be killed together with the holder. Nothing can be had of the container then, and who asks is
/// told; the next one of that name is whole.
#[test]
fn a_container_without_mux_and_keeper_runs_on_and_the_next_one_is_whole() {
    let Some(rig) = Rig::new() else { return };
    let script = "trap '' PIPE; trap 'exit 3' TERM; echo up; while :; do sleep 0.02; done";
    let mut container = rig.bundle("lost", script).engine();
    let [stdout, _] = container.read();
    container.start();
    stdout.wait_for("up\n");
    let state =
        || -> serde_json::Value { serde_json::from_slice(&container.call(&["state"])).unwrap() };
    let app = state()["pid"].as_i64().unwrap();
    kill_all_of(&rig, "lost", app.try_into().unwrap());
    assert_eq!(state()["pid"], app);
    let mut attach = rig.client(&["attach", "lost"]);
    assert_eq!(attach.ends(), 1);
    let why = attach.stderr.text();
    assert!(why.contains("app lost: its mux was killed"), "{why}");
    drop(container);
    let mut next = rig.bundle("lost", "read x; echo got $x").engine();
    let [stdout, _] = next.read();
    next.start();
    next.stdin.as_ref().unwrap().write_all(b"it\n").unwrap();
    stdout.wait_for("got it\n");
    rig.served("lost", "stdout");
}

/// Kills the mux of a container, the keeper, and the holder if it has one.
fn kill_all_of(rig: &Rig, id: &str, app: i32) {
    let mux = rig.mux(id);
    let is_of = |pid: Pid, word: &str| {
        let line = std::fs::read_to_string(format!("/proc/{pid}/cmdline"));
        line.is_ok_and(|line| line.contains(word))
    };
    let [keeper, holder] = [mux, app].map(parent);
    assert!(is_of(keeper, "oci-keeper"));
    let holder = Some(holder).filter(|holder| is_of(*holder, "oci-holder"));
    let mux = Pid::from_raw(mux);
    // Without its keeper, that of a container that has no output any more ends by itself.
    kill(mux, Signal::SIGSTOP).unwrap();
    for pid in [keeper, mux].into_iter().chain(holder) {
        kill(pid, Signal::SIGKILL).unwrap();
    }
    eventually("no mux", || rig.status(id).is_none_or(|is| is.get("mux_pid").is_none()));
}

pub fn parent(pid: i32) -> Pid {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let (_, fields) = stat.rsplit_once(')').unwrap();
    Pid::from_raw(fields.split_whitespace().nth(1).unwrap().parse().unwrap())
}

#[test]
fn the_engines_input_is_typed_and_its_end_is_the_end() {
    let Some(rig) = Rig::new() else { return };
    let mut container = rig.bundle("input", "cat; echo done").engine();
    let [stdout, _] = container.read();
    container.start();
    container.stdin.as_ref().unwrap().write_all(b"of the engine\n").unwrap();
    stdout.wait_for("of the engine\n");
    let mut client = rig.client_command(&["attach", "--app", "input"]);
    let mut client = crate::proc::Proc::spawn({
        client.stdin(Stdio::piped());
        client
    });
    client.stdin().write_all(b"of a client\n").unwrap();
    stdout.wait_for("of a client\n");
    let mut ask = rig.client(&["ask", "input", "of a script", "--until", "script"]);
    assert_eq!((ask.ends(), ask.stdout.text().as_str()), (0, "of a script\n"));
    drop(container.stdin.take());
    assert_eq!(stdout.text(), "of the engine\nof a client\nof a script\ndone\n");
    assert_eq!(client.ends(), 0);
    assert_eq!(client.stdout.text(), stdout.text());
}

#[test]
fn without_an_input_of_the_engine_there_is_none() {
    let Some(rig) = Rig::new() else { return };
    let container = rig.bundle("none", "cat; echo done").engine_with(Stdio::null());
    assert_eq!(container.run()[0], b"done\n");
    assert_eq!(rig.served("none", "stdout"), 5);
}

#[test]
fn an_input_that_is_no_pipe_is_the_containers_and_no_client_types() {
    let Some(rig) = Rig::new() else { return };
    let text = rig.path("text");
    std::fs::write(&text, "of the file\n").unwrap();
    let input = Stdio::from(File::open(text).unwrap());
    let script = "cat; while ! test -e /tmp/go; do sleep 0.02; done; echo done";
    let mut container = rig.bundle("file", script).engine_with(input);
    let [stdout, _] = container.read();
    container.start();
    stdout.wait_for("of the file\n");
    let mut typist = rig.client(&["attach", "--app", "file", "--mode", "stdin"]);
    assert_eq!(typist.ends(), 1);
    let said = typist.stderr.text();
    assert!(said.contains("its engine gives it no input") && said.lines().count() == 1, "{said}");
    std::fs::write(rig.path("root/tmp/go"), "").unwrap();
    assert_eq!(stdout.text(), "of the file\ndone\n");
}

#[test]
fn a_container_that_was_created_without_the_runtime_cannot_be_attached() {
    let Some(rig) = Rig::new() else { return };
    let mut container = rig.bundle("without", "echo up; read x").plain().engine();
    let [stdout, _] = container.read();
    container.start();
    stdout.wait_for("up\n");
    let mut client = rig.client(&["attach", "without"]);
    assert_eq!(client.ends(), 1);
    let said = client.stderr.text();
    assert!(said.contains("without") && said.lines().count() == 1, "{said}");
    let mut list = rig.client(&["list"]);
    assert_eq!(list.ends(), 0);
    assert!(!list.stdout.text().contains("without"), "{}", list.stdout.text());
}

#[test]
fn the_beginning_of_an_id_that_an_engine_has_made_up_suffices() {
    let Some(rig) = Rig::new() else { return };
    let id = "0123456789abcdef".repeat(4);
    let mut container = rig.bundle(&id, "echo up; read x; exit 4").engine();
    let [stdout, _] = container.read();
    container.start();
    stdout.wait_for("up\n");
    assert_eq!(rig.mux(&id[..12]), rig.mux(&id));
    for other in [&id[..11], &id[..13]] {
        assert_eq!(rig.status(other), None);
    }
    let mut client = rig.client(&["attach", &id[..12], "--from", "start"]);
    client.stdout.wait_for("up\n");
    container.stdin.as_ref().unwrap().write_all(b"\n").unwrap();
    assert_eq!(client.ends(), 4, "{}", client.stderr.so_far());
}

/// What the CRI of containerd writes into the configuration of a container.
#[test]
fn a_container_of_a_pod_is_called_as_kubernetes_calls_it() {
    let Some(mut rig) = Rig::new() else { return };
    rig.namespace = "k8s.io";
    let id = "0123456789abcdef".repeat(4);
    let mut bundle = rig.bundle(&id, "echo up; read x; exit 4");
    bundle.config["annotations"] = json!({
        "io.kubernetes.cri.container-type": "container",
        "io.kubernetes.cri.container-name": "nginx",
        "io.kubernetes.cri.sandbox-name": "web-0",
        "io.kubernetes.cri.sandbox-namespace": "default",
    });
    let mut container = bundle.engine();
    let [stdout, _] = container.read();
    container.start();
    stdout.wait_for("up\n");
    let by_id = format!("containerd://{id}");
    let names = ["web-0", "web-0/nginx", "default/web-0", "default/web-0/nginx", &by_id];
    for name in names {
        let status = rig.status(name).unwrap();
        assert_eq!(status["container_name"], "default/web-0/nginx", "{status}");
    }
    // The next mux knows it, too.
    let mux = rig.mux("web-0");
    kill(Pid::from_raw(mux), Signal::SIGKILL).unwrap();
    eventually("another mux", || rig.status("web-0").is_some_and(|is| is["mux_pid"] != mux));
    let mut client = rig.client(&["attach", "web-0/nginx", "--from", "start"]);
    client.stdout.wait_for("up\n");
    container.stdin.as_ref().unwrap().write_all(b"\n").unwrap();
    assert_eq!(client.ends(), 4, "{}", client.stderr.so_far());
    rig.served("web-0", "stdout");
    for name in names {
        assert_eq!(rig.status(name).unwrap()["app_ended"], json!({ "status": 4 }));
    }
}

/// The sidecar runs all the time, and another pod begins.
#[test]
fn attach_goes_on_to_the_next_container_of_its_name() {
    let Some(mut rig) = Rig::new() else { return };
    rig.namespace = "k8s.io";
    let container = |id: &str, pod: &str, name: &str, script: &str| {
        let mut bundle = rig.bundle(&id.repeat(32), script);
        bundle.config["annotations"] = json!({
            "io.kubernetes.cri.container-name": name,
            "io.kubernetes.cri.sandbox-name": pod,
            "io.kubernetes.cri.sandbox-namespace": "default",
        });
        let mut container = bundle.engine();
        let said = container.read();
        container.start();
        (container, said)
    };
    let script = "echo out; read x; echo \"got $x\"; exit 4";
    let (mut first, _said) = container("1a", "web-0", "nginx", script);
    let mut client = rig.client_command(&["attach", "--follow", "web-0", "--from", "start"]);
    let mut client = crate::proc::Proc::spawn({
        client.stdin(Stdio::piped());
        client
    });
    let mut input = client.stdin();
    client.stdout.wait_for("out\n");
    let (_sidecar, _said) = container("2b", "web-0", "sidecar", "echo of the sidecar; read x");
    let (_other, _said) = container("3c", "web-1", "nginx", "echo of another pod; read x");
    for (n, id) in ["4d", "5e"].into_iter().enumerate() {
        input.write_all(b"a line\n").unwrap();
        let line = "default/web-0/nginx ended with status 4; waiting until it runs again";
        eventually("it waits", || client.stderr.so_far().matches(line).count() == n + 1);
        drop(first);
        (first, _) = container(id, "web-0", "nginx", &format!("echo next {n}; read x; exit 4"));
        client.stdout.wait_for(&format!("next {n}\n"));
    }
    let want = "out\ngot a line\nnext 0\nnext 1\n";
    assert_eq!(client.stdout.so_far(), want, "{}", client.stderr.so_far());
    kill(client.pid(), Signal::SIGTERM).unwrap();
    client.ends();
}

/// Its author may have chosen them, unlike those of a pod.
#[test]
fn another_container_cannot_take_the_names_of_a_pod() {
    let Some(mut rig) = Rig::new() else { return };
    for namespace in ["default", "moby", "k8s.io"] {
        rig.namespace = namespace;
        let mut bundle = rig.bundle("mine", "read x");
        // Kubernetes does not allow the last one.
        let pod = if namespace == "k8s.io" { "we\u{1b}[2Jb" } else { "web" };
        bundle.config["annotations"] = json!({
            "io.kubernetes.cri.container-name": "nginx",
            "io.kubernetes.cri.sandbox-name": pod,
            "io.kubernetes.cri.sandbox-namespace": "default",
        });
        let container = bundle.engine();
        container.start();
        let status = rig.status(&format!("{namespace}/mine")).unwrap();
        assert_eq!(status.get("container_name"), None, "{status}");
        assert_eq!(rig.status("web/nginx"), None);
    }
}

/// What Docker keeps of its containers, and a mount of each of them.
#[test]
fn a_container_of_docker_is_called_as_docker_calls_it() {
    let Some(mut rig) = Rig::new() else { return };
    rig.namespace = "moby";
    let id = "0123456789abcdef".repeat(4);
    let kept = rig.path("docker/containers");
    for (other, name) in [(&*id, "/odd_Name"), (&"f".repeat(64), "/other")] {
        std::fs::create_dir_all(kept.join(other)).unwrap();
        let text = json!({ "ID": other, "Name": name, "State": { "Running": false } });
        std::fs::write(kept.join(other).join("config.v2.json"), text.to_string()).unwrap();
        std::fs::write(kept.join(other).join("hostname"), "box\n").unwrap();
    }
    let container = |id: &str, of: &str| {
        let mut bundle = rig.bundle(id, "echo up; read x; exit 4");
        let file = kept.join(of).join("hostname");
        bundle.config["mounts"].as_array_mut().unwrap().push(json!({
            "destination": "/etc/hostname", "source": file, "type": "bind", "options": ["rbind"],
        }));
        let container = bundle.engine();
        container.start();
        container
    };
    // It may have the network of another container, and so the other's file.
    for of in [&*id, &"f".repeat(64)] {
        let running = container(&id, of);
        let status = rig.status("odd_Name").unwrap();
        assert_eq!(status["container_name"], "odd_Name", "{status}");
        assert_eq!(rig.mux("odd_Name"), rig.mux(&id[..12]));
        assert_eq!(rig.mux("odd_Name"), rig.mux(&format!("moby/{id}")));
        let mut client = rig.client(&["attach", "odd_Name", "--from", "start"]);
        client.stdout.wait_for("up\n");
        running.stdin.as_ref().unwrap().write_all(b"\n").unwrap();
        assert_eq!(client.ends(), 4, "{}", client.stderr.so_far());
        rig.served("odd_Name", "stdout");
    }
    for (id, what) in [
        ("none", "{}"),
        ("empty", r#"{"Name":"/"}"#),
        ("path", r#"{"Name":"/a/b"}"#),
        ("hostile", "{\"Name\":\"/a\\u001b[2J\"}"),
        ("broken", "{"),
    ] {
        std::fs::create_dir_all(kept.join(id)).unwrap();
        std::fs::write(kept.join(id).join("config.v2.json"), what).unwrap();
        std::fs::write(kept.join(id).join("hostname"), "box\n").unwrap();
        let _running = container(id, id);
        let status = rig.status(&format!("moby/{id}")).unwrap();
        assert_eq!(
            (status["app"].as_str(), status.get("container_name")),
            (Some(&*format!("moby:{id}")), None)
        );
    }
}

#[test]
fn the_mux_and_the_keeper_are_in_the_control_group_of_the_engine() {
    let Some(rig) = Rig::new() else { return };
    let container = rig.bundle("group", "read x").engine();
    container.start();
    let group_of = |pid: i32| std::fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap();
    let own = group_of(Pid::this().as_raw());
    let mux = rig.mux("group");
    let keeper = parent(mux).as_raw();
    let words = std::fs::read_to_string(format!("/proc/{keeper}/cmdline")).unwrap();
    assert!(words.contains("oci-keeper"), "{words}");
    assert_eq!((group_of(mux), group_of(keeper)), (own.clone(), own.clone()));
    let app = || rig.status("group").and_then(|status| status["app_pid"].as_i64());
    eventually("it runs", || app().is_some());
    assert_ne!(group_of(app().unwrap().try_into().unwrap()), own);
}

/// What is written to the journal of this test's mount namespace.
struct Journal(UnixListener);

impl Journal {
    fn new() -> Self {
        let none = None::<&str>;
        unshare(CloneFlags::CLONE_NEWNS).unwrap();
        mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none).unwrap();
        mount(Some("tmpfs"), "/run", Some("tmpfs"), MsFlags::empty(), none).unwrap();
        std::fs::create_dir_all("/run/systemd/journal").unwrap();
        let listener = UnixListener::bind("/run/systemd/journal/stdout").unwrap();
        listener.set_nonblocking(true).unwrap();
        Self(listener)
    }

    /// All that was written by those that have ended.
    fn read(&self) -> String {
        let mut said = String::new();
        while let Ok((mut connection, _)) = self.0.accept() {
            connection.read_to_string(&mut said).unwrap();
        }
        said
    }
}

/// It has none to follow.
#[test]
fn an_engine_that_has_closed_its_terminal_is_not_missed() {
    let Some(rig) = Rig::new() else { return };
    let journal = Journal::new();
    let script = "trap '' HUP; while ! test -e /tmp/go; do sleep 0.02; done";
    let (container, engine) = rig.bundle("closed", script).terminal().engine_terminal();
    container.start();
    drop(engine);
    let mux = rig.mux("closed");
    kill(Pid::from_raw(mux), Signal::SIGKILL).unwrap();
    eventually("another mux", || {
        rig.status("closed")
            .is_some_and(|is| is["mux_pid"].as_i64().is_some_and(|pid| pid != i64::from(mux)))
    });
    std::fs::write(rig.path("root/tmp/go"), "").unwrap();
    rig.served("closed", "tty");
    drop(container);
    eventually("all have ended", || rig.processes().is_empty());
    let said = journal.read();
    assert!(said.contains("starting it again") && !said.contains("resizes"), "{said}");
}

/// A node has hundreds of them.
#[test]
fn a_container_says_nothing_in_the_journal_but_what_is_wrong() {
    let Some(mut rig) = Rig::new() else { return };
    let journal = Journal::new();
    let users = std::fs::read_to_string("/etc/passwd").unwrap();
    let users = users.lines().filter(|line| !line.starts_with("iottymux:"));
    let users = users.fold(String::new(), |text, line| text + line + "\n");
    rig.state = "/run/iottymux".into();
    let passwd = rig.path("passwd");
    std::fs::write(&passwd, "").unwrap();
    mount(Some(&passwd), "/etc/passwd", None::<&str>, MsFlags::MS_BIND, None::<&str>).unwrap();
    let own = format!("{users}iottymux:x:{USER}:{USER}::/:/usr/sbin/nologin\n");
    let no_user =
        "iottymux: warn: app quiet: its mux runs as root: this machine has no user iottymux";
    for (users, want) in [(users, Some(no_user)), (own, None)] {
        std::fs::write(&passwd, users).unwrap();
        let mut container = rig.bundle("quiet", "read x; exit 3").engine();
        container.start();
        let mut client = rig.client(&["attach", "quiet"]);
        eventually("it has attached", || {
            rig.status("quiet").is_some_and(|is| is["clients"].as_array().unwrap().len() == 2)
        });
        drop(container.stdin.take());
        assert_eq!(client.ends(), 3);
        drop(container);
        eventually("all have ended", || rig.processes().is_empty());
        let said = journal.read();
        let lines: Vec<&str> = said.lines().filter(|line| line.starts_with("iottymux: ")).collect();
        let (of_clients, others): (Vec<&str>, Vec<&str>) =
            lines.into_iter().partition(|line| line.contains("tached "));
        assert_eq!((of_clients.len(), others.len()), (2, usize::from(want.is_some())), "{said}");
        assert!(others.iter().all(|line| line.starts_with(want.unwrap())), "{said}");
    }
}

#[test]
fn an_engine_that_reads_no_more_harms_nobody() {
    let Some(rig) = Rig::new() else { return };
    let mut container = rig.bundle("gone", "seq 1 100000; echo err >&2; exit 5").engine();
    drop(container.stdout.take());
    let stderr = Said::follow(container.stderr.take().unwrap());
    let mut client = rig.client(&["attach", "--app", "gone", "--mode", "stdout"]);
    eventually("it has attached", || {
        rig.status("gone").is_some_and(|status| status["clients"].as_array().unwrap().len() >= 2)
    });
    container.start();
    assert_eq!(stderr.text(), "err\n");
    assert_eq!(client.ends(), 5);
    assert!(client.stdout.text().ends_with("100000\n"));
}

#[test]
fn the_engine_learns_that_a_stream_is_closed_while_the_container_runs() {
    let Some(rig) = Rig::new() else { return };
    let mut container = rig.bundle("closes", "echo out; exec >&-; read x; echo err >&2").engine();
    let [stdout, stderr] = container.read();
    container.start();
    assert_eq!(stdout.text(), "out\n");
    assert_eq!(stderr.so_far(), "");
    // The next mux knows that, too.
    kill(Pid::from_raw(rig.mux("closes")), Signal::SIGKILL).unwrap();
    container.stdin.as_ref().unwrap().write_all(b"\n").unwrap();
    assert_eq!(stderr.text(), "err\n");
    assert_eq!(rig.served("closes", "stderr"), 4);
}

#[test]
fn the_user_of_a_container_opens_its_streams_again() {
    let Some(rig) = Rig::new() else { return };
    let mut bundle = rig.bundle("user", "echo out >/dev/stdout; echo err >/proc/self/fd/2");
    bundle.config["process"]["user"] = json!({ "uid": 1000, "gid": 1000 });
    let [stdout, stderr] = bundle.engine().run();
    assert_eq!((&stdout[..], &stderr[..]), (&b"out\n"[..], &b"err\n"[..]));
    assert_eq!(rig.served("user", "stdout"), 4);
}

#[test]
fn a_terminal_is_shared_with_the_engine() {
    let Some(rig) = Rig::new() else { return };
    let script = "stty -echo; while read line; do echo \"got $line\"; stty size; done; exit 4";
    let (container, mut engine) = rig.bundle("tty", script).terminal().engine_terminal();
    let size = |rows, cols| Winsize { ws_row: rows, ws_col: cols, ws_xpixel: 0, ws_ypixel: 0 };
    tcsetwinsize(&engine, size(33, 99)).unwrap();
    container.start();
    let shown = Said::follow(engine.try_clone().unwrap());
    eventually("the app has no echo", || {
        nudge(&|| (&engine).write_all(b"\n").unwrap());
        shown.so_far().contains("33 99\r\n")
    });
    let person = crate::pty::Pty::open(20, 60);
    let mut attach = rig.client_command(&["attach", "--app", "tty"]);
    attach.env_remove("IOTTYMUX_LOG_LEVEL");
    let mut attach = person.spawn(attach);
    person.shown.wait_for("33 99");
    person.press(b"by a person\r");
    person.shown.wait_for("got by a person");
    shown.wait_for("got by a person\r\n");
    eventually("the app has the person's size", || {
        nudge(&|| person.press(b"\r"));
        shown.so_far().contains("20 60\r\n")
    });
    // The engine's terminal has the app's size, and follows. Behind this line nothing of the person
    // is under way, which would make its window count again.
    person.press(b"no more\r");
    shown.wait_for("got no more\r\n");
    assert_eq!(size_of(&engine), (20, 60));
    tcsetwinsize(&engine, size(50, 132)).unwrap();
    engine.write_all(b"by the engine\n").unwrap();
    shown.wait_for("got by the engine\r\n");
    let mut ask = rig.client(&["ask", "tty", "by a script", "--until", "^got .*"]);
    assert_eq!((ask.ends(), ask.stdout.text().as_str()), (0, "got by a script\n"));
    eventually("the app has the engine's size", || {
        nudge(&|| (&engine).write_all(b"\n").unwrap());
        shown.so_far().contains("50 132\r\n")
    });
    for round in 0..if is_long() { 100 } else { 3 } {
        let mux = Pid::from_raw(rig.mux("tty"));
        kill(mux, Signal::SIGKILL).unwrap();
        engine.write_all(format!("after kill {round}\n").as_bytes()).unwrap();
        shown.wait_for(&format!("got after kill {round}\r\n"));
        eventually("there is another mux", || {
            let status = rig.status("tty");
            status.is_some_and(|s| {
                s["mux_pid"].as_i64().is_some_and(|pid| pid != i64::from(mux.as_raw()))
            })
        });
        // The person's window decides when it comes back.
        eventually("the person is back", || size_of(&engine) == (20, 60));
        tcsetwinsize(&engine, size(51, 130 + round)).unwrap();
        eventually("the app has the engine's size", || {
            nudge(&|| (&engine).write_all(b"\n").unwrap());
            shown.so_far().contains(&format!("51 {}\r\n", 130 + round))
        });
    }
    engine.write_all(b"\x04").unwrap();
    assert_eq!(attach.ends(), 4);
    shown.bytes();
    assert!(rig.served("tty", "tty") > 0);
}

#[test]
fn the_last_of_quick_resizes_by_the_engine_counts() {
    let Some(rig) = Rig::new() else { return };
    let script = "stty -echo; while read line; do echo \"got $line\"; stty size; done";
    let (container, engine) = rig.bundle("quick", script).terminal().engine_terminal();
    let resize = |rows, cols| {
        let size = Winsize { ws_row: rows, ws_col: cols, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&engine, size).unwrap();
    };
    container.start();
    let shown = Said::follow(engine.try_clone().unwrap());
    for rows in 30..40 {
        // There and back, as docker's client does it to have the app redraw. The mux may see any of
        // these sizes.
        for (rows, cols) in [(rows, 100), (25, 81), (rows, 100)] {
            resize(rows, cols);
            thread::sleep(Duration::from_millis(5));
        }
        eventually("the app has the engine's last size", || {
            nudge(&|| (&engine).write_all(format!("at {rows}.\n").as_bytes()).unwrap());
            let text = shown.so_far();
            let answers = text.split_once(&format!("got at {rows}."));
            answers.is_some_and(|(_, answers)| answers.contains(&format!("{rows} 100\r\n")))
        });
        assert_eq!(size_of(&engine), (rows, 100));
    }
    (&engine).write_all(b"\x04").unwrap();
    shown.bytes();
}

/// As the real runtime makes it. Engines give it a size when it runs.
#[test]
fn a_terminal_has_no_size_until_a_client_has_one() {
    let Some(rig) = Rig::new() else { return };
    let script = "stty -echo; stty size; while read line; do stty size; done";
    let bundles = [rig.bundle("plain", script).plain(), rig.bundle("sizeless", script)];
    let [(_plain, _, plain), (_container, engine, shown)] = bundles.map(|bundle| {
        let (container, engine) = bundle.terminal().engine_terminal();
        container.start();
        let shown = Said::follow(engine.try_clone().unwrap());
        shown.wait_for("\n");
        (container, engine, shown)
    });
    assert_eq!(shown.so_far(), plain.so_far());
    // That of the model, so it does not change there.
    let person = crate::pty::Pty::open(24, 80);
    let mut attach = person.spawn(rig.client_command(&["attach", "--app", "sizeless"]));
    eventually("the app has the person's size", || {
        nudge(&|| (&engine).write_all(b"\n").unwrap());
        shown.so_far().contains("\n24 80\r\n")
    });
    assert_eq!(size_of(&engine), (24, 80));
    (&engine).write_all(b"\x04").unwrap();
    assert_eq!(attach.ends(), 0);
}

/// There are two terminals, and the runtime is between them.
#[test]
fn a_container_on_a_command_line_has_the_size_of_the_window() {
    let Some(rig) = Rig::new() else { return };
    let script = "while read x && ! test \"$x\"; do stty size; done; exit 5";
    let bundle = rig.bundle("inner", script).terminal();
    // Writes its config.
    drop(bundle.create());
    let [root, dir] = [rig.path("runtime/default"), bundle.dir()].map(|p| p.display().to_string());
    let person = crate::pty::Pty::open(31, 97);
    let run = rig.client_command(&[
        "run", "-it", "--name", "outer", "runc", "--root", &root, "run", "--bundle", &dir, "inner",
    ]);
    let mut run = person.spawn(run);
    eventually("the app has the size of the window", || {
        nudge(&|| person.press(b"\r"));
        person.shown.so_far().contains("31 97\r\n")
    });
    person.resize(20, 60);
    eventually("the app has its new size", || {
        nudge(&|| person.press(b"\r"));
        person.shown.so_far().contains("20 60\r\n")
    });
    person.press(b"end\r");
    assert_eq!(run.ends(), 5, "{}", person.shown.so_far());
}

/// Types now and then only: the app starts a program for each line.
fn nudge(types: &dyn Fn()) {
    static LOOKS: AtomicU32 = AtomicU32::new(0);
    if LOOKS.fetch_add(1, Ordering::Relaxed).is_multiple_of(64) {
        types();
    }
}

#[test]
fn descriptors_for_the_container_are_the_containers_alone() {
    let Some(rig) = Rig::new() else { return };
    let mut bundle = rig.bundle("preserved", "cat <&3; echo done");
    bundle.options.extend(["--preserve-fds".to_owned(), "1".to_owned()]);
    let (read, write) = pipe();
    let mut command = bundle.create();
    let [(stdout, to_stdout), (_stderr, to_stderr)] = [(); 2].map(|()| pipe());
    command.stdin(Stdio::null()).stdout(to_stdout).stderr(to_stderr);
    pass(&mut command, &read);
    assert!(command.status().unwrap().success());
    drop((command, read));
    File::from(write).write_all(b"by three\n").unwrap();
    assert_eq!(bundle.run_on(stdout), "by three\ndone\n");
    assert_eq!(rig.served("preserved", "stdout"), 14);
}

/// The runtime has it created all the same.
#[test]
fn signals_do_not_end_the_creation_of_a_container() {
    let Some(rig) = Rig::new() else { return };
    for (is_shim, signal) in
        [(false, Signal::SIGTERM), (false, Signal::SIGINT), (true, Signal::SIGHUP)]
    {
        if is_shim {
            be_a_shim();
        }
        let id = format!("signalled-{}", signal.as_str().to_lowercase());
        let mut bundle = rig.bundle(&id, "echo out");
        let (begun, go) = (rig.path("begun"), rig.path("go"));
        let _ = std::fs::remove_file(&go);
        let script = format!(
            "echo >{}; until test -e {}; do sleep 0.02; done",
            begun.display(),
            go.display()
        );
        bundle.config["hooks"] =
            json!({ "createRuntime": [{ "path": "/bin/sh", "args": ["sh", "-c", script] }] });
        let (read, write) = pipe();
        let mut command = bundle.create();
        let mut create = command.stdout(write).stderr(Stdio::null()).spawn().unwrap();
        drop(command);
        eventually("its hook runs", || begun.exists());
        kill(Pid::from_raw(create.id().try_into().unwrap()), signal).unwrap();
        std::fs::write(&go, "").unwrap();
        assert_eq!(create.wait().unwrap().code(), Some(0), "{signal}");
        std::fs::remove_file(&begun).unwrap();
        assert_eq!(bundle.run_on(read), "out\n");
        assert_eq!(rig.served(&id, "stdout"), 4);
    }
}

/// The mux keeps the FIFO open for writing, as the container would.
#[test]
fn an_input_that_is_open_for_writing_as_well_has_no_end() {
    let Some(rig) = Rig::new() else { return };
    let fifo = rig.path("fifo");
    nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRWXU).unwrap();
    let open = File::options().read(true).write(true).open(&fifo).unwrap();
    let mut container = rig
        .bundle("fifo", "while read x; do echo \"got $x\"; done; echo end")
        .engine_with(open.into());
    let [stdout, _] = container.read();
    container.start();
    for line in ["one", "two"] {
        let mut writer = File::options().write(true).open(&fifo).unwrap();
        writer.write_all(format!("{line}\n").as_bytes()).unwrap();
        drop(writer);
        stdout.wait_for(&format!("got {line}\n"));
    }
    assert_eq!(stdout.so_far(), "got one\ngot two\n");
}

#[test]
fn outputs_that_are_one_pipe_keep_their_order() {
    let Some(rig) = Rig::new() else { return };
    let bundle = rig.bundle("order", "for n in $(seq 1000); do echo o$n; echo e$n >&2; done");
    let (read, write) = pipe();
    let mut command = bundle.create();
    command.stdout(write.try_clone().unwrap()).stderr(write);
    assert!(command.status().unwrap().success());
    drop(command);
    let want = (1..=1000).map(|n| format!("o{n}\ne{n}\n")).collect::<Vec<_>>().concat();
    assert!(bundle.run_on(read) == want);
    assert_eq!(rig.served("order", "stdout"), want.len() as u64);
}

/// Has the command's process find this descriptor as its number 3.
fn pass(command: &mut std::process::Command, fd: &OwnedFd) {
    iottymux::sys::calls::passing(command, &[fd], 3).unwrap();
}
