//! intel-ipsec-mb, by the shim in `shim/multi_buffer.c`.

use std::ffi::c_void;
use std::ptr::NonNull;

use packet::MAX_BATCH;

use super::{Engine, Job, Level};
use crate::suite::{Protection, Suite};

/// A job of the shim.
#[repr(C)]
#[derive(Clone, Copy)]
struct RawJob {
    schedule: *const c_void,
    esp: *mut u8,
    length: u32,
    sequence_high: u32,
    extended: u32,
    right: u32,
}

#[allow(unsafe_code, reason = "functions of the shim")]
unsafe extern "C" {
    fn brickway_mb_manager(most: u32) -> *mut c_void;
    fn brickway_mb_free_manager(manager: *mut c_void);
    fn brickway_mb_arch(manager: *const c_void) -> u32;
    fn brickway_mb_features(manager: *const c_void) -> u64;
    fn brickway_mb_schedule(
        manager: *mut c_void,
        suite: u32,
        key: *const u8,
        key_bytes: u32,
        auth: *const u8,
        auth_bytes: u32,
        icv_bytes: u32,
    ) -> *mut c_void;
    fn brickway_mb_free_schedule(schedule: *mut c_void);
    fn brickway_mb_seal(manager: *mut c_void, jobs: *mut RawJob, count: u32);
    fn brickway_mb_open(manager: *mut c_void, jobs: *mut RawJob, count: u32);
}

/// The library's state of one thread.
struct Manager(NonNull<c_void>);

#[allow(unsafe_code, reason = "a foreign object")]
// SAFETY: the manager is memory of its own without ties to a thread; one owner at a time uses it.
unsafe impl Send for Manager {}

#[allow(unsafe_code, reason = "calls of the shim")]
impl Manager {
    fn new(level: Level) -> Option<Self> {
        let most = match level {
            Level::All => 0,
            Level::Avx2 => 1,
            Level::Sse => 2,
        };
        // SAFETY: the function takes a number, and returns a new manager or null.
        let manager = Self(NonNull::new(unsafe { brickway_mb_manager(most) })?);
        let arch = manager.arch();
        (arch >= SSE && (level != Level::Avx2 || arch == AVX2)).then_some(manager)
    }

    fn arch(&self) -> u32 {
        // SAFETY: the manager lives.
        unsafe { brickway_mb_arch(self.0.as_ptr()) }
    }

    fn features(&self) -> u64 {
        // SAFETY: the manager lives.
        unsafe { brickway_mb_features(self.0.as_ptr()) }
    }
}

impl Drop for Manager {
    #[allow(unsafe_code, reason = "a call of the shim")]
    fn drop(&mut self) {
        // SAFETY: it was made by the shim, and nobody uses it any more.
        unsafe { brickway_mb_free_manager(self.0.as_ptr()) };
    }
}

/// `IMB_ARCH_SSE` and its successors in `intel-ipsec-mb.h`; what comes before it has no AES-NI.
const SSE: u32 = 2;
const AVX2: u32 = 4;
/// `IMB_FEATURE_VAES`.
const VAES: u64 = 1 << 12;

/// Keys of this backend.
pub(super) struct Schedule {
    schedule: NonNull<c_void>,
    /// That of the engines that can use it: the layout depends on it.
    level: Level,
}

#[allow(unsafe_code, reason = "a foreign object")]
// SAFETY: the schedule is memory of its own without ties to a thread.
unsafe impl Send for Schedule {}
#[allow(unsafe_code, reason = "a foreign object")]
// SAFETY: once made it is only read.
unsafe impl Sync for Schedule {}

impl Schedule {
    /// The lengths are right.
    #[allow(unsafe_code, reason = "a call of the shim")]
    pub(super) fn new(suite: Suite, cipher: &[u8], auth: &[u8], level: Level) -> Option<Self> {
        let manager = Manager::new(level)?;
        let number = match suite.protection() {
            Protection::AesGcm => 0,
            Protection::ChaCha20Poly1305 => 1,
            Protection::AesCbcSha1 => 2,
            Protection::AesCbcSha256 => 3,
            Protection::AesCbcSha512 => 4,
        };
        let (key_bytes, icv_bytes) = (suite.cipher_key_bytes() as u32, suite.icv_bytes() as u32);
        // SAFETY: `cipher` has the bytes of the suite's key and salt, and `auth` as many as are said and at most a block.
        let schedule = unsafe {
            brickway_mb_schedule(
                manager.0.as_ptr(),
                number,
                cipher.as_ptr(),
                key_bytes,
                auth.as_ptr(),
                auth.len() as u32,
                icv_bytes,
            )
        };
        NonNull::new(schedule).map(|schedule| Self { schedule, level })
    }
}

impl Drop for Schedule {
    #[allow(unsafe_code, reason = "a call of the shim")]
    fn drop(&mut self) {
        // SAFETY: it was made by the shim, which zeroes it, and nobody uses it any more.
        unsafe { brickway_mb_free_schedule(self.schedule.as_ptr()) };
    }
}

/// The engine.
pub(super) struct MultiBuffer {
    manager: Manager,
    level: Level,
    jobs: Box<[RawJob; MAX_BATCH]>,
}

#[allow(unsafe_code, reason = "a foreign object")]
// SAFETY: pointers in `jobs` are written anew before each use.
unsafe impl Send for MultiBuffer {}

impl MultiBuffer {
    pub(super) fn new(level: Level) -> Option<Self> {
        let none = RawJob {
            schedule: std::ptr::null(),
            esp: std::ptr::null_mut(),
            length: 0,
            sequence_high: 0,
            extended: 0,
            right: 0,
        };
        Some(Self { manager: Manager::new(level)?, level, jobs: Box::new([none; MAX_BATCH]) })
    }

    /// Hands jobs to a function of the shim, as many at a time as it takes. Jobs that are not whole, or whose keys are of another
    /// backend, are left out.
    #[allow(unsafe_code, reason = "a call of the shim")]
    #[inline(always)]
    fn run(&mut self, jobs: &mut [Job<'_>], function: unsafe extern "C" fn(*mut c_void, *mut RawJob, u32)) {
        for jobs in jobs.chunks_mut(MAX_BATCH) {
            let mut count = 0;
            for job in &mut *jobs {
                let Some(schedule) = usable(job, self.level) else { continue };
                self.jobs[count] = RawJob {
                    schedule: schedule.as_ptr(),
                    esp: job.esp.as_mut_ptr(),
                    length: job.esp.len() as u32,
                    sequence_high: job.sequence_high.unwrap_or(0),
                    extended: u32::from(job.sequence_high.is_some()),
                    right: 0,
                };
                count += 1;
            }
            // SAFETY: `count` jobs were written, at most as many as the shim takes. Each points to a schedule that its `Job` borrows
            // and to bytes that its `Job` borrows mutably; `is_whole` checked that they hold header, IV, payload and ICV.
            unsafe { function(self.manager.0.as_ptr(), self.jobs.as_mut_ptr(), count as u32) };
            let mut done = self.jobs[..count].iter();
            for job in jobs {
                job.is_right =
                    usable(job, self.level).is_some() && done.next().is_some_and(|done| done.right != 0);
            }
        }
    }
}

/// Returns the keys of a job that engines of this level can do.
#[inline(always)]
fn usable(job: &Job<'_>, level: Level) -> Option<NonNull<c_void>> {
    match &job.keys.schedule {
        super::Schedule::MultiBuffer(keys) if keys.level == level && job.is_whole() => Some(keys.schedule),
        _ => None,
    }
}

impl Engine for MultiBuffer {
    fn name(&self) -> String {
        let arch = match (self.manager.arch(), self.manager.features() & VAES != 0) {
            (5, true) => "AVX-512, VAES",
            (5, false) => "AVX-512",
            (AVX2, true) => "AVX2, VAES",
            (AVX2, false) => "AVX2, AES-NI",
            (3, _) => "AVX, AES-NI",
            _ => "SSE, AES-NI",
        };
        format!("intel-ipsec-mb ({arch})")
    }

    fn seal(&mut self, jobs: &mut [Job<'_>]) {
        self.run(jobs, brickway_mb_seal);
    }

    fn open(&mut self, jobs: &mut [Job<'_>]) {
        self.run(jobs, brickway_mb_open);
    }
}
