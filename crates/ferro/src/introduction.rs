//! Making another cluster known to this one: what to write for it, and in which order.
//!
//! A cluster is known only once, whatever it is called: by its identifier if that is known, else by its address. What
//! it was found by stays as it is when only a token is given, so that a cluster on the local network is still followed
//! when it moves; an address that a person gives stands.

use anyhow::{Context as _, bail, ensure};
use ferro_api::common::ClusterIdentity;
use ferro_api::discovery::{Decision, DiscoveryType, ForeignCluster, ForeignClusterSpec};
use ferro_api::names::labels;
use ferro_core::auth::{HttpsUrl, JoinToken};
use ferro_core::discovery::candidates;
use ferro_core::identity::ClusterId;
use ferro_core::names;
use ferro_peering::keepsake;
use kube::ResourceExt as _;
use kube::api::PostParams;
use serde_json::{Map, Value, json};

use crate::kube_errors::{self, Explain as _};
use crate::peers::{self, cluster_id};
use crate::this_cluster::{self, ThisCluster};

/// So often somebody else may make the same object at the same time.
const TRIES: usize = 3;

/// What is known about the other cluster, and wanted of it.
#[derive(Default)]
pub(crate) struct Introduction<'a> {
    /// Where it is, as a person says; or the name under which it is known already.
    pub(crate) address: Option<&'a str>,
    /// What lets this cluster in there.
    pub(crate) token: Option<&'a JoinToken>,
    /// How this cluster shall call it.
    pub(crate) name: Option<&'a str>,
    /// Who it is, if that is known without a token.
    pub(crate) identity: Option<(ClusterId, &'a str)>,
    /// What is wanted of it.
    pub(crate) wishes: Wishes,
}

/// What is wanted of a peer.
#[derive(Clone, Copy, Default)]
pub(crate) struct Wishes {
    /// To use its resources.
    pub(crate) join: bool,
    /// To let it use ours.
    pub(crate) accept: bool,
}

impl Wishes {
    /// The part of the spec that says so.
    pub(crate) fn spec(self) -> Map<String, Value> {
        let join = self.join.then(|| ("join".to_owned(), json!(true)));
        let accept = self.accept.then(|| ("incoming".to_owned(), json!(Decision::Accept)));
        join.into_iter().chain(accept).collect()
    }
}

/// What is to be written.
#[derive(Debug, PartialEq)]
enum Step {
    Create(Box<ForeignCluster>),
    Change { name: String, patch: Value },
    Nothing { name: String },
}

impl Step {
    fn name(&self) -> String {
        match self {
            Self::Create(peer) => peer.name_any(),
            Self::Change { name, .. } | Self::Nothing { name } => name.clone(),
        }
    }
}

/// What came of it.
pub(crate) struct Introduced {
    /// The object as it is now.
    pub(crate) peer: ForeignCluster,
    /// The object as it was before, if there was one.
    pub(crate) before: Option<ForeignCluster>,
}

impl Introduction<'_> {
    /// Makes the cluster known. The token is there before the object that somebody acts on.
    pub(crate) async fn perform(&self, own: &ThisCluster) -> anyhow::Result<Introduced> {
        let service = this_cluster::config(&own.client).await?.spec.discovery().service().to_owned();
        for _ in 0..TRIES {
            let known = peers::list(&own.client).await?;
            let step = self.plan(own.identity.id, &service, &known)?;
            let name = step.name();
            if let Some(token) = self.token {
                let text = keepsake::token_text(&token.secret)?;
                let parts = [(keepsake::TOKEN, Some(text.as_str()))];
                let put = keepsake::put(&own.client, &own.namespace, &name, None, &parts);
                put.await.map_err(kube_errors::in_words)?;
            }
            let before = known.into_iter().find(|peer| peer.name_any() == name);
            let peer = match &step {
                Step::Create(peer) => {
                    match peers::api(&own.client).create(&PostParams::default(), peer).await {
                        Err(kube::Error::Api(status)) if status.code == 409 => continue,
                        created => created.explain(|| format!("add the peer {name}"))?,
                    }
                }
                Step::Change { patch, .. } => peers::change(&own.client, &name, patch).await?,
                Step::Nothing { .. } => before.clone().context("the peer is gone; try again")?,
            };
            return Ok(Introduced { peer, before });
        }
        bail!("somebody else adds this peer all the time; try again")
    }

    fn plan(&self, own: ClusterId, service: &str, known: &[ForeignCluster]) -> anyhow::Result<Step> {
        ensure!(
            self.id() != Some(own),
            "this token is of this very cluster; run the command on the other one, or choose it with --context"
        );
        let called = self.address.and_then(|address| known.iter().find(|peer| peer.name_any() == address));
        let address = self.address.filter(|_| called.is_none());
        let url = address.map(|address| url(address, service)).transpose()?;
        match called.or_else(|| self.among(known, url.as_ref(), service)) {
            Some(peer) => self.update(peer, address, service),
            None => self.create(address, url, known),
        }
    }

    fn id(&self) -> Option<ClusterId> {
        self.token.map(|token| token.cluster_id).or(self.identity.map(|(id, _)| id))
    }

    /// The object that there is for the cluster.
    fn among<'k>(
        &self,
        known: &'k [ForeignCluster],
        url: Option<&HttpsUrl>,
        service: &str,
    ) -> Option<&'k ForeignCluster> {
        let id = self.id().map(|id| id.to_string());
        let place = url.or(self.token.map(|token| &token.auth_url));
        let is_it = |peer: &&ForeignCluster| match (cluster_id(peer), &id) {
            (Some(known), Some(id)) => known == id,
            (None, _) | (_, None) => place.is_some() && at(peer, service).as_ref() == place,
        };
        // Of two for one cluster, the one that a person made: discovery removes its own.
        let manual = |peer: &&ForeignCluster| peer.spec.discovery_type() == DiscoveryType::Manual;
        let all: Vec<_> = known.iter().filter(is_it).collect();
        all.iter().copied().find(manual).or_else(|| all.first().copied())
    }

    fn update(&self, peer: &ForeignCluster, address: Option<&str>, service: &str) -> anyhow::Result<Step> {
        let name = peer.name_any();
        ensure!(
            peer.metadata.deletion_timestamp.is_none(),
            "{name} is being removed; wait until it is gone (ferro remove {name} --wait), and try again"
        );
        if let (Some(known), Some(id)) = (cluster_id(peer), self.id()) {
            ensure!(
                known == id.to_string(),
                "{name} is another cluster ({known}) than the one of the token ({id}); leave the name out, or give \
                 another with --name"
            );
        }
        if let Some(wanted) = self.name {
            ensure!(
                wanted == name,
                "this cluster is known as {name} already; leave --name out, or remove it first: ferro remove {name}"
            );
        }
        let mut wanted = self.spec(Some(&peer.spec), address);
        // Another way to write the same place is no news.
        let place =
            wanted.get("authUrl").and_then(Value::as_str).map(|wanted| url(wanted, service)).transpose()?;
        if place.is_some() && place == at(peer, service) {
            wanted.remove("authUrl");
        }
        let present = serde_json::to_value(&peer.spec)?;
        let news: Map<_, _> =
            wanted.into_iter().filter(|(key, value)| present.get(key) != Some(value)).collect();
        Ok(if news.is_empty() {
            Step::Nothing { name }
        } else {
            Step::Change { name, patch: json!({"spec": news}) }
        })
    }

    fn create(
        &self,
        address: Option<&str>,
        url: Option<HttpsUrl>,
        known: &[ForeignCluster],
    ) -> anyhow::Result<Step> {
        let url = url.or_else(|| self.token.map(|token| token.auth_url.clone()));
        let url = url.context("it is not known where the other cluster is; give its address or a token")?;
        let host = url.host().to_string();
        let key = self.id().map_or_else(|| url.to_string(), |id| id.to_string());
        let called = self.identity.map_or(host.as_str(), |(_, name)| name);
        let name = self.name.map_or_else(|| names::foreign_cluster(called, &key), str::to_owned);
        ensure!(
            known.iter().all(|peer| peer.name_any() != name),
            "there is another peer of the name {name}; choose another with --name"
        );
        let spec: ForeignClusterSpec = serde_json::from_value(Value::Object(self.spec(None, address)))?;
        let mut peer = ForeignCluster::new(&name, spec);
        labels::PART_OF.put_on(&mut peer.metadata);
        Ok(Step::Create(Box::new(peer)))
    }

    /// The fields that a person's word is about.
    fn spec(&self, present: Option<&ForeignClusterSpec>, address: Option<&str>) -> Map<String, Value> {
        let mut spec = self.wishes.spec();
        let mut set = |key: &str, value: Value| spec.insert(key.to_owned(), value);
        let url = address.map(|address| address.trim().to_owned());
        if let Some(url) = url.or_else(|| self.token.map(|token| token.auth_url.to_string())) {
            set("authUrl", json!(url));
        }
        if let Some(token) = self.token {
            set("authPin", json!(token.pin));
        }
        let found_by_itself = present.is_some_and(|present| {
            matches!(present.discovery_type(), DiscoveryType::Lan | DiscoveryType::Wan)
        });
        let is_introduced = address.is_some() || self.token.is_some();
        if is_introduced && !(found_by_itself && address.is_none()) {
            set("discoveryType", json!(DiscoveryType::Manual));
        }
        let has_identity = present.is_some_and(|present| present.cluster_identity.is_some());
        if let Some(id) = self.id().filter(|_| !has_identity) {
            let cluster_name = self.identity.map(|(_, name)| name.to_owned());
            set("clusterIdentity", json!(ClusterIdentity { cluster_id: id.to_string(), cluster_name }));
        }
        spec
    }
}

/// Where the auth service is, at this address.
fn url(address: &str, service: &str) -> anyhow::Result<HttpsUrl> {
    let found = candidates(address, service);
    Ok(found.with_context(|| format!("{address} is neither a known peer nor the address of a cluster"))?.url)
}

fn at(peer: &ForeignCluster, service: &str) -> Option<HttpsUrl> {
    url(peer.spec.auth_url.as_deref()?, service).ok()
}

#[cfg(test)]
mod tests {
    use super::{Introduction, Step, Wishes};
    use crate::peers::tests::peer;
    use ferro_api::discovery::ForeignCluster;
    use ferro_core::auth::{JoinToken, Pin, TokenSecret};
    use ferro_core::identity::ClusterId;
    use serde_json::{Value, json};

    const SERVICE: &str = "_liqo_api._tcp";
    const OTHER: &str = "d14e610e-4c1b-802c-a5f1-5ef6f39c0490";
    const URL: &str = "https://192.0.2.7:30443";

    fn own() -> ClusterId {
        "0aaaaaaa-4c1b-802c-a5f1-5ef6f39c0490".parse().unwrap()
    }

    fn token() -> JoinToken {
        JoinToken {
            auth_url: URL.parse().unwrap(),
            cluster_id: OTHER.parse().unwrap(),
            pin: Pin([2; 32]),
            secret: TokenSecret::new([0x41; 32]),
        }
    }

    fn pin() -> String {
        Pin([2; 32]).to_string()
    }

    fn plan(introduction: &Introduction<'_>, known: &[ForeignCluster]) -> Result<Step, String> {
        introduction.plan(own(), SERVICE, known).map_err(|error| format!("{error:#}"))
    }

    /// The name and spec of what is created.
    fn created(introduction: &Introduction<'_>) -> (String, Value) {
        match plan(introduction, &[]).unwrap() {
            Step::Create(peer) => (peer.metadata.name.clone().unwrap(), json!(peer.spec)),
            step => panic!("{step:?}"),
        }
    }

    fn change(name: &str, spec: &Value) -> Step {
        Step::Change { name: name.into(), patch: json!({"spec": spec}) }
    }

    #[test]
    fn an_address_alone_is_taken_as_it_is_given() {
        let by_address = Introduction { address: Some("auth.example.org"), ..Introduction::default() };
        let (name, spec) = created(&by_address);
        assert!(name.starts_with("auth-example-org-"), "{name}");
        assert_eq!(spec, json!({"authUrl": "auth.example.org", "discoveryType": "Manual"}));
        assert_eq!(created(&by_address).0, name);
        let named = Introduction { name: Some("milan"), ..by_address };
        assert_eq!(created(&named).0, "milan");
    }

    #[test]
    fn a_token_says_who_and_where_the_cluster_is_and_what_it_shows() {
        let token = token();
        let by_token = Introduction { token: Some(&token), ..Introduction::default() };
        let (name, spec) = created(&by_token);
        assert_eq!(name, "192-0-2-7-e4203bca41");
        let expected = json!({
            "authUrl": URL, "authPin": pin(), "discoveryType": "Manual", "clusterIdentity": {"clusterID": OTHER},
        });
        assert_eq!(spec, expected);
        assert!(!spec.to_string().contains("QUFB"), "the secret is in the object");
        let elsewhere = Introduction { address: Some("https://gate.example.org"), ..by_token };
        assert_eq!(created(&elsewhere).1["authUrl"], "https://gate.example.org");
    }

    #[test]
    fn whoever_holds_both_clusters_knows_the_name_and_what_is_wanted() {
        let token = token();
        let wishes = Wishes { join: true, accept: true };
        let identity = Some((token.cluster_id, "Milan"));
        let both = Introduction { token: Some(&token), identity, wishes, ..Introduction::default() };
        let (name, spec) = created(&both);
        assert_eq!(name, "milan-e4203bca41");
        assert_eq!((&spec["join"], &spec["incoming"]), (&json!(true), &json!("Accept")));
        assert_eq!(spec["clusterIdentity"], json!({"clusterID": OTHER, "clusterName": "Milan"}));
    }

    #[test]
    fn a_cluster_that_is_known_is_not_added_a_second_time_whatever_it_is_called() {
        let token = token();
        let by_token = Introduction { token: Some(&token), ..Introduction::default() };
        let spec = json!({"authUrl": "https://192.0.2.9:30443", "discoveryType": "LAN",
            "clusterIdentity": {"clusterID": OTHER}});
        let on_lan = peer("milan", &spec, &json!({}));
        // It stays on the LAN, so that it is followed when it moves.
        let known = json!({"authUrl": URL, "authPin": pin()});
        assert_eq!(plan(&by_token, &[on_lan]), Ok(change("milan", &known)));
        let by_itself = json!({"discoveryType": "IncomingPeering", "clusterIdentity": {"clusterID": OTHER}});
        let came = peer("milan", &by_itself, &json!({}));
        let met = json!({"authUrl": URL, "authPin": pin(), "discoveryType": "Manual"});
        assert_eq!(plan(&by_token, &[came]), Ok(change("milan", &met)));
    }

    #[test]
    fn adding_again_changes_nothing() {
        let token = token();
        for introduction in [
            Introduction { token: Some(&token), ..Introduction::default() },
            Introduction { address: Some("192.0.2.7"), ..Introduction::default() },
            Introduction { address: Some("192.0.2.7"), token: Some(&token), ..Introduction::default() },
        ] {
            let Ok(Step::Create(first)) = plan(&introduction, &[]) else { panic!() };
            let name = first.metadata.name.clone().unwrap();
            assert_eq!(plan(&introduction, &[*first]), Ok(Step::Nothing { name }));
        }
    }

    #[test]
    fn another_way_to_write_the_same_address_changes_nothing() {
        let added = peer("far", &json!({"authUrl": "192.0.2.7", "discoveryType": "Manual"}), &json!({}));
        let again = Introduction { address: Some(URL), ..Introduction::default() };
        assert_eq!(plan(&again, &[added]), Ok(Step::Nothing { name: "far".into() }));
    }

    #[test]
    fn a_token_for_what_was_added_by_its_address_goes_there() {
        let token = token();
        let added = peer("milan", &json!({"authUrl": "192.0.2.7", "discoveryType": "Manual"}), &json!({}));
        let spec = json!({"authPin": pin(), "clusterIdentity": {"clusterID": OTHER}});
        let by_token = Introduction { token: Some(&token), ..Introduction::default() };
        assert_eq!(plan(&by_token, std::slice::from_ref(&added)), Ok(change("milan", &spec)));
        let by_name = Introduction { address: Some("milan"), ..by_token };
        assert_eq!(plan(&by_name, &[added]), Ok(change("milan", &spec)));
    }

    #[test]
    fn what_cannot_be_meant_is_refused_with_a_way_out() {
        let token = token();
        let own_token = JoinToken { cluster_id: own(), ..token.clone() };
        let of_itself = Introduction { token: Some(&own_token), ..Introduction::default() };
        assert!(plan(&of_itself, &[]).unwrap_err().contains("this very cluster"));

        let other = json!({"clusterIdentity": {"clusterID": "0bbbbbbb-4c1b-802c-a5f1-5ef6f39c0490"}});
        let rome = peer("rome", &other, &json!({}));
        let to_rome = Introduction { address: Some("rome"), token: Some(&token), ..Introduction::default() };
        assert!(plan(&to_rome, std::slice::from_ref(&rome)).unwrap_err().contains("rome is another cluster"));
        let as_rome = Introduction { name: Some("rome"), token: Some(&token), ..Introduction::default() };
        assert!(plan(&as_rome, &[rome]).unwrap_err().contains("another peer of the name rome"));

        let milan = peer("milan", &json!({"clusterIdentity": {"clusterID": OTHER}}), &json!({}));
        let renamed = Introduction { name: Some("mailand"), token: Some(&token), ..Introduction::default() };
        assert!(plan(&renamed, &[milan]).unwrap_err().contains("known as milan already"));
        let nowhere = Introduction { address: Some("not an address"), ..Introduction::default() };
        assert!(plan(&nowhere, &[]).unwrap_err().contains("give a host name"));
    }
}
