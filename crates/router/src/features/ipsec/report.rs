//! What goes back to the kernel: how far associations have come, so that it can go on without us, daemons see their counters, and
//! associations that have reached a limit are renewed.
//!
//! **What the kernel gets while we run** differs from what is true. Numbers that were sent are ahead by what may be sent until the next
//! report: if the router is killed, Linux goes on with numbers that nobody has used. The highest number that was received is that of
//! the report before: packets that were sealed again for Linux are not replays to it.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use control::netlink::xfrm::{Expiry, Progress, Replay, RequestError, Requests, SaId, Usage};
use ipsec::association::Age;
use ipsec::{Association, Fault};

use super::linux_ipsec::{Known, State};
use super::path_mtu::path_mtu;

/// Numbers that the kernel's are ahead of what was sent, at least.
const AHEAD: u64 = 1_024;

/// Time between two messages about an association.
const QUIET: Duration = Duration::from_secs(10);

/// Most messages of one look.
const MOST_MESSAGES: usize = 4;

/// What was said of an association before.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Reported {
    packets: u64,
    sent: u64,
    received: u64,
    /// The received number of the last report to the kernel.
    delayed: u64,
    age: Option<Age>,
    faults: [u64; Fault::ALL.len()],
    message: Option<Instant>,
}

/// Reports what happened since the last time. Returns whether an association has come to its end.
pub(super) fn report(state: &mut State, requests: &mut Requests) -> bool {
    let mut progress = Vec::new();
    let mut expired = Vec::new();
    let mut messages = 0;
    let endpoints =
        state.sas.values().filter_map(|known| Some(known.association.as_ref().ok()?.settings().endpoints));
    let endpoints = endpoints.collect();
    state.path_mtus.look(endpoints, &mut path_mtu);
    for known in state.sas.values_mut() {
        packet::pulse::beat();
        let Ok(association) = known.association.clone() else { continue };
        association.set_path_mtu(state.path_mtus.of(&association.settings().endpoints, &mut path_mtu));
        progress.extend(progress_of(known, &association, requests));
        let age = association.age();
        if known.reported.age.unwrap_or(Age::Young) < age {
            known.reported.age = Some(age);
            let expiry = if age == Age::Expired { Expiry::Hard } else { Expiry::Soft };
            expired.push((known.sa.id, expiry));
        }
        if messages < MOST_MESSAGES {
            messages += usize::from(print_faults(known, &association));
        }
    }
    let mut failed: Vec<RequestError> =
        requests.report(&progress).into_iter().map(|(_, error)| error).collect();
    failed.extend(requests.expire(&expired).into_iter().map(|(_, error)| error));
    // One that is gone is reported as gone.
    let failed = failed.into_iter().filter(|error| !matches!(error, RequestError::Gone(_)));
    failed.take(MOST_MESSAGES).for_each(|error| tracing::warn!("IPsec: {error}"));
    expired.iter().any(|(_, expiry)| *expiry == Expiry::Hard)
}

/// Tells the kernel exactly how far associations have come. No worker may use them any more.
pub(super) fn report_at_end(state: &mut State, requests: &mut Requests) {
    let ours = state.sas.values().filter_map(|known| Some((known, known.association.as_deref().ok()?)));
    let progress: Vec<_> =
        ours.filter_map(|(known, association)| progress_at_end(known, association, 0, requests)).collect();
    let _ = requests.report(&progress);
}

/// The same for associations that Linux goes on with while this router runs. Packets that were chosen for them may be under way: the
/// kernel's numbers are ahead of theirs.
pub(super) fn report_to_go_on(state: &State, ours: &[(SaId, Arc<Association>)], requests: &mut Requests) {
    let mut progress = Vec::new();
    for (id, association) in ours {
        let Some(known) = state.sas.get(id) else { continue };
        let ahead = ahead(association, known.reported);
        progress.extend(progress_at_end(known, association, ahead, requests));
    }
    let failed = requests.report(&progress).into_iter().map(|(_, error)| error);
    let failed = failed.filter(|error| !matches!(error, RequestError::Gone(_)));
    failed.take(MOST_MESSAGES).for_each(|error| tracing::warn!("IPsec: {error}"));
}

fn progress_at_end(
    known: &Known,
    association: &Association,
    ahead: u64,
    requests: &mut Requests,
) -> Option<Progress> {
    let sa = requests.ask(&known.sa.id).ok()??;
    let (sequence, highest) = (association.sequence(), association.window().highest());
    let (sent, received) = numbers(known, &sa.replay, association, sequence.saturating_add(ahead), highest);
    let is_ours = |number| number <= highest && association.window().check(number).is_err();
    let was_received = |number| is_ours(number) || sa.replay.was_received(number);
    let replay = Some(sa.replay.advanced(sent, received, was_received));
    Some(Progress { id: known.sa.id, usage: Some(usage(known, association)), replay })
}

/// Returns how many numbers the kernel's are ahead of what was sent.
fn ahead(association: &Association, reported: Reported) -> u64 {
    association.sequence().saturating_sub(reported.sent).saturating_mul(2).max(AHEAD)
}

/// Returns the report of an association; `None` if nothing happened, or it is gone.
fn progress_of(known: &mut Known, association: &Association, requests: &mut Requests) -> Option<Progress> {
    let packets = association.used().packets;
    let (sequence, highest) = (association.sequence(), association.window().highest());
    let reported = known.reported;
    let now = (packets, sequence, highest);
    if now == (reported.packets, reported.sent, reported.received) && reported.delayed == highest {
        return None;
    }
    // The kernel counts on by itself, and must never be set back: its IVs are made of its numbers.
    let replay = requests.ask(&known.sa.id).ok()??.replay;
    let ahead = ahead(association, reported);
    known.reported =
        Reported { packets, sent: sequence, received: highest, delayed: reported.received, ..reported };
    let (sent, received) =
        numbers(known, &replay, association, sequence.saturating_add(ahead), reported.received);
    let was_received = |number| number <= reported.received || replay.was_received(number);
    let replay = Some(replay.advanced(sent, received, was_received));
    Some(Progress { id: known.sa.id, usage: Some(usage(known, association)), replay })
}

/// Returns the numbers to report, sent and received: never below the kernel's own, and the kernel's own in a direction that the
/// association has not used.
pub(super) fn numbers(
    known: &Known,
    replay: &Replay,
    association: &Association,
    sent: u64,
    received: u64,
) -> (u64, u64) {
    let most = if known.sa.flags.extended_sequence_numbers { u64::MAX } else { u64::from(u32::MAX) };
    let begin = association.settings().sequence;
    let has_sent = association.sequence() > begin;
    let has_received = association.window().highest() > begin;
    let sent = if has_sent { sent.min(most).max(replay.sent) } else { replay.sent };
    let received = if has_received { received.min(most).max(replay.received) } else { replay.received };
    (sent, received)
}

fn usage(known: &Known, association: &Association) -> Usage {
    let used = association.used();
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |now| now.as_secs());
    let used_at = known.sa.usage.used_at.or((used.packets != 0).then_some(now));
    Usage { bytes: used.bytes, packets: used.packets, used_at, ..known.sa.usage }
}

/// Prints what packets of an association had wrong since the last time. Returns whether there was something.
fn print_faults(known: &mut Known, association: &Association) -> bool {
    if known.reported.message.is_some_and(|message| message.elapsed() < QUIET) {
        return false;
    }
    let mut texts = Vec::new();
    for (fault, told) in Fault::ALL.iter().zip(&mut known.reported.faults) {
        let count = association.faults(*fault);
        if count > *told {
            let reason = fault.reason().trim_start_matches("ESP: ");
            texts.push(format!("{} {reason}", count - *told));
            *told = count;
        }
    }
    if texts.is_empty() {
        return false;
    }
    known.reported.message = Some(Instant::now());
    tracing::warn!("{} from {}: more packets dropped: {}", known.sa.id, known.sa.source, texts.join(", "));
    true
}
