//! `metrics`: the state of all apps in the text format of Prometheus.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use anyhow::Result;

use super::each;
use super::status::Known;
use crate::core::wire::Report;
use crate::sys::documents::container::Container;
use crate::sys::print::print;
use crate::sys::state::{AppDir, StateDir};
use crate::types::escape;
use crate::types::kubernetes::KubernetesName;
use crate::types::name::AppName;

/// A metric and its values, each with its labels.
struct Metric {
    name: &'static str,
    kind: &'static str,
    help: &'static str,
    values: Vec<(Labels, u64)>,
}

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
fn with(labels: &Labels, name: &str, value: &str) -> Labels {
    format!("{labels},{}", label(name, value))
}

fn text(apps: &[(Labels, Known)]) -> String {
    let mut out = String::new();
    for Metric { name, kind, help, values } in metrics(apps) {
        // Writing into a string does not fail.
        let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}");
        for (labels, value) in values {
            let _ = writeln!(out, "{name}{{{labels}}} {value}");
        }
    }
    out
}

fn metrics(apps: &[(Labels, Known)]) -> Vec<Metric> {
    let state = |(app, known): &(Labels, Known)| (with(app, "state", known.state()), 1);
    let mut all = vec![
        metric("iottymux_app_state", "gauge", "1 for the state of an app.", apps.iter().map(state)),
        metric(
            "iottymux_app_exit_code",
            "gauge",
            "How the app ended last: its status, or 128 + n for signal n.",
            apps.iter().filter_map(|(app, known)| Some((app.clone(), known.exit_code()?.into()))),
        ),
    ];
    let running: Vec<(&Labels, &Report)> = apps
        .iter()
        .filter_map(|(app, known)| match known {
            Known::Report(report, _) => Some((app, &**report)),
            _ => None,
        })
        .collect();
    let per_app = |value: fn(&Report) -> u64| {
        running.iter().map(|(app, report)| ((*app).clone(), value(report))).collect::<Vec<_>>()
    };
    all.push(metric(
        "iottymux_mux_uptime_seconds",
        "gauge",
        "Time since the mux of the app was ready.",
        per_app(|report| report.uptime_ms / 1000),
    ));
    let version = |(app, report): &(&Labels, &Report)| (with(app, "version", &report.version), 1);
    all.push(metric(
        "iottymux_mux_info",
        "gauge",
        "1 for the version of the mux of an app.",
        running.iter().map(version),
    ));
    all.push(metric(
        "iottymux_app_restarts_total",
        "counter",
        "How often the app was started again.",
        per_app(|report| report.restarts),
    ));
    all.push(metric(
        "iottymux_clients",
        "gauge",
        "Attached clients.",
        per_app(|report| report.attached() as u64),
    ));
    let streams = running.iter().flat_map(|(app, report)| {
        report.streams.iter().map(|stream| (with(app, "stream", stream.stream.name()), stream))
    });
    let (bytes, unseen): (Vec<_>, Vec<_>) = streams
        .map(|(labels, stream)| ((labels.clone(), stream.bytes), (labels, stream.unseen)))
        .unzip();
    all.push(metric("iottymux_stream_bytes_total", "counter", "Output of the app.", bytes));
    all.push(metric(
        "iottymux_stream_unseen_bytes",
        "gauge",
        "Output that no client has received.",
        unseen,
    ));
    let logs = running
        .iter()
        .flat_map(|(app, report)| report.logs.iter().map(|log| (with(app, "log", &log.log), log)));
    let logs: Vec<_> = logs.collect();
    all.push(metric(
        "iottymux_log_failing",
        "gauge",
        "1 while a log cannot be written.",
        logs.iter().map(|(labels, log)| (labels.clone(), log.failing.is_some().into())),
    ));
    all.push(metric(
        "iottymux_log_lost_bytes_total",
        "counter",
        "Output that a log has lost.",
        logs.iter().map(|(labels, log)| (labels.clone(), log.lost_bytes)),
    ));
    all
}

fn metric(
    name: &'static str,
    kind: &'static str,
    help: &'static str,
    values: impl IntoIterator<Item = (Labels, u64)>,
) -> Metric {
    Metric { name, kind, help, values: values.into_iter().collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_escaped() {
        let labels = with(&"app=\"a\"".to_owned(), "log", "raw:/a \"b\"\\c\nd\x1b");
        assert_eq!(labels, r#"app="a",log="raw:/a \"b\"\\c\\nd\\u{1b}""#);
    }

    #[test]
    fn without_apps_there_are_names_only() {
        assert!(text(&[]).lines().all(|line| line.starts_with("# ")));
    }
}
