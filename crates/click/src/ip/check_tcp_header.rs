//! =c
//! CheckTCPHeader([I<keywords> VERBOSE, DETAILS, CHECKSUM])
//!
//! =s tcp
//! checks TCP headers
//!
//! =d
//! Expects packets with the IP header marked and checked. Checks that they are TCP, that the TCP header fits the
//! packet, and the checksum. What passes leaves by output 0; what fails leaves by output 1 if that is connected
//! and is dropped otherwise. A message tells of the first failure.
//!
//! =item VERBOSE
//! whether every failure gives a message; false by default.
//!
//! =item DETAILS
//! whether there is a C<drop_details> handler; false by default.
//!
//! =item CHECKSUM
//! whether the checksum is checked; true by default.
//!
//! =back
//!
//! Drop reasons: not TCP, bad packet length, bad TCP checksum.
//!
//! =a CheckIPHeader, CheckUDPHeader, CheckICMPHeader

use graph::Class;
use packet::wire::IpProtocol;

use super::check_udp_header;

pub(crate) static CLASS: Class = Class {
    name: "CheckTCPHeader",
    manual: graph::manual!("check_tcp_header.rs"),
    make: |setup| check_udp_header::make(setup, IpProtocol::TCP),
    ..check_udp_header::CLASS
};
