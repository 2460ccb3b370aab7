// SPDX-License-Identifier: Apache-2.0
//! Writes the man pages into a directory: `cargo run --example man-pages -- DIR`.

#![allow(clippy::expect_used, reason = "a failure ends it")]

mod pages;

use std::path::PathBuf;
use std::{env, fs};

fn main() {
    let dir = PathBuf::from(env::args_os().nth(1).expect("the argument is a directory"));
    fs::create_dir_all(&dir).expect("the directory can be made");
    for (name, text) in pages::pages() {
        fs::write(dir.join(name), text).expect("the page can be written");
    }
}
