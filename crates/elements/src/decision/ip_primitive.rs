//! One primitive of the `IPClassifier` language, such as `src tcp port > 1023`: what its words
//! said, what was left out and is filled in, whether it makes sense, and which tests it is.

use super::Base;
use super::expr::{Expr, Test};
use super::ip_names::{ANY_TRANSPORT, ICMP, TCP, TCP_OR_UDP, UDP, protocol_name};

/// The largest fragment offset field (RFC 791, section 3.1), and that plus the flag More Fragments.
const FRAGMENT_OFFSET: u32 = 0x1fff;
const FRAGMENT_OFFSET_OR_MORE: u32 = 0x3fff;
/// The ECN bits of the TOS byte, and their value "congestion experienced" (RFC 3168, section 5).
const ECN: u32 = 0x03;

/// What a primitive is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    Host,
    Net,
    Proto,
    Port,
    TcpOpt,
    Ether,
    Frag,
    Unfrag,
    Ect,
    Ce,
    Field(Field),
}

/// Bits of the IP header or of a transport header; all in one 32-bit word.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Field {
    /// The protocol whose header it is in; none for the IP header.
    pub(super) transport: Option<u32>,
    pub(super) first_bit: u32,
    pub(super) bits: u32,
}

impl Field {
    const fn ip(first_bit: u32, bits: u32) -> Kind {
        Kind::Field(Field { transport: None, first_bit, bits })
    }
}

/// Header fields with a name (RFC 791, RFC 792, RFC 9293).
pub(super) const VERSION: Kind = Field::ip(0, 4);
pub(super) const HEADER_LENGTH: Kind = Field::ip(4, 4);
pub(super) const TOS: Kind = Field::ip(8, 8);
pub(super) const DSCP: Kind = Field::ip(8, 6);
pub(super) const LENGTH: Kind = Field::ip(16, 16);
pub(super) const ID: Kind = Field::ip(32, 16);
pub(super) const TTL: Kind = Field::ip(64, 8);
pub(super) const TCP_WINDOW: Kind = Kind::Field(Field { transport: Some(TCP), first_bit: 112, bits: 16 });
pub(super) const ICMP_TYPE: Kind = Kind::Field(Field { transport: Some(ICMP), first_bit: 0, bits: 8 });

/// Which of the two addresses or ports.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Direction {
    Src,
    Dst,
    Both,
    Either,
}

/// The value of a primitive as it was written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Data {
    Missing,
    Int,
    /// A value that can only be of this kind.
    Of(Kind),
}

/// A mask after `&` as it was written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Mask {
    Int(u32),
    Address(u32),
    Ether([u8; 6]),
}

/// The header that a primitive was said to be about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Header {
    Ip,
    Ether,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Operator {
    Equal,
    Greater,
    Less,
}

#[derive(Clone, Debug)]
pub(super) struct Primitive {
    pub(super) kind: Option<Kind>,
    pub(super) data: Data,
    pub(super) operator: Operator,
    pub(super) negated: bool,
    pub(super) direction: Option<Direction>,
    pub(super) transport: Option<u32>,
    pub(super) value: u32,
    /// The upper end of a range `value-last`.
    pub(super) last: Option<u32>,
    pub(super) mask: u32,
    pub(super) ether: [u8; 6],
    pub(super) ether_mask: [u8; 6],
}

impl Default for Primitive {
    fn default() -> Self {
        Primitive {
            kind: None,
            data: Data::Missing,
            operator: Operator::Equal,
            negated: false,
            direction: None,
            transport: None,
            value: 0,
            last: None,
            mask: 0,
            ether: [0; 6],
            ether_mask: [0xff; 6],
        }
    }
}

/// What to call `kind` in a message.
pub(super) fn kind_name(kind: Option<Kind>) -> String {
    let Some(kind) = kind else { return "<none>".to_owned() };
    let name = match kind {
        Kind::Host => "ip host",
        Kind::Net => "ip net",
        Kind::Proto => "proto",
        Kind::Port => "port",
        Kind::TcpOpt => "tcp opt",
        Kind::Ether => "ether host",
        Kind::Frag => "ip frag",
        Kind::Unfrag => "ip unfrag",
        Kind::Ect => "ip ect",
        Kind::Ce => "ip ce",
        VERSION => "ip vers",
        HEADER_LENGTH => "ip hl",
        TOS => "ip tos",
        DSCP => "ip dscp",
        LENGTH => "ip len",
        ID => "ip id",
        TTL => "ip ttl",
        TCP_WINDOW => "tcp win",
        ICMP_TYPE => "icmp type",
        Kind::Field(Field { transport: Some(transport), .. }) => {
            return format!("{}[...]", protocol_name(transport));
        }
        Kind::Field(_) => "ip[...]",
    };
    name.to_owned()
}

impl Primitive {
    fn name(&self) -> String {
        let direction = match self.direction {
            Some(Direction::Src) => "src ",
            Some(Direction::Dst) => "dst ",
            Some(Direction::Either) => "src or dst ",
            Some(Direction::Both) => "src and dst ",
            None => "",
        };
        format!("{direction}{}", kind_name(self.kind))
    }

    fn operator_name(&self) -> &'static str {
        match (self.operator, self.negated) {
            (Operator::Greater, false) => ">",
            (Operator::Greater, true) => "<=",
            (Operator::Less, false) => "<",
            (Operator::Less, true) => ">=",
            (Operator::Equal, false) => "=",
            (Operator::Equal, true) => "!=",
        }
    }

    fn fault(&self, what: &str) -> String {
        format!("'{}': {what}", self.name())
    }

    /// Fills in what was left out, from `previous` where the language inherits it, and checks the rest.
    pub(super) fn resolve(
        &mut self,
        previous: &Primitive,
        header: Option<Header>,
        mask: Option<Mask>,
        warnings: &mut Vec<String>,
    ) -> Result<(), String> {
        let said_direction = self.direction.is_some();
        if self.kind.is_none() {
            self.infer_kind(previous)?;
        }
        let header =
            header.unwrap_or(if self.data == Data::Of(Kind::Ether) { Header::Ether } else { Header::Ip });
        if header == Header::Ether && self.kind == Some(Kind::Host) {
            self.kind = Some(Kind::Ether);
        }
        let kind = self.kind.expect("a kind was given or has just been inferred");
        if header == Header::Ether && !matches!(kind, Kind::Ether | Kind::Host | Kind::Net) {
            return Err(self.fault("ip only"));
        }
        if self.last.is_some() && !matches!(kind, Kind::Proto | Kind::Port | Kind::Field(_)) {
            return Err(self.fault("a range is not supported"));
        }
        match kind {
            Kind::Host | Kind::Net => self.resolve_address(kind, header, mask)?,
            Kind::Ether => {
                if header != Header::Ether || self.data != Data::Of(Kind::Ether) {
                    return Err(self.fault("address missing; expected an Ethernet address like 0:1:2:3:4:5"));
                }
                if self.operator != Operator::Equal {
                    return Err(self.fault("operator not supported; expected '==' or '!='"));
                }
                match mask {
                    None => self.ether_mask = [0xff; 6],
                    Some(Mask::Ether(mask)) => self.ether_mask = mask,
                    Some(_) => return Err(self.fault("bad mask; expected an Ethernet address")),
                }
            }
            Kind::Proto => self.resolve_proto(mask, warnings)?,
            Kind::Port => {
                if !matches!(self.data, Data::Int | Data::Of(Kind::Port)) {
                    return Err(self.fault("value missing; expected a port number or name"));
                }
                match self.transport {
                    None => self.transport = Some(TCP_OR_UDP),
                    Some(TCP | UDP | TCP_OR_UDP) => {}
                    Some(other) => {
                        return Err(format!(
                            "'port': bad protocol {}; expected 'tcp' or 'udp'",
                            protocol_name(other)
                        ));
                    }
                }
                self.set_mask(0xffff, mask, warnings)?;
            }
            Kind::TcpOpt => {
                if !matches!(self.data, Data::Int | Data::Of(Kind::TcpOpt)) {
                    return Err(self.fault("value missing; expected syn, ack, fin, rst, psh or urg"));
                }
                match self.transport {
                    None => self.transport = Some(TCP),
                    Some(TCP) => {}
                    Some(other) => {
                        let other = protocol_name(other);
                        return Err(format!("'tcp opt': bad protocol {other}; expected 'tcp'"));
                    }
                }
                if self.operator != Operator::Equal || self.negated || mask.is_some() {
                    return Err(self.fault("operator or mask not supported"));
                }
                if self.value > 255 {
                    return Err(format!("'tcp opt': value {} out of range (0-255)", self.value));
                }
                self.mask = self.value;
            }
            Kind::Ect => {
                if !matches!(self.data, Data::Missing | Data::Int) {
                    return Err(self.fault("value missing; expected a number or nothing"));
                }
                if self.data == Data::Missing {
                    // Any codepoint but Not-ECT, which is 0.
                    (self.value, self.negated) = (0, true);
                }
                self.set_mask(ECN, mask, warnings)?;
                self.kind = Some(TOS);
            }
            Kind::Ce | Kind::Frag | Kind::Unfrag => {
                if self.data != Data::Missing || mask.is_some() {
                    return Err(self.fault("value not supported"));
                }
                match kind {
                    Kind::Ce => {
                        (self.mask, self.value) = (ECN, ECN);
                        self.kind = Some(TOS);
                    }
                    Kind::Unfrag => {
                        self.negated = true;
                        self.kind = Some(Kind::Frag);
                    }
                    _ => {}
                }
            }
            Kind::Field(field) => {
                if self.data != Data::Int && self.data != Data::Of(kind) {
                    return Err(self.fault("value missing; expected a number"));
                }
                self.set_mask(u32::MAX >> (32 - field.bits), mask, warnings)?;
            }
        }
        if matches!(self.kind, Some(Kind::Host | Kind::Port | Kind::Ether)) {
            self.direction.get_or_insert(Direction::Either);
        } else if said_direction {
            warnings.push(format!("'{}': 'src' or 'dst' ignored", self.name()));
        }
        Ok(())
    }

    /// Finds what a primitive without `host`, `port` and the like is about.
    fn infer_kind(&mut self, previous: &Primitive) -> Result<(), String> {
        if self.data == Data::Int {
            // "src port 80 or 81"
            self.data = match previous.kind {
                Some(kind @ (Kind::Field(_) | Kind::Proto | Kind::Port)) => Data::Of(kind),
                _ => return Err(format!("specify header field or 'port' before {}", self.value)),
            };
        }
        match self.data {
            Data::Missing if self.transport.is_some() => self.kind = Some(Kind::Proto),
            Data::Missing => {
                return Err("partial directive: a value is missing, or a keyword is misspelled".into());
            }
            Data::Int => unreachable!("replaced by the previous kind above"),
            Data::Of(kind) => {
                self.kind = Some(kind);
                match kind {
                    Kind::Host | Kind::Net | Kind::TcpOpt | Kind::Ether | Kind::Port => {
                        self.direction = self.direction.or(previous.direction);
                        if kind == Kind::Port {
                            self.transport = self.transport.or(previous.transport);
                        }
                    }
                    Kind::Field(field) => self.transport = self.transport.or(field.transport),
                    _ => {}
                }
            }
        }
        Ok(())
    }

    fn resolve_address(&mut self, kind: Kind, header: Header, mask: Option<Mask>) -> Result<(), String> {
        if header != Header::Ip || self.data != Data::Of(kind) {
            let example = if kind == Kind::Host { "10.0.0.1" } else { "10.0.0.0/8" };
            return Err(self.fault(&format!("address missing; expected one like {example}")));
        }
        if self.operator != Operator::Equal {
            return Err(self.fault("operator not supported; expected '==' or '!='"));
        }
        if kind == Kind::Host {
            self.mask = u32::MAX;
        }
        self.kind = Some(Kind::Host);
        match mask {
            None => {}
            Some(Mask::Int(mask) | Mask::Address(mask)) => self.mask = mask,
            Some(Mask::Ether(_)) => return Err(self.fault("bad mask; expected a number or an IP address")),
        }
        Ok(())
    }

    fn resolve_proto(&mut self, mask: Option<Mask>, warnings: &mut Vec<String>) -> Result<(), String> {
        match self.data {
            Data::Int | Data::Of(Kind::Proto) => {
                if self.transport.is_some_and(|transport| transport != self.value) {
                    return Err(self.fault("specified twice"));
                }
            }
            Data::Missing if self.transport.is_some() => self.value = self.transport.unwrap_or(0),
            _ => return Err(self.fault("value missing; expected a protocol number or name")),
        }
        self.transport = None;
        if self.value == TCP_OR_UDP || self.value == ANY_TRANSPORT {
            if self.operator != Operator::Equal || self.negated || mask.is_some() || self.last.is_some() {
                let name = protocol_name(self.value);
                return Err(format!("'{name}': operator or mask not supported"));
            }
            self.mask = 0xff;
        } else {
            self.set_mask(0xff, mask, warnings)?;
        }
        let plain =
            self.operator == Operator::Equal && self.mask == 0xff && !self.negated && self.last.is_none();
        if plain {
            self.transport = Some(self.value);
        }
        Ok(())
    }

    /// Checks value and mask against a field whose largest value is `full`, and turns `<` into `>`.
    fn set_mask(&mut self, full: u32, mask: Option<Mask>, warnings: &mut Vec<String>) -> Result<(), String> {
        self.mask = match mask {
            None => full,
            Some(Mask::Int(mask)) if mask & !full == 0 => mask,
            Some(Mask::Int(_)) => return Err(self.fault(&format!("mask out of range, bound 0x{full:X}"))),
            Some(_) => return Err(self.fault("bad mask; expected a number")),
        };
        if let Some(last) = self.last {
            if self.operator != Operator::Equal || mask.is_some() {
                return Err(self.fault("operator or mask not supported with a range"));
            }
            if last > full {
                return Err(self.fault(&format!("out of range, bound {full}")));
            }
            if self.value > last {
                return Err(
                    self.fault(&format!("empty range {}-{last}; the lower end comes first", self.value))
                );
            }
            return Ok(());
        }
        if self.operator == Operator::Equal {
            if self.value > full {
                return Err(self.fault(&format!("out of range, bound {full}")));
            }
            return Ok(());
        }
        let below_all = self.operator == Operator::Less && self.value == 0;
        let above_all =
            self.value > self.mask || (self.operator == Operator::Greater && self.value == self.mask);
        if below_all || above_all {
            let less = self.operator == Operator::Less && above_all;
            let always = less != self.negated;
            warnings.push(format!(
                "relation '{} {}' is always {always} (range 0-{})",
                self.operator_name(),
                self.value,
                self.mask
            ));
            // The relation becomes "no bits are zero", which is true, or its negation.
            (self.operator, self.value, self.mask, self.negated) = (Operator::Equal, 0, 0, !always);
            return Ok(());
        }
        if self.operator == Operator::Less {
            // x < v is not (x > v - 1)
            self.value -= 1;
            self.negated = !self.negated;
            self.operator = Operator::Greater;
        }
        // A value with bits outside the mask compares like the largest below it without such bits.
        let outside = self.value & !self.mask;
        if outside != 0 {
            let below_highest = (u32::MAX >> 1) >> outside.leading_zeros();
            self.value = (self.value | below_highest) & self.mask;
        }
        Ok(())
    }

    /// The tests that this primitive is; [`Primitive::resolve`] comes before.
    pub(super) fn expression(&self) -> Expr {
        let mut parts = Vec::new();
        if let Some(transport) = self.transport {
            parts.extend(protocol_is(transport));
        }
        let kind = self.kind.expect("the primitive was resolved");
        // Only the first fragment has a transport header.
        let in_transport = match kind {
            Kind::Port | Kind::TcpOpt => true,
            Kind::Field(field) => field.transport.is_some(),
            _ => false,
        };
        if in_transport {
            parts.push(equal(Base::Network, 4, 4, FRAGMENT_OFFSET, 0));
        }
        match kind {
            Kind::Host | Kind::Net => {
                let address = |offset| equal(Base::Network, offset, 4, self.mask, self.value & self.mask);
                parts.push(self.in_directions(address(12), address(16)));
            }
            Kind::Ether => parts.push(self.in_directions(self.ether_source(), self.ether_destination())),
            Kind::Port => {
                let port = |shift| self.compare(Base::Transport, 0, 4, shift);
                parts.push(self.in_directions(port(16), port(0)));
            }
            Kind::Proto if self.transport.is_some() => {}
            Kind::Proto => parts.push(self.negatable(self.compare(Base::Network, 8, 2, 16))),
            Kind::Frag => {
                // Deliberately not the negation of an operator: true of a header cut short, as in Click.
                let unfragmented = equal(Base::Network, 4, 4, FRAGMENT_OFFSET_OR_MORE, 0);
                parts.push(if self.negated { unfragmented } else { unfragmented.not() });
            }
            Kind::TcpOpt => parts.push(equal(Base::Transport, 12, 2, self.mask << 16, self.value << 16)),
            Kind::Field(field) => {
                let base = if in_transport { Base::Transport } else { Base::Network };
                let offset = (field.first_bit / 32 * 4) as u16;
                let end = field.first_bit % 32 + field.bits;
                let need = end.div_ceil(8) as u8;
                parts.push(self.negatable(self.compare(base, offset, need, 32 - end)));
            }
            Kind::Unfrag | Kind::Ect | Kind::Ce => unreachable!("resolved to 'ip frag' and 'ip tos'"),
        }
        Expr::all_of(parts)
    }

    fn negatable(&self, expr: Expr) -> Expr {
        if self.negated { expr.negated_operator() } else { expr }
    }

    fn in_directions(&self, source: Expr, destination: Expr) -> Expr {
        self.negatable(match self.direction {
            Some(Direction::Src) => source,
            Some(Direction::Dst) => destination,
            Some(Direction::Both) => Expr::And(vec![source, destination]),
            Some(Direction::Either) | None => Expr::Or(vec![source, destination]),
        })
    }

    fn ether_source(&self) -> Expr {
        let ([a, b, c, d, e, f], [ma, mb, mc, md, me, mf]) = (self.ether, self.ether_mask);
        let word = |offset, need, value, mask| {
            let mask = u32::from_be_bytes(mask);
            equal(Base::Link, offset, need, mask, u32::from_be_bytes(value) & mask)
        };
        Expr::And(vec![word(8, 4, [a, b, c, d], [ma, mb, mc, md]), word(12, 2, [e, f, 0, 0], [me, mf, 0, 0])])
    }

    fn ether_destination(&self) -> Expr {
        let ([a, b, c, d, e, f], [ma, mb, mc, md, me, mf]) = (self.ether, self.ether_mask);
        let word = |offset, value, mask| {
            let mask = u32::from_be_bytes(mask);
            equal(Base::Link, offset, 4, mask, u32::from_be_bytes(value) & mask)
        };
        Expr::And(vec![word(0, [0, 0, a, b], [0, 0, ma, mb]), word(4, [c, d, e, f], [mc, md, me, mf])])
    }

    /// The comparison of a field that ends `shift` bits before the end of the word, not negated.
    fn compare(&self, base: Base, offset: u16, need: u8, shift: u32) -> Expr {
        let place = Place { base, offset, need, shift };
        match (self.operator, self.last) {
            (_, Some(last)) => {
                let at_least = match self.value.checked_sub(1) {
                    Some(below) => place.greater(self.mask, below),
                    None => Expr::Always(true),
                };
                Expr::And(vec![at_least, place.greater(self.mask, last).negated_operator()])
            }
            (Operator::Equal, None) => place.equal(self.mask, self.value & self.mask),
            (_, None) => place.greater(self.mask, self.value),
        }
    }
}

/// Where in a word a field lies.
#[derive(Clone, Copy)]
struct Place {
    base: Base,
    offset: u16,
    need: u8,
    shift: u32,
}

impl Place {
    fn equal(self, mask: u32, value: u32) -> Expr {
        equal(self.base, self.offset, self.need, mask << self.shift, value << self.shift)
    }

    /// `field & mask > value` in equality tests; `value` has no bit outside `mask`.
    ///
    /// Bits are taken from the top. Where `value` has zeros, any one bit set in the field makes it
    /// greater; where `value` has ones, the field must have them all to stay in the running.
    fn greater(self, mut mask: u32, mut value: u32) -> Expr {
        let mut runs = Vec::new();
        while value < mask {
            let top = 1 << (31 - mask.leading_zeros());
            let ones = value & top != 0;
            // The leading bits of the mask up to the first where `value` differs from its top bit.
            let different = if ones { mask & !value } else { value };
            let run = match different {
                0 => mask,
                _ => mask & !(u32::MAX >> different.leading_zeros()),
            };
            runs.push((ones, run));
            mask &= !run;
            value &= mask;
        }
        runs.into_iter().rev().fold(Expr::Always(false), |rest, (ones, run)| {
            let never = rest == Expr::Always(false);
            match (ones, never) {
                (true, _) => Expr::And(vec![self.equal(run, run), rest]),
                (false, true) => self.equal(run, 0).negated_operator(),
                (false, false) => Expr::Or(vec![self.equal(run, 0).negated_operator(), rest]),
            }
        })
    }
}

fn equal(base: Base, offset: u16, need: u8, mask: u32, value: u32) -> Expr {
    if mask == 0 {
        return Expr::Always(true);
    }
    Expr::Test(Test { base, offset, need, mask, value, when_short: false })
}

fn protocol_is(protocol: u32) -> Option<Expr> {
    let is = |protocol: u32| equal(Base::Network, 8, 2, 0xff << 16, protocol << 16);
    match protocol {
        TCP_OR_UDP => Some(Expr::Or(vec![is(TCP), is(UDP)])),
        ANY_TRANSPORT => None,
        _ => Some(is(protocol)),
    }
}
