//! Elements with FastClick's names and arguments over ports of DPDK (feature `dpdk`). They work out which port is meant
//! and leave the work to FromDevice and ToDevice.

pub(super) mod from_dpdk_device;
pub(super) mod from_dpdk_ring;
pub(super) mod to_dpdk_device;
pub(super) mod to_dpdk_ring;

use elements::devices::{OpenPort, PortNames};
use graph::arguments::Arguments;
use graph::{ConfigError, Setup};

/// Which port an element of DPDK means.
struct DpdkPort {
    /// The DEVNAME of FromDevice and ToDevice.
    name: String,
    /// How to open it, unless it is open.
    spec: String,
}

impl DpdkPort {
    /// Takes PORT, QUEUE, N_QUEUES and NDESC.
    fn of_device(setup: &mut Setup<'_>) -> Result<Self, ConfigError> {
        let device: String = setup.arguments.required("PORT")?;
        let queue: Option<i32> = setup.arguments.optional("QUEUE")?;
        let queues: Option<i32> = setup.arguments.optional("N_QUEUES")?;
        let slots: Option<u32> = setup.arguments.keyword("NDESC")?;
        if queue.is_some_and(|queue| queue > 0) || queues.is_some_and(|queues| queues >= 0) {
            let problem = "QUEUE, N_QUEUES: each worker has queues of its own; say how many workers with --workers, \
                           and which has this element with StaticThreadSched";
            return Err(problem.to_owned().into());
        }
        if !device.is_empty() && device.bytes().all(|byte| byte.is_ascii_digit()) {
            let problem = format!(
                "PORT: '{device}' is a number, and ports have none before they are opened; name the device, as in \
                 0000:03:00.0 or \"net_pcap0,rx_pcap=in.pcap\""
            );
            return Err(problem.into());
        }
        let names = setup.shared().get::<PortNames>(PortNames::KEY);
        let name = match names.as_deref().map(|names| names.spec(&device)) {
            Some(spec) if spec != device => return Ok(Self { spec: spec.to_owned(), name: device }),
            _ if device.starts_with("dpdk:") => device,
            _ => format!("dpdk:{device}"),
        };
        let spec = match slots {
            Some(slots) if name.contains('?') => format!("{name}&ring={slots}"),
            Some(slots) => format!("{name}?ring={slots}"),
            None => name.clone(),
        };
        Ok(Self { name, spec })
    }

    /// Takes MEM_POOL, FROM_PROC, TO_PROC, NDESC and NUMA_ZONE; `sends`: this process is the sender.
    fn of_ring(setup: &mut Setup<'_>, sends: bool) -> Result<Self, ConfigError> {
        let pool: String = setup.arguments.required("MEM_POOL")?;
        let missing = |name| ConfigError::new(format!("{name}: the name of a process is expected"));
        let own: String = setup.arguments.keyword("FROM_PROC")?.ok_or_else(|| missing("FROM_PROC"))?;
        let other: String = setup.arguments.keyword("TO_PROC")?.ok_or_else(|| missing("TO_PROC"))?;
        let slots: Option<u32> = setup.arguments.keyword("NDESC")?;
        let node: Option<u32> = setup.arguments.keyword("NUMA_ZONE")?;
        let (from, to) = if sends { (own, other) } else { (other, own) };
        let name = format!("dpdk_ring:{pool}-{from}-{to}");
        if name.contains(['?', '&']) {
            return Err("MEM_POOL, FROM_PROC, TO_PROC: a name has no '?' and no '&'".to_owned().into());
        }
        let mut options = Vec::new();
        options.extend(slots.map(|slots| format!("slots={slots}")));
        options.extend(node.map(|node| format!("node={node}")));
        let question = if options.is_empty() { "" } else { "?" };
        Ok(Self { spec: format!("{name}{question}{}", options.join("&")), name })
    }

    /// Opens the port unless it is open, and tells FromDevice or ToDevice which it is; `more` are further arguments.
    fn open(&self, setup: &mut Setup<'_>, more: &str) -> Result<(), ConfigError> {
        if !setup.is_check() {
            OpenPort::open(setup, &self.name, &self.spec)?;
        }
        let quoted = self.name.replace('\\', "\\\\").replace('"', "\\\"");
        setup.arguments = Arguments::new(&format!("\"{quoted}\"{more}"));
        Ok(())
    }
}

/// Takes FastClick's arguments of an element that sends, and gives ToDevice's.
fn sending(setup: &mut Setup<'_>) -> Result<String, ConfigError> {
    let burst: Option<usize> = setup.arguments.keyword("BURST")?;
    let timeout_ms: i32 = setup.arguments.keyword_or("TIMEOUT", 0)?;
    let blocking = setup.arguments.keyword_or("BLOCKING", true)?;
    let _: Option<u32> = setup.arguments.keyword("IQUEUE")?;
    if timeout_ms < 0 {
        let problem = "TIMEOUT: packets cannot wait for ever here; a time in milliseconds, or 0, is expected";
        return Err(problem.to_owned().into());
    }
    let mut more = format!(", BLOCKING {blocking}");
    if let Some(burst) = burst {
        more += &format!(", BURST {burst}");
    }
    if timeout_ms > 0 {
        more += &format!(", TIMEOUT {timeout_ms}ms");
    }
    Ok(more)
}

#[cfg(test)]
mod tests;
