//! Signals by their names.

use rustix::process::Signal;

const SIGNALS: [(&str, Signal); 11] = [
    ("ABRT", Signal::ABORT),
    ("ALRM", Signal::ALARM),
    ("HUP", Signal::HUP),
    ("INT", Signal::INT),
    ("IO", Signal::IO),
    ("PIPE", Signal::PIPE),
    ("QUIT", Signal::QUIT),
    ("TERM", Signal::TERM),
    ("TSTP", Signal::TSTP),
    ("USR1", Signal::USR1),
    ("USR2", Signal::USR2),
];

/// The signal of that name or number.
pub(super) fn signal(name: &str) -> Option<Signal> {
    let named = SIGNALS.iter().find(|(known, _)| *known == name).map(|(_, signal)| *signal);
    named.or_else(|| Signal::from_named_raw(name.parse().ok()?))
}
