//! Does one piece of fixed work, so that valgrind can count its instructions
//! (`.ci/check-instructions`). Without a name it lists the names; with another it does nothing.

use std::env;

use iottymux::workload::ALL;

fn main() {
    match env::args().nth(1) {
        None => ALL.iter().for_each(|(name, _)| println!("{name}")),
        Some(asked) => ALL.iter().filter(|(name, _)| *name == asked).for_each(|(_, work)| work()),
    }
}
