// Copyright The otelcol-stream Authors
// SPDX-License-Identifier: Apache-2.0

package streamprocessor

import (
	"math"
	"math/bits"
)

// hashIndex finds positions in a slice by hashes. It differs from a map in what a batch of a thousand chunk spans to a thousand streams is
// made of: the hash is given, and a slot takes 8 bytes, so that all of them fit into the nearest cache.
type hashIndex struct {
	slots []hashSlot
	size  int   // of the part that is in use, a power of two
	shift uint8 // the highest bits of a hash are its slot
}

// hashSlot has the lowest bits of a hash and a position, from 1 on; 0 is an empty slot.
type hashSlot struct{ hash, at uint32 }

// start forgets everything and makes room for n positions. A small batch uses, and clears, a part of what a large one left.
func (x *hashIndex) start(n int) {
	x.size = max(8, 1<<bits.Len(uint(2*n-1)))
	x.shift = uint8(64 - bits.TrailingZeros(uint(x.size)))
	if x.size > len(x.slots) {
		x.slots = make([]hashSlot, x.size)
		return
	}
	clear(x.slots[:x.size])
}

// find returns the slot of a hash whose position is the same, or the slot where it belongs and false.
func (x *hashIndex) find(hash uint64, same func(at int) bool) (*hashSlot, bool) {
	slots := x.slots[:x.size]
	mask := uint64(len(slots) - 1)
	for i := hash >> x.shift; ; i++ {
		s := &slots[i&mask]
		if s.at == 0 {
			return s, false
		}
		if uint64(s.hash) == hash&math.MaxUint32 && same(s.position()) {
			return s, true
		}
	}
}

func (s *hashSlot) position() int { return int(s.at) - 1 }

func (s *hashSlot) set(hash uint64, at int) { *s = hashSlot{uint32(hash), uint32(at) + 1} }
