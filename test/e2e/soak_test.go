// Copyright The otelcol-stream Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/pmetric/pmetricotlp"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/open-telemetry/opentelemetry-collector-contrib/pkg/pdatautil"

	"github.com/otelcol-stream/otelcol-stream/test/collector"
)

const (
	soakOpen     = 100_000                // streams that are open at any time
	soakVisits   = 1_000                  // of them that a request brings a chunk for
	soakEvery    = 125 * time.Millisecond // from request to request: 8,667 spans a second, of which 667 end a stream
	soakFlat     = 50                     // looks, one a second; shorter runs have too few garbage collections to tell whether memory grows
	soakMinimum  = 100 * time.Millisecond // min_spread, the default
	soakLimit    = 2_000                  // aggregation_cardinality_limit, the default
	maxComplaint = 10
)

// A route is used by one stream, so that there are as many values of the dimension as streams. Series expire soon after: their places are
// taken by others all the time, which is the most that can happen to memory. Both temporalities are there since they keep their series
// in different ways: cumulative in one store, where what has expired must have been exported in full, delta in two that take turns.
func soakConfig(traces, metrics string) string {
	return fmt.Sprintf(`
processors:
  stream: {chunk_spans: {enabled: true, wait: 5m, max_streams: 110000}}
connectors:
  stream: &connector {dimensions: [{name: http.route}], metrics_flush_interval: 5s, metrics_expiration: 10s}
  stream/delta: {<<: *connector, aggregation_temporality: delta}
exporters:
  otlp_http/traces: {endpoint: %q, compression: none, sending_queue: {enabled: false}}
  otlp_http/metrics: {endpoint: %q, compression: none, sending_queue: {enabled: false}}
service:
  pipelines:
    traces: {receivers: [otlp], processors: [stream], exporters: [otlp_http/traces, stream, stream/delta]}
    metrics: {receivers: [stream, stream/delta], exporters: [otlp_http/metrics]}
`, traces, metrics)
}

// complaints keeps the first of what may be wrong a million times.
type complaints struct {
	n     int
	first []string
}

func (c *complaints) unless(ok bool, format string, args ...any) {
	if ok {
		return
	}
	c.n++
	if c.n <= maxComplaint {
		c.first = append(c.first, fmt.Sprintf(format, args...))
	}
}

func (c *complaints) report(t *testing.T) {
	t.Helper()
	assert.Zero(t, c.n, strings.Join(c.first, "\n"))
}

// openStream is a stream without its parent, of which some chunks were sent.
type openStream struct{ stream, chunks int }

// traffic is what was sent: streams are numbered in the order in which they begin.
type traffic struct {
	open        []openStream
	begun, sent int // streams, chunk spans
}

// visit appends the next chunk of a place's stream. A stream that has all its chunks gets its parent, and another takes its place.
func (l *traffic) visit(to ptrace.SpanSlice, place int) {
	at := &l.open[place]
	if at.chunks == soakChunks {
		appendServer(to, at.stream)
		*at = openStream{stream: l.begin()}
	}
	appendChunk(to, at.stream, at.chunks)
	at.chunks++
	l.sent++
}

// request has for each of the next places as many chunks as it is to be visited.
func (l *traffic) request(from int, visits func(place int) int) ptrace.Traces {
	td, spans := asgiRequest()
	for place := from; place < from+soakVisits; place++ {
		for range visits(place) {
			l.visit(spans, place)
		}
	}
	return td
}

func (l *traffic) begin() int {
	l.begun++
	return l.begun - 1
}

// shape is what the gaps of a stream's chunks come to, by gapBefore.
type shape struct{ sum, longest time.Duration }

func shapeOf(stream, chunks int) (s shape) {
	for c := 1; c < chunks; c++ {
		gap := time.Duration(gapBefore(stream, c))
		s.sum += gap
		s.longest = max(s.longest, gap)
	}
	return s
}

func streamOf(trace pcommon.TraceID) int { return int(binary.BigEndian.Uint64(trace[8:])) - 1 }

// arrival is how often the spans of a stream came out, and how many chunk spans: in the summary, and as they were sent.
type arrival struct{ requests, summaries, folded, passed uint8 }

// arrivals is the backend's side of the traces: four bytes for each stream.
type arrivals struct {
	complaints
	streams []arrival
}

func (a *arrivals) see(span ptrace.Span) {
	stream := streamOf(span.TraceID())
	for stream >= len(a.streams) {
		a.streams = append(a.streams, arrival{})
	}
	at := &a.streams[stream]
	switch phase(span) {
	case "request":
		at.requests++
	case "stream":
		at.summaries++
		folded := intAttribute(span, "stream.chunk.spans_folded")
		at.folded += uint8(folded)
		a.unless(intAttribute(span, "stream.chunk.count") == folded, "stream %d: %d chunks, %d of them folded", stream, intAttribute(span, "stream.chunk.count"), folded)
		longest, median := attribute(span, "stream.chunk.gap.max").Double(), attribute(span, "stream.chunk.gap.p50").Double()
		if attribute(span, "stream.outcome").Str() == "incomplete" {
			a.unless(near(longest, shapeOf(stream, folded).longest.Seconds()), "stream %d of %d chunks: longest gap %v s", stream, folded, longest)
			return
		}
		a.unless(folded == soakChunks && near(longest, 0.05) && near(median, 0.03), "stream %d: %d chunks, longest gap %v s, median %v s", stream, folded, longest, median)
	default:
		at.passed++
	}
}

func attribute(span ptrace.Span, key string) pcommon.Value {
	v, ok := span.Attributes().Get(key)
	if !ok {
		return pcommon.NewValueEmpty()
	}
	return v
}

func near(got, want float64) bool { return math.Abs(got-want) <= 1e-9*want }

// grandTotal is what a connector says, or should say, of all streams together.
type grandTotal struct {
	streams, chunks, gaps int64
	gapSum                time.Duration
}

// point is the value of a series at an export.
type point struct {
	start pcommon.Timestamp
	count int64
	sum   float64
}

type pointKey struct {
	metric     string
	attributes [16]byte
}

// tally is the backend's side of the metrics of one temporality. It keeps one export: what a series has grown by since then is added up.
type tally struct {
	complaints
	grandTotal
	exports, series, most int
	before                map[pointKey]point
	at                    pcommon.Timestamp
}

// seriesOf gives every data point of a metric as a count and a sum; of a sum the count is its value.
func seriesOf(m pmetric.Metric, see func(attributes pcommon.Map, p point, at pcommon.Timestamp)) {
	if m.Type() == pmetric.MetricTypeHistogram {
		for _, dp := range m.Histogram().DataPoints().All() {
			see(dp.Attributes(), point{dp.StartTimestamp(), int64(dp.Count()), dp.Sum()}, dp.Timestamp())
		}
		return
	}
	for _, dp := range m.Sum().DataPoints().All() {
		see(dp.Attributes(), point{dp.StartTimestamp(), dp.IntValue(), dp.DoubleValue()}, dp.Timestamp())
	}
}

func temporalityOf(m pmetric.Metric) pmetric.AggregationTemporality {
	if m.Type() == pmetric.MetricTypeHistogram {
		return m.Histogram().AggregationTemporality()
	}
	return m.Sum().AggregationTemporality()
}

func (y *tally) take(metrics pmetric.MetricSlice) {
	now, at := map[pointKey]point{}, y.at
	for _, m := range metrics.All() {
		series, overflows := 0, 0
		seriesOf(m, func(attributes pcommon.Map, p point, when pcommon.Timestamp) {
			series++
			if _, ok := attributes.Get("otel.metric.overflow"); ok {
				overflows++
			}
			at = max(at, when)
			key := pointKey{m.Name(), pdatautil.MapHash(attributes)}
			_, twice := now[key]
			y.unless(!twice, "%s: two points of one series in an export", m.Name())
			now[key] = p
			y.add(m, key, p)
		})
		y.unless(series <= soakLimit && overflows <= 1, "%s: %d series, %d of them overflows", m.Name(), series, overflows)
		y.most = max(y.most, series)
	}
	y.before, y.at = now, at
	y.exports++
}

// add takes the growth of a series. One that the export before had too goes on, unless it is delta; any other begins after that export.
func (y *tally) add(m pmetric.Metric, key pointKey, p point) {
	last, known := y.before[key]
	if known = known && last.start == p.start && temporalityOf(m) == pmetric.AggregationTemporalityCumulative; !known {
		y.unless(p.start >= y.at, "%s: a series begins %v before the last export", m.Name(), time.Duration(y.at-p.start))
		last = point{}
	}
	y.unless(p.count >= last.count, "%s: %d after %d", m.Name(), p.count, last.count)
	switch m.Name() {
	case "stream.count":
		if !known {
			y.series++
		}
		y.streams += p.count - last.count
	case "stream.chunk.count":
		y.chunks += int64(math.Round(p.sum - last.sum))
	case "stream.chunk.gap":
		y.gaps += p.count - last.count
		y.gapSum += seconds(p.sum) - seconds(last.sum)
	}
}

// seconds rounds to what gaps are made of, since floating point does not add up tenths of seconds.
func seconds(s float64) time.Duration {
	return time.Duration(math.Round(s*1000)) * time.Millisecond
}

// startTallies is a backend for metrics. The tallies are complete when the collector has ended.
func startTallies(t *testing.T) (url string, byTemporality map[pmetric.AggregationTemporality]*tally) {
	t.Helper()
	byTemporality = map[pmetric.AggregationTemporality]*tally{
		pmetric.AggregationTemporalityCumulative: {}, pmetric.AggregationTemporalityDelta: {},
	}
	var mu sync.Mutex
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		request := pmetricotlp.NewExportRequest()
		if err != nil || request.UnmarshalProto(body) != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		mu.Lock()
		defer mu.Unlock()
		// All streams are of one resource, so that an export has one scope.
		metrics := request.Metrics().ResourceMetrics().At(0).ScopeMetrics().At(0).Metrics()
		byTemporality[temporalityOf(metrics.At(0))].take(metrics)
	}))
	t.Cleanup(server.Close)
	return server.URL, byTemporality
}

// memory is what a process took, looked at once a second, in bytes.
type memory struct {
	looked    time.Time
	rss, heap []int64
	estimate  int64 // what the processor says that its streams take, at the last look
	series    int64 // most groups of series in the connectors
	// first and last are what had been worked until the first look and until the last.
	first, last work
}

// work is CPU time, in seconds, and the spans that it was for.
type work struct{ cpu, spans float64 }

func (m *memory) look(t *testing.T, p *collector.Process) {
	t.Helper()
	if time.Since(m.looked) < time.Second {
		return
	}
	m.looked = time.Now()
	samples, err := p.Telemetry(t.Context())
	require.NoError(t, err)
	value := func(name string) int64 { return int64(collector.Sum(samples, name, nil)) }
	// The load waits meanwhile, so that it is every one of them.
	require.EqualValues(t, soakOpen, value("otelcol_processor_stream_open_streams"))
	m.rss = append(m.rss, rss(t, p))
	m.heap = append(m.heap, value("otelcol_process_runtime_heap_alloc_bytes"))
	m.estimate = value("otelcol_processor_stream_open_memory")
	m.series = max(m.series, value("otelcol_connector_stream_series"))
	m.last = work{collector.Sum(samples, "otelcol_process_cpu_seconds", nil), collector.Sum(samples, "otelcol_receiver_accepted_spans", nil)}
	if len(m.rss) == 1 {
		m.first = m.last
	}
}

func (m *memory) report(t *testing.T, peak int64) {
	t.Helper()
	thirds := parts(m.rss, 3)
	t.Logf("MiB: resident, thirds of the run %v, tenths %v, peak %d; heap, tenths %v; estimate of the open streams %d; at most %d groups of series",
		thirds, parts(m.rss, 10), peak>>20, parts(m.heap, 10), m.estimate>>20, m.series)
	t.Logf("CPU: %.1f µs a span", 1e6*(m.last.cpu-m.first.cpu)/(m.last.spans-m.first.spans))
	assert.Less(t, peak, int64(512<<20))
	assert.LessOrEqual(t, m.series, int64(2*2*soakLimit), "two connectors, each with two groups of metrics: stream.count has attributes of its own")
	if len(m.rss) >= soakFlat {
		assert.LessOrEqual(t, float64(thirds[2]), 1.1*float64(thirds[1]), "resident memory of the last third of the run and of the middle one, MiB")
	}
}

// parts cuts samples in n and gives the median of each, in MiB.
func parts(samples []int64, n int) []int64 {
	var out []int64
	for i := range n {
		if part := slices.Sorted(slices.Values(samples[i*len(samples)/n : (i+1)*len(samples)/n])); len(part) > 0 {
			out = append(out, part[len(part)/2]>>20)
		}
	}
	return out
}

// expect works out what must have come out of what was sent: of each stream, and of all together.
func (l *traffic) expect() (each []arrival, all grandTotal) {
	each = slices.Repeat([]arrival{{requests: 1, summaries: 1, folded: soakChunks}}, l.begun)
	for _, o := range l.open {
		each[o.stream] = arrival{summaries: 1, folded: uint8(o.chunks)}
		if shapeOf(o.stream, o.chunks).sum < soakMinimum { // it has not shown that it is one
			each[o.stream] = arrival{passed: uint8(o.chunks)}
		}
	}
	for stream, a := range each {
		if a.summaries == 0 {
			continue
		}
		all.streams++
		all.chunks += int64(a.folded)
		all.gaps += int64(a.folded) - 1
		all.gapSum += shapeOf(stream, int(a.folded)).sum
	}
	return each, all
}

// TestSoak keeps 100,000 streams open that begin and end all the time, each with a route of its own, and stops the collector in the middle
// of it. Memory stays where it was, and every chunk that was sent is in exactly one place, in the traces and in the metrics.
func TestSoak(t *testing.T) {
	var out arrivals
	end := startSink(t, out.see)
	url, tallies := startTallies(t)
	p := collector.Start(t, soakConfig(end.url, url))

	l := traffic{open: make([]openStream, soakOpen)}
	for place := range l.open {
		l.open[place].stream = l.begin()
	}
	began := time.Now()
	for from := 0; from < soakOpen; from += soakVisits {
		// Neighbours are at different chunks, so that of the places that a request visits a twelfth end a stream.
		require.NoError(t, p.SendTraces(t.Context(), l.request(from, func(place int) int { return 1 + place%soakChunks })))
	}
	opened := time.Since(began)

	var m memory
	pace := time.NewTicker(soakEvery)
	defer pace.Stop()
	length := secondsFrom(t, "SOAK_SECONDS")
	for request, until := 0, time.Now().Add(length); time.Now().Before(until); request++ {
		m.look(t, p)
		require.NoError(t, p.SendTraces(t.Context(), l.request(request*soakVisits%soakOpen, func(int) int { return 1 })))
		<-pace.C
	}
	peak := peakRSS(t, p)
	began = time.Now()
	require.NoError(t, p.Stop())
	stopped := time.Since(began)

	each, all := l.expect()
	end.locked(func() {
		out.report(t)
		assert.Len(t, out.streams, len(each))
		for stream, want := range each {
			if got := out.streams[stream]; got != want {
				t.Errorf("stream %d: %+v, not %+v", stream, got, want)
				break
			}
		}
	})
	for temporality, y := range tallies {
		y.report(t)
		assert.Equal(t, all, y.grandTotal, temporality)
		t.Logf("%s: %d exports, %d series, at most %d of a metric", temporality, y.exports, y.series, y.most)
	}
	assert.Equal(t, soakLimit, tallies[pmetric.AggregationTemporalityCumulative].most, "the limit was reached")
	t.Logf("%d streams, of which %d ended, and %d chunk spans; opened %d in %v, loaded for %v, stopped in %v",
		l.begun, l.begun-soakOpen, l.sent, soakOpen, opened.Round(time.Millisecond), length, stopped.Round(time.Millisecond))
	m.report(t, peak)
}
