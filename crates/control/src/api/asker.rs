//! Who asks for something that changes the router, or reads its packets: the log names them.

use std::os::unix::net::UnixStream;

use super::request::{Action, CostFilter, Request, Show};
use super::server::Unanswered;
use crate::accounts;

/// A client of the control socket, as the kernel knows it (`SO_PEERCRED`).
struct Asker {
    user: String,
    process: i32,
    command: String,
}

impl Asker {
    fn of(client: &UnixStream) -> Asker {
        let Ok(peer) = rustix::net::sockopt::socket_peercred(client) else {
            return Asker { user: "unknown".to_owned(), process: 0, command: String::new() };
        };
        let process = peer.pid.as_raw_nonzero().get();
        // A client that has gone has no name any more.
        let command = std::fs::read_to_string(format!("/proc/{process}/comm")).unwrap_or_default();
        let user = accounts::user_name(peer.uid.as_raw());
        // The client chooses it.
        Asker { user, process, command: command.lines().next().unwrap_or_default().to_owned() }
    }
}

impl std::fmt::Display for Asker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Asker { user, process, command } = self;
        // A service that sees no processes of others has no names of theirs.
        let comma = if command.is_empty() { "" } else { ", " };
        write!(f, "{user} ({command}{comma}process {process})")
    }
}

/// What a request does, for the log.
struct Deed<'a> {
    event: &'static str,
    text: String,
    option: Option<&'a str>,
    value: Option<&'a str>,
    /// Its value may be a key, and is left out.
    handler: Option<&'a str>,
    /// Whether it is logged before it begins, because it takes its time.
    takes_time: bool,
}

impl<'a> Deed<'a> {
    fn of(request: &'a Request) -> Option<Deed<'a>> {
        let deed = |event, text: String| Deed {
            event,
            text,
            option: None,
            value: None,
            handler: None,
            takes_time: true,
        };
        Some(match request {
            Request::Do(Action::Set { option, value }) => Deed {
                option: Some(option),
                value: Some(value),
                takes_time: false,
                ..deed("set", format!("set {option} = {value}"))
            },
            Request::Do(Action::Write { handler, .. }) => Deed {
                handler: Some(handler),
                takes_time: false,
                ..deed("write", format!("write handler {handler}"))
            },
            // The router logs what comes of it.
            Request::Do(Action::Reload {}) => deed("reload", "reload".to_owned()),
            Request::Show(Show::Capture(query)) => {
                let seen = if query.sample.is_some() { "samples" } else { "capture" };
                deed("capture", format!("{seen} of {}", query.what.as_deref().unwrap_or("all ports")))
            }
            Request::Show(Show::Trace(query)) => deed("trace", format!("trace of {} packets", query.count)),
            Request::Show(Show::Cost(CostFilter { unfused: true, .. })) => {
                deed("cost", "measurement of costs without runs".to_owned())
            }
            Request::Show(_) | Request::Table(_) => return None,
        })
    }
}

/// Logs that somebody asks for what takes its time.
pub(super) fn log_begin(request: &Request, client: &UnixStream) {
    let Some(Deed { event, text, .. }) = Deed::of(request).filter(|deed| deed.takes_time) else { return };
    let asker = Asker::of(client);
    let Asker { user, process, command } = &asker;
    tracing::info!(event, user, pid = process, command, "{text}: asked for by {asker}");
}

/// Logs what came of a request: a deed that is done at once, and whatever was refused.
pub(super) fn log_end(request: &Request, client: &UnixStream, result: &Result<(), Unanswered>) {
    let Some(Deed { event, text, option, value, handler, takes_time }) = Deed::of(request) else { return };
    let asker = Asker::of(client);
    let Asker { user, process, command } = &asker;
    match result {
        Ok(()) if !takes_time => {
            tracing::info!(event, option, value, handler, user, pid = process, command, "{text}, by {asker}");
        }
        Ok(()) | Err(Unanswered::ClientGone) => {}
        // The router logs why.
        Err(_) if event == "reload" => {}
        Err(refusal) => {
            // A refused value may be a key: an element may quote it, and it may have been meant for a handler.
            let (text, reason) = match event {
                "write" => (text, "the element refuses the value".to_owned()),
                "set" => (format!("set {}", option.unwrap_or_default()), refusal.to_string()),
                _ => (text, refusal.to_string()),
            };
            tracing::warn!(
                event,
                option,
                handler,
                user,
                pid = process,
                command,
                reason,
                "{text}, by {asker}: refused: {reason}"
            );
        }
    }
}

/// Logs that somebody who may only show asked for more. What exactly is left out: of what they make up, the log would soon be full.
pub(super) fn log_intrusion(name: &str, client: &UnixStream) {
    let asker = Asker::of(client);
    let Asker { user, process, command } = &asker;
    let reason = "members of the read group may only show";
    tracing::warn!(
        event = name,
        user,
        pid = process,
        command,
        reason,
        "{name}, by {asker}: refused: {reason}"
    );
}
