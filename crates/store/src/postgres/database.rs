//! Which database it is, how to reach it, and whether it is one that can be used.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use tokio_postgres::config::Host;
use tokio_postgres::error::SqlState;
use tokio_postgres::{Config, Row};
use tokio_postgres_rustls::MakeRustlsConnect;
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::{ClientConfig, RootCertStore, crypto::aws_lc_rs};

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
            None => !config.get_hosts().iter().all(is_local),
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
    pub(super) fn refuses(&self, schema: &str, error: &tokio_postgres::Error) -> Option<Fault> {
        let (at, user) = (self.shown(), self.config.get_user().unwrap_or_default());
        let name = self.config.get_dbname().unwrap_or_default();
        let what = match error.code() {
            Some(code) if *code == SqlState::INVALID_PASSWORD => {
                format!("expected the password of {user} at {at}, found another: see store.password_file")
            }
            Some(code) if *code == SqlState::INVALID_AUTHORIZATION_SPECIFICATION => format!(
                "expected a user {user} that may log in at {at}, found: {}; see CREATE ROLE and pg_hba.conf",
                chain(error)
            ),
            Some(code) if *code == SqlState::INVALID_CATALOG_NAME => {
                format!("expected a database {name} at {at}, found none: createdb {name} makes it")
            }
            Some(code) if *code == SqlState::INSUFFICIENT_PRIVILEGE => format!(
                "expected that {user} may create the schema {schema} in {at}, found: {}; GRANT CREATE ON DATABASE {name} TO \
                 {user}, or let handover migrate be run by somebody who may",
                chain(error)
            ),
            Some(_) => return None,
            None if error.is_closed() => return None,
            None => format!("expected a PostgreSQL that answers at {at}, found: {}", chain(error)),
        };
        Some(Fault::Unfit { what })
    }
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
            name == "localhost" || name.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
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

/// What the database says of itself, for [`fit`].
pub(super) const ABOUT: &str = "SELECT current_setting('server_version_num')::int, pg_is_in_recovery(), \
     current_setting('fsync'), current_setting('full_page_writes'), current_setting('server_encoding'), \
     current_setting('synchronous_standby_names')";

/// Whether a database that says this of itself keeps what it acknowledges.
pub(super) fn fit(row: &Row) -> Result<(), Fault> {
    let (version, standby): (i32, bool) = (row.get(0), row.get(1));
    let unfit = |what: String| Err(Fault::Unfit { what });
    if version / 10_000 < OLDEST {
        return unfit(format!("expected PostgreSQL {OLDEST} or later, found {}", version / 10_000));
    }
    if standby {
        return unfit(
            "expected the primary, found a standby: name the primary, or all hosts with target_session_attrs=read-write"
                .to_owned(),
        );
    }
    for (at, setting) in [(2, "fsync"), (3, "full_page_writes")] {
        let found: &str = row.get(at);
        if found != "on" {
            return unfit(format!(
                "expected {setting} = on, found {found}: what is acknowledged would be lost when the machine stops"
            ));
        }
    }
    match row.get::<_, &str>(4) {
        "UTF8" => Ok(()),
        found => unfit(format!(
            "expected a database in UTF8, found {found}: createdb --encoding UTF8 --template template0 makes one"
        )),
    }
}

/// An error and its sources in one line.
fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let sources = std::iter::successors(Some(error), |error| error.source());
    sources.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

#[cfg(test)]
mod tests {
    use super::*;

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
    }
}
