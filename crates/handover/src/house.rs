//! What every way of serving begins with: the configuration from its places, the data, and the signals that end it.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use handover_desk::identity::Identity;
use handover_desk::open::Failed;
use handover_desk::shutdown::Shutdown;
use handover_desk::{Data, Desk};
use handover_server::config::{Config, File, Sources};
use handover_server::house::{self as server, House};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

use crate::Failure;

/// Open the data and start everything. `hint` follows when another process has the data.
pub fn open(config: &Config, identity: Identity, shutdown: &Shutdown, hint: &str) -> Result<House, Failure> {
    let data = server::data(config).map_err(Failure::Usage)?;
    if let (Data::Database(_), Some(dir)) = (&data, config.audit_path().as_deref().and_then(Path::parent)) {
        std::fs::create_dir_all(dir)
            .map_err(|error| Failure::fault(format!("making {} for the audit log", dir.display()), &error))?;
    }
    House::open(data, config, identity, shutdown.clone()).map_err(|failed| match failed {
        Failed::InUse { .. } => Failure::Fault(format!("{}{hint}", crate::chain(&failed))),
        Failed::Audit { ref error, .. } => {
            Failure::fault(format!("{failed} (audit.file: a path, off or auto)"), error)
        }
        Failed::Store { .. } => Failure::Fault(crate::chain(&failed)),
    })
}

/// Nobody asks any more: finish what is under way, and give the data directory back.
pub async fn stop(desk: Desk) -> Result<(), Failure> {
    let stopping = tokio::task::spawn_blocking(move || desk.stop());
    stopping.await.map_err(|error| Failure::fault("stopping the engine", &error))
}

/// What the flags, the environment and the file say. The file is the one that `named` names, or else the environment.
pub fn sources(
    flags: &[(&'static str, &Option<String>)],
    named: Option<&String>,
) -> Result<Sources, Failure> {
    let flags = flags.iter().filter_map(|(key, text)| Some((*key, (*text).clone()?))).collect();
    let mut environment = BTreeMap::new();
    for (name, text) in std::env::vars_os() {
        let Some(name) = name.to_str().filter(|name| name.starts_with("HANDOVER_")) else { continue };
        let not_text =
            |found| Failure::Usage(format!("environment {name}: expected text in UTF-8, found {found:?}"));
        environment.insert(name.to_owned(), text.into_string().map_err(not_text)?);
    }
    let named = named.or(environment.get("HANDOVER_CONFIG").filter(|path| !path.is_empty()));
    let file = named.map(|path| read_file(path)).transpose()?;
    Ok(Sources { flags, environment, file })
}

fn read_file(path: &str) -> Result<File, Failure> {
    let unreadable =
        |error| Failure::Usage(format!("file {path}: expected a configuration file, found: {error}"));
    Ok(File { path: path.to_owned(), text: std::fs::read_to_string(path).map_err(unreadable)? })
}

/// Counts each SIGHUP from now on, which ends nothing. To be asked for before anything else: until then it ends the process.
pub fn count_hangups() -> Result<watch::Receiver<u64>, Failure> {
    let hangup = signal(SignalKind::hangup());
    let mut hangup = hangup.map_err(|error| Failure::fault("listening for signals", &error))?;
    let (count, hangups) = watch::channel(0);
    tokio::spawn(async move {
        while hangup.recv().await.is_some() {
            count.send_modify(|count| *count += 1);
        }
    });
    Ok(hangups)
}

/// SIGTERM and SIGINT begin the shutdown so long after the first of them; a second one does not wait for it. Says from then on
/// that it is told to stop.
pub fn stop_on_signal(drain: Duration) -> Result<(Shutdown, watch::Receiver<bool>), Failure> {
    let listen = |kind| signal(kind).map_err(|error| Failure::fault("listening for signals", &error));
    let (mut terminate, mut interrupt) = (listen(SignalKind::terminate())?, listen(SignalKind::interrupt())?);
    let (trigger, shutdown) = Shutdown::new();
    let (told, draining) = watch::channel(false);
    tokio::spawn(async move {
        let mut signalled = async || {
            tokio::select! { _ = terminate.recv() => "SIGTERM", _ = interrupt.recv() => "SIGINT" }
        };
        let signal = signalled().await;
        told.send_replace(true);
        if !drain.is_zero() {
            tracing::info!(
                signal,
                seconds = drain.as_secs(),
                "told to stop: not ready any more, and serving on"
            );
        }
        let again = tokio::time::timeout(drain, signalled()).await;
        tracing::info!(signal, "stopping: no new requests, finishing those in flight");
        trigger.begin();
        let signal = match again {
            Ok(signal) => signal,
            Err(_) => signalled().await,
        };
        tracing::warn!(signal, "stopping at once");
        // Nothing is lost: what was answered is durable, and the log is read again at the next start.
        std::process::exit(1);
    });
    Ok((shutdown, draining))
}
