//! The element behind the classes that check a header: good headers pass, bad ones are dropped or emitted on
//! the second output, with counters of each reason. The classes differ in their [`Check`].

use elements::ip::Rejects;
use graph::{Arguments, Class, Combine, ConfigError, Context, Element, Get, Handler, Setup};
use packet::{Batch, Packet};

/// What a class checks.
pub(crate) trait Check: Sized + Send + 'static {
    /// The header's name in messages.
    const TITLE: &'static str;
    /// Why packets fail, in Click's words.
    const REASONS: &'static [&'static str];

    /// Reads the arguments of the element.
    fn read(arguments: &mut Arguments) -> Result<(Self, Reports), ConfigError>;

    /// Checks a packet, and marks or strips what it found. The error is the number of the reason.
    fn check(&mut self, packet: &mut Packet) -> Result<(), usize>;
}

/// The reports about packets that fail.
pub(crate) struct Reports {
    verbose: bool,
    details: bool,
}

impl Reports {
    /// Reads the keywords VERBOSE and DETAILS.
    pub(crate) fn read(arguments: &mut Arguments) -> Result<Self, ConfigError> {
        let verbose = arguments.keyword_or("VERBOSE", false)?;
        Ok(Self { verbose, details: arguments.keyword_or("DETAILS", false)? })
    }
}

pub(crate) struct HeaderCheck<C> {
    check: C,
    rejects: Rejects,
}

impl<C: Check> HeaderCheck<C> {
    pub(crate) const DETAILS: Handler = Handler::read(
        "drop_details",
        Combine::Join,
        "Packets refused, by reason. Only with DETAILS.",
        &Get(|e: &mut Self| e.rejects.details_text()),
    );

    /// A class of this element, without a name and a manual.
    pub(crate) const CLASS: Class = Class {
        ports: "1/1-2",
        processing: Class::AGNOSTIC_WITH_ERRORS,
        handlers: &[
            Handler::read(
                "drops",
                Combine::Sum,
                "Packets refused so far.",
                &Get(|e: &mut Self| e.rejects.total().to_string()),
            ),
            Self::DETAILS,
        ],
        make: Self::make,
        ..Class::DEFAULT
    };

    fn make(setup: &mut Setup<'_>) -> Result<Box<dyn Element>, ConfigError> {
        let (check, Reports { verbose, details }) = C::read(&mut setup.arguments)?;
        setup.arguments.finish()?;
        let rejects = Rejects::new(setup.name(), C::TITLE, C::REASONS, verbose, details);
        Ok(Box::new(Self { check, rejects }))
    }
}

impl<C: Check> Element for HeaderCheck<C> {
    fn process(&mut self, cx: &mut Context, batch: &mut Batch) {
        let Self { check, rejects } = self;
        rejects.filter(cx, batch, |packet| check.check(packet));
    }

    fn has_handler(&self, name: &str) -> bool {
        self.rejects.has_handler(name)
    }
}
