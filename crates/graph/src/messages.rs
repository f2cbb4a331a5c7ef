//! What goes to standard error and standard output, so that no reader of them stops a worker or ends the router.
//!
//! Nothing here panics: a closed pipe and a full disk are the reader's affair. Two ways to write:
//!
//! - **At once**, which is how a program begins, and how `brickway click` stays: complete, in order, as fast as the reader.
//! - **Queued** ([`queue`]), for a router with workers. A message waits in a bounded queue for a thread that writes; when the
//!   queue is full the message is lost and counted ([`lost`]). The same text goes out [`MOST_ALIKE`] times a second; then
//!   one line says how many more there were.

use std::backtrace::{Backtrace, BacktraceStatus};
use std::collections::HashMap;
use std::fs::File;
use std::hash::Hash;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, TrySendError, channel, sync_channel};
use std::time::{Duration, Instant};

/// Messages that may wait for the thread that writes.
const QUEUE: usize = 1_024;

/// Messages of the same text that are written in a [`PERIOD`].
pub const MOST_ALIKE: u64 = 10;

/// The time for which messages of the same text are counted.
pub const PERIOD: Duration = Duration::from_secs(1);

/// Texts that are counted in a period; messages of others are written as they come.
const MOST_TEXTS: usize = 256;

/// How long [`Queued`] waits at its end until all is written.
const LONGEST_FLUSH: Duration = Duration::from_secs(2);

/// Standard error.
static ERRORS: Stream = Stream::new();
/// Standard output.
static OUTPUT: Stream = Stream::new();

/// Writes a line to standard error.
pub fn print(line: &str) {
    match ERRORS.queue() {
        Some(queue) => ERRORS.put(queue, Item::Line(line.to_owned())),
        // Nobody reads it; there is nowhere to say so.
        None => drop(io::stderr().write_all(format!("{line}\n").as_bytes())),
    }
}

/// Reports a warning: to the log of a program that has one (`tracing`), else as [`print`] does.
pub fn warn(text: &str) {
    if tracing::dispatcher::has_been_set() {
        tracing::warn!("{text}");
    } else {
        print(&format!("warning: {text}"));
    }
}

/// Reports good news, in the way of [`warn`].
pub fn tell(text: &str) {
    if tracing::dispatcher::has_been_set() {
        tracing::info!("{text}");
    } else {
        print(text);
    }
}

/// Writes a line to standard error as [`print`] does; arguments are those of `format!`.
#[macro_export]
macro_rules! note {
    ($($argument:tt)*) => { $crate::messages::print(&format!($($argument)*)) };
}

/// Returns whether a character is shown as one, and moves no others.
pub fn is_printable(char: char) -> bool {
    !char.is_control()
        && !matches!(char, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Returns a text of several lines in which what is not printable is replaced.
pub fn printable_lines(text: &str) -> String {
    let is_shown = |char| is_printable(char) || char == '\n' || char == '\t';
    text.chars().map(|char| if is_shown(char) { char } else { char::REPLACEMENT_CHARACTER }).collect()
}

/// Writes text to standard error as it is, such as a line that is written over.
pub fn print_as_it_is(text: &str) {
    match ERRORS.queue() {
        Some(queue) => ERRORS.put(queue, Item::Bytes(text.as_bytes().to_vec())),
        None => {
            let mut stderr = io::stderr().lock();
            // As above.
            drop(stderr.write_all(text.as_bytes()).and_then(|()| stderr.flush()));
        }
    }
}

/// Standard output, for elements that print there.
#[derive(Clone, Copy, Debug, Default)]
pub struct Output;

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match OUTPUT.queue() {
            Some(queue) => {
                OUTPUT.put(queue, Item::Bytes(bytes.to_vec()));
                Ok(bytes.len())
            }
            None => io::stdout().write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        if OUTPUT.queue().is_some() { Ok(()) } else { io::stdout().flush() }
    }
}

/// Messages that were lost because the queue was full.
pub fn lost() -> u64 {
    ERRORS.lost.load(Ordering::Relaxed) + OUTPUT.lost.load(Ordering::Relaxed)
}

/// Has all messages of this process queued from now on, those of panics too, until the guard is dropped.
///
/// # Errors
///
/// There is no thread or no descriptor to be had.
pub fn queue() -> io::Result<Queued> {
    // Descriptors of our own: a thread that waits for a reader must not hold the locks of the standard library's.
    ERRORS.begin("messages", || io::stderr().as_fd().try_clone_to_owned().map(File::from))?;
    OUTPUT.begin("output", || io::stdout().as_fd().try_clone_to_owned().map(File::from))?;
    std::panic::set_hook(Box::new(|panic| {
        let thread = std::thread::current();
        let name = thread.name().unwrap_or("without a name");
        // Empty unless RUST_BACKTRACE asks for it.
        let backtrace = Backtrace::capture();
        let backtrace = match backtrace.status() {
            BacktraceStatus::Captured => format!("\n{backtrace}"),
            _ => String::new(),
        };
        print(&format!("thread '{name}' {panic}{backtrace}"));
    }));
    Ok(Queued(()))
}

/// While this is there, messages are queued. Dropping it waits until all are written, but not for a reader that reads nothing.
#[derive(Debug)]
pub struct Queued(());

impl Queued {
    /// Waits until what was printed so far is written, for at most `limit`; returns whether it is.
    pub fn flush(&self, limit: Duration) -> bool {
        flush(limit)
    }
}

/// As [`Queued::flush`], for a thread that ends the process.
pub fn flush(limit: Duration) -> bool {
    let deadline = Instant::now() + limit;
    let is_written = [&ERRORS, &OUTPUT].map(|stream| stream.flush(deadline));
    is_written == [true, true]
}

impl Drop for Queued {
    fn drop(&mut self) {
        let deadline = Instant::now() + LONGEST_FLUSH;
        for stream in [&ERRORS, &OUTPUT] {
            // Where the reader hangs, what comes later would hang too: it stays in the queue, as far as there is room.
            if stream.flush(deadline) {
                stream.is_queued.store(false, Ordering::Release);
            }
        }
    }
}

/// What waits to be written.
#[derive(Debug)]
enum Item {
    Line(String),
    Bytes(Vec<u8>),
    /// All before it is written.
    Flushed(Sender<()>),
}

/// One of the process's two outputs.
struct Stream {
    is_queued: AtomicBool,
    queue: OnceLock<SyncSender<Item>>,
    lost: AtomicU64,
}

impl Stream {
    const fn new() -> Self {
        Self { is_queued: AtomicBool::new(false), queue: OnceLock::new(), lost: AtomicU64::new(0) }
    }

    fn begin(&'static self, name: &str, target: fn() -> io::Result<File>) -> io::Result<()> {
        if self.queue.get().is_none() {
            let (sender, receiver) = sync_channel(QUEUE);
            let target = target()?;
            let work = move || Writer::new(target, &self.lost).work(&receiver);
            std::thread::Builder::new().name(name.to_owned()).spawn(work)?;
            // Of two that begin at the same time one thread ends at once, with its queue.
            let _ = self.queue.set(sender);
        }
        self.is_queued.store(true, Ordering::Release);
        Ok(())
    }

    fn queue(&self) -> Option<&SyncSender<Item>> {
        if self.is_queued.load(Ordering::Acquire) { self.queue.get() } else { None }
    }

    fn put(&self, queue: &SyncSender<Item>, item: Item) {
        if queue.try_send(item).is_err() {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn flush(&self, deadline: Instant) -> bool {
        let Some(queue) = self.queue() else { return true };
        let (sender, receiver) = channel();
        let mut item = Item::Flushed(sender);
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match queue.try_send(item) {
                Ok(()) => return receiver.recv_timeout(left).is_ok(),
                Err(TrySendError::Full(back)) if !left.is_zero() => item = back,
                Err(_) => return false,
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Counts messages that are alike in a period of a second, so that of a flood [`MOST_ALIKE`] are let through.
#[derive(Debug)]
pub struct Alike<K>(HashMap<K, u64>);

impl<K> Default for Alike<K> {
    fn default() -> Self {
        Self(HashMap::new())
    }
}

impl<K: Clone + Eq + Hash> Alike<K> {
    /// Returns whether nothing was counted in this period.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Counts a message, and returns whether it may go out.
    pub fn admits(&mut self, message: &K) -> bool {
        match self.0.get_mut(message) {
            Some(count) => {
                *count += 1;
                *count <= MOST_ALIKE
            }
            None => {
                if self.0.len() < MOST_TEXTS {
                    self.0.insert(message.clone(), 1);
                }
                true
            }
        }
    }

    /// Ends the period, and returns the messages that did not go out, with how many there were of each.
    pub fn end(&mut self) -> Vec<(K, u64)> {
        let all = std::mem::take(&mut self.0).into_iter();
        all.filter(|(_, count)| *count > MOST_ALIKE).map(|(text, count)| (text, count - MOST_ALIKE)).collect()
    }
}

/// The thread that writes.
struct Writer<'a, W> {
    target: W,
    lost: &'a AtomicU64,
    /// Of them those that were reported.
    reported: u64,
    texts: Alike<String>,
}

impl<'a, W: Write> Writer<'a, W> {
    fn new(target: W, lost: &'a AtomicU64) -> Self {
        Self { target, lost, reported: lost.load(Ordering::Relaxed), texts: Alike::default() }
    }

    /// Writes what comes, until nothing can come any more.
    fn work(mut self, queue: &Receiver<Item>) {
        let mut ends = Instant::now() + PERIOD;
        loop {
            // With nothing counted there is no end of a period to wait for.
            let item = match self.texts.is_empty() {
                true => queue.recv().map_err(|_| RecvTimeoutError::Disconnected),
                false => queue.recv_timeout(ends.saturating_duration_since(Instant::now())),
            };
            if Instant::now() >= ends {
                self.end_period();
                ends = Instant::now() + PERIOD;
            }
            match item {
                Ok(Item::Line(line)) => self.line(line),
                Ok(Item::Bytes(bytes)) => self.write(&bytes),
                Ok(Item::Flushed(done)) => {
                    self.end_period();
                    // Whoever waited may have given up.
                    let _ = done.send(());
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return self.end_period(),
            }
        }
    }

    fn line(&mut self, line: String) {
        if self.texts.admits(&line) {
            self.write(format!("{line}\n").as_bytes());
        }
    }

    /// Says what was left out, and begins to count anew.
    fn end_period(&mut self) {
        for (text, more) in self.texts.end() {
            self.write(format!("{text} ({more} more)\n").as_bytes());
        }
        let lost = self.lost.load(Ordering::Relaxed);
        if lost > self.reported {
            let more = lost - self.reported;
            self.reported = lost;
            self.write(
                format!("{more} messages were lost: they came faster than they were read\n").as_bytes(),
            );
        }
    }

    fn write(&mut self, bytes: &[u8]) {
        // A closed pipe, a full disk: messages are lost then, and nothing else.
        drop(self.target.write_all(bytes).and_then(|()| self.target.flush()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a writer makes of these items.
    fn written(items: Vec<Item>, lost: &AtomicU64) -> String {
        let mut target = Vec::new();
        let (sender, receiver) = channel();
        items.into_iter().for_each(|item| sender.send(item).unwrap());
        drop(sender);
        Writer { reported: 0, ..Writer::new(&mut target, lost) }.work(&receiver);
        String::from_utf8(target).unwrap()
    }

    #[test]
    fn the_same_text_is_written_ten_times_and_then_counted() {
        let mut items: Vec<Item> = (0..35).map(|_| Item::Line("bad checksum".to_owned())).collect();
        items.insert(20, Item::Line("another".to_owned()));
        let text = written(items, &AtomicU64::new(0));
        assert_eq!(text.matches("bad checksum\n").count(), 10);
        assert_eq!(text.matches("another\n").count(), 1);
        assert!(text.ends_with("bad checksum (25 more)\n"), "{text}");
    }

    #[test]
    fn different_texts_all_go_out_in_order() {
        let items = (0..600).map(|number| Item::Line(format!("{number}"))).collect();
        let expected: String = (0..600).map(|number| format!("{number}\n")).collect();
        assert_eq!(written(items, &AtomicU64::new(0)), expected);
    }

    #[test]
    fn lost_messages_are_reported() {
        let text = written(vec![Item::Bytes(b"rates\r".to_vec())], &AtomicU64::new(3));
        assert_eq!(text, "rates\r3 messages were lost: they came faster than they were read\n");
    }

    /// A reader that went away, or a disk that is full.
    struct Refuses;

    impl Write for Refuses {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::ErrorKind::BrokenPipe.into())
        }

        fn flush(&mut self) -> io::Result<()> {
            Err(io::ErrorKind::StorageFull.into())
        }
    }

    #[test]
    fn a_reader_that_went_away_does_not_end_the_writer() {
        let (sender, receiver) = sync_channel(4);
        let thread = std::thread::spawn(move || Writer::new(Refuses, &AtomicU64::new(0)).work(&receiver));
        let (done, is_done) = channel();
        sender.send(Item::Line("lost".to_owned())).unwrap();
        sender.send(Item::Flushed(done)).unwrap();
        is_done.recv_timeout(Duration::from_secs(60)).unwrap();
        drop(sender);
        thread.join().unwrap();
    }

    #[test]
    fn a_full_queue_loses_messages_and_never_waits() {
        let stream = Stream::new();
        let (sender, receiver) = sync_channel(2);
        stream.queue.set(sender).unwrap();
        stream.is_queued.store(true, Ordering::Release);
        let queue = stream.queue().unwrap();
        (0..5).for_each(|_| stream.put(queue, Item::Line("x".to_owned())));
        assert_eq!(stream.lost.load(Ordering::Relaxed), 3);
        assert!(!stream.flush(Instant::now() + Duration::from_millis(5)));
        drop(receiver);
    }
}
