//! =c
//! ClickyInfo(...)
//!
//! =s control
//! sets how Clicky, a program that draws configurations, shows them; does nothing here
//!
//! =d
//! Its arguments are not looked at.

use graph::{Class, Element};

pub(crate) static CLASS: Class = Class {
    name: "ClickyInfo",
    ports: "0/0",
    manual: graph::manual!("clicky_info.rs"),
    make: |_| Ok(Box::new(ClickyInfo)),
    ..Class::DEFAULT
};

struct ClickyInfo;

impl Element for ClickyInfo {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_arguments() {
        assert_eq!(graph::testing::configure(&CLASS, "STYLE #q { queue-style: none }, x"), Ok(()));
    }
}
