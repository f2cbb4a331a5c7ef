//! Standard output that may be closed: `brickway elements | head` ends quietly.

use std::io::{ErrorKind, Write};

/// Prints to standard output. When nobody reads it any more the program ends, as other tools do; with an error when it cannot
/// be written, as on a full disk.
pub fn print(text: &str) {
    let mut stdout = std::io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Ok(()) => {}
        Err(error) if error.kind() == ErrorKind::BrokenPipe => std::process::exit(0),
        Err(error) => {
            graph::note!("brickway: standard output cannot be written: {error}");
            std::process::exit(1);
        }
    }
}

/// As `print!`, to an output that may be closed.
#[macro_export]
macro_rules! say {
    ($($argument:tt)*) => { $crate::output::print(&format!($($argument)*)) };
}

/// As `println!`, to an output that may be closed.
#[macro_export]
macro_rules! say_line {
    ($($argument:tt)*) => { $crate::output::print(&(format!($($argument)*) + "\n")) };
}

pub use crate::{say, say_line};
