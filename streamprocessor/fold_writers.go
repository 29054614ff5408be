// Copyright The otelcol-stream Authors
// SPDX-License-Identifier: Apache-2.0

package streamprocessor

import (
	"maps"
	"sync"
	"sync/atomic"

	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/otelcol-stream/otelcol-stream/internal/dialect"
)

// maxWriters bounds the scopes that are remembered. A service has a few dozen.
const maxWriters = 4096

// writer says whether the spans of a scope may have chunk spans below them, and of which kind such a span is.
type writer struct {
	kind ptrace.SpanKind // unspecified stands for any
	ok   bool
}

func (w writer) parent(span ptrace.Span) bool {
	return w.ok && (w.kind == ptrace.SpanKindUnspecified || w.kind == span.Kind())
}

// writers knows the scopes that write chunk spans: those of the built-in table and, for rows of the user, those whose chunk spans were seen.
type writers struct {
	table  *dialect.Table
	mu     sync.Mutex
	scopes atomic.Pointer[map[string]writer]
}

func newWriters(table *dialect.Table) *writers {
	w := &writers{table: table}
	w.scopes.Store(&map[string]writer{})
	return w
}

func (w *writers) of(scope string) writer {
	if known, ok := (*w.scopes.Load())[scope]; ok {
		return known
	}
	kind, ok := w.table.WritesChunkSpans(scope)
	one := writer{kind: kind, ok: ok}
	w.set(scope, one)
	return one
}

// learn notes that a scope wrote a chunk span.
func (w *writers) learn(scope string, c dialect.ChunkSpan) {
	if !w.of(scope).ok {
		w.set(scope, writer{kind: c.ParentKind(), ok: true})
	}
}

// set copies the map: it is read for every scope of every batch and changes when a scope is seen for the first time.
func (w *writers) set(scope string, one writer) {
	w.mu.Lock()
	defer w.mu.Unlock()
	old := *w.scopes.Load()
	if len(old) >= maxWriters {
		return
	}
	scopes := maps.Clone(old)
	scopes[scope] = one
	w.scopes.Store(&scopes)
}
