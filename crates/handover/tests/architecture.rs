//! The shape of the code: which crate knows of which, and no module that depends on itself by way of others.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// What each crate may know of ours. A test of a crate may know more.
const EDGES: [(&str, &[&str]); 8] = [
    ("crates/kernel", &[]),
    ("crates/store", &[]),
    ("crates/engine", &["kernel", "store"]),
    ("crates/desk", &["engine", "kernel", "store"]),
    ("crates/client", &[]),
    ("crates/server", &["client", "desk", "kernel"]),
    ("crates/handover", &["client", "desk", "engine", "kernel", "server", "store"]),
    ("sim", &["engine", "kernel", "store"]),
];

#[test]
fn no_crate_knows_more_than_it_should() {
    for (folder, allowed) in EDGES {
        let manifest = fs::read_to_string(root().join(folder).join("Cargo.toml")).unwrap();
        let (_, dependencies) = manifest.split_once("[dependencies]").unwrap();
        let dependencies = dependencies.split("\n[").next().unwrap();
        let known: BTreeSet<&str> = dependencies
            .lines()
            .filter_map(|line| line.strip_prefix("handover-"))
            .map(|line| line.split(['.', ' ']).next().unwrap())
            .collect();
        assert_eq!(known, allowed.iter().copied().collect(), "{folder}");
    }
}

#[test]
fn no_module_depends_on_itself_by_way_of_others() {
    for crate_name in ["engine", "desk", "server", "client"] {
        let graph = modules(&root().join("crates").join(crate_name).join("src"));
        assert!(graph.len() > 3, "{crate_name}: expected modules, found {graph:?}");
        for module in graph.keys() {
            let mut beneath = BTreeSet::new();
            let mut open: Vec<&String> = graph[module].iter().collect();
            while let Some(next) = open.pop() {
                if beneath.insert(next) {
                    open.extend(graph.get(next).into_iter().flatten());
                }
            }
            assert!(
                !beneath.contains(module),
                "{crate_name}: {module} depends on itself, through {beneath:?}"
            );
        }
    }
}

/// The modules at the top of a crate, and which others of them each names outside of its tests.
fn modules(source: &Path) -> BTreeMap<String, BTreeSet<String>> {
    let map = fs::read_to_string(source.join("lib.rs")).unwrap();
    let mut exports: BTreeMap<String, String> = BTreeMap::new();
    let mut names = BTreeSet::new();
    for line in map.lines() {
        if let Some(module) = line.strip_prefix("pub mod ").and_then(|rest| rest.strip_suffix(';')) {
            names.insert(module.to_owned());
        }
        if let Some((module, items)) = line.strip_prefix("pub use ").and_then(|rest| rest.split_once("::")) {
            exports.extend(words(items).map(|item| (item.to_owned(), module.to_owned())));
        }
    }
    let mut graph: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for path in files(source) {
        let inside = path.strip_prefix(source).unwrap().to_str().unwrap();
        let module = inside.split('/').next().unwrap().trim_end_matches(".rs").to_owned();
        if module == "lib" || inside.ends_with("tests.rs") {
            continue;
        }
        let text = fs::read_to_string(&path).unwrap();
        let code = text.split("#[cfg(test)]").next().unwrap();
        let code: Vec<&str> = code.lines().filter(|line| !line.trim_start().starts_with("//")).collect();
        let code = code.join("\n");
        let named = code.split("crate::").skip(1).flat_map(|after| match after.strip_prefix('{') {
            Some(list) => words(list.split('}').next().unwrap()).collect::<Vec<_>>(),
            None => words(after).take(1).collect(),
        });
        let known = named.map(|name| exports.get(name).map_or(name, String::as_str).to_owned());
        let known = known.filter(|name| names.contains(name) && *name != module);
        graph.entry(module.clone()).or_default().extend(known);
    }
    graph
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|letter: char| !letter.is_alphanumeric() && letter != '_').filter(|word| !word.is_empty())
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
    found
}
