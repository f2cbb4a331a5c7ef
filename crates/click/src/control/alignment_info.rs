//! =c
//! AlignmentInfo(ELEMENT [MODULUS OFFSET]..., ...)
//!
//! =s information
//! declares how packets are aligned
//!
//! =d
//! For Click's C<click-align>, which says here what alignment packets have at the inputs of elements. Brickway's elements do not
//! care, so that it only looks whether the arguments are right.
//!
//! =a Align

use graph::lang::split_arguments;
use graph::{Class, ConfigError, Element, Setup};

pub(crate) static CLASS: Class = Class {
    name: "AlignmentInfo",
    ports: "0/0",
    manual: graph::manual!("alignment_info.rs"),
    make,
    ..Class::DEFAULT
};

fn make(setup: &mut Setup<'_>) -> Result<Box<dyn Element>, ConfigError> {
    let mut problems = Vec::new();
    for argument in split_arguments(setup.config()) {
        let words: Vec<&str> = argument.split_whitespace().collect();
        let Some((name, numbers)) = words.split_first() else { continue };
        if setup.find(name).is_none() {
            problems.push(format!("no element named '{name}'"));
        }
        let is_number = |word: &&str| word.parse::<i32>().is_ok();
        if numbers.len() % 2 != 0 || !numbers.iter().all(is_number) {
            problems.push(format!("expected ELEMENT [MODULUS OFFSET]..., got '{argument}'"));
        }
    }
    if problems.is_empty() { Ok(Box::new(AlignmentInfo)) } else { Err(problems.into()) }
}

struct AlignmentInfo;

impl Element for AlignmentInfo {}

#[cfg(test)]
mod tests {
    use graph::testing::Bench;

    #[test]
    fn arguments() {
        let bench = |text: &str| {
            let config = format!("{text}; d :: Idle -> Discard");
            Bench::try_new(&crate::registry(), &config, 32, &Default::default())
        };
        assert!(bench("AlignmentInfo(d 4 2, d 8 0 4 0, d)").is_ok());
        assert!(bench("AlignmentInfo(x 4 2)").unwrap_err().contains("no element named 'x'"));
        assert!(bench("AlignmentInfo(d 4)").unwrap_err().contains("expected ELEMENT [MODULUS OFFSET]"));
    }
}
