//! One file descriptor that is readable when any of several is, or when a moment has come: so that a control
//! thread polls one thing for each of its sources.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::epoll;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};

/// An epoll with a timer in it. A descriptor leaves it when it is closed.
pub(crate) struct Readiness {
    epoll: OwnedFd,
    timer: OwnedFd,
    wakes_at: Option<Instant>,
}

impl Readiness {
    /// One that watches nothing yet.
    pub(crate) fn new() -> io::Result<Readiness> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let timer =
            timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK)?;
        let readiness = Readiness { epoll, timer, wakes_at: None };
        readiness.watch(&readiness.timer)?;
        Ok(readiness)
    }

    /// What to poll.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }

    /// Is readable when this one is.
    pub(crate) fn watch(&self, fd: impl AsFd) -> io::Result<()> {
        Ok(epoll::add(&self.epoll, fd, epoll::EventData::new_u64(0), epoll::EventFlags::IN)?)
    }

    /// Is readable because of this one no longer.
    pub(crate) fn forget(&self, fd: impl AsFd) -> io::Result<()> {
        Ok(epoll::delete(&self.epoll, fd)?)
    }

    /// Makes it readable from this moment on, until another call.
    pub(crate) fn wake_at(&mut self, moment: Option<Instant>) -> io::Result<()> {
        if self.wakes_at == moment {
            return Ok(());
        }
        self.wakes_at = moment;
        let wait = moment
            .map(|moment| moment.saturating_duration_since(Instant::now()).max(Duration::from_nanos(1)));
        let never = Timespec { tv_sec: 0, tv_nsec: 0 };
        let value = match wait {
            Some(wait) => Timespec::try_from(wait).map_err(io::Error::other)?,
            None => never,
        };
        timerfd_settime(
            &self.timer,
            TimerfdTimerFlags::empty(),
            &Itimerspec { it_interval: never, it_value: value },
        )?;
        Ok(())
    }
}
