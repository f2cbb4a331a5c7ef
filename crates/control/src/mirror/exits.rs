//! On a node of a cluster: a neighbour behind a port of another node is reached over the fabric. Its rewrite string is then the
//! fabric's header, which names that node and, by a label, what is to happen there.

use packet::IpVersion;
use std::collections::HashMap;

use fabric::{Header, Kind, Label, NodeId, Shim};
use fib::Adjacency;

use super::Mirror;
use super::hops::ethertype;

/// Where a port of the cluster is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// On this node: the output of the lookups that leads to it.
    Own(u16),
    /// On another node.
    Of(NodeId),
}

/// How packets leave a cluster, as one of its nodes sees it.
#[derive(Clone, Debug)]
pub struct ClusterExits {
    /// This node.
    pub here: NodeId,
    /// The number of the cluster.
    pub cluster: u16,
    /// How many nodes there are, if switches join them ([`Shim`]).
    pub switched: Option<usize>,
    /// The output of the lookups that leads to the fabric.
    pub fabric: u16,
    /// By the number of a port: where it is.
    pub ports: HashMap<u16, Exit>,
    /// By port and link address of a neighbour: its label for IPv4 packets, and of which node; that for IPv6 packets is one higher.
    labels: HashMap<(u16, [u8; 6]), (NodeId, Label)>,
}

impl ClusterExits {
    /// The exits of a node, without neighbours.
    pub fn new(here: NodeId, cluster: u16, switched: Option<usize>, fabric: u16) -> ClusterExits {
        ClusterExits { here, cluster, switched, fabric, ports: HashMap::new(), labels: HashMap::new() }
    }

    /// How packets reach a neighbour; `None` while its label is not known.
    pub(super) fn adjacency(
        &self,
        port: u16,
        mac: [u8; 6],
        source: [u8; 6],
        version: IpVersion,
    ) -> Option<Adjacency> {
        match *self.ports.get(&port)? {
            Exit::Own(output) => Some(Adjacency::ethernet(output, mac, source, ethertype(version))),
            Exit::Of(node) => {
                // A port may have moved, and the label be one of the node that had it.
                let (_, label) = self.labels.get(&(port, mac)).filter(|(of, _)| *of == node)?;
                let label = Label::new(label.number() + version as u32)?;
                let header = Header::new(Kind::Routed, node, label, self.here, self.cluster);
                match self.switched {
                    None => {
                        let [first, second] = ethertype(version);
                        let mut rewrite = [0; Header::LEN + 2];
                        rewrite[..Header::LEN].copy_from_slice(&header.bytes());
                        rewrite[Header::LEN..].copy_from_slice(&[first, second]);
                        Adjacency::new(self.fabric, &rewrite)
                    }
                    Some(nodes) => {
                        let Header { output, label, input, hops, cluster, .. } = header;
                        let (next, sender, kind) = (output, input, Kind::Routed);
                        let shim = Shim { next, sender, kind, output, label, input, hops, cluster };
                        Adjacency::new(self.fabric, &shim.bytes(nodes)?)
                    }
                }
            }
        }
    }
}

impl Mirror {
    /// Says that this is a node of a cluster.
    pub fn set_exits(&mut self, exits: ClusterExits) {
        self.exits = Some(exits);
        self.links.has_port_numbers = true;
    }

    /// Says where the cluster's ports are, when some have come or gone.
    pub fn set_exit_ports(&mut self, ports: HashMap<u16, Exit>) {
        if let Some(exits) = &mut self.exits {
            exits.ports = ports;
        }
        for interface in self.links.interfaces.keys().copied().collect::<Vec<_>>() {
            self.refresh_link(interface);
        }
    }

    /// Names the ports anew: their interfaces with the ports' numbers. A number means the same port for ever.
    pub fn set_ports(&mut self, ports: impl IntoIterator<Item = (String, u16)>) {
        self.links.ports.set(ports);
        for link in self.links.interfaces.values().map(|known| known.link.clone()).collect::<Vec<_>>() {
            self.put_link(link);
        }
    }

    /// Whether this is that node of a cluster.
    pub fn is_node(&self, node: NodeId) -> bool {
        self.exits.as_ref().is_some_and(|exits| exits.here == node)
    }

    /// Says by which label the node of a port knows a neighbour; to be said before packets are to go there. `None`: by none
    /// any more.
    pub fn set_exit_label(&mut self, port: u16, mac: [u8; 6], label: Option<(NodeId, Label)>) {
        let Some(exits) = &mut self.exits else { return };
        let before = match label {
            Some(label) => exits.labels.insert((port, mac), label),
            None => exits.labels.remove(&(port, mac)),
        };
        // What leads there has the old one.
        if before.is_some() && label.is_some() && before != label {
            let interface = self.links.of_port(port).map(|interface| interface.link.index);
            let all = self.neighbours.known.iter();
            let with_mac = all.filter(|((_, of), entry)| Some(*of) == interface && entry.mac == Some(mac));
            for (address, interface) in with_mac.map(|(&key, _)| key).collect::<Vec<_>>() {
                self.refresh_neighbour(interface, address);
            }
        }
    }
}
