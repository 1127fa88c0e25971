//! What becomes of a ShadowPod on the provider.
