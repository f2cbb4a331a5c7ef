//! Every order of events, and every stale value that the memory model allows, in small models.
//!
//! The state is two cells whose every access loom records: it reports an edit that is not ordered after a read of the
//! same cell, whatever values were seen. Loom knows the limits of SeqCst fences and treats SeqCst accesses as AcqRel;
//! the protocol has fences only.

#![allow(clippy::unwrap_used, reason = "tests")]

use super::super::*;
use loom::cell::UnsafeCell;
use loom::model::Builder;
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
