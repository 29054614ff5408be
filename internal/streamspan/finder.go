// Copyright The otelcol-stream Authors
// SPDX-License-Identifier: Apache-2.0

package streamspan

import (
	"slices"
	"time"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/otelcol-stream/otelcol-stream/internal/cadence"
	"github.com/otelcol-stream/otelcol-stream/internal/dialect"
)

// Found is one streaming span of a batch.
type Found struct {
	Resource pcommon.Resource
	Scope    ptrace.ScopeSpans
	Span     ptrace.Span
	Evidence dialect.Evidence
	Decision dialect.Decision
	// Nested says that another span of the same call counts instead.
	Nested bool
	// Folded are the chunk spans that this stream replaces; nil when there are none.
	Folded *Folded
}

// Folded are the chunk spans that were folded for one span.
type Folded struct {
	Chunks *dialect.Chunks
	// Beyond accounts for those of the chunks whose instants were not kept; nil without such chunks.
	Beyond *cadence.Beyond
}

// FoldedChunks gives the chunk spans that were folded for a span, nil when there are none.
type FoldedChunks func(ptrace.Span) *Folded

// Finder finds the streaming spans of a batch. It is not safe for concurrent use.
type Finder struct {
	reader *dialect.Reader
	calc   *cadence.Calculator
	found  []Found
	calls  calls
	phases phases

	// Processed is called for every span that went through this component before, with its phase. May be nil.
	Processed func(res pcommon.Resource, scope ptrace.ScopeSpans, span ptrace.Span, phase Phase)
	// Skipped is called for every other span that carries evidence or senseless times and yet is none of the Found. May be nil.
	Skipped func(res pcommon.Resource, scope ptrace.ScopeSpans, span ptrace.Span, d dialect.Decision)
	// Folded is asked for every span. May be nil.
	Folded FoldedChunks
}

// NewFinder returns a Finder.
func NewFinder(table *dialect.Table, minSpread time.Duration, settings cadence.Settings) *Finder {
	return &Finder{reader: dialect.NewReader(table, minSpread), calc: cadence.NewCalculator(settings)}
}

// Find returns the streaming spans of a batch in the batch's order, those of one call marked. The result is valid until the next Find.
func (f *Finder) Find(td ptrace.Traces) []Found {
	f.reader.Reset()
	clear(f.found) // let go of the last batch's spans
	f.found = f.found[:0]
	for _, rs := range td.ResourceSpans().All() {
		res := rs.Resource()
		for _, ss := range rs.ScopeSpans().All() {
			spans := ss.Spans()
			for i := range spans.Len() {
				f.look(res, ss, spans.At(i))
			}
		}
	}
	if len(f.found) > 1 {
		f.calls.mark(td, f.found)
	}
	return f.found
}

// Release lets go of everything that the last Find refers to, so that a pooled Finder keeps no batch alive.
func (f *Finder) Release() {
	f.reader.Reset()
	clear(f.found)
	f.found = f.found[:0]
}

func (f *Finder) look(res pcommon.Resource, ss ptrace.ScopeSpans, span ptrace.Span) {
	var folded *Folded
	if f.Folded != nil {
		folded = f.Folded(span)
	}
	if f.Processed != nil {
		if phase, ok := f.phases.of(span.Attributes()); ok {
			f.Processed(res, ss, span, phase)
			return
		}
	}
	glance := f.reader.Glance(span)
	switch {
	case glance == dialect.GlanceAttributes:
		if phase, ok := dialect.Phase(span); ok {
			if f.Processed != nil {
				f.phases.learn(span.Attributes())
				f.Processed(res, ss, span, Phase(phase))
			}
			return
		}
	case glance == dialect.GlanceNothing && folded == nil:
		return
	}
	s := f.slot()
	known := f.reader.Read(span, glance, &s.Evidence)
	if folded != nil {
		f.reader.WithChunks(span, &s.Evidence, known, folded.Chunks)
	} else if !known {
		f.drop(s)
		return
	}
	s.Decision = f.reader.Decide(&s.Evidence, res, ss.Scope())
	if d := s.Decision; d.Verdict != dialect.Streaming {
		f.drop(s)
		if f.Skipped != nil {
			f.Skipped(res, ss, span, d)
		}
		return
	}
	s.Resource, s.Scope, s.Span, s.Folded = res, ss, span, folded
}

// slot adds one to the found spans. They are filled in where they stay, since they are large: to copy one costs as much as to dismiss a
// span that does not stream.
func (f *Finder) slot() *Found {
	if n := len(f.found); n < cap(f.found) {
		f.found = f.found[:n+1] // what lies there is zero: see drop, Find and Release
	} else {
		f.found = append(f.found, Found{})
	}
	return &f.found[len(f.found)-1]
}

// drop takes back the last slot.
func (f *Finder) drop(s *Found) {
	*s = Found{}
	f.found = f.found[:len(f.found)-1]
}

// Record works out what the stream.* attributes of a found span say. It sorts the span's chunk instants.
func (f *Finder) Record(s *Found, rec *Record) {
	detail := f.reader.Detail(&s.Evidence, &s.Decision)
	start, end := int64(s.Span.StartTimestamp()), int64(s.Span.EndTimestamp())
	buckets := rec.Cadence.Histogram.Buckets[:0]
	*rec = Record{
		Phase:            PhaseWhole,
		Dialect:          s.Decision.Dialect,
		FirstChunkSource: s.Decision.Source,
		Outcome:          detail.Outcome,
		Nested:           s.Nested,
		SourceKind:       s.Span.Kind(),
		SourceOperation:  detail.Operation,
		TokenSource:      detail.TokenSource,
		GenAI:            detail.GenAI,
	}
	rec.Cadence.Histogram.Buckets = buckets
	if s.Decision.FirstKnown {
		rec.TimeToFirstChunk = cadence.Of(seconds(s.Decision.First - start))
		rec.Duration = cadence.Of(seconds(end - s.Decision.First))
	}
	c := &s.Evidence.Chunks
	if !c.Sorted {
		slices.Sort(c.Instants)
		c.Sorted = true
	}
	in := cadence.Stream{
		First: s.Decision.First, FirstKnown: s.Decision.FirstKnown,
		End:      end,
		Instants: c.Instants,
		Count:    detail.ChunkCount,
		Tokens:   detail.Tokens, TokensKnown: detail.TokenSource != "",
		Bytes: c.Bytes, BytesKnown: c.Seen > 0 && c.BytesKnown,
	}
	if !in.TokensKnown && c.TokenSource != "" {
		// The parent's own count is of the whole response; the sum over the chunks stands in for it.
		in.Tokens, in.TokensKnown, rec.TokenSource = c.Tokens, true, c.TokenSource
	}
	in.Missing, in.Truncated, in.NewestKept = s.Evidence.Window(s.Resource)
	if s.Folded != nil {
		rec.SpansFolded = s.Folded.Chunks.Seen
		// When the span's own events told more, the chunk spans are gone and yet not what the cadence is made of.
		if b := s.Folded.Beyond; b != nil && c.Spans > 0 {
			in.Beyond, in.Missing = b, in.Missing-b.Chunks
		}
	}
	if in.Missing > 0 || in.Truncated {
		in.BytesKnown = false
	}
	if detail.MeanGap > 0 {
		in.MeanGap = cadence.Of(detail.MeanGap)
	}
	f.calc.Summarize(in, &rec.Cadence)
}

func seconds(ns int64) float64 { return float64(ns) / float64(time.Second) }

// reason is why a span that streams was not split, for the component's own telemetry.
func reason(s *Found, rec *Record) dialect.Reason {
	if s.Decision.Reason == dialect.ReasonNoFirstChunk && rec.Outcome == dialect.OutcomeError {
		return dialect.ReasonFailedBeforeData
	}
	return s.Decision.Reason
}
