//! Saying something that may be so for long, once a minute.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use crate::locks::lock;

/// How long after one time the next may come.
const EVERY: Duration = Duration::from_secs(60);

/// When something was said last, and how often it was not since.
#[derive(Debug, Default)]
pub struct Seldom {
    last: Mutex<Last>,
}

#[derive(Debug, Default)]
struct Last {
    at: Option<Instant>,
    unsaid: u64,
}

impl Seldom {
    /// Whether to say it now, and how often it was not said since the last time.
    pub fn now(&self) -> Option<u64> {
        self.at(Instant::now())
    }

    fn at(&self, now: Instant) -> Option<u64> {
        let mut last = lock(&self.last);
        if last.at.is_some_and(|at| now.duration_since(at) < EVERY) {
            last.unsaid += 1;
            return None;
        }
        last.at = Some(now);
        Some(std::mem::take(&mut last.unsaid))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_said_at_once_and_then_once_a_minute_with_how_often_it_was_not() {
        let (seldom, begun) = (Seldom::default(), Instant::now());
        let mut said = Vec::new();
        for second in 0..130 {
            if let Some(unsaid) = seldom.at(begun + Duration::from_secs(second)) {
                said.push((second, unsaid));
            }
        }
        assert_eq!(said, [(0, 0), (60, 59), (120, 59)]);
    }
}
