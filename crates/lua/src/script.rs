//! One script in a Lua state of its own: how it is loaded, called, stopped and replaced.

use std::cell::RefMut;
use std::net::Ipv6Addr;
use std::sync::Arc;
use std::time::Duration;

use graph::Combine;
use mlua::chunk::ChunkMode;
use mlua::{Function, LightUserData, Lua, LuaOptions, LuaString, StdLib, Table, Value};
use packet::Batch;
use packet::sync::lock;

use crate::element::HANDLERS;
use crate::main_loop::MainLoop;
use crate::queues::{Red, Wish};
use crate::saved::Saved;
use crate::shared::{Shared, one_line, reason_number};
use crate::stage::{List, Requests, Stage, add_filter};
use crate::watchdog::Calls;

/// Most memory of one state.
const MOST_BYTES: usize = 1 << 30;
/// Most handlers of a script, and the longest name of one.
const MOST_HANDLERS: usize = 256;
const LONGEST_NAME: usize = 64;

/// Handlers that every element has.
const COMMON_HANDLERS: [&str; 5] = ["name", "class", "config", "ports", "handlers"];

/// Libraries that a script may be allowed.
pub(crate) const LIBRARIES: [&str; 4] = ["ffi", "io", "os", "require"];

/// Where a script comes from and what it may do.
#[derive(Clone, Debug)]
pub(crate) struct Origin {
    /// The element's name.
    pub(crate) element: String,
    pub(crate) source: Source,
    /// `brickway.args`.
    pub(crate) args: String,
    /// Names of [`LIBRARIES`].
    pub(crate) allowed: Vec<String>,
    pub(crate) budget: Duration,
    /// The names of a router's ports.
    pub(crate) ports: Vec<String>,
    /// Outputs of the element.
    pub(crate) outputs: usize,
    pub(crate) worker: usize,
    pub(crate) workers: usize,
}

/// A script's text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    File(String),
    Text(String),
}

/// A handler that a script declares.
#[derive(Clone, Debug)]
pub(crate) struct Export {
    pub(crate) name: String,
    pub(crate) combine: Combine,
    pub(crate) is_readable: bool,
    pub(crate) is_writable: bool,
}

/// Why a call failed.
#[derive(Debug)]
pub(crate) struct Failure {
    /// Where and what: `policer.lua:12: attempt to index a nil value`.
    pub(crate) message: String,
    /// Whether the call was stopped, because it had not returned within its budget.
    pub(crate) was_stopped: bool,
}

/// A script that runs.
pub(crate) struct Script {
    timer: Function,
    read: Function,
    write: Function,
    save: Function,
    restore: Function,
    given_up: Function,
    pub(crate) exports: Vec<Export>,
    lua: Lua,
    state: State,
    calls: Arc<Calls>,
    requests: Arc<Requests>,
    // Behind the state that points at it.
    main_loop: MainLoop,
}

/// The state as C knows it.
#[derive(Debug)]
struct State(*mut mlua::ffi::lua_State);

#[allow(unsafe_code, reason = "an unsafe trait")]
// SAFETY: it is the address of a state that `Lua` shares among threads; LuaJIT itself knows no threads.
unsafe impl Send for State {}

impl Drop for Script {
    fn drop(&mut self) {
        // Its stack cannot be thrown away as long as Lua is in the middle of it.
        let _ = self.park();
        self.calls.forget();
    }
}

/// Returns the first line of an error, without Lua's stack.
pub(crate) fn first_line(error: &mlua::Error) -> String {
    let mut error = error;
    while let mlua::Error::CallbackError { cause, .. } = error {
        error = cause;
    }
    let text = match error {
        mlua::Error::RuntimeError(text) => text.clone(),
        mlua::Error::SyntaxError { message, .. } => message.clone(),
        other => other.to_string(),
    };
    line_of(&text)
}

/// The first line of an error's text.
fn line_of(text: &str) -> String {
    let line = text.lines().next().unwrap_or_default();
    // Where in the prelude means nothing to anybody.
    let within =
        line.strip_prefix("prelude:").and_then(|rest| rest.split_once(": ")).map(|(_, message)| message);
    one_line(within.unwrap_or(line))
}

fn runtime(text: impl Into<String>) -> mlua::Error {
    mlua::Error::RuntimeError(text.into())
}

impl Origin {
    /// The text, and the name of it in messages.
    fn text(&self) -> Result<(String, String), String> {
        match &self.source {
            Source::Text(text) => Ok((text.clone(), "=script".to_owned())),
            Source::File(path) => match graph::files::read_text(std::path::Path::new(path)) {
                Ok(text) => Ok((text, format!("@{path}"))),
                Err(error) => Err(format!("{path}: {error}; expected the file of a script")),
            },
        }
    }

    /// Checks the script's syntax.
    ///
    /// # Errors
    ///
    /// The file cannot be read, or the first mistake.
    pub(crate) fn check(&self) -> Result<(), String> {
        let (text, name) = self.text()?;
        let chunk = Lua::new();
        let chunk = chunk.load(text).set_name(name).set_mode(ChunkMode::Text);
        chunk.into_function().map(|_| ()).map_err(|error| first_line(&error))
    }

    /// Runs the script once, for its functions.
    ///
    /// # Errors
    ///
    /// The file cannot be read, or the first mistake.
    pub(crate) fn load(&self) -> Result<Script, String> {
        let (text, name) = self.text()?;
        let mut main_loop = MainLoop::new().map_err(|error| format!("a stack for the script: {error}"))?;
        let requests = Requests::new();
        let options = LuaOptions::new().catch_rust_panics(false);
        let libraries = StdLib::ALL_SAFE | StdLib::FFI | StdLib::DEBUG;
        #[allow(unsafe_code, reason = "LuaJIT's libraries for memory and stacks")]
        // SAFETY: the libraries stay in the prelude, which checks each access, unless the configuration allows scripts to have FFI.
        let lua = unsafe { Lua::unsafe_new_with(libraries, options) };
        // More than may stay after a call, so that this is an error of the script and no end of the program.
        lua.set_memory_limit(MOST_BYTES / 4 * 5).map_err(|error| first_line(&error))?;
        let mut state = State(std::ptr::null_mut());
        #[allow(unsafe_code, reason = "the state's address")]
        // SAFETY: nothing is done with the state.
        unsafe { lua.exec_raw::<()>((), |address| state.0 = address) }.map_err(|error| first_line(&error))?;
        let calls = Calls::watch(self.budget);
        let made = self.prepare(&lua, &mut main_loop, &requests).map_err(|error| first_line(&error));
        let functions = made.inspect_err(|_| calls.forget())?;
        let get = |name: &str| functions.get::<Function>(name).map_err(|error| first_line(&error));
        let (environment, start) = (functions.get::<Table>("environment"), get("start")?);
        let mut script = Script {
            timer: get("timer")?,
            read: get("read")?,
            write: get("write")?,
            save: get("save")?,
            restore: get("restore")?,
            given_up: get("given_up")?,
            exports: Vec::new(),
            lua: lua.clone(),
            state,
            calls,
            requests,
            main_loop,
        };
        let environment = environment.map_err(|error| first_line(&error))?;
        let chunk = lua.load(text).set_name(name).set_mode(ChunkMode::Text).set_environment(environment);
        script.shared().begin(0, self.outputs);
        let names = script.watched(|_| start.call::<Table>(chunk.into_function()?));
        let names = names.map_err(|failure| failure.message)?;
        script.exports = exports(&names).map_err(|error| first_line(&error))?;
        Ok(script)
    }

    /// Runs the prelude. Returns its functions.
    fn prepare(&self, lua: &Lua, main_loop: &mut MainLoop, requests: &Arc<Requests>) -> mlua::Result<Table> {
        let host = lua.create_table()?;
        host.set("allowed", self.allowed.clone())?;
        let reason = |_: &Lua, reason: LuaString| match reason_number(&reason.to_string_lossy()) {
            Ok(number) => Ok((Some(number), None)),
            Err(why) => Ok((None, Some(why))),
        };
        host.set("drop_reason", lua.create_function(reason)?)?;
        let address = |lua: &Lua, text: LuaString| {
            let text = text.to_string_lossy();
            Ok(match text.parse::<Ipv6Addr>() {
                Ok(address) => (Some(lua.create_string(address.octets())?), None),
                Err(_) => {
                    (None, Some(format!("'{text}' is not an IPv6 address; expected one like 2001:db8::1")))
                }
            })
        };
        host.set("ip6", lua.create_function(address)?)?;
        let own = requests.clone();
        host.set(
            "log",
            lua.create_function(move |_, line: LuaString| {
                own.log(&line.to_string_lossy());
                Ok(())
            })?,
        )?;
        let own = requests.clone();
        host.set(
            "set_timer",
            lua.create_function(move |_, (seconds, key): (f64, u32)| {
                own.set_timer(key, (seconds * 1e9) as u64);
                Ok(())
            })?,
        )?;
        let own = requests.clone();
        host.set(
            "transmit",
            lua.create_function(move |_, (bytes, output): (LuaString, usize)| {
                Ok(own.transmit(bytes.as_bytes().to_vec(), output).err())
            })?,
        )?;
        let filters = main_loop.host().stage.borrow().filters.clone();
        let filter =
            move |_: &Lua, expression: LuaString| match add_filter(&filters, expression.to_string_lossy()) {
                Ok(number) => Ok((Some(number), None)),
                Err(why) => Ok((None, Some(why))),
            };
        host.set("filter", lua.create_function(filter)?)?;
        let (own, filters) = (requests.clone(), main_loop.host().stage.borrow().filters.clone());
        host.set(
            "restart",
            lua.create_function(move |_, ()| {
                lock(&filters).clear();
                own.wish(Wish::Restart).map_err(runtime)
            })?,
        )?;
        let own = requests.clone();
        host.set(
            "queue",
            lua.create_function(move |_, wish: (usize, u32, u8, Option<f64>, f64, f64)| {
                let (output, capacity, priority, min, max, probability) = wish;
                let red = min.map(|min| Red { min, max, probability });
                Ok(own.wish(Wish::Queue { output, capacity, priority, red }).err())
            })?,
        )?;
        let own = requests.clone();
        host.set(
            "output",
            lua.create_function(move |_, wish: (usize, u64, usize, f64)| {
                let (output, bits_per_second, batch, timeout) = wish;
                let timeout_ns = (timeout * 1e9) as u64;
                Ok(own.wish(Wish::Output { output, bits_per_second, batch, timeout_ns }).err())
            })?,
        )?;
        let [address, wait, step] = main_loop.addresses().map(LightUserData);
        host.set("wait", wait)?;
        host.set("step", step)?;
        let prelude = lua.load(include_str!("prelude.lua")).set_name("=prelude");
        let functions: Table = prelude.call((address, host))?;
        let thread = lua.create_thread(functions.get("serve")?)?;
        let address = Value::Thread(thread.clone()).to_pointer();
        // It lives as long as the state.
        lua.set_named_registry_value("main loop", thread)?;
        #[allow(unsafe_code, reason = "the coroutine's address")]
        // SAFETY: a coroutine of this function, which the state's registry keeps.
        unsafe {
            main_loop.set_thread(address.cast_mut().cast())
        };
        let brickway: Table = functions.get::<Table>("environment")?.get("brickway")?;
        brickway.set("args", self.args.as_str())?;
        brickway.set("element", self.element.as_str())?;
        brickway.set("ports", self.ports.clone())?;
        brickway.set("worker", self.worker)?;
        brickway.set("workers", self.workers)?;
        Ok(functions)
    }
}

/// Reads what `start` returns of handlers.
fn exports(names: &Table) -> mlua::Result<Vec<Export>> {
    let mut exports = Vec::new();
    for row in names.sequence_values::<Table>() {
        let row = row?;
        let combine: String = row.get(2)?;
        let name: String = row.get(1)?;
        let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
        if name.is_empty() || name.len() > LONGEST_NAME || !name.chars().all(is_name) {
            return Err(runtime(format!(
                "handler '{}': expected letters, digits, _ and -",
                name.escape_debug()
            )));
        }
        let is_ours = HANDLERS.iter().any(|handler| handler.name == name);
        if is_ours || COMMON_HANDLERS.contains(&name.as_str()) {
            return Err(runtime(format!("handler '{name}': the element has one of this name already")));
        }
        if exports.len() == MOST_HANDLERS {
            return Err(runtime(format!("more than {MOST_HANDLERS} handlers")));
        }
        exports.push(Export {
            name,
            combine: match combine.as_str() {
                "sum" => Combine::Sum,
                "max" => Combine::Max,
                "join" => Combine::Join,
                _ => Combine::First,
            },
            is_readable: row.get(3)?,
            is_writable: row.get(4)?,
        });
    }
    exports.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(exports)
}

impl Script {
    /// Memory shared with the script.
    pub(crate) fn shared(&self) -> &Shared {
        &self.main_loop.host().shared
    }

    /// The batch and the steps over it.
    pub(crate) fn stage(&self) -> RefMut<'_, Stage> {
        self.main_loop.host().stage.borrow_mut()
    }

    /// Takes what the script asked for, if it did.
    #[inline]
    pub(crate) fn requests(&self) -> Option<List> {
        self.requests.take()
    }

    /// Bytes that the script's values take.
    pub(crate) fn used_bytes(&self) -> usize {
        self.main_loop.used_bytes()
    }

    /// Has the watchdog look at a call.
    fn watched<T>(&mut self, call: impl FnOnce(&mut Self) -> mlua::Result<T>) -> Result<T, Failure> {
        let (calls, state) = (self.calls.clone(), self.state.0);
        #[allow(unsafe_code, reason = "the watchdog has to know the state")]
        // SAFETY: `self.lua` keeps the state.
        let (result, was_stopped) = unsafe { calls.run(state, || call(self)) };
        self.ended(result.map_err(|error| first_line(&error)), was_stopped)
    }

    #[inline]
    fn ended<T>(&self, result: Result<T, String>, was_stopped: bool) -> Result<T, Failure> {
        // What stays after a call.
        if self.main_loop.used_bytes() > MOST_BYTES {
            let message = format!("the script uses more than {} MB of memory", MOST_BYTES >> 20);
            return Err(Failure { message, was_stopped: true });
        }
        result.map_err(|message| Failure { message, was_stopped })
    }

    /// Has the main loop end, so that other calls can run in the state.
    fn park(&mut self) -> Result<(), Failure> {
        if self.main_loop.is_parked() {
            return Ok(());
        }
        self.watched(|script| script.main_loop.park().map_err(runtime))
    }

    /// Calls a function of the prelude.
    fn call<T>(&mut self, call: impl FnOnce(&mut Self) -> mlua::Result<T>) -> Result<T, Failure> {
        self.park()?;
        self.watched(call)
    }

    /// Has the script work on a batch, which comes back as the script left it.
    #[inline]
    pub(crate) fn process(&mut self, input: usize, batch: &mut Batch) -> Result<(), Failure> {
        let mut stage = self.stage();
        std::mem::swap(&mut stage.batch, batch);
        self.shared().show(input, &mut stage.batch);
        if let Some(steps) = &mut stage.steps {
            steps.begin(input);
        }
        drop(stage);
        let Self { calls, state, main_loop, .. } = self;
        #[allow(unsafe_code, reason = "the watchdog has to know the state")]
        // SAFETY: `self.lua` keeps the state.
        let (result, was_stopped) = unsafe { calls.run(state.0, || main_loop.turn()) };
        let result = self.ended(result.map_err(|text| line_of(&text)), was_stopped);
        self.shared().hide();
        std::mem::swap(&mut self.stage().batch, batch);
        result
    }

    /// Calls `timer`.
    pub(crate) fn timer(&mut self, key: u32) -> Result<(), Failure> {
        self.call(|script| script.timer.call::<()>(key))
    }

    /// Reads a handler.
    pub(crate) fn read(&mut self, name: &str, argument: &str) -> Result<String, Failure> {
        self.call(|script| script.read.call::<LuaString>((name, argument)).map(|text| text.to_string_lossy()))
    }

    /// Writes a handler.
    pub(crate) fn write(&mut self, name: &str, value: &str) -> Result<(), Failure> {
        self.call(|script| script.write.call::<()>((name, value)))
    }

    /// Asks for what the script wants its successor to have.
    pub(crate) fn save(&mut self) -> Result<Option<Saved>, Failure> {
        self.call(|script| match script.save.call::<Value>(())? {
            Value::Nil => Ok(None),
            value => Saved::of(&value).map(Some).map_err(runtime),
        })
    }

    /// Gives the script what its predecessor saved.
    pub(crate) fn restore(&mut self, saved: &Saved) -> Result<(), Failure> {
        self.call(|script| script.restore.call::<()>(saved.to_lua(&script.lua)?))
    }

    /// Places that the compiler gave up since the last call.
    pub(crate) fn given_up(&mut self) -> Vec<String> {
        self.call(|script| script.given_up.call::<Vec<String>>(())).unwrap_or_default()
    }
}
