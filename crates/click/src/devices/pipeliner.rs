//! =c
//! Pipeliner([CAPACITY, BURST, BLOCKING, I<keywords> ACTIVE, ALWAYS_UP, DIRECT_TRAVERSAL, NOUSELESS, VERBOSE])
//!
//! =s threads
//! has one worker go on with the packets of all
//!
//! =d
//! Packets that a worker pushes into a Pipeliner wait in a ring until the Pipeliner's worker comes
//! for them. So the elements behind it work on one thread. That is the first worker, unless
//! StaticThreadSched binds the Pipeliner to another. Packets that this worker pushes itself pass
//! straight on.
//!
//! CAPACITY: packets that the ring of each worker holds. 1024 by default.
//!
//! BURST: packets taken out of each ring at a time. 32 by default; 0 is as many as a batch holds.
//!
//! ACTIVE: boolean. Whether packets are taken out of the rings. True by default.
//!
//! Packets for which there is no room are dropped as "hand-over ring full".
//!
//! From FastClick. A worker never waits for another one, so BLOCKING and DIRECT_TRAVERSAL must be
//! as they are by default, false and true. ALWAYS_UP, NOUSELESS and VERBOSE are accepted and have
//! no effect, as the other worker is woken when it sleeps and nothing is printed.
//!
//! =e
//!   FromDevice(eth0) -> p :: Pipeliner -> ... ; StaticThreadSched(p 1);
//!
//! =a StaticThreadSched, Punt

use std::os::fd::BorrowedFd;

use elements::devices::handover::{CAPACITY, Incoming, Lanes, Outgoing, SURPLUS};
use graph::{
    Class, Combine, ConfigError, Context, Element, FromArgument, Get, Handler, Put, Setup, TaskStatus,
};
use packet::{Batch, MAX_BATCH};

pub(crate) static CLASS: Class = Class {
    name: "Pipeliner",
    processing: Class::PUSH,
    handlers: &[
        Handler::read(
            "count",
            Combine::Sum,
            "Packets that were handed over.",
            &Get(|e: &mut Pipeliner| e.count.to_string()),
        ),
        Handler::read(
            "dropped",
            Combine::Sum,
            "Packets that were dropped.",
            &Get(|e: &mut Pipeliner| e.dropped.to_string()),
        ),
        Handler::read_write(
            "active",
            Combine::First,
            "The ACTIVE argument.",
            &Get(|e: &mut Pipeliner| e.active.to_string()),
            &Put(|e: &mut Pipeliner, cx, value| e.set_active(cx, value)),
        ),
    ],
    manual: graph::manual!("pipeliner.rs"),
    make,
    ..Class::DEFAULT
};

fn make(setup: &mut Setup<'_>) -> Result<Box<dyn Element>, ConfigError> {
    let arguments = &mut setup.arguments;
    let capacity: i64 = arguments.optional("CAPACITY")?.unwrap_or(-1);
    let burst: i64 = arguments.optional("BURST")?.unwrap_or(32);
    let blocking = arguments.optional("BLOCKING")?.unwrap_or(false);
    let active = arguments.keyword_or("ACTIVE", true)?;
    let direct = arguments.keyword_or("DIRECT_TRAVERSAL", true)?;
    for name in ["ALWAYS_UP", "NOUSELESS", "VERBOSE"] {
        let _: Option<bool> = arguments.keyword(name)?;
    }
    arguments.finish()?;
    if blocking || !direct {
        return Err(
            "a worker never waits for another one: BLOCKING can only be false, DIRECT_TRAVERSAL true"
                .to_owned()
                .into(),
        );
    }
    let capacity = usize::try_from(capacity).ok().filter(|&capacity| capacity > 0).unwrap_or(CAPACITY);
    if !(4..=1 << 20).contains(&capacity) {
        return Err("Pipeliner ring size must be at least 4, and at most 1048576".to_owned().into());
    }
    let copy = setup.copy();
    let home = setup.bound_worker().unwrap_or(0);
    let lanes = Lanes::of(setup, "pipeline");
    let others = (0..copy.count()).filter(|&other| other != home);
    let (outgoing, incoming) = match copy.index == home {
        true => (None, others.filter_map(|other| lanes.incoming_with(other, home, capacity)).collect()),
        false => (lanes.outgoing_with(setup, copy.index, home, capacity), Vec::new()),
    };
    let burst = usize::try_from(burst).ok().filter(|&burst| burst > 0).unwrap_or(MAX_BATCH);
    Ok(Box::new(Pipeliner { outgoing, incoming, burst: burst.min(MAX_BATCH), active, count: 0, dropped: 0 }))
}

struct Pipeliner {
    /// To the worker that goes on, for the others.
    outgoing: Option<Outgoing>,
    /// From the others, for that worker.
    incoming: Vec<Incoming>,
    burst: usize,
    active: bool,
    count: u64,
    dropped: u64,
}

impl Pipeliner {
    /// Takes packets out of the rings, or does not.
    fn set_active(&mut self, cx: &mut Context, value: &str) -> Result<(), String> {
        self.active = bool::from_value(value)?;
        if self.active && !self.incoming.is_empty() {
            cx.wake();
        }
        Ok(())
    }
}

impl Element for Pipeliner {
    fn initialise(&mut self, cx: &mut Context) -> Result<(), String> {
        if !self.incoming.is_empty() {
            cx.wake();
        }
        Ok(())
    }

    fn push(&mut self, cx: &mut Context, _input: usize, batch: &mut Batch) {
        let Some(outgoing) = &mut self.outgoing else { return };
        let count = batch.len() as u64;
        outgoing.send(batch);
        let surplus = batch.len() as u64;
        self.count += count - surplus;
        self.dropped += surplus;
        cx.drop_batch(batch, SURPLUS);
    }

    fn task(&mut self, cx: &mut Context) -> TaskStatus {
        if !self.active {
            return TaskStatus::Asleep;
        }
        // The first in turn is another one each time, so that none starves.
        self.incoming.rotate_left(1);
        let mut count = 0;
        for incoming in &mut self.incoming {
            incoming.turn();
            let mut batch = cx.spare_batch();
            count += incoming.take(&mut batch, self.burst);
            cx.emit_batch(0, &mut batch);
            cx.recycle(batch);
        }
        if count > 0 { TaskStatus::Busy } else { TaskStatus::Idle }
    }

    /// What comes over a ring wakes the worker.
    fn wait_fds<'a>(&'a self, _fds: &mut Vec<BorrowedFd<'a>>) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    use graph::lang::{Options, Source, compile};
    use graph::router::{Control, Router, RouterOptions};
    use graph::setup::Shared;
    use graph::testing::configure;

    #[test]
    fn one_worker_goes_on_with_what_all_have() {
        let registry = crate::registry();
        let text = "InfiniteSource(LIMIT 90) -> p :: Pipeliner(64) -> c :: Counter -> Discard; StaticThreadSched(p 1)";
        let source = Source { name: "test.click".into(), text: text.into() };
        let (flat, _) = compile(&source, &Options::default(), &registry);
        let options = RouterOptions { workers: 3, ..RouterOptions::default() };
        let mut router = Router::build(
            Arc::new(flat.unwrap()),
            &registry,
            &Shared::default(),
            &options,
            Control::new(|_| {}),
        )
        .unwrap();
        for _ in 0..8 {
            router.on_each(|graph| {
                graph.context().turn();
            });
        }
        assert_eq!(router.read("c.count").unwrap(), "90");
        // The worker that goes on made some itself, which pass.
        let handed: u64 = router.read("p.count").unwrap().parse().unwrap();
        assert!((26..=64).contains(&handed), "{handed}");
        assert_eq!(router.read("p.dropped").unwrap(), "0");
    }

    #[test]
    fn mistakes() {
        assert!(configure(&CLASS, "3").unwrap_err()[0].contains("ring size must be at least 4"));
        assert!(configure(&CLASS, "BLOCKING true").unwrap_err()[0].contains("never waits"));
        assert!(configure(&CLASS, "1024, 32, false, ALWAYS_UP true").is_ok());
    }
}
