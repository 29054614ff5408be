// Copyright The otelcol-stream Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/otelcol-stream/otelcol-stream/test/collector"
)

// The manifest and the configuration of docs/other-distributions.md work as they stand there, but for the path of the checkout.
func TestUseFromAnotherDistribution(t *testing.T) {
	root := collector.Root()
	page, err := os.ReadFile(filepath.Join(root, "docs", "other-distributions.md"))
	require.NoError(t, err)
	blocks := yamlBlocks(string(page))
	require.Len(t, blocks, 2)

	const replaced = "=> ../otelcol-stream"
	require.Contains(t, blocks[0], replaced)
	dir := t.TempDir()
	manifest := strings.Replace(blocks[0], replaced, "=> "+root, 1)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "manifest.yaml"), []byte(manifest), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "config.yaml"), []byte(blocks[1]), 0o600))

	build := exec.CommandContext(t.Context(), filepath.Join(root, ".tools", "builder"), "--config", "manifest.yaml", "--ldflags", "-s -w")
	build.Dir = dir
	// The flags of `make build`, so that what it compiled is used again.
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-tags=grpcnotrace")
	out, err := build.CombinedOutput()
	require.NoError(t, err, "%s", out)

	binary := filepath.Join(dir, "build", "otelcol-custom")
	out, err = exec.CommandContext(t.Context(), binary, "validate", "--config", filepath.Join(dir, "config.yaml")).CombinedOutput()
	require.NoError(t, err, "%s", out)
	out, err = exec.CommandContext(t.Context(), binary, "components").CombinedOutput()
	require.NoError(t, err, "%s", out)
	assert.Equal(t, 2, strings.Count(string(out), "- name: stream\n"), "processor and connector:\n%s", out)
}

// yamlBlocks returns the fenced blocks of YAML of a Markdown page.
func yamlBlocks(page string) []string {
	var blocks []string
	for _, part := range strings.Split(page, "```yaml\n")[1:] {
		block, _, _ := strings.Cut(part, "```")
		blocks = append(blocks, block)
	}
	return blocks
}
