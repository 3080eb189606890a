use super::*;

fn flags(given: &[(&'static str, &str)]) -> Sources {
    let flags = given.iter().map(|(key, text)| (*key, (*text).to_owned())).collect();
    Sources { flags, ..Sources::default() }
}

fn environment(given: &[(&str, &str)]) -> Sources {
    let environment = given.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect();
    Sources { environment, ..Sources::default() }
}

fn file(text: &str) -> Sources {
    Sources { file: Some(File { path: "handover.toml".into(), text: text.into() }), ..Sources::default() }
}

fn refused(sources: &Sources) -> String {
    load(sources).unwrap_err().to_string()
}

#[test]
fn nothing_given_means_the_defaults() {
    let config = Config::default();
    assert_eq!(config.data, PathBuf::from("./handover-data"));
    assert_eq!(config.http.to_string(), "127.0.0.1:8420");
    assert_eq!(config.macp.to_string(), "127.0.0.1:50051");
    assert_eq!(config.log, Log { level: Level::Info, format: Format::Text });
    assert_eq!(config.engine.shards, 4);
    assert_eq!(config.limits.payload_bytes_max, 1_048_576);
    assert_eq!((config.retention.finished_days, config.retention.tombstone_days), (0, 0));
}

#[test]
fn tasks_over_mcp_may_not_be_open_for_longer_than_any_task() {
    let long = "[mcp]\nttl_minutes = 2880";
    let found = refused(&file(long));
    assert_eq!(
        found,
        "mcp.ttl_minutes (file handover.toml): expected a whole number from 0 to 1440, because \
         limits.ttl_hours_max is 24 (raise it for more), found 2880"
    );
    let found = refused(&flags(&[("limits.ttl_hours_max", "2")]));
    assert!(found.starts_with("mcp.ttl_minutes (default): expected a whole number from 0 to 120"), "{found}");
    let raised = load(&file(&format!("{long}\n[limits]\nttl_hours_max = 48"))).unwrap().config;
    let identity = handover_desk::identity::Identity::Development;
    let limits = crate::house::desk_settings(&raised, &identity).engine.limits;
    assert_eq!(limits.ttl_ms_max, 48 * 3_600_000, "the kernel takes what the configuration allows");
    assert_eq!(crate::face::console::Settings::new(&raised).ttl_minutes_max, 2880);
}

#[test]
fn a_flag_beats_the_environment_which_beats_the_file_which_beats_the_default() {
    let mut sources = Sources::default();
    let level = |sources: &Sources| load(sources).unwrap().config.log.level;
    assert_eq!(level(&sources), Level::Info);
    sources.file = file("[log]\nlevel = 'error'").file;
    assert_eq!(level(&sources), Level::Error);
    sources.environment = environment(&[("HANDOVER_LOG_LEVEL", "warn")]).environment;
    assert_eq!(level(&sources), Level::Warn);
    sources.flags = flags(&[("log.level", "debug")]).flags;
    assert_eq!(level(&sources), Level::Debug);
}

#[test]
fn each_source_sets_only_its_own_keys() {
    let sources = Sources {
        flags: flags(&[("data", "/srv/a")]).flags,
        environment: environment(&[("HANDOVER_HTTP", "[::1]:0"), ("PATH", "/bin")]).environment,
        file: file("[engine]\nshards = 8").file,
    };
    let config = load(&sources).unwrap().config;
    assert_eq!(config.data, PathBuf::from("/srv/a"));
    assert_eq!(config.http.to_string(), "[::1]:0");
    assert_eq!(config.engine.shards, 8);
    assert_eq!(config.engine.queue_max, Config::default().engine.queue_max);
}

#[test]
fn every_key_can_be_set_by_its_variable() {
    let sources = environment(&[
        ("HANDOVER_DATA", "d"),
        ("HANDOVER_HTTP", "127.0.0.2:1"),
        ("HANDOVER_HTTP_HOSTS", "handover.example, other.example"),
        ("HANDOVER_MACP", "127.0.0.2:2"),
        ("HANDOVER_ADMIN", "off"),
        ("HANDOVER_TRUSTED_PROXIES", "10.0.0.0/8, 192.0.2.7"),
        ("HANDOVER_LOG_LEVEL", "trace"),
        ("HANDOVER_LOG_FORMAT", "json"),
        ("HANDOVER_ENGINE_SHARDS", "1"),
        ("HANDOVER_ENGINE_BATCH_EVENTS_MAX", "2"),
        ("HANDOVER_ENGINE_QUEUE_MAX", "3"),
        ("HANDOVER_ENGINE_SESSIONS_IN_MEMORY_MAX", "4"),
        ("HANDOVER_ENGINE_SESSIONS_IN_MEMORY_BYTES_MAX", "1048576"),
        ("HANDOVER_ENGINE_IDLE_SECONDS", "5"),
        ("HANDOVER_ENGINE_SUBSCRIBER_QUEUE_MAX", "6"),
        ("HANDOVER_LIMITS_PAYLOAD_BYTES_MAX", "2048"),
        ("HANDOVER_LIMITS_PARTICIPANTS_MAX", "7"),
        ("HANDOVER_LIMITS_TTL_HOURS_MAX", "18"),
        ("HANDOVER_LIMITS_STEERS_PENDING_MAX", "8"),
        ("HANDOVER_LIMITS_QUESTIONS_OPEN_MAX", "9"),
        ("HANDOVER_LIMITS_MESSAGES_PER_TASK_MAX", "10"),
        ("HANDOVER_LIMITS_LOG_EVENTS_MAX", "100"),
        ("HANDOVER_LIMITS_LOG_BYTES_MAX", "1048576"),
        ("HANDOVER_LIMITS_SESSIONS_OPEN_PER_AGENT_MAX", "11"),
        ("HANDOVER_LIMITS_STARTS_PER_MINUTE", "0"),
        ("HANDOVER_LIMITS_MESSAGES_PER_MINUTE", "100"),
        ("HANDOVER_LIMITS_REQUESTS_PER_MINUTE", "200"),
        ("HANDOVER_LIMITS_CHECK_STEPS_MAX", "100000"),
        ("HANDOVER_LIMITS_CHECK_THREADS", "2"),
        ("HANDOVER_LIMITS_CHECKS_MAX", "8"),
        ("HANDOVER_LIMITS_CHECK_WAIT_MS", "10"),
        ("HANDOVER_LIMITS_STREAMS_PER_AGENT_MAX", "5"),
        ("HANDOVER_LIMITS_MEMORY_PER_AGENT_BYTES", "1048576"),
        ("HANDOVER_LIMITS_MEMORY_PER_TENANT_BYTES", "2097152"),
        ("HANDOVER_LIMITS_MEMORY_BYTES", "3145728"),
        ("HANDOVER_LIMITS_STORED_PER_AGENT_BYTES", "4"),
        ("HANDOVER_LIMITS_STORED_PER_TENANT_BYTES", "0"),
        ("HANDOVER_LIMITS_CONNECTIONS_MAX", "12"),
        ("HANDOVER_LIMITS_MACP_CONNECTIONS_MAX", "13"),
        ("HANDOVER_LIMITS_CONNECTIONS_PER_ADDRESS_MAX", "14"),
        ("HANDOVER_LIMITS_HEAD_SECONDS", "15"),
        ("HANDOVER_LIMITS_BODY_SECONDS", "16"),
        ("HANDOVER_LIMITS_WRITE_SECONDS", "17"),
        ("HANDOVER_LIMITS_LISTED_NAMES_PER_AGENT_MAX", "18"),
        ("HANDOVER_LIMITS_LISTED_NAMES_PER_TENANT_MAX", "19"),
        ("HANDOVER_IDENTITY_TOKENS", "tokens.toml"),
        ("HANDOVER_IDENTITY_TOKENS_RELOAD_SECONDS", "17"),
        ("HANDOVER_IDENTITY_JWT_KEYS", "keys.json"),
        ("HANDOVER_IDENTITY_JWT_ISSUER", "https://issuer.example"),
        ("HANDOVER_IDENTITY_JWT_AUDIENCE", "handover, other"),
        ("HANDOVER_IDENTITY_JWT_ALGORITHMS", "ES256, EdDSA"),
        ("HANDOVER_IDENTITY_JWT_TENANT_CLAIM", "org"),
        ("HANDOVER_IDENTITY_JWT_SKEW_SECONDS", "0"),
        ("HANDOVER_IDENTITY_JWT_REFRESH_SECONDS", "1"),
        ("HANDOVER_ACCESS_RULES", "[{ agents = ['intern-*'], delegate = ['writer'] }]"),
        ("HANDOVER_AUDIT_FILE", "off"),
        ("HANDOVER_AUDIT_BYTES_MAX", "65536"),
        ("HANDOVER_TLS_CERTIFICATE", "certificate.pem"),
        ("HANDOVER_APPROVALS_RULES", "[{ commit = true, by = ['lead'] }]"),
        ("HANDOVER_TLS_KEY", "key.pem"),
        ("HANDOVER_TLS_RELOAD_SECONDS", "14"),
        ("HANDOVER_TLS_TERMINATED_ELSEWHERE", "true"),
        ("HANDOVER_IDENTITY_ANONYMOUS", "visitor"),
        ("HANDOVER_WEBHOOK_URL", "https://hooks.example/told"),
        ("HANDOVER_WEBHOOK_SECRET_FILE", "webhook.secret"),
        ("HANDOVER_WEBHOOK_AGENTS", "ops, lead"),
        ("HANDOVER_WEBHOOK_TENANT", "acme"),
        ("HANDOVER_WEBHOOK_CONSOLE", "https://handover.example"),
        ("HANDOVER_TRACES_URL", "http://collector:4318/v1/traces"),
        ("HANDOVER_TRACES_HEADERS_FILE", "headers"),
        ("HANDOVER_TRACES_SERVICE", "handover-eu"),
        ("HANDOVER_MCP_WAIT_SECONDS", "14"),
        ("HANDOVER_MCP_WAIT_WITH_PROGRESS_SECONDS", "24"),
        ("HANDOVER_MCP_WAIT_FOR_ANSWER_SECONDS", "34"),
        ("HANDOVER_MCP_TTL_MINUTES", "15"),
        ("HANDOVER_MCP_POLL_INTERVAL_MS", "16"),
        ("HANDOVER_MCP_STRICT_HEADERS", "true"),
        ("HANDOVER_MCP_ORIGINS", "https://console.example"),
        ("HANDOVER_MCP_RESOURCE", "https://handover.example/mcp"),
        ("HANDOVER_RETENTION_FINISHED_DAYS", "13"),
        ("HANDOVER_RETENTION_TOMBSTONE_DAYS", "14"),
        ("HANDOVER_DRAIN_SECONDS", "3"),
        ("HANDOVER_STORE", "postgres://u@h/d"),
        ("HANDOVER_STORE_PASSWORD_FILE", "password"),
        ("HANDOVER_STORE_CA", "ca.pem"),
        ("HANDOVER_STORE_SCHEMA", "tasks"),
        ("HANDOVER_STORE_NODE", "one"),
        ("HANDOVER_STORE_MIGRATE", "false"),
        ("HANDOVER_STORE_LEASE_SECONDS", "20"),
        ("HANDOVER_STORE_PATIENCE_SECONDS", "21"),
        ("HANDOVER_STORE_POLL_MS", "22"),
        ("HANDOVER_STORE_BEHIND_MAX", "2000"),
    ]);
    let loaded = load(&sources).unwrap();
    assert_eq!(loaded.entries.len(), sources.environment.len());
    for entry in &loaded.entries {
        assert_eq!(entry.origin, Origin::Environment(variable_of(entry.key)), "{}", entry.key);
    }
}

#[test]
fn the_store_can_be_named_alone_and_its_password_is_not_shown() {
    let url = "postgres://u:hunter2@h/d?password=hunter2&connect_timeout=3";
    for sources in [file(&format!("store = '{url}'")), file(&format!("[store]\nurl = '{url}'"))] {
        let loaded = load(&sources).unwrap();
        assert_eq!(loaded.config.store.url.secret(), Some(url));
        let shown = [loaded.to_toml(), format!("{:?}", loaded.config)].concat();
        assert!(
            !shown.contains("hunter2") && shown.contains("postgres://u@h/d?connect_timeout=3"),
            "{shown}"
        );
    }
    assert_eq!(load(&file("")).unwrap().config.store.url.secret(), None);
    // Also where it was not written as it should be.
    for (url, shown) in [
        ("postgres://u:hun?hunter2@h/d", "postgres://u@h/d"),
        ("postgres://u:hun@hunter2@h/d", "postgres://u@h/d"),
        ("postgres://u:hun/hunter2@h/d", "postgres://u@h/d"),
        ("postgres://u:hunter2/d", "postgres://u/d"),
        ("postgres://u@[::1]:5433,h:5434/d", "postgres://u@[::1]:5433,h:5434/d"),
    ] {
        let found = load(&file(&format!("store = '{url}'"))).unwrap().to_toml();
        assert!(found.contains(&format!("\"{shown}\"")) && !found.contains("hunter2"), "{url}: {found}");
    }
}

#[test]
fn the_operators_listener_has_a_port_of_its_own_a_free_one_or_none() {
    let at = |keys| load(&environment(keys)).unwrap().config.admin_address().map(|at| at.to_string());
    assert_eq!(at(&[]).as_deref(), Some("127.0.0.1:8421"));
    assert_eq!(at(&[("HANDOVER_HTTP", "0.0.0.0:0")]).as_deref(), Some("127.0.0.1:0"));
    assert_eq!(at(&[("HANDOVER_ADMIN", "off")]), None);
    assert_eq!(at(&[("HANDOVER_ADMIN", "localhost:9")]).as_deref(), Some("127.0.0.1:9"));
    for (variable, wrong, expected) in [
        ("HANDOVER_ADMIN", "on", "an address with a port, such as 127.0.0.1:8420, off or auto"),
        ("HANDOVER_TRUSTED_PROXIES", "proxy.example", "addresses or networks such as 10.0.0.0/8"),
    ] {
        let message = refused(&environment(&[(variable, wrong)]));
        assert!(message.contains(&format!("expected {expected}")), "{message}");
    }
}

#[test]
fn a_list_has_commas_in_between() {
    let identity = |keys| load(&environment(keys)).unwrap().config.identity;
    let found = identity(&[
        ("HANDOVER_IDENTITY_JWT_AUDIENCE", " one,, two "),
        ("HANDOVER_IDENTITY_JWT_ALGORITHMS", "EdDSA,ES256"),
    ]);
    assert_eq!(found.jwt_audience, ["one", "two"]);
    assert_eq!(found.jwt_algorithms, [Algorithm::EdDSA, Algorithm::ES256]);
    assert_eq!(identity(&[]).jwt_audience, [""; 0]);
    assert_eq!(identity(&[]).jwt_algorithms, ALGORITHMS.map(|(_, algorithm)| algorithm));
    for wrong in ["none", "HS256", "RS256,HS256", "rs256", ","] {
        let message = refused(&environment(&[("HANDOVER_IDENTITY_JWT_ALGORITHMS", wrong)]));
        assert!(message.contains("expected some of RS256, RS384, "), "{message}");
    }
}

#[test]
fn hosts_are_names_and_nothing_else() {
    let config = load(&flags(&[("http_hosts", "handover.example, my-service")])).unwrap().config;
    assert_eq!(config.http_hosts, ["handover.example", "my-service"]);
    for wrong in ["https://handover.example", "handover.example:8420", "*.example", "a,b/c"] {
        let expected = "expected host names without scheme and port, with commas in between, found";
        assert!(refused(&flags(&[("http_hosts", wrong)])).contains(expected), "{wrong}");
    }
}

#[test]
fn an_empty_variable_counts_as_not_set() {
    assert_eq!(load(&environment(&[("HANDOVER_DATA", "")])).unwrap().config, Config::default());
}

#[test]
fn localhost_is_the_loopback_address() {
    let config = load(&flags(&[("http", "localhost:80")])).unwrap().config;
    assert_eq!(config.http.to_string(), "127.0.0.1:80");
}

#[test]
fn a_switch_is_on_or_off() {
    let on = |text| load(&file(&format!("[tls]\nterminated_elsewhere = {text}")));
    assert!(on("true").unwrap().config.tls.terminated_elsewhere);
    assert!(!on("false").unwrap().config.tls.terminated_elsewhere);
    let refused = on("1").unwrap_err().to_string();
    assert!(refused.ends_with("expected true or false, found 1"), "{refused}");
    assert!(on("'true'").unwrap_err().to_string().contains("expected a value of type boolean"));
}

#[test]
fn a_wrong_value_names_the_key_its_origin_what_was_expected_and_what_was_found() {
    assert_eq!(
        refused(&flags(&[("log.format", "xml")])),
        "log.format (flag --log-format): expected one of text, json, found \"xml\""
    );
    assert_eq!(
        refused(&environment(&[("HANDOVER_ENGINE_SHARDS", "many")])),
        "engine.shards (environment HANDOVER_ENGINE_SHARDS): expected a whole number from 1 to 256, found \"many\""
    );
    assert_eq!(
        refused(&file("[engine]\nshards = 0")),
        "engine.shards (file handover.toml): expected a whole number from 1 to 256, found 0"
    );
    assert_eq!(
        refused(&flags(&[("http", "here")])),
        "http (flag --http): expected an address with a port, such as 127.0.0.1:8420, found \"here\""
    );
    assert_eq!(
        refused(&flags(&[("data", "")])),
        "data (flag --data): expected the path of a directory, found \"\""
    );
}

#[test]
fn the_address_of_the_endpoint_is_one_that_clients_can_compare() {
    let resource = |text: &str| load(&environment(&[("HANDOVER_MCP_RESOURCE", text)]));
    for good in ["", "https://agents.example.com/mcp", "http://127.0.0.1:8420/mcp", "https://[::1]:1/a/mcp"] {
        let found = resource(good).unwrap().config.mcp.resource;
        assert_eq!(found.as_deref().unwrap_or_default(), good);
    }
    for wrong in [
        "agents.example.com/mcp",
        "https://a.example/mcp/",
        "https://a.example/",
        "ftp://a/mcp",
        "https://a/mcp?x",
        "https://a/#x",
    ] {
        let error = refused(&environment(&[("HANDOVER_MCP_RESOURCE", wrong)]));
        assert!(
            error.contains("expected an address such as https://agents.example.com/mcp"),
            "{wrong}: {error}"
        );
    }
}

#[test]
fn numbers_outside_their_range_are_refused_however_large() {
    for text in ["-1", "257", "4.0", "99999999999999999999999"] {
        let expected = "expected a whole number from 1 to 256, found";
        assert!(refused(&environment(&[("HANDOVER_ENGINE_SHARDS", text)])).contains(expected), "{text}");
    }
}

#[test]
fn a_rate_that_nobody_set_is_told_from_one_that_somebody_did() {
    let rate = |sources: &Sources| load(sources).unwrap().config.limits.messages_per_minute;
    assert_eq!(rate(&Sources::default()), None);
    assert_eq!(rate(&file("[limits]\nmessages_per_minute = 'auto'")), None);
    assert_eq!(rate(&file("[limits]\nmessages_per_minute = 0")), Some(0));
    assert_eq!(
        refused(&environment(&[("HANDOVER_LIMITS_MESSAGES_PER_MINUTE", "some")])),
        "limits.messages_per_minute (environment HANDOVER_LIMITS_MESSAGES_PER_MINUTE): expected a whole number from 0 \
         to 100000000, or auto, found \"some\""
    );
    assert_eq!(
        refused(&file("[limits]\nmessages_per_minute = '60'")),
        "limits.messages_per_minute (file handover.toml): expected a value of type integer, such as 60, found \"60\""
    );
}

#[test]
fn the_audit_log_is_in_the_data_directory_unless_somebody_says_otherwise() {
    let path = |text: &str| load(&file(text)).unwrap().config.audit_path();
    assert_eq!(path("data = '/srv/d'"), Some(PathBuf::from("/srv/d/audit.jsonl")));
    assert_eq!(path("[audit]\nfile = 'off'"), None);
    assert_eq!(path("[audit]\nfile = '/var/log/a'"), Some(PathBuf::from("/var/log/a")));
    assert_eq!(
        refused(&file("[audit]\nfile = ''")),
        "audit.file (file handover.toml): expected the path of a file, off or auto, found \"\""
    );
}

#[test]
fn a_value_of_the_wrong_type_in_the_file_is_refused() {
    assert_eq!(
        refused(&file("[engine]\nshards = '4'")),
        "engine.shards (file handover.toml): expected a value of type integer, such as 4, found \"4\""
    );
    assert_eq!(
        refused(&file("data = 4")),
        "data (file handover.toml): expected a value of type string, such as \"4\", found 4"
    );
    assert_eq!(
        refused(&file("[log]\nlevel = true")),
        "log.level (file handover.toml): expected one of error, warn, info, debug, trace, found true"
    );
}

#[test]
fn a_wrong_value_is_refused_even_if_a_stronger_source_overrides_it() {
    let sources = Sources { file: file("[log]\nlevel = 'loud'").file, ..flags(&[("log.level", "debug")]) };
    assert!(refused(&sources).starts_with("log.level (file handover.toml): "));
}

#[test]
fn an_unknown_key_is_refused_with_the_keys_of_its_part() {
    assert_eq!(
        refused(&file("[log]\nlevel = 'info'\ncolour = true")),
        "unknown key log.colour (file handover.toml): expected one of log.level, log.format"
    );
    assert_eq!(
        refused(&file("log.level.min = 'info'")),
        "unknown key log.level.min (file handover.toml): expected one of log.level, log.format"
    );
}

#[test]
fn an_unknown_key_or_part_at_the_top_is_refused_with_all_keys() {
    for text in ["port = 80", "[servers]", "[servers]\nport = 80", "engine = 4"] {
        let message = refused(&file(text));
        assert!(message.starts_with("unknown key "), "{message}");
        assert!(message.contains("expected one of data, http, http_hosts, macp, "), "{message}");
    }
}

#[test]
fn an_empty_part_of_the_file_is_fine() {
    assert_eq!(load(&file("[engine]\n# shards = 8\n")).unwrap().config, Config::default());
}

#[test]
fn a_file_that_is_not_toml_is_refused_with_the_line() {
    let message = refused(&file("data = 'x'\n\nhttp = \n"));
    assert!(message.starts_with("file handover.toml, line 3: expected TOML, found: "), "{message}");
    assert!(!message.contains('\n'), "{message}");
}

#[test]
fn the_printed_configuration_says_where_each_value_came_from() {
    let sources = Sources {
        flags: flags(&[("data", "/srv/\"odd\" one")]).flags,
        environment: environment(&[("HANDOVER_LOG_LEVEL", "warn")]).environment,
        file: file("[engine]\nshards = 8").file,
    };
    let text = load(&sources).unwrap().to_toml();
    for line in [
        "data = '/srv/\"odd\" one' # flag --data",
        "http = \"127.0.0.1:8420\" # default",
        "[log]",
        "level = \"warn\" # environment HANDOVER_LOG_LEVEL",
        "# How many writers the sessions are spread over.",
        "shards = 8 # file handover.toml",
    ] {
        assert!(text.lines().any(|found| found == line), "expected {line}, found\n{text}");
    }
}

#[test]
fn the_printed_configuration_gives_the_same_configuration_again() {
    let mut sources = environment(&[("HANDOVER_ENGINE_SHARDS", "007"), ("HANDOVER_HTTP", "[::1]:0")]);
    sources.flags = flags(&[("log.format", "json"), ("data", "a\\b\n'c' \"d\"")]).flags;
    sources.file = Some(File { path: "two\nlines".into(), text: "[retention]\nfinished_days = 30".into() });
    let first = load(&sources).unwrap();
    let second = load(&file(&first.to_toml())).unwrap();
    assert_eq!(first.config, second.config);
    assert!(second.entries.iter().all(|entry| entry.origin == Origin::File("handover.toml".into())));
}

#[test]
fn the_approvals_are_a_list_of_tables_in_the_file() {
    let rules = "[[approvals.rules]]\nrole = 'ops'\nagents = ['ann']\n\n[[approvals.rules]]\ncommit = true\nby = ['role:ops']";
    let loaded = load(&file(rules)).unwrap();
    assert_ne!(loaded.config.approvals.rules, handover_desk::approvers::Rules::default());
    assert_eq!(load(&file(&loaded.to_toml())).unwrap().config, loaded.config);
    let wrong = refused(&file("[[approvals.rules]]\ncommit = true"));
    assert!(wrong.starts_with("approvals.rules (file handover.toml): expected a list of rules"), "{wrong}");
}

#[test]
fn the_access_list_is_a_list_of_tables_in_the_file() {
    use handover_desk::access::To;
    let rules = "[[access.rules]]\nagents = ['intern-*']\ndelegate = ['writer']\n\n[[access.rules]]\nagents = ['*']\nsee = []";
    let loaded = load(&file(rules)).unwrap();
    let access = &loaded.config.access.rules;
    assert!(access.allows("default", "intern-1", To::Delegate, "writer"));
    assert!(!access.allows("default", "intern-1", To::Delegate, "planner"));
    assert!(!access.allows("default", "planner", To::See, "writer"));
    let printed = load(&file(&loaded.to_toml())).unwrap();
    assert_eq!(printed.config, loaded.config);
    let wrong = refused(&file("[[access.rules]]\nagents = ['a']\nsees = []"));
    assert!(wrong.starts_with("access.rules (file handover.toml): expected a list of rules"), "{wrong}");
    assert!(wrong.contains("rule 1 having only tenant, agents"), "{wrong}");
}

#[test]
fn what_nodes_compare_reads_as_it_would_be_set() {
    let file = "[limits]\nstarts_per_minute = 30\n[retention]\nfinished_days = 7\n";
    let sources =
        Sources { file: Some(File { path: "f".to_owned(), text: file.to_owned() }), ..Sources::default() };
    let config = load(&sources).unwrap().config;
    let (limits, retention) = (config.limits.entries(), config.retention.entries());
    assert_eq!(limits["limits.starts_per_minute"], "30");
    assert_eq!(limits["limits.messages_per_minute"], "auto");
    assert_eq!(limits["limits.payload_bytes_max"], "1048576");
    assert_eq!(retention["retention.finished_days"], "7");
}
