use std::sync::Arc;

use packet::PacketType;

use super::arrival::Arrival;
use super::departure::Departure;
use super::{Ip6Check, IpCheck, Step};

fn check() -> Step {
    Step::CheckIp(IpCheck { offset: 0, checksum: true, sources: Arc::default() })
}

fn check_6() -> Step {
    Step::CheckIp6(Ip6Check { offset: 0, sources: Arc::default() })
}

fn arrives(steps: &[Step]) -> bool {
    Arrival::default().add(steps)
}

fn departs(steps: &[Step]) -> bool {
    Departure::default().add(steps)
}

fn matches(offset: usize, mask: u32, value: u32) -> Step {
    Step::Match { offset, mask, value }
}

#[test]
fn what_fits_an_arrival() {
    let ethernet = matches(12, 0xffff_0000, 0x0800_0000);
    assert!(arrives(&[ethernet.clone(), Step::SetType(PacketType::Host), Step::Strip(14), check()]));
    // Beyond the bytes that are compared.
    assert!(!arrives(&[matches(13, 0xff00_0000, 0)]));
    assert!(!arrives(&[Step::Strip(14), matches(0, 0xff00_0000, 0)]));
    // No packet is both, or one that the check would refuse.
    assert!(!arrives(&[ethernet, matches(12, 0xffff_0000, 0x0806_0000)]));
    assert!(!arrives(&[matches(14, 0xff00, 0x4600), check()].map(|step| match step {
        Step::Match { .. } => matches(12, 0xff00, 0x4600),
        Step::CheckIp(check) => Step::CheckIp(IpCheck { offset: 14, ..check }),
        other => other,
    })));
    // What is cut off by the check, or set by it.
    assert!(!arrives(&[check(), Step::AtLeast(40)]));
    assert!(!arrives(&[check(), Step::Strip(1)]));
    assert!(!arrives(&[check(), check()]));
    // Of two versions, or with an annotation that only the longer address covers.
    assert!(arrives(&[Step::Strip(14), check_6()]) && !arrives(&[check_6(), check()]));
    assert!(!arrives(&[Step::Strip(12), matches(0, 0xffff_f000, 0x0800_4000), Step::Strip(2), check_6()]));
    assert!(!arrives(&[Step::SetAnnotation { place: 15, value: 1 }, check_6()]));
    assert!(!arrives(&[Step::SetAnnotation { place: 3, value: 1 }]));
    // Two bytes of the annotations.
    let paint = |place| Step::SetAnnotation { place, value: 1 };
    assert!(arrives(&[paint(16), paint(16)]) && !arrives(&[paint(16), paint(17)]));
    assert!(!arrives(&[Step::DecrementTtl]));
}

#[test]
fn what_fits_a_departure() {
    let tee = Step::AnnotationIsNot { place: 16, value: 1 };
    assert!(departs(&[
        Step::NotBroadcast,
        tee.clone(),
        Step::NoOptions,
        Step::SourceStays,
        Step::DecrementTtl
    ]));
    assert!(departs(&[Step::AtMost(1500), Step::Finish]));
    assert!(!departs(&[tee.clone(), tee.clone()]));
    assert!(!departs(&[Step::DecrementTtl, Step::DecrementTtl]));
    assert!(departs(&[tee, Step::MayLeaveLink, Step::DecrementHopLimit, Step::AtMost(1500), Step::Finish]));
    assert!(!departs(&[Step::DecrementHopLimit, Step::DecrementTtl]));
    assert!(!departs(&[Step::NoOptions, Step::MayLeaveLink]));
    assert!(!departs(&[Step::Finish, Step::NotBroadcast]));
    assert!(!departs(&[Step::Strip(1)]));
}
