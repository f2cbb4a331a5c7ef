//! Another configuration in the running one's place: the handler `hotconfig`, and an element's `config`, which is the same
//! configuration with another configuration string.

use packet::sync::lock;
use std::sync::{Arc, Mutex};

use graph::context::Globals;
use graph::graph::Registry;
use graph::hotswap::{Running, Swap};
use graph::lang::{FlatConfig, Options, Source};
use graph::router::Control;

use super::ClickArguments;
use crate::load::{self, Libraries, Messages};
use crate::whole_frames;

/// What a new configuration is made with.
pub(super) struct Exchange {
    registry: Registry,
    libraries: Libraries,
    options: Options,
    control: Arc<Control>,
    allows: bool,
    warns: bool,
    /// What runs, or will when all that was left with the router has taken its place.
    running: Mutex<Option<Running>>,
}

impl Exchange {
    pub(super) fn new(
        arguments: &ClickArguments,
        registry: Registry,
        options: Options,
        control: Arc<Control>,
    ) -> Arc<Self> {
        let libraries = Libraries::new(arguments.clickpath.as_deref());
        let (allows, warns) = (arguments.allow_reconfigure, !arguments.no_warnings);
        Arc::new(Self { registry, libraries, options, control, allows, warns, running: Mutex::new(None) })
    }

    /// Says what runs first.
    pub(super) fn begin(&self, running: Running) {
        *lock(&self.running) = Some(running);
    }

    /// The router's own handlers, for a configuration of this text. They know this weakly: what it holds of the running
    /// configuration, files to be written at the end among that, goes when the program is done with it.
    pub(super) fn globals(self: &Arc<Self>, text: &str) -> Globals {
        const ENDS: &str = "the router ends";
        let this = Arc::downgrade(self);
        let replace: Arc<graph::context::HotConfig> =
            Arc::new(move |text, now_ns| this.upgrade().ok_or(ENDS)?.replace(text, now_ns));
        let (this, source) = (Arc::downgrade(self), text.to_owned());
        let reconfigure: Arc<graph::context::Reconfigure> = Arc::new(move |element, config, now_ns| {
            this.upgrade().ok_or(ENDS)?.reconfigure(element, config, &source, now_ns)
        });
        Globals {
            hotconfig: self.allows.then_some(replace),
            reconfigure: Some(reconfigure),
            ..load::globals(&self.registry, text)
        }
    }

    fn replace(self: &Arc<Self>, text: &str, now_ns: u64) -> Result<(), String> {
        let mut running = lock(&self.running);
        let before = running.as_ref().ok_or("the router has not begun yet")?;
        let source = Source { name: "hotconfig".into(), text: text.to_owned() };
        let (mut flat, warnings) =
            load::compile_quietly(&source, &self.options, &self.registry, &self.libraries)?;
        // Those that the command line asked for stay.
        flat.elements
            .extend(before.config().elements.iter().filter(|element| is_of_driver(&element.name)).cloned());
        whole_frames::allow_again(&mut flat, before.shared());
        *running = Some(self.leave(before, flat, text, now_ns)?);
        if self.warns && !warnings.is_empty() {
            self.control.message(&warnings);
        }
        Ok(())
    }

    /// Has an element be made anew of another configuration string; `source` is the text of what runs.
    fn reconfigure(
        self: &Arc<Self>,
        element: &str,
        config: &str,
        source: &str,
        now_ns: u64,
    ) -> Result<(), String> {
        let mut running = lock(&self.running);
        let before = running.as_ref().ok_or("the router has not begun yet")?;
        let mut flat = FlatConfig::clone(before.config());
        let index = flat.find(element).ok_or_else(|| format!("there is no '{element}' any more"))?;
        config.clone_into(&mut flat.elements[index].config);
        *running = Some(self.leave(before, flat, source, now_ns)?);
        Ok(())
    }

    /// Leaves `flat` to take the running one's place; what will run.
    fn leave(
        self: &Arc<Self>,
        before: &Running,
        flat: FlatConfig,
        source: &str,
        now_ns: u64,
    ) -> Result<Running, String> {
        let globals = self.globals(source);
        let swap =
            Swap::prepare(before, &Arc::new(flat), &self.registry, globals, now_ns).map_err(|problems| {
                Messages { plain: true, warnings: false }.text(problems, false).trim_end().to_owned()
            })?;
        let running = swap.running();
        self.control.leave(swap);
        Ok(running)
    }
}

/// What elements are called that no configuration declares, but the command line.
pub(super) const DRIVER_PREFIX: &str = "click_driver@@";

fn is_of_driver(name: &str) -> bool {
    name.starts_with(DRIVER_PREFIX)
}
