//! The pattern of --grep: a regular expression, and the text that each match contains. No I/O, no
//! clock.
//!
//! A search for the text alone is tens of times faster than the expression, so that looks only at
//! lines that contain the text.

use memchr::memmem::Finder;
use regex_lite::{Regex, RegexBuilder};

use crate::types::limits;

/// See the module.
#[derive(Clone, Debug)]
pub(crate) struct Pattern {
    /// Text that each match contains, in this order, without overlaps.
    literals: Vec<Finder<'static>>,
    /// The expression, if it says more than that.
    regex: Option<Regex>,
    ignores_case: bool,
}

impl Pattern {
    /// Parses a regular expression. Without capital letters it ignores the case of ASCII letters, as
    /// in journalctl.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let ignores_case = !text.contains(char::is_uppercase);
        let regex = RegexBuilder::new(text)
            .case_insensitive(ignores_case)
            .size_limit(limits::PATTERN)
            .build();
        let regex = regex.map_err(|e| format!("expected a regular expression: {e}"))?;
        let (literals, is_all) = literals(text).unwrap_or_default();
        let literals = literals.iter().map(|text| Finder::new(text).into_owned()).collect();
        Ok(Self { literals, regex: (!is_all).then_some(regex), ignores_case })
    }

    /// Whether a line matches. Bytes that are not UTF-8 are U+FFFD to the expression.
    pub(super) fn matches(&self, line: &[u8]) -> bool {
        let contains = |mut text: &[u8]| {
            self.literals.iter().all(|literal| {
                let found = literal.find(text);
                text = found.map_or(text, |at| &text[at + literal.needle().len()..]);
                found.is_some()
            })
        };
        let contains_all =
            if self.ignores_case { contains(&line.to_ascii_lowercase()) } else { contains(line) };
        contains_all
            && self.regex.as_ref().is_none_or(|it| it.is_match(&String::from_utf8_lossy(line)))
    }
}

/// The text that each match of an expression contains, and whether that is all that it says. `None`
/// for expressions with groups, classes and the like, which are not looked into.
fn literals(pattern: &str) -> Option<(Vec<String>, bool)> {
    let mut runs = vec![String::new()];
    let mut is_all = true;
    let mut rest = pattern.chars();
    while let Some(c) = rest.next() {
        let literal = match c {
            // What U+FFFD stands for is not in the line.
            '(' | ')' | '[' | ']' | '{' | '}' | '|' | '\u{fffd}' => return None,
            '.' | '^' | '$' => None,
            // Also `+`, which another one may follow.
            '*' | '?' | '+' => {
                runs.last_mut()?.pop();
                None
            }
            '\\' => match rest.next()? {
                escaped if escaped.is_ascii_punctuation() => Some(escaped),
                'd' | 'D' | 's' | 'S' | 'w' | 'W' | 'b' | 'B' => None,
                _ => return None,
            },
            c => Some(c),
        };
        match literal {
            Some(c) => runs.last_mut()?.push(c),
            None => {
                is_all = false;
                runs.push(String::new());
            }
        }
    }
    runs.retain(|run| !run.is_empty());
    Some((runs, is_all))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn case_counts_with_capital_letters() {
        let matches =
            |pattern: &str, line: &str| Pattern::parse(pattern).unwrap().matches(line.as_bytes());
        assert!(matches("error", "an Error") && !matches("Error", "an error"));
        assert!(matches("größe", "GRößE") && Pattern::parse("(").is_err());
    }

    #[test]
    fn text_is_found_in_patterns() {
        let found =
            |pattern: &str| literals(pattern).map(|(runs, is_all)| (runs.join("/"), is_all));
        for (pattern, want, is_all) in [
            ("", "", true),
            ("joined the", "joined the", true),
            (r"\[info\] done", "[info] done", true),
            (r"^player.\d+ joi?ned$", "player/ jo/ned", false),
            ("colou?r.*grün+e", "colo/r/grü/e", false),
        ] {
            assert_eq!(found(pattern), Some((want.to_owned(), is_all)), "{pattern}");
        }
        for pattern in ["a|b", "(ab)?", "[ab]c", "a{0}b", r"\x41", "a\u{fffd}"] {
            assert_eq!(found(pattern), None, "{pattern}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 4096, failure_persistence: None, ..Default::default() })]
        #[test]
        fn lines_match_as_the_expression_says(
            pattern in r"([abA.^$+*?\\(|)dwß -]|a[+*?]|\\[.*d]){0,6}",
            line in proptest::collection::vec(
                prop_oneof![Just(b'a'), Just(b'b'), Just(b'A'), Just(b'.'), Just(b'*'), Just(b'1'),
                            Just(b'-'), Just(0xc3), Just(0x9f), Just(b' ')], 0..12)
        ) {
            let Ok(parsed) = Pattern::parse(&pattern) else { return Ok(()) };
            let ignores_case = !pattern.contains(char::is_uppercase);
            let oracle = RegexBuilder::new(&pattern).case_insensitive(ignores_case).build().unwrap();
            prop_assert_eq!(
                parsed.matches(&line),
                oracle.is_match(&String::from_utf8_lossy(&line)),
                "{}", pattern
            );
        }
    }
}
