//! Who asks, in which revision, and what it says that it can do. Every request says so anew.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;
use std::time::Duration;

use handover_kernel::Trace;
use handover_kernel::command::Command;
use handover_kernel::id::Face;
use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::json;
use serde_json::value::RawValue;

use super::message::{
    Error, ID_BYTES_MAX, MISSING_CAPABILITY, UNSUPPORTED_VERSION, is_id, object, shorten, text,
};
use handover_desk::identity::Profile;
use handover_desk::wait::WAIT_MAX;
use handover_desk::{gate, names};

use handover_client::mcp::CLI;
pub use handover_client::mcp::MODERN;

/// The handshake revisions, the newest first.
pub const HANDSHAKES: [&str; 3] = ["2025-11-25", "2025-06-18", "2025-03-26"];

/// The method that asks how a task is.
pub const POLL: &str = "tasks/get";

/// The extension of SEP-2663.
pub const TASKS: &str = "io.modelcontextprotocol/tasks";

/// Our own extension: says that tasks can be steered and paused (SEP-2669), without breaking clients that take the
/// settings of [`TASKS`] for strictly empty.
pub const INTERACTION: &str = "dev.handover/task-interaction";

/// Which rules a request follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Era {
    /// Each request stands for itself.
    Modern,
    /// The client opened with `initialize`.
    Handshake,
}

/// What the caller says that it can do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Declared {
    /// The tasks extension.
    pub tasks: bool,
    /// That a task can be steered.
    pub steer: bool,
    /// That a task can be `paused`.
    pub pause: bool,
    /// To show a form.
    pub form: bool,
    /// To send somebody to an address.
    pub url: bool,
    /// To run its model for us.
    pub sampling: bool,
    /// To list its roots.
    pub roots: bool,
}

/// How much a client wants to be told of what happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Everything.
    Debug,
    /// What an operator wants to know.
    Info,
    /// What is unusual.
    Notice,
    /// What may need somebody.
    Warning,
    /// What needs somebody.
    Error,
    /// Worse.
    Critical,
    /// Worse than that.
    Alert,
    /// Nothing works.
    Emergency,
}

const LEVELS: [(&str, Level); 8] = [
    ("debug", Level::Debug),
    ("info", Level::Info),
    ("notice", Level::Notice),
    ("warning", Level::Warning),
    ("error", Level::Error),
    ("critical", Level::Critical),
    ("alert", Level::Alert),
    ("emergency", Level::Emergency),
];

impl Level {
    /// The level of that name.
    pub fn of(name: &str) -> Option<Level> {
        LEVELS.into_iter().find(|(known, _)| *known == name).map(|(_, level)| level)
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        LEVELS.into_iter().find(|(_, level)| *level == self).map_or("info", |(name, _)| name)
    }
}

/// Everything that a handler may know of whoever asks.
#[derive(Clone, Debug)]
pub struct Caller {
    /// Whose request it is.
    pub who: gate::Caller,
    /// Which rules it follows.
    pub era: Era,
    /// What it can do.
    pub declared: Declared,
    /// Where to report progress to, as it came.
    pub progress: Option<Box<RawValue>>,
    /// The least level of log lines that it wants; none wants none.
    pub log: Option<Level>,
    /// Whether a call that it no longer waits for is taken back: not where a lost connection says nothing.
    pub takes_back: bool,
    /// What it calls this request, so that a retry has no second effect.
    pub idempotency_key: Option<Box<str>>,
    /// What it asks for beside that.
    pub wishes: Wishes,
}

/// How a caller wants to be served: the address that it asks at may say so, and a request how long it waits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wishes {
    /// How long its calls wait before they are answered with what there is.
    pub wait: Option<Duration>,
    /// Which tools it is shown.
    pub profile: Option<Profile>,
}

impl Caller {
    /// Which tools it is shown.
    pub fn profile(&self) -> Profile {
        self.wishes.profile_of(&self.who)
    }
}

impl Wishes {
    /// Which tools a caller is shown that asks for this.
    pub fn profile_of(self, who: &gate::Caller) -> Profile {
        self.profile.or(who.allowance.profile).unwrap_or_default()
    }

    /// Those of an address: `profile=requester&wait_seconds=30`. What else it says is passed over.
    pub fn of(query: Option<&str>) -> Result<Wishes, Error> {
        let mut wishes = Wishes::default();
        for (name, value) in query.unwrap_or_default().split('&').filter_map(|pair| pair.split_once('=')) {
            match name {
                "profile" => {
                    let wrong = || wrong_wish("profile", Profile::NAMES, value);
                    wishes.profile = Some(Profile::of(value).ok_or_else(wrong)?);
                }
                "wait_seconds" => {
                    let wrong = || wrong_wish("wait_seconds", "a number from 0 to 3600", value);
                    let seconds = value.parse().ok().map(Duration::from_secs);
                    let seconds = seconds.filter(|wait| *wait <= WAIT_MAX);
                    wishes.wait = Some(seconds.ok_or_else(wrong)?);
                }
                _ => {}
            }
        }
        Ok(wishes)
    }

    /// Those of an address, unless the request says otherwise.
    pub fn or_of(self, meta: &Meta<'_>) -> Wishes {
        Wishes { wait: meta.wait_ms.map(Duration::from_millis).or(self.wait), ..self }
    }
}

fn wrong_wish(name: &str, expected: &str, found: &str) -> Error {
    let found = shorten(found);
    Error::invalid(format!("expected the parameter {name} of the address to be {expected}, found {found}"))
        .status(400)
}

impl Deref for Caller {
    type Target = gate::Caller;

    fn deref(&self) -> &gate::Caller {
        &self.who
    }
}

impl Caller {
    /// A command, called as the caller calls its request.
    pub fn name(&self, command: Command) -> Command {
        match &self.idempotency_key {
            Some(key) => command.with_id(&**key),
            None => command,
        }
    }

    /// Refuses who did not declare the tasks extension.
    pub fn must_know_tasks(&self) -> Result<(), Error> {
        if self.declared.tasks {
            return Ok(());
        }
        Err(missing(&json!({ "extensions": { TASKS: {} } }), "the tasks extension"))
    }
}

/// The caller lacks a capability.
pub fn missing(required: &serde_json::Value, what: &str) -> Error {
    Error::new(MISSING_CAPABILITY, format!("the client must declare {what} for this request"))
        .data(json!({ "requiredCapabilities": required }))
        .status(400)
}

/// The revision is not spoken here.
pub fn unsupported(requested: &str) -> Error {
    // Given back as it came, unless it is nothing that any revision is called.
    let said: String = requested.chars().take(ID_BYTES_MAX).collect();
    let supported: Vec<&str> = std::iter::once(MODERN).chain(HANDSHAKES).collect();
    Error::new(UNSUPPORTED_VERSION, format!("the revision {} is not spoken here", shorten(requested)))
        .data(json!({ "supported": supported, "requested": said }))
        .status(400)
}

/// What a request says about itself.
#[derive(Debug, Default, Deserialize)]
pub struct Meta<'a> {
    /// The revision.
    #[serde(borrow, default, deserialize_with = "text", rename = "io.modelcontextprotocol/protocolVersion")]
    pub version: Option<Cow<'a, str>>,
    /// What the client can do.
    #[serde(default, deserialize_with = "object", rename = "io.modelcontextprotocol/clientCapabilities")]
    pub capabilities: Option<Capabilities>,
    /// The least level of log lines.
    #[serde(borrow, default, deserialize_with = "text", rename = "io.modelcontextprotocol/logLevel")]
    pub log_level: Option<Cow<'a, str>>,
    /// Where to report progress to.
    #[serde(borrow, default, rename = "progressToken")]
    pub progress_token: Option<&'a RawValue>,
    /// What the client calls this request.
    #[serde(borrow, default, deserialize_with = "text", rename = "dev.handover/idempotencyKey")]
    pub idempotency_key: Option<Cow<'a, str>>,
    /// How long the request waits for what it asks for.
    #[serde(default, rename = "dev.handover/waitMs")]
    pub wait_ms: Option<u64>,
    /// Which program asks.
    #[serde(borrow, default, deserialize_with = "object", rename = "io.modelcontextprotocol/clientInfo")]
    pub client: Option<Program<'a>>,
    /// The trace that the request is part of, as W3C Trace Context has it.
    #[serde(borrow, default, deserialize_with = "text")]
    pub traceparent: Option<Cow<'a, str>>,
    /// What goes with it.
    #[serde(borrow, default, deserialize_with = "text")]
    pub tracestate: Option<Cow<'a, str>>,
}

impl Meta<'_> {
    /// What the client calls this request, if it does.
    pub fn key(&self) -> Result<Option<Box<str>>, Error> {
        self.idempotency_key.as_deref().map(idempotency_key).transpose()
    }

    /// Whoever asks, as part of the trace that the request itself names, if it does.
    pub fn traces(&self, who: gate::Caller) -> gate::Caller {
        let state = self.tracestate.as_deref().unwrap_or_default();
        match self.traceparent.as_deref().and_then(|parent| Trace::new(parent, state)) {
            Some(trace) => who.traced(Some(trace)),
            None => who,
        }
    }
}

/// A program, as far as it matters here.
#[derive(Debug, Default, Deserialize)]
pub struct Program<'a> {
    #[serde(borrow, default, deserialize_with = "text")]
    name: Option<Cow<'a, str>>,
}

/// What a client can do, as far as it matters here. What has another shape than it should is not there.
#[derive(Debug, Default, Deserialize)]
pub struct Capabilities {
    #[serde(default, deserialize_with = "shaped")]
    elicitation: Option<Elicitation>,
    #[serde(default, deserialize_with = "shaped")]
    sampling: Option<Anything>,
    #[serde(default, deserialize_with = "shaped")]
    roots: Option<Anything>,
    #[serde(default, deserialize_with = "shaped")]
    extensions: Option<Extensions>,
}

/// Reads what is an object, and passes over anything else.
fn shaped<'de, T: Deserialize<'de>, D: Deserializer<'de>>(value: D) -> Result<Option<T>, D::Error> {
    struct Shape<T>(PhantomData<T>);
    impl<'de, T: Deserialize<'de>> Visitor<'de> for Shape<T> {
        type Value = Option<T>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("JSON")
        }

        fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Option<T>, A::Error> {
            T::deserialize(MapAccessDeserializer::new(map)).map(Some)
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Option<T>, A::Error> {
            while items.next_element::<IgnoredAny>()?.is_some() {}
            Ok(None)
        }

        fn visit_unit<E>(self) -> Result<Option<T>, E> {
            Ok(None)
        }

        fn visit_bool<E>(self, _: bool) -> Result<Option<T>, E> {
            Ok(None)
        }

        fn visit_i64<E>(self, _: i64) -> Result<Option<T>, E> {
            Ok(None)
        }

        fn visit_u64<E>(self, _: u64) -> Result<Option<T>, E> {
            Ok(None)
        }

        fn visit_f64<E>(self, _: f64) -> Result<Option<T>, E> {
            Ok(None)
        }

        fn visit_str<E>(self, _: &str) -> Result<Option<T>, E> {
            Ok(None)
        }
    }
    value.deserialize_any(Shape(PhantomData))
}

/// Whether it is `true`, and nothing else.
fn is_true<'de, D: Deserializer<'de>>(value: D) -> Result<bool, D::Error> {
    serde_json::Value::deserialize(value).map(|value| value == true)
}

/// What it says does not matter, only that it is there.
#[derive(Debug, Default, Deserialize)]
struct Anything {}

#[derive(Debug, Default, Deserialize)]
struct Elicitation {
    #[serde(default, deserialize_with = "shaped")]
    form: Option<Anything>,
    #[serde(default, deserialize_with = "shaped")]
    url: Option<Anything>,
}

#[derive(Debug, Default, Deserialize)]
struct Extensions {
    #[serde(default, deserialize_with = "shaped", rename = "io.modelcontextprotocol/tasks")]
    tasks: Option<TaskSettings>,
}

#[derive(Debug, Default, Deserialize)]
struct TaskSettings {
    #[serde(default, deserialize_with = "is_true")]
    steer: bool,
    #[serde(default, deserialize_with = "is_true")]
    pause: bool,
}

impl Capabilities {
    /// What they amount to. Elicitation without a mode means forms.
    pub fn declared(&self) -> Declared {
        let (form, url) = match &self.elicitation {
            None => (false, false),
            Some(modes) => (modes.form.is_some() || modes.url.is_none(), modes.url.is_some()),
        };
        let tasks = self.extensions.as_ref().and_then(|extensions| extensions.tasks.as_ref());
        Declared {
            tasks: tasks.is_some(),
            steer: tasks.is_some_and(|tasks| tasks.steer),
            pause: tasks.is_some_and(|tasks| tasks.pause),
            form,
            url,
            sampling: self.sampling.is_some(),
            roots: self.roots.is_some(),
        }
    }
}

/// What the parameters of any request may say: what it is, and what it is about.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Opening<'a> {
    #[serde(borrow, default, rename = "_meta", deserialize_with = "object")]
    meta: Option<Meta<'a>>,
    /// The tool or prompt.
    #[serde(borrow, default)]
    pub name: Option<&'a RawValue>,
    /// The resource.
    #[serde(borrow, default)]
    pub uri: Option<&'a RawValue>,
    /// The task.
    #[serde(borrow, default)]
    pub task_id: Option<&'a RawValue>,
}

impl<'a> Opening<'a> {
    /// Of a request's parameters, read once.
    pub fn of(params: Option<&'a RawValue>) -> Result<Opening<'a>, Error> {
        let Some(params) = params else { return Ok(Opening::default()) };
        serde_json::from_str(params.get()).map_err(|error| {
            Error::invalid(format!("expected _meta as the revision has it: {error}")).status(400)
        })
    }

    /// A poll, `tasks/get`, in one go with the message around it: most requests are polls. None of what is not quite in
    /// order, which is read as any other message is, and refused as such.
    pub fn of_poll(body: &'a [u8]) -> Option<(&'a RawValue, Opening<'a>)> {
        #[derive(Deserialize)]
        struct Poll<'a> {
            #[serde(borrow)]
            jsonrpc: Cow<'a, str>,
            #[serde(borrow)]
            id: &'a RawValue,
            #[serde(borrow)]
            method: Cow<'a, str>,
            #[serde(borrow, deserialize_with = "object")]
            params: Option<Opening<'a>>,
        }
        let text = str::from_utf8(body).ok().filter(|text| text.starts_with('{'))?;
        let Poll { jsonrpc, id, method, params } = serde_json::from_str(text).ok()?;
        let said = params.filter(|said| said.task_id.is_some_and(|task| task.get().starts_with('"')))?;
        (jsonrpc == "2.0" && method == POLL && is_id(id)).then_some((id, said))
    }

    /// What a request of this method is about, if it says so in text: what is called or read, or the task.
    pub fn about(&self, method: &str) -> Option<Cow<'a, str>> {
        let value = match method {
            "tools/call" | "prompts/get" => self.name,
            "resources/read" => self.uri,
            _ => self.task_id,
        }?;
        let plain = serde_json::from_str::<&str>(value.get()).map(Cow::Borrowed);
        // One with escapes is not there as it is meant.
        plain.or_else(|_| serde_json::from_str::<String>(value.get()).map(Cow::Owned)).ok()
    }

    /// What the request says of itself.
    pub fn meta(&mut self) -> Meta<'a> {
        self.meta.take().unwrap_or_default()
    }
}

/// The `_meta` of a request's parameters.
pub fn meta_of(params: Option<&RawValue>) -> Result<Meta<'_>, Error> {
    Ok(Opening::of(params)?.meta())
}

/// Which rules a request follows: who names the stateless revision in its `_meta`, or in the header where there is one,
/// follows that. Everything else that the header may say is a handshake revision, or none that is spoken here.
pub fn era(method: &str, meta: &Meta<'_>, header: Option<&str>) -> Result<Era, Error> {
    match (&meta.version, header) {
        (Some(_), _) => Ok(Era::Modern),
        (None, _) if method == "initialize" => Ok(Era::Handshake),
        (None, Some(MODERN)) => Ok(Era::Modern),
        (None, Some(known)) if HANDSHAKES.contains(&known) => Ok(Era::Handshake),
        (None, Some(unknown)) => Err(unsupported(unknown)),
        // Clients of before 2025-06-18 send no header.
        (None, None) if method == "server/discover" => Ok(Era::Modern),
        (None, None) => Ok(Era::Handshake),
    }
}

/// What a stateless request must say of itself, and what it may.
pub fn modern(who: gate::Caller, meta: Meta<'_>, wishes: Wishes) -> Result<Caller, Error> {
    let lacks =
        |what: &str| Error::invalid(format!("expected io.modelcontextprotocol/{what} in _meta")).status(400);
    let version = meta.version.as_deref().ok_or_else(|| lacks("protocolVersion"))?;
    if version != MODERN {
        return Err(unsupported(version));
    }
    let capabilities = meta.capabilities.as_ref().ok_or_else(|| lacks("clientCapabilities"))?;
    let log = meta.log_level.as_deref().map(super::handshake::level).transpose()?;
    // A badge in timelines, which says nothing of what it may do.
    let is_cli = meta.client.as_ref().is_some_and(|client| client.name.as_deref() == Some(CLI));
    let who = gate::Caller { face: if is_cli { Face::Cli } else { who.face }, ..who };
    Ok(Caller {
        who,
        era: Era::Modern,
        declared: capabilities.declared(),
        progress: progress_token(meta.progress_token)?,
        log,
        takes_back: true,
        idempotency_key: meta.key()?,
        wishes: wishes.or_of(&meta),
    })
}

/// What a client may call its request: it is kept with what the request did.
fn idempotency_key(key: &str) -> Result<Box<str>, Error> {
    let what = "a dev.handover/idempotencyKey";
    names::check(what, key).map_err(|refusal| Error::invalid(refusal.to_string()).status(400))?;
    Ok(Box::from(key))
}

/// A progress token is a string or an integer.
pub fn progress_token(token: Option<&RawValue>) -> Result<Option<Box<RawValue>>, Error> {
    match token {
        Some(token) if is_id(token) => Ok(Some(token.to_owned())),
        Some(_) => Err(Error::invalid(format!(
            "expected a progressToken that is a string or an integer of at most {ID_BYTES_MAX} bytes"
        ))),
        None => Ok(None),
    }
}

impl Declared {
    /// The capabilities that an initialized client keeps, as its session id carries them.
    pub fn letters(self) -> String {
        [(self.form, 'f'), (self.url, 'u'), (self.sampling, 's'), (self.roots, 'r')]
            .into_iter()
            .filter_map(|(declared, letter)| declared.then_some(letter))
            .collect()
    }

    /// The other way round. The tasks extension is never among them: it is no part of the handshake revisions.
    pub fn from_letters(letters: &str) -> Declared {
        let has = |letter| letters.contains(letter);
        Declared { form: has('f'), url: has('u'), sampling: has('s'), roots: has('r'), ..Declared::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn declared(capabilities: &str) -> Declared {
        serde_json::from_str::<Capabilities>(capabilities).unwrap().declared()
    }

    #[test]
    fn elicitation_without_a_mode_means_forms() {
        let modes = |text: &str| {
            let declared = declared(text);
            (declared.form, declared.url)
        };
        assert_eq!(modes("{}"), (false, false));
        assert_eq!(modes(r#"{"elicitation":{}}"#), (true, false));
        assert_eq!(modes(r#"{"elicitation":{"form":{}}}"#), (true, false));
        assert_eq!(modes(r#"{"elicitation":{"url":{}}}"#), (false, true));
        assert_eq!(modes(r#"{"elicitation":{"url":{},"form":{}}}"#), (true, true));
    }

    #[test]
    fn a_capability_of_another_shape_is_not_there() {
        for odd in ["true", "7", "-1.5", "\"yes\"", "[{}]", "null"] {
            let text = format!(
                r#"{{"elicitation":{odd},"sampling":{odd},"roots":{{}},"extensions":{{"{TASKS}":{odd},"x":{odd}}}}}"#
            );
            assert_eq!(declared(&text), Declared { roots: true, ..Declared::default() }, "{text}");
            let steer = odd == "true";
            let text = format!(r#"{{"extensions":{{"{TASKS}":{{"steer":{odd}}}}}}}"#);
            assert_eq!(declared(&text), Declared { tasks: true, steer, ..Declared::default() }, "{text}");
        }
    }

    #[test]
    fn an_address_can_say_how_its_callers_are_served() {
        let of = |query| Wishes::of(query).map_err(|error| error.message.into_owned());
        let seconds = |wait| Some(Duration::from_secs(wait));
        let both = Wishes { wait: seconds(30), profile: Some(Profile::Worker) };
        for (query, expected) in [
            (None, Wishes::default()),
            (Some("x=1&&profile"), Wishes::default()),
            (Some("profile=worker&wait_seconds=30"), both),
            (Some("wait_seconds=0"), Wishes { wait: seconds(0), profile: None }),
        ] {
            assert_eq!(of(query), Ok(expected), "{query:?}");
        }
        for (query, expected) in [
            (
                "profile=boss",
                "expected the parameter profile of the address to be all, requester, worker or conversation",
            ),
            ("wait_seconds=3601", "to be a number from 0 to 3600, found \"3601\""),
            ("wait_seconds=", "to be a number"),
        ] {
            let said = of(Some(query)).unwrap_err();
            assert!(said.contains(expected), "{said}");
        }
        let meta = Meta { wait_ms: Some(5), ..Meta::default() };
        assert_eq!(both.or_of(&meta).wait, Some(Duration::from_millis(5)), "a request says it last");
    }

    #[test]
    fn a_poll_is_read_in_one_go_and_anything_else_is_not() {
        let poll =
            |params: &str| format!(r#"{{"jsonrpc":"2.0","id":7,"method":"tasks/get","params":{params}}}"#);
        let plain = poll(r#"{"taskId":"t-1","_meta":{"traceparent":"x"},"more":[{}]}"#);
        let (id, mut said) = Opening::of_poll(plain.as_bytes()).unwrap();
        assert_eq!((id.get(), said.about(POLL).as_deref()), ("7", Some("t-1")));
        assert_eq!(said.meta().traceparent.as_deref(), Some("x"));
        let escaped = poll(r#"{"taskId":"t\u002d1"}"#);
        let (_, said) = Opening::of_poll(escaped.as_bytes()).unwrap();
        assert_eq!(said.about(POLL).as_deref(), Some("t-1"));
        for other in [
            poll("{}"),
            poll("null"),
            poll(r#"{"taskId":1}"#),
            poll(r#"{"taskId":"a","taskId":"b"}"#),
            poll(r#"{"taskId":"a","_meta":[]}"#),
            poll(r#"[null,null,null,"a"]"#),
            plain.replace("2.0", "1.0"),
            plain.replace(":7", ":null"),
            plain.replace(":7", ":1.5"),
            plain.replace("tasks/get", "tasks/cancel"),
            plain.replace(r#""id":7,"#, ""),
            format!("{plain} x"),
            r#"["2.0",7,"tasks/get",{"taskId":"a"}]"#.to_owned(),
        ] {
            assert!(Opening::of_poll(other.as_bytes()).is_none(), "{other}");
        }
        assert!(Opening::of_poll(&[plain.as_bytes(), b"\xff"].concat()).is_none());
    }

    #[test]
    fn g10_the_older_tasks_capability_declares_nothing() {
        assert!(!declared(r#"{"tasks":{"requests":{"tools":{"call":{}}}}}"#).tasks);
        assert!(declared(r#"{"extensions":{"io.modelcontextprotocol/tasks":{}}}"#).tasks);
    }

    #[test]
    fn steer_and_pause_are_declared_inside_the_extension() {
        let both =
            declared(r#"{"extensions":{"io.modelcontextprotocol/tasks":{"steer":true,"pause":true}}}"#);
        assert!(both.tasks && both.steer && both.pause);
        let base = declared(r#"{"extensions":{"io.modelcontextprotocol/tasks":{}}}"#);
        assert!(base.tasks && !base.steer && !base.pause);
    }

    #[test]
    fn what_a_session_id_carries_comes_back() {
        let declared =
            declared(r#"{"elicitation":{},"sampling":{},"extensions":{"io.modelcontextprotocol/tasks":{}}}"#);
        let back = Declared::from_letters(&declared.letters());
        assert_eq!(back, Declared { tasks: false, ..declared });
    }
}
