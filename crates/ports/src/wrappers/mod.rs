//! Wrappers around any port: a fault injector next to the line, then capture and trace, which so see what the router
//! sees.

pub(crate) mod fault;
mod record;
mod trace;

use std::fs::File;
use std::io::Write;
use std::path::Path;

use crate::pcap::writer::{PcapWriter, Precision};
use crate::recorder::Recorder;
use crate::wrappers::fault::{FaultDirections, FaultOptions, with_faults};
use crate::wrappers::record::RecordedPort;
use crate::wrappers::trace::TraceSink;
use crate::{OpenOptions, Port, PortError, Spec};

/// Writes every packet that `port` receives or sends to a pcap file, without slowing the port down: what the disk
/// cannot follow is not recorded, and counted.
///
/// # Errors
/// [`PortError::File`] when the file cannot be made.
pub fn with_capture(
    port: Box<dyn Port>,
    path: impl AsRef<Path>,
    options: &OpenOptions,
) -> Result<Box<dyn Port>, PortError> {
    let path = path.as_ref();
    let writer = PcapWriter::create(path, Precision::Nanoseconds)?;
    let recorder = Recorder::start(writer, format!("`{}`", path.display()), options.warn);
    let recorder =
        recorder.map_err(|error| PortError::system(&port.info().name, "starting a thread", error))?;
    Ok(Box::new(RecordedPort::new(port, recorder)))
}

/// Writes a line for every packet that `port` receives or sends, to a file or to standard error, without slowing the
/// port down: what cannot be written fast enough is left out, and counted.
///
/// # Errors
/// [`PortError::File`] when the file cannot be made.
pub fn with_trace(
    port: Box<dyn Port>,
    path: Option<&Path>,
    options: &OpenOptions,
) -> Result<Box<dyn Port>, PortError> {
    let name = port.info().name;
    let (target, what): (Box<dyn Write + Send>, String) = match path {
        None => (Box::new(std::io::stderr()), "the trace".to_owned()),
        Some(path) => {
            let file = File::create(path).map_err(|error| PortError::file(path, "write", error))?;
            (Box::new(file), format!("`{}`", path.display()))
        }
    };
    let recorder = Recorder::start(TraceSink::new(&name, target), what, options.warn)
        .map_err(|error| PortError::system(&name, "starting a thread", error))?;
    Ok(Box::new(RecordedPort::new(port, recorder)))
}

/// The wrappers that a spec asks for.
pub(crate) struct Wrappers {
    faults: FaultOptions,
    directions: FaultDirections,
    capture: Option<String>,
    trace: Option<String>,
}

impl Wrappers {
    /// Takes the options that are not the driver's.
    pub(crate) fn take(spec: &mut Spec) -> Result<Self, PortError> {
        let defaults = FaultOptions::default();
        let directions = [
            ("both", FaultDirections { rx: true, tx: true }),
            ("rx", FaultDirections { rx: true, tx: false }),
            ("tx", FaultDirections { rx: false, tx: true }),
        ];
        Ok(Self {
            faults: FaultOptions {
                drop: spec.take_probability("drop")?.unwrap_or(defaults.drop),
                corrupt: spec.take_probability("corrupt")?.unwrap_or(defaults.corrupt),
                duplicate: spec.take_probability("duplicate")?.unwrap_or(defaults.duplicate),
                reorder: spec.take_probability("reorder")?.unwrap_or(defaults.reorder),
                delay: spec.take_time("delay")?.unwrap_or(defaults.delay),
                rate: spec.take_rate("rate")?,
                seed: spec.take_number("seed", (0, u64::MAX))?.unwrap_or(defaults.seed),
            },
            directions: spec.take_choice("fault", &directions)?.unwrap_or(directions[0].1),
            capture: spec.take_path("capture")?,
            trace: spec.take("trace"),
        })
    }

    /// Puts them around a port.
    pub(crate) fn around(
        self,
        mut port: Box<dyn Port>,
        options: &OpenOptions,
    ) -> Result<Box<dyn Port>, PortError> {
        if !self.faults.is_harmless() {
            port = with_faults(port, self.faults, self.directions);
        }
        if let Some(path) = self.capture {
            port = with_capture(port, path, options)?;
        }
        if let Some(path) = self.trace {
            port = with_trace(port, Some(Path::new(&path)).filter(|_| !path.is_empty()), options)?;
        }
        Ok(port)
    }
}
