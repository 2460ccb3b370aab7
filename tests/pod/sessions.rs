//! What outlives what: commands are started in services, in logins and by cron, which then end. With a real logind and
//! sshd, in a Debian of its own, which `tests/guests/sessions` makes.

use std::env;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::thread;

use crate::pod::{Plan, Pod, project_file};
use crate::proc::eventually;
use crate::skip::skip;

/// How a command is started in the background, with NAME for its name; and how that is called.
const STARTERS: [(&str, &str); 3] = [
    ("tmux", "tmux -L NAME new -ds NAME"),
    ("never", "/usr/local/bin/iottymux run --scope=never -d --name NAME"),
    ("run", "/usr/local/bin/iottymux run -d --name NAME"),
];
/// The command. It runs once the number of its process is in a file.
const COMMAND: &str = "sh -c 'echo $$ >$0.new; mv $0.new $0; exec sleep inf' /shared/pids/NAME";
/// A service that starts commands.
const DAEMON: &str = "[Service]\nOPTIONS\nExecStart=/bin/sh /shared/start/NAME\n";
/// All jobs of cron run once after it was started without this file.
const CRON_RAN: &str = "/run/crond.reboot";

/// Where a command is started, and what then ends.
enum Place {
    /// A login by ssh, with these words before the command.
    Login(&'static str),
    /// A service with these options, which is restarted.
    Service(&'static str),
    /// A service of the user's manager.
    UserService(&'static str),
    /// A job of cron, which is restarted.
    Cron,
}
use Place::{Cron, Login, Service, UserService};

/// Who starts it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Who {
    Root,
    Lingering,
    /// A user who is logged in beside that, and leaves later.
    LoggedIn,
    Other,
}
use Who::{Lingering, LoggedIn, Other, Root};

/// A row of the table in docs/run.md, and which of its columns is true for a place and a user.
type Case = (&'static str, usize, Place, Who);

/// What ends what it has started.
const ENDS: &str = "a service, a login with `KillUserProcesses=yes`";
/// What does not.
const LEAVES: &str = "a service with `KillMode=process`, cron, another login";

const CASES: [Case; 17] = [
    (ENDS, 1, Service(""), Root),
    (ENDS, 1, Service("User=USER"), Lingering),
    (ENDS, 1, UserService(""), Lingering),
    (ENDS, 2, Service("User=USER"), LoggedIn),
    (ENDS, 2, UserService(""), LoggedIn),
    (ENDS, 3, Service("User=USER"), Other),
    (LEAVES, 1, Service("KillMode=process"), Root),
    (LEAVES, 1, UserService("KillMode=process"), Lingering),
    (LEAVES, 3, Service("KillMode=process\nUser=USER"), Other),
    (LEAVES, 1, Cron, Root),
    (LEAVES, 3, Cron, Other),
    (LEAVES, 1, Login(""), Root),
    (LEAVES, 3, Login("sudo -u other"), Root),
    (LEAVES, 1, Login(""), Lingering),
    (LEAVES, 2, Login(""), Other),
    (LEAVES, 1, Login("sudo"), Other),
    (LEAVES, 3, Login("sudo -u other"), Other),
];

/// In logins whose processes logind kills, but root's.
const KILLED: [Case; 7] = [
    (LEAVES, 1, Login(""), Root),
    (LEAVES, 3, Login("sudo -u other"), Root),
    (ENDS, 1, Login(""), Lingering),
    (ENDS, 2, Login(""), LoggedIn),
    (ENDS, 2, Login(""), Other),
    (ENDS, 1, Login("sudo"), Other),
    (ENDS, 3, Login("sudo -u other"), Other),
];

/// What becomes of a command, as the page says it.
const RUNS_ON: &str = "runs on";
const UNTIL_LOGOUT: &str = "runs on until the last logout";
const ENDS_WITH_IT: &str = "ends";

impl Place {
    fn name(&self) -> String {
        let with = |what: &str, words: &str| format!("{what} {}", words.replace('\n', " "));
        match self {
            Login(before) => with("login", before),
            Service(options) => with("service", options),
            UserService(options) => with("user service", options),
            Cron => "cron".to_owned(),
        }
    }
}

impl Who {
    fn name(self) -> &'static str {
        match self {
            Root => "root",
            Lingering => "a user who lingers",
            LoggedIn => "a user who is logged in",
            Other => "another user",
        }
    }
}

/// A command that is started.
struct Attempt<'a> {
    pod: &'a Pod,
    place: &'a Place,
    who: Who,
    name: String,
    /// Its user in the place.
    user: String,
}

fn shell(pod: &Pod, script: &str) -> String {
    pod.run(&["sh", "-ec", script]).trim().to_owned()
}

fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// A command in a login.
fn ssh(user: &str, command: &str) -> String {
    format!("exec ssh {user}@localhost {}", quoted(command))
}

/// A user's command outside of a login.
fn by(user: &str, command: &str) -> String {
    let ids = format!("--reuid={user} --regid={user} --init-groups");
    format!("export HOME=/ XDG_RUNTIME_DIR=/run/user/$(id -u {user}); exec setpriv {ids} {command}")
}

impl<'a> Attempt<'a> {
    fn new(pod: &'a Pod, case: &'a Case, name: String) -> Self {
        let (_, _, place, who) = case;
        let user = if *who == Root { "root".to_owned() } else { name.clone() };
        Self { pod, place, who: *who, name, user }
    }

    fn path(&self, inside: &str) -> PathBuf {
        self.pod.path(&inside.replace("NAME", &self.name))
    }

    /// Makes the user.
    fn prepare(&self) {
        let user = &self.user;
        if self.who != Root {
            shell(self.pod, &format!("useradd -m {user}"));
        }
        if self.who == Lingering {
            shell(self.pod, &format!("loginctl enable-linger {user}"));
            shell(self.pod, &format!("systemctl start user@$(id -u {user})"));
        }
    }

    /// Has the place start the command.
    fn begin(&self, starter: &str) {
        let (pod, name, user) = (self.pod, &self.name, &self.user);
        let run =
            format!("[ -e /shared/pids/NAME ] || {starter} {COMMAND} >>/shared/said/NAME 2>&1\n");
        // A login lasts until the command runs.
        let rest = match self.place {
            Service(_) | UserService(_) => "exec sleep inf\n",
            Login(_) | Cron => "until [ -e /shared/pids/NAME ]; do sleep 0.01; done\n",
        };
        let script = run + rest;
        fs::write(self.path("/shared/start/NAME"), script.replace("NAME", name)).unwrap();
        let start = format!("sh /shared/start/{name}");
        let unit = |options: &str| {
            DAEMON.replace("OPTIONS", &options.replace("USER", user)).replace("NAME", name)
        };
        match self.place {
            Login(before) => drop(shell(pod, &ssh(user, &format!("{before} {start}")))),
            Service(options) => {
                pod.set_unit(&format!("{name}.service"), &unit(options));
                pod.systemctl(&["start", name]);
            }
            UserService(options) => {
                fs::write(self.path("/etc/systemd/user/NAME.service"), unit(options)).unwrap();
                shell(pod, &by(user, "systemctl --user daemon-reload"));
                shell(pod, &by(user, &format!("systemctl --user start {name}")));
            }
            Cron => {
                // Its jobs belong to one attempt at a time.
                static JOBS: Mutex<()> = Mutex::new(());
                let _jobs = JOBS.lock().unwrap();
                let jobs = self.path("/etc/cron.d/NAME");
                fs::write(&jobs, format!("@reboot {user} {start}\n")).unwrap();
                shell(pod, &format!("rm -f {CRON_RAN}; exec systemctl restart cron"));
                self.await_pid();
                fs::remove_file(jobs).unwrap();
            }
        }
    }

    fn await_pid(&self) -> String {
        let pid = || fs::read_to_string(self.path("/shared/pids/NAME")).unwrap_or_default();
        eventually(&format!("the command of {} runs", self.name), || !pid().is_empty());
        pid().trim().to_owned()
    }

    /// The unit in which a process is; none if it has ended.
    fn unit(&self, pid: &str) -> Option<String> {
        let groups = fs::read_to_string(self.path(&format!("/proc/{pid}/cgroup"))).ok()?;
        let mut lines = groups.lines();
        let group =
            lines.find_map(|line| line.strip_prefix("0::").filter(|group| *group != "/"))?;
        Some(group.rsplit('/').next()?.replace(&self.name, "NAME"))
    }

    /// How many logins of the user there are, and how many of them have ended though something still runs in them.
    fn logins(&self) -> (usize, usize) {
        let user = format!("\nUID={}\n", shell(self.pod, &format!("id -u {}", self.user)));
        // Beside each is a FIFO.
        let files = fs::read_dir(self.path("/run/systemd/sessions")).unwrap();
        let files =
            files.map(|file| file.unwrap().path()).filter(|file| file.extension().is_none());
        let texts = files.filter_map(|file| fs::read_to_string(file).ok());
        let logins = texts.filter(|text| text.contains(&user) && !text.contains("\nCLASS=manager"));
        let logins: Vec<_> = logins.collect();
        let ended = logins.iter().filter(|text| text.contains("\nSTATE=closing\n")).count();
        (logins.len(), ended)
    }

    /// Waits until this number of logins is left, and what the others take with them has ended. `stays`: beside those in
    /// which something runs on.
    fn await_logout(&self, left: usize, stays: bool) {
        let manager = format!("user@$(id -u {})", self.user);
        let is_active = format!("systemctl is-active {manager} || true");
        eventually("the login has ended", || {
            let (all, ended) = self.logins();
            let has_manager = all > 0 || self.who == Lingering;
            (all == left || stays && all == ended + left)
                && self.pod.systemctl(&["list-jobs", "--no-legend"]).trim().is_empty()
                && (has_manager || shell(self.pod, &is_active) == "inactive")
        });
    }

    /// Starts the command, ends what has started it, and says what became of it, in which unit it was, and what was said.
    fn outcome(&self, starter: &str) -> (&'static str, String, String) {
        let (pod, name, user) = (self.pod, &self.name, &self.user);
        self.prepare();
        let elsewhere = (self.who == LoggedIn).then(|| {
            let login = pod.talk(&["sh", "-c", &ssh(user, "cat")]);
            eventually("they are logged in", || self.logins() == (1, 0));
            let manager = format!("systemctl start user@$(id -u {user})");
            shell(pod, &manager);
            login
        });
        self.begin(starter);
        let pid = self.await_pid();
        let unit = self.unit(&pid);
        match self.place {
            Login(_) => {
                let stays = unit.as_ref().is_some_and(|unit| unit.starts_with("session-"));
                self.await_logout(elsewhere.iter().count(), stays);
            }
            Service(_) => drop(pod.systemctl(&["restart", name])),
            UserService(_) => {
                shell(pod, &by(user, &format!("systemctl --user restart {name}")));
            }
            Cron => drop(pod.systemctl(&["restart", "cron"])),
        }
        let said =
            fs::read_to_string(self.path("/shared/said/NAME")).unwrap().replace(name, "NAME");
        let is_logout = matches!(self.place, Login(_)) && elsewhere.is_none();
        let mut lives = self.unit(&pid).is_some();
        let unit = unit.unwrap_or_default();
        let is_in_scope = unit.starts_with("iottymux-");
        let mut fate = if lives {
            RUNS_ON
        } else if is_logout && is_in_scope {
            UNTIL_LOGOUT
        } else {
            ENDS_WITH_IT
        };
        if let (true, Some(login)) = (lives, elsewhere) {
            drop(login);
            self.await_logout(0, false);
            lives = self.unit(&pid).is_some();
            fate = if lives { RUNS_ON } else { UNTIL_LOGOUT };
        }
        if starter.ends_with("run -d --name NAME") {
            self.is_told(fate, is_in_scope, &said);
        }
        (fate, unit, said)
    }

    /// What `run` has said is true, and whoever has started the command finds it, or its end.
    fn is_told(&self, fate: &str, is_in_scope: bool, said: &str) {
        let words = match (fate, is_in_scope) {
            (RUNS_ON, false) => "",
            (RUNS_ON, true) => " outlives ",
            (UNTIL_LOGOUT, _) => "the last logout: try loginctl enable-linger NAME\n",
            _ => "NAME ends with ",
        };
        let is_silent = !said.contains("iottymux:");
        assert!(said.contains(words) && is_silent == words.is_empty(), "{fate}: {said}");
        let owner = match self.place {
            Login("sudo") => "root",
            Login("sudo -u other") => "other",
            _ => &self.user,
        };
        let status = format!("iottymux status {}", self.name);
        let status = self.pod.try_run(&["sh", "-c", &by(owner, &status)]).stdout;
        let status = String::from_utf8(status).unwrap();
        let is_found = match fate {
            RUNS_ON => status.contains(": running"),
            ENDS_WITH_IT => status.contains(": ended by signal 15"),
            // What logind keeps of a user is gone, too.
            _ => true,
        };
        assert!(is_found, "{fate}: {status}");
    }
}

/// A Debian with these settings of logind.
fn debian(dir: &Path, logind: &str) -> Option<Pod> {
    let ssh = "StrictHostKeyChecking no\nUserKnownHostsFile /dev/null\nLogLevel ERROR\n";
    let logind = format!("[Login]\nUserStopDelaySec=0\n{logind}\n");
    let pod = Plan::new()?
        .root_file("etc/systemd/logind.conf.d/pod.conf", &logind)
        .root_file("etc/ssh/ssh_config.d/pod.conf", ssh)
        .root_file("etc/ssh/sshd_config.d/pod.conf", "PermitRootLogin yes\nMaxStartups 100\n")
        .root_file("etc/sudoers.d/all", "ALL ALL=(ALL) NOPASSWD: ALL\n")
        .root_mode("etc/sudoers.d/all", 0o440)
        .root_file("etc/hosts", "127.0.0.1 localhost pod\n")
        .unit("cron.service.d/often.conf", "[Unit]\nStartLimitIntervalSec=0\n")
        .boot_in(&dir.join("root"));
    shell(
        &pod,
        "mkdir -m 1777 /shared/pids /shared/said; mkdir -p /etc/systemd/user /etc/skel/.ssh /root/.ssh /shared/start
         ssh-keygen -q -t ed25519 -N '' -f /root/.ssh/id_ed25519; useradd other
         for home in /root /etc/skel; do cp /root/.ssh/id_ed25519.pub $home/.ssh/authorized_keys; done
         exec systemctl start dbus systemd-logind systemd-user-sessions ssh cron",
    );
    Some(pod)
}

/// Tries the cases with these settings of logind, and adds a line for each to the table.
fn try_all(dir: &Path, logind: &str, cases: &[Case]) {
    let Some(pod) = &debian(dir, logind) else { return };
    let page = project_file("docs/run.md");
    let (mut table, mut wrong) = (format!("| **logind: {logind}** |\n"), Vec::new());
    for (number, case) in cases.iter().enumerate() {
        let outcomes = thread::scope(|scope| {
            let start = |(name, words)| {
                let attempt = Attempt::new(pod, case, format!("{name}{number}"));
                scope.spawn(move || attempt.outcome(words))
            };
            STARTERS.map(start).map(|attempt| attempt.join().unwrap())
        });
        let (row, column, place, who) = case;
        let told = page.lines().find_map(|line| line.strip_prefix(&format!("| {row}")));
        let told = told.unwrap().trim_end_matches(" |").split(" | ").nth(*column);
        let fates = outcomes.each_ref().map(|(fate, ..)| *fate).join(" | ");
        let [.., (fate, unit, said)] = outcomes;
        let said = said.lines().collect::<Vec<_>>().join(" ");
        let case = format!("{} | {}", place.name(), who.name());
        writeln!(table, "| {case} | {fates} | {unit} | {said} |").unwrap();
        if told != Some(fate) {
            wrong.push(format!("{case}: {fate}, and not {told:?}"));
        }
    }
    let mut file = File::options().append(true).create(true).open(dir.join("table.md")).unwrap();
    file.write_all(table.as_bytes()).unwrap();
    let running = || {
        shell(pod, "for pid in $(cat /shared/pids/*); do test ! -e /proc/$pid || echo $pid; done")
    };
    let before = running();
    pod.systemctl(&["daemon-reexec"]);
    pod.systemctl(&["restart", "systemd-logind"]);
    assert_eq!(running(), before, "they outlive restarts of systemd and logind");
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn what_outlives_what() {
    let Some(dir) = env::var_os("IOTTYMUX_SESSIONS").map(PathBuf::from) else {
        return skip("sessions", "tests/guests/sessions runs it");
    };
    try_all(&dir, "KillUserProcesses=no", &CASES);
    try_all(&dir, "KillUserProcesses=yes", &KILLED);
}
