//! Annotations and bytes of single packets.

mod align;
mod average_counter;
mod check_crc32;
mod check_paint;
mod clipboard;
mod counter;
mod crc32;
mod move_data;
mod null;
mod number_packet;
mod pad;
mod paint_tee;
pub(crate) mod print;
mod random_bit_errors;
mod random_seed;
mod resize;
mod set_crc32;
mod set_packet_type;
pub(crate) mod set_timestamp;
mod set_timestamp_delta;
mod store_data;
mod strip_to_network_header;
mod strip_transport_header;
pub(crate) mod truncate;

use graph::Class;

/// The classes of this folder.
pub static CLASSES: &[&Class] = &[
    &align::CLASS,
    &average_counter::CLASS,
    &check_crc32::CLASS,
    &check_paint::CLASS,
    &clipboard::CLASS,
    &counter::CLASS,
    &move_data::CLASS,
    &null::CLASS,
    &number_packet::CLASS,
    &pad::CLASS,
    &paint_tee::CLASS,
    &print::CLASS,
    &null::PULL,
    &null::PUSH,
    &random_bit_errors::CLASS,
    &random_seed::CLASS,
    &resize::CLASS,
    &set_crc32::CLASS,
    &set_packet_type::CLASS,
    &set_timestamp::CLASS,
    &set_timestamp_delta::CLASS,
    &store_data::CLASS,
    &strip_to_network_header::CLASS,
    &strip_transport_header::CLASS,
    &truncate::CLASS,
];
