//! TCP sequence numbers of a connection whose data changed in length in the router: the shift of each
//! number behind a change, and the shift back of its acknowledgement.
//!
//! A segment may be retransmitted, so numbers before a change keep their shift. Each direction remembers
//! its last [`MOST`] changes, each with its first number. Older changes are part of the direction's base.

use packet::wire::tcp::Tcp;

/// Changes that each direction remembers. More than two are hardly in flight at once.
const MOST: usize = 8;

/// Distance after which a number counts as old. Half of the number space would be ambiguous.
const OLD: u32 = 1 << 30;

/// Returns whether `a` is `b` or after it (RFC 9293, 3.4).
fn reaches(a: u32, b: u32) -> bool {
    a.wrapping_sub(b) < 1 << 31
}

/// The shift of all numbers from `from` on: the number sent minus the sender's.
#[derive(Clone, Copy, Debug, Default)]
struct Step {
    from: u32,
    shift: i32,
}

/// The shifts of one direction: `base` before the first step.
#[derive(Clone, Copy, Debug, Default)]
struct Direction {
    base: i32,
    steps: [Step; MOST],
    count: usize,
}

impl Direction {
    fn steps(&self) -> &[Step] {
        &self.steps[..self.count]
    }

    /// Makes the first step the base.
    fn forget_first(&mut self) {
        self.base = self.steps[0].shift;
        self.steps.copy_within(1..self.count, 0);
        self.count -= 1;
    }

    fn add(&mut self, from: u32, change: i32) -> bool {
        if let Some(last) = self.steps().last().copied() {
            if last.from == from {
                // The same segment again.
                self.count -= 1;
            } else if !reaches(from, last.from) {
                return false;
            }
        }
        if self.count == MOST {
            self.forget_first();
        }
        self.steps[self.count] = Step { from, shift: self.latest().wrapping_add(change) };
        self.count += 1;
        true
    }

    fn latest(&self) -> i32 {
        self.steps().last().map_or(self.base, |step| step.shift)
    }

    fn sent(&self, number: u32) -> u32 {
        let step = self.steps().iter().rev().find(|step| reaches(number, step.from));
        number.wrapping_add_signed(step.map_or(self.base, |step| step.shift))
    }

    fn acknowledged(&self, number: u32) -> u32 {
        let before = |shift: i32| number.wrapping_sub(shift as u32);
        let step = self.steps().iter().rev().find(|step| reaches(before(step.shift), step.from));
        before(step.map_or(self.base, |step| step.shift))
    }
}

/// Both directions of a connection.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Shifts {
    directions: [Direction; 2],
}

impl Shifts {
    /// Records that data before `from`, in packets of this direction, grew by `change` bytes. Returns `false`
    /// and changes nothing if `from` is before the last change.
    pub(super) fn add(&mut self, reply: bool, from: u32, change: i32) -> bool {
        self.directions[usize::from(reply)].add(from, change)
    }

    /// Returns the shift of this direction's newest numbers.
    pub(super) fn latest(&self, reply: bool) -> i32 {
        self.directions[usize::from(reply)].latest()
    }

    /// Forgets the changes that packets numbered `number` and later do not need.
    fn forget_old(&mut self, reply: bool, number: u32) {
        let direction = &mut self.directions[usize::from(reply)];
        while direction.steps().first().is_some_and(|step| {
            let distance = number.wrapping_sub(step.from);
            (OLD..1 << 31).contains(&distance)
        }) {
            direction.forget_first();
        }
    }

    /// Changes sequence number, acknowledgement and selective acknowledgements of a TCP segment of this direction, and its
    /// checksum.
    pub(super) fn apply(&mut self, reply: bool, segment: &mut [u8]) {
        let header_len = segment.get(..14).map_or(0, |bytes| Tcp::new_unchecked(bytes).header_len());
        let Some(header) = segment.get_mut(..header_len).filter(|header| header.len() >= 20) else { return };
        self.forget_old(reply, number(header, 4));
        let [this, other] =
            [usize::from(reply), usize::from(!reply)].map(|direction| &self.directions[direction]);
        // The checksum field is in both sums and so counts in neither.
        let before = packet::checksum::sum(header);
        change(header, 4, |sequence| this.sent(sequence));
        change(header, 8, |acknowledgement| other.acknowledged(acknowledgement));
        let mut at = 20;
        // RFC 9293, 3.1: options; RFC 2018, 3: kind 5 is a list of edges of blocks.
        while let Some(&kind) = header.get(at).filter(|kind| **kind != 0) {
            let length =
                if kind == 1 { 1 } else { header.get(at + 1).map_or(0, |length| usize::from(*length)) };
            if length == 0 || kind != 1 && length < 2 || at + length > header.len() {
                break;
            }
            if kind == 5 && length % 8 == 2 {
                for edge in (at + 2..at + length).step_by(4) {
                    change(header, edge, |edge| other.acknowledged(edge));
                }
            }
            at += length;
        }
        super::translate::recheck(header, 16, before, packet::checksum::sum(header));
    }
}

fn number(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |bytes| u32::from_be_bytes(*bytes))
}

fn change(bytes: &mut [u8], at: usize, to: impl FnOnce(u32) -> u32) {
    if let Some(field) = bytes.get_mut(at..).and_then(|rest| rest.first_chunk_mut()) {
        *field = to(u32::from_be_bytes(*field)).to_be_bytes();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_before_a_change_stay() {
        let mut direction = Direction::default();
        assert!(direction.add(1000, -12));
        assert_eq!((direction.sent(999), direction.sent(1000), direction.sent(1005)), (999, 988, 993));
        assert_eq!(
            (direction.acknowledged(970), direction.acknowledged(988), direction.acknowledged(990)),
            (970, 1000, 1002)
        );
        assert!(direction.add(2000, 5));
        assert_eq!((direction.sent(1999), direction.sent(2000)), (1987, 1993));
        assert!(!direction.add(1500, 3), "before the last change");
        // The same change again, with another outcome.
        assert!(direction.add(2000, 6));
        assert_eq!((direction.sent(2000), direction.latest()), (1994, -6));
    }

    #[test]
    fn what_is_sent_is_what_is_acknowledged() {
        let mut direction = Direction::default();
        for change in 0..20_u32 {
            assert!(direction.add((u32::MAX - 5000).wrapping_add(change * 1000), 3 - change as i32 % 7));
        }
        for number in (0..12_000).step_by(97) {
            let number = (u32::MAX - 5000).wrapping_add(8000 + number);
            assert_eq!(direction.acknowledged(direction.sent(number)), number);
        }
    }

    #[test]
    fn old_changes_are_forgotten() {
        let mut shifts = Shifts::default();
        assert!(shifts.add(false, 100, 7) && shifts.add(false, 200, 7));
        shifts.forget_old(false, 150 + OLD);
        assert_eq!(shifts.directions[0].count, 1);
        assert_eq!(shifts.directions[0].sent(50), 57);
    }

    #[test]
    fn any_options() {
        let mut shifts = Shifts::default();
        shifts.add(true, 0, 9);
        for length in 0..70 {
            for fill in [0, 1, 2, 5, 10, 255] {
                let mut segment = vec![fill; length];
                if let Some(offset) = segment.get_mut(12) {
                    *offset = 0xf0;
                }
                shifts.apply(false, &mut segment);
            }
        }
    }
}
