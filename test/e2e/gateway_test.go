// Copyright The otelcol-stream Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
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
	agents           = 3
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

	gapMax, gapP50 float64 // seconds
}

// touches tells whether the stream was on its way at some time between from and to.
func (s *sentStream) touches(from, to time.Time) bool {
	return s.accepted[0].Before(to) && s.accepted[len(s.accepted)-1].After(from)
}

// part is some of the spans of a stream, sent as one request's share through one agent.
type part struct {
	stream *sentStream
	td     ptrace.Traces
	due    time.Time
	agent  int
}

// generator makes streams out of a capture and sends their spans as SDKs do: in several requests, mixed with those of other
// streams, in no order, and again when they are refused. The chunks of one stream take two agents by turns and its parent takes a third, as
// happens where a balancer stands between the SDKs and the agents.
type generator struct {
	capture ptrace.Traces
	agents  [agents]atomic.Pointer[collector.Process]
	streams []*sentStream
	pending []part
	owed    float64
}

// jitter moves each chunk of a stream by up to this, so that no two streams have the same gaps.
const jitter = 15 * time.Millisecond

func (g *generator) begin(now time.Time) {
	td := replay(g.capture, now, "", "", "")
	stream := &sentStream{chunks: map[pcommon.SpanID]bool{}}
	parts := make([]part, partsPerStream)
	for i := range parts {
		parts[i] = part{stream, ptrace.NewTraces(), now.Add(time.Duration(i) * partEvery), (len(g.streams) + i%(agents-1)) % agents}
	}
	parent := part{stream, ptrace.NewTraces(), parts[rand.IntN(len(parts))].due, (len(g.streams) + agents - 1) % agents}
	var instants []float64
	collector.Spans([]ptrace.Traces{td}, func(rs ptrace.ResourceSpans, ss ptrace.ScopeSpans, span ptrace.Span) {
		stream.trace = span.TraceID()
		by := &parts[rand.IntN(len(parts))]
		eventType, _ := span.Attributes().Get("asgi.event.type")
		switch {
		case span.Kind() == ptrace.SpanKindServer:
			stream.server, by = span.SpanID(), &parent
		case eventType.Type() == pcommon.ValueTypeStr && eventType.Str() == "http.response.body":
			stream.chunks[span.SpanID()] = true
			earlier := pcommon.Timestamp(rand.Int64N(int64(jitter)))
			span.SetStartTimestamp(span.StartTimestamp() - earlier)
			span.SetEndTimestamp(span.EndTimestamp() - earlier)
			instants = append(instants, float64(span.StartTimestamp().AsTime().Sub(now))/1e9)
		default:
			stream.others = append(stream.others, span.SpanID())
		}
		to := by.td.ResourceSpans().AppendEmpty()
		rs.Resource().CopyTo(to.Resource())
		toScope := to.ScopeSpans().AppendEmpty()
		ss.Scope().CopyTo(toScope.Scope())
		span.CopyTo(toScope.Spans().AppendEmpty())
	})
	for _, p := range append(parts, parent) {
		if p.td.SpanCount() > 0 {
			g.pending = append(g.pending, p)
		}
	}
	stream.gapMax, stream.gapP50 = gapsOf(instants)
	g.streams = append(g.streams, stream)
}

// gapsOf returns the longest and the median gap between instants.
func gapsOf(instants []float64) (longest, median float64) {
	slices.Sort(instants)
	gaps := make([]float64, len(instants)-1)
	for i := range gaps {
		gaps[i] = instants[i+1] - instants[i]
	}
	slices.Sort(gaps)
	return gaps[len(gaps)-1], (gaps[(len(gaps)-1)/2] + gaps[len(gaps)/2]) / 2
}

// run sends for a while, and then what is left of the streams that have begun.
func (g *generator) run(t *testing.T, length time.Duration) {
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
		for agent := range g.agents {
			g.send(t, agent, now)
		}
	}
}

// send sends an agent what is due for it, as one request.
func (g *generator) send(t *testing.T, agent int, now time.Time) {
	t.Helper()
	request, due, later := ptrace.NewTraces(), []part(nil), []part(nil)
	for _, p := range g.pending {
		if p.agent != agent || p.due.After(now) {
			later = append(later, p)
			continue
		}
		due = append(due, p)
		shared := ptrace.NewTraces()
		p.td.CopyTo(shared)
		shared.ResourceSpans().MoveAndAppendTo(request.ResourceSpans())
	}
	if len(due) == 0 || g.agents[agent].Load().SendTraces(t.Context(), request) != nil {
		return // refused or not there: all of it again at the next tick
	}
	g.pending = later
	for _, p := range due {
		p.stream.accepted = append(p.stream.accepted, time.Now())
	}
}

// outcome is what arrived of a stream.
type outcome struct {
	servers, halves     int
	folded, passed      int
	otherGaps           bool // a summary's gaps are not those of the chunks that were sent
	missing, duplicated int  // of the spans that are neither the server span nor a chunk
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
				o.otherGaps = o.otherGaps || !hasGaps(half, stream)
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

func hasGaps(half ptrace.Span, stream *sentStream) bool {
	longest, _ := half.Attributes().Get("stream.chunk.gap.max")
	median, _ := half.Attributes().Get("stream.chunk.gap.p50")
	return sameSeconds(longest, stream.gapMax) && sameSeconds(median, stream.gapP50)
}

// sameSeconds allows for the nanoseconds that a sum of floating-point numbers loses.
func sameSeconds(have pcommon.Value, want float64) bool {
	return have != (pcommon.Value{}) && math.Abs(have.Double()-want) < 1e-8
}

// whole: one summary, of all chunks, with the gaps that there were between them.
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
	g := &generator{capture: capture}
	agentEnv := map[string]string{}
	for i := range tier {
		queues[i] = t.TempDir()
		tier[i] = collector.StartWith(t, gatewayOptions(queues[i], nil))
		agentEnv[fmt.Sprintf("GATEWAY_%d_ENDPOINT", i)] = tier[i].Endpoints["OTLP_GRPC"]
	}
	var agentOptions [agents]collector.Options
	for i := range agentOptions {
		env := maps.Clone(agentEnv)
		env["QUEUE_DIR"] = t.TempDir()
		agentOptions[i] = collector.Options{Configs: []string{filepath.Join(example, "agent.yaml")}, Env: env}
		g.agents[i].Store(collector.StartWith(t, agentOptions[i]))
	}

	// A disturbance, while the load goes on.
	type disturbance struct {
		name     string
		from, to time.Time
	}
	during := func(name string, length time.Duration, disturb func()) disturbance {
		var work sync.WaitGroup
		d := disturbance{name: name}
		work.Go(func() {
			<-time.After(2 * time.Second)
			d.from = time.Now()
			disturb()
			d.to = time.Now()
		})
		g.run(t, length)
		work.Wait()
		return d
	}

	// Long enough that most of it lies outside what the kill may still reach.
	g.run(t, inMemoryWindow+underWay+8*time.Second)
	steady := len(g.streams)

	killed := during("gateway killed and started again", 15*time.Second, func() {
		assert.NoError(t, tier[1].Kill()) //nolint:testifylint // not on the test's goroutine
		<-time.After(3 * time.Second)
		endpoints := map[string]string{"OTLP_GRPC": tier[1].Endpoints["OTLP_GRPC"]}
		tier[1] = collector.StartWith(t, gatewayOptions(queues[1], endpoints))
	})
	restarted := during("one of three agents restarted", 12*time.Second, func() {
		previous, options := g.agents[0].Load(), agentOptions[0]
		assert.NoError(t, previous.Stop()) //nolint:testifylint // not on the test's goroutine
		options.Endpoints = map[string]string{"OTLP_GRPC": previous.Endpoints["OTLP_GRPC"]}
		g.agents[0].Store(collector.StartWith(t, options))
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
	for i := range g.agents {
		require.NoError(t, g.agents[i].Load().Stop())
	}
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
			if stream.accepted[0].After(killed.from) {
				r["not exact though begun after the kill"]++
			}
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
