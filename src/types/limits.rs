//! The queues, buffers, counts and waits of the program, each with its unit and its reason.

use std::time::Duration;

/// Default of `--max-client-delay`: how long a client without progress may delay the app.
pub(crate) const PATIENCE: Duration = Duration::from_secs(1);
/// A terminal that is shown the screen instead may delay the app for one part in this many of that:
/// enough for one that keeps reading, and too little to be noticed with one that does not.
pub(crate) const SCREEN_PATIENCE_PART: u32 = 4;
/// All unproven clients together may delay the app for one part in this many of their patience.
pub(crate) const UNPROVEN_PART: u32 = 2;
/// That budget refills with one part in this many of the time that passes. So clients that connect
/// again and again cost the app at most a twentieth of its time.
pub(crate) const CREDIT_PART: u32 = 20;
/// A client is proven when it has accepted this many bytes. A socket without a reader takes up to
/// 260 KiB (`SEND_BUFFER` of `mux::clients`, and a last piece), and one [`FRAME`] may be kept for
/// it.
pub(crate) const PROOF: u64 = 384 * 1024;

/// A year: a wait without an end, for clocks that need a time.
pub(crate) const AGES: Duration = Duration::from_secs(365 * 24 * 3600);

/// Bytes per read from a socket or terminal.
pub(crate) const READ: usize = 64 * 1024;
/// Reads from one source before the others have their turn.
pub(crate) const READS_PER_TURN: usize = 16;
/// Requests per read from a client of another user: each costs the mux 10 to 100 microseconds. Our
/// own clients wait for each answer.
pub const QUESTIONS: usize = 16;
/// Size requested for the pipes of the app, bytes: what an ordinary user may have. It doubles the
/// throughput of an app that writes fast.
pub(crate) const PIPE: usize = 1024 * 1024;
/// Size requested for the pipe between a pipe of the app and the ring, bytes: as much as the ring has
/// by default, for the largest pieces that clients can get without a copy.
pub(crate) const STAGE: usize = 512 * 1024;

/// Marks kept per mux: with 64 KiB reads they cover far more than a ring, with tiny ones some
/// thousand writes.
pub(crate) const MARKS: usize = 4096;

/// Bytes of input kept per mux for an app that does not read, and per client that waits for its
/// turn.
pub const INPUT: usize = 64 * 1024;
/// Bytes of input of admitted users that are queued at once: what root and the mux's own user type
/// stands behind no more than these, and behind what the app's end holds.
pub(crate) const SHARED_INPUT: usize = 4096;
/// Bytes of one client that are queued between two acknowledgements: each wakes two threads of the
/// client. At most half of what `attach` sends without one, so that it never waits for that.
pub const ACKNOWLEDGED: u64 = 256 * 1024;
/// Bytes of a line, with its end, that a terminal which edits lines takes: the kernel's
/// `N_TTY_BUF_SIZE`. It drops the rest.
pub(crate) const TERMINAL_LINE: usize = 4096;
/// Inputs of one user whose positions are kept for the next mux: users do not take each other's
/// places.
pub(crate) const USER_RECORDS: usize = 64;
/// Bytes of input that all clients of one user may have waiting: many clients of one user do not
/// exhaust the memory of the mux.
pub(crate) const USER_INPUT: usize = 1024 * 1024;
/// Bytes of memory for input that the disconnected clients of one user left. More is lost.
pub(crate) const LEFT_INPUT: usize = 256 * 1024;
/// How long an unfinished line of input delays other writers.
pub(crate) const INPUT_TURN: Duration = Duration::from_secs(1);

/// Largest payload of a frame of the session protocol, bytes. Also the most that is copied when a
/// client is skipped in the middle of a frame.
pub const FRAME: usize = 64 * 1024;

/// Characters of the reason for dropping a client: it may quote the client, and the log line must
/// fit a page when escaped.
pub(crate) const REASON: usize = 256;

/// Longest escape sequence that is parsed, bytes: titles, colours and queries are shorter. Longer
/// ones (pictures, the clipboard) go to the clients unchanged.
pub(crate) const SEQUENCE: usize = 1024;
/// Parameters of a control sequence that are parsed.
pub(crate) const NUMBERS: usize = 32;
/// Most cells (rows times columns) of the model of a screen. Each takes 16 bytes, so each of its two
/// screens takes 2 MiB, and the main one at most twice that while a smaller window hides text. The
/// largest usual windows have 200 rows of 600 columns.
pub const CELLS: usize = 128 * 1024;
/// Default of `--scrollback`, lines: what terminals and multiplexers usually keep.
pub const SCROLLBACK_LINES: usize = 1000;
/// Largest `--scrollback`, lines.
pub(crate) const SCROLLBACK_MOST: usize = 100_000;
/// Most bytes of an answer that a program keeps, with 32 for each line: a listing of some hundred thousand
/// lines. A shell gets its lines as they come.
pub(crate) const ANSWER_BYTES: usize = 64 * 1024 * 1024;
/// Most bytes that draw a screen with the lines above it. Each cell may have a look of its own, which takes
/// 100 bytes and more.
pub(crate) const REDRAW: u64 = 64 * 1024 * 1024;
/// Most bytes of lines that scrolled off a screen: twenty thousand lines of 100 bytes. A mux has
/// them once.
pub const SCROLLBACK: usize = 2 * 1024 * 1024;
/// Queries of the app that are answered at once. Programs send a handful when they start, and more
/// answers than these do not fit in the queue of the input.
pub const QUERIES: usize = 8192;

/// Largest regular expression, bytes of its compiled form: 800 letters, or `.{0,370}`. The time of a
/// search is a product of that and of the text. With this, the worst expression takes less than a
/// second for the longest line that `ask` and `wait` search, and less than two for all lines of a read,
/// so that their timeouts hold.
pub(crate) const PATTERN: usize = 32 * 1024;

/// Default of `--log-line-limit`, bytes: the size that the kubelet's readers expect.
pub(crate) const LOG_LINE: usize = 16 * 1024;
/// Default of `--log-flush`: after this pause an unfinished line is logged as a part.
pub(crate) const LOG_FLUSH: Duration = Duration::from_secs(1);
/// Default of `--log-buffer`: bytes kept for a log that cannot be written.
pub(crate) const LOG_BUFFER: usize = 1024 * 1024;
/// Largest `--log-max-files`: each rotation renames them all.
pub(crate) const LOG_FILES_MAX: u32 = 1000;
/// Bytes of encoded entries per chunk for a log writer: large enough that a write costs little per
/// byte, and small enough for three of them.
pub(crate) const LOG_CHUNK: usize = 256 * 1024;
/// Chunks that a log writer has at a time: with a second one it need not wait for the loop.
pub(crate) const LOG_AHEAD: usize = 2;
/// A log write that takes longer counts as failed.
pub(crate) const LOG_STUCK: Duration = Duration::from_secs(5);
/// Pause between two attempts with a failing log target.
pub(crate) const LOG_RETRY: Duration = Duration::from_secs(1);

/// Niceness of a mux that competes with PID 1 for the same FIFOs: above ordinary processes, and
/// below those that administrators prefer.
pub(crate) const HURRY: i32 = -15;
/// Longest message in the journal of a service, bytes: journald's own `LineMax=`.
pub(crate) const JOURNAL_LINE: usize = 48 * 1024;

/// Clients of one mux at the same time.
pub(crate) const CLIENTS: usize = 4096;
/// Of these, clients of one user other than root and the mux's own: far more than a person has, and
/// few enough to leave places, memory and time for others.
pub const USER_CLIENTS: usize = 256;
/// Descriptors that a mux needs itself: sources, listeners, logs. The others are for clients.
pub const OWN_DESCRIPTORS: usize = 40;
/// Connections that may wait to be accepted, per socket.
pub(crate) const LISTEN_QUEUE: usize = 1024;
/// Disconnected clients of root and the mux's own user with unread input in their sockets. Each is
/// kept, with a descriptor, until the app reads that input.
pub const GONE_WRITERS: usize = 64;
/// The same for each other user.
pub const GONE_USER_WRITERS: usize = 16;
/// Events per call of epoll_wait(2).
pub(crate) const EVENTS: usize = 64;

/// Bytes of a unit file or an env file that `units` reads: far more than people write.
pub(crate) const UNIT_FILE: u64 = 1 << 20;
/// How far the time of a file may be behind: the kernel takes it from the last tick of its clock.
pub(crate) const CLOCK_TICK: Duration = Duration::from_millis(10);

/// Default of `--reconnect`: systemd restarts a mux within a tenth of a second, and an upgrade may
/// drain first.
pub(crate) const RECONNECT: Duration = Duration::from_secs(5);

/// How long a command waits for the mux that follows a killed one: systemd takes 0.2 to 0.5 s, a
/// loaded machine 1.3 s.
pub(crate) const NEXT_MUX: Duration = Duration::from_secs(3);

/// How long a mux may take to answer a request. Then `attach` reports that it does not answer.
pub const ANSWER: Duration = Duration::from_secs(5);
/// How long a hook of the app's unit waits in total for a restarting mux and its answer: systemd
/// waits for the hook.
pub(crate) const HOOK: Duration = Duration::from_secs(2);

/// Pause between two looks for an app if the directory cannot be watched, or between two looks at a
/// mux that starts or ends.
pub(crate) const LOOK_AGAIN: Duration = Duration::from_millis(100);
/// Bytes of the end of each stream in `last.json`: a screen or two.
pub(crate) const TAIL: usize = 4 * 1024;
/// Bytes of a `last.json` that are read: two tails with each byte escaped as six, and the rest.
pub(crate) const LAST: u64 = 64 * 1024;
/// Bytes that may wait for the screen worker, some ten milliseconds of its work. With more, the app
/// waits.
pub(crate) const SCREEN_AHEAD: usize = 1024 * 1024;
/// The app continues when this much is left. Until then the model has a processor for itself. On a
/// small machine it would otherwise share it with the app, the kernel's terminal and the loop.
pub(crate) const SCREEN_BEHIND: usize = SCREEN_AHEAD / 2;
/// Bytes of screens that wait for all viewers: a dozen of the largest. With more, a viewer that has
/// had a moment loses the rest of its screen, and gets another when it reads again. Also
/// bytes of backlogs that wait for the clients of one user.
pub(crate) const SCREENS: usize = 16 * 1024 * 1024;
/// Payload of a frame of a screen, bytes. A viewer that loses the rest of a screen keeps this much.
pub(crate) const SCREEN_FRAME: usize = 16 * 1024;
/// Pause between two changes of the terminal's size: dragging a window's edge makes dozens per
/// second, and an app may redraw its screen for each.
pub const RESIZE_PAUSE: Duration = Duration::from_millis(30);
/// Pause between two screens for a client whose window differs from the terminal, and which
/// therefore gets screens only: 25 per second look like motion.
pub const SCREEN_PAUSE: Duration = Duration::from_millis(40);
/// How long a blocked output may delay the end of this process. A terminal's modes are restored all
/// the same.
pub(crate) const STUCK: Duration = Duration::from_millis(300);

/// Bytes per read from a log.
pub(crate) const LOG_READ: usize = 64 * 1024;
/// Longest log entry that is read, bytes. Writers split lines long before. Longer entries are
/// skipped to bound the memory.
pub(crate) const LOG_ENTRY: usize = 16 * 1024 * 1024;
