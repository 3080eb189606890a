//! What happened in a task, in sentences.

use serde_json::{Value, json};

use super::{Remote, say, say_json, text};
use crate::Failure;

/// A break of so many seconds is worth a line.
const QUIET: i64 = 60;

/// How many characters of what somebody said are in a sentence.
const SAID_MAX: usize = 300;

impl Remote {
    /// What happened in a task after an event, page by page, all of it; with the state after each, if that is asked for.
    pub async fn events(&self, id: &str, after: u64, states: bool) -> Result<Vec<Value>, Failure> {
        let (mut all, mut after) = (Vec::new(), after);
        loop {
            let mut page = self
                .call("task_timeline", json!({ "task_id": id, "after": after, "states": states }))
                .await?;
            if let Value::Array(events) = page["events"].take() {
                all.extend(events);
            }
            match page["next"]["after"].as_u64() {
                Some(next) if next > after => after = next,
                _ => return Ok(all),
            }
        }
    }
}

/// Prints events as they come, with what is quiet in between.
#[derive(Default)]
pub struct Printer {
    last: Option<i64>,
    /// The last orders that were handed over: up to which event, and with which; where everything is known.
    delivered: Option<Vec<(u64, u64)>>,
}

impl Printer {
    /// One that knows what happened later: it says of each order whether it was delivered.
    pub fn of_all(events: &[Value]) -> Printer {
        let handed_over = events.iter().filter(|event| event["kind"] == "delivered");
        let numbers = handed_over
            .filter_map(|event| Some((event["detail"]["up_to"].as_u64()?, event["seq"].as_u64()?)));
        Printer { delivered: Some(numbers.collect()), ..Printer::default() }
    }

    fn delivery(&self, event: &Value) -> String {
        let is_order = matches!(event["kind"].as_str(), Some("steered" | "answered" | "pause_requested"));
        let (Some(delivered), Some(seq), true) = (&self.delivered, event["seq"].as_u64(), is_order) else {
            return String::new();
        };
        match delivered.iter().find(|(up_to, _)| *up_to >= seq) {
            Some((_, with)) => format!(" → delivered, event {with}"),
            None => " → not delivered yet".to_owned(),
        }
    }

    /// Print an event: a sentence, or as JSON with the task's id.
    pub fn print(&mut self, id: &str, event: &Value, is_json: bool) -> Result<(), Failure> {
        if is_json {
            return say_json(json!({ "task_id": id, "event": event }));
        }
        let at = event["at"].as_str().unwrap_or_default();
        let now = text::seconds(at);
        if let (Some(last), Some(now)) = (self.last, now)
            && now - last >= QUIET
        {
            say(format!("·· {} nothing ··", text::duration(u64::try_from(now - last).unwrap_or(0))))?;
        }
        self.last = now.or(self.last);
        let by = event["by"].as_str().map_or_else(|| "handover".to_owned(), text::line);
        let face = event["face"].as_str().unwrap_or_default();
        let said = sentence(event) + &self.delivery(event);
        say(format!("{}  {by:<12}  {said}  [{face}]", text::clock(at)))
    }
}

/// What happened, in a sentence without its subject.
pub fn sentence(event: &Value) -> String {
    let detail = &event["detail"];
    let said = |field: &str| quoted(&detail[field]);
    let because = |what: &str, field: &str| match said(field).as_str() {
        "" => what.to_owned(),
        said => format!("{what}: {said}"),
    };
    let kind = event["kind"].as_str().unwrap_or_default();
    match kind {
        "started" => "started the task".to_owned(),
        "requested" => format!("requested {} {}", said("title"), said("instructions")),
        "accepted" => because("accepted", "reason"),
        "declined" => because("declined", "reason"),
        "updated" => match percent(&detail["progress"]) {
            Some(done) => format!("{done} {}", said("message")).trim_end().to_owned(),
            None => because("is working", "message"),
        },
        "asked" => {
            let questions = detail["questions"].as_array().into_iter().flatten();
            let questions = questions.map(|question| {
                format!(
                    "{} ({})",
                    quoted(&question["text"]),
                    text::line(question["key"].as_str().unwrap_or(""))
                )
            });
            format!("asked {}", questions.collect::<Vec<_>>().join(", "))
        }
        "answered" => {
            let answers = detail["answers"].as_array().into_iter().flatten();
            let answers = answers.map(|answer| {
                let reply = &answer["reply"];
                quoted(reply.get("content").unwrap_or(reply))
            });
            format!("answered {}", answers.collect::<Vec<_>>().join(", "))
        }
        "steered" => format!("steered: {}", said("message")),
        "pause_requested" => because("asked for a pause at the next safe point", "reason"),
        "suspended" => because("paused it", "reason"),
        "resumed" => because("resumed it", "reason"),
        "completed" => match said("summary").as_str() {
            "" => because("delivered", "output"),
            summary => format!("delivered: {summary}"),
        },
        "failed" => because("failed", "reason"),
        "committed" => because(
            if detail["positive"] == true { "accepted the outcome" } else { "settled it as failed" },
            "reason",
        ),
        "cancelled" => because("cancelled it", "reason"),
        "expired" => "ended it: its time was up".to_owned(),
        "said" => format!("said {}", said("body")),
        "delivered" => format!("handed over orders up to event {}", detail["up_to"]),
        "checkpointed" => "is there".to_owned(),
        "fell_silent" => "noticed that its agent has fallen silent".to_owned(),
        "child_added" => format!("added the subtask {}", text::short(detail["child"].as_str().unwrap_or(""))),
        other => match detail.as_object().is_some_and(|detail| !detail.is_empty()) {
            true => {
                format!("{} {}", text::line(other), text::cut(&text::line(&detail.to_string()), SAID_MAX))
            }
            false => text::line(other),
        },
    }
}

/// A share as a percentage.
pub fn percent(done: &Value) -> Option<String> {
    done.as_f64().map(|done| format!("{:.0} %", done * 100.0))
}

/// What somebody said, in quotes; nothing if that is nothing.
fn quoted(said: &Value) -> String {
    let shown = |text: &str| text::cut(&text::line(text), SAID_MAX);
    match said.as_str() {
        Some("") => String::new(),
        Some(said) => format!("\"{}\"", shown(said)),
        None if said.is_null() => String::new(),
        None => shown(&said.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_happened_is_a_sentence_that_cannot_act_on_the_terminal() {
        let event = |kind: &str, detail: Value| sentence(&json!({ "kind": kind, "detail": detail }));
        assert_eq!(event("steered", json!({ "message": "go\u{1b}[2J" })), "steered: \"go\\u{1b}[2J\"");
        assert_eq!(event("updated", json!({ "progress": 0.62, "message": "half" })), "62 % \"half\"");
        assert_eq!(event("updated", json!({ "progress": null, "message": "" })), "is working");
        assert_eq!(
            event("answered", json!({ "answers": [{ "key": "q", "reply": "refused" }] })),
            "answered \"refused\""
        );
        assert_eq!(event("accepted", json!({ "reason": "" })), "accepted");
        assert_eq!(event("of_later", json!({ "x": "\u{202e}" })), "of_later {\"x\":\"\\u{202e}\"}");
        assert_eq!(event("of_later", json!({})), "of_later");
    }
}
