// Copyright The otelcol-stream Authors
// SPDX-License-Identifier: Apache-2.0

package streamspan

import (
	"math"
	"time"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"
)

// nestTolerance is how far a span may stick out of the span above it and still be the same call.
const nestTolerance = int64(50 * time.Millisecond)

// maxAncestors bounds the walk up from a span. Real traces stay far below; a chain made to be long, or a loop, ends here.
const maxAncestors = 64

type spanKey struct {
	trace pcommon.TraceID
	span  pcommon.SpanID
}

type treeNode struct {
	parent pcommon.SpanID
	server bool
	found  int // index into the found spans, -1 for others
}

// descendants sums up the streaming spans below a streaming span, as far as is needed to tell whether one of them does not overlap a
// given span: the latest start and the earliest end.
type descendants struct {
	latestStart, earliestEnd int64
}

// beside reports whether one of the descendants does not overlap b, itself one of them.
func (d descendants) beside(b *Found) bool {
	return d.latestStart >= end(b) && d.latestStart > start(b) || d.earliestEnd <= start(b) && d.earliestEnd < end(b)
}

// pair is a streaming span and a streaming span above it, with no server between them.
type pair struct{ upper, lower int }

// calls tells which streaming spans of a batch describe the same call. A call is often recorded twice: by an SDK's own span under an
// instrumentation's, by a framework's step.
type calls struct {
	traces map[pcommon.TraceID]int
	nodes  map[spanKey]treeNode
	below  []descendants
	pairs  []pair
}

// mark sets Nested on every span for which another span of the same call counts.
func (c *calls) mark(td ptrace.Traces, found []Found) {
	if !c.shared(found) {
		return
	}
	c.build(td, found)
	c.collect(found)
	for _, p := range c.pairs {
		a, b := &found[p.upper], &found[p.lower]
		switch {
		case a.Span.Kind() == ptrace.SpanKindServer && b.Span.Kind() == ptrace.SpanKindClient:
			// A server that answers by calling others: what its own client sees and what it sees itself are two measurements, however
			// many calls it makes.
		case c.below[p.upper].beside(b):
			// Another stream below A lies beside B: A is an agent or a workflow, and its children count.
			a.Nested = true
		case !inside(b, a):
		case a.Decision.FirstKnown || !b.Decision.FirstKnown:
			// Both know their first chunk, or neither, or only A: the one nearer the consumer counts.
			b.Nested = true
		default:
			a.Nested = true
		}
	}
	clear(c.nodes)
}

// shared reports whether two found spans are of one trace; most batches end here.
func (c *calls) shared(found []Found) bool {
	if c.traces == nil {
		c.traces = map[pcommon.TraceID]int{}
	}
	clear(c.traces)
	for i := range found {
		c.traces[found[i].Span.TraceID()]++
	}
	return len(c.traces) < len(found)
}

func (c *calls) build(td ptrace.Traces, found []Found) {
	if c.nodes == nil {
		c.nodes = map[spanKey]treeNode{}
	}
	for _, rs := range td.ResourceSpans().All() {
		for _, ss := range rs.ScopeSpans().All() {
			for _, s := range ss.Spans().All() {
				if id := s.TraceID(); c.traces[id] > 1 {
					c.nodes[spanKey{id, s.SpanID()}] = treeNode{parent: s.ParentSpanID(), server: s.Kind() == ptrace.SpanKindServer, found: -1}
				}
			}
		}
	}
	for i := range found {
		key := spanKey{found[i].Span.TraceID(), found[i].Span.SpanID()}
		if n, ok := c.nodes[key]; ok {
			n.found = i
			c.nodes[key] = n
		}
	}
}

// collect walks up from every streaming span to the first server span and notes each streaming span on the way.
func (c *calls) collect(found []Found) {
	c.below, c.pairs = c.below[:0], c.pairs[:0]
	for range found {
		c.below = append(c.below, descendants{math.MinInt64, math.MaxInt64})
	}
	for i := range found {
		trace := found[i].Span.TraceID()
		node, ok := c.nodes[spanKey{trace, found[i].Span.SpanID()}]
		for range maxAncestors {
			if !ok || node.server {
				break
			}
			if node, ok = c.nodes[spanKey{trace, node.parent}]; ok && node.found >= 0 && node.found != i {
				d := &c.below[node.found]
				d.latestStart = max(d.latestStart, start(&found[i]))
				d.earliestEnd = min(d.earliestEnd, end(&found[i]))
				c.pairs = append(c.pairs, pair{upper: node.found, lower: i})
			}
		}
	}
}

func start(s *Found) int64 { return int64(s.Span.StartTimestamp()) }
func end(s *Found) int64   { return int64(s.Span.EndTimestamp()) }

func inside(b, a *Found) bool {
	return start(b) >= start(a)-nestTolerance && end(b) <= end(a)+nestTolerance
}
