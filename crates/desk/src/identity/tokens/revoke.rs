//! Revoking tokens in the text of their file, with everything else in it left as it is.

use super::{Entries, Malformed, parse, parse_list};
use crate::id;

/// Which tokens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Which {
    /// All of an agent.
    Of {
        /// The agent.
        agent: String,
        /// Its tenant.
        tenant: String,
    },
    /// The one whose hash begins with these digits.
    Hash(String),
}

/// The text with these tokens revoked, and how many that are; those that were revoked before do not count.
pub fn revoke(text: &str, which: &Which) -> Result<(String, usize), Malformed> {
    let list = parse_list(text)?;
    let matches = |hash: &[u8; 32], entry: &super::Entry| match which {
        Which::Of { agent, tenant } => {
            entry.principal.agent.as_str() == agent && *entry.principal.tenant == **tenant
        }
        Which::Hash(digits) => id::digits(hash).starts_with(&digits.to_ascii_lowercase()),
    };
    let found: Vec<usize> = (0..list.len()).filter(|at| matches(&list[*at].0, &list[*at].1)).collect();
    if found.is_empty() {
        let what = match which {
            Which::Of { agent, tenant } => format!("a token of {agent:?} in the tenant {tenant:?}"),
            Which::Hash(digits) => format!("a token whose sha256 begins with {digits:?}"),
        };
        return Err(Malformed(format!("expected {what}, found none")));
    }
    if matches!(which, Which::Hash(_)) && found.len() > 1 {
        let count = found.len();
        return Err(Malformed(format!("expected more digits of sha256: {count} tokens begin with these")));
    }
    let wanted: Vec<usize> = found.into_iter().filter(|at| !list[*at].1.revoked).collect();
    let new = with_revoked(text, &wanted);
    // What the text looks like is the writer's business: take nothing for granted.
    let mut expected: Entries = list.iter().cloned().collect();
    for at in &wanted {
        if let Some(entry) = expected.get_mut(&list[*at].0) {
            entry.revoked = true;
        }
    }
    if parse(&new).ok().as_ref() != Some(&expected) {
        let by_hand =
            "expected each entry under a line [[token]] without a revoked of its own: edit the file by hand";
        return Err(Malformed(by_hand.to_owned()));
    }
    Ok((new, wanted.len()))
}

/// The text with a line more under the headers of these entries.
fn with_revoked(text: &str, wanted: &[usize]) -> String {
    let mut new = String::with_capacity(text.len() + wanted.len() * 16);
    let mut entries = 0;
    for line in text.split_inclusive('\n') {
        new += line;
        let bare: String = line.split('#').next().unwrap_or_default().split_whitespace().collect();
        if bare == "[[token]]" {
            if wanted.contains(&entries) {
                new += if line.ends_with('\n') { "revoked = true\n" } else { "\nrevoked = true\n" };
            }
            entries += 1;
        }
    }
    new
}

#[cfg(test)]
mod tests {
    use super::super::{Tokens, hash_text};
    use super::*;
    use handover_kernel::Timestamp;

    fn file() -> String {
        let entry = |token: &str, agent: &str| {
            format!("[[token]] # {token}\nsha256 = \"{}\"\nagent = \"{agent}\"\n", hash_text(token))
        };
        format!(
            "# ours\n{}\n{}{}",
            entry("one", "planner"),
            entry("two", "planner"),
            entry("three", "worker")
        )
    }

    fn of(agent: &str) -> Which {
        Which::Of { agent: agent.to_owned(), tenant: "default".to_owned() }
    }

    #[test]
    fn all_tokens_of_an_agent_or_one_by_its_hash_and_nothing_else_changes() {
        let (new, count) = revoke(&file(), &of("planner")).unwrap();
        let tokens = Tokens::parse(&new).unwrap();
        let standing = |token: &str| tokens.find(token, Timestamp(0)).map(|_| ());
        assert_eq!((count, standing("one")), (2, Err("the token was revoked")));
        assert_eq!((standing("two"), standing("three")), (Err("the token was revoked"), Ok(())));
        assert_eq!(new.replace("revoked = true\n", ""), file());
        let digits = hash_text("three")[..8].to_uppercase();
        let (new, count) = revoke(&new, &Which::Hash(digits)).unwrap();
        assert_eq!((count, new.matches("revoked = true").count()), (1, 3));
        assert_eq!(revoke(&new, &of("worker")), Ok((new.clone(), 0)), "once is enough");
    }

    #[test]
    fn what_cannot_be_done_says_so() {
        let cases = [
            (file(), of("nobody"), "expected a token of \"nobody\" in the tenant \"default\", found none"),
            (
                file(),
                Which::Hash("zz".to_owned()),
                "expected a token whose sha256 begins with \"zz\", found none",
            ),
            (file(), Which::Hash(String::new()), "expected more digits of sha256: 3 tokens begin with these"),
            (
                file().replace("agent = \"worker\"", "agent = \"worker\"\nrevoked = false"),
                of("worker"),
                "edit the file by hand",
            ),
            (
                format!("token = [{{ sha256 = \"{}\", agent = \"a\" }}]", hash_text("x")),
                of("a"),
                "edit the file by hand",
            ),
            ("token = 1".to_owned(), of("a"), "expected only [[token]] entries"),
        ];
        for (text, which, expected) in cases {
            let error = revoke(&text, &which).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }
}
