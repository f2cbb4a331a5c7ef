//! The features of a router in Linux's place (`brickway run PORT...`), a folder each: its section of the settings, its elements in
//! the configuration, what `brickway show` shows of it, what a reload changes. A new one is a folder, and a line in the list below.
//!
//! `vlan` is not in the list: VLANs are ports, and have no section of their own.

pub(crate) mod vlan;

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use control::api::schema::Schemas;
use control::backstop::SourceRoute;
use control::cluster::member::MemberShared;
use control::cluster::protection::Told;
use control::supervisor::Supervisor;
use elements::devices::follow_linux::Followed;
use graph::lang::FlatConfig;
use graph::setup::Shared;
use ports::{KernelForwarding, Sources};
use serde_json::Value;

use crate::doctor::Diagnosis;
use crate::drop_in::{Frame, Part, Plan};
use crate::settings::Bypass;
use crate::settings::options::{Opt, Section};
use crate::settings::reader;
use crate::table::Align;

/// What a feature adds to the router; implemented by its settings.
pub(crate) trait Feature: Section {
    /// Whether it keeps packets from being forwarded, which Linux then must not forward in the router's place.
    fn filters(&self) -> bool {
        false
    }

    /// Returns the route to their source that Linux has to ask of what it forwards, if that is checked and not by its rp_filter.
    fn source_route(&self) -> Option<SourceRoute> {
        None
    }

    /// Returns the same for a configuration that somebody else wrote.
    fn source_route_in(&self, _config: &FlatConfig) -> Option<SourceRoute> {
        None
    }

    /// Whether Linux has to forward as well, for what the fast path leaves to it.
    fn needs_linux_to_forward(&self) -> bool {
        false
    }

    /// Returns why the graph has to see plain transit at the moment, if it has to: then that is not forwarded in the kernel.
    fn sees_transit(&self, _shared: &Shared) -> Option<&'static str> {
        None
    }

    /// Looks at what Linux has for it, before a router starts that bypasses what is `ignored`.
    fn examine(&self, _ignored: &[Bypass]) -> Diagnosis {
        Diagnosis::default()
    }

    /// Whether the program in the kernel has to judge packets by access lists ([`KernelForwarding::take_list`]).
    fn lists_in_kernel(&self) -> bool {
        false
    }

    /// Gives the program in the kernel what it needs, after each time that one has been loaded. Earlier ones run no more.
    fn follow_in_kernel(&self, _shared: &Shared, _forwarding: &mut KernelForwarding) {}

    /// Returns which IPv4 and IPv6 sources are believed of packets that come in by a port with this rp_filter; the kernel
    /// asks before it forwards.
    fn sources(&self, _rp_filter: u8) -> [Sources; 2] {
        [Sources::All; 2]
    }

    /// Has its files' names begin at the folder of the settings file.
    fn place_files(&mut self, _folder: &Path) {}

    /// Returns the mistakes in the items of its lists, for a router with these ports.
    fn mistakes(&self, _ports: &[&str]) -> Vec<ItemMistake> {
        Vec::new()
    }

    /// Checks what its options name, files perhaps, for a router with these ports. Returns warnings.
    ///
    /// # Errors
    ///
    /// What is wrong.
    fn check(&self, _ports: &[&str]) -> Result<Vec<String>> {
        Ok(Vec::new())
    }

    /// Puts its elements before the lookups: packets come in by the ports' checks and go on `to` IPv4's and IPv6's part. Returns
    /// where they go to from the ports now.
    ///
    /// # Errors
    ///
    /// Something is missing, a file perhaps.
    fn before_lookups(&self, _plan: &mut Plan, _frame: &Frame<'_>, to: [Part; 2]) -> Result<[Part; 2]> {
        Ok(to)
    }

    /// Puts its elements before those of all features: packets come in by the ports' checks and go on `to` IPv4's and IPv6's part. Returns
    /// where they go to from the ports now.
    fn before_features(&self, _plan: &mut Plan, _frame: &Frame<'_>, to: [Part; 2]) -> [Part; 2] {
        to
    }

    /// Puts its elements behind the lookups.
    fn behind_lookups(&self, _plan: &mut Plan, _frame: &Frame<'_>) {}

    /// Returns what `brickway show` shows of it.
    fn shown(&self) -> &'static [Shown] {
        &[]
    }

    /// Returns what the operator should know of it.
    fn problems(&self, _running: &Running<'_>) -> Vec<String> {
        Vec::new()
    }

    /// Begins to follow what it needs of Linux beside routes and links, for a router with these ports.
    ///
    /// # Errors
    ///
    /// Linux lets us not.
    fn follow(
        &self,
        _config: &FlatConfig,
        _ports: &[String],
        _shared: &Shared,
        _supervisor: &Supervisor,
    ) -> Result<Option<Arc<dyn Follower>>> {
        Ok(None)
    }

    /// Begins what decides on a node of a cluster which packets are protected.
    ///
    /// # Errors
    ///
    /// Linux lets us not.
    fn protect(
        &self,
        _options: &ProtectorOptions,
        _shared: &Shared,
        _supervisor: &Supervisor,
    ) -> Result<Option<Arc<dyn Protector>>> {
        Ok(None)
    }

    /// Returns the files that its options name. They may change while their names stay.
    fn files(&self) -> Vec<PathBuf> {
        Vec::new()
    }

    /// Whether its live options can change in this router.
    fn can_reload(&self, _running: &Running<'_>) -> bool {
        false
    }

    /// Changes the running router to these settings, which may be the same but for their files. Returns what was done.
    ///
    /// # Errors
    ///
    /// What is wrong; then nothing changes.
    fn reload(&self, _running: &Running<'_>) -> Result<Option<String>, String> {
        Ok(None)
    }
}

/// A mistake in an item of a list of the settings.
pub(crate) struct ItemMistake {
    /// The option.
    pub(crate) key: &'static str,
    /// The number of the item, from 0.
    pub(crate) item: usize,
    /// What is wrong, and behind `; ` what was expected.
    pub(crate) text: String,
}

/// What follows Linux for a feature, on a thread of its own. It ends by [`Follower::end`].
pub(crate) trait Follower: Send + Sync {
    /// Calls `wake` whenever the main thread is to call [`Follower::prepare`].
    fn on_change(&self, wake: Arc<dyn Fn() + Send + Sync>);

    /// Waits, before the first packet, until all that Linux has is known. Returns what went wrong.
    fn wait(&self) -> Option<String>;

    /// Says which addresses are the host's.
    fn set_own_addresses(&self, addresses: &[IpAddr]);

    /// Gets the elements ready for what is new, on the main thread: `write` writes to what follows this of Linux. Returns whether
    /// forwarding in the kernel has to be looked at again.
    fn prepare(&self, write: &mut dyn FnMut(Followed)) -> bool;

    /// Has the elements work by what is new. Forwarding in the kernel has been looked at.
    fn publish(&self);

    /// Ends it, after the workers have ended.
    fn end(&self);
}

/// What decides on a node of a cluster which packets are protected: what the leader says, or this node's Linux while it leads.
pub(crate) trait Protector: Follower {
    /// Takes in what the log says that the leader protects.
    fn set_logged(&self, told: Option<&Told>);

    /// Whether what is known counts for the next packet.
    fn is_in_force(&self) -> bool;

    /// Works by this node's Linux from now on; the last leader said `told`. What Linux has goes to `member`.
    fn begin_to_lead(&self, told: Option<&Told>, member: &Arc<MemberShared>);

    /// Says that this node leads no more. It works by its own Linux until [`Protector::stop_leading`].
    fn lead_is_over(&self);

    /// Whether packets are protected by this node's Linux, which leads.
    fn leads(&self) -> bool;

    /// Whether they are, though this node leads no more.
    fn is_to_stop(&self) -> bool;

    /// Works by the log again, unless this node leads anew.
    fn stop_leading(&self);
}

/// How a node of a cluster protects packets.
pub(crate) struct ProtectorOptions {
    /// Whether this node's Linux is ignored.
    pub(crate) ignores: bool,
    /// How long what the last leader protected is held.
    pub(crate) hold: Duration,
    /// Where ESP comes from that was sealed for Linux.
    pub(crate) checked_source: [u8; 6],
}

/// A router that runs, as features see it.
pub(crate) struct Running<'a> {
    pub(crate) config: Arc<FlatConfig>,
    pub(crate) shared: &'a Shared,
    /// Reads a handler: ELEMENT.HANDLER.
    pub(crate) read: &'a dyn Fn(&str) -> Result<String, String>,
}

/// A table of `brickway show`.
#[cfg_attr(not(feature = "web"), allow(dead_code, reason = "metrics and OpenAPI are of the feature web"))]
pub(crate) struct Shown {
    /// What is written behind `show`.
    pub(crate) name: &'static str,
    /// What it is, in a line.
    pub(crate) about: &'static str,
    /// Titles of its columns.
    pub(crate) columns: &'static [(&'static str, Align)],
    /// Returns its rows, as JSON objects.
    pub(crate) rows: fn(&Running<'_>) -> Result<Vec<Value>, String>,
    /// Adds the schema of a row, and returns its name.
    pub(crate) row: fn(&mut Schemas) -> String,
    /// How long lines for people are, if what is too long in the last column is folded.
    pub(crate) folds_at: Option<usize>,
    /// Returns a row's lines, each with its cells, for people.
    pub(crate) lines: fn(Value) -> Result<Vec<Vec<String>>, serde_json::Error>,
    /// What people read if there are no rows.
    pub(crate) nothing: &'static str,
    /// The numbers of a row that are metrics, `brickway_NAME_NUMBER_total`; an object has one for each reason.
    pub(crate) counts: &'static [&'static str],
    /// The fields of a row that are the labels of its metrics.
    pub(crate) labels: &'static [&'static str],
}

/// Makes the features' modules, and a field of the settings for each.
macro_rules! features {
    ($($(#[doc = $doc:literal])+ $name:ident,)*) => {
        $($(#[doc = $doc])+ pub(crate) mod $name;)*

        /// The settings of the features.
        #[derive(Clone, Debug, Default, PartialEq)]
        pub(crate) struct FeatureSettings {
            $($(#[doc = $doc])+ pub(crate) $name: $name::Settings,)*
        }

        impl FeatureSettings {
            /// Reads the section of each.
            pub(crate) fn read(root: &mut reader::Section<'_, '_>) -> Self {
                Self { $($name: root.options(stringify!($name), $name::Settings::read),)* }
            }

            /// Returns all, in the order of the file, in which packets meet them.
            pub(crate) fn all(&self) -> Vec<&dyn Feature> {
                vec![$(&self.$name,)*]
            }

            /// Returns all, to be changed.
            pub(crate) fn all_mut(&mut self) -> Vec<&mut dyn Feature> {
                vec![$(&mut self.$name,)*]
            }
        }
    };
}

features! {
    /// The slow path, which finishes what the fast path cannot.
    slow_path,
    /// The access list. It comes before all else that judges: what it denies must not reach Linux by another way.
    acl,
    /// Which source addresses are believed.
    reverse_path,
    /// IPsec by Linux's policies and associations.
    ipsec,
}

impl FeatureSettings {
    /// Returns whether one of them keeps packets from being forwarded: a part of what `drop_in::Graph` decides.
    pub(crate) fn filter(&self) -> bool {
        self.all().iter().any(|feature| feature.filters())
    }

    /// Returns the route to their source that Linux has to ask of what it forwards.
    pub(crate) fn source_route(&self) -> Option<SourceRoute> {
        self.all().iter().find_map(|feature| feature.source_route())
    }

    /// Returns why the graph has to see plain transit at the moment, if it has to.
    pub(crate) fn sees_transit(&self, shared: &Shared) -> Option<&'static str> {
        self.all().iter().find_map(|feature| feature.sees_transit(shared))
    }

    /// Whether the program in the kernel has to judge packets by access lists.
    pub(crate) fn lists_in_kernel(&self) -> bool {
        self.all().iter().any(|feature| feature.lists_in_kernel())
    }

    /// Gives a program in the kernel that was loaded what it needs.
    pub(crate) fn follow_in_kernel(&self, shared: &Shared, forwarding: &mut KernelForwarding) {
        self.all().iter().for_each(|feature| feature.follow_in_kernel(shared, forwarding));
    }

    /// Returns which sources are believed of packets that come in by a port with this rp_filter.
    pub(crate) fn sources(&self, rp_filter: u8) -> [Sources; 2] {
        let of_features = self.all().into_iter().map(|feature| feature.sources(rp_filter));
        of_features.fold([Sources::All; 2], |[a, b], [c, d]| [a.max(c), b.max(d)])
    }

    /// Returns the same for a configuration that somebody else wrote.
    pub(crate) fn source_route_in(config: &FlatConfig) -> Option<SourceRoute> {
        FeatureSettings::default().all().iter().find_map(|feature| feature.source_route_in(config))
    }

    /// Begins to follow what they need of Linux.
    ///
    /// # Errors
    ///
    /// Linux lets us not.
    pub(crate) fn follow(
        &self,
        config: &FlatConfig,
        ports: &[String],
        shared: &Shared,
        supervisor: &Supervisor,
    ) -> Result<Vec<Arc<dyn Follower>>> {
        let all = self.all().into_iter();
        all.filter_map(|feature| feature.follow(config, ports, shared, supervisor).transpose()).collect()
    }

    /// Begins what decides on a node of a cluster which packets are protected.
    ///
    /// # Errors
    ///
    /// Linux lets us not.
    pub(crate) fn protect(
        &self,
        options: &ProtectorOptions,
        shared: &Shared,
        supervisor: &Supervisor,
    ) -> Result<Option<Arc<dyn Protector>>> {
        let mut all = self.all().into_iter();
        all.find_map(|feature| feature.protect(options, shared, supervisor).transpose()).transpose()
    }

    /// Whether one of them needs Linux to forward as well.
    pub(crate) fn need_linux_to_forward(&self) -> bool {
        self.all().iter().any(|feature| feature.needs_linux_to_forward())
    }

    /// Has the names of all files begin at this folder.
    pub(crate) fn place_files(&mut self, folder: &Path) {
        self.all_mut().into_iter().for_each(|feature| feature.place_files(folder));
    }

    /// Whether an option is of a feature.
    pub(crate) fn has(option: &Opt) -> bool {
        FeatureSettings::default().all().iter().any(|feature| feature.has(option))
    }

    /// Returns all that `brickway show` shows of them.
    pub(crate) fn shown() -> Vec<&'static Shown> {
        let features = FeatureSettings::default();
        features.all().into_iter().flat_map(|feature| feature.shown()).collect()
    }

    /// Returns the table of `brickway show` of this name.
    pub(crate) fn shown_as(name: &str) -> Option<&'static Shown> {
        Self::shown().into_iter().find(|shown| shown.name == name)
    }

    /// Returns what the operator should know of them.
    pub(crate) fn problems(&self, running: &Running<'_>) -> Vec<String> {
        self.all().into_iter().flat_map(|feature| feature.problems(running)).collect()
    }
}
