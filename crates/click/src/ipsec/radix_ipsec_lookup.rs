//! =c
//! RadixIPsecLookup(ROUTE1, ROUTE2, ... [, I<keywords> TABLE, FILE, VIA])
//!
//! =s ipsec
//! looks up the route of packets, and the IPsec association of those that go through a tunnel
//!
//! =d
//! Expects packets that begin with their IP header and have the destination IP address annotation.
//! Looks the address up among the routes. Sets the annotation to the route's gateway, if it has
//! one, and emits the packet on the route's output. Each ROUTE is
//!
//!   ADDR/MASK [GATEWAY] OUTPUT [SPI ENCRYPT_KEY AUTH_KEY REPLAY OOSIZE]
//!
//! The part up to OUTPUT and the keywords are those of RadixIPLookup. The words behind OUTPUT are the association of
//! a tunnel, for packets in both directions:
//!
//! =over 8
//!
//! =item SPI
//!
//! The security parameters index, by which the receiver finds the association. Not 0.
//!
//! =item ENCRYPT_KEY, AUTH_KEY
//!
//! The keys of IPsecAES and IPsecAuthHMACSHA1: 16 bytes, as 32 hexadecimal digits or as a string such as
//! `\<0183A947 1ABE01FF FA04103B B102AA55>`.
//!
//! =item REPLAY
//!
//! The sequence number of the first packet. Not 0.
//!
//! =item OOSIZE
//!
//! The width of the replay window: how many numbers up to the highest one may come in any order, up
//! to 255. With 0 or 1 numbers have to rise.
//!
//! =back
//!
//! Three outputs have a meaning:
//!
//! =over 8
//!
//! =item Output 0
//!
//! is for routes to this router. ESP packets leave by it, with the association of their SPI, for StripIPHeader and IPsecAES(0).
//! All other packets leave by output 2.
//!
//! =item Output 1
//!
//! is for packets to be protected, with the association of their route, for IPsecESPEncap. Routes to it need one.
//!
//! =item Output 2
//!
//! is for packets to this router that are not ESP.
//!
//! =back
//!
//! The SPI annotation (4 bytes at 32) has the association, for the elements that follow. In Click a
//! pointer stands at 40.
//!
//! Routes that name one SPI share its association. All lookups of a router do, so they must agree
//! on its keys and numbers. If a handler changes these the association begins anew, for all routes
//! of the SPI. When the last route of an SPI is removed the association goes. In Click, in
//! contrast, each route counts its own packets, and associations stay.
//!
//! Packets to the router that are not ESP leave by output 2. In Click they are dropped unless they
//! look like ESP. Routes to output 1 without an association are refused.
//!
//! The handlers `config`, `flatconfig` and `table` do not print keys: `***` stands in their place,
//! or the SPI alone. So a configuration that is read there and written back is wrong.
//!
//! Drop reasons: `no route`, `not ESP`, `IPsec: no association`, `ESP: unknown SPI`,
//! `ESP: truncated`.
//!
//! WHAT IS NOT SAFE
//!
//! Keys stand in the configuration file and in the router's memory of it. Nobody else should be able to read the file.
//! `brickway check --flat` and `brickway click -q -o` print them.
//!
//! The packet with the number REPLAY begins a new replay window, as in Click, because a gateway that starts again sends it. So
//! somebody who has recorded it can send recorded packets once more. EspDecap, with keys of an IKE daemon, does not have this
//! weakness.
//!
//! =e
//!   rt :: RadixIPsecLookup(192.0.2.1/32 0, 10.1.0.1/32 2, 10.1.0.0/16 4, 192.0.2.0/24 3,
//!       10.2.0.0/16 192.0.2.2 1 234 000102030405060708090a0b0c0d0e0f
//!         101112131415161718191a1b1c1d1e1f 300 64);
//!   rt[0] -> StripIPHeader -> IPsecAES(0) -> IPsecAuthHMACSHA1(1)
//!     -> IPsecESPUnencap -> CheckIPHeader -> rt;
//!   rt[1] -> IPsecESPEncap -> IPsecAuthHMACSHA1(0) -> IPsecAES(1) -> IPsecEncap(50) -> rt;
//!
//! =a RadixIPLookup, IPsecESPEncap, IPsecESPUnencap, IPsecAES, IPsecAuthHMACSHA1, IPsecEncap, IpsecPolicy, EspEncap, EspDecap

use std::sync::Arc;

use graph::{Ask, Class, Combine, ConfigError, Context, Element, Get, Handler, Put, Setup};
use ipsec::Fault;
use packet::wire::IpProtocol;
use packet::{Batch, MAX_BATCH, Packet};

use super::associations::{Access, NO_ASSOCIATION, Owned, mark};
use super::tunnel::{FORM, TUNNEL, Tunnels};
use crate::lookup::{IpLookup, Via, commands, look_for};

pub(crate) static CLASS: Class = Class {
    name: "RadixIPsecLookup",
    ports: "1/-",
    processing: Class::PUSH,
    handlers: &[
        Handler::write(
            "add",
            "Adds a route. Fails if there is one for `ADDR/MASK`.",
            &Put(|e: &mut RadixIpsecLookup, cx, value| e.change(cx, "add", value)),
        ),
        Handler::write(
            "ctrl",
            "Changes many routes at once: lines of `add ROUTE`, `set ROUTE` or `remove ROUTE`. If one of them fails, nothing \
             is changed.",
            &Put(|e: &mut RadixIpsecLookup, cx, value| e.change(cx, "ctrl", value)),
        ),
        Handler::write(
            "flush",
            "Removes all routes and associations.",
            &Put(|e: &mut RadixIpsecLookup, _, _| e.flush()),
        ),
        Handler::read(
            "lookup",
            Combine::First,
            "Returns the output for an address and, if there is one, the gateway; -1 without a route.",
            &Ask(|e: &mut RadixIpsecLookup, _, argument| e.lookup.lookup(argument)),
        ),
        Handler::write(
            "remove",
            "Removes a route, `ADDR/MASK [GATEWAY OUTPUT]`. If gateway and output are given they must be those of the route.",
            &Put(|e: &mut RadixIpsecLookup, cx, value| e.change(cx, "remove", value)),
        ),
        Handler::write(
            "set",
            "Sets a route, whether or not there is one for `ADDR/MASK`.",
            &Put(|e: &mut RadixIpsecLookup, cx, value| e.change(cx, "set", value)),
        ),
        Handler::read(
            "table",
            Combine::Join,
            "All routes, in the order of their addresses, with the SPIs of tunnels and without keys.",
            &Get(|e: &mut RadixIpsecLookup| e.lookup.table()),
        ),
    ],
    manual: graph::manual!("radix_ipsec_lookup.rs"),
    make,
    ..Class::DEFAULT
};

/// The output of packets to this router.
const TO_US: u16 = 0;
/// The output of those that are not ESP.
const NOT_ESP: usize = 2;

fn make(setup: &mut Setup<'_>) -> Result<Box<dyn Element>, ConfigError> {
    let outputs = setup.outputs();
    let mut tunnels = Tunnels::default();
    let lookup = look_for(setup, FORM, |text| tunnels.route(text, outputs));
    tunnels.secrets.drain(..).for_each(|word| setup.hide(word));
    let lookup = lookup?;
    let owned = setup.shared_by_copies(|| Owned::new(setup, tunnels.settings))?;
    Ok(Box::new(RadixIpsecLookup {
        lookup,
        owned,
        associations: Access::new(setup),
        vias: Box::new([None; MAX_BATCH]),
    }))
}

struct RadixIpsecLookup {
    lookup: IpLookup<u32>,
    owned: Arc<Owned>,
    associations: Access,
    /// Room for the next hops of one batch.
    vias: Box<[Option<Via<u32>>; MAX_BATCH]>,
}

impl RadixIpsecLookup {
    /// Writes the handler `name`, one of those that change routes.
    fn change(&self, cx: &Context, name: &str, value: &str) -> Result<(), String> {
        if !self.lookup.makes_changes() {
            return Ok(());
        }
        let mut tunnels = Tunnels::default();
        let outputs = cx.outputs();
        let commands = commands(name, value, |name, text| tunnels.command(name, text, outputs))?;
        let used = || self.lookup.spis();
        self.owned.change(tunnels.settings, || self.lookup.transact(&commands), Some(&used))
    }

    /// Removes all routes.
    fn flush(&self) -> Result<(), String> {
        if !self.lookup.makes_changes() {
            return Ok(());
        }
        let used = || self.lookup.spis();
        self.owned.change(Vec::new(), || self.lookup.flush(), Some(&used))
    }
}

/// The SPI of an ESP packet, which begins with its IP header; none if it is another packet.
fn spi(packet: &Packet) -> Result<Option<u32>, Fault> {
    let data = packet.data();
    let (Some(first), Some(protocol)) = (data.first(), data.get(9)) else { return Err(Fault::Truncated) };
    if IpProtocol(*protocol) != IpProtocol::ESP {
        return Ok(None);
    }
    let header_bytes = usize::from(first & 15) * 4;
    let spi = data.get(header_bytes..).and_then(<[u8]>::first_chunk).ok_or(Fault::Truncated)?;
    Ok(Some(u32::from_be_bytes(*spi)))
}

impl Element for RadixIpsecLookup {
    fn push(&mut self, cx: &mut Context, _input: usize, batch: &mut Batch) {
        self.lookup.look_up(batch, &mut self.vias);
        let associations = self.associations.enter();
        let outputs = cx.outputs();
        let mut vias = self.vias.iter();
        cx.classify(batch, |packet| {
            let via = vias.next().copied().flatten().ok_or("no route")?;
            let output = match via.output {
                TO_US => match spi(packet).map_err(Fault::reason)? {
                    Some(spi) => {
                        associations.get(spi).ok_or("ESP: unknown SPI")?;
                        mark(packet, spi);
                        usize::from(TO_US)
                    }
                    None if outputs > NOT_ESP => NOT_ESP,
                    None => return Err("not ESP"),
                },
                TUNNEL if via.spi == 0 => return Err(NO_ASSOCIATION),
                TUNNEL => {
                    mark(packet, via.spi);
                    usize::from(TUNNEL)
                }
                output => usize::from(output),
            };
            if via.gateway != 0 {
                packet.annotations_mut().set_destination_ip(via.gateway);
            }
            Ok(output)
        });
    }
}
