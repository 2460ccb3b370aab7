//! A mux ends while the disk of its logs is full: what is queued is for the next mux. Lines are lost,
//! and counted, only where there is no next mux.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::flood::{LEN, Tally, read_log};
use crate::pod::{MUX_USER, Pod};
use crate::wait::eventually;

const MUX: &str = "iomux@demo.service";
/// The disk of the logs, and what takes all its room.
const DISK: &str = "/disk";
const BALLAST: &str = "ballast";
/// Lines of each stream in a burst: more than a pipe of the app takes while nobody reads it.
const LINES: usize = 12_000;
/// The longest that the app may be held, or a restart may take: an ending mux that waits for its logs
/// does so for 10 s.
const HELD: Duration = Duration::from_secs(8);
/// The app writes a burst to both streams for each pair of numbers that it reads.
const BURSTING: &str = "\
while read first last; do
  seq -f 'o%010.0f FILLER' $first $last & seq -f 'e%010.0f FILLER' $first $last >&2; wait
done </shared/bursts
";

/// A pod whose app writes bursts of numbered lines to both streams, with two logs on a small disk.
struct Stage {
    pod: Pod,
    bursts: File,
    begun: usize,
}

impl Stage {
    fn new() -> Option<Self> {
        let pod = Pod::delivered()?;
        let bursting = BURSTING.replace("FILLER", &"x".repeat(LEN - "o0000000000 \n".len()));
        fs::write(pod.shared("app.sh"), bursting).unwrap();
        let fifo = pod.shared_fifo("bursts");
        let bursts = OpenOptions::new().read(true).write(true).open(fifo).unwrap();
        pod.run(&["mkdir", DISK]);
        let options = format!("size=64m,mode=0755,uid={MUX_USER},gid={MUX_USER}");
        pod.run(&["mount", "-t", "tmpfs", "-o", &options, "disk", DISK]);
        pod.set_unit(
            "iomux@.service.d/log.conf",
            &format!(
                "[Service]\nEnvironment=IOTTYMUX_LOG=cri:{DISK}/cri,json-file:{DISK}/json-file \
                 IOTTYMUX_LOG_BUFFER=32M\nStandardError=append:/shared/muxes\n"
            ),
        );
        let app = "[Service]\nExecStart=\nExecStart=/bin/sh /shared/app.sh\n";
        pod.set_unit("demo.service.d/app.conf", app);
        pod.systemctl(&["start", "demo.service"]);
        Some(Self { pod, bursts, begun: 0 })
    }

    fn disk(&self, name: &str) -> PathBuf {
        self.pod.path(&format!("{DISK}/{name}"))
    }

    fn fill(&self) {
        let mut ballast = File::create(self.disk(BALLAST)).unwrap();
        let zeros = vec![0; 1 << 20];
        while ballast.write_all(&zeros).is_ok() {}
    }

    /// The app begins another burst.
    fn burst(&mut self) {
        let first = self.begun * LINES;
        self.begun += 1;
        writeln!(self.bursts, "{first} {}", self.begun * LINES - 1).unwrap();
    }

    /// Waits until the app has written all bursts: then it reads a last one, which has no lines.
    fn await_written(&mut self) {
        writeln!(self.bursts, "1 0").unwrap();
        eventually("the app has written its bursts", || {
            rustix::io::ioctl_fionread(&self.bursts).unwrap() == 0
        });
    }

    fn muxes(&self) -> String {
        fs::read_to_string(self.pod.shared("muxes")).unwrap()
    }

    fn await_failing(&self) {
        eventually("both logs fail", || {
            let words = ["iottymux", "status", "--json", "--app", "demo"];
            let status = self.pod.try_run(&words).stdout;
            let status = serde_json::from_slice::<serde_json::Value>(&status).unwrap_or_default();
            (0..2).all(|log| status["logs"][log]["failing"].is_string())
        });
    }
}

#[test]
fn a_restart_leaves_the_lines_of_a_full_disk_to_the_next_mux() {
    let Some(mut stage) = Stage::new() else { return };
    stage.burst();
    stage.await_written();
    stage.fill();
    stage.burst();
    for command in [&["restart"][..], &["kill", "--signal=KILL"], &["restart"]] {
        stage.await_failing();
        let began = Instant::now();
        stage.burst();
        stage.pod.systemctl(&[command, &[MUX]].concat());
        stage.await_written();
        let held = began.elapsed();
        assert!(held < HELD, "{command:?} held the app for {held:?}\n{}", stage.muxes());
    }
    fs::remove_file(stage.disk(BALLAST)).unwrap();
    // The app ends, and its mux then has room for everything.
    stage.pod.systemctl(&["stop", "demo.service", MUX]);
    let muxes = stage.muxes();
    assert!(!muxes.contains("lost"), "{muxes}");
    let lines = stage.begun * LINES;
    let mut whole = Tally::whole(lines);
    whole.has_end = false;
    for log in ["cri", "json-file"] {
        let tallies = read_log(&stage.disk(log), "oe");
        assert!(tallies.values().all(|tally| *tally == whole), "{log}: {tallies:?}\n{muxes}");
    }
}

/// The app ends, so there is no next mux.
#[test]
fn the_last_mux_counts_the_lines_that_a_full_disk_did_not_take() {
    let Some(mut stage) = Stage::new() else { return };
    stage.fill();
    stage.burst();
    stage.await_written();
    stage.pod.systemctl(&["restart", MUX]);
    stage.await_failing();
    stage.pod.systemctl(&["stop", "demo.service", MUX]);
    let muxes = stage.muxes();
    let bytes = 2 * LINES * (LEN - 1);
    let lost = format!("log cri:{DISK}/cri: up to {} lines ({bytes} bytes) are lost: ", 2 * LINES);
    assert!(muxes.contains(&lost), "{muxes}");
    assert_eq!(fs::read_to_string(stage.disk("cri")).unwrap(), "");
}
