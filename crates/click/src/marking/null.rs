//! =c
//! Null
//!
//! =s basictransfer
//! passes packets on unchanged
//!
//! =d
//! Does nothing.
//!
//! =a PushNull, PullNull

use graph::{Class, Element};

pub(crate) static CLASS: Class = Class {
    name: "Null",
    manual: graph::manual!("null.rs"),
    make: |setup| {
        setup.arguments.finish()?;
        Ok(Box::new(Null))
    },
    ..Class::DEFAULT
};

struct Null;

impl Element for Null {}

#[cfg(test)]
mod tests {
    use graph::testing::{Bench, configure};

    #[test]
    fn packets_pass() {
        let mut bench = Bench::element(&crate::registry(), "Null", 1, 1);
        bench.push("in0", &[b"a", b"b"]);
        assert_eq!(bench.taken("out0"), [b"a", b"b"]);
        assert!(configure(&super::CLASS, "1").is_err());
    }
}
