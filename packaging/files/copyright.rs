// SPDX-License-Identifier: Apache-2.0
//! The copyright file of a package: the licences of all that the static binary contains.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

/// The licence that is taken of a choice: its text is the one of iottymux.
const OURS: &str = "Apache-2.0";
const HEAD: &str = "\
iottymux
Copyright: the authors of iottymux
License: Apache-2.0

 On Debian systems, the text of this licence is in /usr/share/common-licenses/Apache-2.0.

The program is linked statically with parts of other works.

The GNU C Library (glibc)
Copyright: Free Software Foundation, Inc., and others
License: LGPL-2.1-or-later

 On Debian systems, the text of this licence is in /usr/share/common-licenses/LGPL-2.1. The source
 of glibc is that of the system on which the program was built. To link the program with another
 version, build it from its own source with packaging/release.

The standard library of Rust
Copyright: The Rust Project Developers
License: Apache-2.0
";

/// The text of the file.
pub fn text() -> String {
    let mut out = HEAD.to_owned();
    // The same text of several crates stands there once.
    let mut texts: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for package in linked() {
        let text_of = |key: &str| package[key].as_str().unwrap_or_default().to_owned();
        let (name, license) = (text_of("name") + " " + &text_of("version"), text_of("license"));
        if license.split([' ', '/', '(', ')']).any(|choice| choice == OURS) {
            let authors = authors(&package);
            let _ = write!(out, "\n{name}\nCopyright: {authors}\nLicense: {OURS}\n");
        } else {
            let manifest = text_of("manifest_path");
            let texts_of = licence_texts(Path::new(&manifest).parent().expect("it is a file"));
            assert!(!texts_of.is_empty(), "{name} has no text of its licence, {license}");
            for text in texts_of {
                texts.entry(text).or_default().insert(format!("{name}\nLicense: {license}"));
            }
        }
    }
    for (text, names) in texts {
        for name in names {
            let _ = write!(out, "\n{name}\n");
        }
        out.push('\n');
        for line in text.trim_end().lines() {
            let _ = writeln!(out, "{}", format!(" {line}").trim_end());
        }
    }
    out
}

fn authors(package: &Value) -> String {
    let authors = package["authors"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let authors = authors.collect::<Vec<_>>().join(", ");
    if authors.is_empty() { "its authors".to_owned() } else { authors }
}

/// The packages whose code is in the program, in the order of their names: neither macros nor what
/// only builds or tests it.
fn linked() -> Vec<Value> {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.current_dir(env!("CARGO_MANIFEST_DIR"));
    cargo.args(["metadata", "--locked", "--offline", "--format-version=1"]);
    cargo.args(["--filter-platform", "x86_64-unknown-linux-gnu"]);
    let output = cargo.output().expect("cargo runs");
    let failure = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{failure}");
    let all: Value = serde_json::from_slice(&output.stdout).expect("cargo prints JSON");
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let packages = list(&all["packages"]);
    let package = |id: &Value| packages.iter().find(|package| package["id"] == *id);
    let is_macro = |package: &Value| {
        let targets = list(&package["targets"]);
        targets.iter().any(|target| list(&target["kind"]).contains(&"proc-macro".into()))
    };
    let root = &all["resolve"]["root"];
    let (mut found, mut new) = (BTreeMap::new(), vec![root.clone()]);
    while let Some(id) = new.pop() {
        let nodes = list(&all["resolve"]["nodes"]);
        let node = nodes.into_iter().find(|node| node["id"] == id).expect("it was resolved");
        for dependency in list(&node["deps"]) {
            let is_linked =
                list(&dependency["dep_kinds"]).iter().any(|kind| kind["kind"].is_null());
            let id = &dependency["pkg"];
            let package = package(id).expect("it is listed");
            if is_linked
                && !is_macro(package)
                && found.insert(id.to_string(), package.clone()).is_none()
            {
                new.push(id.clone());
            }
        }
    }
    let mut found: Vec<Value> = found.into_values().collect();
    found.sort_by_key(|package| package["name"].to_string());
    found
}

/// The texts of licences in a directory.
fn licence_texts(dir: &Path) -> Vec<String> {
    let is_licence = |name: &str| {
        let name = name.to_ascii_uppercase();
        ["LICENSE", "LICENCE", "COPYING", "NOTICE"].iter().any(|prefix| name.starts_with(prefix))
    };
    let entries = fs::read_dir(dir).expect("cargo has unpacked it").flatten();
    let files = entries.filter(|entry| entry.file_name().to_str().is_some_and(is_licence));
    files.filter_map(|file| fs::read_to_string(file.path()).ok()).collect()
}
