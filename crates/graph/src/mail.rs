//! How a copy's thread is reached: the waker that ends its sleep, and the mail box whose closures it carries out at a batch
//! boundary.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};

use packet::pulse;
use rustix::event::{EventfdFlags, eventfd};

use crate::graph::Graph;

/// Wakes one thread.
#[derive(Debug)]
pub struct Waker {
    pub(crate) asleep: AtomicBool,
    event: OwnedFd,
}

impl Waker {
    /// A waker for one thread. Fails when the process has no file descriptors left.
    pub fn new() -> std::io::Result<Self> {
        let event = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?;
        Ok(Self { asleep: AtomicBool::new(false), event })
    }

    /// Wakes the thread if it sleeps; one load when it does not.
    #[inline]
    pub fn wake_if_asleep(&self) {
        std::sync::atomic::fence(Ordering::SeqCst);
        if self.asleep.load(Ordering::SeqCst) && self.asleep.swap(false, Ordering::SeqCst) {
            // A full counter means that the thread was woken already.
            let _ = rustix::io::write(&self.event, &1u64.to_ne_bytes());
        }
    }

    /// Under which key elements find the waker of copy `copy` in what they share.
    pub fn key(copy: usize) -> String {
        format!("waker of copy {copy}")
    }

    /// Readable when the thread was woken.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }

    pub(crate) fn clear(&self) {
        self.asleep.store(false, Ordering::SeqCst);
        // Nothing to read means that something else ended the sleep.
        let _ = rustix::io::read(&self.event, &mut [0u8; 8]);
    }
}

/// A command for a copy, carried out at a batch boundary.
pub(crate) type Command = Box<dyn FnOnce(&mut Graph) + Send>;

/// The mail box of a copy, to put mail into.
#[derive(Clone, Debug)]
pub(crate) struct Mail {
    sender: Sender<Command>,
    has_mail: Arc<AtomicBool>,
    waker: Arc<Waker>,
}

/// The same mail box, to take mail out of.
#[derive(Debug)]
pub(crate) struct MailBox {
    receiver: Receiver<Command>,
    has_mail: Arc<AtomicBool>,
}

impl Mail {
    /// A mail box for the thread that `waker` wakes.
    pub(crate) fn new(waker: Arc<Waker>) -> (Self, MailBox) {
        let (sender, receiver) = channel();
        let has_mail = Arc::<AtomicBool>::default();
        let mail_box = MailBox { receiver, has_mail: has_mail.clone() };
        (Self { sender, has_mail, waker }, mail_box)
    }

    /// Has the copy do something; whether its thread is there to do it.
    pub(crate) fn post(&self, call: impl FnOnce(&mut Graph) + Send + 'static) -> bool {
        let sent = self.sender.send(Box::new(call)).is_ok();
        self.notify();
        sent
    }

    /// Has the copy do something and waits for the result; `None` when its thread ended.
    pub(crate) fn ask<R: Send + 'static>(
        &self,
        call: impl FnOnce(&mut Graph) -> R + Send + 'static,
    ) -> Option<R> {
        let (sender, receiver) = channel();
        // Nobody waits any more only when whoever asked gave up.
        let posted = self.post(move |graph| drop(sender.send(call(graph))));
        if !posted {
            return None;
        }
        pulse::answer(&receiver)
    }

    /// What ends the thread's sleep.
    pub(crate) fn waker(&self) -> &Arc<Waker> {
        &self.waker
    }

    /// Has the thread look into its mail box.
    pub(crate) fn notify(&self) {
        self.has_mail.store(true, Ordering::SeqCst);
        self.waker.wake_if_asleep();
    }
}

impl MailBox {
    /// Whether there may be mail; one load.
    #[inline(always)]
    pub(crate) fn may_have_mail(&self) -> bool {
        self.has_mail.load(Ordering::Relaxed)
    }

    /// As [`MailBox::may_have_mail`], for a thread that has just said that it goes to sleep.
    pub(crate) fn has_mail(&self) -> bool {
        self.has_mail.load(Ordering::SeqCst)
    }

    /// Carries out what is there.
    pub(crate) fn read(&self, graph: &mut Graph) {
        self.has_mail.store(false, Ordering::SeqCst);
        while let Ok(command) = self.receiver.try_recv() {
            command(graph);
        }
    }
}
