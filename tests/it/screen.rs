//! What programs draw, redrawn in a real terminal emulator: tmux shows it, and beside it what our model of
//! the screen makes of the very same bytes. Real programs are in `programs.rs` and `tests/terminal`.

use std::fs;
use std::io::Write;

use iottymux::screen::Screen;
use iottymux::types::size::Size;

use crate::proc::eventually;
use crate::tmux::Tmux;

const SIZE: Size = Size { rows: 24, cols: 80 };
/// What is set as the title when all has been shown.
const MARK: &str = "all has been shown";

#[test]
fn all_attributes_and_background_colours() {
    // As vim does with a coloured background, and programs that insert and delete.
    let script = concat!(
        r"printf '\033[1;2mboth\033[m \033[9mstruck\033[m \033[5mblink\033[m \033[8mhidden\033[m \033[53mover\033[m",
        r" \033[4:3mcurly\033[m \033[21mtwo\033[m \033[4;58:5:9mcoloured\033[m \033[4;58:2::1:2:3mthree\033[m\r\n",
        r"\033[44m\033[2;5Hone\033[K\033[3;1Htwo\033[3;2H\033[2@\033[4;1Hthree\033[2P\033[5;1Hfour\033[X\033[8;12r\033[12;1H",
        r"\n\n\033[8;1H\033M\033[45m\033[9;1H\033[2L\033[46m\033[M\033[r\033[42m\033[20;1H\033[2S\033[41m\033[T",
        r"\033[m\033[15;1H\033[4hinserted\033[15;1Hbefore\033[4l\033[16;1H\033[3g\033[16;5H\033H\033[16;1H\tstop",
        r"\033[17;1Ha\0337\033[?1049h\033[41mother\033[5;5Hx\033[?1049lb\033[m",
        r"\033[18;1Hcombined e\314\201\314\202\033[19;1Hend of it'; exec sleep 1000",
    );
    let Some(tmux) = Tmux::with(&[]) else { return };
    let direct = tmux.window(SIZE, "record", &format!("export TERM=xterm-256color; {script}"));
    direct.wait_for("end of it");
    // As if the program had.
    let print = |bytes: &[u8]| direct.terminal().write_all(bytes).unwrap();
    print(format!("\x1b]2;{MARK}\x1b\\").as_bytes());
    let bytes = || fs::read(tmux.file("record")).unwrap_or_default();
    eventually("all is recorded", || {
        bytes().windows(MARK.len()).any(|part| part == MARK.as_bytes())
    });
    eventually("all is shown", || direct.state().contains(MARK));

    let bytes = bytes();
    let redraw = |cut: usize| {
        let mut screen = Screen::new(SIZE);
        screen.process(&bytes[..cut]);
        [screen.redraw(SIZE), bytes[cut..].to_vec()].concat()
    };
    let show = |name: &str, bytes: &[u8]| {
        fs::write(tmux.file(name), bytes).unwrap();
        let path = tmux.file(name);
        let command = format!("stty raw -echo; cat {}; exec sleep 1000", path.display());
        tmux.window(SIZE, "shown", &command)
    };
    for cut in [bytes.len(), bytes.len() / 2, bytes.len() / 3] {
        let redrawn = show(&format!("redraw{cut}"), &redraw(cut));
        redrawn.assert_same(&direct, &format!("redrawn at {cut}"));
    }
    if direct.modes().contains("alternate 1") {
        // What is behind the alternate screen.
        const LEAVE: &[u8] = b"\x1b[?1049l";
        let redrawn = show("left", &[&redraw(bytes.len()), LEAVE].concat());
        print(LEAVE);
        eventually("the main screen is shown", || direct.modes().contains("alternate 0"));
        redrawn.assert_same(&direct, "the main screen");
    }
}
