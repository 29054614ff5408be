// Copyright The otelcol-stream Authors
// SPDX-License-Identifier: Apache-2.0

package streamconnector

import (
	"slices"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/otelcol-stream/otelcol-stream/internal/cadence"
	"github.com/otelcol-stream/otelcol-stream/internal/streamspan"
)

// memo remembers which series streams went to. Most streams of a service have a few sets of attributes between them, and to hash each
// attribute, put the keys of all families together and find their series is a third of the time of a stream; to see that everything is as
// it was takes a quarter of that. A worker has a memo of its own.
type memo [256]remembered

// remembered is what the series of a stream depend on, and the series.
type remembered struct {
	store      *store
	generation uint64 // of the store; another one may have dropped some of the series
	hits       uint8  // of late, from the one that made it up to maxHits

	traits    traits
	dialect   string
	operation string
	resource  resourceKey
	fallback  []value // the wanted attributes of the resource, nil if it has none
	span      []value // those of the span
	series    []*series
}

// traits are what the series depend on besides attributes.
type traits struct {
	kind       ptrace.SpanKind
	outcome    *value
	firstChunk *value
	quality    cadence.Quality
	genAI      bool // though no attribute says so
}

func traitsOf(s *stream) traits {
	r := s.record
	return traits{
		kind: r.SourceKind, outcome: outcome(s), firstChunk: firstChunk(s), quality: r.Cadence.Quality,
		genAI: r.GenAI || isGenAIKey(r.TokenSource) || isGenAIKey(r.FirstChunkSource),
	}
}

// place returns where a stream is remembered, if it is.
func (m *memo) place(t *traits, wanted []pcommon.Value) *remembered {
	h := uint(t.kind) + 7*uint(t.quality)
	for _, v := range wanted {
		h *= 31
		if v == (pcommon.Value{}) {
			continue
		}
		if s := v.Str(); s != "" {
			h += uint(len(s)) + 5*uint(s[len(s)-1]) + 11*uint(s[len(s)/2])
		} else {
			h++
		}
	}
	return &m[(h^h>>8)%uint(len(m))]
}

// is reports whether a stream goes where this one went.
func (e *remembered) is(w *worker, t *traits, o *streamspan.Observation) bool {
	if e.traits != *t || e.resource != w.resourceKey || e.dialect != o.Record.Dialect || e.operation != o.Record.SourceOperation ||
		len(e.span) != len(o.Wanted) || !slices.Equal(e.fallback, w.fallback) {
		return false
	}
	for i, v := range o.Wanted {
		x := &e.span[i]
		if v == (pcommon.Value{}) {
			if x.kind != absent {
				return false
			}
		} else if !x.equals(v) {
			return false
		}
	}
	return true
}

// maxHits is how many streams of another kind it takes to get the place of one that was seen often.
const maxHits = 8

// hit counts a stream that came here again.
func (e *remembered) hit() { e.hits = min(e.hits+1, maxHits) }

// yields reports whether the place is free for another kind of streams. That two kinds with the same place take it from each other with
// every stream, and each time copy all that is remembered, must not be.
func (e *remembered) yields(st *store) bool {
	if e.hits == 0 || !e.holds(st) {
		return true
	}
	e.hits--
	return false
}

// holds reports whether the series are still those of the store. The caller holds the lock of the store.
func (e *remembered) holds(st *store) bool { return e.store == st && e.generation == st.generation }

// maxText is the most text that is remembered of a stream: a hundred times what real ones have. Not every attribute that is looked for is part
// of a series, so that no limit on series bounds what a sender could fill the memo with.
const maxText = 4 << 10

// small reports whether a stream may be remembered.
func (w *worker) small() bool {
	s := &w.stream
	n := len(s.dialect.str) + len(s.operation.str)
	for i := range s.span {
		n += len(s.span[i].str) + len(s.resource[i].str)
	}
	return n <= maxText
}

// set remembers where a stream went. The caller holds the lock of the store.
func (e *remembered) set(w *worker, t *traits, found []*series) {
	s := &w.stream
	e.hits = 1
	e.store, e.generation = w.connector.store, w.connector.store.generation
	e.traits, e.resource = *t, w.resourceKey
	// With memory of their own, so that the memo keeps no batch alive.
	e.dialect, e.operation = s.dialect.owned().str, s.operation.owned().str
	e.fallback, e.span = e.fallback[:0], e.span[:0]
	for i := range w.fallback {
		e.fallback = append(e.fallback, w.fallback[i].owned())
	}
	for i := range s.span {
		e.span = append(e.span, s.span[i].owned())
	}
	e.series = append(e.series[:0], found...)
}

// equals reports whether set would make of v, which is there, what x is. It may say no of a list or a map, whose text is not put together
// for it.
func (x *value) equals(v pcommon.Value) bool {
	// Most are texts, and then numbers; to ask for the type is dearer.
	if s := v.Str(); s != "" {
		return x.kind == isString && x.str == s
	}
	if n := v.Int(); n != 0 {
		return x.kind == isInt && x.bits == uint64(n)
	}
	switch v.Type() {
	case pcommon.ValueTypeEmpty:
		return x.kind == absent
	case pcommon.ValueTypeStr, pcommon.ValueTypeInt, pcommon.ValueTypeDouble, pcommon.ValueTypeBool:
		var y value
		y.set(v)
		return *x == y
	default:
		return false
	}
}
