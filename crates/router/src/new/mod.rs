//! `brickway new element NAME`: a crate with an element of one's own, its tests, and a `brickway` that has it.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use clap::{Args, Subcommand};

use crate::output::say_line;

/// Makes a crate to begin with.
#[derive(Args, Debug)]
pub(crate) struct NewArguments {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand, Debug)]
enum What {
    /// A crate with an element class, its tests, and a program that has it
    #[command(after_help = "Examples:
  brickway new element RedMark          makes the folder red_mark, with the sources of this folder or of the package
  brickway new element RedMark --brickway ../brickway

Then, in that folder:
  cargo test
  cargo run -- help RedMark
  cargo run -- run FILE.click")]
    Element {
        /// The class's name in configurations, such as RedMark
        name: String,
        /// Brickway's source tree, which Cargo.toml names as you do [default: this folder, or that of the package brickway-dev]
        #[arg(long, value_name = "FOLDER")]
        brickway: Option<PathBuf>,
        /// The folder to make [default: the name, as red_mark]
        #[arg(long, value_name = "FOLDER")]
        folder: Option<PathBuf>,
    },
}

const FILES: [(&str, &str); 3] = [
    ("Cargo.toml", include_str!("Cargo.toml.template")),
    ("src/main.rs", include_str!("main.rs.template")),
    ("src/MODULE.rs", include_str!("element.rs.template")),
];

/// Where the package brickway-dev has the sources.
const SOURCES: &str = "/usr/share/brickway/source";

/// Finds the source tree: the one that was given, this folder, or the package's.
fn source_tree(given: Option<&Path>) -> Result<PathBuf> {
    let is_tree = |folder: &Path| folder.join("crates/graph/Cargo.toml").is_file();
    match given {
        Some(folder) if is_tree(folder) => Ok(folder.to_owned()),
        Some(folder) => {
            bail!(
                "--brickway {}: not Brickway's source tree; expected a folder with crates/graph",
                folder.display()
            )
        }
        None => {
            let mut folders = [".", SOURCES].into_iter().map(PathBuf::from);
            folders.find(|folder| is_tree(folder)).context(
                "this folder is not Brickway's source tree, and the package brickway-dev (brickway-devel), which has it, is not \
                 installed; install it, or name the folder with --brickway",
            )
        }
    }
}

/// The path of `to` from the folder `from`, both there already.
fn relative(from: &Path, to: &Path) -> Result<PathBuf> {
    let absolute = |path: &Path| path.canonicalize().with_context(|| path.display().to_string());
    let (from, to) = (absolute(from)?, absolute(to)?);
    let common = from.components().zip(to.components()).take_while(|(from, to)| from == to).count();
    let up = from.components().skip(common).map(|_| Path::new("..").as_os_str());
    Ok(up.chain(to.components().skip(common).map(|part| part.as_os_str())).collect())
}

/// A text with words in the place of markers. What is put in has no markers, whatever it says.
fn filled(mut text: &str, words: &[(&str, &str)]) -> String {
    let mut filled = String::new();
    loop {
        let places = words.iter().filter_map(|(marker, word)| Some((text.find(marker)?, marker, word)));
        let Some((at, marker, word)) = places.min_by_key(|(at, ..)| *at) else { return filled + text };
        filled.push_str(&text[..at]);
        filled.push_str(word);
        text = &text[at + marker.len()..];
    }
}

/// A class's name as a module: `RedMark` is `red_mark`.
fn module(name: &str) -> String {
    let mut module = String::new();
    let mut before = '_';
    for letter in name.chars() {
        if letter.is_ascii_uppercase() && !before.is_ascii_uppercase() && before != '_' {
            module.push('_');
        }
        module.push(letter.to_ascii_lowercase());
        before = letter;
    }
    module
}

pub(crate) fn new(arguments: &NewArguments) -> Result<ExitCode> {
    let What::Element { name, brickway, folder } = &arguments.what;
    let is_class = name.starts_with(|c: char| c.is_ascii_uppercase())
        && name.len() <= 64
        && name.chars().all(|c| c.is_ascii_alphanumeric());
    if !is_class {
        bail!("'{name}': expected the name of a class, letters and digits after a capital, such as RedMark");
    }
    if crate::classes().class(name).is_some() {
        bail!("{name}: there is a class of this name; `brickway help {name}` has its manual");
    }
    let tree = source_tree(brickway.as_deref())?;
    let module = module(name);
    let folder = folder.clone().unwrap_or_else(|| PathBuf::from(&module));
    if folder.exists() {
        bail!("{} exists; expected a folder that is not there yet", folder.display());
    }
    std::fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
    // A tree beside the crate moves with it.
    let named = if tree.is_absolute() { tree.clone() } else { relative(&folder, &tree)? };
    for (path, text) in FILES {
        let path = folder.join(path.replace("MODULE", &module));
        let named = named.display().to_string();
        let text = filled(text, &[("CLASS_NAME", name), ("MODULE", &module), ("TREE", &named)]);
        write(&path, &text).with_context(|| path.display().to_string())?;
        say_line!("{}", path.display());
    }
    // The versions of dependencies that Brickway is tested with.
    let lock = folder.join("Cargo.lock");
    std::fs::copy(tree.join("Cargo.lock"), &lock).with_context(|| lock.display().to_string())?;
    say_line!("\nIn {}: cargo test; cargo run -- help {name}; cargo run -- run FILE.click", folder.display());
    Ok(ExitCode::SUCCESS)
}

fn write(path: &Path, text: &str) -> std::io::Result<()> {
    std::fs::create_dir_all(path.parent().unwrap_or(Path::new(".")))?;
    std::fs::write(path, text)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    #[test]
    fn a_tree_beside_the_crate_is_named_from_there() {
        let folder = testbed::Folder::new();
        let at = |name: &str| {
            let path = folder.path().join(name);
            std::fs::create_dir_all(&path).unwrap();
            path
        };
        for (from, to, expected) in
            [("a/red", "brickway", "../../brickway"), ("brickway/red", "brickway", ".."), ("c", "c/d", "d")]
        {
            assert_eq!(super::relative(&at(from), &at(to)).unwrap(), Path::new(expected));
        }
    }

    #[test]
    fn a_class_may_have_the_name_of_a_marker() {
        let words = [("CLASS_NAME", "RedTREE"), ("TREE", "/a/CLASS_NAME"), ("MODULE", "red_tree")];
        assert_eq!(
            super::filled("CLASS_NAME in MODULE of TREE.", &words),
            "RedTREE in red_tree of /a/CLASS_NAME."
        );
    }

    #[test]
    fn names_of_classes_become_modules() {
        for (name, module) in
            [("RedMark", "red_mark"), ("CheckIPHeader", "check_ipheader"), ("X", "x"), ("A2B", "a2_b")]
        {
            assert_eq!(super::module(name), module);
        }
    }
}
