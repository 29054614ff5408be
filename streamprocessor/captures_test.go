// Copyright The otelcol-stream Authors
// SPDX-License-Identifier: Apache-2.0

package streamprocessor

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/otelcol-stream/otelcol-stream/internal/spanlaws"
	"github.com/otelcol-stream/otelcol-stream/internal/streamspan"
	"github.com/otelcol-stream/otelcol-stream/test/captures"
)

func allCaptures(t testing.TB) []captures.Capture {
	t.Helper()
	all, err := captures.All("..")
	require.NoError(t, err)
	return all
}

// TestCapturesKeepTheLaws passes every export of every capture through the processor in every mode.
func TestCapturesKeepTheLaws(t *testing.T) {
	for _, mode := range []streamspan.Mode{streamspan.ModeSplit, streamspan.ModeAnnotate, streamspan.ModeNest} {
		t.Run(string(mode), func(t *testing.T) {
			h := newHarness(t, func(c *Config) { c.Mode = mode })
			split := 0
			for _, capture := range allCaptures(t) {
				exports, err := capture.Traces()
				require.NoError(t, err)
				for i, in := range exports {
					out := ptrace.NewTraces()
					h.send(t, in).CopyTo(out)
					split += out.SpanCount() - in.SpanCount()
					again := h.send(t, out)
					require.Equal(t, spanlaws.Marshal(out), spanlaws.Marshal(again), "%s export %d: a second pass changed it", capture.Name(), i)
				}
			}
			assert.Equal(t, mode == streamspan.ModeAnnotate, split == 0)
		})
	}
}

// TestCapturesSplitWhereTheFirstChunkIsRecorded compares what is split, and where, with a reading of the captures of its own: every span
// that holds a first-chunk instant is split within 1 ms of it, and no other.
func TestCapturesSplitWhereTheFirstChunkIsRecorded(t *testing.T) {
	h := newHarness(t)
	split, whole := 0, 0
	for _, capture := range allCaptures(t) {
		exports, err := capture.Traces()
		require.NoError(t, err)
		for _, in := range exports {
			out := h.send(t, in)
			for i, rs := range in.ResourceSpans().All() {
				for j, ss := range rs.ScopeSpans().All() {
					for k, s := range ss.Spans().All() {
						got := out.ResourceSpans().At(i).ScopeSpans().At(j).Spans().At(k)
						name := capture.Name() + " " + s.Name() + " " + s.SpanID().String()
						if capture.Scenario == "nonstream" {
							require.Equal(t, streamspan.PhaseNone, phaseOf(got), "%s does not stream", name)
							continue
						}
						f, known := recordedFirstChunk(s, ss.Scope().Name())
						require.Equal(t, known, phaseOf(got) == streamspan.PhaseRequest, "%s: is the first chunk known, and was the span split", name)
						if !known {
							if phaseOf(got) == streamspan.PhaseWhole {
								whole++
							}
							continue
						}
						split++
						assert.LessOrEqual(t, f.Sub(got.EndTimestamp().AsTime()).Abs(), ms, name)
						v, ok := got.Attributes().Get(streamspan.AttrTimeToFirstChunk)
						require.True(t, ok, name)
						assert.InDelta(t, f.Sub(s.StartTimestamp().AsTime()).Seconds(), v.Double(), 0.001, name)
					}
				}
			}
		}
	}
	assert.Greater(t, split, 150)
	assert.Greater(t, whole, 50)
}

// recordedFirstChunk reads the first-chunk instant off a span of the captures, after the notes on each instrumentation and apart from
// the code under test.
func recordedFirstChunk(s ptrace.Span, scope string) (time.Time, bool) {
	start, end := s.StartTimestamp().AsTime(), s.EndTimestamp().AsTime()
	inside := func(at time.Time) (time.Time, bool) { return at, !at.Before(start.Add(-ms)) && !at.After(end.Add(ms)) }

	// Durations that only streams write, by unit.
	for _, d := range []struct {
		key  string
		unit float64
	}{
		{"gen_ai.response.time_to_first_chunk", 1e9},
		{"gen_ai.client.operation.time_to_first_chunk", 1e9},
		{"ai.response.msToFirstChunk", 1e6},
	} {
		if v, ok := s.Attributes().Get(d.key); ok {
			n, err := strconv.ParseFloat(v.AsString(), 64)
			if err == nil {
				return inside(start.Add(time.Duration(n * d.unit)))
			}
		}
	}
	// Strands writes whole milliseconds, for plain calls too. OpenLIT's value under the same key counts from the headers: no instant.
	if v, ok := s.Attributes().Get("gen_ai.server.time_to_first_token"); ok && !strings.Contains(scope, "openlit") && v.Type() == pcommon.ValueTypeInt {
		at := start.Add(time.Duration(v.Int()) * ms)
		if left := end.Sub(at); left >= 100*ms && left >= end.Sub(start)/20 {
			return inside(at)
		}
	}
	// Absolute times.
	if v, ok := s.Attributes().Get("langfuse.observation.completion_start_time"); ok {
		at, err := time.Parse(time.RFC3339Nano, strings.Trim(v.Str(), `"`))
		if err == nil {
			return inside(at)
		}
	}
	if v, ok := s.Attributes().Get("mastra.completion_start_time"); ok {
		at, err := time.Parse(time.RFC3339Nano, v.Str())
		// Written for plain calls too, at their end.
		if left := end.Sub(at); err == nil && left >= 100*ms && left >= end.Sub(start)/20 {
			return inside(at)
		}
	}
	// Events.
	var chunks []time.Time
	writes := false
	for _, e := range s.Events().All() {
		switch name := e.Name(); {
		case name == "First Token Stream Event":
			return inside(e.Timestamp().AsTime())
		case name == "gen_ai.content.completion.chunk", name == "llm.content.completion.chunk":
			chunks = append(chunks, e.Timestamp().AsTime())
		case strings.HasPrefix(name, "mlflow.chunk.item."):
			at := e.Timestamp().AsTime()
			if at.Year() == 1970 { // MLflow 2 wrote microseconds where nanoseconds belong
				at = time.UnixMicro(at.UnixNano())
			}
			chunks = append(chunks, at)
		case name == "write":
			writes = true
			chunks = append(chunks, e.Timestamp().AsTime())
		case name == "message":
			v, _ := e.Attributes().Get("message.type")
			if v.Str() == map[ptrace.SpanKind]string{ptrace.SpanKindClient: "RECEIVED", ptrace.SpanKindServer: "SENT"}[s.Kind()] {
				chunks = append(chunks, e.Timestamp().AsTime())
			}
		}
	}
	// The SDKs of the captures keep the newest events, so of a truncated list the first is not the first chunk.
	if len(chunks) == 0 || s.DroppedEventsCount() > 0 {
		return time.Time{}, false
	}
	slices.SortFunc(chunks, time.Time.Compare)
	_, flagged := s.Attributes().Get("gen_ai.is_streaming")
	spread := chunks[len(chunks)-1].Sub(chunks[0])
	if len(chunks) < 2 && !flagged || writes && spread < 100*ms {
		return time.Time{}, false
	}
	return inside(chunks[0])
}

// TestCapturesCountACallOnce: with OpenInference on top of the Anthropic SDK's own spans, each call is recorded twice. The SDK's span has
// the first chunk, so it counts and the one around it is marked.
func TestCapturesCountACallOnce(t *testing.T) {
	h := newHarness(t)
	for _, scenario := range []string{"smooth4", "smooth1", "headburst", "stall3s", "single", "thinking", "roleonly", "cancelled", "retry_ok"} {
		exports := readCapture(t, "openinference-anthropic", scenario)
		counting, nested := 0, 0
		for _, in := range exports {
			for _, s := range spansOf(h.send(t, in)) {
				_, marked := s.Attributes().Get(streamspan.AttrNested)
				switch phaseOf(s) {
				case streamspan.PhaseStream:
					counting++
					assert.Equal(t, "anthropic.messages.create stream", s.Name())
					assert.False(t, marked)
				case streamspan.PhaseWhole:
					nested++
					assert.Equal(t, "Anthropic Messages", s.Name())
					assert.True(t, marked)
				default:
				}
			}
		}
		assert.Equal(t, 1, counting, scenario)
		assert.Equal(t, 1, nested, scenario)
	}
}

func readCapture(t testing.TB, instrumentation, scenario string) []ptrace.Traces {
	t.Helper()
	for _, c := range allCaptures(t) {
		if c.Instrumentation == instrumentation && c.Scenario == scenario {
			exports, err := c.Traces()
			require.NoError(t, err)
			return exports
		}
	}
	require.Fail(t, "no capture", "%s/%s", instrumentation, scenario)
	return nil
}

// TestSpanLimit: an SDK kept 128 events of more. What is left is a window: the count is right, and the first of a Go SDK's events is not
// taken for the first chunk.
func TestSpanLimit(t *testing.T) {
	h := newHarness(t)
	for _, in := range readCapture(t, "go-otelhttp", "many200") {
		for _, s := range spansOf(in) {
			if s.DroppedEventsCount() == 0 {
				continue
			}
			out := byID(t, h.send(t, in), s.SpanID().String())
			assert.Equal(t, s.EndTimestamp(), out.EndTimestamp())
			writes := 0
			for _, e := range s.Events().All() {
				if e.Name() == "write" {
					writes++
				}
			}
			want := attrs{"stream.phase": "whole", "stream.cadence.quality": "partial", "stream.chunk.count": writes, "stream.time_to_first_chunk": absent{}}
			if writes == s.Events().Len() {
				want["stream.chunk.count"] = writes + int(s.DroppedEventsCount())
			}
			assertAttrs(t, out, want)
			return
		}
	}
	require.Fail(t, "no span over the limit in the capture")
}

func TestErrorsOfTheNextConsumerGoBack(t *testing.T) {
	h := newHarness(t)
	in := readCase(t, "01-role-only-first-chunk")
	failing, err := NewFactory().CreateTraces(context.Background(), nopSettings(), h.cfg, failingConsumer{})
	require.NoError(t, err)
	require.ErrorIs(t, failing.ConsumeTraces(context.Background(), in), errNext)
}
