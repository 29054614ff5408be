// Copyright The otelcol-stream Authors
// SPDX-License-Identifier: Apache-2.0

package streamconnector

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/otelcol-stream/otelcol-stream/internal/cadence"
)

// TestAddBuckets holds the table of buckets, and the adding up of neighbours, against one search for each bucket, beyond both ends of the
// table too.
func TestAddBuckets(t *testing.T) {
	const weight = 3
	for name, bounds := range map[string][]float64{
		"gaps": gapLadder, "convention": genAILadder, "zero": readerWaitLadder, "one": {0.05}, "only zero": {0}, "beyond all gaps": {1e-12, 1e12},
	} {
		l := explicitLayout(bounds)
		l.indexGaps()
		require.Len(t, l.byIndex, gapIndexes, name)
		for scale := cadence.MaxScale - 2; scale <= cadence.MaxScale; scale++ {
			gaps := cadence.Histogram{Scale: scale, Zero: 7}
			want := make([]uint64, len(bounds)+1)
			want[0] = 7 * weight
			for index := leastGapIndex - 100; index < leastGapIndex+gapIndexes+100; index++ {
				count := int64(1 + (index-leastGapIndex+100)%5)
				gaps.Buckets = append(gaps.Buckets, cadence.Bucket{Index: index, Count: count})
				want[l.bucket(cadence.Midpoint(index, scale))] += uint64(count) * weight
			}
			h := &histogram{counts: make([]uint64, len(bounds)+1)}
			l.addBuckets(h, &gaps, weight)
			require.Equal(t, want, h.counts, "%s at scale %d", name, scale)

			h = &histogram{counts: make([]uint64, len(bounds)+1)}
			l.addBuckets(h, &cadence.Histogram{Scale: scale}, weight)
			require.Equal(t, make([]uint64, len(bounds)+1), h.counts, "nothing adds nothing")
		}
	}
}
