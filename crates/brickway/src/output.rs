//! Standard output that may be closed: `brickway elements | head` ends quietly.

use std::io::Write;

/// Prints to standard output. When nobody reads it any more the program ends, as other tools do.
pub(crate) fn print(text: &str) {
    let mut stdout = std::io::stdout().lock();
    if stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()).is_err() {
        std::process::exit(0);
    }
}

/// As `print!`, to an output that may be closed.
macro_rules! say {
    ($($argument:tt)*) => { $crate::output::print(&format!($($argument)*)) };
}

/// As `println!`, to an output that may be closed.
macro_rules! say_line {
    ($($argument:tt)*) => { $crate::output::print(&(format!($($argument)*) + "\n")) };
}

pub(crate) use {say, say_line};
