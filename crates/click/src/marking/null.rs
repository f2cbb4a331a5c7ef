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
//!
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
//!
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
    name: "Null",
    capabilities: &[graph::TAKES_MERGED, graph::KEEPS_ALL],
    manual: graph::manual!("null.rs", "Null"),
    make: |setup| {
        setup.arguments.finish()?;
        Ok(Box::new(Null))
    },
    ..Class::DEFAULT
};

pub(crate) static PUSH: Class = Class {
    name: "PushNull",
    processing: Class::PUSH,
    manual: graph::manual!("null.rs", "PushNull"),
    ..CLASS
};

pub(crate) static PULL: Class = Class {
    name: "PullNull",
    processing: Class::PULL,
    manual: graph::manual!("null.rs", "PullNull"),
    ..CLASS
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

    #[test]
    fn packets_are_pushed() {
        let mut bench = Bench::element(&crate::registry(), "PushNull", 1, 1);
        bench.push("in0", &[b"a"]);
        assert_eq!(bench.taken("out0"), [b"a"]);
        let config = "InfiniteSource -> PushNull -> Queue -> PushNull -> Discard";
        assert!(Bench::try_new(&crate::registry(), config, 1, &Default::default()).is_err());
    }

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
