//! A synchronous standby of a PostgreSQL that `scripts/postgres` has started, which applies what it gets a little later: as one far
//! away would.

use std::net::TcpListener;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use handover_store::postgres::Bare;

use crate::Failure;

/// How long it may take until it follows.
const FOLLOWS_WITHIN: Duration = Duration::from_secs(30);

/// A standby that every commit waits for. It ends with its owner.
pub struct Standby {
    bare: Bare,
    programs: PathBuf,
    place: PathBuf,
}

impl Standby {
    /// Start one that is late by this, if the database is one of our own; none if it is not.
    pub fn start(bare: Bare, url: &str, late: Duration) -> Result<Option<Standby>, Failure> {
        let variable = |name| std::env::var_os(name).map(PathBuf::from);
        let (Some(beside), Some(programs)) =
            (variable("HANDOVER_TEST_POSTGRES_PLACE"), variable("HANDOVER_TEST_POSTGRES_PROGRAMS"))
        else {
            return Ok(None);
        };
        let fault = |error: std::io::Error| Failure::fault("starting a standby", &error);
        let port = TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).map_err(fault)?.port();
        let place = beside.join(format!("standby-{port}"));
        let mut copy = as_owner(&beside, &programs.join("pg_basebackup"))?;
        copy.arg("--pgdata").arg(&place).args([
            "--write-recovery-conf",
            "--checkpoint=fast",
            "--dbname",
            url,
        ]);
        must_run(copy)?;
        // From here on it is stopped and removed, whatever happens.
        let standby = Standby { bare, programs, place };
        let mut start = standby.control("start")?;
        start.arg("--log").arg(beside.join("standby.log")).arg("--wait").arg("--options").arg(format!(
            "-c listen_addresses=127.0.0.1 -c port={port} -c unix_socket_directories={} -c max_connections=300 \
             -c recovery_min_apply_delay={}ms",
            beside.display(),
            late.as_millis()
        ));
        must_run(start)?;
        standby.wait_for_it()?;
        Ok(Some(standby))
    }

    fn wait_for_it(&self) -> Result<(), Failure> {
        let fault = |fault| Failure::fault("waiting for a standby", &fault);
        self.bare.wait_for_standby(true).map_err(fault)?;
        let until = Instant::now() + FOLLOWS_WITHIN;
        while !self.bare.is_followed().map_err(fault)? {
            if Instant::now() > until {
                return Err(Failure::Fault(format!(
                    "expected a synchronous standby within {FOLLOWS_WITHIN:?}, found none"
                )));
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    }

    fn control(&self, what: &str) -> Result<Command, Failure> {
        let mut command = as_owner(&self.place, &self.programs.join("pg_ctl"))?;
        command.args([what, "--silent", "--pgdata"]).arg(&self.place);
        Ok(command)
    }
}

impl Drop for Standby {
    fn drop(&mut self) {
        // What is left of it goes with the database, which scripts/postgres stops and removes.
        _ = self.bare.wait_for_standby(false);
        if let Ok(mut stop) = self.control("stop") {
            _ = stop.args(["--mode", "immediate"]).stdout(Stdio::null()).stderr(Stdio::null()).status();
        }
        _ = std::fs::remove_dir_all(&self.place);
    }
}

/// A program of the database, run by whom its directory belongs to: PostgreSQL refuses root.
fn as_owner(place: &Path, program: &Path) -> Result<Command, Failure> {
    let fault = |error: std::io::Error| Failure::fault(format!("looking at {}", place.display()), &error);
    let owner = std::fs::metadata(place).map_err(fault)?;
    let mut command = Command::new(program);
    if std::fs::metadata("/proc/self").map_err(fault)?.uid() != owner.uid() {
        command.uid(owner.uid()).gid(owner.gid());
    }
    Ok(command)
}

fn must_run(mut command: Command) -> Result<(), Failure> {
    // What it starts keeps what it is given open: nobody waits for that to end.
    let ended = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
    let what = command.get_program().display().to_string();
    match ended {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(Failure::Fault(format!("expected {what} to succeed, found {status}"))),
        Err(error) => Err(Failure::fault(format!("running {what}"), &error)),
    }
}
