//! =c
//! EspReseal()
//!
//! =s ipsec
//! encrypts packets that EspDecap has decrypted once more, for Linux
//!
//! =d
//! Linux's own policies refuse packets that came without the protection that the policies ask for.
//! Linux does not know that EspDecap has removed the protection. So some packets are encrypted
//! again before they go to Linux: those for this host itself, too long, with options, or without a
//! neighbour. They get the same association, and the number that they came with. Linux decrypts
//! them with its own copy of the association.
//!
//! Expects packets that begin with their IP header. Packets that EspDecap has decrypted leave by
//! output 1 (IPv4 outside) or output 2 (IPv6 outside). All others leave by output 0, unchanged.
//!
//! Drop reasons: `IPsec: no association`, `ESP: no room in the frame`.
//!
//! =e
//!   to_linux :: EspReseal;  to_linux[0] -> UnstripToMACHeader -> host;
//!   to_linux[1] -> EtherEncap(0x0800, ...) -> host;  to_linux[2] -> EtherEncap(0x86dd, ...) -> host;
//!
//! =a EspDecap, EspEncap

use std::sync::Arc;

use fib::publish::Reader;
use graph::{Class, ConfigError, Context, Element, Setup};
use ipsec::esp::Sealer;
use packet::{Annotations, Batch};

use super::database::Database;
use super::esp_encap::NO_ASSOCIATION;
use super::tables::{AssociationId, Tables, set_checked};

pub(super) static CLASS: Class = Class {
    name: "EspReseal",
    capabilities: &[graph::KEEPS_ALL],
    ports: "1/3",
    processing: Class::PUSH,
    manual: graph::manual!("esp_reseal.rs"),
    make,
    ..Class::DEFAULT
};

fn make(setup: &mut Setup<'_>) -> Result<Box<dyn Element>, ConfigError> {
    setup.arguments.finish()?;
    let database = Database::of_element(setup);
    let sealer =
        Sealer::new(database.backend()).ok_or_else(|| ConfigError::new("no cipher library works here"))?;
    Ok(Box::new(EspReseal { reader: database.reader(), sealer }))
}

struct EspReseal {
    reader: Reader<Arc<Tables>>,
    sealer: Sealer,
}

impl Element for EspReseal {
    fn push(&mut self, cx: &mut Context, _input: usize, batch: &mut Batch) {
        if batch.packets().iter().all(|packet| AssociationId::of(packet).is_none()) {
            return;
        }
        let tables = self.reader.enter();
        let sealer = &mut self.sealer;
        cx.classify(batch, |packet| {
            let Some(id) = AssociationId::of(packet) else { return Ok(0) };
            let place = tables.place(id).ok_or(NO_ASSOCIATION)?;
            // IpsecPolicy marks packets that are to be sealed, too: those of associations that do not receive.
            let number = packet.annotations().u32_at(Annotations::ESP_SEQUENCE).unwrap_or(0);
            sealer.seal_again(packet, &place.association, number).map_err(ipsec::Fault::reason)?;
            AssociationId::mark(None, packet);
            set_checked(packet);
            Ok(if packet.data().first().is_some_and(|first| first >> 4 == 6) { 2 } else { 1 })
        });
    }
}
