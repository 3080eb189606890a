//! No row without a test: each id in `rows*.txt` begins the name of one.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// The files under a directory whose names end so.
fn files(dir: &Path, end: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files(&path, end));
        } else if path.to_str().unwrap().ends_with(end) {
            found.push(path);
        }
    }
    found
}

/// The ids of the lists: the first word of each line that is no remark.
fn ids(here: &Path) -> Vec<String> {
    let mut ids = Vec::new();
    for list in files(here, ".txt") {
        for line in fs::read_to_string(&list).unwrap().lines() {
            if let Some(id) = line.split_whitespace().next().filter(|id| !id.starts_with('#')) {
                ids.push(id.to_owned());
            }
        }
    }
    ids
}

/// The names of the tests in a source file.
fn names(source: &str) -> Vec<String> {
    let mut names = Vec::new();
    let mut lines = source.lines().map(str::trim);
    while let Some(line) = lines.next() {
        if !line.starts_with("#[test]") && !line.starts_with("#[tokio::test") {
            continue;
        }
        let function = lines.find_map(|line| {
            line.strip_prefix("async fn ").or_else(|| line.strip_prefix("fn ")).map(str::to_owned)
        });
        names.extend(function.and_then(|name| Some(name.split_once('(')?.0.to_owned())));
    }
    names
}

#[test]
fn every_row_has_a_test() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let here = root.join("tests/mcp");
    let mut sources = files(&here, ".rs");
    sources.extend(files(&root.join("src/face/mcp"), ".rs"));
    sources.extend(files(&root.join("../client/src"), ".rs"));
    sources.extend([root.join("src/face/mcp.rs"), root.join("../desk/src/id.rs")]);
    let names: Vec<String> =
        sources.iter().flat_map(|source| names(&fs::read_to_string(source).unwrap())).collect();
    let ids = ids(&here);
    assert!(!ids.is_empty(), "expected rows in {}", here.display());
    let once: BTreeSet<&String> = ids.iter().collect();
    assert_eq!(once.len(), ids.len(), "a row is listed twice");
    let has_test =
        |id: &str| names.iter().any(|name| name.strip_prefix(id).is_some_and(|rest| rest.starts_with('_')));
    let without: Vec<&String> = ids.iter().filter(|id| !has_test(id)).collect();
    assert!(without.is_empty(), "expected a test whose name begins with each of {without:?}");
}

#[test]
fn a_test_is_known_by_its_attribute() {
    let source =
        "#[test]\n#[ignore]\nfn a1_x() {}\nfn a2_x() {}\n#[tokio::test(flavor = \"y\")]\nasync fn a3_x() {}";
    assert_eq!(names(source), ["a1_x", "a3_x"]);
}
