//! =c
//! Resize([HEAD, TAIL])
//!
//! =s basicmod
//! makes packets longer or shorter at both ends
//!
//! =d
//! Adds HEAD bytes before each packet and TAIL bytes behind it; negative numbers take so many away. Both are 0 by
//! default. The content of added bytes is arbitrary. A packet that has less than is to be taken away becomes empty.
//!
//! A packet without room is dropped as "no room to resize".
//!
//! =e
//!   ... -> Resize(-14, +4) -> ...
//!
//! =a Strip, Unstrip, Truncate, Pad

use graph::Class;
use packet::Packet;

use crate::each_packet::{each_packet, or_drop};

pub(crate) static CLASS: Class = Class {
    name: "Resize",
    manual: graph::manual!("resize.rs"),
    make: |setup| {
        let head: i32 = setup.arguments.optional("HEAD")?.unwrap_or(0);
        let tail: i32 = setup.arguments.optional("TAIL")?.unwrap_or(0);
        each_packet(setup, move |packet| {
            or_drop(resize(packet, head, tail).then_some(()), "no room to resize")
        })
    },
    ..Class::DEFAULT
};

fn resize(packet: &mut Packet, head: i32, tail: i32) -> bool {
    let size = |by: i32| by.unsigned_abs() as usize;
    let headed = match head {
        ..0 => packet.strip(size(head).min(packet.len())),
        0 => true,
        _ => packet.prepend(size(head)).is_some(),
    };
    match tail {
        ..0 => packet.truncate(packet.len().saturating_sub(size(tail))),
        0 => {}
        _ => return headed && packet.append(size(tail)).is_some(),
    }
    headed
}

#[cfg(test)]
mod tests {
    use graph::testing::Bench;

    #[test]
    fn longer_and_shorter() {
        let resized = |arguments: &str| {
            let mut bench = Bench::element(&crate::registry(), &format!("Resize({arguments})"), 1, 1);
            bench.push("in0", &[b"abcd"]);
            bench.taken("out0")
        };
        assert_eq!(resized("-1, -2"), [b"b"]);
        assert_eq!(resized(""), [b"abcd"]);
        assert_eq!(resized("-8"), [b""]);
        assert_eq!(resized("0, -8"), [b""]);
        let longer = resized("+2, TAIL 3");
        assert_eq!((longer[0].len(), &longer[0][2..6]), (9, &b"abcd"[..]));
        assert!(resized("20000").is_empty());
    }
}
