// Copyright The otelcol-stream Authors
// SPDX-License-Identifier: Apache-2.0

package streamspan

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"
)

// span is one span of a trace under test. Its id is one letter, its parent's too.
type span struct {
	id, parent byte
	kind       ptrace.SpanKind
	from, to   time.Duration
	does       does
	trace      byte
}

type does int

const (
	streams     does = iota // and says when its first chunk came
	streamsFlag             // and does not
	doesNotStream
)

const (
	clientKind   = ptrace.SpanKindClient
	serverKind   = ptrace.SpanKindServer
	internalKind = ptrace.SpanKindInternal
)

// traceOf puts each span into a resource of its own: the shape of a batch must not matter.
func traceOf(spans ...span) ptrace.Traces {
	td := ptrace.NewTraces()
	for _, n := range spans {
		s := td.ResourceSpans().AppendEmpty().ScopeSpans().AppendEmpty().Spans().AppendEmpty()
		s.SetTraceID(pcommon.TraceID{1, n.trace})
		s.SetSpanID(pcommon.SpanID{n.id})
		if n.parent != 0 {
			s.SetParentSpanID(pcommon.SpanID{n.parent})
		}
		s.SetName(string(n.id))
		s.SetKind(n.kind)
		s.SetStartTimestamp(at(n.from))
		s.SetEndTimestamp(at(n.to))
		switch n.does {
		case streams:
			s.Attributes().PutDouble(ttfcKey, 0.01)
		case streamsFlag:
			s.Attributes().PutBool("gen_ai.request.stream", true)
		case doesNotStream:
		}
	}
	return td
}

func nestedIn(t testing.TB, td ptrace.Traces) string {
	t.Helper()
	var out []byte
	for _, f := range newFinder(t).Find(td) {
		if f.Nested {
			out = append(out, f.Span.Name()...)
		}
	}
	return string(out)
}

// TestOneCallOneStream has every branch of the rule by which two spans of one call are told from two calls.
func TestOneCallOneStream(t *testing.T) {
	s := time.Second
	for _, tt := range []struct {
		name   string
		spans  []span
		nested string
	}{
		{"both know their first chunk: the one nearer the consumer counts", []span{{'A', 0, clientKind, 0, 4 * s, streams, 0}, {'B', 'A', clientKind, 0, 4 * s, streams, 0}}, "B"},
		{"the child comes first in the batch", []span{{'B', 'A', clientKind, 0, 4 * s, streams, 0}, {'A', 0, clientKind, 0, 4 * s, streams, 0}}, "B"},
		{"only the upper one knows", []span{{'A', 0, internalKind, 0, 4 * s, streams, 0}, {'B', 'A', clientKind, 0, 4 * s, streamsFlag, 0}}, "B"},
		{"only the lower one knows", []span{{'A', 0, internalKind, 0, 4 * s, streamsFlag, 0}, {'B', 'A', clientKind, 0, 4 * s, streams, 0}}, "A"},
		{"neither knows", []span{{'A', 0, internalKind, 0, 4 * s, streamsFlag, 0}, {'B', 'A', clientKind, 0, 4 * s, streamsFlag, 0}}, "B"},
		{"one alone", []span{{'A', 0, clientKind, 0, 4 * s, streams, 0}, {'B', 'A', clientKind, 0, 4 * s, doesNotStream, 0}}, ""},
		{"a span between them that does not stream", []span{{'A', 0, internalKind, 0, 4 * s, streams, 0}, {'x', 'A', internalKind, 0, 4 * s, doesNotStream, 0}, {'B', 'x', clientKind, 0, 4 * s, streams, 0}}, "B"},
		{"a span between them that is missing", []span{{'A', 0, internalKind, 0, 4 * s, streams, 0}, {'B', 'x', clientKind, 0, 4 * s, streams, 0}}, ""},
		{"siblings", []span{{'A', 'r', clientKind, 0, 4 * s, streams, 0}, {'B', 'r', clientKind, 0, 4 * s, streams, 0}, {'r', 0, internalKind, 0, 4 * s, doesNotStream, 0}}, ""},
		{"the same ids in two traces", []span{{'A', 0, clientKind, 0, 4 * s, streams, 0}, {'B', 'A', clientKind, 0, 4 * s, streams, 1}}, ""},

		{"sticks out by 50 ms at both ends", []span{{'A', 0, clientKind, s, 4 * s, streams, 0}, {'B', 'A', clientKind, s - 50*ms, 4*s + 50*ms, streams, 0}}, "B"},
		{"sticks out by more at the start", []span{{'A', 0, clientKind, s, 4 * s, streams, 0}, {'B', 'A', clientKind, s - 50*ms - 1, 4 * s, streams, 0}}, ""},
		{"sticks out by more at the end", []span{{'A', 0, clientKind, s, 4 * s, streams, 0}, {'B', 'A', clientKind, s, 4*s + 50*ms + 1, streams, 0}}, ""},

		{"client and server of one call are two measurements", []span{{'A', 0, clientKind, 0, 4 * s, streams, 0}, {'B', 'A', serverKind, 0, 4 * s, streams, 0}}, ""},
		{"a server between them", []span{{'A', 0, clientKind, 0, 4 * s, streams, 0}, {'x', 'A', serverKind, 0, 4 * s, doesNotStream, 0}, {'B', 'x', clientKind, 0, 4 * s, streams, 0}}, ""},
		{"a streaming server between them", []span{{'A', 0, clientKind, 0, 4 * s, streams, 0}, {'S', 'A', serverKind, 0, 4 * s, streams, 0}, {'B', 'S', clientKind, 0, 4 * s, streams, 0}}, ""},
		{"a gateway that answers by calling", []span{{'A', 0, serverKind, 0, 4 * s, streams, 0}, {'B', 'A', clientKind, 0, 4 * s, streams, 0}}, ""},
		{"a server that makes two calls after each other", []span{{'A', 0, serverKind, 0, 4 * s, streams, 0}, {'B', 'A', clientKind, 0, s, streams, 0}, {'C', 'A', clientKind, 2 * s, 3 * s, streams, 0}}, ""},
		{"a server and its own inner span", []span{{'A', 0, serverKind, 0, 4 * s, streams, 0}, {'B', 'A', internalKind, 0, 4 * s, streams, 0}}, "B"},

		{"an agent of two steps", []span{{'A', 0, internalKind, 0, 4 * s, streams, 0}, {'B', 'A', clientKind, 0, s, streams, 0}, {'C', 'A', clientKind, 2 * s, 3 * s, streams, 0}}, "A"},
		{"an agent of two steps of which one does not know", []span{{'A', 0, internalKind, 0, 4 * s, streams, 0}, {'B', 'A', clientKind, 0, s, streamsFlag, 0}, {'C', 'A', clientKind, 2 * s, 3 * s, streams, 0}}, "A"},
		{"steps that touch do not overlap", []span{{'A', 0, internalKind, 0, 4 * s, streams, 0}, {'B', 'A', clientKind, 0, s, streams, 0}, {'C', 'A', clientKind, s, 3 * s, streams, 0}}, "A"},
		{"an agent whose steps are grandchildren", []span{
			{'A', 0, internalKind, 0, 4 * s, streams, 0},
			{'x', 'A', internalKind, 0, s, doesNotStream, 0},
			{'y', 'A', internalKind, 2 * s, 3 * s, doesNotStream, 0},
			{'B', 'x', clientKind, 0, s, streams, 0},
			{'C', 'y', clientKind, 2 * s, 3 * s, streams, 0},
		}, "A"},
		{"an agent whose steps are recorded twice each", []span{
			{'A', 0, internalKind, 0, 4 * s, streams, 0},
			{'B', 'A', internalKind, 0, s, streams, 0},
			{'b', 'B', clientKind, 0, s, streams, 0},
			{'C', 'A', internalKind, 2 * s, 3 * s, streams, 0},
			{'c', 'C', clientKind, 2 * s, 3 * s, streams, 0},
		}, "Abc"},
		{"a call in three layers, all known", []span{{'A', 0, internalKind, 0, 4 * s, streams, 0}, {'B', 'A', internalKind, 0, 4 * s, streams, 0}, {'C', 'B', clientKind, 0, 4 * s, streams, 0}}, "BC"},
		{"a call in three layers, the middle one known", []span{{'A', 0, internalKind, 0, 4 * s, streamsFlag, 0}, {'B', 'A', internalKind, 0, 4 * s, streams, 0}, {'C', 'B', clientKind, 0, 4 * s, streamsFlag, 0}}, "AC"},
		{"a call in three layers, the lowest known", []span{{'A', 0, internalKind, 0, 4 * s, streamsFlag, 0}, {'B', 'A', internalKind, 0, 4 * s, streamsFlag, 0}, {'C', 'B', clientKind, 0, 4 * s, streams, 0}}, "AB"},
		{"a second stream that overlaps is of the same call", []span{{'A', 0, internalKind, 0, 4 * s, streams, 0}, {'B', 'A', clientKind, 0, 3 * s, streams, 0}, {'C', 'A', clientKind, 2 * s, 4 * s, streams, 0}}, "BC"},
		{"a retry below one span", []span{{'A', 0, internalKind, 0, 4 * s, streamsFlag, 0}, {'B', 'A', clientKind, 0, s, streamsFlag, 0}, {'C', 'A', clientKind, s, 4 * s, streams, 0}}, "A"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			assert.Equal(t, tt.nested, nestedIn(t, traceOf(tt.spans...)))
		})
	}
}

// TestCallsOfMalformedTraces: parents that form a loop, a span below itself, ids that come twice, chains without end. Nothing hangs, and
// spans of sound traces in the batch are told apart as ever.
func TestCallsOfMalformedTraces(t *testing.T) {
	const s = time.Second
	loop := traceOf(
		span{'A', 'B', internalKind, 0, 4 * s, streams, 0}, span{'B', 'A', internalKind, 0, 4 * s, streams, 0},
		span{'C', 'C', internalKind, 0, 4 * s, streams, 0},
		span{'D', 0, internalKind, 0, 4 * s, streams, 1}, span{'E', 'D', internalKind, 0, 4 * s, streams, 1},
		span{'D', 0, internalKind, 0, 4 * s, streams, 2}, span{'D', 0, internalKind, 0, 4 * s, streams, 2},
	)
	nested := nestedIn(t, loop)
	assert.Contains(t, nested, "E")
	assert.NotContains(t, nested, "C")
	assert.NotContains(t, nested, "D")

	// 255 spans below each other, of which the first and the last stream: more layers than a call has.
	var chain []span
	for i := byte(1); i < 255; i++ {
		n := span{i, i - 1, internalKind, 0, 4 * s, doesNotStream, 0}
		if i == 1 || i == 254 {
			n.does = streams
		}
		chain = append(chain, n)
	}
	assert.Empty(t, nestedIn(t, traceOf(chain...)))
	assert.Equal(t, string(chain[39].id), nestedIn(t, traceOf(append(chain[:39:39], span{40, 39, internalKind, 0, 4 * s, streams, 0})...)), "40 layers are looked through")
}

// TestNestedIsWritten: the mark goes on both halves, in every mode, and the connector's reader finds it.
func TestNestedIsWritten(t *testing.T) {
	const s = time.Second
	for mode, phases := range map[Mode]map[string]int{
		ModeSplit:    {"request": 1, "stream": 1},
		ModeAnnotate: {"whole": 1},
		ModeNest:     {"envelope": 1, "request": 1, "stream": 1},
	} {
		td := traceOf(span{'A', 0, clientKind, 0, 4 * s, streams, 0}, span{'B', 'A', clientKind, 0, 4 * s, streams, 0})
		apply(t, td, options(mode))
		got := map[string]int{}
		for _, sp := range spansIn(td) {
			raw := sp.Attributes().AsRaw()
			if raw["stream.nested"] == true {
				got[raw["stream.phase"].(string)]++
				assert.Equal(t, byte('B'), sp.Name()[0])
			} else {
				assert.NotContains(t, raw, "stream.nested", "absent, not false")
			}
		}
		assert.Equal(t, phases, got, mode)
	}
}
