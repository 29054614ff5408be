// Copyright The otelcol-stream Authors
// SPDX-License-Identifier: Apache-2.0

package streamspan

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/otelcol-stream/otelcol-stream/internal/cadence"
	"github.com/otelcol-stream/otelcol-stream/internal/dialect"
)

// randomRecord fills every field that a stream span can carry, each absent half of the time.
func randomRecord(r *rand.Rand) Record {
	half := func() bool { return r.IntN(2) == 0 }
	rec := Record{
		Phase:   PhaseStream,
		Dialect: "otelhttp",
		Outcome: []dialect.Outcome{dialect.OutcomeCompleted, dialect.OutcomeIncomplete, dialect.OutcomeCancelled, dialect.OutcomeError, dialect.OutcomeUnknown}[r.IntN(5)],
		Nested:  half(),
		SourceKind: []ptrace.SpanKind{
			ptrace.SpanKindUnspecified, ptrace.SpanKindInternal, ptrace.SpanKindServer, ptrace.SpanKindClient, ptrace.SpanKindProducer, ptrace.SpanKindConsumer,
		}[r.IntN(6)],
	}
	value := func(v *cadence.Value) {
		if half() {
			*v = cadence.Of(r.Float64() * 100)
		}
	}
	count := func(n *int64) {
		if half() {
			*n = 1 + r.Int64N(1e9)
		}
	}
	value(&rec.TimeToFirstChunk)
	value(&rec.Duration)
	if half() {
		rec.FirstChunkSource = "write"
	}
	if half() {
		rec.SourceOperation = "chat"
	}
	count(&rec.EventsCollapsed)
	count(&rec.SpansFolded)
	c := &rec.Cadence
	c.Quality = cadence.Quality(r.IntN(4))
	count(&c.ChunkCount)
	for _, v := range []*cadence.Value{
		&c.Tail, &c.GapMean, &c.GapP50, &c.GapP95, &c.GapP99, &c.GapMax, &c.GapStddev, &c.GapJitter, &c.StallDuration, &c.StallOffset,
		&c.HeadBurst, &c.PeakRate, &c.ChunkTokens, &c.TokenRate, &c.Fluidity, &c.ReaderWait, &c.ChunkBytes,
	} {
		value(v)
	}
	if half() {
		c.Stalls, c.StallCount = true, r.Int64N(5)
	}
	if half() {
		c.TokensKnown, c.TokenCount, rec.TokenSource = true, r.Int64N(1000), "gen_ai.usage.output_tokens"
	}
	if half() {
		c.BytesKnown, c.ByteCount = true, r.Int64N(1e6)
	}
	if half() {
		c.Histogram.Zero = r.Int64N(3)
		for range r.IntN(50) {
			c.Histogram.Observe(r.ExpFloat64())
		}
	}
	return rec
}

// TestRecordRoundTrip: what is written on a span is what is read from it.
func TestRecordRoundTrip(t *testing.T) {
	reader := NewReader(nil)
	var got Record // reused, so that nothing of one is left to the next
	for seed := range uint64(500) {
		want := randomRecord(rand.New(rand.NewPCG(seed, 3)))
		m := pcommon.NewMap()
		m.PutStr("http.route", "/x")
		want.putCommon(m, PhaseStream)
		want.putCadence(m, PhaseStream)
		require.Equal(t, m.Len()-1, want.attributes(), "the capacity that is asked for")
		require.True(t, reader.Read(m, &got))
		if len(got.Cadence.Histogram.Buckets) == 0 {
			// Without buckets the scale says nothing.
			got.Cadence.Histogram.Buckets, got.Cadence.Histogram.Scale = want.Cadence.Histogram.Buckets, want.Cadence.Histogram.Scale
		}
		require.Equal(t, want, got, "seed %d", seed)
	}
}

// TestAttributeNames: the names and types that other programs build on.
func TestAttributeNames(t *testing.T) {
	rec := Record{
		Dialect: "d", FirstChunkSource: "s", Outcome: dialect.OutcomeCompleted, TimeToFirstChunk: cadence.Of(1), Duration: cadence.Of(2), Nested: true,
		EventsCollapsed: 3, SpansFolded: 4, SourceKind: ptrace.SpanKindServer, SourceOperation: "o", TokenSource: "t",
		Cadence: cadence.Summary{
			Quality: cadence.QualityExact, ChunkCount: 5, Tail: cadence.Of(6),
			GapMean: cadence.Of(7), GapP50: cadence.Of(8), GapP95: cadence.Of(9), GapP99: cadence.Of(10), GapMax: cadence.Of(11), GapStddev: cadence.Of(12), GapJitter: cadence.Of(13),
			Histogram: cadence.Histogram{Scale: 2, Zero: 1, Buckets: []cadence.Bucket{{Index: -3, Count: 4}}},
			Stalls:    true, StallCount: 14, StallDuration: cadence.Of(15), StallOffset: cadence.Of(16),
			HeadBurst: cadence.Of(17), PeakRate: cadence.Of(18), TokenCount: 19, TokensKnown: true, ChunkTokens: cadence.Of(20), TokenRate: cadence.Of(21),
			Fluidity: cadence.Of(22), ReaderWait: cadence.Of(23), ByteCount: 24, BytesKnown: true, ChunkBytes: cadence.Of(25),
		},
	}
	m := pcommon.NewMap()
	rec.putCommon(m, PhaseStream)
	rec.putCadence(m, PhaseStream)
	assert.Equal(t, map[string]any{
		"stream.phase": "stream", "stream.dialect": "d", "stream.first_chunk.source": "s", "stream.outcome": "completed",
		"stream.time_to_first_chunk": 1.0, "stream.duration": 2.0, "stream.nested": true,
		"stream.chunk.events_collapsed": int64(3), "stream.chunk.spans_folded": int64(4),
		"stream.source.kind": "SPAN_KIND_SERVER", "stream.source.operation": "o", "stream.token.source": "t",
		"stream.cadence.quality": "exact", "stream.chunk.count": int64(5), "stream.tail": 6.0,
		"stream.chunk.gap.mean": 7.0, "stream.chunk.gap.p50": 8.0, "stream.chunk.gap.p95": 9.0, "stream.chunk.gap.p99": 10.0,
		"stream.chunk.gap.max": 11.0, "stream.chunk.gap.stddev": 12.0, "stream.chunk.gap.jitter": 13.0,
		"stream.chunk.gap.histogram": []any{int64(2), int64(1), int64(-3), int64(4)},
		"stream.stall.count":         int64(14), "stream.stall.duration": 15.0, "stream.stall.offset": 16.0,
		"stream.head_burst": 17.0, "stream.chunk.rate.peak": 18.0, "stream.token.count": int64(19), "stream.chunk.tokens": 20.0,
		"stream.token.rate": 21.0, "stream.fluidity": 22.0, "stream.reader.wait": 23.0, "stream.byte.count": int64(24), "stream.chunk.bytes": 25.0,
	}, m.AsRaw())
}

// TestReadSkipsNonsense: an attribute of the wrong type, or one that cannot be, is as good as absent.
func TestReadSkipsNonsense(t *testing.T) {
	reader := NewReader(nil)
	var rec Record
	m := pcommon.NewMap()
	assert.False(t, reader.Read(m, &rec))
	m.PutStr("stream.dialect", "x")
	assert.False(t, reader.Read(m, &rec), "no phase")
	m.PutInt("stream.phase", 1)
	assert.False(t, reader.Read(m, &rec), "a phase that is no text")

	for _, histogram := range [][]any{
		{}, {5}, {5, -1}, {5, 0, 1}, {5, 0, 1, -1}, {5, 0, 2, 1, 1, 1}, {"5", 0}, {5, 0, 1, 2.5}, {99, 0, 1, 1},
	} {
		m := pcommon.NewMap()
		require.NoError(t, m.FromRaw(map[string]any{
			"stream.phase": "stream", "stream.chunk.gap.histogram": histogram, "stream.chunk.count": -4, "stream.duration": "2.5",
			"stream.tail": 3, "stream.nested": "true", "stream.cadence.quality": "perfect", "stream.source.kind": "SERVER",
			"stream.token.count": 2.5, "stream.something.else": 1, "stream": "x",
		}))
		require.True(t, reader.Read(m, &rec))
		assert.Equal(t, Record{Phase: PhaseStream, Cadence: cadence.Summary{Histogram: cadence.Histogram{Buckets: rec.Cadence.Histogram.Buckets}}}, rec, "%v", histogram)
		assert.Empty(t, rec.Cadence.Histogram.Buckets, "%v", histogram)
	}
}
