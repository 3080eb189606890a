//! Which database it is, how to reach it, and whether it is one that can be used.

use std::fmt;
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;

use tokio_postgres::config::Host;
use tokio_postgres::error::{DbError, SqlState};
use tokio_postgres::{Config, Row};
use tokio_postgres_rustls::MakeRustlsConnect;
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::{ClientConfig, RootCertStore, crypto::aws_lc_rs};

use super::link::{Error, chain, is_standby};
use super::unexpected;
use crate::fault::Fault;

/// The oldest release of PostgreSQL that will do.
const OLDEST: i32 = 15;

const EXAMPLE: &str = "postgres://user@host/database";

/// Where the database is, who we are there, and how to be sure that it is the one.
#[derive(Clone)]
pub struct Database {
    pub(super) config: Config,
    pub(super) tls: Option<MakeRustlsConnect>,
}

impl fmt::Debug for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown())
    }
}

impl Database {
    /// The database at a URL. Certificates are checked against those in the file `ca`, or those that the machine trusts; on
    /// this machine none is asked for. Says what was expected if the URL is none; the URL itself is a secret.
    pub fn read(url: &str, password: Option<&str>, ca: Option<&Path>) -> Result<Database, String> {
        if !["postgres://", "postgresql://"].iter().any(|scheme| url.starts_with(scheme)) {
            let found = url.split_once("://").map_or("none", |(scheme, _)| scheme);
            return Err(format!("expected a URL such as {EXAMPLE}, found the scheme {found:?}"));
        }
        if !is_delimited(url) {
            return Err(format!(
                "expected a URL such as {EXAMPLE}, with @, :, /, ? and # in a user or a password as %40, %3A, %2F, %3F and %23, \
                 found one of them as it is"
            ));
        }
        let (url, mode) = take_mode(url);
        let mut config: Config = url.parse().map_err(|error: tokio_postgres::Error| {
            format!("expected a URL such as {EXAMPLE}, found: {}", chain(&error))
        })?;
        if config.get_user().is_none() || config.get_dbname().is_none() || config.get_hosts().is_empty() {
            return Err(format!("expected a user, a host and a database, as in {EXAMPLE}, found fewer"));
        }
        if let Some(password) = password {
            config.password(password);
        }
        let checked = match mode.as_deref() {
            None => {
                !(config.get_hosts().iter().all(is_local)
                    && config.get_hostaddrs().iter().all(IpAddr::is_loopback))
            }
            Some("verify-full") => true,
            Some("disable") => false,
            Some(mode) => {
                return Err(format!(
                    "expected sslmode=verify-full, or sslmode=disable for a network that nobody else is on, found sslmode={mode}"
                ));
            }
        };
        let tls = match checked {
            true => {
                config.ssl_mode(tokio_postgres::config::SslMode::Require);
                Some(MakeRustlsConnect::new(certificates(ca)?))
            }
            false => {
                config.ssl_mode(tokio_postgres::config::SslMode::Disable);
                None
            }
        };
        Ok(Database { config, tls })
    }

    /// What it is called where others see it: without user and password.
    pub fn shown(&self) -> String {
        let ports = self.config.get_ports();
        let port = |index: usize| ports.get(index).or(ports.first()).filter(|port| **port != 5432);
        let hosts: Vec<String> = (0..)
            .zip(self.config.get_hosts())
            .map(|(index, host)| {
                let name = match host {
                    Host::Tcp(name) => name.clone(),
                    Host::Unix(path) => path.display().to_string(),
                };
                port(index).map_or_else(|| name.clone(), |port| format!("{name}:{port}"))
            })
            .collect();
        format!("postgres://{}/{}", hosts.join(","), self.config.get_dbname().unwrap_or_default())
    }

    /// Why it cannot be used, in one line with what helps, if that is clear.
    pub(super) fn refuses(&self, schema: &str, error: &Error) -> Option<Fault> {
        let what = match error {
            Error::Database(error) => match error.as_db_error() {
                Some(said) => self.says_no(schema, said)?,
                None if error.is_closed() => return None,
                None => self.is_not_reached(error),
            },
            Error::Silent(_) => {
                format!("expected a PostgreSQL that answers at {}, found {error}", self.shown())
            }
            Error::Warned | Error::Left => return None,
        };
        Some(Fault::Unfit { what })
    }

    /// What it refused, if it is clear what helps.
    fn says_no(&self, schema: &str, error: &DbError) -> Option<String> {
        let (at, user) = (self.shown(), self.config.get_user().unwrap_or_default());
        let name = self.config.get_dbname().unwrap_or_default();
        let found = error.message();
        Some(match *error.code() {
            SqlState::INVALID_PASSWORD => {
                format!("expected the password of {user} at {at}, found another: see store.password_file")
            }
            SqlState::INVALID_AUTHORIZATION_SPECIFICATION => format!(
                "expected a user {user} that may log in at {at}, found: {found}; see CREATE ROLE and pg_hba.conf"
            ),
            SqlState::INVALID_CATALOG_NAME => {
                format!("expected a database {name} at {at}, found none: createdb {name} makes it")
            }
            SqlState::INSUFFICIENT_PRIVILEGE if found.contains("for database") => format!(
                "expected that {user} may create the schema {schema} in {at}, found: {found}; GRANT CREATE ON DATABASE {name} TO \
                 {user}, or let handover migrate be run by somebody who may"
            ),
            SqlState::INSUFFICIENT_PRIVILEGE => format!(
                "expected that {user} may use the schema {schema} in {at} and what is in it, found: {found}; GRANT USAGE ON SCHEMA \
                 {schema}, and all on its tables and sequences, TO {user}"
            ),
            _ => return None,
        })
    }

    /// Why there is no connection.
    fn is_not_reached(&self, error: &tokio_postgres::Error) -> String {
        let (at, user) = (self.shown(), self.config.get_user().unwrap_or_default());
        let found = chain(error);
        if is_standby(error) {
            return format!("expected the primary at {at}, found a standby: name the primary, or all hosts");
        }
        if found.ends_with("password missing") {
            return format!("expected a password for {user} at {at}, found none: see store.password_file");
        }
        if found.ends_with("server does not support TLS") {
            return format!(
                "expected that {at} speaks TLS, found that it does not: set ssl = on there, or sslmode=disable for a network that \
                 nobody else is on"
            );
        }
        if found.contains("certificate") {
            return format!(
                "expected a certificate of {at} that can be trusted, found: {found}; see store.ca"
            );
        }
        format!("expected a PostgreSQL that answers at {at}, found: {found}")
    }
}

/// Whether it is clear where user and password end: otherwise a part of them would be taken for a host, and shown.
fn is_delimited(url: &str) -> bool {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let place = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let (user, _) = place.split_once('@').unwrap_or_default();
    rest.matches('@').count() == place.matches('@').count().min(1) && user.matches(':').count() <= 1
}

/// A URL without its `sslmode`, and that.
fn take_mode(url: &str) -> (String, Option<String>) {
    let Some((url, query)) = url.split_once('?') else { return (url.to_owned(), None) };
    let mut mode = None;
    let rest: Vec<&str> = query
        .split('&')
        .filter(|part| match part.strip_prefix("sslmode=") {
            Some(found) => {
                mode = Some(found.to_owned());
                false
            }
            None => true,
        })
        .collect();
    let query = if rest.is_empty() { String::new() } else { format!("?{}", rest.join("&")) };
    (format!("{url}{query}"), mode)
}

fn is_local(host: &Host) -> bool {
    match host {
        Host::Unix(_) => true,
        Host::Tcp(name) => {
            name == "localhost" || name.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
        }
    }
}

/// What the database's certificate is checked against.
fn certificates(ca: Option<&Path>) -> Result<ClientConfig, String> {
    let mut roots = RootCertStore::empty();
    match ca {
        Some(path) => {
            let found = |what: String| {
                format!("store.ca: expected certificates in PEM in {}, found: {what}", path.display())
            };
            let all = CertificateDer::pem_file_iter(path).map_err(|error| found(error.to_string()))?;
            for certificate in all {
                let certificate = certificate.map_err(|error| found(error.to_string()))?;
                roots.add(certificate).map_err(|error| found(error.to_string()))?;
            }
            if roots.is_empty() {
                return Err(found("none".to_owned()));
            }
        }
        None => {
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        }
    }
    ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())
        .map(|builder| builder.with_root_certificates(roots).with_no_client_auth())
}

/// What the database is asked about itself, for [`About`].
pub(super) const ABOUT: &str = "SELECT current_setting('server_version_num')::int, pg_is_in_recovery(), \
     current_setting('fsync'), current_setting('full_page_writes'), current_setting('server_encoding'), \
     current_setting('synchronous_commit'), current_setting('synchronous_standby_names')";

/// What the database says of itself.
#[derive(Clone, Debug)]
pub(super) struct About {
    version: i32,
    is_standby: bool,
    fsync: String,
    full_page_writes: String,
    encoding: String,
    synchronous_commit: String,
    synchronous_standbys: String,
}

impl About {
    /// What it answered to [`ABOUT`].
    pub(super) fn read(row: &Row) -> Result<About, Fault> {
        let text = |at| row.try_get::<_, String>(at).map_err(unexpected);
        Ok(About {
            version: row.try_get(0).map_err(unexpected)?,
            is_standby: row.try_get(1).map_err(unexpected)?,
            fsync: text(2)?,
            full_page_writes: text(3)?,
            encoding: text(4)?,
            synchronous_commit: text(5)?,
            synchronous_standbys: text(6)?,
        })
    }

    /// Whether a database that says this keeps what it acknowledges.
    pub(super) fn fits(&self) -> Result<(), Fault> {
        let unfit = |what: String| Err(Fault::Unfit { what });
        let version = self.version / 10_000;
        if version < OLDEST {
            return unfit(format!("expected PostgreSQL {OLDEST} or later, found {version}: upgrade it"));
        }
        if self.is_standby {
            return unfit("expected the primary, found a standby: name the primary, or all hosts".to_owned());
        }
        for (setting, found) in [("fsync", &self.fsync), ("full_page_writes", &self.full_page_writes)] {
            if found != "on" {
                return unfit(format!(
                    "expected {setting} = on, found {found}: what is acknowledged would be lost when the machine stops"
                ));
            }
        }
        if self.synchronous_commit == "off" {
            return unfit(
                "expected synchronous_commit = on, found off, for the server, the database or the user: what is acknowledged would \
                 be lost when the server is killed"
                    .to_owned(),
            );
        }
        if self.encoding != "UTF8" {
            return unfit(format!(
                "expected a database in UTF8, found {}: createdb --encoding UTF8 --template template0 makes one",
                self.encoding
            ));
        }
        Ok(())
    }

    /// Whether a standby has what is acknowledged.
    pub(super) fn is_synchronous(&self) -> bool {
        !self.synchronous_standbys.is_empty() && self.synchronous_commit != "local"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One that will do.
    fn sound() -> About {
        About {
            version: 150_004,
            is_standby: false,
            fsync: "on".to_owned(),
            full_page_writes: "on".to_owned(),
            encoding: "UTF8".to_owned(),
            synchronous_commit: "on".to_owned(),
            synchronous_standbys: String::new(),
        }
    }

    #[test]
    fn a_database_that_would_lose_what_it_acknowledges_is_refused_in_one_line() {
        sound().fits().expect("it will do");
        type Spoil = fn(&mut About);
        let spoilt: [(Spoil, &str, &str); 7] = [
            (|about| about.version = 149_999, "PostgreSQL 15 or later, found 14", "upgrade"),
            (|about| about.is_standby = true, "the primary, found a standby", "all hosts"),
            (|about| about.fsync = "off".to_owned(), "fsync = on, found off", "lost"),
            (|about| about.full_page_writes = "off".to_owned(), "full_page_writes = on, found off", "lost"),
            (
                |about| about.synchronous_commit = "off".to_owned(),
                "synchronous_commit = on, found off",
                "lost",
            ),
            (|about| about.encoding = "SQL_ASCII".to_owned(), "UTF8, found SQL_ASCII", "createdb"),
            (|about| about.encoding = "LATIN1".to_owned(), "UTF8, found LATIN1", "template0"),
        ];
        for (spoil, found, helps) in spoilt {
            let mut about = sound();
            spoil(&mut about);
            let fault = about.fits().expect_err("it will not do");
            let what = fault.to_string();
            assert!(matches!(fault, Fault::Unfit { .. }) && what.starts_with("expected "), "{what}");
            assert!(what.contains(found) && what.contains(helps) && !what.contains('\n'), "{what}");
        }
    }

    #[test]
    fn a_standby_has_what_is_acknowledged_if_commits_wait_for_it() {
        let synchronous = |commit: &str, standbys: &str| {
            let (synchronous_commit, synchronous_standbys) = (commit.to_owned(), standbys.to_owned());
            About { synchronous_commit, synchronous_standbys, ..sound() }.is_synchronous()
        };
        for commit in ["on", "remote_apply", "remote_write"] {
            assert!(synchronous(commit, "*") && !synchronous(commit, ""), "{commit}");
        }
        assert!(!synchronous("local", "*"));
    }

    fn refused(url: &str) -> String {
        Database::read(url, None, None).expect_err("it cannot be used")
    }

    #[test]
    fn what_is_no_url_says_so_without_its_secrets() {
        for url in [
            "mysql://u:hunter2@h/d",
            "u:hunter2@h/d",
            "postgres://u:hunter2@h:port/d",
            "postgres://u:hunter2@/d",
            "postgres://h/d?password=hunter2",
            "postgres://u:hunter2@h/d?sslmode=require",
            "postgres://u:hunter2@h/d?colour=hunter2",
            "postgres://u:hun?hunter2@h/d",
            "postgres://u:hun/hunter2@h/d",
            "postgres://u:hun@hunter2@h/d",
            "postgres://u:hun:hunter2@h/d",
            "postgres://u:hun#hunter2@h/d",
        ] {
            let what = refused(url);
            assert!(what.starts_with("expected ") && what.contains("found"), "{what}");
            assert!(!what.contains("hunter2"), "{what}");
        }
    }

    #[test]
    fn a_certificate_is_asked_for_unless_the_host_is_local_or_somebody_says_otherwise() {
        let is_checked = |url: &str| {
            let database = Database::read(url, Some("hunter2"), None).expect("a URL");
            assert!(!format!("{database:?}").contains("hunter2"));
            (database.tls.is_some(), database.shown())
        };
        let local = "postgres://u@localhost/d";
        assert_eq!(is_checked(local), (false, local.replace("u@", "")));
        assert!(!is_checked("postgres://u@127.0.0.1:5433/d").0);
        assert!(is_checked("postgres://u@localhost/d?sslmode=verify-full").0);
        let far = "postgres://u:secret@db.example.com:6000/d";
        assert_eq!(is_checked(far), (true, "postgres://db.example.com:6000/d".to_owned()));
        assert!(!is_checked("postgres://u@db.example.com/d?sslmode=disable&connect_timeout=3").0);
        assert!(is_checked("postgres://u@localhost,db.example.com/d").0);
        assert!(is_checked("postgres://u@localhost/d?hostaddr=192.0.2.1").0);
        assert!(!is_checked("postgres://u@localhost/d?hostaddr=127.0.0.1").0);
    }
}
