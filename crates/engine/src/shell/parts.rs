//! The parts of a node, each behind a lock of its own, and what the threads do with what leaves it.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use handover_kernel::{Limits, Timestamp};
use tokio::sync::{Notify, oneshot};

use super::{Inner, OnPublished, OnRecord};
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
pub(super) struct Locked<'a>(pub(super) &'a Inner);

impl Parts for Locked<'_> {
    type Waiter = Reply;
    type Waker = Arc<Notify>;

    fn shards(&self) -> usize {
        self.0.shards.len()
    }

    fn shard<R>(&mut self, index: usize, work: impl FnOnce(&mut Shard<Call<Reply>>, Timestamp) -> R) -> R {
        let mut shard = lock(&self.0.shards[index]);
        work(&mut shard, clock::now())
    }

    fn quota<R>(&mut self, work: impl FnOnce(&mut Quota) -> R) -> R {
        work(&mut lock(&self.0.quota))
    }

    fn hub<R>(&mut self, work: impl FnOnce(&mut Hub<Arc<Notify>>) -> R) -> R {
        work(&mut lock(&self.0.hub))
    }

    fn timers<R>(&mut self, work: impl FnOnce(&mut Timers) -> R) -> R {
        work(&mut lock(&self.0.timers))
    }

    fn waiting<R>(&mut self, work: impl FnOnce(&mut Waiting) -> R) -> R {
        work(&mut lock(&self.0.waiting))
    }

    fn tail<R>(&mut self, work: impl FnOnce(&mut Tail) -> R) -> Option<R> {
        self.0.tail.as_ref().map(|tail| work(&mut lock(tail)))
    }

    fn now(&self) -> Timestamp {
        clock::now()
    }

    fn limits(&self) -> &Limits {
        &self.0.settings.limits
    }

    fn out(&mut self, out: Out<'_, Reply, Arc<Notify>>) {
        match out {
            // The readers end only after everybody who could wait for them has.
            Out::Load(key) => _ = self.0.loads.send(Some(key)),
            Out::Answer(reply, answer) => {
                self.0.counters.count_answer(&answer);
                // Whoever asked may be gone: what was decided stands all the same.
                _ = reply.send(answer);
            }
            Out::Published(published) => self.0.published(published),
            Out::Notify(wakers) => wakers.iter().for_each(|waker| waker.notify_one()),
            Out::Cut(count) => _ = self.0.counters.subscribers_cut.inc_by(count as u64),
            Out::Pending => self.0.committer.raise(),
            Out::Earlier => self.0.clock.raise(),
            Out::Look => self.0.looker.raise(),
            Out::Record(space, tenant, key) => {
                if let Some(OnRecord(tell)) = &self.0.settings.on_record {
                    tell(space, tenant, key);
                }
            }
            Out::Unreadable(key, what) => {
                tracing::error!(session = %key, %what, "an event of another node cannot be read");
            }
            Out::Woken(answer) => {
                self.0.wakes.fetch_sub(1, Ordering::AcqRel);
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
