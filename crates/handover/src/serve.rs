//! `handover serve`: read the configuration, open the store, start what serves, say so, and stop in order.

use std::io::Write;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use handover_desk::identity::Identity;
use handover_desk::identity::jwt::Verifier;
use handover_desk::shutdown::Shutdown;
use handover_kernel::AgentId;
use handover_server::config::{self, Config};
use handover_server::exposure;
use handover_server::files::{self, ADMIN_CONNECTIONS, Room};
use handover_server::http::listen::{self, PROTOCOLS};
use handover_server::http::{self, Backup, Bounds, Checks, Hosts, Probe};
use handover_server::issuer;
use handover_server::telemetry::{self, Dial};
use handover_server::tls::wire::Wire;
use handover_server::tls::{self, Tls};
use handover_server::tokens::{self, TokenFile};
use handover_server::{traces, webhook};
use tokio::net::{TcpListener, TcpSocket};
use tokio::runtime::Handle;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

use crate::Failure;
use crate::database::no_password_in_flag;
use crate::house;
use crate::lanes::Lanes;
use handover_desk::Desk;
use handover_server::house::House;

/// What `handover serve` can be told on the command line.
#[derive(clap::Args)]
#[command(after_help = HELP)]
pub struct Args {
    /// The data directory; made if it does not exist [default: ./handover-data]
    #[arg(long, value_name = "DIR")]
    data: Option<String>,
    /// Keep everything in a PostgreSQL database that other nodes may use as well, such as postgres://user@host/database
    #[arg(long, value_name = "URL")]
    store: Option<String>,
    /// Where to serve HTTP; port 0 takes a free port [default: 127.0.0.1:8420]
    #[arg(long, value_name = "ADDR")]
    http: Option<String>,
    /// Where to serve MACP over gRPC; port 0 takes a free port [default: 127.0.0.1:50051]
    #[arg(long, value_name = "ADDR")]
    macp: Option<String>,
    /// Where to serve metrics and readiness to the operator, or off [default: 127.0.0.1:8421, or a free port if --http
    /// has port 0]
    #[arg(long, value_name = "ADDR")]
    admin: Option<String>,
    /// Read this TOML file
    #[arg(long, value_name = "FILE")]
    config: Option<String>,
    /// What to log: error, warn, info, debug or trace [default: info]
    #[arg(long, value_name = "LEVEL")]
    log_level: Option<String>,
    /// How to log: text or json [default: text]
    #[arg(long, value_name = "FORMAT")]
    log_format: Option<String>,
    /// Refuse MCP task methods that do not name their task in the header Mcp-Name
    #[arg(long)]
    strict_headers: bool,
    /// Say that the server is ready in JSON
    #[arg(long)]
    json: bool,
    /// Print the configuration in effect, and where each value came from, and exit
    #[arg(long)]
    print_config: bool,
}

const HELP: &str = "\
Configuration:
  A flag wins over the environment, the environment over the file, the file over the default. Every key of the
  file has a variable: [engine] shards is HANDOVER_ENGINE_SHARDS, data is HANDOVER_DATA, and HANDOVER_CONFIG
  names the file. --print-config lists all keys.

Signals:
  SIGTERM and SIGINT stop it in order; a second one stops it at once. SIGHUP reads tokens, keys and
  the certificate again. SIGUSR1 logs one level more (info, debug, trace); SIGUSR2 goes back to the configured level.

Examples:
  handover serve
  handover serve --data /var/lib/handover --log-format json
  handover serve --http 127.0.0.1:0 --json       take a free port and print it as JSON
  handover serve --print-config > handover.toml  begin a configuration file
  HANDOVER_LOG_LEVEL=debug handover serve --config handover.toml";

/// How long a node serves on when it is told to stop, so that whoever sends it requests learns of it.
const DRAIN_SECONDS: u64 = 5;

/// How long threads that hang, such as a check of a disk that does not answer, may hold up the exit.
const THREADS_WITHIN: Duration = Duration::from_secs(1);

/// Run the command to its end.
pub fn run(args: &Args) -> Result<(), Failure> {
    let runtime =
        tokio::runtime::Runtime::new().map_err(|error| Failure::fault("starting threads", &error))?;
    let hangups = runtime.block_on(async { house::count_hangups() })?;
    let flags = [
        ("data", &args.data),
        ("store.url", &args.store),
        ("http", &args.http),
        ("macp", &args.macp),
        ("admin", &args.admin),
        ("log.level", &args.log_level),
        ("log.format", &args.log_format),
        ("mcp.strict_headers", &args.strict_headers.then(|| true.to_string())),
    ];
    no_password_in_flag(args.store.as_deref())?;
    let sources = house::sources(&flags, args.config.as_ref())?;
    let loaded = config::load(&sources).map_err(|error| Failure::Usage(error.to_string()))?;
    if args.print_config {
        return print(&loaded.to_toml()).map_err(|error| Failure::fault("printing", &error));
    }
    exposure::check(&loaded.config).map_err(Failure::Usage)?;
    let dial = telemetry::init(&loaded.config.log);
    let dial = dial.map_err(|error| Failure::fault("starting the log", &error))?;
    files::small_pages();
    let room = files::fit(&loaded.config.limits, files::raise()).map_err(Failure::Usage)?;
    let lanes = Lanes::start().map_err(|error| Failure::fault("starting threads", &error))?;
    let serving = Serving { room, lanes: lanes.handles(), json: args.json };
    let outcome = runtime.block_on(serve(&loaded.config, serving, dial, hangups));
    lanes.stop(THREADS_WITHIN);
    runtime.shutdown_timeout(THREADS_WITHIN);
    outcome
}

/// What the process has for its server.
struct Serving {
    room: Room,
    /// Where MACP is served.
    lanes: Vec<Handle>,
    /// Whether it says in JSON that it is ready.
    json: bool,
}

async fn serve(
    config: &Config,
    Serving { room, lanes, json }: Serving,
    dial: Dial,
    hangups: watch::Receiver<u64>,
) -> Result<(), Failure> {
    let drain =
        config.drain_seconds.unwrap_or(if config.store.url.secret().is_some() { DRAIN_SECONDS } else { 0 });
    let (shutdown, draining) = house::stop_on_signal(Duration::from_secs(drain))?;
    turn_on_signal(dial)?;
    let known = read_identity(config).await?;
    let tls = open_tls(config, &shutdown)?;
    let identity_probe = known.issuer.as_ref().map(|(verifier, _)| Arc::clone(verifier));
    let house = house::open(config, known.identity(config), &shutdown, "")?;
    let routes = house.routes();
    let told = webhook::Settings::new(config).map_err(Failure::Usage)?;
    let traced = traces::Settings::new(config).map_err(Failure::Usage)?;
    let House { desk, macp, metrics, console, mut probes, .. } = house;
    tokio::spawn(async move { console.watch().await });
    let counted = desk.clone();
    tokio::spawn(async move { counted.count_open().await });
    reload_on_hangup(hangups, &known, tls.clone());
    known.keep_fresh(config, &desk, &shutdown);
    let wire = |protocols: &[&[u8]]| match &tls {
        None => Wire::Plain,
        Some(tls) => {
            Wire::Tls { acceptor: tls.acceptor(protocols), failed: metrics.tls_handshakes_failed.clone() }
        }
    };
    let settings = |listener, wire, connections_max| listen::Settings {
        wire,
        http_1: true,
        limits: listen::Limits::new(config, connections_max),
        counters: metrics.connections(listener),
        lanes: Vec::new(),
    };
    let told_to_stop =
        move || if *draining.borrow() { Err("the server is told to stop".to_owned()) } else { Ok(()) };
    probes.push(Probe::new("serving", told_to_stop));
    if let Some(verifier) = identity_probe {
        probes.push(Probe::new("identity", move || verifier.ready()));
    }

    let (listener, address) = bind("http", config.http).await?;
    let (macp_listener, macp_address) = bind("macp", config.macp).await?;
    let admin = match config.admin_address() {
        None => None,
        Some(address) => Some(bind("admin", address).await?),
    };
    let (bounds, hosts) = (Bounds::new(&config.limits), Hosts::new(config));
    let checks = Checks::new(probes);
    let ready = checks.clone();
    let at = Places { http: address, macp: macp_address, admin: admin.as_ref().map(|(_, address)| *address) };
    if let Some((listener, address)) = admin {
        // What only this machine reaches needs no certificate.
        let wire = if exposure::is_loopback(address) { Wire::Plain } else { wire(&PROTOCOLS) };
        let settings = settings("admin", wire, ADMIN_CONNECTIONS as usize);
        // A copy is for whoever is on this machine.
        let backup = exposure::is_loopback(address).then(|| copies(&desk, config));
        let router = http::admin_router(checks.clone(), backup, Arc::clone(&metrics), bounds, hosts.clone());
        tokio::spawn(http::serve(listener, settings, router, shutdown.clone()));
    }
    let router = http::router(routes, checks, Arc::clone(&metrics), bounds, hosts);
    let macp_settings = listen::Settings { lanes, ..settings("macp", wire(&[b"h2"]), room.macp) };
    let macp = tokio::spawn(macp.checked(ready).serve(macp_listener, macp_settings));
    if let Some(told) = told {
        webhook::start(&told.at(address, tls.is_some()), &desk, &shutdown);
    }
    if let Some(traced) = traced {
        traces::start(&traced, &desk, &shutdown);
    }
    let about = about_store(&desk).await;
    if let Err(error) = print(&ready_line(json, at, config, about.as_deref())) {
        tracing::warn!(%error, "standard output is closed: nobody was told that the server is ready");
    }
    let Room { http: http_room, macp: macp_room } = room;
    tracing::info!(http = %address, macp = %macp_address, data = %config.data.display(), version = env!("CARGO_PKG_VERSION"), http_room, macp_room, "ready");
    http::serve(listener, settings("http", wire(&PROTOCOLS), room.http), router, shutdown).await;
    // It cuts what does not end by itself, as HTTP does.
    if let Err(error) = macp.await {
        tracing::error!(%error, "the MACP face stopped");
    }
    house::stop(desk).await?;
    tracing::info!("stopped");
    Ok(())
}

/// Whom the configuration lets in, and where it says so.
struct Known {
    tokens: Option<(Arc<TokenFile>, String)>,
    issuer: Option<(Arc<Verifier>, issuer::settings::Source)>,
}

async fn read_identity(config: &Config) -> Result<Known, Failure> {
    let open =
        |path| TokenFile::open(path).map_err(|what| Failure::Usage(format!("identity.tokens: {what}")));
    let tokens = config.identity.tokens.as_deref().map(open).transpose()?;
    let from_config = issuer::settings::from_config(&config.identity).map_err(Failure::Usage)?;
    let issuer = match from_config {
        None => None,
        Some((settings, source)) => {
            if let Some(resource) = &config.mcp.resource
                && !settings.audience.contains(resource)
            {
                tracing::warn!(
                    resource,
                    audience = settings.audience.join(","),
                    "clients that follow MCP's OAuth are refused: their tokens are for mcp.resource, which identity.jwt_audience does not name"
                );
            }
            let opened = issuer::open(settings, &source).await;
            let verifier = opened.map_err(|what| Failure::Usage(format!("identity.jwt_keys: {what}")))?;
            Some((verifier, source))
        }
    };
    Ok(Known { tokens, issuer })
}

impl Known {
    fn identity(&self, config: &Config) -> Identity {
        let tokens = self.tokens.as_ref().map(|(file, _)| Arc::clone(&file.tokens));
        match (&self.issuer, tokens, &config.identity.anonymous) {
            (Some((verifier, _)), tokens, _) => {
                Identity::Jwt(Arc::clone(verifier), tokens.unwrap_or_default())
            }
            (None, Some(tokens), _) => Identity::Tokens(tokens),
            (None, None, Some(agent)) => Identity::Anonymous(AgentId::from(agent.as_str())),
            (None, None, None) => Identity::Development,
        }
    }

    /// Keep tokens and keys as they are at their source, until the shutdown begins.
    fn keep_fresh(self, config: &Config, desk: &Desk, shutdown: &Shutdown) {
        if let Some((file, text)) = self.tokens {
            let every = Duration::from_secs(config.identity.tokens_reload_seconds);
            tokio::spawn(tokens::keep_fresh(file, text, every, desk.gate.clone(), shutdown.clone()));
        }
        if let Some((verifier, source)) = self.issuer {
            let (gate, shutdown) = (desk.gate.clone(), shutdown.clone());
            let changed = move |difference: &_| gate.keys_changed(difference);
            tokio::spawn(issuer::keep_fresh(verifier, source, issuer::AGAIN_AFTER, changed, shutdown));
        }
    }
}

/// SIGHUP has everything read again that can change while the server runs.
fn reload_on_hangup(mut hangups: watch::Receiver<u64>, known: &Known, tls: Option<Arc<Tls>>) {
    let tokens = known.tokens.as_ref().map(|(file, _)| Arc::clone(file));
    let verifier = known.issuer.as_ref().map(|(verifier, _)| Arc::clone(verifier));
    tokio::spawn(async move {
        while hangups.changed().await.is_ok() {
            tokens.iter().for_each(|tokens| tokens.want_reload());
            verifier.iter().for_each(|verifier| verifier.want_keys());
            tls.iter().for_each(|tls| tls.want_reload());
            let any = tokens.is_some() || verifier.is_some() || tls.is_some();
            let what = if any {
                "tokens, keys and certificate are read again"
            } else {
                "there is nothing to read again"
            };
            tracing::info!(signal = "SIGHUP", "{what}");
        }
    });
}

/// SIGUSR1 makes the log say more, SIGUSR2 what the configuration says.
fn turn_on_signal(dial: Dial) -> Result<(), Failure> {
    let listen = |kind| signal(kind).map_err(|error| Failure::fault("listening for signals", &error));
    let (mut more, mut back) = (listen(SignalKind::user_defined1())?, listen(SignalKind::user_defined2())?);
    tokio::spawn(async move {
        loop {
            let (signal, level) = tokio::select! {
                Some(()) = more.recv() => ("SIGUSR1", dial.raise()),
                Some(()) = back.recv() => ("SIGUSR2", dial.reset()),
                else => return,
            };
            tracing::info!(signal, ?level, "the level of the log has changed");
        }
    });
    Ok(())
}

/// The certificate of the configuration, if it has one. It is read again every so often.
fn open_tls(config: &Config, shutdown: &Shutdown) -> Result<Option<Arc<Tls>>, Failure> {
    let Some(files) = tls::files(&config.tls).map_err(Failure::Usage)? else {
        return Ok(None);
    };
    let tls = Tls::open(files).map_err(Failure::Usage)?;
    let every = Duration::from_secs(config.tls.reload_seconds);
    tokio::spawn(tls::keep_fresh(Arc::clone(&tls), every, shutdown.clone()));
    Ok(Some(tls))
}

async fn about_store(desk: &Desk) -> Option<String> {
    let desk = desk.clone();
    tokio::task::spawn_blocking(move || desk.about_store()).await.ok().flatten()
}

async fn bind(key: &str, address: SocketAddr) -> Result<(TcpListener, SocketAddr), Failure> {
    let off = if key == "admin" { "; --admin off leaves it out" } else { "" };
    let hint = format!("listening on {address} (port 0 takes a free one: --{key} {}:0{off})", address.ip());
    let listener = listen(address).map_err(|error| Failure::fault(&hint, &error))?;
    let address = listener.local_addr().map_err(|error| Failure::fault(&hint, &error))?;
    Ok((listener, address))
}

/// How many connections may wait to be accepted, as far as the system lets them: one that finds no place there tries again
/// after a second, however soon there is room.
const BACKLOG: u32 = 4096;

fn listen(address: SocketAddr) -> std::io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    // A server that is started again need not wait for the connections of the one before it.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// Where the listeners are.
#[derive(Clone, Copy)]
struct Places {
    http: SocketAddr,
    macp: SocketAddr,
    admin: Option<SocketAddr>,
}

/// The one line that says where the server is.
fn ready_line(json: bool, at: Places, config: &Config, store: Option<&str>) -> String {
    let Places { http, macp, admin } = at;
    let tls = config.tls.certificate.is_some();
    let (short, identity) = match (&config.identity.tokens, &config.identity.jwt_keys) {
        (None, None) => ("development", "development identity"),
        (Some(_), None) => ("tokens", "static tokens"),
        (None, Some(_)) => ("jwt", "JSON Web Tokens"),
        (Some(_), Some(_)) => ("tokens and jwt", "static tokens and JSON Web Tokens"),
    };
    if json {
        // Written by hand, because the order of the keys is part of the promise.
        let admin = admin.map_or_else(|| "null".to_owned(), |admin| format!("\"{admin}\""));
        let store =
            store.map_or_else(String::new, |store| format!(",\"store\":{}", serde_json::json!(store)));
        format!(
            "{{\"ready\":true,\"http\":\"{http}\",\"macp\":\"{macp}\",\"tls\":{tls},\"identity\":\"{short}\",\"admin\":{admin}{store}}}\n"
        )
    } else {
        let data = config.data.display().to_string();
        let data = store.unwrap_or(&data);
        let (scheme, over) = if tls { ("https", " over TLS") } else { ("http", "") };
        let here = exposure::is_loopback(http) && exposure::is_loopback(macp);
        let here = if here { " (this machine only)" } else { "" };
        let admin = admin.map_or_else(|| "off".to_owned(), |admin| admin.to_string());
        format!(
            "handover is ready at {scheme}://{http}, MACP at {macp}{over}, admin at {admin}, data in {data}, {identity}{here}\n"
        )
    }
}

fn print(text: &str) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

/// How copies of the data are made: beside it, readable by the same user alone, and under its name only when it is whole.
fn copies(desk: &Desk, config: &Config) -> Backup {
    let desk = desk.clone();
    let (whole, partial) = (config.data.join("backup.db"), config.data.join("backup.partial"));
    Backup::new(move || {
        let failed = |error: std::io::Error| error.to_string();
        for file in [&whole, &partial] {
            match std::fs::remove_file(file) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(failed(error)),
                _ => {}
            }
        }
        desk.copy_store(&partial)?;
        std::fs::rename(&partial, &whole).map_err(failed)?;
        std::fs::canonicalize(&whole).map_err(failed)
    })
}
