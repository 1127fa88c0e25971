//! The agent of all virtual nodes: pods that are bound to them run on their clusters.
