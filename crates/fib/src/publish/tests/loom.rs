//! Every order of events, and every stale value that the memory model allows, in small models.
//!
//! The state is two cells whose every access loom records: it reports an edit that is not ordered after a read of the
//! same cell, whatever values were seen. Loom knows the limits of SeqCst fences and treats SeqCst accesses as AcqRel;
//! the protocol has fences only.

#![allow(clippy::unwrap_used, reason = "tests")]

use super::super::*;
use loom::cell::UnsafeCell;
use loom::model::Builder;
use loom::sync::atomic::fence;
use loom::thread;

/// Two cells that are equal whenever they are published.
struct Twins(UnsafeCell<u64>, UnsafeCell<u64>);

// SAFETY: loom reports every access to the cells that races with another; to find these is what the models are for.
#[allow(unsafe_code, reason = "loom's cells are not Sync")]
unsafe impl Sync for Twins {}

#[allow(unsafe_code, reason = "cells are read and written through pointers")]
impl Twins {
    fn new() -> Twins {
        Twins(UnsafeCell::new(0), UnsafeCell::new(0))
    }

    fn write(&mut self, value: u64) {
        // SAFETY: `&mut self`.
        self.0.with_mut(|cell| unsafe { *cell = value });
        // SAFETY: `&mut self`.
        self.1.with_mut(|cell| unsafe { *cell = value });
    }

    fn read(&self) -> (u64, u64) {
        // SAFETY: loom checks that nobody writes meanwhile.
        (self.0.with(|cell| unsafe { *cell }), self.1.with(|cell| unsafe { *cell }))
    }
}

fn publish(writer: &mut Writer<Twins>) {
    let next = writer.generation() + 1;
    writer.both().0.write(next);
    writer.publish();
}

fn visit(reader: &mut Reader<Twins>) -> u64 {
    let state = reader.enter();
    let generation = state.generation();
    assert_eq!(state.read(), (generation, generation));
    generation
}

/// What a program in the kernel and the writer have in common, for one processor.
struct Elsewhere {
    active: AtomicU64,
    slot: AtomicU64,
}

impl super::super::Elsewhere for Elsewhere {
    fn flip(&self, generation: u64) {
        self.active.store(generation, Ordering::Release);
    }

    fn slots(&self) -> usize {
        1
    }

    fn visit(&self, _slot: usize) -> u64 {
        self.slot.load(Ordering::Acquire)
    }
}

impl Elsewhere {
    /// Has no active copy yet.
    fn new() -> std::sync::Arc<Self> {
        std::sync::Arc::new(Self { active: AtomicU64::new(u64::MAX), slot: AtomicU64::new(0) })
    }

    /// Visits as `crates/ports/bpf/tables.h` does; returns the generation, if the slot was free and there is a copy.
    fn visit_once(&self, shared: &Shared<Twins>) -> Option<u64> {
        self.announce().then(|| self.read_and_leave(shared))?
    }

    fn announce(&self) -> bool {
        let before = self.slot.load(Ordering::Relaxed);
        let (success, failure) = (Ordering::AcqRel, Ordering::Relaxed);
        let is_free = before.is_multiple_of(2)
            && self.slot.compare_exchange(before, before + 1, success, failure).is_ok();
        fence(Ordering::SeqCst);
        is_free
    }

    fn read_and_leave(&self, shared: &Shared<Twins>) -> Option<u64> {
        let generation = Some(self.active.load(Ordering::Acquire)).filter(|&active| active != u64::MAX);
        if let Some(generation) = generation {
            #[allow(unsafe_code, reason = "the copy is behind a pointer")]
            // SAFETY: loom reports a copy that is written meanwhile.
            let state = unsafe { shared.copy(generation).as_ref() };
            assert_eq!(state.read(), (generation, generation));
        }
        self.slot.fetch_add(1, Ordering::AcqRel);
        generation
    }
}

/// Has `program` read too, from a publication on.
fn share(writer: &mut Writer<Twins>, program: &std::sync::Arc<Elsewhere>, exchange: impl FnOnce()) {
    let next = writer.generation() + 1;
    writer.both().0.write(next);
    writer.exchange_elsewhere(Some(program.clone()), exchange);
}

/// Runs `model` in every order, or with at most `preemptions` where there are too many.
fn check(preemptions: Option<usize>, model: impl Fn(Writer<Twins>, Readers<Twins>) + Sync + Send + 'static) {
    let mut builder = Builder::new();
    builder.preemption_bound = preemptions;
    builder.check(move || {
        let (writer, readers) = pair(Twins::new(), Twins::new());
        model(writer, readers);
    });
}

#[test]
fn loom_one_reader_two_visits_three_publications() {
    check(Some(3), |mut writer, readers| {
        let mut reader = readers.register();
        let reading = thread::spawn(move || {
            let first = visit(&mut reader);
            assert!(visit(&mut reader) >= first);
        });
        for _ in 0..3 {
            publish(&mut writer);
        }
        reading.join().unwrap();
    });
}

#[test]
fn loom_two_readers_two_publications() {
    check(Some(3), |mut writer, readers| {
        let reading = [0, 1].map(|_| {
            let mut reader = readers.register();
            thread::spawn(move || visit(&mut reader))
        });
        publish(&mut writer);
        publish(&mut writer);
        for thread in reading {
            thread.join().unwrap();
        }
        writer.both().0.write(9);
    });
}

#[test]
fn loom_a_reader_that_visits_often() {
    check(Some(3), |mut writer, readers| {
        let mut reader = readers.register();
        let reading = thread::spawn(move || {
            for _ in 0..3 {
                visit(&mut reader);
            }
        });
        publish(&mut writer);
        writer.both().0.write(2);
        reading.join().unwrap();
    });
}

#[test]
fn loom_a_reader_registers_visits_and_goes_while_the_writer_publishes() {
    check(None, |mut writer, readers| {
        let reading = thread::spawn(move || {
            let mut reader = readers.register();
            visit(&mut reader);
        });
        publish(&mut writer);
        publish(&mut writer);
        reading.join().unwrap();
    });
}

#[test]
fn loom_flips_without_waiting_and_a_forgotten_guard() {
    check(Some(4), |mut writer, readers| {
        let mut reader = readers.register();
        let reading = thread::spawn(move || {
            std::mem::forget(reader.enter());
            let state = reader.enter();
            let (left, right) = state.read();
            assert_eq!(left, right);
        });
        writer.both().0.write(1);
        writer.flip();
        writer.flip();
        writer.flip();
        writer.both().0.write(4);
        reading.join().unwrap();
    });
}

#[test]
fn loom_a_reader_elsewhere_and_one_here_two_publications() {
    check(Some(3), |mut writer, readers| {
        let program = Elsewhere::new();
        share(&mut writer, &program, || ());
        let shared = readers.shared.clone();
        let mut reader = readers.register();
        let elsewhere = thread::spawn(move || program.visit_once(&shared).unwrap());
        let here = thread::spawn(move || visit(&mut reader));
        publish(&mut writer);
        publish(&mut writer);
        assert!(elsewhere.join().unwrap() >= 1);
        here.join().unwrap();
    });
}

#[test]
fn loom_a_reader_elsewhere_that_visits_often_three_publications() {
    check(Some(4), |mut writer, readers| {
        let program = Elsewhere::new();
        share(&mut writer, &program, || ());
        let shared = readers.shared.clone();
        let elsewhere = thread::spawn(move || {
            let visits = [0; 3].map(|_| program.visit_once(&shared).unwrap());
            assert!(visits.is_sorted());
        });
        for _ in 0..3 {
            publish(&mut writer);
        }
        elsewhere.join().unwrap();
    });
}

/// As on a kernel for real time, where one program on a processor may be in the middle of another's visit.
#[test]
fn loom_two_readers_elsewhere_with_one_slot() {
    check(Some(3), |mut writer, readers| {
        let program = Elsewhere::new();
        share(&mut writer, &program, || ());
        let threads = [0; 2].map(|_| {
            let (program, shared) = (program.clone(), readers.shared.clone());
            thread::spawn(move || program.visit_once(&shared))
        });
        publish(&mut writer);
        publish(&mut writer);
        let visits = threads.map(|thread| thread.join().unwrap());
        assert!(visits.iter().flatten().count() > 0);
    });
}

/// `exchange` waits until nobody can enter by the old program, and not for those inside.
#[test]
fn loom_readers_elsewhere_are_exchanged_between_publications() {
    check(Some(3), |mut writer, readers| {
        let programs = [Elsewhere::new(), Elsewhere::new()];
        share(&mut writer, &programs[0], || ());
        let attached = Arc::new(Mutex::new(0));
        let elsewhere = {
            let (programs, attached, shared) = (programs.clone(), attached.clone(), readers.shared.clone());
            thread::spawn(move || {
                for _ in 0..2 {
                    let attached = attached.lock().unwrap();
                    let program = &programs[*attached];
                    assert!(program.announce());
                    drop(attached);
                    program.read_and_leave(&shared).unwrap();
                }
            })
        };
        publish(&mut writer);
        share(&mut writer, &programs[1], || *attached.lock().unwrap() = 1);
        publish(&mut writer);
        let next = writer.generation() + 1;
        elsewhere.join().unwrap();
        writer.both().0.write(next);
    });
}
