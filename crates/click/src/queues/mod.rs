//! Queues, schedulers, and what moves packets out of queues.

mod bandwidth_rated_unqueue;
mod burster;
mod delay;
mod delay_shaper;
mod delay_unqueue;
mod drr_sched;
mod front_drop_queue;
pub(crate) mod length;
mod link_unqueue;
mod mixed_queue;
mod notifier_queue;
mod prio_sched;
mod pull_switch;
mod queue;
mod rated_unqueue;
mod round_robin_sched;
mod simple_queue;
mod storage;
pub(crate) mod stride;
mod stride_sched;
mod time_sorted_sched;
mod timed_unqueue;
mod unqueue;

use graph::Class;

/// The classes of this folder.
pub static CLASSES: &[&Class] = &[
    &bandwidth_rated_unqueue::CLASS,
    &burster::CLASS,
    &delay_shaper::CLASS,
    &delay_unqueue::CLASS,
    &drr_sched::CLASS,
    &front_drop_queue::CLASS,
    &link_unqueue::CLASS,
    &mixed_queue::CLASS,
    &notifier_queue::CLASS,
    &prio_sched::CLASS,
    &pull_switch::CLASS,
    &queue::CLASS,
    &rated_unqueue::CLASS,
    &round_robin_sched::CLASS,
    &simple_queue::CLASS,
    &stride_sched::CLASS,
    &time_sorted_sched::CLASS,
    &timed_unqueue::CLASS,
    &unqueue::CLASS,
];
