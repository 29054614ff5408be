// Copyright The otelcol-stream Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/otelcol-stream/otelcol-stream/test/captures"
	"github.com/otelcol-stream/otelcol-stream/test/collector"
)

// recorded reads one of the captures that OpenLLMetry for Python wrote: they have an event per chunk and the token usage.
func recorded(t *testing.T, schedule string) ptrace.Traces {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join("testdata", "openllmetry-python", schedule+".traces.json"))
	require.NoError(t, err)
	td, err := (&ptrace.JSONUnmarshaler{}).UnmarshalTraces(raw)
	require.NoError(t, err)
	return td
}

// captured reads a capture under testdata/captures as one request.
func captured(t *testing.T, instrumentation, scenario string) ptrace.Traces {
	t.Helper()
	path := filepath.Join(captures.Dir(collector.Root()), instrumentation, scenario+".traces.jsonl")
	requests, err := collector.ReadTraces(path)
	require.NoError(t, err)
	all := ptrace.NewTraces()
	for _, td := range requests {
		td.ResourceSpans().MoveAndAppendTo(all.ResourceSpans())
	}
	return all
}

// replay copies a capture as if the same had happened again and the last span ended now: times are moved together, ids
// are new and agree with each other. A label that is not empty replaces the service, its instance or the model.
func replay(td ptrace.Traces, now time.Time, service, instance, model string) ptrace.Traces {
	again := ptrace.NewTraces()
	td.CopyTo(again)
	var last pcommon.Timestamp
	traces, spans := map[pcommon.TraceID]pcommon.TraceID{}, map[pcommon.SpanID]pcommon.SpanID{}
	collector.Spans([]ptrace.Traces{again}, func(_ ptrace.ResourceSpans, _ ptrace.ScopeSpans, span ptrace.Span) {
		last = max(last, span.EndTimestamp())
		traces[span.TraceID()], spans[span.SpanID()] = newTraceID(), newSpanID()
	})
	shift := func(at pcommon.Timestamp) pcommon.Timestamp {
		return pcommon.NewTimestampFromTime(at.AsTime().Add(now.Sub(last.AsTime())))
	}
	collector.Spans([]ptrace.Traces{again}, func(rs ptrace.ResourceSpans, _ ptrace.ScopeSpans, span ptrace.Span) {
		replace(rs.Resource().Attributes(), "service.name", service)
		replace(rs.Resource().Attributes(), "service.instance.id", instance)
		if _, ok := span.Attributes().Get("gen_ai.request.model"); ok {
			replace(span.Attributes(), "gen_ai.request.model", model)
		}
		span.SetTraceID(traces[span.TraceID()])
		span.SetSpanID(spans[span.SpanID()])
		if parent, ok := spans[span.ParentSpanID()]; ok {
			span.SetParentSpanID(parent)
		}
		span.SetStartTimestamp(shift(span.StartTimestamp()))
		span.SetEndTimestamp(shift(span.EndTimestamp()))
		for _, event := range span.Events().All() {
			event.SetTimestamp(shift(event.Timestamp()))
		}
	})
	return again
}

func replace(attributes pcommon.Map, key, value string) {
	if value != "" {
		attributes.PutStr(key, value)
	}
}

func newTraceID() (id pcommon.TraceID) {
	for i := range id {
		id[i] = byte(rand.Uint32())
	}
	return id
}

func newSpanID() (id pcommon.SpanID) {
	for i := range id {
		id[i] = byte(rand.Uint32())
	}
	return id
}
