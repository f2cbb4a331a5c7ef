//! The kinds of forwarding tables, by name.

use fib::{FibFamily, Kind, Kinds};
use toml::de::DeValue;

use super::Period;
use super::options::{About, Value, options, quoted};
use super::ports::Driver;

options! {
    /// The forwarding tables of all VRFs.
    TableSettings "tables" {
        /// The table in which IPv4 packets are looked up. "byte24": the fastest with large caches, 23 MB for a million routes.
        /// "rank": for small caches, 7 MB. "dir24_8": the classical one, 34 MB. "linear": looks at each route, to compare with.
        /// The kernel cannot read "dir24_8" and "linear": under driver "auto" all packets take the sockets, and "xdp" is refused.
        #[example = "\"byte24\""]
        #[flag("ipv4-table", "NAME")]
        ipv4: Kind<u32> = Kind::default(),
        /// The same for IPv6: "range_tree", "linear".
        #[example = "\"range_tree\""]
        #[flag("ipv6-table", "NAME")]
        ipv6: Kind<u128> = Kind::default(),
        /// Compare Linux's routes with the forwarding tables every so many seconds, with 0 never. Where they differ, all routes are
        /// read again, and a message has the number. A check takes 100 bytes of memory a route for a moment.
        #[example = "600"]
        #[live = true]
        check_seconds: Period = Period(600.0),
    }
}

impl About for TableSettings {
    fn summary(&self) -> Option<(&'static str, String)> {
        Some(("tables", format!("IPv4 {}, IPv6 {}", self.ipv4.name(), self.ipv6.name())))
    }
}

impl TableSettings {
    /// Returns the kinds that a FIB takes.
    pub(crate) fn kinds(&self) -> Kinds {
        Kinds { ipv4: self.ipv4, ipv6: self.ipv6 }
    }

    /// Returns what is wrong with them for a port of this driver, and what was expected.
    pub(crate) fn problem_with(&self, driver: Driver) -> Option<(String, String)> {
        let name = self.kinds().not_shared().filter(|_| driver == Driver::Xdp)?;
        let message = format!("driver = \"xdp\": the kernel cannot read the table {name}");
        let ipv4 = names::<u32>(|kind| kind.is_shared());
        let ipv6 = names::<u128>(|kind| kind.is_shared());
        Some((message, format!("expected tables {ipv4} for IPv4, {ipv6} for IPv6, or another driver")))
    }
}

/// The names of kinds, as a list.
fn names<A: FibFamily>(which: impl FnMut(&Kind<A>) -> bool) -> String {
    let names: Vec<String> = Kind::<A>::all().filter(which).map(|kind| quoted(kind.name())).collect();
    names.join(", ")
}

impl<A: FibFamily> Value for Kind<A> {
    fn read(toml: &DeValue<'_>, _limits: Option<(f64, f64)>) -> Option<Self> {
        Kind::named(toml.as_str()?).ok()
    }

    fn expected(_limits: Option<(f64, f64)>) -> String {
        format!("one of {}", names::<A>(|_| true))
    }

    fn to_toml(&self) -> Option<String> {
        Some(quoted(self.name()))
    }
}
