//! =c
//! StoreData(OFFSET, DATA [, I<keyword> MASK])
//!
//! =s basicmod
//! writes bytes into packets
//!
//! =d
//! Writes the bytes of DATA into each packet, OFFSET bytes after its beginning. With MASK, as long as DATA, only the bits that are
//! set in it are changed. Where a packet ends before, the rest of DATA is left out.
//!
//! =e
//!   ... -> StoreData(12, \<0800>) -> ...
//!
//! =a Strip, Truncate, Clipboard

use graph::arguments::Raw;
use graph::lang::unquote_bytes;
use graph::{Class, ConfigError, Context, Element, Setup};
use packet::Batch;

pub(crate) static CLASS: Class =
    Class { name: "StoreData", manual: graph::manual!("store_data.rs"), make, ..Class::DEFAULT };

fn make(setup: &mut Setup<'_>) -> Result<Box<dyn Element>, ConfigError> {
    let offset: u16 = setup.arguments.required("OFFSET")?;
    let Raw(data) = setup.arguments.required("DATA")?;
    let mask: Option<Raw> = setup.arguments.optional("MASK")?;
    setup.arguments.finish()?;
    let data = unquote_bytes(&data);
    let mask = mask.map_or_else(|| vec![0xff; data.len()], |Raw(mask)| unquote_bytes(&mask));
    if mask.len() != data.len() {
        return Err(format!("MASK: expected {} bytes as in DATA, got {}", data.len(), mask.len()).into());
    }
    let stored = data.iter().zip(mask).map(|(&byte, mask)| (byte & mask, mask)).collect();
    Ok(Box::new(StoreData { offset: offset.into(), stored }))
}

struct StoreData {
    offset: usize,
    /// The bits of each byte, and which ones these are.
    stored: Box<[(u8, u8)]>,
}

impl Element for StoreData {
    fn process(&mut self, _cx: &mut Context, batch: &mut Batch) {
        for packet in batch.packets_mut() {
            let Some(bytes) = packet.data_mut().get_mut(self.offset..) else { continue };
            for (byte, (bits, mask)) in bytes.iter_mut().zip(&self.stored) {
                *byte = (*byte & !mask) | bits;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use graph::testing::{Bench, configure};

    #[test]
    fn bytes_and_bits() {
        let mut bench = Bench::element(&crate::registry(), r"StoreData(2, \<0102ff>, \<ffff0f>)", 1, 1);
        bench.push("in0", &[b"abcdef", b"abc", b"a"]);
        assert_eq!(bench.taken("out0"), [&b"ab\x01\x02\x6ff"[..], b"ab\x01", b"a"]);
        assert!(configure(&CLASS, "0, abc, MASK a").unwrap_err()[0].contains("3 bytes as in DATA"));
    }
}
