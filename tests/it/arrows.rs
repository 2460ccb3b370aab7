//! The direction of the modules, read from the source: arrows only downward.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Every source file with its text, without comments.
fn sources() -> Vec<(PathBuf, String)> {
    fn walk(dir: &Path, into: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                walk(&path, into);
            } else if path.extension().is_some_and(|e| e == "rs") {
                into.push(path);
            }
        }
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = Vec::new();
    walk(&root, &mut files);
    assert!(files.len() > 20, "the sources were not found");
    let code = |path: &PathBuf| -> String {
        let text = fs::read_to_string(path).unwrap();
        // What is below the unit tests of a file may use anything.
        let text = text.split("\n#[cfg(test)]\nmod tests {").next().unwrap_or_default();
        text.lines().map(|l| l.split("//").next().unwrap_or_default().to_owned() + "\n").collect()
    };
    files.iter().map(|f| (f.strip_prefix(&root).unwrap().to_owned(), code(f))).collect()
}

/// The module that a file is: `core/hub/mod.rs` is `[core, hub]`.
fn module_of(path: &Path) -> Vec<String> {
    let names = path.with_extension("");
    let names = names.iter().map(|name| name.to_str().unwrap().to_owned());
    names.filter(|name| name != "mod" && name != "lib").collect()
}

/// Reads the paths that go on from here, groups taken apart: of `a::{b, c::d}` it makes `[a, b]` and `[a, c, d]`.
fn read_paths(text: &str, before: &[String], into: &mut Vec<Vec<String>>) {
    let text = text.trim_start();
    if let Some(group) = text.strip_prefix('{') {
        let mut depth = 0;
        let mut from = 0;
        for (at, c) in group.char_indices() {
            match c {
                '{' => depth += 1,
                ',' | '}' if depth == 0 => {
                    read_paths(&group[from..at], before, into);
                    from = at + 1;
                }
                '}' => depth -= 1,
                _ => {}
            }
            if c == '}' && depth == 0 && from == at + 1 {
                break;
            }
        }
        return;
    }
    let end = text.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(text.len());
    let (name, rest) = text.split_at(end);
    if name.is_empty() {
        return;
    }
    let path = [before, &[name.to_owned()]].concat();
    match rest.strip_prefix("::") {
        Some(rest) => read_paths(rest, &path, into),
        None => into.push(path),
    }
}

/// Every path of this crate that a file names, from the root.
fn uses(path: &Path, text: &str) -> Vec<Vec<String>> {
    let mut paths = Vec::new();
    for (at, what) in text.match_indices("crate::") {
        read_paths(&text[at + what.len()..], &[], &mut paths);
    }
    let mut parent = module_of(path);
    parent.pop();
    for (at, what) in text.match_indices("super::") {
        read_paths(&text[at + what.len()..], &parent, &mut paths);
    }
    paths
}

#[test]
fn only_one_module_has_unsafe() {
    for (path, text) in sources() {
        let has = text.split(|c: char| !c.is_alphanumeric() && c != '_').any(|w| w == "unsafe");
        assert_eq!(has, path == Path::new("sys/calls.rs"), "{}", path.display());
    }
}

/// nix has processes, users, signals, mounts, sockets, and the waiting for descriptors; rustix has files,
/// terminals, pipes, and their reads and writes. What only the other one has is named here.
#[test]
fn each_library_of_system_calls_has_its_part() {
    let not_of_nix = [
        "dir",
        "fcntl",
        "sys::memfd",
        "sys::stat",
        "sys::termios",
        "sys::uio",
        "unistd::access",
        "unistd::dup",
        "unistd::fchown",
        "unistd::ftruncate",
        "unistd::mkfifo",
        "unistd::pipe",
        "unistd::read",
        "unistd::tcgetpgrp",
        "unistd::write",
    ];
    let not_of_rustix = ["event", "mm", "mount", "process", "system", "thread", "time"];
    let exceptions = [
        // A lock that ends when it is dropped.
        "fcntl::Flock",
        "fcntl::FlockArg",
        // nix has no descriptors of processes, no priorities, no capabilities, and not this of a terminal.
        "process::Pid",
        "process::PidfdFlags",
        "process::ioctl_tiocsctty",
        "process::pidfd_open",
        "process::setpriority_process",
        "thread::CapabilitySet",
        "thread::capabilities",
        "thread::remove_capability_from_bounding_set",
        "thread::set_capabilities",
    ];
    for (path, text) in sources() {
        for (library, refused) in [("nix::", &not_of_nix[..]), ("rustix::", &not_of_rustix)] {
            let mut paths = Vec::new();
            for (at, _) in text.match_indices(library) {
                let before = text[..at].chars().next_back();
                if before.is_none_or(|c| !c.is_alphanumeric() && c != '_') {
                    read_paths(&text[at + library.len()..], &[], &mut paths);
                }
            }
            for used in paths.iter().map(|used| used.join("::")) {
                let is_refused = refused.iter().any(|refused| used.starts_with(refused));
                let is_right = !is_refused || exceptions.iter().any(|it| used.starts_with(it));
                assert!(is_right, "{} uses {library}{used}: see CONTRIBUTING.md", path.display());
            }
        }
    }
}

/// Which modules of this crate a pure one may know, and that it knows nothing of the system.
#[test]
fn the_pure_modules_know_nothing_of_the_system() {
    let rules: [(&str, &[&str]); 16] = [
        ("types/escape.rs", &[]),
        ("types/exit.rs", &[]),
        ("types/limits.rs", &[]),
        ("types/name.rs", &[]),
        ("types/rights.rs", &[]),
        ("types/service.rs", &["types::name"]),
        ("types/stream.rs", &[]),
        ("screen", &["types", "screen"]),
        ("core", &["types", "screen", "core"]),
        ("client/attach/key.rs", &["screen::scan"]),
        ("client/attach/keys.rs", &["types", "client::attach::key", "screen::scan"]),
        ("client/attach/attach_mode.rs", &["types"]),
        (
            "client/attach/banner.rs",
            &["types", "core::wire", "client::attach::keys", "client::attach::attach_mode"],
        ),
        ("client/logs/whole.rs", &["types", "core::logfmt::entry", "client::logs"]),
        ("cli/habits.rs", &[]),
        (
            "client/logs/printed_lines.rs",
            &["types", "core::logfmt::entry", "client::logs", "screen::scan"],
        ),
    ];
    for (module, may) in rules {
        let files: Vec<_> =
            sources().into_iter().filter(|(path, _)| path.starts_with(module)).collect();
        assert!(!files.is_empty(), "{module} is no longer where it was");
        for (path, text) in files.iter().filter(|(path, _)| !path.ends_with("tests.rs")) {
            for used in uses(path, text).iter().map(|used| used.join("::")) {
                let allowed = may.iter().any(|may| used.starts_with(may));
                assert!(allowed, "{} uses crate::{used}", path.display());
            }
            // Which appends to a vector, too.
            let text = text.replace("std::io::Write", "");
            for system in ["nix", "rustix", "std::fs", "std::io", "std::os", "std::net"] {
                let used =
                    text.contains(&format!("{system}::")) || text.contains(&format!("{system};"));
                assert!(!used, "{} uses {system}", path.display());
            }
            for clock in ["Instant::now", "SystemTime::now", "Now::read"] {
                assert!(!text.contains(clock), "{} reads the clock", path.display());
            }
        }
    }
}

/// The names in the code map at the head of a module, from above down.
fn code_map(text: &str) -> Vec<&str> {
    let rows = text.lines().filter(|line| line.starts_with("//! | [`"));
    rows.flat_map(|row| row.split("[`").skip(1).filter_map(|at| at.split('`').next())).collect()
}

/// The code map at the head of the library, and of each module that has one, is an order: a module knows
/// only those below it.
#[test]
fn no_module_knows_one_above_it() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let sources = sources();
    let modules: BTreeSet<Vec<String>> = sources.iter().map(|(path, _)| module_of(path)).collect();
    let mut maps = 0;
    for (path, _) in
        sources.iter().filter(|(path, _)| path.ends_with("mod.rs") || path.ends_with("lib.rs"))
    {
        let text = fs::read_to_string(root.join(path)).unwrap();
        let order = code_map(&text);
        let parent = module_of(path);
        if order.is_empty() {
            assert!(!parent.is_empty(), "the code map was not found");
            continue;
        }
        maps += 1;
        let child = |module: &[String]| -> Option<usize> {
            let name = module.get(parent.len()).filter(|_| module.starts_with(&parent))?;
            let known = order.iter().position(|known| known == name);
            let is_module = modules.contains(&module[..=parent.len()]) && name != "main";
            assert!(
                known.is_some() || !is_module,
                "{name} has no place in the map of {}",
                path.display()
            );
            known
        };
        for (user, text) in &sources {
            let Some(here) = child(&module_of(user)) else { continue };
            for used in uses(user, text) {
                if let Some(there) = child(&used) {
                    let used = used.join("::");
                    assert!(
                        there >= here,
                        "{} uses crate::{used}, which is above it",
                        user.display()
                    );
                }
            }
        }
    }
    assert!(maps >= 7, "code maps were not found");
}

/// The parts of a mux do not know each other, nor the loop: only the loop carries between them.
#[test]
fn the_parts_of_a_mux_do_not_know_each_other() {
    let parts = ["admission", "app", "app_files", "clients", "engine", "logs", "terminal"];
    let sources = sources();
    for part in parts {
        let home = ["mux".to_owned(), part.to_owned()];
        let files: Vec<_> =
            sources.iter().filter(|(path, _)| module_of(path).starts_with(&home)).collect();
        assert!(!files.is_empty(), "mux::{part} is no longer where it was");
        for (path, text) in files {
            for used in uses(path, text).iter().filter(|used| used.starts_with(&home[..1])) {
                let name = used.get(1).map_or("", String::as_str);
                let is_other = parts.iter().any(|other| *other == name && *other != part);
                let allowed = !is_other && !["event_loop", "Mux"].contains(&name);
                assert!(allowed, "{} uses crate::{}", path.display(), used.join("::"));
            }
        }
    }
}

/// A term of the glossary stands beside the type or the module that has it.
#[test]
fn the_glossary_names_what_there_is() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let page = fs::read_to_string(root.join("docs/dev/architecture.md")).unwrap();
    let (_, glossary) = page.split_once("\n## Glossary\n").unwrap();
    let sources = sources();
    let has_type = |(_, text): &&(PathBuf, String), name: &str| {
        let mut pairs = text.split(|c: char| !c.is_alphanumeric()).collect::<Vec<_>>().into_iter();
        let kinds = ["struct", "enum", "trait", "type"];
        std::iter::from_fn(|| pairs.find(|word| kinds.contains(word)).and_then(|_| pairs.next()))
            .any(|word| word == name)
    };
    let is_type = |name: &str| name.starts_with(|first: char| first.is_ascii_uppercase());
    let mut wrong = Vec::new();
    for place in glossary.lines().filter_map(|line| line.split(" | ").nth(2)) {
        for name in place.split('`').skip(1).step_by(2) {
            let mut path: Vec<String> = name.split("::").map(str::to_owned).collect();
            if !is_type(name) && path.len() < 2 {
                continue;
            }
            let last = path.pop_if(|last| is_type(last));
            let mut below = sources.iter().filter(|(file, _)| module_of(file).starts_with(&path));
            let is_there = match &last {
                Some(last) => below.any(|source| has_type(&source, last)),
                None => below.next().is_some(),
            };
            if !is_there {
                wrong.push(name);
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:?}");
}

/// The steps in which a room may grow, lines.
const STEP: usize = 100;

/// A room that grows, or shrinks, by more than a step has its number edited: the commit says why.
#[test]
fn the_rooms_have_the_sizes_that_the_code_map_says() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let page = fs::read_to_string(root.join("docs/dev/architecture.md")).unwrap();
    let (mut rooms, mut wrong) = (0, Vec::new());
    let sources = sources();
    for row in page.lines().filter(|line| line.starts_with("| `")) {
        let Some((room, rest)) = row[3..].split_once("/` |") else { continue };
        let said = rest.trim_end_matches(" |").rsplit("| ").next().unwrap().replace(',', "");
        let Ok(said) = said.parse::<usize>() else { continue };
        rooms += 1;
        let files = sources.iter().filter(|(path, _)| {
            let is_test = path.file_stem().is_some_and(|it| {
                let name = it.to_str().unwrap();
                name == "tests" || name.ends_with("_model")
            });
            path.starts_with(room) && !is_test
        });
        let code = files.flat_map(|(_, text)| text.lines().filter(|line| !line.trim().is_empty()));
        let size = code.count().div_ceil(STEP) * STEP;
        if size != said {
            wrong.push(format!("{room}: {size}, not {said}"));
        }
    }
    assert_eq!(rooms, 10);
    assert!(wrong.is_empty(), "the lines of docs/dev/architecture.md are others: {wrong:?}");
}
