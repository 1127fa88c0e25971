//go:build tools

// Package tools names the binary that the rig builds, so that go.sum covers all it needs.
package tools

import _ "sigs.k8s.io/metrics-server/cmd/metrics-server"
