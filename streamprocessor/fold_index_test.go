// Copyright The otelcol-stream Authors
// SPDX-License-Identifier: Apache-2.0

package streamprocessor

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestHashIndexAgreesWithAMap: over batches of changing sizes, with hashes that are shared, that crowd on some slots and that differ in
// the bits that a slot does not keep.
func TestHashIndexAgreesWithAMap(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 6))
	var x hashIndex
	for range 300 {
		keys := rng.Perm(500)[:rng.IntN(200)]
		hash := func(key int) uint64 { return uint64(key%5)<<61 | uint64(key%3)<<32 | uint64(key%7) }
		if rng.IntN(2) == 0 {
			hash = func(key int) uint64 { return uint64(key) * 0x9e3779b97f4a7c15 }
		}
		find := func(key int) (*hashSlot, bool) {
			return x.find(hash(key), func(at int) bool { return keys[at] == key })
		}
		x.start(len(keys))
		want := map[int]int{}
		for at, key := range keys {
			slot, ok := find(key)
			require.False(t, ok)
			slot.set(hash(key), at)
			want[key] = at
		}
		for key := range 500 {
			slot, ok := find(key)
			at, there := want[key]
			require.Equal(t, there, ok)
			if there {
				require.Equal(t, at, slot.position())
			}
		}
	}
}
