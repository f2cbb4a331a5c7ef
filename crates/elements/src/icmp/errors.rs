//! ICMPError and ICMP6Error: the element that answers packets with ICMP errors. [`ErrorFamily`] is the part that differs
//! between IPv4 and IPv6.

use std::fmt::{self, Display};
use std::marker::PhantomData;
use std::ops::RangeInclusive;

use graph::arguments::Arguments;
use graph::{Combine, ConfigError, Context, Element, Field, FromArgument, Get, Handler, Put, Setup};
use packet::wire::icmp::HEADER_LEN;
use packet::{Batch, Packet};

use super::error_rate::ErrorRate;
use super::error_source::ErrorSource;
use super::names::{self, Codes};

const NO_FRAME: &str = "no frame for an ICMP error";

/// What is particular to the errors of IPv4 or IPv6. The value is the state that only one of the elements has.
pub(super) trait ErrorFamily: Sized + Send + 'static {
    /// An address.
    type Ip: Copy + PartialEq + Display + FromArgument + Send;
    /// The BADADDRS argument.
    type Addresses: Default + FromArgument + Send;
    /// The type of an error.
    type Type: Copy + Send;
    /// The PMTU argument.
    type PathMtu: Display + FromArgument + Send;

    /// The types of errors, as TYPE is expected to be.
    const TYPES: &'static str;
    /// Returns the type of an error that a name or number stands for.
    const TYPE_NUMBER: fn(&str) -> Option<Self::Type>;
    /// Returns the codes of a type.
    const CODES: fn(Self::Type) -> Codes;
    /// The least and the greatest MTU argument.
    const MTU: RangeInclusive<usize>;
    /// The same in words.
    const MTU_EXPECTED: &'static str;
    /// MTU where it is not given.
    const DEFAULT_MTU: usize;
    /// PMTU where it is not given.
    const DEFAULT_PATH_MTU: Self::PathMtu;

    /// Reads the arguments that the other family does not have.
    fn read(arguments: &mut Arguments) -> Result<Self, ConfigError>;

    /// Returns the error about `packet`, or why there is none.
    fn answer(errors: &mut Errors<Self>, cx: &mut Context, packet: &Packet) -> Result<Packet, &'static str>;
}

/// The MTU argument: the length of the longest error in bytes.
struct Mtu<F>(usize, PhantomData<F>);

impl<F: ErrorFamily> FromArgument for Mtu<F> {
    const EXPECTED: &'static str = F::MTU_EXPECTED;
    fn from_argument(text: &str) -> Option<Self> {
        usize::from_argument(text).filter(|mtu| F::MTU.contains(mtu)).map(|mtu| Self(mtu, PhantomData))
    }
}

impl<F> Display for Mtu<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Makes the element.
pub(super) fn make<F: ErrorFamily>(setup: &mut Setup<'_>) -> Result<Box<dyn Element>, ConfigError> {
    let arguments = &mut setup.arguments;
    let source = arguments.required("SRC")?;
    let kind_name = arguments.required::<String>("TYPE")?;
    let code_name = arguments.optional::<String>("CODE")?;
    let bad = arguments.optional("BADADDRS")?.unwrap_or_default();
    let mtu = arguments.keyword_or("MTU", Mtu(F::DEFAULT_MTU, PhantomData))?;
    let path_mtu = arguments.keyword_or("PMTU", F::DEFAULT_PATH_MTU)?;
    let family = F::read(arguments)?;
    let rate = ErrorRate::read(setup)?;
    setup.arguments.finish()?;
    let kind = (F::TYPE_NUMBER)(&kind_name)
        .ok_or_else(|| format!("TYPE: expected an {}, got '{kind_name}'", F::TYPES))?;
    let code = code_name.map_or(Ok(0), |name| {
        let codes = (F::CODES)(kind);
        names::number(codes, &name).ok_or_else(|| {
            let known = codes.iter().map(|entry| entry.0).collect::<Vec<_>>().join(", ");
            format!("CODE: expected an integer from 0 to 255, or one of {known}; got '{name}'")
        })
    })?;
    Ok(Box::new(Errors::<F> { source, kind, code, bad, mtu, path_mtu, rate, family }))
}

/// The element.
pub(super) struct Errors<F: ErrorFamily> {
    source: ErrorSource<F::Ip>,
    pub(super) kind: F::Type,
    pub(super) code: u8,
    pub(super) bad: F::Addresses,
    mtu: Mtu<F>,
    pub(super) path_mtu: F::PathMtu,
    rate: ErrorRate,
    pub(super) family: F,
}

impl<F: ErrorFamily> Errors<F> {
    pub(super) const HANDLERS: &'static [Handler] = &[
        Handler::field("src", "The SRC argument.", &Field(|e: &mut Self| &mut e.source)),
        Handler::field("mtu", "The MTU argument.", &Field(|e: &mut Self| &mut e.mtu)),
        Handler::field("pmtu", "The PMTU argument.", &Field(|e: &mut Self| &mut e.path_mtu)),
        Handler::read_write(
            "rate",
            Combine::First,
            "The RATE argument.",
            &Get(|e: &mut Self| e.rate.get().to_string()),
            &Put(|e: &mut Self, cx, value| e.rate.set(cx.now_ns(), value)),
        ),
    ];

    /// Returns the source of an error about `packet`, which was sent to `destination`, and as much of the packet as the
    /// error quotes behind an IP header of `header_len` bytes; or why no error is sent now.
    pub(super) fn quote<'a>(
        &self,
        cx: &mut Context,
        packet: &'a Packet,
        destination: F::Ip,
        header_len: usize,
    ) -> Result<(F::Ip, &'a [u8]), &'static str> {
        self.rate.check(cx.now_ns())?;
        let longest = self.mtu.0.min(cx.pool().data_bytes());
        let room = longest.checked_sub(header_len + HEADER_LEN).ok_or(NO_FRAME)?;
        let bytes = packet.network().unwrap_or_default();
        let source = self.source.choose(destination, packet.annotations().paint());
        Ok((source, &bytes[..room.min(bytes.len())]))
    }
}

/// Returns the error that `write` writes, with an IP header of `header_len` bytes.
pub(super) fn frame(
    cx: &mut Context,
    header_len: usize,
    write: impl FnOnce(&mut Packet) -> Option<()>,
) -> Result<Packet, &'static str> {
    let mut error = cx.allocate().ok_or(NO_FRAME)?;
    if write(&mut error).is_none() {
        cx.pool().free_packet(error);
        return Err(NO_FRAME);
    }
    error.set_network_and_transport_header(0, header_len);
    error.set_timestamp_ns(cx.now_ns());
    Ok(error)
}

impl<F: ErrorFamily> Element for Errors<F> {
    fn process(&mut self, cx: &mut Context, batch: &mut Batch) {
        let mut packets = std::mem::replace(batch, cx.spare_batch());
        for packet in packets.drain() {
            match F::answer(self, cx, &packet) {
                Ok(error) => {
                    cx.pool().free_packet(packet);
                    batch.push(error);
                }
                Err(reason) => cx.drop(packet, reason),
            }
        }
        cx.recycle(packets);
    }
}
