// Copyright The otelcol-stream Authors
// SPDX-License-Identifier: Apache-2.0

package rebucket

import (
	"math"
	"math/bits"
)

// A Carry makes the roundings of one delta stream cancel. For every target bound inside of a source bucket it keeps a remainder: what
// the bound's share of all observations so far amounts to, less the whole observations that were put below it. So a thousand points with
// one observation each fill the target buckets like one point with a thousand. The shares are those of the recursive halves that
// cumulative points are split by, and a remainder that begins at ½ gives exactly what these would give.
//
// A stream begins at a phase, a number in [0, 1) that stands for the remainder of a history nobody has seen. If phases are evenly
// distributed over streams, then the first points of many streams, taken together, are as little biased as the many points of one. The
// sums of a stream are within one observation a bucket of what its cumulative counts would give, or two in a bucket between two source
// buckets that are both cut more than once; see start. With the observations
// that a bound sees, the influence of the phase fades to that of ½, which is ordinary rounding: a busy stream gives what its cumulative
// counts would give.
//
// The remainder belongs to the target bound, not to a source bucket. It survives a change of the source layout, which
// exponential histograms make with nearly every point.
//
// A Carry is for one stream and not safe for concurrent use.
type Carry struct {
	phase  float64
	family uint64
	slots  []slot
}

type slot struct {
	rest   int64 // in units of 2^-62, within [-2, 2)
	offset int32 // phase less ½, in units of 2^-32
	seen   int32 // one more than the observations in source buckets that this bound has cut, faded at most; 0 before it has a phase
}

const (
	unit = 1 << 62
	// fade is the number of observations after which a bound has forgotten its phase: ½ an observation in 256 is 0.2 %.
	fade  = 256
	faded = 1 + fade
)

// NewCarry begins a stream at a phase given in units of 2^-64, such as a hash.
func NewCarry(phase uint64) *Carry {
	return &Carry{phase: math.Ldexp(float64(phase>>11), -53)}
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
	if n > 0 && c.slots[cuts[middle(len(cuts))].slot].seen == 0 {
		c.start(cuts, c.phase, false, false)
	}
	c.halve(pieces, n, cuts)
}

// start gives the bounds in a source bucket their phases, from that of the half they share.
//
// The first observation of a half goes to the left of its cut if the phase is 1 − left or more. Given on which side, the phase is evenly
// distributed over a part of [0, 1); stretched to the whole, it is the phase of the halves of that side: the first observation of a
// stream falls into each bucket as often as the bucket's share says.
//
// Two limits keep the sums within one observation of the cumulative ones. A half that would begin on the other side of ½ than the stream
// does begins at ½, unless that sends its first observation to the other side: so the bounds err in the stream's direction, and a
// bucket, the difference of two, by one at most. And a half that may itself have one observation more or less than its due (more, less)
// passes that on to one of its sides and does not double it there: ⌊(n±1)·p + phase⌋ is ⌊n·p + ½⌋ or one further as long as
// phase − ½ ± p is between 0 and ±1. Of very unequal parts of a half, p below ¼ or above ¾, this can send the first observation to the
// larger one.
func (c *Carry) start(cuts []cut, phase float64, more, less bool) {
	if len(cuts) == 0 {
		return
	}
	m := middle(len(cuts))
	p := cuts[m].left.float()
	right := 1 - p
	own := phase
	if (own < 0.5) == (c.phase > 0.5) && (own < right) == (0.5 < right) {
		own = 0.5
	}
	if more {
		own = max(0.5-p, min(own, 1.5-p))
	}
	if less {
		own = max(p-0.5, min(own, p+0.5))
	}
	if s := &c.slots[cuts[m].slot]; s.seen == 0 {
		s.begin(own)
	}
	if phase < right {
		phase /= right
	} else {
		phase = (phase - right) / p
	}
	c.start(cuts[:m], phase, more || own > 0.5, less || own < 0.5)
	c.start(cuts[m+1:], phase, more || own < 0.5, less || own > 0.5)
}

// halve is the recursive binary split of n, as the function halve is, with remainders.
func (c *Carry) halve(pieces []uint64, n uint64, cuts []cut) {
	for len(cuts) > 0 && n > 0 {
		m := middle(len(cuts))
		s := &c.slots[cuts[m].slot]
		s.see(n)
		left := s.take(n, cuts[m].left)
		if m == 0 {
			pieces[0] += left
		} else {
			c.halve(pieces[:m+1], left, cuts[:m])
		}
		pieces, n, cuts = pieces[m+1:], n-left, cuts[m+1:]
	}
	pieces[0] += n
}

// begin sets the remainder to a phase.
func (s *slot) begin(phase float64) {
	s.offset = int32(math.Ldexp(max(0, min(phase, 1-0x1p-31))-0.5, 32))
	s.rest = unit/2 + int64(s.offset)<<30
	s.seen = 1
}

// see counts n observations and moves the remainder from the phase towards ½ accordingly.
func (s *slot) see(n uint64) {
	if s.seen == faded {
		return
	}
	if s.seen == 0 { // cut so far by other bounds only
		s.begin(0.5)
	}
	before := s.seen
	s.seen = int32(min(faded, uint64(before)+min(n, fade)))
	s.rest -= int64(s.offset) << (30 - 8) * int64(s.seen-before)
}

// take is how many of n observations go below the bound; the rest is kept.
func (s *slot) take(n uint64, part share) uint64 {
	due := s.due(n, part)
	whole := min(due.floor(), n)
	s.rest = due.less(whole)
	return whole
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

// float is the share as an ordinary number.
func (s share) float() float64 { return math.Ldexp(float64(s.hi), -64) }
