//! What API servers ask of the kubelet of a virtual node: logs, commands, ports.
