// Copyright The otelcol-stream Authors
// SPDX-License-Identifier: Apache-2.0

package fold

import (
	"sync"
	"sync/atomic"

	"go.opentelemetry.io/collector/pdata/ptrace"
)

// Origin is the resource and the scope, with their schema URLs, that spans came from. Streams of one origin share it.
type Origin struct {
	owner *origins
	proto string // an export of the resource and the scope, without spans
	refs  atomic.Int64
}

// Spans appends the resource and the scope to td and returns their spans, none yet.
func (o *Origin) Spans(td ptrace.Traces) ptrace.SpanSlice {
	from, err := (&ptrace.ProtoUnmarshaler{}).UnmarshalTraces([]byte(o.proto))
	if err != nil || from.ResourceSpans().Len() == 0 {
		// It was marshalled by this process, so that this cannot be; spans without a resource are better than none.
		return td.ResourceSpans().AppendEmpty().ScopeSpans().AppendEmpty().Spans()
	}
	rs := td.ResourceSpans().AppendEmpty()
	from.ResourceSpans().At(0).MoveTo(rs)
	return rs.ScopeSpans().At(0).Spans()
}

// keep takes another reference; the caller must hold one.
func (o *Origin) keep() *Origin {
	o.refs.Add(1)
	return o
}

// Release gives a reference back. Every Origin that Store.Origin returned is released once.
func (o *Origin) Release() {
	if o.refs.Add(-1) > 0 {
		return
	}
	o.owner.mu.Lock()
	defer o.owner.mu.Unlock()
	if o.refs.Load() == 0 && o.owner.byProto[o.proto] == o {
		delete(o.owner.byProto, o.proto)
		o.owner.bytes -= o.size()
	}
}

func (o *Origin) size() int64 { return int64(len(o.proto)) + originOverhead }

const originOverhead = 128 // the struct and its entry in the map

// origins holds one Origin for all spans that have the same resource and scope: there are few of them, and a resource is bigger than
// all that is kept of a stream. Equal means equal when marshalled, so that what goes out is exactly what came in.
type origins struct {
	mu      sync.Mutex
	byProto map[string]*Origin
	bytes   int64
}

func (s *origins) of(rs ptrace.ResourceSpans, ss ptrace.ScopeSpans) *Origin {
	td := ptrace.NewTraces()
	r := td.ResourceSpans().AppendEmpty()
	rs.Resource().CopyTo(r.Resource())
	r.SetSchemaUrl(rs.SchemaUrl())
	c := r.ScopeSpans().AppendEmpty()
	ss.Scope().CopyTo(c.Scope())
	c.SetSchemaUrl(ss.SchemaUrl())
	proto, _ := (&ptrace.ProtoMarshaler{}).MarshalTraces(td) // has no error to return

	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.byProto[string(proto)]
	if o == nil {
		o = &Origin{owner: s, proto: string(proto)}
		s.byProto[o.proto] = o
		s.bytes += o.size()
	}
	o.refs.Add(1)
	return o
}

func (s *origins) size() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.bytes
}
