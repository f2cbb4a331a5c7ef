//! The list that all copies of an element share, how it changes, and who counts.
//!
//! Packets go by a compiled [`List`], of which there is one at a time for all copies. A change compiles
//! another one and publishes it ([`fib::publish`]): a copy enters the list for a batch, so every batch is
//! judged by one list as a whole, no packet waits, and none is lost. Once nobody is in the old list it is
//! freed, by the thread that changed it.
//!
//! Compiling takes milliseconds, so who changes a list under load does it on a thread of its own: the program
//! gets at the [`AccessList`] by its [`AccessList::key`]. A write handler runs on every copy in turn, and the
//! last one makes the change; that is the slow thread's where there is one, and a worker's otherwise. Who
//! changes the list holds the `writer` all the time, and the `book` only while lists are exchanged, so that
//! handlers that read wait for no compilation.
//!
//! **Counts.** A list has an array of counts for each copy, which that copy alone writes, with plain loads and
//! stores. When a list goes, nobody writes its counts any more: they are added up and carried over to the
//! rules that are in the new list with the same number and text.
//!
//! **In the kernel.** The program that forwards there may judge by the same list ([`AccessList::judge_in_kernel`]). A change
//! has taken place there too when it returns, and what the program has counted is a part of the counts.

use packet::sync::lock;
use std::fmt::Write;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

use fib::publish::{Reader, Readers, Writer, pair};

use packet::{IpVersion, Packet};
use ports::{KernelHits, KernelList, KernelRules};

use super::access_control::parse_inputs;
use super::compile::compile;
use super::compiled::{Answer, Compiled, Room};
use super::doubts::doubts;
use super::facts;
use super::parse::{MAX_RULES, RuleMistake, lines, parse_list, parse_rule};
use super::rule::{Action, Inputs, Rule, TrafficRule, Written};

/// Packets and bytes that met a rule, as its copy counts them.
#[derive(Debug, Default)]
pub(super) struct Count {
    packets: AtomicU64,
    bytes: AtomicU64,
}

impl Count {
    /// Counts a packet. One thread writes, so nothing needs to be locked.
    #[inline(always)]
    pub(super) fn add(&self, bytes: usize) {
        self.add_all(1, bytes as u64);
    }

    /// Counts packets.
    #[inline(always)]
    fn add_all(&self, packets: u64, bytes: u64) {
        self.packets.store(self.packets.load(Ordering::Relaxed) + packets, Ordering::Relaxed);
        self.bytes.store(self.bytes.load(Ordering::Relaxed) + bytes, Ordering::Relaxed);
    }
}

/// What was counted in all. Sums wrap, so that a count can be taken back to zero while it goes on.
#[derive(Clone, Copy, Debug, Default)]
struct Hits {
    packets: u64,
    bytes: u64,
}

impl Hits {
    fn and(self, count: &Count) -> Self {
        self.plus((count.packets.load(Ordering::Relaxed), count.bytes.load(Ordering::Relaxed)))
    }

    fn plus(self, (packets, bytes): (u64, u64)) -> Self {
        Self { packets: self.packets.wrapping_add(packets), bytes: self.bytes.wrapping_add(bytes) }
    }
}

/// A compiled list.
pub(crate) struct List {
    ipv4: Compiled<u32>,
    ipv6: Compiled<u128>,
    /// For each copy: the count of each rule, and behind them that of the default.
    counts: Vec<Box<[Count]>>,
    /// For the program in the kernel, once it is asked for: of IPv4 and IPv6.
    in_kernel: [OnceLock<KernelRules>; 2],
}

/// Room for a batch of each family.
pub(crate) struct Rooms {
    ipv4: Room<u32>,
    ipv6: Room<u128>,
}

impl Rooms {
    pub(crate) fn new() -> Self {
        Self { ipv4: Room::new(), ipv6: Room::new() }
    }
}

impl List {
    pub(crate) fn new(rules: &[Rule], default: Action, copies: usize) -> Self {
        let counts = (0..copies).map(|_| (0..=rules.len()).map(|_| Count::default()).collect());
        Self {
            ipv4: compile(rules, default, copies),
            ipv6: compile(rules, default, copies),
            counts: counts.collect(),
            in_kernel: Default::default(),
        }
    }

    /// Compiles rules for one copy of an element, for which all fragments of a packet are alike.
    pub(crate) fn of_traffic(rules: &[TrafficRule]) -> Self {
        let rules: Vec<Rule> = rules.iter().map(|rule| rule.0).collect();
        let mut list = Self::new(&rules, Action::Deny, 1);
        (list.ipv4.fragments_alike, list.ipv6.fragments_alike) = (true, true);
        list
    }

    /// The rules of a family for the program in the kernel.
    fn in_kernel(&self, version: IpVersion) -> &KernelRules {
        let [ipv4, ipv6] = &self.in_kernel;
        match version {
            IpVersion::V4 => ipv4.get_or_init(|| self.ipv4.in_kernel()),
            IpVersion::V6 => ipv6.get_or_init(|| self.ipv6.in_kernel()),
        }
    }

    /// Judges packets and counts them; one that is of neither family, or that rules cannot judge, is
    /// [`Answer::FLAWED`] and counted nowhere. `copy` is the copy of the element that asks. Returns how many are
    /// permitted.
    #[inline]
    pub(crate) fn judge(
        &self,
        copy: usize,
        packets: &[Packet],
        rooms: &mut Rooms,
        answers: &mut [Answer],
    ) -> usize {
        let counts = &self.counts[copy];
        // The family of the first packet, which is that of all mostly, and then, if need be, the other.
        let is_ipv6 = packets.first().is_some_and(|packet| facts::version(packet) == Some(6));
        answers.fill(Answer::FLAWED);
        let mut judged = 0;
        let mut permitted = 0;
        for pass in [is_ipv6, !is_ipv6] {
            if judged == packets.len() {
                break;
            }
            let tally = match pass {
                true => self.ipv6.judge(copy, packets, counts, &mut rooms.ipv6, answers),
                false => self.ipv4.judge(copy, packets, counts, &mut rooms.ipv4, answers),
            };
            judged += tally.judged;
            permitted += tally.permitted;
        }
        permitted
    }

    /// Counts packets that a rule was found for otherwise. `copy` is the copy of the element that found it.
    #[inline]
    pub(crate) fn count(&self, copy: usize, rule: usize, packets: u64, bytes: u64) {
        self.counts[copy][rule].add_all(packets, bytes);
    }

    /// Returns what all copies counted for a rule, or behind the rules for the default: packets and bytes.
    pub(crate) fn counted(&self, rule: usize) -> (u64, u64) {
        let sum = self.counts.iter().fold(Hits::default(), |sum, counts| sum.and(&counts[rule]));
        (sum.packets, sum.bytes)
    }

    /// The number of the default, behind those of the rules.
    pub(super) fn default_rule(&self) -> usize {
        self.counts.first().map_or(0, |counts| counts.len() - 1)
    }

    fn memory_bytes(&self) -> usize {
        let counts: usize = self.counts.iter().map(|counts| size_of_val(&**counts)).sum();
        self.ipv4.memory_bytes() + self.ipv6.memory_bytes() + counts
    }
}

/// The rules as people know them.
struct Book {
    rules: Vec<Rule>,
    /// What becomes of packets that no rule matches.
    default: Action,
    /// What somebody said of them; else the rules decide whenever they are given as a whole.
    said: Option<Action>,
    /// What was counted before the list in use: of each rule, and behind them of the default.
    carried: Vec<Hits>,
    /// The list in use.
    list: Arc<List>,
    /// What the program in the kernel counts by that list.
    hits: Option<KernelHits>,
}

impl Book {
    /// All counts of the rules, and behind them of the default.
    fn sums(&self, base: &[Hits]) -> Vec<Hits> {
        let of_all = |(number, base): (usize, &Hits)| {
            let sum = self.list.counts.iter().fold(*base, |sum, counts| sum.and(&counts[number]));
            self.hits.as_ref().map_or(sum, |hits| sum.plus(hits.of(number)))
        };
        base.iter().enumerate().map(of_all).collect()
    }
}

/// What only those need who change the list.
struct Changing {
    writer: Writer<Arc<List>>,
    /// The list of the program in the kernel, if that judges too.
    kernel: Option<KernelList>,
}

/// The list of an element `ACL`, for all its copies. The program finds it among what elements share:
///
/// ```
/// use elements::acl::AccessList;
/// # let shared = graph::setup::Shared::default();
/// if let Some(list) = shared.get::<AccessList>(&AccessList::key("acl")) {
///     list.replace("permit tcp any any port 80\n")?;
/// }
/// # Ok::<(), String>(())
/// ```
pub struct AccessList {
    /// Held by who changes the list, from the old rules to the new; taken before `book`.
    writer: Mutex<Changing>,
    book: Mutex<Book>,
    readers: Readers<Arc<List>>,
    /// Number of the last copy of the graph that has the element; not every thread has every element.
    last_copy: AtomicUsize,
    copies: usize,
    inputs: Inputs,
}

impl AccessList {
    /// A list of these rules, for so many copies of the graph.
    pub(super) fn new(rules: Vec<Rule>, said: Option<Action>, inputs: Inputs, copies: usize) -> Self {
        let default = said.unwrap_or_else(|| Action::of_the_rest(&rules));
        let list = Arc::new(List::new(&rules, default, copies));
        let (writer, readers) = pair(list.clone(), list.clone());
        let carried = vec![Hits::default(); rules.len() + 1];
        let book = Mutex::new(Book { rules, default, said, carried, list, hits: None });
        let writer = Mutex::new(Changing { writer, kernel: None });
        Self { writer, book, readers, last_copy: AtomicUsize::new(0), copies, inputs }
    }

    /// A copy's access to the compiled list.
    pub(super) fn reader(&self) -> Reader<Arc<List>> {
        self.readers.register()
    }

    /// Says that the copy `index` has the element. Before any thread starts.
    pub(super) fn join(&self, index: usize) {
        self.last_copy.fetch_max(index, Ordering::Relaxed);
    }

    /// Whether `index` is the copy that makes changes and prints: handlers reach it after all others.
    pub(super) fn is_last(&self, index: usize) -> bool {
        self.last_copy.load(Ordering::Relaxed) == index
    }

    /// What the list of an element is called among what elements share ([`graph::setup::Shared`]).
    pub fn key(element: &str) -> String {
        format!("element:{element}")
    }

    /// Puts rules, one a line, in the place of all there are; those that stay as they are keep their counts.
    /// The calling thread compiles them, and workers judge packets meanwhile. When this returns, they judge
    /// by the new list.
    ///
    /// # Errors
    ///
    /// What is wrong with each line that is. Then nothing changes.
    pub fn replace(&self, text: &str) -> Result<(), String> {
        let rules = self.parsed(lines(text))?;
        let mut changing = lock(&self.writer);
        let default = self.book().said.unwrap_or_else(|| Action::of_the_rest(&rules));
        self.change(&mut changing, rules, default);
        Ok(())
    }

    /// As [`AccessList::replace`], with what becomes of packets that no rule matches, where that is said. Each rule comes with the place
    /// that a mistake in it is reported with.
    ///
    /// # Errors
    ///
    /// As there.
    pub fn replace_with_default<'a>(
        &self,
        rules: impl Iterator<Item = (String, &'a str)>,
        permits: Option<bool>,
    ) -> Result<(), String> {
        let rules = self.parsed(rules)?;
        let said = permits.map(Action::of_permits);
        let default = said.unwrap_or_else(|| Action::of_the_rest(&rules));
        let mut changing = lock(&self.writer);
        self.change(&mut changing, rules, default);
        self.book().said = said;
        Ok(())
    }

    /// Returns rules as they are printed, without comments, each with its number. `inputs` are the INPUTS of the element, and each rule
    /// comes with the place that a mistake in it is reported with.
    ///
    /// # Errors
    ///
    /// The mistakes in them.
    pub fn written<'a>(
        rules: impl Iterator<Item = (String, &'a str)>,
        inputs: &str,
    ) -> Result<Vec<String>, Vec<RuleMistake>> {
        let inputs = parse_inputs(inputs).map_err(|text| vec![RuleMistake { line: 0, text }])?;
        let rules = parse_list(rules, &inputs)?;
        Ok(rules.iter().map(|rule| Written { rule, inputs: &inputs }.to_string()).collect())
    }

    /// Returns what a router's operator should know of a list of these rules; the other arguments are those of [`AccessList::written`]
    /// and [`AccessList::replace_with_default`].
    ///
    /// # Errors
    ///
    /// The mistakes in them.
    pub fn doubts_of<'a>(
        rules: impl Iterator<Item = (String, &'a str)>,
        inputs: &str,
        permits: Option<bool>,
    ) -> Result<Vec<String>, Vec<RuleMistake>> {
        let inputs = parse_inputs(inputs).map_err(|text| vec![RuleMistake { line: 0, text }])?;
        let rules = parse_list(rules, &inputs)?;
        Ok(doubts(&rules, permits.map(Action::of_permits), true))
    }

    /// Returns what the router's operator should know of the list in use, which may be that of its settings.
    pub fn doubts(&self, of_settings: bool) -> Vec<String> {
        let book = self.book();
        doubts(&book.rules, book.said, of_settings)
    }

    /// Returns whether packets that no rule matches are permitted.
    pub fn permits_the_rest(&self) -> bool {
        self.book().default == Action::Permit
    }

    /// Has the program in the kernel judge packets of a family by this list too, from now on and after each change. The
    /// program of an earlier call must have ended.
    pub fn judge_in_kernel(&self, mut kernel: KernelList) {
        let mut changing = lock(&self.writer);
        let list = self.book().list.clone();
        let hits = kernel.replace(Some(list.in_kernel(kernel.version())));
        let mut book = self.book();
        if let Some(old) = book.hits.replace(hits) {
            let carried = book.carried.iter_mut().enumerate();
            carried.for_each(|(number, carried)| *carried = carried.plus(old.of(number)));
        }
        changing.kernel = Some(kernel);
    }

    /// Returns whether the program in the kernel can judge packets of a family by this list.
    pub fn fits_kernel(&self, version: IpVersion) -> bool {
        let list = self.book().list.clone();
        list.in_kernel(version).fit()
    }

    fn parsed<'a>(&self, rules: impl Iterator<Item = (String, &'a str)>) -> Result<Vec<Rule>, String> {
        parse_list(rules, &self.inputs).map_err(|mistakes| RuleMistake::texts(mistakes).join("\n"))
    }

    /// Adds one rule, without a sequence number behind all others.
    pub(super) fn add(&self, line: &str) -> Result<(), String> {
        let mut changing = lock(&self.writer);
        let mut rules = self.book().rules.clone();
        let last = rules.last().map_or(0, |rule| rule.sequence);
        let Some(rule) = parse_rule(line, last, &self.inputs)? else {
            return Err("there is no rule in it; expected one such as '10 permit tcp any any port 80'".into());
        };
        match rules.binary_search_by_key(&rule.sequence, |known| known.sequence) {
            Ok(known) => Err(format!(
                "there is a rule {} already: '{}'; remove it first, or use another number",
                rule.sequence,
                Written { rule: &rules[known], inputs: &self.inputs }
            )),
            Err(_) if rules.len() == MAX_RULES => {
                Err(format!("there are {MAX_RULES} rules already, and there can be no more"))
            }
            Err(place) => {
                rules.insert(place, rule);
                let default = self.book().default;
                self.change(&mut changing, rules, default);
                Ok(())
            }
        }
    }

    /// Removes the rule of a sequence number.
    pub(super) fn remove(&self, sequence: u32) -> Result<(), String> {
        let mut changing = lock(&self.writer);
        let mut rules = self.book().rules.clone();
        match rules.binary_search_by_key(&sequence, |known| known.sequence) {
            Ok(place) => {
                rules.remove(place);
                let default = self.book().default;
                self.change(&mut changing, rules, default);
                Ok(())
            }
            Err(_) => Err(format!("there is no rule {sequence}; the handler 'rules' shows those there are")),
        }
    }

    /// All counts are zero from now on.
    pub(super) fn reset_counts(&self) {
        let mut book = self.book();
        let sums = book.sums(&vec![Hits::default(); book.carried.len()]);
        let negative = |sum: Hits| Hits {
            packets: 0_u64.wrapping_sub(sum.packets),
            bytes: 0_u64.wrapping_sub(sum.bytes),
        };
        book.carried = sums.into_iter().map(negative).collect();
    }

    /// All rules, one a line, each with what it met as a comment: text that `set` takes.
    pub(super) fn text(&self) -> String {
        let book = self.book();
        let mut text = String::new();
        for (rule, hits) in book.rules.iter().zip(book.sums(&book.carried)) {
            // Writing to a string does not fail.
            let _ = writeln!(
                text,
                "{} # {} packets, {} bytes",
                Written { rule, inputs: &self.inputs },
                hits.packets,
                hits.bytes
            );
        }
        text
    }

    /// What becomes of packets that no rule matches, and how many these were.
    pub(super) fn default_text(&self) -> String {
        let book = self.book();
        let hits = book.sums(&book.carried).pop().unwrap_or_default();
        format!("{} # {} packets, {} bytes", book.default, hits.packets, hits.bytes)
    }

    /// Number of rules.
    pub(super) fn len(&self) -> usize {
        self.book().rules.len()
    }

    /// Bytes of the compiled list and its counts.
    pub(super) fn memory_bytes(&self) -> usize {
        let list = self.book().list.clone();
        list.memory_bytes()
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        lock(&self.book)
    }

    /// Makes `rules` the list, and keeps the counts of rules that stay.
    fn change(&self, changing: &mut Changing, rules: Vec<Rule>, default: Action) {
        let Changing { writer, kernel } = changing;
        let list = Arc::new(List::new(&rules, default, self.copies));
        // What the program in the kernel counted by the old list stays until the next change.
        let hits = kernel.as_mut().map(|kernel| kernel.replace(Some(list.in_kernel(kernel.version()))));
        *writer.both().0 = list.clone();
        let mut book = self.book();
        writer.publish();
        // Nobody is in the old list any more, and nobody comes to it.
        *writer.both().0 = list.clone();
        let mut before = book.sums(&book.carried);
        let old = std::mem::replace(&mut book.list, list);
        book.hits = hits;
        let of_default = before.pop().unwrap_or_default();
        let mut known = book.rules.iter().zip(before).peekable();
        let mut carried = Vec::with_capacity(rules.len() + 1);
        for rule in &rules {
            while known.next_if(|(known, _)| known.sequence < rule.sequence).is_some() {}
            let same = known.next_if(|(known, _)| *known == rule);
            carried.push(same.map_or_else(Hits::default, |(_, hits)| hits));
        }
        carried.push(of_default);
        book.carried = carried;
        book.rules = rules;
        book.default = default;
        // To free a long list takes a while, too.
        drop(book);
        drop(old);
    }
}
