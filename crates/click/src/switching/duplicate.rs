//! =c
//! Duplicate([N])
//!
//! =s basictransfer
//! copies packets to every output
//!
//! =d
//! The same as C<Tee>. In Click the copies of a Tee share their data until one is changed; here copies are always whole.
//!
//! =a Tee, Hub

use elements::switching::tee::make;
use graph::Class;

pub(crate) static CLASS: Class = Class {
    name: "Duplicate",
    ports: "1/1-",
    processing: Class::PUSH,
    manual: graph::manual!("duplicate.rs"),
    make,
    ..Class::DEFAULT
};

#[cfg(test)]
mod tests {
    use graph::testing::Bench;

    #[test]
    fn every_output_gets_every_packet() {
        let mut bench = Bench::element(&crate::registry(), "Duplicate(2)", 1, 2);
        bench.push("in0", &[b"a", b"b"]);
        assert_eq!(
            (bench.taken("out0").concat(), bench.taken("out1").concat()),
            (b"ab".into(), b"ab".into())
        );
    }
}
