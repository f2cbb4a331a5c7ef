//! What clients connect to: the control sockets, and the listeners of HTTP. A router of ports opens them while it is root's, and
//! answers once it runs.

use anyhow::{Context, Result};
use control::api::{ServerError, ServerOptions, Sockets, default_socket};

use crate::settings::{ControlSettings, Settings};
#[cfg(feature = "web")]
pub(super) use crate::web::Listeners;

/// What is open, before anybody answers there.
pub(crate) struct Doors {
    /// `None` where another router has the usual place.
    pub(super) sockets: Option<Sockets>,
    pub(super) http: Listeners,
}

impl Doors {
    /// Looks whether the files with secrets that the settings name can be used.
    ///
    /// # Errors
    ///
    /// One cannot.
    pub(crate) fn check(settings: &Settings) -> Result<()> {
        Listeners::check(settings)
    }

    /// Opens what the settings name, and the usual control socket.
    ///
    /// # Errors
    ///
    /// A socket or an address cannot be had, or a file with a secret cannot be used.
    pub(super) fn open(settings: &Settings, has_file: bool) -> Result<Doors> {
        let sockets = control_sockets(&settings.control, has_file)?;
        Ok(Doors { sockets, http: Listeners::open(settings)? })
    }
}

/// Opens the control sockets. Where another router has the usual place, a router without a file of settings goes without.
pub(super) fn control_sockets(control: &ControlSettings, has_file: bool) -> Result<Option<Sockets>> {
    let options = ServerOptions {
        read_group: control.read_group.clone(),
        write_group: control.write_group.clone(),
        ..ServerOptions::new(control.socket.clone().unwrap_or_else(default_socket))
    };
    match Sockets::open(&options) {
        Err(error @ ServerError::Running { .. }) if control.socket.is_none() && !has_file => {
            tracing::warn!("{error}; this one has no control socket (--socket PATH gives it one)");
            Ok(None)
        }
        opened => opened.map(Some).context("no control socket"),
    }
}

/// This program was built without HTTP.
#[cfg(not(feature = "web"))]
pub(super) struct Listeners;

#[cfg(not(feature = "web"))]
impl Listeners {
    /// Nothing is known of files that this program cannot use.
    pub(super) fn check(_settings: &Settings) -> Result<()> {
        Ok(())
    }

    /// None is wanted.
    pub(super) fn taken(&self) -> impl Iterator<Item = std::net::SocketAddr> {
        std::iter::empty()
    }

    /// Refuses settings that have listeners.
    pub(super) fn open(settings: &Settings) -> Result<Listeners> {
        match settings.metrics.door().or(settings.web.door()) {
            Some(door) => {
                anyhow::bail!("cannot listen at {}: this program was built without feature web", door.listen)
            }
            None => Ok(Listeners),
        }
    }
}
