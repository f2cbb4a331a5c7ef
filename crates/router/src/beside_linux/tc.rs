//! What tc has at an interface, as Linux reports it over netlink.

use std::io;

use control::netlink::ask::{ROUTE, dump};
use control::netlink::attributes;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, netdevice, socket_with};

/// `RTM_GETTFILTER` and `RTM_GETQDISC`.
const GET_FILTER: u16 = 46;
const GET_DISCIPLINE: u16 = 38;
/// `TCA_KIND`.
const KIND: u16 = 1;
/// Where filters of the queueing discipline `ingress` are, and those of `clsact` for what comes in and for what goes out
/// (`TC_H_MIN_INGRESS`, `TC_H_MIN_EGRESS`).
const INGRESS: [u32; 2] = [0xffff_0000, 0xffff_fff2];
const EGRESS: [u32; 1] = [0xffff_fff3];

/// What tc has at an interface.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tc {
    /// The kinds of its queueing disciplines, each once.
    pub(super) disciplines: Vec<String>,
    /// Whether there are filters for what comes in, and for what goes out.
    pub(super) has_filters: [bool; 2],
}

impl Tc {
    /// Asks Linux. An interface that is not there has nothing.
    ///
    /// # Errors
    /// The kernel's.
    pub(super) fn of(interface: &str) -> io::Result<Self> {
        let Some(index) = index_of(interface) else { return Ok(Self::default()) };
        let disciplines = disciplines(index)?;
        // An `ingress` answers for what goes out, too.
        let has_clsact = disciplines.iter().any(|kind| kind == "clsact");
        let has_filters = [has_filters(index, &INGRESS)?, has_clsact && has_filters(index, &EGRESS)?];
        Ok(Self { disciplines, has_filters })
    }
}

/// Returns whether an interface may have filters for what comes in, having the queueing discipline for them.
///
/// # Errors
/// The kernel's.
pub(crate) fn may_filter_ingress(interface: &str) -> io::Result<bool> {
    let all = index_of(interface).map_or(Ok(Vec::new()), disciplines)?;
    Ok(all.iter().any(|kind| ["ingress", "clsact"].contains(&kind.as_str())))
}

/// Returns whether tc has filters for what comes in by an interface.
///
/// # Errors
/// The kernel's.
pub(super) fn has_filters_at_ingress(interface: &str) -> io::Result<bool> {
    index_of(interface).map_or(Ok(false), |index| has_filters(index, &INGRESS))
}

/// The kinds of an interface's queueing disciplines, each once.
fn disciplines(index: i32) -> io::Result<Vec<String>> {
    let mut kinds = Vec::new();
    ask(GET_DISCIPLINE, index, 0, &mut |message| {
        let (header, rest) = message.split_first_chunk::<20>()?;
        // Some kernels tell those of all interfaces.
        if header.get(4..8) == Some(&index.to_ne_bytes()[..]) {
            kinds.extend(attributes(rest).flatten().find(|it| it.kind == KIND).map(|it| it.text()));
        }
        Some(())
    })?;
    kinds.dedup();
    Ok(kinds)
}

fn has_filters(index: i32, parents: &[u32]) -> io::Result<bool> {
    let mut has_some = false;
    for &parent in parents {
        ask(GET_FILTER, index, parent, &mut |_| {
            has_some = true;
            Some(())
        })?;
    }
    Ok(has_some)
}

fn index_of(interface: &str) -> Option<i32> {
    let socket = socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None).ok()?;
    i32::try_from(netdevice::name_to_index(socket, interface).ok()?).ok()
}

/// Asks for all of a kind at a parent.
fn ask(kind: u16, index: i32, parent: u32, take: &mut dyn FnMut(&[u8]) -> Option<()>) -> io::Result<()> {
    // `struct tcmsg`: family, padding, interface, handle, parent, information.
    let mut request = [0; 20];
    request[4..8].copy_from_slice(&index.to_ne_bytes());
    request[12..16].copy_from_slice(&parent.to_ne_bytes());
    let asked = dump(ROUTE, kind, &request, &mut |_, message| {
        take(message);
        Ok(())
    });
    match asked {
        // So the kernel answers without such a queueing discipline, and one without tc.
        Err(error)
            if [Errno::INVAL, Errno::OPNOTSUPP, Errno::NODEV, Errno::NOENT]
                .contains(&Errno::from_io_error(&error).unwrap_or(Errno::IO)) =>
        {
            Ok(())
        }
        other => other,
    }
}
