//! The terminal, and what happens: keys, new sizes, samples, signals.
//!
//! The terminal is given back when [`Screen`] is dropped, and before the message of a panic. A thread that ends, whatever the
//! reason, ends the program, which drops the screen.

use std::io;
use std::sync::mpsc::{Receiver, Sender, channel};

use ratatui::DefaultTerminal;
use ratatui::backend::Backend;
use ratatui::crossterm::event::{self, KeyEvent};
use ratatui::crossterm::terminal::is_raw_mode_enabled;

use super::draw::{Look, draw};
use super::sample::Sample;
use super::state::State;
use crate::interrupt::on_interrupt;

/// What the loop waits for.
#[derive(Debug)]
pub(super) enum Event {
    Key(KeyEvent),
    Resized,
    /// What the router answered, or why it did not.
    Sample(Result<Box<Sample>, String>),
    /// A signal, or a terminal that is gone.
    Over,
    /// A thread panicked, and has reported it.
    Broken,
}

/// A terminal that is ours.
pub(super) struct Screen {
    terminal: DefaultTerminal,
    events: Sender<Event>,
}

/// Sends that all is over when it is dropped.
struct End(Sender<Event>);

impl Drop for End {
    fn drop(&mut self) {
        // Nobody listens where it is over already.
        let _ = self.0.send(if std::thread::panicking() { Event::Broken } else { Event::Over });
    }
}

impl Screen {
    /// Takes the terminal, and listens to keys and signals.
    ///
    /// # Errors
    /// The terminal cannot be set, or a thread not be started.
    pub(super) fn enter() -> io::Result<(Self, Receiver<Event>)> {
        let (events, received) = channel();
        let interrupted = events.clone();
        on_interrupt(move || drop(interrupted.send(Event::Over)))?;
        let terminal = ratatui::try_init().inspect_err(|_| ratatui::restore())?;
        let screen = Self { terminal, events };
        screen.spawn("keys", keys)?;
        Ok((screen, received))
    }

    /// Starts a thread that sends events.
    ///
    /// # Errors
    /// There is no thread for it.
    pub(super) fn spawn(
        &self,
        name: &str,
        send: impl FnOnce(&Sender<Event>) + Send + 'static,
    ) -> io::Result<()> {
        let end = End(self.events.clone());
        std::thread::Builder::new().name(name.to_owned()).spawn(move || send(&end.0)).map(|_| ())
    }

    /// Draws what changed.
    ///
    /// # Errors
    /// The terminal is gone.
    pub(super) fn draw(&mut self, state: &State, look: Look) -> io::Result<()> {
        self.terminal.draw(|frame| draw(frame, state, look)).map(|_| ())
    }

    /// Has everything drawn anew the next time.
    ///
    /// # Errors
    /// The terminal is gone.
    pub(super) fn clear(&mut self) -> io::Result<()> {
        // `Terminal::clear` asks the terminal for its cursor, and takes the answer from the thread that reads keys.
        self.terminal.backend_mut().clear()?;
        // What is on the screen is blank, so all cells differ.
        self.terminal.swap_buffers();
        Ok(())
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // A panic has restored the terminal; once more would move the cursor back over its message.
        if is_raw_mode_enabled().unwrap_or(true) {
            ratatui::restore();
        }
    }
}

/// Sends keys and new sizes until the terminal is gone.
fn keys(events: &Sender<Event>) {
    while let Ok(event) = event::read() {
        let event = match event {
            event::Event::Key(key) => Event::Key(key),
            event::Event::Resize(..) => Event::Resized,
            _ => continue,
        };
        if events.send(event).is_err() {
            return;
        }
    }
}
