// SPDX-License-Identifier: Apache-2.0
//! Writes the licences of a package below a prefix: `cargo run --example package-files -- DIR`.

#![allow(clippy::expect_used, reason = "a failure ends it")]

mod copyright;

use std::path::PathBuf;
use std::{env, fs};

fn main() {
    let prefix = PathBuf::from(env::args_os().nth(1).expect("the argument is a directory"));
    let path = prefix.join("share/licenses/iottymux/copyright");
    fs::create_dir_all(path.parent().expect("it is a file")).expect("the directory can be made");
    fs::write(path, copyright::text()).expect("the file can be written");
}
