//! HTTP: metrics for Prometheus, the API, the web page. All of it only shows; nothing can be changed over HTTP.
//!
//! ```text
//!  browser, scraper --TCP[, TLS]--> door: how many, how long --> guard: Host, token --> router of paths
//!                                                                                        | blocking pool
//!                                                                                        v
//!                                                   Backend::answer, the same rows as over the control socket
//! ```
//!
//! A thread of its own has the listeners and all connections. A client that is slow, or many that come at once, cost the
//! packets nothing: connections, of each host and of all, and answers at work are few, rows wait in a bounded channel, and a client
//! that takes nothing for 10 seconds is cut off. What workers are asked for is made once a second at most ([`snapshot`], [`pace`]),
//! however many ask.
//!
//! | file | what lives there |
//! | --- | --- |
//! | `mod` | [`Web`]: the thread, listeners, connections |
//! | `patience` | connections that end when their client takes nothing |
//! | `guard` | who may come: addresses, the header Host, tokens, TLS |
//! | `api` | `/api/v1`: everything of `brickway show`, as lines of JSON |
//! | `openapi` | `/api/v1/openapi.json`: what there is, made of the rows' types |
//! | `pace` | answers that ask much of the router, each once a second at most |
//! | `metrics` | `/metrics` in Prometheus' text format, of the same rows |
//! | `snapshot` | what is made once a second at most, for all who ask |
//! | `events` | `/api/v1/events`: the state once a second, as server-sent events |
//! | `flows` | `/api/v1/flows`: the busiest flows, sampled for all who look, where the settings permit it |
//! | `page`, `page/` | the web page: its files are part of the program |

mod api;
mod events;
mod flows;
mod guard;
mod metrics;
mod openapi;
mod pace;
mod page;
mod patience;
mod snapshot;

use std::net::{SocketAddr, TcpListener as StdListener};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use axum::Router;
use axum::routing::get;
use control::api::Backend;
use control::doors::{Door, Peer};
use control::supervisor::{LONGEST_WAIT, Pulse, Supervisor};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, oneshot};
use tokio::time::timeout;

use self::flows::Flows;
use self::guard::{Guard, Tls};
use self::pace::Pace;
use self::patience::Patient;
use self::snapshot::Snapshots;
use crate::settings::Settings;

/// Connections at a time, of each listener, of which each user and each other host has a share.
const CONNECTIONS: usize = 64;
/// Answers of the backend at work at a time.
const ANSWERS: usize = 4;
/// Clients at a time that hear of events, each of which keeps its connection.
const EVENTS: usize = 16;
/// The time in which a request's head has to come, a TLS handshake has to be done, and a client has to take something.
const PATIENCE: Duration = Duration::from_secs(10);
/// Between two tries to have an address that somebody else has.
const RETRY: Duration = Duration::from_secs(2);

/// What all requests share.
#[derive(Clone)]
struct Site {
    backend: Arc<dyn Backend>,
    snapshots: Arc<Snapshots>,
    /// Permits to ask the backend.
    answers: Arc<Semaphore>,
    pace: Arc<Pace>,
    /// Permits to hear of events.
    events: Arc<Semaphore>,
    flows: Arc<Flows>,
}

/// The servers of a running router. Dropping it closes all listeners and connections.
pub(crate) struct Web {
    /// Dropping it ends the thread.
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// What the settings want to listen, before anybody answers there.
pub(crate) struct Listeners {
    opened: Vec<Opened>,
    /// Whether flows are shown.
    flows: bool,
}

/// A listener.
struct Opened {
    kind: Kind,
    place: Place,
    guard: Guard,
}

/// Where it listens.
enum Place {
    /// There, with the address for people.
    Had(StdListener, String),
    /// Nowhere yet: somebody else has the address. It is tried again, as any user of the machine may have it.
    Taken(SocketAddr),
}

/// What a listener serves.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Metrics,
    /// These too, the page and the API.
    Web,
}

impl Listeners {
    /// Looks whether the files of what listens can be used.
    ///
    /// # Errors
    /// One cannot.
    pub(crate) fn check(settings: &Settings) -> Result<()> {
        let listens = [
            ("fpm", settings.fpm.listen),
            ("metrics", settings.metrics.listen),
            ("web", settings.web.listen),
        ];
        for (number, (name, listen)) in listens.iter().enumerate() {
            let same = listens[..number].iter().find(|(_, other)| listen.is_some() && other == listen);
            if let Some((other, _)) = same {
                bail!(
                    "[{other}] and [{name}] listen at the same address; expected one each ([web] has /metrics too)"
                );
            }
        }
        for (name, door) in [("metrics", settings.metrics.door()), ("web", settings.web.door())] {
            if let Some(door) = door {
                Guard::new(&door).with_context(|| format!("[{name}]"))?;
            }
        }
        Ok(())
    }

    /// The addresses that other programs have now.
    pub(crate) fn taken(&self) -> impl Iterator<Item = SocketAddr> {
        self.opened.iter().filter_map(|opened| match opened.place {
            Place::Taken(address) => Some(address),
            Place::Had(..) => None,
        })
    }

    /// Listens where the settings say.
    ///
    /// # Errors
    /// An address cannot be had, and not because somebody has it; or a file of the guard cannot be used.
    pub(crate) fn open(settings: &Settings) -> Result<Listeners> {
        Self::check(settings)?;
        let doors = [
            (Kind::Metrics, "metrics", "/metrics", settings.metrics.door()),
            (Kind::Web, "web", "/", settings.web.door()),
        ];
        let wanted = doors.into_iter().filter_map(|(kind, name, path, door)| Some((kind, name, path, door?)));
        let opened = wanted.map(|(kind, name, path, door)| {
            let explain = || format!("[{name}] listen = \"{}\"", door.listen);
            let guard = Guard::new(&door).with_context(|| format!("[{name}]"))?;
            let place = match listen(door.listen) {
                Err(error) if error.kind() == std::io::ErrorKind::AddrInUse => {
                    tracing::warn!(
                        event = "web",
                        "{}: another program has this address; it is tried again every {} s",
                        explain(),
                        RETRY.as_secs()
                    );
                    Place::Taken(door.listen)
                }
                listener => {
                    let listener = listener.with_context(explain)?;
                    let scheme = if door.tls.is_some() { "https" } else { "http" };
                    let address = listener.local_addr().with_context(explain)?;
                    Place::Had(listener, format!("{name}: {scheme}://{address}{path}"))
                }
            };
            Ok(Opened { kind, place, guard })
        });
        Ok(Listeners { opened: opened.collect::<Result<_>>()?, flows: settings.web.flows })
    }
}

impl Web {
    /// Answers at these listeners. Returns the addresses for people too; `None` if there are no listeners.
    ///
    /// # Errors
    /// There is no thread.
    pub(crate) fn start(
        Listeners { opened, flows }: Listeners,
        backend: Arc<dyn Backend>,
        supervisor: &Supervisor,
    ) -> Result<Option<(Web, Vec<String>)>> {
        if opened.is_empty() {
            return Ok(None);
        }
        let site = Site {
            snapshots: Arc::new(Snapshots::new(backend.clone())),
            flows: Arc::new(Flows::new(backend.clone(), flows)),
            backend,
            answers: Arc::new(Semaphore::new(ANSWERS)),
            pace: Arc::default(),
            events: Arc::new(Semaphore::new(EVENTS)),
        };
        let metrics = Router::new().route("/metrics", get(metrics::metrics));
        let page = page::routes(
            metrics
                .clone()
                .route("/api/v1", get(api::index))
                .route("/api/v1/events", get(events::events))
                .route("/api/v1/flows", get(flows::flows))
                .route("/api/v1/openapi.json", get(openapi::openapi))
                .route("/api/v1/{what}", get(api::show)),
        );
        let addresses = opened.iter().filter_map(|opened| match &opened.place {
            Place::Had(_, address) => Some(address.clone()),
            Place::Taken(_) => None,
        });
        let addresses = addresses.collect();
        let served = opened.into_iter().map(|opened| {
            let routes = if opened.kind == Kind::Metrics { &metrics } else { &page };
            (opened.place, opened.guard, routes.clone().with_state(site.clone()))
        });
        let served: Vec<(Place, Guard, Router)> = served.collect();
        let (stop, stopped) = oneshot::channel();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            // Two are left for what all clients see alike: snapshots and flows.
            .max_blocking_threads(ANSWERS + 2)
            .thread_name("web-answer")
            .build()
            .context("starting the web server")?;
        let thread = supervisor.spawn("web", move |pulse| {
            runtime.block_on(serve(served, stopped, pulse));
            // Answers that wait for their client do not hold up the end.
            runtime.shutdown_timeout(Duration::from_millis(100));
        })?;
        Ok(Some((Web { stop: Some(stop), thread: Some(thread) }, addresses)))
    }
}

impl Drop for Web {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // A panic of that thread was printed when it happened.
            let _ = thread.join();
        }
    }
}

fn listen(address: SocketAddr) -> std::io::Result<StdListener> {
    let listener = StdListener::bind(address)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// Serves until it is stopped.
async fn serve(served: Vec<(Place, Guard, Router)>, stopped: oneshot::Receiver<()>, pulse: &Pulse) {
    for (place, guard, routes) in served {
        let guard = Arc::new(guard);
        match place {
            Place::Had(listener, _) => match TcpListener::from_std(listener) {
                Ok(listener) => drop(tokio::spawn(accept(listener, guard, routes))),
                Err(error) => tracing::warn!("web: {error}"),
            },
            Place::Taken(address) => drop(tokio::spawn(async move {
                let mut last = std::io::ErrorKind::AddrInUse;
                let listener = loop {
                    tokio::time::sleep(RETRY).await;
                    match listen(address).and_then(TcpListener::from_std) {
                        Ok(listener) => break listener,
                        Err(error) if error.kind() == last => {}
                        Err(error) => {
                            tracing::warn!(event = "web", "web: {address}: {error}; it is tried again");
                            last = error.kind();
                        }
                    }
                };
                tracing::info!(event = "web", "web: {address} is free now, and served");
                accept(listener, guard, routes).await;
            })),
        }
    }
    let mut stopped = std::pin::pin!(stopped);
    loop {
        pulse.beat();
        if timeout(LONGEST_WAIT, &mut stopped).await.is_ok() {
            return;
        }
    }
}

async fn accept(listener: TcpListener, guard: Arc<Guard>, routes: Router) {
    let door = Door::new(CONNECTIONS);
    loop {
        let (stream, source) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(_) => {
                // Out of file descriptors: it is tried again in a while.
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let Ok(here) = stream.local_addr() else { continue };
        // One too many of a user or a host is closed at once. Silent ones end by themselves.
        let Some(place) = door.admit(Peer::of_tcp(source, here), None) else { continue };
        let (guard, routes) = (guard.clone(), routes.clone());
        tokio::spawn(async move {
            let _held = place;
            match &guard.tls {
                Some(Tls(acceptor)) => {
                    if let Ok(Ok(stream)) = timeout(PATIENCE, acceptor.accept(stream)).await {
                        converse(stream, &guard, routes).await;
                    }
                }
                None => converse(stream, &guard, routes).await,
            }
        });
    }
}

/// Answers the requests of a connection.
async fn converse(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    guard: &Arc<Guard>,
    routes: Router,
) {
    let guard = guard.clone();
    let routes = routes
        .layer(axum::middleware::from_fn(move |request, next| guard::check(guard.clone(), request, next)));
    let stream = Patient::new(stream, PATIENCE);
    // An error is a client that went away, took nothing for too long, or spoke something else.
    let _ = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(PATIENCE)
        .max_buf_size(16 << 10)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(routes))
        .await;
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use tokio::io::AsyncReadExt;
    use tokio::net::TcpStream;
    use tokio::task::JoinSet;

    use super::*;

    #[test]
    fn a_connection_too_many_of_a_host_is_closed_and_the_others_stay() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let closed = runtime.block_on(async {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = listener.local_addr().unwrap();
            let door = crate::settings::Door { listen: address, token_file: None, tls: None };
            tokio::spawn(accept(listener, Arc::new(Guard::new(&door).unwrap()), Router::new()));
            let mut clients = JoinSet::new();
            for number in 0..33 {
                let mut client = TcpStream::connect(address).await.unwrap();
                clients.spawn(async move {
                    // Nothing is said: the server closes, or waits for a request.
                    let _ = client.read(&mut [0]).await;
                    number
                });
            }
            clients.join_next().await.unwrap().unwrap()
        });
        assert_eq!(closed, 32);
    }
}
