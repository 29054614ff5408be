// Copyright The otelcol-stream Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestDocumentIsUpToDate: the table in the repository is what the captures and the code give now.
func TestDocumentIsUpToDate(t *testing.T) {
	root := filepath.Join("..", "..")
	want, err := generate(root)
	require.NoError(t, err)
	got, err := os.ReadFile(path(root))
	require.NoError(t, err)
	wantLines, gotLines := strings.Split(string(want), "\n"), strings.Split(string(got), "\n")
	for i := range min(len(wantLines), len(gotLines)) {
		require.Equal(t, wantLines[i], gotLines[i], "line %d; run: go run ./test/instrumentationtable", i+1)
	}
	require.Len(t, gotLines, len(wantLines), "run: go run ./test/instrumentationtable")
}

func TestSpread(t *testing.T) {
	for _, tt := range []struct {
		in            []time.Duration
		median, worst time.Duration
	}{
		{nil, 0, 0},
		{[]time.Duration{5}, 5, 5},
		{[]time.Duration{4, -9, 2}, 2, -9},
		{[]time.Duration{4, 1, 8, 2}, 3, 8},
	} {
		median, worst := spread(tt.in)
		assert.Equal(t, tt.median, median)
		assert.Equal(t, tt.worst, worst)
	}
}

func TestSourceName(t *testing.T) {
	for in, want := range map[string]string{
		"mlflow.chunk.item.17": "mlflow.chunk.item.N", "write": "write", "a.b": "a.b", "a.": "a.", "http send": "http send",
	} {
		assert.Equal(t, want, sourceName(in))
	}
}
