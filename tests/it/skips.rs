//! The report of skipped tests, on which CI relies.

use std::env;
use std::fs;
use std::process::{Command, Output};

use crate::rig::Rig;
use crate::skip::skip;

/// Not a test: what the tests here run.
#[test]
#[ignore = "run by other tests"]
fn be_skipped() {
    skip("unicorns", "none was ever seen");
}

/// Runs [`be_skipped`] where this is required; how it ended, and the list of skipped tests.
fn skipped(required: &str) -> (Output, String) {
    let rig = Rig::new();
    let list = rig.file("skipped");
    let output = Command::new(env::current_exe().unwrap())
        .args(["--exact", "skips::be_skipped", "--ignored", "--nocapture"])
        .env("IOTTYMUX_REQUIRE", required)
        .env("IOTTYMUX_SKIPPED", &list)
        .output()
        .unwrap();
    (output, fs::read_to_string(list).unwrap_or_default())
}

#[test]
fn a_skipped_test_is_listed() {
    for required in ["", "pod,tmux"] {
        let (output, list) = skipped(required);
        assert!(output.status.success(), "{output:?}");
        assert_eq!(list, "it::skips::be_skipped: unicorns: none was ever seen\n");
    }
}

#[test]
fn a_skipped_test_fails_where_it_is_required() {
    for required in ["all", "unicorns", "pod,unicorns"] {
        let (output, list) = skipped(required);
        assert!(!output.status.success(), "{output:?}");
        assert_eq!(list, "");
    }
}
