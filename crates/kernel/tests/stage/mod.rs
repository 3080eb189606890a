//! A stage for one session: a clock, a cast of agents, and everything that was accepted so far.
//!
//! The cast: `planner` starts the session, `worker` and `helper` take part, `outsider` does not. Whatever a test puts to
//! the session, the stage checks what must always hold: the log replays to the live session, and a refusal leaves no
//! trace.

// Every test file plays on this stage and none needs all of it.
#![allow(dead_code)]

pub mod acts;

use handover_kernel::command::{ModeKind, Start};
use handover_kernel::event::{Event, Fact};
use handover_kernel::session::{Standing, replay, step};
use handover_kernel::task::{Phase, Task};
use handover_kernel::{
    Act, AgentId, Author, Charter, Command, Face, Limits, Millis, Receipt, Refusal, Session, SessionId, Step,
    Text, Timestamp,
};

/// When every play begins.
pub const BEGIN: Timestamp = Timestamp(1_700_000_000_000);

/// How long the sessions on this stage may be open, unless a test says otherwise.
pub const TTL_MS: Millis = 60 * 60 * 1000;

macro_rules! kinds {
    ($($name:ident),+ $(,)?) => {
        /// The name of every kind of fact.
        pub const KINDS: &[&str] = &[$(stringify!($name)),+];

        /// The name of a fact's kind.
        pub fn kind(fact: &Fact) -> &'static str {
            match fact {
                $(Fact::$name { .. } => stringify!($name),)+
            }
        }
    };
}

kinds! {
    Started, Cancelled, Suspended, Resumed, Expired, Committed, ErrandSettled,
    Requested, Accepted, Declined, Updated, Asked, Checkpointed, Delivered, Answered, Steered, PauseRequested,
    Completed, Failed, Said, Read, Acknowledged, CheckInMissed, FellSilent, KeySet, ChildAdded,
    Offered, ContextAdded, OfferAccepted, OfferDeclined, Proposed, Decided, CycleFound, Reserved, Used, Spent, Overspent,
}

/// The names of these events' kinds.
pub fn kinds(events: &[Event]) -> Vec<&'static str> {
    events.iter().map(|event| kind(&event.fact)).collect()
}

pub fn agent(name: &str) -> AgentId {
    AgentId::from(name)
}

/// A start of this mode under this charter, with the whole cast.
pub fn start(mode: ModeKind, charter: Charter) -> Start {
    Start {
        mode,
        participants: ["planner", "worker", "helper"].map(agent).to_vec(),
        charter,
        mode_version: Text::from("1.0.0"),
        configuration_version: Text::from("config.1"),
        policy_version: Text::from("policy.default"),
        ttl_ms: Some(TTL_MS),
        sent_at: None,
        intent: Text::from("a play"),
        context_id: Text::default(),
        extension_keys: Vec::new(),
        parent: None,
        contract: None,
        under: None,
    }
}

/// A command as the face sends it: where MACP's ids count is the one thing that sets it apart.
pub fn by(who: &str, face: Face, act: Act) -> Command {
    let command = Command::by(&agent(who), face, act);
    match face {
        Face::Macp => command.in_session_scope(),
        Face::Mcp | Face::Grid | Face::Console | Face::Cli | Face::Runtime => command,
    }
}

/// One session, its clock and its log.
#[derive(Clone)]
pub struct Stage {
    pub slot: Option<Session>,
    pub id: SessionId,
    pub limits: Limits,
    pub now: Timestamp,
    pub log: Vec<Event>,
    pub face: Face,
}

impl Stage {
    /// Before anything was started.
    pub fn empty() -> Stage {
        Stage {
            slot: None,
            id: SessionId::from("session-1"),
            limits: Limits::default(),
            now: BEGIN,
            log: Vec::new(),
            face: Face::Macp,
        }
    }

    /// A session that `planner` started so.
    pub fn started(start: Start) -> Stage {
        let mut stage = Stage::empty();
        stage.ok("planner", Act::Start(Box::new(start)));
        stage
    }

    /// A task session under this charter, nothing requested yet.
    pub fn task(charter: Charter) -> Stage {
        Stage::started(start(ModeKind::Task, charter))
    }

    /// A task that waits for whoever accepts first.
    pub fn requested(charter: Charter) -> Stage {
        let mut stage = Stage::task(charter);
        stage.ok("planner", acts::request(None));
        stage
    }

    /// A task that waits for `worker`.
    pub fn requested_of_worker(charter: Charter) -> Stage {
        let mut stage = Stage::task(charter);
        stage.ok("planner", acts::request(Some("worker")));
        stage
    }

    /// A task that was requested of `worker`, who works on it.
    pub fn working(charter: Charter) -> Stage {
        let mut stage = Stage::requested_of_worker(charter);
        stage.ok("worker", acts::accept());
        stage
    }

    /// A task whose assignee `worker` has asked the question `q`.
    pub fn waiting(charter: Charter) -> Stage {
        let mut stage = Stage::working(charter);
        stage.ok("worker", acts::ask("q"));
        stage
    }

    /// A Grid task that `planner` has sent to `worker`: the two of them, and no deadline.
    pub fn conversation() -> Stage {
        let participants = ["planner", "worker"].map(agent).to_vec();
        let start = Start { participants, ttl_ms: None, ..start(ModeKind::Task, Charter::grid()) };
        let mut stage = Stage { face: Face::Grid, ..Stage::started(start) };
        stage.ok("planner", acts::request(Some("worker")));
        stage
    }

    /// A handoff session under this charter, nothing offered yet.
    pub fn handoff(charter: Charter) -> Stage {
        Stage::started(start(ModeKind::Handoff, charter))
    }

    /// A handoff in which `h1` was offered to `worker`.
    pub fn offered(charter: Charter) -> Stage {
        let mut stage = Stage::handoff(charter);
        stage.ok("planner", acts::offer("h1", "worker"));
        stage
    }

    /// The same, with other limits.
    pub fn with_limits(mut self, change: impl FnOnce(&mut Limits)) -> Stage {
        change(&mut self.limits);
        self
    }

    /// Later.
    pub fn wait(&mut self, span: Millis) -> &mut Stage {
        self.now = self.now.plus(span);
        self
    }

    /// Put a command to the session, and check what holds for every command.
    pub fn put(&mut self, command: &Command) -> Step {
        let before = self.slot.clone();
        let step = step(&mut self.slot, &self.id, command, &self.limits, self.now);
        self.log.extend(step.events.iter().cloned());
        let replayed = replay(&self.id, &self.log).expect("a log of accepted events can be read");
        assert_eq!(replayed, self.slot, "the log replays to another session after {command:?}");
        let proposed = matches!(step.answer, Err(Refusal::ApprovalNeeded { .. }));
        if step.answer.is_err() && !proposed {
            let mut ticked = before;
            let tick = Command::runtime(Act::Tick);
            let due = handover_kernel::step(&mut ticked, &self.id, &tick, &self.limits, self.now);
            assert_eq!(
                (&due.events, &ticked),
                (&step.events, &self.slot),
                "a refusal left a trace: {command:?}"
            );
        }
        step
    }

    pub fn command(&self, who: &str, act: Act) -> Command {
        by(who, self.face, act)
    }

    /// An agent acts; whatever comes of it.
    pub fn say(&mut self, who: &str, act: Act) -> Step {
        let command = self.command(who, act);
        self.put(&command)
    }

    /// An agent acts and is heard.
    pub fn ok(&mut self, who: &str, act: Act) -> Receipt {
        let shown = format!("{who}: {act:?}");
        self.say(who, act).answer.unwrap_or_else(|refusal| panic!("{shown} was refused: {refusal}"))
    }

    /// An agent acts and is refused with this code.
    pub fn no(&mut self, who: &str, act: Act) -> &'static str {
        let shown = format!("{who}: {act:?}");
        match self.say(who, act).answer {
            Ok(_) => panic!("{shown} was accepted"),
            Err(refusal) => refusal.code(),
        }
    }

    /// An agent acts under a message id.
    pub fn named(&mut self, who: &str, id: &str, act: Act) -> Result<Receipt, Refusal> {
        let command = self.command(who, act).with_id(id);
        self.put(&command).answer
    }

    /// The assignee acts, and the answer carries the waiting orders.
    pub fn taking_orders(&mut self, who: &str, act: Act) -> Receipt {
        let command = Command { takes_orders: true, ..self.command(who, act) };
        self.put(&command).answer.unwrap_or_else(|refusal| panic!("{command:?} was refused: {refusal}"))
    }

    /// The runtime acts.
    pub fn runtime(&mut self, act: Act) -> Step {
        self.put(&Command::runtime(act))
    }

    /// Time passes unto now: what was due.
    pub fn tick(&mut self) -> Vec<&'static str> {
        kinds(&self.runtime(Act::Tick).events)
    }

    pub fn session(&self) -> &Session {
        self.slot.as_ref().expect("the session has been started")
    }

    pub fn the_task(&self) -> &Task {
        self.session().task().expect("the session is about a task")
    }

    pub fn phase(&self) -> &Phase {
        &self.the_task().phase
    }

    pub fn standing(&self) -> Standing {
        self.session().standing()
    }

    pub fn assignee(&self) -> Option<&str> {
        self.phase().assignee().map(AgentId::as_str)
    }

    pub fn last(&self) -> &Event {
        self.log.last().expect("something was accepted")
    }

    /// The kinds of all events so far, the start left out.
    pub fn story(&self) -> Vec<&'static str> {
        kinds(&self.log).split_off(1)
    }

    /// How many events of this kind there are.
    pub fn count(&self, name: &str) -> usize {
        kinds(&self.log).into_iter().filter(|found| *found == name).count()
    }

    /// The last event of this kind.
    pub fn the(&self, name: &str) -> &Event {
        let found = self.log.iter().rev().find(|event| kind(&event.fact) == name);
        found.unwrap_or_else(|| panic!("nothing {name} in {:?}", self.story()))
    }

    /// The agent that an event is by.
    pub fn author_of(&self, name: &str) -> Option<&str> {
        match &self.the(name).author {
            Author::Agent(agent) => Some(agent.as_str()),
            Author::Runtime => None,
        }
    }

    /// What the assignee would hear now.
    pub fn orders(&self) -> Vec<String> {
        heard(self.session().orders())
    }
}

/// Orders in words.
pub fn heard<'a>(orders: impl IntoIterator<Item = &'a handover_kernel::orders::Order>) -> Vec<String> {
    use handover_kernel::orders::OrderKind;
    let words = |order: &handover_kernel::orders::Order| match &order.what {
        OrderKind::Steer(text) => format!("steer {text}"),
        OrderKind::Pause(reason) => format!("pause {reason}"),
        OrderKind::Answers(answers) => {
            let keys: Vec<&str> = answers.iter().map(|answer| answer.key.as_str()).collect();
            format!("answers {}", keys.join(" "))
        }
        OrderKind::Message { body, .. } => format!("message {}", String::from_utf8_lossy(body)),
    };
    orders.into_iter().map(words).collect()
}
