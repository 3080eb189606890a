//! The physical limit: as many producers as the engine has clients, and one thread that appends whatever waits to one
//! file and syncs it once.
//!
//! It is measured twice. Producers that are threads are what most programs that wait for a disk are made of; producers
//! that are async tasks wake for almost nothing, and show what is left when waiting itself is free.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::sync::{Arc, mpsc};
use std::thread;

use tokio::sync::oneshot;

/// One place, a file unless something else is said, and the thread that writes to it.
pub struct Limit {
    queue: mpsc::Sender<Waiting>,
    writer: thread::JoinHandle<io::Result<()>>,
}

struct Waiting {
    event: Arc<[u8]>,
    producer: Producer,
}

/// How a producer is told that its event is durable.
enum Producer {
    Thread(mpsc::SyncSender<()>),
    Task(oneshot::Sender<()>),
}

impl Limit {
    /// Begin a new file.
    pub fn start(path: &Path) -> io::Result<Limit> {
        let (mut file, mut bytes) = (File::create(path)?, Vec::new());
        Limit::with(move |events| {
            bytes.clear();
            for event in events {
                bytes.extend_from_slice(event);
            }
            file.write_all(&bytes)?;
            file.sync_data()
        })
    }

    /// Begin with what makes events durable.
    pub fn with(mut write: impl FnMut(&[Arc<[u8]>]) -> io::Result<()> + Send + 'static) -> io::Result<Limit> {
        let (queue, waiting) = mpsc::channel::<Waiting>();
        let writer = thread::Builder::new().name("limit".to_owned()).spawn(move || {
            while let Ok(first) = waiting.recv() {
                let (mut events, mut producers) = (Vec::new(), Vec::new());
                for Waiting { event, producer } in std::iter::once(first).chain(waiting.try_iter()) {
                    events.push(event);
                    producers.push(producer);
                }
                write(&events)?;
                for producer in producers {
                    // A producer that is gone has stopped measuring.
                    match producer {
                        Producer::Thread(done) => _ = done.send(()),
                        Producer::Task(done) => _ = done.send(()),
                    }
                }
            }
            Ok(())
        })?;
        Ok(Limit { queue, writer })
    }

    /// Append an event from a task; answers when it is durable. False if the writer has failed.
    pub async fn append(&self, event: &Arc<[u8]>) -> bool {
        let (done, durable) = oneshot::channel();
        let waiting = Waiting { event: Arc::clone(event), producer: Producer::Task(done) };
        self.queue.send(waiting).is_ok() && durable.await.is_ok()
    }

    /// What a producer that is a thread appends through.
    pub fn handle(&self) -> Handle {
        let (done, durable) = mpsc::sync_channel(1);
        Handle { queue: self.queue.clone(), done, durable }
    }

    /// End, and say what went wrong if something did.
    pub fn stop(self) -> io::Result<()> {
        drop(self.queue);
        self.writer.join().unwrap_or_else(|_| Err(io::Error::other("the writer panicked")))
    }
}

/// One producer that is a thread.
pub struct Handle {
    queue: mpsc::Sender<Waiting>,
    done: mpsc::SyncSender<()>,
    durable: mpsc::Receiver<()>,
}

impl Handle {
    /// Append an event; returns when it is durable. False if the writer has failed.
    pub fn append(&self, event: &Arc<[u8]>) -> bool {
        let waiting = Waiting { event: Arc::clone(event), producer: Producer::Thread(self.done.clone()) };
        self.queue.send(waiting).is_ok() && self.durable.recv().is_ok()
    }
}
