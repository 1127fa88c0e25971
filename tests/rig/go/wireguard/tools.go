//go:build tools

// Package tools names the binary that the rig builds, so that go.sum covers all it needs.
package tools

import _ "golang.zx2c4.com/wireguard"
