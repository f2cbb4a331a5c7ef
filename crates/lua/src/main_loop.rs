//! The main loop of a script, on a stack of its own: it waits for the next batch in the middle of compiled code.
//!
//! A call from Rust into Lua goes through the interpreter, and so does a `yield`: together with the way back into compiled code they
//! cost more than a batch of 32 packets. So the prelude's loop, `serve`, calls [`wait`] through the FFI, which LuaJIT compiles, and
//! [`wait`] switches to the stack of the element, and back when a batch has come. Nothing else may run in the state meanwhile:
//! [`MainLoop::park`] has the loop end first.

#![allow(unsafe_code, reason = "Lua's C interface, and a pointer that C keeps")]

use std::cell::{Cell, RefCell};
use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;

use corosensei::stack::DefaultStack;
use corosensei::{Coroutine, CoroutineResult, Yielder};
use mlua::ffi::{LUA_GCCOUNT, lua_State, lua_gc, lua_pcall, lua_pushvalue, lua_settop, lua_tolstring};

use crate::shared::Shared;
use crate::stage::Stage;

/// Bytes of the stack, as a thread of Rust has.
const STACK_BYTES: usize = 2 << 20;
/// What [`step`] returns of a step that the element does not have.
const REFUSED: u32 = u32::MAX;

/// What the prelude reaches through the FFI. Its address is that of `shared`.
#[repr(C)]
pub(crate) struct Host {
    pub(crate) shared: Shared,
    pub(crate) stage: RefCell<Stage>,
    /// The way back to the element's stack, while the loop runs and has not been asked to end; null otherwise.
    yielder: Cell<*const Yielder<(), ()>>,
}

/// Waits for the next batch, or for the request to end the loop.
pub(crate) extern "C" fn wait(host: *const Host) {
    // SAFETY: the prelude passes the address that it was given, which stays as long as the state.
    let host = unsafe { &*host };
    let yielder = host.yielder.get();
    if yielder.is_null() {
        return;
    }
    // SAFETY: it is set from when the loop begins to when it ends or is asked to end. Lua runs on its stack then, and on no other.
    unsafe { (*yielder).suspend(()) };
}

/// Does a step over the batch: its number, from a mask or two, to a mask. Returns a count where the step has one.
pub(crate) extern "C" fn step(host: *const Host, step: u32, from: u32, second: u32, to: u32) -> u32 {
    // SAFETY: the prelude passes the address that it was given, which stays as long as the state.
    let host = unsafe { &*host };
    // A panic must not pass through compiled code.
    let result = catch_unwind(AssertUnwindSafe(|| {
        let mut stage = host.stage.borrow_mut();
        stage.step(&host.shared, step, from as usize, second as usize, to as usize)
    }));
    result.ok().flatten().unwrap_or(REFUSED)
}

/// A script's main loop.
pub(crate) struct MainLoop {
    host: Rc<Host>,
    /// Holds the prelude's `serve` at its bottom.
    thread: *mut lua_State,
    /// The loop, while it waits or runs.
    running: Option<Coroutine<(), (), Option<String>>>,
    stack: Option<DefaultStack>,
}

// SAFETY: `host` and what is on the stack are reached through this value alone, one thread at a time. Neither Lua nor the loop keeps
// anything of the thread that it runs on from one batch to the next.
unsafe impl Send for MainLoop {}

impl MainLoop {
    /// A loop that runs in no state yet.
    ///
    /// # Errors
    ///
    /// The kernel refuses memory for its stack.
    pub(crate) fn new() -> std::io::Result<Self> {
        let host =
            Host { shared: Shared::new(), stage: RefCell::default(), yielder: Cell::new(std::ptr::null()) };
        Ok(Self {
            host: Rc::new(host),
            thread: std::ptr::null_mut(),
            running: None,
            stack: Some(DefaultStack::new(STACK_BYTES)?),
        })
    }

    /// Returns what the prelude reaches.
    pub(crate) fn host(&self) -> &Host {
        &self.host
    }

    /// Addresses for the prelude: of what it reaches, [`wait`] and [`step`].
    pub(crate) fn addresses(&self) -> [*mut c_void; 3] {
        let wait: extern "C" fn(*const Host) = wait;
        let step: extern "C" fn(*const Host, u32, u32, u32, u32) -> u32 = step;
        [Rc::as_ptr(&self.host).cast_mut().cast(), wait as *mut c_void, step as *mut c_void]
    }

    /// Sets the coroutine of Lua in which the loop runs.
    ///
    /// # Safety
    /// It has the prelude's `serve` on its stack and nothing else, and lives as long as this.
    pub(crate) unsafe fn set_thread(&mut self, thread: *mut lua_State) {
        self.thread = thread;
    }

    /// Has the loop work on the batch that is shown, which it begins if it does not run.
    ///
    /// # Errors
    ///
    /// The script's, which ends the loop.
    #[inline]
    pub(crate) fn turn(&mut self) -> Result<(), String> {
        if self.running.is_none() {
            self.start()?;
        }
        self.resume()?;
        // A loop that ended may have left packets unseen.
        if self.is_parked() { Err("the main loop ended".to_owned()) } else { Ok(()) }
    }

    /// Ends the loop, so that other calls can run in the state.
    ///
    /// # Errors
    ///
    /// The script's.
    pub(crate) fn park(&mut self) -> Result<(), String> {
        // From here on it cannot wait any more, so it comes to its end, or the watchdog ends it.
        self.host.yielder.set(std::ptr::null());
        self.host.shared.serve(false);
        self.resume()
    }

    /// Bytes that the state's values take, in whole kilobytes.
    #[inline]
    pub(crate) fn used_bytes(&self) -> usize {
        // SAFETY: it reads a number of the state, which lives as long as its coroutine.
        let kilobytes = unsafe { lua_gc(self.thread, LUA_GCCOUNT, 0) };
        (kilobytes.unsigned_abs() as usize) << 10
    }

    /// Returns whether other calls can run in the state.
    pub(crate) fn is_parked(&self) -> bool {
        self.running.is_none()
    }

    #[cold]
    fn start(&mut self) -> Result<(), String> {
        let stack = match self.stack.take() {
            Some(stack) => stack,
            None => {
                DefaultStack::new(STACK_BYTES).map_err(|error| format!("a stack for the script: {error}"))?
            }
        };
        let (host, thread) = (self.host.clone(), self.thread);
        self.host.shared.serve(true);
        self.running = Some(Coroutine::with_stack(stack, move |yielder, ()| {
            host.yielder.set(yielder);
            // SAFETY: `set_thread`'s.
            unsafe { serve(thread) }
        }));
        self.resume()
    }

    #[inline]
    fn resume(&mut self) -> Result<(), String> {
        let Some(running) = &mut self.running else { return Ok(()) };
        match running.resume(()) {
            CoroutineResult::Yield(()) => Ok(()),
            CoroutineResult::Return(error) => {
                self.host.yielder.set(std::ptr::null());
                self.host.shared.serve(false);
                self.stack = self.running.take().map(Coroutine::into_stack);
                error.map_or(Ok(()), Err)
            }
        }
    }
}

impl Drop for MainLoop {
    fn drop(&mut self) {
        // Its owner has parked it. Were it in the middle of Lua still, its stack could not be taken away.
        std::mem::forget(self.running.take());
    }
}

/// Runs the loop until it ends. Returns the error that ended it.
///
/// # Safety
/// As [`MainLoop::set_thread`].
unsafe fn serve(thread: *mut lua_State) -> Option<String> {
    // SAFETY: the function is at place 1, a call has room for it and its result, and an error ends at `lua_pcall`.
    unsafe {
        lua_pushvalue(thread, 1);
        let status = lua_pcall(thread, 0, 1, 0);
        let mut length = 0;
        let text = lua_tolstring(thread, -1, &mut length).cast::<u8>();
        let error = match text.is_null() {
            true => (status != 0).then(|| "an error that is not a text".to_owned()),
            // SAFETY: Lua keeps the string as long as it is on its stack.
            false => Some(String::from_utf8_lossy(std::slice::from_raw_parts(text, length)).into_owned()),
        };
        lua_settop(thread, 1);
        error
    }
}
