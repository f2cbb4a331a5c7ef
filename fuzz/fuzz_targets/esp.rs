//! Any bytes as ESP packets, and any bytes inside of ESP packets whose ICV is right: no panic, what is opened is no longer than what came,
//! and no packet is opened twice.
#![no_main]

use std::cell::RefCell;
use std::net::Ipv4Addr;

use ipsec::association::{Mode, Settings, UdpPorts};
use ipsec::engine::Job;
use ipsec::esp::{Opener, find};
use ipsec::{Association, Backend, Endpoints, Keys, Suite};
use libfuzzer_sys::fuzz_target;
use packet::{Packet, Pool, PoolOptions};

const SPI: [u8; 4] = [0, 0, 0x10, 0];

struct Bench {
    pool: Pool,
    opener: Opener,
}

impl Bench {
    fn packet(&mut self, bytes: &[u8]) -> Option<Packet> {
        let mut packet = self.pool.allocate()?;
        packet.set_data(bytes).then_some(())?;
        packet.set_network_header(0);
        Some(packet)
    }

    /// Opens a packet by an association, if ESP is found in it.
    fn open(&mut self, association: &Association, bytes: &[u8]) -> bool {
        let (Some(esp), Some(packet)) = (find(bytes), self.packet(bytes)) else { return false };
        let mut packets = [packet];
        let mut results = [Ok(())];
        self.opener.open(&mut packets, &[association], &[esp.offset as u16], &mut results);
        assert!(packets[0].len() <= bytes.len());
        results[0].is_ok()
    }
}

thread_local! {
    static BENCH: RefCell<Bench> = RefCell::new(Bench {
        pool: Pool::new(PoolOptions { frames: 16, ..PoolOptions::default() }).expect("there is memory"),
        opener: Opener::new(Backend::best()).expect("a backend works here"),
    });
}

fn keys(suite: Suite) -> Keys {
    let key = vec![1; suite.key_material_bytes()];
    Keys::new(suite, &key, &vec![2; suite.auth_key_bytes()], Backend::best()).expect("the lengths are right")
}

fuzz_target!(|data: &[u8]| {
    let Some((&[kind, more], bytes)) = data.split_first_chunk() else { return };
    let suite = Suite::ALL[usize::from(kind) % Suite::ALL.len()];
    let endpoints = Endpoints::V4 { source: Ipv4Addr::new(192, 0, 2, 1), destination: Ipv4Addr::new(192, 0, 2, 2) };
    let is_extended = more & 1 != 0;
    let settings = Settings {
        mode: if more & 2 != 0 { Mode::Transport } else { Mode::Tunnel },
        is_extended,
        udp: (more & 4 != 0).then_some(UdpPorts { source: 4500, destination: 4500 }),
        ..Settings::new(u32::from_be_bytes(SPI), endpoints, keys(suite))
    };
    let in_udp = settings.udp.is_some();
    let association = Association::new(settings);
    BENCH.with_borrow_mut(|bench| {
        assert!(!bench.open(&association, bytes), "nobody knows the key");
        // The same bytes as a payload.
        let whole = bytes.len().next_multiple_of(suite.alignment()).max(suite.alignment());
        let mut packet = vec![0x45, 0, 0, 0, 0, 0, 0, 0, 64, if in_udp { 17 } else { 50 }, 0, 0, 192, 0, 2, 1, 192, 0, 2, 2];
        if in_udp {
            packet.extend([0x11, 0x94, 0x11, 0x94, 0, 0, 0, 0]);
        }
        let start = packet.len();
        packet.extend(SPI);
        packet.extend([0, 0, 0, more | 1]);
        packet.resize(packet.len() + suite.iv_bytes(), kind);
        packet.extend(bytes);
        packet.resize(start + 8 + suite.iv_bytes() + whole + suite.icv_bytes(), more);
        let keys = keys(suite);
        let mut jobs = [Job::new(&keys, &mut packet[start..], is_extended.then_some(0))];
        Backend::best().engine().expect("a backend works here").seal(&mut jobs);
        assert!(jobs[0].is_right);
        let opened = bench.open(&association, &packet);
        let again = bench.open(&association, &packet);
        assert!(!opened || !again, "a packet was opened twice");
    });
});
