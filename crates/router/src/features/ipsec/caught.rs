//! ESP that Linux makes or is about to open, caught in its packet filter (`control::esp_hooks`).
//!
//! Linux and the fast path have the same associations. There must be one counter of numbers and one window, and these are the fast
//! path's:
//!
//! - What Linux sends (packets of the host itself, of flows that the fast path leaves to it) is opened, and sealed again under a number of
//!   ours.
//! - What Linux is about to open and did not get from us (fragments that it put together, packets that came before the ports took over)
//!   must be right and new by our window. Linux opens it then.

use std::collections::BTreeMap;
use std::os::fd::BorrowedFd;

use anyhow::{Context as _, Result};
use control::esp_hooks::{EspHooks, EspHooksError, Hook, Verdict, offload_modules};
use control::netlink::xfrm::{Mark, Protocol, SaId};
use ipsec::esp::{Esp, Hidden, Opener, Sealer, find_anywhere};
use ipsec::{Association, Backend};
use packet::{Pool, PoolOptions};
use ports::PERMITTED_MARK;

use super::linux_ipsec::Known;

/// Longest packet.
const BYTES: usize = 32_000;

/// What catches ESP, and what is done to it.
pub(super) struct Caught {
    hooks: EspHooks,
    judge: Judge,
    udp_ports: Vec<u16>,
}

impl Caught {
    /// Begins to catch. Frames from `checked_source` were checked already.
    ///
    /// # Errors
    ///
    /// The kernel lacks what this needs.
    pub(super) fn start(checked_source: Option<[u8; 6]>) -> Result<Self> {
        let hooks = EspHooks::raise(PERMITTED_MARK, checked_source)?;
        Ok(Self { hooks, judge: Judge::new()?, udp_ports: Vec::new() })
    }

    /// Returns why ESP is not caught any more though it was, if so: a module by which it bypasses the hooks has come.
    pub(super) fn lost() -> Option<EspHooksError> {
        offload_modules().next().map(EspHooksError::Offload)
    }

    /// Returns what to poll.
    pub(super) fn fds(&self) -> [BorrowedFd<'_>; 2] {
        self.hooks.fds()
    }

    /// Judges what was caught.
    pub(super) fn receive(&mut self, sas: &BTreeMap<SaId, Known>) {
        let judge = &mut self.judge;
        let received = self.hooks.receive(&mut |hook, bytes| judge.judge(sas, hook, bytes));
        if let Err(error) = received {
            tracing::warn!("IPsec: packets of Linux's own are lost: {error}");
        }
    }

    /// Has ESP in UDP caught by the ports of the associations.
    pub(super) fn set_ports(&mut self, sas: &BTreeMap<SaId, Known>) {
        let mut ports: Vec<u16> = sas
            .values()
            .filter_map(|known| known.association.as_ref().ok()?.settings().udp)
            .flat_map(|ports| [ports.source, ports.destination])
            .collect();
        ports.sort_unstable();
        ports.dedup();
        if ports != self.udp_ports {
            match self.hooks.set_udp_ports(&ports) {
                Ok(()) => self.udp_ports = ports,
                Err(error) => {
                    tracing::warn!("IPsec: ESP in UDP of Linux's own is not caught: {error}")
                }
            }
        }
    }
}

/// Judges packets.
pub(super) struct Judge {
    pool: Pool,
    opener: Opener,
    sealer: Sealer,
}

impl Judge {
    pub(super) fn new() -> Result<Self> {
        let backend = Backend::best();
        let pool = Pool::new(PoolOptions { frames: 4, data_bytes: BYTES })?;
        let opener = Opener::new(backend).context("no cipher library works here")?;
        Ok(Self { pool, opener, sealer: Sealer::new(backend).context("no cipher library works here")? })
    }

    /// Says what happens to a packet.
    pub(super) fn judge(&mut self, sas: &BTreeMap<SaId, Known>, hook: Hook, bytes: &[u8]) -> Verdict {
        let esp = match find_anywhere(bytes) {
            Ok(Some(esp)) => esp,
            Ok(None) => return Verdict::Accept,
            // Linux might open it by its own window, which is behind ours.
            Err(Hidden) => return Verdict::Drop,
        };
        let Esp { destination, spi, .. } = esp;
        let id = SaId { destination, spi, protocol: Protocol::Esp, mark: Mark::default() };
        let Some(Ok(association)) = sas.get(&id).map(|known| &known.association) else {
            return Verdict::Accept;
        };
        // Linux refuses it, too: its number stays for the packet that it belongs to.
        if hook == Hook::Input && association.settings().udp.is_some() != esp.is_in_udp {
            return Verdict::Drop;
        }
        self.judge_by(association, hook, bytes, esp.offset as u16).unwrap_or(Verdict::Drop)
    }

    fn judge_by(
        &mut self,
        association: &Association,
        hook: Hook,
        bytes: &[u8],
        offset: u16,
    ) -> Option<Verdict> {
        let mut packet = self.pool.allocate()?;
        if !packet.set_data(bytes) {
            return None;
        }
        packet.set_network_header(0);
        let packets = std::slice::from_mut(&mut packet);
        if hook == Hook::Input {
            let mut result = [Ok(())];
            self.opener.open(packets, &[association], &[offset], &mut result);
            return result[0].is_ok().then_some(Verdict::Accept);
        }
        self.opener.open_sent(&mut packets[0], association, offset).ok()?;
        let mut fault = [None];
        self.sealer.seal(packets, &[association], &mut fault);
        fault[0].is_none().then(|| Verdict::Replace(packets[0].data().to_vec()))
    }
}
