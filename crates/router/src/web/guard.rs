//! Who may come. On an address of this host alone everybody here may look; from elsewhere a token is needed, by TLS.
//!
//! A page of another site that runs in a browser here could reach a listener on 127.0.0.1 under a name of its own (DNS rebinding).
//! So a listener without a token takes only requests whose Host is an address of loop-back or `localhost`.

use std::net::IpAddr;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use axum::extract::Request;
use axum::http::{StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;

use crate::settings::Door;

/// Shortest token.
const SHORTEST_TOKEN: usize = 16;

pub(super) struct Guard {
    /// What clients have to send.
    token: Option<String>,
    pub(super) tls: Option<Tls>,
}

/// What makes a connection one of TLS.
pub(super) struct Tls(pub(super) TlsAcceptor);

impl Guard {
    /// Reads the files of a door.
    ///
    /// # Errors
    /// A file cannot be read, others may read the token, or TLS cannot work with certificate and key.
    pub(super) fn new(door: &Door) -> Result<Guard> {
        let token = door.token_file.as_deref().map(|path| {
            let explain = || format!("token_file '{}'", path.display());
            let (token, _) = graph::files::read_secret(path).with_context(explain)?;
            let token = token.trim().to_owned();
            let is_word = token.len() >= SHORTEST_TOKEN && token.bytes().all(|byte| byte.is_ascii_graphic());
            if !is_word {
                bail!("{}: no token; expected one word of at least {SHORTEST_TOKEN} characters", explain());
            }
            if graph::files::is_no_secret(&token) {
                bail!("{}: the word of an example; expected a random one: openssl rand -hex 16", explain());
            }
            Ok(token)
        });
        let tls = door.tls.as_ref().map(|(certificate, key)| {
            let explain = || format!("certificate '{}', key '{}'", certificate.display(), key.display());
            let about = || format!("certificate '{}'", certificate.display());
            let text = graph::files::read_text(certificate).with_context(about)?;
            let chain = CertificateDer::pem_slice_iter(text.as_bytes()).collect::<Result<Vec<_>, _>>();
            let chain: Vec<CertificateDer<'_>> = chain.with_context(about)?;
            let about = || format!("key '{}'", key.display());
            let (text, _) = graph::files::read_secret(key).with_context(about)?;
            let key = PrivateKeyDer::from_pem_slice(text.as_bytes()).with_context(about)?;
            let config = ServerConfig::builder().with_no_client_auth();
            let config = config.with_single_cert(chain, key).with_context(explain)?;
            Ok::<_, anyhow::Error>(Tls(TlsAcceptor::from(Arc::new(config))))
        });
        Ok(Guard { token: token.transpose()?, tls: tls.transpose()? })
    }

    /// Returns what is wrong with a request.
    fn problem(&self, request: &Request) -> Option<Response> {
        let header = |name| request.headers().get(name).and_then(|value| value.to_str().ok());
        match &self.token {
            Some(token) => {
                let given = header(header::AUTHORIZATION).and_then(|text| text.strip_prefix("Bearer "));
                // Browsers ask for a name and a password; the password is the token.
                let given =
                    given.map(str::to_owned).or_else(|| basic_password(header(header::AUTHORIZATION)?));
                let is_right = given.is_some_and(|given| is_same(given.as_bytes(), token.as_bytes()));
                (!is_right).then(|| {
                    let challenge = [
                        (header::WWW_AUTHENTICATE, "Basic realm=\"brickway\""),
                        (header::CONNECTION, "close"),
                    ];
                    (StatusCode::UNAUTHORIZED, challenge, "a token is needed\n").into_response()
                })
            }
            None => (!is_meant(request)).then(|| {
                (
                    StatusCode::MISDIRECTED_REQUEST,
                    [(header::CONNECTION, "close")],
                    "this page is at an address of this host alone\n",
                )
                    .into_response()
            }),
        }
    }
}

/// The password of basic authentication.
fn basic_password(header: &str) -> Option<String> {
    let text = BASE64_STANDARD.decode(header.strip_prefix("Basic ")?).ok()?;
    let text = String::from_utf8(text).ok()?;
    text.split_once(':').map(|(_, password)| password.to_owned())
}

/// Compares without telling by its time how much is the same.
fn is_same(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.iter().zip(b).fold(0, |difference, (a, b)| difference | (a ^ b)) == 0
}

/// Whether a request is meant for this host: by its header Host, and by its target where that has a host too. Programs may send
/// no Host, browsers always do, and a browser must not have made it for a page of another site, such as for an image there.
fn is_meant(request: &Request) -> bool {
    let is = |name: &str, value: &str| request.headers().get(name).is_some_and(|header| header == value);
    if is("sec-fetch-site", "cross-site") && !is("sec-fetch-mode", "navigate") {
        return false;
    }
    let mut hosts = request.headers().get_all(header::HOST).iter();
    let (host, None) = (hosts.next(), hosts.next()) else { return false };
    let target = request.uri().authority().is_none_or(|authority| is_of_this_host(authority.as_str()));
    target && host.is_none_or(|host| host.to_str().is_ok_and(is_of_this_host))
}

/// Whether a host, with or without a port, is an address of loop-back or localhost.
fn is_of_this_host(host: &str) -> bool {
    let (name, port) = match host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((name, port)) => (name, port),
        None => host.find(':').map_or((host, ""), |colon| host.split_at(colon)),
    };
    let is_port =
        port.is_empty() || port.strip_prefix(':').is_some_and(|digits| digits.parse::<u16>().is_ok());
    let is_loopback = name.parse().is_ok_and(|address: IpAddr| address.is_loopback());
    is_port && (name.eq_ignore_ascii_case("localhost") || is_loopback)
}

/// Lets a request through that may come, and adds what browsers are to keep to.
pub(super) async fn check(guard: Arc<Guard>, request: Request, next: Next) -> Response {
    let mut response = match guard.problem(&request) {
        Some(refusal) => refusal,
        None => next.run(request).await,
    };
    let policy =
        "default-src 'self'; style-src 'self'; img-src 'self' data:; frame-ancestors 'none'; base-uri 'none'";
    for (name, value) in [
        (header::CONTENT_SECURITY_POLICY, policy),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
    ] {
        response.headers_mut().insert(name, header::HeaderValue::from_static(value));
    }
    // What is shown is of this moment: nothing between us and a browser is to keep it.
    response
        .headers_mut()
        .entry(header::CACHE_CONTROL)
        .or_insert(header::HeaderValue::from_static("no-store"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_of_this_host_are_addresses_of_loop_back_and_localhost() {
        for host in ["localhost", "localhost:80", "127.0.0.1", "127.0.0.1:8779", "[::1]", "[::1]:8779"] {
            assert!(is_of_this_host(host), "{host}");
        }
        for host in [
            "",
            "evil.example",
            "127.0.0.1.evil.example:80",
            "192.0.2.1:80",
            "[2001:db8::1]:80",
            "localhost.evil",
            "[::1]evil",
            "[::1",
            "127.0.0.1:evil",
            "127.0.0.1:1:2",
        ] {
            assert!(!is_of_this_host(host), "{host}");
        }
    }

    #[test]
    fn passwords_are_what_is_behind_the_colon() {
        // printf 'me:secret word' | base64
        assert_eq!(basic_password("Basic bWU6c2VjcmV0IHdvcmQ=").as_deref(), Some("secret word"));
        assert_eq!(basic_password("Basic !!"), None);
        assert!(is_same(b"abc", b"abc") && !is_same(b"abc", b"abd") && !is_same(b"abc", b"ab"));
    }
}
