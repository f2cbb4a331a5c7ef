//! Handlers: named values of an element that can be read or written while it runs, each declared once.
//!
//! A class lists its handlers; a row has a handler's name, what it is, how the values of several workers become one, and how it
//! is read and written:
//!
//! ```
//! use graph::{Combine, Element, Get, Handler, Put};
//!
//! struct Counter {
//!     packets: u64,
//! }
//!
//! impl Element for Counter {}
//!
//! static HANDLERS: &[Handler] = &[
//!     Handler::read("count", Combine::Sum, "Packets so far.", &Get(|e: &mut Counter| e.packets.to_string())),
//!     Handler::write("reset", "Sets the count to zero.", &Put(|e: &mut Counter, _, _| {
//!         e.packets = 0;
//!         Ok(())
//!     })),
//! ];
//! ```

use std::any::Any;
use std::fmt;

use crate::arguments::FromArgument;
use crate::context::Context;
use crate::element::Capability;

/// How the values of a read handler on several workers become one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Combine {
    /// All workers have the same: take the first.
    First,
    /// Numbers: add them up.
    Sum,
    /// Numbers: take the largest.
    Max,
    /// Texts: one after the other.
    Join,
}

/// Elements of the class have handlers that are metrics ([`Handler::metric`]).
pub const METRICS: Capability = Capability("counts");

/// How a handler is read: [`Get`], [`Ask`], [`Act`] or [`Field`].
pub trait Read: Sync {
    /// Whether reading may do something beyond the element: call handlers of others, or wake them.
    fn may_act(&self) -> bool {
        false
    }

    /// Reads it of an element of the right type. `argument` is empty unless the handler takes one.
    fn read(&self, element: &mut dyn Any, cx: &mut Context, argument: &str) -> Result<String, String>;
}

/// How a handler is written: [`Put`] or [`Field`].
pub trait Write: Sync {
    /// Writes it to an element of the right type.
    fn write(&self, element: &mut dyn Any, cx: &mut Context, value: &str) -> Result<(), String>;
}

/// Reads a value that is always there.
pub struct Get<E>(pub fn(&mut E) -> String);

/// Reads by the machine or with an argument.
pub struct Ask<E>(pub fn(&mut E, &Context, &str) -> Result<String, String>);

/// Reads by doing something: such a handler is [`acting`](Handler::acting), unless what it does is harmless.
pub struct Act<E>(pub fn(&mut E, &mut Context, &str) -> Result<String, String>);

/// Writes.
pub struct Put<E>(pub fn(&mut E, &mut Context, &str) -> Result<(), String>);

/// Reads and writes a field, as arguments are written.
pub struct Field<E, T>(pub fn(&mut E) -> &mut T);

/// The element as what the handler is for. A port or file that is only checked is something else.
fn of<E: Any>(element: &mut dyn Any) -> Result<&mut E, String> {
    element.downcast_mut().ok_or_else(|| "nothing is opened in a check".to_owned())
}

impl<E: Any> Read for Get<E> {
    fn read(&self, element: &mut dyn Any, _cx: &mut Context, _argument: &str) -> Result<String, String> {
        of(element).map(self.0)
    }
}

impl<E: Any> Read for Ask<E> {
    fn read(&self, element: &mut dyn Any, cx: &mut Context, argument: &str) -> Result<String, String> {
        of(element).and_then(|element| self.0(element, cx, argument))
    }
}

impl<E: Any> Read for Act<E> {
    fn may_act(&self) -> bool {
        true
    }

    fn read(&self, element: &mut dyn Any, cx: &mut Context, argument: &str) -> Result<String, String> {
        of(element).and_then(|element| self.0(element, cx, argument))
    }
}

impl<E: Any> Write for Put<E> {
    fn write(&self, element: &mut dyn Any, cx: &mut Context, value: &str) -> Result<(), String> {
        of(element).and_then(|element| self.0(element, cx, value))
    }
}

impl<E: Any, T: ToString + 'static> Read for Field<E, T> {
    fn read(&self, element: &mut dyn Any, _cx: &mut Context, _argument: &str) -> Result<String, String> {
        of(element).map(|element| self.0(element).to_string())
    }
}

impl<E: Any, T: FromArgument + 'static> Write for Field<E, T> {
    fn write(&self, element: &mut dyn Any, _cx: &mut Context, value: &str) -> Result<(), String> {
        *self.0(of(element)?) = T::from_value(value)?;
        Ok(())
    }
}

/// What the machine or the router answers itself, or an element by [`Element::read_more`](crate::Element::read_more).
struct Elsewhere;

impl Read for Elsewhere {
    fn read(&self, _element: &mut dyn Any, _cx: &mut Context, _argument: &str) -> Result<String, String> {
        Err("not an element's handler".to_owned())
    }
}

impl Write for Elsewhere {
    fn write(&self, _element: &mut dyn Any, _cx: &mut Context, _value: &str) -> Result<(), String> {
        Err("not an element's handler".to_owned())
    }
}

/// A named value of an element that can be read or written while it runs.
#[derive(Clone, Copy)]
pub struct Handler {
    /// The name, as in Click.
    pub name: &'static str,
    /// What it is, in whole sentences: a part of the class's manual.
    pub doc: &'static str,
    /// How the values of several workers become one.
    pub combine: Combine,
    /// How it is read, if it can be.
    pub read: Option<&'static dyn Read>,
    /// How it is written, if it can be.
    pub write: Option<&'static dyn Write>,
    /// Whether it is for the configuration's own scripts only, not for clients of control sockets: it reaches beyond the router.
    pub private: bool,
    /// Whether reading it does something: who may only look does not read it.
    pub acts: bool,
    /// The name of the metric that its number is, without `brickway_`: a count ends with `_total`.
    pub metric: Option<&'static str>,
}

impl Handler {
    /// A handler to read.
    pub const fn read(
        name: &'static str,
        combine: Combine,
        doc: &'static str,
        read: &'static dyn Read,
    ) -> Self {
        Self { name, doc, combine, read: Some(read), write: None, private: false, acts: false, metric: None }
    }

    /// A handler to write.
    pub const fn write(name: &'static str, doc: &'static str, write: &'static dyn Write) -> Self {
        Self {
            name,
            doc,
            combine: Combine::First,
            read: None,
            write: Some(write),
            private: false,
            acts: false,
            metric: None,
        }
    }

    /// A handler to read and to write.
    pub const fn read_write(
        name: &'static str,
        combine: Combine,
        doc: &'static str,
        read: &'static dyn Read,
        write: &'static dyn Write,
    ) -> Self {
        Self {
            name,
            doc,
            combine,
            read: Some(read),
            write: Some(write),
            private: false,
            acts: false,
            metric: None,
        }
    }

    /// A handler to read and to write a field, which all workers have alike.
    pub const fn field<E: Any, T: FromArgument + ToString>(
        name: &'static str,
        doc: &'static str,
        field: &'static Field<E, T>,
    ) -> Self {
        Self::read_write(name, Combine::First, doc, field, field)
    }

    /// A handler that an element reads itself, by [`Element::read_more`](crate::Element::read_more).
    pub const fn more_to_read(name: &'static str, combine: Combine) -> Self {
        Self::read(name, combine, "", &Elsewhere)
    }

    /// A handler that an element reads and writes itself, by [`Element::read_more`](crate::Element::read_more) and
    /// [`Element::write_more`](crate::Element::write_more).
    pub const fn more_to_read_and_write(name: &'static str, combine: Combine) -> Self {
        Self::read_write(name, combine, "", &Elsewhere, &Elsewhere)
    }

    /// A handler that is written elsewhere.
    pub(crate) const fn to_write(name: &'static str) -> Self {
        Self::write(name, "", &Elsewhere)
    }

    /// The same handler, for the configuration's own scripts only.
    pub const fn private(mut self) -> Self {
        self.private = true;
        self
    }

    /// The same handler, of which reading does something.
    pub const fn acting(mut self) -> Self {
        self.acts = true;
        self
    }

    /// The same handler, whose number is a metric of this name.
    pub const fn metric(mut self, name: &'static str) -> Self {
        self.metric = Some(name);
        self
    }

    /// Returns whether it can be read.
    pub fn is_readable(&self) -> bool {
        self.read.is_some()
    }

    /// Returns whether it can be written.
    pub fn is_writable(&self) -> bool {
        self.write.is_some()
    }
}

impl fmt::Debug for Handler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handler")
            .field("name", &self.name)
            .field("combine", &self.combine)
            .finish_non_exhaustive()
    }
}
