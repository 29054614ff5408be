// Copyright The otelcol-stream Authors
// SPDX-License-Identifier: Apache-2.0

package streamprocessor

import (
	"context"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/consumer/consumertest"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/open-telemetry/opentelemetry-collector-contrib/pkg/golden"

	"github.com/otelcol-stream/otelcol-stream/internal/spanlaws"
)

// FuzzFolding deals the spans of an OTLP request out to several and folds them: no panic, and every span is one that came out or one that a
// summary counts.
func FuzzFolding(f *testing.F) {
	td, err := golden.ReadTraces(filepath.Join("testdata", "cases", "09-asgi-span-per-chunk.json"))
	require.NoError(f, err)
	f.Add(spanlaws.Marshal(td), uint64(0))
	for i, s := range []shape{asgi(200*ms, 210*ms), sglang(200*ms, 400*ms, 100*ms), codex(300*ms, 900*ms, 901*ms)} {
		f.Add(spanlaws.Marshal(s.batch(s.all()...)), uint64(i))
		f.Add(spanlaws.Marshal(s.batch(s.chunks...)), uint64(i))
	}
	for seed := range uint64(10) {
		f.Add(spanlaws.Marshal(spanlaws.Generate(rand.New(rand.NewPCG(seed, 2)))), seed)
	}
	f.Fuzz(func(t *testing.T, raw []byte, seed uint64) {
		in, err := (&ptrace.ProtoUnmarshaler{}).UnmarshalTraces(raw)
		if err != nil || in.SpanCount() > 200 {
			return
		}
		rng := rand.New(rand.NewPCG(seed, 0))
		requests := make([]ptrace.Traces, 1+rng.IntN(4))
		for i := range requests {
			requests[i] = ptrace.NewTraces()
		}
		seen := map[pcommon.SpanID]bool{}
		for _, rs := range in.ResourceSpans().All() {
			for _, ss := range rs.ScopeSpans().All() {
				for _, s := range ss.Spans().All() {
					if seen[s.SpanID()] || ours(s) {
						return // neither ids that repeat nor spans that look like what is counted below can be accounted for
					}
					seen[s.SpanID()] = true
					r := requests[rng.IntN(len(requests))].ResourceSpans().AppendEmpty()
					rs.Resource().CopyTo(r.Resource())
					c := r.ScopeSpans().AppendEmpty()
					ss.Scope().CopyTo(c.Scope())
					s.CopyTo(c.Spans().AppendEmpty())
				}
			}
		}

		cfg := createDefaultConfig().(*Config)
		folding(cfg)
		cfg.ChunkSpans.MaxStreams, cfg.ChunkSpans.MaxChunks = 1+rng.IntN(4), 2+rng.IntN(6)
		cfg.ChunkSpans.ParentWait = time.Duration(rng.IntN(2)) * time.Hour
		sink := &consumertest.TracesSink{}
		p, err := NewFactory().CreateTraces(context.Background(), nopSettings(), cfg, sink)
		require.NoError(t, err)
		// Not started: its ticks would make the coverage a matter of chance.
		for _, td := range requests {
			require.NoError(t, p.ConsumeTraces(context.Background(), td))
		}
		require.NoError(t, p.Shutdown(context.Background()))

		came, folded := 0, 0
		for _, td := range sink.AllTraces() {
			for _, s := range spansOf(td) {
				if seen[s.SpanID()] {
					came++
				}
				if v, ok := s.Attributes().Get("stream.chunk.spans_folded"); ok {
					folded += int(v.Int())
				}
			}
		}
		require.Equal(t, len(seen), came+folded)
	})
}

func ours(s ptrace.Span) bool {
	for key := range s.Attributes().All() {
		if strings.HasPrefix(key, "stream.") {
			return true
		}
	}
	return false
}
