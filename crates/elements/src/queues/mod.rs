//! Queues, schedulers, and what moves packets out of queues.

mod bandwidth_rated_unqueue;
mod front_drop_queue;
pub(crate) mod length;
mod prio_sched;
mod pull_switch;
mod queue;
mod rated_unqueue;
mod round_robin_sched;
mod simple_queue;
mod storage;
mod stride_sched;
mod unqueue;

use graph::Class;

/// The classes of this folder.
pub static CLASSES: &[&Class] = &[
    &bandwidth_rated_unqueue::CLASS,
    &front_drop_queue::CLASS,
    &prio_sched::CLASS,
    &pull_switch::CLASS,
    &queue::CLASS,
    &rated_unqueue::CLASS,
    &round_robin_sched::CLASS,
    &simple_queue::CLASS,
    &stride_sched::CLASS,
    &unqueue::CLASS,
];
