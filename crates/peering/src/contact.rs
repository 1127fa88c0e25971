//! Talking to the auth service of another cluster: one connection a question, and nothing about it without a limit.
//!
//! Whoever answers may be anybody. Therefore the key of the connection must be the expected one before anything is
//! sent, answers are cut off in size and time, and redirects are not followed.

mod witness;

#[cfg(test)]
mod tests;

use std::convert::Infallible;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use anyhow::Result;
use ferro_api::discovery::TrustMode;
use ferro_core::auth::{
    Challenge, ChallengeRequest, Denial, Endorsement, Host, HttpsUrl, IdentityGrant, IdentityRequest, Pin,
    PinMismatch, ProofProblem, Shown, trust,
};
use ferro_core::identity::{ClusterId, Identity};
use http_body_util::{BodyExt as _, Full, LengthLimitError, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::header::{CONTENT_TYPE, HOST};
use hyper::{Method, Request, StatusCode, Uri};
use hyper_util::rt::TokioIo;
use k8s_openapi::jiff::Timestamp;
use rustls::client::WebPkiServerVerifier;
use rustls::crypto::CryptoProvider;
use rustls_pki_types::ServerName;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use witness::Witness;
pub(crate) use witness::{add, authorities, provider};

/// What is read of an answer at most; a grant holds authorities.
const MOST: usize = 128 * 1024;
/// What is read of the head of an answer at most.
const HEAD: usize = 16 * 1024;
/// So many addresses of a name are tried.
const ADDRESSES: usize = 4;

/// Talks to auth services of other clusters.
#[derive(Clone)]
pub struct Caller {
    authorities: Option<Arc<WebPkiServerVerifier>>,
    provider: Arc<CryptoProvider>,
    limits: Limits,
}

/// How long things may take.
#[derive(Clone, Copy)]
struct Limits {
    connect: Duration,
    call: Duration,
    /// The provider waits for its controller to approve.
    ask: Duration,
}

/// Who answered.
#[derive(Clone, Debug)]
pub struct Met {
    /// The cluster, as it has proved.
    pub identity: Identity,
    /// The key that its auth service shows.
    pub pin: Pin,
    /// Whether a trusted authority knows it.
    pub trust: TrustMode,
    /// Where its API server is, as it says.
    pub api_server_url: Option<HttpsUrl>,
}

/// The auth service could not be talked to, or not as with one.
#[derive(Debug, thiserror::Error)]
pub enum ContactError {
    /// It took too long.
    #[error("no answer within {} s; check the address, the firewall, and that the auth service runs", .0.as_secs())]
    TimedOut(Duration),
    /// Nothing is there.
    #[error("nothing listens there; check address and port, and that the auth service runs")]
    Refused,
    /// The host has no address.
    #[error("the host has no address; check its name, and the DNS of this cluster")]
    UnknownHost,
    /// Something is between.
    #[error("cannot be reached ({0}); check the network between the clusters")]
    Unreachable(std::io::Error),
    /// It does not speak TLS, or wrongly.
    #[error("TLS fails ({0}); check that this is the address of an auth service")]
    Tls(std::io::Error),
    /// It has another key than it must have.
    #[error(transparent)]
    Pin(#[from] PinMismatch),
    /// It is not proved to be the cluster.
    #[error(transparent)]
    Proof(#[from] ProofProblem),
    /// It answers something else.
    #[error("answers with the HTTP status {0}; check that this is the address of an auth service")]
    Status(u16),
    /// It answers too much.
    #[error("answers with more than {MOST} bytes; check that this is the address of an auth service")]
    TooLong,
    /// It answers in other words.
    #[error("its answer cannot be read; run the same version of ferro on both sides")]
    Unreadable,
    /// It stopped in the middle.
    #[error("the connection was cut ({0}); it is tried again")]
    Cut(hyper::Error),
}

impl Caller {
    /// `bundle`: further authorities to trust, in PEM, beside those of the system.
    pub fn new(bundle: Option<&[u8]>) -> Result<Self> {
        let provider = provider();
        let limits = Limits {
            connect: Duration::from_secs(5),
            call: Duration::from_secs(10),
            ask: Duration::from_secs(40),
        };
        Ok(Self { authorities: witness::verifier(authorities(bundle)?, &provider)?, provider, limits })
    }

    /// Asks who is there; the answer is proved for the TLS key of this very connection.
    pub async fn meet(
        &self,
        url: &HttpsUrl,
        pin: Option<&Pin>,
        expected: Option<&ClusterId>,
    ) -> Result<Met, ContactError> {
        let answer = self.call(url, pin, Question::ids(), self.limits.call).await?;
        if answer.status != StatusCode::OK {
            return Err(ContactError::Status(answer.status.as_u16()));
        }
        let endorsement = Endorsement::parse(&answer.body).map_err(|_| ContactError::Unreadable)?;
        let shown = answer.shown;
        Ok(Met {
            identity: endorsement.verify(&shown.pin, expected, Timestamp::now())?,
            pin: shown.pin,
            trust: trust(pin, Some(&shown))?,
            api_server_url: endorsement.api_server_url().cloned(),
        })
    }

    /// Asks for a challenge.
    pub async fn challenge(
        &self,
        url: &HttpsUrl,
        pin: &Pin,
        request: &ChallengeRequest,
    ) -> Result<Result<Challenge, Denial>, ContactError> {
        let question = Question::post("/challenge", request)?;
        let answer = self.call(url, Some(pin), question, self.limits.call).await?;
        answer.read(|body| Challenge::parse(body).ok())
    }

    /// Asks for a certificate.
    pub async fn ask(
        &self,
        url: &HttpsUrl,
        pin: &Pin,
        request: &IdentityRequest,
    ) -> Result<Result<IdentityGrant, Denial>, ContactError> {
        let question = Question::post("/identity", request)?;
        let answer = self.call(url, Some(pin), question, self.limits.ask).await?;
        answer.read(|body| IdentityGrant::parse(body).ok())
    }

    async fn call(
        &self,
        url: &HttpsUrl,
        pin: Option<&Pin>,
        question: Question,
        limit: Duration,
    ) -> Result<Answer, ContactError> {
        let talk = async {
            let (stream, shown) = self.connect(url, pin).await?;
            let (status, body) = exchange(stream, question.at(url)?).await?;
            Ok(Answer { shown, status, body })
        };
        timeout(limit, talk).await.map_err(|_| ContactError::TimedOut(limit))?
    }

    /// A connection to a server that has the key it must have.
    async fn connect(
        &self,
        url: &HttpsUrl,
        pin: Option<&Pin>,
    ) -> Result<(TlsStream<TcpStream>, Shown), ContactError> {
        let limit = self.limits.connect;
        let tcp = timeout(limit, reach(url, limit)).await.map_err(|_| ContactError::TimedOut(limit))??;
        let witness = Arc::new(Witness {
            authorities: self.authorities.clone(),
            provider: Arc::clone(&self.provider),
            expected: pin.copied(),
            shown: OnceLock::new(),
        });
        let tls = |error| ContactError::Tls(std::io::Error::other(error));
        let connector = TlsConnector::from(Arc::new(witness.config().map_err(tls)?));
        match connector.connect(server_name(url)?, tcp).await {
            Ok(stream) => {
                let shown = witness.shown.get().copied();
                Ok((stream, shown.ok_or_else(|| tls(rustls::Error::NoCertificatesPresented))?))
            }
            Err(error) => Err(witness.mismatch().map_or(ContactError::Tls(error), ContactError::Pin)),
        }
    }
}

fn server_name(url: &HttpsUrl) -> Result<ServerName<'static>, ContactError> {
    match url.host() {
        Host::Ip(ip) => Ok(ServerName::from(*ip)),
        Host::Name(name) => ServerName::try_from(name.clone()).map_err(|_| ContactError::UnknownHost),
    }
}

/// The first of the host's addresses that answers. One that is dead does not take the time of all others.
async fn reach(url: &HttpsUrl, limit: Duration) -> Result<TcpStream, ContactError> {
    let addresses: Vec<SocketAddr> = match url.host() {
        Host::Ip(ip) => vec![SocketAddr::new(*ip, url.port())],
        Host::Name(name) => match tokio::net::lookup_host((name.as_str(), url.port())).await {
            Ok(found) => found.take(ADDRESSES).collect(),
            Err(_) => Vec::new(),
        },
    };
    let share = limit / u32::try_from(addresses.len().max(1)).unwrap_or(u32::MAX);
    let mut problem = ContactError::UnknownHost;
    for address in addresses {
        problem = match timeout(share, TcpStream::connect(address)).await {
            Ok(Ok(stream)) => return Ok(stream),
            Ok(Err(error)) if error.kind() == ErrorKind::ConnectionRefused => ContactError::Refused,
            Ok(Err(error)) => ContactError::Unreachable(error),
            Err(_) => ContactError::TimedOut(limit),
        };
    }
    Err(problem)
}

/// What is asked.
struct Question {
    method: Method,
    path: &'static str,
    body: Bytes,
}

impl Question {
    fn ids() -> Self {
        Self { method: Method::GET, path: "/ids", body: Bytes::new() }
    }

    fn post(path: &'static str, content: &impl serde::Serialize) -> Result<Self, ContactError> {
        let body = serde_json::to_vec(content).map_err(|_| ContactError::Unreadable)?;
        Ok(Self { method: Method::POST, path, body: body.into() })
    }

    fn at(self, url: &HttpsUrl) -> Result<Request<Full<Bytes>>, ContactError> {
        let unusable = || ContactError::UnknownHost;
        let uri: Uri = format!("{url}{}", self.path).parse().map_err(|_| unusable())?;
        let host = uri.authority().ok_or_else(unusable)?.as_str();
        let request = Request::builder().method(self.method).uri(uri.path()).header(HOST, host);
        let request = request.header(CONTENT_TYPE, "application/json");
        request.body(Full::new(self.body)).map_err(|_| unusable())
    }
}

/// What was answered, and by which key.
struct Answer {
    shown: Shown,
    status: StatusCode,
    body: Bytes,
}

impl Answer {
    /// The answer as it should be, or the reason why it is none.
    fn read<T>(&self, parse: impl FnOnce(&[u8]) -> Option<T>) -> Result<Result<T, Denial>, ContactError> {
        if self.status == StatusCode::OK {
            return parse(&self.body).map(Ok).ok_or(ContactError::Unreadable);
        }
        let denial = Denial::parse(&self.body).map_err(|_| ContactError::Status(self.status.as_u16()))?;
        Ok(Err(denial))
    }
}

/// One question and its answer; the connection ends with it.
async fn exchange(
    stream: TlsStream<TcpStream>,
    request: Request<Full<Bytes>>,
) -> Result<(StatusCode, Bytes), ContactError> {
    let mut builder = http1::Builder::new();
    builder.max_buf_size(HEAD);
    let handshake = builder.handshake(TokioIo::new(stream)).await;
    let (mut sender, connection) = handshake.map_err(ContactError::Cut)?;
    let talk = async {
        let response = sender.send_request(request).await.map_err(unanswered)?;
        let status = response.status();
        let body = Limited::new(response.into_body(), MOST).collect().await.map_err(cut_off)?;
        Ok((status, body.to_bytes()))
    };
    // How the connection ends shows in the answer as well.
    let drive = async {
        _ = connection.await;
        std::future::pending::<Infallible>().await
    };
    tokio::select! {
        answer = talk => answer,
        never = drive => match never {},
    }
}

fn unanswered(error: hyper::Error) -> ContactError {
    if error.is_parse() { ContactError::Unreadable } else { ContactError::Cut(error) }
}

fn cut_off(error: Box<dyn std::error::Error + Send + Sync>) -> ContactError {
    if error.is::<LengthLimitError>() {
        return ContactError::TooLong;
    }
    error.downcast::<hyper::Error>().map_or(ContactError::Unreadable, |error| ContactError::Cut(*error))
}
