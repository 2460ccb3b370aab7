//! Real programs through the mux, at a real terminal: who detaches and attaches again in another window, of
//! the same or of another size, sees what they show when they are run at that terminal directly.

use std::fs;
use std::path::Path;

use iottymux::types::size::Size;

use crate::proc::{Proc, eventually};
use crate::rig::{APP, Rig};
use crate::tmux::{Tmux, Window};

/// What the terminal has at first; then a window of the same size, a larger, a smaller, and that again.
const SIZES: [Size; 5] = [
    Size { rows: 24, cols: 80 },
    Size { rows: 24, cols: 80 },
    Size { rows: 30, cols: 100 },
    Size { rows: 16, cols: 60 },
    Size { rows: 24, cols: 80 },
];
/// What each program finds in its environment, and where.
const SETTING: &str = "unset TMUX; export TERM=xterm-256color LESS= PS1='$ ' LANG=C.UTF-8; \
    mkdir -p $DIR/home; cd $DIR/home; export HOME=$PWD";
/// What an attach is told to show all that a direct run does: usually it keeps titles to itself.
const ALL_SHOWN: &str = "--pass title";
/// What a terminal is like that nobody has changed.
const USUAL: &str = "cursor 1 alternate 0 mouse 000000 keys 00 insert 0 origin 0 wrap 1\n";

/// Keys, and what is then to be seen; one for each of [`SIZES`]. No keys at first: a terminal that is not
/// raw yet would show them itself.
type Steps = [(&'static str, &'static str); SIZES.len()];

/// What a program is compared with.
enum Beside {
    /// Another run of it, without a mux.
    Direct,
    /// What it prints, byte for byte, for its runs differ.
    Bytes,
}

struct Scene {
    tmux: Tmux,
    rig: Rig,
    _mux: Proc,
}

impl Scene {
    /// A mux whose app is a shell command that begins when it is told to.
    fn new(needs: &[&str], command: &str) -> Option<Self> {
        let tmux = Tmux::with(needs)?;
        let rig = Rig::new();
        nix::unistd::mkfifo(&rig.file("go"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        let command = format!("read x <{}; {SETTING}; {command}", rig.file("go").display());
        let mut run =
            rig.command(["run", "--foreground", "--app", APP, "--tty", "--", "sh", "-c", &command]);
        run.env("DIR", rig.file("mux"));
        let mux = rig.start(run);
        Some(Self { tmux, rig, _mux: mux })
    }

    fn go(&self) {
        fs::write(self.rig.file("go"), "go\n").unwrap();
    }

    /// Attaches in a new window.
    fn attach(&self, size: Size, options: &str) -> Window {
        let clients = || self.rig.status()["clients"].as_array().unwrap().len();
        let before = clients();
        let state = self.rig.state();
        let (before_file, after_file) = (self.tmux.file("before"), self.tmux.file("after"));
        let command = format!(
            "trap : INT; stty -a >{}; IOTTYMUX_STATE_DIR={} {} attach --app {APP} --reconnect 0 {options}; \
             stty -a >{}; exec cat",
            before_file.display(),
            state.display(),
            env!("CARGO_BIN_EXE_iottymux"),
            after_file.display(),
        );
        let window = self.tmux.window(size, "attached", &command);
        // The one that asks comes and goes.
        eventually("it is attached", || clients() > before);
        window
    }

    /// A client is told to leave, and its terminal is as before.
    fn leave(&self, window: &Window, keys: &[&str]) {
        window.press(keys);
        let is_usual = || window.modes() == USUAL;
        let modes = |name: &str| fs::read_to_string(self.tmux.file(name)).unwrap_or_default();
        eventually("the terminal's modes are back", || {
            is_usual() && modes("after").ends_with('\n')
        });
        assert_eq!(modes("after"), modes("before"));
        fs::remove_file(self.tmux.file("after")).unwrap();
    }
}

fn write(dir: &Path, name: &str, text: &str) {
    fs::create_dir_all(dir.join("home")).unwrap();
    fs::write(dir.join("home").join(name), text).unwrap();
}

/// Runs a shell command under a mux and without, types the same, and compares what is shown.
fn same_as_direct(
    needs: &[&str],
    files: &[(&str, &str)],
    command: &str,
    beside: &Beside,
    steps: &Steps,
) {
    let under = match beside {
        Beside::Direct => command.to_owned(),
        Beside::Bytes => format!("exec script -qefc '{command}' ../bytes"),
    };
    let Some(scene) = Scene::new(needs, &under) else { return };
    for (name, text) in files {
        write(&scene.rig.file("mux"), name, text);
        write(&scene.rig.file("direct"), name, text);
    }
    let mut window = scene.attach(SIZES[0], ALL_SHOWN);
    scene.go();
    let direct = match beside {
        Beside::Direct => {
            let dir = scene.rig.file("direct");
            let command = format!("DIR={}; {SETTING}; {command}", dir.display());
            scene.tmux.window(SIZES[0], "direct", &command)
        }
        Beside::Bytes => {
            let bytes = scene.rig.file("mux").join("bytes");
            eventually("there are bytes", || bytes.exists());
            // Behind the line that is script's own.
            let command = format!("stty raw -echo; exec tail -n +2 -f {}", bytes.display());
            scene.tmux.window(SIZES[0], "direct", &command)
        }
    };
    for (round, (size, (keys, until))) in SIZES.iter().zip(steps).enumerate() {
        let when = format!("round {round}, {size:?}");
        if round > 0 {
            scene.leave(&window, &["C-p", "C-q"]);
            direct.resize(*size);
            window = scene.attach(*size, ALL_SHOWN);
            window.assert_same(&direct, &format!("{when}, attached"));
        }
        window.type_in(keys);
        if matches!(beside, Beside::Direct) {
            direct.type_in(keys);
        }
        window.wait_for(until);
        direct.wait_for(until);
        window.assert_same(&direct, &format!("{when}, after {}", keys.escape_debug()));
    }
}

#[test]
fn vim_with_a_split() {
    let numbers: Vec<String> = (1..=100).map(|n| n.to_string()).collect();
    same_as_direct(
        &["vim"],
        &[("f", &numbers.join("\n"))],
        "echo before; vim -u NONE -i NONE -n -N -c 'set mouse=a number hlsearch laststatus=2 ttimeoutlen=50 ruler' \
         -c split -c 'syntax on' f; echo back to the shell; exec cat",
        &Beside::Direct,
        &[
            ("", "Top"),
            ("40G/5\rix\u{6f22}\x1b\x17w50GiABC\x1b", "ABC50"),
            ("\x1b[<0;9;3M\x1b[<0;9;3miclicked\x1b", "clicked"),
            (":vsplit\rG", "Bot"),
            (":qa!\r", "back to the shell"),
        ],
    );
}

#[test]
fn less() {
    let command = "echo before; seq 1000 | less; echo back to the shell; exec cat";
    let steps = [
        ("", ":"),
        ("500g", "510"),
        ("/700\r", "710"),
        ("800g", "810"),
        ("q", "back to the shell"),
    ];
    same_as_direct(&["less"], &[], command, &Beside::Direct, &steps);
}

#[test]
fn top() {
    let steps = [("", "PID"), ("1", "PID"), ("c", "PID"), ("V", "PID"), ("h", "Help")];
    same_as_direct(&["top", "script"], &[], "exec top -d 1000", &Beside::Bytes, &steps);
}

#[test]
fn htop() {
    let steps = [
        ("", "F7Nice"),
        ("\x1b[B\x1b[B", "F7Nice"),
        ("\x1b[<0;9;12M\x1b[<0;9;12m", "F7Nice"),
        ("t", "F7Nice"),
        ("h", "file locks"),
    ];
    same_as_direct(&["htop", "script"], &[], "exec htop -d 1000", &Beside::Bytes, &steps);
}

#[test]
fn man() {
    let lines: Vec<String> = (1..=1000).map(|n| format!("\\fB{n}\\fP \\fIth\\fP line")).collect();
    let page = format!(
        ".TH TEST 1\n.SH NAME\ntest \\- of \\fBbold\\fP\n.SH LINES\n.nf\n{}\n",
        lines.join("\n")
    );
    same_as_direct(
        &["man"],
        &[("test.1", &page)],
        "echo before; man -l test.1; echo back to the shell; exec cat",
        &Beside::Direct,
        &[
            ("", "Manual page"),
            ("\x06500g", "line 500"),
            ("/600\r", "600 th line"),
            ("h", "SUMMARY OF"),
            ("qq", "back to the shell"),
        ],
    );
}

#[test]
fn a_line_that_is_edited() {
    same_as_direct(
        &["bash"],
        &[],
        "exec bash --norc --noprofile -i",
        &Beside::Direct,
        &[
            ("", "$"),
            ("echo hello world\x01\x1bf\x1b[DXX\x05\x17end of it", "echXXo hello end of it"),
            ("\recho 'first\rsecond", "> second"),
            ("'\r\x1b[A", "second\n$ echo"),
            // Not ^C: bash may come to that only after what is typed behind it.
            ("\x15\x12hello", "reverse-i-search"),
        ],
    );
}

/// Long lines are broken anew in a small window, and come back, as those above it do.
#[test]
fn lines_of_a_shell() {
    let lines = (1..=20).map(|n| format!("{n} {}", "abcdefg ".repeat(9))).collect::<Vec<_>>();
    same_as_direct(
        &["bash"],
        &[("lines", &(lines.join("\n") + "\n"))],
        "exec bash --norc --noprofile -i",
        &Beside::Direct,
        &[
            ("", "$"),
            ("cat lines\r", "20 abc"),
            ("echo \x1b[200~wide\x1b[201~ \u{6f22}\u{5b57} >/dev/null\r", "null"),
            ("echo small", "small"),
            ("\x15echo back\r", "back"),
        ],
    );
}

/// What the programs below are: each draws its screen anew in each window, and shows the keys.
const FRAME: &str = r#"
    use strict; $| = 1; system 'stty raw -echo'; my ($rows, $cols, $keys) = (0, 0, '');
    sub show { ($rows, $cols) = split ' ', `stty size`; draw($rows, $cols, $keys); }
    $SIG{WINCH} = \&show; show();
    while (1) {
        my $n = sysread STDIN, my $key, 1; next unless defined $n; last unless $n;
        last if $key eq 'q'; $key =~ s/[^ -~]/^/; $keys .= $key; key($key, $keys);
    }
    end(); system 'stty -raw echo'; print "back to the shell\n"; exec 'cat';
"#;

fn frame(needs: &[&str], program: &str, steps: &Steps) {
    let program = format!("{program}{FRAME}");
    let files = [("program", program.as_str())];
    let needs = [&["perl"], needs].concat();
    same_as_direct(&needs, &files, "echo before; exec perl program", &Beside::Direct, steps);
}

#[test]
fn a_program_with_a_mouse() {
    let program = r#"
        sub draw { print "\e[?1049h\e[?1003;1006h\e[?25l\e=\e[?1h\e[H\e[2J\e[$_[0];1H\e[7m$_[0] x $_[1]\e[m"; key('', $_[2]); }
        sub key { print "\e[10;10Hclicks \e[1;4;38;5;99m$_[1]\e[m\e[48;2;9;8;7m\e[K\e[m"; }
        sub end { print "\e>\e[?1l\e[?25h\e[?1003;1006l\e[?1049l"; }
    "#;
    let steps = [
        ("", "clicks"),
        ("\x1b[<0;1;2M\x1b[<0;1;2m", "clicks ^[<0;1;2M^[<0;1;2m"),
        ("\x1b[<35;50;12M", "50;12M"),
        ("x", "50;12Mx"),
        ("q", "back to the shell"),
    ];
    frame(&[], program, &steps);
}

#[test]
fn wide_and_combining_characters() {
    let program = r#"
        sub draw { my ($rows, $cols) = @_;
            print "\e[H\e[2J\xe6\xbc\xa2\xe5\xad\x97 e\xcc\x81 a\xcc\x88\xcc\xb2 \xed\x95\x9c\xf0\x9f\x98\x80";
            print "\e[3;1H", 'x' x ($cols - 1), "\xe6\xbc\xa2 wraps as a whole";
            print "\e[6;", $cols - 1, "H\e[7m\xe6\xbc\xa2\e[m\e[7;", $cols, "He\xcc\x81";
            print "\e[8;1H\xe6\xbc\xa2\xe6\xbc\xa2\e[8;3Hab\e[12;1H", $_[2]; }
        sub key { print $_[0]; }
        sub end { print "\e[H\e[2J"; }
    "#;
    let steps =
        [("", "wraps as"), ("b", "b"), ("c", "bc"), ("d", "bcd"), ("q", "back to the shell")];
    frame(&[], program, &steps);
}

#[test]
fn a_program_in_the_alternate_screen() {
    let program = r#"
        print "\e[31mon the main screen\e[m\r\n\e[?1049h\e]2;a title\a";
        sub draw { my ($rows, $cols) = @_;
            print "\e[r\e[H\e[2J\e[2;1H\e[1;3;33m$rows rows\e[m\e[$rows;1Hlast\e[4;8r\e[?6h\e[2;3H\e[2;35mscrolls\e[m$_[2]"; }
        sub key { print "\r\n\e[4m$_[0]\e[m$_[1]"; }
        sub end { print "\e[?6l\e[r\e[?1049l"; }
    "#;
    let steps = [
        ("", "scrolls"),
        ("b", "bb"),
        ("c", "cbc"),
        ("defgh", "hbcdefgh"),
        ("q", "back to the shell"),
    ];
    frame(&[], program, &steps);
}

/// A window of another size sees the part of the screen that fits, never decides the size, and is left as
/// it was.
#[test]
fn a_viewer() {
    let Some(scene) = Scene::new(
        &["vim"],
        "seq 100 >f; exec vim -u NONE -i NONE -n -N -c 'set mouse=a number ruler' f",
    ) else {
        return;
    };
    let window = scene.attach(SIZES[0], "");
    scene.go();
    window.wait_for("Top");
    window.type_in("22Giwith the cursor\x1b");
    window.wait_for("with the cursor22");
    for (rows, cols) in [(10, 30), (40, 120)] {
        let viewer = scene.attach(Size { rows, cols }, "--read-only");
        let cut = |text: &str| -> Vec<String> {
            let lines = text.lines().take(rows.into());
            lines
                .map(|line| {
                    line.chars().take(cols.into()).collect::<String>().trim_end().to_owned()
                })
                .collect()
        };
        let shown = || {
            let (want, mut got) = (cut(&window.text()), cut(&viewer.text()));
            got.truncate(want.len());
            got == want
        };
        eventually("the viewer sees what fits", shown);
        assert!(viewer.modes().contains("alternate 1"));
        // It is looked at, and goes on being so.
        window.type_in("ggia line at the top, \x1b");
        viewer.wait_for("a line at the top");
        eventually("the viewer sees what fits", shown);
        viewer.type_in("dG");
        window.type_in("22G");
        eventually("the viewer sees what fits", shown);
        assert_eq!(window.text().lines().count(), usize::from(SIZES[0].rows));
        scene.leave(&viewer, &["C-c"]);
    }
    assert!(window.text().contains("with the cursor22"));
}

/// On the main screen the cursor is always to be seen.
#[test]
fn a_viewer_sees_the_prompt() {
    let Some(scene) = Scene::new(&["bash"], "seq 20; exec bash --norc --noprofile -i") else {
        return;
    };
    let window = scene.attach(SIZES[0], "");
    scene.go();
    window.wait_for("20\n$");
    let viewer = scene.attach(Size { rows: 5, cols: 40 }, "--read-only");
    window.type_in("a line");
    viewer.wait_for("18\n19\n20\n$ a line");
    scene.leave(&viewer, &["C-c"]);
}

/// With nobody attached the mux answers what programs ask at their start: they do not wait for it, and
/// who comes then sees them as they are.
#[test]
fn started_with_nobody_there() {
    let vim = "exec vim -u NONE -i NONE -n -N --cmd 'autocmd VimEnter * call writefile([], \"up\")' \
        --cmd 'autocmd TermResponse * call writefile([v:termresponse], \"told\")' -c 'set showcmd'";
    let Some(scene) = Scene::new(&["vim"], vim) else { return };
    scene.go();
    let home = scene.rig.file("mux").join("home");
    eventually("vim has started", || home.join("up").exists());
    eventually("vim was told what its terminal is", || {
        fs::read_to_string(home.join("told")).is_ok_and(|told| told.starts_with("\x1b[>"))
    });
    for (needs, command, shown) in [
        ("bash", "exec bash --norc --noprofile -i", "$"),
        ("less", "seq 1000 | exec less", ":"),
        ("htop", "exec htop -d 1000", "F7Nice"),
        ("top", "exec top -d 1000", "PID"),
    ] {
        let Some(scene) = Scene::new(&[needs], command) else { return };
        scene.go();
        // Nobody types or tells of a window: what is shown is there without.
        let window = scene.attach(SIZES[0], "--read-only");
        window.wait_for(shown);
    }
}

/// Two terminals see the same question; the app gets one answer, and no more behind it.
#[test]
fn two_terminals_answer_once() {
    let program = r#"
        use strict; $| = 1; system 'stty raw -echo'; my ($all, $key) = ('', '');
        print "\e[5;7H"; sysread STDIN, $key, 1; print "\e[6n\e[casked"; $all .= $key;
        while ($all !~ /x.*x/s) { sysread STDIN, $key, 1; $all .= $key; }
        my $cursor = () = $all =~ /\e\[5;7R/g; my $kind = () = $all =~ /\e\[\?[\d;]*c/g;
        $all =~ s/\e\[5;7R|\e\[\?[\d;]*c//g; $all =~ s/\e/^[/g;
        print "\e[H\e[2Jcursor $cursor kind $kind keys $all end"; sysread STDIN, $key, 1;
    "#;
    let Some(scene) = Scene::new(&["perl"], "exec perl program") else { return };
    write(&scene.rig.file("mux"), "program", program);
    let windows = [(); 2].map(|()| scene.attach(SIZES[0], ""));
    scene.go();
    for window in &windows {
        // It shows the app's bytes, and so sees the question.
        eventually("the cursor is where the app has put it", || window.state().contains("at 6 4"));
    }
    windows[0].type_in("g");
    // What a terminal replies comes before what is typed then.
    for window in &windows {
        window.wait_for("asked");
        window.type_in("x");
    }
    for window in &windows {
        window.wait_for("cursor 1 kind 1 keys gxx end");
    }
}
