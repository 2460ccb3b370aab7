//! The logger with a real containerd.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

use nix::sys::signal::{Signal, kill};

use crate::engine::{Engine, USER, assert_user};
use crate::form::is_long;
use crate::proc::{Proc, eventually};

/// The lines of `seq 1 LAST`.
fn numbers(last: u64) -> String {
    (1..=last).fold(String::new(), |text, number| text + &number.to_string() + "\n")
}

#[test]
fn the_tail_of_a_short_container_is_complete() {
    let Some(engine) = Engine::start() else { return };
    let rounds = if is_long() { 50 } else { 5 };
    for round in 0..rounds {
        let id = format!("short{round}");
        let log = engine.path(&id);
        let uri = engine.uri(&format!("&log=raw:{}", log.display()));
        engine.run(&id, &uri, "seq 1 5000; exit 3");
        let mut client = engine.attach(&id);
        // It may come after the end, and learns of that then.
        client.ends();
        eventually("the container has ended", || {
            engine
                .ask(&["list", "--ended"])
                .lines()
                .any(|line| line.starts_with(&format!("{id} ")) && line.contains("exited"))
        });
        let status = engine.ask(&["status", "--app", &id]);
        assert!(status.contains("ended with status 3"), "{status}");
        assert!(!engine.ask(&["list"]).contains(&id), "only what runs is listed");
        assert_eq!(fs::read_to_string(&log).unwrap(), numbers(5000), "round {round}");
        engine.delete(&id);
    }
}

#[test]
fn clients_get_each_line_and_the_end_before_the_task_is_deleted() {
    let Some(engine) = Engine::start() else { return };
    let log = engine.path("log");
    let uri = engine.uri(&format!("&--log=raw:{}", log.display()));
    let script =
        "echo begin; while [ ! -e /go ]; do sleep 0.05; done; seq 1 20000; echo end >&2; exit 7";
    engine.run("web", &uri, script);
    let mut clients = [engine.attach("web"), engine.attach("default/web")];
    for client in &clients {
        client.stdout.wait_for("begin\n");
    }
    // One that reads nothing.
    let mut lazy = engine.iottymux(&["attach", "--app", "web", "--from=start"]);
    lazy.stdout(std::process::Stdio::piped());
    let mut lazy = lazy.spawn().unwrap();
    eventually("three clients are attached", || {
        engine.ask(&["status", "--app", "web"]).matches("\nclient ").count() == 3
    });
    let list = engine.ask(&["list"]);
    assert!(list.contains("default/web") && list.contains("running"), "{list}");
    let mux = engine.mux("web").unwrap();
    let rights = fs::read_to_string(format!("/proc/{mux}/status")).unwrap();
    let has = |line: &str| rights.lines().any(|l| l == line);
    // CAP_DAC_OVERRIDE and CAP_SYS_RESOURCE, as far as this machine has them.
    let effective = rights.lines().find_map(|line| line.strip_prefix("CapEff:")).unwrap();
    let effective = u64::from_str_radix(effective.trim(), 16).unwrap();
    assert!(has("NoNewPrivs:\t1") && effective & !0x100_0002 == 0, "{rights}");
    fs::write(engine.path("tree/go"), "").unwrap();
    for client in &mut clients {
        // Its status is the container's: it was complete.
        assert_eq!(client.ends(), 7, "{}", client.stderr.so_far());
        assert_eq!(client.stdout.text(), format!("begin\n{}", numbers(20_000)));
        assert_eq!(client.stderr.text(), "end\n");
    }
    let begin = Instant::now();
    engine.delete("web");
    println!("delete: {:?}", begin.elapsed());
    let kept = fs::read_to_string(&log).unwrap();
    assert_eq!(kept.replacen("end\n", "", 1), format!("begin\n{}", numbers(20_000)));
    lazy.kill().unwrap();
    lazy.wait().unwrap();
}

#[test]
fn a_process_in_a_container_has_a_logger_of_its_own() {
    let Some(engine) = Engine::start() else { return };
    engine.run("web", &engine.uri(""), "echo first; sleep 1000");
    let mut first = engine.attach("web");
    first.stdout.wait_for("first");
    let uri = engine.uri("");
    let exec = |id: &str, script: &str| {
        engine.do_ctr(&[
            "tasks",
            "exec",
            "-d",
            "--exec-id",
            id,
            "--log-uri",
            &uri,
            "web",
            "/bin/sh",
            "-c",
            script,
        ])
    };
    exec("job", "echo out; while [ ! -e /go ]; do sleep 0.05; done; echo err >&2; exit 5");
    let mut job = engine.attach("default/job");
    job.stdout.wait_for("out\n");
    let list = engine.ask(&["list"]);
    assert!(list.contains("default/web exec job"), "{list}");
    fs::write(engine.path("tree/go"), "").unwrap();
    assert_eq!(job.ends(), 5, "{}", job.stderr.so_far());
    assert_eq!(job.stderr.text(), "err\n");
    engine.do_ctr(&["tasks", "kill", "-s", "KILL", "web"]);
    assert_eq!(first.ends(), 137);
    engine.delete("web");
}

#[test]
fn a_mux_may_be_killed_under_load() {
    let Some(engine) = Engine::start() else { return };
    let log = engine.path("log");
    let uri = engine.uri(&format!("&backlog=16M&log=raw:{}", log.display()));
    kill_under_load(&engine, &uri, &log);
}

/// It rotates the log in its own directory.
#[test]
fn a_mux_that_is_not_root_may_be_killed_under_load() {
    let Some(engine) = Engine::start_with_user(&[]) else { return };
    let log = "&log=raw:/var/log/iottymux/web/log&log-max-size=256K&log-max-files=100";
    let uri = Engine::plain_uri(&format!("&backlog=16M{log}"));
    kill_under_load(&engine, &uri, &engine.path("logs/iottymux/web/log"));
}

/// A client and the log of a container get everything, whenever the mux is killed.
fn kill_under_load(engine: &Engine, uri: &str, log: &Path) {
    let kills = if is_long() { 50 } else { 6 };
    // A client of a loaded machine comes back later than a mux waits for it: so the backlog is large.
    let script = "while [ ! -e /stop ]; do seq 1 20000; sleep 0.05; done; exit 9";
    engine.run("web", uri, script);
    let mut client = engine.attach("web");
    for kills in 0..kills {
        // So that each of them carries something.
        client.stdout.wait_len(client.stdout.so_far().len() + 1);
        eventually("there is a mux", || {
            engine.mux("web").is_some_and(|mux| kill(mux, Signal::SIGKILL).is_ok())
        });
        println!("{} kills, {} bytes", kills + 1, client.stdout.so_far().len());
    }
    eventually("the client is back", || {
        let mut asked = Proc::spawn(engine.iottymux(&["status", "--app", "web"]));
        asked.ends() == 0 && asked.stdout.text().contains("\nclient ")
    });
    fs::write(engine.path("tree/stop"), "").unwrap();
    assert_eq!(client.ends(), 9, "{}", client.stderr.so_far());
    // Then its log is complete.
    engine.delete("web");
    let rotated = |number: u32| PathBuf::from(format!("{}.{number}", log.display()));
    let files = (1..=100).rev().map(rotated).filter(|file| file.exists()).chain([log.to_owned()]);
    let kept: String = files.map(|file| fs::read_to_string(file).unwrap()).collect();
    let seen = client.stdout.text();
    let round = numbers(20_000);
    let is_complete = |text: &str| {
        text.len().is_multiple_of(round.len())
            && text.as_bytes().chunks(round.len()).all(|part| part == round.as_bytes())
    };
    assert!(is_complete(&seen), "of what a client saw");
    assert!(is_complete(&kept) && kept.len() == seen.len(), "of the log");
}

/// A mux is another user where that is there, and logs in its own directory.
#[test]
fn a_mux_is_the_user_of_the_muxes() {
    let Some(engine) = Engine::start_with_user(&[]) else { return };
    let script = "echo up; while [ ! -e /go ]; do sleep 0.05; done; seq 1 60000; exit 9";
    let rotation = "&log-max-size=64K&log-max-files=20";
    let own = Engine::plain_uri(&format!("&log=raw:/var/log/iottymux/own/log{rotation}"));
    engine.run("own", &own, script);
    let mut client = engine.attach("own");
    client.stdout.wait_for("up\n");
    let mux = engine.mux("own").unwrap();
    assert_user(mux);
    // Another tool rotates, too.
    let log = engine.path("logs/iottymux/own/log");
    let moved = engine.path("moved");
    fs::rename(&log, &moved).unwrap();
    engine.ask(&["control", "--app", "own", "reopen-logs"]);
    // The next one is the same.
    kill(mux, Signal::SIGKILL).unwrap();
    client.stderr.wait_for("attached again");
    assert_user(engine.mux("own").unwrap());
    fs::write(engine.path("tree/go"), "").unwrap();
    assert_eq!(client.ends(), 9, "{}", client.stderr.so_far());
    let want = format!("up\n{}", numbers(60_000));
    assert_eq!(client.stdout.text(), want);
    // Then its logs are complete.
    engine.delete("own");
    let rotated = |number: u32| PathBuf::from(format!("{}.{number}", log.display()));
    assert!(rotated(1).exists());
    let files = [moved].into_iter().chain((1..=20).rev().map(rotated)).chain([log.clone()]);
    let files = files.filter(|file| file.exists());
    let kept: String = files.map(|file| fs::read_to_string(file).unwrap()).collect();
    assert!(kept == want, "{} bytes of {}", kept.len(), want.len());
    assert_eq!(fs::metadata(log).unwrap().uid(), USER);
    // A log elsewhere is left out.
    let foreign = Engine::plain_uri("&log=raw:/var/log/a/foreign");
    engine.run("foreign", &foreign, "echo served; exec sleep 1000");
    let mut client = engine.attach("foreign");
    client.stdout.wait_for("served\n");
    let why = "app foreign: this option is left out: the mux of app foreign cannot write in \
               /var/log/a. Try a log below /var/log/iottymux/foreign";
    engine.wait_for_log(why);
    assert!(engine.ask(&["status", "foreign"]).contains(why));
    assert!(!engine.path("logs/a").exists());
    engine.do_ctr(&["tasks", "kill", "-s", "KILL", "foreign"]);
    assert_eq!(client.ends(), 137);
    engine.delete("foreign");
    // A name may be of the one kind first, and then of the other.
    for uri in [&foreign, &own] {
        engine.run("own", uri, "echo again; exit 3");
        let mut client = engine.attach("own");
        client.ends();
        eventually("it has ended", || engine.ask(&["status", "own"]).contains("status 3"));
        assert!(engine.ask(&["status", "own"]).contains("again"));
        engine.delete("own");
    }
    assert!(!engine.path("logs/iottymux/foreign").exists(), "a directory for no log");
    // Nor does a container that has ended keep its name from other apps.
    let mut run = Proc::spawn(engine.iottymux(&["run", "--name", "own", "echo", "a command"]));
    assert_eq!(run.ends(), 0, "{}", run.stderr.text());
    assert_eq!(run.stdout.text(), "a command\n");
}

/// The key that makes this program a logger, misspelt or forgotten.
#[test]
fn a_logger_serves_without_its_key() {
    let Some(engine) = Engine::start() else { return };
    for (id, key) in [("misspelt", "containerd-loger=&"), ("forgotten", "")] {
        let uri = engine.uri("").replace("containerd-logger=&", key);
        engine.run(id, &uri, "echo served; exit 4");
        let mut client = engine.attach(id);
        client.ends();
        assert!(engine.ask(&["status", "--app", id]).contains("served"), "{id}");
        engine.wait_for_log(&format!("container {id}: the address has no key containerd-logger"));
        engine.delete(id);
    }
}

/// What a user may get wrong: the container runs, and containerd's log says what is wrong.
#[test]
fn a_logger_serves_whatever_it_is_asked_for() {
    let Some(engine) = Engine::start() else { return };
    let long = "x".repeat(76);
    for (id, query, said) in [
        ("option", "&--no-such-option=1", "no-such-option"),
        ("flag", "&no-such-flag", "no-such-flag"),
        ("value", "&backlog=lots", "backlog"),
        ("log", "&log=raw:/proc/none/x", "raw:/proc/none/x"),
        ("spec", "&log=new:/x", "new:/x"),
        ("record", "&record=cast:/x.cast", "only a terminal"),
        ("missing", "&containerd-logger=/none", ""),
        ("A_b.c", "", ""),
        (&*long, "", ""),
    ] {
        engine.run(id, &engine.uri(query), "echo served; exit 4");
        let mut client = engine.attach(id);
        let code = client.ends();
        let text = client.stdout.text();
        let status = engine.ask(&["status", "--app", &format!("default/{id}")]);
        // A client that comes after the end learns the rest by `status`.
        let is_served = code == 4 && text == "served\n" || status.contains("served");
        assert!(is_served, "{id}: {code} {text:?} {status}\n{}", client.stderr.so_far());
        if !said.is_empty() {
            engine.wait_for_log(said);
        }
        engine.delete(id);
    }
}

#[test]
fn an_id_that_another_app_has_gets_a_number() {
    let Some(engine) = Engine::start() else { return };
    let mut other = Proc::spawn({
        let mut run = engine.iottymux(&["run", "--foreground", "--app", "web", "--", "cat"]);
        run.stdin(std::process::Stdio::null());
        run
    });
    eventually("the other app runs", || engine.mux("web").is_some());
    engine.run("web", &engine.uri(""), "echo served; exit 4");
    let mut client = engine.attach("web-2");
    let code = client.ends();
    assert!(code == 4 || client.stderr.text().contains("status 4"), "{code}");
    engine.wait_for_log("another app web");
    engine.delete("web");
    kill(other.pid(), Signal::SIGTERM).unwrap();
    other.ends();
}
