//! The web page. Its files are part of the program; it asks no other host.

use axum::Router;
use axum::http::header;
use axum::routing::get;

use super::Site;

/// The files: path, type, text.
const FILES: [(&str, &str, &str); 3] = [
    ("/", "text/html; charset=utf-8", include_str!("page/index.html")),
    ("/page.js", "text/javascript; charset=utf-8", include_str!("page/page.js")),
    ("/page.css", "text/css; charset=utf-8", include_str!("page/page.css")),
];

/// Adds the page to other paths.
pub(super) fn routes(mut routes: Router<Site>) -> Router<Site> {
    for (path, kind, text) in FILES {
        let headers = [(header::CONTENT_TYPE, kind), (header::CACHE_CONTROL, "no-cache")];
        routes = routes.route(path, get(move || async move { (headers, text) }));
    }
    routes
}
