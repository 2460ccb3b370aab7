//! The library: what the commands of scripts do, from a program in Rust.

use std::process::{Command, Stdio};
use std::time::Duration;

use iottymux::client::{AnswerEnd, App, AppStatus, ClientEvent, Condition, Event, Position};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::runtime::Builder;
use tokio::time::timeout;

use crate::proc::Proc;
use crate::rig::{APP, Rig};

const LONG: Duration = Duration::from_secs(300);

fn block_on<T>(work: impl Future<Output = anyhow::Result<T>>) -> T {
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async { timeout(LONG, work).await.expect("it is done in time") }).unwrap()
}

/// An app that answers with what it got, on this kind of streams.
fn answering(rig: &Rig, kind: &[&str]) -> (Proc, App) {
    let script = "while read line; do echo \"got $line\"; [ \"$line\" = end ] && exit 7; done";
    let words = [&["run", "-d", "--app", APP], kind, &["--", "sh", "-c", script]].concat();
    let mut run = rig.run(&words);
    assert_eq!(run.ends(), 0, "{}", run.stderr.text());
    (run, App::in_directory(&rig.state(), APP).unwrap())
}

#[test]
fn an_answer_without_an_end_takes_a_bounded_part_of_the_memory() {
    let rig = Rig::new();
    let words = ["run", "-d", "-i", "--app", APP, "--", "sh", "-c", "read x; exec yes"];
    let mut run = rig.run(&words);
    assert_eq!(run.ends(), 0, "{}", run.stderr.text());
    let app = App::in_directory(&rig.state(), APP).unwrap();
    block_on(async {
        let asked = app.ask("x", AnswerEnd::Until("never".to_owned()), LONG).await;
        let why = asked.unwrap_err().to_string();
        assert_eq!(why, format!("app {APP}: the answer takes more than 67108864 bytes"));
        anyhow::Ok(())
    });
    assert_eq!(rig.run(&["rm", "-f", APP]).ends(), 0);
}

#[test]
fn an_app_is_asked_waited_for_and_seen() {
    for (kind, has_terminal) in [(&["-t"][..], true), (&["-i"], false)] {
        let rig = Rig::new();
        let (_run, app) = answering(&rig, kind);
        block_on(async {
            assert_eq!(app.wait(Condition::Ready).await?.condition, "ready");
            let answer = app.ask("hello", AnswerEnd::Until("got .*".to_owned()), LONG).await?;
            assert_eq!((answer.text().as_str(), answer.is_incomplete), ("got hello\n", false));
            let answer = app.ask("you", AnswerEnd::Idle(Duration::from_millis(200)), LONG).await?;
            assert_eq!(answer.text(), "got you\n");
            // From where the line was taken on, so that nothing is missed.
            let begin = app.send("more").await?.outputs[0];
            let from = Condition::Output("got (m.*)".to_owned(), Position::Offset(begin.offset));
            let met = app.wait(from).await?;
            assert_eq!(
                (met.stream, &met.groups[..]),
                (Some(begin.stream), &[Some("more".to_owned())][..])
            );
            let screen = app.screen().await?;
            assert_eq!(screen.is_some(), has_terminal);
            assert!(
                screen.iter().flatten().any(|row| row == "got more") == has_terminal,
                "{screen:?}"
            );
            let silent =
                app.ask("x", AnswerEnd::Until("never".to_owned()), Duration::from_millis(200));
            let why = silent.await.unwrap_err().to_string();
            assert_eq!(why, format!("app {APP}: the answer did not end within 200ms"));
            app.send("end").await?;
            assert_eq!(app.wait(Condition::Ended).await?.status, Some(7));
            let why = app.send("late").await.unwrap_err().to_string();
            assert!(why.contains("ended"), "{why}");
            Ok(())
        });
    }
}

/// Each byte once, though the mux is killed.
#[test]
fn events_go_on_under_the_next_mux() {
    let rig = Rig::new();
    let (_run, app) = answering(&rig, &["-i"]);
    block_on(async {
        let mut events = app.events(Some(Position::Now)).await?;
        let mut output = Vec::new();
        for line in ["one", "two", "end"] {
            if line == "two" {
                let mux = rig.status()["mux_pid"].as_i64().unwrap();
                kill(Pid::from_raw(mux.try_into().unwrap()), Signal::SIGKILL)?;
                while events.next().await? != Some(Event::Restarted) {}
            }
            app.send(line).await?;
            let want = format!("got {line}\n");
            while !output.ends_with(want.as_bytes()) {
                if let Some(Event::Output { bytes, end, .. }) = events.next().await? {
                    output.extend(bytes);
                    assert_eq!(end, output.len() as u64);
                }
            }
        }
        assert_eq!(output, b"got one\ngot two\ngot end\n");
        let (mut ends, mut typed) = (Vec::new(), 0);
        while let Some(event) = events.next().await? {
            match event {
                Event::Ended(status) => ends.push(status.map(AppStatus::code)),
                Event::Client(ClientEvent::Typed { .. }) => typed += 1,
                _ => {}
            }
        }
        assert_eq!(ends.last(), Some(&Some(7)), "{ends:?} {typed}");
        assert!(events.next().await?.is_none());
        Ok(())
    });
}

#[test]
fn what_is_wrong_is_an_error() {
    let rig = Rig::new();
    assert!(App::in_directory(&rig.state(), "").is_err());
    let app = App::in_directory(&rig.state(), "none").unwrap();
    assert_eq!(app.name(), "none");
    let (_run, answering) = answering(&rig, &["-i"]);
    block_on(async {
        let why = app.screen().await.unwrap_err().to_string();
        assert!(why.starts_with("there is no app none in "), "{why}");
        let regex = AnswerEnd::Until("(".to_owned());
        assert!(answering.ask("x", regex, LONG).await.is_err());
        assert!(answering.wait(Condition::Screen("x".to_owned())).await.is_err());
        answering.press(&["e", "n", "d", "Enter"]).await?;
        Ok(())
    });
}

/// The programs in `examples/`.
#[test]
fn the_examples() {
    let rig = Rig::new();
    let (_run, app) = answering(&rig, &["-i"]);
    let example = |words: &[&str]| {
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(["run", "--locked", "--offline", "--quiet", "--example"]).args(words);
        cargo.current_dir(env!("CARGO_MANIFEST_DIR")).env("IOTTYMUX_STATE_DIR", rig.state());
        cargo.stdout(Stdio::piped());
        cargo
    };
    let asked = example(&["ask", APP, "hello"]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&asked.stdout), "got hello\n", "{asked:?}");
    let mut watch = Proc::spawn(example(&["watch", APP]));
    watch.stdout.wait_for("got hello\n");
    block_on(app.send("end"));
    watch.stdout.wait_for("got end\n");
    watch.stdout.wait_for("-- ended: Some(");
    assert_eq!(watch.ends(), 0);
}
