// Copyright The otelcol-stream Authors
// SPDX-License-Identifier: Apache-2.0

package streamspan

import (
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/otelcol-stream/otelcol-stream/internal/cadence"
	"github.com/otelcol-stream/otelcol-stream/internal/dialect"
)

// Names of the attributes, and of the two convention attributes that are filled in.
const (
	AttrPhase            = "stream.phase"
	AttrDialect          = "stream.dialect"
	AttrFirstChunkSource = "stream.first_chunk.source"
	AttrOutcome          = "stream.outcome"
	AttrTimeToFirstChunk = "stream.time_to_first_chunk"
	AttrDuration         = "stream.duration"
	AttrTail             = "stream.tail"
	AttrNested           = "stream.nested"
	AttrChunkCount       = "stream.chunk.count"
	AttrEventsCollapsed  = "stream.chunk.events_collapsed"
	AttrSpansFolded      = "stream.chunk.spans_folded"
	AttrQuality          = "stream.cadence.quality"
	AttrGapMean          = "stream.chunk.gap.mean"
	AttrGapP50           = "stream.chunk.gap.p50"
	AttrGapP95           = "stream.chunk.gap.p95"
	AttrGapP99           = "stream.chunk.gap.p99"
	AttrGapMax           = "stream.chunk.gap.max"
	AttrGapStddev        = "stream.chunk.gap.stddev"
	AttrGapJitter        = "stream.chunk.gap.jitter"
	AttrGapHistogram     = "stream.chunk.gap.histogram"
	AttrStallCount       = "stream.stall.count"
	AttrStallDuration    = "stream.stall.duration"
	AttrStallOffset      = "stream.stall.offset"
	AttrHeadBurst        = "stream.head_burst"
	AttrPeakRate         = "stream.chunk.rate.peak"
	AttrTokenCount       = "stream.token.count"
	AttrTokenSource      = "stream.token.source"
	AttrChunkTokens      = "stream.chunk.tokens"
	AttrTokenRate        = "stream.token.rate"
	AttrFluidity         = "stream.fluidity"
	AttrReaderWait       = "stream.reader.wait"
	AttrByteCount        = "stream.byte.count"
	AttrChunkBytes       = "stream.chunk.bytes"
	AttrSourceKind       = "stream.source.kind"
	AttrSourceOperation  = "stream.source.operation"

	attrErrorType     = "error.type"
	attrOperation     = "gen_ai.operation.name"
	attrRequestStream = "gen_ai.request.stream"
	attrResponseTTFC  = "gen_ai.response.time_to_first_chunk"
)

// Phase is which part of a streamed call a span describes. It is the value of stream.phase.
type Phase string

// Phases.
const (
	PhaseNone     Phase = ""
	PhaseRequest  Phase = "request"
	PhaseStream   Phase = "stream"
	PhaseWhole    Phase = "whole"
	PhaseEnvelope Phase = "envelope"
)

// Record is everything that the stream.* attributes of one span say.
type Record struct {
	Phase            Phase
	Dialect          string
	FirstChunkSource string
	Outcome          dialect.Outcome
	// TimeToFirstChunk is f − t0 and Duration t1 − f, both in seconds and absent when f is unknown.
	TimeToFirstChunk, Duration cadence.Value
	// Nested says that another span of the same call counts instead.
	Nested bool
	// EventsCollapsed and SpansFolded count what the summary replaced.
	EventsCollapsed, SpansFolded int64
	// SourceKind and SourceOperation are the kind and the GenAI operation of the span that was split.
	SourceKind      ptrace.SpanKind
	SourceOperation string
	// TokenSource is the key that gave the number of tokens.
	TokenSource string
	// GenAI says that the span carries a key of a GenAI namespace. It is not among the attributes.
	GenAI   bool
	Cadence cadence.Summary
}

// kindNames are the values of stream.source.kind.
var kindNames = [...]string{
	ptrace.SpanKindUnspecified: "SPAN_KIND_UNSPECIFIED",
	ptrace.SpanKindInternal:    "SPAN_KIND_INTERNAL",
	ptrace.SpanKindServer:      "SPAN_KIND_SERVER",
	ptrace.SpanKindClient:      "SPAN_KIND_CLIENT",
	ptrace.SpanKindProducer:    "SPAN_KIND_PRODUCER",
	ptrace.SpanKindConsumer:    "SPAN_KIND_CONSUMER",
}

// kindName is the name of a kind; one that OTLP does not know is unspecified.
func kindName(kind ptrace.SpanKind) string {
	if kind < 0 || int(kind) >= len(kindNames) {
		return kindNames[ptrace.SpanKindUnspecified]
	}
	return kindNames[kind]
}

// putCommon writes the attributes that every part of a stream carries.
func (r *Record) putCommon(m pcommon.Map, phase Phase) {
	m.PutStr(AttrPhase, string(phase))
	m.PutStr(AttrDialect, r.Dialect)
	if r.FirstChunkSource != "" {
		m.PutStr(AttrFirstChunkSource, r.FirstChunkSource)
	}
	m.PutStr(AttrOutcome, string(r.Outcome))
	putValue(m, AttrTimeToFirstChunk, r.TimeToFirstChunk)
	putValue(m, AttrDuration, r.Duration)
	if r.Nested {
		m.PutBool(AttrNested, true)
	}
}

// putCadence writes the attributes of the stream span, or of a span that was not split.
func (r *Record) putCadence(m pcommon.Map, phase Phase) {
	c := &r.Cadence
	m.PutStr(AttrQuality, c.Quality.String())
	putCount(m, AttrChunkCount, c.ChunkCount)
	putCount(m, AttrEventsCollapsed, r.EventsCollapsed)
	putCount(m, AttrSpansFolded, r.SpansFolded)
	for _, f := range valueFields {
		putValue(m, f.key, *f.of(c))
	}
	if c.Stalls {
		m.PutInt(AttrStallCount, c.StallCount)
	}
	if hasGaps(&c.Histogram) {
		putHistogram(m.PutEmptySlice(AttrGapHistogram), c.Histogram)
	}
	if c.TokensKnown {
		m.PutInt(AttrTokenCount, c.TokenCount)
		if r.TokenSource != "" {
			m.PutStr(AttrTokenSource, r.TokenSource)
		}
	}
	if c.BytesKnown {
		m.PutInt(AttrByteCount, c.ByteCount)
	}
	if phase == PhaseStream {
		m.PutStr(AttrSourceKind, kindName(r.SourceKind))
		if r.SourceOperation != "" {
			m.PutStr(AttrSourceOperation, r.SourceOperation)
		}
	}
}

func hasGaps(h *cadence.Histogram) bool { return h.Zero > 0 || len(h.Buckets) > 0 }

// attributes is the number of attributes of a stream span, and no less than that of the others.
func (r *Record) attributes() int {
	c := &r.Cadence
	n := 5 // phase, dialect, outcome, quality and the kind of the source are always there
	for _, there := range [...]bool{
		r.FirstChunkSource != "", r.TimeToFirstChunk.OK, r.Duration.OK, r.Nested, r.SourceOperation != "",
		c.ChunkCount > 0, r.EventsCollapsed > 0, r.SpansFolded > 0, c.Stalls, hasGaps(&c.Histogram),
		c.TokensKnown, c.TokensKnown && r.TokenSource != "", c.BytesKnown,
	} {
		if there {
			n++
		}
	}
	for _, f := range valueFields {
		if f.of(c).OK {
			n++
		}
	}
	return n
}

// valueFields pairs the attributes that are a double, or absent, with their fields.
var valueFields = []struct {
	key string
	of  func(*cadence.Summary) *cadence.Value
}{
	{AttrTail, func(c *cadence.Summary) *cadence.Value { return &c.Tail }},
	{AttrGapMean, func(c *cadence.Summary) *cadence.Value { return &c.GapMean }},
	{AttrGapP50, func(c *cadence.Summary) *cadence.Value { return &c.GapP50 }},
	{AttrGapP95, func(c *cadence.Summary) *cadence.Value { return &c.GapP95 }},
	{AttrGapP99, func(c *cadence.Summary) *cadence.Value { return &c.GapP99 }},
	{AttrGapMax, func(c *cadence.Summary) *cadence.Value { return &c.GapMax }},
	{AttrGapStddev, func(c *cadence.Summary) *cadence.Value { return &c.GapStddev }},
	{AttrGapJitter, func(c *cadence.Summary) *cadence.Value { return &c.GapJitter }},
	{AttrStallDuration, func(c *cadence.Summary) *cadence.Value { return &c.StallDuration }},
	{AttrStallOffset, func(c *cadence.Summary) *cadence.Value { return &c.StallOffset }},
	{AttrHeadBurst, func(c *cadence.Summary) *cadence.Value { return &c.HeadBurst }},
	{AttrPeakRate, func(c *cadence.Summary) *cadence.Value { return &c.PeakRate }},
	{AttrChunkTokens, func(c *cadence.Summary) *cadence.Value { return &c.ChunkTokens }},
	{AttrTokenRate, func(c *cadence.Summary) *cadence.Value { return &c.TokenRate }},
	{AttrFluidity, func(c *cadence.Summary) *cadence.Value { return &c.Fluidity }},
	{AttrReaderWait, func(c *cadence.Summary) *cadence.Value { return &c.ReaderWait }},
	{AttrChunkBytes, func(c *cadence.Summary) *cadence.Value { return &c.ChunkBytes }},
}

func putValue(m pcommon.Map, key string, v cadence.Value) {
	if v.OK {
		m.PutDouble(key, v.V)
	}
}

func putCount(m pcommon.Map, key string, n int64) {
	if n > 0 {
		m.PutInt(key, n)
	}
}

func putHistogram(s pcommon.Slice, h cadence.Histogram) {
	s.EnsureCapacity(2 + 2*len(h.Buckets))
	s.AppendEmpty().SetInt(int64(h.Scale))
	s.AppendEmpty().SetInt(h.Zero)
	for _, b := range h.Buckets {
		s.AppendEmpty().SetInt(int64(b.Index))
		s.AppendEmpty().SetInt(b.Count)
	}
}
