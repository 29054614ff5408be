// Copyright The otelcol-stream Authors
// SPDX-License-Identifier: Apache-2.0

// Package payload makes the telemetry that everything is measured on: the same bytes in every run, in the shape in which
// instrumentations write it. Sizes that a result depends on are in the names or in constants.
package payload

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/ptrace"
)

// Epoch is the start of the first span.
const Epoch = pcommon.Timestamp(1_750_000_000_000_000_000)

// Attributes of the spans.
const (
	PlainAttributes = 15
	GenAIAttributes = 25
	SmallAttributes = 4
	// ChunksPerSpan is the number of chunk events of a chunked span.
	ChunksPerSpan = 100
	// ChunkEvent is their name.
	ChunkEvent = "gen_ai.content.completion.chunk"
	// FirstChunk is when the first chunk of every streaming span comes, counted from its start.
	FirstChunk = 400 * time.Millisecond
)

// Plain returns n ordinary HTTP server spans of 15 attributes without anything that speaks of streaming.
func Plain(n int) ptrace.Traces { return spans(n, func(int) fill { return plain }) }

// GenAI returns n streaming GenAI client spans of 25 attributes, the flag and the time to first chunk among them, without chunks.
func GenAI(n int) ptrace.Traces { return spans(n, func(int) fill { return genAI }) }

// Small returns n streaming GenAI client spans of four attributes, the flag and the time to first chunk among them, without chunks.
func Small(n int) ptrace.Traces { return spans(n, func(int) fill { return small }) }

// Chunked returns n GenAI client spans with the given number of chunk events.
func Chunked(n, events int) ptrace.Traces { return spans(n, func(int) fill { return chunked(events) }) }

// Mix returns n spans of which 4 % are streaming GenAI spans and 1 % chunked ones, spread evenly; the others are plain.
func Mix(n int) ptrace.Traces {
	return spans(n, func(i int) fill {
		switch i % 100 {
		case 10, 35, 60, 85:
			return genAI
		case 50:
			return chunked(ChunksPerSpan)
		default:
			return plain
		}
	})
}

type fill func(s ptrace.Span, i int)

// spans makes n spans of a trace each under one resource and scope.
func spans(n int, of func(i int) fill) ptrace.Traces {
	td := ptrace.NewTraces()
	rs := td.ResourceSpans().AppendEmpty()
	resource(rs.Resource().Attributes())
	ss := rs.ScopeSpans().AppendEmpty()
	ss.Scope().SetName("io.opentelemetry.tomcat-10.0")
	ss.Scope().SetVersion("2.20.0")
	ss.Spans().EnsureCapacity(n)
	for i := range n {
		s := ss.Spans().AppendEmpty()
		ids(s, i)
		of(i)(s, i)
	}
	return td
}

func resource(m pcommon.Map) {
	m.PutStr("service.name", "shop")
	m.PutStr("service.namespace", "store")
	m.PutStr("service.instance.id", "shop-7d4b9c6f5-x2x8p")
	m.PutStr("service.version", "1.42.0")
	m.PutStr("host.name", "node-17")
	m.PutStr("telemetry.sdk.language", "java")
	m.PutStr("telemetry.sdk.name", "opentelemetry")
	m.PutStr("telemetry.sdk.version", "1.54.0")
}

// ids gives a span ids that look random and its place in time.
func ids(s ptrace.Span, i int) {
	r := rand.New(rand.NewPCG(uint64(i), 1))
	var trace pcommon.TraceID
	var span pcommon.SpanID
	binary.BigEndian.PutUint64(trace[:], r.Uint64())
	binary.BigEndian.PutUint64(trace[8:], r.Uint64()|1)
	binary.BigEndian.PutUint64(span[:], r.Uint64()|1)
	s.SetTraceID(trace)
	s.SetSpanID(span)
	start := Epoch + pcommon.Timestamp(i)*pcommon.Timestamp(time.Millisecond)
	s.SetStartTimestamp(start)
	s.SetEndTimestamp(start + pcommon.Timestamp(2*time.Second))
}

func plain(s ptrace.Span, i int) {
	s.SetName("GET /orders/{id}")
	s.SetKind(ptrace.SpanKindServer)
	m := s.Attributes()
	m.EnsureCapacity(PlainAttributes)
	m.PutStr("http.request.method", "GET")
	m.PutStr("http.route", "/orders/{id}")
	m.PutInt("http.response.status_code", 200)
	m.PutStr("url.scheme", "https")
	m.PutStr("url.path", fmt.Sprintf("/orders/%d", 4711+i))
	m.PutStr("server.address", "shop.example.com")
	m.PutInt("server.port", 443)
	m.PutStr("client.address", "192.0.2.7")
	m.PutStr("network.protocol.version", "1.1")
	m.PutStr("network.peer.address", "10.0.0.1")
	m.PutInt("network.peer.port", int64(32_768+i%20_000))
	m.PutStr("user_agent.original", "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0")
	m.PutInt("thread.id", int64(i%200))
	m.PutStr("thread.name", "http-nio-8080-exec-3")
	m.PutStr("enduser.id", "u-17")
}

func small(s ptrace.Span, i int) {
	model := models[i%len(models)]
	s.SetName("chat " + model)
	s.SetKind(ptrace.SpanKindClient)
	m := s.Attributes()
	m.EnsureCapacity(SmallAttributes)
	m.PutStr("gen_ai.operation.name", "chat")
	m.PutStr("gen_ai.request.model", model)
	m.PutBool("gen_ai.request.stream", true)
	m.PutDouble("gen_ai.response.time_to_first_chunk", FirstChunk.Seconds())
}

var models = [...]string{"gpt-4o-mini", "gpt-4o", "o4-mini"}

func genAI(s ptrace.Span, i int) {
	model := models[i%len(models)]
	s.SetName("chat " + model)
	s.SetKind(ptrace.SpanKindClient)
	m := s.Attributes()
	m.EnsureCapacity(GenAIAttributes)
	m.PutStr("gen_ai.operation.name", "chat")
	m.PutStr("gen_ai.provider.name", "openai")
	m.PutStr("gen_ai.request.model", model)
	m.PutStr("gen_ai.response.model", model+"-2026-03-17")
	m.PutStr("gen_ai.response.id", fmt.Sprintf("chatcmpl-%d", i))
	m.PutBool("gen_ai.request.stream", true)
	m.PutDouble("gen_ai.response.time_to_first_chunk", FirstChunk.Seconds())
	m.PutDouble("gen_ai.request.temperature", 0.2)
	m.PutDouble("gen_ai.request.top_p", 0.9)
	m.PutInt("gen_ai.request.max_tokens", 1024)
	m.PutInt("gen_ai.request.seed", 7)
	m.PutInt("gen_ai.usage.input_tokens", 2_214)
	m.PutInt("gen_ai.usage.output_tokens", int64(80+i%40))
	m.PutInt("gen_ai.usage.cache_read.input_tokens", 1_024)
	m.PutEmptySlice("gen_ai.response.finish_reasons").AppendEmpty().SetStr("stop")
	m.PutStr("gen_ai.output.type", "text")
	m.PutStr("gen_ai.conversation.id", fmt.Sprintf("conv-%d", i/4))
	m.PutStr("openai.api.type", "chat_completions")
	m.PutStr("openai.response.service_tier", "default")
	m.PutStr("server.address", "api.openai.com")
	m.PutInt("server.port", 443)
	m.PutStr("session.id", fmt.Sprintf("session-%d", i/16))
	m.PutStr("user.id", "u-17")
	m.PutStr("deployment.environment.name", "production")
	m.PutStr("app.feature", "support-chat")
}

// chunked adds chunk events to a GenAI span that has no time to first chunk: the first at FirstChunk, gaps of 5 to 25 ms.
func chunked(events int) fill {
	return func(s ptrace.Span, i int) {
		genAI(s, i)
		s.Attributes().Remove("gen_ai.response.time_to_first_chunk")
		r := rand.New(rand.NewPCG(uint64(i), 2))
		at := s.StartTimestamp() + pcommon.Timestamp(FirstChunk)
		s.Events().EnsureCapacity(events)
		for range events {
			e := s.Events().AppendEmpty()
			e.SetName(ChunkEvent)
			e.SetTimestamp(at)
			at += pcommon.Timestamp(5*time.Millisecond) + pcommon.Timestamp(r.Int64N(int64(20*time.Millisecond)))
		}
		s.SetEndTimestamp(max(s.EndTimestamp(), at))
	}
}

// ChunkSpans returns the chunk spans of a number of streams, as ASGI servers write them, one chunk of every stream before the next of any,
// and the SERVER spans that they lie below.
func ChunkSpans(streams, chunks int) (children, parents ptrace.Traces) {
	parents = spans(streams, func(int) fill { return asgiServer })
	children = ptrace.NewTraces()
	rs := children.ResourceSpans().AppendEmpty()
	resource(rs.Resource().Attributes())
	ss := rs.ScopeSpans().AppendEmpty()
	ss.Scope().SetName("opentelemetry.instrumentation.asgi")
	ss.Spans().EnsureCapacity(streams * chunks)
	of := parents.ResourceSpans().At(0).ScopeSpans().At(0).Spans()
	for c := range chunks {
		for i := range streams {
			p, s := of.At(i), ss.Spans().AppendEmpty()
			var id pcommon.SpanID
			binary.BigEndian.PutUint64(id[:], uint64(c*streams+i+1))
			s.SetTraceID(p.TraceID())
			s.SetParentSpanID(p.SpanID())
			s.SetSpanID(id)
			s.SetName("POST /chat http send")
			s.SetKind(ptrace.SpanKindInternal)
			at := p.StartTimestamp() + pcommon.Timestamp(FirstChunk) + pcommon.Timestamp(c)*pcommon.Timestamp(15*time.Millisecond)
			s.SetStartTimestamp(at)
			s.SetEndTimestamp(at + 40_000)
			s.Attributes().PutStr("asgi.event.type", "http.response.body")
			p.SetEndTimestamp(max(p.EndTimestamp(), at+pcommon.Timestamp(time.Millisecond)))
		}
	}
	return children, parents
}

func asgiServer(s ptrace.Span, i int) {
	plain(s, i)
	s.SetName("POST /chat")
	s.Attributes().PutStr("http.request.method", "POST")
}

// Exponential returns a cumulative histogram of n points, each of 160 buckets at scale 3: 1 ms to 1,000 s in seconds.
func Exponential(n int) pmetric.Metrics {
	md, m := metric()
	h := m.SetEmptyExponentialHistogram()
	h.SetAggregationTemporality(pmetric.AggregationTemporalityCumulative)
	h.DataPoints().EnsureCapacity(n)
	for i := range n {
		r := rand.New(rand.NewPCG(uint64(i), 3))
		dp := h.DataPoints().AppendEmpty()
		point(dp.Attributes(), i)
		dp.SetStartTimestamp(Epoch)
		dp.SetTimestamp(Epoch + pcommon.Timestamp(time.Minute))
		dp.SetScale(3)
		dp.Positive().SetOffset(-80)
		counts := make([]uint64, 160)
		total, sum := uint64(0), 0.0
		for b := range counts {
			// A bell over the buckets, as latencies on a logarithmic axis have it.
			d := float64(b-70) / 25
			counts[b] = uint64(1000*math.Exp(-d*d)) + r.Uint64N(3)
			total += counts[b]
			sum += float64(counts[b]) * math.Exp2((float64(b-80)+0.5)/8)
		}
		dp.Positive().BucketCounts().FromRaw(counts)
		dp.SetCount(total)
		dp.SetSum(sum)
	}
	return md
}

// ExplicitBoundaries are those of the explicit histograms: 1 ms to 2^11 s in seconds, powers of two.
func ExplicitBoundaries() []float64 {
	var bounds []float64
	for e := -10; e <= 11; e++ {
		bounds = append(bounds, math.Ldexp(1, e))
	}
	return bounds
}

// Explicit returns a cumulative histogram of n points with ExplicitBoundaries.
func Explicit(n int) pmetric.Metrics {
	md, m := metric()
	h := m.SetEmptyHistogram()
	h.SetAggregationTemporality(pmetric.AggregationTemporalityCumulative)
	h.DataPoints().EnsureCapacity(n)
	bounds := ExplicitBoundaries()
	for i := range n {
		r := rand.New(rand.NewPCG(uint64(i), 4))
		dp := h.DataPoints().AppendEmpty()
		point(dp.Attributes(), i)
		dp.SetStartTimestamp(Epoch)
		dp.SetTimestamp(Epoch + pcommon.Timestamp(time.Minute))
		dp.ExplicitBounds().FromRaw(bounds)
		counts := make([]uint64, len(bounds)+1)
		total := uint64(0)
		for b := range len(bounds) { // nothing above the last boundary
			counts[b] = r.Uint64N(500)
			total += counts[b]
		}
		dp.BucketCounts().FromRaw(counts)
		dp.SetCount(total)
		dp.SetSum(float64(total))
	}
	return md
}

// HistogramName is the name of the histograms.
const HistogramName = "http.server.request.duration"

func metric() (pmetric.Metrics, pmetric.Metric) {
	md := pmetric.NewMetrics()
	rm := md.ResourceMetrics().AppendEmpty()
	resource(rm.Resource().Attributes())
	sm := rm.ScopeMetrics().AppendEmpty()
	sm.Scope().SetName("io.opentelemetry.tomcat-10.0")
	m := sm.Metrics().AppendEmpty()
	m.SetName(HistogramName)
	m.SetUnit("s")
	return md, m
}

func point(m pcommon.Map, i int) {
	m.PutStr("http.request.method", "GET")
	m.PutStr("http.route", fmt.Sprintf("/orders/%d", i))
	m.PutInt("http.response.status_code", 200)
	m.PutStr("url.scheme", "https")
}

// Nanos turns a duration into what is added to a timestamp.
func Nanos(d time.Duration) pcommon.Timestamp { return pcommon.Timestamp(d.Nanoseconds()) }
