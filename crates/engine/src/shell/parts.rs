//! The parts of a node, each behind a lock of its own, and what the threads do with what leaves it.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use handover_kernel::{Limits, Timestamp};
use tokio::sync::{Notify, oneshot};

use super::threads::Pending;
use super::{Inner, OnHeard, OnPublished};
use crate::answer::{Answer, Denied};
use crate::clock;
use crate::errands::Waiting;
use crate::hub::Hub;
use crate::locks::lock;
use crate::node::{Call, Out, Parts};
use crate::quota::Quota;
use crate::shard::{Published, Shard};
use crate::tail::Tail;
use crate::timers::Timers;

/// Who waits for an answer.
pub(super) type Reply = oneshot::Sender<Answer>;

/// The parts as one thread uses them, while others do.
pub(super) struct Locked<'a> {
    inner: &'a Inner,
    defers: bool,
    /// Something waits to be written, and nobody was told.
    pub(super) pending: Option<Pending<'a>>,
}

impl<'a> Locked<'a> {
    pub(super) fn new(inner: &'a Inner) -> Locked<'a> {
        Locked { inner, defers: false, pending: None }
    }

    /// The same for who sees to it that something is written.
    pub(super) fn deferring(inner: &'a Inner) -> Locked<'a> {
        Locked { defers: true, ..Locked::new(inner) }
    }
}

impl Parts for Locked<'_> {
    type Waiter = Reply;
    type Waker = Arc<Notify>;

    fn shards(&self) -> usize {
        self.inner.shards.len()
    }

    fn shard<R>(&mut self, index: usize, work: impl FnOnce(&mut Shard<Call<Reply>>, Timestamp) -> R) -> R {
        let mut shard = lock(&self.inner.shards[index]);
        work(&mut shard, clock::now())
    }

    fn quota<R>(&mut self, work: impl FnOnce(&mut Quota) -> R) -> R {
        work(&mut lock(&self.inner.quota))
    }

    fn hub<R>(&mut self, work: impl FnOnce(&mut Hub<Arc<Notify>>) -> R) -> R {
        work(&mut lock(&self.inner.hub))
    }

    fn timers<R>(&mut self, work: impl FnOnce(&mut Timers) -> R) -> R {
        work(&mut lock(&self.inner.timers))
    }

    fn waiting<R>(&mut self, work: impl FnOnce(&mut Waiting) -> R) -> R {
        work(&mut lock(&self.inner.waiting))
    }

    fn tail<R>(&mut self, work: impl FnOnce(&mut Tail) -> R) -> Option<R> {
        self.inner.tail.as_ref().map(|tail| work(&mut lock(tail)))
    }

    fn now(&self) -> Timestamp {
        clock::now()
    }

    fn limits(&self) -> &Limits {
        &self.inner.settings.limits
    }

    fn out(&mut self, out: Out<'_, Reply, Arc<Notify>>) {
        match out {
            // The readers end only after everybody who could wait for them has.
            Out::Load(key) => _ = self.inner.loads.send(Some(key)),
            Out::Answer(reply, answer) => {
                self.inner.counters.count_answer(&answer);
                // Whoever asked may be gone: what was decided stands all the same.
                _ = reply.send(answer);
            }
            Out::Published(published) => self.inner.published(published),
            Out::Notify(wakers) => wakers.iter().for_each(|waker| waker.notify_one()),
            Out::Cut(count) => _ = self.inner.counters.subscribers_cut.inc_by(count as u64),
            Out::Pending if self.defers => _ = self.pending.get_or_insert(Pending(self.inner)),
            Out::Pending => self.inner.committer.raise(),
            Out::Earlier => self.inner.clock.raise(),
            Out::Look => self.inner.looker.raise(),
            Out::Unreadable(key, what) => {
                tracing::error!(session = %key, %what, "an event of another node cannot be read");
            }
            Out::Heard(elsewhere) => {
                if let Some(OnHeard(tell)) = self.inner.on_heard.get() {
                    tell(elsewhere);
                }
            }
            Out::Woken(answer) => {
                self.inner.wakes.fetch_sub(1, Ordering::AcqRel);
                if let Answer::Denied(Denied::Unreadable(what)) = answer {
                    tracing::error!(%what, "a session that is due cannot be read");
                }
            }
        }
    }
}

impl Inner {
    fn published(&self, published: &Published) {
        let requester = published.binding.requester.as_str();
        self.stored.add(&published.key.tenant, requester, published.bytes);
        if let Some(end) = published.ended {
            self.counters.count_end(end);
        }
        if let Some(OnPublished(tell)) = &self.settings.on_published {
            tell(published);
        }
    }
}
