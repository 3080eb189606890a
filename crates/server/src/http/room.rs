//! How many connections a listener has room for, in all and from one address.
//!
//! A connection on which nobody has shown a good token yet is a stranger's. Where there is no room for a new one, the oldest
//! stranger makes way for it, so that sockets that say nothing never keep out who has something to say.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use crate::config::network::Network;
use crate::telemetry::Connections;

/// The connections of one listener.
#[derive(Debug)]
pub struct Room {
    connections_max: usize,
    per_address_max: usize,
    /// Where any number of connections may come from, besides this machine.
    trusted: Arc<[Network]>,
    taken: Mutex<Taken>,
    /// Tells who waits for room that there may be some.
    left: Notify,
    counters: Connections,
}

#[derive(Debug, Default)]
struct Taken {
    open: usize,
    next: u64,
    /// By age: the oldest is the first to make way.
    strangers: BTreeMap<u64, (Source, Arc<Notify>)>,
    sources: HashMap<Source, From>,
}

#[derive(Debug, Default)]
struct From {
    open: usize,
    strangers: BTreeSet<u64>,
}

/// What counts as one address: of IPv6 a network of 64 bits, which is what one machine gets.
type Source = IpAddr;

/// A place among the connections, given back when it is dropped.
#[derive(Debug)]
pub struct Seat {
    room: Arc<Room>,
    id: u64,
    source: Source,
    known: AtomicBool,
    /// Somebody else needs the place.
    wanted: Arc<Notify>,
}

/// An address has as many connections as it may.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

impl Room {
    /// A room with nobody in it.
    pub fn new(
        connections_max: usize,
        per_address_max: usize,
        trusted: &[Network],
        counters: Connections,
    ) -> Arc<Room> {
        Arc::new(Room {
            connections_max,
            per_address_max,
            trusted: trusted.into(),
            taken: Mutex::default(),
            left: Notify::new(),
            counters,
        })
    }

    /// Returns when one more connection can be seated.
    pub async fn has_place(&self) {
        let mut warned = false;
        loop {
            let left = self.left.notified();
            if self.can_seat() {
                return;
            }
            if !warned {
                tracing::warn!("all connections are taken: new ones wait until another ends");
                warned = true;
            }
            left.await;
        }
    }

    fn can_seat(&self) -> bool {
        let taken = self.taken();
        taken.open < self.connections_max || !taken.strangers.is_empty()
    }

    /// A place for a connection from there. Another may have to make way for it.
    pub fn seat(self: &Arc<Self>, peer: SocketAddr) -> Result<Seat, Full> {
        let source = source(peer.ip());
        let mut taken = self.taken();
        if !self.is_unbounded(peer.ip()) {
            let from = taken.sources.get(&source);
            if from.is_some_and(|from| from.open >= self.per_address_max) {
                let oldest = from.and_then(|from| from.strangers.first().copied());
                let Some(oldest) = oldest else {
                    self.counters.dropped("address");
                    return Err(Full);
                };
                self.displace(&mut taken, oldest);
            }
        }
        if taken.open >= self.connections_max
            && let Some(oldest) = taken.strangers.keys().next().copied()
        {
            self.displace(&mut taken, oldest);
        }
        let id = taken.next;
        taken.next += 1;
        taken.open += 1;
        let wanted = Arc::new(Notify::new());
        taken.strangers.insert(id, (source, Arc::clone(&wanted)));
        let from = taken.sources.entry(source).or_default();
        from.open += 1;
        from.strangers.insert(id);
        self.counters.open.inc();
        Ok(Seat { room: Arc::clone(self), id, source, known: AtomicBool::new(false), wanted })
    }

    fn displace(&self, taken: &mut Taken, id: u64) {
        if let Some((source, wanted)) = taken.strangers.remove(&id) {
            taken.leave(source, id);
            wanted.notify_one();
            self.counters.dropped("displaced");
        }
    }

    fn is_unbounded(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        address.is_loopback() || self.trusted.iter().any(|network| network.holds(address))
    }

    fn taken(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What a listener drops and why.
    pub fn counters(&self) -> &Connections {
        &self.counters
    }
}

impl Taken {
    fn leave(&mut self, source: Source, id: u64) {
        self.open -= 1;
        if let Some(from) = self.sources.get_mut(&source) {
            from.open -= 1;
            from.strangers.remove(&id);
            if from.open == 0 {
                self.sources.remove(&source);
            }
        }
    }
}

impl Seat {
    /// Somebody has shown a good token here: the place is kept.
    pub fn known(&self) {
        if self.known.load(Ordering::Relaxed) {
            return;
        }
        let mut taken = self.room.taken();
        // One that was displaced a moment ago stays so.
        if taken.strangers.remove(&self.id).is_some() {
            if let Some(from) = taken.sources.get_mut(&self.source) {
                from.strangers.remove(&self.id);
            }
            self.known.store(true, Ordering::Relaxed);
        }
    }

    /// Returns when the place is needed for another.
    pub async fn wanted(&self) {
        self.wanted.notified().await;
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut taken = self.room.taken();
        let stranger = taken.strangers.remove(&self.id).is_some();
        if stranger || self.known.load(Ordering::Relaxed) {
            taken.leave(self.source, self.id);
        }
        drop(taken);
        self.room.counters.open.dec();
        self.room.left.notify_one();
    }
}

fn source(address: IpAddr) -> Source {
    match address.to_canonical() {
        IpAddr::V4(address) => IpAddr::V4(address),
        IpAddr::V6(address) => {
            let [a, b, c, d, ..] = address.segments();
            IpAddr::V6(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn room(all: usize, each: usize, trusted: &str) -> Arc<Room> {
        let trusted: Vec<Network> = trusted.split_whitespace().map(|text| text.parse().unwrap()).collect();
        Room::new(all, each, &trusted, Connections::default())
    }

    fn peer(address: &str) -> SocketAddr {
        SocketAddr::new(address.parse().unwrap(), 1)
    }

    fn is_wanted(seat: &Seat) -> bool {
        let mut wanted = std::pin::pin!(seat.wanted());
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        wanted.as_mut().poll(&mut context).is_ready()
    }

    #[test]
    fn the_oldest_stranger_makes_way_and_who_is_known_stays() {
        let room = room(3, 100, "");
        let seat = |address| room.seat(peer(address)).unwrap();
        let (first, second, third) = (seat("10.0.0.1"), seat("10.0.0.2"), seat("10.0.0.3"));
        first.known();
        let _fourth = seat("10.0.0.4");
        assert_eq!([&first, &second, &third].map(is_wanted), [false, true, false]);
        // Too late.
        second.known();
        drop(second);
        let _fifth = seat("10.0.0.5");
        assert!(is_wanted(&third) && !is_wanted(&first));
        assert_eq!(room.taken().open, 3);
    }

    #[tokio::test]
    async fn a_room_of_known_ones_waits_for_one_to_leave() {
        let room = room(1, 100, "");
        let only = room.seat(peer("10.0.0.1")).unwrap();
        room.has_place().await;
        only.known();
        let mut waiting = Box::pin(room.has_place());
        tokio::select! { biased; () = &mut waiting => panic!("there was no room"), () = async {} => {} }
        drop(only);
        waiting.await;
        assert_eq!(room.taken().open, 0);
    }

    #[test]
    fn one_address_has_a_bound_of_its_own_unless_it_is_trusted() {
        let room = room(1000, 2, "192.0.2.0/24 2001:db8:9::/48");
        // Of a network of IPv6, all addresses are one.
        for bounded in [
            ["10.0.0.1", "10.0.0.1", "::ffff:10.0.0.1"],
            ["2001:db8::1", "2001:db8::2", "2001:db8:0:0:ffff::3"],
        ] {
            let held: Vec<Seat> = bounded[..2].iter().map(|from| room.seat(peer(from)).unwrap()).collect();
            held.iter().for_each(Seat::known);
            assert_eq!(room.seat(peer(bounded[2])).unwrap_err(), Full, "{bounded:?}");
            assert!(room.seat(peer("10.0.0.2")).is_ok(), "another address is another's");
        }
        let strangers: Vec<Seat> = (0..2).map(|_| room.seat(peer("10.0.0.3")).unwrap()).collect();
        let _newer = room.seat(peer("10.0.0.3")).unwrap();
        assert!(is_wanted(&strangers[0]) && !is_wanted(&strangers[1]));
        for unbounded in ["127.0.0.1", "::1", "192.0.2.77", "2001:db8:9:1::1"] {
            let held: Vec<Seat> = (0..50).map(|_| room.seat(peer(unbounded)).unwrap()).collect();
            assert!(!held.iter().any(is_wanted), "{unbounded}");
        }
    }
}
