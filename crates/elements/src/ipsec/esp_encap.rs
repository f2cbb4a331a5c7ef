//! =c
//! EspEncap()
//!
//! =s ipsec
//! encrypts packets (RFC 4303)
//!
//! =d
//! Expects packets with the annotation of their association, as IpsecPolicy's output 2 has them, that begin with their IP header. Each
//! becomes an ESP packet, in place: in tunnel mode behind an outer IP header, in transport mode behind its own. IPv4 packets leave by
//! output 0 and IPv6 packets by output 1, with the destination annotation set, for a lookup. A single output takes both.
//!
//! The TTL of outer headers is one more than the association says: the DecIPTTL behind the lookup takes that one. So
//! `DecIPTTL` or `DecIP6HLIM` before this element is what takes one off the inner packet.
//!
//! Workers that encrypt packets of one association take sequence numbers for a run of packets at a time. The other gateway gets them
//! out of order by up to a batch for each further worker: its replay window should have 1,024 numbers.
//!
//! Drop reasons: IPsec: no association, and those of ESP (`brickway help ipsec`).
//!
//! =e
//!   ipsec[2] -> DecIPTTL -> EspEncap -> rt;
//!
//! =a EspDecap, IpsecPolicy

use arrayvec::ArrayVec;
use fib::publish::Reader;
use graph::{Class, Combine, ConfigError, Context, Element, Get, Handler, Setup};
use ipsec::esp::Sealer;
use ipsec::{Association, Fault};
use packet::wire::ipv4::Ipv4;
use packet::wire::ipv6::Ipv6;
use packet::{Batch, MAX_BATCH, Packet};

use super::database::Database;
use super::tables::{AssociationId, Tables};

pub(super) static CLASS: Class = Class {
    name: "EspEncap",
    ports: "1/1-2",
    processing: Class::PUSH,
    handlers: &[Handler::read(
        "engine",
        Combine::First,
        "The library that encrypts, and what of the processor it uses.",
        &Get(|e: &mut EspEncap| e.sealer.engine()),
    )],
    manual: graph::manual!("esp_encap.rs"),
    make,
    ..Class::DEFAULT
};

const NO_ASSOCIATION: &str = "IPsec: no association";

fn make(setup: &mut Setup<'_>) -> Result<Box<dyn Element>, ConfigError> {
    setup.arguments.finish()?;
    let database = Database::of_element(setup);
    let sealer =
        Sealer::new(database.backend()).ok_or_else(|| ConfigError::new("no cipher library works here"))?;
    Ok(Box::new(EspEncap { reader: database.reader(), sealer, faults: Box::new([None; MAX_BATCH]) }))
}

struct EspEncap {
    reader: Reader<std::sync::Arc<Tables>>,
    sealer: Sealer,
    faults: Box<[Option<Fault>; MAX_BATCH]>,
}

impl Element for EspEncap {
    fn push(&mut self, cx: &mut Context, _input: usize, batch: &mut Batch) {
        let tables = self.reader.enter();
        let found = |packet: &Packet| AssociationId::of(packet).and_then(|id| tables.place(id)).is_some();
        if !batch.packets().iter().all(found) {
            batch.extract(|packet| found(packet), |packet| cx.drop(packet, NO_ASSOCIATION));
        }
        let associations: ArrayVec<&Association, MAX_BATCH> = (batch.packets().iter())
            .filter_map(|packet| tables.place(AssociationId::of(packet)?).map(|place| &*place.association))
            .collect();
        let faults = &mut self.faults[..batch.len()];
        self.sealer.seal(batch.packets_mut(), &associations, faults);
        drop(associations);
        drop(tables);
        for packet in batch.packets_mut() {
            AssociationId::mark(None, packet);
            // It did not come in by a port.
            packet.annotations_mut().set_paint(0);
            match packet.data().first_chunk() {
                Some(header) if header[0] >> 4 == 4 => {
                    let destination = Ipv4::new_unchecked(header as &[u8; 20]).destination();
                    packet.annotations_mut().set_destination_ip(destination.to_bits());
                }
                _ => {
                    let destination = packet
                        .data()
                        .first_chunk::<40>()
                        .map(|header| Ipv6::new_unchecked(header).destination());
                    packet
                        .annotations_mut()
                        .set_destination_ip6(destination.map_or(0, |address| address.to_bits()));
                }
            }
        }
        let one = cx.outputs() == 1;
        let mut faults = faults.iter();
        cx.classify(batch, |packet| match faults.next() {
            Some(Some(fault)) => Err(fault.reason()),
            _ => Ok(usize::from(!one && packet.data().first().is_some_and(|first| first >> 4 == 6))),
        });
    }
}
