// Copyright The otelcol-stream Authors
// SPDX-License-Identifier: Apache-2.0

package dialect

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestChunkRunAgreesWithTheGeneralLoop: the loop for runs of plain chunk events against the one that asks of each event everything, over
// spans that mix names, of which one is a prefix and one no chunk, and instants that are out of order, equal or outside the span.
func TestChunkRunAgreesWithTheGeneralLoop(t *testing.T) {
	user := Vocabulary{Events: map[string]EventRow{"my.part.": {Role: RoleChunk, Prefix: true}, "my.chunk": {Role: RoleChunk}}}
	fast, general := table(t, user), table(t, user)
	runs := 0
	for _, e := range general.events {
		if e.plain {
			runs++
		}
		e.plain = false
	}
	require.Greater(t, runs, 2)
	a, b := NewReader(fast, testMinSpread), NewReader(general, testMinSpread)
	names := []string{"my.chunk", "gen_ai.content.completion.chunk", "my.part.1", "my.part.2", "exception", "write"}
	r := rand.New(rand.NewPCG(3, 5))
	for range 2_000 {
		var parts []given
		name := names[0]
		for range r.IntN(40) {
			if r.IntN(5) == 0 {
				name = names[r.IntN(len(names))]
			}
			parts = append(parts, event(name, time.Duration(r.IntN(230)-10)*10*time.Millisecond+time.Duration(r.IntN(3)-1)*500*time.Microsecond))
		}
		span := build(parts...)
		x, y := evidenceOf(a, span.Span), evidenceOf(b, span.Span)
		require.Equal(t, y == nil, x == nil)
		if x == nil {
			continue
		}
		require.Equal(t, y.Chunks, x.Chunks)
		require.Equal(t, b.Decide(y, span.res, span.scope), a.Decide(x, span.res, span.scope))
		if r.IntN(20) == 0 {
			a.Reset()
			b.Reset()
		}
	}
}

// TestNothingIsDismissed: a row that can show a stream gets a span that has nothing else past the glance, and Read finds nothing on spans with
// one of the others.
func TestNothingIsDismissed(t *testing.T) {
	tab := table(t, Vocabulary{})
	r := NewReader(tab, testMinSpread)
	for key, row := range tab.attrs {
		span := build(attr(key, true)).Span
		if row.signal {
			assert.Equal(t, GlanceAttributes, r.Glance(span), key)
			continue
		}
		assert.False(t, r.Read(span, GlanceAttributes, &Evidence{}), key) // whether it was dismissed or not: the glance may err on this side
	}
}
