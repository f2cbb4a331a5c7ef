//! =c
//! EspToHost()
//!
//! =s ipsec
//! tells ESP to this host from all other packets
//!
//! =d
//! Expects IPv4 or IPv6 packets as CheckIPHeader and CheckIP6Header leave them. ESP to this host (RFC 4303), also in UDP (RFC 3948),
//! leaves by output 1, for EspDecap; all other packets by output 0. Packets are not changed. IpsecPolicy does the same: this element
//! is for what stands before it and is to see packets as they are inside ESP, such as access lists.
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
use packet::{Batch, Packet};

use super::activation::{HasIdle, Idle, REFRESH};
use super::database::Database;
use super::ipsec_policy::is_for_us;
use super::tables::Tables;

pub(super) static CLASS: Class = Class {
    name: "EspToHost",
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
    Ok(Box::new(EspToHost { reader: database.reader(), idle: Idle::of_element(setup) }))
}

struct EspToHost {
    reader: Reader<Arc<Tables>>,
    idle: Idle,
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
        let is_esp = |packet: &Packet| is_for_us(&tables, packet);
        if batch.packets().iter().any(is_esp) {
            cx.classify(batch, |packet| Ok(usize::from(is_esp(packet))));
        }
    }
}
