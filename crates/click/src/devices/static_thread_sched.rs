//! =c
//! StaticThreadSched(ELEMENT THREAD, ...)
//!
//! =s threads
//! binds elements to workers
//!
//! =d
//! Has the task of each ELEMENT run on the worker THREAD (from 0) only. ELEMENT may be a compound
//! element; then it stands for all elements in it. If several arguments are about one element, the
//! last one counts. Those in a compound element come after those around it.
//!
//! In Brickway every worker has its own copy of every element. So most elements run wherever
//! packets come to them, and THREAD is only the value of their C<home_thread> handler. These
//! elements run on one worker:
//!
//! =item *
//! FromDevice and its kin: the worker has all receive queues of the port and processes their
//! packets.
//!
//! =item *
//! ToDevice and its kin: the worker sends the packets that all workers have for the port.
//!
//! =item *
//! Pipeliner.
//!
//! =item *
//! RatedSource, TimedSource, FromDump and FastUDPSource, which work on one worker only, the first
//! by default.
//!
//! =back
//!
//! If THREAD is more than the router's workers, the count begins again at the first worker, and a
//! message reports it.
//!
//! =e
//! One worker receives and processes, another sends:
//!
//!   in :: FromDevice(eth0) -> out :: ToDevice(eth1);
//!   StaticThreadSched(in 0, out 1);
//!
//! =a FromDevice, ToDevice

use graph::lang::split_arguments;
use graph::setup::STATIC_THREAD_SCHED;
use graph::{Class, ConfigError, Context, Element, Setup};

pub(crate) static CLASS: Class = Class {
    name: STATIC_THREAD_SCHED,
    ports: "0/0",
    manual: graph::manual!("static_thread_sched.rs"),
    make,
    ..Class::DEFAULT
};

/// What there is to do is done by those that are bound.
struct StaticThreadSched {
    /// Numbers of threads that are too large for this router.
    out_of_range: Vec<usize>,
}

impl Element for StaticThreadSched {
    fn initialise(&mut self, cx: &mut Context) -> Result<(), String> {
        for thread in self.out_of_range.drain(..).filter(|_| cx.copy_index() == 0) {
            cx.message(&format!("warning: thread preference {thread} out of range"));
        }
        Ok(())
    }
}

fn make(setup: &mut Setup<'_>) -> Result<Box<dyn Element>, ConfigError> {
    setup.arguments.rest_with_names();
    setup.arguments.finish()?;
    let mut messages = Vec::new();
    let mut out_of_range = Vec::new();
    for binding in split_arguments(setup.config()).iter().filter(|binding| !binding.is_empty()) {
        let words: Vec<&str> = binding.split_whitespace().collect();
        let [name, thread] = words[..] else {
            messages.push(format!("expected ELEMENT THREAD, got '{binding}'"));
            continue;
        };
        match thread.parse::<usize>() {
            Ok(thread) if thread >= setup.copy().workers => out_of_range.push(thread),
            Ok(_) => {}
            Err(_) => {
                messages.push(format!("expected the number of a worker after '{name}', got '{thread}'"));
            }
        }
        if setup.find_to_bind(name).is_empty() {
            messages.push(format!("'{name}' does not name an element"));
        }
    }
    if messages.is_empty() { Ok(Box::new(StaticThreadSched { out_of_range })) } else { Err(messages.into()) }
}

#[cfg(test)]
mod tests {
    use crate::registry;
    use graph::setup::Shared;
    use graph::testing::Bench;

    fn errors(config: &str) -> String {
        Bench::try_new(&registry(), config, 32, &Shared::default()).unwrap_err()
    }

    #[test]
    fn mistakes() {
        let base = "from :: FromDevice(null:a) -> count :: Counter -> Discard; ";
        assert!(
            errors(&format!("{base} StaticThreadSched(form 0)")).contains("'form' does not name an element")
        );
        assert!(errors(&format!("{base} StaticThreadSched(from)")).contains("expected ELEMENT THREAD"));
        assert!(errors(&format!("{base} StaticThreadSched(from x)")).contains("the number of a worker"));
    }

    #[test]
    fn threads_that_a_small_router_lacks_begin_again_at_the_first() {
        let config = "from :: FromDevice(null:a) -> to :: ToDevice(null:b); StaticThreadSched(from 5, to 7)";
        let mut bench = Bench::try_new(&registry(), config, 32, &Shared::default()).unwrap();
        let messages = bench.messages();
        assert_eq!((messages.len(), messages[0].as_str()), (2, "warning: thread preference 5 out of range"));
        assert_eq!(bench.read("from.home_thread"), "0");
    }
}
