// Copyright The otelcol-stream Authors
// SPDX-License-Identifier: Apache-2.0

package streamspan

import (
	"encoding/binary"
	"slices"

	"github.com/cespare/xxhash/v2"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/otelcol-stream/otelcol-stream/internal/cadence"
	"github.com/otelcol-stream/otelcol-stream/internal/dialect"
)

// ChunkStream is a stream of which only the chunk spans are known: the span that they lie below has not come.
type ChunkStream struct {
	Trace  pcommon.TraceID
	Parent pcommon.SpanID
	// Name is the name of the parent as far as it can be told.
	Name       string
	TraceState string
	Flags      uint32
	Totals     *dialect.ChunkTotals
	// Instants are those that were kept, in any order; they are sorted.
	Instants []int64
	// Beyond accounts for the chunks after them; nil without such chunks.
	Beyond *cadence.Beyond
}

// PutChunkStream makes span the stream span of a stream whose parent has not come: a child of that parent like the chunk spans that it
// replaces, from the first chunk to the end of the last, its outcome incomplete since nobody saw the end. The time to first chunk is not
// known, since the start of the parent is not.
func (f *Finder) PutChunkStream(span ptrace.Span, c *ChunkStream, suffix string) {
	t := c.Totals
	slices.Sort(c.Instants)
	in := cadence.Stream{
		First: t.Earliest, FirstKnown: true, End: t.End,
		Instants: c.Instants, Beyond: c.Beyond, NewestKept: true,
		Missing: t.Seen - int64(len(c.Instants)),
	}
	if c.Beyond != nil {
		in.Missing -= c.Beyond.Chunks
	}
	rec := Record{
		Phase:            PhaseStream,
		Dialect:          t.Dialect(),
		FirstChunkSource: t.Source(),
		Outcome:          dialect.OutcomeIncomplete,
		Duration:         cadence.Of(seconds(t.End - t.Earliest)),
		SpansFolded:      t.Seen,
		SourceKind:       t.ParentKind(),
	}
	in.Tokens, rec.TokenSource = t.Tokens()
	in.TokensKnown = rec.TokenSource != ""
	in.Bytes, in.BytesKnown = t.Bytes()
	f.calc.Summarize(in, &rec.Cadence)

	span.SetTraceID(c.Trace)
	span.SetSpanID(chunkStreamID(c))
	span.SetParentSpanID(c.Parent)
	span.SetName(c.Name + suffix)
	span.SetKind(ptrace.SpanKindInternal)
	span.SetFlags(c.Flags)
	span.TraceState().FromRaw(c.TraceState)
	span.SetStartTimestamp(pcommon.Timestamp(t.Earliest))
	span.SetEndTimestamp(pcommon.Timestamp(t.End))
	attrs := span.Attributes()
	attrs.EnsureCapacity(rec.attributes())
	rec.putCommon(attrs, PhaseStream)
	rec.putCadence(attrs, PhaseStream)
}

// chunkStreamID differs from the id of the parent's own stream span, should the parent still come, and from stream to stream of one
// parent, should its chunks go out in several. The same chunk spans give the same id.
func chunkStreamID(c *ChunkStream) pcommon.SpanID {
	var buf [len(c.Trace) + len(c.Parent) + 1 + 8]byte
	n := copy(buf[:], c.Trace[:])
	n += copy(buf[n:], c.Parent[:])
	buf[n] = idChunks
	binary.BigEndian.PutUint64(buf[n+1:], uint64(c.Totals.Earliest))
	var id pcommon.SpanID
	binary.BigEndian.PutUint64(id[:], max(1, xxhash.Sum64(buf[:])))
	return id
}
