//! Samples of packets that never come to this process (`bpf/samples.h`).

use std::sync::atomic::{AtomicU32, Ordering};

/// `struct sampling` of the program.
#[repr(C)]
pub(super) struct Sampling {
    one_in: AtomicU32,
    turn: AtomicU32,
    bytes: AtomicU32,
    unused: AtomicU32,
}

impl Sampling {
    pub(super) fn set(&self, one_in: u32, bytes: usize) {
        // Who sees the new rate with the old turn draws by it one turn late.
        self.bytes.store(bytes.min(KernelSample::MOST_BYTES) as u32, Ordering::Relaxed);
        self.one_in.store(one_in, Ordering::Relaxed);
        self.turn.fetch_add(1, Ordering::Release);
    }
}

/// `struct draw` of the program.
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct Draw {
    due: u64,
    lost: u64,
    left: u32,
    turn: u32,
}

/// A packet that was drawn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelSample {
    /// The number of the port that it came in by.
    pub input: u16,
    /// That of the port that it left by; `None` where the packet was left to Linux.
    pub output: Option<u16>,
    /// Bytes of its frame.
    pub length: u32,
    /// Packets of the port that it stands for, itself among them.
    pub stands_for: u64,
    /// Packets that were drawn before it, and for which there was no room.
    pub lost: u64,
    /// The first bytes of its frame, as it came in.
    pub data: Vec<u8>,
}

impl KernelSample {
    /// The most bytes that are kept of a packet.
    pub const MOST_BYTES: usize = 1024;

    /// Reads `struct sample` of the program.
    pub(super) fn read(record: &[u8]) -> Option<Self> {
        let (stands_for, rest) = record.split_first_chunk()?;
        let (lost, rest) = rest.split_first_chunk()?;
        let (length, rest) = rest.split_first_chunk()?;
        let (bytes, rest) = rest.split_first_chunk()?;
        let (input, rest) = rest.split_first_chunk()?;
        let (output, rest) = rest.split_first_chunk()?;
        const NO_PORT: u16 = 0xffff;
        Some(Self {
            input: u16::from_ne_bytes(*input),
            output: Some(u16::from_ne_bytes(*output)).filter(|&port| port != NO_PORT),
            length: u32::from_ne_bytes(*length),
            stands_for: u64::from_ne_bytes(*stands_for),
            lost: u64::from_ne_bytes(*lost),
            data: rest.get(..u32::from_ne_bytes(*bytes) as usize)?.to_vec(),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use fib::{Adjacency, MAIN, NextHop};
    use packet::checksum;

    use super::super::tests::{Hook, Kernel, PORT, REDIRECTED, ipv4, run};
    use super::super::*;
    use super::KernelSample;
    use crate::Links;
    use crate::testing::{in_namespace, pool, send, soon, veth_pair};

    /// Forwards from port 0 to port 1.
    fn kernel() -> Kernel {
        let mut kernel =
            Kernel::with(KernelForwarding::load(0, super::super::tests::KEY, false).unwrap(), Hook::Xdp);
        let next_hop = NextHop::Forward(Adjacency::ethernet(1, [1; 6], [7; 6], [8, 0]));
        let next_hop = kernel.fib.next_hops_mut().add(next_hop).unwrap();
        kernel.fib.insert(MAIN, "11.0.0.0/8".parse().unwrap(), next_hop).unwrap();
        kernel.fib.publish();
        kernel.share();
        kernel
    }

    fn taken(kernel: &mut Kernel) -> Vec<KernelSample> {
        let mut samples = Vec::new();
        kernel.forwarding.take_samples(usize::MAX, |sample| samples.push(sample));
        samples
    }

    #[test]
    fn one_of_so_many_is_sampled_as_it_came_in_and_stands_for_those_before() {
        if !testbed::is_root() {
            return;
        }
        let mut kernel = kernel();
        let frame = ipv4(0x0a00_0001, 0x0b00_0001, 17, 5);
        let forward = |kernel: &mut Kernel, count: usize| {
            (0..count).for_each(|_| assert_eq!(run(&mut kernel.forwarding, &frame).0, REDIRECTED));
        };
        forward(&mut kernel, 100);
        assert_eq!(taken(&mut kernel), []);
        // Distances deviate by 5.5, so that of 400 samples by some 11.
        kernel.forwarding.set_sampling(10, 40);
        let mut samples = Vec::new();
        for _ in 0..10 {
            forward(&mut kernel, 400);
            samples.extend(taken(&mut kernel));
        }
        assert!((330..470).contains(&samples.len()), "{}", samples.len());
        let sum: u64 = samples.iter().map(|sample| sample.stands_for).sum();
        // Each processor may have the next one's before it.
        let processors = KernelForwarding::slots() as u64;
        assert!((4_000 - 18 * processors..=4_000).contains(&sum), "{sum}");
        for sample in &samples {
            assert!((1..=19).contains(&sample.stands_for));
            let data = frame[..40].to_vec();
            let expected = KernelSample { input: 0, output: Some(1), length: 60, lost: 0, data, ..*sample };
            assert_eq!(*sample, expected);
        }
        // What is left to the graph is its own to sample.
        kernel.forwarding.set_sampling(1, 1_024);
        let unknown = ipv4(0x0a00_0001, 0x0c00_0001, 17, 5);
        assert_ne!(run(&mut kernel.forwarding, &unknown).0, REDIRECTED);
        forward(&mut kernel, 2);
        let samples = taken(&mut kernel);
        assert!(samples.iter().all(|sample| sample.data == frame));
        assert_eq!(samples.len(), 2);
        // The first of a processor stands for those that passed since the last one at the other rate.
        let later: u64 = samples.iter().map(|sample| sample.stands_for).sum();
        assert!((2..=4_002 - sum).contains(&later), "{sum} {later}");
        kernel.forwarding.set_sampling(0, 0);
        forward(&mut kernel, 10);
        assert_eq!(taken(&mut kernel), []);
    }

    #[test]
    fn samples_without_room_are_counted_and_stood_for_by_the_next() {
        if !testbed::is_root() {
            return;
        }
        let mut kernel = kernel();
        let frame = ipv4(0x0a00_0001, 0x0b00_0001, 17, 5);
        kernel.forwarding.set_sampling(1, 128);
        (0..6_000).for_each(|_| _ = run(&mut kernel.forwarding, &frame));
        let full = taken(&mut kernel);
        assert!((3_700..4_100).contains(&full.len()), "{}", full.len());
        // A sample of each processor that ran some of them.
        let mut samples = full;
        let is_whole = |samples: &[KernelSample]| {
            let sum = |of: fn(&KernelSample) -> u64| samples.iter().map(of).sum::<u64>();
            assert_eq!(sum(|sample| sample.stands_for), sum(|sample| sample.lost) + samples.len() as u64);
            sum(|sample| sample.lost) > 0
        };
        for _ in 0..10_000 {
            run(&mut kernel.forwarding, &frame);
            samples.extend(taken(&mut kernel));
            if is_whole(&samples) {
                return;
            }
        }
        panic!("nothing is lost of {} samples", samples.len());
    }

    #[test]
    fn what_is_left_to_linux_is_sampled_too() {
        in_namespace(|| {
            veth_pair("left", "right");
            let mut kernel = kernel();
            let interface = Links::ask().unwrap().named("right").unwrap().index;
            let receives = KernelPort { interface, receives: Some(XdpMode::Native), ..PORT };
            kernel.forwarding.set_port(0, receives).unwrap();
            let open = |spec: &str| crate::open(spec, &crate::OpenOptions::default()).unwrap();
            let (mut left, mut port) = (open("left"), open("af_xdp:right?steer=transit&mode=native"));
            let mut pool = pool(4_096);
            let mut tx = left.take_tx(0).unwrap();
            let mut rx = port.take_rx(0).unwrap();
            rx.prepare(&mut pool).unwrap();
            let mac = port.info().mac;
            let host = port.host().unwrap();
            host.forward_in_kernel(&mut kernel.forwarding, 0, false).unwrap();
            host.leave_unfinished_checksums(true).unwrap();
            kernel.forwarding.set_sampling(1, 1_024);
            // UDP whose checksum is that of the pseudo-header.
            let (source, destination) = (0x0a00_0001u32, 0x0b00_0001);
            let mut frame = ipv4(source, destination, 17, 5);
            frame[..6].copy_from_slice(&mac.0);
            frame[38..40].copy_from_slice(&8u16.to_be_bytes());
            let sum = checksum::pseudo_v4(Ipv4Addr::from(source), Ipv4Addr::from(destination), 17, 8);
            frame[40..42].copy_from_slice(&sum.to_be_bytes());
            send(&mut *tx, &mut pool, &[frame.clone()]);
            let mut samples = Vec::new();
            soon("the packet is sampled", || {
                samples.extend(taken(&mut kernel));
                !samples.is_empty()
            });
            let expected =
                KernelSample { input: 0, output: None, length: 60, stands_for: 1, lost: 0, data: frame };
            assert_eq!(samples, [expected]);
            // Nothing is sampled of what the program does not see any more.
            port.host().unwrap().forward_here().unwrap();
        });
    }
}
