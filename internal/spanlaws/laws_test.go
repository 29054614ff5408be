// Copyright The otelcol-stream Authors
// SPDX-License-Identifier: Apache-2.0

package spanlaws

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"
)

var settings = Settings{Mode: "split", Suffix: " stream", Copy: []string{"http.route"}}

// source is a batch of a span that streams, with a chunk at 400 (collapsed) and one at 700 (kept), and a plain one behind it.
func source() ptrace.Traces {
	td := ptrace.NewTraces()
	rs := td.ResourceSpans().AppendEmpty()
	rs.Resource().Attributes().PutStr("service.name", "a")
	ss := rs.ScopeSpans().AppendEmpty()
	ss.Scope().SetName("scope")
	s := ss.Spans().AppendEmpty()
	s.SetTraceID(pcommon.TraceID{1})
	s.SetSpanID(pcommon.SpanID{2})
	s.SetParentSpanID(pcommon.SpanID{3})
	s.SetName("chat")
	s.SetKind(ptrace.SpanKindClient)
	s.SetFlags(0x301)
	s.TraceState().FromRaw("x=y")
	s.SetStartTimestamp(100)
	s.SetEndTimestamp(1000)
	s.SetDroppedAttributesCount(1)
	s.Status().SetCode(ptrace.StatusCodeError)
	s.Status().SetMessage("boom")
	s.Attributes().PutStr("http.route", "/chat")
	s.Attributes().PutStr("user", "u")
	s.Attributes().PutStr("error.type", "timeout")
	s.Links().AppendEmpty().SetSpanID(pcommon.SpanID{7})
	for _, e := range []struct {
		name string
		at   pcommon.Timestamp
	}{{"sent", 200}, {"chunk", 400}, {"chunk", 700}, {"exception", 900}} {
		ev := s.Events().AppendEmpty()
		ev.SetName(e.name)
		ev.SetTimestamp(e.at)
	}
	plain := ss.Spans().AppendEmpty()
	plain.SetTraceID(pcommon.TraceID{1})
	plain.SetSpanID(pcommon.SpanID{9})
	plain.SetName("plain")
	return td
}

// divided is the source as it should leave: written down by hand.
func divided() ptrace.Traces {
	td := source()
	spans := td.ResourceSpans().At(0).ScopeSpans().At(0).Spans()
	r := spans.At(0)
	r.SetEndTimestamp(400)
	ptrace.NewStatus().CopyTo(r.Status())
	r.Attributes().Remove("error.type")
	r.Attributes().PutStr("stream.phase", "request")
	i := 0
	r.Events().RemoveIf(func(ptrace.SpanEvent) bool { i++; return i > 1 })

	t := spans.AppendEmpty()
	t.SetTraceID(pcommon.TraceID{1})
	t.SetSpanID(pcommon.SpanID{4})
	t.SetParentSpanID(pcommon.SpanID{2})
	t.SetName("chat stream")
	t.SetKind(ptrace.SpanKindInternal)
	t.SetFlags(0x101)
	t.TraceState().FromRaw("x=y")
	t.SetStartTimestamp(400)
	t.SetEndTimestamp(1000)
	t.Status().SetCode(ptrace.StatusCodeError)
	t.Status().SetMessage("boom")
	t.Attributes().PutStr("stream.phase", "stream")
	t.Attributes().PutInt("stream.chunk.events_collapsed", 1)
	t.Attributes().PutStr("http.route", "/chat")
	t.Attributes().PutStr("error.type", "timeout")
	for _, e := range []struct {
		name string
		at   pcommon.Timestamp
	}{{"chunk", 700}, {"exception", 900}} {
		ev := t.Events().AppendEmpty()
		ev.SetName(e.name)
		ev.SetTimestamp(e.at)
	}
	return td
}

// TestLawsHold: the checker accepts what is right.
func TestLawsHold(t *testing.T) {
	tally, err := Check(source(), divided(), settings)
	require.NoError(t, err)
	assert.Equal(t, Tally{Split: 1, Untouched: 1, Collapsed: 1}, tally)
	tally, err = Check(source(), source(), settings)
	require.NoError(t, err)
	assert.Equal(t, Tally{Untouched: 2}, tally)
}

// TestLawsAreChecked breaks each law in turn: a checker that accepts everything would prove nothing.
func TestLawsAreChecked(t *testing.T) {
	for name, breakIt := range map[string]func(td ptrace.Traces, r, plain, st ptrace.Span){
		"request span starts later":    func(_ ptrace.Traces, r, _, _ ptrace.Span) { r.SetStartTimestamp(101) },
		"a gap between the halves":     func(_ ptrace.Traces, r, _, _ ptrace.Span) { r.SetEndTimestamp(399) },
		"stream span ends earlier":     func(_ ptrace.Traces, _, _, st ptrace.Span) { st.SetEndTimestamp(999) },
		"first chunk outside the span": func(_ ptrace.Traces, r, _, st ptrace.Span) { r.SetEndTimestamp(1001); st.SetStartTimestamp(1001) },
		"an event is lost":             func(_ ptrace.Traces, _, _, st ptrace.Span) { dropEvent(st, 0) },
		"an event is doubled":          func(_ ptrace.Traces, _, _, st ptrace.Span) { st.Events().At(0).CopyTo(st.Events().AppendEmpty()) },
		"an event is on both": func(_ ptrace.Traces, r, _, st ptrace.Span) {
			st.Events().At(1).CopyTo(r.Events().AppendEmpty())
			st.Attributes().PutInt("stream.chunk.events_collapsed", 0)
		},
		"an event is on the wrong half": func(_ ptrace.Traces, r, _, st ptrace.Span) {
			st.Events().At(0).MoveTo(r.Events().AppendEmpty())
			dropEvent(st, 0)
		},
		"events change order": func(_ ptrace.Traces, _, _, st ptrace.Span) {
			st.Events().Sort(func(a, b ptrace.SpanEvent) bool { return a.Timestamp() > b.Timestamp() })
		},
		"an event changes": func(_ ptrace.Traces, _, _, st ptrace.Span) { st.Events().At(0).SetName("x") },
		"a count that does not add up": func(_ ptrace.Traces, _, _, st ptrace.Span) {
			st.Attributes().PutInt("stream.chunk.events_collapsed", 2)
		},
		"an attribute is lost":              func(_ ptrace.Traces, r, _, _ ptrace.Span) { r.Attributes().Remove("user") },
		"an attribute changes":              func(_ ptrace.Traces, r, _, _ ptrace.Span) { r.Attributes().PutInt("user", 1) },
		"an attribute out of nowhere":       func(_ ptrace.Traces, r, _, _ ptrace.Span) { r.Attributes().PutStr("new", "x") },
		"error.type on both":                func(_ ptrace.Traces, r, _, _ ptrace.Span) { r.Attributes().PutStr("error.type", "timeout") },
		"error.type is lost":                func(_ ptrace.Traces, _, _, st ptrace.Span) { st.Attributes().Remove("error.type") },
		"a copy is missing":                 func(_ ptrace.Traces, _, _, st ptrace.Span) { st.Attributes().Remove("http.route") },
		"content on the stream span":        func(_ ptrace.Traces, _, _, st ptrace.Span) { st.Attributes().PutStr("user", "u") },
		"a failed request span":             func(_ ptrace.Traces, r, _, _ ptrace.Span) { r.Status().SetCode(ptrace.StatusCodeError) },
		"a stream span without the failure": func(_ ptrace.Traces, _, _, st ptrace.Span) { st.Status().SetCode(ptrace.StatusCodeOk) },
		"another id":                        func(_ ptrace.Traces, r, _, _ ptrace.Span) { r.SetSpanID(pcommon.SpanID{5}) },
		"another parent":                    func(_ ptrace.Traces, r, _, _ ptrace.Span) { r.SetParentSpanID(pcommon.SpanID{5}) },
		"a stream span without an id":       func(_ ptrace.Traces, _, _, st ptrace.Span) { st.SetSpanID(pcommon.SpanID{}) },
		"a stream span with the same id":    func(_ ptrace.Traces, _, _, st ptrace.Span) { st.SetSpanID(pcommon.SpanID{2}) },
		"a stream span of another trace":    func(_ ptrace.Traces, _, _, st ptrace.Span) { st.SetTraceID(pcommon.TraceID{2}) },
		"a call counted twice":              func(_ ptrace.Traces, _, _, st ptrace.Span) { st.SetKind(ptrace.SpanKindClient) },
		"another kind":                      func(_ ptrace.Traces, r, _, _ ptrace.Span) { r.SetKind(ptrace.SpanKindInternal) },
		"another name":                      func(_ ptrace.Traces, r, _, _ ptrace.Span) { r.SetName("chats") },
		"the suffix is missing":             func(_ ptrace.Traces, _, _, st ptrace.Span) { st.SetName("chat") },
		"flags say that the parent is far":  func(_ ptrace.Traces, _, _, st ptrace.Span) { st.SetFlags(0x301) },
		"trace state is lost":               func(_ ptrace.Traces, _, _, st ptrace.Span) { st.TraceState().FromRaw("") },
		"links are lost": func(_ ptrace.Traces, r, _, _ ptrace.Span) {
			r.Links().RemoveIf(func(ptrace.SpanLink) bool { return true })
		},
		"links are doubled":          func(_ ptrace.Traces, _, _, st ptrace.Span) { st.Links().AppendEmpty() },
		"dropped counts are lost":    func(_ ptrace.Traces, r, _, _ ptrace.Span) { r.SetDroppedAttributesCount(0) },
		"dropped counts are doubled": func(_ ptrace.Traces, _, _, st ptrace.Span) { st.SetDroppedEventsCount(1) },
		"a plain span changes":       func(_ ptrace.Traces, _, plain, _ ptrace.Span) { plain.Attributes().PutStr("x", "y") },
		"a plain span is lost":       func(td ptrace.Traces, _, _, _ ptrace.Span) { dropSpan(td, 1) },
		"the stream span is lost":    func(td ptrace.Traces, _, _, _ ptrace.Span) { dropSpan(td, 2) },
		"a span out of nowhere":      func(td ptrace.Traces, _, plain, _ ptrace.Span) { plain.CopyTo(spansOf(td).AppendEmpty()) },
		"the resource changes": func(td ptrace.Traces, _, _, _ ptrace.Span) {
			td.ResourceSpans().At(0).Resource().Attributes().PutStr("x", "y")
		},
		"the schema changes": func(td ptrace.Traces, _, _, _ ptrace.Span) { td.ResourceSpans().At(0).SetSchemaUrl("x") },
		"the scope changes": func(td ptrace.Traces, _, _, _ ptrace.Span) {
			td.ResourceSpans().At(0).ScopeSpans().At(0).Scope().SetName("x")
		},
		"a resource out of nowhere": func(td ptrace.Traces, _, _, _ ptrace.Span) { td.ResourceSpans().AppendEmpty() },
		"another mode":              func(_ ptrace.Traces, r, _, _ ptrace.Span) { r.Attributes().PutStr("stream.phase", "envelope") },
	} {
		t.Run(name, func(t *testing.T) {
			td := divided()
			breakIt(td, spansOf(td).At(0), spansOf(td).At(1), spansOf(td).At(2))
			_, err := Check(source(), td, settings)
			require.Error(t, err)
		})
	}
}

func spansOf(td ptrace.Traces) ptrace.SpanSlice {
	return td.ResourceSpans().At(0).ScopeSpans().At(0).Spans()
}

func dropSpan(td ptrace.Traces, n int) {
	i := -1
	spansOf(td).RemoveIf(func(ptrace.Span) bool { i++; return i == n })
}

func dropEvent(s ptrace.Span, n int) {
	i := -1
	s.Events().RemoveIf(func(ptrace.SpanEvent) bool { i++; return i == n })
}

// TestGenerateIsRepeatable: a seed that failed fails again.
func TestGenerateIsRepeatable(t *testing.T) {
	for seed := range uint64(20) {
		a, b := Generate(rand.New(rand.NewPCG(seed, 1))), Generate(rand.New(rand.NewPCG(seed, 1)))
		assert.Equal(t, Marshal(a), Marshal(b))
	}
}
