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
	var few [16]fixed // enough for most, so that the slice stays on the stack
	due := few[:0]
	for i := range cuts {
		s := &c.slots[cuts[i].slot]
		s.see(n, c.offset)
		due = append(due, s.due(n, cuts[i].below))
	}
	// What is due at a bound may be less than what is due at a lower one, because each counts from its own remainder. The whole numbers
	// that are given must not be: they are those of the increasing sequence which is nearest to what is due, in the largest of the
	// differences. It lies halfway between the maximum of what is before and the minimum of what follows.
	least := due[len(due)-1]
	var upTo [16]fixed
	low := append(upTo[:0], due...)
	for i := len(due) - 1; i >= 0; i-- {
		least = least.min(due[i])
		low[i] = least
	}
	most := due[0]
	var below uint64
	for i := range cuts {
		most = most.max(due[i])
		whole := min(most.mean(low[i]).floor(), n)
		c.slots[cuts[i].slot].rest = due[i].less(whole)
		pieces[i] += whole - below
		below = whole
	}
	pieces[len(cuts)] += n - below
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
		s.rest = s.due(n, cuts[i].below).less(below)
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

// due is the remainder and the part of n.
func (s *slot) due(n uint64, part share) fixed {
	hi, lo := bits.Mul64(n, part.quarter())
	lo, carry := bits.Add64(lo, uint64(s.rest), 0)
	hi, _ = bits.Add64(hi, uint64(s.rest>>63), carry)
	return fixed{int64(hi), lo}
}

// fixed is a number of observations in units of 2^-62, signed, of 128 bits.
type fixed struct {
	hi int64
	lo uint64
}

func (x fixed) below(y fixed) bool { return x.hi < y.hi || x.hi == y.hi && x.lo < y.lo }

func (x fixed) min(y fixed) fixed {
	if y.below(x) {
		return y
	}
	return x
}

func (x fixed) max(y fixed) fixed {
	if x.below(y) {
		return y
	}
	return x
}

func (x fixed) mean(y fixed) fixed {
	lo, carry := bits.Add64(x.lo, y.lo, 0)
	hi := x.hi + y.hi + int64(carry) // of numbers below 2^127: no overflow
	return fixed{hi >> 1, uint64(hi)<<63 | lo>>1}
}

// floor is the number of whole observations, none if x is negative.
func (x fixed) floor() uint64 {
	if x.hi < 0 {
		return 0
	}
	return uint64(x.hi)<<2 | x.lo>>62
}

// less is x less whole observations, or the end of the range of a remainder.
func (x fixed) less(whole uint64) int64 {
	lo, borrow := bits.Sub64(x.lo, whole<<62, 0)
	hi := x.hi - int64(whole>>2) - int64(borrow)
	switch rest := int64(lo); {
	case hi > rest>>63:
		return math.MaxInt64
	case hi < rest>>63:
		return math.MinInt64
	default:
		return rest
	}
}

// quarter is the share in units of 2^-62, rounded up.
func (s share) quarter() uint64 { return s.hi>>2 + min(s.hi&3|s.lo, 1) }
