//! What a consumer, an owner and an administrator would see.

use std::collections::BTreeMap;

use ferro_api::tenancy::{Tenant, TenantDelegation, TenantNamespacePhase};
use ferro_api::virtualkubelet::{CurrentMapping, MappingPhase};
use serde_json::{Value, json};

use super::delegation::delegated;
use super::furniture::Furniture;
use super::model::{CONSUMER, CONTROL, Provider};
use super::{Kind, NAME, Terms, Wish, Write};

fn entries<const N: usize>(pairs: [(&str, &str); N]) -> BTreeMap<String, String> {
    pairs.map(|(origin, name)| (origin.to_owned(), name.to_owned())).into()
}

fn provider<const N: usize>(pairs: [(&str, &str); N]) -> Provider {
    let mut provider = Provider::new();
    provider.ask(entries(pairs));
    provider.rest();
    provider
}

fn answer(provider: &Provider, origin: &str) -> CurrentMapping {
    provider.map_status().unwrap().current_mapping[origin].clone()
}

fn refusal(provider: &Provider, origin: &str) -> String {
    let answer = answer(provider, origin);
    assert_eq!(answer.phase, MappingPhase::CreationLoopBackOff);
    answer.message.unwrap()
}

fn change(provider: &mut Provider, spec: &Value) {
    let mut tenant = serde_json::to_value(provider.tenant.as_ref().unwrap()).unwrap();
    crate::replication::apply(&mut tenant, &json!({"spec": spec}));
    provider.tenant = Some(serde_json::from_value(tenant).unwrap());
}

fn subjects(provider: &Provider, namespace: &str, name: &str) -> Vec<String> {
    let Some(binding) = provider.thing(Kind::RoleBinding, namespace, name) else { return Vec::new() };
    let subjects = binding.data["subjects"].as_array().unwrap();
    subjects.iter().map(|subject| subject["name"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn a_namespace_is_stamped_and_furnished_with_four_writes_and_shown_with_two() {
    let mut provider = provider([]);
    provider.writes.clear();
    provider.ask(entries([("shop", "shop-1")]));
    provider.rest();
    let structural = provider.writes.iter().filter(|write| write.namespace() == Some("shop-1")).count();
    assert_eq!((structural, provider.writes.len()), (4, 6), "{:?}", provider.writes);
    let labels = provider.labels("shop-1");
    assert_eq!(labels["tenancy.liqo.io/tenant"], CONSUMER);
    assert_eq!(labels["liqo.io/originID"], CONSUMER);
    assert_eq!(labels["pod-security.kubernetes.io/enforce"], "baseline");
    assert_eq!(answer(&provider, "shop").phase, MappingPhase::Accepted);
    let ceiling = provider.thing(Kind::ResourceQuota, "shop-1", NAME).unwrap();
    assert_eq!(ceiling.data["spec"]["hard"], json!({"cpu": "4", "memory": "8Gi"}));
    assert_eq!(subjects(&provider, "shop-1", NAME), [format!("{CONSUMER}:0")]);
}

#[test]
fn rights_come_after_fences() {
    let provider = provider([("shop", "shop-1")]);
    let kinds: Vec<Kind> = provider
        .writes
        .iter()
        .filter_map(|write| match write {
            Write::Put(item) if item.object.metadata.namespace.is_some() => Some(item.kind),
            _ => None,
        })
        .collect();
    assert_eq!(kinds, [Kind::NetworkPolicy, Kind::ResourceQuota, Kind::RoleBinding]);
}

#[test]
fn a_hundred_namespaces_cost_less_than_five_hundred_writes() {
    let mut provider = provider([]);
    provider.writes.clear();
    provider.ask((0..100).map(|index| (format!("ns-{index}"), format!("there-{index}"))).collect());
    provider.rest();
    assert_eq!(provider.mine().len(), 100);
    assert!(provider.writes.len() < 410, "{}", provider.writes.len());
}

#[test]
fn beyond_the_quota_is_refused_with_the_numbers_and_nothing_else_is_disturbed() {
    let mut provider = Provider::new();
    provider.config.namespace_quota = Some(2);
    provider.ask(entries([("a", "a-1"), ("b", "b-1")]));
    provider.rest();
    provider.writes.clear();
    provider.ask(entries([("a", "a-1"), ("aa", "aa-1"), ("b", "b-1")]));
    provider.rest();
    assert_eq!(provider.mine(), ["a-1", "b-1"]);
    let said = refusal(&provider, "aa");
    assert!(said.contains("quota of 2 namespaces is used up: there are 2"), "{said}");
    assert!(provider.writes.iter().all(|write| write.namespace().is_none()), "{:?}", provider.writes);
    let tenant = provider.tenant.as_ref().unwrap().status.as_ref().unwrap();
    assert_eq!((tenant.namespaces_used, tenant.namespace_quota), (Some(2), Some(2)));
    let phases: Vec<_> = tenant.namespaces.iter().map(|namespace| namespace.phase).collect();
    let (active, refused) = (TenantNamespacePhase::Active, TenantNamespacePhase::Refused);
    assert_eq!(phases, [active, refused, active]);
    provider.ask(entries([("aa", "aa-1"), ("b", "b-1")]));
    provider.rest();
    assert_eq!(provider.mine(), ["aa-1", "b-1"], "the next one has its place");
}

#[test]
fn of_a_hundred_that_want_the_last_one_exactly_one_has_it() {
    let mut provider = Provider::new();
    provider.config.namespace_quota = Some(1);
    provider.ask((0..100).map(|index| (format!("ns-{index:02}"), format!("there-{index:02}"))).collect());
    provider.rest();
    assert_eq!(provider.mine(), ["there-00"]);
    assert!(refusal(&provider, "ns-99").contains("quota of 1"));
}

#[test]
fn a_foreign_namespace_is_neither_adopted_nor_deleted() {
    let mut provider = Provider::new();
    provider.squat("shop");
    provider.ask(entries([("shop", "shop")]));
    provider.rest();
    assert!(refusal(&provider, "shop").contains("leaves it alone"));
    provider.ask(entries([]));
    provider.rest();
    assert!(provider.foreign.contains_key("shop") && provider.mine().is_empty());
    provider.raze("shop");
    provider.ask(entries([("shop", "shop")]));
    provider.rest();
    assert_eq!(provider.mine(), ["shop"]);
}

#[test]
fn names_of_the_provider_itself_are_refused() {
    let reserved = [
        ("a", "kube-system"),
        ("b", "default"),
        ("c", "liqo"),
        ("d", "liqo-tenant-x"),
        ("e", "ferro-home"),
        ("f", "ferro-home-keys"),
    ];
    let provider = provider(reserved);
    for (origin, name) in reserved {
        let said = refusal(&provider, origin);
        assert!(said.contains(name) && said.contains("reserved"), "{said}");
    }
    assert!(provider.mine().is_empty());
}

#[test]
fn two_that_ask_for_one_name_are_told_who_has_it() {
    let mut provider = provider([("b", "x"), ("c", "x")]);
    assert_eq!(answer(&provider, "b").phase, MappingPhase::Accepted);
    assert!(refusal(&provider, "c").contains("both ask for x, and b has it"));
    provider.ask(entries([("a", "x"), ("b", "x")]));
    provider.rest();
    assert_eq!(answer(&provider, "b").phase, MappingPhase::Accepted, "who has it keeps it");
    assert!(refusal(&provider, "a").contains("b has it"));
}

#[test]
fn what_one_namespace_left_is_not_handed_to_another() {
    let mut provider = provider([("a", "x")]);
    provider.ask(entries([("b", "x")]));
    provider.work(usize::MAX);
    assert_eq!(answer(&provider, "b").phase, MappingPhase::Terminating);
    provider.rest();
    assert_eq!(provider.origin("x").as_deref(), Some("b"));
    assert_eq!(answer(&provider, "b").phase, MappingPhase::Accepted);
}

#[test]
fn an_entry_that_is_gone_is_shown_until_its_namespace_is_gone() {
    let mut provider = provider([("a", "x")]);
    provider.ask(entries([]));
    provider.work(usize::MAX);
    assert_eq!(answer(&provider, "a").phase, MappingPhase::Terminating);
    provider.rest();
    assert!(provider.map_status().unwrap().current_mapping.is_empty());
}

#[test]
fn a_map_that_cannot_be_read_removes_nothing() {
    let mut provider = provider([("a", "x")]);
    provider.is_spoilt = true;
    provider.rest();
    assert_eq!(provider.mine(), ["x"]);
    let conditions = &provider.tenant.as_ref().unwrap().status.as_ref().unwrap().conditions;
    assert_eq!(conditions[0].reason, "MapUnusable");
}

#[test]
fn what_the_tenant_and_the_configuration_say_is_followed_everywhere() {
    let mut provider = provider([("a", "x"), ("b", "y")]);
    change(
        &mut provider,
        &json!({
            "podSecurity": "restricted", "isolation": false, "counts": {"widgets.example.org": 2},
            "limitRange": {"limits": [{"type": "Container", "max": {"cpu": "1"}}]},
            "owners": [{"kind": "Group", "name": "romans"}],
        }),
    );
    let template = json!({"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "welcome", "labels": {"for": "guests"}}, "data": {"a": "b"}});
    provider.config.templates = vec![template.as_object().unwrap().clone()];
    provider.rest();
    for namespace in ["x", "y"] {
        assert_eq!(provider.labels(namespace)["pod-security.kubernetes.io/enforce"], "restricted");
        assert!(provider.thing(Kind::NetworkPolicy, namespace, NAME).is_none());
        let hard = &provider.thing(Kind::ResourceQuota, namespace, NAME).unwrap().data["spec"]["hard"];
        assert_eq!(hard["count/widgets.example.org"], "2");
        assert!(provider.thing(Kind::LimitRange, namespace, NAME).is_some());
        let welcome = provider.thing(Kind::ConfigMap, namespace, "welcome").unwrap();
        assert_eq!(welcome.metadata.labels.as_ref().unwrap()["for"], "guests");
        assert_eq!(subjects(&provider, namespace, NAME), [format!("{CONSUMER}:0"), "romans".to_owned()]);
    }
    assert_eq!(subjects(&provider, CONTROL, NAME), ["romans"], "other owners let people in, too");
    provider.config.templates = Vec::new();
    change(&mut provider, &json!({"limitRange": null}));
    provider.rest();
    assert_eq!(provider.furniture_in("x"), 2, "what is not wanted any more is gone");
}

#[test]
fn a_template_that_cannot_be_used_is_named_and_harms_nothing() {
    let mut provider = provider([("a", "x")]);
    let bad = [
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}}),
        json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": NAME}}),
        json!({"kind": "ConfigMap"}),
    ];
    provider.config.templates = bad.map(|template| template.as_object().unwrap().clone()).into();
    provider.rest();
    let condition = &provider.tenant.as_ref().unwrap().status.as_ref().unwrap().conditions[0];
    assert!(condition.reason == "BadTemplate" && condition.message.starts_with("3 of"), "{condition:?}");
    assert_eq!(answer(&provider, "a").phase, MappingPhase::Accepted);
}

#[test]
fn a_namespace_in_trouble_holds_up_no_other() {
    let mut provider = Provider::new();
    provider.troubles = entries([("x", "a ResourceQuota ferro-tenant is there and not ours; delete it")]);
    provider.ask(entries([("a", "x"), ("b", "y")]));
    provider.rest();
    assert!(refusal(&provider, "a").contains("delete it"));
    assert_eq!(answer(&provider, "b").phase, MappingPhase::Accepted);
    provider.troubles.clear();
    provider.rest();
    assert_eq!(answer(&provider, "a").phase, MappingPhase::Accepted);
}

#[test]
fn a_namespace_that_is_in_use_stays_so_when_a_change_fails() {
    let mut provider = provider([("a", "x")]);
    provider.troubles = entries([("x", "the quota was refused")]);
    change(&mut provider, &json!({"resourceQuota": {"hard": {"nonsense": "1"}}}));
    provider.rest();
    let answer = answer(&provider, "a");
    assert_eq!(
        (answer.phase, answer.message.as_deref()),
        (MappingPhase::Accepted, Some("the quota was refused"))
    );
}

#[test]
fn a_tenant_goes_after_its_namespaces() {
    let mut provider = provider([("a", "x")]);
    provider.wish = Wish::Keep;
    provider.rest();
    assert_eq!(provider.mine(), ["x"], "as long as the peering ends in order");
    provider.wish = Wish::End;
    provider.work(usize::MAX);
    let tenant = provider.tenant.as_ref().unwrap();
    assert!(tenant.metadata.deletion_timestamp.is_some() && tenant.metadata.finalizers.is_some());
    assert_eq!(answer(&provider, "a").phase, MappingPhase::Terminating);
    provider.rest();
    assert!(provider.tenant.is_none() && provider.furniture.is_empty());
}

#[test]
fn by_force_what_is_on_its_way_out_is_not_waited_for() {
    let mut provider = provider([("a", "x")]);
    (provider.wish, provider.forced) = (Wish::End, true);
    provider.work(usize::MAX);
    assert!(provider.tenant.is_none());
    assert_eq!(provider.mine(), ["x"], "it goes by itself");
}

#[test]
fn a_tenant_that_was_made_beforehand_keeps_what_it_says_and_outlives_the_peering() {
    let mut provider = Provider::new();
    let tenant = json!({"apiVersion": "tenancy.liqo.io/v1alpha1", "kind": "Tenant", "metadata": {"name": CONSUMER},
        "spec": {"cluster": {"clusterID": CONSUMER}, "namespaceQuota": 1}});
    let tenant: Tenant = serde_json::from_value(tenant).unwrap();
    provider.tenant = Some(tenant.clone());
    provider.ask(entries([("a", "x"), ("b", "y")]));
    provider.rest();
    assert_eq!(provider.mine(), ["x"]);
    provider.wish = Wish::End;
    provider.rest();
    let left = provider.tenant.unwrap();
    assert_eq!((left.spec, left.metadata.finalizers), (tenant.spec, None));
}

#[test]
fn the_consumer_sees_its_own_tenant_and_no_other_as_long_as_it_is_let_in() {
    let mut provider = provider([]);
    let name = format!("ferro-tenant-{CONSUMER}");
    let role = provider.furniture[&(Kind::ClusterRole, None, name.clone())].clone();
    assert_eq!(
        role.data["rules"],
        json!([{"apiGroups": ["tenancy.liqo.io"], "resources": ["tenants"],
        "resourceNames": [CONSUMER], "verbs": ["get", "watch"]}])
    );
    provider.identity.clear();
    provider.rest();
    assert!(provider.furniture.is_empty());
}

fn delegation(name: &str, spec: &Value) -> TenantDelegation {
    serde_json::from_value(json!({
        "apiVersion": "tenancy.liqo.io/v1alpha1", "kind": "TenantDelegation",
        "metadata": {"name": name, "labels": {"liqo.io/replicated": "true", "liqo.io/originID": CONSUMER,
            "liqo.io/remoteID": "d14e610e-4c1b-402c-a5f1-5ef6f39c0490"}},
        "spec": spec,
    }))
    .unwrap()
}

#[test]
fn an_owner_lets_others_in_by_grades_and_only_into_its_own_namespaces() {
    let mut provider = provider([("a", "x"), ("b", "y")]);
    let user = |name: &str| json!({"kind": "User", "name": name});
    provider.delegations = vec![
        delegation(&format!("{CONSUMER}-0"), &json!({"subjects": [user("jane")], "level": "Viewer"})),
        delegation(
            &format!("{CONSUMER}-3"),
            &json!({"subjects": [user("john")], "level": "Admin", "namespaces": ["y", "kube-system"]}),
        ),
        delegation("anything", &json!({"subjects": [user("eve")], "level": "Admin"})),
    ];
    provider.rest();
    assert_eq!(subjects(&provider, "x", "ferro-tenant-viewer-0"), ["jane"]);
    assert_eq!(subjects(&provider, "y", "ferro-tenant-viewer-0"), ["jane"]);
    assert_eq!(subjects(&provider, "y", "ferro-tenant-admin-3"), ["john"]);
    assert!(subjects(&provider, "x", "ferro-tenant-admin-3").is_empty());
    assert!(
        !format!("{:?}", provider.furniture).contains("eve"),
        "a name that is not allowed does not count"
    );
    let shown = provider.delegations[1].status.as_ref().unwrap();
    assert!(shown.conditions[0].message.contains("the Tenant has no namespace kube-system"));
    provider.delegations.clear();
    provider.rest();
    assert_eq!(provider.furniture_in("y"), 3);
}

#[test]
fn what_belongs_into_namespaces_is_made_once_for_all_and_put_into_each() {
    let mut provider = provider([("a", "x"), ("b", "y")]);
    let subjects = json!([{"kind": "User", "name": "jane"}]);
    let spec = json!({"subjects": subjects, "level": "Viewer", "namespaces": ["y"]});
    provider.delegations = vec![delegation(&format!("{CONSUMER}-0"), &spec)];
    provider.rest();
    provider.look(|snapshot| {
        let terms = Terms::of(&snapshot.tenant.unwrap().spec, snapshot.config, snapshot.offered);
        let delegated = delegated(snapshot);
        let furniture = Furniture::of(snapshot, &terms, &delegated);
        let (few, more) = (furniture.within("x"), furniture.within("y"));
        assert_eq!((few.len(), more.len()), (3, 4));
        assert!(few.iter().zip(&more).all(|(one, same)| std::ptr::eq(*one, *same)), "not made twice");
    });
    let content = |kind: Kind, namespace: &str| {
        let object = provider.thing(kind, namespace, NAME).unwrap();
        assert_eq!(object.metadata.namespace.as_deref(), Some(namespace));
        (object.data.clone(), object.metadata.labels.clone(), object.metadata.annotations.clone())
    };
    for kind in [Kind::NetworkPolicy, Kind::ResourceQuota, Kind::RoleBinding] {
        assert_eq!(content(kind, "x"), content(kind, "y"));
    }
}

#[test]
fn what_somebody_changes_in_a_namespace_is_put_right_there_and_nowhere_else() {
    let mut provider = provider([("a", "x"), ("b", "y"), ("c", "z")]);
    provider.writes.clear();
    let key = |kind, namespace: &str| (kind, Some(namespace.to_owned()), NAME.to_owned());
    let quota = provider.furniture.get_mut(&key(Kind::ResourceQuota, "x")).unwrap();
    quota.data = json!({"spec": {"hard": {"cpu": "1000"}}});
    let policy = provider.furniture.get_mut(&key(Kind::NetworkPolicy, "z")).unwrap();
    policy.metadata.annotations = None;
    provider.rest();
    let places: Vec<_> = provider.writes.iter().map(Write::namespace).collect();
    assert_eq!(places, [Some("x"), Some("z")], "{:?}", provider.writes);
    let ceiling = provider.thing(Kind::ResourceQuota, "x", NAME).unwrap();
    assert_eq!(ceiling.data["spec"]["hard"], json!({"cpu": "4", "memory": "8Gi"}), "whatever its hash says");
}

#[test]
fn nobody_is_let_in_who_is_not_the_consumers_to_let_in() {
    let mut provider = provider([("a", "x")]);
    let subjects_given = json!([
        {"kind": "Group", "name": "system:masters"},
        {"kind": "User", "name": "system:admin"},
        {"kind": "User", "name": "d14e610e-4c1b-802c-a5f1-5ef6f39c0490:3"},
        {"kind": "ServiceAccount", "name": "default", "namespace": "kube-system"},
        {"kind": "ServiceAccount", "name": "ci", "namespace": "x"},
    ]);
    let spec = json!({"subjects": subjects_given, "level": "Editor"});
    provider.delegations = vec![delegation(&format!("{CONSUMER}-0"), &spec)];
    provider.rest();
    assert_eq!(subjects(&provider, "x", "ferro-tenant-editor-0"), ["ci"]);
    let condition = &provider.delegations[0].status.as_ref().unwrap().conditions[0];
    assert_eq!(condition.message.matches("is refused").count(), 4, "{}", condition.message);
}

#[test]
fn another_generation_of_the_peer_is_bound_instead() {
    let mut provider = provider([("a", "x")]);
    provider.identity[0].name = format!("{CONSUMER}:1");
    provider.rest();
    assert_eq!(subjects(&provider, "x", NAME), [format!("{CONSUMER}:1")]);
}

#[test]
fn a_flood_of_entries_is_answered_within_bounds() {
    let mut provider = Provider::new();
    provider.config.namespace_quota = Some(0);
    let long = |index: usize| format!("{}-{index:05}", "x".repeat(57));
    provider.ask((0..4096).map(|index| (long(index), long(index))).collect());
    provider.rest();
    let answered = serde_json::to_vec(&provider.map.as_ref().unwrap().status).unwrap().len();
    assert!(answered < 1024 * 1024, "{answered} bytes");
    let shown = serde_json::to_vec(provider.tenant.as_ref().unwrap()).unwrap().len();
    assert!(shown < 256 * 1024, "{shown} bytes");
}

#[test]
fn what_all_namespaces_use_is_added_up() {
    let mut provider = provider([("a", "x"), ("b", "y")]);
    for ((kind, ..), object) in &mut provider.furniture {
        if *kind == Kind::ResourceQuota {
            object.data["status"] = json!({"used": {"cpu": "500m", "requests.example.org/gpu": "1"}});
        }
    }
    provider.rest();
    let used = &provider.tenant.as_ref().unwrap().status.as_ref().unwrap().used;
    assert_eq!(serde_json::to_value(used).unwrap(), json!({"cpu": "1", "example.org/gpu": "2"}));
}
