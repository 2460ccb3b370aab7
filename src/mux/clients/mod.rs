//! The registry of clients: one record for each connection.
//!
//! It knows nothing of the app, the logs or the listeners. Operations on several clients at once
//! are here; those on one client are in its record.

pub(crate) mod client;
mod outbox;
pub(crate) mod session_side;
pub(crate) mod state;

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::ops::Range;
use std::time::{Duration, Instant};

use anyhow::{Error, anyhow};

use self::client::Client;
use self::session_side::ShownAs;
use self::state::Inbound;
use crate::core::hub::ClientId;
use crate::core::wire::{HEADER, InputId};
use crate::screen::query::Query;
use crate::types::limits;
use crate::types::rights::Right;
use crate::types::size::Size;
use crate::types::stream::Stream;

/// How long a session may take to send its first message.
const HELLO: Duration = Duration::from_secs(10);
/// How long a viewer may take for a screen while others wait for the memory.
const SCREEN_PATIENCE: Duration = Duration::from_secs(1);

/// Why a client is to go.
#[derive(Debug)]
pub(crate) enum Departure {
    /// Writing to it has failed: what it sent before may still wait to be read.
    Unreachable,
    /// It does not do what it should, or cannot get what it came for: it is sent this.
    Lost(Error),
    /// It is done.
    Done,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Clients {
    pub(crate) all: BTreeMap<ClientId, Client>,
    /// The buffer for input of clients; it is lent out while its content is handled. Made for the
    /// first client, since most muxes are idle.
    buffer: Option<Box<[u8]>>,
    /// Those who are told what others do.
    pub(crate) listeners: Vec<ClientId>,
    /// Those who are to go at the end of the event.
    pub(crate) closing: VecDeque<(ClientId, Departure)>,
    /// The ids of a turn, kept for their memory.
    pub(crate) ids: Vec<ClientId>,
    /// The client of another user that was served last.
    pub(crate) last_other: ClientId,
}

impl Clients {
    pub(crate) fn get(&self, id: ClientId) -> Option<&Client> {
        self.all.get(&id)
    }

    pub(crate) fn get_mut(&mut self, id: ClientId) -> Option<&mut Client> {
        self.all.get_mut(&id)
    }

    pub(crate) fn remove(&mut self, id: ClientId) -> Option<Client> {
        self.listeners.retain(|listener| *listener != id);
        self.all.remove(&id)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (ClientId, &Client)> {
        self.all.iter().map(|(id, client)| (*id, client))
    }

    pub(crate) fn ids(&self) -> Vec<ClientId> {
        self.all.keys().copied().collect()
    }

    /// The pages of the app that sockets may hold.
    pub(crate) fn held_pages(&self) -> impl Iterator<Item = (Stream, Range<u64>)> {
        self.all.values().filter_map(|client| client.pages.held())
    }

    // ---- turns ----

    /// Whether it is a client of another user than root and the mux's own.
    pub(crate) fn is_others(&self, id: ClientId) -> bool {
        self.get(id).is_some_and(|client| client.right < Right::Own)
    }

    /// When the oldest session that has not sent its hello is to go.
    pub(crate) fn hello_due(&self) -> Option<Instant> {
        // The order of their ids is that in which they came.
        let silent = self.all.values().find(|client| !client.inbound.has_greeted());
        silent.map(|client| client.since + HELLO)
    }

    /// Sessions that have not sent their hello in time are to go.
    pub(crate) fn drop_silent(&mut self, now: Instant) {
        let is_late =
            |client: &Client| !client.inbound.has_greeted() && client.since + HELLO <= now;
        let late = self.all.iter().filter(|(_, client)| is_late(client));
        let why = || Departure::Lost(anyhow!("it has not said hello in time"));
        self.closing.extend(late.map(|(id, _)| (*id, why())));
    }

    /// The turn of the clients of other users: it begins after the one that was served last.
    pub(crate) fn turn_of_other(&self, id: ClientId) -> Option<(bool, ClientId)> {
        self.is_others(id).then_some((id <= self.last_other, id))
    }

    // ---- input ----

    /// Reads up to `room` bytes of a client, at most [`limits::READ`] and a header, into the buffer;
    /// `None` if nothing has come, 0 bytes at the end. The buffer must not be lent out.
    pub(crate) fn receive(&mut self, id: ClientId, room: usize) -> io::Result<Option<usize>> {
        let Some(client) = self.all.get(&id) else { return Ok(Some(0)) };
        client.receive(&mut self.buffer.get_or_insert_with(new_buffer)[..room])
    }

    pub(crate) fn lend_buffer(&mut self) -> Box<[u8]> {
        self.buffer.take().unwrap_or_else(new_buffer)
    }

    pub(crate) fn return_buffer(&mut self, buffer: Box<[u8]>) {
        self.buffer = Some(buffer);
    }

    /// A client is to go at the end of the event: that changes what others may do.
    pub(crate) fn close(&mut self, id: ClientId, why: Departure) {
        self.closing.push_back((id, why));
    }

    /// The session of a user with this input.
    pub(crate) fn with_input(&self, uid: u32, input: InputId) -> Option<ClientId> {
        let has = |client: &Client| {
            client.peer.uid == uid && client.session().is_some_and(|s| s.input == Some(input))
        };
        self.iter().find_map(|(id, client)| has(client).then_some(id))
    }

    /// The clients whose input goes to the app.
    pub(crate) fn writers(&self) -> Vec<ClientId> {
        let types =
            |(id, client): (ClientId, &Client)| (client.inbound == Inbound::Typing).then_some(id);
        self.iter().filter_map(types).collect()
    }

    /// Whether too many writers have gone, of this one's user, or of root and the mux's own user.
    pub(crate) fn are_too_many_gone(&self, Client { peer, right, .. }: &Client) -> bool {
        let is_own = *right == Right::Own;
        let most = if is_own { limits::GONE_WRITERS } else { limits::GONE_USER_WRITERS };
        let is_alike = |other: &&Client| {
            if is_own { other.right == Right::Own } else { other.peer.uid == peer.uid }
        };
        let gone = self.all.values().filter(|client| client.is_gone_writer());
        gone.filter(is_alike).count() > most
    }

    // ---- counting ----

    /// The clients that read or type.
    pub(crate) fn attached(&self) -> usize {
        self.all.values().filter(|client| client.is_attached()).count()
    }

    /// Whether a session types or is there for the app's next byte: one that only asks does neither, and
    /// one that waits for its screen would not hold back an app that starts with a flood.
    pub(crate) fn has_attached(&self) -> bool {
        let reads =
            |client: &Client| client.session().is_some_and(|session| !session.streams.is_empty());
        let attached = |client: &Client| {
            (client.inbound == Inbound::Typing || reads(client)) && !client.awaits_screen()
        };
        self.all.values().any(attached)
    }

    // ---- the terminal ----

    /// The app has printed queries on a terminal of this size: all terminals that see them will
    /// reply, and the replies of the `decider` go to the app. Whether it sees them.
    pub(crate) fn expect_replies(
        &mut self,
        queries: &[Query],
        (decider, size): (Option<ClientId>, Size),
        now: Instant,
    ) -> bool {
        // A screen of another size is followed by screens.
        let sees = |client: &Client| {
            let session = client.session().filter(|s| s.view == Some(ShownAs::Asked));
            client.sees_bytes() && session.is_none_or(|session| session.fits(Some(size)))
        };
        let decider = decider.filter(|id| self.get(*id).is_some_and(sees));
        for (id, client) in &mut self.all {
            if client.can_reply() {
                let passes = Some(*id) == decider;
                for query in queries {
                    client.replies.get_or_insert_default().expect(*query, passes, now);
                }
            }
        }
        decider.is_some()
    }

    /// Gives `release` the input that was held back for too long because it could have been the
    /// beginning of a reply. Returns when there is more, and the queries that a client was to answer
    /// and has not, oldest first.
    pub(crate) fn expire_replies(
        &mut self,
        now: Instant,
        mut release: impl FnMut(ClientId, &[u8]),
    ) -> (Option<Instant>, Vec<Query>) {
        let (mut typed, mut next) = (Vec::new(), None::<Instant>);
        let mut late = Vec::new();
        for (id, client) in &mut self.all {
            let Some(replies) = &mut client.replies else { continue };
            late.extend(replies.late(now));
            next = next.into_iter().chain(replies.late_at()).min();
            match replies.deadline() {
                Some(at) if at <= now => {
                    typed.clear();
                    replies.expire(now, &mut typed);
                    release(*id, &typed);
                }
                later => next = next.into_iter().chain(later).min(),
            }
        }
        (next, late)
    }

    /// Every client that asked for screens is due one; whether there is such a client.
    pub(crate) fn owe_screens(&mut self) -> bool {
        self.all.values_mut().fold(false, |owes, client| owes | client.owe_screen())
    }

    /// The bytes of screens and backlogs that the clients of a user have not taken.
    pub(crate) fn undrawn_of(&self, uid: u32) -> usize {
        self.all.values().filter(|client| client.peer.uid == uid).map(Client::undrawn).sum()
    }

    /// Makes room for one more screen when too many wait for their viewers: a screen that has
    /// waited long enough loses its rest. If there are too few of those, returns the time at which
    /// the next one may.
    pub(crate) fn make_room_for_screen(&mut self, now: Instant) -> Option<Instant> {
        let waiting = self.all.values().filter_map(Client::waiting_screen);
        let mut waits: usize = waiting.map(|(len, _)| len).sum();
        if waits < limits::SCREENS {
            return None;
        }
        let mut next = None;
        for client in self.all.values_mut() {
            let Some((len, shown)) = client.waiting_screen() else { continue };
            let until = shown + SCREEN_PATIENCE;
            if until <= now {
                client.forget_screen();
                waits -= len;
            } else {
                next = Some(next.map_or(until, |at: Instant| at.min(until)));
            }
        }
        next.filter(|_| waits >= limits::SCREENS)
    }
}

fn new_buffer() -> Box<[u8]> {
    vec![0; limits::READ + HEADER].into_boxed_slice()
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::unix::net::UnixStream;
    use std::time::Duration;

    use super::*;
    use crate::core::hub::Hub;
    use crate::core::hub::memory::Memory;
    use crate::core::wire::{Decoder, Item};
    use crate::mux::clients::client::Role;
    use crate::mux::clients::session_side::SessionSide;
    use crate::mux::pages::Pages;
    use crate::mux::peer::Peer;
    use crate::types::stream::{Epoch, Position};

    #[test]
    fn a_session_without_a_hello_goes_in_time_and_one_with_a_hello_stays() {
        let mut clients = Clients::default();
        for id in [ClientId(1), ClientId(2)] {
            let (ours, _) = UnixStream::pair().unwrap();
            let peer = Peer { uid: 0, gid: 0, pid: 1 };
            let role = Role::Session(SessionSide::default());
            clients.all.insert(id, Client::new(ours, role, peer, Right::Own));
        }
        clients.get_mut(ClientId(1)).unwrap().inbound = Inbound::Watching;
        let due = clients.hello_due().unwrap();
        let since = clients.get(ClientId(2)).unwrap().since;
        assert_eq!(due, since + HELLO);
        clients.drop_silent(since);
        assert!(clients.closing.is_empty());
        clients.drop_silent(due);
        assert!(matches!(clients.closing.pop_front(), Some((ClientId(2), Departure::Lost(_)))));
        clients.remove(ClientId(2));
        assert!(clients.closing.is_empty() && clients.hello_due().is_none());
    }

    /// Clients whose sockets take nothing more, each with a screen of its own.
    #[test]
    fn screens_that_nobody_takes_are_bounded_and_what_was_sent_of_them_is_whole_frames() {
        let streams = [Stream::Tty];
        let mut hub = Hub::new(&streams, 4096, Memory::new(&streams, 4096), Epoch(1));
        let (mut clients, mut peers) = (Clients::default(), Vec::new());
        let now = Instant::now();
        let screen = vec![b's'; 2_000_000];
        let mut next = None;
        for number in 0..40u64 {
            let at = now + limits::SCREEN_PAUSE * u32::try_from(number).unwrap();
            next = clients.make_room_for_screen(at);
            if next.is_some() {
                break;
            }
            let (ours, theirs) = UnixStream::pair().unwrap();
            let peer = Peer::of(&ours).unwrap();
            let role = Role::Session(SessionSide::default());
            let mut client = Client::new(ours, role, peer, Right::View);
            if let Role::Session(session) = &mut client.role {
                (session.view, session.shown) = (Some(ShownAs::Screens), Some(at));
            }
            let id = hub.join(Duration::ZERO);
            hub.subscribe(id, Stream::Tty, Position::Now);
            client.show(id, &mut hub, (&screen, None));
            client.flush(id, &mut hub, &mut Pages::default()).unwrap();
            clients.all.insert(id, client);
            peers.push((id, theirs));
        }
        let waits = |clients: &Clients| clients.all.values().map(Client::undrawn).sum::<usize>();
        let all = waits(&clients);
        assert!((limits::SCREENS..limits::SCREENS + screen.len()).contains(&all), "{all}");
        // The first has had its time then, and another can be drawn.
        assert_eq!(next, Some(now + SCREEN_PATIENCE));
        assert_eq!(clients.make_room_for_screen(now + SCREEN_PATIENCE), None);
        assert!(waits(&clients) < limits::SCREENS);
        // When it reads again it gets the rest of the current frame, and nothing incomplete.
        let (id, mut theirs) = peers.remove(0);
        let mut client = clients.remove(id).unwrap();
        assert!(!client.wants_screen() && client.awaits_screen());
        let (mut decoder, mut shown) = (Decoder::default(), 0);
        theirs.set_nonblocking(true).unwrap();
        let mut buffer = vec![0; 1 << 16];
        while let Ok(len) = theirs.read(&mut buffer) {
            let mut bytes = &buffer[..len];
            while let Some(item) = decoder.next(&mut bytes).unwrap() {
                if let Item::Screen(bytes) = item {
                    shown += bytes.len();
                }
            }
            client.flush(id, &mut hub, &mut Pages::default()).unwrap();
        }
        assert!(shown > 0 && shown < screen.len() && shown % limits::SCREEN_FRAME == 0, "{shown}");
        assert!(client.wants_screen() && client.can_take());
    }
}
