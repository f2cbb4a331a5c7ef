//! Which worker receives, which processes, which sends.
//!
//! In [`Mode::Parallel`] every worker does all three with the packets of its own queues: one packet, one core. The two
//! other modes hand packets over between cores and exist to measure what that costs.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use crate::setup::Setup;

/// How the work on a packet is shared out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Every worker receives, processes and sends.
    #[default]
    Parallel,
    /// Chains of three workers: the first receives, the second processes, the third sends. Two workers make one chain
    /// whose second sends too.
    Pipeline,
    /// The first worker receives everything, the last one sends everything, those between process.
    Serial,
}

impl Mode {
    const NAMES: [(&'static str, Self); 3] =
        [("parallel", Self::Parallel), ("pipeline", Self::Pipeline), ("serial", Self::Serial)];
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(Self::NAMES.iter().find(|(_, mode)| mode == self).map_or("", |(name, _)| name))
    }
}

impl FromStr for Mode {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = Self::NAMES.iter().find(|(name, _)| *name == text).map(|(_, mode)| *mode);
        known.ok_or_else(|| format!("'{text}' is not a mode: parallel, pipeline or serial"))
    }
}

/// The workers by what they do; each list in ascending order, without repetition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Roles {
    /// Those that receive; the first has receive queue 0 of every port, the second queue 1, and so on.
    pub receive: Vec<usize>,
    /// Those through whose elements packets go.
    pub process: Vec<usize>,
    /// Those that send; the first has transmit queue 0 of every port, and so on.
    pub send: Vec<usize>,
}

impl Roles {
    /// Where the router leaves the roles in what elements share.
    pub(crate) const KEY: &str = "roles";

    /// The roles of `workers` workers. Says which numbers are right when that one is not.
    pub fn new(mode: Mode, workers: usize) -> Result<Self, String> {
        let all: Vec<usize> = (0..workers).collect();
        match mode {
            Mode::Parallel if workers > 0 => {
                Ok(Self { receive: all.clone(), process: all.clone(), send: all })
            }
            Mode::Pipeline if workers == 2 => Ok(Self { receive: vec![0], process: vec![1], send: vec![1] }),
            Mode::Pipeline if workers > 0 && workers.is_multiple_of(3) => {
                let stage = |stage: usize| all.iter().copied().skip(stage).step_by(3).collect();
                Ok(Self { receive: stage(0), process: stage(1), send: stage(2) })
            }
            Mode::Serial if workers >= 3 => {
                Ok(Self { receive: vec![0], process: (1..workers - 1).collect(), send: vec![workers - 1] })
            }
            Mode::Parallel => Err("a router needs a worker".to_owned()),
            Mode::Pipeline => Err(format!("pipeline takes 2 workers, or a multiple of 3, not {workers}")),
            Mode::Serial => Err(format!("serial takes 3 workers or more, not {workers}")),
        }
    }

    /// The roles in the router that `setup` belongs to.
    pub fn of(setup: &Setup<'_>) -> Arc<Self> {
        setup.shared().get(Self::KEY).unwrap_or_else(|| {
            let all: Vec<usize> = (0..setup.copy().workers).collect();
            Arc::new(Self { receive: all.clone(), process: all.clone(), send: all })
        })
    }

    /// The workers among which the packets of receive queue `queue` of a port with `queues` queues are shared out. With
    /// a queue for each worker that is the worker itself.
    pub fn processors(&self, queue: usize, queues: usize) -> Vec<usize> {
        self.process.iter().copied().skip(queue % queues.max(1)).step_by(queues.max(1)).collect()
    }

    /// The worker that sends what `worker` processed: itself if it sends at all.
    pub fn sender(&self, worker: usize) -> usize {
        if self.send.contains(&worker) {
            return worker;
        }
        let place = self.process.iter().position(|&known| known == worker).unwrap_or(0);
        self.send[place % self.send.len()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn roles(mode: Mode, workers: usize) -> (Vec<usize>, Vec<usize>, Vec<usize>) {
        let roles = Roles::new(mode, workers).unwrap();
        (roles.receive, roles.process, roles.send)
    }

    #[test]
    fn who_does_what() {
        assert_eq!(roles(Mode::Parallel, 2), (vec![0, 1], vec![0, 1], vec![0, 1]));
        assert_eq!(roles(Mode::Pipeline, 2), (vec![0], vec![1], vec![1]));
        assert_eq!(roles(Mode::Pipeline, 6), (vec![0, 3], vec![1, 4], vec![2, 5]));
        assert_eq!(roles(Mode::Serial, 4), (vec![0], vec![1, 2], vec![3]));
    }

    #[test]
    fn numbers_that_cannot_be() {
        assert!(Roles::new(Mode::Parallel, 0).unwrap_err().contains("a worker"));
        assert!(Roles::new(Mode::Pipeline, 4).unwrap_err().contains("multiple of 3, not 4"));
        assert!(Roles::new(Mode::Serial, 2).unwrap_err().contains("3 workers or more"));
    }

    #[test]
    fn queues_and_their_workers() {
        let parallel = Roles::new(Mode::Parallel, 4).unwrap();
        assert_eq!(parallel.processors(2, 4), [2]);
        assert_eq!((parallel.processors(0, 2), parallel.processors(1, 2)), (vec![0, 2], vec![1, 3]));
        assert_eq!(parallel.sender(3), 3);
        let pipeline = Roles::new(Mode::Pipeline, 6).unwrap();
        assert_eq!((pipeline.processors(1, 2), pipeline.sender(4)), (vec![4], 5));
        assert_eq!(pipeline.sender(5), 5);
        let serial = Roles::new(Mode::Serial, 5).unwrap();
        assert_eq!((serial.processors(0, 1), serial.sender(2)), (vec![1, 2, 3], 4));
    }

    #[test]
    fn names_go_round() {
        for (name, mode) in Mode::NAMES {
            assert_eq!((name.parse(), mode.to_string()), (Ok(mode), name.to_owned()));
        }
        assert!("chain".parse::<Mode>().unwrap_err().contains("pipeline"));
    }
}
