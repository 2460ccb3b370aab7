//! A pod in the shape of rkt's immutable ones, with the delivered muxes and apps in the direct layout: it
//! begins with its apps and ends with the last of them, or with the first that fails. The muxes begin and
//! end with their apps, lose nothing, and keep no pod from its end.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::process::{Command, Stdio};

use crate::cri::{cri, joined};
use crate::lossless::numbers;
use crate::pod::{AS_ROOT, BINARY, Plan, Pod, project_file, rounds};
use crate::proc::{Proc, eventually};

/// An app, and how its ends are made.
struct App {
    name: &'static str,
    mux: &'static str,
    ends: &'static str,
    /// What it waits for before it prints the rest and ends with `$how`.
    waits: &'static str,
}

const APPS: [App; 3] = [
    App {
        name: "demo",
        mux: "iomux",
        ends: "StandardInput=file:/run/iottymux/demo/stage2-stdin\n\
               StandardOutput=file:/run/iottymux/demo/stage2-stdout\n\
               StandardError=file:/run/iottymux/demo/stage2-stderr\n",
        waits: "read how",
    },
    App {
        name: "shell",
        mux: "ttymux",
        ends: "StandardInput=tty\nStandardOutput=tty\nStandardError=tty\n\
               TTYPath=/run/iottymux/shell/stage2-pts\nEnvironment=TERM=xterm-256color\n",
        waits: "stty -echo -onlcr; echo ready; read how",
    },
    // Only its output can be attached.
    App {
        name: "mixed",
        mux: "iomux",
        ends: "StandardInput=null\nStandardOutput=file:/run/iottymux/mixed/stage2-stdout\n\
               StandardError=null\n",
        waits: "how=$(cat /shared/gate)",
    },
];

/// Tells how an app has ended, where it can be read when the pod has ended.
const REAPER: &str = "#!/bin/sh\n\
    systemctl show --value --property=ExecMainStatus $1.service >/shared/status-$1.new\n\
    mv /shared/status-$1.new /shared/status-$1\n";

impl App {
    fn unit(&self) -> String {
        let Self { name, mux, ends, .. } = self;
        let hook = format!("-+iottymux --state-dir /run/iottymux control --app {name}");
        format!(
            "[Unit]\nDefaultDependencies=false\nOnFailure=halt.target\nWants=reaper-{name}.service\n\
             Wants={mux}@{name}.service\nAfter={mux}@{name}.service\n\
             AssertPathExists=/run/iottymux/{name}/endpoints\n\
             [Service]\nExecStart=/{name}.sh\n{ends}\
             ExecStartPost={hook} started\nExecStopPost={hook} ended\n"
        )
    }

    fn script(&self) -> String {
        let waits = self.waits;
        format!(
            "#!/bin/sh\necho up\n{waits}\nseq 20000\necho problems >&2\nprintf 'no end'\nexit $how\n"
        )
    }

    /// The options of its mux.
    fn options(&self) -> String {
        let streams = if self.name == "mixed" { " IOTTYMUX_STREAMS=stdout" } else { "" };
        format!("{AS_ROOT}Environment=IOTTYMUX_LOG=cri:/shared/{}.log{streams}\n", self.name)
    }

    /// All that it prints to stdout, or on its terminal.
    fn output(&self) -> String {
        let numbers = numbers(20_000);
        let (ready, problems) =
            if self.mux == "ttymux" { ("\r\nready\n", "problems\n") } else { ("\n", "") };
        format!("up{ready}{numbers}{problems}no end")
    }

    /// Attaches from outside, and has seen the first word.
    fn attach(&self, pod: &Pod) -> Proc {
        let mut command = Command::new(BINARY);
        command.arg("--state-dir").arg(pod.path("/run/iottymux"));
        command.args(["attach", "--app", self.name, "--reconnect", "0"]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let attach = Proc::spawn(command);
        attach.stdout.wait_for(if self.mux == "ttymux" { "ready" } else { "up" });
        attach
    }

    /// Its log has all that it printed, to the last byte, and ends its last line.
    fn assert_logged(&self, log: &[u8]) {
        let logged = joined(&cri(log), "stdout");
        assert_eq!(String::from_utf8(logged).unwrap(), self.output() + "\n", "{}", self.name);
    }
}

fn plan() -> Option<Plan> {
    let fixture =
        |name: &str| project_file(&format!("tests/pod/fixtures/rkt/immutable-stream/{name}"));
    let names = APPS.map(|app| format!("{}.service", app.name)).join(" ");
    let mut plan = Plan::new()?
        .with_delivered_units()
        .unit(
            "default.target",
            &format!("[Unit]\nDefaultDependencies=false\nWants={names}\nAfter={names}\n"),
        )
        .unit("halt.target", &fixture("halt.target"))
        .unit("shutdown.service", &fixture("shutdown.service"))
        .root_program("reaper.sh", REAPER)
        .shared_fifo("gate");
    for app in &APPS {
        let name = app.name;
        plan = plan
            .unit(&format!("{name}.service"), &app.unit())
            .unit(
                &format!("reaper-{name}.service"),
                &fixture("reaper-demo.service").replace("demo", name),
            )
            .unit(&format!("{}@{name}.service.d/options.conf", app.mux), &app.options())
            .root_program(&format!("{name}.sh"), &app.script());
    }
    Some(plan)
}

/// The pod, what lets `mixed` go on, and one who is attached to each app.
fn boot() -> Option<(Pod, File, [Proc; 3])> {
    let pod = plan()?.boot();
    let gate = OpenOptions::new().write(true).open(pod.shared("gate")).unwrap();
    let attached = APPS.each_ref().map(|app| app.attach(&pod));
    Some((pod, gate, attached))
}

/// Who is attached has seen all of the app, and its status.
fn assert_ended(app: &App, attach: &mut Proc, status: i32) {
    assert_eq!(attach.ends(), status, "{}: {}", app.name, attach.stderr.so_far());
    assert_eq!(attach.stdout.text(), app.output(), "{}", app.name);
    let problems = if app.name == "demo" { "problems\n" } else { "" };
    assert_eq!(attach.stderr.text(), problems, "{}", app.name);
}

#[test]
fn a_pod_ends_with_its_last_app() {
    for _ in 0..rounds(2, 20) {
        let Some((pod, mut gate, mut attached)) = boot() else { return };
        // It never reads, and keeps neither a mux nor the pod from its end.
        let _lazy = pod.connect("demo", "sock-stdout");
        for (app, attach) in APPS.iter().zip(&mut attached) {
            if app.name == "mixed" {
                // The muxes of the others have gone with them, and nothing else has.
                for other in &APPS {
                    let mux = format!("{}@{}.service", other.mux, other.name);
                    let state = if other.name == "mixed" { "active" } else { "inactive" };
                    eventually(&format!("{mux} is {state}"), || {
                        pod.property(&mux, "ActiveState") == state
                    });
                }
                gate.write_all(b"0").unwrap();
                drop(std::mem::replace(&mut gate, File::open("/dev/null").unwrap()));
            } else {
                attach.stdin().write_all(b"0\n").unwrap();
            }
            assert_ended(app, attach, 0);
        }
        pod.await_end();
        for app in &APPS {
            app.assert_logged(&fs::read(pod.shared(&format!("{}.log", app.name))).unwrap());
            assert_eq!(reaped(&pod, app), "0");
        }
    }
}

/// How the reaper says that an app has ended.
fn reaped(pod: &Pod, app: &App) -> String {
    let status = fs::read_to_string(pod.shared(&format!("status-{}", app.name)));
    status.unwrap().trim_end().to_owned()
}

/// The others are killed with the pod; what they had written before is not lost either.
#[test]
fn a_pod_ends_with_an_app_that_fails() {
    for failing in 0..APPS.len() {
        let Some((pod, mut gate, mut attached)) = boot() else { return };
        if APPS[failing].name == "mixed" {
            gate.write_all(b"3").unwrap();
        } else {
            attached[failing].stdin().write_all(b"3\n").unwrap();
        }
        drop(gate);
        assert_ended(&APPS[failing], &mut attached[failing], 3);
        pod.await_end();
        assert_eq!(reaped(&pod, &APPS[failing]), "3");
        for (at, (app, attach)) in APPS.iter().zip(&mut attached).enumerate() {
            let log = fs::read(pod.shared(&format!("{}.log", app.name))).unwrap();
            if at == failing {
                app.assert_logged(&log);
            } else {
                attach.ends();
                let said = attach.stdout.text();
                let logged = String::from_utf8(joined(&cri(&log), "stdout")).unwrap();
                // Of one that ended in the middle of a line the log ends it.
                let open = if said.ends_with('\n') { "" } else { "\n" };
                assert_eq!(logged.strip_suffix(open).unwrap_or(&logged), said, "{}", app.name);
                assert!(said.starts_with("up"), "{said:?}");
            }
        }
    }
}

/// A log that is taken slowly is waited for, even beyond the end of the last app.
#[test]
fn a_pod_waits_for_a_slow_log() {
    let Some(plan) = plan() else { return };
    let pod = plan.shared_fifo("demo.log").boot();
    let mut gate = OpenOptions::new().write(true).open(pod.shared("gate")).unwrap();
    let mut log = File::open(pod.shared("demo.log")).unwrap();
    let mut attached = APPS.each_ref().map(|app| app.attach(&pod));
    attached[1].stdin().write_all(b"0\n").unwrap();
    gate.write_all(b"0").unwrap();
    drop(gate);
    attached[0].stdin().write_all(b"0\n").unwrap();
    // Nothing of the log has been read when nothing but a mux is left.
    eventually("all apps have ended", || {
        APPS.iter().all(|app| pod.shared(&format!("status-{}", app.name)).exists())
    });
    let mut logged = Vec::new();
    log.read_to_end(&mut logged).unwrap();
    APPS[0].assert_logged(&logged);
    for (app, attach) in APPS.iter().zip(&mut attached) {
        assert_ended(app, attach, 0);
    }
    pod.await_end();
}
