//! Keeps the layers of this crate in order: a file imports from its own layer and from those below.

use std::path::{Path, PathBuf};

/// The layers from the lowest up: folders and files of `src`.
const LAYERS: &[&str] = &[
    "limits",
    "config",
    "state",
    "session",
    "family",
    "execution",
    "network",
    "start",
    "check",
    "simulation",
    "lib",
];

#[test]
fn imports_go_down_the_layers() {
    let root = Path::new("src");
    let mut files = Vec::new();
    collect(root, &mut files);
    assert!(files.len() > LAYERS.len());
    let mut upward = Vec::new();
    for path in &files {
        let inner = path.strip_prefix(root).expect("a file of the crate").with_extension("");
        let name = inner.iter().next().and_then(|first| first.to_str()).expect("a name in UTF-8");
        let own = level(name).unwrap_or_else(|| panic!("{name} is in no layer"));
        let source = std::fs::read_to_string(path).expect("a source");
        for (number, line) in (1..).zip(source.lines()) {
            let code = line.split("//").next().unwrap_or_default();
            // Either would hide which layer is meant.
            assert!(!code.contains("super::super"), "{}:{number}: {line}", path.display());
            assert!(!code.contains("crate::{"), "{}:{number}: {line}", path.display());
            if imported(code).any(|name| level(name).is_none_or(|other| other > own)) {
                upward.push(format!("{}:{number}: {}", path.display(), line.trim()));
            }
        }
    }
    assert!(upward.is_empty(), "imports from a layer above:\n{}", upward.join("\n"));
}

#[test]
fn an_import_is_found_wherever_it_stands() {
    let found: Vec<&str> = imported("use crate::state::x; let y = crate::network::y(a)").collect();
    assert_eq!(found, ["state", "network"]);
    assert_eq!(imported("pub(crate) fn run()").count(), 0);
}

/// The layers that a line of code names.
fn imported(code: &str) -> impl Iterator<Item = &str> {
    let end = |rest: &str| rest.find(|c: char| !c.is_alphanumeric() && c != '_');
    code.split("crate::").skip(1).map(move |rest| &rest[..end(rest).unwrap_or(rest.len())])
}

fn level(name: &str) -> Option<usize> {
    LAYERS.iter().position(|layer| *layer == name)
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            collect(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
}
