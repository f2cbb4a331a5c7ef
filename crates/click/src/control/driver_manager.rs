//! =c
//! DriverManager(I<INSTRUCTIONS>...)
//!
//! =s control
//! a Script that decides what happens when the router is to stop
//!
//! =d
//! A Script whose TYPE is DRIVER where nothing else is said.
//!
//! Any element may ask for the router's end: a source with STOP true, a handler, a Script. The router then has the
//! DriverManager take a step, and ends only when its script does, or says `stop`. Without instructions that is at once. A
//! script that does not begin by waiting runs when the router starts. A router has one driver script at most.
//!
//! =e
//! Waits for the end of the traffic, and gives the rest a tenth of a second to arrive:
//!
//!   DriverManager(pause, wait 0.1s, print c.count, stop)
//!
//! =a Script

use graph::Class;

use super::script::{self, Kind};

pub(crate) static CLASS: Class = Class {
    name: "DriverManager",
    ports: "0/0",
    handlers: &script::HANDLERS,
    manual: graph::manual!("driver_manager.rs"),
    make: |setup| script::make(setup, Some(Kind::Driver)),
    ..Class::DEFAULT
};
