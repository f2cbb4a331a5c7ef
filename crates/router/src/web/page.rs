//! The web page. Its files are part of the program; it asks no other host.

use axum::Router;
use axum::http::header;
use axum::routing::get;

use super::Site;

const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const SVG: &str = "image/svg+xml";
const SCRIPT: &str = "text/javascript; charset=utf-8";

/// The files: path, type, text.
const FILES: [(&str, &str, &str); 14] = [
    ("/", HTML, include_str!("page/index.html")),
    ("/page.css", CSS, include_str!("page/page.css")),
    ("/icon.svg", SVG, include_str!("page/icon.svg")),
    ("/page.js", SCRIPT, include_str!("page/page.js")),
    ("/dom.js", SCRIPT, include_str!("page/dom.js")),
    ("/api.js", SCRIPT, include_str!("page/api.js")),
    ("/history.js", SCRIPT, include_str!("page/history.js")),
    ("/overview.js", SCRIPT, include_str!("page/overview.js")),
    ("/chart.js", SCRIPT, include_str!("page/chart.js")),
    ("/graph.js", SCRIPT, include_str!("page/graph.js")),
    ("/layout.js", SCRIPT, include_str!("page/layout.js")),
    ("/cluster.js", SCRIPT, include_str!("page/cluster.js")),
    ("/search.js", SCRIPT, include_str!("page/search.js")),
    ("/tables.js", SCRIPT, include_str!("page/tables.js")),
];

/// Adds the page to other paths.
pub(super) fn routes(mut routes: Router<Site>) -> Router<Site> {
    for (path, kind, text) in FILES {
        let headers = [(header::CONTENT_TYPE, kind), (header::CACHE_CONTROL, "no-cache")];
        routes = routes.route(path, get(move || async move { (headers, text) }));
    }
    routes
}
