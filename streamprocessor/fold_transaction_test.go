// Copyright The otelcol-stream Authors
// SPDX-License-Identifier: Apache-2.0

package streamprocessor

import (
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/otelcol-stream/otelcol-stream/internal/fold"
	"github.com/otelcol-stream/otelcol-stream/internal/spanlaws"
)

// TestATransactionKeepsNothingOfABatch: one that serves batch after batch does to each what a new one does, and holds on to nothing of it.
func TestATransactionKeepsNothingOfABatch(t *testing.T) {
	s := asgi(200*ms, 400*ms, 600*ms)
	other := s.withTrace(7)
	query := bareSpan("SELECT", 50, 101, ptrace.SpanKindClient, shapeStart, shapeStart+1)
	nested := asgi(250 * ms).chunks[0]
	nested.SetSpanID(idOf(200))
	nested.SetParentSpanID(s.chunks[0].SpanID())
	batches := [][]ptrace.Span{
		{},
		s.chunks[:1],
		s.chunks,
		{s.parent},
		s.all(),
		append(s.chunks[:2:2], query),
		append(other.chunks[:2:2], nested, s.chunks[0], s.chunks[1], query),
		other.all(),
	}
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 4))
		again, once := newHarness(t, folding), newHarness(t, folding)
		tx := newTransaction(again.Traces.(*foldingProcessor))
		// step returns what becomes of a batch, as far as it does not hang on the clock.
		step := func(tx *transaction, batch []ptrace.Span, refused bool) (out []byte, counts chunkCounts, open int64) {
			td := s.batch(batch...)
			tx.process(t.Context(), td)
			if refused {
				tx.rollback()
			} else {
				require.Empty(t, tx.commit())
			}
			return spanlaws.Marshal(td), tx.counts, tx.f.store.Open()
		}
		for range 20 {
			batch, refused := batches[rng.IntN(len(batches))], rng.IntN(4) == 0
			fresh := newTransaction(once.Traces.(*foldingProcessor))
			want, wantCounts, wantOpen := step(fresh, batch, refused)
			fresh.reset()
			got, counts, open := step(tx, batch, refused)
			tx.reset()
			require.Equal(t, want, got)
			require.Equal(t, wantCounts, counts)
			require.Equal(t, wantOpen, open)
			for _, g := range tx.order[:cap(tx.order)] {
				require.True(t, g == nil || assert.ObjectsAreEqual(chunkGroup{}, *g))
			}
		}
		require.Equal(t, make([]fold.Chunk, cap(tx.chunks)), tx.chunks[:cap(tx.chunks)])
		require.Equal(t, make([]chunkRef, cap(tx.refs)), tx.refs[:cap(tx.refs)])
	}
}

// TestChunkSpansOfOneIDWithOthersBelow: two chunk spans have the same ids and others lie below them; their parent is found all the same.
func TestChunkSpansOfOneIDWithOthersBelow(t *testing.T) {
	s := sglang(200*ms, 400*ms)
	s.chunks[1].SetSpanID(s.chunks[0].SpanID())
	below := sglang(250 * ms).chunks[0]
	below.SetSpanID(idOf(200))
	below.SetParentSpanID(s.chunks[0].SpanID())
	h := newHarness(t, folding)
	h.consume(t, s.batch(append(slices.Clone(s.chunks), below, s.parent)...))
	assert.Equal(t, 3, h.sink.SpanCount(), "request, stream, and the chunk span below another")
	assert.Equal(t, map[string]int{"folded": 2}, h.results(t, "spans"))
}

// TestAHeldParentThatIsSentAgain: its chunk spans come with it, so that they are not late.
func TestAHeldParentThatIsSentAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := sglang(200*ms, 400*ms, 600*ms)
		h := newHarness(t, folding, func(c *Config) { c.ChunkSpans.ParentWait = time.Second })
		for range 2 {
			h.consume(t, s.batch(append(slices.Clone(s.chunks), s.parent)...))
			time.Sleep(3 * time.Second) // in virtual time
			synctest.Wait()
		}
		out := h.sink.AllTraces()
		require.Len(t, out, 2)
		assert.Equal(t, contents(t, out[0]), contents(t, out[1]))
		assert.Equal(t, map[string]int{"folded": 6}, h.results(t, "spans"))
	})
}
