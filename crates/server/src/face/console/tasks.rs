//! The list of tasks. What is filtered by stands in its address, so that every list is a link.

use askama::Template;
use axum::response::Response;
use handover_desk::No;
use handover_desk::clock::now;
use handover_desk::find::Wanted;
use handover_desk::state::State;
use handover_desk::timeline::face;
use handover_kernel::{Face, Refusal, Timestamp};

use super::Console;
use super::http::Asked;
use super::page::{Top, html};
use super::shown::{Faces, Head};

/// How many tasks a page has.
const PAGE: usize = 50;

/// The ages that can be asked for, in milliseconds.
const AGES: [(&str, u64); 4] =
    [("hour", 3_600_000), ("day", 86_400_000), ("week", 604_800_000), ("month", 2_592_000_000)];

/// The faces that a task can have begun on.
const FACES: [Face; 5] = [Face::Macp, Face::Mcp, Face::Grid, Face::Console, Face::Cli];

#[derive(Template)]
#[template(path = "tasks.html")]
struct Page {
    top: Top,
    rows: Vec<Head>,
    filter: Filter,
    /// The addresses of the first and the next page; empty if there is none.
    first: String,
    next: String,
    /// What the address of a bulk act says of the filter.
    same: String,
}

/// What is filtered by, as the form shows it.
pub(super) struct Filter {
    q: String,
    agent: String,
    state: String,
    face: String,
    age: String,
    late: bool,
    states: Vec<&'static str>,
    faces: Vec<&'static str>,
    ages: Vec<&'static str>,
}

impl Filter {
    pub(super) fn of(asked: &Asked) -> Filter {
        let said = |name: &str| asked.query.said(name).unwrap_or_default().to_owned();
        Filter {
            q: said("q"),
            agent: said("agent"),
            state: said("state"),
            face: said("face"),
            age: said("age"),
            late: said("late") == "true",
            states: State::ALL.map(State::name).to_vec(),
            faces: FACES.into_iter().map(face).collect(),
            ages: AGES.iter().map(|(word, _)| *word).collect(),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        let texts = [&self.q, &self.agent, &self.state, &self.face, &self.age];
        !self.late && texts.iter().all(|text| text.is_empty())
    }

    pub(super) fn wanted(&self) -> Result<Wanted, No> {
        fn known<T: Clone>(what: &str, said: &str, all: &[(&str, T)]) -> Result<Option<T>, No> {
            if said.is_empty() {
                return Ok(None);
            }
            let names: Vec<&str> = all.iter().map(|(name, _)| *name).collect();
            let found = all.iter().find(|(name, _)| *name == said).map(|(_, value)| Some(value.clone()));
            let wrong = || format!("{what}: expected {}, found something else", names.join(", "));
            found.ok_or_else(|| Refusal::invalid(wrong()).into())
        }
        let text = |text: &String| (!text.is_empty()).then(|| text.clone());
        let faces = FACES.map(|found| (face(found), found));
        let age = known("age", &self.age, &AGES)?;
        Ok(Wanted {
            state: known("state", &self.state, &State::ALL.map(|state| (state.name(), state)))?,
            agent: text(&self.agent),
            face: known("face", &self.face, &faces)?,
            before: None,
            after: age.map(|age| Timestamp(now().0.saturating_sub(age))),
            words: text(&self.q),
            due_by: self.late.then(|| now().plus(60_000)),
            open: false,
        })
    }
}

/// The page.
pub(super) async fn show(console: &Console, asked: &Asked) -> Result<Response, No> {
    let filter = Filter::of(asked);
    let after = asked.query.said("after");
    let found = console.desk().find(&asked.caller, &filter.wanted()?, after, PAGE).await?;
    let rows = found.tasks.iter().map(|session| Head::of(session, &Faces::new(), &asked.caller)).collect();
    let address = |after: &str| format!("/tasks?{}", asked.query.with("after", after));
    let next = found.next.map_or_else(String::new, |next| address(&next));
    let first = after.map_or_else(String::new, |_| address(""));
    let top = console.top(asked, "Tasks").await?;
    let live = if after.is_none() { "all".to_owned() } else { String::new() };
    let top = Top { here: "tasks", live, ..top };
    let same = asked.query.with("after", "");
    Ok(html(200, &Page { top, rows, filter, first, next, same }, asked.caller.room()))
}
