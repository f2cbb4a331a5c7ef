//! =c
//! EspEncap()
//!
//! =s ipsec
//! encrypts packets (RFC 4303)
//!
//! =d
//! Expects packets that begin with their IP header and have the annotation of their association, as
//! IpsecPolicy's output 2 has them. Each becomes an ESP packet, in place. In tunnel mode ESP is
//! behind an outer IP header, in transport mode behind the packet's own. IPv4 packets leave by
//! output 0 and IPv6 packets by output 1, with the destination annotation set, for a lookup. A
//! single output takes both.
//!
//! The TTL of outer headers is one more than the association defines, because the DecIPTTL behind
//! the lookup decrements it. The TTL of the inner packet is decremented by a `DecIPTTL` or
//! `DecIP6HLIM` before this element.
//!
//! Workers that encrypt packets of one association take sequence numbers for a run of packets at a
//! time. The other gateway gets them out of order by up to a batch for each further worker. Its
//! replay window should have 1,024 numbers.
//!
//! Drop reasons: `IPsec: no association`, `ESP: association expired`,
//! `ESP: sequence numbers used up`, `ESP: no room in the frame`.
//!
//! =e
//!   ipsec[2] -> DecIPTTL -> EspEncap -> rt;
//!
//! =a EspDecap, IpsecPolicy

use std::cell::Cell;

use arrayvec::ArrayVec;
use fib::publish::Reader;
use graph::{Class, Combine, ConfigError, Context, Element, Get, Handler, Setup};
use ipsec::esp::Sealer;
use ipsec::{Association, Endpoints, Fault};
use packet::{Batch, MAX_BATCH, Packet};

use super::database::Database;
use super::tables::{AssociationId, Tables};

pub(super) static CLASS: Class = Class {
    name: "EspEncap",
    capabilities: &[graph::KEEPS_ALL],
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

pub(super) const NO_ASSOCIATION: &str = "IPsec: no association";

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
        let association =
            |packet: &Packet| tables.place(AssociationId::of(packet)?).map(|place| &*place.association);
        let mut associations: ArrayVec<&Association, MAX_BATCH> =
            batch.packets().iter().map_while(association).collect();
        if associations.len() < batch.len() {
            // Associations that have gone since the policies were asked.
            batch.extract(|packet| association(packet).is_some(), |packet| cx.drop(packet, NO_ASSOCIATION));
            associations = batch.packets().iter().map_while(association).collect();
        }
        let faults = &mut self.faults[..batch.len()];
        self.sealer.seal(batch.packets_mut(), &associations, faults);
        let (mut has_faults, mut families) = (false, [false; 2]);
        for ((packet, association), fault) in batch.packets_mut().iter_mut().zip(&associations).zip(&*faults)
        {
            has_faults |= fault.is_some();
            let annotations = packet.annotations_mut();
            // It did not come in by a port.
            annotations.set_paint(0);
            match association.settings().endpoints {
                Endpoints::V4 { destination, .. } => {
                    annotations.set_destination_ip(destination.to_bits());
                    families[0] = true;
                }
                Endpoints::V6 { destination, .. } => {
                    annotations.set_destination_ip6(destination.to_bits());
                    families[1] = true;
                }
            }
            AssociationId::mark(None, packet);
        }
        drop(associations);
        drop(tables);
        if has_faults {
            let fault = Cell::new(None);
            let mut faults = faults.iter();
            batch.extract(
                |_| {
                    fault.set(faults.next().copied().flatten());
                    fault.get().is_none()
                },
                |packet| cx.drop(packet, fault.get().map_or(NO_ASSOCIATION, Fault::reason)),
            );
        }
        match families {
            _ if cx.outputs() == 1 => {}
            [_, false] => {}
            [false, true] => cx.emit_batch(1, batch),
            [true, true] => cx.classify(batch, |packet| {
                Ok(usize::from(packet.data().first().is_some_and(|first| first >> 4 == 6)))
            }),
        }
    }
}
