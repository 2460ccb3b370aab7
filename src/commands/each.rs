//! All apps that a user can see, each asked for something.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::panic::resume_unwind;
use std::thread::{self, Builder};

use anyhow::Result;

use crate::os::state::{AppDir, StateDir};
use crate::types::name::AppName;

/// Muxes that are queried at the same time: enough that hanging ones do not add up, and few beside
/// the threads and descriptors of a user.
const ASKED: usize = 64;

/// Calls `ask` for each app, with its directory and whether it is `enabled`, and returns the answers
/// in the order of the names. Of apps with the same name it asks that of the first directory, or
/// `all` of them.
pub(crate) fn app<T: Send>(
    states: &[StateDir],
    enabled: &BTreeMap<AppName, String>,
    all: bool,
    ask: impl Fn(AppDir, bool) -> T + Sync,
) -> Result<Vec<T>> {
    let mut names: BTreeSet<(AppName, usize)> = BTreeSet::new();
    for (number, state) in states.iter().enumerate() {
        for name in state.apps()? {
            let is_other = names.range((name.clone(), 0)..(name.clone(), number)).next().is_some();
            if all || !is_other {
                names.insert((name, number));
            }
        }
    }
    for name in enabled.keys().filter(|_| !states.is_empty()) {
        if names.range((name.clone(), 0)..=(name.clone(), states.len())).next().is_none() {
            names.insert((name.clone(), 0));
        }
    }
    // The mux of a service has a view of its own of the directory with its app.
    let mut seen = HashSet::new();
    let is_new = |(name, number): &(AppName, usize)| {
        states[*number].app(name).id().is_none_or(|id| seen.insert(id))
    };
    let names: Vec<_> = names.into_iter().filter(is_new).collect();
    let ask = |(name, number): &(AppName, usize)| {
        ask(states[*number].app(name), enabled.contains_key(name))
    };
    // Wait for muxes that hang in parallel.
    let mut answers = Vec::new();
    for names in names.chunks(ASKED) {
        thread::scope(|scope| {
            let ask = &ask;
            let start = |name| (name, Builder::new().spawn_scoped(scope, move || ask(name)));
            let asked: Vec<_> = names.iter().map(start).collect();
            answers.extend(asked.into_iter().map(|(name, thread)| match thread {
                Ok(thread) => thread.join().unwrap_or_else(|panic| resume_unwind(panic)),
                // This user may have no more.
                Err(_) => ask(name),
            }));
        });
    }
    Ok(answers)
}
