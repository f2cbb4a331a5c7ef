//! Names of the types and codes of ICMPv6 errors (RFC 4443), made like those of ICMP.

use packet::wire::icmpv6::{Icmpv6Type, parameter_problem_code, time_exceeded_code, unreachable_code};

use super::names::Codes;

const TYPES: [(&str, Icmpv6Type); 4] = [
    ("unreachable", Icmpv6Type::DESTINATION_UNREACHABLE),
    ("packettoobig", Icmpv6Type::PACKET_TOO_BIG),
    ("timeexceeded", Icmpv6Type::TIME_EXCEEDED),
    ("parameterproblem", Icmpv6Type::PARAMETER_PROBLEM),
];

const UNREACHABLE_CODES: [(&str, u8); 7] = [
    ("noroute", unreachable_code::NO_ROUTE),
    ("prohibited", unreachable_code::PROHIBITED),
    ("beyondscope", unreachable_code::BEYOND_SCOPE),
    ("address", unreachable_code::ADDRESS),
    ("port", unreachable_code::PORT),
    ("sourcepolicy", unreachable_code::SOURCE_POLICY),
    ("rejectroute", unreachable_code::REJECT_ROUTE),
];
const TIME_EXCEEDED_CODES: [(&str, u8); 2] =
    [("hoplimit", time_exceeded_code::HOP_LIMIT), ("reassembly", time_exceeded_code::REASSEMBLY)];
const PARAMETER_PROBLEM_CODES: [(&str, u8); 3] = [
    ("erroratptr", parameter_problem_code::HEADER_FIELD),
    ("nextheader", parameter_problem_code::NEXT_HEADER),
    ("option", parameter_problem_code::OPTION),
];

/// The names of the codes of type `kind`.
pub(super) fn codes(kind: Icmpv6Type) -> Codes {
    match kind {
        Icmpv6Type::DESTINATION_UNREACHABLE => &UNREACHABLE_CODES,
        Icmpv6Type::TIME_EXCEEDED => &TIME_EXCEEDED_CODES,
        Icmpv6Type::PARAMETER_PROBLEM => &PARAMETER_PROBLEM_CODES,
        _ => &[],
    }
}

/// The type of an error that a name or number stands for.
pub(super) fn type_number(name: &str) -> Option<Icmpv6Type> {
    let is_it = |(known, kind): &&(&str, Icmpv6Type)| *known == name || name.parse() == Ok(kind.0);
    TYPES.iter().find(is_it).map(|(_, kind)| *kind)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::icmp::names::number;

    #[test]
    fn names_and_numbers() {
        assert_eq!(type_number("packettoobig"), Some(Icmpv6Type::PACKET_TOO_BIG));
        assert_eq!(type_number("3"), Some(Icmpv6Type::TIME_EXCEEDED));
        assert_eq!(type_number("128"), None);
        assert_eq!(number(codes(Icmpv6Type::DESTINATION_UNREACHABLE), "address"), Some(3));
        assert_eq!(number(codes(Icmpv6Type::TIME_EXCEEDED), "address"), None);
        assert_eq!(number(codes(Icmpv6Type::PACKET_TOO_BIG), "0"), Some(0));
    }
}
