//! Queues, schedulers, and what moves packets out of queues.

mod delay;
mod delay_shaper;
mod delay_unqueue;
mod drr_sched;
pub(crate) mod length;
mod link_unqueue;
mod prio_sched;
mod pull_switch;
mod queue;
mod rated_unqueue;
mod round_robin_sched;
mod storage;
pub(crate) mod stride;
mod stride_sched;
mod time_sorted_sched;
mod timed_unqueue;
mod unqueue;

use graph::Class;

/// The classes of this folder.
pub static CLASSES: &[&Class] = &[
    &rated_unqueue::BANDWIDTH,
    &timed_unqueue::BURSTER,
    &delay_shaper::CLASS,
    &delay_unqueue::CLASS,
    &drr_sched::CLASS,
    &queue::FRONT_DROP,
    &link_unqueue::CLASS,
    &queue::MIXED,
    &queue::NOTIFIER,
    &prio_sched::CLASS,
    &pull_switch::CLASS,
    &queue::CLASS,
    &rated_unqueue::CLASS,
    &round_robin_sched::CLASS,
    &queue::SIMPLE,
    &stride_sched::CLASS,
    &time_sorted_sched::CLASS,
    &timed_unqueue::CLASS,
    &unqueue::CLASS,
];
