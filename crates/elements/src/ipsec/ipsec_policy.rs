//! =c
//! IpsecPolicy([I<keywords> FILE, SENT])
//!
//! =s ipsec
//! selects the packets that IPsec protects, and refuses those that came without protection
//!
//! =d
//! Expects IPv4 or IPv6 packets as CheckIPHeader and CheckIP6Header leave them. Each packet is
//! judged by the policies of IPsec (RFC 4301), which all elements of a router share. `brickway run`
//! keeps them in step with the kernel's (`ip xfrm`); other configurations name a FILE.
//!
//! Packets that EspDecap has decrypted come here too. Their annotation names their association. For
//! each packet:
//!
//! =over 4
//!
//! =item 1.
//! ESP to this host, also in UDP (RFC 3948), leaves by output 1.
//!
//! =item 2.
//! The policies of direction fwd decide whether the packet had to be protected, and by which
//! associations. A packet that came otherwise is dropped. A decrypted packet that matches no policy
//! is dropped too.
//!
//! =item 3.
//! The policies of direction out decide what is done. Packets to be protected leave by output 2
//! with the annotation of their association, others by output 0.
//!
//! =back
//!
//! Packets are not changed. Output 3 is for packets that are punted to Linux:
//!
//! =item *
//! policies that the fast path cannot follow;
//!
//! =item *
//! associations that a daemon has yet to negotiate;
//!
//! =item *
//! packets that would become too long for the path to the other gateway;
//!
//! =item *
//! packets to be protected that have lived too long.
//!
//! =back
//!
//! Policies are for packets that are forwarded. Packets for this host itself (IKE, routing
//! protocols) must not come here.
//!
//! Keyword arguments are:
//!
//! =item SENT
//! packets are this host's own, such as ICMP errors: only the policies of direction out are asked.
//! Default is false.
//!
//! =item FILE
//! a file with policies and associations, one a line. Only its owner may be able to read it. The
//! first policy of a direction that matches a packet decides. Of several associations that fit the
//! policy, the last one is used. Policies and associations of one element's FILE replace those of
//! another's.
//!
//! =back
//!
//!   policy out|fwd PROTOCOL FROM [port A[-B]] TO [port A[-B]] protect SOURCE DESTINATION
//!     [request N] [transport]
//!   policy out|fwd PROTOCOL FROM [port A[-B]] TO [port A[-B]] bypass|discard
//!   association SPI SOURCE DESTINATION SUITE key HEX [auth HEX] [request N] [transport]
//!     [extended] [window N] [udp PORT PORT] [bytes N] [packets N]
//!
//! PROTOCOL is `any`, a name or a number. FROM and TO are prefixes. SOURCE and DESTINATION are the
//! outer addresses. SUITE is aes128-gcm, aes256-gcm, chacha20-poly1305, or aes128-cbc or aes256-cbc
//! with -sha1, -sha256 or -sha512. The key of the first three ends with the salt, 4 bytes.
//! `request` ties associations to policies. `extended` sequence numbers have 64 bits (ESN).
//! `window` is the replay window (64 by default, 4096 at most, 0 for none). `udp` has the ports of
//! UDP before ESP. An association is not used any more after so many `bytes` or `packets`, and
//! perhaps a batch more. `#` begins a comment.
//!
//! B<What is not safe.> Keys in a file never change by themselves. When the program starts again,
//! its sequence numbers begin at 1. The other gateway drops its packets as replays until that
//! gateway starts again too. The program's own window begins at 0, so packets that somebody
//! recorded before are accepted once more. When FILE is read again while the program runs, an
//! association with an unchanged line goes on. An IKE daemon does not have these problems.
//!
//! A fragment other than the first has no ports. Where a policy of a direction asks for ports, such
//! fragments are dropped (RFC 4301, section 7). First fragments that Linux would have to handle are
//! dropped too, because Linux does not look at their ports. Put an IPReassembler before EspDecap.
//! Behind EspDecap, it would mix fragments that were decrypted with others that were not.
//!
//! Drop reasons: `IPsec required`, `IPsec: wrong association`, `IPsec: no policy`,
//! `discarded by IPsec policy`, `IPsec: cannot be judged`.
//!
//! =e
//!   ... -> CheckIPHeader -> ipsec :: IpsecPolicy -> rt :: FIBLookup(...);
//!   ipsec[1] -> decap :: EspDecap; decap[0] -> CheckIPHeader -> ipsec;
//!   ipsec[2] -> DecIPTTL -> EspEncap -> rt;
//!   ipsec[3] -> ...
//!
//! =a EspEncap, EspDecap, EspToHost, EspReseal, ACL

use std::net::IpAddr;
use std::sync::Arc;

use fib::publish::Reader;
use graph::runs::Ordinary;
use graph::{Class, ConfigError, Context, Element, Handler, Put, Setup};
use packet::wire::ipv4::{self, Ipv4};
use packet::wire::ipv6::{self, Ipv6};
use packet::{Batch, MAX_BATCH, Packet};

use super::activation::{Activation, HasIdle, Idle, REFRESH};
use super::database::Database;
use super::tables::{
    AssociationId, FLAWED as NOT_JUDGED, Fields, Numbers, Step, Tables, is_fragment, set_checked,
};
use crate::acl::Rooms;

pub(super) static CLASS: Class = Class {
    name: "IpsecPolicy",
    ports: "1/4",
    processing: Class::PUSH,
    capabilities: &[super::IPSEC_POLICY, graph::KEEPS_ALL],
    handlers: &[Handler::write("refresh", REFRESH, &Put(IpsecPolicy::refresh))],
    manual: graph::manual!("ipsec_policy.rs"),
    make,
    ..Class::DEFAULT
};

const PASS: u16 = 0;
const ESP: u16 = 1;
const SEAL: u16 = 2;
const LINUX: u16 = 3;
/// Packets to this host, which no policy judges; they pass.
const OWN: u16 = 4;
/// Marks packets that are dropped; the low bits say why.
const DROPPED: u16 = 0x8000;
const REQUIRED: u16 = DROPPED;
const WRONG: u16 = DROPPED + 1;
const NO_POLICY: u16 = DROPPED + 2;
const DISCARDED: u16 = DROPPED + 3;
const FLAWED: u16 = DROPPED + 4;
const REASONS: [&str; 5] = [
    "IPsec required",
    "IPsec: wrong association",
    "IPsec: no policy",
    "discarded by IPsec policy",
    "IPsec: cannot be judged",
];

fn make(setup: &mut Setup<'_>) -> Result<Box<dyn Element>, ConfigError> {
    let file = setup.arguments.keyword::<String>("FILE")?;
    let is_sent = setup.arguments.keyword_or("SENT", false)?;
    setup.arguments.finish()?;
    if file.is_some() && Activation::of(setup.shared()).is_some() {
        let message =
            "FILE: this router works by Linux's policies of IPsec; expected none (FollowLinux has 'ipsec')";
        return Err(ConfigError::new(message));
    }
    let database = Database::of_element(setup);
    if let Some(file) = file.filter(|_| setup.copy().index == 0) {
        let contents = super::parse::read(&file, database.backend()).map_err(ConfigError::from)?;
        if !setup.is_check() {
            database.replace(contents);
        }
    }
    Ok(Box::new(IpsecPolicy {
        reader: database.reader(),
        is_sent,
        idle: Idle::of_element(setup),
        copy: setup.copy().index,
        rooms: Box::new(Rooms::new()),
        numbers: Box::new([0; MAX_BATCH]),
        fields: Box::new(Fields::NONE),
        outputs: Box::new([0; MAX_BATCH]),
    }))
}

struct IpsecPolicy {
    reader: Reader<Arc<Tables>>,
    /// Whether its packets are this host's own.
    is_sent: bool,
    idle: Idle,
    /// Which copy of the graph this is in.
    copy: usize,
    rooms: Box<Rooms>,
    numbers: Box<Numbers>,
    fields: Box<Fields>,
    outputs: Box<[u16; MAX_BATCH]>,
}

impl HasIdle for IpsecPolicy {
    fn idle(&mut self) -> &mut Idle {
        &mut self.idle
    }
}

impl Element for IpsecPolicy {
    fn ordinary(&self) -> Option<Ordinary> {
        self.idle.ordinary()
    }

    fn push(&mut self, cx: &mut Context, _input: usize, batch: &mut Batch) {
        let tables = self.reader.enter();
        if tables.is_idle() {
            return;
        }
        let count = batch.len();
        let outputs = &mut self.outputs[..count];
        let Self { rooms, numbers, fields, copy, is_sent, .. } = self;
        outputs.fill(PASS);
        if *is_sent {
            fields.read(batch.packets(), |_, _, _| {});
        } else {
            let opened = arrived(&tables, batch.packets(), fields, outputs);
            // A batch from another gateway often has nothing else.
            if outputs.iter().all(|output| *output == ESP) {
                drop(tables);
                return cx.emit_batch(usize::from(ESP), batch);
            }
            if opened || !tables.forward.is_empty() {
                let same = tables.forward.judge(*copy, batch.packets(), fields, rooms, numbers);
                let same = same.filter(|_| fields.has_one_id());
                let same = same.map(|number| received(&tables, number, fields.id(0)));
                for (place, output) in outputs.iter_mut().enumerate().filter(|(_, output)| **output == PASS) {
                    *output = match same {
                        Some(output) => output,
                        None => received(&tables, numbers[place], fields.id(place)),
                    };
                }
            }
        }
        if !tables.out.is_empty() {
            let same = tables.out.judge(*copy, batch.packets(), fields, rooms, numbers);
            let same = same.map(|number| Send::of(&tables, number));
            for (place, (packet, output)) in batch.packets_mut().iter_mut().zip(&mut *outputs).enumerate() {
                if *output != PASS {
                    continue;
                }
                let send = match same {
                    Some(send) => send,
                    None => Send::of(&tables, numbers[place]),
                };
                *output = match send {
                    Send::Seal { id, longest } if fields.may_be_sealed(place, longest) => {
                        AssociationId::mark(Some(id), packet);
                        SEAL
                    }
                    Send::Seal { .. } => LINUX,
                    Send::Output(output) => output,
                };
            }
        }
        if outputs.contains(&LINUX) {
            let each = batch.packets_mut().iter_mut().zip(&mut *outputs);
            for (packet, output) in each.filter(|(_, output)| **output == LINUX) {
                if tables.out.asks_ports && is_fragment(packet) {
                    // Linux does not see the ports of fragments, and would let them pass.
                    *output = FLAWED;
                } else if AssociationId::of(packet).is_none() {
                    // One that was opened needs the number that it came with: it becomes ESP again.
                    set_checked(packet);
                }
            }
        }
        drop(tables);
        outputs.iter_mut().filter(|output| **output == OWN).for_each(|output| *output = PASS);
        if outputs.iter().all(|output| *output == outputs[0]) {
            match outputs[0] {
                PASS => {}
                output @ (ESP | SEAL | LINUX) => cx.emit_batch(usize::from(output), batch),
                dropped => cx.drop_batch(batch, REASONS[usize::from(dropped - DROPPED)]),
            }
        } else if outputs.iter().all(|output| *output < DROPPED) {
            cx.scatter(batch, outputs);
        } else {
            for (packet, output) in batch.drain().zip(&*outputs) {
                match *output {
                    output if output < DROPPED => cx.emit(usize::from(output), packet),
                    dropped => cx.drop(packet, REASONS[usize::from(dropped - DROPPED)]),
                }
            }
        }
    }
}

/// Finds what no policy judges: ESP to this host, and other packets to it. Returns whether some packets were opened, which are not opened
/// again.
#[inline(always)]
fn arrived(tables: &Tables, packets: &[Packet], fields: &mut Fields, outputs: &mut [u16]) -> bool {
    let (mut opened, has_inbound) = (false, tables.has_inbound());
    let mut finder = tables.esp_to_host();
    fields.read(packets, |place, was_opened, network| {
        opened |= was_opened;
        if has_inbound && !was_opened && finder.is_for_us(network) {
            outputs[place] = ESP;
        }
    });
    if !tables.own.is_empty() {
        for (packet, output) in packets.iter().zip(outputs) {
            if *output == PASS && destination(packet).is_some_and(|destination| tables.own.has(destination)) {
                *output = OWN;
            }
        }
    }
    opened
}

/// Where a packet goes.
fn destination(packet: &Packet) -> Option<IpAddr> {
    let network = packet.network()?;
    Some(if network.first()? >> 4 == 4 {
        Ipv4::new_unchecked(network.first_chunk::<{ ipv4::MIN_HEADER_LEN }>()?).destination().into()
    } else {
        Ipv6::new_unchecked(network.first_chunk::<{ ipv6::HEADER_LEN }>()?).destination().into()
    })
}

/// What a packet's protection so far leads to.
fn received(tables: &Tables, number: u16, id: Option<AssociationId>) -> u16 {
    if number == NOT_JUDGED {
        return FLAWED;
    }
    match &tables.forward.steps[usize::from(number)] {
        // RFC 4301, section 5.2, step 4: what was protected must match a policy that says so.
        Step::Pass if id.is_some() => NO_POLICY,
        Step::Pass => PASS,
        Step::Linux => LINUX,
        Step::Opened { peers, is_optional } => match id {
            None if *is_optional => PASS,
            None => REQUIRED,
            Some(id) => match tables.place(id) {
                Some(place) if peers.contains(&place.peer) => PASS,
                _ => WRONG,
            },
        },
        Step::Discard | Step::Seal(_) => DISCARDED,
    }
}

/// What has to be done to packets of a policy.
#[derive(Clone, Copy)]
enum Send {
    /// They leave by an output.
    Output(u16),
    /// An association seals them, if they are not longer than this.
    Seal { id: AssociationId, longest: usize },
}

impl Send {
    fn of(tables: &Tables, number: u16) -> Self {
        if number == NOT_JUDGED {
            return Self::Output(FLAWED);
        }
        Self::Output(match &tables.out.steps[usize::from(number)] {
            Step::Pass => PASS,
            Step::Seal(Some(id)) => match tables.place(*id) {
                Some(place) => return Self::Seal { id: *id, longest: place.association.longest() },
                None => LINUX,
            },
            Step::Seal(None) | Step::Linux => LINUX,
            Step::Discard | Step::Opened { .. } => DISCARDED,
        })
    }
}
