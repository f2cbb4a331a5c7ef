//! =c
//! EspToHost()
//!
//! =s ipsec
//! separates ESP to this host from all other packets
//!
//! =d
//! Expects IPv4 or IPv6 packets as CheckIPHeader and CheckIP6Header leave them. ESP to this host
//! (RFC 4303), also in UDP (RFC 3948), leaves by output 1, for EspDecap. All other packets leave by
//! output 0. Packets are not changed. IpsecPolicy does the same. This element is for elements
//! before IpsecPolicy that have to see packets as they are inside ESP, such as access lists.
//!
//! =e
//!   ... -> CheckIPHeader -> esp :: EspToHost -> acl :: ACL(...) -> ipsec :: IpsecPolicy -> rt;
//!   esp[1] -> decap :: EspDecap; decap[0] -> CheckIPHeader -> acl;
//!
//! =a EspDecap, IpsecPolicy

use std::sync::Arc;

use fib::publish::Reader;
use graph::runs::Ordinary;
use graph::{Class, ConfigError, Context, Element, Handler, Put, Setup};
use packet::{Batch, MAX_BATCH};

use super::activation::{HasIdle, Idle, REFRESH};
use super::database::Database;
use super::tables::{AssociationId, Tables};

pub(super) static CLASS: Class = Class {
    name: "EspToHost",
    capabilities: &[graph::KEEPS_ALL],
    ports: "1/2",
    processing: Class::PUSH,
    handlers: &[Handler::write("refresh", REFRESH, &Put(EspToHost::refresh))],
    manual: graph::manual!("esp_to_host.rs"),
    make,
    ..Class::DEFAULT
};

fn make(setup: &mut Setup<'_>) -> Result<Box<dyn Element>, ConfigError> {
    setup.arguments.finish()?;
    let database = Database::of_element(setup);
    Ok(Box::new(EspToHost {
        reader: database.reader(),
        idle: Idle::of_element(setup),
        outputs: Box::new([0; MAX_BATCH]),
    }))
}

struct EspToHost {
    reader: Reader<Arc<Tables>>,
    idle: Idle,
    outputs: Box<[u16; MAX_BATCH]>,
}

impl HasIdle for EspToHost {
    fn idle(&mut self) -> &mut Idle {
        &mut self.idle
    }
}

impl Element for EspToHost {
    fn ordinary(&self) -> Option<Ordinary> {
        self.idle.ordinary()
    }

    fn push(&mut self, cx: &mut Context, _input: usize, batch: &mut Batch) {
        let tables = self.reader.enter();
        if !tables.has_inbound() {
            return;
        }
        let mut finder = tables.esp_to_host();
        let outputs = &mut self.outputs[..batch.len()];
        let mut found = 0;
        for (packet, output) in batch.packets().iter().zip(&mut *outputs) {
            let network = packet.network().filter(|_| AssociationId::of(packet).is_none());
            *output = u16::from(network.is_some_and(|network| finder.is_for_us(network)));
            found += usize::from(*output);
        }
        drop(tables);
        if found == batch.len() {
            cx.emit_batch(1, batch);
        } else if found != 0 {
            cx.scatter(batch, outputs);
        }
    }
}
