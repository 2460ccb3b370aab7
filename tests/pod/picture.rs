//! The moving picture of the README: the program records a session, and this draws it.
//!
//! `IOTTYMUX_GOLDEN=1 cargo nextest run --test pod picture` makes `docs/picture.svg` anew. Without
//! that the session must still print what the picture shows.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Write as _;

use crate::documented::SERVER;
use crate::pod::{Plan, project_file};
use crate::proc::eventually;

/// Rows and columns.
const SIZE: (u16, u16) = (11, 88);
/// What is typed, what is waited for before the next, and the prompt behind that.
const SESSION: &[(&str, &str, &str)] = &[
    ("iottymux enable game --now\r", "can be attached: iottymux attach game", "# "),
    ("iottymux attach game\r", "game server up", "> "),
    ("say hello to all\r", "[all] hello to all", "> "),
    (DETACH, "detached from app game", "# "),
    ("iottymux ask game 'say from a script'\r", "[all] from a script", "# "),
    ("iottymux attach game\r", "[all] from a script", "> "),
];
/// The keys that leave, and what the picture says of them.
const DETACH: &str = "\x10\x11";
const DETACHES: &str = " ctrl-p ctrl-q ";
/// What is shown once they are pressed.
const DETACHED: &str = "iottymux: detached";

/// Pixels of a character.
const CELL: (f64, f64) = (8.4, 18.0);
const MARGIN: f64 = 14.0;
/// How long a typed character, a piece of output and the last screen stay, seconds.
const TYPED: f64 = 0.07;
const SHOWN: f64 = 1.0;
const LAST: f64 = 4.0;

/// A part of a row: its column, its text, and whether its colours are exchanged.
type Run = (u16, String, bool);
/// What a row shows, and from when to when.
type Shown = (u16, Vec<Run>, f64, f64);

fn runs(screen: &vt100::Screen, row: u16) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    for col in 0..SIZE.1 {
        let cell = screen.cell(row, col).unwrap();
        let text = if cell.has_contents() { cell.contents() } else { " " };
        match runs.last_mut().filter(|run| run.2 == cell.inverse()) {
            Some(run) => run.1 += text,
            None => runs.push((col, text.to_owned(), cell.inverse())),
        }
    }
    runs.retain(|run| run.2 || !run.1.trim().is_empty());
    runs
}

/// The rows of all screens of a recording, and its length.
fn play(cast: &str) -> (Vec<Shown>, f64) {
    let mut terminal =
        vt100::Parser::new(SIZE.0.try_into().unwrap(), SIZE.1.try_into().unwrap(), 0);
    let mut now = 0.0;
    let mut open: BTreeMap<u16, (Vec<Run>, f64)> = BTreeMap::new();
    let mut shown = Vec::new();
    for line in cast.lines().skip(1) {
        let (_, kind, text): (f64, char, String) = serde_json::from_str(line).unwrap();
        if kind != 'o' {
            continue;
        }
        if text.contains(DETACHED) {
            let label = (2, DETACHES.to_owned(), true);
            shown.push((SIZE.0 - 1, vec![label], now, now + SHOWN));
            now += SHOWN;
        }
        terminal.process(text.as_bytes());
        for row in 0..SIZE.0 {
            let runs = runs(terminal.screen(), row);
            let is_new = open.get(&row).is_none_or(|(old, _)| *old != runs);
            if is_new && let Some((old, from)) = open.insert(row, (runs, now)) {
                shown.push((row, old, from, now));
            }
        }
        let is_blank = terminal.screen().contents().trim().is_empty();
        now += if text.contains('\n') && !is_blank { SHOWN } else { TYPED };
    }
    let end = now + LAST;
    shown.extend(open.into_iter().map(|(row, (runs, from))| (row, runs, from, f64::INFINITY)));
    // What came within the same moment was not seen.
    shown.retain(|(_, runs, from, to)| !runs.is_empty() && to > from);
    (shown, end)
}

/// A row is hidden but from its time on until the next one; without animation the last screen is shown.
fn draw(cast: &str) -> String {
    let (shown, end) = play(cast);
    let (width, height) =
        (f64::from(SIZE.1) * CELL.0 + 2.0 * MARGIN, f64::from(SIZE.0) * CELL.1 + 2.0 * MARGIN);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {height:.0}\" role=\"img\">\n\
         <title>A service gets a console: attach, type, detach, send, attach again</title>\n\
         <style>text{{font:14px monospace;fill:#e6edf3;white-space:pre}}.i{{fill:#0d1117}}\
         rect{{fill:#e6edf3}}g{{animation:{end:.2}s step-end infinite}}\n"
    );
    let percent = |at: f64| 100.0 * at / end;
    for (index, (.., from, to)) in shown.iter().enumerate() {
        let off = if to.is_finite() {
            format!("{:.2}%{{opacity:0}}", percent(*to))
        } else {
            String::new()
        };
        let _ = writeln!(
            svg,
            "@keyframes k{index}{{0%{{opacity:0}}{:.2}%{{opacity:1}}{off}}}",
            percent(*from)
        );
    }
    let _ =
        writeln!(svg, "</style>\n<path fill=\"#0d1117\" d=\"M0 0H{width:.0}V{height:.0}H0z\"/>");
    for (index, (row, runs, _, to)) in shown.iter().enumerate() {
        let y = MARGIN + f64::from(*row) * CELL.1;
        let hidden = if to.is_finite() { ";opacity:0" } else { "" };
        let _ = write!(svg, "<g style=\"animation-name:k{index}{hidden}\">");
        for (col, text, is_inverse) in runs {
            let x = MARGIN + f64::from(*col) * CELL.0;
            let text = if *is_inverse { text } else { text.trim_end() };
            let length = f64::from(u16::try_from(text.chars().count()).unwrap()) * CELL.0;
            let text = text.replace('&', "&amp;").replace('<', "&lt;");
            if *is_inverse {
                let high = CELL.1;
                let _ = write!(
                    svg,
                    "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{length:.1}\" height=\"{high}\"/>"
                );
            }
            let class = if *is_inverse { " class=\"i\"" } else { "" };
            let base = y + 0.75 * CELL.1;
            let _ = write!(
                svg,
                "<text{class} x=\"{x:.1}\" y=\"{base:.1}\" textLength=\"{length:.1}\">{text}</text>"
            );
        }
        svg += "</g>\n";
    }
    svg + "</svg>\n"
}

/// Whether the cursor is right behind a prompt.
fn is_at_prompt(said: &str, prompt: &str) -> bool {
    let mut terminal =
        vt100::Parser::new(SIZE.0.try_into().unwrap(), SIZE.1.try_into().unwrap(), 0);
    terminal.process(said.as_bytes());
    let (row, col) = terminal.screen().cursor_position();
    terminal.screen().contents_between(row, 0, row, col) == prompt
}

/// The last screen, without what differs from time to time.
fn last_screen(svg: &str) -> Vec<String> {
    let rows = svg.lines().filter(|line| line.starts_with("<g") && !line.contains("opacity:0"));
    rows.map(|row| row.split('>').map(|part| part.split('<').next().unwrap()).collect()).collect()
}

#[test]
fn the_picture() {
    let Some(plan) = Plan::new() else { return };
    let unit = "[Service]\nExecStart=/srv/game/server\n[Install]\nWantedBy=multi-user.target\n";
    let pod = plan.unit("game.service", unit).root_program("srv/game/server", SERVER).boot();
    pod.systemctl(&["start", "game.service"]);
    let cast = pod.path("/picture.cast");
    let size = format!("{}x{}", SIZE.0, SIZE.1);
    let shell =
        ["env", "PS1=# ", "TERM=xterm-256color", "iottymux", "run", "-dit", "--name", "shell"];
    let recorded = ["--record", "cast:/picture.cast", "--size", &size];
    pod.run(&[&shell[..], &recorded, &["bash", "--norc", "--noprofile"]].concat());
    let mut attach = pod.talk(&["iottymux", "attach", "shell"]);
    let (said, mut keys) = (attach.stdout.clone(), attach.stdin());
    for (typed, answer, prompt) in SESSION {
        let mut seen = 0;
        for key in typed.chars() {
            seen = said.so_far().len();
            keys.write_all(key.to_string().as_bytes()).unwrap();
            if !key.is_control() {
                said.wait_len(seen + 1);
            }
        }
        eventually(answer, || said.so_far()[seen..].contains(answer));
        // Who types before the prompt is there sees both mixed.
        eventually(prompt, || is_at_prompt(&said.so_far(), prompt));
    }
    pod.run(&["iottymux", "kill", "--signal", "HUP", "shell"]);
    attach.ends();
    let drawn = draw(&std::fs::read_to_string(cast).unwrap());
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/picture.svg");
    if std::env::var_os("IOTTYMUX_GOLDEN").is_some() {
        std::fs::write(file, &drawn).unwrap();
    }
    assert_eq!(last_screen(&project_file("docs/picture.svg")), last_screen(&drawn));
}
