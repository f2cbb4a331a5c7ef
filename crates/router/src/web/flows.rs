//! `/api/v1/flows`: the busiest flows of what comes in, sampled for a second at a time, for all who look.
//!
//! Nothing is sampled while nobody asks. However many ask, there is one sampling at a time, and a pause behind each: it goes on where
//! its client has gone, so asking and going does not begin another one. The router samples as for `brickway flows`, with the limits of
//! that command, by the same taps and rings.
//!
//! Flows are of other users' packets, which the control socket shows to its write group alone. So the settings have to permit it.

use std::io::{self, Write};
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use control::api::{Backend, CaptureQuery, CaptureRow, PortRow, Request, Rows, Show, Unanswered, utoipa};
use serde::Serialize;
use tokio::sync::Mutex;

use super::Site;
use crate::capture::decode;
use crate::capture::places::INPUTS;
use crate::flows::tally::{FlowRow, Tally};
use crate::flows::{HEADER_BYTES, one_in};

/// How long a sampling takes.
const LOOK: Duration = Duration::from_secs(1);
/// How long its answer serves all who ask.
const PAUSE: Duration = Duration::from_secs(4);
/// Samples after which it ends before its time: more than come unless a rate leaps.
const MOST_SAMPLES: u64 = 20_000;
/// Flows that are shown.
const MOST_FLOWS: usize = 5;
const NOT_PERMITTED: &str = "the settings do not permit it; 'flows = true' in [web], or --web-flows, does";

/// The busiest flows, or why there are none.
#[derive(Debug, Default, Serialize, utoipa::ToSchema)]
pub(super) struct BusiestFlows {
    /// Those with the most bits, at most five.
    flows: Vec<FlowRow>,
    /// Packets that were sampled.
    samples: u64,
    /// Samples that there was no room for.
    lost: u64,
    /// Seconds in which they were.
    seconds: f64,
    /// Why nothing could be sampled, or the sampling ended before its time.
    problem: Option<String>,
}

/// What is sampled for all, and was.
pub(super) struct Flows {
    backend: Arc<dyn Backend>,
    is_permitted: bool,
    last: Arc<Mutex<Option<Last>>>,
}

/// When it ended, and its answer.
type Last = (Instant, Arc<BusiestFlows>);

pub(super) async fn flows(State(site): State<Site>) -> Response {
    if !site.flows.is_permitted {
        let problem = Some(NOT_PERMITTED.to_owned());
        return Json(BusiestFlows { problem, ..BusiestFlows::default() }).into_response();
    }
    let snapshot = site.snapshots.now().await;
    Json(&*site.flows.now(&snapshot.ports).await).into_response()
}

impl Flows {
    pub(super) fn new(backend: Arc<dyn Backend>, is_permitted: bool) -> Self {
        Self { backend, is_permitted, last: Arc::default() }
    }

    /// Returns what was sampled in the last seconds. Those who ask at the same time wait for the same sampling.
    async fn now(&self, ports: &[PortRow]) -> Arc<BusiestFlows> {
        let mut last = self.last.clone().lock_owned().await;
        if let Some((_, flows)) = last.as_ref().filter(|(ended, _)| ended.elapsed() < PAUSE) {
            return flows.clone();
        }
        let rate: f64 = ports.iter().map(|port| port.rx.packets_per_second).sum();
        let backend = self.backend.clone();
        // The lock is the sampling's, also when its client goes.
        let look = tokio::spawn(async move {
            let flows = tokio::task::spawn_blocking(move || sample(&*backend, one_in(rate))).await;
            // A panic of the backend was printed when it happened.
            let flows = Arc::new(flows.unwrap_or_default());
            *last = Some((Instant::now(), flows.clone()));
            flows
        });
        look.await.unwrap_or_default()
    }
}

/// Samples one packet of so many.
fn sample(backend: &dyn Backend, one_in: u32) -> BusiestFlows {
    let request = Request::Show(Show::Capture(CaptureQuery {
        what: Some(INPUTS.to_owned()),
        count: Some(MOST_SAMPLES),
        bytes: Some(HEADER_BYTES),
        sample: Some(one_in),
        filter: None,
    }));
    let begin = Instant::now();
    let mut sink =
        Sink { end: begin + LOOK, line: Vec::new(), tally: Tally::default(), lost: 0, problem: None };
    let answered = backend.answer(&request, &mut Rows::bare(&request, &mut sink));
    let seconds = begin.elapsed().as_secs_f64();
    let Sink { tally, lost, problem, .. } = sink;
    let problem = match answered {
        // The sink has had enough.
        Ok(()) | Err(Unanswered::ClientGone) => problem,
        Err(refused) => Some(refused.to_string()),
    };
    BusiestFlows { flows: tally.rows(MOST_FLOWS, seconds), samples: tally.samples(), lost, seconds, problem }
}

/// Adds up the rows of a capture, until its time is over.
struct Sink {
    end: Instant,
    line: Vec<u8>,
    tally: Tally,
    lost: u64,
    problem: Option<String>,
}

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.line.extend_from_slice(bytes);
        if self.line.ends_with(b"\n") {
            match serde_json::from_slice(&self.line)? {
                CaptureRow::Packet(packet) => self.tally.add(&packet, &decode::bytes(&packet.data), None),
                CaptureRow::Counts { interfaces } => {
                    self.lost = interfaces.iter().map(|count| count.lost).sum()
                }
                CaptureRow::End { reason } => self.problem = Some(reason),
            }
            self.line.clear();
            // Counts come some times a second, also where no packet does.
            if Instant::now() >= self.end {
                return Err(io::ErrorKind::TimedOut.into());
            }
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use std::sync::atomic::{AtomicUsize, Ordering};

    use control::api::{SeenPacket, TrafficRow};

    use super::*;

    /// A router with packets without end, or none to be had. It counts its samplings, and those at the same time.
    #[derive(Default)]
    struct Busy {
        refuses: bool,
        asked: AtomicUsize,
        at_work: AtomicUsize,
        most_at_work: AtomicUsize,
    }

    impl Backend for Busy {
        fn answer(&self, request: &Request, rows: &mut Rows<'_>) -> Result<(), Unanswered> {
            self.asked.fetch_add(1, Ordering::SeqCst);
            if self.refuses {
                return Err("capture: the reason".into());
            }
            let Request::Show(Show::Capture(query)) = request else { panic!("{request:?}") };
            assert_eq!((query.sample, query.count), (Some(20), Some(MOST_SAMPLES)));
            self.most_at_work.fetch_max(1 + self.at_work.fetch_add(1, Ordering::SeqCst), Ordering::SeqCst);
            let packet = SeenPacket {
                interface: "eth1".into(),
                direction: "in".into(),
                length: 1000,
                stands_for: 20,
                data: "4500001c0001000040110000\
                       0a0001020a0002020007000900080000"
                    .into(),
                ..SeenPacket::default()
            };
            let sent = loop {
                let sent = rows.send(CaptureRow::Packet(Box::new(packet.clone())));
                if sent.is_err() {
                    break sent;
                }
                std::thread::sleep(Duration::from_millis(10));
            };
            self.at_work.fetch_sub(1, Ordering::SeqCst);
            sent
        }
    }

    fn ports() -> Vec<PortRow> {
        let rx = TrafficRow { packets_per_second: 99_999.0, ..TrafficRow::default() };
        vec![PortRow { rx, ..PortRow::default() }]
    }

    #[test]
    fn all_who_ask_and_who_go_share_one_sampling() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let busy = Arc::new(Busy::default());
        let flows = Arc::new(Flows::new(busy.clone(), true));
        runtime.block_on(async {
            for _ in 0..50 {
                // It goes before there is an answer.
                let _ = tokio::time::timeout(Duration::from_millis(1), flows.now(&ports())).await;
            }
            let mut all = tokio::task::JoinSet::new();
            for _ in 0..50 {
                let flows = flows.clone();
                all.spawn(async move { flows.now(&ports()).await });
            }
            for answer in all.join_all().await {
                let row = &answer.flows[0];
                assert_eq!((answer.flows.len(), row.share, answer.problem.as_deref()), (1, 1.0, None));
                assert_eq!(row.flow, "UDP 10.0.1.2:7 > 10.0.2.2:9");
                assert!((row.bits_per_second / row.packets_per_second - 8000.0).abs() < 1e-6);
            }
        });
        assert_eq!((busy.asked.load(Ordering::SeqCst), busy.most_at_work.load(Ordering::SeqCst)), (1, 1));
    }

    #[test]
    fn a_router_that_refuses_is_asked_once_and_the_reason_is_shown() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let busy = Arc::new(Busy { refuses: true, ..Busy::default() });
        let flows = Flows::new(busy.clone(), true);
        for _ in 0..5 {
            let answer = runtime.block_on(flows.now(&ports()));
            assert_eq!((answer.problem.as_deref(), answer.flows.len()), (Some("capture: the reason"), 0));
        }
        assert_eq!(busy.asked.load(Ordering::SeqCst), 1);
    }
}
