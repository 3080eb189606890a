//! Whether the listeners may be where the configuration puts them. On an address that only this machine can reach anything is
//! allowed; on any other the server requires authentication and TLS.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::config::Config;

/// Whether only this machine can reach an address.
pub fn is_loopback(address: SocketAddr) -> bool {
    address.ip().to_canonical().is_loopback()
}

/// Whether the configuration may be served, or else what to set.
pub fn check(config: &Config) -> Result<(), String> {
    let known = config.identity.tokens.is_some() || config.identity.jwt_keys.is_some();
    let private = config.tls.certificate.is_some() || config.tls.terminated_elsewhere;
    let mut missing = Vec::new();
    if !known {
        missing.push("identity.tokens or identity.jwt_keys (to require authentication)");
    }
    if !private {
        missing.push(
            "tls.certificate and tls.key (to encrypt the traffic; or tls.terminated_elsewhere, if a proxy in front of \
             the server terminates TLS)",
        );
    }
    if let Some(address) = config.admin_address().filter(|address| !private && !is_loopback(*address)) {
        return Err(format!(
            "admin: {address} can be reached from other machines: set tls.certificate and tls.key (or \
             tls.terminated_elsewhere, if a proxy in front of the server terminates TLS); or listen on {}",
            here(address)
        ));
    }
    for (key, address) in [("http", config.http), ("macp", config.macp)] {
        if !missing.is_empty() && !is_loopback(address) {
            return Err(format!(
                "{key}: {address} can be reached from other machines: set {}; or listen on {}",
                missing.join(", and "),
                here(address)
            ));
        }
    }
    Ok(())
}

/// The same where only this machine can reach it.
fn here(address: SocketAddr) -> SocketAddr {
    match address {
        SocketAddr::V4(_) => SocketAddr::from((Ipv4Addr::LOCALHOST, address.port())),
        SocketAddr::V6(_) => SocketAddr::from((Ipv6Addr::LOCALHOST, address.port())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Admin, Config};

    /// Who is let in, how it is encrypted, and what must be set for an address that others can reach.
    fn config(http: &str, macp: &str, known: &str, tls: &str) -> Config {
        let mut config = Config::default();
        (config.http, config.macp) = (http.parse().unwrap(), macp.parse().unwrap());
        match known {
            "tokens" => config.identity.tokens = Some("tokens.toml".into()),
            "jwt" => config.identity.jwt_keys = Some("keys.json".into()),
            _ => {}
        }
        match tls {
            "here" => (config.tls.certificate, config.tls.key) = (Some("c.pem".into()), Some("k.pem".into())),
            "elsewhere" => config.tls.terminated_elsewhere = true,
            _ => {}
        }
        config
    }

    #[test]
    fn on_this_machine_anything_goes() {
        for address in ["127.0.0.1:1", "127.9.9.9:1", "[::1]:1", "[::ffff:127.0.0.1]:1"] {
            for known in ["", "tokens", "jwt"] {
                for tls in ["", "here", "elsewhere"] {
                    assert_eq!(
                        check(&config(address, address, known, tls)),
                        Ok(()),
                        "{address} {known} {tls}"
                    );
                }
            }
        }
    }

    #[test]
    fn what_others_can_reach_knows_who_comes_in_and_is_not_read_on_the_way() {
        let (identity, tls) = ("identity.tokens or identity.jwt_keys", "tls.certificate and tls.key");
        let rules: [(&str, &str, &[&str]); 9] = [
            ("", "", &[identity, tls]),
            ("", "here", &[identity]),
            ("", "elsewhere", &[identity]),
            ("tokens", "", &[tls]),
            ("jwt", "", &[tls]),
            ("tokens", "here", &[]),
            ("jwt", "here", &[]),
            ("tokens", "elsewhere", &[]),
            ("jwt", "elsewhere", &[]),
        ];
        for address in
            ["0.0.0.0:8420", "[::]:8420", "192.168.0.7:8420", "[2001:db8::7]:8420", "[::ffff:10.0.0.7]:8420"]
        {
            for (key, http, macp) in [("http", address, "127.0.0.1:1"), ("macp", "127.0.0.1:1", address)] {
                for (known, encrypted, missing) in rules {
                    let found = check(&config(http, macp, known, encrypted));
                    let case = format!("{key} {address} {known} {encrypted}: {found:?}");
                    assert_eq!(found.is_ok(), missing.is_empty(), "{case}");
                    let Err(message) = found else { continue };
                    assert!(message.starts_with(&format!("{key}: {address} can be reached")), "{case}");
                    for what in [identity, tls] {
                        assert_eq!(message.contains(what), missing.contains(&what), "{case}");
                    }
                }
            }
        }
    }

    #[test]
    fn the_operators_listener_is_on_this_machine_unless_it_is_put_elsewhere_and_encrypted() {
        let at = |address: &str, tls| {
            let mut config = config("127.0.0.1:1", "127.0.0.1:1", "", tls);
            config.admin = Admin::At(address.parse().unwrap());
            check(&config)
        };
        assert_eq!(at("127.0.0.1:8421", ""), Ok(()));
        for tls in ["here", "elsewhere"] {
            assert_eq!(at("0.0.0.0:8421", tls), Ok(()));
        }
        let message = at("0.0.0.0:8421", "").unwrap_err();
        assert!(message.starts_with("admin: 0.0.0.0:8421 can be reached"), "{message}");
        assert!(message.ends_with("; or listen on 127.0.0.1:8421"), "{message}");
        // Where HTTP is does not change where the operator's listener is by default.
        let auto = config("0.0.0.0:8420", "127.0.0.1:1", "tokens", "here").admin_address().unwrap();
        assert!(is_loopback(auto), "{auto}");
    }

    #[test]
    fn the_message_says_where_to_listen_instead() {
        let message = |address| check(&config(address, "127.0.0.1:1", "", "")).unwrap_err();
        assert!(message("0.0.0.0:8420").ends_with("; or listen on 127.0.0.1:8420"));
        assert!(message("[::]:8420").ends_with("; or listen on [::1]:8420"));
    }
}
