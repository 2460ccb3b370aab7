//! Any bytes of an app before a viewer's terminal that is not ours: nothing reaches it that is refused, nothing
//! but drawing happens there, and afterwards its modes are as before.
#![no_main]

use iottymux::screen::filter::{Filter, Pass};
use iottymux::screen::restore::Restorer;
use libfuzzer_sys::fuzz_target;

#[path = "../../../src/screen/filter/terminal_model.rs"]
mod terminal_model;

// The first byte says where the rest is cut.
fuzz_target!(|input: &[u8]| {
    let [at, bytes @ ..] = input else { return };
    let (head, tail) = bytes.split_at(usize::from(*at).min(bytes.len()));
    let (mut filter, mut restorer) = (Filter::new(Pass::default()), Restorer::default());
    let (mut terminal, mut shown, mut memory) = (terminal_model::Real::new(), Vec::new(), Vec::new());
    for piece in [head, tail] {
        let passed = filter.read(piece, &mut memory);
        restorer.observe(passed);
        terminal.show(passed);
        shown.extend_from_slice(passed);
    }
    // This terminal does not know the older modes of the alternate screen (47 and 1047), so that it
    // has another screen than the app from there on, with its own keyboard modes.
    if shown.windows(3).any(|part| part == b"47l" || part == b"47h") {
        return;
    }
    terminal.show(&restorer.sequence(80));
    assert_eq!(terminal.changes(), Vec::<String>::new(), "{}", shown.escape_ascii());
    assert_eq!(terminal_model::refused(&shown), None, "{}", shown.escape_ascii());
});
