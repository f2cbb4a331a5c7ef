//! =c
//! Strip(LENGTH)
//!
//! =s basicmod
//! strips bytes from the front of packets
//!
//! =d
//! Takes the first LENGTH bytes off each packet; they stay in its head room, where C<Unstrip> finds them. A packet that
//! has no more than that becomes empty.
//!
//! =e
//!   Strip(14)
//! takes the Ethernet header off.
//!
//! =a Unstrip, StripToNetworkHeader, Truncate

use graph::runs::Ordinary;
use graph::{Class, Context, Element};
use packet::Batch;

use crate::runs::{self, Step};

pub(crate) static CLASS: Class = Class {
    name: "Strip",
    capabilities: &[graph::TAKES_MERGED, graph::KEEPS_ALL],
    manual: graph::manual!("strip.rs"),
    make: |setup| {
        let length: u32 = setup.arguments.required("LENGTH")?;
        setup.arguments.finish()?;
        Ok(Box::new(Strip { length: length as usize }))
    },
    ..Class::DEFAULT
};

struct Strip {
    length: usize,
}

impl Element for Strip {
    fn ordinary(&self) -> Option<Ordinary> {
        runs::ordinary([Step::Strip(self.length)])
    }

    fn process(&mut self, _cx: &mut Context, batch: &mut Batch) {
        for packet in batch.packets_mut() {
            if !packet.strip(self.length) {
                packet.strip(packet.len());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use graph::testing::{Bench, configure};

    #[test]
    fn the_front_goes() {
        let mut bench = Bench::element(&crate::registry(), "Strip(3)", 1, 1);
        bench.push("in0", &[b"abcdef", b"abc", b"ab", b""]);
        assert_eq!(bench.taken("out0"), [&b"def"[..], b"", b"", b""]);
    }

    #[test]
    fn mistakes() {
        assert_eq!(configure(&CLASS, "").unwrap_err().len(), 1);
        assert!(configure(&CLASS, "-1").is_err());
        assert!(configure(&CLASS, "1, 2").is_err());
    }
}
