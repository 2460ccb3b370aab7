//! `metrics`: the state of all apps in the text format of Prometheus.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use anyhow::Result;

use super::each;
use super::status::Known;
use crate::sys::documents::container::Container;
use crate::sys::print::print;
use crate::sys::state::{AppDir, StateDir};
use crate::types::escape;
use crate::types::kubernetes::KubernetesName;
use crate::types::name::AppName;

/// The metrics, in the order in which they are printed: name, kind and help.
const METRICS: [(&str, &str, &str); 10] = [
    ("iottymux_app_state", "gauge", "1 for the state of an app."),
    (
        "iottymux_app_exit_code",
        "gauge",
        "How the app ended last: its status, or 128 + n for signal n.",
    ),
    ("iottymux_mux_uptime_seconds", "gauge", "Time since the mux of the app was ready."),
    ("iottymux_mux_info", "gauge", "1 for the version of the mux of an app."),
    ("iottymux_app_restarts_total", "counter", "How often the app was started again."),
    ("iottymux_clients", "gauge", "Attached clients."),
    ("iottymux_stream_bytes_total", "counter", "Output of the app."),
    ("iottymux_stream_unseen_bytes", "gauge", "Output that no client has received."),
    ("iottymux_log_failing", "gauge", "1 while a log cannot be written."),
    ("iottymux_log_lost_bytes_total", "counter", "Output that a log has lost."),
];

/// Labels with their values, as they are printed.
type Labels = String;

/// Prints the metrics of all apps. A container that has ended has none: each start of one is an app of
/// its own.
pub(crate) fn show(states: &[StateDir], enabled: &BTreeMap<AppName, String>) -> Result<()> {
    let known = each::app(states, enabled, false)?.into_iter().map(Known::of);
    let running = known.filter_map(|(dir, known)| {
        let container = Container::read(&dir);
        let has_ended = known.is_ended_container(container.as_ref());
        (!has_ended).then(|| (labels(&dir, container), known))
    });
    print(&text(&running.collect::<Vec<_>>()))
}

/// The labels of an app. Those of a container of Kubernetes are named as there.
fn labels(dir: &AppDir, container: Option<Container>) -> Labels {
    let labels = label("app", dir.name().as_str());
    let name = container.and_then(|container| container.kubernetes);
    match name.as_ref().and_then(KubernetesName::parts) {
        Some([namespace, pod, container]) => {
            format!("{labels},namespace=\"{namespace}\",pod=\"{pod}\",container=\"{container}\"")
        }
        None => labels,
    }
}

/// A label, with the escapes of the text format.
fn label(name: &str, value: &str) -> String {
    let value = escape::line(value).replace('\\', "\\\\").replace('"', "\\\"");
    format!("{name}=\"{value}\"")
}

/// The labels and one more.
fn with(labels: &str, name: &str, value: &str) -> Labels {
    format!("{labels},{}", label(name, value))
}

fn text(apps: &[(Labels, Known)]) -> String {
    let mut lines = BTreeMap::<&str, String>::new();
    let mut add = |name, labels: &str, value: u64| {
        // Writing into a string does not fail.
        let _ = writeln!(lines.entry(name).or_default(), "{name}{{{labels}}} {value}");
    };
    for (app, known) in apps {
        add("iottymux_app_state", &with(app, "state", known.state()), 1);
        if let Some(code) = known.exit_code() {
            add("iottymux_app_exit_code", app, code.into());
        }
        let Known::Report(report, _) = known else { continue };
        add("iottymux_mux_uptime_seconds", app, report.uptime_ms / 1000);
        add("iottymux_mux_info", &with(app, "version", &report.version), 1);
        add("iottymux_app_restarts_total", app, report.restarts);
        add("iottymux_clients", app, report.attached() as u64);
        for stream in &report.streams {
            let labels = with(app, "stream", stream.stream.name());
            add("iottymux_stream_bytes_total", &labels, stream.bytes);
            add("iottymux_stream_unseen_bytes", &labels, stream.unseen);
        }
        for log in &report.logs {
            let labels = with(app, "log", &log.log);
            add("iottymux_log_failing", &labels, log.failing.is_some().into());
            add("iottymux_log_lost_bytes_total", &labels, log.lost_bytes);
        }
    }
    let mut out = String::new();
    for (name, kind, help) in METRICS {
        let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}");
        out += lines.get(name).map_or("", String::as_str);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_escaped() {
        let labels = with("app=\"a\"", "log", "raw:/a \"b\"\\c\nd\x1b");
        assert_eq!(labels, r#"app="a",log="raw:/a \"b\"\\c\\nd\\u{1b}""#);
    }

    #[test]
    fn without_apps_there_are_names_only() {
        assert!(text(&[]).lines().all(|line| line.starts_with("# ")));
    }
}
