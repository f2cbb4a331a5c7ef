//! Which class of traffic a whole frame belongs to: the first of a list of rules that matches it.
//!
//! The rules are those of access lists and are compiled like them (`acl`), so a batch costs the same whatever their number. No transport
//! header counts of a fragment, not even of the first one: all fragments of a packet are in one class, as they have one flow hash.

use packet::{Batch, MAX_BATCH};

use crate::acl::{Answer, List, Rooms, TrafficRule};

/// Most rules of all routing nodes together: each has [`fabric::Front`]'s 4 KiB in every worker.
const MOST_RULES: usize = 64;

/// Offset of the IP header in a frame without a tag.
const ETHER_HEADER: usize = 14;

/// A compiled list of rules.
pub(super) struct Classifier {
    list: List,
    rooms: Box<Rooms>,
    answers: Box<[Answer; MAX_BATCH]>,
}

impl Classifier {
    pub(super) fn new(rules: &[TrafficRule]) -> Classifier {
        let (rooms, answers) = (Box::new(Rooms::new()), Box::new([Answer::FLAWED; MAX_BATCH]));
        Classifier { list: List::of_traffic(rules), rooms, answers }
    }

    /// Returns for each frame of a batch an answer with the number of its rule; higher numbers stand for no class.
    #[inline]
    pub(super) fn classify(&mut self, batch: &mut Batch) -> &[Answer] {
        for packet in batch.packets_mut() {
            let is_ip = matches!(packet.data().get(12..ETHER_HEADER), Some([0x08, 0x00] | [0x86, 0xdd]));
            match is_ip {
                true => packet.set_network_header(ETHER_HEADER),
                false => packet.clear_network_header(),
            }
        }
        let answers = &mut self.answers[..batch.len()];
        self.list.judge(0, batch.packets(), &mut self.rooms, answers);
        answers
    }
}

/// Returns a rule of what a routing node serves as it is printed, which is the same for all spellings of it.
///
/// # Errors
///
/// What is wrong with it.
pub fn traffic_rule(text: &str) -> Result<String, String> {
    text.parse::<TrafficRule>().map(|rule| rule.to_string())
}

/// Checks how many different rules are served in a cluster.
///
/// # Errors
///
/// There are too many.
pub fn check_traffic_rules(rules: usize) -> Result<(), String> {
    if rules > MOST_RULES {
        return Err(format!("{rules} different rules are served; expected at most {MOST_RULES}"));
    }
    Ok(())
}
