//! One commit for the batches of all shards, and back: what the committer does between two syncs, without the threads.

use std::ops::DerefMut;
use std::sync::Arc;

use handover_kernel::Timestamp;
use handover_store::{Append, Fault, Outcome};

use crate::engine::shard::{Effect, Shard};

/// What waits in all shards, and which part of it is whose.
#[derive(Clone, Debug)]
pub struct Commit {
    /// What to append.
    pub batch: Vec<Append>,
    /// The shards, by their index, and how many items each has in the batch, in its order.
    shares: Vec<(usize, usize)>,
}

impl Commit {
    /// Gather what waits in the shards; none if nothing does.
    pub fn gather<T, S>(shards: impl Iterator<Item = S>) -> Option<Commit>
    where
        S: DerefMut<Target = Shard<T>>,
    {
        let mut commit = Commit { batch: Vec::new(), shares: Vec::new() };
        for (index, mut shard) in shards.enumerate() {
            if let Some(mut appends) = shard.take_batch() {
                commit.shares.push((index, appends.len()));
                commit.batch.append(&mut appends);
            }
        }
        (!commit.batch.is_empty()).then_some(commit)
    }

    /// How many events it writes.
    pub fn events(&self) -> usize {
        self.batch.iter().map(|append| append.events.len()).sum()
    }

    /// Tell each shard what became of its part. What is to be published comes first, in the order of the positions
    /// whatever shard it is from: everybody hears of events in that order, and before anybody is answered.
    pub fn settle<T, S>(
        self,
        result: &Result<Vec<Outcome>, Arc<Fault>>,
        mut shard: impl FnMut(usize) -> S,
        now: Timestamp,
    ) -> Vec<Effect<T>>
    where
        S: DerefMut<Target = Shard<T>>,
    {
        let mut effects = Vec::new();
        let mut from = 0;
        for (index, count) in self.shares {
            let share = match result {
                Ok(outcomes) => Ok(&outcomes[from..from + count]),
                Err(fault) => Err(Arc::clone(fault)),
            };
            from += count;
            effects.append(&mut shard(index).complete(share, now));
        }
        effects.sort_by_key(|effect| match effect {
            Effect::Publish(published) => published.first,
            Effect::Load(_) | Effect::Answer { .. } | Effect::Wake { .. } | Effect::Errand { .. } => u64::MAX,
        });
        effects
    }
}
