//! Makes a program shorter without changing what it decides about any packet, short ones included.
//!
//! Four passes, repeated until nothing changes:
//!
//! - **sort**: within a run of steps that share one way out, by word and mask, so that tests of
//!   one word become neighbours;
//! - **thread**: a jump to a step whose answer is known on every path to the jump goes past it;
//! - **merge**: neighbouring tests of one word become one test;
//! - **compact**: steps that decide nothing or cannot be reached go, equal steps become one.
//!
//! Threading needs to know what holds on the paths that lead to a step. There are exponentially
//! many of those, so per step at most [`MOST_PATHS`] sets of facts are kept; where more come
//! together, what they have in common is left. A fact is the outcome of a test. An outcome that a
//! short packet has as well is *weak*: it says nothing of the bits unless the packet is known to
//! be long enough, or the question is about a test that needs more bytes and whose outcome for
//! short packets is the one asked about.

use std::collections::HashMap;

use super::{Base, Jump, Step};

/// Sets of facts kept per step (Click keeps as many).
const MOST_PATHS: usize = 4;
/// Facts kept per set.
const MOST_FACTS: usize = 256;
/// Facts looked at for one question.
const MOST_RELEVANT: usize = 32;
/// Steps that a jump is sent past in each round. The first rounds shorten the common ways, so that
/// later ones get far in few steps.
const MOST_HOPS: [usize; 6] = [4, 16, 64, 256, 256, 256];
/// Distinct tests of one word of which each pair is compared.
const MOST_COMPARED: usize = 4096;
/// What threading may cost over all rounds, in looks at a fact; some tenths of a second. A program
/// that needs more stays right but longer than it could be.
const FUEL: usize = 100_000_000;

pub(super) fn optimise(mut entry: Jump, mut steps: Vec<Step>) -> (Jump, Vec<Step>) {
    entry = compact(entry, &mut steps);
    let mut fuel = FUEL;
    for hops in MOST_HOPS {
        let before = steps.clone();
        if let Jump::Step(first) = entry {
            sort(first as usize, &mut steps);
            skip_repeated(&mut steps, &mut fuel);
            thread(first as usize, &mut steps, hops, &mut fuel);
            merge(&mut steps);
        }
        entry = compact(entry, &mut steps);
        // With few hops nothing may change although there is more to do.
        if steps == before && hops > MOST_HOPS[0] {
            break;
        }
    }
    (entry, steps)
}

/// Where a step's test sorts: by word, the protocol before the fragment offset (the one is tested
/// more often alone), then by mask and value.
fn sort_key(step: &Step) -> (Base, u16, u32, u32) {
    let place = if step.base == Base::Network && step.offset == 8 { 3 } else { step.offset };
    (step.base, place, step.mask, step.value)
}

/// Sorts runs of steps whose other exit is the same. What each step of such a run does to a packet
/// is to let it go on or to send it to that exit, so their order is free. Only tests change
/// places; the jumps stay where they are.
fn sort(first: usize, steps: &mut [Step]) {
    let mut predecessors = vec![0u32; steps.len()];
    predecessors[first] = 1;
    for target in steps.iter().flat_map(|step| [step.yes, step.no]).filter_map(Jump::step) {
        predecessors[target] += 1;
    }
    for along_yes in [false, true] {
        let exits = |step: &Step| if along_yes { (step.yes, step.no) } else { (step.no, step.yes) };
        let mut in_run = vec![false; steps.len()];
        for head in 0..steps.len() {
            if in_run[head] {
                continue;
            }
            let mut places = vec![head];
            let (mut along, out) = exits(&steps[head]);
            while let Some(next) = along.step().filter(|&next| predecessors[next] == 1) {
                let (further, next_out) = exits(&steps[next]);
                if next_out != out {
                    break;
                }
                places.push(next);
                in_run[next] = true;
                along = further;
            }
            let mut tests: Vec<Step> = places.iter().map(|&place| steps[place]).collect();
            tests.sort_by_key(sort_key);
            for (place, test) in places.into_iter().zip(tests) {
                steps[place] = Step { yes: steps[place].yes, no: steps[place].no, ..test };
            }
        }
    }
}

/// Number of a distinct test, shared by the steps that make it.
type TestId = u32;

/// What is known on one path: outcomes of tests, and how many bytes the packet has.
#[derive(Clone, PartialEq, Default)]
struct Facts {
    /// `id * 2 + outcome`, ascending.
    outcomes: Vec<u32>,
    known_length: [u32; 4],
}

/// The sets of facts of the paths that lead to a step.
#[derive(Default)]
struct Inbox {
    paths: Vec<Facts>,
    /// More than [`MOST_PATHS`] came; `paths` is the one set that they have in common.
    collapsed: bool,
}

impl Inbox {
    fn add(&mut self, facts: Facts) {
        if self.paths.contains(&facts) {
            return;
        }
        self.paths.push(facts);
        if self.collapsed || self.paths.len() > MOST_PATHS {
            let common = self.paths.drain(..).reduce(|a, b| a.common(&b));
            self.paths.extend(common);
            self.collapsed = true;
        }
    }
}

impl Facts {
    fn common(&self, other: &Facts) -> Facts {
        let outcomes = self.outcomes.iter().copied().filter(|o| other.outcomes.binary_search(o).is_ok());
        let mut known_length = self.known_length;
        for (a, b) in known_length.iter_mut().zip(other.known_length) {
            *a = (*a).min(b);
        }
        Facts { outcomes: outcomes.collect(), known_length }
    }

    /// These facts and one more, less those that no step from `target` on has a use for.
    fn with(&self, id: TestId, test: &Step, outcome: bool, target: Jump, last_use: &[usize]) -> Facts {
        let from = target.step().unwrap_or(usize::MAX);
        let useful = |fact: &u32| fact % 2 == 1 || last_use[(fact / 2) as usize] >= from;
        let outcomes = self.outcomes.iter().copied().filter(useful).collect();
        let mut facts = Facts { outcomes, known_length: self.known_length };
        if outcome != test.short_yes {
            let known = &mut facts.known_length[test.base as usize];
            *known = (*known).max(test.required());
        }
        let fact = id * 2 + u32::from(outcome);
        if facts.outcomes.len() < MOST_FACTS
            && useful(&fact)
            && let Err(place) = facts.outcomes.binary_search(&fact)
        {
            facts.outcomes.insert(place, fact);
        }
        facts
    }

    /// The outcome that `test` must have on this path, if that is known.
    fn implied(&self, test: &Step, tests: &[Step]) -> Option<bool> {
        if test.mask == 0 && test.need == 0 {
            return Some(true);
        }
        [true, false].into_iter().find(|&outcome| self.implies(test, outcome, tests))
    }

    fn implies(&self, test: &Step, outcome: bool, tests: &[Step]) -> bool {
        let known_length = self.known_length[test.base as usize];
        let short_too = test.short_yes == outcome;
        if known_length < test.required() && !short_too {
            return false;
        }
        // Facts that hold of every packet that is long enough for `test`, which is all we ask of.
        let usable = |fact: &u32| {
            let earlier = &tests[(fact / 2) as usize];
            let was = fact % 2 == 1;
            if !earlier.same_word(test) {
                return None;
            }
            let certain = was != earlier.short_yes || known_length >= earlier.required();
            let enough = certain || (short_too && earlier.required() <= test.required());
            enough.then_some((was, earlier.mask, earlier.value))
        };
        let mut relevant = [(false, 0, 0); MOST_RELEVANT];
        let mut count = 0;
        for (slot, fact) in relevant.iter_mut().zip(self.outcomes.iter().filter_map(usable)) {
            *slot = fact;
            count += 1;
        }
        let facts = &relevant[..count];
        if facts.is_empty() {
            return test.mask == 0 && outcome;
        }
        let (mut known, mut bits) = (0u32, 0u32);
        for &(_, mask, value) in facts.iter().filter(|f| f.0) {
            known |= mask;
            bits |= value;
        }
        // A test that failed by one unknown bit tells that bit; which may settle another.
        loop {
            let before = known;
            for &(_, mask, value) in facts.iter().filter(|f| !f.0) {
                let unknown = mask & !known;
                if unknown.is_power_of_two() && (bits ^ value) & mask & known == 0 {
                    known |= unknown;
                    bits |= !value & unknown;
                }
            }
            if known == before {
                break;
            }
        }
        let differs = (bits ^ test.value) & known & test.mask != 0;
        if !outcome {
            // Or `test` holding would make a test hold that is known to have failed.
            let (with, with_bits) = (known | test.mask, bits | test.value);
            return differs
                || facts
                    .iter()
                    .any(|&(was, mask, value)| !was && mask & !with == 0 && (with_bits ^ value) & mask == 0);
        }
        !differs && test.mask & !known == 0
    }
}

/// Sends jumps past steps that the step they come from answers by itself. Going backward, what
/// lies ahead is short already: this is cheap, where [`thread`] would walk long lists.
fn skip_repeated(steps: &mut [Step], fuel: &mut usize) {
    let no_uses = [usize::MAX];
    for i in (0..steps.len()).rev() {
        let test = [steps[i]];
        for outcome in [false, true] {
            let facts = Facts::default().with(0, &test[0], outcome, Jump::Step(0), &no_uses);
            let jump = if outcome { test[0].yes } else { test[0].no };
            let end = route(jump, &facts, steps, &test, usize::MAX, fuel).last().copied().unwrap_or(jump);
            if outcome { steps[i].yes = end } else { steps[i].no = end }
        }
    }
}

/// Sends every jump as far as what is known about it allows.
fn thread(first: usize, steps: &mut [Step], hops: usize, fuel: &mut usize) {
    let (tests, ids) = distinct_tests(steps);
    let last_use = last_uses(&tests, &ids);
    let mut inboxes: Vec<Inbox> = steps.iter().map(|_| Inbox::default()).collect();
    inboxes[first].add(Facts::default());
    // Jumps go forward: when a step's turn comes, everything that leads to it is settled.
    for i in 0..steps.len() {
        let paths = std::mem::take(&mut inboxes[i]).paths;
        if paths.is_empty() {
            continue;
        }
        let step = steps[i];
        let leaving = |outcome: bool, jump: Jump| -> Vec<Facts> {
            // Paths on which the step cannot have this outcome do not exist.
            let possible = paths.iter().filter(|p| p.implied(&step, &tests) != Some(!outcome));
            possible.map(|p| p.with(ids[i], &step, outcome, jump, &last_use)).collect()
        };
        let (on_yes, on_no) = (leaving(true, step.yes), leaving(false, step.no));
        let no = threaded(step.no, &on_no, steps, &tests, hops, fuel);
        let yes = threaded(step.yes, &on_yes, steps, &tests, hops, fuel);
        // An exit that no packet takes goes where the other does, which makes the step redundant.
        let (yes, no) = match (on_yes.is_empty(), on_no.is_empty()) {
            (true, false) => (no, no),
            (false, true) => (yes, yes),
            _ => (yes, no),
        };
        (steps[i].yes, steps[i].no) = (yes, no);
        if *fuel == 0 {
            return;
        }
        if yes == no {
            if let Some(target) = yes.step() {
                paths.into_iter().for_each(|path| inboxes[target].add(path));
            }
            continue;
        }
        for (jump, facts) in [(yes, on_yes), (no, on_no)] {
            if let Some(target) = jump.step() {
                facts.into_iter().for_each(|path| inboxes[target].add(path));
            }
        }
    }
}

/// The farthest place that all of `paths` reach from `from`.
fn threaded(
    from: Jump,
    paths: &[Facts],
    steps: &[Step],
    tests: &[Step],
    hops: usize,
    fuel: &mut usize,
) -> Jump {
    let mut routes = paths.iter().map(|path| route(from, path, steps, tests, hops, fuel));
    let Some(mut common) = routes.next() else { return from };
    for route in routes {
        // Both ascend, a decision last.
        let mut rest = route.iter().copied().peekable();
        common.retain(|&jump| {
            while rest.next_if(|&other| position(other) < position(jump)).is_some() {}
            rest.peek() == Some(&jump)
        });
    }
    common.last().copied().unwrap_or(from)
}

fn position(jump: Jump) -> u64 {
    match jump {
        Jump::Step(index) => u64::from(index),
        Jump::Output(output) => 1 << 32 | u64::from(output),
        Jump::Drop => u64::MAX,
    }
}

/// Where a packet gets to from `from`, as far as `facts` tell.
fn route(
    from: Jump,
    facts: &Facts,
    steps: &[Step],
    tests: &[Step],
    hops: usize,
    fuel: &mut usize,
) -> Vec<Jump> {
    let mut route = vec![from];
    let mut at = from;
    while let Some(step) = at.step().map(|i| &steps[i]) {
        *fuel = fuel.saturating_sub(1 + facts.outcomes.len());
        if *fuel == 0 || route.len() > hops {
            break;
        }
        at = match facts.implied(step, tests) {
            Some(true) => step.yes,
            Some(false) => step.no,
            None => break,
        };
        route.push(at);
    }
    route
}

/// For each test, the last step that may use the fact that it failed: one with a test of the same
/// word that does not by itself exclude it.
fn last_uses(tests: &[Step], ids: &[TestId]) -> Vec<usize> {
    let mut last_step = vec![0; tests.len()];
    for (i, &id) in ids.iter().enumerate() {
        last_step[id as usize] = i;
    }
    let mut of_word: HashMap<(Base, u16), Vec<usize>> = HashMap::new();
    for (id, test) in tests.iter().enumerate() {
        of_word.entry((test.base, test.offset)).or_default().push(id);
    }
    let mut last_use = last_step.clone();
    for same_word in of_word.values().filter(|same_word| same_word.len() <= MOST_COMPARED) {
        for &id in same_word {
            let test = &tests[id];
            let meets = |other: &Step| (test.value ^ other.value) & test.mask & other.mask == 0;
            let users = same_word.iter().filter(|&&other| meets(&tests[other]));
            // A single bit is known either way, and then matters to every test of it.
            let users = users.map(|&other| last_step[other]).max();
            last_use[id] = if test.mask.is_power_of_two() { usize::MAX } else { users.unwrap_or(0) };
        }
    }
    last_use
}

/// One step for each distinct test, and which of them each step makes.
fn distinct_tests(steps: &[Step]) -> (Vec<Step>, Vec<TestId>) {
    let mut numbers: HashMap<Step, TestId> = HashMap::new();
    let mut tests = Vec::new();
    let mut ids = Vec::with_capacity(steps.len());
    for step in steps {
        let test = Step { yes: Jump::Drop, no: Jump::Drop, ..*step };
        let id = *numbers.entry(test).or_insert_with(|| {
            tests.push(test);
            tests.len() as TestId - 1
        });
        ids.push(id);
    }
    (tests, ids)
}

/// The same test asked the other way around, if it is about a single bit.
fn flipped(step: &Step) -> Option<Step> {
    step.mask.is_power_of_two().then_some(Step {
        value: step.value ^ step.mask,
        yes: step.no,
        no: step.yes,
        short_yes: !step.short_yes,
        ..*step
    })
}

/// Makes one test of two on one word, where the first's `yes` leads to the second.
fn merge(steps: &mut [Step]) {
    for i in (0..steps.len()).rev() {
        while let Some(merged) = merged_with_next(&steps[i], steps) {
            steps[i] = merged;
        }
    }
}

fn merged_with_next(step: &Step, steps: &[Step]) -> Option<Step> {
    if let Some(next) = step.no.step().map(|i| &steps[i])
        && let Some(both) = either(step, next)
    {
        return Some(both);
    }
    let forms = [Some(*step), flipped(step)];
    for form in forms.into_iter().flatten() {
        let Some(next) = form.yes.step().map(|i| &steps[i]) else { continue };
        for next in [Some(*next), flipped(next)].into_iter().flatten() {
            if let Some(merged) = both(&form, &next) {
                return Some(merged);
            }
        }
    }
    None
}

/// `first or second` as one test: two values that differ in one bit.
fn either(first: &Step, second: &Step) -> Option<Step> {
    let bit = first.value ^ second.value;
    let alike = first.same_word(second)
        && first.mask == second.mask
        && first.need == second.need
        && first.yes == second.yes
        // A packet too short for both passes both alike only if it does so on the way to `no`.
        && !first.short_yes
        && !second.short_yes;
    (alike && bit.is_power_of_two()).then_some(Step {
        mask: first.mask & !bit,
        value: first.value & !bit,
        no: second.no,
        ..*first
    })
}

/// `first and second` as one test, if short packets fare the same.
fn both(first: &Step, second: &Step) -> Option<Step> {
    let overlap = first.mask & second.mask;
    if !first.same_word(second) || first.no != second.no || (first.value ^ second.value) & overlap != 0 {
        return None;
    }
    let short_yes = match (first.short_yes, second.short_yes) {
        // Whichever is too short, the packet leaves by `no`.
        (_, false) if first.need <= second.need => false,
        (false, _) if first.need >= second.need => false,
        (true, true) if first.need == second.need => true,
        _ => return None,
    };
    Some(Step {
        need: first.need.max(second.need),
        mask: first.mask | second.mask,
        value: first.value | second.value,
        yes: second.yes,
        short_yes,
        ..*first
    })
}

/// Removes the steps that make no difference or cannot be reached, makes equal steps one, and
/// numbers the rest anew. Returns the new entry.
fn compact(entry: Jump, steps: &mut Vec<Step>) -> Jump {
    let mut place: Vec<Jump> = Vec::with_capacity(steps.len());
    place.resize(steps.len(), Jump::Drop);
    let resolve = |jump: Jump, place: &[Jump]| jump.step().map_or(jump, |i| place[i]);
    let mut seen: HashMap<Step, u32> = HashMap::new();
    for i in (0..steps.len()).rev() {
        let step = &mut steps[i];
        step.yes = resolve(step.yes, &place);
        step.no = resolve(step.no, &place);
        place[i] = if step.yes == step.no || (step.mask == 0 && step.need == 0) {
            step.yes
        } else {
            Jump::Step(*seen.entry(*step).or_insert(i as u32))
        };
    }
    let entry = resolve(entry, &place);

    let mut reached = vec![false; steps.len()];
    if let Some(first) = entry.step() {
        reached[first] = true;
    }
    let mut number = vec![0; steps.len()];
    let mut count = 0;
    for i in 0..steps.len() {
        if reached[i] {
            number[i] = count;
            count += 1;
            for target in [steps[i].yes, steps[i].no].into_iter().filter_map(Jump::step) {
                reached[target] = true;
            }
        }
    }
    let renumber = |jump: Jump| jump.step().map_or(jump, |i| Jump::Step(number[i]));
    let mut i = 0;
    steps.retain_mut(|step| {
        (step.yes, step.no) = (renumber(step.yes), renumber(step.no));
        i += 1;
        reached[i - 1]
    });
    renumber(entry)
}
