//! One claim in one state each, and what follows.

mod home;

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::api::storage::v1::StorageClass;
use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

use super::*;
use crate::replication::apply;

fn claim(changes: &Value) -> PersistentVolumeClaim {
    let mut claim = json!({
        "metadata": {"name": "data", "namespace": "shop", "uid": "u1",
            "labels": {"app": "db", "liqo.io/x": "y"},
            "annotations": {"volume.kubernetes.io/storage-provisioner": PROVISIONER,
                "volume.kubernetes.io/selected-node": "liqo-p1", "note": "stays"}},
        "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "liqo", "volumeMode": "Filesystem",
            "resources": {"requests": {"storage": "5Gi"}}},
    });
    apply(&mut claim, changes);
    serde_json::from_value(claim).unwrap()
}

fn held() -> Value {
    json!({"metadata": {"finalizers": ["storage.liqo.io/claim"], "annotations": {"storage.liqo.io/held-for": "p1"}}})
}

fn there(changes: &Value) -> PersistentVolumeClaim {
    let mut there = json!({
        "metadata": {"name": "data", "namespace": "shop-c1", "uid": "t1", "labels": {"liqo.io/originID": "c1"},
            "annotations": {"virtualkubelet.liqo.io/origin-uid": "u1"}},
        "spec": {"resources": {"requests": {"storage": "5Gi"}}},
        "status": {"phase": "Pending"},
    });
    apply(&mut there, changes);
    serde_json::from_value(there).unwrap()
}

fn class(changes: &Value) -> StorageClass {
    let mut class =
        json!({"metadata": {"name": "liqo"}, "provisioner": PROVISIONER, "reclaimPolicy": "Delete"});
    apply(&mut class, changes);
    serde_json::from_value(class).unwrap()
}

/// What is known, to be varied by each test.
struct Case {
    claim: Option<PersistentVolumeClaim>,
    class: Option<StorageClass>,
    volume: Option<PersistentVolume>,
    stand_in: Option<PersistentVolumeClaim>,
    real: Option<PersistentVolume>,
    there: Option<PersistentVolumeClaim>,
    namespace: Option<&'static str>,
    is_near: bool,
}

impl Case {
    fn of(claim: PersistentVolumeClaim) -> Self {
        Self {
            claim: Some(claim),
            class: Some(class(&json!({}))),
            volume: None,
            stand_in: None,
            real: None,
            there: None,
            namespace: Some("shop-c1"),
            is_near: true,
        }
    }

    /// One whose volume stands for a claim over there.
    fn bound(claim_changes: &Value) -> Self {
        let mut case = Self::of(claim(&held()));
        case.there = Some(there(&json!({})));
        let [Write::CreateVolume(volume)] = case.only() else { panic!() };
        let mut changes = json!({"spec": {"volumeName": "pvc-u1"}, "status": {"phase": "Bound", "capacity": {"storage": "5Gi"}}});
        apply(&mut changes, claim_changes);
        (case.claim, case.volume) = (Some(claim(&changes)), Some(*volume));
        case
    }

    /// One whose claim is gone.
    fn released() -> Self {
        let mut case = Self::bound(&json!({}));
        case.claim = None;
        let mut volume = json!(case.volume.unwrap());
        apply(&mut volume, &json!({"metadata": {"uid": "v1"}, "status": {"phase": "Released"}}));
        case.volume = Some(serde_json::from_value(volume).unwrap());
        case
    }

    /// The plan, of as many writes as are looked at.
    fn only<const N: usize>(&self) -> [Write; N] {
        self.plan().try_into().unwrap()
    }

    fn plan(&self) -> Vec<Write> {
        let place = self.claim.as_ref().and_then(selected_node).map(|node| match node {
            "liqo-p1" => Place::There("p1"),
            node => Place::Here(node),
        });
        let peer = peer_of(self.claim.as_ref(), self.volume.as_ref(), place);
        plan(&Snapshot {
            home: "c1",
            own_namespace: "liqo",
            claim: self.claim.as_ref(),
            class: self.class.as_ref(),
            volume: self.volume.as_ref(),
            stand_in: self.stand_in.as_ref(),
            real: self.real.as_ref(),
            place,
            peer: peer.as_deref().map(|id| Peer {
                id,
                namespace: self.namespace,
                is_near: self.is_near,
                claim: self.there.as_ref(),
            }),
            now: Timestamp::UNIX_EPOCH,
        })
    }
}

const NOTHING: [Write; 0] = [];

fn word(writes: &[Write]) -> Option<&str> {
    writes.iter().find_map(|write| match write {
        Write::Tell(notice) => Some(notice.reason.as_str()),
        _ => None,
    })
}

#[test]
fn the_claim_over_there_asks_for_the_same_and_says_whose_it_is() {
    let [Write::Hold { peer }, Write::CreateThere(made)] = Case::of(claim(&json!({}))).only() else {
        panic!()
    };
    assert_eq!(peer, "p1");
    let expected = json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": {"name": "data", "namespace": "shop-c1", "labels": {"app": "db", "liqo.io/originID": "c1"},
            "annotations": {"virtualkubelet.liqo.io/origin-uid": "u1", "tenancy.liqo.io/origin-namespace": "shop"}},
        "spec": {"accessModes": ["ReadWriteOnce"], "volumeMode": "Filesystem",
            "resources": {"requests": {"storage": "5Gi"}}},
    });
    assert_eq!(json!(made), expected, "without a class, it is the peer's default");
    let mut case = Case::of(claim(&held()));
    case.class = Some(class(&json!({"parameters": {"classThere": "fast"}})));
    let [Write::CreateThere(made)] = case.only() else { panic!() };
    assert_eq!(made.spec.unwrap().storage_class_name.as_deref(), Some("fast"));
}

#[test]
fn the_volume_is_there_before_the_claim_over_there_is_bound_and_only_for_pods_on_that_peer() {
    let mut case = Case::of(claim(&held()));
    case.there = Some(there(&json!({})));
    let [Write::CreateVolume(volume)] = case.only() else { panic!() };
    assert_eq!(
        Handle::of(&volume).unwrap(),
        Handle { peer: "p1".into(), namespace: "shop-c1".into(), uid: "t1".into() }
    );
    let made = json!(volume);
    assert_eq!(made["metadata"]["name"], "pvc-u1");
    assert_eq!(made["metadata"]["annotations"]["pv.kubernetes.io/provisioned-by"], PROVISIONER);
    assert_eq!(made["metadata"]["finalizers"], json!(["storage.liqo.io/volume"]));
    let term = json!({"matchExpressions": [{"key": "liqo.io/remoteID", "operator": "In", "values": ["p1"]}]});
    assert_eq!(made["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"], json!([term]));
    assert_eq!(made["spec"]["claimRef"]["uid"], "u1");
    assert_eq!(made["spec"]["capacity"]["storage"], "5Gi");
    assert_eq!(made["spec"]["persistentVolumeReclaimPolicy"], "Delete");
}

#[test]
fn once_there_is_a_volume_the_claim_is_not_held_any_more_and_all_is_at_rest() {
    assert_eq!(Case::bound(&held()).plan(), [Write::LetGo]);
    assert_eq!(Case::bound(&json!({})).plan(), NOTHING);
}

#[test]
fn what_cannot_be_had_is_said_and_the_scheduler_chooses_again() {
    let mut homeless = Case::of(claim(&json!({})));
    homeless.namespace = None;
    let mut taken = Case::of(claim(&json!({})));
    taken.there = Some(there(&json!({"metadata": {"labels": null}})));
    let mut former = Case::of(claim(&json!({})));
    former.there =
        Some(there(&json!({"metadata": {"annotations": {"virtualkubelet.liqo.io/origin-uid": "u0"}}})));
    let cloned =
        Case::of(claim(&json!({"spec": {"dataSource": {"kind": "PersistentVolumeClaim", "name": "x"}}})));
    let cases = vec![
        (homeless, "NoNamespace"),
        (taken, "NameTaken"),
        (former, "NameTaken"),
        (cloned, "ClaimNotPortable"),
    ];
    for (case, expected) in cases {
        let writes = case.plan();
        assert_eq!(word(&writes), Some(expected));
        assert_eq!(writes.last(), Some(&Write::GiveBack));
    }
}

#[test]
fn a_quota_over_there_reaches_the_claim_by_its_words() {
    let claim = claim(&json!({}));
    let create = Write::CreateThere(Box::new(there(&json!({}))));
    let message = "exceeded quota: ferro-tenant, requested: requests.storage=5Gi, used: 0, limited: 1Gi";
    let writes = refused(&claim, &create, 403, message, Timestamp::UNIX_EPOCH).unwrap();
    let [Write::Tell(notice), Write::GiveBack] = writes.as_slice() else { panic!("{writes:?}") };
    assert_eq!(notice.reason, "QuotaExceeded");
    assert!(notice.note.contains("limited: 1Gi"), "{}", notice.note);
    for code in [401, 404, 409, 429, 500, 503] {
        assert_eq!(refused(&claim, &create, code, message, Timestamp::UNIX_EPOCH), None, "{code}");
    }
}

#[test]
fn a_silent_peer_is_waited_for() {
    let cases: [fn() -> Case; 4] = [
        || Case::of(claim(&json!({}))),
        || Case::of(claim(&held())),
        || Case::bound(&json!({})),
        Case::released,
    ];
    for case in cases {
        let mut case = case();
        (case.is_near, case.there) = (false, None);
        assert_eq!(case.plan(), NOTHING);
    }
}

#[test]
fn another_choice_or_the_end_of_the_claim_takes_back_what_was_made() {
    let elsewhere = json!({"metadata": {"annotations": {"volume.kubernetes.io/selected-node": "n1"}}});
    let deleted = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}});
    for changes in [elsewhere, deleted] {
        let mut wanted = held();
        apply(&mut wanted, &changes);
        let mut case = Case::of(claim(&wanted));
        case.there = Some(there(&json!({})));
        assert_eq!(case.plan(), [Write::DeleteThere { uid: "t1".into() }]);
        case.there = None;
        assert_eq!(case.plan(), [Write::LetGo]);
    }
}

#[test]
fn without_its_class_nothing_is_made_for_a_claim_and_what_no_pod_has_used_is_taken_back() {
    let here = json!({"metadata": {"annotations": {"volume.kubernetes.io/selected-node": "n1"}}});
    let of = |claim| Case { class: None, ..Case::of(claim) };
    assert_eq!(of(claim(&json!({}))).plan(), NOTHING, "on a peer");
    assert_eq!(of(claim(&here)).plan(), NOTHING, "in this cluster");
    let mut made = of(claim(&held()));
    made.there = Some(there(&json!({})));
    assert_eq!(made.plan(), [Write::DeleteThere { uid: "t1".into() }]);
    made.there = None;
    assert_eq!(made.plan(), [Write::LetGo]);
    let mut asked = of(claim(&here));
    asked.stand_in = Some(there(&json!({})));
    assert_eq!(asked.plan(), [Write::DeleteStandIn { uid: "t1".into() }]);
}

#[test]
fn what_has_a_volume_needs_no_class_any_more() {
    let cases: [fn() -> Case; 2] = [|| Case::bound(&json!({})), Case::released];
    for case in cases {
        let mut case = case();
        let writes = case.plan();
        case.class = None;
        assert_eq!(case.plan(), writes);
    }
}

#[test]
fn what_is_lost_is_said_once_and_not_replaced() {
    let replaced = there(&json!({"metadata": {"uid": "t2"}}));
    for (namespace, found) in [(Some("shop-c1"), None), (Some("shop-c1"), Some(replaced)), (None, None)] {
        let mut case = Case::bound(&json!({}));
        (case.namespace, case.there) = (namespace, found);
        let writes = case.plan();
        let [Write::Show(shown), Write::Tell(notice)] = writes.as_slice() else { panic!("{writes:?}") };
        assert_eq!(notice.reason, "DataLost");
        let condition = &shown["status"]["conditions"][0];
        assert_eq!((&condition["type"], &condition["status"]), (&json!("DataLost"), &json!("True")));
        case.claim =
            Some(claim(&json!({"spec": {"volumeName": "pvc-u1"}, "status": {"conditions": [condition]}})));
        assert_eq!(case.plan(), NOTHING, "it is known");
        assert!(is_lost(case.claim.as_ref().unwrap()));
        (case.namespace, case.there) = (Some("shop-c1"), Some(there(&json!({}))));
        let [Write::Show(shown)] = case.only() else { panic!() };
        assert_eq!(shown["status"]["conditions"][0]["$patch"], "delete", "it is back");
    }
}

#[test]
fn the_claim_over_there_goes_by_the_reclaim_policy_and_only_when_kubernetes_has_released_the_volume() {
    let mut case = Case::released();
    assert_eq!(case.plan(), [Write::DeleteThere { uid: "t1".into() }]);
    case.there = Some(there(&json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}})));
    assert_eq!(case.plan(), NOTHING);
    case.there = None;
    assert_eq!(case.plan(), [Write::DeleteVolume { uid: "v1".into() }, Write::ReleaseVolume]);
    let volume = |case: &Case, changes: &Value| {
        let mut volume = json!(case.volume.as_ref().unwrap());
        apply(&mut volume, changes);
        Some(serde_json::from_value(volume).unwrap())
    };
    let mut bound = Case::released();
    bound.volume = volume(&bound, &json!({"status": {"phase": "Bound"}}));
    assert_eq!(bound.plan(), NOTHING, "a watch may be behind");
    let mut retained = Case::released();
    retained.volume = volume(&retained, &json!({"spec": {"persistentVolumeReclaimPolicy": "Retain"}}));
    assert_eq!(retained.plan(), NOTHING);
    retained.volume = volume(&retained, &json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}));
    assert_eq!(retained.plan(), [Write::ReleaseVolume], "what is over there stays");
    let mut replaced = Case::released();
    replaced.there = Some(there(&json!({"metadata": {"uid": "t2"}})));
    let [Write::DeleteVolume { .. }, Write::ReleaseVolume] = replaced.only() else { panic!() };
}

#[test]
fn a_claim_that_grows_grows_over_there_first() {
    let more = json!({"spec": {"resources": {"requests": {"storage": "9Gi"}}}});
    let mut case = Case::bound(&more);
    let [Write::GrowThere { uid, patch }] = case.only() else { panic!() };
    assert_eq!((uid.as_str(), &patch), ("t1", &more));
    case.there = Some(there(&more));
    assert_eq!(case.plan(), NOTHING, "it is on its way");
    let mut grown = more.clone();
    apply(&mut grown, &json!({"status": {"capacity": {"storage": "9Gi"}}}));
    case.there = Some(there(&grown));
    let [Write::GrowVolume(patch)] = case.only() else { panic!() };
    let mut volume = json!(case.volume.as_ref().unwrap());
    apply(&mut volume, &patch);
    case.volume = Some(serde_json::from_value(volume).unwrap());
    assert_eq!(case.plan(), [Write::Show(json!({"status": {"capacity": {"storage": "9Gi"}}}))]);
}

#[test]
fn a_peer_that_does_not_let_a_claim_grow_is_asked_once_for_each_size() {
    let more = |size: &str| json!({"spec": {"resources": {"requests": {"storage": size}}}});
    let mut case = Case::bound(&more("9Gi"));
    let [write @ Write::GrowThere { .. }] = case.only() else { panic!() };
    let claim_now = case.claim.clone().unwrap();
    let writes = refused(&claim_now, &write, 403, "must support resize", Timestamp::UNIX_EPOCH).unwrap();
    let [Write::Show(shown), Write::Tell(notice)] = writes.as_slice() else { panic!("{writes:?}") };
    assert!(notice.note.starts_with("9Gi: ") && notice.note.ends_with("must support resize"));
    let with = |size: &str| {
        let mut changes = more(size);
        apply(&mut changes, &json!({"spec": {"volumeName": "pvc-u1"}}));
        apply(&mut changes, shown);
        Some(claim(&changes))
    };
    case.claim = with("9Gi");
    assert_eq!(case.plan(), NOTHING);
    case.claim = with("7Gi");
    let [Write::GrowThere { .. }] = case.only() else { panic!() };
    case.there = Some(there(&more("7Gi")));
    let [Write::Show(settled)] = case.only() else { panic!() };
    assert_eq!(settled["status"]["conditions"][0]["$patch"], "delete");
}

#[test]
fn a_class_that_does_not_wait_for_a_pod_is_told_once_and_until_it_does() {
    let unchosen = json!({"metadata": {"annotations": {"volume.kubernetes.io/selected-node": null}}});
    let mut case = Case::of(claim(&unchosen));
    case.class = Some(class(&json!({"volumeBindingMode": "WaitForFirstConsumer"})));
    assert_eq!(case.plan(), NOTHING);
    case.class = Some(class(&json!({"volumeBindingMode": "Immediate"})));
    let [Write::Show(shown), Write::Tell(notice)] = case.only() else { panic!() };
    assert_eq!(notice.reason, "ImmediateBinding");
    assert!(notice.note.contains("volumeBindingMode: WaitForFirstConsumer"), "{}", notice.note);
    let mut known = unchosen;
    apply(&mut known, &shown);
    case.claim = Some(claim(&known));
    assert_eq!(case.plan(), NOTHING, "it is known");
    case.class = Some(class(&json!({"volumeBindingMode": "WaitForFirstConsumer"})));
    let [Write::Show(settled)] = case.only() else { panic!() };
    assert_eq!(settled["status"]["conditions"][0]["$patch"], "delete");
    apply(&mut known, &json!({"spec": {"volumeName": "other"}}));
    case.claim = Some(claim(&known));
    assert_eq!(case.plan(), NOTHING, "it has a volume");
}

/// A claim whose pod shall run on n1.
#[test]
fn a_pod_travels_with_claims_that_lie_where_it_runs_and_with_no_others() {
    let pod: Pod =
        serde_json::from_value(json!({"metadata": {"name": "db-0"}, "spec": {"containers": [], "volumes": [
        {"name": "a", "persistentVolumeClaim": {"claimName": "data"}},
        {"name": "scratch", "ephemeral": {}},
        {"name": "c", "emptyDir": {}}]}}))
        .unwrap();
    assert_eq!(claims_of(&pod).collect::<Vec<_>>(), ["data", "db-0-scratch"]);
    let bound = Case::bound(&json!({}));
    let (claim_bound, volume) = (bound.claim.as_ref(), bound.volume.as_ref());
    let word = |claim: Option<&PersistentVolumeClaim>, volume: Option<&PersistentVolume>, peer: &str| {
        travels("data", claim, volume, peer).map_err(|refusal| refusal.word)
    };
    assert_eq!(word(claim_bound, volume, "p1"), Ok(()));
    assert_eq!(word(claim_bound, volume, "p2"), Err("ClaimElsewhere".into()));
    assert_eq!(word(claim_bound, None, "p1"), Err("ClaimNotPortable".into()));
    assert_eq!(word(None, None, "p1"), Err("ClaimMissing".into()));
    assert_eq!(word(Some(&claim(&json!({}))), None, "p1"), Err("ClaimUnbound".into()));
    let lost = claim(&json!({"spec": {"volumeName": "pvc-u1"},
        "status": {"conditions": [{"type": "DataLost", "status": "True"}]}}));
    assert_eq!(word(Some(&lost), volume, "p1"), Err("ClaimLost".into()));
}

#[test]
fn claims_of_other_provisioners_and_stand_ins_are_none_of_ours() {
    assert!(is_of_ours(&claim(&json!({}))));
    let other =
        json!({"metadata": {"annotations": {"volume.kubernetes.io/storage-provisioner": "csi.example"}}});
    assert!(!is_of_ours(&claim(&other)));
    assert!(!is_of_ours(&claim(&json!({"metadata": {"labels": {"storage.liqo.io/stand-in": "true"}}}))));
}

#[test]
fn only_a_whole_handle_of_our_driver_counts() {
    let volume = |driver: &str, handle: &str| -> PersistentVolume {
        let csi = json!({"driver": driver, "volumeHandle": handle});
        serde_json::from_value(json!({"spec": {"csi": csi}})).unwrap()
    };
    assert!(Handle::of(&volume(PROVISIONER, "p1/shop-c1/t1")).is_some());
    for handle in ["", "p1", "p1/shop-c1", "p1//t1", "p1/a/b/c"] {
        assert_eq!(Handle::of(&volume(PROVISIONER, handle)), None, "{handle}");
    }
    assert_eq!(Handle::of(&volume("csi.example", "p1/shop-c1/t1")), None);
}
