//! =c
//! PullTee([N])
//!
//! =s basictransfer
//! copies packets that are pulled
//!
//! =d
//! Packets pulled through output 0 are copied to the other outputs, which push. N, if given, must be the number of
//! outputs. When the pool has no frame for a copy, the copy is missing and counted as "no frame for a copy".
//!
//! =a Tee, PaintTee

use elements::switching::tee::{check_arms, emit_copies};
use graph::{Class, Context, Element};
use packet::Batch;

pub(crate) static CLASS: Class = Class {
    name: "PullTee",
    ports: "1/1-",
    processing: "l/lh",
    manual: graph::manual!("pull_tee.rs"),
    make: |setup| {
        check_arms(setup)?;
        Ok(Box::new(PullTee))
    },
    ..Class::DEFAULT
};

struct PullTee;

impl Element for PullTee {
    fn process(&mut self, cx: &mut Context, batch: &mut Batch) {
        for output in 1..cx.outputs() {
            emit_copies(cx, output, batch);
        }
    }
}

#[cfg(test)]
mod tests {
    use graph::testing::Bench;

    #[test]
    fn what_is_pulled_is_copied() {
        let config = "InfiniteSource(x, 5) -> e :: PullTee -> out :: TestOutput; e[1] -> other :: TestOutput";
        let mut bench = Bench::new(&crate::registry(), config);
        bench.pull("out", 3);
        assert_eq!(bench.taken("out"), [b"x"; 3]);
        assert_eq!(bench.taken("other"), [b"x"; 3]);
        bench.pull("out", 9);
        assert_eq!((bench.taken("out").len(), bench.taken("other").len()), (2, 2));
    }
}
