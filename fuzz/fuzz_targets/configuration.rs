//! Any text as a configuration: an error, never a panic.
#![no_main]

use graph::lang::{Options, Source, compile};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let source = Source { name: "fuzz.click".into(), text: text.into() };
    let (flat, diagnostics) = compile(&source, &Options::default(), &click::registry());
    let _ = diagnostics.render(true);
    if let Some(flat) = flat {
        // What compiles prints as a configuration that compiles to the same.
        if !diagnostics.has_errors() {
            let again = Source { name: "again.click".into(), text: flat.flat_text() };
            let (second, problems) = compile(&again, &Options::default(), &click::registry());
            assert!(!problems.has_errors(), "{}\n{}", again.text, problems.render(false));
            assert_eq!(second.map(|second| second.flat_text()), Some(again.text));
        }
        let _ = flat.to_dot();
    }
});
