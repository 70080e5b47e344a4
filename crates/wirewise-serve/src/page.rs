// SPDX-License-Identifier: Apache-2.0
//! The page: a few files in this program, which ask the API for all that they show.

use axum::Router;
use axum::http::{HeaderName, HeaderValue, header};
use axum::response::IntoResponse;
use axum::routing::get;

/// Nothing comes from elsewhere, nothing frames it, nothing in it is run that is not in its own file.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

fn file(kind: &'static str, text: &'static str) -> impl IntoResponse {
    let headers = [
        (header::CONTENT_TYPE, kind),
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::CACHE_CONTROL, "no-cache"),
    ];
    (headers.map(|(name, value): (HeaderName, &str)| (name, HeaderValue::from_static(value))), text)
}

pub fn routes<S: Clone + Send + Sync + 'static>() -> Router<S> {
    const SCRIPT: &str = "text/javascript; charset=utf-8";
    Router::new()
        .route("/", get(async || file("text/html; charset=utf-8", include_str!("../page/index.html"))))
        .route("/page.css", get(async || file("text/css; charset=utf-8", include_str!("../page/page.css"))))
        .route("/page.js", get(async || file(SCRIPT, include_str!("../page/page.js"))))
        .route("/common.js", get(async || file(SCRIPT, include_str!("../page/common.js"))))
        .route("/details.js", get(async || file(SCRIPT, include_str!("../page/details.js"))))
}
