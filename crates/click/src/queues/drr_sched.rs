//! =c
//! DRRSched
//!
//! =s scheduling
//! pulls from its inputs in turn, fair in bytes
//!
//! =d
//! Deficit round robin. In each round each input may give 500 bytes more, and gives as many whole
//! packets as its allowance has room for. So all inputs that have packets get the same bandwidth,
//! whatever the length of their packets. An input without packets saves nothing up. The first
//! packet of an input that must wait for more rounds is stored here.
//!
//! Different from Click: tasks downstream do not sleep while the queues upstream are empty, but look for packets again and again.
//!
//! =e
//!   a :: Queue -> [0]s :: DRRSched -> Unqueue -> ...;  b :: Queue -> [1]s;
//!
//! =a RoundRobinSched, StrideSched, PrioSched
//! Shreedhar and Varghese, Efficient Fair Queueing Using Deficit Round Robin, ACM SIGCOMM 1995.

use graph::{Class, Context, Element};
use packet::{Batch, Packet};

pub(crate) static CLASS: Class = Class {
    name: "DRRSched",
    ports: "-/1",
    processing: Class::PULL,
    manual: graph::manual!("drr_sched.rs"),
    make: |setup| {
        setup.arguments.finish()?;
        let client = || Client { head: None, deficit: 0 };
        Ok(Box::new(DrrSched {
            clients: std::iter::repeat_with(client).take(setup.inputs()).collect(),
            next: 0,
        }))
    },
    ..Class::DEFAULT
};

/// Bytes that an input may give more in each round.
const QUANTUM: usize = 500;

struct Client {
    /// Its first packet, when that was too long for what it may give.
    head: Option<Packet>,
    /// Bytes that it may give.
    deficit: usize,
}

struct DrrSched {
    clients: Vec<Client>,
    next: usize,
}

impl Element for DrrSched {
    fn initialise(&mut self, cx: &mut Context) -> Result<(), String> {
        cx.set_signal(true);
        Ok(())
    }

    fn pull(&mut self, cx: &mut Context, _output: usize, batch: &mut Batch, max: usize) {
        let max = max.min(batch.room());
        let mut one = cx.spare_batch();
        let mut empty_in_a_row = 0;
        while batch.len() < max && empty_in_a_row < self.clients.len() {
            let client = &mut self.clients[self.next];
            let packet = client.head.take().or_else(|| {
                cx.pull(self.next, &mut one, 1);
                one.pop()
            });
            match packet {
                Some(packet) if packet.len() <= client.deficit => {
                    client.deficit -= packet.len();
                    batch.push(packet);
                    empty_in_a_row = 0;
                    continue;
                }
                Some(packet) => {
                    client.head = Some(packet);
                    empty_in_a_row = 0;
                }
                None => {
                    client.deficit = 0;
                    empty_in_a_row += 1;
                }
            }
            self.next = if self.next + 1 < self.clients.len() { self.next + 1 } else { 0 };
            self.clients[self.next].deficit += QUANTUM;
        }
        cx.recycle(one);
    }

    /// Tasks downstream ask this element alone, because the queues upstream may be empty while packets wait here.
    fn notifies(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use graph::testing::Bench;

    fn bench(burst: usize) -> Bench {
        let config = "e :: DRRSched -> out :: TestOutput;
            a :: TestInput -> Queue -> [0]e; b :: TestInput -> Queue -> [1]e; c :: TestInput -> Queue -> [2]e";
        Bench::with_burst(&crate::registry(), config, burst)
    }

    #[test]
    fn bytes_are_shared_evenly() {
        for burst in [1, 32] {
            let mut bench = bench(burst);
            bench.push("a", &[&[b'a'; 1000][..]; 100]);
            bench.push("b", &[&[b'b'; 100][..]; 1000]);
            let mut bytes = [0usize; 2];
            for _ in 0..300 {
                bench.pull("out", 1);
                for packet in bench.taken("out") {
                    bytes[usize::from(packet[0] == b'b')] += packet.len();
                }
            }
            assert!(bytes[0].abs_diff(bytes[1]) <= 1500, "{bytes:?}");
        }
    }

    #[test]
    fn everything_comes_in_the_end() {
        let mut bench = bench(32);
        bench.push("a", &[&[b'a'; 1800]]);
        bench.push("c", &[b"", b"c"]);
        assert_eq!(bench.pull("out", 32), 3);
        assert_eq!(bench.pull("out", 32), 0);
        assert_eq!(bench.taken("out").len(), 3);
    }

    #[test]
    fn a_task_downstream_gets_what_waits_here() {
        let config = "e :: DRRSched -> Shaper(10) -> Unqueue -> out :: TestOutput;
            a :: TestInput -> Queue -> [0]e; b :: TestInput -> Queue -> [1]e";
        let mut bench = Bench::new(&crate::registry(), config);
        bench.push("a", &[&[b'a'; 900]]);
        bench.push("b", &[&[b'b'; 10]]);
        bench.run(10);
        bench.advance_ns(1_000_000_000);
        bench.run(10);
        assert_eq!(bench.taken("out").len(), 2);
    }
}
