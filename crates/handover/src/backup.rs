//! `handover backup` and `handover restore`: a consistent copy of everything while the server runs, and a data directory made of it.

use std::fs::{self, File};
use std::io::{self, IsTerminal, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use axum::http::Method;
use handover_client::fetch;
use handover_engine::archive;
use handover_store::SqliteStore;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde_json::Value;

use crate::archive::denied;
use crate::cli::exit::Exit;
use crate::{Failure, cli};

/// What `handover backup` can be told.
#[derive(clap::Args)]
#[command(after_help = BACKUP_HELP)]
pub struct BackupArgs {
    /// The file to write, which must not exist yet
    file: PathBuf,
    /// The admin address of the server
    #[arg(long, value_name = "ADDR", env = "HANDOVER_ADMIN", default_value = "127.0.0.1:8421")]
    admin: String,
}

const BACKUP_HELP: &str = "\
Run it on the server's machine as the server's user: the server writes a copy of everything that was acknowledged into its data directory,
which only its user can read, and this command moves it to FILE. Requests are served meanwhile. The audit log is a file of its own.

Examples:
  handover backup /var/backups/handover-$(date +%F).db";

/// What `handover restore` can be told.
#[derive(clap::Args)]
#[command(after_help = RESTORE_HELP)]
pub struct RestoreArgs {
    /// The copy
    file: PathBuf,
    /// The data directory to make, which must not exist or be empty
    #[arg(long, value_name = "DIR", env = "HANDOVER_DATA", default_value = "./handover-data")]
    data: PathBuf,
}

const RESTORE_HELP: &str = "\
Every session in the copy is replayed. If one cannot be replayed, nothing is kept.

Examples:
  handover restore /var/backups/handover-2026-07-28.db --data /var/lib/handover";

/// A progress bar on standard error, if somebody watches: of bytes where it is known how many there are.
pub fn progress(bytes: Option<u64>, what: &'static str) -> ProgressBar {
    let target = match io::stderr().is_terminal() {
        true => ProgressDrawTarget::stderr(),
        false => ProgressDrawTarget::hidden(),
    };
    let bar = ProgressBar::with_draw_target(bytes, target);
    let template = match bytes {
        Some(_) => "{msg} [{bar:24}] {bytes} of {total_bytes}  {elapsed}",
        None => "{pos} {msg}  {elapsed}",
    };
    bar.set_style(
        ProgressStyle::with_template(template)
            .unwrap_or_else(|_| ProgressStyle::default_bar())
            .progress_chars("━━ "),
    );
    bar.set_message(what);
    bar
}

/// A file beside the one that is to be there, of its owner alone; refused if that is there already.
pub fn new_file(path: &Path) -> Result<(File, PathBuf), Failure> {
    if path.symlink_metadata().is_ok() {
        return Err(Failure::Usage(format!("expected a name that is free, found {}", path.display())));
    }
    let mut partial = path.as_os_str().to_owned();
    partial.push(".partial");
    let partial = PathBuf::from(partial);
    let file = File::options().write(true).create_new(true).mode(0o600).open(&partial);
    let unwritable =
        |error| Failure::Usage(format!("expected to write {}, found: {error}", partial.display()));
    Ok((file.map_err(unwritable)?, partial))
}

/// Give a file that is whole its name, so that it survives a crash. Never takes the place of another.
pub fn put_in_place(file: &File, partial: &Path, path: &Path) -> io::Result<()> {
    file.sync_all()?;
    match fs::hard_link(partial, path) {
        Ok(()) => fs::remove_file(partial)?,
        Err(error) if has_no_links(&error) => take_name(partial, path)?,
        Err(error) => return Err(error),
    }
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(dir)?.sync_all()
}

/// Whether a file system has no hard links, as those of USB sticks and some that are mounted from elsewhere.
fn has_no_links(error: &io::Error) -> bool {
    use rustix::io::Errno;
    let found = error.raw_os_error().map(Errno::from_raw_os_error);
    found.is_some_and(|found| [Errno::PERM, Errno::OPNOTSUPP, Errno::NOSYS, Errno::MLINK].contains(&found))
}

/// The same without a link: an empty file takes the name, if it is free, and is then replaced.
fn take_name(partial: &Path, path: &Path) -> io::Result<()> {
    File::options().write(true).create_new(true).mode(0o600).open(path)?;
    fs::rename(partial, path)
}

/// Copy a file, with a progress bar.
fn copy(from: &mut File, to: &mut File) -> io::Result<u64> {
    let bar = progress(from.metadata().ok().map(|metadata| metadata.len()), "copying");
    let (mut buffer, mut copied) = (vec![0; 1 << 20], 0);
    loop {
        let read = from.read(&mut buffer)?;
        if read == 0 {
            bar.finish_and_clear();
            return Ok(copied);
        }
        to.write_all(&buffer[..read])?;
        copied += read as u64;
        bar.inc(read as u64);
    }
}

/// Run `handover backup` to its end.
pub fn backup(args: &BackupArgs) -> Result<(), Failure> {
    let (mut file, partial) = new_file(&args.file)?;
    let done = ask(args).and_then(|made| {
        let doing = format!("copying {} to {}", made.display(), args.file.display());
        let failed = |error: io::Error| {
            let what = format!("{doing}: {error}");
            Exit::Failed.told(what, "run it on the server's machine, as the server's user")
        };
        let mut from = File::open(&made).map_err(failed)?;
        // As long as it is locked the server makes no other copy in its place.
        from.lock_shared().map_err(failed)?;
        let copied = copy(&mut from, &mut file).map_err(failed)?;
        put_in_place(&file, &partial, &args.file).map_err(failed)?;
        _ = fs::remove_file(&made);
        Ok(copied)
    });
    let copied = done.inspect_err(|_| _ = fs::remove_file(&partial))?;
    cli::say(format!("wrote {} ({copied} bytes)", args.file.display()))
}

/// Ask the server for a copy, and hear where it is.
fn ask(args: &BackupArgs) -> Result<PathBuf, Failure> {
    const LOOK_EVERY: Duration = Duration::from_millis(200);
    let server = match args.admin.as_str() {
        // As the server's configuration may have it in the same environment.
        "auto" | "" => "http://127.0.0.1:8421".to_owned(),
        "off" => return Err(Failure::Usage("--admin: expected an address, found off".to_owned())),
        url if url.contains("://") => url.to_owned(),
        address => format!("http://{address}"),
    };
    let waiting = progress(None, "· the server makes a copy");
    waiting.enable_steady_tick(LOOK_EVERY);
    let made = cli::run(async {
        let ask = async |method: Method| {
            let answer = fetch::once(&server, method, "/backup", &[("x-handover", "backup")]).await;
            let (status, body) = answer.map_err(|failed| {
                let what = format!("the server at {server} cannot be reached: {failed}");
                Exit::NoServer
                    .told(what, "start one with: handover serve (--admin is where it serves its operator)")
            })?;
            let said: Value = serde_json::from_slice(&body).unwrap_or_default();
            match status {
                200 | 202 => Ok(said),
                _ => {
                    let why = said["error"]["message"].as_str().unwrap_or("it makes none");
                    let what = format!("the server at {server} made no copy: {}", cli::text::line(why));
                    let help = match said["error"]["code"].as_str() {
                        Some("BACKUP_RUNNING") => "try again when the other backup has ended",
                        _ => "name the address that serve --admin has, on this machine",
                    };
                    Err(Exit::Refused.told(what, help))
                }
            }
        };
        ask(Method::POST).await?;
        loop {
            let said = ask(Method::GET).await?;
            match (said["state"].as_str(), said["path"].as_str()) {
                (Some("done"), Some(path)) => return Ok(PathBuf::from(path)),
                (Some("copying"), _) => tokio::time::sleep(LOOK_EVERY).await,
                _ => {
                    let why = cli::text::line(said["error"].as_str().unwrap_or("it went away"));
                    return Err(Exit::Failed.told(format!("the server made no copy: {why}"), "see its log"));
                }
            }
        }
    });
    waiting.finish_and_clear();
    made
}

/// Run `handover restore` to its end.
pub fn restore(args: &RestoreArgs) -> Result<(), Failure> {
    let data = args.data.display();
    let mut from = File::open(&args.file).map_err(|error| {
        Failure::Usage(format!("expected a copy at {}, found: {error}", args.file.display()))
    })?;
    let there = args.data.symlink_metadata().is_ok();
    if there && !fs::read_dir(&args.data).is_ok_and(|mut entries| entries.next().is_none()) {
        return Err(Failure::Usage(format!("expected no data directory or an empty one, found {data}")));
    }
    let doing = format!("restoring {} to {data}", args.file.display());
    let restored = restore_into(&mut from, &args.data, &doing);
    let sessions = restored.inspect_err(|_| {
        // Nothing that is in it was there before.
        let entries = fs::read_dir(&args.data).into_iter().flatten().flatten();
        entries.for_each(|entry| _ = fs::remove_file(entry.path()));
        if !there {
            _ = fs::remove_dir(&args.data);
        }
    })?;
    cli::say(format!("restored {sessions} sessions to {data}; start it with: handover serve --data {data}"))
}

fn restore_into(from: &mut File, data: &Path, doing: &str) -> Result<u64, Failure> {
    let failed = |error: io::Error| Failure::fault(doing, &error);
    let mut builder = fs::DirBuilder::new();
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.recursive(true).create(data).map_err(failed)?;
    let database = data.join(SqliteStore::DATABASE);
    let mut file =
        File::options().write(true).create_new(true).mode(0o600).open(&database).map_err(failed)?;
    copy(from, &mut file).map_err(failed)?;
    file.sync_all().map_err(failed)?;
    let store = SqliteStore::open(data).map_err(|fault| Failure::fault(doing, &fault))?;
    let bar = progress(None, "sessions replayed");
    let replayed = archive::replay_all(&store, || bar.inc(1));
    bar.finish_and_clear();
    replayed.map_err(|found| denied(doing, found))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_system_without_hard_links_is_known_by_its_errors() {
        use rustix::io::Errno;
        for (errno, expected) in
            [(Errno::PERM, true), (Errno::OPNOTSUPP, true), (Errno::EXIST, false), (Errno::NOSPC, false)]
        {
            assert_eq!(has_no_links(&io::Error::from(errno)), expected, "{errno}");
        }
    }

    #[test]
    fn without_links_a_file_gets_its_name_and_never_takes_that_of_another() {
        let dir = tempfile::tempdir().unwrap();
        let (partial, path) = (dir.path().join("copy.partial"), dir.path().join("copy"));
        fs::write(&partial, "one").unwrap();
        take_name(&partial, &path).unwrap();
        assert!(fs::read_to_string(&path).unwrap() == "one" && !partial.exists());
        fs::write(&partial, "two").unwrap();
        assert_eq!(take_name(&partial, &path).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(fs::read_to_string(&path).unwrap(), "one");
    }
}
