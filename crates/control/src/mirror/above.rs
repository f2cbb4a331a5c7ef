//! What stands right above an interface, and which rules tell the two apart.

use super::Mirror;
use crate::above::names_what_is_below;
use crate::change::{InterfaceIndex, Link};

impl Mirror {
    /// The interfaces right above one: what has it below, and the bridge or the like that it is a member of. Not a VRF.
    pub fn right_above(&self, index: InterfaceIndex) -> impl Iterator<Item = &Link> {
        let links = || self.links.interfaces.values().map(|interface| &interface.link);
        let master = self.links.get(index).and_then(|interface| interface.link.master);
        let has_it_below = move |link: &&Link| link.below == Some(index) && names_what_is_below(&link.kind);
        let is_master = move |link: &&Link| Some(link.index) == master && link.vrf_table.is_none();
        links().filter(move |link| has_it_below(link) || is_master(link))
    }

    /// The members of a bridge, a bond or a VRF.
    pub fn members(&self, index: InterfaceIndex) -> impl Iterator<Item = &Link> {
        let links = self.links.interfaces.values().map(|interface| &interface.link);
        links.filter(move |link| link.master == Some(index))
    }

    /// Whether a policy rule selects by this name of an input interface.
    pub fn has_rule_of_input(&self, name: &str) -> bool {
        self.policy.list.iter().any(|(rule, _)| rule.input.as_deref() == Some(name))
    }
}
