//! Changing what a session of a caller wants to be told, and hearing of it, at whichever node its stream is.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use handover_engine::{Denied, clock, seldom::Seldom};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use crate::Desk;
use crate::caller::Caller;
use crate::limit::Kind;
use crate::no::No;
use crate::wishes::{RENEWED_AFTER_MS, Whose, Wish, Wishes};

/// When whoever listens looks again after it could not be read.
const AGAIN_AFTER: Duration = Duration::from_secs(1);

/// Hears what a session wants to follow.
pub struct Wishing {
    desk: Desk,
    whose: Whose,
    session: String,
    changes: watch::Receiver<u64>,
    told: Option<BTreeSet<String>>,
}

impl Wishing {
    /// What it wants to follow: at once, and then whenever it is something else. Waits for as long as it cannot be read.
    pub async fn next(&mut self) -> BTreeSet<String> {
        let failed = Seldom::default();
        loop {
            if self.told.is_some() {
                let renews = Duration::from_millis(RENEWED_AFTER_MS);
                _ = timeout(renews, self.changes.changed()).await;
            }
            self.changes.borrow_and_update();
            match self.read().await {
                Ok(followed) if self.told.as_ref() == Some(&followed) => {}
                Ok(followed) => {
                    self.told = Some(followed.clone());
                    return followed;
                }
                Err(denied) => {
                    if let Some(unsaid) = failed.now() {
                        tracing::warn!(?denied, unsaid, "what a session wants to hear of cannot be read");
                    }
                    sleep(AGAIN_AFTER).await;
                    self.changes.mark_changed();
                }
            }
        }
    }

    async fn read(&self) -> Result<BTreeSet<String>, Denied> {
        let (whose, session) = (self.whose.clone(), self.session.clone());
        let read = move |wishes: &Wishes| {
            wishes.take(&whose, &session, None, clock::now())?;
            let kept = wishes.of(&whose)?;
            Ok(kept.of(&session).map(|wants| wants.followed.keys().cloned().collect()).unwrap_or_default())
        };
        self.desk.with_wishes(read).await
    }
}

impl Desk {
    /// Change what a session of the caller wants to be told, wherever it listens.
    pub async fn wish(&self, caller: &Caller, session: &str, wish: Wish) -> Result<(), No> {
        self.gate.admit(caller, Kind::Message)?;
        let (whose, session) = (whose(caller), session.to_owned());
        let taken = self.with_wishes(move |wishes| wishes.take(&whose, &session, Some(&wish), clock::now()));
        Ok(taken.await?)
    }

    /// How much a session of the caller wants to be told, if it ever said so.
    pub async fn wished_level(&self, caller: &Caller, session: &str) -> Result<Option<String>, No> {
        let whose = whose(caller);
        let kept = match self.wishes.known(&whose) {
            Some(kept) => kept,
            None => self.with_wishes(move |wishes| wishes.of(&whose)).await?,
        };
        Ok(kept.of(session).and_then(|wants| wants.level.clone()))
    }

    /// Hear what a session of the caller wants to follow.
    pub fn wishing(&self, caller: &Caller, session: &str) -> Wishing {
        let whose = whose(caller);
        let changes = self.wishes.changes(&whose);
        Wishing { desk: self.clone(), whose, session: session.to_owned(), changes, told: None }
    }

    /// Do something with the wishes, on a thread that may wait for the disk and to its end.
    async fn with_wishes<R: Send + 'static>(
        &self,
        work: impl FnOnce(&Wishes) -> Result<R, Denied> + Send + 'static,
    ) -> Result<R, Denied> {
        let wishes = Arc::clone(&self.wishes);
        tokio::task::spawn_blocking(move || work(&wishes)).await.unwrap_or(Err(Denied::Stopping))
    }
}

fn whose(caller: &Caller) -> Whose {
    (caller.tenant.clone(), caller.agent.as_str().into())
}
