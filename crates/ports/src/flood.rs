//! Frames that the kernel makes, sends and counts, some million a second from a core: for measurements, where sockets are too slow.
//!
//! The program `bpf/flood.c` runs on frames which the kernel then really sends (`BPF_F_TEST_XDP_LIVE_FRAMES`, Linux 5.18).
//! Another one counts those that come back and drops them; it goes with the process.

use std::io;
use std::sync::Once;
use std::sync::atomic::{AtomicI32, Ordering};

use aya::maps::{Array, MapData, PerCpuArray};
use aya::programs::{TestRun, TestRunAttrs, TestRunOptions, Xdp, XdpMode};
use aya::{Ebpf, Pod, include_bytes_aligned};

use crate::bpf::{loader, map_error, refusal, verify};
use crate::error::missing_resource;

static OBJECT: &[u8] = include_bytes_aligned!(concat!(env!("OUT_DIR"), "/flood.o"));

/// As in `bpf/flood.c`.
const MOST_HEAD: usize = 92;
/// Frames that the kernel makes at a time.
const BATCH: u32 = 64;
/// Runs of the program in a call of the kernel: more than there is time for. Each call costs tens of milliseconds at its end.
const RUNS: u32 = 1 << 31;
/// Interrupts a call.
const STOP: i32 = libc::SIGUSR1;

/// A frame to send.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct FloodFrame {
    head: [u8; MOST_HEAD],
    length: u32,
}

// SAFETY: bytes and a number, of which all bit patterns are values.
#[allow(unsafe_code, reason = "an unsafe trait")]
unsafe impl Pod for FloodFrame {}

impl FloodFrame {
    /// A frame, without FCS, of at least 60 bytes, of which those behind the 92nd are zero.
    pub fn new(frame: &[u8]) -> Self {
        let mut head = [0; MOST_HEAD];
        let length = frame.len().min(MOST_HEAD);
        head[..length].copy_from_slice(&frame[..length]);
        Self { head, length: frame.len() as u32 }
    }
}

/// What is to be sent and counted.
#[derive(Clone, Copy, Debug)]
pub struct FloodOrders {
    /// Frames to send in all.
    pub limit: u64,
    /// How long a frame takes, beside its bytes; with no time for these either, sending is as fast as can be.
    pub frame_ns: f64,
    /// How long each of its bytes takes, FCS not counted.
    pub byte_ns: f64,
    /// The first bytes of the UDP, TCP or ICMP payload, by which frames are known that come back.
    pub signature: [u8; 4],
}

/// What was sent and came back. Bytes are without FCS.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FloodCounts {
    /// Frames that were sent.
    pub sent: u64,
    /// Their bytes.
    pub sent_bytes: u64,
    /// Frames that came back.
    pub received: u64,
    /// Their bytes.
    pub received_bytes: u64,
}

/// `struct orders` of the program.
#[derive(Clone, Copy)]
#[repr(C)]
struct Orders {
    limit: u64,
    frame_time: u64,
    byte_time: u64,
    interface: u32,
    frames: u32,
    longest: u32,
    signature: [u8; 4],
}

/// `struct sent` of the program.
#[derive(Clone, Copy, Default)]
#[repr(C)]
struct Sent {
    frames: u64,
    bytes: u64,
    due: u64,
    place: u32,
    unused: u32,
}

/// `struct received` of the program.
#[derive(Clone, Copy, Default)]
#[repr(C)]
struct Received {
    frames: u64,
    bytes: u64,
}

// SAFETY: numbers, of which all bit patterns are values.
#[allow(unsafe_code, reason = "an unsafe trait")]
unsafe impl Pod for Orders {}
// SAFETY: as above.
#[allow(unsafe_code, reason = "an unsafe trait")]
unsafe impl Pod for Sent {}
// SAFETY: as above.
#[allow(unsafe_code, reason = "an unsafe trait")]
unsafe impl Pod for Received {}

/// The programs, their input and their counters.
pub struct Flood {
    interface: u32,
    most_frames: u32,
    orders: Array<MapData, Orders>,
    frames: Array<MapData, FloodFrame>,
    sent: Array<MapData, Sent>,
    received: PerCpuArray<MapData, Received>,
}

/// The program that sends, for a thread of its own. What counts goes with it.
pub struct FloodSender {
    object: Ebpf,
    /// The number of the thread that is sending; 0 if none is.
    thread: AtomicI32,
}

fn refused(error: &(dyn std::error::Error + 'static)) -> io::Error {
    let (errno, reason) = refusal(error);
    io::Error::other(match errno {
        Some(libc::EPERM) => "not permitted; run as root, or give CAP_BPF and CAP_NET_ADMIN".into(),
        Some(libc::EBUSY) => "another XDP program is on the interface".into(),
        _ => missing_resource(errno).unwrap_or_else(|| {
            format!("the kernel refused a program ({reason}); expected Linux 5.18 or newer")
        }),
    })
}

impl Flood {
    /// Loads the programs, to send by the interface `tx`, at most `most_frames` different frames, and counts what comes back by `rx`.
    ///
    /// # Errors
    ///
    /// The kernel refuses a program, or another one is on the interface.
    pub fn load(tx: u32, rx: Option<u32>, most_frames: u32) -> io::Result<(Self, FloodSender)> {
        let mut loader = loader();
        loader.map_max_entries("FRAMES", most_frames);
        let mut object = loader.load(OBJECT).map_err(|error| refused(&error))?;
        verify(|| program(&mut object, "send").load()).map_err(|error| refused(&error))?;
        if let Some(rx) = rx {
            let count = program(&mut object, "count");
            verify(|| count.load()).map_err(|error| refused(&error))?;
            count.attach_to_if_index(rx, XdpMode::default()).map_err(|error| refused(&error))?;
        }
        let mut take = |name: &str| object.take_map(name).expect("the object has this map");
        let (orders, frames, sent, received) =
            (take("ORDERS"), take("FRAMES"), take("SENT"), take("RECEIVED"));
        let wrong = |error| refused(&error);
        let flood = Self {
            interface: tx,
            most_frames,
            orders: orders.try_into().map_err(wrong)?,
            frames: frames.try_into().map_err(wrong)?,
            sent: sent.try_into().map_err(wrong)?,
            received: received.try_into().map_err(wrong)?,
        };
        Ok((flood, FloodSender { object, thread: AtomicI32::new(0) }))
    }

    /// Has the programs send these frames in turns, and count from zero.
    ///
    /// # Errors
    ///
    /// More frames than the programs were loaded for.
    pub fn begin(&mut self, frames: &[FloodFrame], orders: &FloodOrders) -> io::Result<()> {
        let count = u32::try_from(frames.len()).ok().filter(|count| (1..=self.most_frames).contains(count));
        let count = count.ok_or_else(|| io::Error::other(format!("1 to {} frames", self.most_frames)))?;
        for (place, frame) in (0..).zip(frames) {
            self.frames.set(place, frame, 0).map_err(map_error)?;
        }
        self.sent.set(0, Sent::default(), 0).map_err(map_error)?;
        let processors = aya::util::nr_cpus().map_err(|(_, error)| error)?;
        let zeros = aya::maps::PerCpuValues::try_from(vec![Received::default(); processors])?;
        self.received.set(0, zeros, 0).map_err(map_error)?;
        let orders = Orders {
            limit: orders.limit,
            frame_time: (orders.frame_ns * 1024.0) as u64,
            byte_time: (orders.byte_ns * 1024.0) as u64,
            interface: self.interface,
            frames: count,
            longest: frames.iter().map(|frame| frame.length).max().unwrap_or(0),
            signature: orders.signature,
        };
        self.orders.set(0, orders, 0).map_err(map_error)
    }

    /// Returns what was sent and came back since it began.
    ///
    /// # Errors
    ///
    /// None is expected.
    pub fn counts(&self) -> io::Result<FloodCounts> {
        let sent = self.sent.get(&0, 0).map_err(map_error)?;
        let received = self.received.get(&0, 0).map_err(map_error)?;
        let sum = |number: fn(&Received) -> u64| received.iter().map(number).sum();
        Ok(FloodCounts {
            sent: sent.frames,
            sent_bytes: sent.bytes,
            received: sum(|each| each.frames),
            received_bytes: sum(|each| each.bytes),
        })
    }
}

impl FloodSender {
    /// Sends frames of at most `longest` bytes until [`FloodSender::interrupt`]; when all are sent it goes on for nothing.
    ///
    /// # Errors
    ///
    /// The kernel has no such runs, or not for frames of this length.
    pub fn send(&self, longest: usize) -> io::Result<()> {
        catch_stop();
        let program = self.object.program("send").expect("the object has this program");
        let program: &Xdp = program.try_into().expect("it is an XDP program");
        let frame = vec![0; longest];
        let attrs = TestRunAttrs::new().xdp_live_frames(BATCH);
        let options = TestRunOptions { data_in: Some(&frame), repeat: RUNS, attrs, ..TestRunOptions::new() };
        self.thread.store(rustix::thread::gettid().as_raw_nonzero().get(), Ordering::SeqCst);
        let ran = program.test_run(options);
        self.thread.store(0, Ordering::SeqCst);
        match ran {
            Err(error) if refusal(&error).0 == Some(libc::EINTR) => Ok(()),
            ran => ran.map(drop).map_err(|error| refused(&error)),
        }
    }

    /// Interrupts the thread that is sending, if one is. It may have to be interrupted again, if it was not in the kernel yet.
    pub fn interrupt(&self) {
        let process = rustix::process::getpid().as_raw_nonzero().get();
        let thread = self.thread.load(Ordering::SeqCst);
        if thread != 0 {
            #[allow(unsafe_code, reason = "a system call for which there is no function")]
            // SAFETY: it takes three numbers. The handler does nothing, whichever thread of this process has the number by now.
            unsafe {
                libc::syscall(libc::SYS_tgkill, process, thread, STOP)
            };
        }
    }
}

/// Has the signal interrupt system calls and do nothing else.
#[allow(unsafe_code, reason = "signals have no safe interface")]
fn catch_stop() {
    extern "C" fn nothing(_: i32) {}
    static CAUGHT: Once = Once::new();
    CAUGHT.call_once(|| {
        // SAFETY: all bits zero are a value of the structure: no flags, so that calls are not taken up again.
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        action.sa_sigaction = nothing as extern "C" fn(i32) as usize;
        // SAFETY: the structure is valid for the call, and the handler does nothing, so it may run at any time.
        unsafe { libc::sigaction(STOP, &action, std::ptr::null_mut()) };
    });
}

fn program<'a>(object: &'a mut Ebpf, name: &str) -> &'a mut Xdp {
    let program = object.program_mut(name).expect("the object has this program");
    program.try_into().expect("it is an XDP program")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Links;
    use crate::testing::{in_namespace, ip, soon, veth_pair};

    /// A frame of UDP with this payload, of so many bytes.
    fn frame(signature: [u8; 4], number: u8, length: usize) -> Vec<u8> {
        let packet =
            testbed::ipv4::ipv4([10, 0, 0, number], [10, 0, 1, 1], 17, &[&[0; 8][..], &signature].concat());
        let mut frame = [&[2; 12][..], &[8, 0], &packet].concat();
        frame.resize(length, 0);
        frame
    }

    #[test]
    fn frames_are_sent_in_turns_as_many_as_ordered_and_counted_where_they_come() {
        in_namespace(|| {
            veth_pair("left", "right");
            let number = |name: &str| Links::ask().unwrap().named(name).unwrap().index;
            let (mut flood, sender) = Flood::load(number("left"), Some(number("right")), 3).unwrap();
            let frames: Vec<FloodFrame> = [(1, 60), (2, 71), (3, 1_514)]
                .map(|(number, length)| FloodFrame::new(&frame(*b"mine", number, length)))
                .to_vec();
            let orders = FloodOrders { limit: 200, frame_ns: 0.0, byte_ns: 0.0, signature: *b"mine" };
            let mut trial = |frames: &[FloodFrame], orders: FloodOrders, received: u64| {
                flood.begin(frames, &orders).unwrap();
                std::thread::scope(|scope| {
                    let sending = scope.spawn(|| sender.send(1_514));
                    soon("all is sent and counted", || {
                        let counts = flood.counts().unwrap();
                        counts.sent == orders.limit && counts.received == received
                    });
                    soon("the sender ends", || {
                        sender.interrupt();
                        sending.is_finished()
                    });
                    sending.join().unwrap().unwrap();
                });
                flood.counts().unwrap()
            };
            // 67 of the first, 67 of the second, 66 of the third: fewer than the link has room for at a time.
            let bytes = 67 * 60 + 67 * 71 + 66 * 1_514;
            let counts = FloodCounts { sent: 200, sent_bytes: bytes, received: 200, received_bytes: bytes };
            assert_eq!(trial(&frames, orders, 200), counts);
            // Another list, with time between: and others' frames are not counted.
            let foreign = FloodFrame::new(&frame(*b"else", 4, 1_514));
            let mine = FloodFrame::new(&frame(*b"mine", 4, 1_514));
            let paced = FloodOrders { limit: 20, frame_ns: 1e5, byte_ns: 1.0, ..orders };
            let counts = trial(&[foreign, mine], paced, 10);
            assert_eq!((counts.sent, counts.received, counts.received_bytes), (20, 10, 10 * 1_514));
            assert!(flood.begin(&[mine; 4], &orders).unwrap_err().to_string().contains("1 to 3"));
            // Nothing is where the interface is gone.
            ip("link del left");
            assert!(Flood::load(number("lo"), Some(999), 1).is_err());
        });
    }
}
