//! What is written into a `ForeignCluster` about the contact with its cluster: only what has changed, in one patch.

use ferro_api::common::ClusterIdentity;
use ferro_api::discovery::{Authentication, ForeignCluster, TenantNamespaces, TrustMode};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use serde_json::{Map, Value, json};

use crate::contact::Met;

/// The change of the spec after a meeting, if one is needed. What is there is never changed, but for the trust.
pub(super) fn spec_patch(peer: &ForeignCluster, met: &Met) -> Option<Value> {
    let spec = &peer.spec;
    let mut patch = Map::new();
    let name = || Some(met.identity.name().to_string());
    let identity = match &spec.cluster_identity {
        None => Some(ClusterIdentity { cluster_id: met.identity.id().to_string(), cluster_name: name() }),
        Some(known) if known.cluster_name.is_none() => {
            Some(ClusterIdentity { cluster_name: name(), ..known.clone() })
        }
        Some(_) => None,
    };
    if let Some(identity) = identity {
        patch.insert("clusterIdentity".into(), json!(identity));
    }
    if spec.auth_pin.is_none() {
        patch.insert("authPin".into(), json!(met.pin));
    }
    if spec.trust_mode() != met.trust && met.trust != TrustMode::Unknown {
        patch.insert("trustMode".into(), json!(met.trust));
    }
    // The version makes sure that nobody else's word is lost.
    let metadata = json!({"resourceVersion": peer.metadata.resource_version});
    (!patch.is_empty()).then(|| json!({"metadata": metadata, "spec": patch}))
}

/// What the status should say.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Report {
    pub(super) authentication: Option<Authentication>,
    pub(super) api_server_url: Option<String>,
    pub(super) remote_namespace: Option<String>,
    /// When the peer was heard of, if that is worth a write.
    pub(super) seen: Option<Timestamp>,
}

impl Report {
    /// Nothing but this.
    pub(super) fn showing(authentication: Authentication) -> Self {
        Self { authentication: Some(authentication), ..Self::default() }
    }

    /// The change of the status, if one is needed; what is not known is left as it is.
    pub(super) fn patch(&self, peer: &ForeignCluster) -> Option<Value> {
        let status = peer.status.clone().unwrap_or_default();
        let mut patch = Map::new();
        if let Some(authentication) = self.authentication.as_ref()
            && status.authentication.as_ref() != Some(authentication)
        {
            patch.insert("authentication".into(), whole(authentication));
        }
        if self.api_server_url.is_some() && status.api_server_url != self.api_server_url {
            patch.insert("apiServerUrl".into(), json!(self.api_server_url));
        }
        let TenantNamespaces { remote, .. } = status.tenant_namespaces.unwrap_or_default();
        if self.remote_namespace.is_some() && remote != self.remote_namespace {
            patch.insert("tenantNamespaces".into(), json!({"remote": self.remote_namespace}));
        }
        if let Some(seen) = self.seen {
            patch.insert("contact".into(), json!({"lastSeen": Time(seen)}));
        }
        (!patch.is_empty()).then(|| json!({"status": patch}))
    }
}

/// With a null for what is absent, so that an earlier value goes.
fn whole(authentication: &Authentication) -> Value {
    let Authentication { state, reason, message, expiration_time } = authentication;
    json!({"state": state, "reason": reason, "message": message, "expirationTime": expiration_time})
}

#[cfg(test)]
mod tests {
    use super::{Report, spec_patch};
    use crate::contact::Met;
    use ferro_api::common::ClusterIdentity;
    use ferro_api::discovery::{
        AuthState, Authentication, ForeignCluster, ForeignClusterSpec, ForeignClusterStatus, TrustMode,
    };
    use ferro_core::auth::Pin;
    use ferro_core::identity::{Bytes, Identity, PublicKey};
    use serde_json::json;

    fn met() -> Met {
        Met {
            identity: Identity::new("there".parse().unwrap(), PublicKey(Bytes([1; 32]))),
            pin: Pin([1; 32]),
            trust: TrustMode::Untrusted,
            api_server_url: None,
        }
    }

    fn peer(spec: ForeignClusterSpec) -> ForeignCluster {
        let mut peer = ForeignCluster::new("peer", spec);
        peer.metadata.resource_version = Some("7".into());
        peer
    }

    #[test]
    fn a_first_meeting_is_written_down_once() {
        let patch = spec_patch(&peer(ForeignClusterSpec::default()), &met()).unwrap();
        let id = met().identity.id().to_string();
        let spec = json!({
            "clusterIdentity": {"clusterID": id, "clusterName": "there"},
            "authPin": Pin([1; 32]).to_string(),
            "trustMode": "Untrusted",
        });
        assert_eq!(patch, json!({"metadata": {"resourceVersion": "7"}, "spec": spec}));
        let written: ForeignClusterSpec = serde_json::from_value(spec).unwrap();
        assert_eq!(spec_patch(&peer(written), &met()), None);
    }

    #[test]
    fn what_was_known_before_is_not_changed() {
        let known = ClusterIdentity { cluster_id: "another".into(), cluster_name: Some("elsewhere".into()) };
        let spec = ForeignClusterSpec {
            cluster_identity: Some(known),
            auth_pin: Some(Pin([2; 32]).to_string()),
            trust_mode: Some(TrustMode::Trusted),
            ..ForeignClusterSpec::default()
        };
        let patch = spec_patch(&peer(spec), &met()).unwrap();
        assert_eq!(patch["spec"], json!({"trustMode": "Untrusted"}));
    }

    #[test]
    fn a_status_is_written_when_it_changes_and_old_words_go() {
        let accepted = Authentication { state: AuthState::Accepted, ..Authentication::default() };
        let report = Report {
            authentication: Some(accepted.clone()),
            api_server_url: Some("https://192.0.2.7:6443".into()),
            remote_namespace: Some("liqo-tenant-home-123456".into()),
            seen: None,
        };
        let patch = report.patch(&peer(ForeignClusterSpec::default())).unwrap();
        let null = serde_json::Value::Null;
        assert_eq!(patch["status"]["authentication"]["message"], null);
        assert_eq!(patch["status"]["tenantNamespaces"], json!({"remote": "liqo-tenant-home-123456"}));
        assert!(patch["status"].get("contact").is_none());

        let status: ForeignClusterStatus = serde_json::from_value(patch["status"].clone()).unwrap();
        assert_eq!(status.authentication, Some(accepted));
        let written = ForeignCluster { status: Some(status), ..peer(ForeignClusterSpec::default()) };
        assert_eq!(report.patch(&written), None);
        assert_eq!(Report::default().patch(&written), None);
    }
}
