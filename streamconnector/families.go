// Copyright The otelcol-stream Authors
// SPDX-License-Identifier: Apache-2.0

package streamconnector

import (
	"slices"
	"strings"

	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/otelcol-stream/otelcol-stream/internal/dialect"
	"github.com/otelcol-stream/otelcol-stream/internal/streamspan"
)

// stream is one observed stream with everything that the metrics need of it.
type stream struct {
	record *streamspan.Record
	// gapCount is the number of gaps in the record's histogram. gaps are the same in ns; nil when only the histogram is known.
	gapCount int64
	gaps     []int64
	cells    gapCells
	values   values
	weight   uint64
	// dialect and operation are the record's, as values; absent if empty.
	dialect, operation value
	// span and resource hold the wanted attributes of the span and of its resource, one per slot.
	span, resource []value
}

// family is a group of metrics with the same attributes: one look-up finds the data points of all of them.
type family struct {
	prefix      string
	dimensions  []dimension
	instruments []instrument
	layouts     []*layout  // one per instrument; nil for a sum
	recorders   []recorder // one per instrument
	// applies says which streams the family records; nil is all.
	applies func(*stream) bool
}

// recorder is what it takes to record a value of an instrument. Those of a family lie together, which an instrument with its text does not.
type recorder struct {
	layout        *layout // nil for a sum
	value         valueID
	gaps, integer bool
}

// dimension is one attribute of a family. Its value may be absent, but is not nil; it is read only, and valid until the next stream.
type dimension struct {
	key string
	of  func(*stream) *value
}

// Slots of the attributes that are read whatever the configuration.
const (
	slotProvider = iota
	slotSystem
	slotRequestModel
	slotResponseModel
	slotOperation
	slotServerAddress
	slotServerPort
	slotErrorType
	slotRequestStream
)

func newWanted() wanted {
	var w wanted
	for _, key := range []string{
		slotProvider: attrProvider, slotSystem: attrSystem, slotRequestModel: attrRequestModel, slotResponseModel: attrResponseModel,
		slotOperation: attrOperation, slotServerAddress: attrServerAddress, slotServerPort: attrServerPort, slotErrorType: attrErrorType,
		slotRequestStream: attrRequestStream,
	} {
		w.slot(key)
	}
	return w
}

// families returns the metrics of a configuration, and the attributes that they need of spans and resources.
func families(c *Config) ([]*family, wanted) {
	w := newWanted()
	common := []dimension{
		{attrSpanKind, kind},
		{attrDialect, func(s *stream) *value { return &s.dialect }},
		{attrProvider, provider},
		{attrRequestModel, fromSpan(slotRequestModel)},
	}
	for _, d := range c.Dimensions {
		common = append(common, dimension{d.Name, fromSpanOrResource(w.slot(d.Name), d.Default)})
	}
	fs := []*family{
		{prefix: c.Namespace, dimensions: common, instruments: streamInstruments},
		{prefix: c.Namespace, dimensions: append(slices.Clip(common),
			dimension{attrOutcome, outcome},
			dimension{attrQuality, func(s *stream) *value { return &qualities[s.record.Cadence.Quality] }},
			dimension{attrFirstChunk, firstChunk},
		), instruments: countInstruments},
	}
	if c.GenAIPrefix != "" {
		convention := []dimension{
			{attrOperation, func(s *stream) *value { return required(operation(s)) }},
			{attrProvider, func(s *stream) *value { return required(provider(s)) }},
			{attrRequestModel, fromSpan(slotRequestModel)},
			{attrResponseModel, fromSpan(slotResponseModel)},
			{attrServerAddress, fromSpan(slotServerAddress)},
			{attrServerPort, fromSpan(slotServerPort)},
		}
		fs = append(fs, &family{prefix: c.GenAIPrefix, dimensions: convention, instruments: genAIInstruments, applies: isGenAIClient})
		if c.GenAIDuration {
			fs = append(fs, &family{
				prefix:      c.GenAIPrefix,
				dimensions:  append(slices.Clip(convention), dimension{attrErrorType, fromSpan(slotErrorType)}),
				instruments: genAIDurationInstruments, applies: isGenAIClient,
			})
		}
	}
	for _, f := range fs {
		for i := range f.instruments {
			in := &f.instruments[i]
			l := layoutOf(&c.Histogram, f.name(i), in.ladder)
			f.layouts = append(f.layouts, l)
			f.recorders = append(f.recorders, recorder{layout: l, value: in.value, gaps: in.gaps, integer: in.integer})
		}
	}
	return fs, w
}

// name is the full name of an instrument.
func (f *family) name(i int) string { return f.prefix + "." + f.instruments[i].name }

// layoutOf returns the layout of a histogram, nil for a sum.
func layoutOf(c *HistogramConfig, name string, ladder []float64) *layout {
	switch bounds := c.Boundaries[name]; {
	case ladder == nil:
		return nil
	case c.Type == histogramExponential:
		return exponentialLayout(c.MaxSize)
	case len(bounds) > 0:
		return explicitLayout(bounds)
	default:
		return explicitLayout(ladder)
	}
}

// histogramNames returns the full names of all histograms.
func histogramNames(c *Config) []string {
	fs, _ := families(c)
	var names []string
	for _, f := range fs {
		for i, l := range f.layouts {
			if l != nil {
				names = append(names, f.name(i))
			}
		}
	}
	return names
}

func required(v *value) *value {
	if v.kind == absent {
		return &notSaid
	}
	return v
}

func fromSpan(slot int) func(*stream) *value {
	return func(s *stream) *value { return &s.span[slot] }
}

func fromSpanOrResource(slot int, otherwise *string) func(*stream) *value {
	var missing value
	if otherwise != nil {
		missing = stringValue(*otherwise)
	}
	return func(s *stream) *value {
		switch {
		case s.span[slot].kind != absent:
			return &s.span[slot]
		case s.resource[slot].kind != absent:
			return &s.resource[slot]
		default:
			return &missing
		}
	}
}

func provider(s *stream) *value {
	if v := &s.span[slotProvider]; v.kind != absent {
		return v
	}
	return &s.span[slotSystem]
}

// operation is that of the span that was split, which the stream span keeps under another name, or else the span's own.
func operation(s *stream) *value {
	if s.operation.kind != absent {
		return &s.operation
	}
	return &s.span[slotOperation]
}

func kind(s *stream) *value {
	if k := s.record.SourceKind; k >= 0 && int(k) < len(kinds) {
		return &kinds[k]
	}
	return &kinds[ptrace.SpanKindUnspecified]
}

// outcome lets no other value through than the known ones, whatever a span says.
func outcome(s *stream) *value {
	switch s.record.Outcome {
	case dialect.OutcomeCompleted:
		return &outcomeCompleted
	case dialect.OutcomeIncomplete:
		return &outcomeIncomplete
	case dialect.OutcomeCancelled:
		return &outcomeCancelled
	case dialect.OutcomeError:
		return &outcomeError
	default:
		return &outcomeUnknown
	}
}

// firstChunk tells streams whose first chunk nobody recorded from those that had none: a call that failed, with nothing on its span that
// a chunk could have left.
func firstChunk(s *stream) *value {
	r := s.record
	switch {
	case r.TimeToFirstChunk.OK:
		return &firstChunkKnown
	case r.Outcome == dialect.OutcomeError && r.Cadence.ChunkCount == 0 && r.Cadence.TokenCount == 0:
		return &firstChunkNone
	default:
		return &firstChunkUnknown
	}
}

// isGenAIClient says which streams the metrics gen_ai.client.* are about: GenAI calls as their client saw them. Many instrumentations
// record those with kind INTERNAL.
func isGenAIClient(s *stream) bool {
	k := s.record.SourceKind
	return (k == ptrace.SpanKindClient || k == ptrace.SpanKindInternal) && isGenAI(s)
}

// openInference is the dialect of instrumentations that write llm.* keys only, none of which a stream span keeps. They instrument nothing
// but GenAI.
const openInference = "openinference"

// isGenAI recognises GenAI calls. Of a raw span the record says it. A processed span does not, but has an attribute of the convention (one
// that was not split has gen_ai.request.stream at least), names a GenAI key as the source of a number, or is of a dialect that says it.
func isGenAI(s *stream) bool {
	if s.record.GenAI || s.record.Dialect == openInference || operation(s).kind != absent {
		return true
	}
	for _, slot := range [...]int{slotProvider, slotSystem, slotRequestModel, slotResponseModel, slotRequestStream} {
		if s.span[slot].kind != absent {
			return true
		}
	}
	return isGenAIKey(s.record.TokenSource) || isGenAIKey(s.record.FirstChunkSource)
}

// isGenAIKey reports whether a key is in one of the namespaces by which GenAI spans are told from others.
func isGenAIKey(key string) bool {
	return strings.HasPrefix(key, "gen_ai.") || strings.HasPrefix(key, "llm.") || strings.HasPrefix(key, "ai.")
}
