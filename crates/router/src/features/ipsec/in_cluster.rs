//! IPsec on a node of a cluster.
//!
//! The leader's Linux has the policies and the associations that count, and its fast path does all ESP: so there is one counter of
//! numbers and one window, and keys stay on one machine. All other nodes work by what the leader says in the log
//! ([`control::cluster::protection`]). They drop what is to be dropped, and carry to the leader what has to be protected and what was.
//!
//! **A new leader** has policies and associations of its own, which its daemon may have yet to make. So what the last leader protected
//! is held for a while: where the new one has no policy, such packets are dropped.

use std::sync::Arc;
use std::time::{Duration, Instant};

use control::cluster::member::MemberShared;
use control::cluster::protection::{Protection, ProtectionAction, ProtectionError, ProtectionPolicy, Told};
use elements::ipsec::{Contents, Direction, Policy, PolicyAction, Selector, Template};
use ipsec::Endpoints;
use ipsec::association::Mode;

/// What a node knows of its cluster.
#[derive(Debug)]
pub(super) struct InCluster {
    /// Whether this node's Linux counts.
    leads: bool,
    /// Whether it still should.
    is_to_lead: bool,
    /// Where what this node's Linux has goes to, while it leads.
    member: Option<Arc<MemberShared>>,
    /// What the log says.
    logged: Option<Told>,
    /// What the last leader said, and until when it is held.
    held: Option<(Instant, Result<Protection, ProtectionError>)>,
    /// How long it is held.
    hold: Duration,
    /// Where ESP comes from that the fast path has sealed for Linux.
    checked_source: [u8; 6],
}

impl InCluster {
    /// Makes that of a node that follows the log, and holds what the last leader said for this long when it leads.
    pub(super) fn new(hold: Duration, checked_source: [u8; 6]) -> Self {
        let (leads, is_to_lead, member, logged, held) = (false, false, None, None, None);
        Self { leads, is_to_lead, member, logged, held, hold, checked_source }
    }

    pub(super) fn checked_source(&self) -> [u8; 6] {
        self.checked_source
    }

    pub(super) fn leads(&self) -> bool {
        self.leads
    }

    /// Whether it leads, and is to stop.
    pub(super) fn is_to_stop(&self) -> bool {
        self.leads && !self.is_to_lead
    }

    /// Takes in what the log says. Returns whether that is new and counts.
    pub(super) fn set_logged(&mut self, told: Option<&Told>) -> bool {
        let is_new = self.logged.as_ref() != told;
        if is_new {
            self.logged = told.cloned();
        }
        is_new && !self.leads
    }

    pub(super) fn begin(&mut self, told: Option<&Told>, member: Arc<MemberShared>) {
        (self.leads, self.is_to_lead, self.member) = (true, true, Some(member));
        let held = told.filter(|told| !told.is_nothing());
        self.held = held.map(|told| (Instant::now() + self.hold, told.read()));
    }

    pub(super) fn is_over(&mut self) {
        self.is_to_lead = false;
    }

    /// Stops to lead, unless it is to lead again. Returns whether it did.
    pub(super) fn stop(&mut self) -> bool {
        let stops = self.is_to_stop();
        if stops {
            (self.leads, self.member, self.held) = (false, None, None);
        }
        stops
    }

    /// Lets go of what the last leader said, if that was held for long enough. Returns whether it did.
    pub(super) fn let_go(&mut self) -> bool {
        self.held.take_if(|(until, _)| *until <= Instant::now()).is_some()
    }

    /// Returns what elements get of the log; the problem is that it cannot be read.
    pub(super) fn of_log(&self) -> (Contents, Option<String>) {
        match self.logged.as_ref().map(Told::read) {
            None => (Contents::default(), None),
            Some(Ok(protection)) => (contents(&protection), None),
            Some(Err(error)) => {
                (all_to_leader(), Some(format!("IPsec: {error}: all packets go to the leader")))
            }
        }
    }

    /// Reports to the cluster what this node's Linux has, and adds what is held. A node that `routes` has elements that keep what is held;
    /// where one does not, the others keep it.
    pub(super) fn tell(&self, own: &mut Contents, has_associations: bool, routes: bool) {
        let mut said = protection(own, has_associations);
        let mut is_unknown = false;
        // What is held comes before the first packets that this Linux lets pass: it may have the rest of its policies yet to come.
        let is_bypass = |policy: &Policy| policy.action == PolicyAction::Bypass;
        let first = own.policies.iter().position(is_bypass).unwrap_or(own.policies.len());
        match &self.held {
            None => {}
            Some((_, Ok(held))) => {
                let is_known = |policy: &&ProtectionPolicy| {
                    said.policies.iter().any(|known| {
                        let plain = |policy: &ProtectionPolicy| ProtectionPolicy {
                            action: ProtectionAction::Bypass,
                            ..policy.clone()
                        };
                        plain(known) == plain(policy)
                    })
                };
                let missing: Vec<_> =
                    held.policies.iter().filter(|policy| !is_known(policy)).cloned().collect();
                // This Linux would let pass what it has no policy for.
                let kept: Vec<Policy> = missing.iter().map(kept).collect();
                let to_others = if routes { missing } else { kept.iter().map(as_protection).collect() };
                own.policies.splice(first..first, kept);
                said.policies.splice(first..first, to_others);
                for (place, discards) in held.discards.iter().enumerate() {
                    own.discards[place] |= discards;
                    said.discards[place] |= discards;
                }
            }
            Some((_, Err(_))) => {
                // Of one that had too many, nobody knows which.
                own.policies.truncate(first);
                own.discards[0] = true;
                said.policies.truncate(first);
                said.discards[0] = true;
                is_unknown = routes;
            }
        }
        if let Some(member) = &self.member {
            member.set_protection(if is_unknown { Told::ALL_TO_LEADER } else { Told::of(&said) });
        }
    }
}

/// Returns what a leader does by a policy that the last one had and its own Linux has not.
fn kept(policy: &ProtectionPolicy) -> Policy {
    let policy = as_policy(policy);
    let action = match (policy.action, policy.direction) {
        (PolicyAction::Protect(_), Direction::Out) | (PolicyAction::Linux(_), _) => PolicyAction::Discard,
        (action, _) => action,
    };
    Policy { action, ..policy }
}

/// Returns what elements do where nobody knows the policies: the leader judges every packet.
fn all_to_leader() -> Contents {
    let all = |net: &str| net.parse().map(|net| Selector::between(net, net)).ok();
    let linux = || PolicyAction::Linux("the leader judges all packets".to_owned());
    let policy = |selector| Policy { direction: Direction::Out, selector, action: linux() };
    let policies = ["0.0.0.0/0", "::/0"].into_iter().filter_map(all).map(policy).collect();
    Contents { policies, takes_esp: true, ..Contents::default() }
}

/// Returns what elements get of a list. There are no associations: what has to be protected is carried to the leader.
fn contents(protection: &Protection) -> Contents {
    let Protection { policies, discards, takes_esp } = protection;
    let (policies, discards) = (policies.iter().map(as_policy).collect(), *discards);
    Contents { policies, discards, takes_esp: *takes_esp, ..Contents::default() }
}

fn as_policy(policy: &ProtectionPolicy) -> Policy {
    let ProtectionPolicy {
        is_forward,
        source,
        destination,
        protocol,
        source_ports,
        destination_ports,
        ref action,
    } = *policy;
    let direction = if is_forward { Direction::Forward } else { Direction::Out };
    let selector = Selector { source, destination, protocol, source_ports, destination_ports };
    if !selector.can_match() {
        // The leader looks at more of them than it had to.
        let action = PolicyAction::Linux("ports that the fast path cannot match".to_owned());
        return Policy { direction, selector: Selector::between(source, destination), action };
    }
    let action = match action {
        ProtectionAction::Bypass => PolicyAction::Bypass,
        ProtectionAction::Discard => PolicyAction::Discard,
        ProtectionAction::Linux(reason) => PolicyAction::Linux(reason.clone()),
        ProtectionAction::Protect { source, destination, request, is_optional } => {
            match Endpoints::new(*source, *destination) {
                Some(endpoints) => PolicyAction::Protect(Template {
                    endpoints,
                    request: *request,
                    spi: 0,
                    mode: Mode::Tunnel,
                    is_optional: *is_optional,
                }),
                None => PolicyAction::Linux("addresses of two families".to_owned()),
            }
        }
    };
    Policy { direction, selector, action }
}

/// Returns what the cluster gets to know of policies.
fn protection(contents: &Contents, takes_esp: bool) -> Protection {
    let policies = contents.policies.iter().map(as_protection).collect();
    Protection { policies, discards: contents.discards, takes_esp }
}

fn as_protection(policy: &Policy) -> ProtectionPolicy {
    let Selector { source, destination, protocol, source_ports, destination_ports } = policy.selector;
    let action = match &policy.action {
        PolicyAction::Bypass => ProtectionAction::Bypass,
        PolicyAction::Discard => ProtectionAction::Discard,
        PolicyAction::Linux(reason) => ProtectionAction::Linux(reason.clone()),
        PolicyAction::Protect(template) => ProtectionAction::Protect {
            source: template.endpoints.source(),
            destination: template.endpoints.destination(),
            request: template.request,
            is_optional: template.is_optional,
        },
    };
    let is_forward = policy.direction == Direction::Forward;
    ProtectionPolicy { is_forward, source, destination, protocol, source_ports, destination_ports, action }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn net(text: &str) -> ipnet::IpNet {
        text.parse().unwrap()
    }

    fn protect() -> PolicyAction {
        let [source, destination] = ["192.0.2.1", "198.51.100.1"].map(|text| text.parse().unwrap());
        PolicyAction::Protect(Template {
            endpoints: Endpoints::new(source, destination).unwrap(),
            request: 7,
            spi: 0,
            mode: Mode::Tunnel,
            is_optional: false,
        })
    }

    fn policies() -> Vec<Policy> {
        let selector = |source, destination| Selector::between(net(source), net(destination));
        let policy = |direction, selector, action| Policy { direction, selector, action };
        vec![
            policy(Direction::Out, selector("10.0.1.0/24", "10.0.2.0/24"), protect()),
            policy(Direction::Forward, selector("10.0.2.0/24", "10.0.1.0/24"), protect()),
            policy(Direction::Out, selector("10.0.3.0/24", "0.0.0.0/0"), PolicyAction::Bypass),
            policy(Direction::Out, selector("2001:db8::/32", "::/0"), PolicyAction::Discard),
            policy(Direction::Out, selector("10.0.4.0/24", "0.0.0.0/0"), PolicyAction::Linux("ah".into())),
        ]
    }

    /// What a leader with these policies says, after a leader that said `before`.
    fn said(policies: Vec<Policy>, before: Option<&Told>, hold: u64) -> (InCluster, Contents, Told) {
        let member = MemberShared::new(Default::default());
        let mut leader = InCluster::new(Duration::from_secs(hold), [2; 6]);
        leader.begin(before, member.clone());
        let mut own = Contents { policies, ..Contents::default() };
        leader.tell(&mut own, true, true);
        let told = member.protection().unwrap();
        (leader, own, told)
    }

    #[test]
    fn a_node_works_by_what_the_leader_says() {
        let (_, own, told) = said(policies(), None, 60);
        assert_eq!(own.policies, policies());
        let mut node = InCluster::new(Duration::ZERO, [2; 6]);
        assert!(node.of_log().0.policies.is_empty());
        assert!(node.set_logged(Some(&told)) && !node.set_logged(Some(&told)));
        let (contents, problem) = node.of_log();
        assert_eq!((contents.policies, contents.takes_esp, problem), (policies(), true, None));
        // What nobody can read is the leader's business.
        assert!(node.set_logged(Some(&Told::ALL_TO_LEADER)));
        let (contents, problem) = node.of_log();
        let is_left = |policy: &Policy| matches!(policy.action, PolicyAction::Linux(_));
        assert!(contents.policies.len() == 2 && contents.policies.iter().all(is_left));
        assert!(problem.unwrap().contains("go to the leader"));
    }

    #[test]
    fn a_policy_that_no_packet_can_match_is_left_to_the_leader() {
        let selector = Selector { source_ports: Some((1, 2)), ..policies()[0].selector.clone() };
        let odd = Policy { selector, ..policies()[0].clone() };
        let (_, _, told) = said(vec![odd], None, 60);
        let mut node = InCluster::new(Duration::ZERO, [2; 6]);
        node.set_logged(Some(&told));
        let policies = node.of_log().0.policies;
        assert!(policies[0].selector.can_match() && matches!(policies[0].action, PolicyAction::Linux(_)));
    }

    #[test]
    fn a_new_leader_without_policies_drops_what_the_last_one_protected_until_it_lets_go() {
        let (_, _, before) = said(policies(), None, 60);
        let (mut leader, own, told) = said(Vec::new(), Some(&before), 60);
        let actions: Vec<_> = own.policies.into_iter().map(|policy| policy.action).collect();
        let discard = || PolicyAction::Discard;
        assert_eq!(actions, [discard(), protect(), PolicyAction::Bypass, discard(), discard()]);
        // The others go on as before, and so would the next leader.
        assert_eq!(told.read().unwrap().policies, before.read().unwrap().policies);
        assert!(!leader.let_go());
        // Its own policies come first, and take the place of the same ones.
        let [first, ..] = &policies()[..] else { unreachable!() };
        let bypass = Policy { action: PolicyAction::Bypass, ..first.clone() };
        let (_, own, _) = said(vec![bypass.clone()], Some(&before), 60);
        assert_eq!((own.policies.len(), own.policies.last()), (5, Some(&bypass)));
        // What lets more pass comes behind what is held, for the others too.
        let all = Policy { selector: Selector::between(net("0.0.0.0/0"), net("0.0.0.0/0")), ..bypass };
        let own_ones = vec![policies()[3].clone(), all.clone()];
        let (_, own, told) = said(own_ones.clone(), Some(&before), 60);
        assert_eq!((own.policies.len(), &own.policies[0]), (6, &own_ones[0]));
        assert_eq!(own.policies.last(), Some(&all));
        assert_eq!(told.read().unwrap().policies.last(), Some(&as_protection(&all)));
        // Of one that had too many, nobody knows which.
        let (_, own, told) = said(Vec::new(), Some(&Told::ALL_TO_LEADER), 60);
        assert_eq!((own.discards, told), ([true, false], Told::ALL_TO_LEADER));
        let (_, own, _) = said(vec![all], Some(&Told::ALL_TO_LEADER), 60);
        assert_eq!((own.policies.len(), own.discards), (0, [true, false]));
        let (mut leader, ..) = said(Vec::new(), Some(&before), 0);
        assert!(leader.let_go());
        let mut own = Contents::default();
        leader.tell(&mut own, false, true);
        assert!(own.policies.is_empty());
    }

    #[test]
    fn a_leader_that_does_not_route_has_the_others_keep_what_is_held() {
        let (_, _, before) = said(policies(), None, 60);
        for (before, expected) in [(&before, 5), (&Told::ALL_TO_LEADER, 0)] {
            let member = MemberShared::new(Default::default());
            let mut leader = InCluster::new(Duration::from_secs(60), [2; 6]);
            leader.begin(Some(before), member.clone());
            leader.tell(&mut Contents::default(), false, false);
            let told = member.protection().unwrap().read().unwrap();
            let goes_to_leader = |policy: &ProtectionPolicy| {
                !policy.is_forward
                    && matches!(policy.action, ProtectionAction::Protect { .. } | ProtectionAction::Linux(_))
            };
            assert_eq!(told.policies.len(), expected);
            assert!(!told.policies.iter().any(goes_to_leader), "{told:?}");
            assert_eq!(told.discards[0], expected == 0);
        }
    }

    #[test]
    fn who_is_to_lead_again_does_not_stop() {
        let (mut leader, ..) = said(policies(), None, 60);
        assert!(leader.leads() && !leader.is_to_stop() && !leader.stop());
        leader.is_over();
        assert!(leader.is_to_stop());
        leader.begin(None, MemberShared::new(Default::default()));
        assert!(!leader.stop() && leader.leads());
        leader.is_over();
        assert!(leader.stop() && !leader.leads());
    }
}
