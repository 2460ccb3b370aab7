//! The table of programs (`programs.txt`).

use crate::unescape::unescape;

const TABLE: &str = include_str!("programs.txt");

/// Keys, and a text that is shown then.
#[derive(Default)]
pub struct Step {
    pub keys: Vec<u8>,
    pub shows: String,
}

#[derive(Default)]
pub struct Program {
    pub name: String,
    /// Whether the short form runs it.
    pub is_short: bool,
    pub needs: Vec<String>,
    pub run: String,
    pub start: Step,
    pub live: Step,
    pub larger: Step,
    pub smaller: Step,
    pub away: Step,
}

/// The programs, as they are in the table.
pub fn programs() -> Vec<Program> {
    let mut all: Vec<Program> = Vec::new();
    for line in TABLE.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        let rest = rest.trim();
        let last = all.last_mut();
        match (word, last) {
            ("program", _) => {
                let mut words = rest.split(' ').map(str::to_owned);
                let name = words.next().unwrap();
                let mut needs: Vec<String> = words.collect();
                let is_short = needs.pop_if(|word| word == "short").is_some();
                if needs.is_empty() {
                    needs.push(name.clone());
                }
                all.push(Program { name, is_short, needs, ..Program::default() });
            }
            ("run", Some(last)) => rest.clone_into(&mut last.run),
            ("start", Some(last)) => last.start = step(rest),
            ("live", Some(last)) => last.live = step(rest),
            ("larger", Some(last)) => last.larger = step(rest),
            ("smaller", Some(last)) => last.smaller = step(rest),
            ("away", Some(last)) => last.away = step(rest),
            _ => panic!("what is this: {line}"),
        }
    }
    all
}

/// `KEYS -> TEXT`, or one of both.
fn step(text: &str) -> Step {
    let (keys, shows) = text.split_once("->").unwrap_or((text, ""));
    Step { keys: unescape(keys.trim()), shows: shows.trim().to_owned() }
}
