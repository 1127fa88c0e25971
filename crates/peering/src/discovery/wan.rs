//! Looking up which clusters are registered in a DNS domain.
//!
//! PTR records of the service name the instances; each has an SRV and a TXT record (RFC 6763). The URL in the TXT
//! record counts; its host is resolved when it is called. Whoever answers may be hostile: only instances of that very
//! service are followed, so many at most, everything has a time limit, and nothing is remembered from one search to
//! the next.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use ferro_core::discovery::Announcement;
use hickory_resolver::TokioResolver;
use hickory_resolver::config::{NameServerConfig, ResolveHosts, ResolverConfig};
use hickory_resolver::lookup::Lookup;
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::net::{DnsError, NetError};
use hickory_resolver::proto::op::ResponseCode;
use hickory_resolver::proto::rr::{Name, RData, RecordType};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};

/// So many instances of a domain are looked at.
const MOST: usize = 256;
/// So many at once.
const AT_ONCE: usize = 8;
/// How long one question may take, and how often it is asked again.
const ANSWER: Duration = Duration::from_secs(3);
const AGAIN: usize = 1;
/// How long a search may take.
const SEARCH: Duration = Duration::from_secs(30);

/// What is looked up, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Question {
    pub(super) domain: String,
    pub(super) service: String,
    /// The DNS server, as configured; that of this system when left out.
    pub(super) server: Option<String>,
}

/// What was found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) announcements: Vec<Announcement>,
    /// How many instances were not understood, or left out.
    pub(super) rubbish: usize,
}

/// Why a search failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Problem {
    /// The DNS server is not given as an address.
    Server,
    /// The domain or the service is no DNS name.
    Name,
    /// The domain has no such records.
    Nothing,
    /// There was no answer in time.
    TimedOut,
    /// The server said no.
    Refused(String),
    /// The server could not be asked.
    Failed(String),
}

impl Question {
    /// The name under which instances are registered.
    fn name(&self) -> Result<Name, Problem> {
        let domain = self.domain.strip_suffix('.').unwrap_or(&self.domain);
        Name::from_ascii(format!("{}.{domain}.", self.service)).map_err(|_| Problem::Name)
    }
}

/// Looks up which clusters are registered.
pub(super) async fn search(question: &Question) -> Result<Found, Problem> {
    let deadline = Instant::now() + SEARCH;
    let service = question.name()?;
    let resolver = resolver(question.server.as_deref())?;
    let pointers = timeout_at(deadline, resolver.lookup(service.clone(), RecordType::PTR));
    let pointers = pointers.await.map_err(|_| Problem::TimedOut)?.map_err(|error| problem(&error))?;
    let mut instances = instances(&pointers, &service);
    let mut found = Found { rubbish: instances.len().saturating_sub(MOST), ..Found::default() };
    instances.truncate(MOST);
    for some in instances.chunks(AT_ONCE) {
        let mut asked = JoinSet::new();
        for instance in some {
            asked.spawn(timeout_at(deadline, read(resolver.clone(), instance.clone())));
        }
        // One that is broken is no reason to miss the others.
        while let Some(answer) = asked.join_next().await {
            match answer {
                Ok(Ok(Some(announcement))) => found.announcements.push(announcement),
                Ok(Ok(None) | Err(_)) | Err(_) => found.rubbish += 1,
            }
        }
    }
    Ok(found)
}

/// The instances of the service, each once.
fn instances(pointers: &Lookup, service: &Name) -> Vec<Name> {
    let named = pointers.answers().iter().filter_map(|record| match &record.data {
        RData::PTR(pointer) if record.name == *service => Some(pointer.0.to_lowercase()),
        _ => None,
    });
    let mut instances: Vec<Name> =
        named.filter(|name| service.zone_of(name) && name.num_labels() == service.num_labels() + 1).collect();
    instances.sort();
    instances.dedup();
    instances
}

/// What an instance announces; nothing if that is not understood, or its records are not there.
async fn read(resolver: TokioResolver, instance: Name) -> Option<Announcement> {
    resolver.lookup(instance.clone(), RecordType::SRV).await.ok()?;
    let texts = resolver.lookup(instance, RecordType::TXT).await.ok()?;
    let text = texts.answers().iter().find_map(|record| match &record.data {
        RData::TXT(text) => Some(text),
        _ => None,
    })?;
    Announcement::parse(text.txt_data.iter().map(AsRef::as_ref)).ok()
}

fn resolver(server: Option<&str>) -> Result<TokioResolver, Problem> {
    let provider = TokioRuntimeProvider::default();
    let mut builder = match server {
        Some(server) => {
            let server = address(server).ok_or(Problem::Server)?;
            let mut name_server = NameServerConfig::udp_and_tcp(server.ip());
            name_server.connections.iter_mut().for_each(|connection| connection.port = server.port());
            let config = ResolverConfig::from_parts(None, Vec::new(), vec![name_server]);
            TokioResolver::builder_with_config(config, provider)
        }
        None => TokioResolver::builder(provider).map_err(|error| Problem::Failed(error.to_string()))?,
    };
    let options = builder.options_mut();
    options.timeout = ANSWER;
    options.attempts = AGAIN;
    options.cache_size = 0;
    options.use_hosts_file = ResolveHosts::Never;
    builder.build().map_err(|error| Problem::Failed(error.to_string()))
}

/// Reads `address` or `address:port`; a port only after brackets for IPv6.
fn address(text: &str) -> Option<SocketAddr> {
    let text = text.trim();
    let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
    match bare.parse::<IpAddr>() {
        Ok(ip) => Some(SocketAddr::new(ip, 53)),
        Err(_) => text.parse().ok().filter(|address: &SocketAddr| address.port() != 0),
    }
}

fn problem(error: &NetError) -> Problem {
    match error {
        NetError::Timeout => Problem::TimedOut,
        NetError::Dns(DnsError::NoRecordsFound(none)) => match none.response_code {
            ResponseCode::NoError | ResponseCode::NXDomain => Problem::Nothing,
            code => Problem::Refused(code.to_str().to_owned()),
        },
        NetError::Dns(DnsError::ResponseCode(code)) => Problem::Refused(code.to_str().to_owned()),
        other => Problem::Failed(other.to_string()),
    }
}

#[cfg(test)]
mod tests;
