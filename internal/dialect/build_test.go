// Copyright The otelcol-stream Authors
// SPDX-License-Identifier: Apache-2.0

package dialect

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"
)

const (
	ms            = time.Millisecond
	testMinSpread = 100 * ms
	// testStart is the start of every span here: 2026-05-28T20:26:40Z.
	testStart = pcommon.Timestamp(1_780_000_000_000_000_000)
)

// built is a span under construction: a client span of 2 s unless it says otherwise.
type built struct {
	ptrace.Span

	res   pcommon.Resource
	scope pcommon.InstrumentationScope
}

// given is one thing that an instrumentation writes.
type given func(built)

func build(parts ...given) built {
	b := built{Span: ptrace.NewSpan(), res: pcommon.NewResource(), scope: pcommon.NewInstrumentationScope()}
	b.SetName("chat gpt")
	b.SetKind(ptrace.SpanKindClient)
	b.SetTraceID(pcommon.TraceID{1})
	b.SetSpanID(pcommon.SpanID{2})
	b.SetStartTimestamp(testStart)
	b.SetEndTimestamp(testStart + pcommon.Timestamp(2*time.Second))
	for _, part := range parts {
		part(b)
	}
	return b
}

func scope(name string) given { return func(b built) { b.scope.SetName(name) } }
func sdk(language string) given {
	return func(b built) { b.res.Attributes().PutStr("telemetry.sdk.language", language) }
}
func named(name string) given      { return func(b built) { b.SetName(name) } }
func kind(k ptrace.SpanKind) given { return func(b built) { b.SetKind(k) } }
func dropped(n uint32) given       { return func(b built) { b.SetDroppedEventsCount(n) } }

func lasting(d time.Duration) given {
	return func(b built) { b.SetEndTimestamp(b.StartTimestamp() + pcommon.Timestamp(d)) }
}

func status(code ptrace.StatusCode, message string) given {
	return func(b built) {
		b.Status().SetCode(code)
		b.Status().SetMessage(message)
	}
}

// attr puts an attribute of any type that pdata takes.
func attr(key string, v any) given {
	return func(b built) { mustPut(b.Attributes(), key, v) }
}

func mustPut(m pcommon.Map, key string, v any) {
	if err := m.PutEmpty(key).FromRaw(v); err != nil {
		panic(err)
	}
}

// event adds events of one name, without attributes.
func event(name string, at ...time.Duration) given {
	return func(b built) {
		for _, d := range at {
			b.add(name, d)
		}
	}
}

// eventWith adds one event with attributes.
func eventWith(name string, at time.Duration, attrs map[string]any) given {
	return func(b built) {
		e := b.add(name, at)
		for key, v := range attrs {
			mustPut(e.Attributes(), key, v)
		}
	}
}

func (b built) add(name string, at time.Duration) ptrace.SpanEvent {
	e := b.Events().AppendEmpty()
	e.SetName(name)
	e.SetTimestamp(pcommon.Timestamp(int64(b.StartTimestamp()) + int64(at)))
	return e
}

// stamp is an instant after the start in the format of the layout.
func stamp(at time.Duration, layout string, zone *time.Location) string {
	return testStart.AsTime().Add(at).In(zone).Format(layout)
}

func table(t testing.TB, v Vocabulary) *Table {
	t.Helper()
	out, err := Compile(v)
	require.NoError(t, err)
	return out
}

// verdict is what must come of a span. Fields that are zero are checked too.
type verdict struct {
	// streams and reason are the decision.
	streams bool
	reason  Reason
	// first is the first chunk after the start, meaningful when source is set.
	first   time.Duration
	source  string
	dialect string
	outcome Outcome
	// tokens and from: the output tokens and their key.
	tokens int64
	from   string
}

// evidenceOf returns what a Reader finds on a span, nil when that is nothing.
func evidenceOf(r *Reader, span ptrace.Span) *Evidence {
	ev := &Evidence{}
	if !r.Read(span, r.Glance(span), ev) {
		return nil
	}
	return ev
}

func (w verdict) check(t *testing.T, v Vocabulary, b built) {
	t.Helper()
	r := NewReader(table(t, v), testMinSpread)
	ev := evidenceOf(r, b.Span)
	if ev == nil {
		got := verdict{} // nothing on the span speaks of streaming
		assert.Equal(t, w, got)
		return
	}
	d := r.Decide(ev, b.res, b.scope)
	got := verdict{streams: d.Verdict == Streaming, reason: d.Reason, source: d.Source, dialect: d.Dialect}
	assert.Equal(t, d.FirstKnown, d.Source != "")
	if d.FirstKnown {
		got.first = time.Duration(d.First - int64(b.StartTimestamp()))
	}
	if d.Verdict == Streaming {
		detail := r.Detail(ev, &d)
		got.outcome, got.tokens, got.from = detail.Outcome, detail.Tokens, detail.TokenSource
	}
	assert.Equal(t, w, got)
}
