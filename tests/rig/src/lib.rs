//! Real Kubernetes clusters on one machine, for tests and for the demo.
