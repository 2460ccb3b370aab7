//! docs/consoles.md, done as it is written: at each console are two people, whose mux goes twice. Most of the programs
//! are in a Debian of their own, which `tests/guests/consoles` makes.

use std::env;
use std::fs;
use std::path::PathBuf;

use crate::book::{follow_blocks, section};
use crate::installed::is_installed;
use crate::pod::{Plan, Pod, is_back};
use crate::proc::{Proc, eventually};
use crate::pty::Pty;
use crate::skip::skip;

const PAGE: &str = "consoles";
/// The keys that leave.
const DETACH: &[u8] = b"\x10\x11";
/// How a client ends by ^C.
const BY_INTERRUPT: i32 = -2;
/// What is typed and what is answered differ, so an echo is no answer.
const BASE: u32 = 500_000;

/// The root of a busybox: a system of its own, which has a shell at its console.
const BUSYBOX: &str =
    "mkdir -p $0/bin $0/dev $0/etc $0/proc $0/sbin $0/sys $0/usr; cp /bin/busybox $0/bin
for name in echo mount poweroff setsid sh stty; do ln -s busybox $0/bin/$name; done";
/// A guest of Debian's kernel. Those files cannot be made by another user than root.
const VM: &str = "cat >$0/init <<'.'
#!/bin/sh
mount -t devtmpfs dev /dev; mount -t proc proc /proc
exec setsid -c sh </dev/ttyS0 >/dev/ttyS0 2>&1
.
chmod +x $0/init; cd $0; find . | cpio -o -H newc --quiet >/srv/vm/initrd
cp /boot/vmlinuz-* /srv/vm/vmlinuz; chmod 644 /srv/vm/*";
/// A container that boots: its init is busybox, too.
const MACHINE: &str = "ln -s ../bin/busybox $0/sbin/init
echo ID=web >$0/etc/os-release; echo console::respawn:-/bin/sh >$0/etc/inittab";

/// A pod of the Debian that has all these programs, or `None` after telling that there is none.
fn debian() -> Option<Pod> {
    let Some(dir) = env::var_os("IOTTYMUX_CONSOLES").map(PathBuf::from) else {
        skip("consoles", "tests/guests/consoles runs it");
        return None;
    };
    Some(Plan::new()?.boot_in(&dir.join("root")))
}

fn shell(pod: &Pod, script: &str, name: &str) {
    pod.run(&["sh", "-ec", script, name]);
}

/// The console of a service, and how a number is asked for there.
struct Console<'a> {
    pod: &'a Pod,
    app: &'a str,
    service: String,
    mux: String,
    ask: fn(u32) -> String,
}

/// Somebody at a console, in a window of this size.
struct Person(Pty, Proc);

impl Person {
    fn says(&self, keys: &str, answer: &str) {
        self.0.press(keys.as_bytes());
        self.0.shown.wait_for(answer);
    }

    fn leaves(mut self) {
        self.0.press(DETACH);
        self.0.shown.wait_for("detached from app");
        assert_eq!(self.1.ends(), 0);
    }
}

impl<'a> Console<'a> {
    /// The terminal of the service that is called as its app.
    fn terminal(pod: &'a Pod, app: &'a str, ask: fn(u32) -> String) -> Self {
        let (service, mux) = (format!("{app}.service"), format!("ttymux@{app}.service"));
        Self { pod, app, service, mux, ask }
    }

    fn come(&self) -> Person {
        let window = Pty::open(24, 80);
        let attach = ["iottymux", "attach", "--wait=20", "--reconnect=20", "--app", self.app];
        // At a terminal all see the screen; what streams have said before is asked for.
        let from: &[&str] = if self.mux.starts_with("iomux") { &["--from=start"] } else { &[] };
        let words = [&["env", "TERM=xterm-256color"], &attach[..], from].concat();
        let client = window.spawn(self.pod.command(&words));
        Person(window, client)
    }

    /// Each of them types, and both see the answers.
    fn is_shared_by(&self, people: &[Person; 2], number: &mut u32) {
        for person in people {
            *number += 1;
            person.0.press((self.ask)(*number).as_bytes());
            for person in people {
                person.0.shown.wait_for(&(BASE + *number).to_string());
            }
        }
    }

    /// Two people come when the console shows this. They share it, and its mux is killed and restarted.
    fn keeps_two_people(&self, prompt: &str) -> [Person; 2] {
        let people = [self.come(), self.come()];
        for person in &people {
            person.0.shown.wait_for(prompt);
        }
        let process = self.pod.property(&self.service, "MainPID");
        let mut number = 0;
        self.is_shared_by(&people, &mut number);
        let kill: &[&str] = &["kill", "--signal=KILL", "--kill-whom=main", &self.mux];
        for how in [kill, &["restart", &self.mux]] {
            let before = people.each_ref().map(|person| person.0.shown.so_far().len());
            self.pod.await_next_mux(self.app, &self.mux, || self.pod.systemctl(how));
            for (person, before) in people.iter().zip(before) {
                eventually("it is attached again", || is_back(&person.0.shown.so_far()[before..]));
            }
            self.is_shared_by(&people, &mut number);
        }
        assert_eq!(self.pod.property(&self.service, "MainPID"), process);
        people
    }
}

/// A line for a shell.
fn in_a_shell(number: u32) -> String {
    format!("echo $(({BASE}+{number}))\r")
}

#[test]
fn a_guest_of_qemu() {
    let Some(pod) = debian() else { return };
    shell(&pod, BUSYBOX, "/srv/root");
    shell(&pod, &format!("mkdir /srv/vm; {VM}"), "/srv/root");
    follow_blocks(&pod, &section(PAGE, "A QEMU guest"));
    let vm = Console::terminal(&pod, "vm", in_a_shell);
    let [one, other] = vm.keeps_two_people("~ # ");
    one.says("\x01c", "(qemu)");
    one.says("\x01cecho $((1+1))\r", "\n2\r");
    one.leaves();
    other.says("poweroff -f\r", "app vm ended");
    drop(other);
    eventually("it is off", || pod.property("vm.service", "ActiveState") == "inactive");

    // Without QEMU's own keys.
    let unit = pod.run(&["cat", "/etc/systemd/system/vm.service"]);
    let (.., line) = section(PAGE, "A QEMU guest").pop().unwrap();
    pod.set_unit("vm.service", &unit.replace("-nographic", line.trim()));
    pod.systemctl(&["start", "vm"]);
    let [one, other] = vm.keeps_two_people("~ # ");
    one.says("\x01cecho\r", "not found");
    one.leaves();
    assert!(!other.0.shown.so_far().contains("(qemu)"));
    other.leaves();
}

#[test]
fn a_container_of_nspawn() {
    let Some(pod) = debian() else { return };
    shell(&pod, &format!("{BUSYBOX}\n{MACHINE}"), "/var/lib/machines/web");
    pod.systemctl(&["start", "dbus.socket"]);
    follow_blocks(&pod, &section(PAGE, "A container of systemd-nspawn"));
    let service = "systemd-nspawn@web.service".to_owned();
    let web = Console { service, ..Console::terminal(&pod, "web", in_a_shell) };
    let [one, other] = web.keeps_two_people("/ # ");
    one.0.resize(30, 100);
    one.says("stty size\r", "30 100");
    one.leaves();
    other.says("\x1d\x1d\x1d", "app web ended");
    drop(other);
    eventually("it is off", || pod.property(&web.service, "ActiveState") == "failed");
}

/// What another page says of podman, with a container that is no image, and without what a pod of a test lacks.
#[test]
fn a_container_of_quadlet() {
    const HERE: &str = "Rootfs=/srv/root\nNetwork=none\nGlobalArgs=--storage-driver vfs\n\
        PodmanArgs=--cgroups=disabled --ulimit nofile=1024:1024 --ulimit nproc=1024:1024\n\
        Exec=sh -c 'echo up; while read x; do echo $((500000+x)); done'";
    let Some(pod) = debian() else { return };
    shell(&pod, BUSYBOX, "/srv/root");
    let (.., session) = section("containers", "podman").swap_remove(0);
    let mut parts = session.split("\n# ");
    let (cat, unit) = parts.next().unwrap().split_once('\n').unwrap();
    let unit = unit.replace("Image=localhost/web", HERE);
    shell(&pod, "mkdir -p $(dirname $0)", cat.strip_prefix("# cat ").unwrap());
    fs::write(pod.path(cat.strip_prefix("# cat ").unwrap()), unit + "\n").unwrap();
    for command in parts.by_ref().take(2) {
        shell(&pod, command.lines().next().unwrap(), "sh");
    }
    let mux = "iomux@web.service".to_owned();
    let web = Console { mux, ..Console::terminal(&pod, "web", |number| format!("{number}\n")) };
    for Person(window, mut client) in web.keeps_two_people("up") {
        window.press(b"\x03");
        assert_eq!(client.ends(), BY_INTERRUPT);
    }
}

const PASSWORD: &str = "let us in";

/// Where there is no such Debian, the login is that of this machine.
fn with_logins() -> Option<Pod> {
    for program in ["agetty", "login", "chpasswd"] {
        if !is_installed(program) {
            skip(program, "it is not installed");
            return None;
        }
    }
    let pod = if env::var_os("IOTTYMUX_CONSOLES").is_some() {
        debian()?
    } else {
        let by_password =
            ["auth", "account", "session"].map(|kind| format!("{kind} required pam_unix.so\n"));
        let plan = Plan::new()?.root_file("etc/pam.d/login", &by_password.concat());
        plan.root_file("etc/shadow", "root:*:20000::::::\n").boot()
    };
    shell(&pod, "echo \"root:$0\" | chpasswd --crypt-method SHA512", PASSWORD);
    Some(pod)
}

/// Somebody logs in as soon as the login asks. What is typed before it hides the password is thrown away.
fn log_in(pod: &Pod, person: &Person) {
    let asks = |what: &str| pod.run(&["iottymux", "screen", "login"]).trim_end().ends_with(what);
    eventually("it asks for a name", || asks("login:"));
    person.0.press(b"root\r");
    let modes = ["sh", "-c", "stty -a </proc/$(systemctl show --value -p MainPID login)/fd/0"];
    let hides = || pod.run(&modes).contains(" -echo ");
    eventually("it asks for a password", || asks("assword:") && hides());
    person.says(&format!("{PASSWORD}\r"), "# ");
}

#[test]
fn a_login() {
    let Some(pod) = with_logins() else { return };
    follow_blocks(&pod, &section(PAGE, "A login"));
    let login = Console::terminal(&pod, "login", in_a_shell);
    let first = login.come();
    first.0.shown.wait_for("login: ");
    log_in(&pod, &first);
    let [one, other] = login.keeps_two_people("# ");
    // Who leaves is not logged out.
    one.leaves();
    let one = login.come();
    one.0.shown.wait_for("# ");
    one.says(&in_a_shell(9), &(BASE + 9).to_string());
    one.0.press(b"exit\r");
    log_in(&pod, &other);
    for person in [first, one, other] {
        assert!(!person.0.shown.so_far().contains(PASSWORD));
        person.leaves();
    }
}

#[test]
fn postgres_alone() {
    let Some(pod) = debian() else { return };
    follow_blocks(&pod, &section(PAGE, "PostgreSQL in single-user mode"));
    let repair = Console::terminal(&pod, "repair", |number| format!("select {BASE}+{number}\r"));
    let [one, other] = repair.keeps_two_people("backend> ");
    one.says("create table t as select 42 as x\r", "backend> ");
    one.leaves();
    // The key is held once.
    other.says("\x04", "^D again");
    other.says("\x04", "app repair ended");
    drop(other);
    eventually("it has ended", || pod.property("repair.service", "Result") == "success");
}

#[test]
fn a_java_program() {
    let Some(pod) = debian() else { return };
    follow_blocks(&pod, &section(PAGE, "A Java program"));
    let jshell = Console::terminal(&pod, "jshell", |number| format!("{BASE}+{number}\r"));
    let [one, other] = jshell.keeps_two_people("jshell> ");
    one.says("Math.ab\t", "absExact(");
    for person in [one, other] {
        person.leaves();
    }
    pod.systemctl(&["stop", "jshell"]);
    assert_eq!(pod.property("jshell.service", "ActiveState"), "inactive");
}
