use super::cases::LEFT_OUT;
use super::*;

#[test]
fn cases_and_reasons_name_classes_that_there_are_and_each_once() {
    let registry = ::click::registry();
    let names = CASES
        .iter()
        .map(|case| case.class)
        .chain(LEFT_OUT.iter().flat_map(|(_, classes)| classes.iter().copied()));
    let names: Vec<&str> = names.collect();
    let is_wrong = |name: &&&str| {
        registry.class(name).is_none() || names.iter().filter(|other| other == name).count() > 1
    };
    let wrong: Vec<&&str> = names.iter().filter(is_wrong).collect();
    assert!(wrong.is_empty(), "{wrong:?}");
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
