//! What readers and writer are promised, step by step in one thread.

use super::super::*;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;

/// Each test runs with both kinds of barrier.
fn pairs(state: u64) -> [(Writer<u64>, Readers<u64>); 2] {
    [pair(state, state), pair_with_fences(state, state)]
}

#[test]
fn membarrier_is_used_where_the_system_has_it_and_fences_can_be_asked_for() {
    #[cfg(target_os = "linux")]
    let offered =
        rustix::thread::membarrier_query().contains(rustix::thread::MembarrierQuery::PRIVATE_EXPEDITED);
    #[cfg(not(target_os = "linux"))]
    let offered = false;
    assert_eq!(pair((), ()).0.uses_membarrier(), offered);
    assert!(!pair_with_fences((), ()).0.uses_membarrier());
}

#[test]
fn a_guard_keeps_its_copy_and_the_next_one_sees_the_new() {
    for (mut writer, readers) in pairs(1) {
        let (mut early, mut late) = (readers.register(), readers.register());
        let guard = early.enter();
        *writer.both().0 = 2;
        assert_eq!((*guard, *writer.active()), (1, 1));
        writer.flip();
        assert_eq!((*guard, guard.generation()), (1, 0));
        let new = late.enter();
        assert_eq!((*new, new.generation()), (2, 1));
        drop(new);
        assert_eq!((*writer.active(), writer.generation()), (2, 1));
        assert!(!writer.settle_within(Duration::ZERO));
        assert!(!writer.settle_within(Duration::from_millis(2)), "the guard is there yet");
        drop(guard);
        assert!(writer.settle_within(Duration::ZERO));
        assert_eq!(writer.both(), (&mut 1, &2));
    }
}

#[test]
fn readers_in_the_new_copy_delay_nobody() {
    for (mut writer, readers) in pairs(1) {
        let mut reader = readers.register();
        writer.flip();
        assert!(writer.settle_within(Duration::ZERO));
        let guard = reader.enter();
        assert_eq!(*writer.both().0, 1);
        drop(guard);
    }
}

#[test]
fn a_reader_that_left_and_came_back_is_not_waited_for() {
    for (mut writer, readers) in pairs(1) {
        let mut reader = readers.register();
        let old = reader.enter();
        writer.flip();
        assert!(!writer.settle_within(Duration::ZERO));
        drop(old);
        let _new = reader.enter();
        assert!(writer.settle_within(Duration::ZERO));
    }
}

#[test]
fn two_flips_wait_for_both_copies() {
    for (mut writer, readers) in pairs(1) {
        let (mut first, mut second) = (readers.register(), readers.register());
        let in_the_first = first.enter();
        writer.flip();
        let in_the_second = second.enter();
        writer.flip();
        drop(in_the_first);
        assert!(!writer.settle_within(Duration::ZERO));
        drop(in_the_second);
        assert!(writer.settle_within(Duration::ZERO));
    }
}

#[test]
fn a_forgotten_guard_is_over_with_the_next_visit_or_the_reader() {
    for (mut writer, readers) in pairs(1) {
        let mut reader = readers.register();
        std::mem::forget(reader.enter());
        writer.flip();
        assert!(!writer.settle_within(Duration::ZERO), "nobody can know that it was forgotten");
        std::mem::forget(reader.enter());
        assert!(writer.settle_within(Duration::ZERO));
        writer.flip();
        assert!(!writer.settle_within(Duration::ZERO));
        drop(reader);
        assert!(writer.settle_within(Duration::ZERO));
    }
}

#[test]
fn a_panic_inside_leaves() {
    for (mut writer, readers) in pairs(1) {
        let mut reader = readers.register();
        let caught = catch_unwind(AssertUnwindSafe(|| {
            let _guard = reader.enter();
            panic!("a worker's bug, on purpose");
        }));
        assert!(caught.is_err());
        writer.publish();
        assert_eq!(*reader.enter(), 1);
    }
}

#[test]
fn a_guard_may_be_held_while_readers_come_and_go() {
    for (mut writer, readers) in pairs(1) {
        let mut reader = readers.register();
        let guard = reader.enter();
        thread::scope(|scope| {
            let publishing = scope.spawn(|| writer.publish());
            // The writer flips and waits for `guard`; the list of readers is free all the same.
            while readers.register().enter().generation() == 0 {
                thread::yield_now();
            }
            assert!(!publishing.is_finished());
            drop(guard);
        });
        assert_eq!(readers.shared.slots().len(), 1);
    }
}

#[test]
fn the_states_go_with_the_last_of_writer_and_readers() {
    let left = std::sync::Arc::new(());
    let (writer, readers) = pair(left.clone(), left.clone());
    let reader = readers.register();
    let more = readers.clone();
    drop(writer);
    drop(readers);
    drop(more);
    assert_eq!(std::sync::Arc::strong_count(&left), 3);
    drop(reader);
    assert_eq!(std::sync::Arc::strong_count(&left), 1);
}

#[test]
fn writer_and_readers_travel_between_threads() {
    fn travels<T: Send>() {}
    fn is_shared<T: Sync>() {}
    travels::<Writer<Vec<u64>>>();
    travels::<Reader<Vec<u64>>>();
    travels::<Readers<Vec<u64>>>();
    is_shared::<Readers<Vec<u64>>>();
}
