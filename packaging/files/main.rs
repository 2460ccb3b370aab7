// SPDX-License-Identifier: Apache-2.0
//! Writes the files of a package that are made from others, below a prefix:
//! `cargo run --example package-files -- DIR`.

#![allow(clippy::expect_used, reason = "a failure ends it")]

mod copyright;
mod man;

use std::path::{Path, PathBuf};
use std::{env, fs};

fn main() {
    let prefix = PathBuf::from(env::args_os().nth(1).expect("the argument is a directory"));
    for (name, text) in man::pages() {
        let section = name.rsplit_once('.').map_or("", |(_, section)| section);
        write(&prefix.join(format!("share/man/man{section}/{name}")), &text);
    }
    write(&prefix.join("share/licenses/iottymux/copyright"), copyright::text().as_bytes());
}

fn write(path: &Path, text: &[u8]) {
    fs::create_dir_all(path.parent().expect("it is a file")).expect("the directory can be made");
    fs::write(path, text).expect("the file can be written");
}
