//! Any instructions as Scripts that may call each other: each runs to its end, waits or is cut off; a mistake is a message, never a
//! panic. What reaches beyond the router is left out.
#![no_main]

use graph::lang::{Options, Source, compile};
use graph::setup::Shared;
use graph::testing::Bench;
use libfuzzer_sys::fuzz_target;

/// Words of instructions and functions that touch files or processes.
const BEYOND: [&str; 5] = [">", "save", "append", "cat", "kill"];
/// Longest text: a script of more instructions takes long, not other ways.
const MOST_BYTES: usize = 512;
const CLASSES: [&str; 5] = ["InfiniteSource", "Switch", "Counter", "Discard", "Script"];

fuzz_target!(|text: &str| {
    if text.len() > MOST_BYTES || BEYOND.iter().any(|word| text.contains(word)) {
        return;
    }
    // Each line is the instructions of one script; the last line is what handlers are called with.
    let mut lines = text.splitn(3, '\n').map(str::trim);
    let mut line = || lines.next().unwrap_or_default();
    let (first, second, argument) = (line(), line(), line());
    let config = format!(
        "InfiniteSource(LIMIT 3) -> s :: Switch(0) -> c :: Counter -> Discard;
         s[1] -> p :: Script(TYPE PACKET, {second}) -> Discard;
         a :: Script(TYPE PASSIVE, {first});
         b :: Script({second});"
    );
    // The text may have closed the parenthesis and gone on with elements that write files.
    let source = Source { name: "script.click".into(), text: config.clone() };
    let (flat, _) = compile(&source, &Options::default(), &click::registry());
    let Some(flat) = flat else { return };
    if flat.elements.len() != 7
        || flat.elements.iter().any(|element| !CLASSES.contains(&element.class.as_str()))
    {
        return;
    }
    let Ok(mut bench) = Bench::try_new(&click::registry(), &config, 32, &Shared::default()) else { return };
    bench.run(8);
    for target in ["s.switch", "a.run", "b.step", "a.goto", "b.goto", "b.set", "p.run"] {
        let _ = bench.write(target, argument);
        bench.run(8);
    }
});
