//! A `brickway` with an element, a driver and a forwarding table of our own: `custom-element help ShiftPorts`,
//! `custom-element run FILE.click`, `custom-element run eth1 eth2 --ipv4-table sorted`.

mod clockwork;
mod shift_ports;
mod sorted;

use std::process::ExitCode;

use fib::TableKind;
use graph::Class;
use ports::DriverDoc;
use router::More;
use sorted::Sorted;

static CLASSES: &[&Class] = &[&shift_ports::CLASS];
static DRIVERS: &[&DriverDoc] = &[&clockwork::DRIVER];
static TABLES: &[TableKind] = &[TableKind::ipv4::<Sorted<u32>>(), TableKind::ipv6::<Sorted<u128>>()];

fn main() -> ExitCode {
    router::main_with(More { classes: CLASSES, drivers: DRIVERS, tables: TABLES })
}
