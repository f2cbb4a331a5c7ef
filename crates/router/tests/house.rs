//! What a newcomer may rely on (CONTRIBUTING.md): which files know of an element, a feature, a driver.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::path::{Path, PathBuf};

/// The sources below a folder of the crates, with their paths from there; without tests.
fn sources(folder: &str) -> Vec<(String, String)> {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut folders: Vec<PathBuf> = vec![crates.join(folder)];
    let mut sources = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            if path.is_dir() {
                folders.extend(
                    ["tests", "benches", "target"].iter().all(|tests| name != *tests).then_some(path),
                );
            } else if name.ends_with(".rs") && !name.ends_with("tests.rs") && name != "testing.rs" {
                let text = std::fs::read_to_string(&path).unwrap();
                let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
                let lines = code.lines().filter(|line| !line.trim_start().starts_with("//"));
                let path = path.strip_prefix(crates).unwrap().display().to_string();
                sources.push((path, lines.collect::<Vec<_>>().join("\n")));
            }
        }
    }
    assert!(!sources.is_empty(), "there are sources in {folder}");
    sources
}

/// The names of a list `NAME! { ... }`: what stands before the first `,` or `:` of each of its lines.
fn listed(text: &str, name: &str) -> Vec<String> {
    let (_, list) = text.split_once(&format!("\n{name}! {{\n")).unwrap();
    let (list, _) = list.split_once("\n}").unwrap();
    let lines = list.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with("//"));
    lines.map(|line| line.split([',', ':']).next().unwrap().to_owned()).collect()
}

/// The files outside of `home` in which `words` stand.
fn strangers(sources: &[(String, String)], home: &str, words: &[String]) -> Vec<String> {
    let outside = sources.iter().filter(|(path, _)| !path.contains(home));
    let knows = |text: &str| words.iter().any(|word| text.contains(word.as_str()));
    outside.filter(|(_, text)| knows(text)).map(|(path, _)| path.clone()).collect()
}

fn text_of<'a>(sources: &'a [(String, String)], path: &str) -> &'a str {
    &sources.iter().find(|(known, _)| known == path).unwrap().1
}

/// The value of `name = "..."` in a file of the project's folder.
fn value_in(file: &str, name: &str) -> String {
    let text =
        std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(file)).unwrap();
    let value = |line: &str| {
        line.strip_prefix(name)?
            .trim()
            .strip_prefix('=')?
            .trim()
            .strip_prefix('"')?
            .split('"')
            .next()
            .map(str::to_owned)
    };
    text.lines().find_map(value).unwrap()
}

#[test]
fn the_oldest_rust_is_the_one_that_tests_are_built_with() {
    let (oldest, channel) =
        (value_in("Cargo.toml", "rust-version"), value_in("rust-toolchain.toml", "channel"));
    assert!(channel.starts_with(&oldest), "rust-version {oldest}, channel {channel}");
}

#[test]
fn a_feature_is_known_in_its_folder_and_one_list() {
    let sources = sources("router/src");
    let features = listed(text_of(&sources, "router/src/features/mod.rs"), "features");
    assert!(features.contains(&"acl".to_owned()), "{features:?}");
    for name in features {
        let words = ["features::", "features."].map(|path| format!("{path}{name}"));
        let files = strangers(&sources, &format!("features/{name}/"), &words);
        assert!(files.is_empty(), "the feature '{name}' is known to {files:?}");
    }
}

#[test]
fn a_driver_is_opened_and_described_in_its_folder_and_one_list() {
    let sources = sources("ports/src");
    let drivers = listed(text_of(&sources, "ports/src/lib.rs"), "drivers");
    assert!(drivers.contains(&"af_packet".to_owned()), "{drivers:?}");
    for (path, text) in &sources {
        let name = text.split("name: \"").nth(1).and_then(|rest| rest.split('"').next()).unwrap_or_default();
        if text.contains("DriverDoc {") && !path.ends_with("spec.rs") {
            let home = drivers.iter().any(|driver| path.contains(&format!("src/{driver}")));
            assert!(home, "the driver '{name}' of {path} is in the list");
        }
    }
    for driver in &drivers {
        let words = ["DRIVER", "TAP", "TUN", "RING", "Port::open"].map(|word| format!("{driver}::{word}"));
        let files = strangers(&sources, &format!("src/{driver}"), &words);
        assert!(files.is_empty(), "the driver '{driver}' is known to {files:?}");
    }
}

/// Classes that are looked for by name: what Click's language says of addresses and ports, and what the flag `-p` of `click` makes.
const LOOKED_FOR: [&str; 3] = ["AddressInfo", "PortInfo", "ControlSocket"];

#[test]
fn a_class_is_known_in_its_folder_alone() {
    let sources: Vec<_> = ["graph/src", "elements/src", "control/src", "router/src", "click/src"]
        .iter()
        .flat_map(|folder| sources(folder))
        // Tests with other names.
        .filter(|(path, _)| !["ip/conservation.rs", "lang/rules.rs"].iter().any(|test| path.ends_with(test)))
        .collect();
    let mut known = Vec::new();
    for (path, text) in sources.iter().filter(|(path, _)| path.starts_with("click/")) {
        for class in text.split("Class {").skip(1) {
            let Some((_, name)) = class.split_once("name: \"") else { continue };
            let name = name.split('"').next().unwrap();
            let (folder, _) = path.rsplit_once('/').unwrap();
            let files = strangers(&sources, folder, &[format!("\"{name}\"")]);
            if !files.is_empty() && !LOOKED_FOR.contains(&name) {
                known.push(format!("{name} of {path}: {files:?}"));
            }
        }
    }
    assert!(known.is_empty(), "{}", known.join("\n"));
}

/// The packages of a lock file, with their versions.
fn locked(file: &str) -> Vec<(String, String)> {
    let text =
        std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(file)).unwrap();
    let table: toml::Table = text.parse().unwrap();
    let packages = table["package"].as_array().unwrap().iter();
    let word = |package: &toml::Value, key: &str| package[key].as_str().unwrap().to_owned();
    packages.map(|package| (word(package, "name"), word(package, "version"))).collect()
}

/// Else the same crates are built twice.
#[test]
fn crates_outside_of_the_workspace_lock_its_versions() {
    let own = locked("Cargo.lock");
    let mut wrong = Vec::new();
    for file in ["examples/custom-element/Cargo.lock", "fuzz/Cargo.lock"] {
        for package in locked(file) {
            if own.iter().any(|(name, _)| *name == package.0) && !own.contains(&package) {
                wrong.push(format!("{file}: {} {}", package.0, package.1));
            }
        }
    }
    assert_eq!(
        wrong,
        Vec::<String>::new(),
        "expected the versions of Cargo.lock: cargo update -p NAME --precise VERSION"
    );
}
