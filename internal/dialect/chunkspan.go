// Copyright The otelcol-stream Authors
// SPDX-License-Identifier: Apache-2.0

package dialect

import (
	"math"
	"slices"
	"strings"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"
)

// ReasonFailedChunk: a chunk span that ended in an error is no delivered chunk, and what it tells must not be folded away.
const ReasonFailedChunk Reason = "failed_chunk"

// chunkSizes are the attributes under which a chunk span may carry the size of its chunk.
var chunkSizes = []string{
	"http.response.body.size", "http.wrote_bytes", "messaging.message.body.size",
	"message.uncompressed_size", "rpc.message.uncompressed_size", "message.compressed_size", "rpc.message.compressed_size",
}

// ChunkSpan is what one chunk span tells of its chunk.
type ChunkSpan struct {
	// Instant is when the chunk was delivered: the start of its span. Instrumentations open the span at the delivery and close it when
	// they have booked it.
	Instant int64
	// End is the end of the span.
	End int64

	row          *compiledSpan
	tokenRow     *compiledAttr
	tokens, size int64
	sized        bool
}

// HasChunkSpans reports whether the table has a row for chunk spans.
func (t *Table) HasChunkSpans() bool { return t.chunkSpans }

// ChunkSpan reports whether a span stands for one chunk of its parent's stream. A span that a row matches and that cannot be taken for a
// chunk gives the reason instead; it is none.
func (t *Table) ChunkSpan(scope string, span ptrace.Span) (c ChunkSpan, bad Reason, ok bool) {
	row := t.chunkRow(scope, span)
	if row == nil {
		return ChunkSpan{}, "", false
	}
	if bad = badSpan(span); bad == "" {
		switch {
		case span.ParentSpanID().IsEmpty():
			bad = ReasonZeroID
		case span.StartTimestamp() == 0:
			bad = ReasonTimeOutOfRange
		case span.Status().Code() == ptrace.StatusCodeError:
			bad = ReasonFailedChunk
		}
	}
	if bad != "" {
		return ChunkSpan{}, bad, false
	}
	c = ChunkSpan{Instant: int64(span.StartTimestamp()), End: int64(span.EndTimestamp()), row: row}
	for key, v := range span.Attributes().All() {
		if t.detailFilter.may(key) {
			if a := t.attr(key); a != nil {
				switch a.Role {
				case rolePhase:
					return ChunkSpan{}, "", false // one of ours
				case RoleOutputTokens:
					if n, ok := countOf(v); ok && (c.tokenRow == nil || a.rank < c.tokenRow.rank) {
						c.tokenRow, c.tokens = a, n
					}
				default:
				}
				continue
			}
		}
		if !c.sized && slices.Contains(chunkSizes, key) {
			c.size, c.sized = countOf(v)
		}
	}
	return c, "", true
}

// chunkRow returns the row of a chunk span. Nearly every name is dismissed by one or two loads.
func (t *Table) chunkRow(scope string, span ptrace.Span) *compiledSpan {
	name := span.Name()
	if name == "" {
		return nil
	}
	if t.spanFilter.may(name) {
		for _, row := range t.spans[name] {
			if row.Role == RoleChunk && row.matches(scope, span) {
				return row
			}
		}
	}
	if t.suffixLast[name[len(name)-1]] {
		for _, row := range t.spanSuffixes {
			if row.Role == RoleChunk && strings.HasSuffix(name, row.key) && row.matches(scope, span) {
				return row
			}
		}
	}
	return nil
}

func (s *compiledSpan) matches(scope string, span ptrace.Span) bool {
	if len(s.Scopes) > 0 && !slices.ContainsFunc(s.Scopes, func(prefix string) bool { return strings.HasPrefix(scope, prefix) }) {
		return false
	}
	for _, c := range s.where {
		v, ok := span.Attributes().Get(c.key)
		if !ok || v.AsString() != c.want {
			return false
		}
	}
	return true
}

// WritesChunkSpans reports whether the spans of an instrumentation scope may have chunk spans below them, and of which kind such a parent
// is; unspecified stands for any. It knows the scopes of the built-in rows.
func (t *Table) WritesChunkSpans(scope string) (kind ptrace.SpanKind, ok bool) {
	s := lookupScope(scope)
	if s == nil {
		return ptrace.SpanKindUnspecified, false
	}
	for _, row := range t.chunkRows() {
		if row.dialect != "" && row.dialect == s.dialect {
			return row.parent, true
		}
	}
	return ptrace.SpanKindUnspecified, false
}

func (t *Table) chunkRows() []*compiledSpan {
	var rows []*compiledSpan
	for _, named := range t.spans {
		rows = append(rows, named...)
	}
	rows = append(rows, t.spanSuffixes...)
	return slices.DeleteFunc(rows, func(row *compiledSpan) bool { return row.Role != RoleChunk })
}

// ParentKind is the kind of the span that chunk spans of this row lie below; unspecified when any will do.
func (c ChunkSpan) ParentKind() ptrace.SpanKind { return c.row.parent }

// ParentName guesses the name of the span that a chunk span of this name lies below. A row that matches a suffix says it; otherwise the
// chunk span's own name has to do.
func (c ChunkSpan) ParentName(name string) string {
	if c.row.Suffix {
		if parent := strings.TrimSuffix(name, c.row.key); parent != "" {
			return parent
		}
	}
	return name
}

// ChunkTotals are what the chunk spans of one stream add up to, but for their instants. They are the same in whatever order the spans
// come. The zero value is ready to use.
type ChunkTotals struct {
	// Seen counts the chunk spans.
	Seen int64
	// Earliest and Latest are the extreme instants, End is the latest end of a span. All are meaningful when Seen is positive.
	Earliest, Latest, End int64

	row      *compiledSpan // of the earliest
	tokenRow *compiledAttr // the best of those that gave tokens
	tokens   int64
	size     int64
	counted  int64 // chunk spans with tokens
	sized    int64 // chunk spans with a size
	other    bool  // some chunk span is no body write
}

// Add accounts for one chunk span.
func (t *ChunkTotals) Add(c *ChunkSpan) {
	one := ChunkTotals{Seen: 1, Earliest: c.Instant, Latest: c.Instant, End: c.End, row: c.row, other: !c.row.bodyWrite}
	if c.tokenRow != nil {
		one.tokenRow, one.tokens, one.counted = c.tokenRow, c.tokens, 1
	}
	if c.sized {
		one.size, one.sized = c.size, 1
	}
	t.Merge(&one)
}

// Merge adds the chunk spans of o.
func (t *ChunkTotals) Merge(o *ChunkTotals) {
	if o.Seen == 0 {
		return
	}
	if t.Seen == 0 {
		*t = *o
		return
	}
	if o.Earliest < t.Earliest || o.Earliest == t.Earliest && o.row.key < t.row.key {
		t.Earliest, t.row = o.Earliest, o.row
	}
	if o.tokenRow != nil && (t.tokenRow == nil || o.tokenRow.rank < t.tokenRow.rank) {
		t.tokenRow = o.tokenRow
	}
	t.Latest, t.End = max(t.Latest, o.Latest), max(t.End, o.End)
	t.Seen += o.Seen
	t.tokens = addSaturated(t.tokens, o.tokens)
	t.size = addSaturated(t.size, o.size)
	t.counted += o.counted
	t.sized += o.sized
	t.other = t.other || o.other
}

func addSaturated(a, b int64) int64 {
	if sum := a + b; sum >= 0 {
		return sum
	}
	return math.MaxInt64
}

// Stream reports whether the chunk spans by themselves show that their parent streams, in nanoseconds of spread for body writes.
func (t *ChunkTotals) Stream(minSpread int64) bool {
	return showStream(t.Seen, t.Earliest, t.Latest, !t.other, minSpread)
}

// showStream reports whether chunk records decide that a span streams: two or more do, body writes only when they spread, so that a
// template written in three pieces is no stream.
func showStream(seen, earliest, latest int64, bodyWrite bool, minSpread int64) bool {
	return seen >= 2 && (!bodyWrite || latest-earliest >= minSpread)
}

// Dialect is the instrumentation that wrote the chunk spans, Source the name that says where the first chunk comes from, ParentKind the
// kind of the span they lie below.
func (t *ChunkTotals) Dialect() string {
	if t.row.dialect == "" {
		return "custom"
	}
	return t.row.dialect
}

// Source is what stream.first_chunk.source says of a first chunk that is a span: the name, or the part of it, that the table has a row for.
func (t *ChunkTotals) Source() string { return strings.TrimSpace(t.row.key) }

// ParentKind is the kind of the span that the chunk spans lie below; unspecified when it is not known.
func (t *ChunkTotals) ParentKind() ptrace.SpanKind { return t.row.parent }

// Tokens returns the sum of the tokens and the key that they stand under; "" unless every chunk span has them.
func (t *ChunkTotals) Tokens() (n int64, key string) {
	if t.counted != t.Seen || t.tokenRow == nil {
		return 0, ""
	}
	return t.tokens, t.tokenRow.key
}

// Bytes returns the sum of the sizes; ok is false unless every chunk span has one.
func (t *ChunkTotals) Bytes() (n int64, ok bool) { return t.size, t.sized == t.Seen }

// Chunks returns the chunk records of a parent span. Instants that lie outside it cannot be right: those chunks count, their instants do
// not. The slice is changed and becomes part of the result.
func (t *ChunkTotals) Chunks(parent ptrace.Span, instants []int64) *Chunks {
	ev := Evidence{start: int64(parent.StartTimestamp()), end: int64(min(parent.EndTimestamp(), pcommon.Timestamp(math.MaxInt64)))}
	instants = slices.DeleteFunc(instants, func(at int64) bool {
		_, _, ok := ev.place(at)
		return !ok
	})
	c := &Chunks{
		Instants: instants, Seen: t.Seen, Spans: t.Seen,
		earliest: t.Earliest, latest: t.Latest, source: t.Source(), sourceKey: t.row.key, dialect: t.row.dialect, bodyWrite: !t.other,
	}
	c.Bytes, c.BytesKnown = t.Bytes()
	c.Tokens, c.TokenSource = t.Tokens()
	return c
}

// CanHold reports whether a span may be held back as the parent of chunk spans: one that makes no sense, or that is already one of ours,
// will not be changed by what comes later.
func CanHold(span ptrace.Span) bool {
	_, processed := span.Attributes().Get("stream.phase")
	return !processed && badSpan(span) == ""
}
