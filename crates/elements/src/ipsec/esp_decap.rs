//! =c
//! EspDecap()
//!
//! =s ipsec
//! decrypts packets (RFC 4303)
//!
//! =d
//! Expects ESP packets to this host, also in UDP (RFC 3948), as CheckIPHeader and CheckIP6Header
//! leave them. Decrypts each packet in place, and removes all parts of ESP and, in tunnel mode, the
//! outer header. IPv4 packets leave by output 0 and IPv6 packets by output 1; a single output takes
//! both. They begin with their IP header, which is to be checked. They have the annotation of their
//! association, which IpsecPolicy is to compare with its policies.
//!
//! Output 2, if it is connected, is for packets that Linux has to decrypt: those of associations
//! that it keeps, and those of unknown ones.
//!
//! Congestion marks of the outer header are copied to the inner one (RFC 6040).
//!
//! Drop reasons: `ESP: unknown SPI`, `ESP: truncated`, `ESP: replayed`,
//! `ESP: older than the replay window`, `ESP: wrong ICV`, `ESP: association expired`,
//! `ESP: bad padding`, `ESP: bad inner header`, `ESP: dummy packet`,
//! `ESP: congestion mark without ECN`.
//!
//! =e
//!   ipsec[1] -> decap :: EspDecap;
//!   decap[0] -> CheckIPHeader -> ipsec;
//!   decap[1] -> CheckIP6Header -> ipsec;
//!   decap[2] -> ...
//!
//! =a EspEncap, IpsecPolicy

use arrayvec::ArrayVec;
use fib::publish::Reader;
use graph::{Class, Combine, ConfigError, Context, Element, Get, Handler, Setup};
use ipsec::Association;
use ipsec::esp::{Opened, Opener, PLAIN_OFFSET, find, find_plain};
use packet::{Annotations, Batch, MAX_BATCH, Packet};

use super::database::Database;
use super::tables::{AssociationId, Inbound, Tables};

pub(super) static CLASS: Class = Class {
    name: "EspDecap",
    capabilities: &[graph::KEEPS_ALL],
    ports: "1/1-3",
    processing: Class::PUSH,
    handlers: &[
        Handler::read(
            "engine",
            Combine::First,
            "The library that decrypts, and what of the processor it uses.",
            &Get(|e: &mut EspDecap| e.opener.engine()),
        ),
        Handler::read(
            "unknown",
            Combine::Sum,
            "Packets of unknown associations.",
            &Get(|e: &mut EspDecap| e.unknown.to_string()),
        ),
    ],
    manual: graph::manual!("esp_decap.rs"),
    make,
    ..Class::DEFAULT
};

/// The output of packets for Linux.
const LINUX: usize = 2;
const UNKNOWN: &str = "ESP: unknown SPI";

fn make(setup: &mut Setup<'_>) -> Result<Box<dyn Element>, ConfigError> {
    setup.arguments.finish()?;
    let database = Database::of_element(setup);
    let opener =
        Opener::new(database.backend()).ok_or_else(|| ConfigError::new("no cipher library works here"))?;
    Ok(Box::new(EspDecap {
        reader: database.reader(),
        opener,
        results: Box::new([Ok(()); MAX_BATCH]),
        unknown: 0,
    }))
}

struct EspDecap {
    reader: Reader<std::sync::Arc<Tables>>,
    opener: Opener,
    results: Box<[Opened; MAX_BATCH]>,
    /// Packets of unknown associations.
    unknown: u64,
}

/// Looks up associations. Most packets are of that of the one before.
struct Lookup<'a> {
    tables: &'a Tables,
    /// The SPI and destination of the last plain packet, and its association.
    last: Option<(u32, u32)>,
    found: Option<(AssociationId, &'a Association)>,
}

impl<'a> Lookup<'a> {
    /// Returns the association of an ESP packet, and where ESP begins.
    #[inline(always)]
    fn known(&mut self, packet: &Packet) -> Result<(AssociationId, &'a Association, u16), bool> {
        let plain = find_plain(packet.data());
        if let Some((id, association)) = self.found
            && plain.is_some()
            && plain == self.last
        {
            return Ok((id, association, PLAIN_OFFSET as u16));
        }
        let (id, association, offset) = self.find(packet.data())?;
        (self.last, self.found) = (plain, Some((id, association)));
        Ok((id, association, offset))
    }

    /// Returns the same, or whether Linux knows the association.
    #[inline(never)]
    fn find(&self, packet: &[u8]) -> Result<(AssociationId, &'a Association, u16), bool> {
        let esp = find(packet).ok_or(false)?;
        match self.tables.inbound(esp.spi, esp.destination) {
            Some(Inbound::Ours(id)) => {
                let place = self.tables.place(id).ok_or(false)?;
                // Linux refuses what is not in UDP as its association is.
                let is_as_agreed = place.association.settings().udp.is_some() == esp.is_in_udp;
                is_as_agreed.then_some((id, &*place.association, esp.offset as u16)).ok_or(true)
            }
            Some(Inbound::Linux) => Err(true),
            None => Err(false),
        }
    }
}

impl Element for EspDecap {
    fn push(&mut self, cx: &mut Context, _input: usize, batch: &mut Batch) {
        let tables = self.reader.enter();
        let mut associations: ArrayVec<&Association, MAX_BATCH> = ArrayVec::new();
        let mut offsets: ArrayVec<u16, MAX_BATCH> = ArrayVec::new();
        let mut unknown = 0;
        let mut lookup = Lookup { tables: &tables, last: None, found: None };
        batch.extract(
            |packet| match lookup.known(packet) {
                Ok((id, association, offset)) => {
                    AssociationId::mark(Some(id), packet);
                    let number = packet.data().get(usize::from(offset) + 4..).and_then(<[u8]>::first_chunk);
                    let number = number.map_or(0, |number| u32::from_be_bytes(*number));
                    packet.annotations_mut().set_u32_at(Annotations::ESP_SEQUENCE, number);
                    associations.push(association);
                    offsets.push(offset);
                    true
                }
                Err(is_kept) => {
                    unknown += u64::from(!is_kept);
                    false
                }
            },
            |packet| cx.divert(LINUX, packet, UNKNOWN),
        );
        self.unknown += unknown;
        let results = &mut self.results[..batch.len()];
        self.opener.open(batch.packets_mut(), &associations, &offsets, results);
        drop(associations);
        drop(tables);
        let one = cx.outputs() == 1;
        if one && results.iter().all(Result::is_ok) {
            return;
        }
        let mut results = results.iter();
        cx.classify(batch, |packet| match results.next() {
            Some(Err(fault)) => Err(fault.reason()),
            _ => Ok(usize::from(!one && packet.data().first().is_some_and(|first| first >> 4 == 6))),
        });
    }
}
