//! Numbers and names of ICMP types and codes (RFC 792, 950, 1256, 1812); the names are Click's.

use packet::wire::icmp::{
    IcmpType, parameter_problem_code, redirect_code, time_exceeded_code, unreachable_code,
};

/// Echo reply.
pub const ECHO_REPLY: u8 = IcmpType::ECHO_REPLY.0;
/// Destination unreachable.
pub const UNREACHABLE: u8 = IcmpType::DESTINATION_UNREACHABLE.0;
/// Source quench (deprecated by RFC 6633).
pub const SOURCE_QUENCH: u8 = IcmpType::SOURCE_QUENCH.0;
/// Redirect.
pub const REDIRECT: u8 = IcmpType::REDIRECT.0;
/// Echo request.
pub const ECHO: u8 = IcmpType::ECHO_REQUEST.0;
/// Time exceeded.
pub const TIME_EXCEEDED: u8 = IcmpType::TIME_EXCEEDED.0;
/// Parameter problem.
pub const PARAMETER_PROBLEM: u8 = IcmpType::PARAMETER_PROBLEM.0;

const TIMESTAMP: u8 = IcmpType::TIMESTAMP_REQUEST.0;
const TIMESTAMP_REPLY: u8 = IcmpType::TIMESTAMP_REPLY.0;
const INFORMATION: u8 = IcmpType::INFORMATION_REQUEST.0;
const INFORMATION_REPLY: u8 = IcmpType::INFORMATION_REPLY.0;

/// Whether a message of this type has an identifier and a sequence number (RFC 792).
pub fn has_sequence(kind: u8) -> bool {
    matches!(kind, ECHO_REPLY | ECHO | TIMESTAMP..=INFORMATION_REPLY)
}

/// Octets of the header of a message of this type (RFC 792): a timestamp's holds three times.
pub fn header_len(kind: u8) -> usize {
    if matches!(kind, TIMESTAMP | TIMESTAMP_REPLY) { 20 } else { 8 }
}

const TYPES: [(&str, u8); 15] = [
    ("echo", ECHO),
    ("echo-reply", ECHO_REPLY),
    ("inforeq", INFORMATION),
    ("inforeq-reply", INFORMATION_REPLY),
    ("maskreq", IcmpType::MASK_REQUEST.0),
    ("maskreq-reply", IcmpType::MASK_REPLY.0),
    ("parameterproblem", PARAMETER_PROBLEM),
    ("redirect", REDIRECT),
    ("routeradvert", IcmpType::ROUTER_ADVERTISEMENT.0),
    ("routersolicit", IcmpType::ROUTER_SOLICITATION.0),
    ("sourcequench", SOURCE_QUENCH),
    ("timeexceeded", TIME_EXCEEDED),
    ("timestamp", TIMESTAMP),
    ("timestamp-reply", TIMESTAMP_REPLY),
    ("unreachable", UNREACHABLE),
];

const UNREACHABLE_CODES: [(&str, u8); 16] = [
    ("net", unreachable_code::NET),
    ("host", unreachable_code::HOST),
    ("protocol", unreachable_code::PROTOCOL),
    ("port", unreachable_code::PORT),
    ("needfrag", unreachable_code::FRAGMENTATION_NEEDED),
    ("srcroutefail", unreachable_code::SOURCE_ROUTE_FAILED),
    ("netunknown", unreachable_code::NET_UNKNOWN),
    ("hostunknown", unreachable_code::HOST_UNKNOWN),
    ("isolated", unreachable_code::SOURCE_ISOLATED),
    ("netprohibited", unreachable_code::NET_PROHIBITED),
    ("hostprohibited", unreachable_code::HOST_PROHIBITED),
    ("tosnet", unreachable_code::NET_TOS),
    ("toshost", unreachable_code::HOST_TOS),
    ("filterprohibited", unreachable_code::PROHIBITED),
    ("hostprecedence", unreachable_code::HOST_PRECEDENCE),
    ("precedencecutoff", unreachable_code::PRECEDENCE_CUTOFF),
];

const REDIRECT_CODES: [(&str, u8); 4] = [
    ("net", redirect_code::NET),
    ("host", redirect_code::HOST),
    ("tosnet", redirect_code::NET_TOS),
    ("toshost", redirect_code::HOST_TOS),
];
const TIME_EXCEEDED_CODES: [(&str, u8); 2] =
    [("transit", time_exceeded_code::TTL), ("reassembly", time_exceeded_code::REASSEMBLY)];
const PARAMETER_PROBLEM_CODES: [(&str, u8); 3] = [
    ("erroratptr", parameter_problem_code::POINTER),
    ("missingopt", parameter_problem_code::MISSING_OPTION),
    ("length", parameter_problem_code::BAD_LENGTH),
];

/// Names and numbers of the codes of a type.
pub(super) type Codes = &'static [(&'static str, u8)];

/// The names of the codes of type `kind`.
pub(super) fn codes(kind: u8) -> Codes {
    match kind {
        UNREACHABLE => &UNREACHABLE_CODES,
        REDIRECT => &REDIRECT_CODES,
        TIME_EXCEEDED => &TIME_EXCEEDED_CODES,
        PARAMETER_PROBLEM => &PARAMETER_PROBLEM_CODES,
        _ => &[],
    }
}

fn name(table: Codes, number: u8) -> Option<&'static str> {
    table.iter().find(|entry| entry.1 == number).map(|entry| entry.0)
}

/// The number that a name in the table, or a number, stands for.
pub(super) fn number(table: &[(&str, u8)], name: &str) -> Option<u8> {
    match table.iter().find(|entry| entry.0 == name) {
        Some(entry) => Some(entry.1),
        None => <u8 as graph::FromArgument>::from_argument(name),
    }
}

/// The name of a type.
pub fn type_name(kind: u8) -> Option<&'static str> {
    name(&TYPES, kind)
}

/// The type that a name or number stands for.
pub fn type_number(name: &str) -> Option<u8> {
    number(&TYPES, name)
}

/// The name of a code of type `kind`.
pub fn code_name(kind: u8, code: u8) -> Option<&'static str> {
    name(codes(kind), code)
}

/// The code of type `kind` that a name or number stands for.
pub fn code_number(kind: u8, name: &str) -> Option<u8> {
    number(codes(kind), name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_numbers() {
        assert_eq!(type_number("unreachable"), Some(3));
        assert_eq!(type_number("12"), Some(12));
        assert_eq!(type_number("256"), None);
        assert_eq!(code_number(UNREACHABLE, "needfrag"), Some(4));
        assert_eq!(code_number(REDIRECT, "host"), Some(1));
        assert_eq!(code_number(TIME_EXCEEDED, "host"), None);
        assert_eq!(code_name(PARAMETER_PROBLEM, 2), Some("length"));
        assert_eq!(type_name(200), None);
    }
}
