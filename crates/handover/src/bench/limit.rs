//! The physical limit: as many producers as the engine has clients, and one thread that appends whatever waits to one
//! file and syncs it once.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::sync::{Arc, mpsc};
use std::thread;

use tokio::sync::oneshot;

/// One file and the thread that writes it.
pub struct Limit {
    queue: mpsc::Sender<(Arc<[u8]>, oneshot::Sender<()>)>,
    writer: thread::JoinHandle<io::Result<()>>,
}

impl Limit {
    /// Begin a new file.
    pub fn start(path: &Path) -> io::Result<Limit> {
        let mut file = File::create(path)?;
        let (queue, waiting) = mpsc::channel::<(Arc<[u8]>, oneshot::Sender<()>)>();
        let writer = thread::Builder::new().name("limit".to_owned()).spawn(move || {
            let mut bytes = Vec::new();
            while let Ok(first) = waiting.recv() {
                let mut batch = vec![first];
                batch.extend(waiting.try_iter());
                bytes.clear();
                for (event, _) in &batch {
                    bytes.extend_from_slice(event);
                }
                file.write_all(&bytes)?;
                file.sync_data()?;
                for (_, done) in batch {
                    // A producer that is gone has stopped measuring.
                    _ = done.send(());
                }
            }
            Ok(())
        })?;
        Ok(Limit { queue, writer })
    }

    /// Append an event; answers when it is durable. False if the writer has failed.
    pub async fn append(&self, event: &Arc<[u8]>) -> bool {
        let (done, durable) = oneshot::channel();
        self.queue.send((Arc::clone(event), done)).is_ok() && durable.await.is_ok()
    }

    /// End, and say what went wrong if something did.
    pub fn stop(self) -> io::Result<()> {
        drop(self.queue);
        self.writer.join().unwrap_or_else(|_| Err(io::Error::other("the writer panicked")))
    }
}
