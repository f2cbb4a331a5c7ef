//! =c
//! HashSwitch(OFFSET, LENGTH)
//!
//! =s classification
//! sends packets to outputs by a hash of some of their bytes
//!
//! =d
//! The output is chosen by the sum of the LENGTH bytes from OFFSET on, so that packets alike there go the same way.
//! Packets too short for that go to output 0.
//!
//! =a Switch, RoundRobinSwitch, RandomSwitch

use graph::{Class, Context, Element};
use packet::Batch;

pub(crate) static CLASS: Class = Class {
    capabilities: &[graph::TAKES_MERGED],
    name: "HashSwitch",
    ports: "1/1-",
    processing: Class::PUSH,
    manual: graph::manual!("hash_switch.rs"),
    make: |setup| {
        let offset: usize = setup.arguments.required("OFFSET")?;
        let length: usize = setup.arguments.required("LENGTH")?;
        setup.arguments.finish()?;
        if length == 0 {
            return Err("LENGTH: expected 1 or more bytes, got 0".to_owned().into());
        }
        let end = offset.checked_add(length).ok_or_else(|| "OFFSET: too large".to_owned())?;
        Ok(Box::new(HashSwitch { offset, end }))
    },
    ..Class::DEFAULT
};

struct HashSwitch {
    offset: usize,
    end: usize,
}

/// Click's choice among `outputs` by the sum of `bytes`.
fn choose(bytes: &[u8], outputs: usize) -> usize {
    let sum: usize = bytes.iter().map(|&byte| usize::from(byte)).sum();
    match outputs {
        // The low bits of addresses often say little; the next four are mixed in.
        2 | 4 | 8 => (sum ^ (sum >> 4)) & (outputs - 1),
        _ => sum % outputs,
    }
}

impl Element for HashSwitch {
    fn push(&mut self, cx: &mut Context, _input: usize, batch: &mut Batch) {
        let outputs = cx.outputs();
        cx.classify(batch, |packet| {
            Ok(packet.data().get(self.offset..self.end).map_or(0, |bytes| choose(bytes, outputs)))
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use graph::testing::{Bench, configure};

    #[test]
    fn alike_bytes_go_alike() {
        let mut bench = Bench::element(&crate::registry(), "HashSwitch(1, 2)", 1, 3);
        bench.push("in0", &[&[9, 1, 1], &[8, 0, 2, 7], &[0, 0, 0], &[0, 0, 1], &[5, 200], &[]]);
        assert_eq!(bench.taken("out2"), [&[9, 1, 1][..], &[8, 0, 2, 7]]);
        assert_eq!(bench.taken("out1"), [[0, 0, 1]]);
        assert_eq!(bench.taken("out0"), [&[0, 0, 0][..], &[5, 200], &[]]);
    }

    #[test]
    fn every_output_is_used() {
        for outputs in 1..10 {
            let mut used = vec![false; outputs];
            for byte in 0..=255 {
                used[choose(&[byte], outputs)] = true;
            }
            assert!(used.iter().all(|&used| used), "{outputs}");
        }
        assert_eq!(choose(&[0x10], 2), 1);
    }

    #[test]
    fn mistakes() {
        assert!(configure(&CLASS, "1").is_err());
        assert!(configure(&CLASS, "1, 0").is_err());
        assert!(configure(&CLASS, "18446744073709551615, 2").is_err());
    }
}
