//! The stream that tells pages to look again: which task something happened in, and nothing of what. Whoever comes back says
//! after which event (`Last-Event-ID`, or `after` in the address), and misses nothing.

use axum::response::Response;
use handover_desk::caller::Caller;
use handover_desk::follow::{Events, Stay};
use handover_desk::{Desk, No};
use serde_json::json;
use std::time::Duration;
use tokio::time::{Instant, interval_at};

use super::http::Asked;
use super::{Console, LIFETIME, waiting};
use crate::http::json_answer;
use crate::http::sse::{self, Frame, Outlet};

/// When a page that lost the stream comes back.
const RETRY: Duration = Duration::from_secs(2);

/// Begin the stream.
pub(super) fn listen(console: &Console, asked: Asked) -> Result<Response, No> {
    let after = asked.last_event.clone().or_else(|| asked.query.said("after").map(str::to_owned));
    let Asked { mut caller, sign_in, .. } = asked;
    caller.rests();
    let desk = console.desk().clone();
    // The place is taken at once: who has none left is refused.
    let stay = desk.stay(&caller)?;
    let (whose, every) = (console.whose(&caller), console.parts.settings.ping_every);
    let told = Told { whose, every, after };
    // What scripts can see of it keeps the connection alive as well.
    Ok(sse::worked(2 * every, |out| tell(desk, caller, sign_in, stay, told, out)))
}

/// How many things wait for whoever asks: what pages ask for while something happens that they do not show.
pub(super) async fn count(console: &Console, asked: &Asked) -> Result<Response, No> {
    let waiting = waiting::count(console, asked).await?;
    Ok(json_answer(200, json!({ "waiting": waiting }).to_string(), None))
}

/// Where the stream begins: after the last event that the page heard of, or now. Whether the former.
async fn begin(desk: &Desk, caller: &Caller, after: Option<&str>) -> Result<(Events, bool), No> {
    if let Some(after) = after
        && let Some(events) = desk.visible_events_after(caller, after).await?
    {
        return Ok((events, true));
    }
    Ok((desk.visible_events(caller).await?, false))
}

/// What a stream is told with.
struct Told {
    /// The mark of the agent whose stream it is.
    whose: String,
    /// How often it says that it is alive. A browser hides comments from the script: it is an event.
    every: Duration,
    /// The last event that the page has heard of.
    after: Option<String>,
}

async fn tell(desk: Desk, caller: Caller, sign_in: String, mut stay: Stay, told: Told, out: Outlet) {
    let Ok((mut events, resumed)) = begin(&desk, &caller, told.after.as_deref()).await else { return };
    let (place, data) = (events.place(), json!({ "resumed": resumed, "whose": told.whose }).to_string());
    let hello = Frame { event: Some("hello"), retry: Some(RETRY), data: Some(&data), id: Some(&place) };
    out.send(hello).await;
    let until = Instant::now() + LIFETIME;
    let mut ping = interval_at(Instant::now() + told.every, told.every);
    let ended = desk.sign_in_ended(&sign_in);
    let mut ended = std::pin::pin!(ended);
    loop {
        let next = tokio::select! {
            biased;
            () = &mut ended => return,
            next = stay.next_by(&mut events, until) => next,
            _ = ping.tick() => {
                out.send(Frame { event: Some("ping"), data: Some(""), ..Frame::default() }).await;
                continue;
            }
        };
        let Ok(Some(delivery)) = next else { return };
        let key = &delivery.key;
        // An observer hears of everything, and of what concerns others nothing may be told.
        if *key.tenant != *caller.tenant {
            continue;
        }
        match desk.sees_at_last(&caller, &key.session).await {
            Ok(true) => {}
            Ok(false) => continue,
            // The browser comes back, and is told from the last that it heard of.
            Err(_) => return,
        }
        let data = json!({ "task": &*key.session, "event": delivery.event.seq.0 }).to_string();
        let place = events.place();
        drop(delivery);
        events.let_go();
        let frame = Frame { event: Some("changed"), data: Some(&data), id: Some(&place), ..Frame::default() };
        out.send(frame).await;
    }
}
