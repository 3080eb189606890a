//! Finding agents by words: what they are called, what they can do, what they say of it. The words of an agent are taken once,
//! when it enters the directory; a search reads nothing else.
//!
//! Every word of the query must match a word of the agent. A word that is the same counts more than one that begins so, and
//! that more than one with a typing error; where two match alike, ids and names count more than skills, and these more than
//! descriptions. What is equal is in the order of ids.

use std::collections::BTreeMap;
use std::sync::Arc;

use handover_engine::Denied;
use handover_kernel::{AgentId, Refusal};
use prost::Message;

use super::{Agent, Directory, Roll};
use crate::page;

/// How long a query may be, and how many words it may have.
pub const QUERY_BYTES_MAX: usize = 256;
/// See [`QUERY_BYTES_MAX`].
pub const QUERY_WORDS_MAX: usize = 8;

/// How many different words of an agent are searched, those of its names first, and how many letters of each.
pub const WORDS_MAX: usize = 256;
const WORD_CHARS_MAX: usize = 64;

/// How many letters a word has in which a typing error is forgiven, and in which two are.
const ONE_ERROR_CHARS: usize = 4;
const TWO_ERRORS_CHARS: usize = 8;

/// An agent that was found.
#[derive(Clone, Debug)]
pub struct Found {
    /// The agent.
    pub agent: Arc<Agent>,
    /// How well it matches: more is better, and means nothing else.
    pub score: u32,
}

/// Where a word stands, the least first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Field {
    Description,
    Skill,
    Name,
}

/// How two words match, the least first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Match {
    TwoErrors,
    OneError,
    Prefix,
    Exact,
}

/// The words of an agent: one after the other, and where each ends.
#[derive(Debug, Default)]
pub(super) struct Words {
    text: Box<str>,
    ends: Box<[(u32, Field)]>,
}

impl Words {
    pub(super) fn of(agent: &Agent) -> Words {
        let skills = || agent.skills.iter();
        let names = [&agent.id, &agent.name].into_iter().map(|text| (Field::Name, text));
        let of_skills =
            skills().flat_map(|skill| [(Field::Skill, &skill.name), (Field::Skill, &skill.title)]);
        let said = std::iter::once(&agent.description).chain(skills().map(|skill| &skill.description));
        let fields = names.chain(of_skills).chain(said.map(|text| (Field::Description, text)));
        let mut known: BTreeMap<String, Field> = BTreeMap::new();
        for (field, text) in fields {
            for word in words(text, true) {
                if known.len() >= WORDS_MAX {
                    break;
                }
                // The first place that a word has is the one that counts most.
                known.entry(word).or_insert(field);
            }
        }
        let (mut text, mut ends) = (String::new(), Vec::with_capacity(known.len()));
        for (word, field) in known {
            text += &word;
            ends.push((u32::try_from(text.len()).unwrap_or(u32::MAX), field));
        }
        Words { text: text.into(), ends: ends.into() }
    }

    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    fn iter(&self) -> impl Iterator<Item = (&str, Field)> {
        let mut begin = 0;
        self.ends.iter().map(move |(end, field)| {
            let word = &self.text[begin..*end as usize];
            begin = *end as usize;
            (word, *field)
        })
    }
}

/// The words of a query.
#[derive(Clone, Debug)]
pub(crate) struct Query(Vec<Word>);

#[derive(Clone, Debug)]
struct Word {
    text: String,
    letters: Vec<char>,
}

impl Query {
    /// What a text asks for, or else what was expected.
    pub(crate) fn parse(text: &str) -> Result<Query, Refusal> {
        if text.len() > QUERY_BYTES_MAX {
            let found = text.len();
            return Err(Refusal::invalid(format!(
                "query: expected at most {QUERY_BYTES_MAX} bytes, found {found}"
            )));
        }
        let mut found = words(text, false);
        found.sort();
        found.dedup();
        if !(1..=QUERY_WORDS_MAX).contains(&found.len()) {
            let found = found.len();
            return Err(Refusal::invalid(format!(
                "query: expected 1 to {QUERY_WORDS_MAX} words, found {found}"
            )));
        }
        let word = |text: String| Word { letters: text.chars().collect(), text };
        Ok(Query(found.into_iter().map(word).collect()))
    }

    /// How well an agent matches, if it does.
    fn score(&self, words: &Words, steps: &mut u64) -> Option<u32> {
        let best = |wanted: &Word, steps: &mut u64| {
            let matches =
                words.iter().filter_map(|(found, field)| Some((wanted.compare(found, steps)?, field)));
            matches.max().map(|(how, field)| 1 + how as u32 * 4 + field as u32)
        };
        self.0.iter().map(|wanted| best(wanted, steps)).sum()
    }
}

impl Word {
    fn compare(&self, found: &str, steps: &mut u64) -> Option<Match> {
        *steps += 1;
        if let Some(more) = found.strip_prefix(&*self.text) {
            return Some(if more.is_empty() { Match::Exact } else { Match::Prefix });
        }
        // Another number is another number.
        if self.letters.len() < ONE_ERROR_CHARS || self.letters.iter().all(|letter| letter.is_numeric()) {
            return None;
        }
        let forgiven = if self.letters.len() < TWO_ERRORS_CHARS { 1 } else { 2 };
        match errors(&self.letters, found, forgiven, steps)? {
            1 => Some(Match::OneError),
            _ => Some(Match::TwoErrors),
        }
    }
}

/// How many letters must be put in, left out, replaced or exchanged with the next to make one word of the other, if it is at
/// most this many.
fn errors(wanted: &[char], found: &str, most: usize, steps: &mut u64) -> Option<u8> {
    // A letter has at most four bytes: most words are told apart without being looked at.
    if found.len() + most < wanted.len() || found.len() > 4 * (wanted.len() + most) {
        return None;
    }
    let mut letters = ['\0'; WORD_CHARS_MAX];
    let count =
        found.chars().take(WORD_CHARS_MAX).zip(&mut letters).map(|(letter, place)| *place = letter).count();
    let found = &letters[..count];
    if found.len().abs_diff(wanted.len()) > most {
        return None;
    }
    // Three rows of the table of distances. What is further from its diagonal than is forgiven is never looked at.
    let far = most as u8 + 1;
    let mut rows = [[far; WORD_CHARS_MAX + 2]; 3];
    for (place, distance) in rows[0].iter_mut().enumerate().take(most + 1) {
        *distance = place as u8;
    }
    for one in 1..=wanted.len() {
        let (now, last, before) = (one % 3, (one + 2) % 3, (one + 1) % 3);
        let (from, to) = (one.saturating_sub(most).max(1), (one + most).min(found.len()));
        rows[now][from - 1] = if one <= most { one as u8 } else { far };
        let mut least = rows[now][from - 1];
        for other in from..=to {
            let replaced = rows[last][other - 1] + u8::from(wanted[one - 1] != found[other - 1]);
            let mut distance = replaced.min(rows[last][other] + 1).min(rows[now][other - 1] + 1);
            let pair = |at: usize| (at > 1).then(|| at - 2);
            if let (Some(first), Some(second)) = (pair(one), pair(other))
                && (wanted[first], wanted[first + 1]) == (found[second + 1], found[second])
            {
                distance = distance.min(rows[before][second] + 1);
            }
            rows[now][other] = distance.min(far);
            least = least.min(distance);
        }
        rows[now][to + 1] = far;
        *steps += 1;
        if least >= far {
            return None;
        }
    }
    let distance = rows[wanted.len() % 3][found.len()];
    (distance < far).then_some(distance)
}

/// The words of a text in lower case: what is between characters that are neither letters nor digits, and the parts of what
/// is written likeThis, and that as a whole too if it is wanted.
fn words(text: &str, with_wholes: bool) -> Vec<String> {
    let lower = |letters: &[char]| -> String {
        letters.iter().flat_map(|letter| letter.to_lowercase()).take(WORD_CHARS_MAX).collect()
    };
    let mut found = Vec::new();
    for whole in text.split(|letter: char| !letter.is_alphanumeric()).filter(|whole| !whole.is_empty()) {
        let letters: Vec<char> = whole.chars().collect();
        let mut begin = 0;
        for place in 1..letters.len() {
            let (before, here) = (letters[place - 1], letters[place]);
            let ends_acronym =
                before.is_uppercase() && letters.get(place + 1).is_some_and(|next| next.is_lowercase());
            if here.is_uppercase() && (!before.is_uppercase() || ends_acronym) {
                found.push(lower(&letters[begin..place]));
                begin = place;
            }
        }
        found.push(lower(&letters[begin..]));
        if with_wholes && begin > 0 {
            found.push(lower(&letters));
        }
    }
    found
}

/// The agents of a tenant at one moment.
pub(crate) struct Moment(Arc<Roll>);

/// What a search found, and how many steps that took.
pub(crate) type Searched = ((Vec<Found>, Option<String>), u64);

impl Directory {
    /// How many words a search looks at, and what it is over.
    pub(crate) async fn searched(&self, tenant: &str) -> Result<(usize, Moment), Denied> {
        let roll = self.roll(tenant).await?;
        Ok((roll.agents.values().map(|entry| entry.words.len()).sum(), Moment(roll)))
    }

    /// The agents that the caller sees and that match, the best first: those after a place, at most `max`, cut by bytes.
    pub(crate) fn search(
        &self,
        Moment(roll): &Moment,
        tenant: &str,
        caller: &AgentId,
        query: &Query,
        after: Option<&(u32, String)>,
        max: usize,
    ) -> Searched {
        let mut steps = 0;
        let mut found: Vec<(u32, &Arc<Agent>)> = Vec::new();
        for entry in roll.agents.values().filter(|entry| self.sees(tenant, caller, &entry.agent)) {
            found.extend(query.score(&entry.words, &mut steps).map(|score| (score, &entry.agent)));
        }
        // They are in the order of their ids by now.
        found.sort_by_key(|(score, _)| std::cmp::Reverse(*score));
        let comes_later = |(score, agent): &(u32, &Arc<Agent>)| match after {
            Some((last, id)) => score < last || (score == last && agent.id > *id),
            None => true,
        };
        let mut rest = found.into_iter().filter(comes_later);
        let found = rest.by_ref().take(max).map(|(score, agent)| Found { agent: Arc::clone(agent), score });
        let found = page::cut(found, |found| found.agent.encoded_len());
        let next = found.last().filter(|_| rest.next().is_some());
        let next = next.map(|found| page::of_rank(found.score, &found.agent.id));
        ((found, next), steps)
    }
}

#[cfg(test)]
mod tests {
    use handover_store::MemoryStore;

    use super::super::{Checked, Skill};
    use super::*;

    const TENANT: &str = "t";

    fn agent(id: &str, name: &str, description: &str, skills: &[(&str, &str)]) -> Agent {
        let skill = |(name, description): &(&str, &str)| Skill {
            name: (*name).to_owned(),
            description: (*description).to_owned(),
            ..Skill::default()
        };
        Agent {
            id: id.to_owned(),
            name: name.to_owned(),
            description: description.to_owned(),
            skills: skills.iter().map(skill).collect(),
            ..Agent::default()
        }
    }

    async fn directory(agents: impl IntoIterator<Item = Agent>) -> Directory {
        let directory = Directory::new(Arc::new(MemoryStore::new()));
        for agent in agents {
            directory.register(TENANT, Checked(agent)).await.unwrap();
        }
        directory
    }

    async fn page(
        directory: &Directory,
        caller: &str,
        query: &str,
        after: Option<&str>,
        max: usize,
    ) -> (Vec<String>, Option<String>) {
        let (query, after) = (Query::parse(query).unwrap(), page::rank(after).unwrap());
        let (_, moment) = directory.searched(TENANT).await.unwrap();
        let caller = AgentId::from(caller);
        let ((found, next), _) = directory.search(&moment, TENANT, &caller, &query, after.as_ref(), max);
        (found.into_iter().map(|found| found.agent.id.clone()).collect(), next)
    }

    async fn find(directory: &Directory, query: &str) -> Vec<String> {
        page(directory, "caller", query, None, 100).await.0
    }

    #[test]
    fn words_are_what_is_between_other_characters_and_humps() {
        let found = |text: &str| words(text, false);
        assert_eq!(found("code_review-v2 (ÜBER-Straße)"), ["code", "review", "v2", "über", "straße"]);
        assert_eq!(found("parseHTTPRequest"), ["parse", "http", "request"]);
        assert_eq!(words("codeReview x", true), ["code", "review", "codereview", "x"]);
        assert!(found(" -_/ ").is_empty());
        assert_eq!(found(&"x".repeat(300))[0].len(), WORD_CHARS_MAX);
    }

    #[test]
    fn errors_are_counted_as_people_make_them() {
        let count = |one: &str, other: &str, most| {
            let one: Vec<char> = one.chars().collect();
            errors(&one, other, most, &mut 0)
        };
        for (one, other, expected) in [
            ("translate", "translate", 0),
            ("translate", "transalte", 1),
            ("translate", "tanslate", 1),
            ("translate", "trranslate", 1),
            ("translate", "tronslate", 1),
            ("translate", "ranslatee", 2),
            ("translate", "tronslote", 2),
            ("translate", "rtanslaet", 2),
            ("grüße", "grusse", 3),
        ] {
            let within = |most| (expected <= most as u8).then_some(expected);
            for most in [1, 2, 3] {
                assert_eq!(count(one, other, most), within(most), "{one} {other} {most}");
                assert_eq!(count(other, one, most), within(most), "{other} {one} {most}");
            }
        }
        let long = "x".repeat(WORD_CHARS_MAX);
        assert_eq!(count(&long, &long, 2), Some(0));
        assert_eq!(count(&long, &long[1..], 2), Some(1));
    }

    #[tokio::test]
    async fn the_same_word_comes_before_its_beginning_and_that_before_a_typing_error() {
        let directory = directory([
            agent("a", "", "a tranlsator", &[]),
            agent("b", "", "for translators", &[]),
            agent("c", "", "a translator", &[]),
            agent("d", "", "a traaanslator", &[]),
            agent("e", "", "a trabslatpr", &[]),
            agent("f", "", "plays chess", &[]),
        ])
        .await;
        assert_eq!(find(&directory, "Translator").await, ["c", "b", "a", "d", "e"]);
        assert_eq!(find(&directory, "chess").await, ["f"]);
        assert_eq!(find(&directory, "ches").await, ["f"], "a beginning");
        assert_eq!(find(&directory, "cess").await, ["f"], "a letter is missing");
        assert!(find(&directory, "ces").await.is_empty(), "short words have no errors");
        assert!(
            find(&directory, "cest").await.is_empty(),
            "two errors are too many for a word of four letters"
        );
    }

    #[tokio::test]
    async fn names_come_before_skills_and_these_before_descriptions_and_equals_by_id() {
        let directory = directory([
            agent("a", "", "about poetry", &[]),
            agent("b", "", "", &[("poetry", "")]),
            agent("poetry", "", "", &[]),
            agent("d", "", "", &[("write", "writes poetry")]),
            agent("c", "Poetry", "", &[]),
        ])
        .await;
        assert_eq!(find(&directory, "poetry").await, ["c", "poetry", "b", "a", "d"]);
        assert_eq!(find(&directory, "poetry writes").await, ["d"], "every word must match");
        assert_eq!(find(&directory, "POETRY, poetry!").await.len(), 5);
    }

    #[tokio::test]
    async fn what_a_caller_may_not_see_changes_nothing_that_it_sees() {
        let visible = || (0..6).map(|n| agent(&format!("dig-{n}"), "", "digs", &[]));
        let hidden = (0..6).map(|n| Agent {
            visible_to: vec!["friend".to_owned()],
            ..agent(&format!("dig-{n}-hidden"), "digs", "digs", &[])
        });
        let (plain, mixed) = (directory(visible()).await, directory(visible().chain(hidden)).await);
        assert_eq!(page(&mixed, "friend", "digs", None, 100).await.0.len(), 12);
        let mut after: Option<String> = None;
        for number in 0..3 {
            let expected = page(&plain, "caller", "digs", after.as_deref(), 2).await;
            assert_eq!(page(&mixed, "caller", "digs", after.as_deref(), 2).await, expected, "{number}");
            assert_eq!((expected.0.len(), expected.1.is_some()), (2, number < 2));
            after = expected.1;
        }
    }

    #[tokio::test]
    async fn ten_thousand_agents_are_searched_page_by_page_without_a_gap_or_a_repeat() {
        let words = ["translate", "review", "summarize", "deploy", "schedule", "illustrate", "research"];
        let directory = Directory::new(Arc::new(MemoryStore::new()));
        let agents = (0..10_000_usize).map(|n| {
            let said = format!("can {} and {} things in {n}", words[n % 7], words[n / 7 % 7]);
            agent(&format!("agent-{n:05}"), &format!("Agent {n}"), &said, &[(words[n / 49 % 7], "")])
        });
        directory.show(TENANT, agents);
        let (mut all, mut after) = (Vec::new(), None);
        loop {
            let (found, next) = page(&directory, "caller", "trnslate reviews", after.as_deref(), 500).await;
            all.extend(found);
            after = next;
            if after.is_none() {
                break;
            }
        }
        let mut distinct = all.clone();
        distinct.sort();
        distinct.dedup();
        assert_eq!(distinct.len(), all.len());
        assert_eq!(page(&directory, "caller", "trnslate reviews", None, 10_000).await.0[..500], all[..500]);
        assert_eq!(page(&directory, "caller", "agent 07777", None, 10).await.0, ["agent-07777"]);
    }

    #[test]
    fn a_query_has_words_and_bounds() {
        for (query, expected) in [
            ("", "1 to 8 words, found 0"),
            (" - ", "1 to 8 words, found 0"),
            ("a b c d e f g h i", "1 to 8 words, found 9"),
            (&"x".repeat(257), "at most 256 bytes, found 257"),
        ] {
            let refused = Query::parse(query).unwrap_err().to_string();
            assert!(refused.contains(expected), "{refused}");
        }
        assert_eq!(Query::parse("a b c d e f g h a").unwrap().0.len(), 8);
    }

    #[test]
    fn an_agent_has_so_many_words_and_no_more() {
        let said: String = (0..100_000).map(|number| format!("w{number} ")).collect();
        let words = Words::of(&agent("the-id", "", &said, &[("last", "")]));
        assert_eq!(words.len(), WORDS_MAX);
        assert!(words.iter().any(|(word, _)| word == "last") && words.iter().any(|(word, _)| word == "id"));
    }
}
