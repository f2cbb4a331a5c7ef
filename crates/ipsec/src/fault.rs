//! Why packets are not sealed or opened.

use crate::window::Refused;

/// Defines [`Fault`] with its reasons.
macro_rules! faults {
    ($($(#[doc = $doc:literal])+ $name:ident $reason:literal,)*) => {
        /// Why a packet is dropped.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Fault {
            $($(#[doc = $doc])+ $name,)*
        }

        impl Fault {
            /// All faults.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// Returns the reason under which dropped packets are counted.
            pub fn reason(self) -> &'static str {
                match self {
                    $(Self::$name => $reason,)*
                }
            }
        }
    };
}

faults! {
    /// The ICV is not that of the packet and the key.
    WrongIcv "ESP: wrong ICV",
    /// The sequence number was accepted already.
    Replayed "ESP: replayed",
    /// The sequence number is behind the anti-replay window.
    TooOld "ESP: older than the replay window",
    /// The padding is not 1, 2, 3 and so on, or longer than the payload (RFC 4303, section 2.4).
    BadPadding "ESP: bad padding",
    /// What was encrypted does not begin with a header of the protocol that the trailer names.
    BadInnerHeader "ESP: bad inner header",
    /// The packet is too short for its header, IV and ICV, or its payload is not a multiple of the cipher's block.
    Truncated "ESP: truncated",
    /// The association has used all of its sequence numbers.
    SequenceOverflow "ESP: sequence numbers used up",
    /// The association has reached its hard limit.
    Expired "ESP: association expired",
    /// The frame has no room for the headers, or the packet would be longer than 65,535 bytes.
    NoRoom "ESP: no room in the frame",
    /// A fragment, of which transport mode protects none (RFC 4303, section 3.3.4).
    Fragment "ESP: fragment in transport mode",
    /// The packet was sent to hide that nothing is sent (RFC 4303, section 2.6).
    Dummy "ESP: dummy packet",
    /// The outer header has a congestion mark that the inner one cannot have (RFC 6040, section 4.2).
    LostCongestionMark "ESP: congestion mark without ECN",
}

impl From<Refused> for Fault {
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::Replayed => Self::Replayed,
            Refused::TooOld => Self::TooOld,
        }
    }
}
