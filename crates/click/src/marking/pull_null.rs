//! =c
//! PullNull
//!
//! =s basictransfer
//! passes packets on unchanged
//!
//! =d
//! Does nothing, and its ports pull.
//!
//! =a Null, PushNull

use graph::{Class, Element};

pub(crate) static CLASS: Class = Class {
    name: "PullNull",
    processing: Class::PULL,
    manual: graph::manual!("pull_null.rs"),
    make: |setup| {
        setup.arguments.finish()?;
        Ok(Box::new(PullNull))
    },
    ..Class::DEFAULT
};

struct PullNull;

impl Element for PullNull {}

#[cfg(test)]
mod tests {
    use graph::testing::Bench;

    #[test]
    fn packets_are_pulled() {
        let config = "InfiniteSource(x, 2) -> PullNull -> out :: TestOutput";
        let mut bench = Bench::new(&crate::registry(), config);
        assert_eq!(bench.pull("out", 5), 2);
        assert_eq!(bench.taken("out"), [b"x", b"x"]);
        let config = "InfiniteSource -> PullNull -> PushNull -> Discard";
        assert!(Bench::try_new(&crate::registry(), config, 1, &Default::default()).is_err());
    }
}
