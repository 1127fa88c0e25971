//! A hostile peer: what somebody can do to a cluster with a valid certificate of one of its peers. Next to nothing.

mod copies;
mod matrix;
mod stage;

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use ferro_api::discovery::ResourceRequest;
use http::{Method, StatusCode};
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec, SelfSubjectRulesReview,
    SelfSubjectRulesReviewSpec,
};
use kube::api::{ListParams, PostParams};
use kube::{Api, Client, ResourceExt as _};
use rig::site::ferro;

use matrix::{Attempt, ask, let_through, things};
use stage::{with_intruder, with_spent_intruder};

/// The kinds through which clusters talk, and all that may be done to them.
const SHARED: [(&str, &str); 5] = [
    ("discovery.liqo.io", "resourcerequests"),
    ("net.liqo.io", "networkconfigs"),
    ("sharing.liqo.io", "resourceoffers"),
    ("tenancy.liqo.io", "tenantdelegations"),
    ("virtualkubelet.liqo.io", "namespacemaps"),
];
const ON_SHARED: [&str; 7] = ["get", "list", "watch", "create", "update", "patch", "delete"];

/// What Kubernetes allows to everybody whom it knows: to ask about oneself.
fn is_for_everybody(attempt: &Attempt) -> bool {
    let thing = &attempt.thing;
    attempt.verb == "create"
        && (thing.is("authorization.k8s.io", "selfsubjectaccessreviews")
            || thing.is("authorization.k8s.io", "selfsubjectrulesreviews")
            || thing.is("authentication.k8s.io", "selfsubjectreviews"))
}

fn is_shared(attempt: &Attempt) -> bool {
    SHARED.iter().any(|(group, name)| attempt.thing.is(group, name)) && ON_SHARED.contains(&attempt.verb)
}

#[test]
fn a_peer_may_do_nothing_outside_its_namespace() -> Result<()> {
    with_intruder(async |_, intruder| {
        let things = things(&intruder.client).await?;
        for expected in
            ["secrets", "pods/exec", "certificatesigningrequests/approval", "foreignclusters/status"]
        {
            ensure!(things.iter().any(|thing| thing.name == expected), "{expected} is not tried");
        }
        let elsewhere = ["default", "kube-system", "liqo", &intruder.neighbour];
        let places = elsewhere.into_iter().map(Some).chain([None]);
        let attempts: Vec<Attempt> =
            places.flat_map(|place| things.iter().flat_map(move |thing| thing.attempts(place))).collect();
        let (begin, count) = (Instant::now(), attempts.len());
        let through = let_through(&intruder.client, attempts).await?;
        println!("{count} requests in {:.1} s", begin.elapsed().as_secs_f64());
        let (usual, wrong): (Vec<_>, Vec<_>) =
            through.iter().partition(|(attempt, _)| is_for_everybody(attempt));
        ensure!(wrong.is_empty(), "allowed: {wrong:?}");
        ensure!(usual.len() == 3, "not even what everybody may do: {usual:?}");

        // What exists, by name: the keys of this cluster and its peers.
        let tenants = "/api/v1/namespaces/liqo/secrets";
        for path in [
            format!("{tenants}/ferro-identity"),
            format!("{tenants}/ferro-tokens"),
            format!("{tenants}/ferro-challenge"),
            format!("{tenants}/ferro-issued"),
            format!("{tenants}/ferro-auth-serving"),
            "/api/v1/namespaces/liqo/configmaps/ferro-identity".to_owned(),
            format!("/api/v1/namespaces/{}", intruder.namespace),
            format!("/apis/sharing.liqo.io/v1alpha1/namespaces/{}/resourceoffers", intruder.neighbour),
            "/metrics".to_owned(),
            "/logs/".to_owned(),
            "/debug/pprof/".to_owned(),
        ] {
            let status = ask(&intruder.client, &Method::GET, &path).await?;
            ensure!(status == StatusCode::FORBIDDEN, "{path}: {status}");
        }
        Ok(())
    })
}

/// Whether Kubernetes says that the client may do this.
async fn may(
    client: &Client,
    verb: &str,
    group: &str,
    resource: &str,
    namespace: Option<&str>,
) -> Result<bool> {
    let text = |text: &str| Some(text.to_owned());
    let attributes = ResourceAttributes {
        verb: text(verb),
        group: text(group),
        resource: text(resource),
        namespace: namespace.map(str::to_owned),
        ..ResourceAttributes::default()
    };
    let spec = SelfSubjectAccessReviewSpec { resource_attributes: Some(attributes), ..Default::default() };
    let review = SelfSubjectAccessReview { spec, ..Default::default() };
    let answer = Api::all(client.clone()).create(&PostParams::default(), &review).await?;
    Ok(answer.status.is_some_and(|status| status.allowed))
}

#[test]
fn no_verb_that_leads_to_other_rights_is_given() -> Result<()> {
    with_intruder(async |_, intruder| {
        let rbac = "rbac.authorization.k8s.io";
        for place in ["default", "kube-system", "liqo", &intruder.neighbour, &intruder.namespace]
            .map(Some)
            .into_iter()
            .chain([None])
        {
            for (verb, group, resource) in [
                ("*", "*", "*"),
                ("impersonate", "", "users"),
                ("impersonate", "", "groups"),
                ("impersonate", "", "serviceaccounts"),
                ("impersonate", "authentication.k8s.io", "uids"),
                ("bind", rbac, "roles"),
                ("bind", rbac, "clusterroles"),
                ("escalate", rbac, "roles"),
                ("escalate", rbac, "clusterroles"),
                ("approve", "certificates.k8s.io", "signers"),
                ("sign", "certificates.k8s.io", "signers"),
                ("attest", "certificates.k8s.io", "signers"),
                ("get", "", "nodes/proxy"),
                ("proxy", "", "services"),
            ] {
                let may = may(&intruder.client, verb, group, resource, place).await?;
                ensure!(!may, "{verb} {resource}.{group} in {place:?}");
            }
            let spec = SelfSubjectRulesReviewSpec { namespace: Some(place.unwrap_or("default").into()) };
            let review = SelfSubjectRulesReview { spec, ..Default::default() };
            let rules = Api::all(intruder.client.clone()).create(&PostParams::default(), &review).await?;
            for rule in rules.status.map(|status| status.resource_rules).unwrap_or_default() {
                let resources = rule.resources.unwrap_or_default();
                let about_oneself = resources.iter().all(|name| name.starts_with("selfsubject"));
                let own = place == Some(&intruder.namespace)
                    && resources.iter().all(|name| SHARED.iter().any(|(_, shared)| shared == name))
                    && rule.verbs.iter().all(|verb| ON_SHARED.contains(&verb.as_str()));
                ensure!(about_oneself || own, "{place:?}: {:?} {resources:?}", rule.verbs);
            }
        }
        Ok(())
    })
}

#[test]
fn in_its_namespace_a_peer_reaches_the_shared_kinds_and_never_a_status() -> Result<()> {
    with_intruder(async |_, intruder| {
        let things = things(&intruder.client).await?;
        let place = Some(intruder.namespace.as_str());
        let attempts: Vec<Attempt> = things.iter().flat_map(|thing| thing.attempts(place)).collect();
        let through = let_through(&intruder.client, attempts).await?;
        let (right, wrong): (Vec<_>, Vec<_>) = through.iter().partition(|(attempt, _)| is_shared(attempt));
        ensure!(wrong.is_empty(), "allowed: {wrong:?}");
        for (group, name) in SHARED {
            for verb in ON_SHARED {
                let is_it = |attempt: &Attempt| attempt.thing.is(group, name) && attempt.verb == verb;
                ensure!(right.iter().any(|(attempt, _)| is_it(attempt)), "{verb} {name} is refused");
            }
        }
        Ok(())
    })
}

/// Whether a new request is let through.
async fn is_answered(own: &Api<ResourceRequest>) -> Result<bool> {
    match own.list(&ListParams::default()).await {
        Err(kube::Error::Api(status)) if matches!(status.code, 401 | 403) => Ok(false),
        answer => Ok(answer.map(|_| true)?),
    }
}

#[test]
fn a_peer_that_is_removed_is_out_within_seconds() -> Result<()> {
    with_spent_intruder(async |stage, intruder| {
        copies::put(intruder, &copies::request(intruder)).await?;
        copies::put(intruder, &copies::offer(intruder)).await?;
        let own: Api<ResourceRequest> = Api::namespaced(intruder.client.clone(), &intruder.namespace);
        ensure!(is_answered(&own).await?, "it was never let in");
        let name = stage.suspect().await?.name_any();
        ferro(&stage.turin.cluster, &["remove", &name]).await?;
        let begin = Instant::now();
        while is_answered(&own).await? {
            ensure!(begin.elapsed() < Duration::from_secs(5), "it is still let in after 5 s");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        println!("refused after {:.1} s", begin.elapsed().as_secs_f64());
        rig::wait::eventually("nothing is left of it", || async {
            ensure!(stage.suspect().await.is_err(), "it is still known");
            Ok(())
        })
        .await
    })
}
