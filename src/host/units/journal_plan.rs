//! The journal of an attachable service: lines that went to the journal before still do.
//!
//! [`JournalPlan::settle`] reads the settings of the service before anything is written. Our
//! drop-in overrides these settings, so it also remembers them.

use super::unit_text::value;
use super::{MuxUnit, UnitKind, Variable};
use crate::core::logfmt::syslog::{DAEMON, INFO, is_identifier};
use crate::sys::systemd::bus::Properties;
use crate::types::stream::Stream;

/// The settings of a service that decide how its lines get into the journal.
pub(crate) const PROPERTIES: [&str; 11] = [
    "StandardOutput",
    "StandardError",
    "SyslogIdentifier",
    "SyslogLevel",
    "SyslogFacility",
    "SyslogLevelPrefix",
    "LogNamespace",
    "LogLevelMax",
    "LogRateLimitIntervalUSec",
    "LogRateLimitBurst",
    "ExecStart",
];
/// A section of our drop-in that systemd ignores (systemd.unit(5)), and its lines.
const SECTION: &str = "X-Iottymux";
const OUTPUT_WAS: &str = "OutputWas=";
const ERROR_WAS: &str = "ErrorWas=";
/// The variable that names the logs of a mux.
const LOGS: &str = "IOTTYMUX_LOG";

/// Whether the lines of a service go to the journal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum JournalChoice {
    /// If they went there before.
    #[default]
    AsBefore,
    Never,
    Always,
}

/// How the lines of a service get into the journal.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct JournalPlan {
    /// Whether they shall.
    pub(crate) choice: JournalChoice,
    /// The service's settings, if systemd was asked.
    facts: Option<Facts>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Facts {
    /// `StandardOutput=` and `StandardError=` of the service's own files.
    was: [String; 2],
    identifier: Option<String>,
    level: u8,
    facility: u8,
    takes_prefix: bool,
    /// Lines for the unit of the mux.
    limits: Vec<String>,
}

impl JournalPlan {
    /// A plan without the service's settings.
    pub(crate) fn new(choice: JournalChoice) -> Self {
        Self { choice, facts: None }
    }

    /// Whether the service's settings are known.
    pub(crate) fn is_settled(&self) -> bool {
        self.facts.is_some()
    }

    /// Takes the service's settings from its [`PROPERTIES`], and our drop-in, if there is one.
    pub(crate) fn settle(&mut self, shown: &Properties, drop_in: Option<&str>) {
        let number =
            |name, usual| shown.number(name).and_then(|n| n.try_into().ok()).unwrap_or(usual);
        let remembered = |key, name| {
            let line =
                drop_in.and_then(|text| text.lines().find_map(|line| line.strip_prefix(key)));
            line.unwrap_or_else(|| shown.text(name)).to_owned()
        };
        // `units` writes this line for a stream in the journal.
        let identifier = shown.text("SyslogIdentifier");
        let line = format!("SyslogIdentifier={identifier}");
        let is_ours = drop_in.is_some_and(|text| text.lines().any(|had| had == line));
        let own = Some(identifier).filter(|name| !is_ours && !name.is_empty());
        // Without one, systemd takes the name of the program.
        let identifier = own.or_else(|| shown.program("ExecStart").rsplit('/').next());
        let limit = |name: &str, key: &str, unit: &str, usual: i64| {
            let number = shown.number(name).filter(|number| *number != usual)?;
            Some(format!("{key}={number}{unit}"))
        };
        let namespace = Some(shown.text("LogNamespace")).filter(|name| !name.is_empty());
        let limits = [
            namespace.map(|name| format!("LogNamespace={}", value(name))),
            limit("LogLevelMax", "LogLevelMax", "", -1),
            limit("LogRateLimitIntervalUSec", "LogRateLimitIntervalSec", "us", 0),
            limit("LogRateLimitBurst", "LogRateLimitBurst", "", 0),
        ];
        self.facts = Some(Facts {
            was: [remembered(OUTPUT_WAS, "StandardOutput"), remembered(ERROR_WAS, "StandardError")],
            identifier: identifier.filter(|name| is_identifier(name)).map(str::to_owned),
            level: number("SyslogLevel", INFO),
            facility: number("SyslogFacility", DAEMON),
            takes_prefix: shown.number("SyslogLevelPrefix") != Some(0),
            limits: limits.into_iter().flatten().collect(),
        });
    }

    /// Whether the lines of this stream go to the journal.
    fn takes(&self, stream: Stream) -> bool {
        match (self.choice, &self.facts) {
            (JournalChoice::Never, _) | (JournalChoice::AsBefore, None) => false,
            (JournalChoice::Always, _) => true,
            (JournalChoice::AsBefore, Some(Facts { was: [output, error], .. })) => {
                let inherits = stream == Stream::Stderr && error != "inherit";
                is_journal(if inherits { error } else { output })
            }
        }
    }

    /// The `--log` of a mux for the journal.
    fn spec(&self, mux: &MuxUnit) -> Option<String> {
        let outputs = mux.streams.iter().filter(|stream| **stream != Stream::Stdin);
        let (takes, leaves): (Vec<Stream>, Vec<Stream>) = outputs.partition(|s| self.takes(**s));
        match &takes[..] {
            [] => None,
            [one] if !leaves.is_empty() && mux.kind == UnitKind::Streams => {
                Some(format!("journal:{one}"))
            }
            _ => Some("journal".to_owned()),
        }
    }

    /// Adds the variables that a mux needs for the journal.
    pub(crate) fn add_to(&self, variables: &mut Vec<Variable>, mux: &MuxUnit) {
        let Some(mut spec) = self.spec(mux) else { return };
        if let Some(at) = variables.iter().position(|variable| variable.name == LOGS) {
            spec = format!("{spec},{}", variables.remove(at).value);
        }
        let mut set = |name: &str, value: String| {
            if variables.iter().all(|variable| variable.name != name) {
                let (name, kinds, is_log) = (name.to_owned(), vec![mux.kind], true);
                variables.push(Variable { name, value, kinds, is_log });
            }
        };
        if let Some(facts) = &self.facts {
            if facts.level != INFO {
                set("IOTTYMUX_SYSLOG_LEVEL", facts.level.to_string());
            }
            if !facts.takes_prefix {
                set("IOTTYMUX_SYSLOG_KEEP_PREFIX", "true".to_owned());
            }
            if facts.facility != DAEMON {
                set("IOTTYMUX_SYSLOG_FACILITY", facts.facility.to_string());
            }
            if let Some(identifier) = &facts.identifier {
                set("IOTTYMUX_SYSLOG_IDENTIFIER", identifier.clone());
            }
        }
        set(LOGS, spec);
    }

    /// The lines of the unit of a mux that sends its lines to the journal: journald applies the
    /// limits of the unit that sends.
    pub(crate) fn limits(&self, mux: &MuxUnit) -> &[String] {
        let facts = self.facts.as_ref().filter(|_| self.spec(mux).is_some());
        facts.map_or(&[], |facts| &facts.limits)
    }

    /// The section of our drop-in that remembers the service's settings.
    pub(crate) fn memory(&self) -> String {
        let Some(Facts { was: [output, error], .. }) = &self.facts else { return String::new() };
        format!("\n[{SECTION}]\n{OUTPUT_WAS}{output}\n{ERROR_WAS}{error}\n")
    }
}

/// Whether systemd writes such an output to the journal. `kmsg` and `+console` also copy the lines
/// to the kernel's log and the console. `enable --force` drops these copies and keeps the journal.
fn is_journal(output: &str) -> bool {
    matches!(output.split('+').next(), Some("journal" | "syslog" | "kmsg"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::systemd::bus::Value;

    fn settled(shown: &[(&'static str, &str)], drop_in: Option<&str>) -> JournalPlan {
        let text = |text: &str| Value::Text(text.to_owned());
        let command = Value::Many(["/usr/sbin/my d", "/usr/sbin/my d", "-x"].map(text).into());
        let shown = shown.iter().map(|(name, value)| (*name, text(value)));
        let mut journal = JournalPlan::default();
        journal.settle(&shown.chain([("ExecStart", command)]).collect(), drop_in);
        journal
    }

    #[test]
    fn what_went_to_the_journal_before() {
        for (output, error, stdout, stderr) in [
            ("journal", "inherit", true, true),
            ("journal+console", "inherit", true, true),
            ("kmsg", "null", true, false),
            ("null", "kmsg+console", false, true),
            ("journal", "null", true, false),
            ("null", "journal", false, true),
            ("null", "inherit", false, false),
            ("append:/x", "inherit", false, false),
            ("inherit", "inherit", false, false),
            ("socket", "journal", false, true),
        ] {
            let was = [("StandardOutput", output), ("StandardError", error)];
            let journal = settled(&was, None);
            let takes = [Stream::Stdout, Stream::Stderr].map(|stream| journal.takes(stream));
            assert_eq!(takes, [stdout, stderr], "{output} {error}");
            // It is remembered, whatever our own drop-in says by then.
            let now = [("StandardOutput", "file:/x"), ("StandardError", "file:/y")];
            assert_eq!(settled(&now, Some(&journal.memory())), journal);
        }
        let never = JournalPlan {
            choice: JournalChoice::Never,
            ..settled(&[("StandardOutput", "journal")], None)
        };
        assert!(!never.takes(Stream::Stdout));
    }

    #[test]
    fn the_name_of_the_program() {
        let of = |shown: &[(&'static str, &str)], drop_in| {
            settled(shown, drop_in).facts.unwrap().identifier
        };
        assert_eq!(of(&[], None).as_deref(), Some("my d"));
        let named = [("SyslogIdentifier", "web")];
        assert_eq!(of(&named, None).as_deref(), Some("web"));
        // This is the name that iottymux gave it.
        assert_eq!(of(&named, Some("SyslogIdentifier=web\n")).as_deref(), Some("my d"));
    }
}
