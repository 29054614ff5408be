// Copyright The otelcol-stream Authors
// SPDX-License-Identifier: Apache-2.0

package streamprocessor

import (
	"context"
	"math/rand/v2"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/open-telemetry/opentelemetry-collector-contrib/pkg/golden"

	"github.com/otelcol-stream/otelcol-stream/internal/spanlaws"
	"github.com/otelcol-stream/otelcol-stream/internal/streamspan"
)

// FuzzTraces feeds the bytes of OTLP requests to the processor in each mode: no panic, and the laws hold, twice.
func FuzzTraces(f *testing.F) {
	cases, err := filepath.Glob(filepath.Join("testdata", "cases", "*.json"))
	require.NoError(f, err)
	require.NotEmpty(f, cases)
	for i, path := range cases {
		td, err := golden.ReadTraces(path)
		require.NoError(f, err)
		f.Add(spanlaws.Marshal(td), uint8(i))
	}
	for seed := range uint64(20) {
		f.Add(spanlaws.Marshal(spanlaws.Generate(rand.New(rand.NewPCG(seed, 2)))), uint8(seed))
	}
	modes := []streamspan.Mode{streamspan.ModeSplit, streamspan.ModeAnnotate, streamspan.ModeNest}
	processors := make([]*harness, 2*len(modes))
	for i := range processors {
		processors[i] = newHarness(f, func(c *Config) {
			c.Mode = modes[i%len(modes)]
			if i >= len(modes) {
				c.ChunkEvents.Action = actionKeep
			}
		})
	}
	f.Fuzz(func(t *testing.T, raw []byte, pick uint8) {
		before, err := (&ptrace.ProtoUnmarshaler{}).UnmarshalTraces(raw)
		if err != nil {
			return
		}
		h := processors[int(pick)%len(processors)]
		after := ptrace.NewTraces()
		before.CopyTo(after)
		h.sink.Reset()
		require.NoError(t, h.ConsumeTraces(context.Background(), after))
		_, err = spanlaws.Check(before, after, h.laws())
		require.NoError(t, err)
		once := spanlaws.Marshal(after)
		require.NoError(t, h.ConsumeTraces(context.Background(), after))
		require.Equal(t, once, spanlaws.Marshal(after), "a second pass changed it")
	})
}
