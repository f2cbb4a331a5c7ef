//! Which interface of Linux a port is. That is its index: it stays the port when it is renamed, and another interface
//! that gets the name meanwhile is not the port. When it is gone, the next one with the name is the port: the name that
//! it had last, or that of the port.

use crate::change::InterfaceIndex;

/// The ports, each with a name and a number of type `N`.
#[derive(Clone, Debug)]
pub(crate) struct PortNames<N>(Vec<Port<N>>);

#[derive(Clone, Debug)]
struct Port<N> {
    name: String,
    number: N,
    /// Its interface, while there is one.
    index: Option<InterfaceIndex>,
    /// The name that its interface has, or had last.
    last: String,
}

impl<N> Default for PortNames<N> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<N: Copy + Ord> PortNames<N> {
    /// Names the ports anew. Those that were there keep their interfaces.
    pub(crate) fn set(&mut self, ports: impl IntoIterator<Item = (String, N)>) {
        let known = std::mem::take(&mut self.0);
        self.0 = Vec::from_iter(ports.into_iter().map(|(name, number)| {
            let before = known.iter().find(|port| (&port.name, port.number) == (&name, number));
            before.cloned().unwrap_or_else(|| Port { last: name.clone(), name, number, index: None })
        }));
        self.0.sort_by_key(|port| port.number);
    }

    /// Says which name the interface of a port has, if that is not the name of the port.
    pub(crate) fn set_last(&mut self, number: N, name: &str) {
        self.0.iter_mut().filter(|port| port.number == number).for_each(|port| port.last = name.to_owned());
    }

    /// Returns the port that an interface is which has this name now.
    pub(crate) fn put(&mut self, index: InterfaceIndex, name: &str) -> Option<N> {
        let is_free = |port: &Port<N>| port.index.is_none();
        let place = (self.0.iter().position(|port| port.index == Some(index)))
            .or_else(|| self.0.iter().position(|port| is_free(port) && port.last == name))
            .or_else(|| self.0.iter().position(|port| is_free(port) && port.name == name))?;
        let port = &mut self.0[place];
        (port.index, port.last) = (Some(index), name.to_owned());
        Some(port.number)
    }

    /// The interface is gone.
    pub(crate) fn remove(&mut self, index: InterfaceIndex) {
        self.0.iter_mut().filter(|port| port.index == Some(index)).for_each(|port| port.index = None);
    }

    /// Whether an interface of this name would be a port that has none.
    pub(crate) fn is_wanted(&self, name: &str) -> bool {
        self.0.iter().any(|port| port.index.is_none() && (port.last == name || port.name == name))
    }

    /// Returns the port of this name if it has no interface.
    pub(crate) fn without_interface(&self, name: &str) -> Option<N> {
        self.0.iter().find(|port| port.index.is_none() && port.name == name).map(|port| port.number)
    }

    /// Returns the name of a port.
    pub(crate) fn name(&self, number: N) -> Option<&str> {
        self.iter().find(|(_, known)| *known == number).map(|(name, _)| name)
    }

    /// Returns names and numbers, by number.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, N)> {
        self.0.iter().map(|port| (port.name.as_str(), port.number))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ports() -> PortNames<u16> {
        let mut ports = PortNames::default();
        ports.set([("eth1".to_owned(), 0), ("eth2".to_owned(), 1)]);
        assert_eq!(
            (ports.put(11, "eth1"), ports.put(12, "eth2"), ports.put(13, "eth3")),
            (Some(0), Some(1), None)
        );
        ports
    }

    #[test]
    fn a_port_is_an_interface_whatever_its_name() {
        let mut ports = ports();
        assert_eq!(ports.put(11, "wan0"), Some(0));
        assert_eq!(ports.put(14, "eth1"), None);
        assert!(!ports.is_wanted("eth1") && !ports.is_wanted("wan0"));
        assert_eq!((ports.name(0), ports.without_interface("eth1")), (Some("eth1"), None));
    }

    #[test]
    fn a_port_may_have_another_name_than_its_interface() {
        let mut ports = ports();
        ports.remove(11);
        ports.set_last(0, "wan0");
        assert_eq!(ports.put(14, "wan0"), Some(0));
    }

    #[test]
    fn two_ports_swap_their_names() {
        let mut ports = ports();
        assert_eq!(ports.put(11, "tmp"), Some(0));
        assert_eq!(ports.put(12, "eth1"), Some(1));
        assert_eq!(ports.put(11, "eth2"), Some(0));
    }

    #[test]
    fn what_comes_under_the_last_name_or_the_first_is_the_port() {
        for name in ["wan0", "eth1"] {
            let mut ports = ports();
            ports.put(11, "wan0");
            ports.remove(11);
            assert!(ports.is_wanted(name) && ports.without_interface("eth1") == Some(0));
            assert_eq!(ports.put(15, "other"), None);
            assert_eq!(ports.put(16, name), Some(0));
            assert_eq!(ports.put(17, "wan0"), None);
        }
    }

    #[test]
    fn ports_that_stay_keep_their_interfaces() {
        let mut ports = ports();
        ports.put(11, "wan0");
        ports.set([("eth1".to_owned(), 0), ("eth3".to_owned(), 2)]);
        assert_eq!(
            (ports.put(11, "wan0"), ports.put(12, "eth2"), ports.put(13, "eth3")),
            (Some(0), None, Some(2))
        );
    }
}
