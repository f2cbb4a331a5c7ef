//! Click's IPsec: ESP in steps, with associations that stand beside routes.
//!
//! ```text
//!  rt :: RadixIPsecLookup
//!    [1] -> IPsecESPEncap -> IPsecAuthHMACSHA1(0) -> IPsecAES(1) -> IPsecEncap(50) -> rt
//!    [0] -> StripIPHeader -> IPsecAES(0) -> IPsecAuthHMACSHA1(1) -> IPsecESPUnencap -> CheckIPHeader -> rt
//! ```
//!
//! The packets are those of Click, not those of RFC 4303: see the manual of IPsecESPEncap. The router's own IPsec is in
//! `elements::ipsec`.
//!
//! | file | what lives there |
//! | --- | --- |
//! | `association` | keys, sequence numbers, replay window |
//! | `associations` | the associations of a router, by SPI, and how elements reach them |
//! | `tunnel` | routes with associations as text |
//! | `radix_ipsec_lookup` | the lookup that has them |
//! | `ipsec_esp_encap`, `ipsec_esp_unencap` | ESP header and padding |
//! | `ipsec_auth_hmac_sha1` | the digest at the end |
//! | `ipsec_aes` | encryption |
//! | `ipsec_encap` | the outer IP header |
//! | `tests` | all of them in one graph |

mod association;
mod associations;
mod ipsec_aes;
mod ipsec_auth_hmac_sha1;
mod ipsec_encap;
mod ipsec_esp_encap;
mod ipsec_esp_unencap;
mod radix_ipsec_lookup;
#[cfg(test)]
mod tests;
mod tunnel;

use graph::Class;

/// The classes of this folder.
pub static CLASSES: &[&Class] = &[
    &ipsec_aes::CLASS,
    &ipsec_auth_hmac_sha1::CLASS,
    &ipsec_encap::CLASS,
    &ipsec_esp_encap::CLASS,
    &ipsec_esp_unencap::CLASS,
    &radix_ipsec_lookup::CLASS,
];

/// Bytes before the encrypted part: SPI, sequence number, and an IV of 8 bytes.
const HEADER_BYTES: usize = 16;
/// Bytes of the digest behind it.
const DIGEST_BYTES: usize = 12;
