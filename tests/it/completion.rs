//! Completion in the shells, typed at a terminal: commands, options, and names of apps.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::{Duration, Instant};

use iottymux::types::size::Size;

use crate::rig::Rig;
use crate::tmux::{Tmux, Window};
use crate::wait::eventually;

const SCRIPTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/packaging/completions");
const SIZE: Size = Size { rows: 24, cols: 100 };
/// How long a person may wait for the names. A debug build on a busy machine has five times that.
const PROMPT: Duration = Duration::from_millis(250);

/// A shell at a terminal, with a state directory that has the apps `game-eu`, `game-us` and `web`.
struct Shell {
    tmux: Tmux,
    rig: Rig,
}

impl Shell {
    fn new(program: &str) -> Option<Self> {
        let tmux = Tmux::with(&[program])?;
        let rig = Rig::new();
        for app in ["game-eu", "game-us", "web"] {
            fs::create_dir_all(rig.state().join(app)).unwrap();
        }
        fs::create_dir(rig.file("bin")).unwrap();
        symlink(env!("CARGO_BIN_EXE_iottymux"), rig.file("bin/iottymux")).unwrap();
        fs::create_dir(rig.file("home")).unwrap();
        fs::write(rig.file("home/session.log"), "").unwrap();
        Some(Self { tmux, rig })
    }

    fn start(&self, command: &str) -> Window {
        let dir = self.rig.file("");
        let dir = Path::new(&dir).display();
        let command = format!(
            "cd {dir}/home; export HOME=$PWD PATH={dir}/bin:$PATH IOTTYMUX_STATE_DIR={dir}/state; \
             export LANG=C.UTF-8; exec {command}"
        );
        let window = self.tmux.window(SIZE, "screen", &command);
        window.wait_for("ready>");
        window
    }
}

/// Types this and Tab, and waits for what then stands there. Then it clears the line.
fn completes(window: &Window, typed: &str, shows: &str) {
    window.type_in(typed);
    window.press(&["Tab"]);
    let shows = format!("ready>{}\n", shows.trim_end());
    window.wait_for(&shows);
    window.press(&["C-u"]);
    eventually("the line is empty", || window.text().lines().any(|line| line.trim() == "ready>"));
}

/// The same in each shell.
fn completes_all(window: &Window) {
    completes(window, "iottymux at", "iottymux attach ");
    completes(window, "iottymux attach w", "iottymux attach web ");
    completes(window, "iottymux attach ga", "iottymux attach game-");
    completes(window, "iottymux attach --read", "iottymux attach --read-only ");
    // The value follows without a blank.
    completes(
        window,
        "iottymux enable --env IOTTYMUX_BAC",
        "iottymux enable --env IOTTYMUX_BACKLOG=",
    );
    completes(window, "iottymux attach --mode=tty-o", "iottymux attach --mode=tty-out");
    completes(window, "iottymux logs --file sess", "iottymux logs --file session.log ");
    completes(window, "iottymux control web resi", "iottymux control web resize ");
}

#[test]
fn in_bash() {
    let Some(shell) = Shell::new("bash") else { return };
    let script = "PS1='ready>'\nsource <(iottymux completion bash)\n";
    fs::write(shell.rig.file("rc"), script).unwrap();
    let rc = shell.rig.file("rc");
    let window = shell.start(&format!("bash --noprofile --rcfile {}", rc.display()));
    completes_all(&window);
    // All names, at the second Tab.
    window.type_in("iottymux attach ");
    window.press(&["Tab", "Tab"]);
    window.wait_for("game-eu  game-us  web");
}

#[test]
fn in_zsh() {
    // As a package installs it, and as a person reads it.
    for (before, after) in
        [(&*format!("fpath=({SCRIPTS} $fpath)"), ""), ("", "source <(iottymux completion zsh)")]
    {
        let Some(shell) = Shell::new("zsh") else { return };
        let script = format!(
            "PS1='ready>'\n{before}\nautoload -U compinit\ncompinit -u -D\n{after}\n\
             setopt no_always_last_prompt\n"
        );
        fs::write(shell.rig.file("home/.zshrc"), script).unwrap();
        let window = shell.start("zsh -d");
        completes_all(&window);
        window.type_in("iottymux attach ");
        window.press(&["Tab"]);
        window.wait_for("game-eu  game-us  web");
    }
}

#[test]
fn in_fish() {
    let Some(shell) = Shell::new("fish") else { return };
    let script = "function fish_prompt; echo -n 'ready>'; end; set fish_greeting; \
                  function fish_right_prompt; end; set -g fish_autosuggestion_enabled 0; \
                  iottymux completion fish | source";
    let window = shell.start(&format!("fish --no-config --init-command \"{script}\""));
    completes_all(&window);
    window.type_in("iottymux attach ");
    window.press(&["Tab"]);
    window.wait_for("game-eu  game-us  web");
}

/// A Tab must not make a person wait, whatever the muxes do: it asks none.
#[test]
fn names_come_at_once() {
    let rig = Rig::new();
    fs::create_dir_all(rig.state().join("web")).unwrap();
    let quickest = (0..5).map(|_| {
        let from = Instant::now();
        let mut words = rig.run(&["complete-words", "attach", ""]);
        assert_eq!(words.ends(), 0);
        assert_eq!(words.stdout.text(), "web\n");
        from.elapsed()
    });
    let quickest = quickest.min().unwrap();
    assert!(quickest < PROMPT, "{quickest:?}");
}
