//! What only its owner may read: the data, the audit log, the tokens.

use std::path::Path;

/// Say in the log if others than the owner can get at this file or directory. One that is not there is nobody's.
pub fn warn_unless(path: &Path) {
    if let Some(found) = found(path) {
        let Open { mode, chmod } = found;
        tracing::warn!(path = %path.display(), mode = %format_args!("{mode:04o}"), "others than its owner can read this: {chmod}");
    }
}

/// How a file or directory is open to others than its owner, and the command that closes it; nothing if it is not.
pub fn open_to_others(path: &Path) -> Option<String> {
    found(path).map(|Open { mode, chmod }| format!("{} ({mode:04o}): {chmod}", path.display()))
}

/// How a path is open to others, and the command that closes it.
#[derive(Debug, PartialEq, Eq)]
struct Open {
    mode: u32,
    chmod: String,
}

#[cfg(unix)]
fn found(path: &Path) -> Option<Open> {
    use std::os::unix::fs::{MetadataExt, PermissionsExt};
    let metadata = std::fs::metadata(path).ok()?;
    let mode = metadata.permissions().mode() & 0o7777;
    let (is_dir, uid, gid) = (metadata.is_dir(), metadata.uid(), metadata.gid());
    let wanted = if is_dir { "700" } else { "600" };
    let open = mode & !allowed(is_dir, uid, gid) & 0o077 != 0;
    open.then(|| Open { mode, chmod: format!("chmod {wanted} {}", quoted(path)) })
}

/// What others than the owner may do with it. A service reads a file of root's by its group: that group was given to the file
/// for this (`0640 root:handover`), and so may read it.
#[cfg(unix)]
fn allowed(is_dir: bool, uid: u32, gid: u32) -> u32 {
    const ROOT: u32 = 0;
    if !is_dir && uid == ROOT && gid != ROOT { 0o040 } else { 0 }
}

#[cfg(not(unix))]
fn found(_: &Path) -> Option<Open> {
    None
}

/// As a shell takes it for one word.
fn quoted(path: &Path) -> String {
    let text = path.display().to_string();
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+,@".contains(c);
    if text.chars().all(plain) { text } else { format!("'{}'", text.replace('\'', r"'\''")) }
}

#[cfg(all(test, unix))]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_file_of_root_s_may_be_read_by_the_group_that_it_was_given() {
        let (root, group, user) = (0, 104, 1000);
        assert_eq!(allowed(false, root, group), 0o040);
        for (is_dir, uid, gid) in [(true, root, group), (false, root, root), (false, user, group)] {
            assert_eq!(allowed(is_dir, uid, gid), 0, "{is_dir} {uid} {gid}");
        }
    }

    #[test]
    fn what_others_can_read_is_found_with_the_command_that_closes_it() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("it's here");
        fs::write(&file, "").unwrap();
        let set = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        for (mode, open) in [(0o600, false), (0o400, false), (0o640, true), (0o604, true), (0o620, true)] {
            set(&file, mode);
            assert_eq!(found(&file).map(|open| open.mode), open.then_some(mode));
        }
        let quoted = format!("chmod 600 '{}/it'\\''s here'", dir.path().display());
        assert_eq!(found(&file).unwrap().chmod, quoted);
        set(dir.path(), 0o755);
        assert_eq!(found(dir.path()).unwrap().chmod, format!("chmod 700 {}", dir.path().display()));
        set(dir.path(), 0o700);
        assert_eq!(found(dir.path()), None);
        assert_eq!(found(&dir.path().join("none")), None);
    }
}
