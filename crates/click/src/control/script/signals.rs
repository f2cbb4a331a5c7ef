//! Signals: by their names, and how a script gets them.

use std::io::Read;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use graph::setup::TakenSignals;
use rustix::process::Signal;

use super::instructions::Ending;

/// So many turns a `stop` waits, in which all other scripts that take the signal have run.
const TURNS_BEFORE_STOP: u8 = 2;

/// What a script gets of its signals.
pub(super) struct Signals {
    /// For each a stream in which a byte lies when it came.
    pub(super) streams: Vec<(i32, UnixStream)>,
    pub(super) taken: Arc<TakenSignals>,
    /// Whether the script has said `exit`.
    pub(super) is_gone: bool,
    /// Turns until the script's `stop` is carried out.
    pub(super) stops_in: Option<u8>,
}

impl Signals {
    /// Whether a signal came that the script is to run for; several that came at once are one.
    pub(super) fn came(&mut self) -> bool {
        let mut some = false;
        for (signal, stream) in &mut self.streams {
            let mut bytes = [0; 64];
            let mut came = false;
            while stream.read(&mut bytes).is_ok_and(|count| count > 0) {
                came = true;
            }
            if came && self.is_gone && !self.taken.has(*signal) {
                // Nobody wants it any more. One that is ignored by itself does nothing here either.
                let _ = signal_hook::low_level::emulate_default_handler(*signal);
            }
            some |= came && !self.is_gone;
        }
        some
    }

    /// Takes in how the script has ended; whether it is time for its `stop`.
    pub(super) fn is_time_to_stop(&mut self, ending: Option<Ending>) -> bool {
        match ending {
            Some(Ending::Stop) => self.stops_in = Some(TURNS_BEFORE_STOP),
            Some(Ending::Exit) if !self.is_gone => {
                self.is_gone = true;
                self.streams.iter().for_each(|(signal, _)| self.taken.give_back(*signal));
            }
            _ => {}
        }
        match self.stops_in {
            Some(0) => {
                self.stops_in = None;
                true
            }
            Some(turns) => {
                self.stops_in = Some(turns - 1);
                false
            }
            None => false,
        }
    }
}

/// Where a byte can be read when the signal came.
pub(super) fn signal_stream(signal: i32) -> std::io::Result<UnixStream> {
    let (ours, theirs) = UnixStream::pair()?;
    ours.set_nonblocking(true)?;
    signal_hook::low_level::pipe::register(signal, theirs)?;
    Ok(ours)
}

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
