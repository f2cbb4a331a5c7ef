//! Completion of words in bash, zsh and fish. Names of ports and elements come from the running router.
//!
//! The shell's function, which `COMPLETE=bash brickway` prints, calls this program with `COMPLETE` set for each word.

use std::ffi::OsStr;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use clap_complete::CompleteEnv;
use clap_complete::engine::{CompletionCandidate as Word, PathCompleter, ValueCompleter};
use control::api::{
    Client, ClientError, ElementRow, HandlerFilter, HandlerRow, NoFilter, PortFilter, PortRow, Request, Show,
    default_socket,
};
use serde::de::DeserializeOwned;

use crate::settings::Settings;

/// How long a shell waits for the router, which otherwise has no words.
const PATIENCE: Duration = Duration::from_secs(1);

/// Answers a shell that asks for the ends of a word, and ends the program; returns where no shell asks.
pub(crate) fn complete() {
    CompleteEnv::with_factory(crate::command).complete();
}

/// Returns the rows of the router of this network namespace; none where it does not answer in time.
fn rows<T: DeserializeOwned + Send + 'static>(show: Show) -> Vec<T> {
    let (sender, receiver) = mpsc::channel();
    let ask = move || -> Result<Vec<T>, ClientError> {
        let mut client = Client::connect_to_show(&default_socket())?;
        let rows = client.ask(&Request::Show(show))?;
        Ok(rows.filter_map(|row| serde_json::from_str(&row.ok()?).ok()).collect())
    };
    thread::spawn(move || {
        // Nobody waits any more where the router was too slow.
        let _ = sender.send(ask());
    });
    receiver.recv_timeout(PATIENCE).ok().and_then(Result::ok).unwrap_or_default()
}

fn word(name: &str, help: &str) -> Word {
    Word::new(name).help((!help.is_empty()).then(|| help.to_owned().into()))
}

/// Returns the ports of the router.
pub(crate) fn ports() -> Vec<Word> {
    let ports: Vec<PortRow> = rows(Show::Ports(PortFilter { port: None }));
    ports.iter().map(|port| word(&port.name, &port.spec)).collect()
}

/// Returns the places where packets can be captured.
pub(crate) fn places() -> Vec<Word> {
    let mut words = ports();
    words.extend([
        word("inputs", "what comes in by all ports"),
        word("drops", "what is dropped"),
        word("punts", "what leaves the usual way"),
    ]);
    let elements: Vec<ElementRow> = rows(Show::Elements(NoFilter {}));
    words.extend(elements.iter().map(|row| word(&row.element, &row.class)));
    words
}

/// Returns the handlers of the router's elements.
pub(crate) fn handlers() -> Vec<Word> {
    let handlers: Vec<HandlerRow> = rows(Show::Handlers(HandlerFilter { name: None }));
    handlers.iter().map(|row| word(&row.name, "")).collect()
}

/// Returns the settings that can change while a router runs.
pub(crate) fn live_settings() -> Vec<Word> {
    let options = Settings::options_beside_features().filter(|option| option.is_live);
    options.map(|option| word(&option.name(), option.doc.first().map_or("", |line| line.trim()))).collect()
}

/// Returns the elements that have manuals, and the subcommands.
pub(crate) fn manuals() -> Vec<Word> {
    let registry = crate::classes();
    let subjects = crate::manual::subjects(&registry);
    let elements = subjects.values().flatten().map(|(name, _, summary)| word(name, summary));
    let commands = crate::command();
    let about = |command: &clap::Command| command.get_about().map(ToString::to_string).unwrap_or_default();
    commands
        .get_subcommands()
        .map(|command| word(command.get_name(), &about(command)))
        .chain(elements)
        .collect()
}

/// Returns the interfaces of Linux, which may become ports.
pub(crate) fn interfaces() -> Vec<Word> {
    let entries = std::fs::read_dir("/sys/class/net").into_iter().flatten().flatten();
    let mut names: Vec<_> = entries.map(|entry| entry.file_name()).collect();
    names.sort();
    names.into_iter().map(Word::new).collect()
}

/// Returns what `brickway run` takes: interfaces, and files of configurations.
pub(crate) fn interfaces_and_files(current: &OsStr) -> Vec<Word> {
    let begins = |word: &Word| word.get_value().as_encoded_bytes().starts_with(current.as_encoded_bytes());
    let mut words: Vec<Word> = interfaces().into_iter().filter(begins).collect();
    words.extend(PathCompleter::file().complete(current));
    words
}
