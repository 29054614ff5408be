// Copyright The otelcol-stream Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func scores(t *testing.T) map[string]map[string]*score {
	t.Helper()
	all, err := compare()
	require.NoError(t, err)
	got := map[string]map[string]*score{}
	for i, c := range conversions {
		by := map[string]*score{}
		for j, m := range methods {
			by[m.name] = all[i][j]
		}
		got[c.from.name+" → "+c.to+", "+c.data] = by
	}
	return got
}

// The same numbers were found with a separate implementation, in another language and on real-valued counts, before this one existed.
func TestAgainstAnIndependentImplementation(t *testing.T) {
	got := scores(t)
	for conversion, want := range map[string]map[string]score{
		"HTTP → vLLM TTFT, exp-2 TTFT":                 {"upper": {4.6, 0.29}, "midpoint": {4.6, 0.29}, "equal split": {8.6, 0.83}, "this, linear": {3.8, 0.28}, "this, log": {4.3, 0.35}},
		"GenAI → vLLM TTFT, exp-2 TTFT":                {"upper": {21.8, 2.6}, "midpoint": {21.8, 2.3}, "equal split": {7.0, 1.1}, "this, linear": {8.5, 1.0}, "this, log": {8.2, 0.80}},
		"vLLM TTFT → GenAI, exp-2 TTFT":                {"upper": {31, 2.7}, "midpoint": {31, 2.6}, "equal split": {12.4, 1.5}, "this, linear": {16.2, 1.3}, "this, log": {11.9, 0.95}},
		"exponential, scale 0 → vLLM TTFT, exp-2 TTFT": {"this, linear": {3.1, 0.34}, "this, log": {7.7, 0.79}},
		"exponential, scale 2 → vLLM TTFT, exp-2 TTFT": {"this, linear": {0.34, 0.04}, "this, log": {0.63, 0.05}},
		"exponential, scale 3 → vLLM TTFT, exp-2 TTFT": {"this, linear": {0.24, 0.02}, "this, log": {0.13, 0.02}},
	} {
		for method, w := range want {
			r := got[conversion][method]
			require.NotNil(t, r, conversion)
			assert.InDelta(t, w.worst, r.worst, max(0.06, w.worst*0.01), "%s, %s: worst", conversion, method)
			assert.InDelta(t, w.mean, r.mean, max(0.055, w.mean*0.05), "%s, %s: mean", conversion, method)
		}
	}
}

// What the page claims.
func TestClaims(t *testing.T) {
	all, err := compare()
	require.NoError(t, err)
	peers, auto := methods[:6], len(methods)-1
	for i, c := range conversions {
		if c.from.bounds != nil || c.from.scale < 2 {
			continue
		}
		for j, peer := range peers {
			assert.Less(t, all[i][auto].mean, all[i][j].mean, "%s, %s: %s", c.from.name, c.data, peer.name)
		}
		if c.from.scale >= 3 {
			assert.Less(t, all[i][auto].worst, 0.3, "%s, %s", c.from.name, c.data)
		}
	}
	for _, explicit := range []bool{true, false} {
		ours, _ := meanOf(all, auto, explicit)
		for j, peer := range peers {
			if mean, ok := meanOf(all, j, explicit); ok {
				assert.Less(t, ours, mean, peer.name)
			}
		}
	}
}

func TestPageIsUpToDate(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "rebucketing.md"))
	require.NoError(t, err)
	all, err := compare()
	require.NoError(t, err)
	want, err := insert(string(page), table(all))
	require.NoError(t, err)
	assert.Equal(t, want, string(page), "run `go run . -docs ../../docs`")

	picture := filepath.Join(t.TempDir(), "picture.svg")
	require.NoError(t, drawPicture(picture))
	drawn, err := os.ReadFile(picture)
	require.NoError(t, err)
	kept, err := os.ReadFile(filepath.Join("..", "..", "docs", "rebucketing.svg"))
	require.NoError(t, err)
	assert.Equal(t, string(drawn), string(kept), "run `go run . -docs ../../docs`")
}

func TestInsert(t *testing.T) {
	got, err := insert("a\n"+beginTable+"old\n"+endTable+"b\n", "new\n")
	require.NoError(t, err)
	assert.Equal(t, "a\n"+beginTable+"new\n"+endTable+"b\n", got)
	for _, page := range []string{"", beginTable, endTable} {
		_, err := insert(page, "")
		assert.Error(t, err)
	}
}
