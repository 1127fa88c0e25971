//! The contract: custom resources, label and annotation names, protobufs; no behaviour.
