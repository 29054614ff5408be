// Copyright The otelcol-stream Authors
// SPDX-License-Identifier: Apache-2.0

// Package spanlaws holds what must be true of every batch of spans that the processor has rewritten, whatever came in, and a generator of
// batches to try it on. Tests of several packages and the fuzz targets check the same laws through it. It looks only at spans and shares
// no code with what it checks.
package spanlaws

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"
)

// Settings are the settings under which a batch was rewritten.
type Settings struct {
	// Mode is split, annotate or nest.
	Mode string
	// Suffix is what is appended to the name of a stream span.
	Suffix string
	// Copy lists the attributes that a stream span gets from its source.
	Copy []string
	// Keep says that per-chunk events stay.
	Keep bool
}

// Tally counts what became of the spans.
type Tally struct {
	Split, Whole, Envelope, Untouched int
	Collapsed                         int64
}

const (
	phaseKey     = "stream.phase"
	collapsedKey = "stream.chunk.events_collapsed"
	errorKey     = "error.type"
	prefix       = "stream."
)

// convention are the attributes that are filled in on the spans of GenAI calls.
var convention = []string{"gen_ai.request.stream", "gen_ai.response.time_to_first_chunk"}

// Check returns every law that after breaks, given what went in.
func Check(before, after ptrace.Traces, s Settings) (Tally, error) {
	c := checker{settings: s}
	c.traces(before, after)
	return c.tally, errors.Join(c.errs...)
}

type checker struct {
	settings Settings
	where    string
	errs     []error
	tally    Tally
}

// maxErrors keeps the report of a batch that is wrong throughout readable.
const maxErrors = 20

func (c *checker) fail(format string, args ...any) {
	if len(c.errs) < maxErrors {
		c.errs = append(c.errs, fmt.Errorf("%s: %s", c.where, fmt.Sprintf(format, args...)))
	}
}

func (c *checker) traces(before, after ptrace.Traces) {
	c.where = "batch"
	if b, a := before.ResourceSpans().Len(), after.ResourceSpans().Len(); b != a {
		c.fail("%d resources became %d", b, a)
		return
	}
	for i, rb := range before.ResourceSpans().All() {
		ra := after.ResourceSpans().At(i)
		c.where = fmt.Sprintf("resource %d", i)
		if rb.SchemaUrl() != ra.SchemaUrl() || !sameMap(rb.Resource().Attributes(), ra.Resource().Attributes()) ||
			rb.Resource().DroppedAttributesCount() != ra.Resource().DroppedAttributesCount() {
			c.fail("the resource changed")
		}
		if b, a := rb.ScopeSpans().Len(), ra.ScopeSpans().Len(); b != a {
			c.fail("%d scopes became %d", b, a)
			continue
		}
		for j, sb := range rb.ScopeSpans().All() {
			sa := ra.ScopeSpans().At(j)
			c.where = fmt.Sprintf("resource %d scope %d", i, j)
			if sb.SchemaUrl() != sa.SchemaUrl() || sb.Scope().Name() != sa.Scope().Name() || sb.Scope().Version() != sa.Scope().Version() ||
				!sameMap(sb.Scope().Attributes(), sa.Scope().Attributes()) {
				c.fail("the scope changed")
			}
			c.scope(sb.Spans(), sa.Spans())
		}
	}
}

func (c *checker) scope(before, after ptrace.SpanSlice) {
	if after.Len() < before.Len() {
		c.fail("%d spans became %d", before.Len(), after.Len())
		return
	}
	scope := c.where
	added := make([]ptrace.Span, 0, after.Len()-before.Len())
	for i := before.Len(); i < after.Len(); i++ {
		added = append(added, after.At(i))
	}
	for i, s := range before.All() {
		c.where = fmt.Sprintf("%s span %d %q", scope, i, s.Name())
		out := after.At(i)
		phase := phaseOf(out)
		switch {
		case phaseOf(s) != "" || phase == "":
			c.tally.Untouched++
			if !sameSpan(s, out) {
				c.fail("a span that does not stream, or was processed before, changed")
			}
		case phase == "request" && c.settings.Mode == "split":
			c.tally.Split++
			added = c.split(s, out, added)
		case phase == "whole":
			c.tally.Whole++
			c.whole(s, out)
		case phase == "envelope" && c.settings.Mode == "nest":
			c.tally.Envelope++
			c.whole(s, out)
			added = c.nested(s, added)
		default:
			c.fail("phase %q in mode %s", phase, c.settings.Mode)
		}
	}
	c.where = scope
	for _, s := range added {
		c.fail("span %q (%s) belongs to no span that came in", s.Name(), phaseOf(s))
	}
}

// take returns the first of the spans that is the given part of s, and the rest.
func take(s ptrace.Span, phase string, from []ptrace.Span) (ptrace.Span, []ptrace.Span, bool) {
	for i, t := range from {
		if phaseOf(t) == phase && t.TraceID() == s.TraceID() && t.ParentSpanID() == s.SpanID() && strings.HasPrefix(t.Name(), s.Name()) {
			return t, slices.Delete(from, i, i+1), true
		}
	}
	return ptrace.Span{}, from, false
}

func (c *checker) split(s, r ptrace.Span, added []ptrace.Span) []ptrace.Span {
	t, added, ok := take(s, "stream", added)
	if !ok {
		c.fail("no stream span for it")
		return added
	}
	c.same("name", s.Name(), r.Name())
	c.same("kind", s.Kind(), r.Kind())
	c.identity(s, r)
	c.same("start of the request span", s.StartTimestamp(), r.StartTimestamp())
	c.same("status of the request span", "", statusText(r.Status()))
	c.same("status of the stream span", statusText(s.Status()), statusText(t.Status()))
	c.times(s, r, t)
	c.streamSpan(s, t)

	for key, v := range s.Attributes().All() {
		on := r.Attributes()
		if key == errorKey {
			on = t.Attributes()
		}
		c.attribute(on, key, v)
	}
	c.newAttributes(s, r)
	if _, ok := r.Attributes().Get(errorKey); ok {
		c.fail("error.type stayed on the request span")
	}
	c.events(s, collapsed(t), r.Events(), t.Events())
	for _, e := range r.Events().All() {
		if at := e.Timestamp(); at >= t.StartTimestamp() {
			c.fail("event %q at %d lies on the request span, which ends at %d", e.Name(), at, t.StartTimestamp())
		}
	}
	for _, e := range t.Events().All() {
		// A stamp in microseconds is one of January 1970.
		if at := e.Timestamp(); at < t.StartTimestamp() && at*1000 < t.StartTimestamp() {
			c.fail("event %q at %d lies on the stream span, which starts at %d", e.Name(), at, t.StartTimestamp())
		}
	}
	return added
}

func (c *checker) nested(s ptrace.Span, added []ptrace.Span) []ptrace.Span {
	t, added, ok := take(s, "stream", added)
	if !ok {
		c.fail("no stream span for it")
		return added
	}
	r, added, ok := take(s, "request", added)
	if !ok {
		c.fail("no request span for it")
		return added
	}
	c.same("start of the request span", s.StartTimestamp(), r.StartTimestamp())
	c.same("kind of the request span", ptrace.SpanKindInternal, r.Kind())
	if r.SpanID() == t.SpanID() || r.SpanID() == s.SpanID() || r.SpanID().IsEmpty() {
		c.fail("the id of the request span is %s", r.SpanID())
	}
	c.times(s, r, t)
	c.streamSpan(s, t)
	c.same("events of the parts", 0, r.Events().Len()+t.Events().Len())
	return added
}

func (c *checker) times(s, r, t ptrace.Span) {
	c.same("R.end and T.start", r.EndTimestamp(), t.StartTimestamp())
	c.same("end of the stream span", s.EndTimestamp(), t.EndTimestamp())
	if f := t.StartTimestamp(); f < s.StartTimestamp() || f > s.EndTimestamp() {
		c.fail("the first chunk at %d lies outside [%d, %d]", f, s.StartTimestamp(), s.EndTimestamp())
	}
}

// streamSpan checks what the stream span takes from its source and what it must not.
func (c *checker) streamSpan(s, t ptrace.Span) {
	c.same("name of the stream span", s.Name()+c.settings.Suffix, t.Name())
	c.same("kind of the stream span", ptrace.SpanKindInternal, t.Kind())
	c.same("trace state of the stream span", s.TraceState().AsRaw(), t.TraceState().AsRaw())
	c.same("flags of the stream span", s.Flags()&0xff|0x100, t.Flags())
	c.same("links of the stream span", 0, t.Links().Len())
	c.same("dropped counts of the stream span", uint32(0), t.DroppedAttributesCount()|t.DroppedEventsCount()|t.DroppedLinksCount())
	if t.SpanID().IsEmpty() || t.SpanID() == s.SpanID() {
		c.fail("the id of the stream span is %s", t.SpanID())
	}
	for key := range t.Attributes().All() {
		if !strings.HasPrefix(key, prefix) && key != errorKey && !slices.Contains(c.settings.Copy, key) {
			c.fail("the stream span has %s, which is neither its own nor to be copied", key)
		}
	}
	for _, key := range c.settings.Copy {
		if v, ok := s.Attributes().Get(key); ok && key != errorKey {
			if _, ok := t.Attributes().Get(key); !ok {
				c.fail("%s = %s was not copied", key, v.AsString())
			}
		}
	}
}

// whole checks a span that keeps its shape.
func (c *checker) whole(s, out ptrace.Span) {
	c.same("name", s.Name(), out.Name())
	c.same("kind", s.Kind(), out.Kind())
	c.identity(s, out)
	c.same("start", s.StartTimestamp(), out.StartTimestamp())
	c.same("end", s.EndTimestamp(), out.EndTimestamp())
	c.same("status", statusText(s.Status()), statusText(out.Status()))
	for key, v := range s.Attributes().All() {
		c.attribute(out.Attributes(), key, v)
	}
	c.newAttributes(s, out)
	n := collapsed(out)
	if phaseOf(out) == "envelope" {
		// Its summary is on the stream span.
		n = int64(s.Events().Len() - out.Events().Len())
	}
	c.events(s, n, out.Events())
}

func (c *checker) identity(s, out ptrace.Span) {
	c.same("trace id", s.TraceID(), out.TraceID())
	c.same("span id", s.SpanID(), out.SpanID())
	c.same("parent", s.ParentSpanID(), out.ParentSpanID())
	c.same("trace state", s.TraceState().AsRaw(), out.TraceState().AsRaw())
	c.same("flags", s.Flags(), out.Flags())
	c.same("dropped attributes", s.DroppedAttributesCount(), out.DroppedAttributesCount())
	c.same("dropped events", s.DroppedEventsCount(), out.DroppedEventsCount())
	c.same("dropped links", s.DroppedLinksCount(), out.DroppedLinksCount())
	if !sameSpan(onlyLinks(s), onlyLinks(out)) {
		c.fail("the links changed")
	}
}

// attribute checks that one attribute of the source is still there. The project's own namespace is the project's to overwrite.
func (c *checker) attribute(m pcommon.Map, key string, v pcommon.Value) {
	if strings.HasPrefix(key, prefix) {
		return
	}
	for k, w := range m.All() {
		if k == key && sameValue(v, w) {
			return
		}
	}
	c.fail("attribute %s = %q got lost", key, v.AsString())
}

func (c *checker) newAttributes(s, out ptrace.Span) {
	for key := range out.Attributes().All() {
		if _, ok := s.Attributes().Get(key); !ok && !strings.HasPrefix(key, prefix) && !slices.Contains(convention, key) {
			c.fail("attribute %s came from nowhere", key)
		}
	}
}

// events checks that every event of the source is on exactly one of the parts, in its order, or in the collapsed count.
func (c *checker) events(s ptrace.Span, collapsed int64, parts ...ptrace.SpanEventSlice) {
	left := 0
	for _, part := range parts {
		left += part.Len()
	}
	c.tally.Collapsed += collapsed
	if c.settings.Keep && collapsed != 0 {
		c.fail("%d events were collapsed although they were to be kept", collapsed)
	}
	if int64(left)+collapsed != int64(s.Events().Len()) {
		c.fail("%d events became %d and %d collapsed", s.Events().Len(), left, collapsed)
	}
	next := make([]int, len(parts))
	for _, e := range s.Events().All() {
		for i, part := range parts {
			if next[i] < part.Len() && sameEvent(e, part.At(next[i])) {
				next[i]++
				break
			}
		}
	}
	for i, part := range parts {
		if next[i] != part.Len() {
			c.fail("events of part %d are not the source's, or in another order", i)
		}
	}
}

func (c *checker) same(what string, want, got any) {
	if fmt.Sprint(want) != fmt.Sprint(got) {
		c.fail("%s: %v became %v", what, want, got)
	}
}

func phaseOf(s ptrace.Span) string {
	v, ok := s.Attributes().Get(phaseKey)
	if !ok {
		return ""
	}
	if v.Type() != pcommon.ValueTypeStr || v.Str() == "" {
		return "malformed"
	}
	return v.Str()
}

func collapsed(s ptrace.Span) int64 {
	v, ok := s.Attributes().Get(collapsedKey)
	if !ok {
		return 0
	}
	return v.Int()
}

func statusText(s ptrace.Status) string {
	if s.Code() == ptrace.StatusCodeUnset && s.Message() == "" {
		return ""
	}
	return s.Code().String() + " " + s.Message()
}

// Marshal returns the bytes of a batch.
func Marshal(td ptrace.Traces) []byte {
	raw, err := (&ptrace.ProtoMarshaler{}).MarshalTraces(td)
	if err != nil {
		panic(err) // the marshaler of pdata never fails
	}
	return raw
}

func spanBytes(fill func(ptrace.Span)) []byte {
	td := ptrace.NewTraces()
	fill(td.ResourceSpans().AppendEmpty().ScopeSpans().AppendEmpty().Spans().AppendEmpty())
	return Marshal(td)
}

func sameSpan(a, b ptrace.Span) bool {
	return bytes.Equal(spanBytes(a.CopyTo), spanBytes(b.CopyTo))
}

func onlyLinks(s ptrace.Span) ptrace.Span {
	out := ptrace.NewSpan()
	s.Links().CopyTo(out.Links())
	return out
}

func sameEvent(a, b ptrace.SpanEvent) bool {
	return a.Name() == b.Name() && a.Timestamp() == b.Timestamp() && a.DroppedAttributesCount() == b.DroppedAttributesCount() &&
		sameMap(a.Attributes(), b.Attributes())
}

// sameMap and sameValue fall back on the bytes, since NaN differs from itself.
func sameMap(a, b pcommon.Map) bool {
	return a.Len() == b.Len() && (a.Equal(b) || bytes.Equal(
		spanBytes(func(s ptrace.Span) { a.CopyTo(s.Attributes()) }), spanBytes(func(s ptrace.Span) { b.CopyTo(s.Attributes()) })))
}

func sameValue(a, b pcommon.Value) bool {
	return a.Type() == b.Type() && (a.Equal(b) || bytes.Equal(
		spanBytes(func(s ptrace.Span) { a.CopyTo(s.Attributes().PutEmpty("v")) }),
		spanBytes(func(s ptrace.Span) { b.CopyTo(s.Attributes().PutEmpty("v")) })))
}
