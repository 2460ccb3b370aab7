//! The metadata of the packages: each file that is laid out is in each package, and each line of the
//! metadata names a file. The scripts are read by a shell.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::rig::Rig;
use crate::users::{as_user, shared_rig};

const PROJECT: &str = env!("CARGO_MANIFEST_DIR");
const STAGED: &str = "target/package/root/";

/// What `[package.metadata]` of Cargo.toml says.
fn metadata() -> Value {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["metadata", "--offline", "--no-deps", "--format-version=1"]).current_dir(PROJECT);
    let all: Value = serde_json::from_slice(&done(&mut cargo)).unwrap();
    all["packages"][0]["metadata"].clone()
}

/// All files below a directory, as paths from there.
fn files(dir: &Path) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut new = vec![dir.to_owned()];
    while let Some(next) = new.pop() {
        for entry in fs::read_dir(next).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                new.push(path);
            } else {
                found.insert(path.strip_prefix(dir).unwrap().to_str().unwrap().to_owned());
            }
        }
    }
    found
}

/// What a command prints, which must succeed.
fn done(command: &mut Command) -> Vec<u8> {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    output.stdout
}

/// Whether a path matches a pattern, whose only `*`s are in its last part.
fn matches(pattern: &str, path: &str) -> bool {
    let (Some((dir, pattern)), Some((of, name))) =
        (pattern.rsplit_once('/'), path.rsplit_once('/'))
    else {
        return false;
    };
    let parts: Vec<&str> = pattern.split('*').collect();
    dir == of
        && match parts[..] {
            [whole] => whole == name,
            ["", ""] => true,
            ["", end] => name.ends_with(end),
            ["", middle, ""] => name.contains(middle),
            _ => panic!("{pattern}"),
        }
}

#[test]
fn each_package_has_all_files() {
    let dir = tempfile::tempdir().unwrap();
    let mut stage = Command::new("packaging/stage");
    stage.arg(env!("CARGO_BIN_EXE_iottymux")).arg("1").arg(dir.path().join("package"));
    let output = stage.current_dir(PROJECT).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let staged = files(&dir.path().join("package/root"));
    assert!(staged.len() > 30, "{staged:?}");
    let metadata = metadata();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let assets = |of: &str| metadata[of]["assets"].as_array().unwrap().clone();
    let deb = assets("deb").iter().map(|asset| text(&asset[0])).collect::<Vec<_>>();
    let rpm = assets("generate-rpm").iter().map(|asset| text(&asset["source"])).collect::<Vec<_>>();
    // cargo-deb puts the licences where Debian has them.
    let licences = text(&metadata["deb"]["license-file"][0]);
    for (package, patterns) in [("deb", [deb, vec![licences]].concat()), ("rpm", rpm)] {
        for path in &staged {
            let count = patterns.iter().filter(|p| matches(p, &format!("{STAGED}{path}"))).count();
            assert_eq!(count, 1, "{package}: {path}");
        }
        for pattern in patterns {
            let names_one = match pattern.strip_prefix(STAGED) {
                Some(_) => staged.iter().any(|path| matches(&pattern, &format!("{STAGED}{path}"))),
                None => Path::new(PROJECT).join(&pattern).is_file(),
            };
            assert!(names_one, "{package}: {pattern}");
        }
    }
}

/// `install` has the same files as the packages, but for those that are made for them.
#[test]
fn the_program_installs_itself() {
    let rig = Rig::new();
    let prefix = rig.file("prefix");
    let install = ["install", "--prefix", prefix.to_str().unwrap()];
    let mut first = rig.run(&install);
    assert_eq!(first.ends(), 0, "{}", first.stderr.text());
    let program = prefix.join("bin/iottymux");
    assert_eq!(fs::metadata(&program).unwrap().permissions().mode() & 0o777, 0o711);
    let mut staged = BTreeSet::new();
    let mut stage = Command::new("packaging/stage");
    stage.arg(&program).arg("1").arg(rig.file("package")).current_dir(PROJECT);
    assert!(stage.status().unwrap().success());
    for path in files(&rig.file("package/root")) {
        if ["share/doc/", "share/licenses/"].iter().any(|dir| path.starts_with(dir)) {
            continue;
        }
        let theirs = rig.file("package/root").join(&path);
        // Packages have man pages that are packed.
        let (path, theirs) = match path.strip_suffix(".gz") {
            Some(page) => (page.to_owned(), done(Command::new("gzip").arg("-dc").arg(theirs))),
            None => (path, fs::read(theirs).unwrap()),
        };
        assert!(fs::read(prefix.join(&path)).unwrap() == theirs, "{path}");
        staged.insert(path);
    }
    assert_eq!(files(&prefix), staged);
    // Over files that are in use, also by the program that is installed itself. What is as it should be stays.
    fs::write(prefix.join("lib/systemd/system/iomux@.service"), "").unwrap();
    let again = String::from_utf8(done(Command::new(&program).args(install))).unwrap();
    assert_eq!(files(&prefix), staged);
    assert!(again.contains(&format!("kept    {}\n", program.display())), "{again}");
    assert_eq!(again.matches("wrote ").count(), 1, "{again}");
    fs::write(prefix.join("bin/other"), "").unwrap();
    let mut remove = Command::new(&program);
    remove.args(install);
    let removed = String::from_utf8(done(remove.arg("--remove"))).unwrap();
    let pages = staged.iter().filter(|path| path.starts_with("share/man/")).count();
    assert!(pages > 30, "{staged:?}");
    assert!(removed.contains(&format!("removed {pages} pages of ")), "{removed}");
    assert_eq!(removed.matches("removed /").count(), staged.len() - pages, "{removed}");
    assert_eq!(files(&prefix), BTreeSet::from(["bin/other".to_owned()]));
    let mut nothing = rig.run(&[&install[..], &["--remove"]].concat());
    assert_eq!(nothing.ends(), 0, "{}", nothing.stderr.text());
    assert!(nothing.stdout.text().starts_with("nothing to remove below "));
}

/// Muxes of services are restarted by a program that their services run.
#[test]
fn muxes_are_restarted_only_where_services_find_the_program() {
    let rig = Rig::new();
    let prefix = rig.file("prefix");
    let mut install = rig.run(&["install", "--restart", "--prefix", prefix.to_str().unwrap()]);
    assert_eq!(install.ends(), 1);
    let said = install.stderr.text();
    let why = format!("iottymux: services do not run a program below {}\n", prefix.display());
    assert_eq!(said, why);
    assert!(!prefix.exists());
}

/// A shell finds no program whose other files are missing.
#[test]
fn an_install_that_fails_leaves_no_program() {
    let rig = Rig::new();
    let prefix = rig.file("prefix");
    fs::create_dir(&prefix).unwrap();
    for dir in ["lib", "share"] {
        fs::write(prefix.join(dir), "").unwrap();
        let mut install = rig.run(&["install", "--prefix", prefix.to_str().unwrap()]);
        assert_ne!(install.ends(), 0);
        let said = install.stderr.text();
        assert!(said.contains(&format!("cannot write {}", prefix.join(dir).display())), "{said}");
        assert!(!prefix.join("bin").exists(), "{dir}");
        fs::remove_file(prefix.join(dir)).unwrap();
    }
}

/// What is linked into the binary is named, with the text of a licence that requires it.
#[test]
fn only_root_changes_an_engine() {
    let Some(rig) = shared_rig() else { return };
    for words in [
        &["install", "--runtime", "docker"][..],
        &["install", "--remove", "--runtime", "containerd"],
    ] {
        let output = as_user(&rig, 54321, "", &rig.file("iottymux")).args(words).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{words:?}");
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(said, "iottymux: only root can change the configuration of an engine\n");
    }
}

#[test]
fn the_licences_of_what_is_linked() {
    let text = crate::copyright::text();
    for name in ["clap 4.", "nix 0.31", "rustix 1.", "glibc", "The standard library of Rust"] {
        assert!(text.contains(name), "{name}");
    }
    for name in ["proptest", "vt100", "clap_mangen", "syn 2.", "unicode-ident"] {
        assert!(!text.contains(name), "{name} is not linked");
    }
    assert!(text.contains("Permission is hereby granted"), "the text of MIT");
}

#[test]
fn the_scripts_are_valid() {
    let scripts = ["stage", "release", "source-date", "check-reproducible"];
    let debian = ["debian/postinst", "debian/prerm", "debian/postrm"];
    let source = ["debian-source/make", "debian-source/tests/console"];
    let others = ["rpm/post", "rpm/preun", "rpm/postun", "arch/PKGBUILD", "arch/iottymux.install"];
    for script in scripts.into_iter().chain(debian).chain(source).chain(others) {
        let path = PathBuf::from(PROJECT).join("packaging").join(script);
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.contains("SPDX-License-Identifier: Apache-2.0"), "{script}");
        let is_bash = text.starts_with("#!/usr/bin/env bash") || script == "arch/PKGBUILD";
        let shell = if is_bash { "bash" } else { "sh" };
        let output = Command::new(shell).arg("-n").arg(&path).output().unwrap();
        assert!(output.status.success(), "{script}: {output:?}");
    }
}

/// What is missing for a release is said at once, as one command.
#[test]
fn a_release_names_what_it_lacks() {
    let dir = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink("/usr/bin/dirname", dir.path().join("dirname")).unwrap();
    let mut release = Command::new("/bin/bash");
    release.arg("packaging/release").current_dir(PROJECT);
    release.env("PATH", dir.path()).env("CARGO_HOME", dir.path()).env("MINISIGN_KEY", "key");
    let output = release.output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8(output.stderr).unwrap();
    // Only a checkout has commits.
    let git = if Path::new(PROJECT).join(".git").exists() { " git" } else { "" };
    let first = format!("apt install gcc minisign{git} && cargo install --locked");
    let crates = "cargo-deb cargo-generate-rpm";
    assert_eq!(said, format!("packaging/release: programs are missing; first: {first} {crates}\n"));
}

/// `source-date` in a copy of the project without .git, with this as its changelog.
fn source_date(changelog: &str, given: Option<&str>) -> (String, String) {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("packaging")).unwrap();
    let script = dir.path().join("packaging/source-date");
    fs::copy(Path::new(PROJECT).join("packaging/source-date"), &script).unwrap();
    fs::write(dir.path().join("CHANGELOG.md"), changelog).unwrap();
    let mut command = Command::new(script);
    command.env_remove("SOURCE_DATE_EPOCH").envs(given.map(|date| ("SOURCE_DATE_EPOCH", date)));
    let output = command.output().unwrap();
    assert_eq!(output.status.success(), !output.stdout.is_empty());
    let [out, error] = [output.stdout, output.stderr].map(|b| String::from_utf8(b).unwrap());
    (out.trim_end().to_owned(), error)
}

/// The time of a source that has no commits: packages are the same wherever they are made.
#[test]
fn a_source_without_git_has_the_time_of_its_version() {
    let changelog =
        "# Changelog\n\n## [Unreleased]\n\n## [1.1.0] - 2026-01-02\n\n## [1.0.0] - 2025-01-01\n";
    assert_eq!(source_date(changelog, None).0, "1767312000");
    assert_eq!(source_date(changelog, Some("12")).0, "12");
    for (changelog, given) in [
        ("## [Unreleased]\n\n## [0.1.0] - not released yet\n", None),
        (changelog, Some("yesterday")),
    ] {
        let (date, error) = source_date(changelog, given);
        assert_eq!((date.as_str(), error.lines().count()), ("", 1), "{error}");
        assert!(error.contains("set SOURCE_DATE_EPOCH"), "{error}");
    }
}

/// Versions and names that stand in several places are the same.
#[test]
fn packages_have_the_same_version_and_names() {
    let read = |path| fs::read_to_string(Path::new(PROJECT).join("packaging").join(path)).unwrap();
    let version = env!("CARGO_PKG_VERSION");
    assert!(read("arch/PKGBUILD").contains(&format!("\npkgver={version}\n")));
    assert!(read("debian-source/changelog").starts_with(&format!("iottymux ({version}-")));
    // packaging/release writes it to the page of the release.
    assert!(read("../CHANGELOG.md").contains(&format!("\n## [{version}] - ")));
    let metadata = metadata();
    let text = |of: &str, key: &str| metadata[of][key].as_str().unwrap().to_owned();
    let control = read("debian-source/control");
    let description = text("deb", "extended-description").replace('\n', "\n ");
    assert!(control.ends_with(&format!("\n {description}\n")), "{control}");
    assert!(control.contains(&format!("\nDepends: {},", text("deb", "depends"))), "{control}");
    let archive = "{ name }-{ version }-{ target-arch }-linux";
    assert!(read("release").contains("name=iottymux-$version-${1%%-*}-linux\n"));
    assert!(text("binstall", "pkg-url").ends_with(&format!("/{archive}.tar.gz")));
    assert!(text("binstall", "bin-dir").starts_with(&format!("{archive}/bin/")));
}
