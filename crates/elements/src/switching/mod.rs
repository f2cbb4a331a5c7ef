//! One way in, several out.

mod hash_switch;
mod paint_switch;
mod pull_tee;
mod random_switch;
mod round_robin_switch;
mod static_switch;
mod switch;
pub(crate) mod tee;

use graph::Class;

/// The classes of this folder.
pub static CLASSES: &[&Class] = &[
    &hash_switch::CLASS,
    &paint_switch::CLASS,
    &pull_tee::CLASS,
    &random_switch::CLASS,
    &round_robin_switch::CLASS,
    &static_switch::CLASS,
    &switch::CLASS,
    &tee::CLASS,
];
