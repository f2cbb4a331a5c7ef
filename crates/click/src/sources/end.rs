//! What a source does when it has made its last packet: nothing, stop the router (`STOP true`), or write a handler
//! (`END_CALL`).

use graph::arguments::HandlerCall;
use graph::{Arguments, ConfigError, Context};

/// What happens at the end.
#[derive(Clone, Debug, Default)]
pub(crate) struct End {
    stop: bool,
    call: Option<HandlerCall>,
}

impl End {
    /// Reads the arguments STOP and END_CALL.
    pub(crate) fn read(arguments: &mut Arguments) -> Result<Self, ConfigError> {
        let stop = arguments.keyword_or("STOP", false)?;
        let call = arguments.keyword("END_CALL")?;
        if stop && call.is_some() {
            return Err("STOP and END_CALL: at most one of them can be said".to_owned().into());
        }
        Ok(Self { stop, call })
    }

    /// The end is there.
    pub(crate) fn reached(&self, cx: &mut Context) {
        if self.stop {
            cx.stop();
        }
        if let Some(call) = &self.call {
            call.call(cx);
        }
    }
}
