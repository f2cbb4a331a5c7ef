//! The program on its interface: in the driver, in tc or by generic XDP in the kernel's stack, and anew when the interface is.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use packet::sync::lock;
use packet::wire::ethernet::MacAddr;

use super::program::{RestOwner, attach_error, in_the_way, native_problem};
use super::rest::Rest;
use super::{Attached, LOOKS_FOR_OTHERS, Shared, TIME_BETWEEN_LOOKS, probe, tags};
use crate::bpf::addresses_error;
use crate::host::passage::{self, Passage};
use crate::host_steering::Steer;
use crate::interface::namespace;
use crate::link::Link;
use crate::merged::TAG_BYTES;
use crate::{PortError, XdpMode};

impl Shared {
    /// Makes a new generation after sockets of number `dead` died. False: not yet; ask again later.
    pub(super) fn revive(&self, dead: u64) -> bool {
        let mut attached = lock(&self.attached);
        if self.generation() > dead {
            return true;
        }
        let problem = if let Some(problem) = self.claim.absence() {
            // It may be in another namespace, with our program still on it.
            attached.program.detach();
            problem
        } else {
            match self.attach(&mut attached, None) {
                Ok(()) => {
                    self.generation.store(dead + 1, Ordering::Relaxed);
                    self.claim.tell_back();
                    return true;
                }
                Err(error) => error.to_string(),
            }
        };
        self.claim.tell(problem);
        false
    }

    /// Looks at the interface and attaches the program to it: in `mode`, or else in that of the options.
    pub(super) fn attach(&self, attached: &mut Attached, mode: Option<XdpMode>) -> Result<(), PortError> {
        let (name, interface) = (self.name(), &self.claim.interface);
        let index = self.claim.hold()?;
        if !interface.is_up()? {
            return Err(PortError::InterfaceDown { name: name.to_owned() });
        }
        let failed = |action| move |error| PortError::system(name, action, error);
        let was_in_tc = attached.program.is_in_tc();
        attached.program.detach();
        let look = || probe::link(index as u32).map_err(failed("asking for the queues"));
        let mut link = look()?;
        // The program of a router that has just ended may be there for a moment.
        for _ in 0..LOOKS_FOR_OTHERS {
            if link.program.is_none() {
                break;
            }
            std::thread::sleep(TIME_BETWEEN_LOOKS);
            link = look()?;
        }
        if let Some(program) = link.program {
            return Err(in_the_way(&link.name, Some(program)));
        }
        let (index, veth) = (index as u32, link.kind == "veth");
        self.follow_link(attached)?;
        if attached.index != index {
            // What moves packets in the kernel knows the port by the number that its interface had.
            attached.program.forward_nothing().map_err(failed("leaving the forwarding in the kernel"))?;
        }
        attached.program.local.ask().map_err(|error| addresses_error(name, error))?;
        attached.is_veth = veth;
        attached.index = index;
        attached.mode = match mode.or(self.options.mode) {
            Some(XdpMode::Native) => {
                self.attach_native(attached, &link)?.map_err(|error| attach_error(name, XdpMode::Native, veth, error))?;
                XdpMode::Native
            }
            Some(XdpMode::Generic) => {
                self.attach_in_stack(attached, &link)?;
                XdpMode::Generic
            }
            None => match self.attach_native(attached, &link)? {
                Ok(()) => XdpMode::Native,
                Err(error) if error.raw_os_error() == Some(libc::EBUSY) => {
                    return Err(in_the_way(name, None));
                }
                Err(native) => {
                    self.attach_in_stack(attached, &link)?;
                    (self.claim.warn)(&format!(
                        "port {name}: its program runs in the kernel's stack, which costs more: native {}",
                        native_problem(veth, &native)
                    ));
                    XdpMode::Generic
                }
            },
        };
        if attached.mode == XdpMode::Generic && self.options.steer == Steer::All {
            self.claim.keep_apart();
        }
        // A veth has what its other end sends, tags beside the frame included: the cure is there.
        attached.keeps_tags = self.options.steer == Steer::Transit && !veth;
        if attached.keeps_tags {
            self.keep_tags(attached);
        }
        if attached.program.is_in_tc() != was_in_tc {
            // What was said of the one place does not hold in the other.
            attached.program.forward_nothing().map_err(failed("leaving the forwarding in the kernel"))?;
            attached.program.forget_rest().map_err(failed("forgetting whose the rest is"))?;
        }
        attached.is_off = false;
        self.queues.store(link.rx_queues.min(self.options.queues), Ordering::Relaxed);
        attached.zerocopy = None;
        self.claim.keep_promiscuous()
    }

    /// Attaches the program in the driver; inside, what the kernel says.
    fn attach_native(
        &self,
        attached: &mut Attached,
        link: &Link,
    ) -> Result<io::Result<()>, PortError> {
        // The program runs at its members.
        if link.kind == "bond" {
            let problem =
                format!("packets for the kernel are lost with native XDP of a bond; expected `af_packet:{}`", self.name());
            return Err(self.unsupported(problem));
        }
        attached.passage = None;
        Ok(attached.program.attach(attached.index, XdpMode::Native))
    }

    /// Attaches the program in the kernel's stack: in tc, if it can be there.
    fn attach_in_stack(&self, attached: &mut Attached, link: &Link) -> Result<(), PortError> {
        if probe::lacks_vlan_tags(&link.kind) {
            return Err(self.unsupported(format!(
                "frames come to a program of a {} without their VLAN tags; expected `af_packet:{}`",
                link.kind,
                self.name()
            )));
        }
        if self.may_tc() && !attached.refuses_tc {
            // Known before it is attached, so that no frame of a `host:` port comes back.
            attached.passage = Some(passage::enter(namespace(), attached.index, Passage::Marked));
            match attached.program.attach_tc(self.name(), &link.name) {
                // What the kernel will not do at another time either.
                Err(error @ (PortError::Unsupported { .. } | PortError::NotPermitted { .. })) => {
                    self.refuse_tc(attached, &error)?;
                }
                outcome => return outcome,
            }
        }
        self.attach_generic(attached)
    }

    fn attach_generic(&self, attached: &mut Attached) -> Result<(), PortError> {
        attached.passage = Some(passage::enter(namespace(), attached.index, Passage::Sealed));
        let attach = attached.program.attach(attached.index, XdpMode::Generic);
        attach.map_err(|error| attach_error(self.name(), XdpMode::Generic, attached.is_veth, error))
    }

    /// Whether a tc program may take the place of generic XDP. Where all packets are ours none has to be left to Linux.
    fn may_tc(&self) -> bool {
        self.options.may_tc && self.options.steer == Steer::Transit
    }

    /// Reports why generic XDP is used from now on. Nothing is forwarded in the kernel until that is said again.
    fn refuse_tc(&self, attached: &mut Attached, error: &PortError) -> Result<(), PortError> {
        (self.claim.warn)(&format!("{error}; generic XDP is used, which costs more"));
        attached.refuses_tc = true;
        let failed = |error| PortError::system(self.name(), "leaving the forwarding in the kernel", error);
        attached.program.forward_nothing().map_err(failed)
    }

    /// Has generic XDP take the place of a program in tc, for good.
    pub(super) fn leave_tc(&self, attached: &mut Attached) -> Result<(), PortError> {
        attached.refuses_tc = true;
        // Both are there for a moment. Without the one the other stays.
        self.attach_generic(attached)?;
        attached.program.detach_tc();
        Ok(())
    }

    /// Has what is ours and not forwarded in the kernel come to us, where that is by tc.
    pub(super) fn take_rest(&self, attached: &mut Attached) -> Result<(), PortError> {
        if !attached.program.is_in_tc() {
            return Ok(());
        }
        let known = lock(&self.rest).clone();
        let rest = match known {
            Some(rest) => rest,
            None => match Rest::open(self.name(), &mut attached.program, self.halves.len(), self.claim.takes_merged) {
                Ok(rest) => {
                    let rest = Arc::new(rest);
                    *lock(&self.rest) = Some(Arc::clone(&rest));
                    self.rest_generation.fetch_add(1, Ordering::Release);
                    rest
                }
                // What will not be at another time either.
                Err(error @ (PortError::Unsupported { .. } | PortError::NotPermitted { .. })) => {
                    self.refuse_tc(attached, &error)?;
                    return self.leave_tc(attached);
                }
                Err(error) => return Err(error),
            },
        };
        let failed = |error| PortError::system(self.name(), "taking what tc leaves", error);
        attached.program.set_rest(RestOwner::Router(rest.index)).map_err(failed)
    }

    /// The same if nobody has said yet whose it is. A worker calls it, which waits for nobody: it asks again.
    pub(super) fn take_unassigned_rest(&self) -> Result<(), PortError> {
        match self.attached.try_lock() {
            Ok(mut attached) if attached.program.is_rest_unassigned() => self.take_rest(&mut attached),
            _ => Ok(()),
        }
    }

    /// The device of the rest is gone: somebody has deleted it. Another one is made by [`Shared::take_unassigned_rest`].
    pub(super) fn lose_rest(&self) {
        if let Ok(mut attached) = self.attached.try_lock()
            && attached.program.forget_rest().is_ok()
        {
            *lock(&self.rest) = None;
            self.rest_generation.fetch_add(1, Ordering::Release);
        }
    }

    /// Attaches the program anew in `mode`. The sockets stay as they are.
    pub(super) fn attach_again(&self, attached: &mut Attached, mode: XdpMode) -> Result<(), PortError> {
        let zerocopy = attached.zerocopy;
        let attach = self.attach(attached, Some(mode));
        attached.zerocopy = zerocopy;
        attach
    }

    /// Has the card leave VLAN tags in frames.
    pub(super) fn keep_tags(&self, attached: &mut Attached) {
        let kept = match &attached.tags {
            Some(tags) => tags.again(),
            None => tags::Kept::begin(self.name()).map(|tags| attached.tags = tags),
        };
        if let Err(error) = kept {
            (self.claim.warn)(&format!(
                "port {}: the card takes VLAN tags out of frames, so that packets of VLANs look like those without, and cannot be \
                 told not to ({error}); expected `af_packet:{0}`",
                self.name()
            ));
        }
    }

    /// Reads what the program and the queues know of the interface.
    pub(super) fn follow_link(&self, attached: &mut Attached) -> Result<(), PortError> {
        let (mac, mtu) = (self.claim.interface.mac()?, self.claim.interface.mtu()?);
        self.set_mac(mac);
        let failed = |error| PortError::system(self.name(), "setting the link address", error);
        // Linux forwards what a card takes that is longer than the MTU, and a veth takes what a tag is longer
        // (`is_skb_forwardable`). A program in the stack sees merged packets too, which only Linux takes apart.
        let accepted = if attached.mode == XdpMode::Native { attached.largest_mtu } else { mtu + TAG_BYTES };
        let longest = if attached.largest_mtu == usize::MAX { mtu } else { accepted.min(attached.largest_mtu) };
        // No unicast frame is to a group's address.
        let taken = if attached.gives_way { MacAddr([1, 0, 0, 0, 0, 0]) } else { mac };
        attached.filter.set_link(taken, longest);
        attached.program.set_interface(taken, longest, attached.leaves_unfinished).map_err(failed)
    }
}
