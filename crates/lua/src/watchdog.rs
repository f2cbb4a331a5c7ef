//! Ends calls of scripts that use more CPU time than they may.
//!
//! A thread looks at the running calls. To one that is over its budget it sends a signal, whose handler sets a hook of Lua: the
//! interpreter calls it at its next instruction, and it raises an error there, again and again until the call is left. Compiled
//! loops look for hooks because LuaJIT is built so (`LUAJIT_ENABLE_CHECKHOOK` in `.cargo/config.toml`).
//!
//! CPU time, not time: a thread that waits for a CPU is not at fault.
//!
//! A signal may come when its call has ended, and others have begun. So the watchdog names the call that is over its budget by its
//! number, and the handler sets the hook only if that call runs.

#![allow(unsafe_code, reason = "signals, the clock of another thread and Lua's hook are C")]

use std::cell::Cell;
use std::ffi::{c_int, c_long};
use std::ptr::{null, null_mut};
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, compiler_fence};
use std::sync::{Arc, Mutex, Once, PoisonError};
use std::time::Duration;

use mlua::ffi::{LUA_MASKCOUNT, lua_Debug, lua_State, lua_sethook, luaL_error};

/// The signal, whose meaning is this: CPU time limit exceeded.
const SIGNAL: c_int = libc::SIGXCPU;
/// Time between two looks.
const PERIOD: Duration = Duration::from_millis(10);

thread_local! {
    /// What this thread runs: the state of a script, and the script's calls.
    static RUNNING: Cell<Running> = const { Cell::new(Running { state: null_mut(), calls: null() }) };
    static THREAD: Cell<i32> = const { Cell::new(0) };
}

/// A call that runs. The calls live as long as it does.
#[derive(Clone, Copy)]
struct Running {
    state: *mut lua_State,
    calls: *const Calls,
}

static WATCHED: Mutex<Vec<Arc<Calls>>> = Mutex::new(Vec::new());

/// The calls of one script.
#[derive(Debug)]
pub(crate) struct Calls {
    /// One more at the beginning and at the end of each: odd while one runs.
    number: AtomicU64,
    thread: AtomicI32,
    budget: Duration,
    /// The number of the call that is over its budget; the watchdog writes it.
    over: AtomicU64,
    /// Whether the call that runs has its hook; the call's thread and its handler write it.
    has_hook: AtomicBool,
}

impl Calls {
    /// Has the calls of a script watched until [`Calls::forget`].
    pub(crate) fn watch(budget: Duration) -> Arc<Self> {
        static START: Once = Once::new();
        let calls = Arc::new(Self {
            number: AtomicU64::new(0),
            thread: AtomicI32::new(0),
            budget,
            over: AtomicU64::new(0),
            has_hook: AtomicBool::new(false),
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
        let outer = RUNNING.replace(Running { state, calls: self });
        let number = self.number.load(Relaxed);
        self.number.store(number + 1, Relaxed);
        let result = call();
        self.number.store(number + 2, Relaxed);
        // From here on the handler sets no hook for this call. It runs on this thread, so the compiler's order is enough.
        compiler_fence(SeqCst);
        RUNNING.set(outer);
        let was_stopped = self.has_hook.load(Relaxed);
        if was_stopped {
            // SAFETY: the caller's, and no Lua runs in this state now.
            unsafe { lua_sethook(state, None, 0, 0) };
            self.has_hook.store(false, Relaxed);
        }
        (result, was_stopped)
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
    let Running { state, calls } = RUNNING.get();
    // SAFETY: it is null, or the calls of a call that this thread is in, which borrows them.
    let Some(calls) = (unsafe { calls.as_ref() }) else { return };
    // Another call's signal that comes late, or one for the call around this one: that is sent again while it runs.
    if calls.over.load(Relaxed) == calls.number.load(Relaxed) {
        calls.has_hook.store(true, Relaxed);
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

/// Has a thread of this process look whether its call is over its budget.
fn signal(thread: i32) {
    // SAFETY: the handler is ours, and does nothing on a thread that runs no script.
    unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid() as c_long, thread as c_long, SIGNAL as c_long) };
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
                calls.over.store(number, Relaxed);
                signal(thread);
            }
            running.push((calls, number, start));
        }
        seen = running;
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    /// Runs a loop of Lua as a call, after `begin`. Returns whether it came to its end, and whether it was stopped.
    fn call(calls: &Calls, lua: &mlua::Lua, begin: impl FnOnce()) -> (bool, bool) {
        let mut state = null_mut();
        // SAFETY: nothing is done with the state but to look where it is.
        unsafe { lua.exec_raw::<()>((), |its| state = its) }.unwrap();
        let run = || {
            begin();
            lua.load("local n = 0 for i = 1, 1000 do n = n + i end return n").eval::<u64>().is_ok()
        };
        // SAFETY: `lua` outlives the call.
        unsafe { calls.run(state, run) }
    }

    #[test]
    fn a_signal_that_comes_late_leaves_no_hook_to_the_next_call() {
        let calls = Calls::watch(Duration::from_secs(3_600));
        let lua = mlua::Lua::new();
        let thread = own_number();
        let over = || calls.over.store(calls.number.load(Relaxed), Relaxed);
        // As the watchdog does.
        assert_eq!(
            call(&calls, &lua, || {
                over();
                signal(thread);
            }),
            (false, true)
        );
        assert_eq!(call(&calls, &lua, || {}), (true, false));
        // Between the mark and the signal the call ends.
        assert_eq!(call(&calls, &lua, over), (true, false));
        assert_eq!(call(&calls, &lua, || signal(thread)), (true, false));
        // Or between two scripts' calls, of which one is around the other.
        let inner = Calls::watch(Duration::from_secs(3_600));
        let other = mlua::Lua::new();
        let outer = call(&calls, &lua, || {
            over();
            assert_eq!(call(&inner, &other, || signal(thread)), (true, false));
        });
        assert_eq!(outer, (true, false));
        signal(thread);
        assert_eq!(call(&calls, &lua, || {}), (true, false));
        [calls, inner].iter().for_each(Calls::forget);
    }
}
