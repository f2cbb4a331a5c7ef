//! A table of element classes, with Click's port codes, for the tests of this folder.

use super::{ClassSpec, ClassTable, Diagnostics, FlatConfig, Options, Source, compile};

/// name, ports, processing, flow
const CLASSES: &[(&str, &str, &str, &str)] = &[
    ("ARPQuerier", "2/1-2", "h/h", "xy/x"),
    ("Classifier", "1/-", "h/h", "x/x"),
    ("Counter", "1/1", "a/a", "x/x"),
    ("Discard", "1/0", "a/a", "x/x"),
    ("DriverManager", "0/0", "a/a", "x/x"),
    ("Error", "-/-", "a/a", "x/y"),
    ("Idle", "-/-", "a/a", "x/y"),
    ("InfiniteSource", "0/1", "h/h", "x/x"),
    ("Message", "0/0", "a/a", "x/x"),
    ("Null", "1/1", "a/a", "x/x"),
    ("Paint", "1/1", "a/a", "x/x"),
    ("Print", "1/1", "a/a", "x/x"),
    ("PullNull", "1/1", "l/l", "x/x"),
    ("PushNull", "1/1", "h/h", "x/x"),
    ("Queue", "1/1-2", "h/lh", "x/x"),
    ("Suppressor", "-/=", "a/a", "#/#"),
    ("Tee", "1/-", "h/h", "x/x"),
    ("ToDevice", "1/0", "l/l", "x/x"),
    ("Unqueue", "1/1", "l/h", "x/x"),
];

pub(super) struct Table;

impl ClassTable for Table {
    fn lookup(&self, name: &str) -> Option<ClassSpec> {
        let &(name, ports, processing, flow) = CLASSES.iter().find(|c| c.0 == name)?;
        Some(ClassSpec { name, ports, processing, flow, capabilities: &[] })
    }

    fn names(&self) -> Vec<String> {
        CLASSES.iter().map(|c| c.0.to_string()).collect()
    }
}

pub(super) fn source(text: &str) -> Source {
    Source { name: "test.click".to_string(), text: text.to_string() }
}

pub(super) fn run(text: &str) -> (Option<FlatConfig>, Diagnostics) {
    compile(&source(text), &Options::default(), &Table)
}

/// Compiles a configuration that must be right.
#[track_caller]
pub(super) fn compiled(text: &str) -> FlatConfig {
    let (flat, diagnostics) = run(text);
    assert!(!diagnostics.has_errors(), "{}", diagnostics.render(false));
    flat.expect("a configuration without errors")
}

/// The first lines of all errors, as Click would print them without the file's name.
pub(super) fn errors(text: &str) -> Vec<String> {
    let (_, diagnostics) = run(text);
    let errors = diagnostics.iter().filter(|d| d.severity == super::Severity::Error);
    errors.map(|d| format!("{}: {}", d.location.as_ref().map_or(0, |l| l.line), d.message)).collect()
}

/// `name :: Class(config)` for all elements.
pub(super) fn elements(flat: &FlatConfig) -> Vec<String> {
    let shown = |config: &str| if config.is_empty() { String::new() } else { format!("({config})") };
    flat.elements.iter().map(|e| format!("{} :: {}{}", e.name, e.class, shown(&e.config))).collect()
}

/// `a [1] -> [2] b` for all connections, sorted.
pub(super) fn connections(flat: &FlatConfig) -> Vec<String> {
    let name = |i: usize| &flat.elements[i].name;
    let out = |p: usize| if p == 0 { String::new() } else { format!(" [{p}]") };
    let into = |p: usize| if p == 0 { String::new() } else { format!("[{p}] ") };
    let shown = |c: &super::Connection| {
        format!("{}{} -> {}{}", name(c.from.0), out(c.from.1), into(c.to.1), name(c.to.0))
    };
    let mut all: Vec<String> = flat.connections.iter().map(shown).collect();
    all.sort();
    all
}
