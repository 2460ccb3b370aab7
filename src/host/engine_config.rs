//! A container engine of this machine: `install --runtime` adds iottymux-runc to its configuration, and
//! takes it out again.
//!
//! Invariant: nothing else of a configuration changes. What was added is cut out to the byte, and an
//! engine that can check a file has accepted it before it is in place.

use std::collections::BTreeMap;
use std::env;
use std::ffi::OsStr;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::{MetadataExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use clap::ValueEnum;
use nix::unistd::Uid;
use serde_json::Value;

use crate::host::enable::{self, account};
use crate::host::install;
use crate::host::units::unit_text::is_program;
use crate::sys::documents::container::Container;
use crate::sys::files::{read_plain, replace_safely};
use crate::sys::print::print;
use crate::sys::state::{AppDir, StateDir};
use crate::sys::walk::{Links, Walk};
use crate::types::escape;

/// The name by which the program is a runtime.
const RUNTIME: &str = "bin/iottymux-runc";
/// Bytes of a configuration that are read: a few thousand lines.
const CONFIGURATION: u64 = 1 << 20;
/// Mode of a new configuration.
const READABLE: u32 = 0o644;
/// The lines around what is added to that of containerd.
const BEGIN: &str = "\n# begin: written by iottymux install --runtime, and removed by it\n";
const END: &str = "# end: iottymux\n";
/// What is added to that of Docker, without the path of the runtime.
const KEY: &str = "\n  \"runtimes\": { \"iottymux\": { \"path\": \"";
const KEY_END: &str = " } }";
/// A new configuration of Docker.
const EMPTY: &str = "{\n\n}\n";

/// A container engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ContainerEngine {
    Containerd,
    Docker,
}

impl ContainerEngine {
    /// Its configuration; where a link leads, if it is one.
    fn path(self) -> PathBuf {
        let path = Path::new(match self {
            Self::Containerd => "/etc/containerd/config.toml",
            Self::Docker => "/etc/docker/daemon.json",
        });
        path.canonicalize().unwrap_or_else(|_| path.to_owned())
    }

    fn program(self) -> &'static str {
        match self {
            Self::Containerd => "containerd",
            Self::Docker => "dockerd",
        }
    }

    /// The command by which it reads that again. Containers run on.
    fn next(self) -> &'static str {
        match self {
            Self::Containerd => "systemctl restart containerd",
            Self::Docker => "systemctl reload docker",
        }
    }

    /// When it has not got the runtime any more.
    fn forgets(self) -> &'static str {
        match self {
            Self::Containerd => "next: systemctl restart containerd",
            // A reload leaves those that it knows.
            Self::Docker => "docker knows the runtime until its next restart",
        }
    }

    /// Its configuration with the runtime at this path. `text` is without it.
    fn with(self, text: Option<&str>, runtime: &str) -> Result<String> {
        match self {
            Self::Containerd => {
                let usual = || printed(self.program(), &["config", "default"]);
                let usual = text.is_none().then(usual).transpose()?;
                with_containerds(text, usual.as_deref().unwrap_or_default(), runtime)
            }
            Self::Docker => with_dockers(text.unwrap_or(EMPTY), runtime),
        }
    }

    /// Its configuration without the runtime, if it is there as it was written; empty if there was
    /// none before.
    fn without(self, text: &str) -> Option<String> {
        let (before, behind) = match self {
            Self::Containerd => {
                let (before, rest) = text.split_once(BEGIN)?;
                let (block, behind) = rest.split_once(END)?;
                block.lines().all(is_of_block).then_some((before, behind))?
            }
            Self::Docker => {
                let (before, rest) = text.split_once(KEY)?;
                let (_, rest) = rest.split_once('"')?;
                let behind = rest.strip_prefix(KEY_END)?;
                (before, behind.strip_prefix(',').unwrap_or(behind))
            }
        };
        let left = [before, behind].concat();
        Some(if left == EMPTY { String::new() } else { left })
    }

    /// Fails if there is no such engine here, or it does not accept its configuration.
    fn check_present(self, path: &Path, has_file: bool) -> Result<()> {
        if has_file {
            return self.check(path);
        }
        printed(self.program(), &["--version"]).map(drop)
    }

    /// Has the engine check a file, if it can.
    fn check(self, file: &Path) -> Result<()> {
        let file = file.to_string_lossy();
        match self {
            Self::Containerd => {
                printed(self.program(), &["--config", &file, "config", "dump"]).map(drop)
            }
            Self::Docker => {
                match printed(self.program(), &["--validate", "--config-file", &file]) {
                    // Docker before 23 does not know this; the file was parsed.
                    Err(e) if e.to_string().contains("unknown flag") => Ok(()),
                    checked => checked.map(drop),
                }
            }
        }
    }
}

/// Adds the runtime to the configuration of an engine. Installs this program first, if it is not.
pub(crate) fn add(engine: ContainerEngine, prefix: &Path) -> Result<()> {
    require_root()?;
    let prefix = std::path::absolute(prefix)?;
    let (program, is_installed) = program_for(&prefix)?;
    let link = prefix.join(RUNTIME);
    let runtime = link.to_str().filter(|path| is_program(path));
    let runtime = runtime.context("cannot write this prefix into a configuration")?;
    let path = engine.path();
    let what = || format!("cannot add the runtime to {}", path.display());
    let old = read(&path).with_context(what)?;
    let base = old.as_deref().and_then(|text| engine.without(text)).or_else(|| old.clone());
    let base = base.filter(|text| !text.is_empty());
    let new = engine.with(base.as_deref(), runtime).with_context(what)?;
    engine.check_present(&path, old.is_some()).with_context(what)?;
    if !is_installed {
        install::copy(&prefix)?;
    }
    account::create()?;
    let is_new = match symlink(&program, &link) {
        Err(e) if e.kind() == ErrorKind::AlreadyExists && leads_to(&link, &program) => false,
        made => made.map(|()| true).with_context(|| format!("cannot make the link {runtime}"))?,
    };
    if old.as_ref() == Some(&new) {
        return print(&format!("kept    {}\n", path.display()));
    }
    let replaced = replace(&path, &new, |draft| engine.check(draft)).with_context(what);
    if replaced.is_err() && is_new {
        // The failure is reported.
        let _ = fs::remove_file(&link);
    }
    replaced?;
    let link = if is_new { format!("wrote   {runtime}\n") } else { String::new() };
    print(&format!("{link}wrote   {}\nnext: {}\n", path.display(), engine.next()))
}

/// Takes the runtime out of the configuration of an engine. Refused while a container of it runs.
pub(crate) fn remove(engine: ContainerEngine, prefix: &Path) -> Result<()> {
    require_root()?;
    for state in StateDir::all(None)? {
        for dir in state.apps()?.iter().map(|name| state.app(name)).filter(AppDir::is_locked) {
            if let Some(container) = Container::read(&dir) {
                let container = container.to_string();
                bail!(
                    "container {} runs with it: remove its containers first",
                    escape::line(&container)
                );
            }
        }
    }
    let path = engine.path();
    let shown = path.display();
    let what = || format!("cannot take the runtime out of {shown}");
    let old = read(&path).with_context(what)?.unwrap_or_default();
    let Some(left) = engine.without(&old) else {
        if names_it(&old) {
            bail!("{shown} was changed since: remove the runtime iottymux from it by hand");
        }
        return print(&format!("nothing to remove from {shown}\n"));
    };
    if names_it(&left) {
        bail!("{shown} names iottymux in another place, too: remove that first");
    }
    if left.is_empty() {
        fs::remove_file(&path).with_context(what)?;
    } else {
        replace(&path, &left, |_| Ok(())).with_context(what)?;
    }
    let done = if left.is_empty() { "removed" } else { "wrote  " };
    print(&format!("{done} {shown}\n{}\n", engine.forgets()))?;
    let prefix = std::path::absolute(prefix)?;
    let link = prefix.join(RUNTIME);
    if used(&prefix)?.is_none() && leads_to(&link, &program_for(&prefix)?.0) {
        fs::remove_file(&link).with_context(|| format!("cannot remove {}", link.display()))?;
        print(&format!("removed {}\n", link.display()))?;
    }
    Ok(())
}

/// Refuses users other than root.
fn require_root() -> Result<()> {
    if !Uid::effective().is_root() {
        bail!("only root can change the configuration of an engine");
    }
    Ok(())
}

/// The program that the link below a prefix leads to, and whether it is installed already: this one, or
/// the one that `install` makes of it.
fn program_for(prefix: &Path) -> Result<(PathBuf, bool)> {
    let program = env::current_exe().context("cannot find the path of this program")?;
    let is_installed = program.parent().is_some_and(enable::is_found_in);
    Ok((if is_installed { program } else { prefix.join("bin/iottymux") }, is_installed))
}

/// Refuses to remove the program below a prefix while an engine has it as a runtime.
pub(crate) fn refuse_used(prefix: &Path) -> Result<()> {
    if let Some(engine) = used(prefix)? {
        let name = engine
            .to_possible_value()
            .map_or_else(String::new, |value| value.get_name().to_owned());
        bail!(
            "{} names it; first: iottymux install --remove --runtime {name}",
            engine.path().display()
        );
    }
    Ok(())
}

/// An engine whose configuration names the runtime below this prefix.
fn used(prefix: &Path) -> Result<Option<ContainerEngine>> {
    let runtime = std::path::absolute(prefix)?.join(RUNTIME).to_string_lossy().into_owned();
    let names = |engine: &ContainerEngine| matches!(read(&engine.path()), Ok(Some(text)) if text.contains(&runtime));
    Ok([ContainerEngine::Containerd, ContainerEngine::Docker].into_iter().find(names))
}

/// Whether a text names the runtime.
fn names_it(text: &str) -> bool {
    text.contains("\"iottymux\"") || text.contains("runtimes.iottymux")
}

/// Whether a link is there and leads to this program.
fn leads_to(link: &Path, program: &Path) -> bool {
    let is_same = |real: PathBuf| program.canonicalize().is_ok_and(|program| program == real);
    link.read_link().is_ok_and(|target| target == program || link.canonicalize().is_ok_and(is_same))
}

/// Whether this line may be in what is added to the configuration of containerd.
fn is_of_block(line: &str) -> bool {
    let line = line.trim();
    ["version = ", "runtime_type = ", "pod_annotations = ", "BinaryName = ", "SystemdCgroup = "]
        .iter()
        .any(|key| line.starts_with(key))
        || line.ends_with(".containerd.runtimes.iottymux]")
        || line.ends_with(".containerd.runtimes.iottymux.options]")
}

/// The configuration of containerd with the runtime. `usual` is what it has without a file.
fn with_containerds(text: Option<&str>, usual: &str, runtime: &str) -> Result<String> {
    let lines: Vec<String> = text.unwrap_or_default().lines().map(bare).collect();
    let all = lines.concat();
    let off = all.split("disabled_plugins=[").nth(1).and_then(|list| list.split(']').next());
    if off.is_some_and(|list| list.contains("cri\"") || list.contains("cri'")) {
        bail!(
            "its disabled_plugins has \"cri\", without which pods cannot run: take that out first"
        );
    }
    let (head, plugin) = match version(text.unwrap_or(usual)) {
        Some(2) => ("version = 2", "io.containerd.grpc.v1.cri"),
        Some(3) => ("version = 3", "io.containerd.cri.v1.runtime"),
        _ => bail!("expected `version = 2` or `version = 3` above its sections"),
    };
    let text = text.unwrap_or_default();
    let has = |line: &str| lines.iter().any(|other| other == line);
    let section = format!("[plugins.\"{plugin}\".containerd.runtimes.iottymux]");
    if has(&section) {
        bail!("it has a section {section} already");
    }
    let version = if text.is_empty() { format!("{head}\n") } else { String::new() };
    // As runc has it there: the kubelet makes the groups of pods in the same way.
    let groups = if has("SystemdCgroup=true") { "    SystemdCgroup = true\n" } else { "" };
    Ok(format!(
        "{text}{BEGIN}{version}{section}\n  runtime_type = \"io.containerd.runc.v2\"\n  \
         pod_annotations = [\"org.iottymux.*\"]\n  \
         [plugins.\"{plugin}\".containerd.runtimes.iottymux.options]\n    \
         BinaryName = \"{runtime}\"\n{groups}{END}"
    ))
}

/// A line of a configuration of containerd without spaces and comment.
fn bare(line: &str) -> String {
    line.split('#').next().unwrap_or_default().split_whitespace().collect()
}

/// The version of a configuration of containerd.
fn version(text: &str) -> Option<u32> {
    let mut top = text.lines().map(str::trim).take_while(|line| !line.starts_with('['));
    top.find_map(|line| {
        line.strip_prefix("version")?
            .trim()
            .strip_prefix('=')?
            .split('#')
            .next()?
            .trim()
            .parse()
            .ok()
    })
}

/// The configuration of Docker with the runtime.
fn with_dockers(text: &str, runtime: &str) -> Result<String> {
    let parsed: BTreeMap<String, Value> = serde_json::from_str(text)?;
    if parsed.contains_key("runtimes") {
        bail!("it has runtimes; add to these by hand: \"iottymux\": {{ \"path\": \"{runtime}\" }}");
    }
    let (before, behind) = text.split_once('{').context("expected a JSON object")?;
    let comma = if behind.trim_start().starts_with('}') { "" } else { "," };
    Ok(format!("{before}{{{KEY}{runtime}\"{KEY_END}{comma}{behind}"))
}

/// The text of a file, if it exists.
fn read(path: &Path) -> Result<Option<String>> {
    match read_plain(path, CONFIGURATION) {
        Ok(text) => String::from_utf8(text).map(Some).context("it is no text in UTF-8"),
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
        Err(e) => Err(e.into()),
    }
}

/// Replaces a configuration by one with the same mode and owner, once this check accepts it.
fn replace(path: &Path, text: &str, check: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
    let mut walk = Walk::new()?.making();
    walk.go(path.parent().unwrap_or(Path::new("/")), Links::Trusted)?;
    let file = path.file_name().unwrap_or_default();
    let mut draft = file.to_owned();
    draft.push(".iottymux");
    let before = fs::metadata(path).ok();
    let mode = before.as_ref().map_or(READABLE, |before| before.mode() & 0o7777);
    let write = |name: &OsStr| replace_safely(&walk, name, text.as_bytes(), mode);
    write(&draft)?;
    let draft: PathBuf = path.with_file_name(draft);
    let checked = check(&draft);
    fs::remove_file(&draft)?;
    checked?;
    write(file)?;
    if let Some(before) = before {
        chown(path, Some(before.uid()), Some(before.gid()))?;
    }
    Ok(())
}

/// What a command prints.
fn printed(program: &str, words: &[&str]) -> Result<String> {
    let output = Command::new(program).args(words).output();
    let output = output.with_context(|| format!("cannot run {program}"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        bail!("{program} {}: {}", words.join(" "), escape::line(said.trim()));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATH: &str = "/usr/local/bin/iottymux-runc";

    #[test]
    fn what_was_added_is_cut_out_to_the_byte() {
        let two = "version = 2\n[plugins.\"io.containerd.grpc.v1.cri\"]\n  x = 1";
        let three = "# mine\nversion=3\n\n[grpc]\n";
        for (engine, text) in [
            (ContainerEngine::Containerd, two),
            (ContainerEngine::Containerd, three),
            (ContainerEngine::Containerd, "version = 2"),
            (ContainerEngine::Docker, "{}"),
            (ContainerEngine::Docker, "{ \"debug\": true }\n"),
            (ContainerEngine::Docker, "\n{\n\t\"hosts\": [\"unix://{\"],\n\t\"a\": {}\n}"),
        ] {
            let with = engine.with(Some(text), PATH).unwrap();
            assert!(with.contains(PATH), "{with}");
            assert_eq!(engine.without(&with).as_deref(), Some(text));
            assert_eq!(engine.without(text), None, "{text}");
        }
    }

    #[test]
    fn what_somebody_has_changed_since_is_not_cut() {
        let with =
            ContainerEngine::Docker.with(Some("{ \"proxies\": { \"a\": \"b\" } }"), PATH).unwrap();
        for more in [", \"nvidia\": { \"path\": \"/n\" }", ", \"kata\": { \"runtimeArgs\": [] }"] {
            let changed =
                with.replacen("iottymux-runc\" }", &format!("iottymux-runc\" }}{more}"), 1);
            assert_ne!(changed, with);
            assert_eq!(ContainerEngine::Docker.without(&changed), None, "{changed}");
        }
        let with = with_containerds(Some("version = 2 # the format\n"), "", PATH).unwrap();
        let changed = with.replace("# end: iottymux\n", "[plugins.x]\n# end: iottymux\n");
        assert_eq!(ContainerEngine::Containerd.without(&changed), None, "{changed}");
    }

    #[test]
    fn a_file_that_was_not_there_goes() {
        let with = with_containerds(None, "disabled_plugins = []\nversion = 3\n", PATH).unwrap();
        assert!(
            with.contains("\nversion = 3\n[plugins.\"io.containerd.cri.v1.runtime\"."),
            "{with}"
        );
        assert_eq!(ContainerEngine::Containerd.without(&with).as_deref(), Some(""));
        let with = ContainerEngine::Docker.with(None, PATH).unwrap();
        let parsed: Value = serde_json::from_str(&with).unwrap();
        assert_eq!(parsed["runtimes"]["iottymux"]["path"], PATH);
        assert_eq!(ContainerEngine::Docker.without(&with).as_deref(), Some(""));
    }

    #[test]
    fn control_groups_are_made_as_for_runc() {
        for (text, has) in [
            ("version = 2\n[a]\n  SystemdCgroup = true\n", true),
            ("version = 2\n[a]\nSystemdCgroup=true # as the kubelet\n", true),
            ("version = 2\n[a]\n  SystemdCgroup = false\n# SystemdCgroup = true\n", false),
        ] {
            let with = with_containerds(Some(text), "", PATH).unwrap();
            assert_eq!(
                with.ends_with("    SystemdCgroup = true\n# end: iottymux\n"),
                has,
                "{with}"
            );
        }
    }

    #[test]
    fn what_cannot_be_changed_is_refused() {
        let has =
            "version = 2\n[plugins.\"io.containerd.grpc.v1.cri\".containerd.runtimes.iottymux]\n";
        let off = "version = 2\ndisabled_plugins = [\n  'cri',\n]\n";
        for text in [has, off, "", "[a]\nversion = 2\n", "version = 1\n", "version = x\n"] {
            assert!(with_containerds(Some(text), "", PATH).is_err(), "{text}");
        }
        for text in ["", "[]", "{", "{ \"runtimes\": {} }", "{ \"runtimes\": null }"] {
            assert!(with_dockers(text, PATH).is_err(), "{text}");
        }
    }
}
