//! A server to play on.
//!
//! The cast: `planner` asks for work, `worker` and `helper` do it, `outsider` has no part in anything.

// No play needs all of it.
#![allow(dead_code)]

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use handover_desk::access::Access;
use handover_desk::approvers::Rules;
use handover_desk::gate;
use handover_desk::identity::Identity;
use handover_desk::identity::tokens::{Tokens, hash_text};
use handover_desk::shutdown::{Shutdown, Trigger};
use handover_desk::wait;
use handover_desk::{Data, Desk};
use handover_server::config::Config;
use handover_server::face::grid;
use handover_server::face::macp::Macp;
use handover_server::face::mcp::{self, Mcp};
use handover_server::house::{self, House};
use handover_server::http::{self, Bounds, Checks, Hosts, listen};
use handover_server::telemetry::Metrics;
use handover_server::tls::wire::Wire;
use handover_store::{Fault, SqliteStore, Store};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

pub use super::client::*;
pub use super::macp::{empty_store, events_of};
pub use super::worker::*;

/// How long anything may take before a play has failed: long, because the machine may be busy.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// A play that hangs has failed.
pub async fn in_time<T>(play: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, play).await.expect("waited in vain")
}

/// The data in a directory. Whoever still reads for the stage before, on a thread of its own, has it open until then.
async fn opened(dir: &Path) -> SqliteStore {
    loop {
        match SqliteStore::open(dir) {
            Err(Fault::InUse { .. }) => tokio::task::yield_now().await,
            opened => return opened.unwrap(),
        }
    }
}

/// Wait until it is so.
pub async fn until<F: Future<Output = bool>>(mut is_so: impl FnMut() -> F) {
    in_time(async {
        while !is_so().await {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

/// What a server is made of.
pub struct Set {
    pub identity: Identity,
    pub store: Arc<dyn Store>,
    pub face: mcp::Settings,
    pub engine: handover_engine::Settings,
    pub limits: gate::Settings,
    pub access: Access,
    pub approvals: Rules,
    pub waits: wait::Settings,
    /// The file of the audit log and how many bytes it may have.
    pub audit: Option<(PathBuf, u64)>,
}

impl Set {
    /// On an empty store, for everybody, with the settings of a server that nobody has configured.
    fn new() -> Set {
        let config = Config::default();
        let identity = Identity::Development;
        Set {
            limits: house::gate_settings(&config.limits, &identity),
            identity,
            store: empty_store(),
            face: mcp::Settings::new(&config),
            engine: handover_engine::Settings::default(),
            access: Access::default(),
            approvals: Rules::default(),
            waits: wait::Settings { plain: PATIENCE, with_progress: PATIENCE, for_answer: PATIENCE },
            audit: None,
        }
    }
}

/// The cast by tokens that prove who they are, and a `planner` of another tenant, whose token is `elsewhere`.
pub fn tokens() -> Identity {
    let entry = |token: &str, rest: &str| format!("[[token]]\nsha256 = \"{}\"\n{rest}\n", hash_text(token));
    let file = ["planner", "worker", "helper", "outsider"]
        .map(|name| entry(name, &format!("agent = \"{name}\"")))
        .concat()
        + &entry("elsewhere", "agent = \"planner\"\ntenant = \"elsewhere\"");
    Identity::Tokens(Arc::new(Tokens::parse(&file).unwrap()))
}

/// A server that ends with the play.
pub struct Stage {
    pub address: SocketAddr,
    pub store: Arc<dyn Store>,
    pub metrics: Arc<Metrics>,
    /// The face itself, without a wire.
    pub mcp: Mcp,
    /// The same without a network.
    pub router: http::Front,
    /// For plays on more than one face.
    pub macp: Macp,
    pub desk: Desk,
    trigger: Trigger,
    serving: JoinHandle<()>,
}

impl Stage {
    /// On an empty store.
    pub async fn in_memory() -> Stage {
        Stage::with(|_| {}).await
    }

    /// On disk: stopped and opened again, it is the same server.
    pub async fn on_disk(dir: &Path) -> Stage {
        let store = Arc::new(in_time(opened(dir)).await);
        Stage::with(|set| set.store = store).await
    }

    /// With something changed.
    pub async fn with(change: impl FnOnce(&mut Set)) -> Stage {
        let mut set = Set::new();
        change(&mut set);
        let Set { identity, store, face, engine, limits, access, approvals, waits, audit } = set;
        let (trigger, shutdown) = Shutdown::new();
        let desk = handover_desk::Settings {
            engine,
            gate: limits,
            access,
            approvals,
            waits,
            audit,
            ..Default::default()
        };
        let data = Data::Store(Arc::clone(&store));
        let house = House::with(
            data,
            desk,
            face,
            grid::Settings::new(&Config::default()),
            identity,
            shutdown.clone(),
        )
        .unwrap();
        let faces = house.routes();
        let House { desk, macp, mcp, metrics, .. } = house;
        let bounds = Bounds::for_payload(Config::default().limits.payload_bytes_max);
        let router =
            http::router(faces, Checks::new(Vec::new()), Arc::clone(&metrics), bounds, Hosts::default());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let serving = tokio::spawn(http::serve(
            listener,
            listen::Settings::new(Wire::Plain),
            router.clone(),
            shutdown.clone(),
        ));
        Stage { address, store, metrics, mcp, macp, router, desk, trigger, serving }
    }

    /// A client of the stateless revision with this token, which is its name in development. It declares tasks and forms.
    pub fn client(&self, token: &str) -> Client {
        Client::modern(self.address, Some(token))
    }

    /// A client without a token.
    pub fn nobody(&self) -> Client {
        Client::modern(self.address, None)
    }

    /// A client of a handshake revision that has shaken hands.
    pub async fn handshake(&self, token: &str, capabilities: serde_json::Value) -> Client {
        Client::handshake(self.address, token, "2025-11-25", capabilities).await
    }

    /// Whoever has these skills, in the directory.
    pub async fn worker(&self, token: &str, skills: serde_json::Value) -> Worker {
        Worker::register(self.client(token), skills).await
    }

    /// Everything that was ever written: if it does not change, nothing left a trace.
    pub fn written(&self) -> u64 {
        events_of(&*self.store)
    }

    /// Begin the shutdown, without waiting for it.
    pub fn begin_stop(&self) {
        self.trigger.begin();
    }

    /// Stop, and give the store back.
    pub async fn stop(self) {
        let Stage { store, desk, trigger, serving, router, mcp, macp, .. } = self;
        trigger.begin();
        in_time(serving).await.unwrap();
        drop((router, mcp, macp));
        tokio::task::spawn_blocking(move || desk.stop()).await.unwrap();
        drop(store);
    }
}
