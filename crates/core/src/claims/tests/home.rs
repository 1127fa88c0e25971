//! A claim whose pods run in this cluster: a stand-in gets the volume, which then changes hands.

use super::*;

fn here() -> Case {
    Case::of(claim(&json!({"metadata": {"annotations": {"volume.kubernetes.io/selected-node": "n1"}}})))
}

fn stand_in(changes: &Value) -> PersistentVolumeClaim {
    let [Write::CreateStandIn(made)] = here().only() else { panic!() };
    let mut made = json!(made);
    apply(&mut made, &json!({"metadata": {"uid": "s1"}, "spec": {"storageClassName": "standard"}}));
    apply(&mut made, changes);
    serde_json::from_value(made).unwrap()
}

fn real(changes: &Value) -> PersistentVolume {
    let mut real = json!({"metadata": {"name": "pvc-s1", "resourceVersion": "42"},
        "spec": {"claimRef": {"uid": "s1", "resourceVersion": "7"}, "persistentVolumeReclaimPolicy": "Delete"}});
    apply(&mut real, changes);
    serde_json::from_value(real).unwrap()
}

#[test]
fn in_this_cluster_a_stand_in_asks_a_real_class_for_the_chosen_node() {
    let mut case = here();
    case.class = Some(class(&json!({"parameters": {"classHere": "fast"}})));
    let [Write::CreateStandIn(made)] = case.only() else { panic!() };
    let made = json!(made);
    assert_eq!(made["metadata"]["name"], "ferro-u1");
    assert_eq!(made["metadata"]["namespace"], "liqo");
    assert_eq!(made["metadata"]["annotations"]["volume.kubernetes.io/selected-node"], "n1");
    assert_eq!(made["spec"]["storageClassName"], "fast");
    assert_eq!(made["spec"]["resources"]["requests"]["storage"], "5Gi");
    case.stand_in = Some(stand_in(&json!({})));
    assert_eq!(case.plan(), NOTHING, "it waits for its volume");
}

#[test]
fn the_volume_of_the_stand_in_changes_hands_in_one_write_and_the_stand_in_goes() {
    let mut case = here();
    case.stand_in = Some(stand_in(&json!({"spec": {"volumeName": "pvc-s1"}})));
    assert_eq!(case.plan(), NOTHING, "the volume is not known yet");
    case.real = Some(real(&json!({})));
    let [Write::HandOver { volume, patch }] = case.only() else { panic!() };
    assert_eq!(volume, "pvc-s1");
    assert_eq!(patch["metadata"]["resourceVersion"], "42");
    assert_eq!(patch["spec"]["claimRef"]["uid"], "u1");
    assert_eq!(patch["spec"]["claimRef"]["resourceVersion"], Value::Null);
    assert_eq!(
        patch["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"][0]["matchExpressions"][0]["operator"],
        "NotIn"
    );
    let mut owned = json!(case.real.as_ref().unwrap());
    apply(&mut owned, &patch);
    case.real = Some(serde_json::from_value(owned).unwrap());
    assert_eq!(case.plan(), [Write::DeleteStandIn { uid: "s1".into() }]);
    case.claim = Some(claim(&json!({"spec": {"volumeName": "pvc-s1"}})));
    assert_eq!(case.plan(), [Write::DeleteStandIn { uid: "s1".into() }]);
    case.stand_in = None;
    assert_eq!(case.plan(), NOTHING);
}

#[test]
fn a_volume_that_only_some_nodes_can_use_keeps_its_own_word_on_that() {
    let mut case = here();
    case.stand_in = Some(stand_in(&json!({"spec": {"volumeName": "pvc-s1"}})));
    case.real = Some(real(&json!({"spec": {"nodeAffinity": {"required": {"nodeSelectorTerms": []}}}})));
    let [Write::HandOver { patch, .. }] = case.only() else { panic!() };
    assert_eq!(patch["spec"]["nodeAffinity"], Value::Null);
}

#[test]
fn a_stand_in_that_will_get_nothing_goes_and_the_claim_says_why() {
    let given_back = json!({"metadata": {"annotations": {"volume.kubernetes.io/selected-node": null}}});
    let cases = [
        (json!({"spec": {"storageClassName": null}}), "NoClassHere"),
        (json!({"spec": {"storageClassName": "liqo"}}), "NoClassHere"),
        (given_back, "NoVolumeHere"),
    ];
    for (changes, expected) in cases {
        let mut case = here();
        case.stand_in = Some(stand_in(&changes));
        let writes = case.plan();
        assert_eq!(word(&writes), Some(expected));
        assert_eq!(writes[1..], [Write::GiveBack, Write::DeleteStandIn { uid: "s1".into() }]);
    }
    let mut moved = here();
    let other = json!({"metadata": {"annotations": {"volume.kubernetes.io/selected-node": "n2"}}});
    moved.stand_in = Some(stand_in(&other));
    assert_eq!(moved.plan(), [Write::DeleteStandIn { uid: "s1".into() }]);
}
