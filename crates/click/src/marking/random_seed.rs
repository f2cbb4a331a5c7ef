//! =c
//! RandomSeed([SEED])
//!
//! =s information
//! starts random numbers anew
//!
//! =d
//! Starts the random numbers of the elements of a worker (RandomSample, RED and others) from SEED,
//! a number. They draw the same ones each time, and each worker draws others. Without SEED nobody
//! can know which. It has no ports.
//!
//! Different from Click: without this element random numbers are the same each time.
//!
//! =e
//!   RandomSeed(42);
//!
//! =a RandomSample, RandomSwitch

use std::hash::{BuildHasher, RandomState};

use graph::{Class, Context, Element, FromArgument, Handler, Put};

pub(crate) static CLASS: Class = Class {
    name: "RandomSeed",
    ports: "0/0",
    handlers: &[Handler::write(
        "seed",
        "Starts random numbers anew: from a number, or as without SEED when the text is empty.",
        &Put(|_: &mut RandomSeed, cx, value| {
            let seed = if value.trim().is_empty() { None } else { Some(u64::from_value(value)?) };
            start(cx, seed);
            Ok(())
        }),
    )],
    manual: graph::manual!("random_seed.rs"),
    make: |setup| {
        let seed = setup.arguments.optional("SEED")?;
        setup.arguments.finish()?;
        Ok(Box::new(RandomSeed { seed }))
    },
    ..Class::DEFAULT
};

struct RandomSeed {
    seed: Option<u64>,
}

/// Seeds of workers are this far apart, so that their numbers have nothing to do with each other.
const WORKERS_APART: u64 = 0xd1b5_4a32_d192_ed03;

fn start(cx: &mut Context, seed: Option<u64>) {
    // The standard library's hash maps are keyed by the operating system's random numbers.
    let seed = seed.unwrap_or_else(|| RandomState::new().hash_one(0));
    cx.seed_random(seed.wrapping_add((cx.copy_index() as u64).wrapping_mul(WORKERS_APART)));
}

impl Element for RandomSeed {
    fn initialise(&mut self, cx: &mut Context) -> Result<(), String> {
        start(cx, self.seed);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use graph::testing::{Bench, configure};

    fn sample(bench: &mut Bench) -> Vec<Vec<u8>> {
        let numbers: Vec<[u8; 1]> = (0..100).map(|number| [number]).collect();
        bench.push("in", &numbers.iter().map(|number| &number[..]).collect::<Vec<_>>());
        bench.taken("out")
    }

    #[test]
    fn the_same_seed_gives_the_same_numbers() {
        let config = |seed: &str| {
            format!("e :: RandomSeed({seed}); in :: TestInput -> RandomSample(0.5) -> out :: TestOutput")
        };
        let first = sample(&mut Bench::new(&crate::registry(), &config("7")));
        let mut bench = Bench::new(&crate::registry(), &config("7"));
        assert_eq!(sample(&mut bench), first);
        bench.write("e.seed", "8").unwrap();
        assert_ne!(sample(&mut bench), first);
        bench.write("e.seed", "7").unwrap();
        assert_eq!(sample(&mut bench), first);
        bench.write("e.seed", "").unwrap();
        assert_ne!(sample(&mut bench), first);
        assert!(bench.write("e.seed", "x").is_err());
        assert_ne!(sample(&mut Bench::new(&crate::registry(), &config(""))), first);
        assert!(configure(&CLASS, "-1").is_err());
    }
}
