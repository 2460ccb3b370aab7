//! The binary: everything is in the library.

fn main() {
    std::process::exit(iottymux::main());
}
