// Copyright The otelcol-stream Authors
// SPDX-License-Identifier: Apache-2.0

package streamconnector

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/otelcol-stream/otelcol-stream/internal/cadence"
)

// TestBucketOfIndex holds the table of buckets against the search that it saves, beyond both of its ends too.
func TestBucketOfIndex(t *testing.T) {
	for name, bounds := range map[string][]float64{
		"gaps": gapLadder, "convention": genAILadder, "zero": readerWaitLadder, "one": {0.05}, "only zero": {0}, "beyond all gaps": {1e-12, 1e12},
	} {
		l := explicitLayout(bounds)
		l.indexGaps()
		require.Len(t, l.byIndex, gapIndexes, name)
		for scale := cadence.MaxScale - 2; scale <= cadence.MaxScale; scale++ {
			for index := leastGapIndex - 100; index < leastGapIndex+gapIndexes+100; index++ {
				require.Equal(t, l.bucket(cadence.Midpoint(index, scale)), l.bucketOf(index, scale), "%s: %d at scale %d", name, index, scale)
			}
		}
	}
}
