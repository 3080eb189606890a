//! Plays: random scripts for one session, under any charter, in either mode, at any time.
//!
//! A move names what is done, not the very command: whom it falls to, which question is answered and which order is
//! delivered is settled on stage. So most moves make sense, and the interesting states are reached often.

use std::fmt::Debug;
use std::sync::Arc;

use handover_kernel::approval::{Approvals, Changes, Ruling};
use handover_kernel::budget::{Budget, Under};
use handover_kernel::charter::{Authority, Liveness, OnSilence};
use handover_kernel::command::{ModeKind, Need};
use handover_kernel::errand::Verdict;
use handover_kernel::session::{Mode, Session};
use handover_kernel::{Act, Charter, Command, Face, Limits, Seq, SessionId, Timestamp};
use proptest::prelude::*;
use proptest::test_runner::{Config, RngSeed, TestCaseResult, TestRunner};

use crate::stage::acts::*;
use crate::stage::{BEGIN, agent, by, start};

/// Run a property over many plays. The same ones every time, unless PROPTEST_RNG_SEED asks for others.
pub fn for_all<T: Debug>(
    cases: u32,
    plays: impl Strategy<Value = T>,
    property: impl Fn(T) -> TestCaseResult,
) {
    let default = Config::default();
    let rng_seed = match default.rng_seed {
        RngSeed::Random => RngSeed::Fixed(7),
        RngSeed::Fixed(seed) => RngSeed::Fixed(seed),
    };
    let config = Config { cases, rng_seed, failure_persistence: None, ..default };
    if let Err(error) = TestRunner::new(config).run(&plays, property) {
        panic!("{error}");
    }
}

/// One whole play.
#[derive(Clone, Debug)]
pub struct Play {
    pub mode: ModeKind,
    pub charter: Charter,
    pub ttl_ms: Option<u64>,
    pub sent_before_ms: u64,
    pub has_parent: bool,
    pub tight: bool,
    pub moves: Vec<Move>,
}

/// One move of a play.
#[derive(Clone)]
pub struct Move {
    pub deed: Deed,
    /// Who does it: the agent that it falls to, or somebody else.
    pub who: Who,
    /// Which of several, where there is a choice.
    pub pick: usize,
    pub wait: Wait,
    pub id: Option<u64>,
    pub takes_orders: bool,
    pub face: Face,
    /// Whether it says what was used.
    pub used: bool,
}

#[derive(Clone, Debug)]
pub enum Who {
    Proper,
    Agent(&'static str),
    Runtime,
}

/// How much later the move is made.
#[derive(Clone, Debug)]
pub enum Wait {
    For(u64),
    /// When something is due, give or take.
    ForWake(i64),
    /// The clock is set back.
    Back(u64),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deed {
    Request,
    Accept,
    Decline,
    Update,
    Withdraw,
    Ask,
    AskUnnamed,
    Checkpoint,
    Hold,
    Deliver,
    Answer,
    Steer,
    Complete,
    Fail,
    Say,
    HandIn,
    Read,
    Acknowledge,
    SetKey,
    HandOn,
    AddChild,
    NoteCycle,
    Reserve,
    Spend,
    Offer,
    Context,
    Take,
    TurnDown,
    Pause,
    PauseGently,
    Resume,
    Cancel,
    CommitSuccess,
    CommitFailure,
    SettleErrand,
    Decide,
    Tick,
}

/// What is done in a task, and how often: what ends a session is rare, what goes on is common.
const TASK_DEEDS: &[(u64, Deed)] = &[
    (12, Deed::Accept),
    (3, Deed::Decline),
    (12, Deed::Update),
    (3, Deed::Withdraw),
    (10, Deed::Ask),
    (5, Deed::AskUnnamed),
    (14, Deed::Checkpoint),
    (3, Deed::Hold),
    (6, Deed::Deliver),
    (14, Deed::Answer),
    (16, Deed::Steer),
    (2, Deed::Complete),
    (1, Deed::Fail),
    (14, Deed::Say),
    (6, Deed::HandIn),
    (8, Deed::Read),
    (6, Deed::Acknowledge),
    (3, Deed::SetKey),
    (3, Deed::HandOn),
    (3, Deed::AddChild),
    (2, Deed::NoteCycle),
    (4, Deed::Reserve),
    (3, Deed::Spend),
    (9, Deed::Pause),
    (4, Deed::PauseGently),
    (16, Deed::Resume),
    (1, Deed::Cancel),
    (2, Deed::CommitSuccess),
    (1, Deed::CommitFailure),
    (3, Deed::SettleErrand),
    (3, Deed::Tick),
    (4, Deed::Decide),
    (2, Deed::Request),
    (1, Deed::Offer),
];

const HANDOFF_DEEDS: &[(u64, Deed)] = &[
    (20, Deed::Offer),
    (8, Deed::Context),
    (3, Deed::Take),
    (10, Deed::TurnDown),
    (6, Deed::Pause),
    (10, Deed::Resume),
    (1, Deed::Cancel),
    (2, Deed::CommitSuccess),
    (1, Deed::CommitFailure),
    (6, Deed::SettleErrand),
    (6, Deed::Tick),
    (6, Deed::Decide),
    (1, Deed::Accept),
];

const WHOS: &[(u64, Who)] = &[
    (32, Who::Proper),
    (1, Who::Agent("planner")),
    (1, Who::Agent("worker")),
    (1, Who::Agent("helper")),
    (1, Who::Agent("outsider")),
    (1, Who::Runtime),
];

const FACES: &[(u64, Face)] =
    &[(8, Face::Macp), (2, Face::Mcp), (2, Face::Grid), (1, Face::Console), (1, Face::Cli)];

/// Digits of a random number: one number makes one move, which is much cheaper to generate and to shrink than a tree
/// of choices.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        let rolled = self.0 % sides;
        self.0 /= sides;
        rolled
    }

    fn choose<T: Clone>(&mut self, table: &[(u64, T)]) -> T {
        let mut left = self.roll(table.iter().map(|(weight, _)| weight).sum());
        for (weight, choice) in table {
            if left < *weight {
                return choice.clone();
            }
            left -= weight;
        }
        unreachable!("the roll is below the sum of the weights")
    }

    fn wait(&mut self) -> Wait {
        match self.roll(50) {
            0 => Wait::ForWake(self.roll(3) as i64 - 1),
            1 => Wait::Back(self.roll(1_000)),
            2..5 => Wait::For(self.roll(1_000)),
            _ => Wait::For(self.roll(40)),
        }
    }
}

impl Move {
    fn of(number: u64, deeds: &[(u64, Deed)]) -> Move {
        let mut dice = Dice(number);
        Move {
            deed: dice.choose(deeds),
            who: dice.choose(WHOS),
            pick: dice.roll(8) as usize,
            wait: dice.wait(),
            id: (dice.roll(3) == 0).then(|| dice.roll(6)),
            takes_orders: dice.roll(2) == 0,
            face: dice.choose(FACES),
            used: number % 7 == 3,
        }
    }
}

impl Debug for Move {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Move { deed, who, pick, wait, id, takes_orders, face, used } = self;
        write!(f, "{who:?} {deed:?} {pick}, {wait:?}, id {id:?}, takes orders {takes_orders}, {face:?}")?;
        if *used { write!(f, ", used") } else { Ok(()) }
    }
}

fn silences() -> impl Strategy<Value = Option<Liveness>> {
    let then = proptest::sample::select(
        &[OnSilence::Nothing, OnSilence::Tell, OnSilence::Free, OnSilence::Fail][..],
    );
    (100..1_000_u64, then).prop_map(|(window_ms, then)| Some(Liveness { window_ms, then }))
}

fn budgets() -> impl Strategy<Value = Option<Arc<Budget>>> {
    let time = prop_oneof![3 => Just(None), 1 => Just(Some(2_500))];
    (0..4_u32, time, 0..20_u64).prop_map(|(tasks, time_ms, most)| {
        Some(Arc::new(Budget { tasks: Some(tasks), depth: Some(2), time_ms, numbers: tokens(most) }))
    })
}

fn charters(mode: ModeKind) -> impl Strategy<Value = Charter> {
    let macp = Charter::macp;
    let base = match mode {
        ModeKind::Task => prop_oneof![
            Just(macp()),
            Just(Charter { reassignment: true, authority: Authority::AnyParticipant, ..macp() }),
            Just(Charter { require_output: true, ..macp() }),
            Just(Charter::mcp()),
            Just(Charter::grid()),
            Just(Charter { check_in_ms: Some(200), ..Charter::grid() }),
            silences().prop_map(|liveness| Charter { liveness: liveness.map(Box::new), ..Charter::mcp() }),
            silences().prop_map(|liveness| Charter { liveness: liveness.map(Box::new), ..Charter::grid() }),
            budgets().prop_map(|budget| Charter { budget, ..Charter::macp() }),
            budgets().prop_map(|budget| Charter { budget, ..Charter::grid() }),
        ]
        .boxed(),
        ModeKind::Handoff => {
            prop_oneof![Just(macp()), Just(Charter { implicit_accept_ms: Some(300), ..macp() })].boxed()
        }
    };
    let caps = prop_oneof![Just(Charter::macp().suspension_cap_ms), Just(2_000)];
    let lead = |so: bool| if so { vec![agent("lead")] } else { Vec::new() };
    let approvals = (any::<bool>(), any::<bool>()).prop_map(move |(opening, commitment)| {
        Some(Arc::new(Approvals { opening: lead(opening), commitment: lead(commitment) }))
    });
    let approvals = prop_oneof![4 => Just(None), 1 => approvals];
    (base, caps, approvals).prop_map(|(charter, suspension_cap_ms, approvals)| Charter {
        suspension_cap_ms,
        approvals,
        ..charter
    })
}

/// Plays of either mode, with up to this many moves.
pub fn plays(length: usize) -> impl Strategy<Value = Play> {
    prop_oneof![3 => Just(ModeKind::Task), 1 => Just(ModeKind::Handoff)].prop_flat_map(move |mode| {
        let deeds = match mode {
            ModeKind::Task => TASK_DEEDS,
            ModeKind::Handoff => HANDOFF_DEEDS,
        };
        let ttl = prop_oneof![4 => Just(None), 4 => Just(Some(80_000)), 1 => Just(Some(3_000))];
        let sent_before_ms = prop_oneof![8 => 0u64..500, 1 => 59_000u64..61_000];
        let numbers = prop::collection::vec(any::<u64>(), 1..length);
        (charters(mode), ttl, sent_before_ms, prop::bool::weighted(0.2), any::<bool>(), numbers).prop_map(
            move |(charter, ttl_ms, sent_before_ms, has_parent, tight, numbers)| Play {
                mode,
                charter,
                ttl_ms,
                sent_before_ms,
                has_parent,
                tight,
                moves: numbers.into_iter().map(|number| Move::of(number, deeds)).collect(),
            },
        )
    })
}

impl Play {
    pub fn limits(&self) -> Limits {
        if !self.tight {
            return Limits::default();
        }
        Limits {
            steers_pending_max: 3,
            questions_open_max: 3,
            messages_per_task_max: 10,
            children_per_task_max: 2,
            offers_per_handoff_max: 3,
            proposals_max: 3,
            log_events_max: 40,
            ..Limits::default()
        }
    }

    /// The commands before the first move: the start, and in most plays the request.
    pub fn opening(&self) -> Vec<Command> {
        let mut begin = start(self.mode, self.charter.clone());
        begin.ttl_ms = self.ttl_ms;
        begin.sent_at = Some(Timestamp(BEGIN.0 - self.sent_before_ms));
        begin.parent = self.has_parent.then(|| SessionId::from("parent"));
        // Every second parent stands under a budget.
        if self.has_parent && self.tight {
            let (root, until) = (SessionId::from("parent"), Some(BEGIN.plus(50_000)));
            begin.under = Some(Arc::new(Under { root, depth: 1, deepest: Some(2), until, nested: 1 }));
        }
        let mut opening = vec![by("planner", Face::Macp, Act::Start(Box::new(begin)))];
        if self.mode == ModeKind::Task {
            let named = self.sent_before_ms.is_multiple_of(2).then_some("worker");
            // Half of what needs an approval is held and approved, so that the play goes on.
            let held = self.charter.approvals.is_some() && self.tight;
            opening.push(by("planner", if held { Face::Mcp } else { Face::Macp }, request(named)));
            if held && !self.has_parent {
                let ruling = Ruling::Approved(Changes::default());
                opening.push(by("lead", Face::Mcp, Act::Decide { proposal: Seq(2), ruling }));
            }
        }
        opening
    }
}

impl Move {
    /// When the move is made.
    pub fn at(&self, now: Timestamp, session: &Session) -> Timestamp {
        match self.wait {
            Wait::For(span) => now.plus(span),
            Wait::Back(span) => Timestamp(now.0.saturating_sub(span)),
            Wait::ForWake(off) => {
                let due = session.wake_at().unwrap_or(now).max(now);
                Timestamp(due.0.saturating_add_signed(off)).max(now)
            }
        }
    }

    /// The command that the move comes to, the session being so.
    pub fn command(&self, session: &Session) -> Command {
        let act = self.act(session);
        let mut command = match &self.who {
            Who::Proper => match self.falls_to(session) {
                Some(name) => by(&name, self.face, act),
                None => Command::runtime(act),
            },
            Who::Agent(name) => by(name, self.face, act),
            Who::Runtime => Command::runtime(act),
        };
        command.id = self.id.map(|id| format!("m{id}").into());
        command.takes_orders = self.takes_orders;
        if self.used {
            command.used = tokens(self.pick as u64);
        }
        command
    }

    fn other(&self) -> &'static str {
        if self.pick.is_multiple_of(2) { "worker" } else { "helper" }
    }

    /// The agent that the deed falls to; none is the runtime.
    fn falls_to(&self, session: &Session) -> Option<String> {
        use Deed::*;
        let assignee = session.task().and_then(|task| task.phase.assignee());
        let target = session.handoff().and_then(|handoff| handoff.outstanding()).map(|offer| &offer.target);
        let receiver = assignee.or(target).map_or(self.other().to_owned(), |agent| agent.as_str().to_owned());
        match self.deed {
            Request | Answer | Steer | Pause | PauseGently | Resume | Cancel | CommitSuccess
            | CommitFailure | Offer | Context => Some("planner".to_owned()),
            Accept => Some(self.other().to_owned()),
            Decline | Update | Withdraw | Ask | AskUnnamed | Checkpoint | Hold | Deliver | Complete
            | Fail | HandIn | Take | TurnDown | Acknowledge => Some(receiver),
            Say | Read | SetKey => Some(if self.pick < 4 { "planner".to_owned() } else { receiver }),
            Deed::Decide => Some("lead".to_owned()),
            HandOn | AddChild | NoteCycle | Reserve | Spend | SettleErrand | Tick => None,
        }
    }

    fn act(&self, session: &Session) -> Act {
        let word = format!("{}", self.pick);
        match self.deed {
            Deed::Request => request(None),
            Deed::Accept => accept(),
            Deed::Decline => decline(),
            Deed::Update => update(&word),
            Deed::Withdraw => withdraw(&word),
            Deed::Ask => {
                let need = if self.pick > 5 { Need::Authorization } else { Need::Input };
                // Now and then a key that was used before, or that the kernel would have given.
                let key = format!("q{}", session.head.0 + 4 - (self.pick as u64).min(4));
                ask_all(vec![question(Some(&key), need), question(None, Need::Input)])
            }
            Deed::AskUnnamed => ask_unnamed(),
            Deed::Checkpoint => checkpoint(),
            Deed::Hold => hold(),
            Deed::Deliver => {
                let orders =
                    session.task().map(|task| task.orders.waiting().map(|order| order.seq.0).collect());
                let orders: Vec<u64> = orders.unwrap_or_default();
                deliver(orders.get(self.pick % orders.len().max(1)).copied().unwrap_or(session.head.0))
            }
            Deed::Answer => {
                let open = session.task().map_or(&[][..], |task| task.phase.questions());
                let key =
                    open.get(self.pick % open.len().max(1)).map_or("none", |question| question.key.as_str());
                answers(&[key], self.pick == 0, self.pick == 7)
            }
            Deed::Steer => steer(&word),
            Deed::Complete => complete(if self.pick == 0 { "" } else { "page" }),
            Deed::Fail => fail("E1"),
            Deed::Say if self.pick == 1 => message_within(&word, 100),
            Deed::Say => message(&word),
            Deed::HandIn => hand_in(&word),
            Deed::Read => read(session.head.0.saturating_sub(self.pick as u64 % 4)),
            Deed::Acknowledge => acknowledge(),
            Deed::SetKey => set_key(&word),
            Deed::HandOn => hand_on(self.other()),
            Deed::AddChild => add_child(&word),
            Deed::NoteCycle => note_cycle(&["worker", "helper"]),
            Deed::Reserve => reserve(&word, 1 + self.pick as u32 % 2),
            Deed::Spend => spend(&word, tokens(self.pick as u64)),
            Deed::Offer => {
                let handoff = format!("h{}", session.head.0 / 2);
                match self.pick {
                    0..4 => offer_of("task:session-9", &handoff, self.other()),
                    4 => offer_with(&word, &handoff, self.other()),
                    _ => offer(&handoff, self.other()),
                }
            }
            Deed::Context => context(&self.an_offer(session)),
            Deed::Take => take(&self.an_offer(session)),
            Deed::TurnDown => turn_down(&self.an_offer(session)),
            Deed::Pause => pause(),
            Deed::PauseGently => pause_gently(),
            Deed::Resume => resume(),
            Deed::Cancel => cancel(),
            Deed::CommitSuccess => match &session.mode {
                Mode::Task(_) => commit_success(),
                Mode::Handoff(_) => commit_transfer(),
            },
            Deed::CommitFailure => match &session.mode {
                Mode::Task(_) => commit_failure(),
                Mode::Handoff(_) => commit_no_transfer(),
            },
            Deed::SettleErrand => {
                let errand = session.errands.get(self.pick % session.errands.len().max(1));
                let verdict = match self.pick {
                    6 => refused("SESSION_ENDED"),
                    7 => refused("BUDGET_SPENT"),
                    _ => Verdict::Done,
                };
                settle(errand.map_or(self.pick as u64, |errand| errand.id.0), verdict)
            }
            Deed::Decide => {
                let proposal = session.proposal.as_ref().map_or(session.head, |proposal| proposal.id);
                let ruling = match self.pick {
                    0 => Ruling::Rejected("no".into()),
                    1 => Ruling::ChangesAsked("less".into()),
                    2 => Ruling::Approved(Changes { reason: Some("so".into()), ..Changes::default() }),
                    3 => Ruling::Approved(Changes { title: Some("so".into()), ..Changes::default() }),
                    _ => Ruling::Approved(Changes::default()),
                };
                Act::Decide { proposal, ruling }
            }
            Deed::Tick => Act::Tick,
        }
    }

    fn an_offer(&self, session: &Session) -> String {
        let offers = session.handoff().map_or(&[][..], |handoff| &handoff.offers);
        offers.last().map_or("none".to_owned(), |offer| offer.handoff.as_str().to_owned())
    }
}
