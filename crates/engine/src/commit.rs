//! One commit for the batches of all shards, and back: what the committer does between two syncs, without the threads.

use std::sync::Arc;

use handover_store::{Append, Fault, Outcome};

use crate::shard::Effect;

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
    pub fn gather(shards: usize, mut take_batch: impl FnMut(usize) -> Option<Vec<Append>>) -> Option<Commit> {
        let mut commit = Commit { batch: Vec::new(), shares: Vec::new() };
        for index in 0..shards {
            if let Some(mut appends) = take_batch(index) {
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
    pub fn settle<T>(
        self,
        result: &Result<Vec<Outcome>, Arc<Fault>>,
        mut complete: impl FnMut(usize, Result<&[Outcome], Arc<Fault>>) -> Vec<Effect<T>>,
    ) -> Vec<Effect<T>> {
        let mut effects = Vec::new();
        let mut from = 0;
        for (index, count) in self.shares {
            let share = match result {
                Ok(outcomes) => Ok(&outcomes[from..from + count]),
                Err(fault) => Err(Arc::clone(fault)),
            };
            from += count;
            effects.append(&mut complete(index, share));
        }
        effects.sort_by_key(|effect| match effect {
            Effect::Publish(published) => published.first.number,
            Effect::Load(_) | Effect::Answer { .. } | Effect::Wake { .. } | Effect::Errand { .. } => u64::MAX,
        });
        effects
    }
}

#[cfg(test)]
mod tests {
    use handover_kernel::Refusal;
    use handover_store::Position;

    use super::*;
    use crate::answer::{Answer, Denied};
    use crate::shard::tests::{NOW, by, key, request, shard, start};
    use crate::shard::{Settings, Shard, Ticket};

    fn shards() -> Vec<Shard<u32>> {
        let mut shards: Vec<Shard<u32>> = (0..3).map(|_| shard(Settings::default())).collect();
        for (client, index, name) in [(1, 0, "b"), (2, 0, "a"), (3, 2, "c")] {
            assert!(
                shards[index].submit(Ticket::Client(client), &key(name), start(None), None, NOW).is_empty()
            );
        }
        assert!(shards[2].submit(Ticket::Client(4), &key("c"), request(), None, NOW).is_empty());
        shards
    }

    fn gather(shards: &mut [Shard<u32>]) -> Option<Commit> {
        Commit::gather(shards.len(), |index| shards[index].take_batch())
    }

    fn settle(
        shards: &mut [Shard<u32>],
        commit: Commit,
        result: Result<Vec<Outcome>, Fault>,
    ) -> Vec<Effect<u32>> {
        commit.settle(&result.map_err(Arc::new), |index, share| shards[index].complete(share, NOW))
    }

    fn in_short(effects: &[Effect<u32>]) -> Vec<String> {
        let short = |effect: &Effect<u32>| match effect {
            Effect::Publish(published) => {
                format!("publish {} from {}", published.key.session, published.first.number)
            }
            Effect::Answer { ticket: Ticket::Client(client), answer: Answer::Accepted(_) } => {
                format!("{client} yes")
            }
            Effect::Answer { ticket: Ticket::Client(client), answer: Answer::Denied(_) } => {
                format!("{client} no")
            }
            Effect::Load(_) | Effect::Answer { .. } | Effect::Wake { .. } | Effect::Errand { .. } => {
                format!("{effect:?}")
            }
        };
        effects.iter().map(short).collect()
    }

    #[test]
    fn one_commit_holds_what_waits_in_all_shards() {
        let mut shards = shards();
        let commit = gather(&mut shards).unwrap();
        let items: Vec<(&str, usize)> =
            commit.batch.iter().map(|append| (&*append.key.session, append.events.len())).collect();
        assert_eq!(items, [("a", 1), ("b", 1), ("c", 2)]);
        assert_eq!(commit.events(), 4);
        assert!(gather(&mut shards).is_none(), "while it is being written nothing else is taken");
    }

    #[test]
    fn everything_is_published_in_the_order_of_its_position_before_anybody_is_answered() {
        let mut shards = shards();
        let commit = gather(&mut shards).unwrap();
        // The store may give the positions in any order.
        let at = |number| Outcome::Appended { first: Position::first_slot(number), stamp: number };
        let outcomes = [3, 4, 1].map(at).to_vec();
        let effects = settle(&mut shards, commit, Ok(outcomes));
        assert_eq!(
            in_short(&effects),
            ["publish c from 1", "publish a from 3", "publish b from 4", "1 yes", "2 yes", "3 yes", "4 yes"]
        );
        assert!(gather(&mut shards).is_none());
    }

    #[test]
    fn a_fault_reaches_every_shard_that_had_a_share() {
        let mut shards = shards();
        let commit = gather(&mut shards).unwrap();
        shards[1].submit(Ticket::Client(5), &key("d"), start(None), None, NOW);
        let fault = Fault::Unavailable { doing: "testing", source: "on demand".into() };
        let effects = settle(&mut shards, commit, Err(fault));
        assert_eq!(in_short(&effects), ["1 no", "2 no", "3 no", "4 no"]);
        let next = gather(&mut shards).unwrap();
        assert_eq!(&*next.batch[0].key.session, "d", "what had no share in it goes on");
    }

    #[test]
    fn nothing_waits_after_a_refusal() {
        let mut shards = [shard(Settings::default())];
        let reserved = by("planner", start(None).act).with_id("handover:mine");
        let effects = shards[0].submit(Ticket::Client(1), &key("a"), reserved, None, NOW);
        let Effect::Answer { answer: Answer::Denied(Denied::Refused(refusal)), .. } = &effects[0] else {
            panic!("found {effects:?}");
        };
        assert!(matches!(refusal, Refusal::ReservedId { .. }));
        assert!(gather(&mut shards).is_none());
    }
}
