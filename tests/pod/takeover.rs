//! A mux never lets go of an app that runs, whatever is wrong with its options, its program or its memory.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use crate::pod::{LOGS, Pod};
use crate::proc::eventually;

const MUX: &str = "iomux@demo.service";

/// An app that runs and repeats its input, and its process.
fn begin() -> Option<(Pod, String)> {
    let pod = Pod::delivered()?;
    pod.systemctl(&["start", "demo.service"]);
    let app = pod.property("demo.service", "MainPID");
    assert_serves(&pod, &app, "begin");
    Some((pod, app))
}

/// The app has not noticed anything, and its mux serves it.
fn assert_serves(pod: &Pod, app: &str, word: &str) {
    pod.await_mux("demo", "stdin");
    let mut stdout = pod.connect("demo", "sock-stdout");
    pod.connect("demo", "sock-stdin").say(&format!("{word}\n"));
    stdout.line_ending(word);
    assert_eq!(pod.property("demo.service", "MainPID"), app, "the app has noticed");
}

/// What the status shows of each option that was left out.
fn left_out(pod: &Pod) -> Vec<String> {
    let status = pod.run(&["iottymux", "status", "--app", "demo", "--json"]);
    let status: serde_json::Value = serde_json::from_str(&status).unwrap();
    let errors = status["errors"].as_array().unwrap().iter();
    let errors = errors.map(|error| error["error"].as_str().unwrap().to_owned());
    errors.filter(|error| error.contains("left out")).collect()
}

/// The values of the service's own file are in force, except those that cannot be read.
#[test]
fn a_bad_value_in_the_file_of_options() {
    let Some((pod, app)) = begin() else { return };
    let env = pod.path("/etc/iottymux/demo.env");
    fs::create_dir(env.parent().unwrap()).unwrap();
    let log = format!("raw:{LOGS}/log");
    let bad =
        "IOTTYMUX_BACKLOG=lots\nIOTTYMUX_VIEW_UID=me\nIOTTYMUX_STREAMS=stdout\nIOTTYMUX_NEW=1\n";
    let good = format!("IOTTYMUX_LOG=new:/x,{log},{log}\nIOTTYMUX_LOG_FLUSH=0.01\n");
    fs::write(&env, bad.to_owned() + &good).unwrap();
    pod.systemctl(&["restart", MUX]);
    assert_serves(&pod, &app, "still here");
    let logged = || fs::read_to_string(pod.path(&format!("{LOGS}/log"))).unwrap_or_default();
    eventually("it is logged", || logged() == "still here\n");
    let told = left_out(&pod);
    for what in
        ["'lots' for '--backlog", "'me' for '--view-uid", "'new:/x' for '--log", "same target"]
    {
        let line = told.iter().filter(|line| line.contains(what)).count();
        assert_eq!(line, 1, "{what}: {told:?}");
    }
    assert_eq!(told.len(), 4, "{told:?}");
    // The stream that was left out of the options belongs to the app all the same.
    pod.systemctl(&["restart", MUX]);
    assert_serves(&pod, &app, "again");
}

/// The template of another version of the program.
#[test]
fn an_unknown_option_in_the_unit() {
    let Some((pod, app)) = begin() else { return };
    let line = "iottymux --new 1 stream --app %i --newer=2 --backlog 512K --newest";
    pod.set_unit(&format!("{MUX}.d/x.conf"), &format!("[Service]\nExecStart=\nExecStart={line}\n"));
    pod.systemctl(&["restart", MUX]);
    assert_serves(&pod, &app, "still here");
    let told = left_out(&pod);
    let names = ["--new'", "--newer'", "--newest'"];
    assert!(names.iter().all(|name| told.iter().any(|line| line.contains(name))), "{told:?}");
}

/// Programs that do not serve, each for more starts than one: then the real one again.
#[test]
fn a_program_that_ends_at_once() {
    let Some((pod, app)) = begin() else { return };
    for stub in ["/bin/true", "/bin/sh -c 'exit 1'", "/bin/sh -c 'exit 2'", "/no/such/program"] {
        let drop_in = format!("{MUX}.d/stub.conf");
        pod.set_unit(&drop_in, &format!("[Service]\nExecStart=\nExecStart={stub}\n"));
        pod.try_run(&["systemctl", "restart", MUX]);
        let starts = || pod.property(MUX, "NRestarts").parse::<u32>().unwrap();
        eventually("it was started some times", || starts() >= 4);
        pod.set_unit(&drop_in, "");
        assert_serves(&pod, &app, "still here");
    }
    assert_eq!(pod.property("demo.service", "NRestarts"), "0");
}

/// The memory that systemd keeps, as PID 1 has it open.
fn memory(pod: &Pod) -> PathBuf {
    let fds = fs::read_dir(format!("/proc/{}/fd", pod.init)).unwrap();
    let is_it = |path: &PathBuf| {
        fs::read_link(path).is_ok_and(|to| to.to_string_lossy().contains("memfd:iottymux"))
    };
    fds.map(|fd| fd.unwrap().path()).find(is_it).unwrap()
}

/// The first word of the first piece of the memory, behind the table.
const PIECE: u64 = 4096 / 8;

/// Words of the table of the memory, and of its first piece, are flipped while the mux is stopped, and then it is
/// killed.
#[test]
fn damaged_memory() {
    let Some((pod, app)) = begin() else { return };
    for at in (0..12).chain(PIECE..PIECE + 24).step_by(3) {
        pod.systemctl(&["kill", "--kill-who=main", "--signal=STOP", MUX]);
        let memory = memory(&pod);
        let file = OpenOptions::new().read(true).write(true).open(memory).unwrap();
        let mut words = [0; 3 * 8];
        file.read_exact_at(&mut words, at * 8).unwrap();
        file.write_all_at(&words.map(|byte| !byte), at * 8).unwrap();
        pod.systemctl(&["kill", "--kill-who=main", "--signal=KILL", MUX]);
        assert_serves(&pod, &app, &format!("word{at}"));
    }
    assert_eq!(pod.property("demo.service", "NRestarts"), "0");
}
