// Copyright The otelcol-stream Authors
// SPDX-License-Identifier: Apache-2.0

package streamprocessor

import (
	"context"
	"encoding/binary"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/consumer/consumertest"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"
)

// percentile is type 7: linear interpolation between closest ranks.
func percentile(sorted []float64, p float64) float64 {
	rank := p * float64(len(sorted)-1)
	low := math.Floor(rank)
	if int(low) == len(sorted)-1 {
		return sorted[len(sorted)-1]
	}
	return sorted[int(low)] + (rank-low)*(sorted[int(low)+1]-sorted[int(low)])
}

// TestLongStream: of 5,001 spans two are left, the bytes fall by 50 times, and nothing that was said of the gaps is lost.
func TestLongStream(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 5))
	instants := []time.Duration{200 * ms}
	var gaps []float64
	for range 4999 {
		gap := time.Duration(rng.Int64N(int64(40 * ms)))
		instants = append(instants, instants[len(instants)-1]+gap)
		gaps = append(gaps, gap.Seconds())
	}
	slices.Sort(gaps)
	s := asgi(instants...)
	s.others = nil
	in := s.batch(s.all()...)
	require.Equal(t, 5001, in.SpanCount())
	h := newHarness(t, folding)
	for i := 0; i < len(s.chunks); i += 512 { // what an SDK puts into one export
		h.consume(t, s.batch(s.chunks[i:min(i+512, len(s.chunks))]...))
	}
	h.consume(t, s.batch(s.parent))
	require.Equal(t, 2, h.sink.SpanCount())
	out := h.sink.AllTraces()[0]
	assertAttrs(t, streamOf(t, out, byID(t, out, idOf(parentID).String())), attrs{
		"stream.chunk.count": 5000, "stream.chunk.spans_folded": 5000, "stream.cadence.quality": "exact",
		"stream.chunk.gap.p50": percentile(gaps, 0.5), "stream.chunk.gap.p95": percentile(gaps, 0.95),
		"stream.chunk.gap.p99": percentile(gaps, 0.99), "stream.chunk.gap.max": gaps[len(gaps)-1],
	})
	m := &ptrace.ProtoMarshaler{}
	before, after := m.TracesSize(in), m.TracesSize(out)
	t.Logf("%d bytes become %d, %.0f times fewer", before, after, float64(before)/float64(after))
	assert.GreaterOrEqual(t, before, 50*after)
}

// fillStreams opens n streams of 50 chunks each, an even mix of requests: what a gateway sees of many servers at once.
func fillStreams(tb testing.TB, n int, consume func(ptrace.Traces) error) {
	tb.Helper()
	const chunks, perRequest = 50, 200
	rng := rand.New(rand.NewPCG(1, 1))
	for from := 0; from < n; from += perRequest {
		for round := range chunks / 10 {
			td := ptrace.NewTraces()
			rs := td.ResourceSpans().AppendEmpty()
			rs.Resource().Attributes().PutStr("service.name", "shop-assistant")
			rs.Resource().Attributes().PutStr("telemetry.sdk.language", "python")
			ss := rs.ScopeSpans().AppendEmpty()
			ss.Scope().SetName("opentelemetry.instrumentation.fastapi")
			for i := from; i < min(from+perRequest, n); i++ {
				at := int64(200*ms) + int64(round)*int64(500*ms)
				for c := range 10 {
					at += int64(20*ms) + rng.Int64N(int64(20*ms))
					s := ss.Spans().AppendEmpty()
					id := pcommon.TraceID{1}
					binary.BigEndian.PutUint64(id[8:], uint64(i+1))
					s.SetTraceID(id)
					s.SetSpanID(idOf(i*chunks + round*10 + c + 1))
					s.SetParentSpanID(idOf(i + 1))
					s.SetName(strings.Clone("GET /chat http send")) // as from the wire: no two share the text
					s.SetKind(ptrace.SpanKindInternal)
					s.SetStartTimestamp(pcommon.Timestamp(shapeStart + at))
					s.SetEndTimestamp(pcommon.Timestamp(shapeStart + at + 50_000))
					s.Attributes().PutStr("asgi.event.type", "http.response.body")
				}
			}
			require.NoError(tb, consume(td))
		}
	}
}

func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// openStreams returns the heap that n open streams of 50 chunks hold and what the processor thinks that it is.
func openStreams(tb testing.TB, n int) (held, estimated int64) {
	tb.Helper()
	cfg := createDefaultConfig().(*Config)
	folding(cfg)
	cfg.ChunkSpans.Wait = time.Hour
	p, err := NewFactory().CreateTraces(context.Background(), nopSettings(), cfg, consumertest.NewNop())
	require.NoError(tb, err)
	require.NoError(tb, p.Start(context.Background(), componenttest.NewNopHost()))
	defer func() { require.NoError(tb, p.Shutdown(context.Background())) }()
	before := heap()
	fillStreams(tb, n, func(td ptrace.Traces) error { return p.ConsumeTraces(context.Background(), td) })
	held = heap() - before
	store := p.(*foldingProcessor).store
	require.Equal(tb, int64(n), store.Open())
	return held, store.Bytes()
}

// TestMemoryOfOpenStreams holds a tenth of 100,000 streams to a tenth of 150 MiB; BenchmarkOpenStreams measures all of them.
func TestMemoryOfOpenStreams(t *testing.T) {
	const n, chunks = 10_000, 50
	held, estimated := openStreams(t, n)
	t.Logf("%d B a stream, %d estimated", held/n, estimated/n)
	assert.Less(t, held, int64(15<<20))
	assert.LessOrEqual(t, held/n, int64(1024+8*chunks))
	assert.InEpsilon(t, held, estimated, 0.35, "the estimate that goes into the telemetry")
}

func BenchmarkOpenStreams(b *testing.B) {
	const n = 100_000
	for b.Loop() {
		held, estimated := openStreams(b, n)
		b.ReportMetric(float64(held)/(1<<20), "MiB")
		b.ReportMetric(float64(held)/n, "B/stream")
		b.ReportMetric(float64(estimated)/(1<<20), "MiB-estimated")
	}
}

// TestMillionChunkSpansOfOneParent: beyond max_chunks chunks only count, and memory does not follow them.
func TestMillionChunkSpansOfOneParent(t *testing.T) {
	const n, perRequest, gap = 1_000_000, 20_000, 10 * us
	h := newHarness(t, folding)
	p := h.Traces.(*foldingProcessor)
	s := sglang(200 * ms)
	span := s.chunks[0]
	for from := 0; from < n; from += perRequest {
		td := s.batch()
		ss := td.ResourceSpans().AppendEmpty().ScopeSpans().AppendEmpty()
		ss.Scope().SetName(s.scope)
		ss.Spans().EnsureCapacity(perRequest)
		for i := from; i < from+perRequest; i++ {
			c := ss.Spans().AppendEmpty()
			span.CopyTo(c)
			c.SetSpanID(idOf(1000 + i))
			c.SetStartTimestamp(pcommon.Timestamp(shapeStart + int64(200*ms) + int64(i)*int64(gap)))
			c.SetEndTimestamp(c.StartTimestamp() + 1)
		}
		h.consume(t, td)
	}
	assert.Less(t, p.store.Bytes(), int64(2<<20), "100,000 instants of one to three bytes, and a histogram")
	s.parent.SetEndTimestamp(pcommon.Timestamp(shapeStart + int64(200*ms) + n*int64(gap)))
	h.consume(t, s.batch(s.parent))
	out := h.sink.AllTraces()[0]
	require.Len(t, spansOf(out), 2)
	assertAttrs(t, streamOf(t, out, byID(t, out, idOf(parentID).String())), attrs{
		"stream.chunk.count": n, "stream.chunk.spans_folded": n, "stream.cadence.quality": "partial",
		"stream.chunk.gap.mean": gap.Seconds(), "stream.chunk.gap.max": gap.Seconds(), "stream.tail": gap.Seconds(),
		"stream.fluidity": absent{},
	})
}

// TestManyChunkSpansThatAreNoStream: body writes without spread must come back, however many they are, without memory following them.
func TestManyChunkSpansThatAreNoStream(t *testing.T) {
	const n, perRequest = 50_000, 500
	h := newHarness(t, folding)
	s := asgi(200 * ms)
	for from := 0; from < n; from += perRequest {
		var spans []ptrace.Span
		for i := range perRequest {
			c := ptrace.NewSpan()
			s.chunks[0].CopyTo(c)
			c.SetSpanID(idOf(1000 + from + i))
			spans = append(spans, c)
		}
		h.consume(t, s.batch(spans...))
	}
	assert.Less(t, h.Traces.(*foldingProcessor).store.Bytes(), int64(1<<20))
	h.consume(t, s.batch(s.parent))
	assert.Len(t, contents(t, h.sink.AllTraces()...), n+1)
}

// TestHugeChunkSpans: whole chunk spans are kept within a budget of memory; those that it has no room for pass.
func TestHugeChunkSpans(t *testing.T) {
	const size, others = 4 << 20, 10
	h := newHarness(t, folding)
	want := map[pcommon.TraceID]int{}
	send := func(s shape) {
		for i, c := range s.chunks {
			c.Attributes().PutStr("content", strings.Repeat(string(rune('a'+i)), size))
			want[c.TraceID()]++
			h.consume(t, s.batch(c))
		}
	}
	send(asgi(200*ms, 201*ms, 202*ms, 203*ms, 204*ms, 205*ms))
	require.Zero(t, h.sink.SpanCount())
	for i := range others { // each of them would fit
		send(asgi(200 * ms).withTrace(i + 1))
	}
	require.Positive(t, h.sink.SpanCount(), "the budget is full")
	assert.Less(t, h.Traces.(*foldingProcessor).store.Bytes(), int64(110<<20), "1 KiB for each of max_streams, and one span")
	require.NoError(t, h.Shutdown(t.Context()))
	got := map[pcommon.TraceID]int{}
	for _, td := range h.sink.AllTraces() {
		for _, s := range spansOf(td) {
			v, _ := s.Attributes().Get("content")
			require.Len(t, v.Str(), size)
			got[s.TraceID()]++
		}
	}
	assert.Equal(t, want, got)
}

func TestHostileTimesAndIDs(t *testing.T) {
	span := func(id int, start, end uint64) ptrace.Span {
		s := bareSpan("decode_loop", id, parentID, ptrace.SpanKindInternal, 0, 0)
		s.SetStartTimestamp(pcommon.Timestamp(start))
		s.SetEndTimestamp(pcommon.Timestamp(end))
		return s
	}
	s := sglang(200 * ms)
	s.chunks = []ptrace.Span{
		span(100, 1, math.MaxInt64), span(101, math.MaxInt64, math.MaxInt64), span(102, 1, 1),
		span(103, math.MaxInt64, math.MaxInt64), span(104, math.MaxInt64/2, math.MaxInt64/2),
	}
	for _, end := range []uint64{uint64(shapeStart) + 1e9, math.MaxInt64, math.MaxUint64} {
		for _, together := range []bool{true, false} {
			h := newHarness(t, folding)
			s.parent.SetEndTimestamp(pcommon.Timestamp(end))
			if together {
				h.consume(t, s.batch(append(slices.Clone(s.chunks), s.parent)...))
			} else {
				h.consume(t, s.batch(s.chunks...))
				h.consume(t, s.batch(s.parent))
			}
			require.NoError(t, h.Shutdown(t.Context()))
			folded := 0
			all := 0
			for _, td := range h.sink.AllTraces() {
				for _, out := range spansOf(td) {
					all++
					if v, ok := out.Attributes().Get("stream.chunk.spans_folded"); ok {
						folded += int(v.Int())
					}
				}
			}
			if folded == 0 {
				assert.Equal(t, 6, all, "what was not folded passed")
			} else {
				assert.Equal(t, 5, folded)
			}
		}
	}

	// One id for all: chunk spans, their parent, a stranger.
	h := newHarness(t, folding)
	same := sglang(200*ms, 400*ms)
	for _, c := range same.chunks {
		c.SetSpanID(idOf(parentID))
	}
	h.consume(t, same.batch(append(same.chunks, same.parent, same.parent)...))
	require.NoError(t, h.Shutdown(t.Context()))
	assert.Equal(t, 4, h.sink.SpanCount())
	// Two parents of one id: one takes the chunk spans, the other passes.
	h = newHarness(t, folding)
	twins := sglang(200*ms, 400*ms)
	h.consume(t, twins.batch(append(twins.chunks, twins.parent, twins.parent)...))
	assert.Equal(t, 3, h.sink.SpanCount())
}

// BenchmarkFoldChunkSpans is the cost of one chunk span, the making of the requests left out: 50 of a stream in five requests, then its
// parent.
func BenchmarkFoldChunkSpans(b *testing.B) {
	instants := make([]time.Duration, 50)
	for i := range instants {
		instants[i] = 200*ms + time.Duration(i)*30*ms
	}
	base := asgi(instants...)
	cfg := createDefaultConfig().(*Config)
	folding(cfg)
	p, err := NewFactory().CreateTraces(context.Background(), nopSettings(), cfg, consumertest.NewNop())
	require.NoError(b, err)
	require.NoError(b, p.Start(context.Background(), componenttest.NewNopHost()))
	defer func() { require.NoError(b, p.Shutdown(context.Background())) }()
	workers, streams := runtime.GOMAXPROCS(0), 200
	spans := 0
	b.ReportAllocs()
	for round := range b.N {
		b.StopTimer()
		sets := make([][]ptrace.Traces, workers)
		for w := range sets {
			sets[w] = requestsOf(base, round*workers+w, streams)
		}
		b.StartTimer()
		var wg sync.WaitGroup
		for _, set := range sets {
			wg.Go(func() {
				for _, td := range set {
					if err := p.ConsumeTraces(context.Background(), td); err != nil {
						b.Error(err)
					}
				}
			})
		}
		wg.Wait()
		spans += workers * streams * 51
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(spans), "ns/span")
}

// requestsOf deals out streams to six requests, the last with the parents.
func requestsOf(base shape, seed, streams int) []ptrace.Traces {
	const perRequest = 10
	requests := make([]ptrace.Traces, 6)
	spans := make([][]ptrace.Span, 6)
	for i := range streams {
		s := base.withTrace(seed*streams + i + 1)
		for c, span := range s.chunks {
			spans[c/perRequest] = append(spans[c/perRequest], span)
		}
		spans[5] = append(spans[5], s.parent)
	}
	for i := range requests {
		requests[i] = base.batch(spans[i]...)
	}
	return requests
}
