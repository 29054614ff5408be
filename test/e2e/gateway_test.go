// Copyright The otelcol-stream Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/pdata/ptrace/ptraceotlp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	_ "google.golang.org/grpc/encoding/gzip" // exporters compress by default
	"google.golang.org/grpc/status"

	"github.com/otelcol-stream/otelcol-stream/test/collector"
)

const (
	gateways         = 3
	streamsPerSecond = 20
	partsPerStream   = 5
	partEvery        = 200 * time.Millisecond
	chunksPerStream  = 51 // body messages in the capture

	// What the example documents: a finished parent is in a gateway's memory for parent_wait, and a request is under way for
	// as long as the agent's batch and a retry take. A stream that was in flight this long around a disturbance may have
	// been in the memory of what was killed.
	inMemoryWindow = 2 * time.Second
	underWay       = 8 * time.Second
)

// backend is where traces end up. It can refuse, as a backend under maintenance does.
type backend struct {
	ptraceotlp.UnimplementedGRPCServer
	endpoint string
	refusing atomic.Bool
	refusals atomic.Int64

	mu    sync.Mutex
	spans map[spanKey][]ptrace.Span
}

func startBackend(t *testing.T) *backend {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // returns at once
	require.NoError(t, err)
	b := &backend{endpoint: listener.Addr().String(), spans: map[spanKey][]ptrace.Span{}}
	server := grpc.NewServer(grpc.MaxRecvMsgSize(64 << 20))
	ptraceotlp.RegisterGRPCServer(server, b)
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	return b
}

func (b *backend) Export(_ context.Context, request ptraceotlp.ExportRequest) (ptraceotlp.ExportResponse, error) {
	if b.refusing.Load() {
		b.refusals.Add(1)
		return ptraceotlp.NewExportResponse(), status.Error(codes.Unavailable, "under maintenance")
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	collector.Spans([]ptrace.Traces{request.Traces()}, func(_ ptrace.ResourceSpans, _ ptrace.ScopeSpans, span ptrace.Span) {
		key := spanKey{span.TraceID(), span.SpanID()}
		b.spans[key] = append(b.spans[key], span)
	})
	return ptraceotlp.NewExportResponse(), nil
}

// received looks at everything that has arrived, under the lock.
func (b *backend) received(f func(map[spanKey][]ptrace.Span)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	f(b.spans)
}

// sentStream is one request to the application, as its spans went to the agent.
type sentStream struct {
	trace    pcommon.TraceID
	server   pcommon.SpanID
	chunks   map[pcommon.SpanID]bool
	others   []pcommon.SpanID
	accepted []time.Time // when each part was
}

// touches tells whether the stream was on its way at some time between from and to.
func (s *sentStream) touches(from, to time.Time) bool {
	return s.accepted[0].Before(to) && s.accepted[len(s.accepted)-1].After(from)
}

// part is some of the spans of a stream, sent as one request's share.
type part struct {
	stream *sentStream
	td     ptrace.Traces
	due    time.Time
}

// generator makes streams out of a capture and sends their spans as SDKs do: in several requests, mixed with those of other
// streams, in no order, and again when they are refused.
type generator struct {
	capture ptrace.Traces
	streams []*sentStream
	pending []part
	owed    float64
}

func (g *generator) begin(now time.Time) {
	td := replay(g.capture, now, "", "", "")
	stream := &sentStream{chunks: map[pcommon.SpanID]bool{}}
	parts := make([]ptrace.Traces, partsPerStream)
	for i := range parts {
		parts[i] = ptrace.NewTraces()
	}
	collector.Spans([]ptrace.Traces{td}, func(rs ptrace.ResourceSpans, ss ptrace.ScopeSpans, span ptrace.Span) {
		stream.trace = span.TraceID()
		eventType, _ := span.Attributes().Get("asgi.event.type")
		switch {
		case span.Kind() == ptrace.SpanKindServer:
			stream.server = span.SpanID()
		case eventType.Type() == pcommon.ValueTypeStr && eventType.Str() == "http.response.body":
			stream.chunks[span.SpanID()] = true
		default:
			stream.others = append(stream.others, span.SpanID())
		}
		to := parts[rand.IntN(len(parts))].ResourceSpans().AppendEmpty()
		rs.Resource().CopyTo(to.Resource())
		toScope := to.ScopeSpans().AppendEmpty()
		ss.Scope().CopyTo(toScope.Scope())
		span.CopyTo(toScope.Spans().AppendEmpty())
	})
	for i, td := range parts {
		if td.SpanCount() > 0 {
			g.pending = append(g.pending, part{stream, td, now.Add(time.Duration(i) * partEvery)})
		}
	}
	g.streams = append(g.streams, stream)
}

// run sends for a while, and then what is left of the streams that have begun.
func (g *generator) run(t *testing.T, agent func() *collector.Process, length time.Duration) {
	t.Helper()
	tick := time.NewTicker(partEvery / 4)
	defer tick.Stop()
	begun, previous := time.Now(), time.Now()
	for now := range tick.C {
		if now.Sub(begun) < length {
			for g.owed += streamsPerSecond * now.Sub(previous).Seconds(); g.owed >= 1; g.owed-- {
				g.begin(now)
			}
		} else if len(g.pending) == 0 {
			return
		}
		previous = now
		request, due, later := ptrace.NewTraces(), []part(nil), []part(nil)
		for _, p := range g.pending {
			if p.due.After(now) {
				later = append(later, p)
				continue
			}
			due = append(due, p)
			shared := ptrace.NewTraces()
			p.td.CopyTo(shared)
			shared.ResourceSpans().MoveAndAppendTo(request.ResourceSpans())
		}
		if len(due) == 0 || agent().SendTraces(t.Context(), request) != nil {
			continue // refused or not there: all of it again at the next tick
		}
		g.pending = later
		for _, p := range due {
			p.stream.accepted = append(p.stream.accepted, time.Now())
		}
	}
}

// outcome is what arrived of a stream.
type outcome struct {
	servers, halves     int
	folded, passed      int
	missing, duplicated int // of the spans that are neither the server span nor a chunk
}

func (b *backend) outcomes(streams []*sentStream) map[*sentStream]outcome {
	all := make(map[*sentStream]outcome, len(streams))
	b.received(func(spans map[spanKey][]ptrace.Span) {
		halves := map[pcommon.TraceID][]ptrace.Span{}
		for _, copies := range spans {
			for _, span := range copies {
				if phase(span) == "stream" {
					halves[span.TraceID()] = append(halves[span.TraceID()], span)
				}
			}
		}
		for _, stream := range streams {
			o := outcome{servers: len(spans[spanKey{stream.trace, stream.server}]), halves: len(halves[stream.trace])}
			for _, half := range halves[stream.trace] {
				o.folded += intAttribute(half, "stream.chunk.spans_folded")
			}
			for id := range stream.chunks {
				o.passed += len(spans[spanKey{stream.trace, id}])
			}
			for _, id := range stream.others {
				switch n := len(spans[spanKey{stream.trace, id}]); n {
				case 0:
					o.missing++
				case 1:
				default:
					o.duplicated += n - 1
				}
			}
			all[stream] = o
		}
	})
	return all
}

func (o outcome) whole() bool {
	return o == outcome{servers: 1, halves: 1, folded: chunksPerStream}
}

// everythingOnce: nothing is missing and nothing is there twice, though a chunk that came late is a span of its own.
func (o outcome) everythingOnce() bool {
	return o.servers == 1 && o.folded+o.passed == chunksPerStream && o.missing == 0 && o.duplicated == 0
}

// nothingCountedTwice holds whatever is killed.
func (o outcome) nothingCountedTwice() bool {
	return o.servers <= 1 && o.folded+o.passed <= chunksPerStream
}

func TestGatewayTier(t *testing.T) {
	raw, err := os.ReadFile(filepath.Join("testdata", "fastapi", "stream50.traces.json"))
	require.NoError(t, err)
	capture, err := (&ptrace.JSONUnmarshaler{}).UnmarshalTraces(raw)
	require.NoError(t, err)

	end := startBackend(t)
	example := filepath.Join(collector.Root(), "examples", "gateway")
	gatewayOptions := func(work string, endpoints map[string]string) collector.Options {
		return collector.Options{
			Configs: []string{filepath.Join(example, "gateway.yaml")}, Ports: []string{"PROMETHEUS"}, Endpoints: endpoints,
			Env: map[string]string{"BACKEND_ENDPOINT": end.endpoint, "QUEUE_DIR": work},
		}
	}
	var tier [gateways]*collector.Process
	var queues [gateways]string
	agentEnv := map[string]string{"QUEUE_DIR": t.TempDir()}
	for i := range tier {
		queues[i] = t.TempDir()
		tier[i] = collector.StartWith(t, gatewayOptions(queues[i], nil))
		agentEnv[fmt.Sprintf("GATEWAY_%d_ENDPOINT", i)] = tier[i].Endpoints["OTLP_GRPC"]
	}
	agentOptions := collector.Options{Configs: []string{filepath.Join(example, "agent.yaml")}, Env: agentEnv}
	var agent atomic.Pointer[collector.Process]
	agent.Store(collector.StartWith(t, agentOptions))

	// A disturbance, while the load goes on.
	type disturbance struct {
		name     string
		from, to time.Time
	}
	g := &generator{capture: capture}
	during := func(name string, length time.Duration, disturb func()) disturbance {
		var work sync.WaitGroup
		d := disturbance{name: name}
		work.Go(func() {
			<-time.After(2 * time.Second)
			d.from = time.Now()
			disturb()
			d.to = time.Now()
		})
		g.run(t, agent.Load, length)
		work.Wait()
		return d
	}

	// Long enough that most of it lies outside what the kill may still reach.
	g.run(t, agent.Load, inMemoryWindow+underWay+8*time.Second)
	steady := len(g.streams)

	killed := during("gateway killed and started again", 15*time.Second, func() {
		assert.NoError(t, tier[1].Kill()) //nolint:testifylint // not on the test's goroutine
		<-time.After(3 * time.Second)
		endpoints := map[string]string{"OTLP_GRPC": tier[1].Endpoints["OTLP_GRPC"]}
		tier[1] = collector.StartWith(t, gatewayOptions(queues[1], endpoints))
	})
	restarted := during("agent restarted", 12*time.Second, func() {
		previous := agent.Load()
		assert.NoError(t, previous.Stop()) //nolint:testifylint // not on the test's goroutine
		options := agentOptions
		options.Endpoints = map[string]string{"OTLP_GRPC": previous.Endpoints["OTLP_GRPC"]}
		agent.Store(collector.StartWith(t, options))
	})
	refused := during("backend refused for a minute", 66*time.Second, func() {
		end.refusing.Store(true)
		<-time.After(time.Minute)
		end.refusing.Store(false)
	})
	assert.NotZero(t, end.refusals.Load(), "the backend was asked while it refused")

	// Once everything has been handed on, nothing more comes at the end either.
	require.EventuallyWithT(t, func(collect *assert.CollectT) {
		missing := 0
		for stream, o := range end.outcomes(g.streams) {
			if o.servers == 0 && !stream.touches(killed.from.Add(-inMemoryWindow-underWay), killed.to.Add(underWay)) {
				missing++
			}
		}
		assert.Zero(collect, missing)
	}, time.Minute, 500*time.Millisecond)
	require.NoError(t, agent.Load().Stop())
	for _, gateway := range tier {
		require.NoError(t, gateway.Stop())
	}

	outcomes := end.outcomes(g.streams)
	report := map[string]map[string]int{}
	for i, stream := range g.streams {
		o, when := outcomes[stream], "undisturbed"
		switch {
		// First, since what came shortly before may still have been in memory.
		case stream.touches(killed.from.Add(-inMemoryWindow-underWay), killed.to.Add(underWay)):
			when = killed.name
		case i < steady:
			when = "before anything happened"
		case stream.touches(restarted.from.Add(-underWay), restarted.to.Add(underWay)):
			when = restarted.name
		case stream.touches(refused.from, refused.to):
			when = refused.name
		}
		if report[when] == nil {
			report[when] = map[string]int{}
		}
		r := report[when]
		r["streams"]++
		r["chunks passed unfolded"] += o.passed
		if !o.whole() {
			r["not exact"]++
		}
		if o.servers == 0 {
			r["server spans lost"]++
		}
		r["chunks lost"] += max(0, chunksPerStream-o.folded-o.passed)
		r["other spans lost"] += o.missing
		r["other spans twice"] += o.duplicated

		assert.True(t, o.nothingCountedTwice(), "%s: %+v", when, o)
		assert.Zero(t, o.missing, "%s: what is not part of a stream goes straight to the disk", when)
		switch when {
		case killed.name: // what the gateway held in memory is gone: reported
		case restarted.name:
			assert.True(t, o.everythingOnce(), "%s: %+v", when, o)
		default:
			assert.True(t, o.whole(), "%s: %+v", when, o)
		}
	}
	assert.NotEmpty(t, report["before anything happened"], "streams that nothing disturbed, before")
	for when, numbers := range report {
		t.Logf("%s: %v", when, numbers)
	}
	// A third of the traces go to the gateway that was killed, and of those the ones that were on their way at that moment may
	// have been in its memory.
	atRisk := 0
	for _, stream := range g.streams {
		if stream.touches(killed.from.Add(-inMemoryWindow-partsPerStream*partEvery), killed.from) {
			atRisk++
		}
	}
	assert.LessOrEqual(t, report[killed.name]["server spans lost"], atRisk)
	assert.LessOrEqual(t, report[killed.name]["chunks lost"], atRisk*chunksPerStream)
	// A request that had been written to the disk and not yet answered when the gateway died is sent again, spans and ids alike.
	assert.LessOrEqual(t, report[killed.name]["other spans twice"], streamsPerSecond*len(g.streams[0].others))
}
