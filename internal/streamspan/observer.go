// Copyright The otelcol-stream Authors
// SPDX-License-Identifier: Apache-2.0

package streamspan

import (
	"time"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/otelcol-stream/otelcol-stream/internal/cadence"
	"github.com/otelcol-stream/otelcol-stream/internal/dialect"
)

// Observation is one stream of a batch. It is valid only during the call that hands it over.
type Observation struct {
	Resource pcommon.Resource
	Scope    pcommon.InstrumentationScope
	Span     ptrace.Span
	// Record lacks, of a span that was processed, what is in unread.
	Record *Record
	// GapCount is the number of gaps in the record's histogram.
	GapCount int64
	// Gaps are the gaps between the chunks in nanoseconds, read from a raw span's own records. They are nil when the span carries only
	// the histogram of its gaps.
	Gaps []int64
	// Wanted are the attributes of the span that the Observer was told to look for, in that order; the zero Value for those that are not
	// there.
	Wanted []pcommon.Value
}

// Observer reads the streams of a batch without changing it: from the stream.* attributes of spans that were processed, and from raw
// streaming spans by the same detection and arithmetic. It is not safe for concurrent use.
type Observer struct {
	finder *Finder
	reader *Reader
	visit  func(*Observation)
	record Record
	obs    Observation
	gaps   []int64
}

// unread are the attributes that no metric is made of.
var unread = []string{
	AttrEventsCollapsed, AttrSpansFolded, AttrTail, AttrGapP50, AttrGapP95, AttrGapP99, AttrGapStddev, AttrGapJitter, AttrStallOffset,
	AttrPeakRate, AttrByteCount, AttrChunkBytes,
}

// NewObserver returns an Observer that also looks for the wanted attributes. The other parameters are those of NewFinder.
func NewObserver(table *dialect.Table, minSpread time.Duration, settings cadence.Settings, wanted []string) *Observer {
	o := &Observer{finder: NewFinder(table, minSpread, settings), reader: NewReader(wanted, unread...)}
	o.finder.Processed = o.processed
	return o
}

// Observe calls visit for every span of phase stream or whole and for every raw streaming span, those among them for which another span
// of the same call counts marked in the record. Spans of phase request and envelope are passed over: their stream span speaks for them.
func (o *Observer) Observe(td ptrace.Traces, visit func(*Observation)) {
	o.visit = visit
	found := o.finder.Find(td)
	for i := range found {
		f := &found[i]
		o.reader.Read(f.Span.Attributes(), &o.record) // for what is wanted: a raw span has no record yet
		o.finder.Record(f, &o.record)
		o.gaps = cadence.AppendGaps(o.gaps[:0], f.Evidence.Chunks.Instants)
		o.obs = Observation{
			Resource: f.Resource, Scope: f.Scope.Scope(), Span: f.Span, Record: &o.record, GapCount: o.record.Cadence.Histogram.Count(),
			Gaps: o.gaps, Wanted: o.reader.Wanted(),
		}
		visit(&o.obs)
	}
	o.finder.Release()
	o.reader.Release()
	o.obs, o.visit = Observation{}, nil
}

func (o *Observer) processed(res pcommon.Resource, scope ptrace.ScopeSpans, span ptrace.Span, phase Phase) {
	if phase != PhaseStream && phase != PhaseWhole {
		return // before all of its attributes are read: half of all processed spans are request spans
	}
	if !o.reader.Read(span.Attributes(), &o.record) {
		return
	}
	switch o.record.Phase {
	case PhaseWhole:
		// A span that was not split is its own source.
		o.record.SourceKind = span.Kind()
		if v, ok := span.Attributes().Get(attrOperation); ok && v.Type() == pcommon.ValueTypeStr {
			o.record.SourceOperation = v.Str()
		}
	case PhaseStream:
	default:
		return
	}
	// Field by field: a literal is put together elsewhere and copied.
	obs := &o.obs
	obs.Resource, obs.Scope, obs.Span = res, scope.Scope(), span
	obs.Record, obs.GapCount, obs.Gaps = &o.record, o.reader.Gaps(), nil
	obs.Wanted = o.reader.Wanted()
	o.visit(obs)
}
