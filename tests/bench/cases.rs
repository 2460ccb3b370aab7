//! What is measured, and what is asked of it.

use super::process::Bench;
use super::sample::{Metric, Values};
use super::stream::Work;
use super::tools::Tool::{
    self, Cat, Conmon, Dtach, Iottymux, NoMux, Other, ReadWrite, S6Log, Session, Socat, TeeSplice,
    Tmux,
};
use super::{client, echo, idle, journal, printing, stream};

/// One line of work for several tools.
#[derive(Debug)]
pub struct Case {
    /// How it is shown and chosen.
    pub name: &'static str,
    pub kind: Kind,
    pub tools: &'static [Tool],
    pub targets: &'static [Target],
}

/// What a run of a case is.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    /// An app writes to logs and clients.
    Stream(Work),
    /// A service writes to the journal.
    Journal,
    /// A client's input goes to the app.
    Input,
    /// The app's output goes to a client.
    Output,
    /// An app prints on a terminal.
    Printing { coloured: bool, client: bool },
    /// Keys and their echo.
    Echo,
    /// So many of a tool wait, the first with clients.
    Idle { processes: usize, clients: usize },
    /// The start.
    Ready,
    /// The size of the program.
    Size,
}

/// What is asked of a tool.
#[derive(Debug)]
pub struct Target {
    pub tool: Tool,
    pub metric: Metric,
    /// The figure is a ratio to this tool's.
    pub beside: Option<Tool>,
    pub bound: Bound,
}

#[derive(Debug)]
pub enum Bound {
    Least(f64),
    Most(f64),
}

impl Bound {
    pub fn is_met_by(&self, figure: f64) -> bool {
        match self {
            Self::Least(least) => figure >= *least,
            Self::Most(most) => figure <= *most,
        }
    }
}

impl Kind {
    pub fn run(&self, bench: &Bench, tool: Tool) -> Values {
        match *self {
            Self::Stream(ref work) => stream::run(bench, work, tool),
            Self::Journal => journal::run(bench, tool),
            Self::Input => client::run(bench, true, tool),
            Self::Output => client::run(bench, false, tool),
            Self::Printing { coloured, client } => printing::run(bench, coloured, client, tool),
            Self::Echo => echo::run(bench, tool),
            Self::Idle { processes, clients } => idle::wait(bench, processes, clients, tool),
            Self::Ready => idle::ready(bench, tool),
            Self::Size => idle::size(bench, tool),
        }
    }
}

const PIECE: usize = 64 * 1024;
/// A send buffer beyond what a mux asks for; the system must allow half of it
/// (`net.core.wmem_max`).
const WIDE: usize = 1024 * 1024;

const STREAMS: &[Tool] = &[Iottymux, Session, Other, Conmon, TeeSplice, ReadWrite];
const WIDENED: &[Tool] = &[Iottymux, Other, Conmon, TeeSplice];
const LOGS: &[Tool] = &[Iottymux, Other, Conmon, S6Log, Cat];
const OWN_LOGS: &[Tool] = &[Iottymux, Other, Cat];
const LOG_AND_CLIENTS: &[Tool] = &[Iottymux, Other, Conmon];

/// All of them.
pub const CASES: &[Case] = &[
    Case {
        tools: &[Iottymux, Other, Conmon, TeeSplice, ReadWrite],
        ..fan_out("fan-out, no client", 0, &[])
    },
    Case {
        tools: &[Iottymux, Session, Other, Conmon, Socat, TeeSplice, ReadWrite],
        ..fan_out(
            "fan-out, 1 client",
            1,
            &[faster(Conmon, 2.6), cheaper(Conmon, 0.25), session_of_raw(0.95)],
        )
    },
    fan_out(
        "fan-out, 4 clients",
        4,
        &[faster(Conmon, 3.8), cheaper(Conmon, 0.2), session_of_raw(0.95)],
    ),
    fan_out("fan-out, 16 clients", 16, &[faster(Conmon, 4.3), cheaper(Conmon, 0.2)]),
    fan_out("fan-out, 64 clients", 64, &[]),
    fan_out("fan-out, 256 clients", 256, &[]),
    wide("fan-out, 1 client, 1 MiB buffers", 1, &[faster(Conmon, 3.0), cheaper(Conmon, 0.25)]),
    wide(
        "fan-out, 4 clients, 1 MiB buffers",
        4,
        &[faster(Conmon, 4.5), cheaper(Conmon, 0.13), faster(TeeSplice, 0.8)],
    ),
    wide(
        "fan-out, 16 clients, 1 MiB buffers",
        16,
        &[faster(Conmon, 5.0), cheaper(Conmon, 0.13), faster(TeeSplice, 0.8)],
    ),
    Case {
        tools: &[Iottymux, Session, Other, Conmon, Socat],
        ..streams("1 client, one write per 100-byte line", work(100, 100, None, 1), &[])
    },
    Case {
        tools: &[Iottymux, Session, Other, Conmon, ReadWrite],
        ..streams(
            "1 client, a line per ms",
            work(0, 100, None, 1),
            &[
                at_most(Iottymux, Metric::P50, Some(Conmon), 1.1),
                at_most(Iottymux, Metric::EachCpu, None, 6.0),
            ],
        )
    },
    log("CRI log, 100-byte lines", 100, LOGS, &[faster(Conmon, 2.6), cheaper(Conmon, 0.45)]),
    log("CRI log, 1 KiB lines", 1024, LOGS, &[faster(Conmon, 3.0)]),
    log("CRI log, 64 KiB lines", PIECE, LOGS, &[]),
    Case {
        tools: LOGS,
        ..streams("CRI log, one write per 100-byte line", work(100, 100, Some("cri"), 0), &[])
    },
    Case {
        tools: OWN_LOGS,
        ..streams("json-file log, 100-byte lines", work(PIECE, 100, Some("json-file"), 0), &[])
    },
    Case {
        tools: OWN_LOGS,
        ..streams("raw log, 100-byte lines", work(PIECE, 100, Some("raw"), 0), &[])
    },
    Case {
        tools: LOG_AND_CLIENTS,
        ..streams("CRI log and 4 clients", work(PIECE, 100, Some("cri"), 4), &[faster(Conmon, 4.5)])
    },
    Case {
        tools: LOG_AND_CLIENTS,
        ..streams(
            "CRI log and 16 clients",
            work(PIECE, 100, Some("cri"), 16),
            &[faster(Conmon, 3.0)],
        )
    },
    Case {
        name: "journal, 100-byte lines of a service",
        kind: Kind::Journal,
        tools: &[Iottymux, Other, NoMux],
        targets: &[],
    },
    Case {
        name: "attach, stdin to the app",
        kind: Kind::Input,
        tools: &[Iottymux, Socat],
        targets: &[faster(Socat, 2.0), at_most(Iottymux, Metric::ClientCpu, Some(Socat), 1.2)],
    },
    Case {
        name: "attach, stdout to a pipe",
        kind: Kind::Output,
        tools: &[Iottymux, Socat, TeeSplice],
        targets: &[],
    },
    printing("terminal, plain, no client", false, false),
    printing("terminal, coloured, no client", true, false),
    printing("terminal, plain, 1 client", false, true),
    printing("terminal, coloured, 1 client", true, true),
    Case {
        name: "key echo",
        kind: Kind::Echo,
        tools: &[Session, Iottymux, Other, Dtach, Conmon, NoMux],
        targets: &[
            at_most(Session, Metric::P50, Some(Dtach), 1.1),
            at_most(Session, Metric::P99, Some(Dtach), 1.2),
        ],
    },
    idle("idle, alone", 1, 0, &[]),
    idle("idle, each of 20", 20, 0, &[at_most(Iottymux, Metric::Pss, None, 0.2)]),
    idle("idle, 100 clients", 1, 100, &[]),
    Case { tools: &[Iottymux, Other], ..idle("idle, each of 100", 100, 0, &[]) },
    Case {
        name: "ready",
        kind: Kind::Ready,
        tools: &[Iottymux, Other, Conmon, Dtach],
        targets: &[],
    },
    Case {
        name: "static binary",
        kind: Kind::Size,
        tools: &[Iottymux, Other],
        targets: &[at_most(Iottymux, Metric::Size, None, 3.0)],
    },
];

const fn work(piece: usize, line: usize, log: Option<&'static str>, clients: usize) -> Work {
    Work { piece, line, log, clients, buffer: None }
}

const fn streams(name: &'static str, work: Work, targets: &'static [Target]) -> Case {
    Case { name, kind: Kind::Stream(work), tools: STREAMS, targets }
}

const fn fan_out(name: &'static str, clients: usize, targets: &'static [Target]) -> Case {
    streams(name, work(PIECE, 100, None, clients), targets)
}

const fn wide(name: &'static str, clients: usize, targets: &'static [Target]) -> Case {
    let work = Work { buffer: Some(WIDE), ..work(PIECE, 100, None, clients) };
    Case { name, kind: Kind::Stream(work), tools: WIDENED, targets }
}

const fn log(
    name: &'static str,
    line: usize,
    tools: &'static [Tool],
    targets: &'static [Target],
) -> Case {
    Case { name, kind: Kind::Stream(work(PIECE, line, Some("cri"), 0)), tools, targets }
}

const fn printing(name: &'static str, coloured: bool, client: bool) -> Case {
    let kind = Kind::Printing { coloured, client };
    if client {
        let tools = &[Session, Iottymux, Other, Conmon, Dtach];
        Case { name, kind, tools, targets: &[AS_DTACH] }
    } else {
        Case { name, kind, tools: &[Iottymux, Other, Dtach, Tmux, NoMux], targets: &[] }
    }
}

/// A terminal with one client prints as fast as without logs, screen and other clients.
const AS_DTACH: Target =
    Target { tool: Session, metric: Metric::Speed, beside: Some(Dtach), bound: Bound::Least(1.0) };

const fn idle(
    name: &'static str,
    processes: usize,
    clients: usize,
    targets: &'static [Target],
) -> Case {
    let kind = Kind::Idle { processes, clients };
    Case { name, kind, tools: &[Iottymux, Other, Conmon, Dtach], targets }
}

const fn faster(beside: Tool, least: f64) -> Target {
    let (tool, metric) = (Iottymux, Metric::Speed);
    Target { tool, metric, beside: Some(beside), bound: Bound::Least(least) }
}

const fn cheaper(beside: Tool, most: f64) -> Target {
    at_most(Iottymux, Metric::Cpu, Some(beside), most)
}

const fn at_most(tool: Tool, metric: Metric, beside: Option<Tool>, most: f64) -> Target {
    Target { tool, metric, beside, bound: Bound::Most(most) }
}

const fn session_of_raw(least: f64) -> Target {
    let metric = Metric::Speed;
    Target { tool: Session, metric, beside: Some(Iottymux), bound: Bound::Least(least) }
}
