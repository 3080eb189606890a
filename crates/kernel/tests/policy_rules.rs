//! Policy descriptors, RFC-MACP-0012: what can be registered, and the charter that it compiles to.

mod stage;

use handover_kernel::budget::Budget;
use handover_kernel::charter::Authority;
use handover_kernel::command::ModeKind;
use handover_kernel::policy::{DEFAULT_POLICY, Descriptor, Scope};
use handover_kernel::{Charter, Text};
use stage::acts::tokens;
use stage::agent;

fn policy(scope: Scope, rules: &str) -> Descriptor {
    Descriptor { id: Text::from("policy.ours"), scope, schema_version: 1, rules: Text::from(rules) }
}

fn task(rules: &str) -> Descriptor {
    policy(Scope::Mode(ModeKind::Task), rules)
}

fn handoff(rules: &str) -> Descriptor {
    policy(Scope::Mode(ModeKind::Handoff), rules)
}

fn task_charter(rules: &str) -> Charter {
    task(rules).compile(ModeKind::Task).expect("the policy is a good one")
}

fn handoff_charter(rules: &str) -> Charter {
    handoff(rules).compile(ModeKind::Handoff).expect("the policy is a good one")
}

/// The policy can neither be registered nor bound.
fn is_refused(descriptor: &Descriptor, mode: ModeKind) {
    for answer in [descriptor.check(), descriptor.compile(mode).map(|_| ())] {
        assert_eq!(answer.map_err(|refusal| refusal.code()), Err("POLICY_INVALID"), "{descriptor:?}");
    }
}

// RFC-MACP-0012 §5: the default policy adds nothing.
#[test]
fn without_rules_a_policy_is_the_default() {
    assert_eq!(DEFAULT_POLICY, "policy.default");
    for rules in ["", "{}", " { } "] {
        assert_eq!(task_charter(rules), Charter::macp());
        assert_eq!(handoff_charter(rules), Charter::macp());
        assert_eq!(policy(Scope::Any, rules).check(), Ok(()));
    }
}

// RFC-MACP-0012 §4: annotations.
#[test]
fn keys_that_begin_with_an_underscore_or_a_dollar_are_notes_at_every_level() {
    let rules =
        r#"{"$schema":"x","_why":[1],"completion":{"_note":"see above","$id":7,"require_output":true}}"#;
    assert!(task_charter(rules).require_output);
    assert_eq!(policy(Scope::Any, rules).check(), Ok(()));
    is_refused(&task(r#"{"why_":1}"#), ModeKind::Task);
}

// RFC-MACP-0012 §4.4 assignment.allow_reassignment_on_reject
#[test]
fn reassignment_may_be_allowed() {
    let rules = |value| format!(r#"{{"assignment":{{"allow_reassignment_on_reject":{value}}}}}"#);
    assert!(task_charter(&rules("true")).reassignment);
    assert!(!task_charter(&rules("false")).reassignment);
    for wrong in ["1", "\"true\"", "null", "[]", "{}"] {
        is_refused(&task(&rules(wrong)), ModeKind::Task);
    }
}

// RFC-MACP-0012 §4.4 completion.require_output
#[test]
fn an_output_may_be_required() {
    let rules = |value| format!(r#"{{"completion":{{"require_output":{value}}}}}"#);
    assert!(task_charter(&rules("true")).require_output);
    assert!(!task_charter(&rules("false")).require_output);
    for wrong in ["0", "\"yes\"", "null", "[true]", "{}"] {
        is_refused(&task(&rules(wrong)), ModeKind::Task);
    }
}

// RFC-MACP-0012 commitment.authority
#[test]
fn the_authority_is_one_of_three() {
    let rules =
        |word: &str| format!(r#"{{"commitment":{{"authority":{word},"designated_roles":["auditor"]}}}}"#);
    let authority = |word: &str| task_charter(&rules(word)).authority;
    assert_eq!(authority(r#""initiator_only""#), Authority::Requester);
    assert_eq!(authority(r#""any_participant""#), Authority::AnyParticipant);
    assert_eq!(authority(r#""designated_role""#), Authority::Designated([agent("auditor")].into()));
    assert_eq!(handoff_charter(&rules(r#""any_participant""#)).authority, Authority::AnyParticipant);
    for wrong in [r#""anybody""#, r#""""#, "1", "null", "true", "[]", "{}"] {
        is_refused(&task(&rules(wrong)), ModeKind::Task);
        is_refused(&handoff(&rules(wrong)), ModeKind::Handoff);
    }
}

// RFC-MACP-0012 §4: designated_role without roles names nobody and could never be satisfied.
#[test]
fn a_designated_role_needs_somebody() {
    for roles in ["", r#","designated_roles":[]"#] {
        let rules = format!(r#"{{"commitment":{{"authority":"designated_role"{roles}}}}}"#);
        is_refused(&task(&rules), ModeKind::Task);
        is_refused(&handoff(&rules), ModeKind::Handoff);
    }
}

// RFC-MACP-0012 commitment.designated_roles
#[test]
fn the_roles_are_a_list_of_names() {
    for wrong in ["\"auditor\"", "null", "1", "{}", "[1]", "[null]", "[[]]"] {
        let rules = format!(r#"{{"commitment":{{"designated_roles":{wrong}}}}}"#);
        is_refused(&task(&rules), ModeKind::Task);
    }
    let unused = r#"{"commitment":{"designated_roles":["auditor"]}}"#;
    assert_eq!(task_charter(unused).authority, Authority::Requester);
}

// The public SDKs write this key into every policy: it is about votes, which no task or handoff counts.
#[test]
fn the_vote_quorum_that_sdks_write_is_taken_and_says_nothing() {
    let rules = |value| {
        format!(
            r#"{{"commitment":{{"authority":"initiator_only","designated_roles":[],"require_vote_quorum":{value}}}}}"#
        )
    };
    for value in ["false", "true"] {
        assert_eq!(task_charter(&rules(value)), Charter::macp());
        assert_eq!(handoff_charter(&rules(value)), Charter::macp());
    }
    is_refused(&task(&rules("1")), ModeKind::Task);
}

// RFC-MACP-0012 §4.5 acceptance.implicit_accept_timeout_ms
#[test]
fn an_implicit_accept_has_a_timeout_above_zero() {
    let rules = |value| format!(r#"{{"acceptance":{{"implicit_accept_timeout_ms":{value}}}}}"#);
    assert_eq!(handoff_charter(&rules("30000")).implicit_accept_ms, Some(30_000));
    assert_eq!(handoff_charter(&rules("0")).implicit_accept_ms, None);
    for wrong in ["-1", "1.5", "\"30000\"", "null", "true", "[]", "{}", "18446744073709551616"] {
        is_refused(&handoff(&rules(wrong)), ModeKind::Handoff);
    }
}

// RFC-MACP-0012 §7: unknown keys are refused, at every level and of every other mode.
#[test]
fn unknown_keys_are_refused() {
    for rules in [
        r#"{"assignments":{}}"#,
        r#"{"assignment":{"allow":true}}"#,
        r#"{"completion":{"require_outputs":true}}"#,
        r#"{"commitment":{"roles":[]}}"#,
        r#"{"acceptance":{"implicit_accept_timeout_ms":1}}"#,
        r#"{"voting":{}}"#,
    ] {
        is_refused(&task(rules), ModeKind::Task);
    }
    for rules in [
        r#"{"acceptance":{"criterion":"all_parties"}}"#,
        r#"{"assignment":{"allow_reassignment_on_reject":true}}"#,
        r#"{"completion":{"require_output":true}}"#,
    ] {
        is_refused(&handoff(rules), ModeKind::Handoff);
    }
}

#[test]
fn groups_and_rules_are_objects() {
    for rules in [r#"{"assignment":true}"#, r#"{"commitment":[]}"#, r#"{"completion":null}"#] {
        is_refused(&task(rules), ModeKind::Task);
    }
    is_refused(&handoff(r#"{"acceptance":1}"#), ModeKind::Handoff);
    for rules in ["[]", "null", "1", "\"{}\"", "{", "nonsense", "{} {}"] {
        is_refused(&task(rules), ModeKind::Task);
    }
}

// RFC-MACP-0012 §3: schema versions 1 to 3.
#[test]
fn only_known_schema_versions_are_taken() {
    for version in 0..=4 {
        let descriptor = Descriptor { schema_version: version, ..task("{}") };
        assert_eq!(descriptor.check().is_ok(), (1..=3).contains(&version), "version {version}");
    }
}

// RFC-MACP-0012 §8.1: one that is only tried out need not have one.
#[test]
fn a_registered_policy_has_an_id() {
    let nameless = Descriptor { id: Text::from(" "), ..task("{}") };
    assert_eq!(nameless.check().unwrap_err().code(), "POLICY_INVALID");
    assert!(nameless.compile(ModeKind::Task).is_ok());
}

// RFC-MACP-0012 §6.1: a policy of another mode is no policy for this session.
#[test]
fn a_policy_of_another_mode_is_refused() {
    assert_eq!(task("{}").compile(ModeKind::Handoff).unwrap_err().code(), "POLICY_INVALID");
    assert_eq!(handoff("{}").compile(ModeKind::Task).unwrap_err().code(), "POLICY_INVALID");
}

// RFC-MACP-0012 §3: "*" is for every mode, and each takes the rules that concern it.
#[test]
fn a_policy_for_every_mode_gives_each_its_rules() {
    let rules = r#"{
        "assignment": {"allow_reassignment_on_reject": true},
        "completion": {"require_output": true},
        "acceptance": {"implicit_accept_timeout_ms": 5},
        "commitment": {"authority": "any_participant"}
    }"#;
    let any = policy(Scope::Any, rules);
    assert_eq!(any.check(), Ok(()));
    let authority = Authority::AnyParticipant;
    let task =
        Charter { authority: authority.clone(), reassignment: true, require_output: true, ..Charter::macp() };
    assert_eq!(any.compile(ModeKind::Task), Ok(task));
    let handoff = Charter { authority, implicit_accept_ms: Some(5), ..Charter::macp() };
    assert_eq!(any.compile(ModeKind::Handoff), Ok(handoff));
    is_refused(&policy(Scope::Any, r#"{"voting":{}}"#), ModeKind::Task);
}

// The group is our own.
#[test]
fn a_task_can_have_a_budget_and_a_handoff_has_none() {
    let rules = r#"{"budget":{"tasks":3,"$why":"x","numbers":{"tokens":10,"_note":"y"}}}"#;
    let numbers = tokens(10);
    let budget = Budget { tasks: Some(3), numbers, ..Budget::default() };
    assert_eq!(task_charter(rules).budget.as_deref(), Some(&budget));
    let any = policy(Scope::Any, rules);
    assert_eq!(any.compile(ModeKind::Handoff).map(|charter| charter.budget), Ok(None));
    is_refused(&handoff(rules), ModeKind::Handoff);
    for wrong in [
        r#"{"budget":{}}"#,
        r#"{"budget":7}"#,
        r#"{"budget":{"tasks":-1}}"#,
        r#"{"budget":{"tasks":10001}}"#,
        r#"{"budget":{"time_ms":0}}"#,
        r#"{"budget":{"numbers":{"tokens":"many"}}}"#,
        r#"{"budget":{"money":1}}"#,
    ] {
        is_refused(&task(wrong), ModeKind::Task);
    }
}
