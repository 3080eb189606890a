//! What waits to be written to the audit log. Bounded: what there is no room for is counted by kind, and so is what
//! somebody makes too much of.

use std::time::Duration;

use super::What;
use crate::bucket::{Bucket, Rate};

/// How many records may wait for the disk.
pub const WAITING_MAX: usize = 8192;

/// How many records a minute are written of what anybody can make as much of as they like: 50 a second.
pub const CHEAP_PER_MINUTE: u64 = 3000;

/// How much was left out of each kind.
pub type LeftOut = Vec<(What, u64)>;

/// What waits.
#[derive(Debug)]
pub struct Queue<R> {
    waiting: Vec<R>,
    kinds: [Kind; What::ALL.len()],
    left_out: bool,
    stopped: bool,
}

#[derive(Clone, Copy, Debug, Default)]
struct Kind {
    bucket: Bucket,
    left_out: u64,
}

impl<R> Default for Queue<R> {
    fn default() -> Self {
        let kinds = [Kind::default(); What::ALL.len()];
        Queue { waiting: Vec::new(), kinds, left_out: false, stopped: false }
    }
}

impl<R> Queue<R> {
    /// One more, or one left out. Whether whoever writes is to be woken.
    pub fn push(&mut self, what: What, record: R, now: Duration) -> bool {
        let idle = !self.has_work();
        let kind = &mut self.kinds[what as usize];
        let too_many = match Rate::per_minute(CHEAP_PER_MINUTE).filter(|_| what.is_cheap()) {
            Some(rate) => kind.bucket.take(rate, now).is_err(),
            None => false,
        };
        if too_many || self.stopped || self.waiting.len() >= WAITING_MAX {
            kind.left_out += 1;
            self.left_out = true;
        } else {
            self.waiting.push(record);
        }
        idle || self.waiting.len() == WAITING_MAX / 2
    }

    /// Whether there is anything to write.
    pub fn has_work(&self) -> bool {
        self.stopped || self.left_out || !self.waiting.is_empty()
    }

    /// Whether it should be written now.
    pub fn is_pressing(&self) -> bool {
        self.stopped || self.waiting.len() >= WAITING_MAX / 2
    }

    /// Take no more.
    pub fn stop(&mut self) {
        self.stopped = true;
    }

    /// Everything that waits, what was left out, and whether that was all.
    pub fn take(&mut self) -> (Vec<R>, LeftOut, bool) {
        let mut left_out = Vec::new();
        for what in What::ALL {
            let count = std::mem::take(&mut self.kinds[what as usize].left_out);
            if count > 0 {
                left_out.push((what, count));
            }
        }
        self.left_out = false;
        (std::mem::take(&mut self.waiting), left_out, self.stopped)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bucket::burst;

    const NOW: Duration = Duration::ZERO;

    #[test]
    fn the_place_of_each_kind_is_its_own() {
        for (place, what) in What::ALL.into_iter().enumerate() {
            assert_eq!(what as usize, place);
        }
    }

    #[test]
    fn what_there_is_no_room_for_is_counted() {
        let mut queue = Queue::default();
        assert!(queue.push(What::SessionResolved, 0, NOW), "the first wakes the writer");
        for index in 1..WAITING_MAX + 5 {
            let half = index + 1 == WAITING_MAX / 2;
            assert_eq!(
                queue.push(What::SessionResolved, index, NOW),
                half,
                "and so does the one that makes it half full"
            );
        }
        assert!(queue.is_pressing());
        let (waiting, left_out, stopped) = queue.take();
        assert_eq!(waiting, (0..WAITING_MAX).collect::<Vec<_>>());
        assert_eq!((left_out, stopped), (vec![(What::SessionResolved, 5)], false));
        assert!(!queue.has_work());
    }

    #[test]
    fn a_flood_of_one_kind_is_cut_short_and_takes_no_room_from_the_others() {
        let mut queue = Queue::default();
        let allowed = burst(CHEAP_PER_MINUTE);
        for _ in 0..100_000 {
            queue.push(What::AuthenticationFailed, "stranger", NOW);
        }
        queue.push(What::Forbidden, "planner", NOW);
        queue.push(What::SessionExpired, "", NOW);
        let (waiting, left_out, _) = queue.take();
        assert_eq!(waiting.len() as u64, allowed + 2);
        assert_eq!(left_out, [(What::AuthenticationFailed, 100_000 - allowed)]);
        // A second brings room for fifty.
        for _ in 0..100 {
            queue.push(What::AuthenticationFailed, "stranger", Duration::from_secs(1));
        }
        let (waiting, left_out, _) = queue.take();
        assert_eq!((waiting.len(), left_out), (50, vec![(What::AuthenticationFailed, 50)]));
    }

    #[test]
    fn what_comes_after_the_stop_is_left_out() {
        let mut queue = Queue::default();
        queue.push(What::PolicyRegistered, 1, NOW);
        queue.stop();
        queue.push(What::PolicyRegistered, 2, NOW);
        assert_eq!(queue.take(), (vec![1], vec![(What::PolicyRegistered, 1)], true));
    }
}
