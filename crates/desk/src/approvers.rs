//! The operator's rules about what needs whose approval before it takes effect.
//!
//! They are bound to a session when it starts, so that a change of them changes no session that runs.

use handover_kernel::AgentId;
use handover_kernel::approval::Approvals;
use handover_kernel::command::{ModeKind, Start};
use toml::{Table, Value};

use crate::access::{matches, names};
use crate::identity::DEFAULT_TENANT;

/// What stands before the name of a role among those who approve.
const ROLE: &str = "role:";

/// The keys of a rule and of a role, for messages.
const KEYS: &str = "tenant, agents, delegate, skills, hand_on, commit, by and role";

/// Whose approval what needs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    entries: Vec<Entry>,
}

/// A rule, or, where it has the name of a role, those who have that role.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Entry {
    tenant: String,
    /// Whom the rule is for, or who has the role.
    agents: Vec<String>,
    role: Option<String>,
    delegate: Vec<String>,
    skills: Vec<String>,
    hand_on: Vec<String>,
    commit: bool,
    by: Vec<String>,
}

impl Rules {
    /// The rules that an array of TOML tables says, or else what was expected.
    pub fn parse(text: &str) -> Result<Rules, String> {
        let expected = || "a list of rules ([[approvals.rules]] in the file)".to_owned();
        let table: Table = format!("rules = {text}").parse().map_err(|_| expected())?;
        let Some(Value::Array(found)) = table.get("rules").filter(|_| table.len() == 1) else {
            return Err(expected());
        };
        let wrong = |index: usize, what: String| format!("{}, with rule {} {what}", expected(), index + 1);
        let mut rules = Rules::default();
        for (index, value) in found.iter().enumerate() {
            rules.entries.push(Entry::of(value).map_err(|what| wrong(index, what))?);
        }
        for (index, entry) in rules.entries.iter().enumerate() {
            let roles = entry.by.iter().filter_map(|name| name.strip_prefix(ROLE));
            if let Some(role) =
                roles.into_iter().find(|role| rules.role(&entry.tenant, role).next().is_none())
            {
                return Err(wrong(index, format!("naming roles that somebody has (nobody has {role:?})")));
            }
        }
        Ok(rules)
    }

    /// The rules as TOML, which says the same rules again.
    pub fn to_value(&self) -> Value {
        Value::Array(self.entries.iter().map(Entry::to_value).collect())
    }

    fn role<'a>(&'a self, tenant: &'a str, role: &'a str) -> impl Iterator<Item = &'a String> {
        let entries = self
            .entries
            .iter()
            .filter(move |entry| entry.tenant == tenant && entry.role.as_deref() == Some(role));
        entries.flat_map(|entry| &entry.agents)
    }

    /// Whose approval a session needs that an agent of a tenant starts so. The first rule that speaks of its opening counts
    /// for that, and the first that speaks of its commitment for that; `Err` says for what nobody is left to ask.
    pub(crate) fn of(
        &self,
        tenant: &str,
        requester: &AgentId,
        start: &Start,
    ) -> Result<Approvals, &'static str> {
        let rules = || {
            let rules = self.entries.iter().filter(|entry| entry.role.is_none() && entry.tenant == tenant);
            rules.filter(|rule| matches(&rule.agents, requester.as_str()))
        };
        let approvers = |rule: Option<&Entry>| {
            let mut approvers = Vec::new();
            for name in rule.map_or(&[][..], |rule| &rule.by) {
                let role = name.strip_prefix(ROLE);
                let names = role.map_or_else(|| vec![name], |role| self.role(tenant, role).collect());
                for name in names.into_iter().map(|name| AgentId::from(name.as_str())) {
                    if name != *requester && !approvers.contains(&name) {
                        approvers.push(name);
                    }
                }
            }
            let nobody = approvers.is_empty() && rule.is_some_and(|rule| !rule.by.is_empty());
            (!nobody).then_some(approvers)
        };
        let opening = approvers(rules().find(|rule| rule.speaks_of(requester, start)));
        let commits = |rule: &&Entry| rule.commit && (rule.is_general() || rule.speaks_of(requester, start));
        let commitment = approvers(rules().find(commits));
        Ok(Approvals {
            opening: opening.ok_or("its opening")?,
            commitment: commitment.ok_or("its commitment")?,
        })
    }
}

impl Entry {
    fn of(value: &Value) -> Result<Entry, String> {
        let Value::Table(table) = value else { return Err("being a table".to_owned()) };
        let mut entry = Entry { tenant: DEFAULT_TENANT.to_owned(), ..Entry::default() };
        let mut decided = false;
        for (key, value) in table {
            let name = || value.as_str().filter(|name| !name.is_empty()).map(str::to_owned);
            match key.as_str() {
                "tenant" => entry.tenant = name().ok_or("having a tenant that is a name")?,
                "role" => entry.role = Some(name().ok_or("having a role that is a name")?),
                "agents" => entry.agents = names(key, value)?,
                "delegate" => entry.delegate = names(key, value)?,
                "skills" => entry.skills = names(key, value)?,
                "hand_on" => entry.hand_on = names(key, value)?,
                "commit" => entry.commit = value.as_bool().ok_or("having a commit that is true or false")?,
                "by" => {
                    entry.by = names(key, value)?;
                    decided = true;
                }
                other => return Err(format!("having only {KEYS} (it has {other:?})")),
            }
        }
        let speaks = entry.commit || !entry.is_general();
        match entry.role {
            Some(_) if speaks || decided => {
                Err("having only tenant, agents and role, as it has a role".to_owned())
            }
            Some(_) if entry.agents.is_empty() => Err("saying in agents who has the role".to_owned()),
            None if !speaks => {
                Err("saying in delegate, skills, hand_on or commit what it is about".to_owned())
            }
            None if !decided => {
                Err("saying by whom it is approved (an empty list: it needs nobody)".to_owned())
            }
            Some(_) | None => {
                if entry.agents.is_empty() {
                    entry.agents = vec!["*".to_owned()];
                }
                let plain = if entry.role.is_some() { &entry.agents } else { &entry.by };
                match plain.iter().find(|name| name.ends_with('*')) {
                    Some(_) => Err("naming each of those who approve (a star stands for nobody)".to_owned()),
                    None => Ok(entry),
                }
            }
        }
    }

    fn to_value(&self) -> Value {
        let list = |names: &[String]| Value::Array(names.iter().cloned().map(Value::String).collect());
        let mut table = Table::new();
        table.insert("tenant".to_owned(), Value::String(self.tenant.clone()));
        table.insert("agents".to_owned(), list(&self.agents));
        match &self.role {
            Some(role) => {
                table.insert("role".to_owned(), Value::String(role.clone()));
            }
            None => {
                table.insert("commit".to_owned(), Value::Boolean(self.commit));
                table.insert("by".to_owned(), list(&self.by));
                for (key, names) in
                    [("delegate", &self.delegate), ("skills", &self.skills), ("hand_on", &self.hand_on)]
                {
                    table.insert(key.to_owned(), list(names));
                }
            }
        }
        Value::Table(table)
    }

    /// Whether it says nothing of what is delegated or handed on.
    fn is_general(&self) -> bool {
        self.delegate.is_empty() && self.skills.is_empty() && self.hand_on.is_empty()
    }

    /// Whether it is about what a session is opened with.
    fn speaks_of(&self, requester: &AgentId, start: &Start) -> bool {
        let others = start.participants.iter().filter(|agent| *agent != requester);
        let reaches = |names: &[String]| others.clone().any(|agent| matches(names, agent.as_str()));
        match start.mode {
            ModeKind::Handoff => reaches(&self.hand_on),
            ModeKind::Task => {
                let skill = start.contract.as_ref().map(|contract| &*contract.skill);
                reaches(&self.delegate) || skill.is_some_and(|skill| matches(&self.skills, skill))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use handover_kernel::charter::Charter;
    use handover_kernel::command::Contract;
    use handover_kernel::{Blob, Text};

    use super::*;

    const RULES: &str = r#"[
        { role = "ops", agents = ["ann", "bob"] },
        { agents = ["chief"], delegate = ["*"], hand_on = ["*"], by = [] },
        { delegate = ["mailer", "pay-*"], skills = ["refund"], commit = true, by = ["lead", "role:ops"] },
        { agents = ["intern-*"], hand_on = ["*"], by = ["lead"] },
        { tenant = "acme", commit = true, by = ["cfo"] },
    ]"#;

    fn session(mode: ModeKind, to: &[&str], skill: Option<&str>) -> Start {
        let contract = skill.map(|skill| {
            let (input, output) = (Blob::default(), Blob::default());
            Arc::new(Contract { skill: Text::from(skill), input, output })
        });
        Start {
            mode,
            participants: to.iter().map(|name| AgentId::from(*name)).collect(),
            charter: Charter::mcp(),
            mode_version: Text::default(),
            configuration_version: Text::default(),
            policy_version: Text::default(),
            ttl_ms: None,
            sent_at: None,
            intent: Text::default(),
            context_id: Text::default(),
            extension_keys: Vec::new(),
            parent: None,
            under: None,
            contract,
        }
    }

    fn asked(tenant: &str, who: &str, start: &Start) -> (Vec<String>, Vec<String>) {
        let found = Rules::parse(RULES).unwrap().of(tenant, &AgentId::from(who), start).unwrap();
        let names = |agents: Vec<AgentId>| agents.iter().map(ToString::to_string).collect();
        (names(found.opening), names(found.commitment))
    }

    #[test]
    fn the_first_rule_that_speaks_of_it_says_whom_to_ask() {
        let nobody = (Vec::new(), Vec::new());
        let all = || vec!["lead".to_owned(), "ann".to_owned(), "bob".to_owned()];
        let task = |to: &[&str]| session(ModeKind::Task, to, None);
        assert_eq!(asked("default", "planner", &task(&["worker"])), nobody);
        assert_eq!(asked("default", "planner", &task(&["worker", "pay-1"])), (all(), all()));
        let refund = session(ModeKind::Task, &["worker"], Some("refund"));
        assert_eq!(asked("default", "planner", &refund), (all(), all()));
        assert_eq!(asked("default", "chief", &task(&["mailer"])).0, Vec::<String>::new(), "needs nobody");
        assert_eq!(asked("acme", "planner", &task(&["mailer"])), (Vec::new(), vec!["cfo".to_owned()]));
        let handoff = session(ModeKind::Handoff, &["intern-1", "worker"], None);
        assert_eq!(asked("default", "intern-1", &handoff).0, ["lead"]);
        assert_eq!(asked("default", "planner", &handoff), nobody);
    }

    #[test]
    fn nobody_is_asked_about_its_own_and_somebody_must_be_left() {
        let task = session(ModeKind::Task, &["mailer"], None);
        assert_eq!(asked("default", "lead", &task).0, ["ann", "bob"]);
        let rules = Rules::parse(r#"[{ delegate = ["mailer"], by = ["lead"] }]"#).unwrap();
        assert_eq!(rules.of("default", &AgentId::from("lead"), &task), Err("its opening"));
    }

    #[test]
    fn rules_say_what_they_were_told_and_wrong_ones_what_was_expected() {
        let rules = Rules::parse(RULES).unwrap();
        assert_eq!(Rules::parse(&rules.to_value().to_string()).unwrap(), rules);
        for (text, expected) in [
            ("3", "a list of rules"),
            ("[3]", "rule 1 being a table"),
            (r#"[{ by = ["a"] }]"#, "what it is about"),
            (r#"[{ commit = true }]"#, "by whom it is approved"),
            (r#"[{ commit = 1, by = [] }]"#, "a commit that is true or false"),
            (r#"[{ commit = true, by = ["lead-*"] }]"#, "naming each of those who approve"),
            (r#"[{ commit = true, by = ["role:ops"] }]"#, "naming roles that somebody has"),
            (r#"[{ role = "ops", by = ["a"], agents = ["a"] }]"#, "as it has a role"),
            (r#"[{ role = "ops" }]"#, "who has the role"),
            (r#"[{ when = 1 }]"#, "having only tenant, agents,"),
        ] {
            let error = Rules::parse(text).unwrap_err();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }
}
