// Copyright The otelcol-stream Authors
// SPDX-License-Identifier: Apache-2.0

package fold

import (
	"encoding/binary"
	"iter"
	"unsafe"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"
)

// keptSpans are whole chunk spans of one stream that differ in nothing but their ids and times, which is what those of one response
// usually do: the first is kept as it came, of the others a few bytes.
type keptSpans struct {
	origin *Origin
	like   ptrace.Span
	size   int64  // of like
	others []byte // for each: the id, then start less like's start and duration as varints
	n      int
}

const (
	spanOverhead = 512 // a span in memory beyond its length on the wire: pointers, headers, what the allocator rounds up
	spanIDLen    = len(pcommon.SpanID{})
)

// wholes are all whole chunk spans that are kept of a stream, until it shows that it is one.
type wholes struct {
	kinds []keptSpans
	size  int64
	n     int
}

// alikeTries is the number of latest kinds of kept spans that a new one is compared with.
const alikeTries = 4

func (w *wholes) add(origin *Origin, span ptrace.Span) {
	w.n++
	for i := len(w.kinds) - 1; i >= 0 && i >= len(w.kinds)-alikeTries; i-- {
		k := &w.kinds[i]
		before := k.bytes()
		if k.add(origin, span) {
			w.size += k.bytes() - before
			return
		}
	}
	w.kinds = append(w.kinds, newKept(origin, span))
	w.size += w.kinds[len(w.kinds)-1].bytes() + int64(unsafe.Sizeof(keptSpans{}))
}

// join takes over those of o.
func (w *wholes) join(o *wholes) {
	w.kinds, w.size, w.n = append(w.kinds, o.kinds...), w.size+o.size, w.n+o.n
}

func newKept(origin *Origin, span ptrace.Span) keptSpans {
	return keptSpans{origin: origin.keep(), like: span, size: spanSize(span), n: 1}
}

func spanSize(span ptrace.Span) int64 {
	return int64((&ptrace.ProtoMarshaler{}).SpanSize(span))*2 + spanOverhead
}

// add takes the span in when it differs from the first in id and times alone.
func (k *keptSpans) add(origin *Origin, span ptrace.Span) bool {
	if origin != k.origin || !alike(k.like, span) {
		return false
	}
	id := span.SpanID()
	k.others = append(k.others, id[:]...)
	k.others = binary.AppendVarint(k.others, int64(span.StartTimestamp()-k.like.StartTimestamp()))
	k.others = binary.AppendUvarint(k.others, uint64(span.EndTimestamp()-span.StartTimestamp()))
	k.n++
	return true
}

// appendTo appends the spans as they came.
func (k *keptSpans) appendTo(dst ptrace.SpanSlice) {
	k.like.CopyTo(dst.AppendEmpty())
	for rest := k.others; len(rest) > 0; {
		span := dst.AppendEmpty()
		k.like.CopyTo(span)
		span.SetSpanID(pcommon.SpanID(rest[:spanIDLen]))
		rest = rest[spanIDLen:]
		d, n := binary.Varint(rest)
		rest = rest[n:]
		start := k.like.StartTimestamp() + pcommon.Timestamp(d)
		span.SetStartTimestamp(start)
		length, n := binary.Uvarint(rest)
		rest = rest[n:]
		span.SetEndTimestamp(start + pcommon.Timestamp(length))
	}
}

func (k *keptSpans) bytes() int64 { return k.size + int64(cap(k.others)) }

// alike reports whether two spans of one trace and parent differ in nothing but their ids and times.
func alike(a, b ptrace.Span) bool {
	return a.Name() == b.Name() && a.Kind() == b.Kind() && a.Flags() == b.Flags() &&
		a.TraceState().AsRaw() == b.TraceState().AsRaw() &&
		a.Status().Code() == b.Status().Code() && a.Status().Message() == b.Status().Message() &&
		a.Events().Len()+b.Events().Len()+a.Links().Len()+b.Links().Len() == 0 &&
		a.DroppedAttributesCount() == b.DroppedAttributesCount() && a.DroppedEventsCount() == b.DroppedEventsCount() &&
		a.DroppedLinksCount() == b.DroppedLinksCount() && sameAttributes(a.Attributes(), b.Attributes())
}

// sameAttributes compares in order: two maps in which keys repeat are not told apart by looking keys up.
func sameAttributes(a, b pcommon.Map) bool {
	if a.Len() != b.Len() {
		return false
	}
	next, stop := iter.Pull2(b.All())
	defer stop()
	for key, v := range a.All() {
		other, w, ok := next()
		if !ok || key != other || !v.Equal(w) {
			return false
		}
	}
	return true
}
