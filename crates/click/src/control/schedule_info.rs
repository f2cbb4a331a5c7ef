//! =c
//! ScheduleInfo(ELEMENT PARAMETER, ...)
//!
//! =s control
//! sets how often tasks of elements run; here all take turns
//!
//! =d
//! For configurations that have it. Elements must exist and parameters be numbers. Tasks take turns here, each with a burst at most, so
//! what Click needs this element for does not come up; shares of bandwidth are the business of schedulers and shapers.
//!
//! =a StaticThreadSched, StrideSched

use graph::lang::{split_arguments, split_words};
use graph::{Class, ConfigError, Element, FromArgument, Setup};

pub(crate) static CLASS: Class = Class {
    name: "ScheduleInfo",
    ports: "0/0",
    manual: graph::manual!("schedule_info.rs"),
    make,
    ..Class::DEFAULT
};

fn make(setup: &mut Setup<'_>) -> Result<Box<dyn Element>, ConfigError> {
    let mut problems = Vec::new();
    // A name in capitals is not a keyword here.
    for argument in split_arguments(setup.config()) {
        match split_words(&argument).as_slice() {
            [element, number] if f64::from_argument(number).is_some_and(|number| number >= 0.0) => {
                if setup.find(element).is_none() {
                    problems.push(format!("no element named '{element}'"));
                }
            }
            _ => problems.push(format!("expected 'ELEMENT PARAMETER', a number above 0, got '{argument}'")),
        }
    }
    if problems.is_empty() { Ok(Box::new(ScheduleInfo)) } else { Err(problems.into()) }
}

struct ScheduleInfo;

impl Element for ScheduleInfo {}

#[cfg(test)]
mod tests {
    use super::*;
    use graph::testing::{Bench, configure};

    #[test]
    fn it_is_accepted() {
        Bench::new(&crate::registry(), "i :: InfiniteSource(LIMIT 1) -> Discard; ScheduleInfo(i 0.5)");
        assert!(configure(&CLASS, "i").unwrap_err()[0].contains("expected 'ELEMENT PARAMETER'"));
        assert!(configure(&CLASS, "i 1").unwrap_err()[0].contains("no element named 'i'"));
    }
}
