//! Numbers and names of ICMP types and codes (RFC 792, 950, 1256, 1812); the names are Click's.

/// Echo reply.
pub const ECHO_REPLY: u8 = 0;
/// Destination unreachable.
pub const UNREACHABLE: u8 = 3;
/// Source quench (deprecated by RFC 6633).
pub const SOURCE_QUENCH: u8 = 4;
/// Redirect.
pub const REDIRECT: u8 = 5;
/// Echo request.
pub const ECHO: u8 = 8;
/// Time exceeded.
pub const TIME_EXCEEDED: u8 = 11;
/// Parameter problem.
pub const PARAMETER_PROBLEM: u8 = 12;

/// Code of UNREACHABLE: the protocol is.
pub const UNREACHABLE_PROTOCOL: u8 = 2;
/// Code of UNREACHABLE: the port is.
pub const UNREACHABLE_PORT: u8 = 3;
/// Code of UNREACHABLE: too long and DF is set.
pub const UNREACHABLE_NEEDFRAG: u8 = 4;
/// Code of PARAMETER_PROBLEM: the pointer says where.
pub const PARAMETER_PROBLEM_POINTER: u8 = 0;

const TIMESTAMP: u8 = 13;
const TIMESTAMP_REPLY: u8 = 14;
const INFORMATION: u8 = 15;
const INFORMATION_REPLY: u8 = 16;

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
    ("maskreq", 17),
    ("maskreq-reply", 18),
    ("parameterproblem", PARAMETER_PROBLEM),
    ("redirect", REDIRECT),
    ("routeradvert", 9),
    ("routersolicit", 10),
    ("sourcequench", SOURCE_QUENCH),
    ("timeexceeded", TIME_EXCEEDED),
    ("timestamp", TIMESTAMP),
    ("timestamp-reply", TIMESTAMP_REPLY),
    ("unreachable", UNREACHABLE),
];

const UNREACHABLE_CODES: [(&str, u8); 16] = [
    ("net", 0),
    ("host", 1),
    ("protocol", UNREACHABLE_PROTOCOL),
    ("port", UNREACHABLE_PORT),
    ("needfrag", UNREACHABLE_NEEDFRAG),
    ("srcroutefail", 5),
    ("netunknown", 6),
    ("hostunknown", 7),
    ("isolated", 8),
    ("netprohibited", 9),
    ("hostprohibited", 10),
    ("tosnet", 11),
    ("toshost", 12),
    ("filterprohibited", 13),
    ("hostprecedence", 14),
    ("precedencecutoff", 15),
];

const REDIRECT_CODES: [(&str, u8); 4] = [("net", 0), ("host", 1), ("tosnet", 2), ("toshost", 3)];
const TIME_EXCEEDED_CODES: [(&str, u8); 2] = [("transit", 0), ("reassembly", 1)];
const PARAMETER_PROBLEM_CODES: [(&str, u8); 3] =
    [("erroratptr", PARAMETER_PROBLEM_POINTER), ("missingopt", 1), ("length", 2)];

fn codes(kind: u8) -> &'static [(&'static str, u8)] {
    match kind {
        UNREACHABLE => &UNREACHABLE_CODES,
        REDIRECT => &REDIRECT_CODES,
        TIME_EXCEEDED => &TIME_EXCEEDED_CODES,
        PARAMETER_PROBLEM => &PARAMETER_PROBLEM_CODES,
        _ => &[],
    }
}

fn name(table: &'static [(&'static str, u8)], number: u8) -> Option<&'static str> {
    table.iter().find(|entry| entry.1 == number).map(|entry| entry.0)
}

fn number(table: &[(&str, u8)], name: &str) -> Option<u8> {
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

/// The names of the codes of type `kind`, for messages.
pub fn code_names(kind: u8) -> String {
    codes(kind).iter().map(|entry| entry.0).collect::<Vec<_>>().join(", ")
}

/// Whether a message of this type reports an error (RFC 1122, 3.2.2), so that none may be sent about it.
pub fn is_error(kind: u8) -> bool {
    matches!(kind, UNREACHABLE | SOURCE_QUENCH | REDIRECT | TIME_EXCEEDED | PARAMETER_PROBLEM)
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
