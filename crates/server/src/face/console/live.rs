//! The stream that tells pages to look again: which task something happened in, and nothing of what.

use axum::response::Response;
use handover_desk::caller::Caller;
use handover_desk::follow::Stay;
use handover_desk::{Desk, No};
use serde_json::json;
use std::time::Duration;
use tokio::time::Instant;

use super::http::Asked;
use super::{Console, KEEP_ALIVE, LIFETIME};
use crate::http::sse::{self, Frame, Outlet};

/// When a page that lost the stream comes back.
const RETRY: Duration = Duration::from_secs(2);

/// Begin the stream.
pub(super) fn listen(console: &Console, asked: Asked) -> Result<Response, No> {
    let Asked { mut caller, sign_in, .. } = asked;
    caller.rests();
    let desk = console.desk().clone();
    // The place is taken at once: who has none left is refused.
    let stay = desk.stay(&caller)?;
    Ok(sse::worked(KEEP_ALIVE, |out| tell(desk, caller, sign_in, stay, out)))
}

async fn tell(desk: Desk, caller: Caller, sign_in: String, mut stay: Stay, out: Outlet) {
    let Ok(mut events) = desk.visible_events(&caller).await else { return };
    let hello = Frame { event: Some("hello"), retry: Some(RETRY), data: Some("{}"), id: None };
    out.send(hello).await;
    let until = Instant::now() + LIFETIME;
    let ended = desk.sign_in_ended(&sign_in);
    let mut ended = std::pin::pin!(ended);
    loop {
        let next = tokio::select! {
            biased;
            () = &mut ended => return,
            next = stay.next_by(&mut events, until) => next,
        };
        let Ok(Some(delivery)) = next else { return };
        let key = &delivery.key;
        // An observer hears of everything, and of what concerns others nothing may be told.
        if *key.tenant != *caller.tenant || !desk.sees(&caller, &key.session).await {
            continue;
        }
        let data = json!({ "task": &*key.session, "event": delivery.event.seq.0 }).to_string();
        drop(delivery);
        events.let_go();
        out.send(Frame { event: Some("changed"), data: Some(&data), ..Frame::default() }).await;
    }
}
