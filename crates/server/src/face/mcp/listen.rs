//! `subscriptions/listen`: one call that goes on, and carries what its caller asked to hear of.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use handover_desk::follow::Over;
use handover_kernel::Session;
use serde::Deserialize;
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Map, Value, json};

use super::caller::{Caller, Declared};
use super::handshake::Wanted;
use super::message::{Error, notification, notification_of, object};
use super::{Mcp, No, Outbox, params, resources};
use crate::queue::queue;
use handover_desk::gate;
use tokio::task::{AbortHandle, JoinSet};

/// How many tasks one subscription may follow.
const TASKS_MAX: usize = 1000;

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Filter {
    tools_list_changed: bool,
    resource_subscriptions: Vec<String>,
    task_ids: Option<Vec<String>>,
}

/// What a follower of a task tells: the whole task, or that its transcript grew.
#[derive(Clone, Copy)]
enum Telling {
    Task,
    Resource,
}

impl Mcp {
    /// Serve the subscription until the caller goes away, its credential ends or the server stops; then say that it is over.
    pub(super) async fn listen(
        &self,
        caller: &Caller,
        id: &RawValue,
        given: Option<&RawValue>,
        out: &Outbox,
    ) -> Result<String, Error> {
        #[derive(Deserialize)]
        struct Listen {
            #[serde(default, deserialize_with = "object")]
            notifications: Option<Filter>,
        }
        let limited = |no| Error::from(No(no)).status(429);
        let mut stay = self.desk().stay(&caller.who).map_err(limited)?;
        let Listen { notifications } = params(given)?;
        let filter = notifications.ok_or_else(|| Error::invalid("params: expected notifications"))?;
        if filter.task_ids.is_some() {
            caller.must_know_tasks()?;
        }
        let wanted = filter.task_ids.as_ref().map_or(0, Vec::len) + filter.resource_subscriptions.len();
        if wanted > TASKS_MAX {
            return Err(Error::invalid(format!(
                "expected at most {TASKS_MAX} tasks on a subscription, found {wanted}"
            )));
        }
        let subscription = json!({ "io.modelcontextprotocol/subscriptionId": id });
        // Listen before saying so: what happens in between must be heard.
        let mut changes = self.desk().directory.changes(&caller.tenant);
        let (told, mut news) = queue(caller.room().cloned());
        let tasks =
            self.follow_all(caller, filter.task_ids.as_deref(), Telling::Task, &subscription, &told).await?;
        let uris = filter.resource_subscriptions;
        let named: Vec<String> =
            uris.iter().filter_map(|uri| resources::task_of(uri)).map(str::to_owned).collect();
        let read = self.follow_all(caller, Some(&named), Telling::Resource, &subscription, &told).await?;
        drop(told);

        let mut agreed = Map::new();
        if filter.tools_list_changed {
            agreed.insert("toolsListChanged".to_owned(), json!(true));
        }
        if filter.task_ids.is_some() {
            agreed.insert("taskIds".to_owned(), json!(tasks));
        }
        if !uris.is_empty() {
            let uris: Vec<String> = read.iter().map(|task| resources::uri(task)).collect();
            agreed.insert("resourceSubscriptions".to_owned(), json!(uris));
        }
        let acknowledged = json!({ "_meta": subscription, "notifications": agreed });
        let mut heard =
            out.send(notification("notifications/subscriptions/acknowledged", &acknowledged)).await.is_ok();

        let changed = notification("notifications/tools/list_changed", &json!({ "_meta": subscription }));
        let mut followed = true;
        while heard {
            tokio::select! {
                biased;
                over = stay.over() => match over.no() {
                    Some(no) => return Err(No(no).into()),
                    None => break,
                },
                () = out.closed() => break,
                _ = changes.changed(), if filter.tools_list_changed => {
                    heard = out.send(changed.clone()).await.is_ok();
                }
                message = news.recv_held(), if followed => match message {
                    Some((message, held)) => heard = out.pass(message, held).await.is_ok(),
                    None => followed = false,
                }
            }
        }
        Ok(json!({ "resultType": "complete", "_meta": subscription }).to_string())
    }

    /// Tell a client of a handshake revision what it did not ask about: that the list of tools has changed, and that a
    /// resource has which it follows. Until it goes, its credential ends or the server stops.
    pub(super) fn tell_of_changes(
        &self,
        caller: &gate::Caller,
        mut wanted: Wanted,
        out: Outbox,
    ) -> Result<impl Future<Output = ()> + Send + use<>, No> {
        let mut stay = self.desk().stay(caller).map_err(No)?;
        let mut changes = self.desk().directory.changes(&caller.tenant);
        let (mcp, caller) = (self.clone(), caller.clone());
        Ok(async move {
            let changed = notification("notifications/tools/list_changed", &json!({}));
            let mut followed: BTreeMap<String, AbortHandle> = BTreeMap::new();
            let mut followers = JoinSet::new();
            wanted.mark_changed();
            loop {
                tokio::select! {
                    biased;
                    _ = stay.over() => return,
                    () = out.closed() => return,
                    Ok(()) = changes.changed() => {
                        if out.send(changed.clone()).await.is_err() {
                            return;
                        }
                    }
                    Ok(()) = wanted.changed() => {
                        let uris = wanted.borrow_and_update().clone();
                        followed.retain(|uri, follower| {
                            let stays = uris.contains(uri);
                            if !stays {
                                follower.abort();
                            }
                            stays
                        });
                        for uri in uris {
                            let Some(id) = resources::task_of(&uri).map(str::to_owned) else { continue };
                            if let Entry::Vacant(place) = followed.entry(uri)
                                && let Ok(session) = mcp.task(&caller, &id).await
                            {
                                let follower = Follower {
                                    mcp: mcp.clone(),
                                    caller: caller.clone(),
                                    declared: Declared::default(),
                                    id,
                                    telling: Telling::Resource,
                                    subscription: None,
                                    told: out.clone(),
                                };
                                place.insert(followers.spawn(follower.follow(session.head.0)));
                            }
                        }
                    }
                }
            }
        })
    }

    /// Follow those of the tasks that the caller may see; says which.
    async fn follow_all(
        &self,
        caller: &Caller,
        ids: Option<&[String]>,
        telling: Telling,
        subscription: &Value,
        told: &Outbox,
    ) -> Result<Vec<String>, Error> {
        let mut followed = Vec::new();
        let wanted: BTreeSet<&String> = ids.unwrap_or_default().iter().collect();
        for id in wanted {
            let session = match self.task(&caller.who, id).await {
                Ok(session) => session,
                Err(no) if no.is_unknown() => continue,
                Err(no) => return Err(no.into()),
            };
            let follower = Follower {
                mcp: self.clone(),
                caller: caller.who.clone(),
                declared: caller.declared,
                id: id.clone(),
                telling,
                subscription: Some(to_raw_value(subscription).expect("a subscription's id is JSON")),
                told: told.clone(),
            };
            tokio::spawn(follower.follow(session.head.0));
            followed.push(id.clone());
        }
        Ok(followed)
    }
}

/// Tells of one task whenever something happens to it.
struct Follower {
    mcp: Mcp,
    caller: gate::Caller,
    declared: Declared,
    id: String,
    telling: Telling,
    /// What a notification says of the subscription that it belongs to; nothing in the handshake revisions.
    subscription: Option<Box<RawValue>>,
    told: Outbox,
}

impl Follower {
    async fn follow(self, head: u64) {
        let mut events = self.mcp.desk().events(&self.caller, &self.id, head);
        let mut seen = head;
        loop {
            let event = tokio::select! {
                biased;
                () = self.told.closed() => return,
                event = events.last() => event,
            };
            match event {
                // What a look at the task has shown already need not be told again.
                Ok(number) if number <= seen => continue,
                Ok(_) => {}
                // There is no way to tell a client that it follows no more: it goes on as soon as it can.
                Err(Over::Denied(denied)) if denied.may_pass() => continue,
                Err(_) => return,
            }
            let session = tokio::select! {
                biased;
                () = self.told.closed() => return,
                session = self.session() => session,
            };
            let Ok(session) = session else { return };
            seen = session.head.0;
            let told = self.told.send_made(session.weight(), || self.message(&session)).await;
            if told.is_err() || session.lifecycle.is_terminal() {
                return;
            }
        }
    }

    async fn session(&self) -> Result<Arc<Session>, handover_desk::No> {
        loop {
            match self.mcp.desk().session_at_last(&self.caller, &self.id).await {
                Err(no) if no.may_pass() => {}
                found => return found,
            }
        }
    }

    fn message(&self, session: &Session) -> String {
        match (self.telling, self.mcp.shown(session, self.declared, &self.caller)) {
            (Telling::Task, Some(mut shown)) => {
                shown.meta = self.subscription.as_deref();
                notification_of("notifications/tasks", &shown.json())
            }
            (Telling::Resource, _) | (Telling::Task, None) => {
                let mut params = json!({ "uri": resources::uri(&self.id) });
                if let Some(subscription) = &self.subscription {
                    params["_meta"] = json!(subscription);
                }
                notification("notifications/resources/updated", &params)
            }
        }
    }
}
