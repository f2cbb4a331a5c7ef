//! Prints the kernel's IPsec state, and what changes. Keys are not shown.
//!
//! ```text
//! cargo run -p brickway-control --example ipsec
//! ```

use std::error::Error;

use control::netlink::xfrm::{Event, Watch, WatchOptions};
use rustix::event::{PollFd, PollFlags, poll};

fn print(event: Event) {
    match event {
        Event::Sa(sa) => {
            let names: Vec<&str> = [&sa.aead, &sa.encryption, &sa.authentication]
                .into_iter()
                .flatten()
                .map(|algorithm| algorithm.name.as_str())
                .collect();
            println!("{} from {}: {:?} mode, {}", sa.id, sa.source, sa.mode, names.join(" and "));
        }
        Event::SaGone(id) => println!("{id}: gone"),
        Event::SaExpired(id, expiry) => println!("{id}: {expiry:?} limit reached"),
        Event::Policy(policy, rank) => {
            let (direction, from, to) =
                (policy.direction.word(), policy.selector.source, policy.selector.destination);
            println!(
                "policy {} {direction} from {from} to {to}: {:?} with {} transformations, priority {} age {}",
                policy.index,
                policy.action,
                policy.templates.len(),
                rank.priority,
                rank.age
            );
        }
        Event::PolicyGone(index) => println!("policy {index}: gone"),
        Event::PolicyExpired(index, expiry) => println!("policy {index}: {expiry:?} limit reached"),
        Event::Defaults(its) => {
            println!("other packets: in {:?}, fwd {:?}, out {:?}", its.input, its.forward, its.output);
        }
        Event::Synchronised => println!("that is all"),
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let Some(mut watch) = Watch::open(&WatchOptions::default())? else {
        println!("this kernel has no IPsec");
        return Ok(());
    };
    loop {
        poll(&mut [PollFd::new(&watch.fd(), PollFlags::IN)], None)?;
        if let Err(error) = watch.receive(&mut print) {
            eprintln!("{error}");
        }
    }
}
