//! A bucket of tokens that fills with time. Its state is when it will be full again, and how far it is overdrawn.

use std::time::Duration;

/// How much may go through, and how much at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// The time between two, in nanoseconds.
    every: u64,
    /// How far ahead of that the moment of full may lie, in nanoseconds.
    ahead_max: u64,
}

/// However low the rate, so many may come at once.
pub const BURST_MIN: u64 = 10;

const MINUTE: Duration = Duration::from_secs(60);

impl Rate {
    /// So many a minute, and a tenth of it at once. 0 means as many as anybody likes: no rate.
    pub fn per_minute(count: u64) -> Option<Rate> {
        Rate::per_minute_after(count, burst(count))
    }

    /// The same with this many at once.
    pub fn per_minute_after(count: u64, at_once: u64) -> Option<Rate> {
        (count > 0).then(|| {
            // Rounded up, so that never more than the rate goes through.
            let every = nanos(MINUTE).div_ceil(count);
            Rate { every, ahead_max: every.saturating_mul(at_once) }
        })
    }
}

impl Rate {
    /// The time between two, in nanoseconds.
    pub fn every(self) -> u64 {
        self.every
    }

    /// How many may come at once.
    pub fn at_once(self) -> u64 {
        self.ahead_max / self.every
    }
}

/// How many may come at once at this rate: what a tenth of a minute brings.
pub fn burst(per_minute: u64) -> u64 {
    per_minute.div_ceil(10).max(BURST_MIN)
}

/// One agent's bucket. Times count from when the gate was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bucket {
    full_at: u64,
    /// Until when more was used than a burst: nothing is let through before.
    owes_until: u64,
}

impl Bucket {
    /// Take one, or else say how long to wait for it. Whoever is refused waits no longer for having asked.
    pub fn take(&mut self, rate: Rate, now: Duration) -> Result<(), Duration> {
        let now = nanos(now);
        // Under a rate that was raised meanwhile, what was taken before weighs no more than its whole burst.
        let burst_from = now.max(self.owes_until);
        self.full_at = self.full_at.min(burst_from.saturating_add(rate.ahead_max));
        let full_at = self.full_at.max(now).saturating_add(rate.every);
        let ahead = full_at - now;
        if ahead > rate.ahead_max {
            return Err(Duration::from_nanos(ahead - rate.ahead_max));
        }
        self.full_at = full_at;
        Ok(())
    }

    /// What was taken last was not used after all.
    pub fn give_back(&mut self, rate: Rate) {
        self.full_at = self.full_at.saturating_sub(rate.every);
    }

    /// Whether more than half of what may come at once was used.
    pub fn is_half_spent(self, rate: Rate, now: Duration) -> bool {
        self.full_at.saturating_sub(nanos(now)) > rate.ahead_max / 2
    }

    /// Take what was used already, even if it is more than there is: the next ones wait for it.
    pub fn charge(&mut self, rate: Rate, count: u64, now: Duration) {
        self.full_at = self.full_at.max(nanos(now)).saturating_add(rate.every.saturating_mul(count));
        self.owes_until = self.owes_until.max(self.full_at.saturating_sub(rate.ahead_max));
    }

    /// Whether it is as good as new.
    pub fn is_full(self, now: Duration) -> bool {
        self.full_at <= nanos(now)
    }
}

/// Enough for five hundred years.
fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn a_burst_goes_through_and_then_one_for_each_interval() {
        let rate = Rate::per_minute(600).unwrap();
        let mut bucket = Bucket::default();
        for _ in 0..60 {
            bucket.take(rate, ms(7)).unwrap();
        }
        assert_eq!(bucket.take(rate, ms(7)), Err(ms(100)));
        assert_eq!(bucket.take(rate, ms(57)), Err(ms(50)), "asking too early costs nothing");
        bucket.take(rate, ms(107)).unwrap();
        assert_eq!(bucket.take(rate, ms(107)), Err(ms(100)));
    }

    #[test]
    fn a_rate_that_is_raised_counts_at_once() {
        let (slow, fast) = (Rate::per_minute(1).unwrap(), Rate::per_minute(6000).unwrap());
        let mut bucket = Bucket::default();
        for _ in 0..BURST_MIN {
            bucket.take(slow, ms(0)).unwrap();
        }
        assert_eq!(bucket.take(slow, ms(0)), Err(ms(60_000)));
        assert_eq!(bucket.take(fast, ms(0)), Err(ms(10)));
        bucket.take(fast, ms(10)).unwrap();
    }

    #[test]
    fn a_bucket_fills_up_and_no_further() {
        let rate = Rate::per_minute(600).unwrap();
        let mut bucket = Bucket::default();
        bucket.take(rate, ms(0)).unwrap();
        assert!(!bucket.is_full(ms(99)) && bucket.is_full(ms(100)));
        let taken = (0..1000).filter(|_| bucket.take(rate, ms(3_600_000)).is_ok()).count();
        assert_eq!(taken, 60);
    }

    #[test]
    fn what_was_used_already_is_waited_for() {
        let rate = Rate::per_minute(600).unwrap();
        let mut bucket = Bucket::default();
        bucket.charge(rate, 100, ms(0));
        assert_eq!(bucket.take(rate, ms(0)), Err(ms(4100)), "a burst is 60");
        bucket.take(rate, ms(4100)).unwrap();
    }

    #[test]
    fn a_low_rate_still_takes_a_few_at_once_and_none_takes_all() {
        assert_eq!(burst(1), BURST_MIN);
        let rate = Rate::per_minute(1).unwrap();
        let mut bucket = Bucket::default();
        assert_eq!((0..100).filter(|_| bucket.take(rate, ms(0)).is_ok()).count() as u64, BURST_MIN);
        assert_eq!(Rate::per_minute(0), None);
    }

    proptest! {
        /// From any moment to any other, never more than the burst and what the time between them brings.
        #[test]
        fn never_more_than_the_burst_and_the_rate(
            per_minute in 1_u64..1_000_000,
            steps in prop::collection::vec(0_u64..50_000_000, 1..400),
        ) {
            let rate = Rate::per_minute(per_minute).unwrap();
            let mut bucket = Bucket::default();
            let mut now = Duration::ZERO;
            let mut taken: Vec<Duration> = Vec::new();
            for step in steps {
                now += Duration::from_nanos(step);
                match bucket.take(rate, now) {
                    Ok(()) => taken.push(now),
                    Err(wait) => {
                        prop_assert!(wait > Duration::ZERO);
                        // The wait is exact: not a moment before, and then it goes through.
                        let (mut early, mut late) = (bucket, bucket);
                        prop_assert!(early.take(rate, now + wait - Duration::from_nanos(1)).is_err());
                        prop_assert!(late.take(rate, now + wait).is_ok());
                    }
                }
            }
            for (first, from) in taken.iter().enumerate() {
                for (last, until) in taken.iter().enumerate().skip(first) {
                    let brought = (*until - *from).as_nanos() * u128::from(per_minute) / 60_000_000_000;
                    let allowed = u128::from(burst(per_minute)) + brought;
                    prop_assert!((last - first + 1) as u128 <= allowed);
                }
            }
        }
    }
}
