//! What the pod at home shows of the one over there.
