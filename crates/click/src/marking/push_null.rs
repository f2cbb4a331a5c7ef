//! =c
//! PushNull
//!
//! =s basictransfer
//! passes packets on unchanged
//!
//! =d
//! Does nothing, and its ports push.
//!
//! =a Null, PullNull

use graph::{Class, Element};

pub(crate) static CLASS: Class = Class {
    name: "PushNull",
    processing: Class::PUSH,
    manual: graph::manual!("push_null.rs"),
    make: |setup| {
        setup.arguments.finish()?;
        Ok(Box::new(PushNull))
    },
    ..Class::DEFAULT
};

struct PushNull;

impl Element for PushNull {}

#[cfg(test)]
mod tests {
    use graph::testing::Bench;

    #[test]
    fn packets_are_pushed() {
        let mut bench = Bench::element(&crate::registry(), "PushNull", 1, 1);
        bench.push("in0", &[b"a"]);
        assert_eq!(bench.taken("out0"), [b"a"]);
        let config = "InfiniteSource -> PushNull -> Queue -> PushNull -> Discard";
        assert!(Bench::try_new(&crate::registry(), config, 1, &Default::default()).is_err());
    }
}
