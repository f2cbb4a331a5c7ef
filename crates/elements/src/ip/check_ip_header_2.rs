//! =c
//! CheckIPHeader2([OFFSET, I<keywords> INTERFACES, BADSRC, GOODDST, OFFSET, VERBOSE, DETAILS, CHECKSUM])
//!
//! =s ip
//! checks IP headers, but not their checksums
//!
//! =d
//! As CheckIPHeader, with CHECKSUM false by default.
//!
//! =h drops read-only
//! Packets refused so far.
//!
//! =h drop_details read-only
//! Packets refused, by reason. Only with DETAILS.
//!
//! =a CheckIPHeader

use graph::Class;

pub(crate) static CLASS: Class = Class {
    name: "CheckIPHeader2",
    ports: "1/1-2",
    processing: Class::AGNOSTIC_WITH_ERRORS,
    flow: Class::COMPLETE_FLOW,
    manual: include_str!("check_ip_header_2.rs"),
    make: |setup| super::check_ip_header::make(setup, false),
};
