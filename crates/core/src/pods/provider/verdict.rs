//! What it means for a pod that an API server did not take it.

use crate::pods::Refusal;
use crate::pods::inward::NO_ROOM;

/// What to do about a pod that was not taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It may not run here.
    Rejected(Refusal),
    /// It cannot be made yet: what it needs is on its way. Try again after a pause.
    Later(Refusal),
    /// There is one of that name: look at it.
    Exists,
    /// The namespace is gone or going: nothing is to be done.
    Gone,
    /// This says nothing about the pod. Try again after a pause.
    Fault,
}

/// What an API server's refusal to create or change a pod means, by its code and message.
pub fn verdict(code: u16, message: &str) -> Verdict {
    let refusal = |word: &str| Refusal::new(word, format!("the cluster does not take the pod: {message}"));
    match code {
        403 if message.contains("because it is being terminated") => Verdict::Gone,
        // A namespace is used before Kubernetes has furnished it; a missing account may still come.
        403 if message.contains("error looking up service account") => {
            Verdict::Later(refusal("NoServiceAccount"))
        }
        403 if message.contains("status unknown for quota") => Verdict::Later(refusal("QuotaUnknown")),
        // That is about this controller, and not about the pod.
        403 if message.contains(" cannot create resource ")
            || message.contains(" cannot patch resource ") =>
        {
            Verdict::Fault
        }
        403 if message.contains("exceeded quota") => Verdict::Rejected(refusal(NO_ROOM)),
        403 => Verdict::Rejected(refusal("Forbidden")),
        400 | 413 | 422 => Verdict::Rejected(refusal("Invalid")),
        404 => Verdict::Gone,
        409 => Verdict::Exists,
        _ => Verdict::Fault,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn word(code: u16, message: &str) -> String {
        match verdict(code, message) {
            Verdict::Rejected(refusal) => refusal.word,
            Verdict::Later(refusal) => format!("later {}", refusal.word),
            Verdict::Exists => "exists".to_owned(),
            Verdict::Gone => "gone".to_owned(),
            Verdict::Fault => "fault".to_owned(),
        }
    }

    #[test]
    fn a_pod_that_kubernetes_does_not_take_is_rejected_with_its_words() {
        let quota = "pods \"a\" is forbidden: exceeded quota: tenant, requested: pods=1, used: pods=2, limited: pods=2";
        assert_eq!(word(403, quota), "QuotaExceeded");
        assert_eq!(
            word(403, "pods \"a\" is forbidden: violates PodSecurity \"baseline:latest\""),
            "Forbidden"
        );
        assert_eq!(word(422, "Pod \"a\" is invalid"), "Invalid");
        assert_eq!(word(400, "the object provided is unrecognized"), "Invalid");
        let Verdict::Rejected(refusal) = verdict(403, quota) else { panic!() };
        assert!(refusal.message.ends_with(quota));
    }

    #[test]
    fn what_passes_by_itself_rejects_nobody() {
        let account = "pods \"a\" is forbidden: error looking up service account n/default: not found";
        assert_eq!(word(403, account), "later NoServiceAccount");
        assert_eq!(word(403, "status unknown for quota: tenant, resources: pods"), "later QuotaUnknown");
        let going = "unable to create new content in namespace n because it is being terminated";
        assert_eq!([word(403, going), word(404, "namespaces \"n\" not found")], ["gone", "gone"]);
        assert_eq!(word(409, "pods \"a\" already exists"), "exists");
        let rights = "pods is forbidden: User \"x\" cannot create resource \"pods\" in API group \"\"";
        assert_eq!(word(403, rights), "fault");
        for code in [401, 408, 429, 500, 503, 504] {
            assert_eq!(word(code, "later"), "fault");
        }
    }
}
