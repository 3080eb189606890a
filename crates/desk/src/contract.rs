//! Contracts: the schemas of a skill, bound to the task when it starts, and those of its questions. Values are checked here
//! whoever asks and whoever works, on whatever face.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use handover_engine::locks::lock;
use handover_kernel::command::{Act, Answer, Contract, NewQuestion, Opening, Reply, TaskAct};
use handover_kernel::event::Question;
use handover_kernel::{Blob, QuestionKey, Session};

use crate::no::{Part, Unfit};
use crate::payload;
use crate::schema::{Malformed, Schema};

/// How many bytes of schemas are kept ready: many tasks are bound to the same ones. One that is long is made ready anew
/// each time.
const READY_BYTES_MAX: usize = 1024 * 1024;
const READY_ONE_BYTES_MAX: usize = 64 * 1024;

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
#[derive(Default)]
pub struct Contracts {
    ready: Mutex<Ready>,
}

#[derive(Default)]
struct Ready {
    schemas: BTreeMap<Blob, Arc<Schema>>,
    bytes: usize,
}

impl Contracts {
    /// The schema that these bytes are.
    pub fn schema(&self, bytes: &Blob) -> Result<Arc<Schema>, Malformed> {
        if let Some(schema) = lock(&self.ready).schemas.get(bytes) {
            return Ok(Arc::clone(schema));
        }
        let text = std::str::from_utf8(bytes).map_err(|_| Malformed::new("expected JSON, found no text"))?;
        let schema = Arc::new(Schema::compile(text)?);
        if bytes.len() <= READY_ONE_BYTES_MAX {
            let mut ready = lock(&self.ready);
            if ready.bytes + bytes.len() > READY_BYTES_MAX {
                *ready = Ready::default();
            }
            ready.bytes += bytes.len();
            ready.schemas.insert(bytes.clone(), Arc::clone(&schema));
        }
        Ok(schema)
    }

    /// Whether a command fits what its session is bound to. `session` is the one that it goes to, if that is there and the
    /// caller may see it.
    pub fn check(&self, act: &Act, session: Option<&Session>) -> Result<(), Unfit> {
        match act {
            Act::Delegate(delegation) => match (&delegation.start.contract, &delegation.opening) {
                (Some(contract), Opening::Request(request)) => self.check_input(contract, &request.input),
                (None, _) | (Some(_), Opening::Offer(_)) => Ok(()),
            },
            Act::Task(TaskAct::Complete { output, .. }) => {
                let contract = session.and_then(|session| session.binding.contract.as_ref());
                contract.map_or(Ok(()), |contract| self.check_output(contract, output))
            }
            Act::Task(TaskAct::Ask { questions, .. }) => questions
                .iter()
                .enumerate()
                .try_for_each(|(index, question)| self.check_question(index, question)),
            Act::Task(TaskAct::Answer { answers, .. }) => {
                let task = session.and_then(Session::task);
                let open = task.map_or(&[][..], |task| task.phase.questions());
                answers.iter().try_for_each(|answer| self.check_answer(open, answer))
            }
            Act::Start(_)
            | Act::Cancel { .. }
            | Act::Pause { .. }
            | Act::Resume { .. }
            | Act::Tick
            | Act::Commit(_)
            | Act::Task(_)
            | Act::Handoff(_)
            | Act::SettleErrand { .. } => Ok(()),
        }
    }

    /// Whether a look at the session is needed to check the command.
    pub fn needs_session(act: &Act) -> bool {
        matches!(act, Act::Task(TaskAct::Complete { .. } | TaskAct::Answer { .. }))
    }

    fn check_input(&self, contract: &Contract, input: &Blob) -> Result<(), Unfit> {
        self.fits(&contract.input, input).map_err(|why| Unfit { part: Part::Input, why })
    }

    fn check_output(&self, contract: &Contract, output: &Blob) -> Result<(), Unfit> {
        self.fits(&contract.output, output).map_err(|why| Unfit { part: Part::Output, why })
    }

    /// A question whose schema does not compile could never be answered.
    fn check_question(&self, index: usize, question: &NewQuestion) -> Result<(), Unfit> {
        if question.schema.is_empty() {
            return Ok(());
        }
        let named = || question.key.clone().unwrap_or_else(|| QuestionKey::from((index + 1).to_string()));
        match self.schema(&question.schema) {
            Ok(_) => Ok(()),
            Err(malformed) => Err(Unfit { part: Part::Question(named()), why: malformed.to_string() }),
        }
    }

    /// An answer to a question that is not open is the kernel's to refuse.
    fn check_answer(&self, open: &[Question], answer: &Answer) -> Result<(), Unfit> {
        let question = open.iter().find(|question| question.key == answer.key);
        question.map_or(Ok(()), |question| self.answers(question, &answer.reply))
    }

    /// Whether a reply fits the question's schema.
    pub fn answers(&self, question: &Question, reply: &Reply) -> Result<(), Unfit> {
        match reply {
            Reply::Content(content) => self
                .fits(&question.schema, content)
                .map_err(|why| Unfit { part: Part::Answer(question.key.clone()), why }),
            Reply::Refused | Reply::Dismissed => Ok(()),
        }
    }

    /// Whether bytes are JSON that fits a schema; anything fits none.
    fn fits(&self, schema: &Blob, found: &[u8]) -> Result<(), String> {
        if schema.is_empty() {
            return Ok(());
        }
        let schema = self.schema(schema).map_err(|malformed| format!("it cannot be used: {malformed}"))?;
        // Text that is no JSON is a text, as on every wire.
        let value = match std::str::from_utf8(found) {
            Ok("") => return Err("expected structured content (JSON), found nothing".to_owned()),
            Ok(_) => payload::to_json(found),
            Err(_) => {
                return Err("expected structured content (JSON), found bytes that are no text".to_owned());
            }
        };
        schema.check(&value).map_err(|mismatch| mismatch.to_string())
    }
}
