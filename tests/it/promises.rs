//! The table of what the pages promise (`tests/promises.txt`): its words are in the pages, its tests
//! exist.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

const ROOT: &str = env!("CARGO_MANIFEST_DIR");
const CONDITIONS: [&str; 8] =
    ["idle", "flood", "load", "killed", "gone", "full", "other-user", "restart"];

/// A page as one line.
fn page(name: &str) -> String {
    let path = if name == "README.md" { name.to_owned() } else { format!("docs/{name}") };
    let text = fs::read_to_string(Path::new(ROOT).join(path)).unwrap();
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Whether a function of this name is in the file of its module, or in the one around it; or the
/// script of this path can be executed.
fn exists(test: &str) -> bool {
    if test.contains('/') {
        let there = fs::metadata(Path::new(ROOT).join(test));
        return there.is_ok_and(|there| there.is_file() && there.permissions().mode() & 0o111 != 0);
    }
    let mut modules: Vec<&str> = test.split("::").collect();
    let function = modules.pop().unwrap();
    let suite = modules.remove(0);
    let dir = Path::new(ROOT).join(if suite == "lib" { "src" } else { "tests" });
    let dir = if suite == "lib" { dir } else { dir.join(suite) };
    let is_in = |path: &Path| {
        let Ok(text) = fs::read_to_string(path) else { return false };
        ["(", "<"].iter().any(|end| text.contains(&format!("fn {function}{end}")))
    };
    let path = modules.iter().fold(dir, |dir, module| dir.join(module));
    let around = path.parent().unwrap().to_owned();
    let (own, of_tests) = (path.with_extension("rs"), around.with_extension("rs"));
    [own, path.join("mod.rs"), path.join("main.rs"), of_tests, around.join("mod.rs")]
        .iter()
        .any(|path| is_in(path))
}

#[test]
fn each_promise_is_in_its_page_and_has_its_tests() {
    let table = fs::read_to_string(Path::new(ROOT).join("tests/promises.txt")).unwrap();
    let mut pages = BTreeMap::new();
    let mut wrong = Vec::new();
    for line in table.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let fields: Vec<&str> = line.split(" | ").collect();
        let [name, words, tests, conditions] = fields[..] else { panic!("{line}") };
        let page = pages.entry(name.to_owned()).or_insert_with(|| page(name));
        if page.matches(words).count() != 1 {
            wrong.push(format!("not once in {name}: {words}"));
        }
        let missing = tests.split(',').filter(|test| !exists(test));
        wrong.extend(missing.map(|test| format!("no test {test} for: {words}")));
        let unknown = conditions.split(',').filter(|condition| !CONDITIONS.contains(condition));
        wrong.extend(unknown.map(|condition| format!("unknown condition {condition}: {words}")));
    }
    assert_eq!(wrong, Vec::<String>::new());
}
