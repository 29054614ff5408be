// Copyright The otelcol-stream Authors
// SPDX-License-Identifier: Apache-2.0

package streamconnector

import (
	"context"
	"fmt"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/ptrace"
)

// BenchmarkConsumeTraces takes batches of 1,000 streams of five models, as they came and as the processor leaves them, and reports the
// time per stream.
func BenchmarkConsumeTraces(b *testing.B) {
	const streams = 1000
	for _, chunks := range []int{1, 10, 100} {
		var spans []chunked
		for i := range streams {
			c := chunked{model: fmt.Sprint("model-", i%5), tokens: int64(2 * chunks), id: byte(i), end: 0.4 + float64(chunks)*0.05}
			for j := range chunks {
				c.chunks = append(c.chunks, 0.4+float64(j)*0.025+float64((i*131+j*7919)%20)*0.001)
			}
			spans = append(spans, c)
		}
		td := raw(spans...)
		split := process(b, td)
		stream := ptrace.NewTraces()
		split.CopyTo(stream)
		stream.ResourceSpans().At(0).ScopeSpans().At(0).Spans().RemoveIf(func(s ptrace.Span) bool {
			v, _ := s.Attributes().Get("stream.phase")
			return v.Str() != "stream"
		})
		for name, batch := range map[string]ptrace.Traces{"raw": td, "split": split, "stream spans only": stream} {
			for _, kind := range []string{"explicit", "exponential"} {
				b.Run(fmt.Sprintf("chunks=%d/%s/%s", chunks, name, kind), func(b *testing.B) {
					h := newHarness(b, func(c *Config) { c.Histogram.Type = kind })
					// As received: what came over the wire has no spare capacity.
					wire, err := (&ptrace.ProtoMarshaler{}).MarshalTraces(batch)
					require.NoError(b, err)
					decoded, err := (&ptrace.ProtoUnmarshaler{}).UnmarshalTraces(wire)
					require.NoError(b, err)
					h.send(b, decoded)
					b.ReportAllocs()
					for b.Loop() {
						_ = h.ConsumeTraces(context.Background(), decoded)
					}
					b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/streams, "ns/stream")
					b.StopTimer()
					var recorded uint64
					for _, p := range points(h.export(b), "stream.count") {
						recorded += p.count
					}
					require.GreaterOrEqual(b, recorded, uint64(streams*b.N))
				})
			}
		}
	}
}

// BenchmarkExport is what one flush costs while the lock is held: 1,000 series of every metric.
func BenchmarkExport(b *testing.B) {
	h := newHarness(b)
	for i := range 1000 {
		span := stalling()
		span.model = strconv.Itoa(i)
		h.send(b, raw(span))
	}
	b.ReportAllocs()
	for b.Loop() {
		h.sink.Reset()
		_ = h.flush(context.Background())
	}
}
