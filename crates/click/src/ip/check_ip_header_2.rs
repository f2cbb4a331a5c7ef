//! =c
//! CheckIPHeader2([OFFSET, I<keywords> INTERFACES, BADSRC, GOODDST, OFFSET, VERBOSE, DETAILS, CHECKSUM])
//!
//! =s ip
//! checks IP headers, but not their checksums
//!
//! =d
//! As CheckIPHeader, with CHECKSUM false by default.
//!
//! =a CheckIPHeader

use elements::ip::check_ip_header;
use graph::Class;

pub(crate) static CLASS: Class = Class {
    capabilities: &[graph::TAKES_MERGED],
    name: "CheckIPHeader2",
    manual: graph::manual!("check_ip_header_2.rs"),
    make: |setup| check_ip_header::make(setup, false),
    ..check_ip_header::CLASS
};
