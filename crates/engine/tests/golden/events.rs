//! Events of every kind with anything in them, whether or not a session could have written them.

use std::fmt::Debug;
use std::sync::Arc;

use handover_engine::codec::id_scope;
use handover_kernel::approval::{Approvals, Changes, Proposed, Ruling};
use handover_kernel::budget::{Amount, Amounts, Budget, Under};
use handover_kernel::charter::{Authority, Cancel, Liveness, OnDecline, OnSilence, PauseAt, Settlement};
use handover_kernel::command::{
    Answer, CheckInTerms, Contract, Failure, ModeKind, Need, NewOffer, OfferContext, Progress, Reply,
    Request, Start,
};
use handover_kernel::commitment::{Commitment, Supersedes};
use handover_kernel::errand::Verdict;
use handover_kernel::event::{ExpiryCause, Question, Started};
use handover_kernel::{
    AgentId, Author, Blob, Charter, Event, Face, Fact, Ordinal, Seq, Text, Timestamp, Trace,
};
use proptest::collection::{btree_set, vec};
use proptest::option;
use proptest::prelude::{Just, Strategy, any, prop_oneof};
use proptest::sample::select;
use proptest::strategy::BoxedStrategy;

/// An enum whose values can be listed. The list is checked: a new value stops the build.
pub trait Listed: Copy + Debug + PartialEq + 'static {
    const ALL: &'static [Self];
}

macro_rules! listed {
    ($($kind:ident { $($value:ident),+ })+) => {
        $(impl Listed for $kind {
            const ALL: &'static [$kind] = {
                const fn _every_value_is_listed(value: $kind) {
                    match value {
                        $($kind::$value => {})+
                    }
                }
                &[$($kind::$value),+]
            };
        })+
    };
}

listed! {
    Face { Macp, Mcp, Grid, Console, Cli, Runtime }
    ModeKind { Task, Handoff }
    Settlement { Review, AtOnce }
    OnDecline { StayOpen, CancelWhenNobodyLeft, FailAtOnce }
    Cancel { Requester, EitherParty }
    PauseAt { Once, SafePoint }
    OnSilence { Nothing, Tell, Free, Fail }
    Need { Input, Authorization }
    ExpiryCause { Deadline, SuspensionCap }
}

macro_rules! kinds {
    ($($kind:ident),+) => {
        /// The kinds of facts.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Kind {
            $($kind,)+
        }

        impl Kind {
            pub const ALL: &'static [Kind] = &[$(Kind::$kind),+];

            /// A new fact stops the build here, and then in `fact` below.
            pub fn of(fact: &Fact) -> Kind {
                match fact {
                    $(Fact::$kind { .. } => Kind::$kind,)+
                }
            }
        }
    };
}

kinds!(
    Started,
    Cancelled,
    Suspended,
    Resumed,
    Expired,
    Committed,
    ErrandSettled,
    Requested,
    Accepted,
    Declined,
    Updated,
    Asked,
    Checkpointed,
    Delivered,
    Answered,
    Steered,
    PauseRequested,
    Completed,
    Failed,
    Said,
    Read,
    Acknowledged,
    CheckInMissed,
    FellSilent,
    KeySet,
    ChildAdded,
    Offered,
    ContextAdded,
    OfferAccepted,
    Reserved,
    Used,
    Spent,
    Overspent,
    OfferDeclined,
    Proposed,
    Decided,
    CycleFound
);

/// Any event of any kind.
pub fn event() -> impl Strategy<Value = Event> {
    select(Kind::ALL).prop_flat_map(event_of)
}

/// Any event of this kind.
pub fn event_of(kind: Kind) -> impl Strategy<Value = Event> {
    let author = prop_oneof![id().prop_map(Author::Agent), Just(Author::Runtime)];
    let ordinal = option::of(number().prop_map(Ordinal));
    let trace = option::of((text(), text()).prop_map(|(parent, state)| Box::new(Trace { parent, state })));
    let wire = (option::of(blob()), option::of(time()), trace);
    (seq(), time(), author, one::<Face>(), ordinal, option::of(id()), wire, fact(kind)).prop_map(
        |(seq, at, author, face, ordinal, id, (verbatim, sent_at, trace), fact)| Event {
            seq,
            at,
            author,
            face,
            ordinal,
            id,
            id_scope: id_scope(face),
            verbatim,
            sent_at,
            trace,
            fact,
        },
    )
}

fn fact(kind: Kind) -> BoxedStrategy<Fact> {
    match kind {
        Kind::Started => (start(), time())
            .prop_map(|(start, base)| Fact::Started(Box::new(Started { start, base })))
            .boxed(),
        Kind::Cancelled => (text(), any::<bool>())
            .prop_map(|(reason, keeps_children)| Fact::Cancelled { reason, keeps_children })
            .boxed(),
        Kind::Suspended => (text(), option::of(number()))
            .prop_map(|(reason, banked_ms)| Fact::Suspended { reason, banked_ms })
            .boxed(),
        Kind::Resumed => (text(), option::of(number()))
            .prop_map(|(reason, banked_ms)| Fact::Resumed { reason, banked_ms })
            .boxed(),
        Kind::Expired => one::<ExpiryCause>().prop_map(|cause| Fact::Expired { cause }).boxed(),
        Kind::Committed => commitment().prop_map(|made| Fact::Committed(Box::new(made))).boxed(),
        Kind::ErrandSettled => {
            (seq(), prop_oneof![Just(Verdict::Done), text().prop_map(|code| Verdict::Refused { code })])
                .prop_map(|(errand, verdict)| Fact::ErrandSettled { errand, verdict })
                .boxed()
        }
        Kind::Requested => request().prop_map(Fact::Requested).boxed(),
        Kind::Accepted => (text(), option::of(id()))
            .prop_map(|(reason, handoff)| Fact::Accepted { reason, handoff })
            .boxed(),
        Kind::Declined => (text(), option::of(id()))
            .prop_map(|(reason, handoff)| Fact::Declined { reason, handoff })
            .boxed(),
        Kind::Updated => (progress(), vec(id(), 0..4))
            .prop_map(|(progress, withdrawn)| Fact::Updated { progress, withdrawn })
            .boxed(),
        Kind::Asked => (vec(question(), 0..4), progress())
            .prop_map(|(questions, progress)| Fact::Asked { questions, progress })
            .boxed(),
        Kind::Checkpointed => Just(Fact::Checkpointed).boxed(),
        Kind::Delivered => (seq(), proptest::collection::vec(seq(), 0..4))
            .prop_map(|(up_to, orders)| Fact::Delivered { up_to, orders })
            .boxed(),
        Kind::Answered => vec(answer(), 0..4).prop_map(|answers| Fact::Answered { answers }).boxed(),
        Kind::Steered => text().prop_map(|text| Fact::Steered { text }).boxed(),
        Kind::PauseRequested => text().prop_map(|reason| Fact::PauseRequested { reason }).boxed(),
        Kind::Completed => {
            (blob(), text()).prop_map(|(output, summary)| Fact::Completed { output, summary }).boxed()
        }
        Kind::Failed => failure().prop_map(Fact::Failed).boxed(),
        Kind::Said => (blob(), any::<bool>(), any::<bool>(), option::of(id()), check_in())
            .prop_map(|(body, awaits_reply, works, answers, check_in)| Fact::Said {
                body,
                awaits_reply,
                works,
                answers,
                check_in,
            })
            .boxed(),
        Kind::Read => {
            (seq(), any::<bool>()).prop_map(|(up_to, safe_point)| Fact::Read { up_to, safe_point }).boxed()
        }
        Kind::Acknowledged => Just(Fact::Acknowledged).boxed(),
        Kind::CheckInMissed => (seq(), option::of(time()), any::<bool>())
            .prop_map(|(message, next, gives_up)| Fact::CheckInMissed { message, next, gives_up })
            .boxed(),
        Kind::FellSilent => number().prop_map(|since| Fact::FellSilent { since: Timestamp(since) }).boxed(),
        Kind::KeySet => option::of(text()).prop_map(|key| Fact::KeySet { key }).boxed(),
        Kind::ChildAdded => id().prop_map(|child| Fact::ChildAdded { child }).boxed(),
        Kind::Offered => (id(), id(), text(), text())
            .prop_map(|(handoff, target, scope, reason)| Fact::Offered { handoff, target, scope, reason })
            .boxed(),
        Kind::ContextAdded => (id(), text(), blob())
            .prop_map(|(handoff, content_type, body)| Fact::ContextAdded { handoff, content_type, body })
            .boxed(),
        Kind::OfferAccepted => (id(), text(), any::<bool>())
            .prop_map(|(handoff, reason, implicit)| Fact::OfferAccepted { handoff, reason, implicit })
            .boxed(),
        Kind::Reserved => {
            (id(), any::<u32>()).prop_map(|(child, depth)| Fact::Reserved { child, depth }).boxed()
        }
        Kind::Used => amounts().prop_map(|used| Fact::Used { used }).boxed(),
        Kind::Spent => (id(), amounts()).prop_map(|(from, used)| Fact::Spent { from, used }).boxed(),
        Kind::Overspent => (text(), number(), number())
            .prop_map(|(name, of, used)| Fact::Overspent { name, of: Amount(of), used: Amount(used) })
            .boxed(),
        Kind::OfferDeclined => {
            (id(), text()).prop_map(|(handoff, reason)| Fact::OfferDeclined { handoff, reason }).boxed()
        }
        Kind::CycleFound => vec(id(), 0..4).prop_map(|agents| Fact::CycleFound { agents }).boxed(),
        Kind::Proposed => (proposed(), any::<bool>())
            .prop_map(|(what, held)| Fact::Proposed { what: Box::new(what), held })
            .boxed(),
        Kind::Decided => {
            (seq(), ruling()).prop_map(|(proposal, ruling)| Fact::Decided { proposal, ruling }).boxed()
        }
    }
}

fn start() -> impl Strategy<Value = Start> {
    let versions = (text(), text(), text());
    let times = (option::of(number()), option::of(time()));
    let words = (text(), text(), vec(text(), 0..3));
    let contract = (text(), blob(), blob())
        .prop_map(|(skill, input, output)| Arc::new(Contract { skill, input, output }));
    let under = (id(), any::<u32>(), option::of(any::<u32>()), option::of(time()), any::<u32>()).prop_map(
        |(root, depth, deepest, until, nested)| Arc::new(Under { root, depth, deepest, until, nested }),
    );
    let bound = (option::of(id()), option::of(contract), option::of(under));
    (one::<ModeKind>(), vec(id(), 0..4), charter(), versions, times, words, bound).prop_map(
        |(mode, participants, charter, versions, (ttl_ms, sent_at), words, (parent, contract, under))| {
            let (mode_version, configuration_version, policy_version) = versions;
            let (intent, context_id, extension_keys) = words;
            Start {
                mode,
                participants,
                charter,
                mode_version,
                configuration_version,
                policy_version,
                ttl_ms,
                sent_at,
                intent,
                context_id,
                extension_keys,
                parent,
                contract,
                under,
            }
        },
    )
}

fn amounts() -> impl Strategy<Value = Amounts> {
    vec((text(), number().prop_map(Amount)), 0..3).prop_map(Amounts::stored)
}

fn budget() -> impl Strategy<Value = Arc<Budget>> {
    let count = || option::of(any::<u32>());
    (count(), count(), option::of(number()), amounts())
        .prop_map(|(tasks, depth, time_ms, numbers)| Arc::new(Budget { tasks, depth, time_ms, numbers }))
}

fn charter() -> impl Strategy<Value = Charter> {
    let authority = prop_oneof![
        Just(Authority::Requester),
        Just(Authority::AnyParticipant),
        btree_set(id::<AgentId>(), 0..3).prop_map(Authority::Designated),
    ];
    let enums =
        (one::<Settlement>(), one::<Settlement>(), one::<OnDecline>(), one::<Cancel>(), one::<PauseAt>());
    let liveness = (number(), one::<OnSilence>()).prop_map(|(window_ms, then)| Liveness { window_ms, then });
    let approvals = (vec(id(), 0..3), vec(id(), 0..3))
        .prop_map(|(opening, commitment)| Arc::new(Approvals { opening, commitment }));
    let shared = (option::of(approvals), option::of(budget()));
    let spans = (option::of(number()), number(), option::of(number()), option::of(liveness), shared);
    (authority, enums, any::<[bool; 7]>(), spans).prop_map(|(authority, enums, flags, spans)| {
        let (on_complete, on_fail, on_decline, cancel, pause) = enums;
        let [ends_pause, flags @ ..] = flags;
        let [reassignment, require_output, acting_accepts, message_answers, commit_completes, notices] =
            flags;
        let (check_in_ms, suspension_cap_ms, implicit_accept_ms, liveness, (approvals, budget)) = spans;
        Charter {
            authority,
            on_complete,
            on_fail,
            on_decline,
            cancel,
            pause,
            ends_pause,
            reassignment,
            require_output,
            acting_accepts,
            message_answers,
            commit_completes,
            notices,
            check_in_ms,
            suspension_cap_ms,
            implicit_accept_ms,
            liveness: liveness.map(Box::new),
            approvals,
            budget,
        }
    })
}

fn proposed() -> impl Strategy<Value = Proposed> {
    let context = (text(), blob()).prop_map(|(content_type, body)| OfferContext { content_type, body });
    let offer = (id(), id(), text(), text(), option::of(context)).prop_map(
        |(handoff, target, scope, reason, context)| NewOffer { handoff, target, scope, reason, context },
    );
    prop_oneof![
        request().prop_map(Proposed::Request),
        offer.prop_map(Proposed::Offer),
        commitment().prop_map(Proposed::Commitment),
    ]
}

fn ruling() -> impl Strategy<Value = Ruling> {
    let words = || option::of(text());
    let changes = (words(), words(), option::of(blob()), words())
        .prop_map(|(title, instructions, input, reason)| Changes { title, instructions, input, reason });
    prop_oneof![
        changes.prop_map(Ruling::Approved),
        text().prop_map(Ruling::ChangesAsked),
        text().prop_map(Ruling::Rejected),
    ]
}

fn commitment() -> impl Strategy<Value = Commitment> {
    let words = (text(), text(), text(), text());
    let versions = (text(), text(), text());
    let supersedes = (id(), text()).prop_map(|(session, hash)| Supersedes { session, hash });
    (words, versions, any::<bool>(), option::of(supersedes)).prop_map(
        |((commitment, action, scope, reason), versions, positive, supersedes)| {
            let (mode_version, policy_version, configuration_version) = versions;
            Commitment {
                commitment,
                action,
                scope,
                reason,
                mode_version,
                policy_version,
                configuration_version,
                positive,
                supersedes,
            }
        },
    )
}

fn request() -> impl Strategy<Value = Request> {
    let words = (text(), text(), text(), option::of(text()));
    (words, option::of(id()), blob(), option::of(time()), check_in()).prop_map(
        |((task, title, instructions, session_key), assignee, input, wanted_by, check_in)| Request {
            task,
            title,
            instructions,
            assignee,
            input,
            wanted_by,
            check_in,
            session_key,
        },
    )
}

fn check_in() -> impl Strategy<Value = CheckInTerms> {
    (option::of(number()), option::of(any::<u32>()))
        .prop_map(|(window_ms, misses_max)| CheckInTerms { window_ms, misses_max })
}

fn progress() -> impl Strategy<Value = Progress> {
    // Not a number is not even equal to itself; it has a test of its own.
    let done = prop_oneof![
        Just(0.0),
        Just(1.0),
        Just(f64::INFINITY),
        any::<f64>().prop_filter("a number", |done| !done.is_nan())
    ];
    (text(), option::of(done), text(), blob()).prop_map(|(status, done, message, partial)| Progress {
        status,
        done,
        message,
        partial,
    })
}

fn question() -> impl Strategy<Value = Question> {
    (id(), one::<Need>(), text(), blob(), option::of(blob()))
        .prop_map(|(key, need, text, schema, wire)| Question { key, need, text, schema, wire })
}

fn answer() -> impl Strategy<Value = Answer> {
    let reply = prop_oneof![blob().prop_map(Reply::Content), Just(Reply::Refused), Just(Reply::Dismissed)];
    (id(), reply).prop_map(|(key, reply)| Answer { key, reply })
}

fn failure() -> impl Strategy<Value = Failure> {
    (text(), text(), any::<bool>(), any::<bool>(), blob()).prop_map(
        |(code, reason, retryable, protocol_error, output)| Failure {
            code,
            reason,
            retryable,
            protocol_error,
            output,
        },
    )
}

fn one<T: Listed>() -> impl Strategy<Value = T> {
    select(T::ALL)
}

fn id<T: From<String> + Debug>() -> impl Strategy<Value = T> {
    string().prop_map(T::from)
}

fn text() -> impl Strategy<Value = Text> {
    string().prop_map(Text::from)
}

fn string() -> impl Strategy<Value = String> {
    prop_oneof![Just(String::new()), any::<String>()]
}

fn blob() -> impl Strategy<Value = Blob> {
    prop_oneof![Just(Vec::new()), vec(any::<u8>(), 1..200)].prop_map(Blob::from)
}

fn seq() -> impl Strategy<Value = Seq> {
    number().prop_map(Seq)
}

fn time() -> impl Strategy<Value = Timestamp> {
    number().prop_map(Timestamp)
}

fn number() -> impl Strategy<Value = u64> {
    prop_oneof![Just(0), 0..1000_u64, any::<u64>(), Just(u64::MAX)]
}
