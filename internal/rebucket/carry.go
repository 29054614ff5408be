// Copyright The otelcol-stream Authors
// SPDX-License-Identifier: Apache-2.0

package rebucket

import (
	"math"
	"math/bits"
)

// A Carry makes the roundings of one delta stream cancel. For every target bound inside of a source bucket it keeps a remainder: what
// the shares of all observations so far amount to at or below that bound, less the whole observations that were put there. So a
// thousand points with one observation each fill the target buckets like one point with a thousand.
//
// A stream begins at a phase, a number in [0, 1) that stands for the remainder of a history nobody has seen. If phases are evenly
// distributed over streams, then the first points of many streams, taken together, are as little biased as the many points of one. All
// bounds of a stream begin at the same phase: its cumulative counts then differ from those of a plan without carry all in the
// same direction, and its buckets, their differences, by one at most. With the observations that a bound sees, the influence of
// the phase fades to that of ½, which is ordinary rounding: a busy stream gives what its cumulative counts would give.
//
// The remainder belongs to the target bound, not to a source bucket. It survives a change of the source layout, which
// exponential histograms make with nearly every point.
//
// A Carry is for one stream and not safe for concurrent use.
type Carry struct {
	offset int64 // phase less ½, in units of 2^-62
	family uint64
	slots  []slot
}

type slot struct {
	rest int64 // in units of 2^-62, within [-2, 2)
	seen int64 // observations in source buckets that this bound has cut, fade at most
}

const (
	unit = 1 << 62
	// fade is the number of observations after which a bound has forgotten its phase: ½ an observation in 256 is 0.2 %.
	fade = 256
)

// NewCarry begins a stream at a phase given in units of 2^-64, such as a hash.
func NewCarry(phase uint64) *Carry {
	return &Carry{offset: int64(phase>>2) - unit/2}
}

// Slots is the number of remainders kept, each 16 bytes.
func (c *Carry) Slots() int { return len(c.slots) }

// begin makes room for the bounds of p. What other plans of the same family have left there stays.
func (c *Carry) begin(p *Plan) {
	if c == nil || (c.family == p.family && len(c.slots) >= p.slots) {
		return
	}
	slots := make([]slot, p.slots)
	if c.family == p.family {
		copy(slots, c.slots)
	}
	c.family, c.slots = p.family, slots
}

// split spreads n over one more piece than there are cuts.
func (c *Carry) split(pieces []uint64, n uint64, cuts []cut) {
	if n >= fade && c.unseen(cuts) {
		c.first(pieces, n, cuts)
		return
	}
	// From the highest bound down, so that no bound gets more than the next above it. What it has to wait for stays in its remainder.
	above := n
	for i := len(cuts) - 1; i >= 0; i-- {
		s := &c.slots[cuts[i].slot]
		s.see(n, c.offset)
		below := s.take(n, cuts[i].below, above)
		pieces[i+1] += above - below
		above = below
	}
	pieces[0] += above
}

func (c *Carry) unseen(cuts []cut) bool {
	for i := range cuts {
		if c.slots[cuts[i].slot].seen != 0 {
			return false
		}
	}
	return true
}

// first is for a stream that begins with so many observations that the phase has no say: it gets what a cumulative point would.
func (c *Carry) first(pieces []uint64, n uint64, cuts []cut) {
	var few [16]uint64 // enough for most, so that the slice stays on the stack
	own := few[:]
	if len(cuts) >= len(own) {
		own = make([]uint64, len(cuts)+1)
	}
	own = own[:len(cuts)+1]
	halve(own, n, cuts)
	var below uint64
	for i := range cuts {
		pieces[i] += own[i]
		below += own[i]
		s := &c.slots[cuts[i].slot]
		*s = slot{rest: unit / 2, seen: fade}
		s.give(n, cuts[i].below, below)
	}
	pieces[len(cuts)] += own[len(cuts)]
}

// see counts n observations and moves the remainder from the phase towards ½ accordingly.
func (s *slot) see(n uint64, offset int64) {
	if s.seen == fade {
		return
	}
	before := s.seen
	if before == 0 {
		s.rest = unit/2 + offset
	}
	s.seen = int64(min(uint64(fade), uint64(before)+min(n, fade)))
	// The shift rounds down, so that what is left at the end is never below ½ and ties go up, as in share.of.
	s.rest -= (offset >> 8) * (s.seen - before)
}

// take adds the part of n below the bound to the remainder and takes out whole observations, limit at most.
func (s *slot) take(n uint64, part share, limit uint64) uint64 {
	hi, lo := s.plus(n, part)
	var whole uint64
	if int64(hi) >= 0 {
		whole = min(hi<<2|lo>>62, limit)
	}
	s.less(hi, lo, whole)
	return whole
}

// give is take of a given number.
func (s *slot) give(n uint64, part share, whole uint64) {
	hi, lo := s.plus(n, part)
	s.less(hi, lo, whole)
}

// plus is the remainder and n times part, a signed number of 128 bits.
func (s *slot) plus(n uint64, part share) (hi, lo uint64) {
	hi, lo = bits.Mul64(n, part.quarter())
	lo, carry := bits.Add64(lo, uint64(s.rest), 0)
	hi, _ = bits.Add64(hi, uint64(s.rest>>63), carry)
	return hi, lo
}

// less sets the remainder to a signed number of 128 bits less whole observations.
func (s *slot) less(hi, lo, whole uint64) {
	lo, borrow := bits.Sub64(lo, whole<<62, 0)
	hi, _ = bits.Sub64(hi, whole>>2, borrow)
	switch s.rest = int64(lo); {
	case int64(hi) > s.rest>>63:
		s.rest = math.MaxInt64
	case int64(hi) < s.rest>>63:
		s.rest = math.MinInt64
	}
}

// quarter is the share in units of 2^-62, rounded up.
func (s share) quarter() uint64 { return s.hi>>2 + min(s.hi&3|s.lo, 1) }
