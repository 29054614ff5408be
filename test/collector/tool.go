// Copyright The otelcol-stream Authors
// SPDX-License-Identifier: Apache-2.0

package collector

import (
	"os"
	"os/exec"
	"testing"
)

// Tool finds a program that a test needs. Where it is not installed the test is skipped, but under CI it fails: .ci/run installs all of them.
func Tool(t testing.TB, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err == nil {
		return path
	}
	if os.Getenv("CI") != "" {
		t.Fatalf("%s is not installed, and CI has to have it", name)
	}
	t.Skipf("%s is not installed", name)
	return ""
}
