//! =c
//! StaticThreadSched(ELEMENT THREAD, ...)
//!
//! =s threads
//! binds elements to workers
//!
//! =d
//! Has the task of each ELEMENT run on the worker THREAD (from 0) only.
//!
//! In Brickway every worker has its own copy of every element, so most elements run wherever packets come to them and
//! cannot be bound. Those that can are FromDevice and its kin (the worker has all receive queues of the port and
//! processes their packets), ToDevice and its kin (the worker sends what all workers have for the port), and the
//! sources RatedSource, TimedSource and FromDump (they work on one worker only, the first unless bound). A router with
//! fewer workers than THREAD says begins again at the first.
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
use graph::{Class, ConfigError, Element, Setup};

use super::{RECEIVERS, SENDERS};

pub(crate) static CLASS: Class = Class {
    name: STATIC_THREAD_SCHED,
    ports: "0/0",
    processing: Class::AGNOSTIC,
    flow: Class::COMPLETE_FLOW,
    manual: include_str!("static_thread_sched.rs"),
    make,
};

/// The classes beside [`RECEIVERS`] and [`SENDERS`] whose elements can be bound; each asks for its worker itself
/// ([`Setup::bound_worker`]).
const SOURCES: &[&str] = &["FromDump", "RatedSource", "TimedSource"];

fn can_be_bound() -> impl Iterator<Item = &'static str> {
    [RECEIVERS, SENDERS, SOURCES].into_iter().flatten().copied()
}

/// What there is to do is done by those that are bound.
struct StaticThreadSched;

impl Element for StaticThreadSched {}

fn make(setup: &mut Setup<'_>) -> Result<Box<dyn Element>, ConfigError> {
    setup.arguments.rest_with_names();
    setup.arguments.finish()?;
    let mut messages = Vec::new();
    for binding in split_arguments(setup.config()) {
        let words: Vec<&str> = binding.split_whitespace().collect();
        let [name, thread] = words[..] else {
            messages.push(format!("expected ELEMENT THREAD, got '{binding}'"));
            continue;
        };
        if thread.parse::<usize>().is_err() {
            messages.push(format!("expected the number of a worker after '{name}', got '{thread}'"));
        }
        match setup.find(name) {
            None => messages.push(format!("no element named '{name}'")),
            Some(element) if !can_be_bound().any(|class| class == element.class) => messages.push(format!(
                "'{name}' is a {}, which runs on every worker that has packets for it; {} can be bound",
                element.class,
                can_be_bound().collect::<Vec<_>>().join(", ")
            )),
            Some(_) => {}
        }
    }
    if messages.is_empty() { Ok(Box::new(StaticThreadSched)) } else { Err(messages.into()) }
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
        assert!(errors(&format!("{base} StaticThreadSched(form 0)")).contains("no element named 'form'"));
        assert!(errors(&format!("{base} StaticThreadSched(from)")).contains("expected ELEMENT THREAD"));
        assert!(errors(&format!("{base} StaticThreadSched(from x)")).contains("the number of a worker"));
        let error = errors(&format!("{base} StaticThreadSched(count 0)"));
        assert!(error.contains("'count' is a Counter") && error.contains("can be bound"), "{error}");
    }

    #[test]
    fn threads_that_a_small_router_lacks_begin_again_at_the_first() {
        let config = "from :: FromDevice(null:a) -> to :: ToDevice(null:b); StaticThreadSched(from 5, to 7)";
        Bench::try_new(&registry(), config, 32, &Shared::default()).unwrap();
    }
}
