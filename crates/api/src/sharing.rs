//! Group `sharing.liqo.io`: what one cluster offers to another.

mod resource_offer;

pub use resource_offer::{
    OfferPhase, OfferedStorageClass, ResourceOffer, ResourceOfferSpec, ResourceOfferStatus,
    VirtualKubeletStatus,
};
