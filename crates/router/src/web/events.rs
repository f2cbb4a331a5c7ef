//! `/api/v1/events`: the state of the router once a second, as server-sent events: one line of JSON each, a [`Snapshot`].

use std::convert::Infallible;
use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::stream;

use super::Site;
use super::api::refuse;

const PERIOD: Duration = Duration::from_secs(1);

pub(super) async fn events(State(site): State<Site>) -> Response {
    let Ok(permit) = site.events.clone().try_acquire_owned() else {
        return refuse(StatusCode::SERVICE_UNAVAILABLE, "as many hear of events as may");
    };
    let events = stream::unfold((site, permit, false), |(site, permit, is_begun)| async move {
        if is_begun {
            tokio::time::sleep(PERIOD).await;
        }
        let snapshot = site.snapshots.now().await;
        let event = Event::default().json_data(&*snapshot).unwrap_or_default();
        Some((Ok::<_, Infallible>(event), (site, permit, true)))
    });
    Sse::new(events).keep_alive(KeepAlive::default()).into_response()
}
