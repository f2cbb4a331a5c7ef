//! Standard output that may be closed, so that `brickway elements | head` ends quietly, and help that fits the terminal.

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

/// Returns a command whose help is broken at the terminal's width throughout: clap breaks lines, and here the lines of each paragraph
/// behind the options become one. Lines that are indented stay. The same is done to its subcommands.
pub fn flowing_help(command: clap::Command) -> clap::Command {
    let command = command.mut_subcommands(flowing_help);
    let Some(text) = command.get_after_help().map(ToString::to_string) else { return command };
    let mut flowing = String::new();
    let mut last = "";
    for line in text.lines() {
        let [is_prose, was_prose] = [line, last].map(|line| !line.is_empty() && !line.starts_with(' '));
        flowing.push_str(if is_prose && was_prose { " " } else { "\n" });
        flowing.push_str(line);
        last = line;
    }
    command.after_help(flowing.trim_start_matches('\n').to_owned())
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paragraphs_flow_and_examples_stay() {
        let inner = clap::Command::new("b").after_help("Two\nlines.");
        let outer = clap::Command::new("a").after_help("Examples:\n  a b\n  a c\n\nOne\nparagraph.\n\nMore.");
        let flowing = flowing_help(outer.subcommand(inner));
        let after = |command: &clap::Command| command.get_after_help().unwrap().to_string();
        assert_eq!(after(&flowing), "Examples:\n  a b\n  a c\n\nOne paragraph.\n\nMore.");
        assert_eq!(after(flowing.find_subcommand("b").unwrap()), "Two lines.");
    }
}
