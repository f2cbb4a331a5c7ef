use super::cases::LEFT_OUT;
use super::*;

#[test]
fn every_class_is_measured_or_left_out_for_a_reason() {
    let measured = |class: &str| CASES.iter().filter(|case| case.class == class).count();
    let left_out = |class: &str| LEFT_OUT.iter().filter(|(_, classes)| classes.contains(&class)).count();
    let registry = ::click::registry();
    let wrong: Vec<&str> = registry
        .classes()
        .map(|class| class.name)
        .filter(|class| measured(class) + left_out(class) != 1)
        .collect();
    assert!(wrong.is_empty(), "to be measured or left out, once: {wrong:?}");
}

#[test]
fn packets_pass_every_element_that_is_measured() {
    let mut wrong = Vec::new();
    for case in CASES {
        let passed = graphs(case, 32, 8).and_then(|Graphs { mut with, .. }| {
            for _ in 0..200 {
                with.turn();
            }
            let element = with.graph().find("e").context("there is the element")?;
            let stats = with.graph().element_stats(element);
            if stats.packets > 0 { Ok(()) } else { bail!("no packet passes") }
        });
        wrong.extend(passed.err().map(|error| format!("{}: {error:#}", case.class)));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
