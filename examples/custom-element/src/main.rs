//! A `brickway` with an element and a driver of our own: `custom-element help ShiftPorts`, `custom-element run FILE.click`.

mod clockwork;
mod shift_ports;

use std::process::ExitCode;

use graph::Class;
use ports::DriverDoc;
use router::More;

static CLASSES: &[&Class] = &[&shift_ports::CLASS];
static DRIVERS: &[&DriverDoc] = &[&clockwork::DRIVER];

fn main() -> ExitCode {
    router::main_with(More { classes: CLASSES, drivers: DRIVERS })
}
