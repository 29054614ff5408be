// Copyright The otelcol-stream Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/pdata/ptrace/ptraceotlp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/otelcol-stream/otelcol-stream/test/collector"
)

// secondsFrom reads how long a test is to load the collector; longer runs are for the figures in docs/operations.md.
func secondsFrom(t *testing.T, variable string) time.Duration {
	t.Helper()
	text := os.Getenv(variable)
	if text == "" {
		return 20 * time.Second
	}
	n, err := strconv.Atoi(text)
	require.NoError(t, err, variable)
	return time.Duration(n) * time.Second
}

// sink is a backend that speaks OTLP/HTTP and takes one request at a time. It can be slow, and it can refuse.
type sink struct {
	url    string
	delay  atomic.Int64 // time.Duration of a request
	answer atomic.Int64 // HTTP status, 0 is success

	mu  sync.Mutex
	see func(ptrace.Span) // under the lock
}

func startSink(t *testing.T, see func(ptrace.Span)) *sink {
	t.Helper()
	s := &sink{see: see}
	server := httptest.NewServer(s)
	s.url = server.URL
	t.Cleanup(server.Close)
	return s
}

func (s *sink) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	request := ptraceotlp.NewExportRequest()
	if err != nil || request.UnmarshalProto(body) != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if delay := time.Duration(s.delay.Load()); delay > 0 {
		select {
		case <-time.After(delay):
		case <-r.Context().Done():
			return
		}
	}
	if code := int(s.answer.Load()); code != 0 {
		w.WriteHeader(code)
		return
	}
	collector.Spans([]ptrace.Traces{request.Traces()}, func(_ ptrace.ResourceSpans, _ ptrace.ScopeSpans, span ptrace.Span) { s.see(span) })
}

// locked looks at what see has collected.
func (s *sink) locked(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

func traceOf(stream int) pcommon.TraceID {
	trace := pcommon.TraceID{1}
	binary.BigEndian.PutUint64(trace[8:], uint64(stream)+1)
	return trace
}

const (
	soakChunks = 12
	streamBase = uint64(1_764_000_000_000_000_000)
)

// gapBefore is the time before chunk c: 10 to 50 ms in turn, so that of the 11 gaps of a stream the longest is 50 ms and the median 30 ms.
func gapBefore(stream, c int) uint64 { return uint64(10+10*((stream+c)%5)) * 1_000_000 }

func appendSpan(to ptrace.SpanSlice, stream int, id uint64, name string, kind ptrace.SpanKind) ptrace.Span {
	span := to.AppendEmpty()
	var spanID pcommon.SpanID
	binary.BigEndian.PutUint64(spanID[:], id)
	span.SetTraceID(traceOf(stream))
	span.SetSpanID(spanID)
	span.SetName(name)
	span.SetKind(kind)
	span.SetStartTimestamp(pcommon.Timestamp(streamBase))
	span.SetEndTimestamp(pcommon.Timestamp(streamBase + 2_000_000_000))
	return span
}

const (
	serverID = 1
	plainID  = 2
	chunkID  = 16 // and up
)

func appendChunk(to ptrace.SpanSlice, stream, c int) {
	at := streamBase + 100_000_000
	for i := 1; i <= c; i++ {
		at += gapBefore(stream, i)
	}
	span := appendSpan(to, stream, chunkID+uint64(c), "GET /chat http send", ptrace.SpanKindInternal)
	span.SetParentSpanID(pcommon.SpanID{7: serverID})
	span.SetStartTimestamp(pcommon.Timestamp(at))
	span.SetEndTimestamp(pcommon.Timestamp(at + 50_000))
	span.Attributes().PutStr("asgi.event.type", "http.response.body")
}

func appendServer(to ptrace.SpanSlice, stream int) {
	span := appendSpan(to, stream, serverID, "GET /chat", ptrace.SpanKindServer)
	span.Attributes().PutStr("http.route", fmt.Sprint("/chat/", stream))
}

func asgiRequest() (ptrace.Traces, ptrace.SpanSlice) {
	td := ptrace.NewTraces()
	rs := td.ResourceSpans().AppendEmpty()
	rs.Resource().Attributes().PutStr("service.name", "shop-assistant")
	ss := rs.ScopeSpans().AppendEmpty()
	ss.Scope().SetName("opentelemetry.instrumentation.fastapi")
	return td, ss.Spans()
}

// retryable tells whether OTLP lets a sender repeat what got this answer, or none in time.
func retryable(err error) bool {
	if errors.Is(err, context.DeadlineExceeded) {
		return true
	}
	if answer, ok := errors.AsType[*collector.StatusError](err); ok {
		return slices.Contains([]int{http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout}, answer.Status)
	}
	return slices.Contains([]codes.Code{codes.Unavailable, codes.ResourceExhausted, codes.DeadlineExceeded, codes.Aborted}, status.Code(err))
}

// peakRSS is the most resident memory that the process ever had.
func peakRSS(t *testing.T, p *collector.Process) int64 { return statusBytes(t, p, "VmHWM:") }

// statusBytes reads an amount of memory that Linux keeps of a process. Elsewhere there is none to read, but CI is Linux.
func statusBytes(t *testing.T, p *collector.Process, field string) int64 {
	t.Helper()
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.PID()))
	if err != nil && os.Getenv("CI") == "" {
		t.Skip("needs /proc")
	}
	require.NoError(t, err)
	for line := range strings.Lines(string(raw)) {
		if rest, ok := strings.CutPrefix(line, field); ok {
			kib, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
			require.NoError(t, err)
			return kib << 10
		}
	}
	require.Fail(t, field+" is missing")
	return 0
}

func sinkConfig(limitMiB int, url, exporter string) string {
	return fmt.Sprintf(`
processors:
  memory_limiter: {check_interval: 100ms, limit_mib: %d, spike_limit_mib: %d}
  stream: {chunk_spans: {enabled: true, wait: 1h, max_streams: 110000}}
connectors:
  stream: {dimensions: [{name: http.route}], aggregation_temporality: delta}
exporters:
  otlp_http: {endpoint: %q, compression: none, %s}
service:
  pipelines:
    traces: {receivers: [otlp], processors: [memory_limiter, stream], exporters: [otlp_http, stream]}
    metrics: {receivers: [stream], exporters: [file/metrics]}
`, limitMiB, limitMiB/4, url, exporter)
}

// streamsCounted is what the connector said in the end.
func streamsCounted(t *testing.T, p *collector.Process) (total int64) {
	t.Helper()
	for _, md := range p.StopAndReadMetrics(t) {
		for _, rm := range md.ResourceMetrics().All() {
			for _, sm := range rm.ScopeMetrics().All() {
				for _, m := range sm.Metrics().All() {
					if m.Name() != "stream.count" {
						continue
					}
					for _, dp := range m.Sum().DataPoints().All() {
						total += dp.IntValue()
					}
				}
			}
		}
	}
	return total
}

// answerOf names what a sender saw of a refusal, for the report.
func answerOf(err error) string {
	if answer, ok := errors.AsType[*collector.StatusError](err); ok {
		return fmt.Sprintf("HTTP %d", answer.Status)
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return "HTTP without an answer in time"
	}
	return "gRPC " + status.Code(err).String()
}

// TestOverload sends more than the backend takes, from senders that try again what is refused. Where the refusal comes from decides
// what the metrics count: a request that the limiter refuses has not been seen by anything, one that the queue refuses by the connector beside it.
// A queue that blocks refuses nothing, so the senders' patience decides.
func TestOverload(t *testing.T) {
	const limitMiB, senders, streamsPerRequest, payload = 192, 6, 10, 32 << 10
	length := 15 * time.Second
	if os.Getenv("OVERLOAD_SECONDS") != "" {
		length = secondsFrom(t, "OVERLOAD_SECONDS")
	}
	for name, c := range map[string]struct {
		queue    string
		refuses  bool
		deadline time.Duration // of the senders; 0 is none
		exact    bool          // the metrics
	}{
		"limiter refuses": {queue: "sizer: bytes, queue_size: 1073741824", refuses: true, exact: true},
		"queue refuses":   {queue: "sizer: requests, queue_size: 8", refuses: true},
		"queue blocks":    {queue: "sizer: requests, queue_size: 8, block_on_overflow: true", exact: true},
		// Six senders wait for a place among eight that are freed one every 100 ms.
		"queue blocks longer than senders wait": {queue: "sizer: requests, queue_size: 8, block_on_overflow: true", refuses: true, deadline: 500 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			delivered, folded, summaries := map[spanKey]int{}, map[pcommon.TraceID]int{}, map[pcommon.TraceID]int{}
			end := startSink(t, func(span ptrace.Span) {
				if phase(span) == "stream" {
					folded[span.TraceID()] += intAttribute(span, "stream.chunk.spans_folded")
					summaries[span.TraceID()]++
				}
				delivered[spanKey{span.TraceID(), span.SpanID()}]++
			})
			end.delay.Store(int64(100 * time.Millisecond))
			p := collector.StartWith(t, collector.Options{
				Configs: []string{collector.Base, sinkConfig(limitMiB, end.url,
					"timeout: 120s, retry_on_failure: {max_elapsed_time: 0s}, sending_queue: {"+c.queue+", num_consumers: 1}")},
				Env: map[string]string{"GOMEMLIMIT": "192MiB"},
			})
			var next, refused, wrong atomic.Int64
			var answers nameCounts
			send := func(first, part int) {
				td, spans := asgiRequest()
				for stream := first; stream < first+streamsPerRequest; stream++ {
					for i := part; i < soakChunks; i += 2 {
						appendChunk(spans, stream, i)
					}
					if part == 1 {
						appendServer(spans, stream)
						continue
					}
					plain := appendSpan(spans, stream, plainID, "SELECT", ptrace.SpanKindClient)
					plain.Attributes().PutStr("db.query.text", strings.Repeat("x", payload))
				}
				for {
					post := p.PostTraces
					if first/streamsPerRequest%2 == 0 {
						post = p.SendTraces
					}
					ctx, cancel := t.Context(), context.CancelFunc(func() {})
					if c.deadline > 0 {
						ctx, cancel = context.WithTimeout(ctx, c.deadline)
					}
					err := post(ctx, td)
					cancel()
					if err == nil {
						return
					}
					refused.Add(1)
					answers.add(answerOf(err))
					if !retryable(err) {
						wrong.Add(1)
						return
					}
					<-time.After(20 * time.Millisecond)
				}
			}
			until := time.Now().Add(length)
			var work sync.WaitGroup
			for range senders {
				work.Go(func() {
					// Until the time is up and a refusal was seen, if there are any, however fast or slow the machine is.
					for time.Now().Before(until) || c.refuses && refused.Load() == 0 {
						first := int(next.Add(streamsPerRequest)) - streamsPerRequest
						send(first, 0)
						send(first, 1)
					}
				})
			}
			// A refused request can only be accepted when something has left, so the backend goes on, slowly, and later fast.
			work.Go(func() {
				<-time.After(time.Until(until))
				for c.refuses && refused.Load() == 0 {
					<-time.After(10 * time.Millisecond)
				}
				end.delay.Store(0)
			})
			work.Wait()
			assert.Equal(t, c.refuses, refused.Load() > 0)
			assert.Zero(t, wrong.Load(), "every refusal may be tried again")
			require.Eventually(t, func() bool { return gauge(t, p, "otelcol_exporter_queue_size") == 0 }, 2*time.Minute, 50*time.Millisecond)

			// Recovered: once it accepts, it accepts everything.
			before := refused.Load()
			for range 20 {
				first := int(next.Add(streamsPerRequest)) - streamsPerRequest
				send(first, 0)
				send(first, 1)
			}
			again := refused.Load() - before
			peak := peakRSS(t, p)
			counted := streamsCounted(t, p)
			streams := int(next.Load())
			end.locked(func() {
				spans, twice, inexact := 0, 0, 0
				for _, n := range delivered {
					spans += n
					twice += n - 1
				}
				for stream := range streams {
					if trace := traceOf(stream); folded[trace] < soakChunks {
						t.Errorf("stream %d folded %d chunks", stream, folded[trace])
						break
					} else if folded[trace] > soakChunks || summaries[trace] > 1 {
						inexact++
					}
				}
				t.Logf("%d streams, %d refusals, %d of them after the load: %v; peak RSS %d MiB; the connector counted %d streams; %d spans came twice, %d streams in more than one summary",
					streams, before+again, again, answers.counts(), peak>>20, counted, twice, inexact)
				if c.deadline == 0 {
					assert.Equal(t, 3*streams, spans, "of each stream both halves and the span beside it")
					assert.Zero(t, twice)
					assert.Zero(t, inexact)
				}
				// A sender that gives up cannot know whether its request was taken in at that moment, and sends it again.
				assert.GreaterOrEqual(t, len(delivered), 3*streams)
			})
			assert.Less(t, peak, int64(2*limitMiB<<20), "limit and spikes between two checks")
			if c.exact {
				assert.EqualValues(t, streams, counted)
			} else {
				assert.GreaterOrEqual(t, counted, int64(streams))
			}
		})
	}
}

// nameCounts counts by name.
type nameCounts struct {
	mu sync.Mutex
	of map[string]int
}

func (c *nameCounts) add(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.of == nil {
		c.of = map[string]int{}
	}
	c.of[name]++
}

func (c *nameCounts) counts() map[string]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.of)
}

// TestGarbageIsNotRefused: the limiter counts what the runtime has not collected yet, and Go collects when the heap has doubled. Unless
// GOMEMLIMIT makes it collect before the soft limit, open streams that fill a good half of that are enough for refusals.
func TestGarbageIsNotRefused(t *testing.T) {
	const limitMiB, spikeMiB, streams, streamsPerRequest, chunksPerRequest = 124, 47, 60_000, 200, 10
	goLimits := map[string]int{"at the soft limit": limitMiB - spikeMiB}
	forTheRecord := os.Getenv("GARBAGE_SECONDS") != ""
	if forTheRecord { // nothing is asserted of how often it refuses there
		goLimits["at the hard limit"] = limitMiB
	}
	for name, goLimitMiB := range goLimits {
		t.Run(name, func(t *testing.T) {
			p := collector.StartWith(t, collector.Options{
				Configs: []string{collector.Base, fmt.Sprintf(`
processors:
  memory_limiter: {check_interval: 1s, limit_mib: %d, spike_limit_mib: %d}
  stream: {chunk_spans: {enabled: true, wait: 1h}}
exporters:
  nop:
service:
  pipelines:
    traces: {receivers: [otlp], processors: [memory_limiter, stream], exporters: [nop]}
`, limitMiB, spikeMiB)},
				Env: map[string]string{"GOMEMLIMIT": fmt.Sprintf("%dMiB", goLimitMiB)},
			})
			requests, refused := 0, 0
			send := func(from, round int) {
				td, spans := asgiRequest()
				for stream := from; stream < from+streamsPerRequest; stream++ {
					for chunk := range chunksPerRequest {
						appendChunk(spans, stream, round*chunksPerRequest+chunk)
					}
				}
				requests++
				for p.SendTraces(t.Context(), td) != nil {
					refused++
					<-time.After(100 * time.Millisecond)
				}
			}
			for from := 0; from < streams; from += streamsPerRequest {
				for round := range 5 {
					send(from, round)
				}
			}
			// More chunks of the same streams: garbage, and hardly any memory that stays.
			length := 8 * time.Second
			if forTheRecord {
				length = secondsFrom(t, "GARBAGE_SECONDS")
			}
			pace := time.NewTicker(25 * time.Millisecond)
			defer pace.Stop()
			for until := time.Now().Add(length); time.Now().Before(until); <-pace.C {
				send(rand.IntN(streams/streamsPerRequest)*streamsPerRequest, 5)
			}
			peak, held := peakRSS(t, p), gauge(t, p, "otelcol_processor_stream_open_memory")
			require.NoError(t, p.Kill()) // what it would write at the end is not the matter
			user, system := p.Usage()
			t.Logf("GOMEMLIMIT=%dMiB: %d of %d requests refused; open streams %.0f MiB, peak RSS %d MiB, CPU %v",
				goLimitMiB, refused, requests, held/(1<<20), peak>>20, (user + system).Round(10*time.Millisecond))
			if goLimitMiB < limitMiB {
				assert.Zero(t, refused)
			}
		})
	}
}

// TestFailingConsumer: without a queue the sender sees what the backend says, and the end is orderly even while the backend hangs.
func TestFailingConsumer(t *testing.T) {
	seen := 0
	end := startSink(t, func(ptrace.Span) { seen++ })
	p := collector.Start(t, sinkConfig(512, end.url, "timeout: 2s, sending_queue: {enabled: false}, retry_on_failure: {enabled: false}"))
	td, spans := asgiRequest()
	appendSpan(spans, 0, plainID, "SELECT", ptrace.SpanKindClient)
	for _, send := range []func(context.Context, ptrace.Traces) error{p.PostTraces, p.SendTraces} {
		end.answer.Store(http.StatusServiceUnavailable)
		err := send(t.Context(), td)
		require.Error(t, err)
		assert.True(t, retryable(err), err)
		end.answer.Store(http.StatusBadRequest)
		err = send(t.Context(), td)
		require.Error(t, err)
		assert.False(t, retryable(err), err)
		end.answer.Store(0)
		require.NoError(t, send(t.Context(), td))
	}
	end.locked(func() { assert.Equal(t, 2, seen) })

	open, chunks := asgiRequest()
	for c := range soakChunks {
		appendChunk(chunks, 1, c)
	}
	require.NoError(t, p.PostTraces(t.Context(), open), "it is in memory, the backend has no say")
	end.delay.Store(int64(time.Hour))
	require.Error(t, p.PostTraces(t.Context(), td), "the exporter's timeout")
	// What cannot be sent at the end is lost, and the exit code and the log say so.
	var exit *collector.ExitError
	require.ErrorAs(t, p.Stop(), &exit)
	assert.Equal(t, 1, exit.Code)
	assert.Contains(t, exit.Logs, "12 spans of open streams could not be sent at shutdown")
	assert.NotContains(t, exit.Logs, "panic")
}

// TestHostileInput: the process stays up, and every span is there, folded or as it came.
func TestHostileInput(t *testing.T) {
	const depth = 5000
	var out []ptrace.Span
	end := startSink(t, func(span ptrace.Span) { out = append(out, span) })
	p := collector.Start(t, sinkConfig(1024, end.url, "sending_queue: {enabled: false}"))

	td, spans := asgiRequest()
	deep := appendSpan(spans, 0, 100, "deep", ptrace.SpanKindClient)
	for m, i := deep.Attributes(), 0; i < depth; i++ {
		m = m.PutEmptyMap("a")
	}
	appendSpan(spans, 0, 101, "large", ptrace.SpanKindClient).Attributes().PutStr("gen_ai.output.messages", strings.Repeat("x", 4<<20))
	appendSpan(spans, 0, 102, "\xff\xfe", ptrace.SpanKindServer).Attributes().PutStr("http.route", "/\xc3\x28")
	for i, at := range []uint64{0, 1, math.MaxInt64, math.MaxInt64 + 1, math.MaxUint64} {
		span := appendSpan(spans, 1, uint64(200+i), "time", ptrace.SpanKindServer)
		span.SetStartTimestamp(pcommon.Timestamp(at))
		span.SetEndTimestamp(pcommon.Timestamp(math.MaxUint64 - at))
		for range 2 {
			event := span.Events().AppendEmpty()
			event.SetName("gen_ai.content.completion.chunk")
			event.SetTimestamp(pcommon.Timestamp(at))
		}
		appendChunk(spans, 2, i)
		chunk := spans.At(spans.Len() - 1)
		chunk.SetStartTimestamp(pcommon.Timestamp(at))
		chunk.SetEndTimestamp(pcommon.Timestamp(math.MaxUint64))
	}
	appendServer(spans, 2)
	for c := range 4 { // two chunk spans of each id, and a parent of the id of its chunk
		appendChunk(spans, 3, c)
		appendChunk(spans, 3, c)
	}
	appendServer(spans, 3)
	appendServer(spans, 3)
	appendSpan(spans, 3, chunkID, "GET /chat", ptrace.SpanKindServer)
	appendSpan(spans, 4, 0, "no id", ptrace.SpanKindServer).SetTraceID(pcommon.TraceID{})
	sent := td.SpanCount()
	require.NoError(t, p.PostTraces(t.Context(), td))

	err := p.PostJSON(t.Context(), "/v1/traces", []byte(strings.Repeat(`{"resourceSpans":[`, 100_000)))
	require.Error(t, err)
	assert.False(t, retryable(err), err)
	assert.True(t, p.Healthy(t.Context()))
	samples, err := p.Telemetry(t.Context())
	require.NoError(t, err)
	duplicates := int(collector.Sum(samples, "otelcol_processor_stream_chunk_spans", map[string]string{"result": "duplicate"}))
	require.NoError(t, p.Stop())

	end.locked(func() {
		passed, folded, names := 0, 0, map[string]int{}
		for _, span := range out {
			names[span.Name()]++
			folded += intAttribute(span, "stream.chunk.spans_folded")
			if phase(span) != "stream" {
				passed++
			}
			switch span.Name() {
			case "deep":
				levels := 0
				for v, ok := span.Attributes().Get("a"); ok; v, ok = v.Map().Get("a") {
					levels++
				}
				assert.Equal(t, depth, levels)
			case "large":
				v, _ := span.Attributes().Get("gen_ai.output.messages")
				assert.Len(t, v.Str(), 4<<20)
			}
		}
		assert.Equal(t, sent, passed+folded+duplicates, "%d passed, %d folded, %d duplicates", passed, folded, duplicates)
		assert.Equal(t, 1, names["\xff\xfe"])
		assert.Equal(t, 5, names["time"])
	})
}
