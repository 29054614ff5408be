// Copyright The otelcol-stream Authors
// SPDX-License-Identifier: Apache-2.0

package streamprocessor

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/ptrace"
)

// relay runs one collector after the other in front of the same backend.
type relay struct {
	*harness
	t      *testing.T
	shape  shape
	set    []func(*Config)
	answer time.Duration // how long the backend takes for a request

	mu      sync.Mutex
	arrived []ptrace.Span
	results map[string]int // of the collectors that have ended
	current *bool
}

// start starts a collector; what is left of one before it reaches nobody any more.
func (r *relay) start() {
	alive := new(bool)
	r.mu.Lock()
	*alive, r.current = true, alive
	r.mu.Unlock()
	r.harness = newHarnessFor(r.t, func(_ context.Context, td ptrace.Traces) error {
		time.Sleep(r.answer) // in virtual time: every case runs in a synctest bubble
		r.mu.Lock()
		defer r.mu.Unlock()
		if *alive {
			kept := ptrace.NewTraces()
			td.CopyTo(kept)
			r.arrived = append(r.arrived, spansOf(kept)...)
		}
		return nil
	}, r.set...)
}

// end cuts a collector off and takes down what it has counted.
func (r *relay) end() {
	for _, metric := range []string{"spans", "streams"} {
		for name, n := range r.harness.results(r.t, metric) {
			r.results[name] += n
		}
	}
	r.mu.Lock()
	*r.current = false
	r.mu.Unlock()
}

// step is something that happens in the life of a stream.
type step func(*relay)

// send sends a request and goes on when it has got as far as it gets at that instant.
func send(spans func(shape) []ptrace.Span) step {
	return func(r *relay) {
		go func() { assert.NoError(r.t, r.ConsumeTraces(context.Background(), r.shape.batch(spans(r.shape)...))) }()
		synctest.Wait()
	}
}

func chunkSpansOf(from, to int) step {
	return send(func(s shape) []ptrace.Span { return s.chunks[from:to] })
}

func later(d time.Duration) step {
	return func(*relay) {
		time.Sleep(d) // in virtual time
		synctest.Wait()
	}
}

var (
	parentSpan = send(func(s shape) []ptrace.Span { return []ptrace.Span{s.parent} })
	// A request of nothing but spans that are kept is answered at once; with another span it is under way until the backend answers.
	another              = bareSpan("SELECT", 9, parentID, ptrace.SpanKindClient, shapeStart, shapeStart+1)
	chunkSpansAndAnother = send(func(s shape) []ptrace.Span { return append(slices.Clone(s.chunks), another) })
	parentAndAnother     = send(func(s shape) []ptrace.Span { return []ptrace.Span{s.parent, another} })

	otherStream = send(func(s shape) []ptrace.Span { return s.withTrace(7).chunks })
)

func restart(r *relay) {
	require.NoError(r.t, r.Shutdown(context.Background()))
	kill(r)
}

func kill(r *relay) {
	r.end()
	r.start()
}

// telling describes a span that arrived.
func telling(s ptrace.Span) string {
	own := s.Attributes().AsRaw()
	what := s.Name()
	if phase := own["stream.phase"]; phase != nil {
		what = fmt.Sprintf("%v span", phase)
	}
	if folded := own["stream.chunk.spans_folded"]; folded != nil {
		what += fmt.Sprintf(" of %v, %v, longest gap %.1f", folded, own["stream.outcome"], own["stream.chunk.gap.max"])
	}
	return what
}

// TestOrders holds the table in docs/chunk-spans.md, row by row: of a stream of four chunks, with gaps of 100, 300 and 200 ms, what goes out
// depends on the order in which its spans come and on the time between them.
func TestOrders(t *testing.T) {
	const (
		exact      = "stream span of 4, completed, longest gap 0.3"
		incomplete = "stream span of 4, incomplete, longest gap 0.3"
	)
	type counts = map[string]int
	folded, joined := counts{"request span": 1, exact: 1}, counts{"folded": 4, "joined": 1}
	orphaned := counts{"folded": 4, "orphaned": 1}
	rows := map[string]struct {
		parentWait time.Duration
		answer     time.Duration
		says       bool // the parent says itself that it streams
		steps      []step
		out        counts
		results    counts // of chunk spans and of streams, as they are in the telemetry
	}{
		"1": {
			steps: []step{chunkSpansOf(0, 3), later(29 * time.Second), chunkSpansOf(3, 4), later(29 * time.Second), parentSpan},
			out:   folded, results: joined,
		},
		"2": {
			parentWait: 5 * time.Second,
			steps:      []step{parentSpan, later(2 * time.Second), chunkSpansOf(0, 2), later(2 * time.Second), chunkSpansOf(2, 4)},
			out:        folded, results: joined,
		},
		"2, the parent's request still under way": {
			answer: 10 * time.Second, parentWait: 5 * time.Second,
			steps: []step{parentAndAnother, later(time.Second), chunkSpansOf(0, 4)},
			out:   counts{"SELECT": 1, "request span": 1, exact: 1}, results: joined,
		},
		"3": {
			parentWait: 5 * time.Second,
			steps:      []step{chunkSpansOf(0, 2), parentSpan, later(4 * time.Second), chunkSpansOf(2, 4)},
			out:        folded, results: joined,
		},
		"4": {
			steps: []step{chunkSpansOf(0, 2), parentSpan, chunkSpansOf(2, 4)},
			out:   counts{"request span": 1, "stream span of 2, completed, longest gap 0.1": 1, "GET /chat http send": 2}, results: counts{"folded": 2, "joined": 1, "late": 2},
		},
		"4, held": {
			parentWait: 5 * time.Second,
			steps:      []step{chunkSpansOf(0, 2), parentSpan, later(6 * time.Second), chunkSpansOf(2, 4)},
			out:        counts{"request span": 1, "stream span of 2, completed, longest gap 0.1": 1, "GET /chat http send": 2}, results: counts{"folded": 2, "joined": 1, "late": 2},
		},
		"5": {
			steps: []step{parentSpan, later(29 * time.Second), chunkSpansOf(0, 4)},
			out:   counts{"GET /chat": 1, "GET /chat http send": 4}, results: counts{"late": 4},
		},
		"5, held": {
			parentWait: 5 * time.Second,
			steps:      []step{parentSpan, later(6 * time.Second), chunkSpansOf(0, 4)},
			out:        counts{"GET /chat": 1, "GET /chat http send": 4}, results: counts{"late": 4},
		},
		"6": {
			steps: []step{parentSpan, later(61 * time.Second), chunkSpansOf(0, 4)},
			out:   counts{"GET /chat": 1, incomplete: 1}, results: orphaned,
		},
		"7": {
			steps: []step{chunkSpansOf(0, 4), later(32 * time.Second), parentSpan},
			out:   counts{"GET /chat": 1, incomplete: 1}, results: orphaned,
		},
		"7, twice": {
			steps: []step{chunkSpansOf(0, 2), later(32 * time.Second), chunkSpansOf(2, 4), parentSpan},
			out: counts{
				"stream span of 2, incomplete, longest gap 0.1": 1, "request span": 1, "stream span of 2, completed, longest gap 0.2": 1,
			},
			results: counts{"folded": 4, "orphaned": 1, "joined": 1},
		},
		"7, a parent that says that it streams": {
			says:  true,
			steps: []step{chunkSpansOf(0, 4), later(32 * time.Second), parentSpan},
			out:   counts{"whole span": 1, incomplete: 1}, results: orphaned,
		},
		"8": {
			answer: 10 * time.Second,
			steps:  []step{chunkSpansAndAnother, later(time.Second), parentSpan},
			out:    counts{"SELECT": 1, "GET /chat": 1, incomplete: 1}, results: orphaned,
		},
		"8, held": {
			answer: 10 * time.Second, parentWait: 2 * time.Second,
			steps: []step{chunkSpansAndAnother, later(time.Second), parentSpan},
			out:   counts{"SELECT": 1, "GET /chat": 1, incomplete: 1}, results: orphaned,
		},
		"9": {
			answer: 10 * time.Second, parentWait: 12 * time.Second,
			steps: []step{chunkSpansAndAnother, later(time.Second), parentSpan},
			out:   counts{"SELECT": 1, "request span": 1, exact: 1}, results: joined,
		},
		"10": {
			answer: 10 * time.Second,
			steps:  []step{chunkSpansOf(0, 2), parentSpan, later(time.Second), chunkSpansOf(2, 4)},
			out:    counts{"request span": 1, "stream span of 2, completed, longest gap 0.1": 1, "GET /chat http send": 2}, results: counts{"folded": 2, "joined": 1, "late": 2},
		},
		"11": {
			steps: []step{chunkSpansOf(0, 4), restart, parentSpan},
			out:   counts{"GET /chat": 1, incomplete: 1}, results: counts{"folded": 4, "flushed": 1},
		},
		"12": {
			steps: []step{chunkSpansOf(0, 2), restart, chunkSpansOf(2, 4), parentSpan},
			out: counts{
				"stream span of 2, incomplete, longest gap 0.1": 1, "request span": 1, "stream span of 2, completed, longest gap 0.2": 1,
			},
			results: counts{"folded": 4, "flushed": 1, "joined": 1},
		},
		"13": {
			steps: []step{parentSpan, restart, chunkSpansOf(0, 4)},
			out:   counts{"GET /chat": 1, incomplete: 1}, results: orphaned,
		},
		"14": {
			parentWait: 5 * time.Second,
			steps:      []step{chunkSpansOf(0, 2), parentSpan, restart, chunkSpansOf(2, 4)},
			out: counts{
				"request span": 1, "stream span of 2, completed, longest gap 0.1": 1, "stream span of 2, incomplete, longest gap 0.2": 1,
			},
			results: counts{"folded": 4, "joined": 1, "orphaned": 1},
		},
		"15": {
			steps: []step{chunkSpansOf(0, 2), kill, chunkSpansOf(2, 4), parentSpan},
			out:   counts{"request span": 1, "stream span of 2, completed, longest gap 0.2": 1}, results: counts{"folded": 2, "joined": 1},
		},
		"15, held": {
			parentWait: 5 * time.Second,
			steps:      []step{chunkSpansOf(0, 4), parentSpan, kill},
			out:        counts{}, results: counts{},
		},
		"16": {
			steps: []step{chunkSpansOf(0, 4), later(time.Second), otherStream, parentSpan},
			out:   counts{"GET /chat": 1, incomplete: 2}, results: counts{"folded": 8, "evicted": 1, "orphaned": 1},
		},
	}
	for row, c := range rows {
		t.Run(row, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := &relay{t: t, shape: asgi(200*ms, 300*ms, 600*ms, 800*ms), answer: c.answer, results: counts{}}
				// Room for one stream: only the last row has two.
				r.set = []func(*Config){folding, func(cfg *Config) { cfg.ChunkSpans.ParentWait, cfg.ChunkSpans.MaxStreams = c.parentWait, 1 }}
				if c.says {
					r.shape.parent.Attributes().PutStr("http.response.header.content_type", "text/event-stream")
				}
				r.start()
				for _, s := range c.steps {
					s(r)
				}
				later(2 * time.Minute)(r)
				r.end()
				out := counts{}
				for _, span := range r.arrived {
					out[telling(span)]++
				}
				assert.Equal(t, c.out, out)
				assert.Equal(t, c.results, r.results)
			})
		})
	}

	page, err := os.ReadFile(filepath.Join("..", "docs", "chunk-spans.md"))
	require.NoError(t, err)
	documented := regexp.MustCompile(`(?m)^\| (\d+) \|.*\|(.*)\|$`).FindAllStringSubmatch(string(page), -1)
	require.Len(t, documented, 16)
	for _, row := range documented {
		require.Contains(t, rows, row[1])
		for _, result := range regexp.MustCompile("`(.+?)`").FindAllStringSubmatch(row[2], -1) {
			assert.Contains(t, rows[row[1]].results, result[1], "row %s", row[1])
		}
	}
}
