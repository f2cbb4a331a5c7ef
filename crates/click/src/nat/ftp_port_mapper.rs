//! =c
//! FTPPortMapper(CONTROL_REWRITER, DATA_REWRITER, DATA_REWRITER_INPUT)
//! FTPPortMapper(CONTROL_REWRITER, DATA_REWRITER, PATTERN FOUTPUT ROUTPUT)
//!
//! =s nat
//! translates addresses in FTP's PORT commands
//!
//! =d
//! A client of FTP (RFC 959) in active mode sends the server the address and port to connect to for
//! data, as C<PORT h1,h2,h3,h4,p1,p2>. Behind a NAT this must become an address and a port that are
//! translated back. Packets of control connections pass FTPPortMapper on their target to
//! CONTROL_REWRITER, a TCPRewriter or IPRewriter. When a packet begins with a PORT command:
//!
//! =over 4
//!
//! =item *
//!
//! A mapping from the client's data port to the server's (its control port less one) is made in
//! DATA_REWRITER. That is any rewriter, possibly the same one. The mapping is made as if a packet
//! had come by its input DATA_REWRITER_INPUT, or by the given pattern.
//!
//! =item *
//!
//! The command is changed to the address and port of that mapping.
//!
//! =item *
//!
//! As the command's length may change, CONTROL_REWRITER shifts later sequence numbers of the
//! connection.
//!
//! =back
//!
//! Header fields other than lengths and checksums are left to CONTROL_REWRITER. Some packets stay
//! as they are:
//!
//! =item *
//!
//! The command is not at the start of the packet, or not all in it.
//!
//! =item *
//!
//! The control connection has no mapping yet.
//!
//! =item *
//!
//! The longer command does not fit the packet's frame.
//!
//! =item *
//!
//! The command's address is not the packet's source, or its port is below 1024. So nobody opens a
//! path in to another host, or to a service of his own.
//!
//! =back
//!
//! CONTROL_REWRITER, DATA_REWRITER and FTPPortMapper must be on the same side of any Punt. PASV,
//! EPRT and EPSV are not understood. Clients behind a NAT use the passive mode without help.
//!
//! =e
//!   rw :: TCPRewriter(pattern 192.0.2.1 1024-65535 - - 0 1, drop);
//!   inside -> FTPPortMapper(rw, rw, 0) -> [0]rw;
//!
//! =a TCPRewriter, IPRewriter

use std::net::Ipv4Addr;

use graph::arguments::Raw;
use graph::lang::split_words;
use graph::{Class, ConfigError, Context, Element, FromArgument, Setup};
use packet::wire::IpProtocol;
use packet::wire::ipv4::Ipv4;
use packet::wire::tcp::Tcp;
use packet::{Batch, Packet, checksum};

use super::flow::Tuple;
use super::group::{Membership, Named};
use super::kind::{Kind, Sight, TCP};
use super::rule::{Action, Reader, Rule};
use super::translate::recheck;

pub(crate) static CLASS: Class =
    Class { name: "FTPPortMapper", manual: graph::manual!("ftp_port_mapper.rs"), make, ..Class::DEFAULT };

fn make(setup: &mut Setup<'_>) -> Result<Box<dyn Element>, ConfigError> {
    let Raw(control) = setup.arguments.required("CONTROL_REWRITER")?;
    let Raw(data) = setup.arguments.required("DATA_REWRITER")?;
    let Raw(target) = setup.arguments.required("DATA_REWRITER_INPUT")?;
    setup.arguments.finish()?;
    let inputs = setup.find(&data).map_or(0, |element| element.inputs);
    let (control, data) = (Named::find(setup, &control)?, Named::find(setup, &data)?);
    if !matches!(control.kind, Kind::Tcp | Kind::Both) {
        return Err(
            format!("'{}' does not follow TCP; expected a TCPRewriter or IPRewriter", control.name).into()
        );
    }
    let target = match usize::from_argument(&target) {
        Some(input) if input < inputs => Target::Input(input),
        Some(input) => {
            return Err(format!("DATA_REWRITER_INPUT: '{}' has no input {input}", data.name).into());
        }
        None => {
            let words = split_words(&target);
            let reader = Reader::new(setup, data.kind, data.outputs);
            let (pattern, outputs) = reader.pattern(&words.iter().map(String::as_str).collect::<Vec<_>>())?;
            Target::Rule(Rule { action: Action::Pattern(pattern), outputs, owner: 0 })
        }
    };
    Ok(Box::new(FTPPortMapper { control, data, target, rewriters: None }))
}

/// How mappings for data are made.
enum Target {
    Input(usize),
    Rule(Rule),
}

struct FTPPortMapper {
    control: Named,
    data: Named,
    target: Target,
    /// Those of control and data connections, and the rule for the latter.
    rewriters: Option<(Membership, Membership, usize)>,
}

/// Below are the ports of services.
const FIRST_UNPRIVILEGED: u16 = 1024;

/// A PORT command in a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Command {
    /// The packet's flow.
    flow: Tuple,
    /// Where the argument lies, from the start of the segment, and where the segment ends.
    start: usize,
    end: usize,
    segment_len: usize,
    /// The number of the first byte behind the segment.
    next_sequence: u32,
    address: u32,
    port: u16,
}

/// Six numbers of a byte, with commas between, and their length; a line must end behind.
fn host_port(text: &[u8]) -> Option<(u32, u16, usize)> {
    let mut numbers = [0_u8; 6];
    let mut at = 0;
    for (index, number) in numbers.iter_mut().enumerate() {
        if index > 0 {
            at += usize::from(*text.get(at)? == b',');
        }
        let digits = text.get(at..)?.iter().take_while(|byte| byte.is_ascii_digit()).count();
        *number = std::str::from_utf8(text.get(at..at + digits)?).ok()?.parse().ok()?;
        at += digits;
    }
    let [a, b, c, d, high, low] = numbers;
    let ends = matches!(text.get(at), Some(b'\r' | b'\n'));
    ends.then_some((u32::from_be_bytes([a, b, c, d]), u16::from_be_bytes([high, low]), at))
}

/// The command that a packet begins with.
#[inline(always)]
fn command(packet: &Packet) -> Option<Command> {
    let header = Ipv4::new_unchecked(packet.network()?.first_chunk::<20>()?);
    // Fragments are left alone: their lengths hang together.
    if header.protocol() != IpProtocol::TCP || header.is_fragment() {
        return None;
    }
    let segment_len = header.total_len().checked_sub(header.header_len())?;
    let segment = Tcp::new_checked(packet.transport()?.get(..segment_len)?).ok()?;
    let (data_offset, data) = (segment.header_len(), segment.payload());
    let (word, rest) = data.split_first_chunk::<5>()?;
    if !word.eq_ignore_ascii_case(b"PORT ") {
        return None;
    }
    let spaces = rest.iter().take_while(|byte| **byte == b' ').count();
    let (address, port, length) = host_port(rest.get(spaces..)?)?;
    let start = data_offset + 5 + spaces;
    let next_sequence = segment.sequence().wrapping_add(data.len() as u32);
    let flow = Kind::Tcp.sight(packet).ok()?.tuple;
    Some(Command { flow, start, end: start + length, segment_len, next_sequence, address, port })
}

/// Puts `text` in the place of a command's argument. False, and nothing changed, when the frame has no room.
fn replace(packet: &mut Packet, command: &Command, text: &[u8]) -> bool {
    let Some(transport) = packet.transport_offset().and_then(|at| usize::try_from(at).ok()) else {
        return false;
    };
    let (old_len, new_len) =
        (command.segment_len, command.segment_len + text.len() - (command.end - command.start));
    let Ok(total) = u16::try_from(new_len + 60) else { return false };
    if new_len > old_len && packet.tailroom() < new_len - old_len {
        return false;
    }
    let Some(before) = packet.transport().and_then(|segment| segment.get(..old_len)).map(checksum::sum)
    else {
        return false;
    };
    // What lies behind the segment is padding of the link.
    packet.truncate(transport + old_len);
    if new_len > old_len && packet.append(new_len - old_len).is_none() {
        return false;
    }
    let Some(segment) = packet.transport_mut() else { return false };
    segment.copy_within(command.end..old_len, command.start + text.len());
    segment[command.start..command.start + text.len()].copy_from_slice(text);
    let after = checksum::sum(&segment[..new_len]);
    // The length is in the pseudo-header.
    let with_length = |sum: u16, length: usize| checksum::combine(sum, length as u16);
    recheck(segment, 16, with_length(before, old_len), with_length(after, new_len));
    packet.truncate(transport + new_len);
    if let Some(header) = packet.network_mut().and_then(|bytes| bytes.first_chunk_mut::<20>()) {
        let mut header = Ipv4::new_unchecked(header);
        let length = total - 60 + header.header_len() as u16;
        let old = header.total_len() as u16;
        if old != length {
            header.set_total_len(length);
            header.set_checksum(checksum::update_u16(header.checksum(), old, length));
        }
    }
    true
}

impl FTPPortMapper {
    #[cold]
    fn map(&self, packet: &mut Packet, command: &Command, now_ns: u64) {
        let Some((control, data, rule)) = &self.rewriters else { return };
        if command.address != command.flow.source || command.port < FIRST_UNPRIVILEGED {
            return;
        }
        let sight = Sight { tuple: command.flow, protocol: TCP, begins: true };
        let Some(connection) = control.lock().find(control.member, &sight) else { return };
        let tuple = Tuple {
            source: command.address,
            destination: command.flow.destination,
            source_port: command.port,
            destination_port: command.flow.destination_port.wrapping_sub(1),
        };
        let sight = Sight { tuple, protocol: TCP, begins: true };
        let (place, new) = {
            let mut group = data.lock();
            let place = match group.find(data.member, &sight) {
                Some(place) => place,
                None => match group.make(*rule, data.member, &sight, now_ns) {
                    Ok(place) => place,
                    Err(_) => return,
                },
            };
            let Some(new) = group.translated(data.member, place, tuple) else { return };
            (place, new)
        };
        let [a, b, c, d] = Ipv4Addr::from_bits(new.source).octets();
        let [high, low] = new.source_port.to_be_bytes();
        let text = format!("{a},{b},{c},{d},{high},{low}");
        if !replace(packet, command, text.as_bytes()) {
            return;
        }
        let change = text.len() as i32 - (command.end - command.start) as i32;
        let mut group = control.lock();
        // To make the mapping may have removed that of the connection, if it was the oldest.
        let kept = group.table.get(connection.flow).map_or(0, |flow| flow.reply_annotation);
        if change != 0
            && group.find(control.member, &Sight { tuple: command.flow, protocol: TCP, begins: true })
                == Some(connection)
            && let Some(shifts) = group.table.shifts(connection.flow)
        {
            // A repeated command before the latest one has its shift already.
            shifts.add(connection.reply, command.next_sequence, change);
        }
        drop(group);
        if let Some((flow, _)) = data.lock().table.get_mut(place.flow) {
            flow.reply_annotation = kept;
        }
    }
}

impl Element for FTPPortMapper {
    fn initialise(&mut self, _cx: &mut Context) -> Result<(), String> {
        let (control, data) = (self.control.get()?, self.data.get()?);
        let rule = match &self.target {
            Target::Input(input) => *input,
            Target::Rule(rule) => data.lock().add_rule(data.member, rule.clone())?,
        };
        self.rewriters = Some((control, data, rule));
        Ok(())
    }

    fn process(&mut self, cx: &mut Context, batch: &mut Batch) {
        for packet in batch.iter_mut() {
            if let Some(command) = command(packet) {
                self.map(packet, &command, cx.now_ns());
            }
        }
    }
}
