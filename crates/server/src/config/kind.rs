//! The kinds of values that a key can have.

use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::path::PathBuf;

use handover_desk::access::Access;
use handover_desk::approvers::Rules;
use hyper::Uri;
use toml::Value;

use super::network::Network;
use super::{Admin, AuditFile};

/// What a key may hold: how to read it, or else what was expected, and how to write it.
pub(super) struct Kind<T> {
    pub(super) parse: Box<Parse<T>>,
    pub(super) print: Box<dyn Fn(&T) -> Value>,
}

/// A text as a value, or else what was expected.
type Parse<T> = dyn Fn(&str) -> Result<T, String>;

pub(super) fn number<T>(range: RangeInclusive<u64>) -> Kind<T>
where
    T: TryFrom<u64> + TryInto<i64> + Copy,
{
    let expected = format!("a whole number from {} to {}", range.start(), range.end());
    let parse = move |text: &str| {
        let number = text.parse().ok().filter(|number| range.contains(number));
        number.and_then(|number| T::try_from(number).ok()).ok_or_else(|| expected.clone())
    };
    let print = |number: &T| {
        let number =
            (*number).try_into().ok().expect("every range in the table ends far below the greatest i64");
        Value::Integer(number)
    };
    Kind { parse: Box::new(parse), print: Box::new(print) }
}

/// A number, or `auto` to leave it to the server.
pub(super) fn auto_or(range: RangeInclusive<u64>) -> Kind<Option<u64>> {
    let number: Kind<u64> = number(range);
    let parse = move |text: &str| match text {
        "auto" => Ok(None),
        text => (number.parse)(text).map(Some).map_err(|expected| format!("{expected}, or auto")),
    };
    let print = |found: &Option<u64>| match found {
        None => Value::String("auto".to_owned()),
        Some(found) => Value::Integer(
            i64::try_from(*found).expect("every range in the table ends far below the greatest i64"),
        ),
    };
    Kind { parse: Box::new(parse), print: Box::new(print) }
}

pub(super) fn directory() -> Kind<PathBuf> {
    let parse = |text: &str| match text {
        "" => Err("the path of a directory".to_owned()),
        path => Ok(PathBuf::from(path)),
    };
    Kind {
        parse: Box::new(parse),
        print: Box::new(|path| Value::String(path.to_string_lossy().into_owned())),
    }
}

/// The path of a file, or nothing.
pub(super) fn file_or_nothing() -> Kind<Option<PathBuf>> {
    let parse = |text: &str| Ok((!text.is_empty()).then(|| PathBuf::from(text)));
    let print = |path: &Option<PathBuf>| {
        Value::String(path.as_ref().map_or_else(String::new, |path| path.to_string_lossy().into_owned()))
    };
    Kind { parse: Box::new(parse), print: Box::new(print) }
}

/// A text, or nothing.
pub(super) fn text_or_nothing() -> Kind<Option<String>> {
    let parse = |text: &str| Ok((!text.is_empty()).then(|| text.to_owned()));
    let print = |text: &Option<String>| Value::String(text.clone().unwrap_or_default());
    Kind { parse: Box::new(parse), print: Box::new(print) }
}

/// The address of an endpoint as clients know it, or nothing. They compare it character for character.
pub(super) fn endpoint_or_nothing() -> Kind<Option<String>> {
    let Kind { parse, print } = text_or_nothing();
    let parse = move |text: &str| {
        let uri = text.parse::<Uri>().ok();
        let scheme = uri.as_ref().and_then(Uri::scheme_str);
        let is_endpoint = matches!(scheme, Some("http" | "https"))
            && !text.ends_with('/')
            && !text.contains(['?', '#', '@']);
        match text.is_empty() || is_endpoint {
            true => parse(text),
            false => Err("an address such as https://agents.example.com/mcp, with nothing after the path and no / at its end".to_owned()),
        }
    };
    Kind { parse: Box::new(parse), print }
}

/// A URL that may hold a password, or nothing. What is shown of it does not.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Url(Option<String>);

impl From<&str> for Url {
    fn from(text: &str) -> Url {
        Url((!text.is_empty()).then(|| text.to_owned()))
    }
}

impl Url {
    /// All of it, the password too.
    pub fn secret(&self) -> Option<&str> {
        self.0.as_deref()
    }

    /// Whether it holds a password.
    pub fn has_password(&self) -> bool {
        self.0.as_deref().is_some_and(|url| without_password(url) != url)
    }
}

impl std::fmt::Debug for Url {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}", self.0.as_deref().map(without_password))
    }
}

/// What can be shown of a URL, also of one in which a password was not written as it should be.
fn without_password(url: &str) -> String {
    let (scheme, rest) = url.split_once("://").map_or(("", url), |(scheme, rest)| (scheme, rest));
    let (user, rest) = rest.rsplit_once('@').map_or((None, rest), |(user, rest)| (Some(user), rest));
    let user = user.and_then(|user| user.split([':', '/', '?', '@']).next());
    let (place, query) = rest.split_once('?').map_or((rest, None), |(place, query)| (place, Some(query)));
    let (hosts, path) = place.split_once('/').map_or((place, None), |(hosts, path)| (hosts, Some(path)));
    // What is no port may be the password of a user without a host.
    let is_port = |port: &str| port.bytes().all(|byte| byte.is_ascii_digit()) || port.ends_with(']');
    let host = |host: &'_ str| match host.rsplit_once(':') {
        Some((name, port)) if !is_port(port) => name.to_owned(),
        Some(_) | None => host.to_owned(),
    };
    let mut shown = if scheme.is_empty() { String::new() } else { format!("{scheme}://") };
    user.into_iter().for_each(|user| shown += &format!("{user}@"));
    shown += &hosts.split(',').map(host).collect::<Vec<_>>().join(",");
    path.into_iter().for_each(|path| shown += &format!("/{path}"));
    let query: Vec<&str> = query
        .into_iter()
        .flat_map(|query| query.split('&'))
        .filter(|part| !part.starts_with("password="))
        .collect();
    if !query.is_empty() {
        shown += &format!("?{}", query.join("&"));
    }
    shown
}

/// A URL that may hold a password, or nothing.
pub(super) fn secret_url() -> Kind<Url> {
    let parse = |text: &str| Ok(Url::from(text));
    let print = |url: &Url| Value::String(url.0.as_deref().map(without_password).unwrap_or_default());
    Kind { parse: Box::new(parse), print: Box::new(print) }
}

/// A text that is not empty.
pub(super) fn text() -> Kind<String> {
    let parse = |text: &str| match text {
        "" => Err("a text".to_owned()),
        text => Ok(text.to_owned()),
    };
    Kind { parse: Box::new(parse), print: Box::new(|text| Value::String(text.clone())) }
}

/// Any number of texts, with commas in between.
pub(super) fn texts() -> Kind<Vec<String>> {
    let parse = |text: &str| Ok(split(text).map(str::to_owned).collect());
    Kind { parse: Box::new(parse), print: Box::new(|texts: &Vec<String>| Value::String(texts.join(","))) }
}

/// Any number of host names, with commas in between.
pub(super) fn hosts() -> Kind<Vec<String>> {
    let Kind { parse, print } = texts();
    let parse = move |text: &str| {
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
        let is_name = |text: &String| text.bytes().all(fits);
        let hosts = parse(text)?;
        let expected = || "host names without scheme and port, with commas in between".to_owned();
        if hosts.iter().all(is_name) { Ok(hosts) } else { Err(expected()) }
    };
    Kind { parse: Box::new(parse), print }
}

/// Some of the choices, with commas in between.
pub(super) fn some_of<T: Copy + PartialEq + 'static>(choices: &'static [(&'static str, T)]) -> Kind<Vec<T>> {
    let one = one_of(choices);
    let parse = move |text: &str| {
        let some: Vec<T> = split(text).map(&one.parse).collect::<Result<_, _>>().unwrap_or_default();
        if !some.is_empty() {
            return Ok(some);
        }
        let names: Vec<_> = choices.iter().map(|(name, _)| *name).collect();
        Err(format!("some of {}, with commas in between", names.join(", ")))
    };
    let print = |some: &Vec<T>| {
        let names = choices.iter().filter(|(_, choice)| some.contains(choice)).map(|(name, _)| *name);
        Value::String(names.collect::<Vec<_>>().join(","))
    };
    Kind { parse: Box::new(parse), print: Box::new(print) }
}

/// The path of the audit log, or one of two words.
pub(super) fn audit_file() -> Kind<AuditFile> {
    let parse = |text: &str| match text {
        "" => Err("the path of a file, off or auto".to_owned()),
        "auto" => Ok(AuditFile::Auto),
        "off" => Ok(AuditFile::Off),
        path => Ok(AuditFile::At(PathBuf::from(path))),
    };
    let print = |file: &AuditFile| {
        Value::String(match file {
            AuditFile::Auto => "auto".to_owned(),
            AuditFile::Off => "off".to_owned(),
            AuditFile::At(path) => path.to_string_lossy().into_owned(),
        })
    };
    Kind { parse: Box::new(parse), print: Box::new(print) }
}

/// Who may reach whom.
pub(super) fn access_list() -> Kind<Access> {
    Kind { parse: Box::new(Access::parse), print: Box::new(Access::to_value) }
}

/// What needs whose approval.
pub(super) fn approval_rules() -> Kind<Rules> {
    Kind { parse: Box::new(Rules::parse), print: Box::new(Rules::to_value) }
}

fn split(text: &str) -> impl Iterator<Item = &str> {
    text.split(',').map(str::trim).filter(|part| !part.is_empty())
}

/// Where to listen. Whether others may reach it is not for the kind to say: it depends on what else is set.
pub(super) fn address() -> Kind<SocketAddr> {
    let parse = |text: &str| {
        let numeric = text.strip_prefix("localhost:").map(|port| format!("127.0.0.1:{port}"));
        let address = numeric.as_deref().unwrap_or(text).parse();
        address.map_err(|_| "an address with a port, such as 127.0.0.1:8420".to_owned())
    };
    Kind {
        parse: Box::new(parse),
        print: Box::new(|address: &SocketAddr| Value::String(address.to_string())),
    }
}

/// Where to listen, or one of two words.
pub(super) fn admin() -> Kind<Admin> {
    let Kind { parse, .. } = address();
    let parse = move |text: &str| match text {
        "auto" => Ok(Admin::Auto),
        "off" => Ok(Admin::Off),
        text => parse(text).map(Admin::At).map_err(|expected| format!("{expected}, off or auto")),
    };
    let print = |found: &Admin| {
        Value::String(match found {
            Admin::Auto => "auto".to_owned(),
            Admin::Off => "off".to_owned(),
            Admin::At(address) => address.to_string(),
        })
    };
    Kind { parse: Box::new(parse), print: Box::new(print) }
}

/// Any number of networks, with commas in between.
pub(super) fn networks() -> Kind<Vec<Network>> {
    let parse = |text: &str| {
        let networks = split(text).map(str::parse).collect::<Result<_, _>>();
        networks.map_err(|_| "addresses or networks such as 10.0.0.0/8, with commas in between".to_owned())
    };
    let print = |networks: &Vec<Network>| {
        Value::String(networks.iter().map(ToString::to_string).collect::<Vec<_>>().join(","))
    };
    Kind { parse: Box::new(parse), print: Box::new(print) }
}

/// Yes or no.
pub(super) fn switch() -> Kind<bool> {
    let parse = |text: &str| text.parse().map_err(|_| "true or false".to_owned());
    Kind { parse: Box::new(parse), print: Box::new(|on| Value::Boolean(*on)) }
}

pub(super) fn one_of<T: Copy + PartialEq + 'static>(choices: &'static [(&'static str, T)]) -> Kind<T> {
    let parse = |text: &str| {
        let choice = choices.iter().find(|(name, _)| *name == text);
        choice.map(|(_, value)| *value).ok_or_else(|| {
            let names: Vec<_> = choices.iter().map(|(name, _)| *name).collect();
            format!("one of {}", names.join(", "))
        })
    };
    let print = |value: &T| {
        let choice = choices.iter().find(|(_, choice)| choice == value);
        Value::String(choice.expect("every value was parsed from a choice").0.to_owned())
    };
    Kind { parse: Box::new(parse), print: Box::new(print) }
}
