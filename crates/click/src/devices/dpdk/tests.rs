//! The elements over devices and rings of DPDK that need no card.

use graph::Class;
use graph::setup::Shared;
use graph::testing::{Bench, configure};

use super::{from_dpdk_device, from_dpdk_ring, to_dpdk_device, to_dpdk_ring};
use crate::registry;

fn mistake(class: &'static Class, config: &str) -> String {
    configure(class, config).unwrap_err().join("\n")
}

#[test]
fn mistakes_of_dpdk_elements() {
    let from = &from_dpdk_device::CLASS;
    assert!(mistake(from, "").contains("PORT"));
    assert!(mistake(from, "3").contains("name the device"));
    assert!(mistake(from, "net_null90, 2").contains("StaticThreadSched"));
    assert!(mistake(from, "net_null90, BURST 0").contains("1 to 256"));
    assert!(mistake(from, "net_null90, NDESC 7").contains("32 to 32768"));
    assert!(mistake(from, "net_quux90").contains("no driver knows `net_quux`"));
    assert!(mistake(&to_dpdk_device::CLASS, "net_null90, TIMEOUT -1").contains("cannot wait for ever"));
    assert!(mistake(&from_dpdk_ring::CLASS, "1, FROM_PROC a").contains("TO_PROC"));
    assert!(mistake(&to_dpdk_ring::CLASS, "1, FROM_PROC a, TO_PROC b?").contains("no '?'"));
}

#[test]
fn a_device_of_dpdk_is_received_from_and_sent_to() {
    let config = "from :: FromDPDKDevice(\"net_null91,size=80\", BURST 8, NDESC 64)
        -> to :: ToDPDKDevice(\"net_null91,size=80\", TIMEOUT 0, BLOCKING false);
        FromDPDKDevice(net_quux91, ALLOW_NONEXISTENT true) -> Discard;
        idle :: FromDPDKDevice(net_null92, ACTIVE false) -> Discard;";
    let mut bench = Bench::try_new(&registry(), config, 8, &Shared::default()).unwrap();
    bench.run(20);
    let count = |bench: &mut Bench, name: &str| bench.read(name).parse::<u64>().unwrap();
    let received = count(&mut bench, "from.count");
    assert!(received >= 80, "{received}");
    assert_eq!(count(&mut bench, "from.byte_count"), 80 * received);
    assert_eq!(count(&mut bench, "to.count"), received);
    assert!(bench.read("from.device").contains("driver dpdk"), "{}", bench.read("from.device"));
}

#[test]
fn a_ring_of_dpdk_leads_from_graph_to_graph() {
    let config = "in :: TestInput -> to :: ToDPDKRing(1, FROM_PROC a, TO_PROC b, NDESC 100);
        from :: FromDPDKRing(1, FROM_PROC b, TO_PROC a) -> out :: TestOutput;";
    let mut bench = Bench::try_new(&registry(), config, 32, &Shared::default()).unwrap();
    let frames: Vec<Vec<u8>> = (0..50u8).map(|number| vec![number; 60 + usize::from(number)]).collect();
    let slices: Vec<&[u8]> = frames.iter().map(Vec::as_slice).collect();
    bench.push("in", &slices);
    bench.run(10);
    assert_eq!(bench.read("to.count"), "50");
    assert!(bench.taken("out") == frames);
}

#[test]
fn a_device_of_dpdk_is_steered_by_handlers() {
    let config = "from :: FromDPDKDevice(net_null94) -> Discard;";
    let mut bench = Bench::try_new(&registry(), config, 32, &Shared::default()).unwrap();
    let from = bench.graph().find("from").unwrap();
    let mut write = |name: &str, value: &str| bench.graph().write(from, name, value).unwrap();
    // With one queue the device does not hash, and says so.
    assert!(write("reta", "0-3 0").unwrap_err().contains("RSS mode isn't enabled"));
    assert!(write("reta", "0-3 1").unwrap_err().contains("a queue from 0 to 0"));
    assert!(write("reta", "5-100000 0").unwrap_err().contains("expected buckets from 0"));
    assert!(write("steer", "10.0.0.0/8 0").unwrap_err().contains("net_null94"));
    let table = bench.read("from.reta");
    assert!(table.starts_with("0-") && table.trim_end().ends_with(" 0"), "{table}");
}
