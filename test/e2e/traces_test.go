// Copyright The otelcol-stream Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"os"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/otelcol-stream/otelcol-stream/test/captures"
	"github.com/otelcol-stream/otelcol-stream/test/collector"
)

const tracesPipeline = `
processors:
  stream: {}
service:
  pipelines:
    traces: {receivers: [otlp], processors: [stream], exporters: [file/traces]}
`

// spanKey: ids repeat between captures of different runs only by chance, but a span may be exported twice by its SDK.
type spanKey struct {
	trace pcommon.TraceID
	span  pcommon.SpanID
}

// account is what must not get lost.
type account struct {
	spans  map[spanKey]int
	events map[spanKey]int // still there, and collapsed into a summary
	total  int
}

func newAccount() *account {
	return &account{spans: map[spanKey]int{}, events: map[spanKey]int{}}
}

// add books a span. The events of the stream half belong to the span whose child it is.
func (a *account) add(span ptrace.Span) {
	a.total++
	key := spanKey{span.TraceID(), span.SpanID()}
	if phase(span) == "stream" {
		key.span = span.ParentSpanID()
	} else {
		a.spans[key]++
	}
	a.events[key] += span.Events().Len() + intAttribute(span, "stream.chunk.events_collapsed")
}

func phase(span ptrace.Span) string {
	value, ok := span.Attributes().Get("stream.phase")
	if !ok {
		return ""
	}
	return value.Str()
}

func intAttribute(span ptrace.Span, key string) int {
	value, ok := span.Attributes().Get(key)
	if !ok {
		return 0
	}
	return int(value.Int())
}

func allCaptures(t *testing.T) []captures.Capture {
	t.Helper()
	all, err := captures.All(collector.Root())
	require.NoError(t, err)
	return all
}

// postCapture sends a capture as it was recorded, by OTLP/HTTP with JSON.
func postCapture(ctx context.Context, t *testing.T, c *collector.Process, capture captures.Capture) {
	t.Helper()
	raw, err := os.ReadFile(capture.TracesPath())
	require.NoError(t, err)
	for line := range bytes.Lines(raw) {
		if line = bytes.TrimSpace(line); len(line) > 0 {
			require.NoError(t, c.PostJSON(ctx, "/v1/traces", line), capture.Name())
		}
	}
}

func TestEveryCaptureGoesThroughWithNothingLost(t *testing.T) {
	for _, transport := range []string{"http", "grpc"} {
		t.Run(transport, func(t *testing.T) {
			c := collector.Start(t, tracesPipeline)
			before := newAccount()
			for _, capture := range allCaptures(t) {
				requests, err := capture.Traces()
				require.NoError(t, err)
				collector.Spans(requests, func(_ ptrace.ResourceSpans, _ ptrace.ScopeSpans, span ptrace.Span) { before.add(span) })
				if transport == "http" {
					postCapture(t.Context(), t, c, capture)
					continue
				}
				for _, td := range requests {
					require.NoError(t, c.SendTraces(t.Context(), td), capture.Name())
				}
			}

			after, streams := newAccount(), 0
			collector.Spans(c.StopAndReadTraces(t), func(_ ptrace.ResourceSpans, _ ptrace.ScopeSpans, span ptrace.Span) {
				after.add(span)
				if phase(span) == "stream" {
					streams++
				}
			})
			assert.Equal(t, before.spans, after.spans, "every span that came in is still there, under its own id")
			assert.Equal(t, before.events, after.events, "events kept and events collapsed are the events that came in")
			assert.Equal(t, before.total+streams, after.total, "nothing but stream halves is new")
			assert.NotZero(t, streams)
		})
	}
}

// assertSameSpans compares all of every span, whatever the order and the batches.
func assertSameSpans(t *testing.T, want, got []ptrace.Traces) {
	t.Helper()
	difference := exact(t, want)
	for span, n := range exact(t, got) {
		difference[span] -= n
	}
	var missing, extra []string
	for span, n := range difference {
		switch {
		case n > 0:
			missing = append(missing, span)
		case n < 0:
			extra = append(extra, span)
		}
	}
	if len(missing)+len(extra) > 0 {
		t.Errorf("%d spans are missing, %d are new or changed", len(missing), len(extra))
	}
	for _, one := range []struct {
		what  string
		spans []string
	}{{"missing", missing}, {"new or changed", extra}} {
		if len(one.spans) > 0 {
			t.Logf("first one %s: %s", one.what, slices.Min(one.spans))
		}
	}
}

// exact counts spans by their JSON form, with what they hang from.
func exact(t *testing.T, all []ptrace.Traces) map[string]int {
	t.Helper()
	spans := map[string]int{}
	marshaler := ptrace.JSONMarshaler{}
	collector.Spans(all, func(rs ptrace.ResourceSpans, ss ptrace.ScopeSpans, span ptrace.Span) {
		one := ptrace.NewTraces()
		toRS := one.ResourceSpans().AppendEmpty()
		rs.Resource().CopyTo(toRS.Resource())
		toRS.SetSchemaUrl(rs.SchemaUrl())
		toSS := toRS.ScopeSpans().AppendEmpty()
		ss.Scope().CopyTo(toSS.Scope())
		toSS.SetSchemaUrl(ss.SchemaUrl())
		span.CopyTo(toSS.Spans().AppendEmpty())
		raw, err := marshaler.MarshalTraces(one)
		require.NoError(t, err)
		spans[string(raw)]++
	})
	return spans
}

func TestSecondPassChangesNothing(t *testing.T) {
	first := collector.Start(t, tracesPipeline)
	for _, capture := range allCaptures(t) {
		postCapture(t.Context(), t, first, capture)
	}
	once := first.StopAndReadTraces(t)

	second := collector.Start(t, tracesPipeline)
	for _, td := range once {
		require.NoError(t, second.PostTraces(t.Context(), td))
	}
	twice := second.StopAndReadTraces(t)
	assertSameSpans(t, once, twice)
}

func TestPlainSpansLeaveAsTheyCame(t *testing.T) {
	// These write nothing that tells a stream from any other call, and were chosen by what the captures' README says, not by what comes out.
	plain := map[string]bool{
		"elastic-openai": true, "go-otelgrpc": true, "go-otelhttp-noevents": true, "langchain-traceloop": true,
		"otel-openai": true, "otel-openai-responses": true, "traceloop-genai": true,
	}
	c := collector.Start(t, tracesPipeline)
	var sent []ptrace.Traces
	for _, capture := range allCaptures(t) {
		if !plain[capture.Instrumentation] {
			continue
		}
		requests, err := capture.Traces()
		require.NoError(t, err)
		for _, td := range requests {
			require.NoError(t, c.PostTraces(t.Context(), td), capture.Name())
		}
		sent = append(sent, requests...)
	}
	require.NotEmpty(t, sent)
	assertSameSpans(t, sent, c.StopAndReadTraces(t))
}
