//! What the objects of a peering say, asked in the words of the machines.

use ferro_api::discovery::{OfferState, ResourceRequest};
use ferro_api::sharing::{OfferPhase, ResourceOffer, VirtualKubeletStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::Resource;

/// The condition by which each side says what it thinks of an object of the other.
pub(super) const ACCEPTED: &str = "Accepted";
/// So much is repeated of what a peer says.
const MOST_WORDS: usize = 400;

/// Whether an object is being deleted.
pub(super) fn is_going<K: Resource>(object: &K) -> bool {
    object.meta().deletion_timestamp.is_some()
}

/// Whether an object has a finalizer.
pub(super) fn is_held<K: Resource>(object: &K, finalizer: &str) -> bool {
    object.meta().finalizers.iter().flatten().any(|name| name == finalizer)
}

/// Whether the provider takes an offer back, or has done so.
pub(super) fn is_taken_back(offer: &ResourceOffer) -> bool {
    is_going(offer) || offer.spec.withdrawal_timestamp.is_some()
}

/// What the consumer made of an offer.
pub(super) fn phase(offer: &ResourceOffer) -> Option<OfferPhase> {
    offer.status.as_ref()?.phase
}

/// Whether the consumer has a node for an offer.
pub(super) fn has_node(offer: &ResourceOffer) -> bool {
    match offer.status.as_ref().and_then(|status| status.virtual_kubelet_status) {
        Some(VirtualKubeletStatus::Created | VirtualKubeletStatus::Deleting) => true,
        Some(VirtualKubeletStatus::None) | None => false,
    }
}

/// What the provider made of a request.
pub(super) fn offer_state(request: &ResourceRequest) -> Option<OfferState> {
    request.status.as_ref()?.offer_state
}

/// What the provider says about a request.
pub(super) fn words_on_request(request: &ResourceRequest) -> Option<String> {
    words(&request.status.as_ref()?.conditions)
}

/// What the consumer says about an offer.
pub(super) fn words_on_offer(offer: &ResourceOffer) -> Option<String> {
    words(&offer.status.as_ref()?.conditions)
}

/// What a peer says with the condition.
fn words(conditions: &[Condition]) -> Option<String> {
    let said = conditions.iter().find(|condition| condition.type_ == ACCEPTED)?;
    Some(plain(&format!("{} ({})", said.message, said.reason)))
}

/// The words of a peer, cut short and without anything that could upset a terminal.
pub(crate) fn plain(text: &str) -> String {
    let plain = text.chars().map(|letter| if letter.is_control() { ' ' } else { letter });
    plain.take(MOST_WORDS).collect()
}
