//! Ctrl-C, and what else asks a program to end.

use std::io;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

/// Calls `act`, on a thread of its own, at each SIGINT, SIGTERM and SIGHUP. These signals then do nothing else.
///
/// # Errors
///
/// Where the handlers cannot be set or the thread cannot be started.
pub fn on_interrupt(mut act: impl FnMut() + Send + 'static) -> io::Result<()> {
    let mut signals = Signals::new([SIGHUP, SIGINT, SIGTERM])?;
    let wait = move || signals.forever().for_each(|_| act());
    std::thread::Builder::new().name("signals".to_owned()).spawn(wait).map(|_| ())
}
