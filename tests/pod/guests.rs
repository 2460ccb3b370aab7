//! docs/guests.md, done as it is written: guests come through a real sshd, and try what they must not.

use std::env;
use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{self, Output};
use std::thread;

use serde_json::{Value, json};

use crate::book::{Block, blocks, follow_blocks};
use crate::documented::SERVER;
use crate::installed::is_installed;
use crate::pod::{Plan, Pod, project_file};
use crate::proc::{Proc, eventually};
use crate::pty::Pty;
use crate::skip::skip;

const PAGE: &str = "guests";
const SSHD: &str = "/usr/sbin/sshd";
const PORT: u16 = 2222;
/// The keys that leave.
const DETACH: &[u8] = b"\x10\x11";
/// What ssh ends with if a signal has ended the command.
const BY_SIGNAL: i32 = 255;

/// The services, as the page assumes them. Pods share the network of the machine: each has another
/// address.
fn games() -> Option<Pod> {
    for (program, is_there) in [("ssh", is_installed("ssh")), ("sshd", Path::new(SSHD).exists())] {
        if !is_there {
            skip(program, "it is not installed");
            return None;
        }
    }
    let plan = Plan::new()?;
    let [_, _, high, low] = process::id().to_be_bytes();
    let address = SocketAddr::from(([127, 90, high, low], PORT));
    let sshd = format!(
        "Include /etc/ssh/sshd_config.d/*.conf\nListenAddress {address}\nUsePAM no\n\
         HostKey /etc/ssh/host_key\nSubsystem sftp internal-sftp\nAcceptEnv LANG LC_*\n"
    );
    let ssh = format!(
        "Host games\n HostName {}\n Port {PORT}\n IdentityFile ~/.ssh/%r\n IdentitiesOnly yes\n \
         StrictHostKeyChecking no\n UserKnownHostsFile /dev/null\n LogLevel ERROR\n",
        address.ip()
    );
    let pod = plan
        .unit("game.service", "[Service]\nExecStart=/srv/game\n")
        .root_program("srv/game", SERVER)
        .root_file("etc/ssh/sshd_config", &sshd)
        .root_file("etc/ssh/sshd_config.d/README", "")
        .root_file("root/.ssh/config", &ssh)
        .boot();
    for key in ["/etc/ssh/host_key", "/root/.ssh/ann", "/root/.ssh/bob"] {
        pod.run(&["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key]);
    }
    pod.systemctl(&["start", "game", "ssh"]);
    eventually("sshd listens", || TcpStream::connect(address).is_ok());
    Some(pod)
}

/// Puts a guest's own key in the place of the one that the page shows, after these words. Without words, those of
/// the page stay.
fn admit(pod: &Pod, guest: &str, words: Option<&str>) {
    let file = pod.path(&format!("/home/{guest}/.ssh/authorized_keys"));
    let key = pod.run(&["cat", &format!("/root/.ssh/{guest}.pub")]);
    let text = fs::read_to_string(&file).unwrap();
    let (own, _) = text.split_once("ssh-ed25519 ").unwrap();
    fs::write(file, format!("{}{key}", words.unwrap_or(own))).unwrap();
}

/// The commands of guests after these words of the page.
fn commands(after: &str) -> Vec<String> {
    let block = blocks(PAGE).into_iter().find(|(before, ..)| before.ends_with(after));
    let (.., text) = block.unwrap_or_else(|| panic!("the page does not say {after:?}"));
    let lines = text.lines().filter(|line| *line != "^C");
    lines.map(|line| line.strip_prefix("$ ").unwrap().to_owned()).collect()
}

/// A guest's command at a terminal, which shows the console.
fn come(pod: &Pod, command: &str) -> (Pty, Proc) {
    let terminal = Pty::open(24, 80);
    let script = format!("echo $$ >/shared/client; exec {command}");
    let words = ["env", "TERM=xterm-256color", "sh", "-c", &script];
    let guest = terminal.spawn(pod.command(&words));
    terminal.shown.wait_for("game server up");
    (terminal, guest)
}

fn leave((terminal, mut guest): (Pty, Proc)) {
    terminal.press(DETACH);
    terminal.shown.wait_for("detached from app game");
    assert_eq!(guest.ends(), 0);
}

/// A guest's command without a terminal.
fn try_command(pod: &Pod, command: &str) -> Output {
    pod.try_run(&["timeout", "20", "sh", "-c", command])
}

/// What a guest has no right to fails at once, and shows nothing.
fn is_kept_out(pod: &Pod, guest: &str) {
    let before = pod.run(&["iottymux", "logs", "game"]);
    let fails = |command: &str| {
        let output = try_command(pod, command);
        let code = output.status.code();
        assert!(matches!(code, Some(1 | 255)), "{command}: {output:?}");
        let said = [output.stdout, output.stderr].concat();
        let said = String::from_utf8_lossy(&said);
        assert!(!said.contains("uid=") && !said.contains("game server"), "{command}: {said}");
    };
    thread::scope(|scope| {
        for command in commands("These fail:") {
            scope.spawn(move || fails(&command.replace("ann@", &format!("{guest}@"))));
        }
    });
    assert_eq!(pod.run(&["iottymux", "logs", "game"]), before, "they have typed");
}

/// A guest who may only watch sees the console by each command of the page, and does nothing else.
fn watches(pod: &Pod) {
    for command in commands("show the console:") {
        let (terminal, guest) = come(pod, &command);
        terminal.shown.wait_for("read-only");
        terminal.press(b"say by ann\rstop\r\x04\x1a\x10?!id\r~?");
        leave((terminal, guest));
    }
    // Neither an agent nor variables come along.
    let (terminal, mut guest) = come(pod, "ssh-agent ssh -A -o SetEnv=IOTTYMUX_APP=x ann@games");
    terminal.shown.wait_for("read-only");
    let variables = "tr '\\0' '\\n' </proc/$(pgrep -u ann -x iottymux)/environ";
    let variables = pod.run(&["sh", "-c", variables]);
    assert!(variables.contains("SSH_CONNECTION="), "{variables}");
    assert!(!variables.contains("SSH_AUTH_SOCK") && !variables.contains("IOTTYMUX"), "{variables}");
    terminal.press(b"\x03");
    assert_eq!(guest.ends(), BY_SIGNAL);
    is_kept_out(pod, "ann");
    assert!(!pod.run(&["iottymux", "logs", "game"]).contains("ann"));
    // Nor is there more for that account with another program.
    let by_ann = ["setpriv", "--reuid=ann", "--regid=users", "--init-groups", "iottymux"];
    let refused = pod.try_run(&[&by_ann[..], &["send", "game", "stop"]].concat());
    let said = String::from_utf8(refused.stderr).unwrap();
    assert!(!refused.status.success() && said.contains("may only look"), "{said}");
}

/// The blocks of the page before the one after these words, and the others.
fn split(blocks: &[Block], at: &str) -> (Vec<Block>, Vec<Block>) {
    let at = blocks.iter().position(|(before, ..)| before.contains(at)).unwrap();
    (blocks[..at].to_vec(), blocks[at..].to_vec())
}

#[test]
fn they_watch_or_type_and_have_no_shell() {
    let Some(pod) = games() else { return };
    let (over_ssh, _) = split(&blocks(PAGE), "\n## In a browser");
    let (keys, group) = split(&over_ssh, "\n## A group");
    follow_blocks(&pod, &keys);
    admit(&pod, "ann", None);
    admit(&pod, "bob", None);
    let process = pod.property("game.service", "MainPID");
    watches(&pod);

    is_kept_out(&pod, "bob");
    let (terminal, guest) = come(&pod, "ssh bob@games");
    terminal.press(b"say by bob\r");
    terminal.shown.wait_for("[all] by bob");
    // A habit does not end the service.
    terminal.press(b"\x03");
    terminal.shown.wait_for("^C again");
    leave((terminal, guest));

    // A guest who dies, and one who is turned away.
    let (terminal, mut guest) = come(&pod, "ssh bob@games");
    let client = fs::read_to_string(pod.shared("client")).unwrap();
    pod.run(&["kill", "-KILL", client.trim()]);
    guest.ends();
    eventually("the dead guest has left", || pod.clients("game").is_empty());
    drop(terminal);
    let (terminal, mut guest) = come(&pod, "ssh ann@games");
    let [number] = &pod.clients("game")[..] else { panic!("{:?}", pod.clients("game")) };
    pod.run(&["iottymux", "control", "game", "detach", number]);
    terminal.shown.wait_for("detached from app game by request");
    guest.ends();

    // A key without any words has a shell, until sshd has the file for the group.
    admit(&pod, "ann", Some(""));
    let id = || String::from_utf8(try_command(&pod, "ssh ann@games id").stdout).unwrap();
    assert!(id().contains("(watchers)"), "{}", id());
    follow_blocks(&pod, &group);
    eventually("sshd has read the file", || !id().contains("uid="));
    watches(&pod);

    assert_eq!(pod.property("game.service", "MainPID"), process);
    let answer = pod.run(&["iottymux", "ask", "game", "say still here"]);
    assert!(answer.contains("[all] still here"), "{answer}");
}

/// A headless Chromium, driven by its WebDriver.
struct Browser<'a> {
    pod: &'a Pod,
    session: String,
    _driver: Proc,
}

impl<'a> Browser<'a> {
    fn start(pod: &'a Pod) -> Self {
        let driver = pod.talk(&["env", "HOME=/tmp", "chromedriver", "--port=9515"]);
        driver.stdout.wait_for("started successfully");
        let mut browser =
            Self { pod, session: "http://localhost:9515/session".to_owned(), _driver: driver };
        let arguments =
            ["--headless=new", "--no-sandbox", "--disable-gpu", "--window-size=900,500"];
        let options = json!({"args": arguments});
        let wanted = json!({"acceptInsecureCerts": true, "goog:chromeOptions": options});
        let made = browser.post("", &json!({"capabilities": {"alwaysMatch": wanted}}));
        let id = made["sessionId"].as_str().unwrap_or_else(|| panic!("{made}"));
        browser.session = format!("{}/{id}", browser.session);
        browser
    }

    fn ask(&self, more: &[&str], path: &str) -> Value {
        let at = format!("{}{path}", self.session);
        let said = self.pod.run(&[&["curl", "-s", &at], more].concat());
        let answer: Value = serde_json::from_str(&said).unwrap();
        answer["value"].clone()
    }

    fn post(&self, path: &str, body: &Value) -> Value {
        self.ask(&["-d", &body.to_string()], path)
    }

    /// Opens a page, and waits until it has this text. Rows are text of the page with this renderer.
    fn shows(&self, page: &str, text: &str) {
        self.post("/url", &json!({"url": format!("{page}?rendererType=dom")}));
        let source = || self.ask(&[], "/source");
        eventually(text, || source().as_str().is_some_and(|source| source.contains(text)));
    }

    fn types(&self, text: &str) {
        let input = json!({"using": "css selector", "value": ".xterm-helper-textarea"});
        let found = self.post("/element", &input);
        let element = found.as_object().unwrap().values().next().unwrap().as_str().unwrap();
        assert_eq!(
            self.post(&format!("/element/{element}/value"), &json!({"text": text})),
            Value::Null
        );
    }

    /// A picture of the page.
    fn keep(&self, file: PathBuf) {
        let save = format!(
            "curl -s {}/screenshot | jq -r .value | base64 -d >/shared/picture.png",
            self.session
        );
        self.pod.run(&["sh", "-c", &save]);
        fs::copy(self.pod.shared("picture.png"), file).unwrap();
    }
}

/// In a Debian that has it all, and a network of its own: `tests/guests/browser` makes both.
#[test]
fn they_watch_in_a_browser() {
    let Some(dir) = env::var_os("IOTTYMUX_BROWSER").map(PathBuf::from) else {
        return skip("browser", "tests/guests/browser runs it");
    };
    let (first, _) = split(&blocks(PAGE), "\n## A key");
    let (_, browser) = split(&blocks(PAGE), "\n## In a browser");
    let pod = Plan::new()
        .unwrap()
        .unit("game.service", "[Service]\nExecStart=/srv/game\n")
        .root_program("srv/game", SERVER)
        .root_file("etc/nginx/conf.d/game.conf", &project_file("docs/examples/nginx.conf"))
        .boot_in(&dir.join("root"));
    let key = "openssl req -x509 -newkey rsa:2048 -nodes -subj /CN=games.example.org \
               -keyout /etc/ssl/game.key -out /etc/ssl/game.crt; echo 127.0.0.1 localhost games.example.org >>/etc/hosts";
    pod.run(&["sh", "-c", key]);
    pod.systemctl(&["start", "game"]);
    follow_blocks(&pod, &first);
    follow_blocks(&pod, &browser);

    let address = "games.example.org/game/";
    let code = ["curl", "-sko", "/dev/null", "-w", "%{http_code}"];
    assert_eq!(pod.run(&[&code[..], &[&format!("https://{address}")]].concat()), "401");
    let password = pod.run(&["cat", "/root/ann.password"]);
    let browser = Browser::start(&pod);
    browser.shows(&format!("https://ann:{}@{address}", password.trim()), "game server up");
    pod.run(&["iottymux", "send", "game", "say hello"]);
    let source = || browser.ask(&[], "/source").as_str().unwrap().to_owned();
    eventually("it shows what is new", || source().contains("[all] hello"));
    browser.types("say by the browser\nstop\n");
    browser.keep(dir.join("browser.png"));

    let local = commands("`http://localhost:7681`:");
    let mut ttyd = pod.talk(&["sh", "-c", &format!("exec {} 2>&1", local[0])]);
    ttyd.stdout.wait_for("Listening on port: 7681");
    browser.shows("http://localhost:7681/", "[all] hello");
    browser.keep(dir.join("local.png"));
    assert!(!pod.run(&["iottymux", "logs", "game"]).contains("browser"));
    assert_eq!(pod.property("game.service", "ActiveState"), "active");
    ttyd.child.kill().unwrap();
}
