//! Answers to what a task asks: from the command line, or from whoever sits at the terminal.

use serde_json::{Map, Value, json};

use super::exit::Exit;
use super::{Remote, ask, note, text};
use crate::Failure;

/// What `handover task answer` can be told.
#[derive(clap::Args)]
#[command(after_help = HELP)]
pub struct Args {
    /// The task, or the first characters of its id
    task: String,
    /// The answer, where one thing is asked for; asked for at the terminal if it is left out
    #[arg(conflicts_with_all = ["field", "decline"])]
    value: Option<String>,
    /// Which question, where there are several
    #[arg(long, value_name = "KEY")]
    question: Option<String>,
    /// A field of the answer, where several things are asked for; can be repeated
    #[arg(long, value_name = "NAME=VALUE")]
    field: Vec<String>,
    /// Say that the question will not be answered
    #[arg(long, conflicts_with = "field")]
    decline: bool,
}

const HELP: &str = "\
Examples:
  handover task answer 3f9a12c0 yes
  handover task answer 3f9a12c0 --question refunds yes
  handover task answer 3f9a12c0 --field region=EU --field year=2026
  handover task answer 3f9a12c0 --decline";

/// Run the command.
pub async fn run(remote: &Remote, args: &Args) -> Result<Value, Failure> {
    let task = remote.task(&args.task).await?;
    let short = text::short(task["task_id"].as_str().unwrap_or_default());
    let questions = task["questions"].as_object();
    let Some(questions) = questions.filter(|questions| !questions.is_empty()) else {
        return Err(Exit::Refused.told(
            format!("the task {short} asks nothing: it is {}", text::line(super::wait::state_of(&task))),
            format!("see what it does with: handover task show {short}"),
        ));
    };
    if args.value.is_none() && args.field.is_empty() && !args.decline {
        return match remote.asks {
            true => ask_all(remote, &task).await,
            false => Err(Failure::Usage(format!(
                "expected an answer: {}",
                questions.iter().map(|(key, asked)| shown(key, asked)).collect::<Vec<_>>().join("; ")
            ))),
        };
    }
    let keys = || questions.keys().map(|key| text::line(key)).collect::<Vec<_>>().join(", ");
    let (key, asked) = match (&args.question, questions.len()) {
        (Some(key), _) => questions.get_key_value(key).ok_or_else(|| {
            Exit::NotFound.told(
                format!("the task {short} does not ask {}", text::line(key)),
                format!("choose one with --question: {}", keys()),
            )
        })?,
        (None, 1) => questions.iter().next().ok_or(Failure::Closed)?,
        (None, _) => {
            return Err(Failure::Usage(format!("expected --question with one of {}", keys())));
        }
    };
    let response = match args.decline {
        true => json!({ "action": "decline" }),
        false => json!({ "action": "accept", "content": content(asked, args)? }),
    };
    give(remote, &task, key, response).await
}

async fn give(remote: &Remote, task: &Value, key: &str, response: Value) -> Result<Value, Failure> {
    remote.call("task_answer", json!({ "task_id": task["task_id"], "answers": { key: response } })).await
}

/// Ask somebody at the terminal everything that a task asks.
pub async fn ask_all(remote: &Remote, task: &Value) -> Result<Value, Failure> {
    let mut last = task.clone();
    for (key, asked) in task["questions"].as_object().into_iter().flatten() {
        note(&shown(key, asked));
        let mut content = Map::new();
        for (name, field) in fields(asked) {
            let prompt = match field["title"].as_str().or(field["description"].as_str()) {
                Some(title) => format!("  {} ({}): ", text::line(name), text::line(title)),
                None => format!("  {}: ", text::line(name)),
            };
            let Some(given) = ask(&prompt).await else {
                return Err(Exit::Open.told("nobody answered", "answer later with: handover task answer"));
            };
            content.insert(name.to_owned(), value(name, field, &given)?);
        }
        last = give(remote, task, key, json!({ "action": "accept", "content": content })).await?;
    }
    Ok(last)
}

/// A question in a line.
pub fn shown(key: &str, asked: &Value) -> String {
    let fields: Vec<String> = fields(asked).map(|(name, field)| field_shown(name, field)).collect();
    let message = asked["message"].as_str().unwrap_or("it asks for something that only a program can answer");
    format!("{} [{}: {}]", text::line(message), text::line(key), fields.join(", "))
}

fn field_shown(name: &str, field: &Value) -> String {
    let kind = field["type"].as_str().unwrap_or("string");
    let one_of = field["enum"].as_array().map(|values| {
        let values = values.iter().filter_map(Value::as_str).map(text::line);
        values.collect::<Vec<_>>().join("|")
    });
    format!("{}={}", text::line(name), one_of.unwrap_or_else(|| text::line(kind)))
}

fn fields(asked: &Value) -> impl Iterator<Item = (&str, &Value)> {
    let fields = asked["requestedSchema"]["properties"].as_object().into_iter().flatten();
    fields.map(|(name, field)| (name.as_str(), field))
}

/// The answer that the command line gives, as the form wants it.
fn content(asked: &Value, args: &Args) -> Result<Map<String, Value>, Failure> {
    let mut content = Map::new();
    if let Some(given) = &args.value {
        let mut all = fields(asked);
        let (Some((name, field)), None) = (all.next(), all.next()) else {
            let names: Vec<String> = fields(asked).map(|(name, field)| field_shown(name, field)).collect();
            return Err(Failure::Usage(format!("expected --field for each of {}", names.join(", "))));
        };
        content.insert(name.to_owned(), value(name, field, given)?);
    }
    for given in &args.field {
        let (name, given) = given.split_once('=').ok_or_else(|| {
            Failure::Usage(format!("--field: expected NAME=VALUE, found {}", text::line(given)))
        })?;
        let field = fields(asked).find(|(known, _)| *known == name).ok_or_else(|| {
            let known: Vec<String> = fields(asked).map(|(name, _)| text::line(name)).collect();
            Failure::Usage(format!(
                "--field: expected one of {}, found {}",
                known.join(", "),
                text::line(name)
            ))
        })?;
        content.insert(name.to_owned(), value(name, field.1, given)?);
    }
    Ok(content)
}

/// What somebody typed, as the field wants it.
fn value(name: &str, field: &Value, given: &str) -> Result<Value, Failure> {
    let wrong = |expected: &str| {
        Failure::Usage(format!("{}: expected {expected}, found {}", text::line(name), text::line(given)))
    };
    match field["type"].as_str() {
        Some("boolean") => match given.to_ascii_lowercase().as_str() {
            "yes" | "y" | "true" => Ok(json!(true)),
            "no" | "n" | "false" => Ok(json!(false)),
            _ => Err(wrong("yes or no")),
        },
        Some("integer") => {
            given.parse::<i64>().map(|number| json!(number)).map_err(|_| wrong("a whole number"))
        }
        Some("number") => match given.parse::<f64>() {
            Ok(number) if number.is_finite() => Ok(json!(number)),
            _ => Err(wrong("a number")),
        },
        Some("array") => Ok(json!(given.split(',').map(str::trim).collect::<Vec<_>>())),
        _ => Ok(json!(given)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_typed_becomes_what_the_form_asks_for() {
        let typed = |kind: &str, given: &str| value("f", &json!({ "type": kind }), given).ok();
        assert_eq!(typed("boolean", "Yes"), Some(json!(true)));
        assert_eq!(typed("boolean", "perhaps"), None);
        assert_eq!(typed("integer", "7"), Some(json!(7)));
        assert_eq!(typed("integer", "7.5"), None);
        assert_eq!(typed("number", "7.5"), Some(json!(7.5)));
        assert_eq!(typed("number", "inf"), None);
        assert_eq!(typed("array", "a, b"), Some(json!(["a", "b"])));
        assert_eq!(typed("string", "yes"), Some(json!("yes")));
    }
}
