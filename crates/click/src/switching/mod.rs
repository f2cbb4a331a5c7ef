//! One way in, several out.

mod bypass;
mod hash_switch;
pub(crate) mod hub;
mod input_switch;
mod paint_rr;
mod pull_tee;
mod random_sample;
mod random_switch;
mod round_robin_switch;
mod static_switch;
mod stride_switch;
mod suppressor;
mod switch;

use graph::Class;

/// The classes of this folder.
pub static CLASSES: &[&Class] = &[
    &bypass::CLASS,
    &hash_switch::CLASS,
    &hub::CLASS,
    &input_switch::CLASS,
    &paint_rr::CLASS,
    &pull_tee::CLASS,
    &random_sample::CLASS,
    &random_switch::CLASS,
    &round_robin_switch::CLASS,
    &static_switch::CLASS,
    &stride_switch::CLASS,
    &suppressor::CLASS,
    &switch::CLASS,
];
