//! Whether a silent thread could have worked: what Linux says of the time that threads waited for a CPU.
//!
//! | a silent thread | of the time since the last look counts |
//! | --- | --- |
//! | runs | what it did not wait for a CPU |
//! | waits for a CPU | nothing |
//! | sleeps | the share of that which the most delayed thread had; a tenth at least |
//! | is in the kernel, uninterruptibly | a fifth of that: nobody could end it |
//!
//! A thread that sleeps may wait for another one of this process, which is why the others' waits count. It may wait
//! for another process or for a lock of the kernel that one holds, such as that of all changes of interfaces. So the
//! share of the CPUs that each thread of this machine that could run has counts too.

use std::collections::HashMap;
use std::time::Duration;

/// The least that counts of the time of a thread that sleeps while others wait for a CPU.
const LEAST_OF_SLEEP: f64 = 0.1;

/// What counts of the time of a thread that is in the kernel, uninterruptibly.
const OF_KERNEL: f64 = 0.2;

/// What Linux says of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Times {
    /// The letter of `/proc/PID/stat`.
    pub(super) state: char,
    pub(super) ran: Duration,
    /// For a CPU. It grows when the wait is over.
    pub(super) waited: Duration,
}

/// The threads of this process at the last two looks.
#[derive(Debug)]
pub(super) struct Census {
    before: HashMap<i32, Times>,
    now: HashMap<i32, Times>,
    /// The share of a CPU that a thread of this machine had at the last look, from 0 to 1.
    of_cpus: f64,
}

impl Default for Census {
    fn default() -> Self {
        Census { before: HashMap::new(), now: HashMap::new(), of_cpus: 1.0 }
    }
}

impl Census {
    /// Looks at all threads of this process.
    pub(super) fn take(&mut self) {
        let all = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
        let threads = all.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        self.put(threads.filter_map(|thread| Some((thread, times_of(thread)?))).collect());
        self.of_cpus = share_of_cpus().unwrap_or(1.0);
    }

    /// Takes in what a look has found.
    pub(super) fn put(&mut self, found: HashMap<i32, Times>) {
        self.before = std::mem::replace(&mut self.now, found);
    }

    /// Forgets what was seen: nobody has looked for a while.
    pub(super) fn forget(&mut self) {
        self.now.clear();
    }

    /// Returns how much of the time `elapsed` between the last two looks this thread could have worked, from 0 to 1. Where Linux says
    /// nothing of it, that is all of it. Nothing counts before the second look.
    pub(super) fn share(&self, thread: i32, elapsed: Duration) -> f64 {
        if self.before.is_empty() {
            return 0.0;
        }
        let Some(now) = self.now.get(&thread) else { return 1.0 };
        let own = 1.0 - self.wait_of(thread, elapsed);
        if now.state == 'R' {
            return own;
        }
        let of_others = self.now.keys().filter(|other| **other != thread);
        let longest = of_others.map(|other| self.wait_of(*other, elapsed)).fold(0.0, f64::max);
        let sleeps = own * (1.0 - longest).min(self.of_cpus).max(LEAST_OF_SLEEP);
        if now.state == 'D' { sleeps * OF_KERNEL } else { sleeps }
    }

    /// Returns how much of that time a thread waited for a CPU, from 0 to 1.
    fn wait_of(&self, thread: i32, elapsed: Duration) -> f64 {
        let (Some(before), Some(now)) = (self.before.get(&thread), self.now.get(&thread)) else { return 0.0 };
        // The kernel adds a wait when it is over.
        if now.state == 'R' && now.ran == before.ran {
            return 1.0;
        }
        let waited = now.waited.saturating_sub(before.waited);
        (waited.as_secs_f64() / elapsed.as_secs_f64().max(1e-9)).min(1.0)
    }
}

/// Asks Linux about a thread of this process; `None` if it has ended, or the kernel keeps no such account.
fn times_of(thread: i32) -> Option<Times> {
    let read = |file: &str| std::fs::read_to_string(format!("/proc/self/task/{thread}/{file}")).ok();
    let (stat, account) = (read("stat")?, read("schedstat")?);
    // The name before the state may have parentheses.
    let state = stat.rsplit_once(") ")?.1.chars().next()?;
    let mut times = account.split_whitespace().map_while(|word| word.parse().ok().map(Duration::from_nanos));
    Some(Times { state, ran: times.next()?, waited: times.next()? })
}

/// Asks Linux for the share of a CPU that each thread of this machine has that could run, beside the one that asks.
fn share_of_cpus() -> Option<f64> {
    let load = std::fs::read_to_string("/proc/loadavg").ok()?;
    let cpus = std::thread::available_parallelism().ok()?;
    Some(share_by(&load, cpus.get()))
}

/// The same by `/proc/loadavg`, whose fourth word is RUNNABLE/ALL.
fn share_by(load: &str, cpus: usize) -> f64 {
    let runnable = load.split_whitespace().nth(3).and_then(|word| word.split('/').next()?.parse().ok());
    let others = runnable.unwrap_or(1.0) - 1.0;
    (cpus as f64 / f64::max(others, 1.0)).min(1.0)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    const LOOK: Duration = Duration::from_millis(100);

    fn census(looks: [&[(i32, char, u64, u64)]; 2]) -> Census {
        let mut census = Census::default();
        for look in looks {
            let times = look.iter().map(|&(thread, state, ran, waited)| {
                let [ran, waited] = [ran, waited].map(Duration::from_millis);
                (thread, Times { state, ran, waited })
            });
            census.put(times.collect());
        }
        census
    }

    fn shares(census: &Census) -> [f64; 2] {
        [1, 2].map(|thread| (census.share(thread, LOOK) * 100.0).round() / 100.0)
    }

    #[test]
    fn a_thread_that_waits_for_a_cpu_is_not_silent() {
        let waits = census([&[(1, 'R', 5, 5)], &[(1, 'R', 5, 5)]]);
        assert_eq!(waits.share(1, LOOK), 0.0);
        // It runs, half of the time.
        let runs = census([&[(1, 'R', 5, 5)], &[(1, 'R', 55, 55)]]);
        assert_eq!(runs.share(1, LOOK), 0.5);
        // It spins, and nobody takes its CPU.
        assert_eq!(census([&[(1, 'R', 5, 5)], &[(1, 'R', 105, 5)]]).share(1, LOOK), 1.0);
    }

    #[test]
    fn a_thread_that_sleeps_may_wait_for_one_that_waits_for_a_cpu() {
        let both = |other| census([&[(1, 'S', 5, 5), (2, 'R', 0, 0)], &[(1, 'S', 5, 5), other]]);
        assert_eq!(shares(&both((2, 'R', 50, 50))), [0.5, 0.5]);
        assert_eq!(shares(&both((2, 'R', 0, 0))), [LEAST_OF_SLEEP, 0.0]);
        assert_eq!(shares(&both((2, 'S', 1, 0))), [1.0, 1.0]);
        // A thread that a debugger has stopped is as silent as one that sleeps.
        assert_eq!(census([&[(1, 't', 5, 5)], &[(1, 't', 5, 5)]]).share(1, LOOK), 1.0);
        assert_eq!(census([&[(1, 'D', 5, 5)], &[(1, 'D', 5, 5)]]).share(1, LOOK), OF_KERNEL);
    }

    #[test]
    fn a_thread_that_sleeps_may_wait_for_processes_that_wait_for_a_cpu() {
        let mut asleep = census([&[(1, 'S', 5, 5)], &[(1, 'S', 5, 5)]]);
        assert_eq!(asleep.share(1, LOOK), 1.0);
        asleep.of_cpus = share_by("28.03 15.03 10.26 9/412 31337", 2);
        assert_eq!(asleep.share(1, LOOK), 0.25);
        asleep.of_cpus = share_by("28.03 15.03 10.26 81/412 31337", 2);
        assert_eq!(asleep.share(1, LOOK), LEAST_OF_SLEEP);
        // A machine with nothing to do, and text that is not Linux's.
        assert_eq!([share_by("0.00 0.01 0.05 1/412 31337", 2), share_by("", 2)], [1.0; 2]);
    }

    #[test]
    fn the_first_look_counts_nothing() {
        let mut census = Census::default();
        census.take();
        let own = rustix::thread::gettid().as_raw_nonzero().get();
        assert_eq!(census.share(own, LOOK), 0.0);
        census.take();
        assert!(census.now.contains_key(&own), "Linux says how this thread fares");
        // A thread that Linux does not know.
        assert_eq!(census.share(-1, LOOK), 1.0);
        census.forget();
        census.take();
        assert_eq!(census.share(own, LOOK), 0.0);
    }
}
