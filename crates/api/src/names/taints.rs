//! The taints of virtual nodes: one keeps pods off unless a namespace was extended over them, one moves them away.

use k8s_openapi::api::core::v1::{Taint, Toleration};

const KEY: &str = "virtual-node.liqo.io/not-allowed";
const DRAINING: &str = "virtual-node.liqo.io/draining";
const VALUE: &str = "true";
const EFFECT: &str = "NoExecute";

/// The taint of every virtual node.
pub fn not_allowed() -> Taint {
    Taint { key: KEY.into(), value: Some(VALUE.into()), effect: EFFECT.into(), time_added: None }
}

/// The taint of a virtual node that is being emptied. No pod of a peer tolerates it.
pub fn draining() -> Taint {
    Taint { key: DRAINING.into(), value: Some(VALUE.into()), effect: EFFECT.into(), time_added: None }
}

/// What a pod needs to run on a virtual node in spite of the taint.
pub fn tolerates_not_allowed() -> Toleration {
    Toleration {
        key: Some(KEY.into()),
        operator: Some("Equal".into()),
        value: Some(VALUE.into()),
        effect: Some(EFFECT.into()),
        toleration_seconds: None,
    }
}

#[cfg(test)]
mod tests {
    use super::{not_allowed, tolerates_not_allowed};

    #[test]
    fn the_toleration_is_for_the_taint() {
        let (taint, toleration) = (not_allowed(), tolerates_not_allowed());
        assert_eq!(toleration.key, Some(taint.key));
        assert_eq!(toleration.value, taint.value);
        assert_eq!(toleration.effect, Some(taint.effect));
    }
}
