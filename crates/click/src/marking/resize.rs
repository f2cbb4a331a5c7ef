//! =c
//! Resize([HEAD, TAIL])
//!
//! =s basicmod
//! makes packets longer or shorter at both ends
//!
//! =d
//! Adds HEAD bytes before each packet and TAIL bytes behind it; negative numbers take so many away. Both are 0 by default. What is
//! added holds anything. A packet that has less than is to be taken away becomes empty.
//!
//! A packet without room is dropped as "no room to resize".
//!
//! =e
//!   ... -> Resize(-14, +4) -> ...
//!
//! =a Strip, Unstrip, Truncate, Pad

use graph::{Class, ConfigError, Context, Element, Setup, Verdict};
use packet::{Batch, Packet};

pub(crate) static CLASS: Class =
    Class { name: "Resize", manual: graph::manual!("resize.rs"), make, ..Class::DEFAULT };

fn make(setup: &mut Setup<'_>) -> Result<Box<dyn Element>, ConfigError> {
    let head: i32 = setup.arguments.optional("HEAD")?.unwrap_or(0);
    let tail: i32 = setup.arguments.optional("TAIL")?.unwrap_or(0);
    setup.arguments.finish()?;
    Ok(Box::new(Resize { head, tail }))
}

struct Resize {
    head: i32,
    tail: i32,
}

impl Resize {
    fn resize(&self, packet: &mut Packet) -> bool {
        let size = |by: i32| by.unsigned_abs() as usize;
        let headed = match self.head {
            ..0 => packet.strip(size(self.head).min(packet.len())),
            0 => true,
            _ => packet.prepend(size(self.head)).is_some(),
        };
        match self.tail {
            ..0 => packet.truncate(packet.len().saturating_sub(size(self.tail))),
            0 => {}
            _ => return headed && packet.append(size(self.tail)).is_some(),
        }
        headed
    }
}

impl Element for Resize {
    fn process(&mut self, cx: &mut Context, batch: &mut Batch) {
        cx.filter(batch, |packet| match self.resize(packet) {
            true => Verdict::Keep,
            false => Verdict::Drop("no room to resize"),
        });
    }
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
