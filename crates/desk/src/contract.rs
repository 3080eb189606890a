//! Contracts: the schemas of a skill, bound to the task when it starts, and those of its questions. Values are checked here
//! whoever asks and whoever works, on whatever face.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use handover_engine::locks::lock;
use handover_kernel::approval::{Changes, Ruling};
use handover_kernel::command::{Act, Answer, Contract, NewQuestion, Next, Opening, Reply, TaskAct};
use handover_kernel::event::Question;
use handover_kernel::{AgentId, Blob, QuestionKey, Session};

use crate::checks::{Checks, STEPS_IN_PLACE};
use crate::gate::{Caller, Gate};
use crate::limit::Limited;
use crate::no::{No, Part, Unfit};
use crate::payload;
use crate::schema::{Malformed, Schema, Verdict};

/// How many bytes the schemas that are kept ready may take: many tasks are bound to the same ones.
const READY_BYTES_MAX: usize = 16 * 1024 * 1024;

/// How large a value and a schema may be that are looked at where they come in. Others go to the threads for long checks.
const VALUE_BYTES_IN_PLACE: usize = 32 * 1024;
const SCHEMA_BYTES_IN_PLACE: usize = 4 * 1024;

/// What the context of a session that calls a skill begins with.
const SKILL: &str = "skill:";

/// The context of a session that calls this skill.
pub fn context_of(skill: &str) -> String {
    format!("{SKILL}{skill}")
}

/// The skill that a session calls, if it calls one. Sessions of before contracts say it in their context alone.
pub fn skill_of(session: &Session) -> Option<&str> {
    let bound = session.binding.contract.as_ref().map(|contract| &*contract.skill);
    bound.or_else(|| session.binding.context_id.strip_prefix(SKILL))
}

/// Checks values against schemas, and keeps the schemas that were used lately ready.
pub struct Contracts {
    ready: Ready,
    checks: Checks,
}

/// A value that is to fit a schema, or a schema that is to be one.
struct Wanted {
    part: Part,
    schema: Blob,
    /// None if it is about the schema alone.
    value: Option<Blob>,
}

/// Whether a value fits.
enum Fit {
    Yes,
    No(String),
    /// The schema is one that is not used any more.
    Costly(String),
    OutOfSteps,
}

impl Contracts {
    /// No schema is ready yet.
    pub fn new(checks: Checks) -> Contracts {
        Contracts { ready: Ready::default(), checks }
    }

    /// The threads for what takes long.
    pub fn checks(&self) -> &Checks {
        &self.checks
    }

    /// Whether a command fits what its session is bound to. `session` is the one that it goes to, if that is there and the
    /// caller may see it.
    pub async fn check(
        &self,
        gate: &Gate,
        caller: &Caller,
        act: &Act,
        session: Option<&Session>,
    ) -> Result<(), No> {
        for wanted in wanted(act, session, &caller.agent) {
            self.check_one(gate, caller, wanted).await?;
        }
        Ok(())
    }

    /// Whether a look at the session is needed to check the command.
    pub fn needs_session(act: &Act) -> bool {
        let in_task =
            matches!(act, Act::Task(TaskAct::Complete { .. } | TaskAct::Answer { .. } | TaskAct::Say { .. }));
        in_task || matches!(act, Act::Decide { .. })
    }

    async fn check_one(&self, gate: &Gate, caller: &Caller, wanted: Wanted) -> Result<(), No> {
        let Wanted { part, schema, value } = wanted;
        let fit = match self.ready.fit_in_place(&schema, value.as_ref()) {
            Some(fit) => fit,
            None => {
                let (ready, steps_max) = (self.ready.clone(), self.checks.steps_max());
                let work = move || ready.fit(&schema, value.as_ref(), steps_max);
                self.checks.run(gate, caller, work).await?
            }
        };
        match fit {
            Fit::Yes => Ok(()),
            Fit::No(why) => Err(Unfit { part, why }.into()),
            Fit::Costly(why) => {
                Err(gate.limited(caller, Limited::CheckSteps { what: format!("{part}: {why}") }).into())
            }
            Fit::OutOfSteps => {
                let max = self.checks.steps_max();
                let what = format!(
                    "{part}: expected a check of at most {max} steps, found that it takes more: send a smaller value, \
                     or use a simpler schema"
                );
                Err(gate.limited(caller, Limited::CheckSteps { what }).into())
            }
        }
    }
}

/// What a command says that has a schema.
fn wanted(act: &Act, session: Option<&Session>, by: &AgentId) -> Vec<Wanted> {
    let value = |part, schema: &Blob, value: &Blob| Wanted {
        part,
        schema: schema.clone(),
        value: Some(value.clone()),
    };
    let mut found = match act {
        Act::Delegate(delegation) => match (&delegation.start.contract, &delegation.opening) {
            (Some(contract), Opening::Request(request)) => {
                vec![value(Part::Input, &contract.input, &request.input)]
            }
            (None, _) | (Some(_), Opening::Offer(_)) => Vec::new(),
        },
        Act::Task(TaskAct::Complete { output, .. }) => delivered(session, output),
        Act::Task(TaskAct::Say { body, next, .. }) => session.map_or_else(Vec::new, |session| {
            let (binding, task) = (&session.binding, session.task());
            let open = task.map_or(&[][..], |task| task.phase.questions());
            match (next, open.first()) {
                // What the requester says may be an answer, and what the assignee says its question or its report.
                (_, question) if binding.requester == *by => {
                    let answered = question.filter(|_| binding.charter.message_answers);
                    answered.map(|asked| answer_to(asked, body)).into_iter().collect()
                }
                (Next::Delivers, _) if binding.charter.delivery_reports() => delivered(Some(session), body),
                (Next::Asks { schema, .. }, _) => {
                    let part = Part::Question(QuestionKey::from("1"));
                    vec![Wanted { part, schema: schema.clone(), value: None }]
                }
                (Next::AsBefore | Next::Works | Next::Delivers, _) => Vec::new(),
            }
        }),
        Act::Task(TaskAct::Ask { questions, .. }) => questions.iter().enumerate().map(question).collect(),
        Act::Task(TaskAct::Answer { answers, .. }) => {
            let task = session.and_then(Session::task);
            let open = task.map_or(&[][..], |task| task.phase.questions());
            answers.iter().filter_map(|answer| answered(open, answer)).collect()
        }
        // What is approved with another input, or proposed again with one, must fit as well.
        Act::Decide { ruling: Ruling::Approved(Changes { input: Some(input), .. }), .. } => {
            of_skill(session, input)
        }
        Act::Task(TaskAct::Request(request)) => of_skill(session, &request.input),
        Act::Start(_)
        | Act::Cancel { .. }
        | Act::Pause { .. }
        | Act::Resume { .. }
        | Act::Tick
        | Act::Commit(_)
        | Act::Decide { .. }
        | Act::Task(_)
        | Act::Handoff(_)
        | Act::SettleErrand { .. } => Vec::new(),
    };
    // Anything fits none.
    found.retain(|wanted| !wanted.schema.is_empty());
    found
}

/// A question whose schema does not compile could never be answered.
fn question((index, question): (usize, &NewQuestion)) -> Wanted {
    let named = || question.key.clone().unwrap_or_else(|| QuestionKey::from((index + 1).to_string()));
    Wanted { part: Part::Question(named()), schema: question.schema.clone(), value: None }
}

/// What the skill of a session is called with.
fn of_skill(session: Option<&Session>, input: &Blob) -> Vec<Wanted> {
    let contract = session.and_then(|session| session.binding.contract.as_ref());
    let wanted = |contract: &Arc<Contract>| {
        let (part, schema) = (Part::Input, contract.input.clone());
        Wanted { part, schema, value: Some(input.clone()) }
    };
    contract.map(wanted).into_iter().collect()
}

/// What the skill of a session is to return.
fn delivered(session: Option<&Session>, output: &Blob) -> Vec<Wanted> {
    let contract = session.and_then(|session| session.binding.contract.as_ref());
    let wanted = |contract: &Arc<Contract>| {
        let (part, schema) = (Part::Output, contract.output.clone());
        Wanted { part, schema, value: Some(output.clone()) }
    };
    contract.map(wanted).into_iter().collect()
}

fn answer_to(question: &Question, content: &Blob) -> Wanted {
    let (part, schema) = (Part::Answer(question.key.clone()), question.schema.clone());
    Wanted { part, schema, value: Some(content.clone()) }
}

/// An answer to a question that is not open is the kernel's to refuse.
fn answered(open: &[Question], answer: &Answer) -> Option<Wanted> {
    let question = open.iter().find(|question| question.key == answer.key)?;
    match &answer.reply {
        Reply::Content(content) => Some(answer_to(question, content)),
        Reply::Refused | Reply::Dismissed => None,
    }
}

/// The schemas that were used lately. All clones are the same.
#[derive(Clone, Default)]
struct Ready {
    kept: Arc<Mutex<Kept>>,
}

#[derive(Default)]
struct Kept {
    schemas: BTreeMap<Blob, Arc<Schema>>,
    bytes: usize,
}

impl Ready {
    /// Whether a value fits a schema, if that can be seen in a moment.
    fn fit_in_place(&self, schema: &Blob, value: Option<&Blob>) -> Option<Fit> {
        let small = schema.len() <= SCHEMA_BYTES_IN_PLACE && !Schema::may_have_patterns(schema);
        if !(small || self.find(schema).is_some())
            || value.is_some_and(|value| value.len() > VALUE_BYTES_IN_PLACE)
        {
            return None;
        }
        match self.fit(schema, value, STEPS_IN_PLACE) {
            (Fit::OutOfSteps, _) => None,
            (fit, _) => Some(fit),
        }
    }

    /// Whether a value fits a schema, and the steps that it took to know.
    fn fit(&self, schema: &Blob, value: Option<&Blob>, steps_max: u64) -> (Fit, u64) {
        let (schema, taken) = match self.compiled(schema) {
            Ok(compiled) => compiled,
            Err(malformed) if value.is_none() => return (Fit::No(malformed.to_string()), 0),
            Err(malformed) => {
                let why = format!("it cannot be used: {malformed}");
                return (if malformed.costly { Fit::Costly(why) } else { Fit::No(why) }, 0);
            }
        };
        let Some(value) = value else { return (Fit::Yes, taken) };
        // Text that is no JSON is a text, as on every wire.
        let value = match std::str::from_utf8(value) {
            Ok("") => {
                return (Fit::No("expected structured content (JSON), found nothing".to_owned()), taken);
            }
            Ok(_) => payload::to_json(value),
            Err(_) => {
                let what = "expected structured content (JSON), found bytes that are no text";
                return (Fit::No(what.to_owned()), taken);
            }
        };
        let (verdict, steps) = schema.check(&value, steps_max);
        let fit = match verdict {
            Verdict::Matches => Fit::Yes,
            Verdict::Differs(mismatch) => Fit::No(mismatch.to_string()),
            Verdict::OutOfSteps => Fit::OutOfSteps,
        };
        (fit, taken + steps)
    }

    fn find(&self, bytes: &Blob) -> Option<Arc<Schema>> {
        lock(&self.kept).schemas.get(bytes).cloned()
    }

    /// The schema that these bytes are, and the steps that it took to make it ready.
    fn compiled(&self, bytes: &Blob) -> Result<(Arc<Schema>, u64), Malformed> {
        if let Some(schema) = self.find(bytes) {
            return Ok((schema, 0));
        }
        let text = std::str::from_utf8(bytes).map_err(|_| Malformed::new("expected JSON, found no text"))?;
        let schema = Arc::new(Schema::compile(text)?);
        let mut kept = lock(&self.kept);
        if kept.bytes + schema.weight() > READY_BYTES_MAX {
            *kept = Kept::default();
        }
        if kept.schemas.insert(bytes.clone(), Arc::clone(&schema)).is_none() {
            kept.bytes += schema.weight();
        }
        let steps = schema.steps_to_compile();
        Ok((schema, steps))
    }
}
