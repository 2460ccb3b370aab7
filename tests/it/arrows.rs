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

/// The words after each `what` in a text, up to what is no letter: `crate::hub` gives `hub`.
fn words_after<'a>(text: &'a str, what: &'a str) -> impl Iterator<Item = &'a str> {
    text.match_indices(what).flat_map(move |(at, _)| {
        let rest = &text[at + what.len()..];
        let grouped = rest.strip_prefix('{').and_then(|r| r.split('}').next());
        let names = grouped.map_or_else(|| vec![rest], |group| group.split(',').collect());
        names.into_iter().map(|name| {
            let name = name.trim_start();
            let end = name.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(name.len());
            &name[..end]
        })
    })
}

#[test]
fn only_one_module_has_unsafe() {
    for (path, text) in sources() {
        let has = text.split(|c: char| !c.is_alphanumeric() && c != '_').any(|w| w == "unsafe");
        assert_eq!(has, path == Path::new("sys.rs"), "{}", path.display());
    }
}

#[test]
fn only_one_module_knows_the_emulator() {
    for (path, text) in sources() {
        assert_eq!(
            text.contains("vt100::"),
            path == Path::new("screen/model.rs"),
            "{}",
            path.display()
        );
    }
}

/// Which modules of this crate a pure one may know, and that it knows nothing of the system.
#[test]
fn the_pure_modules_know_nothing_of_the_system() {
    let rules: [(&str, &[&str]); 17] = [
        ("hub", &["limits", "proto", "stream", "time", "hub"]),
        ("screen", &["limits", "proto", "screen"]),
        ("attach/undo.rs", &["screen"]),
        ("proto", &["limits", "stream"]),
        ("rights.rs", &[]),
        ("name.rs", &[]),
        ("service.rs", &["name"]),
        ("stream.rs", &[]),
        ("limits.rs", &[]),
        ("exit.rs", &[]),
        ("attach/keys.rs", &["limits"]),
        ("attach/page.rs", &["name", "proto"]),
        ("attach/mode.rs", &["stream"]),
        ("logs/entry.rs", &["stream", "time"]),
        ("logs/lines.rs", &["escape", "stream", "time"]),
        ("attach/filter.rs", &["limits", "screen"]),
        ("escape.rs", &[]),
    ];
    for (module, may) in rules {
        let files: Vec<_> =
            sources().into_iter().filter(|(path, _)| path.starts_with(module)).collect();
        assert!(!files.is_empty(), "{module} is no longer where it was");
        for (path, text) in files.iter().filter(|(path, _)| !path.ends_with("tests.rs")) {
            for name in words_after(text, "crate::") {
                assert!(may.contains(&name), "{} uses crate::{name}", path.display());
            }
            for system in ["tokio", "nix", "rustix", "std::fs", "std::io", "std::os", "std::net"] {
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

/// The code map at the head of the library is the order: a module knows only those after it.
#[test]
fn no_module_knows_one_above_it() {
    let lib = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/lib.rs");
    let map = fs::read_to_string(lib).unwrap();
    let rows = map.lines().filter(|line| line.starts_with("//! | [`"));
    let order: Vec<&str> = ["lib", "main"]
        .into_iter()
        .chain(rows.flat_map(|row| row.split("[`").skip(1).filter_map(|at| at.split('`').next())))
        .collect();
    assert!(order.len() > 20, "the code map was not found");
    let row = |module: &str| order.iter().position(|name| *name == module);
    let mut unknown = BTreeSet::new();
    for (path, text) in sources() {
        let top = path.components().next().unwrap().as_os_str().to_str().unwrap();
        let module = top.trim_end_matches(".rs").to_owned();
        let Some(here) = row(&module) else {
            unknown.insert(module);
            continue;
        };
        for name in words_after(&text, "crate::").filter(|name| *name != module) {
            let Some(there) = row(name) else {
                unknown.insert(name.to_owned());
                continue;
            };
            assert!(there > here, "{} uses crate::{name}, which is above it", path.display());
        }
    }
    assert!(unknown.is_empty(), "give these modules their place in the order: {unknown:?}");
}
