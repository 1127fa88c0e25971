//! The controller of ShadowPods: pods that other clusters want to run here.
