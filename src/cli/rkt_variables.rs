//! The variables with which rkt's units say what a mux is to do: which streams there are, and the log of
//! Kubernetes.

use std::env;
use std::path::Path;

use anyhow::{Context, Result, anyhow, bail};

use crate::core::logfmt::path::LogPath;
use crate::types::escape;
use crate::types::stream::Stream;

/// Where rkt's stage1 has the kubelet's directory of logs.
pub(crate) const KUBERNETES_LOGS: &str = "/rkt/kubernetes/log";

/// The streams that rkt's variables enable; `None` when none of them is set.
pub(super) fn streams() -> Option<Vec<Stream>> {
    const NAMES: [(&str, Stream); 3] = [
        ("STAGE2_STDIN", Stream::Stdin),
        ("STAGE2_STDOUT", Stream::Stdout),
        ("STAGE2_STDERR", Stream::Stderr),
    ];
    let set = NAMES.iter().any(|(name, _)| env::var_os(name).is_some());
    let enabled = NAMES.iter().filter(|(name, _)| go_bool(name)).map(|(_, stream)| *stream);
    set.then(|| enabled.collect())
}

/// A variable as Go's `strconv.ParseBool` reads it; unset or anything else is false.
pub(super) fn go_bool(name: &str) -> bool {
    env::var(name).is_ok_and(|value| is_true(&value))
}

fn is_true(text: &str) -> bool {
    matches!(text, "1" | "t" | "T" | "TRUE" | "true" | "True")
}

/// The log that rkt's variables ask for: Kubernetes', below the directory that rkt has for it.
pub(super) fn log() -> Result<Option<LogPath>> {
    const MODE: &str = "STAGE1_LOGMODE";
    const PATH: &str = "KUBERNETES_LOG_PATH";
    match env::var_os(MODE).filter(|mode| !mode.is_empty()) {
        None => Ok(None),
        Some(mode) if mode == "k8s-plain" => {
            let path = env::var_os(PATH).with_context(|| format!("{MODE}: {PATH} is not set"))?;
            let below = LogPath::below(Path::new(KUBERNETES_LOGS), Path::new(&path));
            let what = |why| anyhow!("{PATH}={}: {why}", escape::line(&path.display().to_string()));
            below.map(Some).map_err(what)
        }
        Some(mode) => {
            bail!("{MODE}={}: expected k8s-plain", escape::line(&mode.to_string_lossy()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_are_as_go_reads_them() {
        for (text, want) in [("T", true), ("true", true), ("1", true), ("yes", false), ("", false)]
        {
            assert_eq!(is_true(text), want, "{text}");
        }
    }
}
