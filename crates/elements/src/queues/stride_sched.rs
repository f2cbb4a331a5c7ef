//! =c
//! StrideSched(TICKETS0, ..., TICKETSn)
//!
//! =s scheduling
//! pulls from its inputs in proportion to their tickets
//!
//! =d
//! Stride scheduling: while all inputs have packets, each gives a share of them that is its share of the tickets, spread
//! as evenly as can be. One argument for each input, 0 to 32768; an input with 0 tickets gives nothing.
//!
//! =h tickets0...tickets15 read/write
//! The tickets of an input.
//!
//! =e
//!   s :: StrideSched(4, 2, 1) -> Unqueue -> ...
//!
//! =a RoundRobinSched, PrioSched
//! Waldspurger and Weihl, Stride Scheduling: Deterministic Proportional-Share Resource Management, MIT/LCS/TM-528, 1995.

use graph::{Class, Combine, ConfigError, Context, Element, FromArgument, Handler, Setup};
use packet::Batch;

pub(crate) static CLASS: Class = Class {
    name: "StrideSched",
    ports: "-/1",
    processing: Class::PULL,
    flow: Class::COMPLETE_FLOW,
    manual: include_str!("stride_sched.rs"),
    make,
};

/// The stride of an input with one ticket.
const STRIDE_OF_ONE: u64 = 1 << 16;
const MOST_TICKETS: u32 = 1 << 15;

fn make(setup: &mut Setup<'_>) -> Result<Box<dyn Element>, ConfigError> {
    let texts = setup.arguments.rest();
    setup.arguments.finish()?;
    if texts.len() != setup.inputs() {
        return Err(
            format!("{} inputs need {0} numbers of tickets, not {}", setup.inputs(), texts.len()).into()
        );
    }
    let mut sched = StrideSched { clients: Vec::new(), order: Vec::new() };
    let mut messages = Vec::new();
    for (input, text) in texts.iter().enumerate() {
        match checked_tickets(text) {
            Ok(tickets) => {
                let stride = stride(tickets);
                sched.clients.push(Client { tickets, stride, pass: stride });
            }
            Err(error) => messages.push(format!("tickets of input {input}: {error}")),
        }
    }
    if !messages.is_empty() {
        return Err(messages.into());
    }
    // Last to first, because one of equals goes to the front.
    for input in (0..texts.len()).rev() {
        if sched.clients[input].tickets > 0 {
            sched.insert(input);
        }
    }
    Ok(Box::new(sched))
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

struct Client {
    tickets: u32,
    stride: u64,
    pass: u64,
}

struct StrideSched {
    clients: Vec<Client>,
    /// Inputs with tickets, by pass.
    order: Vec<usize>,
}

impl StrideSched {
    fn insert(&mut self, input: usize) {
        let pass = self.clients[input].pass;
        let place = self.order.iter().position(|&other| pass <= self.clients[other].pass);
        self.order.insert(place.unwrap_or(self.order.len()), input);
    }

    /// Pulls one packet; false when no input has any.
    fn pull_one(&mut self, cx: &mut Context, batch: &mut Batch) -> bool {
        let before = batch.len();
        let mut asked = 0;
        while asked < self.order.len() && batch.len() == before {
            let input = self.order[asked];
            cx.pull(input, batch, 1);
            // An input that had nothing is passed too: it saves nothing up.
            self.clients[input].pass += self.clients[input].stride;
            asked += 1;
        }
        // Those that were asked stand at the front; each goes back to its place behind the rest of them.
        for rest in (0..asked).rev() {
            let input = self.order.remove(0);
            let pass = self.clients[input].pass;
            let tail = self.order[rest..].iter().position(|&other| pass <= self.clients[other].pass);
            let place = tail.map_or(self.order.len(), |tail| rest + tail);
            self.order.insert(place, input);
        }
        batch.len() > before
    }

    fn number(&self, name: &str) -> Result<usize, String> {
        let number = name.strip_prefix("tickets").and_then(|number| number.parse().ok());
        number.filter(|&number| number < self.clients.len()).ok_or_else(|| format!("no input for '{name}'"))
    }
}

const HANDLERS: [Handler; 16] = [
    Handler::read_write("tickets0", Combine::First),
    Handler::read_write("tickets1", Combine::First),
    Handler::read_write("tickets2", Combine::First),
    Handler::read_write("tickets3", Combine::First),
    Handler::read_write("tickets4", Combine::First),
    Handler::read_write("tickets5", Combine::First),
    Handler::read_write("tickets6", Combine::First),
    Handler::read_write("tickets7", Combine::First),
    Handler::read_write("tickets8", Combine::First),
    Handler::read_write("tickets9", Combine::First),
    Handler::read_write("tickets10", Combine::First),
    Handler::read_write("tickets11", Combine::First),
    Handler::read_write("tickets12", Combine::First),
    Handler::read_write("tickets13", Combine::First),
    Handler::read_write("tickets14", Combine::First),
    Handler::read_write("tickets15", Combine::First),
];

impl Element for StrideSched {
    fn pull(&mut self, cx: &mut Context, _output: usize, batch: &mut Batch, max: usize) {
        let max = max.min(batch.room());
        while batch.len() < max && self.pull_one(cx, batch) {}
    }

    fn handlers(&self) -> &'static [Handler] {
        static ALL: [Handler; 16] = HANDLERS;
        &ALL[..self.clients.len().min(ALL.len())]
    }

    fn read(&mut self, name: &str, _argument: &str) -> Result<String, String> {
        Ok(self.clients[self.number(name)?].tickets.to_string())
    }

    fn write(&mut self, _cx: &mut Context, name: &str, value: &str) -> Result<(), String> {
        let input = self.number(name)?;
        let tickets = checked_tickets(value.trim())?;
        let first = self.order.first().map_or(0, |&first| self.clients[first].pass);
        let client = &mut self.clients[input];
        let had_none = client.tickets == 0;
        client.tickets = tickets;
        client.stride = stride(tickets);
        if tickets == 0 {
            self.order.retain(|&other| other != input);
        } else if had_none {
            client.pass = first + client.stride;
            self.insert(input);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use graph::testing::Bench;

    fn bench() -> Bench {
        let config = "e :: StrideSched(4, 2, 1) -> out :: TestOutput;
            InfiniteSource(1, LIMIT 10) -> [0]e; InfiniteSource(2, LIMIT 10) -> [1]e; InfiniteSource(3, LIMIT 10) -> [2]e";
        Bench::new(&crate::registry(), config)
    }

    // The order that Click's own test of this element expects.
    #[test]
    fn shares_follow_tickets() {
        let mut bench = bench();
        bench.pull("out", 100);
        let order: Vec<u8> = bench.taken("out").concat();
        assert_eq!(String::from_utf8(order).unwrap(), "112112311211231122322322333333");
    }

    #[test]
    fn tickets_can_be_changed() {
        let mut bench = bench();
        assert_eq!(bench.read("e.tickets0"), "4");
        bench.write("e.tickets0", "0").unwrap();
        bench.write("e.tickets1", "0").unwrap();
        bench.pull("out", 3);
        assert_eq!(bench.taken("out").concat(), b"333");
        bench.write("e.tickets2", "0").unwrap();
        assert_eq!(bench.pull("out", 3), 0);
        bench.write("e.tickets1", "1").unwrap();
        assert_eq!(bench.pull("out", 30), 10);
        assert!(bench.write("e.tickets1", "32769").is_err());
    }

    #[test]
    fn mistakes() {
        let config = "Idle -> [0]e :: StrideSched(1, 2) -> Discard";
        let error = Bench::try_new(&crate::registry(), config, 1, &Default::default()).unwrap_err();
        assert!(error.contains("1 inputs need 1 numbers of tickets, not 2"), "{error}");
    }
}
