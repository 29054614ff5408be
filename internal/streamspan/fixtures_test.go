// Copyright The otelcol-stream Authors
// SPDX-License-Identifier: Apache-2.0

package streamspan

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"
)

const (
	minSpread = 100 * time.Millisecond
	ms        = time.Millisecond
	t0        = pcommon.Timestamp(1_780_000_000_000_000_000)
	chunkName = "gen_ai.content.completion.chunk"
	ttfcKey   = "gen_ai.response.time_to_first_chunk"
)

// at is the instant that lies d after the start of the tests' spans.
func at(d time.Duration) pcommon.Timestamp { return pcommon.Timestamp(int64(t0) + int64(d)) }

func addEvent(s ptrace.Span, name string, d time.Duration) ptrace.SpanEvent {
	e := s.Events().AppendEmpty()
	e.SetName(name)
	e.SetTimestamp(at(d))
	return e
}

// fullSpan has something in every field: a failed GenAI call of 0 to 3 s with chunks at 0.5, 0.7, 2.0 and 2.5 s.
func fullSpan() (ptrace.Traces, ptrace.Span) {
	td := ptrace.NewTraces()
	rs := td.ResourceSpans().AppendEmpty()
	rs.Resource().Attributes().PutStr("service.name", "shop")
	ss := rs.ScopeSpans().AppendEmpty()
	ss.Scope().SetName("opentelemetry.instrumentation.openai.v1")
	s := ss.Spans().AppendEmpty()
	s.SetTraceID(pcommon.TraceID{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15})
	s.SetSpanID(pcommon.SpanID{0xa0, 1, 2, 3, 4, 5, 6, 7})
	s.SetParentSpanID(pcommon.SpanID{0xb0, 1, 2, 3, 4, 5, 6, 7})
	s.SetName("openai.chat")
	s.SetKind(ptrace.SpanKindClient)
	s.SetFlags(0x301) // sampled; its parent is remote
	s.TraceState().FromRaw("ot=th:c,vendor=1")
	s.SetStartTimestamp(t0)
	s.SetEndTimestamp(at(3 * time.Second))
	s.SetDroppedAttributesCount(3)
	s.SetDroppedLinksCount(5)
	s.Status().SetCode(ptrace.StatusCodeError)
	s.Status().SetMessage("connection reset")
	m := s.Attributes()
	m.PutStr("gen_ai.operation.name", "chat")
	m.PutStr("gen_ai.system", "openai")
	m.PutStr("gen_ai.request.model", "gpt-4o-mini")
	m.PutStr("http.route", "/chat")
	m.PutBool("gen_ai.is_streaming", true)
	m.PutInt("gen_ai.usage.output_tokens", 9)
	m.PutStr("error.type", "ConnectionError")
	l := s.Links().AppendEmpty()
	l.SetTraceID(pcommon.TraceID{9})
	l.SetSpanID(pcommon.SpanID{9})
	addEvent(s, "sent", 10*ms)
	addEvent(s, chunkName, 500*ms)
	addEvent(s, chunkName, 700*ms)
	addEvent(s, "log", 1*time.Second)
	addEvent(s, chunkName, 2*time.Second)
	addEvent(s, chunkName, 2500*ms)
	addEvent(s, "exception", 2900*ms)
	addEvent(s, "late entry", 20*ms)
	return td, s
}

func apply(t testing.TB, td ptrace.Traces, opts Options) []Applied {
	t.Helper()
	return rewrite(newFinder(t), NewSplitter(opts), td)
}

func spansIn(td ptrace.Traces) []ptrace.Span {
	var out []ptrace.Span
	for _, rs := range td.ResourceSpans().All() {
		for _, ss := range rs.ScopeSpans().All() {
			for _, s := range ss.Spans().All() {
				out = append(out, s)
			}
		}
	}
	return out
}

type eventAt struct {
	name string
	at   time.Duration
}

func eventsOf(s ptrace.Span) []eventAt {
	var out []eventAt
	for _, e := range s.Events().All() {
		out = append(out, eventAt{e.Name(), time.Duration(e.Timestamp() - t0)})
	}
	return out
}

// assertRaw compares all attributes of a span; doubles within the rounding of one operation.
func assertRaw(t testing.TB, want map[string]any, m pcommon.Map) {
	t.Helper()
	got := m.AsRaw()
	for key, w := range want {
		g, ok := got[key]
		if !assert.True(t, ok, "%s is missing", key) {
			continue
		}
		if f, isFloat := w.(float64); isFloat {
			require.IsType(t, f, g, key)
			assert.InDelta(t, f, g, 1e-12, key)
			continue
		}
		assert.Equal(t, w, g, key)
	}
	for key := range got {
		assert.Contains(t, want, key, "an attribute that was not expected")
	}
}
