//! Who may reach whom: the operator's access list.
//!
//! A list of rules, each for some agents of one tenant. The first rule that names an agent is the one that counts for it;
//! an agent that no rule names reaches everybody of its tenant.

use toml::{Table, Value};

use crate::identity::DEFAULT_TENANT;

/// What one agent wants of another, or of the directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum To {
    /// Know that it is there, and what it can do.
    See,
    /// Give it work.
    Delegate,
    /// Let it take a responsibility over.
    HandOn,
    /// Offer a skill of this name.
    Register,
}

/// The access list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Access {
    rules: Vec<Rule>,
}

/// What some agents of a tenant may reach; what is not said is everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Rule {
    tenant: String,
    agents: Vec<String>,
    see: Option<Vec<String>>,
    delegate: Option<Vec<String>>,
    hand_on: Option<Vec<String>>,
    register: Option<Vec<String>>,
}

/// The keys of a rule, for messages.
const KEYS: &str = "tenant, agents, see, delegate, hand_on, register";

/// What a list of names expects.
const NAMES: &str = "a list of names, each of which may end with *";

impl Access {
    /// The list that an array of TOML tables says, or else what was expected.
    pub fn parse(text: &str) -> Result<Access, String> {
        let expected = || "a list of rules ([[access.rules]] in the file)".to_owned();
        let table: Table = format!("rules = {text}").parse().map_err(|_| expected())?;
        let Some(Value::Array(found)) = table.get("rules").filter(|_| table.len() == 1) else {
            return Err(expected());
        };
        let rule = |(index, value): (usize, &Value)| {
            Rule::of(value).map_err(|what| format!("{}, with rule {} {what}", expected(), index + 1))
        };
        Ok(Access { rules: found.iter().enumerate().map(rule).collect::<Result<_, _>>()? })
    }

    /// The list as TOML, which says the same list again.
    pub fn to_value(&self) -> Value {
        Value::Array(self.rules.iter().map(Rule::to_value).collect())
    }

    /// Whether an agent of a tenant may do that with the agent, or with the skill, of this name.
    pub fn allows(&self, tenant: &str, agent: &str, to: To, name: &str) -> bool {
        let rule = self.rules.iter().find(|rule| rule.tenant == tenant && matches(&rule.agents, agent));
        rule.is_none_or(|rule| rule.allows(agent, to, name))
    }

    /// Whether an agent may register at all.
    pub fn may_register(&self, tenant: &str, agent: &str) -> bool {
        let rule = self.rules.iter().find(|rule| rule.tenant == tenant && matches(&rule.agents, agent));
        rule.and_then(|rule| rule.register.as_ref()).is_none_or(|names| !names.is_empty())
    }
}

impl Rule {
    fn of(value: &Value) -> Result<Rule, String> {
        let Value::Table(table) = value else { return Err("being a table".to_owned()) };
        let mut rule = Rule { tenant: DEFAULT_TENANT.to_owned(), ..Rule::default() };
        for (key, value) in table {
            match key.as_str() {
                "tenant" => {
                    let tenant = value.as_str().filter(|tenant| !tenant.is_empty());
                    rule.tenant = tenant.ok_or("having a tenant that is a name")?.to_owned();
                }
                "agents" => rule.agents = names(key, value)?,
                "see" => rule.see = Some(names(key, value)?),
                "delegate" => rule.delegate = Some(names(key, value)?),
                "hand_on" => rule.hand_on = Some(names(key, value)?),
                "register" => rule.register = Some(names(key, value)?),
                other => return Err(format!("having only {KEYS} (it has {other:?})")),
            }
        }
        if rule.agents.is_empty() {
            return Err("saying in agents whom it is for".to_owned());
        }
        Ok(rule)
    }

    fn to_value(&self) -> Value {
        let list = |names: &[String]| Value::Array(names.iter().cloned().map(Value::String).collect());
        let mut table = Table::new();
        table.insert("tenant".to_owned(), Value::String(self.tenant.clone()));
        table.insert("agents".to_owned(), list(&self.agents));
        for (key, names) in [
            ("see", &self.see),
            ("delegate", &self.delegate),
            ("hand_on", &self.hand_on),
            ("register", &self.register),
        ] {
            if let Some(names) = names {
                table.insert(key.to_owned(), list(names));
            }
        }
        Value::Table(table)
    }

    fn allows(&self, agent: &str, to: To, name: &str) -> bool {
        let within = |names: &Option<Vec<String>>| names.as_ref().is_none_or(|names| matches(names, name));
        // Nobody is hidden from itself, and what one may not see one cannot reach.
        let sees = agent == name || within(&self.see);
        match to {
            To::See => sees,
            To::Delegate => sees && within(&self.delegate),
            To::HandOn => sees && within(&self.hand_on),
            To::Register => within(&self.register),
        }
    }
}

pub(crate) fn names(key: &str, value: &Value) -> Result<Vec<String>, String> {
    let wrong = || format!("having in {key} {NAMES}");
    let name = |value: &Value| {
        let name = value.as_str().filter(|name| !name.is_empty() && !starred(name).contains('*'));
        name.map(str::to_owned).ok_or_else(wrong)
    };
    value.as_array().ok_or_else(wrong)?.iter().map(name).collect()
}

/// A pattern without the star at its end.
fn starred(pattern: &str) -> &str {
    pattern.strip_suffix('*').unwrap_or(pattern)
}

/// Whether a name is one of these, or begins as one of these that ends with a star.
pub(crate) fn matches(patterns: &[String], name: &str) -> bool {
    patterns.iter().any(|pattern| match pattern.strip_suffix('*') {
        Some(beginning) => name.starts_with(beginning),
        None => pattern == name,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [To; 4] = [To::See, To::Delegate, To::HandOn, To::Register];

    #[test]
    fn without_a_rule_everybody_reaches_everybody() {
        let none = Access::default();
        let other_tenant = Access::parse(r#"[{ tenant = "acme", agents = ["*"], see = [] }]"#).unwrap();
        for access in [&none, &other_tenant] {
            assert!(ALL.into_iter().all(|to| access.allows(DEFAULT_TENANT, "a", to, "b")));
            assert!(access.may_register(DEFAULT_TENANT, "a"));
        }
    }

    #[test]
    fn the_first_rule_that_names_an_agent_counts() {
        let access = Access::parse(
            r#"[{ agents = ["chief"] }, { agents = ["intern-*", "guest"], delegate = ["writer-*"], register = [] },
                { agents = ["*"], see = ["team-*"] }]"#,
        )
        .unwrap();
        let allows = |agent, to, name| access.allows(DEFAULT_TENANT, agent, to, name);
        assert!(ALL.into_iter().all(|to| allows("chief", to, "anybody")));
        assert!(allows("intern-1", To::Delegate, "writer-2") && !allows("intern-1", To::Delegate, "chief"));
        assert!(allows("intern-1", To::See, "chief") && allows("intern-1", To::HandOn, "chief"));
        assert!(!allows("guest", To::Register, "any") && !access.may_register(DEFAULT_TENANT, "guest"));
        assert!(allows("worker", To::See, "team-1") && !allows("worker", To::See, "chief"));
        assert!(allows("worker", To::See, "worker"), "nobody is hidden from itself");
        assert!(!allows("worker", To::Delegate, "chief"), "what one does not see one does not reach");
        assert!(!allows("worker", To::HandOn, "chief") && allows("worker", To::Register, "dig"));
    }

    #[test]
    fn a_list_says_what_it_was_told() {
        let text =
            r#"[{ tenant = "acme", agents = ["a*"], see = [], register = ["x"] }, { agents = ["b"] }]"#;
        let access = Access::parse(text).unwrap();
        assert_eq!(Access::parse(&access.to_value().to_string()).unwrap(), access);
        assert_eq!(Access::parse("[]").unwrap(), Access::default());
    }

    #[test]
    fn a_wrong_rule_says_what_was_expected() {
        for (text, expected) in [
            ("3", "a list of rules"),
            ("[]\nother = 1", "a list of rules"),
            ("[3]", "rule 1 being a table"),
            ("[{}]", "rule 1 saying in agents whom it is for"),
            (r#"[{ agents = ["a"] }, { agents = ["*b"] }]"#, "rule 2 having in agents a list of names"),
            (r#"[{ agents = "a" }]"#, "having in agents a list of names"),
            (r#"[{ agents = ["a"], see = [""] }]"#, "having in see a list of names"),
            (r#"[{ agents = ["a"], tenant = "" }]"#, "having a tenant that is a name"),
            (r#"[{ agents = ["a"], sees = [] }]"#, "having only tenant, agents,"),
        ] {
            let error = Access::parse(text).unwrap_err();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }
}
