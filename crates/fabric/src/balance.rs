//! Directly, or over whom? Direct Valiant load balancing with what one node knows.
//!
//! Valiant's scheme sends every packet to an intermediate node drawn at random, and from there to its output. Whatever the traffic, as long as
//! no port is asked for more than it can send, a link of a full mesh of N nodes then carries at most 2R/N, R being the rate of a
//! node's ports. Direct VLB (Zhang-Shen and McKeown, IWQoS 2005, for uneven nodes Hot Interconnects 2004) sends up to R/N of what
//! goes from one node to another directly, which is all of it where traffic is even, and only the rest over others. RouteBricks
//! (SOSP 2009, section 3.2) spreads that rest over the other nodes; here the direct link has its part of it too, so that N - 1 links
//! share what N - 2 would, and [`Mode::DirectVlbOthers`] is as the paper says.
//!
//! What RouteBricks (SOSP 2009, section 6.1) adds: a flow's packets that come within delta of each other take the same path
//! ([`Flowlets`]), unless the link that it begins with has no room; then each packet is decided anew.
//!
//! Everything here is one worker's: it gets its share of the rates in [`Settings`], and asks nobody.
//!
//! **Room.** Every link of this node has a [`Bucket`] of its rate. All that this worker sends takes from it, what it relays for others too;
//! but only packets that enter the fabric here are turned away where it is empty. So what has gone half its way comes first. A bucket
//! fills when the first packet of a batch ([`Balancer::begin`]) asks for it: a batch takes less time than a packet on the wire.

use std::sync::Arc;

use crate::flowlets::{PathChoice, Place};
use crate::{Bucket, Flowlets, NodeId, Paths};

/// How paths are chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Directly up to R/N, the rest over intermediate nodes and the direct link alike.
    #[default]
    DirectVlb,
    /// Directly up to R/N, the rest over intermediate nodes only: as RouteBricks states it.
    DirectVlbOthers,
    /// Always over an intermediate node: Valiant's own. For comparison.
    ClassicVlb,
    /// Always directly. For comparison.
    SinglePath,
}

impl Mode {
    /// All of them, with their names.
    pub const NAMES: [(&'static str, Mode); 4] = [
        ("direct-vlb", Mode::DirectVlb),
        ("direct-vlb-others", Mode::DirectVlbOthers),
        ("classic-vlb", Mode::ClassicVlb),
        ("single-path", Mode::SinglePath),
    ];
}

/// What a worker of a node may use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// How paths are chosen.
    pub mode: Mode,
    /// How long a flow keeps its path without a packet, in nanoseconds. 0: every packet for itself.
    pub delta_ns: u64,
    /// How many flows are remembered.
    pub flowlets: usize,
    /// R: what the ports of this node may bring in, in bytes a second; of several workers each has its part.
    pub ports_rate: u64,
    /// The rate of a link, in bytes a second; of several workers each has its part.
    pub link_rate: u64,
    /// Nodes with ports, among which R is divided.
    pub nodes: usize,
    /// Another seed, other intermediate nodes.
    pub seed: u64,
}

impl Settings {
    /// Time a flow may pause and keep its path: RouteBricks' 100 ms.
    pub const DELTA_NS: u64 = 100_000_000;
    /// A quarter of a megabyte of flows.
    pub const FLOWLETS: usize = 1 << 16;
    /// What a link may take at once beyond its rate, as a time.
    const BURST_NS: u64 = 1_000_000;
    /// And at least so many bytes: some full bursts of large packets.
    const BURST_BYTES: u64 = 64 * 1024;

    /// What a bucket of `rate` bytes a second holds.
    fn depth(rate: u64) -> u64 {
        let burst = u128::from(rate) * u128::from(Self::BURST_NS) / 1_000_000_000;
        u64::try_from(burst).unwrap_or(u64::MAX).max(Self::BURST_BYTES)
    }
}

/// A path, and the link of this node that it begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Choice {
    /// The intermediate node; `None`: directly.
    pub via: Option<NodeId>,
    /// The number of the link.
    pub link: u16,
}

/// What was chosen how often.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Packets sent directly.
    pub direct: u64,
    /// Their bytes.
    pub direct_bytes: u64,
    /// Packets sent over an intermediate node.
    pub balanced: u64,
    /// Their bytes.
    pub balanced_bytes: u64,
    /// Packets that took another path than the one before them within delta: because that had no room, or had died.
    pub moved: u64,
    /// Packets sent although no link had room.
    pub link_full: u64,
    /// Packets for nodes that cannot be reached.
    pub unreachable: u64,
}

/// Chooses paths, for one worker.
#[derive(Clone, Debug)]
pub struct Balancer {
    mode: Mode,
    paths: Arc<Paths>,
    flowlets: Flowlets,
    /// By output node: what may still go directly.
    direct: Vec<Bucket>,
    links: Vec<LinkUse>,
    now_ns: u64,
    /// By the bits of a path's first node: the link towards it, if that is one alone and every path that leads anywhere is alive, so
    /// that a flow's path need not be looked at again.
    sure: Box<[u16; NodeId::COUNT + 1]>,
    random: u64,
    /// Without what links count.
    counts: Counts,
}

/// A link of this node, as one worker uses it.
#[derive(Clone, Debug)]
struct LinkUse {
    room: Bucket,
    /// What was sent over an intermediate node, and directly.
    chosen: [Chosen; 2],
}

/// Packets and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Chosen {
    /// Packets.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// No link.
const UNSURE: u16 = u16::MAX;

impl Balancer {
    /// One that knows `paths`.
    pub fn new(settings: &Settings, paths: Arc<Paths>, now_ns: u64) -> Balancer {
        let nodes = paths.topology().nodes();
        let links = paths.topology().links(paths.here()).len();
        let direct_rate = settings.ports_rate / settings.nodes.max(1) as u64;
        let room = Bucket::new(settings.link_rate, Settings::depth(settings.link_rate), now_ns);
        let mut balancer = Balancer {
            mode: settings.mode,
            flowlets: Flowlets::new(settings.flowlets, settings.delta_ns),
            direct: vec![Bucket::new(direct_rate, Settings::depth(direct_rate), now_ns); nodes],
            links: vec![LinkUse { room, chosen: Default::default() }; links],
            random: settings.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
            now_ns,
            sure: Box::new([UNSURE; NodeId::COUNT + 1]),
            counts: Counts::default(),
            paths,
        };
        balancer.make_sure();
        balancer
    }

    /// Finds the links of paths that need not be looked at again.
    fn make_sure(&mut self) {
        let is_undisturbed = self.paths.are_whole();
        for (bits, link) in (0..).zip(&mut *self.sure) {
            *link = self.paths.only_link_towards(bits).filter(|_| is_undisturbed).unwrap_or(UNSURE);
        }
    }

    /// The ways that it knows.
    pub fn paths(&self) -> &Arc<Paths> {
        &self.paths
    }

    /// Other ways, of the same node in the same topology.
    pub fn set_paths(&mut self, paths: Arc<Paths>) {
        self.paths = paths;
        self.make_sure();
        self.flowlets.keep_alive(&self.paths);
    }

    /// A batch of packets begins.
    #[inline]
    pub fn begin(&mut self, now_ns: u64) {
        self.now_ns = now_ns;
        self.flowlets.set_now(now_ns);
    }

    /// So many bytes went over a link that this balancer was not asked about.
    #[inline]
    pub fn relayed(&mut self, link: usize, bytes: u64) {
        if let Some(link) = self.links.get_mut(link) {
            link.room.fill(self.now_ns, bytes);
        }
    }

    /// What was chosen so far.
    pub fn counts(&self) -> Counts {
        self.by_link().fold(self.counts, |sum, [over, direct]| Counts {
            direct: sum.direct + direct.packets,
            direct_bytes: sum.direct_bytes + direct.bytes,
            balanced: sum.balanced + over.packets,
            balanced_bytes: sum.balanced_bytes + over.bytes,
            ..sum
        })
    }

    /// Returns by link what was sent there over an intermediate node, and directly.
    pub fn by_link(&self) -> impl Iterator<Item = [Chosen; 2]> + '_ {
        self.links.iter().map(|link| link.chosen)
    }

    /// Starts to count anew.
    pub fn reset_counts(&mut self) {
        self.counts = Counts::default();
        self.links.iter_mut().for_each(|link| link.chosen = Default::default());
    }

    /// Where the path of a flow is kept; asks for that memory, so best for all packets of a batch before the first is decided.
    #[inline(always)]
    pub fn place(&self, output: NodeId, flow: u32) -> Place {
        self.flowlets.place(flow, output)
    }

    /// The path of a packet of `bytes` bytes to `output`, which is another node than this. `flow` is the hash of its flow, `place`
    /// what [`Balancer::place`] says of both. `None`: there is no way.
    #[inline(always)]
    pub fn choose(&mut self, place: Place, output: NodeId, flow: u32, bytes: u32) -> Option<Choice> {
        let way = self.flowlets.last(place, output);
        let link = self.sure[usize::from(way.first_bits())];
        if self.has_room(link) {
            self.flowlets.keep(place);
            return Some(self.decided(way, link, output, bytes));
        }
        self.choose_anew(place, way, output, (flow >> 24) as u8, bytes)
    }

    #[inline(never)]
    fn choose_anew(
        &mut self,
        place: Place,
        last: PathChoice,
        output: NodeId,
        entropy: u8,
        bytes: u32,
    ) -> Option<Choice> {
        let way = self.reconsidered(last, output, entropy)?;
        self.flowlets.remember(place, output, way);
        let link = self.paths.link_towards(way.first()?, entropy)?;
        Some(self.decided(way, link, output, bytes))
    }

    /// The way of a packet whose flow has none, or one that may not do.
    fn reconsidered(&mut self, last: PathChoice, output: NodeId, entropy: u8) -> Option<PathChoice> {
        if self.mode == Mode::SinglePath {
            let way = self.is_alive(output, output).then_some(PathChoice::new(output, false));
            self.counts.unreachable += u64::from(way.is_none());
            return way;
        }
        if let Some(first) = last.first() {
            if self.is_open(first, output, entropy) {
                return Some(last);
            }
            self.counts.moved += 1;
        }
        self.anew(output, entropy, last.first())
    }

    /// Whether the path over `first` (or directly, if that is the output) is alive.
    fn is_alive(&self, first: NodeId, output: NodeId) -> bool {
        if first == output { self.paths.is_direct(output) } else { self.paths.leads_over(first, output) }
    }

    /// Whether a link has room now.
    #[inline(always)]
    fn has_room(&mut self, link: u16) -> bool {
        self.links.get_mut(usize::from(link)).is_some_and(|link| link.room.has_room_at(self.now_ns))
    }

    /// Whether it is alive and begins with a link that has room.
    fn is_open(&mut self, first: NodeId, output: NodeId, entropy: u8) -> bool {
        let sure = self.sure[first.index()];
        if sure != UNSURE && self.sure[output.index()] != UNSURE {
            return self.has_room(sure);
        }
        let link = self.paths.link_towards(first, entropy);
        self.is_alive(first, output) && link.is_some_and(|link| self.has_room(link))
    }

    /// A path for a packet that has none to keep.
    fn anew(&mut self, output: NodeId, entropy: u8, last: Option<NodeId>) -> Option<PathChoice> {
        let may_be_direct = matches!(self.mode, Mode::DirectVlb | Mode::DirectVlbOthers);
        let has_right = self.direct[output.index()].has_room_at(self.now_ns);
        if may_be_direct && has_right && self.is_open(output, output, entropy) {
            return Some(PathChoice::new(output, true));
        }
        // The direct link is one among the others for the rest: to leave it out loads these with its part.
        let is_direct = self.mode == Mode::DirectVlb;
        let nodes = self.direct.len() as u64;
        let drawn = |first| Some(PathChoice::new(first, false));
        for _ in 0..16 {
            let node = NodeId::new(((u64::from(self.draw()) * nodes) >> 32) as u16)?;
            if (is_direct || node != output) && self.is_open(node, output, entropy) {
                return drawn(node);
            }
        }
        let start = ((u64::from(self.draw()) * nodes) >> 32) as usize;
        let all = || NodeId::first(nodes as usize).cycle().skip(start).take(nodes as usize);
        let mut candidates = all().filter(|&node| is_direct || node != output);
        if let Some(node) = candidates.find(|&node| self.is_open(node, output, entropy)) {
            return drawn(node);
        }
        // No link has room, or there is no way that this mode would take.
        let direct = Some(output).filter(|&output| self.is_alive(output, output));
        let vias = all().find(|&node| node != output && self.is_alive(node, output));
        let kept = last.filter(|&last| self.is_alive(last, output));
        let any = kept.or(if is_direct { direct.or(vias) } else { vias.or(direct) });
        match any {
            Some(_) => self.counts.link_full += 1,
            None => self.counts.unreachable += 1,
        }
        any.and_then(drawn)
    }

    /// Counts the packet and takes the room for it.
    #[inline(always)]
    fn decided(&mut self, way: PathChoice, link: u16, output: NodeId, bytes: u32) -> Choice {
        // Without a branch: which flows have the right is a guess.
        if let Some(right) = self.direct.get_mut(output.index()) {
            right.take(if way.is_by_right() { bytes } else { 0 });
        }
        let via = NodeId::new(way.first_bits()).filter(|&first| first != output);
        if let Some(LinkUse { room, chosen }) = self.links.get_mut(usize::from(link)) {
            room.take(bytes);
            let chosen = &mut chosen[usize::from(via.is_none())];
            chosen.packets += 1;
            chosen.bytes += u64::from(bytes);
        }
        Choice { via, link }
    }

    /// 32 random bits (xorshift64*; Vigna, 2016).
    #[inline]
    fn draw(&mut self) -> u32 {
        self.random ^= self.random >> 12;
        self.random ^= self.random << 25;
        self.random ^= self.random >> 27;
        (self.random.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Topology;

    const RATE: u64 = 1_000_000_000;
    const SIZE: u32 = 1000;

    fn node(number: u16) -> NodeId {
        NodeId::new(number).unwrap()
    }

    fn mesh(nodes: usize) -> Arc<Topology> {
        Arc::new(Topology::new(format!("mesh({nodes})").parse().unwrap()))
    }

    fn settings(mode: Mode) -> Settings {
        // Links of 2R/N and a little more, as the theory asks for.
        Settings {
            mode,
            delta_ns: Settings::DELTA_NS,
            flowlets: 1 << 12,
            ports_rate: RATE,
            link_rate: RATE * 21 / 40,
            nodes: 4,
            seed: 1,
        }
    }

    fn balancer(settings: &Settings) -> Balancer {
        Balancer::new(settings, Arc::new(Paths::new(mesh(4), node(0))), 0)
    }

    fn choose(balancer: &mut Balancer, output: u16, flow: u32) -> Option<Choice> {
        let output = node(output);
        balancer.choose(balancer.place(output, flow), output, flow, SIZE)
    }

    /// A packet of `SIZE` bytes, alone in its batch.
    fn ask(balancer: &mut Balancer, output: u16, flow: u32, now_ns: u64) -> Option<Choice> {
        balancer.begin(now_ns);
        choose(balancer, output, flow)
    }

    /// Packets of `SIZE` bytes at the full rate for half a second from node 0; `flow_and_output` by packet number.
    fn packets(balancer: &mut Balancer, flow_and_output: impl Fn(u64) -> (u32, u16)) -> Vec<Option<Choice>> {
        (0..RATE / u64::from(SIZE) / 2)
            .map(|number| {
                let (flow, output) = flow_and_output(number);
                ask(balancer, output, flow, number * u64::from(SIZE))
            })
            .collect()
    }

    fn hash(number: u64) -> u32 {
        (number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as u32
    }

    #[test]
    fn even_traffic_goes_directly() {
        let mut balancer = balancer(&settings(Mode::DirectVlb));
        // A quarter for each node, the one for this node itself left out.
        let mut at = 0;
        for number in 0..RATE / u64::from(SIZE) / 2 {
            at = number * u64::from(SIZE);
            if let output @ 1.. = number % 4 {
                ask(&mut balancer, output as u16, hash(number), at).unwrap();
            }
        }
        assert!(at > 400_000_000);
        assert_eq!(balancer.counts().balanced, 0);
        // A link of a mesh leads to one node.
        let by_link: Vec<u64> = balancer.by_link().map(|[_, direct]| direct.packets).collect();
        assert_eq!(by_link.iter().sum::<u64>(), balancer.counts().direct);
        assert!(by_link.iter().all(|packets| packets.abs_diff(by_link[0]) <= 1), "{by_link:?}");
    }

    #[test]
    fn all_to_one_output_is_spread_evenly() {
        let mut balancer = balancer(&settings(Mode::DirectVlb));
        let choices = packets(&mut balancer, |number| (hash(number), 2));
        let share = |via: Option<NodeId>| {
            choices.iter().flatten().filter(|choice| choice.via == via).count() as f64 / choices.len() as f64
        };
        // A quarter directly by right, and of the rest a third over each of the three links.
        assert!((share(None) - 0.5).abs() < 0.03, "{}", share(None));
        assert!((share(Some(node(1))) - 0.25).abs() < 0.03);
        assert!((share(Some(node(3))) - 0.25).abs() < 0.03);
        assert_eq!(balancer.counts().link_full, 0);
    }

    #[test]
    fn what_is_beyond_the_right_goes_over_others_only_where_that_is_the_mode() {
        // Flows of one packet each, and links with more room than there is traffic.
        let directly = |mode| {
            let mut balancer = balancer(&Settings { delta_ns: 0, link_rate: RATE, ..settings(mode) });
            packets(&mut balancer, |number| (hash(number), 2));
            assert_eq!(balancer.counts().link_full, 0);
            balancer.counts().direct_bytes
        };
        let right = RATE / 2 / 4 + Settings::depth(RATE / 4);
        let others = directly(Mode::DirectVlbOthers);
        assert!(others > RATE / 2 / 4 * 99 / 100 && others <= right + u64::from(SIZE), "{others} of {right}");
        // A quarter by right, and a third of the rest.
        let alike = directly(Mode::DirectVlb);
        assert!(alike > RATE / 2 * 49 / 100, "{alike}");
    }

    #[test]
    fn classic_never_goes_directly_and_single_path_always() {
        let mut classic = balancer(&settings(Mode::ClassicVlb));
        packets(&mut classic, |number| (hash(number), 1 + (number % 3) as u16));
        assert_eq!(classic.counts().direct, 0);
        let mut single = balancer(&settings(Mode::SinglePath));
        packets(&mut single, |number| (hash(number), 2));
        assert_eq!(single.counts().balanced, 0);
    }

    #[test]
    fn flows_keep_their_path_while_it_has_room() {
        let mut balancer = balancer(&settings(Mode::DirectVlb));
        let choices = packets(&mut balancer, |number| (hash(number % 1000), 2));
        // Flows that began on a link that then filled up have moved, each once or twice.
        assert!(balancer.counts().moved < 1000, "{:?}", balancer.counts());
        assert!(choices.iter().all(Option::is_some));
    }

    #[test]
    fn one_flow_of_more_than_a_link_is_split_packet_by_packet() {
        let mut balancer = balancer(&settings(Mode::DirectVlb));
        let choices = packets(&mut balancer, |_| (7, 2));
        let direct = choices.iter().flatten().filter(|choice| choice.via.is_none()).count();
        assert!((direct as f64 / choices.len() as f64) < 0.56);
        assert_eq!(balancer.counts().link_full, 0);
    }

    #[test]
    fn what_is_relayed_takes_room_from_what_begins_here() {
        let mut balancer = balancer(&settings(Mode::DirectVlb));
        // Others fill this node's link to node 2; its own packets for node 2 then all go over 1 and 3.
        let mut direct = 0;
        for number in 0..100_000 {
            let now_ns = number * u64::from(SIZE) * 2;
            balancer.begin(now_ns);
            balancer.relayed(1, u64::from(SIZE) * 2);
            let choice = choose(&mut balancer, 2, hash(number)).unwrap();
            direct += u32::from(choice.via.is_none());
        }
        assert!(direct < 1000, "{direct}");
    }

    #[test]
    fn the_dead_are_gone_round_at_once() {
        let mut balancer = balancer(&settings(Mode::DirectVlb));
        assert_eq!(ask(&mut balancer, 2, 7, 0).unwrap().via, None);
        // The link to node 2 is cut, and node 1 has lost it too.
        let lost = |a: NodeId, b: NodeId| (a.number().min(b.number()), a.number().max(b.number())) != (1, 2);
        balancer.set_paths(Arc::new(Paths::with(mesh(4), node(0), |link| link != 1, lost)));
        for number in 0..100 {
            assert_eq!(ask(&mut balancer, 2, hash(number), 1).unwrap().via, Some(node(3)));
        }
        balancer.set_paths(Arc::new(Paths::with(mesh(4), node(0), |link| link != 1, |_, _| false)));
        assert_eq!(ask(&mut balancer, 2, 7, 2), None);
        assert_eq!(balancer.counts().unreachable, 1);
        // Single path has nothing to go round with.
        let mut single = Balancer::new(&settings(Mode::SinglePath), Arc::clone(balancer.paths()), 0);
        assert_eq!(ask(&mut single, 2, 7, 0), None);
        assert_eq!(ask(&mut single, 1, 7, 0), Some(Choice { via: None, link: 0 }));
    }

    #[test]
    fn a_flow_leaves_an_intermediate_node_that_has_lost_its_output() {
        let mut balancer = balancer(&settings(Mode::ClassicVlb));
        let over_one =
            (0..100).map(hash).find(|&flow| ask(&mut balancer, 2, flow, 0).unwrap().via == Some(node(1)));
        let flow = over_one.expect("a third of the flows goes over node 1");
        // Node 1 is alive, but its link to node 2 is not.
        let lost = |a: NodeId, b: NodeId| (a.number().min(b.number()), a.number().max(b.number())) != (1, 2);
        balancer.set_paths(Arc::new(Paths::with(mesh(4), node(0), |_| true, lost)));
        assert_eq!(ask(&mut balancer, 2, flow, 1).unwrap().via, Some(node(3)));
    }

    #[test]
    fn two_nodes_have_nothing_but_the_direct_link() {
        for (_, mode) in Mode::NAMES {
            let paths = Arc::new(Paths::new(mesh(2), node(0)));
            let mut balancer = Balancer::new(&Settings { nodes: 2, ..settings(mode) }, paths, 0);
            for number in 0..1000 {
                // Far more than there is room for: all of it is sent all the same.
                let choice = ask(&mut balancer, 1, hash(number), 0);
                assert_eq!(choice, Some(Choice { via: None, link: 0 }), "{mode:?}");
            }
        }
    }
}
