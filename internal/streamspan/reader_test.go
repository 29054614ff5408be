// Copyright The otelcol-stream Authors
// SPDX-License-Identifier: Apache-2.0

package streamspan

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/otelcol-stream/otelcol-stream/internal/cadence"
	"github.com/otelcol-stream/otelcol-stream/internal/dialect"
)

// readSimply is Reader.Read as one would write it without regard to time: one look-up for each field.
func readSimply(m pcommon.Map, unread []string) (rec Record) {
	get := func(key string, want pcommon.ValueType) (pcommon.Value, bool) {
		v, ok := m.Get(key)
		return v, ok && v.Type() == want && !slices.Contains(unread, key)
	}
	text := func(key string) string {
		if v, ok := get(key, pcommon.ValueTypeStr); ok {
			return v.Str()
		}
		return ""
	}
	number := func(key string) cadence.Value {
		if v, ok := get(key, pcommon.ValueTypeDouble); ok {
			return cadence.Of(v.Double())
		}
		return cadence.Value{}
	}
	count := func(key string) (int64, bool) {
		if v, ok := get(key, pcommon.ValueTypeInt); ok && v.Int() >= 0 {
			return v.Int(), true
		}
		return 0, false
	}
	c := &rec.Cadence
	rec.Phase, rec.Outcome = Phase(text("stream.phase")), dialect.Outcome(text("stream.outcome"))
	rec.Dialect, rec.FirstChunkSource = text("stream.dialect"), text("stream.first_chunk.source")
	rec.SourceOperation, rec.TokenSource = text("stream.source.operation"), text("stream.token.source")
	rec.TimeToFirstChunk, rec.Duration = number("stream.time_to_first_chunk"), number("stream.duration")
	if v, ok := get("stream.nested", pcommon.ValueTypeBool); ok {
		rec.Nested = v.Bool()
	}
	rec.EventsCollapsed, _ = count("stream.chunk.events_collapsed")
	rec.SpansFolded, _ = count("stream.chunk.spans_folded")
	c.ChunkCount, _ = count("stream.chunk.count")
	c.StallCount, c.Stalls = count("stream.stall.count")
	c.TokenCount, c.TokensKnown = count("stream.token.count")
	c.ByteCount, c.BytesKnown = count("stream.byte.count")
	for q := cadence.QualityNone; q <= cadence.QualityExact; q++ {
		if text("stream.cadence.quality") == q.String() {
			c.Quality = q
		}
	}
	for kind, name := range kindNames {
		if text("stream.source.kind") == name {
			rec.SourceKind = ptrace.SpanKind(kind)
		}
	}
	for _, f := range valueFields {
		*f.of(c) = number(f.key)
	}
	if v, ok := get("stream.chunk.gap.histogram", pcommon.ValueTypeSlice); ok {
		c.Histogram = histogramSimply(v.Slice())
	}
	return rec
}

// histogramSimply is readHistogram in two passes.
func histogramSimply(s pcommon.Slice) cadence.Histogram {
	var ints []int64
	for _, v := range s.All() {
		if v.Type() != pcommon.ValueTypeInt {
			return cadence.Histogram{}
		}
		ints = append(ints, v.Int())
	}
	h, err := cadence.ParseHistogram(ints)
	if err != nil {
		return cadence.Histogram{}
	}
	return h
}

// anyAttribute puts a value of the right type most of the time.
func anyAttribute(r *rand.Rand, m pcommon.Map, key string) {
	texts := []string{
		"stream.phase", "stream.dialect", "stream.first_chunk.source", "stream.outcome", "stream.token.source", "stream.source.operation",
		"stream.source.kind", "stream.cadence.quality",
	}
	counts := []string{
		"stream.chunk.events_collapsed", "stream.chunk.spans_folded", "stream.chunk.count", "stream.stall.count", "stream.token.count", "stream.byte.count",
	}
	n := 0
	switch {
	case r.IntN(10) == 0:
		n = r.IntN(6)
	case slices.Contains(texts, key):
	case slices.Contains(counts, key):
		n = 1
	case key == "stream.nested":
		n = 2
	case key == "stream.chunk.gap.histogram":
		n = 3
	default:
		n = 4
	}
	switch n {
	case 0:
		m.PutStr(key, []string{"", "stream", "exact", "partial", "mean", "none", "SPAN_KIND_SERVER", "SPAN_KIND_CLIENT", "completed"}[r.IntN(9)])
	case 1:
		m.PutInt(key, r.Int64N(4)-1)
	case 2:
		m.PutBool(key, r.IntN(2) == 0)
	case 3:
		anyNumbers(r, m.PutEmptySlice(key))
	case 4:
		m.PutDouble(key, float64(r.IntN(3))/2)
	default:
		m.PutEmpty(key)
	}
}

// anyNumbers puts the numbers of a histogram, half of the time with one of them changed.
func anyNumbers(r *rand.Rand, s pcommon.Slice) {
	var h cadence.Histogram
	for range r.IntN(200) {
		h.Observe(r.ExpFloat64() * float64(r.IntN(4)))
	}
	h.Downscale(r.IntN(3))
	for _, n := range h.AppendInts(nil) {
		s.AppendEmpty().SetInt(n)
	}
	switch at := s.At(r.IntN(s.Len())); r.IntN(8) {
	case 0:
		at.SetInt(at.Int() + r.Int64N(5) - 2)
	case 1:
		at.SetInt(r.Int64() >> r.IntN(64) * int64(1-2*r.IntN(2)))
	case 2:
		at.SetDouble(float64(at.Int()))
	case 3:
		s.AppendEmpty().SetInt(1 << 20)
	}
}

// TestReadAgreesWithLookUps: spans with any of the attributes in any order, more and fewer of them than are predicted, and runs of spans
// that are alike give what one look-up for each field gives. The reader is the same for all of them.
func TestReadAgreesWithLookUps(t *testing.T) {
	wanted := []string{
		"a", "region", "eight888", "gen_ai.request.model", "gen_ai.response.model", "stream.outcome", "stream.tail", strings.Repeat("x", 32),
		strings.Repeat("x", 33),
	}
	others := append([]string{"", "b", "rigeon", "eight889", "gen_ai.request.modem", "hen_ai.request.model", "stream.chunk.gap.p90"}, wanted...)
	for i := range 80 {
		others = append(others, fmt.Sprintf("other.%d", i))
	}
	for _, unread := range [][]string{nil, unread} {
		reader := NewReader(wanted, unread...)
		var got Record
		r := rand.New(rand.NewPCG(7, 8))
		for range 2_000 {
			keys := append(slices.Clone(fieldKeys[fieldNone+1:]), others[:r.IntN(len(others))]...)
			r.Shuffle(len(keys), func(i, j int) { keys[i], keys[j] = keys[j], keys[i] })
			keys = keys[:r.IntN(len(keys))]
			for range r.IntN(4) {
				m := pcommon.NewMap()
				for _, key := range keys {
					anyAttribute(r, m, key)
				}
				want := readSimply(m, unread)
				require.Equal(t, want.Phase != PhaseNone, reader.Read(m, &got))
				require.Equal(t, want.Cadence.Histogram.Count(), reader.Gaps())
				if len(got.Cadence.Histogram.Buckets) == 0 {
					got.Cadence.Histogram.Buckets = want.Cadence.Histogram.Buckets // nil or empty
				}
				require.Equal(t, want, got)
				for i, key := range wanted {
					v, ok := m.Get(key)
					if !ok {
						v = pcommon.Value{}
					}
					require.Equal(t, v, reader.Wanted()[i], key)
				}
			}
		}
	}
}

// TestReadComparesWholeKeys: a key that differs from the expected one in a single byte is another.
func TestReadComparesWholeKeys(t *testing.T) {
	for n := 1; n <= 40; n++ {
		wanted := strings.Repeat("abcdefg", 6)[:n]
		reader := NewReader([]string{wanted})
		var rec Record
		reads := func(key string) bool {
			m := pcommon.NewMap()
			m.PutInt(key, 1)
			reader.Read(m, &rec)
			return reader.Wanted()[0] != pcommon.Value{}
		}
		for i := range n {
			require.True(t, reads(wanted))
			other := []byte(wanted)
			other[i] ^= 1
			require.False(t, reads(string(other)), "%s differs from %s", other, wanted)
		}
		require.True(t, reads(wanted))
		require.False(t, reads(wanted+"a"))
		require.True(t, reads(wanted))
		require.False(t, reads(wanted[1:]))
		require.False(t, reads(""))
	}
}

func FuzzReadHistogram(f *testing.F) {
	f.Add(uint64(1))
	f.Fuzz(func(t *testing.T, seed uint64) {
		s := pcommon.NewSlice()
		anyNumbers(rand.New(rand.NewPCG(seed, 9)), s)
		var got cadence.Histogram
		n := readHistogram(s, &got)
		want := histogramSimply(s)
		assert.Equal(t, want.Count(), n)
		assert.Equal(t, want.AppendInts(nil), got.AppendInts(nil))
	})
}

// TestReadKeepsNoSpan: a reader that is let go of refers to no span.
func TestReadKeepsNoSpan(t *testing.T) {
	reader := NewReader([]string{"region"})
	m := pcommon.NewMap()
	m.PutStr("stream.phase", "stream")
	m.PutStr("region", "north")
	var rec Record
	require.True(t, reader.Read(m, &rec))
	require.Equal(t, "north", reader.Wanted()[0].Str())
	reader.Release()
	assert.Equal(t, [numFields]pcommon.Value{}, reader.fields)
	assert.Equal(t, []pcommon.Value{{}}, reader.Wanted())
}
