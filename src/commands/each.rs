//! All apps that a user can see, each asked for something.

use std::collections::BTreeMap;
use std::panic::resume_unwind;
use std::thread::{self, ScopedJoinHandle};

use anyhow::Result;

use crate::os::state::{AppDir, StateDir};
use crate::types::name::AppName;

/// Muxes that are queried at the same time: enough that hanging ones do not add up, and few beside
/// the threads and descriptors of a user.
const ASKED: usize = 64;

/// Calls `ask` for each app, with its directory and whether it is `enabled`, and returns the answers
/// in the order of the names. Of apps with the same name it asks that of the first directory.
pub(crate) fn app<T: Send>(
    states: &[StateDir],
    enabled: &[AppName],
    ask: impl Fn(AppDir, bool) -> T + Sync,
) -> Result<Vec<T>> {
    let mut names = BTreeMap::new();
    for state in states {
        for name in state.apps()? {
            names.entry(name).or_insert(state);
        }
    }
    if let Some(state) = states.first() {
        for name in enabled {
            names.entry(name.clone()).or_insert(state);
        }
    }
    let names: Vec<_> = names.iter().map(|(name, state)| (name, *state)).collect();
    let ask = |(name, state): (&AppName, &StateDir)| ask(state.app(name), enabled.contains(name));
    // Wait for muxes that hang in parallel.
    let mut answers = Vec::new();
    for names in names.chunks(ASKED) {
        thread::scope(|scope| {
            let ask = &ask;
            let asked: Vec<_> = names.iter().map(|name| scope.spawn(|| ask(*name))).collect();
            let got = asked.into_iter().map(ScopedJoinHandle::join);
            answers.extend(got.map(|answer| answer.unwrap_or_else(|panic| resume_unwind(panic))));
        });
    }
    Ok(answers)
}
