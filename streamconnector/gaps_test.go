// Copyright The otelcol-stream Authors
// SPDX-License-Identifier: Apache-2.0

package streamconnector

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/otelcol-stream/otelcol-stream/internal/cadence"
)

// TestGapTable holds the cells against one search for each bucket, for several histograms at a time and up to both ends of the table.
func TestGapTable(t *testing.T) {
	const weight = 3
	for name, ladders := range map[string][][]float64{
		"default": {gapLadder, genAILadder}, "zero": {readerWaitLadder, {0}}, "one": {{0.05}}, "only zero": {{0}},
		"beyond all gaps": {{1e-12, 1e12}, gapLadder}, "three": {{0.3, 0.30001, 0.30002}, {0.30001}, {0.1, 0.4}},
	} {
		var ls []*layout
		for _, bounds := range ladders {
			ls = append(ls, explicitLayout(bounds))
		}
		table := newGapTable([]*family{gapFamily(ls...)})
		require.NotNil(t, table, name)
		for _, step := range []int{1, 3, 17, 100} {
			gaps := cadence.Histogram{Scale: cadence.MaxScale, Zero: 7}
			for index := leastGapIndex + step - 1; index < leastGapIndex+gapIndexes; index += step {
				gaps.Buckets = append(gaps.Buckets, cadence.Bucket{Index: index, Count: int64(1 + (index-leastGapIndex)%5)})
			}
			var cells gapCells
			cells.fill(table, &gaps)
			require.True(t, cells.known)
			for _, l := range ls {
				want, got := &histogram{counts: make([]uint64, len(l.bounds)+1)}, &histogram{counts: make([]uint64, len(l.bounds)+1)}
				l.addBuckets(want, &gaps, weight)
				l.addCells(got, gaps.Zero, &cells, weight)
				require.Equal(t, want.counts, got.counts, "%s, every %d", name, step)
			}
		}
	}
}

// TestGapTableDoesNotFit: what the table has no cells for is not counted into them.
func TestGapTableDoesNotFit(t *testing.T) {
	table := newGapTable([]*family{gapFamily(explicitLayout(gapLadder))})
	cells := gapCells{known: true}
	for _, gaps := range []cadence.Histogram{
		{},
		{Scale: cadence.MaxScale, Zero: 1},
		{Scale: cadence.MaxScale - 1, Buckets: []cadence.Bucket{{Index: 1, Count: 1}}},
		{Scale: cadence.MaxScale, Buckets: []cadence.Bucket{{Index: leastGapIndex - 1, Count: 1}, {Index: 0, Count: 1}}},
		{Scale: cadence.MaxScale, Buckets: []cadence.Bucket{{Index: 0, Count: 1}, {Index: leastGapIndex + gapIndexes, Count: 1}}},
	} {
		cells.fill(table, &gaps)
		assert.False(t, cells.known, "%v", gaps)
		cells.known = true
	}
	cells.fill(nil, &cadence.Histogram{Scale: cadence.MaxScale, Buckets: []cadence.Bucket{{Index: 1, Count: 1}}})
	assert.False(t, cells.known, "without a table")

	assert.Nil(t, newGapTable([]*family{gapFamily(exponentialLayout(160))}), "an exponential histogram has no bounds")
	many := make([]float64, maxCells)
	for i := range many {
		many[i] = float64(i)
	}
	assert.Nil(t, newGapTable([]*family{gapFamily(explicitLayout(many))}), "one cell too many")
	assert.NotNil(t, newGapTable([]*family{gapFamily(explicitLayout(many[1:]))}))
}
