//! The commands in the documents, as the command line reads them, and their links.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use clap::error::ErrorKind;

const ROOT: &str = env!("CARGO_MANIFEST_DIR");
/// What a shell reads as the end of a command.
const ENDS: [char; 7] = ['|', '&', ';', '<', '>', '(', ')'];

/// The pages, but for the one that shows what does not work.
fn pages() -> Vec<(String, String)> {
    let names = ["README.md", "CONTRIBUTING.md", "SECURITY.md"].map(str::to_owned);
    let docs = fs::read_dir(Path::new(ROOT).join("docs")).unwrap();
    let docs = docs.map(|entry| format!("docs/{}", entry.unwrap().file_name().display()));
    let is_page = |name: &String| {
        Path::new(name).extension().is_some_and(|e| e == "md") && name != "docs/habits.md"
    };
    let text = |name: String| {
        let text = fs::read_to_string(Path::new(ROOT).join(&name)).unwrap();
        (name, text)
    };
    names.into_iter().chain(docs).filter(is_page).map(text).collect()
}

/// The lines that are typed, and the commands in the text.
fn typed(page: &str) -> Vec<String> {
    let mut typed = Vec::new();
    for (number, part) in page.split("```").enumerate() {
        if number % 2 == 1 {
            let joined = part.replace("\\\n", " ");
            let prompted = |line: &str| {
                let line = line.strip_prefix("# ").or_else(|| line.strip_prefix("$ "))?;
                Some(line.split("  #").next().unwrap_or_default().to_owned())
            };
            typed.extend(joined.lines().filter_map(prompted));
        } else {
            // A command may be broken at the end of a line of text.
            let spans = part.split('`').skip(1).step_by(2);
            typed.extend(spans.map(|span| span.split_whitespace().collect::<Vec<_>>().join(" ")));
        }
    }
    typed
}

/// The words of each command of this program in a line of a shell.
fn commands(line: &str) -> Vec<Vec<String>> {
    let (mut all, mut words, mut word) = (Vec::new(), Vec::new(), None::<String>);
    let mut quote = None;
    for c in line.chars().chain([';']) {
        match quote {
            Some(end) if c == end => quote = None,
            Some(_) => word.get_or_insert_default().push(c),
            None if c == '\'' || c == '"' => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            None if c == ' ' || ENDS.contains(&c) => {
                words.extend(word.take());
                if c != ' ' {
                    all.push(std::mem::take(&mut words));
                }
            }
            None => word.get_or_insert_default().push(c),
        }
    }
    let is_own = |word: &String| word == "iottymux" || word.ends_with("/bin/iottymux");
    let own = |words: Vec<String>| {
        // Behind `sudo`, but not as the name of kubectl's plugin.
        let at = words.iter().take(2).position(is_own).filter(|_| words[0] != "kubectl")?;
        let example = |word: &String| match word.as_str() {
            "NAME" | "ID" | "COMMAND" => "attach".to_owned(),
            word => word.to_owned(),
        };
        Some(words[at..].iter().map(example).collect())
    };
    all.into_iter().filter_map(own).filter(|words: &Vec<_>| words.len() > 1).collect()
}

/// No option or command that a page names has another name by now.
#[test]
fn each_command_of_the_pages_is_understood() {
    let (mut wrong, mut found) = (Vec::new(), 0);
    for (name, text) in pages() {
        for line in typed(&text).iter().filter(|line| !line.contains('…')) {
            for words in commands(line) {
                found += 1;
                // Not on the command line: only the mux starts it.
                if words[1] == "journal-writer" {
                    continue;
                }
                let Err(e) = iottymux::command_line().try_get_matches_from(&words) else {
                    continue;
                };
                // The text may name a command or an option without the rest.
                let is_read = matches!(
                    e.kind(),
                    ErrorKind::DisplayHelp
                        | ErrorKind::DisplayVersion
                        | ErrorKind::MissingRequiredArgument
                );
                if !is_read {
                    wrong.push(format!("{name}: {words:?}: {}", e.to_string().replace('\n', " ")));
                }
            }
        }
    }
    assert_eq!(wrong, Vec::<String>::new());
    assert!(found > 150, "{found}");
}

/// The name by which a link finds a heading.
fn anchor(heading: &str) -> String {
    let text = heading.replace(' ', "-").to_lowercase();
    text.chars().filter(|c| c.is_alphanumeric() || "-_".contains(*c)).collect()
}

#[test]
fn each_link_to_a_heading_finds_it() {
    let mut pages = pages();
    pages.push(("docs/habits.md".to_owned(), String::new()));
    for name in ["architecture", "decisions", "measurements", "releasing"] {
        let name = format!("docs/dev/{name}.md");
        pages.push((name.clone(), fs::read_to_string(Path::new(ROOT).join(name)).unwrap()));
    }
    let headings = |text: &str| -> Vec<String> {
        let outside = text.split("```").step_by(2);
        let lines = outside.flat_map(str::lines).filter(|line| line.starts_with('#'));
        lines.map(|line| anchor(line.trim_start_matches('#').trim_start())).collect()
    };
    let (mut wrong, mut found) = (Vec::new(), 0);
    for (name, text) in &pages {
        for link in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let Some((file, to)) = link.split_once('#').filter(|_| !link.contains("://")) else {
                continue;
            };
            let file = file.rsplit('/').next().unwrap_or_default();
            let is_it = |page: &String| {
                if file.is_empty() { page == name } else { page.ends_with(&format!("/{file}")) }
            };
            let page = pages.iter().find(|(page, _)| is_it(page));
            found += 1;
            if !page.is_some_and(|(_, text)| headings(text).iter().any(|heading| heading == to)) {
                wrong.push(format!("{name}: {link}"));
            }
        }
    }
    assert_eq!(wrong, Vec::<String>::new());
    assert!(found > 80, "{found}");
}

/// A reader looks there.
#[test]
fn each_test_that_a_page_names_exists() {
    for (name, page) in pages() {
        for path in page.split('`').skip(1).step_by(2).filter(|span| span.starts_with("tests/")) {
            let is_plain = path.bytes().all(|b| b.is_ascii_alphanumeric() || b"/._-".contains(&b));
            assert!(!is_plain || Path::new(ROOT).join(path).exists(), "{name}: {path}");
        }
    }
}

/// The line of facts in the README. `.ci/check-static` compares the size.
#[test]
fn the_facts_of_the_readme() {
    let read = |name: &str| fs::read_to_string(Path::new(ROOT).join(name)).unwrap();
    let readme = read("README.md").split_whitespace().collect::<Vec<_>>().join(" ");
    let mut tree = Command::new(env!("CARGO"));
    tree.args(["tree", "--locked", "--offline", "--prefix=none", "--edges=normal,no-proc-macro"]);
    let tree = tree.args(["--target=x86_64-unknown-linux-gnu"]).current_dir(ROOT).output().unwrap();
    let tree = String::from_utf8(tree.stdout).unwrap();
    let crates = tree.lines().filter_map(|line| line.split(" (").next()).skip(1);
    let crates = crates.collect::<BTreeSet<_>>().len();
    let calls = read("src/sys/calls.rs");
    let places = calls.split("\n#[cfg(test)]").next().unwrap().matches("unsafe {").count();
    // Each row of a system is a version on which the tests passed.
    let systems = read("docs/dev/measurements.md");
    let rows =
        systems.lines().filter(|line| line.starts_with("| Debian ") && line.contains(" of "));
    let version =
        |row: &str| row.split(" | ").nth(1).unwrap().split('.').next().unwrap().to_owned();
    let versions: Vec<String> = rows.map(version).collect();
    let (last, before) = versions.split_last().unwrap();
    for fact in [
        format!("with the code of {crates} crates "),
        format!("`unsafe` in {places} places of one file"),
        format!("with systemd {} and {last} on x86-64,", before.join(", ")),
        format!("version {}.", env!("CARGO_PKG_VERSION").rsplit_once('.').unwrap().0),
    ] {
        assert!(readme.contains(&fact), "README.md does not say: {fact}");
    }
}
