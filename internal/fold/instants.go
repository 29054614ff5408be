// Copyright The otelcol-stream Authors
// SPDX-License-Identifier: Apache-2.0

package fold

import "encoding/binary"

// instants is a list of instants, each coded as the difference from the one before. Chunks follow each other within seconds, which takes
// three to five bytes instead of eight; the most hostile list takes ten. Differences wrap around, so that any two int64 are fine.
//
// The latest ones lie in the struct itself until there is no room for another: the buffer beside it, another place in memory, is written
// to once in a dozen chunks, and streams of a dozen have none.
type instants struct {
	last  int64
	n     int
	coded []byte
	tail  [tailSize]byte
	used  uint8 // of tail
}

// tailSize is what is left of the size of a Stream. It must have room for the longest code of an instant.
const tailSize = 55

func (s *instants) add(at int64) {
	if s.used > tailSize-binary.MaxVarintLen64 {
		s.coded = append(s.coded, s.tail[:s.used]...)
		s.used = 0
	}
	s.used += uint8(binary.PutVarint(s.tail[s.used:], at-s.last))
	s.last = at
	s.n++
}

// appendTo appends the instants in the order in which they were added.
func (s *instants) appendTo(dst []int64) []int64 {
	at := int64(0)
	for _, rest := range [][]byte{s.coded, s.tail[:s.used]} {
		for len(rest) > 0 {
			d, n := binary.Varint(rest)
			at, rest = at+d, rest[n:]
			dst = append(dst, at)
		}
	}
	return dst
}
