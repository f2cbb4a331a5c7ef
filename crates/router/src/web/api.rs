//! `/api/v1/WHAT`: everything of `brickway show WHAT`, a line of JSON for each row, as the control socket sends it. What a filter is
//! called there it is called in the query: `/api/v1/routes?protocol=bgp`.
//!
//! Who asks often asks the workers no more for it: what they count comes out of the [snapshot](super::snapshot). Tables for which the
//! router does more than look at its mirror are answered once a second ([`pace`](super::pace)).

use std::io::{self, Write};
use std::time::Duration;

use axum::Json;
use axum::body::{Body, Bytes};
use axum::extract::{Path, Query, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use control::api::{Request, Row, Rows, Show, TableQuery, Unanswered, VERSION};
use serde_json::{Map, Value, json};
use tokio::runtime::Handle;
use tokio::sync::mpsc;

use super::Site;
use super::snapshot::Snapshot;
use crate::features::FeatureSettings;

/// The time that rows wait for a client that takes something now and then; one that takes nothing is cut off sooner.
const SEND_TIMEOUT: Duration = Duration::from_secs(60);
/// Bytes of rows that are sent at once, and how many of these wait for a client.
const CHUNK: usize = 16 << 10;
const WAITING: usize = 4;

pub(super) const JSON_LINES: &str = "application/x-ndjson";

/// What is not served: packets themselves, costs, which are measured for one at a time, and who did what.
pub(super) const PRIVATE: [&str; 4] = ["capture", "cost", "log", "trace"];

/// What is answered out of the router's mirror, as often as it is asked for.
const CHEAP: [&str; 8] =
    ["cluster", "fpm", "history", "neighbours", "netlink", "next_hops", "route", "routes"];

/// Lists what there is.
pub(super) async fn index() -> Json<Value> {
    let features = FeatureSettings::shown().into_iter().map(|shown| shown.name.to_owned());
    let names = Show::NAMES.iter().filter(|name| !PRIVATE.contains(name)).map(|name| (*name).to_owned());
    let names: Vec<String> = names.chain(features).collect();
    Json(json!({"version": VERSION, "show": names}))
}

/// Makes a request of a path and a query.
fn request(what: &str, query: Vec<(String, String)>) -> Result<Request, String> {
    let what = what.replace('-', "_");
    if FeatureSettings::shown_as(&what).is_some() {
        return Request::parse(json!({"version": VERSION, "show": what}).to_string().as_bytes());
    }
    if !Show::NAMES.contains(&what.as_str()) {
        return Err(format!("there is no '{what}' to show; /api/v1 lists what there is"));
    }
    let value = |text: String| match text.as_str() {
        "true" => Value::Bool(true),
        "false" => Value::Bool(false),
        number => number.parse::<u64>().map_or(Value::String(text), Value::from),
    };
    let filter: Map<String, Value> = query.into_iter().map(|(name, text)| (name, value(text))).collect();
    Request::parse(json!({"version": VERSION, "show": what, "filter": filter}).to_string().as_bytes())
}

/// Answers with rows, as they come.
pub(super) async fn show(
    State(site): State<Site>,
    Path(what): Path<String>,
    Query(query): Query<Vec<(String, String)>>,
) -> Response {
    let request = match request(&what, query) {
        Ok(request) if request.is_privileged() || PRIVATE.contains(&request.name().as_str()) => {
            return refuse(StatusCode::FORBIDDEN, "not for all who may look; ask over the control socket");
        }
        Ok(request) => request,
        Err(problem) => return refuse(StatusCode::BAD_REQUEST, &problem),
    };
    let name = request.name();
    if !CHEAP.contains(&name.as_str()) {
        let known = snapshot_rows(&*site.snapshots.now().await, &request);
        if let Some(rows) = known.filter(|rows| !rows.is_empty()) {
            return ([(header::CONTENT_TYPE, JSON_LINES)], rows).into_response();
        }
        // Without rows the router says why there are none.
        if !site.pace.admits(&name) {
            let problem = format!("'{name}' is answered once a second; ask again");
            let mut refusal = refuse(StatusCode::TOO_MANY_REQUESTS, &problem);
            refusal.headers_mut().insert(header::RETRY_AFTER, header::HeaderValue::from_static("1"));
            return refusal;
        }
    }
    let Ok(permit) = site.answers.clone().try_acquire_owned() else {
        return refuse(StatusCode::SERVICE_UNAVAILABLE, "others are being answered; ask again");
    };
    let (to, mut from) = mpsc::channel(WAITING);
    let runtime = Handle::current();
    tokio::task::spawn_blocking(move || {
        let _permit = permit;
        let mut sink = Sink { to, runtime, waiting: Vec::with_capacity(CHUNK) };
        match site.backend.answer(&request, &mut Rows::bare(&request, &mut sink)) {
            // The client is gone, which nobody has to be told.
            Ok(()) => drop(sink.flush().and_then(|()| sink.send(Ok(Bytes::new())))),
            Err(Unanswered::ClientGone) => {}
            Err(problem) => sink.fail(problem.to_string()),
        }
    });
    // The first part says how it went.
    let first = match from.recv().await {
        Some(Ok(bytes)) => bytes,
        Some(Err(problem)) => return refuse(StatusCode::CONFLICT, &problem.to_string()),
        None => return refuse(StatusCode::INTERNAL_SERVER_ERROR, "the answer broke off"),
    };
    let rows = futures_util::stream::unfold((Some(Ok(first)), Some(from)), |(first, from)| async {
        let mut from = from?;
        let next = match first {
            Some(first) => Some(first),
            None => from.recv().await,
        };
        match next {
            // The empty part is the end. An answer without it has broken off, and must not look whole.
            Some(Ok(part)) if part.is_empty() => None,
            Some(Ok(part)) => Some((Ok(part), (None, Some(from)))),
            Some(Err(problem)) => Some((Err(problem), (None, None))),
            None => Some((Err(io::ErrorKind::BrokenPipe.into()), (None, None))),
        }
    });
    ([(header::CONTENT_TYPE, JSON_LINES)], Body::from_stream(rows)).into_response()
}

/// Returns the rows of a snapshot that a request selects, as lines; `None` where it has no such rows.
fn snapshot_rows(snapshot: &Snapshot, request: &Request) -> Option<Vec<u8>> {
    fn lines<R: Clone + Into<Row>>(request: &Request, rows: &[R]) -> Vec<u8> {
        let rows = rows.iter().cloned().map(Into::into).filter(|row| request.selects(row));
        // Plain data has nothing that could not be written.
        rows.flat_map(|row: Row| serde_json::to_vec(&row).unwrap_or_default().into_iter().chain([b'\n']))
            .collect()
    }
    Some(match request {
        Request::Show(Show::Ports(_)) => lines(request, &snapshot.ports),
        Request::Show(Show::Queues(_)) => lines(request, &snapshot.queues),
        Request::Show(Show::Workers(_)) => lines(request, &snapshot.workers),
        Request::Show(Show::Drops(_)) => lines(request, &snapshot.drops),
        Request::Show(Show::Punts(_)) => lines(request, &snapshot.punts),
        Request::Show(Show::Elements(_)) => lines(request, &snapshot.elements),
        Request::Show(Show::System(_)) => lines(request, snapshot.system.as_slice()),
        Request::Table(TableQuery { show }) => lines(request, snapshot.features.get(show)?.as_array()?),
        _ => return None,
    })
}

pub(super) fn refuse(status: StatusCode, problem: &str) -> Response {
    (status, Json(json!({"error": problem}))).into_response()
}

/// Where a backend's rows go: to the client, a part at a time.
struct Sink {
    to: mpsc::Sender<io::Result<Bytes>>,
    runtime: Handle,
    waiting: Vec<u8>,
}

impl Sink {
    fn send(&self, part: io::Result<Bytes>) -> io::Result<()> {
        let sent = tokio::time::timeout(SEND_TIMEOUT, self.to.send(part));
        let sent = self.runtime.block_on(sent);
        if matches!(sent, Ok(Ok(()))) { Ok(()) } else { Err(io::ErrorKind::BrokenPipe.into()) }
    }

    /// Ends the answer with an error, before which a client may have got rows.
    fn fail(&mut self, problem: String) {
        // A client that is gone has to be told nothing.
        let _ = self.flush().and_then(|()| self.send(Err(io::Error::other(problem))));
    }
}

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.waiting.extend_from_slice(bytes);
        if self.waiting.len() >= CHUNK {
            self.flush()?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.waiting.is_empty() {
            return Ok(());
        }
        let part = std::mem::replace(&mut self.waiting, Vec::with_capacity(CHUNK));
        self.send(Ok(part.into()))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use std::sync::Arc;

    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Instant;

    use control::api::{Backend, DropRow, RouteFilter, TextRow};
    use tokio::sync::Semaphore;

    use super::super::flows::Flows;
    use super::super::snapshot::Snapshots;
    use super::*;

    /// A router that sends more rows than one part has, and breaks off or not.
    struct Breaking(bool);

    const ROWS: usize = 2 * CHUNK / 10;

    impl Backend for Breaking {
        fn answer(&self, _: &Request, rows: &mut Rows<'_>) -> Result<(), Unanswered> {
            for _ in 0..ROWS {
                rows.send(TextRow { text: "a row".to_owned() })?;
            }
            if self.0 { Err(Unanswered::ClientGone) } else { Ok(()) }
        }
    }

    #[test]
    fn an_answer_that_breaks_off_does_not_look_whole() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let ask = |breaks: bool| {
            let backend = Arc::new(Breaking(breaks));
            let site = Site {
                snapshots: Arc::new(Snapshots::new(backend.clone())),
                flows: Arc::new(Flows::new(backend.clone(), false)),
                backend,
                answers: Arc::new(Semaphore::new(1)),
                pace: Arc::default(),
                events: Arc::new(Semaphore::new(1)),
            };
            runtime.block_on(async {
                let response = show(State(site), Path("problems".to_owned()), Query(Vec::new())).await;
                axum::body::to_bytes(response.into_body(), 1 << 20).await
            })
        };
        let whole = ask(false).unwrap();
        assert_eq!(whole.iter().filter(|byte| **byte == b'\n').count(), ROWS);
        assert!(ask(true).is_err());
    }

    /// A router that counts how often it is asked for drops, and for anything else that is not a table of routes.
    #[derive(Default)]
    struct Counting {
        drops: AtomicUsize,
        handlers: AtomicUsize,
    }

    impl Backend for Counting {
        fn answer(&self, request: &Request, rows: &mut Rows<'_>) -> Result<(), Unanswered> {
            match request {
                Request::Show(Show::Drops(_)) => {
                    self.drops.fetch_add(1, Ordering::SeqCst);
                    for reason in ["no route", "bad checksum"] {
                        let (element, class) = ("rt".to_owned(), "FIBLookup".to_owned());
                        rows.send(DropRow { element, class, reason: reason.to_owned(), packets: 7 })?;
                    }
                    Ok(())
                }
                Request::Show(Show::Handlers(_)) => {
                    self.handlers.fetch_add(1, Ordering::SeqCst);
                    rows.send(TextRow { text: "a handler".to_owned() })?;
                    Ok(())
                }
                _ => Err("there is nothing".to_owned().into()),
            }
        }
    }

    #[test]
    fn who_asks_often_asks_the_router_once_a_second() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let backend = Arc::new(Counting::default());
        let site = Site {
            snapshots: Arc::new(Snapshots::new(backend.clone())),
            flows: Arc::new(Flows::new(backend.clone(), false)),
            backend: backend.clone(),
            answers: Arc::new(Semaphore::new(64)),
            pace: Arc::default(),
            events: Arc::new(Semaphore::new(1)),
        };
        let ask = |path: &str, query: &str, value: &str| {
            let query =
                if query.is_empty() { Vec::new() } else { vec![(query.to_owned(), value.to_owned())] };
            runtime.block_on(async {
                let response = show(State(site.clone()), Path(path.to_owned()), Query(query)).await;
                let status = response.status();
                let text = axum::body::to_bytes(response.into_body(), 1 << 20).await.unwrap();
                (status, String::from_utf8(text.to_vec()).unwrap())
            })
        };
        let begin = Instant::now();
        let mut refused = 0;
        for number in 0..50 {
            let (status, text) = ask("drops", "containing", "no route");
            assert!(
                status == StatusCode::OK && text.lines().count() == 1 && text.contains("no route"),
                "{text}"
            );
            // Another handler is another answer.
            let (status, text) = ask("handlers", "name", &format!("a{number}.b"));
            assert!([StatusCode::OK, StatusCode::TOO_MANY_REQUESTS].contains(&status), "{status} {text}");
            refused += usize::from(status == StatusCode::TOO_MANY_REQUESTS);
            // What the mirror answers is not held back.
            assert_eq!(ask("netlink", "", "").0, StatusCode::CONFLICT);
        }
        let seconds = begin.elapsed().as_secs_f64();
        let most = 1 + (seconds / 0.9) as usize;
        let (drops, handlers) =
            (backend.drops.load(Ordering::SeqCst), backend.handlers.load(Ordering::SeqCst));
        assert!(drops <= most && handlers <= most, "{drops} and {handlers} in {seconds} s");
        assert_eq!(handlers + refused, 50);
    }

    #[test]
    fn paths_and_queries_are_requests() {
        let query = |pairs: &[(&str, &str)]| -> Vec<(String, String)> {
            pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
        };
        let filter =
            RouteFilter { table: Some(254), protocol: Some("bgp".to_owned()), ..RouteFilter::default() };
        let parsed = request("routes", query(&[("table", "254"), ("protocol", "bgp")]));
        assert_eq!(parsed, Ok(Request::Show(Show::Routes(filter))));
        assert_eq!(request("acl", Vec::new()), Ok(Request::Table(TableQuery { show: "acl".to_owned() })));
        assert!(request("next-hops", Vec::new()).is_ok());
        assert!(request("secrets", Vec::new()).is_err());
        assert!(request("routes", query(&[("colour", "red")])).is_err());
    }
}
