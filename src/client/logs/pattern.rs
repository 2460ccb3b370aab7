//! The pattern of --grep: a text, or a regular expression. No I/O, no clock.

use memchr::memmem::Finder;
use regex_lite::{Regex, RegexBuilder};

use crate::types::limits;

/// See the module.
#[derive(Clone, Debug)]
pub(crate) enum Pattern {
    /// Searching for this is tens of times faster than the expression. Whether the case counts.
    Text(Box<Finder<'static>>, bool),
    Regex(Regex),
}

impl Pattern {
    /// Parses a regular expression. Without capital letters it ignores the case of ASCII letters, as
    /// in journalctl.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let has_case = text.contains(char::is_uppercase);
        let regex =
            RegexBuilder::new(text).case_insensitive(!has_case).size_limit(limits::PATTERN).build();
        let regex = regex.map_err(|e| format!("expected a regular expression: {e}"))?;
        // What U+FFFD stands for is not in the line.
        let is_text = regex_lite::escape(text) == text && !text.contains('\u{fffd}');
        Ok(if is_text {
            Self::Text(Box::new(Finder::new(text).into_owned()), has_case)
        } else {
            Self::Regex(regex)
        })
    }

    /// Whether a line matches. Bytes that are not UTF-8 are U+FFFD to the expression.
    pub(super) fn matches(&self, line: &[u8]) -> bool {
        match self {
            Self::Text(text, true) => text.find(line).is_some(),
            Self::Text(text, false) => text.find(&line.to_ascii_lowercase()).is_some(),
            Self::Regex(regex) => regex.is_match(&String::from_utf8_lossy(line)),
        }
    }
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
    fn text_is_searched_for_without_the_expression() {
        for (pattern, is_text) in [("joined the", true), ("a.b", false), ("a\u{fffd}", false)] {
            let parsed = Pattern::parse(pattern).unwrap();
            assert_eq!(matches!(parsed, Pattern::Text(..)), is_text, "{pattern}");
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
