//! Every queue, buffer, count and wait of the program, with its unit and its reason.

use std::time::Duration;

/// Smallest backlog that can be asked for, bytes: below a page the ring costs more than it holds.
pub(crate) const BACKLOG_MIN: usize = 4096;
/// Largest backlog that can be asked for, bytes.
pub(crate) const BACKLOG_MAX: usize = 1 << 30;
/// The app is held back when less than one part in this many of the ring is free: reading a few
/// bytes at a time would cost more than it frees.
pub(crate) const ROOM_PART: usize = 8;
/// A client that makes one part in this many of the ring within its patience makes progress.
pub(crate) const PROGRESS_PART: usize = 4;
/// How long a client that makes no progress may hold the app back.
pub(crate) const PATIENCE: Duration = Duration::from_secs(1);
/// Clients of whom it is not known whether they read hold the app back for one part in this many of
/// their patience, all together.
pub(crate) const UNPROVEN_PART: u32 = 2;
/// That time comes back as fast as one part in this many of the time that passes: connecting again and
/// again costs the app a twentieth of its time at the most.
pub(crate) const CREDIT_PART: u32 = 20;
/// Bytes that a client has accepted when it is known that somebody reads them. A socket takes up to
/// 260 KiB that nobody reads ([`SEND_BUFFER`], and a last piece), and a [`FRAME`] may have been kept
/// for it.
pub(crate) const PROOF: u64 = 384 * 1024;

/// Stands for a wait without an end where a clock wants one: a year.
pub(crate) const AGES: Duration = Duration::from_secs(365 * 24 * 3600);

/// Bytes asked of a socket or terminal in one read.
pub(crate) const READ: usize = 64 * 1024;
/// Bytes asked of a source in one read: each read of a full pipe wakes the app up, which costs as much
/// as copying some ten KiB; and small enough to stay in cache until it is written to the clients.
pub(crate) const SOURCE_READ: usize = 128 * 1024;
/// Reads from one source before the others have their turn.
pub(crate) const READS_PER_TURN: usize = 16;
/// Time in one turn for what clients of other users than root and the mux's own have sent, beside one of them
/// that takes longer: what the app writes, and what root types, waits no longer for them. The rest has the next turn.
pub(crate) const OTHERS_TURN: Duration = Duration::from_millis(2);
/// Questions of such a client in what it sent at once: each costs the mux 10 to 100 microseconds. A client of ours
/// asks one, and then waits for the answer.
pub const QUESTIONS: usize = 16;
/// An app that fills its pipe this fast, in bytes per microsecond, with writes so small that the pipe is
/// always read empty, is left alone for a moment: 16 MB/s are far more lines than anybody reads.
pub(crate) const NAP_RATE: usize = 16;
/// Time over which that is seen: a few lines at once are no pace.
pub(crate) const NAP_WATCH: Duration = Duration::from_micros(100);
/// How long it is left alone at the most: one in a hundred of what a person notices.
pub(crate) const NAP: Duration = Duration::from_micros(200);
/// A nap that would be shorter is none: the kernel's timers are late by as much.
pub(crate) const NAP_LEAST: Duration = Duration::from_micros(50);
/// During a nap the pipe is to fill to one part in this many at the most: the app does not wait.
pub(crate) const NAP_PART: usize = 4;
/// Size asked for the pipes of the app, bytes: what an ordinary user may have without privilege.
/// It doubles the throughput of an app that writes fast.
pub(crate) const PIPE: i32 = 1024 * 1024;
/// Size asked for the pipe between a pipe of the app and the ring, bytes: what is read at once, also
/// where some of its pages are not full.
pub(crate) const STAGE: i32 = 256 * 1024;
/// A read from a terminal that gives less, in bytes, is the echo of what was typed, and no flood.
pub(crate) const PTY_PIECE: usize = 1024;

/// Marks kept per mux: with 64 KiB reads they cover far more than a ring, with tiny ones some
/// thousand writes.
pub(crate) const MARKS: usize = 4096;

/// Bytes of input kept per mux for an app that does not read, and the most that one client may
/// have waiting for its turn.
pub const INPUT: usize = 64 * 1024;
/// Bytes of input that all clients of one user may have waiting for their turns: a user with many clients does
/// not take the memory of the mux.
pub(crate) const USER_INPUT: usize = 1024 * 1024;
/// Bytes of memory for the input that clients of one user have left when they went; what is more is lost.
pub(crate) const LEFT_INPUT: usize = 256 * 1024;
/// Bytes that each such client counts besides its input: what it takes to keep it.
pub(crate) const LEFT_WRITER: usize = 512;
/// Bytes that stay allocated for the input of a client that has none waiting.
pub(crate) const IDLE_INPUT: usize = 4096;
/// Bytes typed or pasted at a terminal that may wait in `attach` for an app that does not read: more than
/// anybody pastes, for its own keys are found in what it has read only.
pub(crate) const TYPED: usize = 4 * 1024 * 1024;
/// How long a half line of input keeps other writers waiting.
pub(crate) const INPUT_TURN: Duration = Duration::from_secs(1);

/// Largest payload of a frame of the session protocol, bytes; also what is copied at the most when a
/// client is passed over in the middle of a frame.
pub const FRAME: usize = 64 * 1024;
/// Control bytes that may wait for one client, in bytes; a client that lets more pile up is gone.
pub(crate) const CONTROL: usize = 64 * 1024;

/// Clients that a report lists: one takes less than 512 bytes, and all are to fit a frame.
pub(crate) const REPORTED: usize = 128;
/// Characters of the reason for which a client is dropped: it may quote what the client sent, and a
/// line of the log is to fit a page, escaped as it is.
pub(crate) const REASON: usize = 256;

/// Bytes of an escape sequence that are kept together in a log entry: colours and the like are
/// shorter, titles may be longer.
pub(crate) const ESCAPE: usize = 32;

/// Longest sequence of a terminal's output that is looked at, bytes: titles, colours and queries are
/// shorter. What is longer (pictures, the clipboard) goes to the clients as it is.
pub(crate) const SEQUENCE: usize = 1024;
/// Numbers in a control sequence that are looked at.
pub(crate) const NUMBERS: usize = 32;
/// Most cells (rows times columns) of the model of a terminal's screen, which takes 64 bytes for each:
/// 8 MiB; and half as much again for what a window that is smaller for a while does not show, or as much again when
/// that comes while a program has the alternate screen. The largest windows that people have are 200 rows of 600 columns.
pub const CELLS: usize = 128 * 1024;
/// Most rows of that model: to find one, the emulator counts from the first.
pub(crate) const MODEL_ROWS: u16 = 500;
/// Fewest columns of that model: a wide character takes two.
pub(crate) const MODEL_COLS: u16 = 2;
/// Queries of the app that are told of at once: programs ask for a handful when they start.
pub const QUERIES: usize = 64;
/// Modes of the keyboard that a program may stack upon each other and get back.
pub(crate) const KEYBOARDS: usize = 8;
/// Replies of one client's terminal that are waited for.
pub(crate) const REPLIES: usize = 64;
/// How long a terminal may take to reply; later the same bytes are keys.
pub(crate) const REPLY: Duration = Duration::from_secs(5);
/// How long the beginning of what may be a reply is held back: it comes in one piece mostly, and an ESC
/// may be the key.
pub(crate) const REPLY_HOLD: Duration = Duration::from_millis(50);
/// Bytes of a reply before it is known to be one.
pub(crate) const REPLY_HEAD: usize = 64;
/// Longest reply, bytes: a clipboard. What comes after that many is input again.
pub(crate) const REPLY_LEN: usize = 1024 * 1024;

/// Longest text of a log entry, bytes: what the kubelet's readers are used to.
pub(crate) const LOG_LINE: usize = 16 * 1024;
/// Pause after which half a line is logged as a part.
pub(crate) const LOG_FLUSH: Duration = Duration::from_secs(1);
/// Bytes kept for a log that cannot be written.
pub(crate) const LOG_BUFFER: usize = 1024 * 1024;
/// Longest text of a log entry that can be asked for, bytes: so much is kept per stream and log.
pub(crate) const LOG_LINE_MAX: usize = 1024 * 1024;
/// Most files that it can be asked to keep: each rotation renames them all.
pub(crate) const LOG_FILES_MAX: u32 = 1000;
/// Smallest size at which own rotation may begin a new file, bytes.
pub(crate) const LOG_SIZE_MIN: u64 = 4096;
/// Bytes of encoded entries handed to a log's writer at once: so large that a write costs little
/// per byte, and three of them are cheap.
pub(crate) const LOG_CHUNK: usize = 256 * 1024;
/// Bytes of one write to a log: in large pieces a page cache costs a sixth less. A disk that takes so
/// much in [`LOG_STUCK`] is slow, and does not hang.
pub(crate) const LOG_WRITE: usize = 256 * 1024;
/// Chunks that a log's writer has at the same time: behind one it need not wait for the mux to wake up
/// and give it the next.
pub(crate) const LOG_AHEAD: usize = 2;
/// A write to a log that takes longer counts as failing.
pub(crate) const LOG_STUCK: Duration = Duration::from_secs(5);
/// Pause between two attempts with a log's target that fails.
pub(crate) const LOG_RETRY: Duration = Duration::from_secs(1);
/// Bytes of the end of a log in which lines are looked for that an app before this one has not ended: the
/// last entries of both streams are mostly there.
pub(crate) const LOG_OPEN_TAIL: usize = 128 * 1024;
/// How long a mux that gives up a log waits for its writer to say what is left: it does so at once unless
/// a write hangs.
pub(crate) const LOG_LEFT: Duration = Duration::from_secs(1);
/// Longest text of an event of a recording, bytes: a read of a terminal mostly gives less than this.
pub(crate) const RECORD_EVENT: usize = 16 * 1024;
/// Notes (sizes of the terminal, input) that wait for a recording which is behind the app. There are
/// some thirty a second at the most while the app waits, and a target that hangs fails after
/// [`LOG_STUCK`].
pub(crate) const RECORD_NOTES: usize = 1024;
/// Bytes of input that wait for a recording which is behind the app: what one client may have waiting.
pub(crate) const RECORD_TYPED: usize = INPUT;
/// Bytes of a recording in which its header is looked for: it may have a title, and colours.
pub(crate) const RECORD_HEAD: usize = 64 * 1024;
/// Bytes of its end in which its last event is looked for: [`RECORD_EVENT`] with each byte written as
/// six, and the rest.
pub(crate) const RECORD_TAIL: usize = 128 * 1024;
/// Requests to open the logs anew that may wait for a target that hangs: each is answered, and one
/// rotates a log, not many.
pub(crate) const LOG_REOPENERS: usize = 64;
/// How long such a request waits for its answer: who asks is to hear which log hangs before he gives
/// up himself ([`ANSWER`]).
pub(crate) const LOG_REOPEN: Duration = Duration::from_secs(3);

/// Niceness of a mux that reads FIFOs which PID 1 empties, too: above everything that is started without one,
/// and below what administrators hold to be more urgent still.
pub(crate) const HURRY: i32 = -15;
/// Longest message of an entry in the journal of a service, bytes: journald's own `LineMax=`.
pub(crate) const JOURNAL_LINE: usize = 48 * 1024;
/// Bytes handed at once to the writer of such a log. Two are what a mux that is killed may write twice, and
/// three what is lost with it where the log is a whole backlog behind: few lines.
pub(crate) const JOURNAL_CHUNK: usize = 8 * 1024;
/// Send buffer asked for the socket to journald, bytes: a datagram with the longest message fits.
pub(crate) const JOURNAL_SEND: usize = 128 * 1024;
/// Pause between two attempts to reach a journald that is not there.
pub(crate) const JOURNAL_RETRY: Duration = Duration::from_secs(1);
/// Longest name of a program in the journal, bytes: that of a file.
pub(crate) const SYSLOG_IDENTIFIER: usize = 255;

/// Clients of one mux at the same time.
pub(crate) const CLIENTS: usize = 4096;
/// Of these, clients of one user other than root and the mux's own: far more than a person has, and so few that
/// nobody takes the places, memory and time of others.
pub const USER_CLIENTS: usize = 256;
/// Of these, places for root and the mux's own user only, so that an administrator can attach and ask when
/// others have taken the rest. One place in four where the process may have few descriptors.
pub(crate) const RESERVED_CLIENTS: usize = 64;
/// Descriptors that a mux needs for itself: sources, listeners, logs. The others are for clients.
pub const OWN_DESCRIPTORS: usize = 32;
/// Connections that may wait to be accepted, per socket.
pub(crate) const LISTEN_QUEUE: usize = 1024;
/// Connections accepted before the clients that are there have their turn.
pub(crate) const ACCEPTS_PER_TURN: usize = 32;
/// Pause after an accept that failed (most often: no file descriptor left).
pub(crate) const ACCEPT_PAUSE: Duration = Duration::from_millis(200);
/// Clients of root and the mux's own user that have gone while the app took no input, and left some unread in
/// their sockets: so many are kept until the app takes it, each with a descriptor.
pub const GONE_WRITERS: usize = 64;
/// The same for each other user.
pub const GONE_USER_WRITERS: usize = 16;
/// How long a session may take to say hello.
pub(crate) const HELLO: Duration = Duration::from_secs(10);
/// Send buffer asked for each client, bytes: the kernel doubles it, and that is its own default.
pub(crate) const SEND_BUFFER: usize = 104 * 1024;
/// Send buffer asked for a client that is cut off at the end, bytes: room for the rest of a frame
/// and for what it is told of the rest.
pub(crate) const LAST_BUFFER: usize = 256 * 1024;
/// Events taken from the kernel at once.
pub(crate) const EVENTS: usize = 64;

/// How long a mux that ends reads from sources that do not become empty.
pub(crate) const DRAIN_READ: Duration = Duration::from_secs(5);
/// How long a mux that ends waits for systemd to say how the app ended; well below [`DRAIN_READ`], for
/// the app's stop may wait for it.
pub(crate) const INQUIRY: Duration = Duration::from_secs(2);
/// Bytes of the answer that are read: three short lines.
pub(crate) const SHOWN: u64 = 256;
/// Pause between two looks at what rkt's reaper writes at about the same time.
pub(crate) const REAPER_LOOK: Duration = Duration::from_millis(20);
/// Bytes of it that are read: a number.
pub(crate) const REAPED: u64 = 64;
/// Bytes of a unit file or an env file that `units` looks at: far more than people write into one.
pub(crate) const UNIT_FILE: u64 = 1 << 20;
/// Bytes of a pod manifest that are read: hundreds of apps.
pub(crate) const MANIFEST: u64 = 16 << 20;
/// By how much the time of a file may be behind: the kernel takes it from the last tick of its clock.
pub(crate) const CLOCK_TICK: Duration = Duration::from_millis(10);
/// How long a mux that ends writes to clients that are slow but make progress, after the sources
/// are empty.
pub(crate) const DRAIN_DELIVER: Duration = Duration::from_secs(10);
/// How long `run` waits for what the app's left-over children still write; and how long after its
/// start the mux of an app that has ended waits for clients that it made come, while there is
/// something that nobody has seen.
pub(crate) const LINGER: Duration = Duration::from_millis(500);
/// How long a command at a terminal has after SIGTERM, before `run` hangs its terminal up: what container
/// engines give theirs.
pub(crate) const HANG_UP: Duration = Duration::from_secs(10);
/// How long `run --attach` waits for its own client before the app is not started at all.
pub(crate) const FIRST_CLIENT: Duration = Duration::from_secs(30);

/// How long `attach` looks for a new mux when the one that it is attached to goes away: systemd
/// starts one again within a tenth of a second, and an upgrade may drain first.
pub(crate) const RECONNECT: Duration = Duration::from_secs(5);

/// How many muxes are asked for their status at the same time: enough that some that hang do not add up, and
/// few beside what a user may have of threads and descriptors.
pub(crate) const ASKED: usize = 64;
/// How long a mux may take to answer a request; a person who attaches is told then that it does not.
pub const ANSWER: Duration = Duration::from_secs(5);
/// How long a hook of the app's unit waits for a mux that is just being started again, and for its
/// answer, all in all: systemd waits for the hook.
pub(crate) const HOOK: Duration = Duration::from_secs(2);
/// Turns in the app's life that may wait for one session that is behind. Of more the oldest are
/// forgotten: an app that fails again and again says the same each time.
pub(crate) const TURNS: usize = 16;

/// Complaints that a mux keeps for its status.
pub(crate) const COMPLAINTS: usize = 8;
/// Bytes kept of a complaint: a line of a screen or two.
pub(crate) const COMPLAINT: usize = 256;

/// How often somebody who waits for an app looks for it, where the directory cannot be watched; or, when
/// its mux begins or ends, whether it has.
pub(crate) const LOOK_AGAIN: Duration = Duration::from_millis(100);
/// How long socket units may take to end when nobody needs them any more: systemd sees to that at once.
pub(crate) const UNNEEDED: Duration = Duration::from_secs(10);
/// How long a service that has stopped and cannot be disabled waits for the next look: whoever makes its
/// files writable again does so by hand.
pub(crate) const DISABLE_AGAIN: Duration = Duration::from_secs(1);
/// How long the program of a mux may take for its help, when `enable` tries whether it can be run: it takes
/// milliseconds.
pub(crate) const TRIAL: Duration = Duration::from_secs(10);
/// How often `disable` tries again when somebody starts the service at the very moment.
pub(crate) const DISABLE_TRIES: u32 = 4;
/// Bytes of an `endpoints` document that are read.
pub(crate) const ENDPOINTS: u64 = 64 * 1024;
/// Bytes of the end of each stream that `last.json` keeps: a screen or two.
pub(crate) const TAIL: usize = 4 * 1024;
/// Bytes of a `last.json` that are read: two tails with each byte written as six, and the rest.
pub(crate) const LAST: u64 = 64 * 1024;
/// Times in a row that the loop may be woken by the clock alone and leave something due in the past: what is
/// due may have several parts. After that it counts as stuck.
pub(crate) const OVERDUE: u32 = 8;
/// Pause of a loop that is stuck in this way: a defect of ours is not to cost a whole processor.
pub(crate) const OVERDUE_PAUSE: Duration = Duration::from_millis(100);
/// How long events are waited for right behind others, before the runtime is asked: it makes of two
/// system calls five. A signal may wait so long.
pub(crate) const LINGER_EVENTS: Duration = Duration::from_millis(1);
/// How often that may be in a row, before the runtime gets a turn, for signals and timers.
pub(crate) const LINGERS: u32 = 16;
/// Bytes that the model of a screen is given at once, unless somebody needs it sooner: much for a
/// thread to wake up for, and little to wait for.
pub(crate) const SCREEN_PIECE: usize = 32 * 1024;
/// Bytes that the model of a screen is given before a viewer who waits for a screen gets it, of what is printed up
/// to there: a hundred microseconds of usual output, and some ten milliseconds of the dearest that an app can print.
pub(crate) const SCREEN_SLICE: usize = 2 * 1024;
/// Bytes that may wait for the model of a screen, some ten milliseconds of its work. With more than that the app
/// waits for it,
pub(crate) const SCREEN_AHEAD: usize = 1024 * 1024;
/// until this is left: meanwhile the model has a processor for itself, which on a machine with few of them it would
/// share with the app, the kernel's terminal and the loop at every piece.
pub(crate) const SCREEN_BEHIND: usize = SCREEN_AHEAD / 2;
/// After a screen was drawn none is for so many times as long as that took: the rest of the time is the
/// app's, whose output is shown by the same thread.
pub(crate) const SCREEN_REST: u32 = 3;
/// Bytes of screens that wait for their viewers to take them, of all viewers together: a dozen of the largest.
/// When it is more, a viewer that has had [`SCREEN_PATIENCE`] loses the rest of its screen, and gets another
/// when it reads again. Also bytes of backlogs that wait for the clients of one user.
pub(crate) const SCREENS: usize = 16 * 1024 * 1024;
/// How long a viewer may take for a screen while others wait for the memory.
pub(crate) const SCREEN_PATIENCE: Duration = Duration::from_secs(1);
/// Payload of a frame of a screen, bytes: what is kept of a screen whose rest is taken away.
pub(crate) const SCREEN_FRAME: usize = 16 * 1024;
/// Bytes of what shows a screen that are kept over a restart of the mux: a screen of ten thousand
/// cells that all look different takes less.
pub(crate) const SCREEN_KEPT: usize = 512 * 1024;
/// One part in this many of the backlog is printed between two screens that are kept, so that what was
/// printed since, and what waits to be shown, is in the backlog.
pub(crate) const SCREEN_KEPT_PART: usize = 8;
/// Pause between two changes of the terminal's size: who drags a window's edge makes dozens a second,
/// and an app may draw all of its screen for each.
pub const RESIZE_PAUSE: Duration = Duration::from_millis(30);
/// Pause between two screens for a client whose window is not the terminal's, and which is therefore
/// not given the app's bytes: 25 a second look like motion.
pub const SCREEN_PAUSE: Duration = Duration::from_millis(40);
/// Pause after which a gap counts as over, and the user is told of it.
pub(crate) const GAP_QUIET: Duration = Duration::from_secs(1);
/// Log lines of one kind (attached and detached, requests, refusals, dropped clients, slow clients) within
/// [`LINES_TIME`], separately for root with the mux's own user and for all others. Of more only their number is
/// logged: journald drops lines of a unit that logs too many, the app's among them.
pub(crate) const LINES: u64 = 20;
/// See [`LINES`].
pub(crate) const LINES_TIME: Duration = Duration::from_secs(10);
/// How long the first key of a sequence that attach keeps for itself may be held back.
pub(crate) const DETACH_HOLD: Duration = Duration::from_millis(500);
/// Longest such sequence, in keys.
pub(crate) const DETACH_KEYS: usize = 16;
/// How long an output that takes nothing may delay the end of this process. A terminal's modes are
/// put back all the same.
pub(crate) const STUCK: Duration = Duration::from_millis(300);
/// How long a line of ours stays on an app's full screen, before that is drawn again: long enough to be
/// read twice.
pub(crate) const NOTE: Duration = Duration::from_secs(5);
/// Pause before such a line is shown again that what the app has printed has wiped away: each time the screen is
/// drawn.
pub(crate) const NOTE_PAUSE: Duration = Duration::from_millis(300);
/// How long a line of ours waits for the end of a sequence or character that the app has begun: mostly the
/// rest comes with its next write, and what comes later goes on behind the line.
pub(crate) const NOTE_HOLD: Duration = Duration::from_millis(50);

/// Bytes of a `logs` document that are read: a handful of paths.
pub(crate) const LOGGED: u64 = 64 * 1024;
/// Bytes read from a log at once.
pub(crate) const LOG_READ: usize = 64 * 1024;
/// Longest entry of a log that is read, bytes. Writers split lines long before; what is longer is
/// passed over, so that memory has an end.
pub(crate) const LOG_ENTRY: usize = 16 * 1024 * 1024;
/// Bytes of a log that are looked through for the next part, backwards, of the oldest line that `--tail`
/// asks for: parts of other lines may lie between its own.
pub(crate) const LOG_PARTS: u64 = 1024 * 1024;
/// Bytes of the sequences that set colours which are sent again when a terminal is written to after a
/// while: what an app leaves on is set by one or two.
pub(crate) const LOG_COLOURS: usize = 256;
/// Rotated files of a log that are held open while they wait to be read: half of what a process
/// may usually have open.
pub(crate) const LOG_READ_FILES: usize = 512;
/// Looks at a directory before one must do, when each finds it changed by a rotation.
pub(crate) const LOG_LOOKS: usize = 1000;
/// Broken entries that are told of; a file that is no log at all has nothing else.
pub(crate) const LOG_BROKEN: usize = 8;
/// Characters of a broken entry that are shown.
pub(crate) const LOG_EXCERPT: usize = 64;

/// How long systemd is waited for until it has dealt with what it was sent. It takes a millisecond; an answer
/// that does not come fails a start.
pub(crate) const BARRIER: Duration = Duration::from_secs(5);

/// Longest file with options of a mux, bytes: they are some lines.
pub(crate) const OPTIONS: u64 = 64 << 10;

/// How long a mux that accepts nobody is waited for, whose listen queue is full: one that runs accepts in
/// milliseconds, and a hook of the app's unit waits here.
pub(crate) const CONNECT: Duration = Duration::from_secs(2);
