// Copyright The otelcol-stream Authors
// SPDX-License-Identifier: Apache-2.0

package fold

import "math/bits"

// openTable finds the open streams of a shard by the hashes of their keys: open addressing with linear probing, and the hash beside the
// pointer. With very many streams a look-up waits for one cache line here and one of the stream; in a map of keys it waits for three or
// four. A slot is the part of a hash that the shard was not chosen by.
type openTable struct {
	slots []slot
	shift uint8 // the highest bits of a hash are its slot
	n     int
}

type slot struct {
	hash uint64
	st   *Stream // nil in an empty slot
}

const (
	minSlots = 8
	slotSize = 16
)

func newOpenTable(slots int) openTable {
	return openTable{slots: make([]slot, slots), shift: uint8(64 - bits.TrailingZeros(uint(slots)))}
}

// get returns the stream of a key; nil when there is none.
func (t *openTable) get(hash uint64, k *Key) *Stream {
	mask := uint64(len(t.slots) - 1)
	for i := hash >> t.shift; ; i++ {
		s := &t.slots[i&mask]
		if s.st == nil || s.hash == hash && s.st.Key == *k {
			return s.st
		}
	}
}

// put adds a stream whose key is not there.
func (t *openTable) put(hash uint64, st *Stream) {
	if t.n >= len(t.slots)/4*3 {
		larger := newOpenTable(2 * len(t.slots))
		for _, s := range t.slots {
			if s.st != nil {
				larger.place(s)
			}
		}
		larger.n = t.n
		*t = larger
	}
	t.place(slot{hash, st})
	t.n++
}

func (t *openTable) place(s slot) {
	mask := uint64(len(t.slots) - 1)
	i := s.hash >> t.shift
	for t.slots[i&mask].st != nil {
		i++
	}
	t.slots[i&mask] = s
}

// remove takes out a stream that is there. What stands behind it moves up, so that no look-up meets a gap before its slot.
func (t *openTable) remove(hash uint64, st *Stream) {
	mask := uint64(len(t.slots) - 1)
	i := hash >> t.shift & mask
	for t.slots[i].st != st {
		i = (i + 1) & mask
	}
	for j := i; ; {
		j = (j + 1) & mask
		s := t.slots[j]
		if s.st == nil {
			break
		}
		// The way from its home to j leads over i unless home lies between the two.
		if home := s.hash >> t.shift; (j-home)&mask >= (j-i)&mask {
			t.slots[i] = s
			i = j
		}
	}
	t.slots[i] = slot{}
	t.n--
}

// find is get for many keys in two steps: the first waits for slots, the second for streams. No step of one key waits for memory that the
// same step of another has to wait for, so that the processor fetches many at a time.
func (t *openTable) find(es []*Entry) {
	for _, e := range es {
		e.found = t.candidate(e.Hash)
	}
	for _, e := range es {
		if e.found != nil && e.found.Key != e.Key {
			e.found = t.get(e.Hash, &e.Key)
		}
	}
}

// candidate returns the first stream with a hash, which is nearly always that of the key, without a look at it.
func (t *openTable) candidate(hash uint64) *Stream {
	mask := uint64(len(t.slots) - 1)
	for i := hash >> t.shift; ; i++ {
		s := &t.slots[i&mask]
		if s.st == nil || s.hash == hash {
			return s.st
		}
	}
}
