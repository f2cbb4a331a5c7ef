//! =c
//! ChatterSocket(TYPE, PORT | FILENAME, [I<keywords> LOCALHOST, ADDRESS, GREETING, RETRIES, RETRY_WARNINGS])
//!
//! =s control
//! sends the messages of elements to other programs over a socket
//!
//! =d
//! TYPE, PORT, FILENAME, LOCALHOST and ADDRESS are as for ControlSocket. By default only this host
//! can connect. Every client reads the line C<Click::ChatterSocket/1.0> (none with GREETING false).
//! From then on it reads each message, such as those of Print. A client that does not read them
//! fast enough loses the connection.
//!
//! Different from Click: there is one channel, so CHANNEL and QUIET_CHANNEL are not supported.
//!
//! =a ControlSocket, Print

use std::io::Write;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use graph::{Ask, Class, Combine, ConfigError, Context, Element, Handler, Setup};

use super::socket::{Address, Connections, Listener, Server, Visitor};

pub(crate) static CLASS: Class = Class {
    name: "ChatterSocket",
    ports: "0/0",
    handlers: &[
        Handler::read(
            "port",
            Combine::First,
            "The TCP port.",
            &Ask(|e: &mut ChatterSocket, _, _| {
                e.listener.as_ref().map_or(Ok(String::new()), |listener| listener.port())
            }),
        ),
        Handler::read(
            "filename",
            Combine::First,
            "The file of a Unix socket.",
            &Ask(|e: &mut ChatterSocket, _, _| {
                e.listener.as_ref().map_or(Ok(String::new()), |listener| listener.filename())
            }),
        ),
    ],
    manual: graph::manual!("chatter_socket.rs"),
    make,
    ..Class::DEFAULT
};

/// Messages that may wait for one listener.
const MOST_WAITING: usize = 1_024;

fn make(setup: &mut Setup<'_>) -> Result<Box<dyn Element>, ConfigError> {
    let address = Address::read(&mut setup.arguments)?;
    let greets = setup.arguments.keyword_or("GREETING", true)?;
    setup.arguments.keyword_or("RETRIES", 0_u32)?;
    setup.arguments.keyword_or("RETRY_WARNINGS", true)?;
    setup.arguments.finish()?;
    let works = setup.copy().index == 0;
    Ok(Box::new(ChatterSocket { address: works.then_some(address), greets, listener: None, server: None }))
}

struct ChatterSocket {
    /// `None` in every copy but the first.
    address: Option<Address>,
    greets: bool,
    listener: Option<Arc<Listener>>,
    server: Option<Server>,
}

impl Element for ChatterSocket {
    fn initialise(&mut self, cx: &mut Context) -> Result<(), String> {
        let Some(address) = &self.address else { return Ok(()) };
        let listener = Arc::new(address.listen().map_err(|error| format!("bind: {error}"))?);
        self.listener = Some(listener.clone());
        let listeners = Arc::<std::sync::Mutex<Vec<SyncSender<String>>>>::default();
        let list = move |all: &std::sync::Mutex<Vec<SyncSender<String>>>,
                         act: &mut dyn FnMut(&mut Vec<_>)| {
            act(&mut all.lock().unwrap_or_else(std::sync::PoisonError::into_inner));
        };
        let told = listeners.clone();
        cx.listen(Box::new(move |line| {
            list(&told, &mut |all| {
                all.retain(|one: &SyncSender<String>| one.try_send(line.to_owned()).is_ok())
            });
        }));
        let greets = self.greets;
        let serve = move |mut stream: Visitor| {
            let (sender, receiver): (_, Receiver<String>) = sync_channel(MOST_WAITING);
            let greeting = if greets { "Click::ChatterSocket/1.0\r\n" } else { "" };
            if stream.write_all(greeting.as_bytes()).is_err() {
                return;
            }
            list(&listeners, &mut |all| all.push(sender.clone()));
            drop(sender);
            // It ends when the listener went, or was too slow and is told nothing any more.
            while let Ok(line) = receiver.recv() {
                if stream.write_all(format!("{line}\n").as_bytes()).is_err() {
                    return;
                }
            }
        };
        let server = Server::start(listener, Arc::<Connections>::default(), serve);
        self.server = Some(server.map_err(|error| format!("no thread: {error}"))?);
        Ok(())
    }
}
