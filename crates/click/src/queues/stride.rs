//! Stride scheduling: the ports of StrideSched and StrideSwitch, with their tickets and whose turn it is.

use graph::{ConfigError, FromArgument, Setup};

/// The stride of a port with one ticket.
const STRIDE_OF_ONE: u64 = 1 << 16;
const MOST_TICKETS: u32 = 1 << 15;

/// The ports of one side of an element.
pub(crate) struct Strides {
    clients: Vec<Client>,
    /// Ports with tickets, by pass.
    order: Vec<usize>,
}

struct Client {
    tickets: u32,
    stride: u64,
    pass: u64,
}

impl Strides {
    /// Reads the arguments: tickets for each of `ports` ports, which are called `kind`.
    pub(crate) fn from_setup(
        setup: &mut Setup<'_>,
        ports: usize,
        kind: &'static str,
    ) -> Result<Self, ConfigError> {
        let texts = setup.arguments.rest();
        setup.arguments.finish()?;
        if texts.len() != ports {
            return Err(
                format!("{ports} {kind}s need {ports} numbers of tickets, not {}", texts.len()).into()
            );
        }
        let mut strides = Self { clients: Vec::new(), order: Vec::new() };
        let mut messages = Vec::new();
        for (port, text) in texts.iter().enumerate() {
            match u32::from_value(text) {
                Ok(mut tickets) => {
                    if tickets > MOST_TICKETS {
                        setup.warn(format!("{kind} {port}'s tickets reduced to {MOST_TICKETS}"));
                        tickets = MOST_TICKETS;
                    }
                    let stride = stride(tickets);
                    strides.clients.push(Client { tickets, stride, pass: stride });
                }
                Err(error) => messages.push(format!("tickets of {kind} {port}: {error}")),
            }
        }
        if !messages.is_empty() {
            return Err(messages.into());
        }
        // Last to first, because one of equals goes to the front.
        for port in (0..texts.len()).rev() {
            if strides.clients[port].tickets > 0 {
                strides.insert(port);
            }
        }
        Ok(strides)
    }

    fn insert(&mut self, port: usize) {
        let pass = self.clients[port].pass;
        let place = self.order.iter().position(|&other| pass <= self.clients[other].pass);
        self.order.insert(place.unwrap_or(self.order.len()), port);
    }

    /// Ports with tickets, the next one first.
    pub(crate) fn order(&self) -> &[usize] {
        &self.order
    }

    /// The first `count` ports of the order had their turn, whether they had a packet or not: a port saves nothing up. Each
    /// goes back to its place behind the others.
    pub(crate) fn pass_first(&mut self, count: usize) {
        for rest in (0..count).rev() {
            let port = self.order.remove(0);
            self.clients[port].pass += self.clients[port].stride;
            let pass = self.clients[port].pass;
            let tail = self.order[rest..].iter().position(|&other| pass <= self.clients[other].pass);
            let place = tail.map_or(self.order.len(), |tail| rest + tail);
            self.order.insert(place, port);
        }
    }

    /// Whether there is a port for the handler `name`.
    pub(crate) fn has_handler(&self, name: &str) -> bool {
        let port = name.strip_prefix("tickets").and_then(|port| port.parse().ok());
        port.is_some_and(|port: usize| port < self.clients.len())
    }

    /// The tickets of a port that there is.
    pub(crate) fn tickets(&self, port: usize) -> String {
        self.clients[port].tickets.to_string()
    }

    /// Changes the tickets of a port that there is.
    pub(crate) fn set_tickets(&mut self, port: usize, value: &str) -> Result<(), String> {
        let tickets = checked_tickets(value.trim())?;
        let first = self.order.first().map_or(0, |&first| self.clients[first].pass);
        let client = &mut self.clients[port];
        let had_none = client.tickets == 0;
        client.tickets = tickets;
        client.stride = stride(tickets);
        if tickets == 0 {
            self.order.retain(|&other| other != port);
        } else if had_none {
            client.pass = first + client.stride;
            self.insert(port);
        }
        Ok(())
    }
}

fn checked_tickets(text: &str) -> Result<u32, String> {
    let tickets = u32::from_value(text)?;
    if tickets > MOST_TICKETS {
        return Err(format!("expected 0 to {MOST_TICKETS}, got {tickets}"));
    }
    Ok(tickets)
}

fn stride(tickets: u32) -> u64 {
    STRIDE_OF_ONE.checked_div(u64::from(tickets)).unwrap_or(0)
}

/// The handlers of a class: `tickets0` and so on, each for a port. `ticket_handlers!(StrideSched, inputs, "input")` are those of
/// an element `StrideSched` whose field `inputs` has its [`Strides`], and whose ports are called inputs.
macro_rules! ticket_handlers {
    ($element:ident, $strides:ident, $kind:literal) => {
        $crate::queues::stride::ticket_handlers!(
            $element, $strides, $kind, 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15
        )
    };
    ($element:ident, $strides:ident, $kind:literal, $($port:literal)*) => {
        &[$(graph::Handler::read_write(
            concat!("tickets", $port),
            graph::Combine::First,
            concat!("The tickets of ", $kind, " ", $port, "."),
            &graph::Get(|e: &mut $element| e.$strides.tickets($port)),
            &graph::Put(|e: &mut $element, _, value| e.$strides.set_tickets($port, value)),
        )),*]
    };
}
pub(crate) use ticket_handlers;
