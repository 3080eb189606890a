//! What waits for the network: a queue that counts bytes. Whoever puts something in waits until the reader has taken what
//! came before, and until there is room in memory for it; a reader that does not read holds a few frames and no more.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::body::Bytes;
use futures_core::Stream;
use handover_client::pipe;
use handover_desk::memory::{Lease, Room};
use prost::Message;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tonic::Status;

/// How many bytes may wait in one queue. What is larger waits alone.
const BYTES_MAX: u32 = 64 * 1024;

/// What the smallest thing counts.
const ITEM_BYTES: u32 = 512;

/// What can wait for the network.
pub trait Frame {
    /// How many bytes it takes.
    fn bytes(&self) -> usize;
}

impl Frame for String {
    fn bytes(&self) -> usize {
        self.len()
    }
}

impl<T: Message> Frame for Result<T, Status> {
    fn bytes(&self) -> usize {
        self.as_ref().map_or(0, Message::encoded_len)
    }
}

/// A queue. What waits in it is held in this room, if it is anybody's.
pub fn queue<T: Frame>(room: Option<Room>) -> (Sender<T>, Receiver<T>) {
    let (items, waiting) = mpsc::unbounded_channel();
    let free = Arc::new(Semaphore::new(BYTES_MAX as usize));
    (Sender { items, free: Arc::clone(&free), room }, Receiver { waiting, free })
}

/// Where things go in.
pub struct Sender<T> {
    items: mpsc::UnboundedSender<Item<T>>,
    free: Arc<Semaphore>,
    room: Option<Room>,
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Self {
        Sender { items: self.items.clone(), free: Arc::clone(&self.free), room: self.room.clone() }
    }
}

/// Where they come out. They come out of it as a stream, too.
pub struct Receiver<T> {
    waiting: mpsc::UnboundedReceiver<Item<T>>,
    free: Arc<Semaphore>,
}

/// Something that waits, and what it takes.
struct Item<T> {
    frame: T,
    held: Option<Lease>,
    _place: OwnedSemaphorePermit,
}

/// Nobody reads any more.
#[derive(Debug)]
pub struct Gone;

impl<T: Frame> Sender<T> {
    /// Put something in that was made of what is held, or that is small. It is counted, and waits for its reader alone.
    pub async fn send(&self, frame: T) -> Result<(), Gone> {
        let held = self.room.as_ref().map(|room| room.hold(frame.bytes() as u64));
        self.pass(frame, held).await
    }

    /// Put something in that may be large, and is made when there is room for about so many bytes of it. Nothing else may be
    /// held meanwhile, or many could wait for each other.
    pub async fn send_made(&self, about: usize, make: impl FnOnce() -> T) -> Result<(), Gone> {
        let place = self.place(about).await?;
        let mut held = match &self.room {
            Some(room) => tokio::select! {
                biased;
                held = room.wait(about as u64) => Some(held),
                () = self.items.closed() => return Err(Gone),
            },
            None => None,
        };
        let frame = make();
        if let Some(held) = &mut held {
            held.settle(frame.bytes() as u64);
        }
        self.items.send(Item { frame, held, _place: place }).map_err(|_| Gone)
    }

    /// Put something in with what is held for it already.
    pub async fn pass(&self, frame: T, held: Option<Lease>) -> Result<(), Gone> {
        let place = self.place(frame.bytes()).await?;
        self.items.send(Item { frame, held, _place: place }).map_err(|_| Gone)
    }

    async fn place(&self, bytes: usize) -> Result<OwnedSemaphorePermit, Gone> {
        let places = u32::try_from(bytes).unwrap_or(BYTES_MAX).clamp(ITEM_BYTES, BYTES_MAX);
        Arc::clone(&self.free).acquire_many_owned(places).await.map_err(|_| Gone)
    }

    /// Returns when nobody reads any more.
    pub async fn closed(&self) {
        self.items.closed().await;
    }
}

impl<T> Receiver<T> {
    /// The next thing. Waits for it; none if nothing more comes.
    pub async fn recv(&mut self) -> Option<T> {
        self.recv_held().await.map(|(frame, _)| frame)
    }

    /// The next thing, and what is held for it, to be passed on.
    pub async fn recv_held(&mut self) -> Option<(T, Option<Lease>)> {
        self.waiting.recv().await.map(|item| (item.frame, item.held))
    }

    /// The next thing, if it is there.
    pub fn try_recv(&mut self) -> Option<T> {
        self.waiting.try_recv().ok().map(|item| item.frame)
    }

    /// The next thing, and what is held for it.
    pub fn poll_held(&mut self, cx: &mut Context<'_>) -> Poll<Option<(T, Option<Lease>)>> {
        self.waiting.poll_recv(cx).map(|item| item.map(|item| (item.frame, item.held)))
    }
}

impl pipe::Lines for Receiver<String> {
    async fn next(&mut self) -> Option<String> {
        self.recv().await
    }

    fn ready(&mut self) -> Option<String> {
        self.try_recv()
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        // Whoever waits for room learns that nobody reads.
        self.free.close();
    }
}

impl<T> Stream for Receiver<T> {
    type Item = T;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<T>> {
        self.get_mut().poll_held(cx).map(|item| item.map(|(frame, _)| frame))
    }
}

/// Bytes that are held until the network has taken the last of them.
pub fn held<B>(bytes: B, lease: Option<Lease>) -> Bytes
where
    B: AsRef<[u8]> + Into<Bytes> + Send + 'static,
{
    match lease {
        Some(lease) => Bytes::from_owner(Held { bytes, _lease: lease }),
        None => bytes.into(),
    }
}

struct Held<B> {
    bytes: B,
    _lease: Lease,
}

impl<B: AsRef<[u8]>> AsRef<[u8]> for Held<B> {
    fn as_ref(&self) -> &[u8] {
        self.bytes.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use super::*;

    /// What a future comes to if it is looked at once.
    async fn at_once<F: Future + Unpin>(future: &mut F) -> Option<F::Output> {
        poll_fn(|cx| match Pin::new(&mut *future).poll(cx) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            Poll::Pending => Poll::Ready(None),
        })
        .await
    }

    #[tokio::test]
    async fn a_queue_is_full_by_bytes_and_a_large_thing_waits_alone() {
        let (sender, mut receiver) = queue::<String>(None);
        sender.send("x".repeat(BYTES_MAX as usize - 1000)).await.unwrap();
        sender.send("small".to_owned()).await.unwrap();
        let mut large = Box::pin(sender.send("y".repeat(10 * BYTES_MAX as usize)));
        assert!(at_once(&mut large).await.is_none());
        receiver.recv().await.unwrap();
        assert!(at_once(&mut large).await.is_none(), "something is still before it");
        assert_eq!(receiver.recv().await.unwrap(), "small");
        large.await.unwrap();
        let mut next = Box::pin(sender.send(String::new()));
        assert!(at_once(&mut next).await.is_none());
        assert_eq!(receiver.try_recv().unwrap().len(), 10 * BYTES_MAX as usize);
        next.await.unwrap();
    }

    #[tokio::test]
    async fn who_waits_for_room_learns_that_nobody_reads() {
        let (sender, receiver) = queue::<String>(None);
        sender.send("x".repeat(BYTES_MAX as usize)).await.unwrap();
        let mut waits = Box::pin(sender.send("y".to_owned()));
        assert!(at_once(&mut waits).await.is_none());
        drop(receiver);
        assert!(waits.await.is_err());
        sender.closed().await;
    }
}
