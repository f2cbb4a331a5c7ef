//! What is made once a second at most, for all who ask: the rows of everything that changes with the packets.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use control::api::{
    Backend, ClusterRow, CounterRow, DropFilter, DropRow, ElementRow, NeighbourFilter, NeighbourRow,
    NoFilter, PortFilter, PortRow, PuntRow, QueueRow, Request, Rows, Show, SystemRow, TableQuery, Unanswered,
    WorkerRow, utoipa,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use tokio::sync::Mutex;

use crate::features::FeatureSettings;

/// How old what is served may be.
const AGE: Duration = Duration::from_millis(900);

/// The state of the router at a moment. A part that it does not have is empty.
#[derive(Debug, Default, Serialize, utoipa::ToSchema)]
pub(super) struct Snapshot {
    /// Seconds since 1970.
    pub(super) time: f64,
    pub(super) system: Option<SystemRow>,
    pub(super) ports: Vec<PortRow>,
    pub(super) queues: Vec<QueueRow>,
    pub(super) workers: Vec<WorkerRow>,
    pub(super) drops: Vec<DropRow>,
    pub(super) punts: Vec<PuntRow>,
    pub(super) elements: Vec<ElementRow>,
    pub(super) netlink: Vec<CounterRow>,
    /// Of a node of a cluster.
    pub(super) cluster: Vec<ClusterRow>,
    /// Number of neighbours by state.
    pub(super) neighbours: std::collections::BTreeMap<String, u64>,
    /// The tables of features, by name.
    #[schema(value_type = Object)]
    pub(super) features: Map<String, Value>,
}

impl Snapshot {
    /// Asks the router.
    fn take(backend: &dyn Backend) -> Snapshot {
        let show = |show| Request::Show(show);
        let mut neighbours = std::collections::BTreeMap::new();
        let all: Vec<NeighbourRow> = rows(backend, &show(Show::Neighbours(NeighbourFilter::default())));
        for neighbour in all {
            *neighbours.entry(neighbour.state).or_default() += 1;
        }
        let features = FeatureSettings::shown().into_iter().map(|shown| {
            let query = TableQuery { show: shown.name.to_owned() };
            (shown.name.to_owned(), Value::Array(rows(backend, &Request::Table(query))))
        });
        Snapshot {
            time: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |time| time.as_secs_f64()),
            system: rows(backend, &show(Show::System(NoFilter {}))).pop(),
            ports: rows(backend, &show(Show::Ports(PortFilter::default()))),
            queues: rows(backend, &show(Show::Queues(PortFilter::default()))),
            workers: rows(backend, &show(Show::Workers(NoFilter {}))),
            drops: rows(backend, &show(Show::Drops(DropFilter::default()))),
            punts: rows(backend, &show(Show::Punts(DropFilter::default()))),
            elements: rows(backend, &show(Show::Elements(NoFilter {}))),
            netlink: rows(backend, &show(Show::Netlink(NoFilter {}))),
            cluster: rows(backend, &show(Show::Cluster(NoFilter {}))),
            neighbours,
            features: features.collect(),
        }
    }
}

/// Returns the rows of an answer; none where the router has no answer.
fn rows<T: DeserializeOwned>(backend: &dyn Backend, request: &Request) -> Vec<T> {
    let mut text = Vec::new();
    match backend.answer(request, &mut Rows::bare(request, &mut text)) {
        Ok(()) => {}
        Err(Unanswered::ClientGone | Unanswered::Refused(_) | Unanswered::NeedsRestart(_)) => {
            return Vec::new();
        }
    }
    serde_json::Deserializer::from_slice(&text).into_iter().map_while(Result::ok).collect()
}

/// The last snapshot.
pub(super) struct Snapshots {
    backend: Arc<dyn Backend>,
    last: Mutex<Option<(Instant, Arc<Snapshot>)>>,
}

impl Snapshots {
    pub(super) fn new(backend: Arc<dyn Backend>) -> Self {
        Self { backend, last: Mutex::new(None) }
    }

    /// Returns a snapshot that is at most a second old. Those who ask at the same time wait for the same one.
    pub(super) async fn now(&self) -> Arc<Snapshot> {
        let mut last = self.last.lock().await;
        if let Some((_, snapshot)) = last.as_ref().filter(|(taken, _)| taken.elapsed() < AGE) {
            return snapshot.clone();
        }
        let backend = self.backend.clone();
        let taken = tokio::task::spawn_blocking(move || Snapshot::take(&*backend)).await;
        // A panic of the backend was printed when it happened.
        let snapshot = Arc::new(taken.unwrap_or_default());
        *last = Some((Instant::now(), snapshot.clone()));
        snapshot
    }
}
