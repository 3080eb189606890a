//! What lies between a node and its database: a relay that may fall silent, for everybody or for those that are connected.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

/// Relays connections until the process ends.
pub struct Between {
    pub port: u16,
    state: Arc<State>,
}

#[derive(Default)]
struct State {
    /// How many connections there were, and up to which nothing goes through any more.
    count: AtomicU64,
    silent_up_to: AtomicU64,
    /// Nothing goes through.
    silent: AtomicBool,
}

impl Between {
    pub fn before(database: SocketAddr) -> Between {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let state = Arc::new(State::default());
        let relays = Arc::clone(&state);
        thread::spawn(move || {
            for stream in listener.incoming() {
                relay(stream.unwrap(), TcpStream::connect(database).unwrap(), &relays);
            }
        });
        Between { port, state }
    }

    /// Nothing goes through from now on, and nothing ends.
    pub fn fall_silent(&self) {
        self.state.silent.store(true, Ordering::SeqCst);
    }

    /// What was held back arrives, also where nobody waits for it any more.
    pub fn go_on(&self) {
        self.state.silent.store(false, Ordering::SeqCst);
    }

    /// The connections that there are now are forgotten on the way, as when an address is translated.
    pub fn forget(&self) {
        self.state.silent_up_to.store(self.state.count.load(Ordering::SeqCst), Ordering::SeqCst);
    }
}

fn relay(node: TcpStream, database: TcpStream, state: &Arc<State>) {
    let number = state.count.fetch_add(1, Ordering::SeqCst) + 1;
    let ways = [(node.try_clone().unwrap(), database.try_clone().unwrap()), (database, node)];
    for (from, to) in ways {
        let state = Arc::clone(state);
        thread::spawn(move || carry(from, to, number, &state));
    }
}

/// Carry what comes, one way. Whoever ends one way ends both.
fn carry(mut from: TcpStream, mut to: TcpStream, number: u64, state: &State) {
    let mut piece = [0; 16 * 1024];
    while let Ok(size @ 1..) = from.read(&mut piece) {
        let silent =
            || state.silent.load(Ordering::SeqCst) || number <= state.silent_up_to.load(Ordering::SeqCst);
        while silent() {
            thread::sleep(Duration::from_millis(2));
        }
        if to.write_all(&piece[..size]).is_err() {
            break;
        }
    }
    for stream in [&from, &to] {
        _ = stream.shutdown(std::net::Shutdown::Both);
    }
}
