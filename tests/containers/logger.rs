//! The logger as a shim starts it, with a shim of the test: what a real one does seldom or never.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use nix::sys::signal::{Signal, kill};
use nix::sys::stat::Mode;
use nix::unistd::{Pid, Uid, mkfifo};
use serde_json::Value;
use tempfile::TempDir;

use crate::form;
use crate::proc::{Proc, Said, eventually};
use crate::skip::skip;

/// A bundle of a container "web", and the pipes of a shim.
struct Bundle {
    dir: TempDir,
}

/// A logger with the pipes that lead to it.
struct Logger {
    process: Proc,
    stdout: Option<File>,
    stderr: Option<File>,
    log: Said,
}

impl Bundle {
    fn new(config: &str) -> Self {
        let bundle = Self { dir: form::directory("logger") };
        fs::create_dir(bundle.path("web")).unwrap();
        fs::write(bundle.path("web/config.json"), config).unwrap();
        for fifo in ["3", "4", "5", "web/log"] {
            mkfifo(&bundle.path(fifo), Mode::S_IRWXU).unwrap();
        }
        bundle
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Opens a FIFO for both, which waits for nobody.
    fn open(&self, name: &str) -> File {
        File::options().read(true).write(true).open(self.path(name)).unwrap()
    }

    fn shim(&self) -> Shim {
        let address = self.path("shim");
        fs::write(self.path("web/address"), format!("unix://{}", address.display())).unwrap();
        Shim::listen(UnixListener::bind(address).unwrap())
    }

    /// A logger with these words.
    fn start(&self, words: &[&str]) -> Logger {
        self.start_as(Path::new(env!("CARGO_BIN_EXE_iottymux")), words)
    }

    /// The same, of this program.
    fn start_as(&self, program: &Path, words: &[&str]) -> Logger {
        let log = Said::follow(self.open("web/log"));
        let stdout = self.open("3");
        let stderr = self.open("4");
        let ready = self.open("5");
        // The shell gives it one end of each pipe.
        let script = "exec \"$@\" 3<\"$DIR/3\" 4<\"$DIR/4\" 5>\"$DIR/5\"";
        let mut command = Command::new("sh");
        command.args(["-c", script, "sh"]).arg(program).args(words);
        command.env("DIR", self.dir.path()).env("CONTAINER_ID", "web");
        command.env("CONTAINER_NAMESPACE", "default");
        command.env("IOTTYMUX_STATE_DIR", self.path("apps")).current_dir(self.path("web"));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let process = Proc::spawn(command);
        let ready = Said::follow(ready);
        ready.wait_for("\n");
        // Now it has them: the readers of the test go.
        let write = |name: &str| File::options().write(true).open(self.path(name)).unwrap();
        let (out, err) = (write("3"), write("4"));
        drop((stdout, stderr));
        Logger { process, stdout: Some(out), stderr: Some(err), log }
    }

    fn iottymux(&self, words: &[&str]) -> Proc {
        let mut command = Command::new(env!("CARGO_BIN_EXE_iottymux"));
        command.args(words).env("IOTTYMUX_STATE_DIR", self.path("apps"));
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        Proc::spawn(command)
    }

    /// The process of the mux, if there is one now.
    fn mux(&self) -> Option<Pid> {
        let mut asked = self.iottymux(&["status", "--json", "--app=web"]);
        let status = asked.stdout.text();
        let status: Value = serde_json::from_str(&status).ok().filter(|_| asked.ends() == 0)?;
        Some(Pid::from_raw(status["mux_pid"].as_i64()?.try_into().unwrap()))
    }

    /// Waits until the mux knows that the container runs, as process 7.
    fn await_start(&self) {
        eventually("the mux knows that it runs", || {
            let mut status = self.iottymux(&["status", "--json", "--app=web"]);
            status.stdout.text().contains("\"app_pid\":7,") && status.ends() == 0
        });
    }

    /// A client that comes back to the next mux.
    fn client(&self) -> Proc {
        self.iottymux(&["attach", "--app=web", "--from=start", "--reconnect=30"])
    }

    fn attach(&self, more: &[&str]) -> Proc {
        self.iottymux(&[&["attach", "--app=web", "--from=start", "--reconnect=0"], more].concat())
    }
}

impl Logger {
    fn say(&self, text: &str) {
        self.stdout.as_ref().unwrap().write_all(text.as_bytes()).unwrap();
    }

    /// The ends of the pipes, as at `task delete`.
    fn close(&mut self) {
        (self.stdout, self.stderr) = (None, None);
    }
}

/// A shim that answers as the test wants it.
struct Shim {
    requests: Receiver<Request>,
}

/// A request of the logger.
struct Request {
    method: String,
    number: u32,
    body: Vec<u8>,
    from: UnixStream,
}

impl Shim {
    fn listen(listener: UnixListener) -> Self {
        let (to, requests) = channel();
        thread::spawn(move || {
            for connection in listener.incoming() {
                let to = to.clone();
                thread::spawn(move || read_requests(connection.unwrap(), &to));
            }
        });
        Self { requests }
    }

    /// The next request for this method; others are passed over.
    fn asked(&self, method: &str) -> Request {
        self.requests.iter().find(|request| request.method == method).unwrap()
    }
}

fn read_requests(mut from: UnixStream, to: &Sender<Request>) {
    let mut header = [0; 10];
    while from.read_exact(&mut header).is_ok() {
        let number = |at: usize| u32::from_be_bytes(header[at..at + 4].try_into().unwrap());
        let mut message = vec![0; number(0) as usize];
        from.read_exact(&mut message).unwrap();
        assert_eq!(header[8], 1, "a request");
        // Fields 1 to 3 are short texts: a key, a length, the bytes.
        let mut fields = Vec::new();
        let mut rest = &message[..];
        while let [_, length, more @ ..] = rest {
            let (field, behind) = more.split_at(usize::from(*length));
            fields.push(field.to_vec());
            rest = behind;
        }
        let from = from.try_clone().unwrap();
        assert_eq!(fields[0], b"containerd.task.v2.Task");
        let method = String::from_utf8(fields[1].clone()).unwrap();
        let body = fields[2].clone();
        if to.send(Request { method, number: number(4), body, from }).is_err() {
            return;
        }
    }
}

impl Request {
    /// Answers with a message.
    fn answer(mut self, body: &[u8]) {
        let message = [&[0x12, u8::try_from(body.len()).unwrap()], body].concat();
        let length = u32::try_from(message.len()).unwrap().to_be_bytes();
        let frame = [&length[..], &self.number.to_be_bytes(), &[2, 0], &message].concat();
        self.from.write_all(&frame).unwrap();
    }

    /// Answers that there is no such task.
    fn refuse(mut self) {
        let length = 4u32.to_be_bytes();
        let message = [0x0a, 2, 0x08, 5];
        let frame = [&length[..], &self.number.to_be_bytes(), &[2, 0], &message].concat();
        self.from.write_all(&frame).unwrap();
    }
}

/// The answer to Wait with this status.
fn ended(status: u8) -> [u8; 2] {
    [0x08, status]
}

const PLAIN: &str = r#"{"process":{"terminal":false}}"#;
const TERMINAL: &str = r#"{"process":{"terminal":true}}"#;

#[test]
fn the_shim_is_asked_until_the_task_exists() {
    let bundle = Bundle::new(PLAIN);
    let shim = bundle.shim();
    let mut logger = bundle.start(&["containerd-logger", ""]);
    shim.asked("Wait").refuse();
    let wait = shim.asked("Wait");
    // The id, and no process in it.
    assert_eq!(wait.body, b"\x0a\x03web");
    logger.say("said\n");
    let mut client = bundle.attach(&[]);
    client.stdout.wait_for("said\n");
    wait.answer(&ended(6));
    // The pipes are open still, as a shim has them.
    assert_eq!(client.ends(), 6, "{}", client.stderr.so_far());
    assert_eq!(logger.process.ends(), 0);
}

/// Whatever is wrong with the shim: the output is served, and containerd's log says what it is.
#[test]
fn a_logger_without_a_shim_serves() {
    let grpc = r#"{"version":3,"address":"unix:///x","protocol":"grpc"}"#;
    for (file, text, said) in [
        ("none", "", "neither bootstrap.json nor address"),
        ("bootstrap.json", grpc, "speaks grpc"),
        ("bootstrap.json", "{", "bootstrap.json"),
        ("address", "unix:///none/none", "/none/none"),
        ("address", "tcp://x", "expected unix://"),
    ] {
        let bundle = Bundle::new(PLAIN);
        fs::write(bundle.path("web").join(file), text).unwrap();
        let mut logger = bundle.start(&["containerd-logger", ""]);
        logger.say("served\n");
        let mut client = bundle.attach(&[]);
        client.stdout.wait_for("served\n");
        logger.log.wait_for(said);
        logger.log.wait_for("iottymux: warn: ");
        // Then the end of the pipes is the container's.
        logger.close();
        assert_eq!(logger.process.ends(), 0, "{text}");
        client.ends();
        let mut status = bundle.iottymux(&["status", "--app", "default/web"]);
        assert_eq!(status.ends(), 0);
        assert!(status.stdout.text().contains("served"), "{text}");
    }
}

/// Bytes that are not ttrpc end the connection, and the next one counts.
#[test]
fn garbage_of_a_shim_is_refused() {
    for garbage in [
        &b"HTTP/1.1 400 Bad Request\r\n"[..],
        &[0, 0x40, 0, 1, 0, 0, 0, 1, 2, 0],
        &[0, 0, 0, 2, 0, 0, 0, 3, 2, 0, 0x0a, 99],
    ] {
        let bundle = Bundle::new(PLAIN);
        let shim = bundle.shim();
        let mut logger = bundle.start(&["containerd-logger", ""]);
        shim.asked("Wait").from.write_all(garbage).unwrap();
        logger.log.wait_for("its message is malformed");
        logger.say("served\n");
        let mut client = bundle.attach(&[]);
        client.stdout.wait_for("served\n");
        shim.asked("Wait").answer(&ended(6));
        assert_eq!(client.ends(), 6, "{}", garbage.escape_ascii());
        assert_eq!(logger.process.ends(), 0);
    }
}

#[test]
fn a_terminal_is_redrawn() {
    let bundle = Bundle::new(TERMINAL);
    let shim = bundle.shim();
    let mut logger = bundle.start(&["containerd-logger", ""]);
    let wait = shim.asked("Wait");
    logger.say("\x1b[2J\x1b[1;1Hon the screen");
    let mut client = bundle.attach(&["--mode=tty-out"]);
    client.stdout.wait_for("on the screen");
    // Its output comes by way of the shim, which has some left when the process has ended.
    wait.answer(&ended(6));
    logger.say(" and the rest");
    logger.close();
    assert_eq!(client.ends(), 6);
    assert!(client.stdout.text().ends_with(" and the rest"));
    assert_eq!(logger.process.ends(), 0);
}

/// SIGTERM comes at `task delete`: the shim has said before how the container ended.
#[test]
fn it_is_gone_soon_after_a_signal() {
    let bundle = Bundle::new(PLAIN);
    let shim = bundle.shim();
    let mut logger = bundle.start(&["containerd-logger", ""]);
    let wait = shim.asked("Wait");
    logger.say("last\n");
    let mut client = bundle.attach(&[]);
    client.stdout.wait_for("last\n");
    kill(logger.process.pid(), Signal::SIGTERM).unwrap();
    wait.answer(&ended(6));
    assert_eq!(logger.process.ends(), 0);
    assert_eq!(client.ends(), 6);
    // Without an answer it ends as well.
    let bundle = Bundle::new(PLAIN);
    let shim = bundle.shim();
    let mut logger = bundle.start(&["containerd-logger", ""]);
    let _wait = shim.asked("Wait");
    kill(logger.process.pid(), Signal::SIGTERM).unwrap();
    assert_eq!(logger.process.ends(), 0);
    eventually("the mux has ended", || bundle.iottymux(&["status", "--app=web"]).ends() == 0);
}

/// Its mux goes on, and ends with the pipes.
#[test]
fn a_killed_logger_costs_the_container_nothing() {
    let bundle = Bundle::new(PLAIN);
    let shim = bundle.shim();
    let mut logger = bundle.start(&["containerd-logger", ""]);
    shim.asked("State").answer(&[0x18, 7]);
    logger.say("first\n");
    let mut client = bundle.attach(&[]);
    client.stdout.wait_for("first\n");
    bundle.await_start();
    kill(logger.process.pid(), Signal::SIGKILL).unwrap();
    logger.process.ends();
    logger.say("second\n");
    client.stdout.wait_for("second\n");
    logger.close();
    client.ends();
    assert_eq!(client.stdout.text(), "first\nsecond\n");
}

/// The next mux is the program that has the name then. A client misses nothing.
#[test]
fn a_restart_upgrades_the_mux_under_the_logger() {
    let bundle = Bundle::new(PLAIN);
    let shim = bundle.shim();
    let (program, newer) = (bundle.path("iottymux"), bundle.path("newer"));
    fs::copy(env!("CARGO_BIN_EXE_iottymux"), &program).unwrap();
    fs::copy(&program, &newer).unwrap();
    let mut logger = bundle.start_as(&program, &["containerd-logger", ""]);
    shim.asked("State").answer(&[0x18, 7]);
    let wait = shim.asked("Wait");
    bundle.await_start();
    logger.say("before\n");
    let mut client = bundle.client();
    client.stdout.wait_for("before\n");
    let is_now = |mux: Pid| {
        let ino = |path: &Path| fs::metadata(path).unwrap().ino();
        ino(Path::new(&format!("/proc/{mux}/exe"))) == ino(&program)
    };
    let mux = bundle.mux().unwrap();
    assert!(is_now(mux));
    fs::rename(newer, &program).unwrap();
    assert!(!is_now(mux));
    let mut restart = bundle.iottymux(&["control", "web", "restart"]);
    assert_eq!(restart.ends(), 0, "{}", restart.stderr.text());
    logger.say("meanwhile\n");
    eventually("there is another mux", || bundle.mux().is_some_and(|other| other != mux));
    assert!(is_now(bundle.mux().unwrap()));
    logger.say("after\n");
    client.stdout.wait_for("after\n");
    wait.answer(&ended(6));
    assert_eq!(client.ends(), 6, "{}", client.stderr.so_far());
    assert_eq!(client.stdout.text(), "before\nmeanwhile\nafter\n");
    assert_eq!(logger.process.ends(), 0);
}

#[test]
fn without_logger_and_mux_the_container_gets_sigpipe() {
    let bundle = Bundle::new(PLAIN);
    let _shim = bundle.shim();
    let mut logger = bundle.start(&["containerd-logger", ""]);
    logger.say("before\n");
    let client = bundle.attach(&[]);
    client.stdout.wait_for("before\n");
    let mux = bundle.mux().unwrap();
    // The logger first: it would start another mux.
    kill(logger.process.pid(), Signal::SIGKILL).unwrap();
    logger.process.ends();
    kill(mux, Signal::SIGKILL).unwrap();
    let mut container = Command::new("sh");
    container.args(["-c", "while :; do echo further; done"]);
    container.stdout(logger.stdout.take().unwrap()).stderr(Stdio::piped());
    assert_eq!(Proc::spawn(container).ends(), -(Signal::SIGPIPE as i32));
}

/// A mux delivers to the client that has stopped for longer than that.
#[test]
fn the_logger_leaves_its_mux_alone_with_slow_clients() {
    let bundle = Bundle::new(PLAIN);
    let shim = bundle.shim();
    let mut logger = bundle.start(&["max-client-delay", "60", "containerd-logger", ""]);
    let wait = shim.asked("Wait");
    logger.say("begins\n");
    let mut client = bundle.attach(&[]);
    client.stdout.wait_for("begins\n");
    kill(client.pid(), Signal::SIGSTOP).unwrap();
    // More than its socket holds, and no more than the mux keeps.
    let much: Vec<String> = (1..=70_000).map(|number| format!("{number}\n")).collect();
    let much = much.concat();
    logger.say(&much);
    kill(logger.process.pid(), Signal::SIGTERM).unwrap();
    wait.answer(&ended(6));
    assert_eq!(logger.process.ends(), 0);
    kill(client.pid(), Signal::SIGCONT).unwrap();
    assert_eq!(client.ends(), 6, "{}", client.stderr.so_far());
    assert!(client.stdout.text() == format!("begins\n{much}"), "{}", client.stderr.so_far());
}

#[test]
fn the_file_of_variables_counts_and_may_be_missing() {
    let bundle = Bundle::new(PLAIN);
    let (env, log) = (bundle.path("env"), bundle.path("out"));
    fs::write(&env, format!("IOTTYMUX_LOG=raw:{}\nOTHER=1\n", log.display())).unwrap();
    let mut logger = bundle.start(&["--backlog", "8K", "containerd-logger", env.to_str().unwrap()]);
    logger.say("kept\n");
    logger.close();
    assert_eq!(logger.process.ends(), 0);
    assert_eq!(fs::read_to_string(&log).unwrap(), "kept\n");
    let bundle = Bundle::new(PLAIN);
    let mut logger = bundle.start(&["containerd-logger", "/none"]);
    logger.log.wait_for("cannot read /none");
    logger.close();
    assert_eq!(logger.process.ends(), 0);
}

#[test]
fn an_option_in_the_address_goes_before_its_variable() {
    let bundle = Bundle::new(PLAIN);
    let [env, file, word] = ["env", "of-file", "of-word"].map(|name| bundle.path(name));
    fs::write(&env, format!("IOTTYMUX_LOG=raw:{}\n", file.display())).unwrap();
    let option = format!("raw:{}", word.display());
    let words = ["--log", &option, "containerd-logger", env.to_str().unwrap()];
    let mut logger = bundle.start(&words);
    logger.say("said\n");
    logger.close();
    assert_eq!(logger.process.ends(), 0);
    assert_eq!(fs::read_to_string(&word).unwrap(), "said\n");
    assert!(!file.exists());
}

/// The word that makes a logger may be one of an app.
#[test]
fn words_of_a_user_make_no_logger() {
    let bundle = Bundle::new(PLAIN);
    let words = ["run", "--name=words", "--", "echo", "containerd-logger"];
    let mut run = bundle.iottymux(&words);
    assert_eq!(run.stdout.text(), "containerd-logger\n");
    assert_eq!(run.ends(), 0);
}

/// What the logger sets itself, and a place that cannot be: it serves all the same.
#[test]
fn its_own_options_are_left_out() {
    let bundle = Bundle::new(PLAIN);
    let words = ["--streams", "stdin", "app", "other", "help", "", "containerd-logger", ""];
    let mut logger = bundle.start(&words);
    for said in ["sets it: streams", "sets it: app", "neither help"] {
        logger.log.wait_for(said);
    }
    let mut list = bundle.iottymux(&["list"]);
    assert_eq!(list.ends(), 0);
    let list = list.stdout.text();
    assert!(list.contains("\nweb ") && list.contains(" stdout,stderr "), "{list}");
    logger.close();
    assert_eq!(logger.process.ends(), 0);
}

#[test]
fn a_state_directory_that_cannot_be_is_the_usual_one() {
    if !Uid::effective().is_root() {
        return skip("root", "the usual state directory is root's");
    }
    let bundle = Bundle::new(PLAIN);
    // Where a test may use the usual one.
    unshare(CloneFlags::CLONE_NEWNS).unwrap();
    let none = None::<&str>;
    mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none).unwrap();
    mount(Some("tmpfs"), "/run", Some("tmpfs"), MsFlags::empty(), none).unwrap();
    let mut logger = bundle.start(&["state-dir", "/proc/none", "containerd-logger", ""]);
    logger.log.wait_for("the state directory is /run/iottymux: cannot make directory /proc/none");
    logger.say("served\n");
    let mut client = bundle.iottymux(&["--state-dir=/run/iottymux", "attach", "web"]);
    client.stdout.wait_for("served\n");
    logger.close();
    assert_eq!(logger.process.ends(), 0);
    client.ends();
}

#[test]
fn typing_needs_the_runtime() {
    let bundle = Bundle::new(PLAIN);
    let _shim = bundle.shim();
    let logger = bundle.start(&["containerd-logger", ""]);
    let mut typist = bundle.attach(&["--mode=stdin"]);
    // It does not wait for what it cannot pass on.
    let _input = typist.stdin();
    assert_ne!(typist.ends(), 0);
    let said = typist.stderr.text();
    assert!(said.contains("iottymux-runc"), "{said}");
    drop(logger);
    // A client of a terminal sees it, and learns that it cannot type.
    let bundle = Bundle::new(TERMINAL);
    let _shim = bundle.shim();
    let logger = bundle.start(&["containerd-logger", ""]);
    logger.say("on the screen");
    let viewer = bundle.attach(&[]);
    viewer.stdout.wait_for("on the screen");
    viewer.stderr.wait_for("iottymux-runc");
    let mut typist = bundle.attach(&["--mode=tty-in"]);
    assert_ne!(typist.ends(), 0);
    assert!(typist.stderr.text().contains("iottymux-runc"), "{}", typist.stderr.text());
}

#[test]
fn only_the_last_containers_that_have_ended_are_kept() {
    let bundle = Bundle::new(PLAIN);
    let _shim = bundle.shim();
    for number in 0..200 {
        let app = bundle.path(&format!("apps/ended{number}"));
        fs::create_dir_all(&app).unwrap();
        let id = format!(r#"{{"version":1,"namespace":"default","id":"ended{number}"}}"#);
        fs::write(app.join("container.json"), id).unwrap();
        let last =
            format!(r#"{{"version":1,"app":"x","ended_ms":{number},"status":null,"streams":[]}}"#);
        fs::write(app.join("last.json"), last).unwrap();
    }
    // Not a container.
    fs::create_dir_all(bundle.path("apps/other")).unwrap();
    let _logger = bundle.start(&["containerd-logger", ""]);
    let names = |dir: &str| fs::read_dir(bundle.path(dir)).unwrap().count();
    assert_eq!(names("apps"), 128 + 2);
    assert!(bundle.path("apps/other").exists() && bundle.path("apps/ended199").exists());
    assert!(!bundle.path("apps/ended71").exists() && bundle.path("apps/ended72").exists());
}

#[test]
fn without_a_shim_it_says_what_it_is_for() {
    for (id, words) in [
        (None, &["containerd-logger"][..]),
        (Some("web"), &["containerd-logger", ""]),
        (Some("web"), &["log", "raw:/x", "containerd-logger", ""]),
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_iottymux"));
        command.args(words).env_remove("CONTAINER_ID");
        command.envs(id.map(|id| ("CONTAINER_ID", id))).env("CONTAINER_NAMESPACE", "default");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut logger = Proc::spawn(command);
        assert_eq!(logger.ends(), 2);
        let said = logger.stderr.text();
        assert!(said.contains("descriptors 3 to 5") && said.lines().count() == 1, "{said}");
    }
}
