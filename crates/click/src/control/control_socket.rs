//! =c
//! ControlSocket(TYPE, PORT | FILENAME, [I<keywords> READONLY, LOCALHOST, ADDRESS, HOTCONFIG, VERBOSE, RETRIES, RETRY_WARNINGS])
//!
//! =s control
//! lets other programs read and write handlers over a socket
//!
//! =d
//! TYPE is TCP, with a port (C<7777+>: this one or one of the next ten), or UNIX, with a file.
//! READONLY true refuses to write. A TCP socket accepts connections of this host only, at
//! 127.0.0.1. LOCALHOST false listens on all IPv4 addresses, and ADDRESS on the one it names.
//!
//! =head1 Access of clients to files
//!
//! A new configuration (C<hotconfig>, with C<click -R>) and a new configuration string (C<config>
//! of an element) name files. FromDump reads, and ToDump writes, whatever files the router's user
//! may. Handlers such as C<write_file> write files without a new configuration. So at a TCP socket
//! root and the router's user alone may write handlers. Other users of this host only read; the
//! kernel reports whose a connection is. Permissions of its file decide who connects to a UNIX
//! socket, and may write then.
//!
//! For other hosts there is no password and no encryption: they may write too. So a socket that
//! they can reach refuses C<hotconfig> and C<config>, unless HOTCONFIG is true. READONLY is better
//! still.
//!
//! A connection begins with the line C<Click::ControlSocket/1.3>. Commands are lines:
//!
//!   READ HANDLER [ARGUMENTS]          READDATA HANDLER LENGTH       READUNTIL HANDLER TERMINATOR
//!   WRITE HANDLER [VALUE]             WRITEDATA HANDLER LENGTH      WRITEUNTIL HANDLER TERMINATOR
//!   CHECKREAD HANDLER                 CHECKWRITE HANDLER            HELP, QUIT
//!
//! HANDLER is ELEMENT.HANDLER, or a handler of the router such as C<list> or C<stop>. An element
//! may be named by its number, from 1. After READDATA and WRITEDATA come as many bytes as LENGTH.
//! After the UNTIL forms come lines up to TERMINATOR (or an empty line).
//!
//! Answers begin with a number:
//!
//!   200  done
//!   500  not understood
//!   501  no such command
//!   510  no such element
//!   511  no such handler
//!   520  the handler refuses
//!   521  too much data
//!   530  not allowed
//!   540  the router has ended
//!
//! All lines of an answer but the last have a hyphen behind the number. The value of a read handler
//! follows, its length before it: C<DATA LENGTH>.
//!
//! A line may have 64 KiB, and data 16 MiB. With a READ other users of this host send 64 KiB at most.
//!
//! Up to 64 connections are served, each in its own time. None of them delays another, or packets. A
//! user has 16 of them, another host 8, root and the router's user 32. One is kept for root, and one
//! for the router's user. A connection that has said nothing for 10 seconds gives its place to one
//! that comes.
//!
//! Different from Click: a TCP socket listens on 127.0.0.1 by default, and ADDRESS and HOTCONFIG
//! are ours. PROXY, LLRPC, and TYPE SOCKET are not supported. RETRIES and RETRY_WARNINGS are
//! accepted.
//!
//! =e
//!   ControlSocket(TCP, 7777)
//!   $ printf 'READ list\r\nQUIT\r\n' | nc localhost 7777
//!
//! =a ChatterSocket, Script

use std::io::{BufRead, BufReader, Read, Write};
use std::sync::Arc;
use std::time::Duration;

use graph::context::{Missing, Remote};
use graph::{Ask, Class, Combine, ConfigError, Context, Element, Handler, Setup};

use super::socket::{Address, Connections, Listener, Server, Visitor};

pub(crate) static CLASS: Class = Class {
    name: "ControlSocket",
    ports: "0/0",
    handlers: &[
        Handler::read(
            "port",
            Combine::First,
            "The TCP port.",
            &Ask(|e: &mut ControlSocket, _, _| {
                e.listener.as_ref().map_or(Ok(String::new()), |listener| listener.port())
            }),
        ),
        Handler::read(
            "filename",
            Combine::First,
            "The file of a Unix socket.",
            &Ask(|e: &mut ControlSocket, _, _| {
                e.listener.as_ref().map_or(Ok(String::new()), |listener| listener.filename())
            }),
        ),
    ],
    manual: graph::manual!("control_socket.rs"),
    make,
    ..Class::DEFAULT
};

/// Longest line, in bytes.
const MOST_LINE: u64 = 64 << 10;

/// Most data of one command, in bytes.
const MOST_DATA: usize = 16 << 20;

fn make(setup: &mut Setup<'_>) -> Result<Box<dyn Element>, ConfigError> {
    let address = Address::read(&mut setup.arguments)?;
    let is_read_only = setup.arguments.keyword_or("READONLY", false)?;
    let is_verbose = setup.arguments.keyword_or("VERBOSE", false)?;
    let reconfigures = setup.arguments.keyword_or("HOTCONFIG", !address.is_for_other_hosts())?;
    setup.arguments.keyword_or("RETRIES", 0_u32)?;
    setup.arguments.keyword_or("RETRY_WARNINGS", true)?;
    setup.arguments.finish()?;
    let works = setup.copy().index == 0;
    Ok(Box::new(ControlSocket {
        name: format!("{} :: {}", setup.name(), setup.class()),
        address: works.then_some(address),
        is_read_only,
        reconfigures,
        is_verbose,
        listener: None,
        server: None,
    }))
}

struct ControlSocket {
    name: String,
    /// `None` in every copy but the first.
    address: Option<Address>,
    is_read_only: bool,
    /// Whether clients may write configurations.
    reconfigures: bool,
    is_verbose: bool,
    listener: Option<Arc<Listener>>,
    server: Option<Server>,
}

impl Element for ControlSocket {
    fn initialise(&mut self, cx: &mut Context) -> Result<(), String> {
        if let Some(address) = &self.address {
            self.listener = Some(Arc::new(address.listen().map_err(|error| format!("bind: {error}"))?));
            // When the router runs: there is nobody to answer before.
            cx.set_timer(0, cx.now_ns());
        }
        Ok(())
    }

    fn timer(&mut self, cx: &mut Context, _key: u32) {
        let (Some(listener), Some(router)) = (self.listener.clone(), cx.remote()) else { return };
        let (name, is_verbose) = (self.name.clone(), self.is_verbose);
        let (is_read_only, reconfigures) = (self.is_read_only, self.reconfigures);
        let serve = move |stream: Visitor| {
            if is_verbose {
                router.message(&format!("{name}: opened connection"));
            }
            // A connection that breaks off needs no answer.
            let stream = BufReader::new(stream);
            let _ = Conversation { router: &router, is_read_only, reconfigures, stream }.hold();
            if is_verbose {
                router.message(&format!("{name}: closed connection"));
            }
        };
        match Server::start(listener, Arc::<Connections>::default(), serve) {
            Ok(server) => self.server = Some(server),
            Err(error) => cx.message(&format!("{}: no thread: {error}", self.name)),
        }
    }
}

/// How long a client waits for a configuration that it wrote to be in place.
const LONGEST_CHANGE: Duration = Duration::from_secs(5);

/// What is said over one connection.
struct Conversation<'r> {
    router: &'r Remote,
    is_read_only: bool,
    reconfigures: bool,
    stream: BufReader<Visitor>,
}

/// An answer's number and text; lines of the text become lines of the answer.
type Answer = (u32, String);

/// What is missing, in the protocol's words.
fn missing(name: &str, missing: Missing) -> Answer {
    match missing {
        Missing::Element(element) => (510, format!("No element named '{element}'")),
        Missing::Handler => (511, format!("No handler named '{name}'")),
        Missing::Router => (540, "No router installed".to_owned()),
    }
}

impl Conversation<'_> {
    fn hold(&mut self) -> std::io::Result<()> {
        self.send(b"Click::ControlSocket/1.3\r\n")?;
        while let Some(line) = self.line()? {
            let Some(line) = line else {
                self.answer(500, "Line too long")?;
                return Ok(());
            };
            let line = line.trim_start();
            let (command, rest) = split_word(line.trim_end());
            if command.is_empty() {
                continue;
            }
            if !self.command(&command.to_ascii_uppercase(), rest)? {
                break;
            }
        }
        Ok(())
    }

    /// The next line, however it ends; `None` at the end of the connection, `Some(None)` if it is too long.
    #[expect(clippy::option_option, reason = "the end and a line that cannot be taken are two things")]
    fn line(&mut self) -> std::io::Result<Option<Option<String>>> {
        let mut bytes = Vec::new();
        loop {
            let available = self.stream.fill_buf()?;
            let end = available.iter().position(|byte| matches!(byte, b'\n' | b'\r'));
            let taken = end.unwrap_or(available.len());
            let is_last = available.is_empty();
            bytes.extend_from_slice(&available[..taken]);
            self.stream.consume(taken + usize::from(end.is_some()));
            if bytes.len() as u64 > MOST_LINE {
                return Ok(Some(None));
            }
            // The second half of a CR LF makes an empty line, which is not a command; before data it is skipped there.
            if end.is_some() || (is_last && !bytes.is_empty()) {
                return Ok(Some(Some(String::from_utf8_lossy(&bytes).into_owned())));
            }
            if is_last {
                return Ok(None);
            }
        }
    }

    /// Carries out a command; whether there may be another one.
    fn command(&mut self, command: &str, rest: &str) -> std::io::Result<bool> {
        let (handler, argument) = split_word(rest);
        let reads = command.starts_with("READ") || command == "GET";
        match command {
            "READ" | "GET" | "WRITE" | "SET" | "READUNTIL" | "WRITEUNTIL" | "READDATA" | "WRITEDATA"
            | "SETDATA" | "CHECKREAD" | "CHECKWRITE"
                if handler.is_empty() =>
            {
                self.answer(500, "Wrong number of arguments")?;
            }
            "READ" | "GET" | "WRITE" | "SET" => self.call(reads, handler, argument)?,
            "READDATA" | "WRITEDATA" | "SETDATA" => {
                let Ok(length) = argument.parse::<usize>() else {
                    self.answer(500, &format!("Syntax error in '{command}'"))?;
                    return Ok(true);
                };
                let most = self.most_data(reads);
                if length > most {
                    // What follows cannot be told from commands.
                    self.answer(521, &format!("Data too large: {most} bytes are taken at most"))?;
                    return Ok(false);
                }
                self.skip_line_feed()?;
                let keeps = self.refusal(reads, handler).is_none();
                let mut data = Vec::new();
                let mut rest = (&mut self.stream).take(length as u64);
                if keeps {
                    rest.read_to_end(&mut data)?
                } else {
                    std::io::copy(&mut rest, &mut std::io::sink())? as usize
                };
                if rest.limit() > 0 {
                    self.answer(500, "Not enough data")?;
                    return Ok(false);
                }
                self.call(reads, handler, &String::from_utf8_lossy(&data))?;
            }
            "READUNTIL" | "WRITEUNTIL" => {
                self.skip_line_feed()?;
                let most = self.most_data(reads);
                let keeps = self.refusal(reads, handler).is_none();
                let Some(data) = self.until(argument.trim_end(), most, keeps)? else {
                    self.answer(500, "Not enough data")?;
                    return Ok(false);
                };
                self.call(reads, handler, &data)?;
            }
            "CHECKREAD" | "CHECKWRITE" => self.check(command == "CHECKWRITE", handler)?,
            "CLOSE" | "QUIT" => {
                self.answer(200, "Goodbye!")?;
                return Ok(false);
            }
            "HELP" => self.answer(200, HELP)?,
            _ => self.answer(501, &format!("Command '{command}' unimplemented"))?,
        }
        Ok(true)
    }

    /// The line feed that follows the carriage return of the line before.
    fn skip_line_feed(&mut self) -> std::io::Result<()> {
        if self.stream.fill_buf()?.first() == Some(&b'\n') {
            self.stream.consume(1);
        }
        Ok(())
    }

    /// Most bytes of data that this client may send with a command.
    fn most_data(&self, reads: bool) -> usize {
        if reads && !self.stream.get_ref().is_trusted() { MOST_LINE as usize } else { MOST_DATA }
    }

    /// Lines up to one that is `end`, which are kept or not; `None` if it does not come within `most` bytes.
    fn until(&mut self, end: &str, most: usize, keeps: bool) -> std::io::Result<Option<String>> {
        let (mut data, mut length) = (String::new(), 0);
        loop {
            let Some(Some(line)) = self.line()? else { return Ok(None) };
            self.skip_line_feed()?;
            if line.trim_end() == end {
                return Ok(Some(data));
            }
            length += line.len() + 1;
            if length > most {
                return Ok(None);
            }
            if keeps {
                data.push_str(&line);
                data.push('\n');
            }
        }
    }

    /// Why this client may not call a handler.
    fn refusal(&self, reads: bool, name: &str) -> Option<Answer> {
        let handler = match self.router.find(name) {
            Ok(handler) => handler,
            Err(what) => return Some(missing(name, what)),
        };
        let denied = || Some((530, format!("Permission denied for '{name}'")));
        match reads {
            true if !handler.is_readable() => Some((530, format!("Handler '{name}' write-only"))),
            true if handler.acts && !self.may_write(name) => denied(),
            false if !handler.is_writable() => Some((530, format!("Handler '{name}' read-only"))),
            false if !self.may_write(name) => denied(),
            _ => None,
        }
    }

    fn call(&mut self, reads: bool, name: &str, argument: &str) -> std::io::Result<()> {
        if let Some((code, text)) = self.refusal(reads, name) {
            return self.answer(code, &text);
        }
        if reads {
            return match self.router.read(name, argument) {
                Ok(value) => {
                    self.answer(200, &format!("Read handler '{name}' OK"))?;
                    self.send(format!("DATA {}\r\n", value.len()).as_bytes())?;
                    self.send(value.as_bytes())
                }
                Err(problem) => self.answer(520, &format!("Read handler '{name}' error:\n{problem}")),
            };
        }
        match self.router.write(name, argument) {
            Ok(()) => self.answer(200, &format!("Write handler '{name}' OK"))?,
            Err(problem) => self.answer(520, &format!("Write handler '{name}' error:\n{problem}"))?,
        }
        // What follows is meant for the configuration that was written.
        self.router.wait_for_change(LONGEST_CHANGE);
        Ok(())
    }

    /// Whether this client may write a handler. A configuration names files, and other handlers write some: these are not for
    /// everybody.
    fn may_write(&self, name: &str) -> bool {
        let handler = name.rsplit('.').next().unwrap_or(name);
        !self.is_read_only
            && self.stream.get_ref().is_trusted()
            && (self.reconfigures || !matches!(handler, "hotconfig" | "config"))
    }

    fn check(&mut self, writes: bool, name: &str) -> std::io::Result<()> {
        let (kind, verb) = if writes { ("Write", "writable") } else { ("Read", "readable") };
        match self.router.find(name) {
            Ok(handler) if (handler.acts || writes && handler.is_writable()) && !self.may_write(name) => {
                self.answer(530, &format!("Permission denied for '{name}'"))
            }
            Ok(handler) if if writes { handler.is_writable() } else { handler.is_readable() } => {
                self.answer(200, &format!("{kind} handler '{name}' OK"))
            }
            Ok(_) => self.answer(511, &format!("Handler '{name}' not {verb}")),
            Err(what) => {
                let (code, text) = missing(name, what);
                self.answer(code, &text)
            }
        }
    }

    fn answer(&mut self, code: u32, text: &str) -> std::io::Result<()> {
        let mut out = String::new();
        let mut lines = text.lines().peekable();
        while let Some(line) = lines.next() {
            let mark = if lines.peek().is_some() { '-' } else { ' ' };
            out.push_str(&format!("{code}{mark}{line}\r\n"));
        }
        self.send(out.as_bytes())
    }

    fn send(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.stream.get_mut().write_all(bytes)
    }
}

/// The first word of a line and the rest. Unlike in configurations nothing is a comment, and quotes are as they are.
fn split_word(line: &str) -> (&str, &str) {
    let (word, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    (word, rest.trim_start())
}

const HELP: &str = "Commands supported:
READ handler [arg...]   call read handler, return DATA
READDATA handler len    call read handler with len data bytes, return DATA
READUNTIL handler term  call read handler, take data until term, return DATA
WRITE handler [arg...]  call write handler
WRITEDATA handler len   call write handler, pass len data bytes
WRITEUNTIL handler term call write handler, take data until term
CHECKREAD handler       check if read handler is valid
CHECKWRITE handler      check if write handler is valid
QUIT                    close connection";
