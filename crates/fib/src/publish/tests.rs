//! Tests of publication: what it promises, step by step; real threads under stress; and, with `--cfg loom`, every order
//! of events under the model checker.

#[cfg(loom)]
mod loom;
#[cfg(not(loom))]
mod promises;
#[cfg(not(loom))]
mod stress;
