//! The end of the app's input, by `--stdin-once`: it is real, it is one run's, and it outlives a mux.

use std::fs;

use crate::pod::{Pod, rounds};
use crate::proc::eventually;
use crate::status::{Attach, line};

const MUX: &str = "iomux@demo.service";
const APP: &str = "demo.service";
/// Repeats its input up to the end, then ends when it is told to; and is started again.
const UNIT: &str = "[Service]\nExecStart=\nExecStart=/bin/sh -c 'cat; echo eof; read x </shared/go; exit 7'\n\
    Restart=always\nRestartSec=100ms\n";
const TOLD: &str = "iottymux: app demo ended with status 7 and was started again\n";

/// Nobody can type, whichever way he comes.
fn assert_nobody_types(pod: &Pod) {
    assert_eq!(pod.connect("demo", "sock-stdin").rest(), b"");
    let (code, _, said) = Attach::with(pod, "demo", &["--mode", "stdin"]).says_no_more().ends();
    assert_eq!((code, said.contains("its input has ended")), (1, true), "{said}");
}

/// Reads what an attach tells, up to this line.
fn wait_told(attach: &mut Attach, wanted: &str) {
    loop {
        let told = line(&mut attach.stderr);
        assert_ne!(told, "", "it has ended before it told {wanted:?}");
        if told == wanted {
            break;
        }
    }
}

#[test]
fn an_app_reads_the_end_of_its_input_and_its_status_is_the_attachs() {
    let Some(pod) = Pod::delivered() else { return };
    let unit = "[Service]\nExecStart=\nExecStart=/bin/sh -c 'cat; exit 7'\nRestart=no\n";
    pod.set_unit("demo.service.d/x.conf", unit);
    pod.systemctl(&["start", APP]);
    let mut once = Attach::with(&pod, "demo", &["--stdin-once"]);
    once.say("x\n");
    assert_eq!(once.says_no_more().ends(), (7, "x\n".into(), String::new()), "{}", pod.console());
}

#[test]
fn the_end_of_the_input_is_one_runs() {
    let Some(pod) = Pod::delivered() else { return };
    let go = pod.shared_fifo("go");
    pod.set_unit("demo.service.d/x.conf", UNIT);
    pod.systemctl(&["start", APP]);
    let muxes: [&dyn Fn(); 3] = [
        &|| {},
        &|| {
            pod.systemctl(&["restart", MUX]);
        },
        &|| {
            let before = pod.property(MUX, "MainPID");
            pod.systemctl(&["kill", "--kill-who=main", "--signal=KILL", MUX]);
            eventually("there is another mux", || {
                let now = pod.systemctl(&["show", "--value", "-p", "MainPID,SubState", MUX]);
                now.contains("running") && now.lines().all(|word| word != before)
            });
        },
    ];
    for (round, next_mux) in muxes.into_iter().cycle().take(3 * rounds(1, 10)).enumerate() {
        let process = pod.property(APP, "MainPID");
        // Who types without --stdin-once ends nothing.
        let mut typist = Attach::with(&pod, "demo", &["--from", "now"]);
        typist.say("first\n");
        assert_eq!(line(&mut typist.stdout), "first\n");
        drop(typist.says_no_more());
        let words = ["--from", "now", "--stdin-once", "--reconnect", "5"];
        let mut once = Attach::with(&pod, "demo", &words);
        once.say("last\n");
        let mut once = once.says_no_more();
        for said in ["last\n", "eof\n"] {
            assert_eq!(line(&mut once.stdout), said, "{round}");
        }
        assert_nobody_types(&pod);
        next_mux();
        assert_nobody_types(&pod);
        assert_eq!(pod.property(APP, "MainPID"), process, "the app noticed");
        if round % 3 > 0 {
            wait_told(&mut once, "iottymux: app demo: attached again\n");
        }
        fs::write(&go, "\n").unwrap();
        wait_told(&mut once, TOLD);
        assert_ne!(pod.property(APP, "MainPID"), process);
    }
    // Nothing of what was ended is kept.
    assert_eq!(pod.property(MUX, "NFileDescriptorStore"), "13");
    pod.systemctl(&["stop", APP]);
    assert_eq!(pod.property(APP, "Result"), "success", "{}", pod.console());
}
