//! A PostgreSQL of a test's own, beside the one that `scripts/postgres` started: to be set otherwise, copied and stopped.

use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Runs until it is dropped; `scripts/postgres` stops whatever is left.
pub struct Own {
    place: PathBuf,
    pub port: u16,
}

impl Own {
    /// A new one, whose users are checked so.
    pub fn start(auth: &str) -> Option<Own> {
        let own = Own::at("own")?;
        let password = own.place.with_extension("password");
        fs::write(&password, "hunter2").unwrap();
        let mut made = own.run("initdb");
        made.args([
            "--no-sync",
            "--username",
            "handover",
            "--encoding",
            "UTF8",
            "--locale",
            "C",
            "--auth",
            auth,
        ]);
        done(made.arg("--pwfile").arg(&password).arg("--pgdata").arg(&own.place));
        own.begin();
        Some(own)
    }

    /// One that follows this one.
    pub fn standby(&self) -> Own {
        let standby = Own::at("standby").unwrap();
        let mut copied = standby.run("pg_basebackup");
        done(copied.args(["-R", "-c", "fast", "-d", &self.url("hunter2")]).arg("-D").arg(&standby.place));
        standby.begin();
        standby
    }

    /// Follow nobody any more, and take what is written.
    pub fn promote(&self) {
        done(self.run("pg_ctl").args(["promote", "--silent", "--wait"]).arg("--pgdata").arg(&self.place));
    }

    fn at(name: &str) -> Option<Own> {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let place = std::env::var_os("HANDOVER_TEST_POSTGRES_PLACE").map(PathBuf::from);
        if place.is_none() {
            // Says in CI that there should be one.
            super::database::url();
        }
        let name = format!("{name}-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        Some(Own { place: place?.join(name), port })
    }

    /// A program of PostgreSQL, which refuses root.
    fn run(&self, program: &str) -> Command {
        let program = Path::new(&std::env::var("HANDOVER_TEST_POSTGRES_PROGRAMS").unwrap()).join(program);
        let root = Command::new("id").arg("-u").output().unwrap().stdout == b"0\n";
        if !root {
            return Command::new(program);
        }
        let mut command = Command::new("setpriv");
        command.args(["--reuid=postgres", "--regid=postgres", "--clear-groups"]).arg(program);
        command
    }

    fn begin(&self) {
        let options = format!(
            "-c listen_addresses=127.0.0.1 -c port={} -c unix_socket_directories={} -c max_connections=100",
            self.port,
            self.place.parent().unwrap().display()
        );
        let mut began = self.run("pg_ctl");
        began.args(["start", "--silent", "--wait", "--options", &options]).arg("--pgdata").arg(&self.place);
        done(began.arg("--log").arg(self.place.with_extension("log")));
    }

    /// Add lines to its settings, and start it again.
    pub fn set(&self, settings: &str) {
        let file = self.place.join("postgresql.auto.conf");
        fs::write(&file, settings).unwrap();
        done(
            self.run("pg_ctl").args(["stop", "--silent", "--mode", "fast"]).arg("--pgdata").arg(&self.place),
        );
        self.begin();
    }

    /// A file that only it can read, beside its data.
    pub fn keep(&self, name: &str, text: &str) -> PathBuf {
        let file = self.place.join(name);
        fs::write(&file, text).unwrap();
        if Command::new("id").arg("-u").output().unwrap().stdout == b"0\n" {
            done(Command::new("chown").arg("postgres:postgres").arg(&file));
        }
        done(Command::new("chmod").arg("600").arg(&file));
        file
    }

    pub fn url(&self, password: &str) -> String {
        format!("postgres://handover:{password}@127.0.0.1:{}/postgres", self.port)
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        _ = self
            .run("pg_ctl")
            .args(["stop", "--silent", "--mode", "immediate"])
            .arg("--pgdata")
            .arg(&self.place)
            .output();
        _ = fs::remove_dir_all(&self.place);
    }
}

fn done(command: &mut Command) {
    let output = command.output().unwrap();
    let said = || String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{command:?}: {}", said());
}
