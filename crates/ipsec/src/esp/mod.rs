//! ESP packets (RFC 4303), a batch at a time and in place.
//!
//! ```text
//!  tunnel mode:     outer IP [UDP] | SPI, number | IV | inner packet .. padding, its length, protocol | ICV
//!  transport mode:  IP       [UDP] | SPI, number | IV | its payload  .. padding, its length, protocol | ICV
//!                                  |<------------------ authenticated -------------------------->|
//!                                                     |<--------- encrypted -------------------->|
//! ```
//!
//! | file | what lives there |
//! | --- | --- |
//! | `seal` | [`Sealer`]: headers, padding, sequence numbers, encryption |
//! | `open` | [`Opener`]: replays, decryption, padding, what was inside |
//! | `marks` | DSCP and congestion marks between the headers (RFC 6040) |
//! | `header` | [`find`]: where ESP begins in a packet, and its SPI |

mod header;
mod marks;
mod open;
mod seal;
#[cfg(test)]
mod tests;

pub use header::{
    Esp, Hidden, NAT_TRAVERSAL_PORT, PLAIN_OFFSET, find, find_anywhere, find_plain, may_be_esp,
};
pub use open::{Opened, Opener};
pub use seal::Sealer;
