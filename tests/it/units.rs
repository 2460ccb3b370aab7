//! `units` as a program: what it shows, writes and takes away, and what it refuses.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use tempfile::TempDir;

use crate::skip::skip;

fn units(words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_iottymux")).arg("units").args(words).output().unwrap()
}

fn told(words: &[&str]) -> String {
    let output = units(words);
    assert!(output.status.success(), "{words:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// All files below a directory, by their paths.
fn tree(dir: &Path) -> BTreeMap<String, String> {
    let mut files = BTreeMap::new();
    let mut dirs = vec![dir.to_owned()];
    while let Some(at) = dirs.pop() {
        for entry in fs::read_dir(&at).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                dirs.push(path);
            } else {
                let name = path.strip_prefix(dir).unwrap().to_str().unwrap().to_owned();
                files.insert(name, fs::read_to_string(&path).unwrap());
            }
        }
    }
    files
}

/// The lines of a text that say something to systemd.
fn lines(text: &str) -> Vec<&str> {
    text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).collect()
}

#[test]
fn writing_again_changes_nothing_and_removing_leaves_nothing() {
    let dir = TempDir::new().unwrap();
    let out = dir.path().to_str().unwrap();
    let state_dir = dir.path().join("state of 100%");
    let state = state_dir.to_str().unwrap();
    let mixed = ["--app", "demo", "--stdin", "tty", "--stdout", "stream", "--stderr", "log"];
    let to = ["--output", out, "--state-dir", state];
    for layout in ["direct", "sockets"] {
        let words = [&mixed[..], &to, &["--layout", layout]].concat();
        let wrote = told(&words);
        assert!(wrote.lines().any(|line| line.starts_with("wrote ")), "{wrote}");
        let files = tree(dir.path());
        let again = told(&words);
        assert!(again.lines().all(|line| line.starts_with("kept ")), "{again}");
        assert_eq!(tree(dir.path()), files);
        assert_eq!(files.contains_key("demo-stdout.socket"), layout == "sockets");
    }
    // The other app keeps the templates.
    told(&[&["--app", "other", "--stdout", "stream"], &to[..]].concat());
    let of_muxes = ["demo", "demo-tty"].map(|name| state_dir.join(name));
    for left in &of_muxes {
        fs::create_dir_all(left).unwrap();
        fs::write(left.join("endpoints"), "").unwrap();
    }
    told(&[&["--app", "demo", "--remove"], &to[..]].concat());
    assert!(!of_muxes.iter().any(|dir| dir.exists()));
    let left: Vec<String> = tree(dir.path()).into_keys().collect();
    assert!(!left.iter().any(|name| name.contains("demo")), "{left:?}");
    assert!(left.contains(&"iomux@.service".to_owned()), "{left:?}");
    let own = dir.path().join("other.service.d/mine.conf");
    fs::write(&own, "[Unit]\n").unwrap();
    told(&[&["--app", "other", "--remove"], &to[..]].concat());
    told(&[&["--app", "other", "--remove"], &to[..]].concat());
    assert_eq!(tree(dir.path()).into_keys().collect::<Vec<_>>(), ["other.service.d/mine.conf"]);
}

/// What is in the way stays, whatever it is, and then nothing else changes either.
/// A power failure leaves no service with the streams of a mux whose template is empty: a file, and its name,
/// are on the disk before the next file is written, and the service's own comes last.
#[test]
fn each_file_is_on_the_disk_before_the_next() {
    let traced = |program: &str, words: &[&str], log: &Path| {
        let mut strace = Command::new("strace");
        strace.args(["-qq", "-e", "trace=fsync,rename,renameat,renameat2", "-o"]).arg(log);
        strace.arg(program).args(words).output().is_ok_and(|output| output.status.success())
    };
    if !traced("true", &[], Path::new("/dev/null")) {
        skip("strace", "it is not installed, or may not trace");
        return;
    }
    let dir = TempDir::new().unwrap();
    let (log, out) = (dir.path().join("calls"), dir.path().join("units"));
    let words = ["units", "--app", "demo", "--tty", "--output", out.to_str().unwrap()];
    assert!(traced(env!("CARGO_BIN_EXE_iottymux"), &words, &log));
    let calls = fs::read_to_string(log).unwrap();
    let calls: Vec<&str> = calls.lines().map(|line| line.split('(').next().unwrap()).collect();
    assert_eq!(calls.len(), 3 * tree(&out).len(), "{calls:?}");
    for file in calls.chunks(3) {
        assert!(
            file[0] == "fsync" && file[1].starts_with("rename") && file[2] == "fsync",
            "{calls:?}"
        );
    }
}

#[test]
fn foreign_files_stay() {
    let dir = TempDir::new().unwrap();
    let out = dir.path().to_str().unwrap();
    let target = dir.path().join("target");
    fs::write(&target, "mine").unwrap();
    fs::create_dir(dir.path().join("demo.service.d")).unwrap();
    let place = dir.path().join("demo.service.d/50-iottymux.conf");
    let fifo = || nix::unistd::mkfifo(&place, nix::sys::stat::Mode::S_IRWXU).unwrap();
    let cases: [(&str, &dyn Fn()); 4] = [
        ("was not written by iottymux", &|| fs::write(&place, "[Unit]\n").unwrap()),
        ("symbolic", &|| std::os::unix::fs::symlink(&target, &place).unwrap()),
        ("not a regular file", &fifo),
        ("not a regular file", &|| fs::create_dir(&place).unwrap()),
    ];
    for (why, make) in cases {
        make();
        for more in [&["--tty"][..], &["--remove"]] {
            let output = units(&[&["--app", "demo", "--output", out], more].concat());
            let said = String::from_utf8(output.stderr).unwrap();
            assert_eq!(output.status.code(), Some(1), "{said}");
            assert!(said.contains(why) && said.lines().count() == 1, "{why}: {said}");
        }
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2, "nothing was written");
        let _ = fs::remove_file(&place).or_else(|_| fs::remove_dir(&place));
    }
    assert_eq!(fs::read_to_string(&target).unwrap(), "mine");
}

#[test]
fn impossible_options_are_refused() {
    let long = "x".repeat(252);
    for (words, why) in [
        (&["--tty"][..], "--app"),
        (&["--app", "a#"], "an app name can only have"),
        (&["--app", "a", "--stdin", "log"], "stdin cannot be log"),
        (
            &["--app", "a", "--stdin", "interactive", "--stdout", "tty"],
            "interactive cannot be combined",
        ),
        (&["--app", "a", "--stdout", "stderr"], "values: interactive, tty, stream, log, null]"),
        (&["--app", "a", "--tty", "--stdin", "null"], "cannot be used with"),
        (
            &["--app", "a", "--annotation", "coreos.com/rkt/stage2/stdout=x"],
            "expected interactive, tty, stream, log or null",
        ),
        (&["--app", "a", "--annotation", "coreos.com/rkt/stage2/stdx=tty"], "unknown annotation"),
        (
            &["--app", "a", "--annotation", "coreos.com/rkt/experiment/logmode=x"],
            "expected k8s-plain",
        ),
        (&["--app", "a", "--annotation", "x"], "NAME=VALUE"),
        (&["--app", &long, "--stdin", "tty", "--stdout", "stream"], "at most 255"),
        (&["--app", "a", "--env", "IOTTYMUX_STREAMS=stdin"], "another option sets"),
        (&["--app", "a", "--env", "IOTTYMUX_NOTHING=1"], "unknown option of a mux"),
        (&["--app", "a", "--env", "IOTTYMUX_BACKLOG=1\n2"], "cannot have control characters"),
        (&["--app", "a", "--env", "IOTTYMUX_NOTHING="], "unknown option of a mux"),
        (
            &["--app", "a", "--env", "IOTTYMUX_BACKLOG=1M", "--env", "IOTTYMUX_BACKLOG=2M"],
            "IOTTYMUX_BACKLOG: it is given twice",
        ),
        (
            &["--app", "a", "--env", "IOTTYMUX_ALLOW_GID=7,0", "--env", "IOTTYMUX_VIEW_GID=root"],
            "group 0 is in IOTTYMUX_ALLOW_GID and in IOTTYMUX_VIEW_GID, and could type; leave it",
        ),
        (
            &["--app", "a", "--log", "raw:/a", "--env", "IOTTYMUX_LOG=raw:/b"],
            "--log and --env IOTTYMUX_LOG exclude each other",
        ),
        (&["--app", "a", "--log", "cri:/a,b"], "cannot have commas"),
        (&["--app", "a", "--state-dir", "run"], "cannot be used in a unit"),
        (&["--app", "a", "--state-dir", "/a\nb"], "cannot be used in a unit"),
        (&["--app", "a", "--binary", "iottymux"], "absolute path"),
        (&["--app", "a", "--binary", "/a'b"], "quotes"),
        (&["--app", "a", "--remove"], "--output"),
        (&["--pod-manifest", "/dev/null"], "pod manifest /dev/null"),
        (&["--pod-manifest", "/nothing"], "No such file"),
        (&["--pod-manifest", "/dev/zero"], "not a regular file"),
    ] {
        let output = units(words);
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{words:?}: {said}");
        assert!(said.contains(why) && said.lines().count() == 1, "{words:?}: {said}");
        assert_eq!(output.stdout, b"");
    }
}

/// The pods that rkt has made, with the streams that rkt gave them.
#[test]
fn what_rkts_manifests_ask_for() {
    let manifest = |modes: [&str; 3], log: bool| {
        let annotation = |(name, value): (&str, &str)| serde_json::json!({"name": format!("coreos.com/rkt/{name}"), "value": value});
        let mut app: Vec<_> = ["stage2/stdin", "stage2/stdout", "stage2/stderr"]
            .into_iter()
            .zip(modes)
            .map(annotation)
            .collect();
        app.push(annotation(("experiment/kubernetes-log-path", "hello/0.log")));
        let pod = if log { vec![annotation(("experiment/logmode", "k8s-plain"))] } else { vec![] };
        serde_json::json!({"acVersion": "0.8.11", "acKind": "PodManifest", "annotations": pod,
            "apps": [{"name": "demo", "image": {}, "annotations": app},
                     {"name": "quiet", "image": {}, "annotations": null}]})
    };
    let state = "/rkt/iottymux/demo";
    let file = |stream: &str| format!("file:{state}/stage2-{stream}");
    // As rkt does.
    let console = "journal+console";
    for (modes, log, input, output, error) in [
        (["null", "log", "log"], false, "null".into(), console.into(), console.into()),
        (["stream"; 3], false, file("stdin"), file("stdout"), file("stderr")),
        (["tty"; 3], false, "tty-force".into(), "tty".into(), "tty".into()),
        (["null", "stream", "log"], false, "null".into(), file("stdout"), console.into()),
        (["null", "stream", "log"], true, "null".into(), file("stdout"), file("stderr")),
        (["tty", "stream", "null"], false, "tty-force".into(), file("stdout"), "null".to_owned()),
    ] {
        let dir = TempDir::new().unwrap();
        let path = dir.path().join("pod");
        let mut manifest = manifest(modes, log);
        if log {
            // Each app of such a pod has a log.
            manifest["apps"].as_array_mut().unwrap().pop();
        }
        fs::write(&path, manifest.to_string()).unwrap();
        let out = dir.path().join("units");
        let words = ["--pod-manifest", path.to_str().unwrap(), "--state-dir", "/rkt/iottymux"];
        let root = ["--output", out.to_str().unwrap(), "--seen-as", "/usr/lib/systemd/system"];
        told(&[&words[..], &root, &["--binary", "/iottymux"]].concat());
        let files = tree(&out);
        let demo = lines(&files["demo.service.d/50-iottymux.conf"]);
        for line in [
            format!("StandardInput={input}"),
            format!("StandardOutput={output}"),
            format!("StandardError={error}"),
        ] {
            assert!(demo.contains(&&*line), "{modes:?}: no {line} in {demo:?}");
        }
        if !log {
            let quiet = lines(&files["quiet.service.d/50-iottymux.conf"]);
            assert!(quiet.contains(&"StandardOutput=journal+console"), "{quiet:?}");
        }
        let env = files.get("iomux@demo.service.d/iottymux.env").map(|text| lines(text));
        let env = env.unwrap_or_default();
        assert_eq!(env.contains(&"KUBERNETES_LOG_PATH=\"hello/0.log\""), log, "{env:?}");
        if log {
            let mux = lines(&files["iomux@demo.service.d/50-iottymux.conf"]);
            for line in [
                "RequiresMountsFor=/rkt/kubernetes/log/hello/0.log",
                "EnvironmentFile=-/usr/lib/systemd/system/iomux@demo.service.d/iottymux.env",
                "ExecStart=/iottymux stream --app %i",
            ] {
                assert!(mux.contains(&line), "no {line} in {mux:?}");
            }
        }
        let again = [&words[..], &root, &["--remove"]].concat();
        told(&again);
        assert_eq!(tree(&out), BTreeMap::new());
    }
}

/// A manifest is a file, not too long, to which a link may lead: nothing else is waited for.
#[test]
fn a_manifest_that_is_no_file() {
    let dir = TempDir::new().unwrap();
    let [fifo, file, link] = ["fifo", "file", "link"].map(|name| dir.path().join(name));
    nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRWXU).unwrap();
    fs::write(&file, r#"{"acKind": "PodManifest", "apps": [{"name": "demo"}]}"#).unwrap();
    std::os::unix::fs::symlink("file", &link).unwrap();
    let refused = |path: &Path, why: &str| {
        let refused = units(&["--pod-manifest", path.to_str().unwrap()]);
        let said = String::from_utf8(refused.stderr).unwrap();
        assert_eq!(refused.status.code(), Some(2), "{said}");
        assert!(said.contains(why) && said.lines().count() == 1, "{said}");
    };
    refused(&fifo, "fifo: it is not a regular file");
    assert!(told(&["--pod-manifest", link.to_str().unwrap()]).contains("demo.service.d"));
    fs::File::options().write(true).open(&file).unwrap().set_len((16 << 20) + 1).unwrap();
    refused(&link, "it is larger than");
}

/// All apps of a pod are taken away, or none.
#[test]
fn a_pod_is_removed_as_a_whole() {
    let dir = TempDir::new().unwrap();
    let apps: Vec<_> = ["a", "b", "c"]
        .map(|name| {
            serde_json::json!({"name": name, "annotations": [
            {"name": "coreos.com/rkt/stage2/stdout", "value": "stream"}]})
        })
        .into();
    let manifest = serde_json::json!({"acKind": "PodManifest", "apps": apps});
    let (path, out) = (dir.path().join("pod"), dir.path().join("units"));
    fs::write(&path, manifest.to_string()).unwrap();
    let (path, out_dir) = (path.to_str().unwrap(), out.to_str().unwrap());
    let words = ["--pod-manifest", path, "--state-dir", "/rkt/iottymux", "--output", out_dir];
    told(&words);
    let env = out.join("iomux@c.service.d/iottymux.env");
    let text = fs::read_to_string(&env).unwrap();
    fs::write(&env, text.clone() + "X=1\n").unwrap();
    let before = tree(&out);
    let remove = [&words[..], &["--remove"]].concat();
    let refused = units(&remove);
    assert_eq!(refused.status.code(), Some(1), "{refused:?}");
    assert!(String::from_utf8_lossy(&refused.stderr).contains("was changed after"), "{refused:?}");
    assert_eq!(tree(&out), before);
    fs::write(&env, text).unwrap();
    let removed = told(&remove);
    assert_eq!(removed.lines().count(), before.len(), "{removed}");
    assert_eq!(tree(&out), BTreeMap::new());
}

/// A name is escaped as systemd does it.
#[test]
fn names_of_services_as_systemd_escapes_them() {
    let names = [
        "my game", "a*b?", "é", "a%b", "-x", "a..b", ".x", "a\\x2db", "game@a b", "#;'\"$`", "a\tb",
    ];
    for name in names {
        let theirs = Command::new("systemd-escape").arg("--mangle").arg("--").arg(name).output();
        let Ok(theirs) = theirs else {
            return skip("systemd-escape", "it is not installed");
        };
        let theirs = String::from_utf8(theirs.stdout).unwrap();
        let shown = told(&["--app", "x", "--tty", &format!("--service={name}")]);
        let last = shown.lines().rfind(|line| line.starts_with("# /")).unwrap();
        let dir = Path::new(last.trim_start_matches("# ")).parent().unwrap();
        let ours = dir.file_name().unwrap().to_str().unwrap().strip_suffix(".d").unwrap();
        assert_eq!(ours, theirs.trim_end_matches('\n'), "{name:?}");
    }
}

/// What docs/rkt.md shows of a pod is what is written.
#[test]
fn the_example_of_a_pod() {
    let text = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/rkt.md")).unwrap();
    let section = text.split("\n## In your own stage1\n").nth(1).unwrap();
    let block = |kind: &str| {
        let block = section.split(&format!("```{kind}\n")).nth(1).unwrap();
        block.split("```").next().unwrap()
    };
    let dir = TempDir::new().unwrap();
    fs::write(dir.path().join("pod"), block("json")).unwrap();
    let words = block("console").lines().next().unwrap().strip_prefix("$ iottymux ").unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_iottymux"))
        .args(words.split(' '))
        .current_dir(dir.path())
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let files = tree(&dir.path().join("rootfs/etc/systemd/system"));
    assert_eq!(lines(&files["web.service.d/50-iottymux.conf"]), lines(block("ini")));
    assert!(files.contains_key("ttymux@shell.service.d/iottymux.env"));
}

/// rkt's own templates bind the mux to the app, which then never starts behind it: nothing is written.
#[test]
fn templates_of_rkt_are_refused() {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/pod/fixtures/rkt/both");
    for (name, mode) in [("iomux@.service", "stream"), ("ttymux@.service", "tty")] {
        let dir = TempDir::new().unwrap();
        let out = dir.path().to_str().unwrap();
        fs::copy(fixtures.join(name), dir.path().join(name)).unwrap();
        let before = tree(dir.path());
        let words = ["--app", "demo", "--stdout", mode, "--state-dir", "/rkt/iottymux"];
        let refused = units(&[&words[..], &["--output", out]].concat());
        let said = String::from_utf8(refused.stderr).unwrap();
        assert_eq!(refused.status.code(), Some(1), "{said}");
        let why = format!("{name} is not a template of iottymux");
        assert!(said.contains(&why) && said.lines().count() == 1, "{said}");
        assert_eq!(tree(dir.path()), before);
        // What is there keeps nothing from being taken away.
        told(&[&words[..], &["--output", out, "--remove"]].concat());
        assert_eq!(tree(dir.path()), before);
        // An app that has no mux needs no template.
        told(&["--app", "demo", "--stdout", "log", "--output", out]);
    }
    // Ours are used as they are, by whomever they were written.
    let dir = TempDir::new().unwrap();
    let ours = concat!(env!("CARGO_MANIFEST_DIR"), "/units/iomux@.service");
    fs::copy(ours, dir.path().join("iomux@.service")).unwrap();
    let wrote =
        told(&["--app", "demo", "--stdout", "stream", "--output", dir.path().to_str().unwrap()]);
    assert!(!wrote.contains("iomux@.service\n"), "{wrote}");
}

/// Values of a list add up, and an option without a value is none.
#[test]
fn options_of_a_mux_that_are_named_again() {
    let lists = ["--env", "IOTTYMUX_ALLOW_GID=7", "--env", "IOTTYMUX_ALLOW_GID=8,9,7"];
    let output =
        units(&[&["--app", "a", "--tty", "--env", "IOTTYMUX_BACKLOG="][..], &lists].concat());
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(said.contains("IOTTYMUX_ALLOW_GID=\"7,8,9\"") && !said.contains("BACKLOG"), "{said}");
}
