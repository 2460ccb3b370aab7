//! Services that people run, enabled under way: they serve on, and their lines stay in the journal.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;

use crate::log::{journal, message, with_journald};
use crate::pod::{Plan, Pod};
use crate::proc::eventually;
use crate::skip::skip;

/// A service, how it is asked for something, and what it answers.
struct Service {
    program: &'static str,
    unit: &'static str,
    socket: &'static str,
    request: &'static str,
    answer: &'static str,
    /// The last line that it writes before it answers, or of a request.
    line: &'static str,
}

const SERVICES: [Service; 3] = [
    Service {
        program: "/usr/bin/redis-server",
        unit: "[Service]\nType=notify\nUser=nobody\nRuntimeDirectory=app\nNoNewPrivileges=yes\nProtectSystem=strict\n\
               PrivateDevices=yes\nExecStart=/usr/bin/redis-server --supervised systemd --port 0 \
               --unixsocket /run/app/sock --save \"\" --dir /run/app\n",
        socket: "/run/app/sock",
        request: "PING\r\n",
        answer: "+PONG",
        line: "eady to accept connections",
    },
    Service {
        program: "/usr/sbin/nginx",
        unit: "[Service]\nRuntimeDirectory=app\nExecStartPre=/bin/mkdir -p /var/log/nginx /var/lib/nginx /tmp/n\n\
               ExecStart=/usr/sbin/nginx -c /etc/n.conf -e stderr\n",
        socket: "/run/app/sock",
        request: "GET / HTTP/1.0\r\n\r\n",
        answer: "204",
        line: "start worker process",
    },
    Service {
        program: "/usr/lib/postgresql/15/bin/postgres",
        unit: "[Service]\nUser=nobody\nStateDirectory=app\nRuntimeDirectory=app\nStateDirectoryMode=0700\n\
               ExecStartPre=-/bin/sh -c '/usr/lib/postgresql/15/bin/initdb -D /var/lib/app/db --no-sync -A trust >/dev/null 2>&1'\n\
               ExecStart=/usr/lib/postgresql/15/bin/postgres -D /var/lib/app/db -h \"\" -k /run/app\n",
        socket: "/run/app/.s.PGSQL.5432",
        request: "\0\0\0\x08\x04\u{d2}\x16/",
        answer: "",
        line: "ready to accept connections",
    },
];

const NGINX: &str = "daemon off; pid /run/app/pid; events {} error_log stderr notice;\n\
    http { access_log off; server { listen unix:/run/app/sock; return 204; } }\n";

/// Priority, identifier, and message.
type Line = (String, String, String);

/// The lines of the service in the journal by now, from one on, without numbers and what names the writer.
fn lines(pod: &Pod, skip: usize) -> Vec<Line> {
    pod.run(&["journalctl", "--sync"]);
    let field = |entry: &serde_json::Value, name: &str| entry[name].as_str().unwrap().to_owned();
    let plain = |text: String| text.chars().filter(|c| !c.is_ascii_digit()).collect();
    let entries = journal(pod, &["-u", "app.service", "SYSLOG_FACILITY=3"]);
    let entries = entries.iter().filter(|entry| field(entry, "SYSLOG_IDENTIFIER") != "systemd");
    let line = |entry| {
        let text = String::from_utf8(message(entry)).unwrap();
        (field(entry, "PRIORITY"), field(entry, "SYSLOG_IDENTIFIER"), plain(text))
    };
    entries.map(line).skip(skip).collect()
}

impl Service {
    /// Asks until there is an answer.
    fn serves(&self, pod: &Pod) {
        eventually(self.program, || {
            let Ok(mut socket) = UnixStream::connect(pod.path(self.socket)) else { return false };
            let mut answer = [0; 64];
            let request: Vec<u8> = self.request.chars().map(|c| c as u8).collect();
            if socket.write_all(&request).is_err() {
                return false;
            }
            let len = socket.read(&mut answer).unwrap_or(0);
            String::from_utf8_lossy(&answer[..len]).contains(self.answer)
        });
    }

    fn await_line(&self, pod: &Pod, skip: usize) {
        let is_there = || {
            lines(pod, skip)
                .iter()
                .any(|line| line.2.contains(&self.line.replace(|c: char| c.is_ascii_digit(), "")))
        };
        eventually(self.line, is_there);
    }

    /// One life of it, as it is in the journal.
    fn lives(&self, pod: &Pod) -> Vec<Line> {
        let before = lines(pod, 0).len();
        pod.systemctl(&["restart", "app"]);
        self.serves(pod);
        self.await_line(pod, before);
        pod.systemctl(&["stop", "app"]);
        // The journal has all of a unit that has stopped, its mux and its writer among those.
        pod.run(&["sh", "-c", "systemctl stop 'iomux@*'"]);
        let mut lines = lines(pod, before);
        // Two streams have no order among each other; how often it was asked is chance.
        lines.sort();
        lines.dedup();
        lines
    }
}

#[test]
fn known_services_serve_on_and_are_in_the_journal_as_before() {
    let Some(_) = Plan::new() else { return };
    for service in SERVICES {
        let program = Path::new(service.program);
        let root = std::env::var("PODSD_ROOT").unwrap_or_default();
        if !Path::new(&(root + service.program)).exists() {
            skip(program.file_name().unwrap().to_str().unwrap(), "it is not installed");
            continue;
        }
        let plan = with_journald(Plan::new().unwrap());
        let unit = service.unit.replacen(
            "[Service]\n",
            "[Service]\nStandardOutput=journal\nStandardError=journal\n",
            1,
        );
        let pod = plan.unit("app.service", &unit).root_file("etc/n.conf", NGINX).boot();
        // The first life of a database is another than all later ones.
        service.lives(&pod);
        let before = service.lives(&pod);
        let own = pod.property("app.service", "StandardOutput");
        pod.run(&[
            "iottymux", "enable", "app", "--stdout", "stream", "--stderr", "stream", "--now",
        ]);
        service.serves(&pod);
        assert_eq!(service.lives(&pod), before, "{}", service.program);
        pod.run(&["iottymux", "disable", "app", "--now"]);
        assert_eq!(pod.property("app.service", "StandardOutput"), own);
        assert_eq!(pod.names("/etc/systemd/system").len(), 3, "{}", service.program);
        assert_eq!(service.lives(&pod), before, "{}", service.program);
    }
}
