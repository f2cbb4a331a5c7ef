//! The interfaces of a network namespace as they are now, for those who need nothing else. Routes and links together are
//! followed by [`Kernel`](super::Kernel).

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use netlink_sys::protocols::NETLINK_ROUTE;

use super::ask;
use super::frames::{Frame, frames};
use super::message::{Decoded, decode, kind};
use super::sockets::{KernelSocket, Received};
use crate::change::{Change, InterfaceIndex, Link};

/// `RTNLGRP_LINK`.
const GROUP_LINK: u32 = 1;
/// For what is not read yet.
const BUFFER: usize = 1 << 20;

/// Follows the interfaces of the network namespace of the thread that opened it.
pub(crate) struct LinkWatch {
    socket: KernelSocket,
    links: BTreeMap<InterfaceIndex, Link>,
    gone: BTreeSet<InterfaceIndex>,
    is_notified: bool,
    buffer: Vec<u8>,
}

impl LinkWatch {
    /// Hears of every change from now on, and reads all interfaces.
    pub(crate) fn open() -> io::Result<Self> {
        let socket = KernelSocket::for_notifications(NETLINK_ROUTE, &[GROUP_LINK], BUFFER)?;
        Ok(Self {
            socket,
            links: all()?,
            gone: BTreeSet::new(),
            is_notified: false,
            buffer: vec![0; 64 << 10],
        })
    }

    /// The interfaces at the last look.
    pub(crate) fn links(&self) -> &BTreeMap<InterfaceIndex, Link> {
        &self.links
    }

    /// Which have gone since this was asked last. One that is there with such a number is another one, or one that was away.
    pub(crate) fn take_gone(&mut self) -> BTreeSet<InterfaceIndex> {
        std::mem::take(&mut self.gone)
    }

    /// Whether Linux has told of an interface since this was asked last, also what is not kept here.
    pub(crate) fn take_notified(&mut self) -> bool {
        std::mem::take(&mut self.is_notified)
    }

    /// Reads what has changed. Returns whether anything has.
    pub(crate) fn look(&mut self) -> io::Result<bool> {
        let mut has_changed = false;
        loop {
            let received = self.socket.receive(&mut self.buffer)?;
            self.is_notified |= !matches!(received, Received::Nothing);
            match received {
                Received::Nothing => return Ok(has_changed),
                Received::Lost => {
                    self.links = all()?;
                    has_changed = true;
                }
                Received::Bytes(length) => {
                    for frame in frames(&self.buffer[..length]) {
                        let frame = frame.map_err(io::Error::other)?;
                        has_changed |= apply(&mut self.links, &mut self.gone, &frame)?;
                    }
                }
            }
        }
    }
}

fn apply(
    links: &mut BTreeMap<InterfaceIndex, Link>,
    gone: &mut BTreeSet<InterfaceIndex>,
    frame: &Frame<'_>,
) -> io::Result<bool> {
    Ok(match decode(frame).map_err(io::Error::other)? {
        Decoded::Change(Change::Link(link)) => {
            links.insert(link.index, link.clone()).is_none_or(|before| before != link)
        }
        Decoded::Change(Change::LinkGone(index)) => {
            gone.insert(index);
            links.remove(&index).is_some()
        }
        _ => false,
    })
}

fn all() -> io::Result<BTreeMap<InterfaceIndex, Link>> {
    let (mut links, mut gone) = (BTreeMap::new(), BTreeSet::new());
    ask::dump(NETLINK_ROUTE, kind::GET_LINK, &[0; 16], &mut |kind, payload| {
        apply(&mut links, &mut gone, &Frame { kind, flags: 0, sequence: 0, payload }).map(drop)
    })?;
    Ok(links)
}
