//! A way to this machine by a real ssh, which can be cut.

use std::fs;
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;

use nix::unistd::Pid;

use crate::installed::is_installed;
use crate::rig::Rig;
use crate::skip::skip;

const SSHD: &str = "/usr/sbin/sshd";
/// Where sshd wants a directory if root starts it.
const EMPTY: &str = "/run/sshd";

/// See the module.
pub struct Link {
    dir: PathBuf,
    connections: Arc<Mutex<Vec<TcpStream>>>,
}

impl Link {
    /// None, and why is printed, where there is no ssh or no sshd.
    pub fn new(rig: &Rig) -> Option<Self> {
        let is_root = nix::unistd::Uid::effective().is_root();
        if !is_installed("ssh") || !Path::new(SSHD).exists() {
            skip("sshd", "it is not installed");
            return None;
        }
        if let Err(e) = fs::create_dir_all(EMPTY)
            && is_root
        {
            skip("sshd", &format!("{EMPTY}: {e}"));
            return None;
        }
        let dir = rig.file("link");
        fs::create_dir(&dir).unwrap();
        for key in ["host", "user"] {
            let mut make = Command::new("ssh-keygen");
            make.args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(dir.join(key));
            assert!(make.status().unwrap().success());
        }
        let program = Path::new(env!("CARGO_BIN_EXE_iottymux")).parent().unwrap();
        let (at, programs, state) = (dir.display(), program.display(), rig.state());
        let server = format!(
            "HostKey {at}/host\nAuthorizedKeysFile {at}/user.pub\nStrictModes no\nUsePAM no\n\
             PermitRootLogin yes\nPidFile none\n\
             SetEnv PATH={programs}:/usr/bin:/bin IOTTYMUX_STATE_DIR={}\n",
            state.display()
        );
        fs::write(dir.join("sshd_config"), server).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let client = format!(
            "#!/bin/sh\necho $$ >{at}/pid\nPATH=/usr/bin:/bin exec ssh -F none -p {port} -o Hostname=127.0.0.1 \
             -i {at}/user -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null \"$@\"\n"
        );
        fs::create_dir(dir.join("bin")).unwrap();
        fs::write(dir.join("bin/ssh"), client).unwrap();
        fs::set_permissions(dir.join("bin/ssh"), fs::Permissions::from_mode(0o755)).unwrap();
        let connections = Arc::default();
        let link = Self { dir: dir.clone(), connections: Arc::clone(&connections) };
        thread::spawn(move || {
            for connection in listener.incoming() {
                serve(&dir, connection.unwrap(), &connections);
            }
        });
        Some(link)
    }

    /// A directory with an ssh that takes this way to any host.
    pub fn bin(&self) -> PathBuf {
        self.dir.join("bin")
    }

    /// The ssh that was started last.
    pub fn ssh(&self) -> Pid {
        let pid = fs::read_to_string(self.dir.join("pid")).unwrap();
        Pid::from_raw(pid.trim().parse().unwrap())
    }

    /// The network is gone.
    pub fn cut(&self) {
        for connection in self.connections.lock().unwrap().drain(..) {
            connection.shutdown(Shutdown::Both).unwrap();
        }
    }
}

/// An sshd for this connection.
fn serve(dir: &Path, connection: TcpStream, connections: &Mutex<Vec<TcpStream>>) {
    let end = || Stdio::from(OwnedFd::from(connection.try_clone().unwrap()));
    let mut sshd = Command::new(SSHD);
    sshd.arg("-i").arg("-f").arg(dir.join("sshd_config"));
    sshd.stdin(end()).stdout(end()).stderr(Stdio::null());
    let mut sshd = sshd.spawn().unwrap();
    thread::spawn(move || sshd.wait());
    connections.lock().unwrap().push(connection);
}
