//! Ends calls of scripts that use more CPU time than they may.
//!
//! A thread looks at the running calls. To one that is over its budget it sends a signal, whose handler sets a hook of Lua: the
//! interpreter calls it at its next instruction, and it raises an error there, again and again until the call is left. Compiled
//! loops look for hooks because LuaJIT is built so (`LUAJIT_ENABLE_CHECKHOOK` in `.cargo/config.toml`).
//!
//! CPU time, not time: a thread that waits for a CPU is not at fault.

#![allow(unsafe_code, reason = "signals, the clock of another thread and Lua's hook are C")]

use std::cell::Cell;
use std::ffi::{c_int, c_long};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, Once, PoisonError};
use std::time::Duration;

use mlua::ffi::{LUA_MASKCOUNT, lua_Debug, lua_State, lua_sethook, luaL_error};

/// The signal, whose meaning is this: CPU time limit exceeded.
const SIGNAL: c_int = libc::SIGXCPU;
/// Time between two looks.
const PERIOD: Duration = Duration::from_millis(10);

thread_local! {
    /// The state whose script this thread runs.
    static RUNNING: Cell<*mut lua_State> = const { Cell::new(null_mut()) };
    static THREAD: Cell<i32> = const { Cell::new(0) };
}

static WATCHED: Mutex<Vec<Arc<Calls>>> = Mutex::new(Vec::new());

/// The calls of one script.
#[derive(Debug)]
pub(crate) struct Calls {
    /// One more at the beginning and at the end of each: odd while one runs.
    number: AtomicU64,
    thread: AtomicI32,
    budget: Duration,
    is_over: AtomicBool,
}

impl Calls {
    /// Has the calls of a script watched until [`Calls::forget`].
    pub(crate) fn watch(budget: Duration) -> Arc<Self> {
        static START: Once = Once::new();
        let calls = Arc::new(Self {
            number: AtomicU64::new(0),
            thread: AtomicI32::new(0),
            budget,
            is_over: AtomicBool::new(false),
        });
        WATCHED.lock().unwrap_or_else(PoisonError::into_inner).push(calls.clone());
        START.call_once(|| {
            // SAFETY: the handler reads a thread's variable that needs no initialisation and calls what Lua's own program
            // calls in its handler.
            unsafe {
                let mut action: libc::sigaction = std::mem::zeroed();
                action.sa_sigaction = over as extern "C" fn(c_int) as libc::sighandler_t;
                action.sa_flags = libc::SA_RESTART;
                libc::sigaction(SIGNAL, &action, null_mut());
            }
            let name = "lua-watchdog".to_owned();
            // Without it, scripts that do not return are not stopped.
            let _ = std::thread::Builder::new().name(name).spawn(look);
        });
        calls
    }

    /// Ends the watch.
    pub(crate) fn forget(self: &Arc<Self>) {
        WATCHED.lock().unwrap_or_else(PoisonError::into_inner).retain(|known| !Arc::ptr_eq(known, self));
    }

    /// Does `call`, which runs the script of this state. Returns its result, and whether it was stopped.
    ///
    /// # Safety
    /// The state lives as long as the call.
    #[inline]
    pub(crate) unsafe fn run<T>(&self, state: *mut lua_State, call: impl FnOnce() -> T) -> (T, bool) {
        let thread = THREAD.get();
        let thread = if thread == 0 { own_number() } else { thread };
        self.thread.store(thread, Relaxed);
        let outer = RUNNING.replace(state);
        let number = self.number.load(Relaxed);
        self.number.store(number + 1, Relaxed);
        let result = call();
        self.number.store(number + 2, Relaxed);
        RUNNING.set(outer);
        let is_over = self.is_over.load(Relaxed);
        if is_over {
            // SAFETY: the caller's, and no Lua runs in this state now.
            unsafe { lua_sethook(state, None, 0, 0) };
            self.is_over.store(false, Relaxed);
        }
        (result, is_over)
    }
}

#[cold]
fn own_number() -> i32 {
    // SAFETY: it has no arguments.
    let number = unsafe { libc::gettid() };
    THREAD.set(number);
    number
}

/// The signal's handler.
extern "C" fn over(_signal: c_int) {
    let state = RUNNING.get();
    if !state.is_null() {
        // SAFETY: this thread runs the state's script, so it lives; `lua_sethook` may be called by handlers.
        unsafe { lua_sethook(state, Some(raise), LUA_MASKCOUNT, 1) };
    }
}

unsafe extern "C-unwind" fn raise(state: *mut lua_State, _: *mut lua_Debug) {
    // SAFETY: Lua calls its hook with the state that runs; nothing here has to be dropped.
    unsafe { luaL_error(state, c"the script did not return within its budget".as_ptr()) };
}

/// The CPU time of a thread of this process.
fn cpu_time(thread: i32) -> Option<Duration> {
    // The clock of a thread by its number, as in `pthread_getcpuclockid` (Linux: CPUCLOCK_PERTHREAD | CPUCLOCK_SCHED).
    let clock = (!thread << 3) | 6;
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the time is ours to write to.
    let result = unsafe { libc::clock_gettime(clock, &mut time) };
    (result == 0).then(|| Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs() as u32))
}

/// Looks at the calls, for ever.
fn look() {
    // The calls that ran at the last look: their number, and the CPU time of their thread.
    let mut seen: Vec<(Arc<Calls>, u64, Duration)> = Vec::new();
    loop {
        std::thread::sleep(PERIOD);
        let watched = WATCHED.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let mut running = Vec::new();
        for calls in watched {
            let number = calls.number.load(Relaxed);
            let thread = calls.thread.load(Relaxed);
            let Some(time) = (number % 2 == 1).then(|| cpu_time(thread)).flatten() else { continue };
            let before = seen.iter().find(|(known, since, _)| Arc::ptr_eq(known, &calls) && *since == number);
            let start = before.map_or(time, |(.., start)| *start);
            if time.saturating_sub(start) >= calls.budget {
                calls.is_over.store(true, Relaxed);
                // SAFETY: the handler is ours, and does nothing on a thread that runs no script.
                unsafe {
                    libc::syscall(
                        libc::SYS_tgkill,
                        libc::getpid() as c_long,
                        thread as c_long,
                        SIGNAL as c_long,
                    )
                };
            }
            running.push((calls, number, start));
        }
        seen = running;
    }
}
