// Copyright The otelcol-stream Authors
// SPDX-License-Identifier: Apache-2.0

package streamspan

import (
	"slices"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/otelcol-stream/otelcol-stream/internal/cadence"
)

// Reader reads Records, and other attributes in the same pass. It keeps scratch from one to the next and is not safe for concurrent use. One
// that NewReader did not make finds nothing.
type Reader struct {
	// bySketch holds what reads an attribute under the sketch of its key. Nearly all other keys find nothing there, and a look-up costs an
	// index and a comparison, a quarter of what a map's hash does: a stream span has thirty attributes.
	bySketch [256][]reading
	wanted   []pcommon.Value
	ints     []int64
}

type reading struct {
	key string
	set func(*Reader, *Record, pcommon.Value)
}

// NewReader returns a Reader that also looks for the wanted attributes, whose keys are not empty.
func NewReader(wanted []string) *Reader {
	r := &Reader{wanted: make([]pcommon.Value, len(wanted))}
	add := func(key string, set func(*Reader, *Record, pcommon.Value)) {
		r.bySketch[sketch(key)] = append(r.bySketch[sketch(key)], reading{key, set})
	}
	for key, set := range setters() {
		add(key, set)
	}
	for i, key := range wanted {
		add(key, func(r *Reader, _ *Record, v pcommon.Value) { r.wanted[i] = v })
	}
	return r
}

// Read fills rec from the stream.* attributes of a span. It reports false when the span has no stream.phase. An attribute of the wrong
// type or a histogram that cannot be is left out.
func (r *Reader) Read(attrs pcommon.Map, rec *Record) bool {
	buckets := rec.Cadence.Histogram.Buckets[:0]
	*rec = Record{}
	rec.Cadence.Histogram.Buckets = buckets
	clear(r.wanted)
	for key, v := range attrs.All() {
		for _, f := range r.bySketch[sketch(key)] {
			if f.key == key {
				f.set(r, rec, v)
			}
		}
	}
	return rec.Phase != PhaseNone
}

// Wanted returns the wanted attributes of the span that was read last, in the order of their keys, the zero Value for those that it does
// not have.
func (r *Reader) Wanted() []pcommon.Value { return r.wanted }

// Release lets go of the span that was read last.
func (r *Reader) Release() { clear(r.wanted) }

// sketch is a hash of what it costs nothing to look at in a key: its length, its last byte and one from the middle. Our keys all begin
// alike and differ there.
func sketch(key string) uint8 {
	if key == "" {
		return 0
	}
	return uint8(len(key)) + 31*key[len(key)/2] + 113*key[len(key)-1]
}

func setters() map[string]func(*Reader, *Record, pcommon.Value) {
	str := func(of func(*Record) *string) func(*Reader, *Record, pcommon.Value) {
		return func(_ *Reader, rec *Record, v pcommon.Value) {
			if v.Type() == pcommon.ValueTypeStr {
				*of(rec) = v.Str()
			}
		}
	}
	integer := func(of func(*Record) *int64) func(*Reader, *Record, pcommon.Value) {
		return func(_ *Reader, rec *Record, v pcommon.Value) {
			if v.Type() == pcommon.ValueTypeInt && v.Int() >= 0 {
				*of(rec) = v.Int()
			}
		}
	}
	value := func(of func(*Record) *cadence.Value) func(*Reader, *Record, pcommon.Value) {
		return func(_ *Reader, rec *Record, v pcommon.Value) {
			if v.Type() == pcommon.ValueTypeDouble {
				*of(rec) = cadence.Of(v.Double())
			}
		}
	}
	m := map[string]func(*Reader, *Record, pcommon.Value){
		AttrPhase:            str(func(r *Record) *string { return (*string)(&r.Phase) }),
		AttrDialect:          str(func(r *Record) *string { return &r.Dialect }),
		AttrFirstChunkSource: str(func(r *Record) *string { return &r.FirstChunkSource }),
		AttrOutcome:          str(func(r *Record) *string { return (*string)(&r.Outcome) }),
		AttrSourceOperation:  str(func(r *Record) *string { return &r.SourceOperation }),
		AttrTokenSource:      str(func(r *Record) *string { return &r.TokenSource }),
		AttrTimeToFirstChunk: value(func(r *Record) *cadence.Value { return &r.TimeToFirstChunk }),
		AttrDuration:         value(func(r *Record) *cadence.Value { return &r.Duration }),
		AttrChunkCount:       integer(func(r *Record) *int64 { return &r.Cadence.ChunkCount }),
		AttrEventsCollapsed:  integer(func(r *Record) *int64 { return &r.EventsCollapsed }),
		AttrSpansFolded:      integer(func(r *Record) *int64 { return &r.SpansFolded }),
		AttrStallCount: func(_ *Reader, rec *Record, v pcommon.Value) {
			if v.Type() == pcommon.ValueTypeInt && v.Int() >= 0 {
				rec.Cadence.Stalls, rec.Cadence.StallCount = true, v.Int()
			}
		},
		AttrTokenCount: func(_ *Reader, rec *Record, v pcommon.Value) {
			if v.Type() == pcommon.ValueTypeInt && v.Int() >= 0 {
				rec.Cadence.TokensKnown, rec.Cadence.TokenCount = true, v.Int()
			}
		},
		AttrByteCount: func(_ *Reader, rec *Record, v pcommon.Value) {
			if v.Type() == pcommon.ValueTypeInt && v.Int() >= 0 {
				rec.Cadence.BytesKnown, rec.Cadence.ByteCount = true, v.Int()
			}
		},
		AttrNested: func(_ *Reader, rec *Record, v pcommon.Value) {
			rec.Nested = v.Type() == pcommon.ValueTypeBool && v.Bool()
		},
		AttrQuality: func(_ *Reader, rec *Record, v pcommon.Value) {
			if v.Type() != pcommon.ValueTypeStr {
				return
			}
			for q := cadence.QualityNone; q <= cadence.QualityExact; q++ {
				if v.Str() == q.String() {
					rec.Cadence.Quality = q
				}
			}
		},
		AttrSourceKind: func(_ *Reader, rec *Record, v pcommon.Value) {
			if v.Type() == pcommon.ValueTypeStr {
				rec.SourceKind = ptrace.SpanKind(max(0, slices.Index(kindNames[:], v.Str())))
			}
		},
		AttrGapHistogram: func(r *Reader, rec *Record, v pcommon.Value) {
			if v.Type() == pcommon.ValueTypeSlice {
				r.histogram(v.Slice(), &rec.Cadence.Histogram)
			}
		},
	}
	for _, f := range valueFields {
		m[f.key] = value(func(r *Record) *cadence.Value { return f.of(&r.Cadence) })
	}
	return m
}

func (r *Reader) histogram(s pcommon.Slice, h *cadence.Histogram) {
	n := s.Len()
	r.ints = slices.Grow(r.ints[:0], n)[:n]
	for i := range r.ints {
		v := s.At(i)
		// The number of what is no int is 0. To ask for the type is dearer, and a histogram has a hundred numbers.
		number := v.Int()
		if number == 0 && v.Type() != pcommon.ValueTypeInt {
			return
		}
		r.ints[i] = number
	}
	// What cannot be leaves the histogram empty.
	_ = h.SetInts(r.ints)
}
