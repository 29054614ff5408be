// Copyright The otelcol-stream Authors
// SPDX-License-Identifier: Apache-2.0

package fold

import "encoding/binary"

// instants is a list of instants, each coded as the difference from the one before. Chunks follow each other within seconds, which takes
// three to five bytes instead of eight; the most hostile list takes ten. Differences wrap around, so that any two int64 are fine.
type instants struct {
	coded []byte
	last  int64
	n     int
}

func (s *instants) add(at int64) {
	s.coded = binary.AppendVarint(s.coded, at-s.last)
	s.last = at
	s.n++
}

// appendTo appends the instants in the order in which they were added.
func (s *instants) appendTo(dst []int64) []int64 {
	at := int64(0)
	for rest := s.coded; len(rest) > 0; {
		d, n := binary.Varint(rest)
		at, rest = at+d, rest[n:]
		dst = append(dst, at)
	}
	return dst
}
