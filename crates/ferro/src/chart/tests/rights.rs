//! Who may do what, by the roles and policies of the chart.

use super::{chart, find};
use crate::chart::{CONTROLLER, GATEWAY};
use ferro_api::names::{finalizers, labels};
use kube::ResourceExt as _;
use kube::api::DynamicObject;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// Which resources a rule list gives, with their verbs; what is limited to names has them after a slash.
fn rights(rules: &Value) -> BTreeMap<String, BTreeSet<String>> {
    let strings = |value: &Value| -> Vec<String> {
        value.as_array().into_iter().flatten().map(|text| text.as_str().unwrap().to_owned()).collect()
    };
    let mut rights = BTreeMap::<_, BTreeSet<_>>::new();
    for rule in rules.as_array().unwrap() {
        for resource in strings(&rule["resources"]) {
            let names = strings(&rule["resourceNames"]).join("+");
            let subject = if names.is_empty() { resource } else { format!("{resource}={names}") };
            rights.entry(subject).or_default().extend(strings(&rule["verbs"]));
        }
    }
    rights
}

#[test]
fn no_role_has_a_right_on_all_secrets_or_to_grant_more_than_it_has() {
    let objects = chart(&[]).unwrap();
    let is = |object: &DynamicObject, kind: &str| object.types.as_ref().unwrap().kind == kind;
    let bindings = objects.iter().filter(|object| is(object, "ClusterRoleBinding"));
    let everywhere: Vec<_> = bindings.map(|binding| binding.data["roleRef"]["name"].clone()).collect();
    for object in objects.iter().filter(|object| is(object, "ClusterRole") || is(object, "Role")) {
        let (name, rights) = (object.name_any(), rights(&object.data["rules"]));
        if is(object, "ClusterRole") && everywhere.contains(&json!(name)) {
            assert!(!rights.contains_key("secrets"), "{name}: {rights:?}");
        }
        for (subject, verbs) in &rights {
            assert!(!verbs.contains("escalate") && !verbs.contains("impersonate"), "{name}: {subject}");
            let grants = ["bind", "approve"].iter().any(|verb| verbs.contains(*verb));
            assert!(!grants || subject.contains('='), "{name}: {subject}");
        }
    }
}

#[test]
fn the_exposed_role_files_requests_and_reads_a_few_objects_by_name() {
    let objects = chart(&[]).unwrap();
    let cluster = rights(&find(&objects, "ClusterRole", "ferro-auth")["rules"]);
    assert_eq!(cluster.keys().collect::<Vec<_>>(), ["certificatesigningrequests", "clusterconfigs"]);
    let own = rights(&find(&objects, "Role", "ferro-auth")["rules"]);
    assert_eq!(
        own.keys().collect::<Vec<_>>(),
        [
            "configmaps=ferro-identity+ferro-generations",
            "secrets=ferro-auth-serving+ferro-challenge+ferro-issued"
        ]
    );
}

#[test]
fn only_the_controller_makes_tokens_and_a_policy_says_for_whom() {
    let objects = chart(&[]).unwrap();
    let is_role = |object: &&DynamicObject| {
        ["ClusterRole", "Role"].contains(&object.types.as_ref().unwrap().kind.as_str())
    };
    let makes_tokens =
        |object: &&DynamicObject| rights(&object.data["rules"]).contains_key("serviceaccounts/token");
    let makers: Vec<_> = objects.iter().filter(is_role).filter(makes_tokens).collect();
    assert_eq!(makers.iter().map(|role| role.name_any()).collect::<Vec<_>>(), ["ferro-controller"]);
    let policy = &find(&objects, "ValidatingAdmissionPolicy", "ferro-controller")["spec"];
    assert_eq!(policy["failurePolicy"], "Fail");
    let binding = &find(&objects, "ValidatingAdmissionPolicyBinding", "ferro-controller")["spec"];
    assert_eq!(binding["validationActions"], json!(["Deny"]));
}

#[test]
fn a_peer_writes_the_kinds_of_a_peering_and_no_status() {
    let objects = chart(&[]).unwrap();
    let rights = rights(&find(&objects, "ClusterRole", "ferro-peer")["rules"]);
    let kinds =
        ["namespacemaps", "networkconfigs", "resourceoffers", "resourcerequests", "tenantdelegations"];
    assert_eq!(rights.keys().collect::<Vec<_>>(), kinds);
    let verbs = ["create", "delete", "get", "list", "patch", "update", "watch"].map(str::to_owned);
    assert!(rights.values().all(|rights| *rights == BTreeSet::from(verbs.clone())), "{rights:?}");
    let policy = &find(&objects, "ValidatingAdmissionPolicy", "ferro-peer")["spec"];
    assert_eq!(policy["failurePolicy"], "Fail");
}

#[test]
fn no_role_in_a_tenants_namespace_makes_pods_or_grants_rights() {
    let objects = chart(&[]).unwrap();
    let reads = BTreeSet::from(["get", "list", "watch"].map(str::to_owned));
    let of = |name: &str| rights(&find(&objects, "ClusterRole", &format!("ferro-tenant-{name}"))["rules"]);
    for name in ["peer", "owner", "viewer", "editor", "admin"] {
        let rights = of(name);
        for fence in ["pods/log", "limitranges", "networkpolicies", "resourcequotas", "tenants"] {
            assert!(rights.get(fence).is_none_or(|verbs| *verbs == reads), "{name}: {fence}");
        }
        for power in ["rolebindings", "roles", "serviceaccounts/token", "namespaces", "*"] {
            assert!(!rights.contains_key(power), "{name}: {power}");
        }
        // Whoever may have pods run may end them, and run commands in them.
        let runs = ["peer", "admin"].contains(&name);
        let mut of_pods = reads.clone();
        of_pods.extend(runs.then(|| "delete".to_owned()));
        assert!(rights.get("pods").is_none_or(|verbs| *verbs == of_pods), "{name}");
        for way in ["pods/attach", "pods/exec", "pods/portforward"] {
            assert_eq!(rights.contains_key(way), runs, "{name}: {way}");
        }
    }
    assert!(of("viewer").values().all(|verbs| *verbs == reads), "who looks changes nothing");
    for name in ["viewer", "editor"] {
        assert!(!of(name).contains_key("secrets"), "{name}");
        assert_eq!(of(name)["shadowpods"], reads, "what runs may read Secrets");
    }
    assert_eq!(of("admin"), of("peer"));
    assert_eq!(of("owner").keys().collect::<Vec<_>>(), ["tenantdelegations"]);
}

#[test]
fn only_pods_of_offloaded_namespaces_are_shown_to_the_webhook_and_none_that_it_needs_itself() {
    let objects = chart(&[]).unwrap();
    let configuration = find(&objects, "MutatingWebhookConfiguration", "ferro-webhook");
    let [webhook] = configuration["webhooks"].as_array().unwrap().as_slice() else { panic!("one webhook") };
    let mark =
        json!({"key": labels::OFFLOADED.key(), "operator": "In", "values": [labels::OFFLOADED.value()]});
    let own =
        json!({"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["kube-system", "liqo"]});
    assert_eq!(webhook["namespaceSelector"]["matchExpressions"], json!([mark, own]));
    assert_eq!(webhook["rules"][0]["operations"], json!(["CREATE"]));
    assert_eq!(webhook["rules"][0]["resources"], json!(["pods"]));
    let ports = &find(&objects, "Service", "ferro-webhook")["spec"]["ports"];
    assert_eq!(ports[0]["port"], webhook["clientConfig"]["service"]["port"]);
    let rights = rights(&find(&objects, "ClusterRole", CONTROLLER)["rules"]);
    let touched = rights.keys().filter(|subject| subject.starts_with("mutatingwebhookconfigurations"));
    assert_eq!(touched.collect::<Vec<_>>(), ["mutatingwebhookconfigurations=ferro-webhook"]);
}

#[test]
fn who_does_everything_in_a_namespace_does_not_say_where_it_runs() {
    let objects = chart(&[]).unwrap();
    let role = |name| find(&objects, "ClusterRole", name);
    let verbs = |name| rights(&role(name)["rules"])["namespaceoffloadings"].clone();
    assert!(verbs("ferro-offloading-admin").contains("create"));
    assert!(!verbs("ferro-offloading-user").contains("create"));
    let joins = |name| {
        let labels = role(name)["metadata"]["labels"].clone();
        let prefix = "rbac.authorization.k8s.io/aggregate-to-";
        let keys = labels.as_object().unwrap().keys().filter_map(|key| key.strip_prefix(prefix));
        keys.map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(joins("ferro-offloading-admin"), Vec::<String>::new());
    assert_eq!(joins("ferro-offloading-user"), ["edit"]);
    assert_eq!(joins("ferro-offloading-viewer"), ["view"]);
}

#[test]
fn the_gateway_renews_its_own_lease_and_no_other() {
    let objects = chart(&[]).unwrap();
    let rights = rights(&find(&objects, "Role", GATEWAY)["rules"]);
    let of = |subject: &str| rights[subject].iter().map(String::as_str).collect::<Vec<_>>();
    assert_eq!(of("leases"), ["create"]);
    assert_eq!(of("leases=ferro-gateway"), ["get", "patch"]);
    let policy = &find(&objects, "ValidatingAdmissionPolicy", GATEWAY)["spec"];
    let covered = policy["matchConstraints"]["resourceRules"].as_array().unwrap().iter();
    assert!(covered.clone().any(|rule| rule["resources"] == json!(["leases"])), "{policy}");
}

#[test]
fn the_gateway_changes_nothing_of_a_tunnel_but_what_is_its_own() {
    let objects = chart(&[]).unwrap();
    let policy = &find(&objects, "ValidatingAdmissionPolicy", "ferro-gateway-tunnels")["spec"];
    assert_eq!(policy["failurePolicy"], "Fail");
    let expression = policy["validations"][0]["expression"].as_str().unwrap();
    let definition = json!(<ferro_api::net::TunnelEndpoint as kube::CustomResourceExt>::crd());
    let schema = &definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
    let own = ["connection", "tunnelIFaceIndex", "vethIFaceIndex"];
    for field in schema["properties"]["status"]["properties"].as_object().unwrap().keys() {
        let is_kept = expression.contains(&format!("object.?status.?{field}.orValue("));
        assert_eq!(is_kept, !own.contains(&field.as_str()), "{field}");
    }
    let covered = &policy["matchConstraints"]["resourceRules"][0]["resources"];
    assert_eq!(*covered, json!(["tunnelendpoints", "tunnelendpoints/status"]));
    let rest = policy["validations"][1]["expression"].as_str().unwrap();
    assert!(rest.contains("object.spec == oldObject.spec") && rest.contains(finalizers::TUNNEL));
}
