//! What is measured, and what is asked of it.

use super::peer::Tool::{self, Cat, Conmon, Iottymux, Kept, Other, OtherKept, S6Log, Socat};

/// One line of work for several tools.
#[derive(Debug)]
pub struct Case {
    /// How it is told and chosen.
    pub name: &'static str,
    /// Bytes of each write(2) of the app.
    pub piece: usize,
    /// Bytes of each line, with its end.
    pub line: usize,
    /// Whether it is logged.
    pub logs: bool,
    /// Clients that read it.
    pub clients: usize,
    /// Who does it.
    pub tools: &'static [Tool],
    /// Beside whom at least how many times the speed, and at most which part of the CPU per byte.
    pub asks: &'static [(Tool, f64, f64)],
}

const PIECE: usize = 64 * 1024;
const ANY: f64 = f64::INFINITY;
const LOGS: &[Tool] = &[Iottymux, Kept, Other, OtherKept, Conmon, S6Log, Cat];

/// All of them.
pub const CASES: &[Case] = &[
    Case {
        name: "log, 100-byte lines",
        piece: PIECE,
        line: 100,
        logs: true,
        clients: 0,
        tools: LOGS,
        asks: &[(Conmon, 4.0, 0.25), (Cat, 0.9, ANY)],
    },
    Case {
        name: "log, 1 KiB lines",
        piece: PIECE,
        line: 1024,
        logs: true,
        clients: 0,
        tools: LOGS,
        asks: &[(Conmon, 3.0, 1.0 / 3.0), (Cat, 1.1, ANY)],
    },
    Case {
        name: "log, 64 KiB lines",
        piece: PIECE,
        line: PIECE,
        logs: true,
        clients: 0,
        tools: LOGS,
        asks: &[],
    },
    Case {
        name: "log, one write per 100-byte line",
        piece: 100,
        line: 100,
        logs: true,
        clients: 0,
        tools: LOGS,
        asks: &[(Conmon, 1.3, ANY)],
    },
    Case {
        name: "log and 4 clients, 100-byte lines",
        piece: PIECE,
        line: 100,
        logs: true,
        clients: 4,
        tools: &[Iottymux, Kept, Other, OtherKept, Conmon],
        asks: &[(Conmon, 4.0, ANY)],
    },
    Case {
        name: "fan-out, 1 client, one write per 100-byte line",
        piece: 100,
        line: 100,
        logs: false,
        clients: 1,
        tools: &[Iottymux, Kept, Other, OtherKept, Conmon, Socat],
        asks: &[],
    },
    fan_out("fan-out, no client", 0, &[Iottymux, Kept, Other, OtherKept, Conmon]),
    fan_out("fan-out, 1 client", 1, &[Iottymux, Kept, Other, OtherKept, Conmon, Socat]),
    fan_out("fan-out, 4 clients", 4, &[Iottymux, Kept, Other, OtherKept, Conmon]),
    fan_out("fan-out, 16 clients", 16, &[Iottymux, Kept, Other, OtherKept, Conmon]),
];

const fn fan_out(name: &'static str, clients: usize, tools: &'static [Tool]) -> Case {
    Case { name, piece: PIECE, line: 100, logs: false, clients, tools, asks: &[] }
}
