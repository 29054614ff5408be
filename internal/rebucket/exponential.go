// Copyright The otelcol-stream Authors
// SPDX-License-Identifier: Apache-2.0

package rebucket

import (
	"sort"
)

// ExponentialPlan is a Plan from exponential buckets of one scale, whatever their range, and a zero bucket of one width.
type ExponentialPlan struct {
	Plan
	zero      Plan // of a single source bucket, the zero bucket
	threshold float64
}

// ApplyExponential is Apply for an exponential histogram; p is from [Target.Exponential] for x.Scale and x.ZeroThreshold. Negative
// observations make no sense of durations; they go into the first bucket, and anomalies is their number.
func (p *ExponentialPlan) ApplyExponential(dst []uint64, x *Exponential, carry *Carry) (c Certainty, anomalies uint64) {
	clear(dst)
	carry.begin(&p.Plan)
	c = p.spread(dst, int64(x.Positive.Offset), x.Positive.Counts, carry)
	if x.ZeroCount > 0 {
		zero := p.zero.spread(dst, 0, Totals{0, x.ZeroCount}, carry)
		c.Total += zero.Total
		c.Split += zero.Split
		c.Worst = max(c.Worst, zero.Worst)
	}
	anomalies = x.Negative.Counts.Sum()
	dst[0] += anomalies
	c.Total += anomalies
	c.Overflow = dst[len(dst)-1]
	return c, anomalies
}

// Splits is [Plan.Splits], of the zero bucket too.
func (p *ExponentialPlan) Splits() bool { return p.Plan.Splits() || p.zero.Splits() }

// withZero adds to a plan what becomes of the zero bucket. It goes whole into the target bucket that holds the threshold; if target
// bounds lie below the threshold, it is taken for evenly spread from 0 on.
func withZero(p *Plan, threshold float64) *ExponentialPlan {
	var b planner
	for i, x := range p.bounds {
		switch {
		case x < threshold && x > 0 && !same(x, threshold):
			b.cut(i, 0, 0, threshold, x, linear)
		case x < threshold && !same(x, threshold):
			b.edge(i, 0, exact)
		default:
			b.edge(i, 1, exact)
		}
	}
	return &ExponentialPlan{Plan: *p, zero: *b.plan(p.bounds, p.slots), threshold: threshold}
}

// ExponentialSize limits an exponential layout.
type ExponentialSize struct {
	MaxSize  int   // buckets per range, at least 2
	MaxScale int32 // MinScale to MaxScale
}

// Downscale lowers the scale of x, in place, until it keeps to size. That merges buckets by pairs and is exact. It returns false if there
// was nothing to do.
func Downscale(x *Exponential, size ExponentialSize) bool {
	shift := max(0, x.Scale-size.MaxScale)
	if shift == 0 && x.Positive.Counts.Len() <= size.MaxSize && x.Negative.Counts.Len() <= size.MaxSize {
		return false
	}
	x.Positive.trim()
	x.Negative.trim()
	for x.Positive.span(shift) > int64(size.MaxSize) || x.Negative.span(shift) > int64(size.MaxSize) {
		shift++
	}
	x.Positive.downscale(shift)
	x.Negative.downscale(shift)
	x.Scale -= shift
	return true
}

// trim cuts off empty buckets at both ends, so that no scale is lost for them.
func (b *Buckets) trim() {
	t := b.Counts
	for len(t) > 1 && t[len(t)-1] == t[len(t)-2] {
		t = t[:len(t)-1]
	}
	for len(t) > 1 && t[1] == t[0] {
		t = t[1:]
		b.Offset++
	}
	b.Counts = t
}

// span is the number of buckets after the scale was lowered by shift.
func (b *Buckets) span(shift int32) int64 {
	if b.Counts.Len() == 0 {
		return 0
	}
	first := int64(b.Offset)
	last := first + int64(b.Counts.Len()) - 1
	return last>>shift - first>>shift + 1
}

// downscale merges each 2^shift buckets into one: index i becomes ⌊i / 2^shift⌋. Of the running totals, those where a new bucket ends
// remain.
func (b *Buckets) downscale(shift int32) {
	size := b.span(shift)
	if shift == 0 || size == 0 {
		return
	}
	first := int64(b.Offset)
	base := first >> shift
	n := int64(b.Counts.Len())
	for k := range size {
		end := min((base+k+1)<<shift-first, n)
		b.Counts[k+1] = b.Counts[end] // never one that was overwritten: end > k
	}
	b.Counts = b.Counts[:size+1]
	b.Offset = int32(base)
}

// ToExponentialPlan maps an explicit layout to an exponential one. Observations up to the first positive bound go to the zero
// bucket, whose threshold is that bound. There is nothing that the overflow bucket could become.
type ToExponentialPlan struct {
	Plan
	Scale         int32
	Offset        int32   // of the positive range
	ZeroThreshold float64 // 0 if no source bound is positive
}

// planToExponential takes the finest scale at which the finite source buckets keep to size. nil if source has negative bounds, fewer
// than two positive ones, or spans more than the size can hold at the coarsest scale.
func planToExponential(source []float64, density Density, size ExponentialSize) *ToExponentialPlan {
	zero := sort.Search(len(source), func(i int) bool { return source[i] > 0 })
	if len(source)-zero < 2 || source[0] < 0 {
		return nil
	}
	lo, hi := source[zero], source[len(source)-1]
	for scale := size.MaxScale; scale >= MinScale; scale-- {
		first, last := indexAbove(lo, scale), indexOf(hi, scale)
		if last-first >= int64(size.MaxSize) {
			continue
		}
		bounds := make([]float64, 0, last-first+2)
		bounds = append(bounds, lo)
		for k := first + 1; k <= last; k++ {
			bounds = append(bounds, edge(k, scale))
		}
		p := planExplicit(source, bounds, density)
		p.same = false
		p.family = uint64(1)<<63 | uint64(uint32(scale))<<32 | uint64(uint32(first))
		return &ToExponentialPlan{Plan: *p, Scale: scale, Offset: int32(first), ZeroThreshold: lo}
	}
	return nil
}

// indexOf is the bucket that holds x > 0.
func indexOf(x float64, scale int32) int64 {
	pos, _ := position(x, scale)
	return ceil(pos) - 1
}

// indexAbove is the bucket that holds what lies just above x > 0.
func indexAbove(x float64, scale int32) int64 {
	pos, exact := position(x, scale)
	if exact {
		return int64(pos)
	}
	return ceil(pos) - 1
}
