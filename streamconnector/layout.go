// Copyright The otelcol-stream Authors
// SPDX-License-Identifier: Apache-2.0

package streamconnector

import (
	"math"
	"slices"

	"go.opentelemetry.io/collector/pdata/pmetric"

	"github.com/otelcol-stream/otelcol-stream/internal/cadence"
)

// layout is how a histogram divides its values: by explicit bounds or, when there are none, exponentially.
//
// Exponential histograms are our own and start at scale 5, for three reasons. Gaps arrive in histograms of that scale: merging those is
// exact, where github.com/lightstep/go-expohisto/structure starts at scale 20 and would place them at made-up values. Sixteen powers of
// two, which latencies span, do not fit into 160 buckets at any finer scale anyway. And an index costs 3 ns instead of a logarithm.
type layout struct {
	bounds []float64
	// first[e − minExponent] is the number of bounds below 2^e, where the search for a value of [2^e, 2^(e+1)) begins. On a ladder of
	// powers of two, or of any constant factor, it ends there or one further: a third of the time of a binary search.
	first       []int
	minExponent int
	// octaves, of a ladder with at most one bound in each [2^e, 2^(e+1)), spares the search. Its index is that of first.
	octaves []octave
	// alignedToPowers says that every bound but 0 is a power of two, so that the buckets of a gap histogram are never cut.
	alignedToPowers bool
	// ofCell has the explicit bucket of every cell of a gapTable; nil for a layout that takes no gaps.
	ofCell  []uint16
	maxSize int
}

// octave is what a ladder has from a power of two to the next.
type octave struct {
	below int     // bounds below it
	bound float64 // in it; infinite if there is none
}

func explicitLayout(bounds []float64) *layout {
	l := &layout{bounds: bounds, alignedToPowers: true}
	positive := bounds
	if positive[0] == 0 {
		positive = positive[1:]
	}
	if len(positive) == 0 {
		l.first = []int{len(bounds)}
		return l
	}
	for _, b := range positive {
		fraction, _ := math.Frexp(b)
		l.alignedToPowers = l.alignedToPowers && fraction == 0.5
	}
	l.minExponent = exponent(positive[0])
	for e := l.minExponent; e <= exponent(positive[len(positive)-1])+1; e++ {
		below, _ := slices.BinarySearch(bounds, math.Ldexp(1, e))
		l.first = append(l.first, below)
	}
	// The first entry also serves everything smaller, which begins behind a bound of 0.
	l.first[0] = len(bounds) - len(positive)
	if l.minExponent > exponent(0) { // in the octave of 0 a bound of 0 would be below it
		l.octaves = octaves(bounds, l.first)
	}
	return l
}

// octaves returns nil when there are more bounds in one.
func octaves(bounds []float64, first []int) (os []octave) {
	for i, below := range first {
		o := octave{below, math.Inf(1)}
		if i+1 < len(first) {
			switch first[i+1] - below {
			case 0:
			case 1:
				o.bound = bounds[below]
			default:
				return nil
			}
		}
		os = append(os, o)
	}
	return os
}

// exponent is that of the power of two at or below a positive v, the least normal one's for those that are not normal.
func exponent(v float64) int { return int(math.Float64bits(v)>>52) - 1023 }

func exponentialLayout(maxSize int) *layout {
	return &layout{maxSize: maxSize}
}

func (l *layout) explicit() bool { return l.bounds != nil }

// bucket returns the index of the explicit bucket (b_(i−1), b_i] that holds v, which is not negative.
func (l *layout) bucket(v float64) int {
	if o := l.octave(v); o != nil {
		return o.bucket(v)
	}
	if v == 0 {
		return 0
	}
	i := l.first[max(0, min(exponent(v)-l.minExponent, len(l.first)-1))]
	for i < len(l.bounds) && v > l.bounds[i] {
		i++
	}
	return i
}

// octave returns the one that holds v, nil if there is none.
func (l *layout) octave(v float64) *octave {
	if e := uint(exponent(v) - l.minExponent); e < uint(len(l.octaves)) {
		return &l.octaves[e]
	}
	return nil
}

func (o *octave) bucket(v float64) int { return o.below + above(v, o.bound) }

// above is 1 if v is above the bound, and else 0. It takes no jump, which the processor could not foresee.
func above(v, bound float64) (n int) {
	if v > bound {
		n = 1
	}
	return n
}

// histogram is the running state of one data point.
type histogram struct {
	count         uint64
	sum, min, max float64
	// minUnknown is true where gaps came as a histogram, of which only the greatest is known.
	minUnknown bool
	// counts are those of all explicit buckets, or of the exponential ones from offset on.
	counts []uint64

	// Of an exponential histogram.
	scale, offset int
	zero          uint64
}

// reset empties the histogram and keeps its memory.
func (h *histogram) reset(l *layout) {
	counts := h.counts
	clear(counts)
	if !l.explicit() {
		counts = counts[:0]
	}
	*h = histogram{counts: counts}
}

// record adds a value, weight times.
func (l *layout) record(h *histogram, v float64, weight uint64) {
	h.widen(v, v)
	h.count += weight
	h.sum += v * float64(int64(weight)) // a weight is small, and a signed number is converted in one step
	switch o := l.octave(v); {
	case o != nil: // most values of most ladders, without a call
		h.counts[o.bucket(v)] += weight
	case l.explicit():
		h.counts[l.bucket(v)] += weight
	case v == 0:
		h.zero += weight
	default:
		h.addIndexed(cadence.IndexOf(v), cadence.MaxScale, weight, l.maxSize)
	}
}

// widen extends min and max; it comes before the count. Once there are some values, hardly one is beyond them.
func (h *histogram) widen(least, most float64) {
	if h.count == 0 || least < h.min {
		h.min = least
	}
	if h.count == 0 || most > h.max {
		h.max = most
	}
}

// recordGaps adds all gaps of one stream.
//
// The buckets of the gap histogram go to where their midpoints belong, which is exact unless a bound cuts them; then the gaps are used
// where they are known.
func (l *layout) recordGaps(h *histogram, s *stream) {
	sum := &s.record.Cadence
	gh, n, weight := &sum.Histogram, s.gapCount, s.weight
	each := len(s.gaps) > 0 && int64(len(s.gaps)) == n // every gap is known by itself
	least := 0.0
	switch {
	case each:
		least = float64(slices.Min(s.gaps)) / 1e9
	case gh.Zero == 0:
		h.minUnknown = true
	}
	h.widen(least, sum.GapMax.V)
	h.count += uint64(n) * weight
	h.sum += sum.GapMean.V * float64(n) * float64(weight)

	switch {
	case !l.explicit():
		h.zero += uint64(gh.Zero) * weight
		h.addBuckets(gh, weight, l.maxSize)
	case !l.alignedToPowers && each:
		for _, gap := range s.gaps {
			h.counts[l.bucket(float64(gap)/1e9)] += weight
		}
	case s.cells.known:
		l.addCells(h, gh.Zero, &s.cells, weight)
	default:
		l.addBuckets(h, gh, weight)
	}
}

// addBuckets adds a gap histogram to the explicit buckets.
func (l *layout) addBuckets(h *histogram, gh *cadence.Histogram, weight uint64) {
	h.counts[0] += uint64(gh.Zero) * weight
	for _, b := range gh.Buckets {
		h.counts[l.bucket(cadence.Midpoint(b.Index, gh.Scale))] += uint64(b.Count) * weight
	}
}

// addBuckets adds a gap histogram to the exponential buckets. The outermost of its buckets make room for those between them.
func (h *histogram) addBuckets(gh *cadence.Histogram, weight uint64, maxSize int) {
	last := len(gh.Buckets) - 1
	if last < 0 {
		return
	}
	h.addIndexed(gh.Buckets[0].Index, gh.Scale, uint64(gh.Buckets[0].Count)*weight, maxSize)
	if last == 0 {
		return
	}
	h.addIndexed(gh.Buckets[last].Index, gh.Scale, uint64(gh.Buckets[last].Count)*weight, maxSize)
	shift, counts, offset := uint(gh.Scale-h.scale)%64, h.counts, h.offset
	for _, b := range gh.Buckets[1:last] {
		counts[b.Index>>shift-offset] += uint64(b.Count) * weight
	}
}

// addIndexed adds n to an exponential bucket of the given scale.
func (h *histogram) addIndexed(index, scale int, n uint64, maxSize int) {
	// Nearly always there is the bucket already, or another takes its place since the scale was lowered.
	if shift := uint(scale - h.scale); shift < 64 {
		if i := uint(index>>shift - h.offset); i < uint(len(h.counts)) {
			h.counts[i] += n
			return
		}
	}
	h.extend(index, scale, n, maxSize)
}

// extend adds n to an exponential bucket of the given scale that may not be there yet, and lowers the scale of the histogram where it is finer or would have
// more than maxSize buckets.
func (h *histogram) extend(index, scale int, n uint64, maxSize int) {
	if len(h.counts) == 0 {
		h.scale, h.offset = scale, index
	}
	if scale < h.scale {
		h.downscale(h.scale - scale)
	}
	index >>= scale - h.scale
	for max(index, h.offset+len(h.counts)-1)-min(index, h.offset) >= maxSize {
		h.downscale(1)
		index >>= 1
	}
	if below := h.offset - index; below > 0 {
		h.counts = slices.Insert(h.counts, 0, make([]uint64, below)...)
		h.offset = index
	}
	for index >= h.offset+len(h.counts) {
		h.counts = append(h.counts, 0)
	}
	h.counts[index-h.offset] += n
}

func (h *histogram) downscale(steps int) {
	h.scale -= steps
	offset := h.offset >> steps
	for i, n := range h.counts {
		to := (h.offset+i)>>steps - offset
		// In place: to never is ahead of i.
		h.counts[i] = 0
		h.counts[to] += n
	}
	if len(h.counts) > 0 {
		h.counts = h.counts[:(h.offset+len(h.counts)-1)>>steps-offset+1]
	}
	h.offset = offset
}

// merge adds o, a histogram of the same layout.
func (l *layout) merge(h, o *histogram) {
	if o.count == 0 {
		return
	}
	h.widen(o.min, o.max)
	h.minUnknown = h.minUnknown || o.minUnknown
	h.count += o.count
	h.sum += o.sum
	h.zero += o.zero
	for i, n := range o.counts {
		switch {
		case l.explicit():
			h.counts[i] += n
		case n > 0:
			h.addIndexed(o.offset+i, o.scale, n, l.maxSize)
		}
	}
}

// explicitPoint writes an explicit histogram.
func (l *layout) explicitPoint(h *histogram, dp pmetric.HistogramDataPoint) {
	dp.SetCount(h.count)
	dp.SetSum(h.sum)
	if !h.minUnknown {
		dp.SetMin(h.min)
	}
	dp.SetMax(h.max)
	dp.ExplicitBounds().FromRaw(l.bounds)
	dp.BucketCounts().FromRaw(h.counts)
}

// exponentialPoint writes an exponential histogram.
func (h *histogram) exponentialPoint(dp pmetric.ExponentialHistogramDataPoint) {
	dp.SetCount(h.count)
	dp.SetSum(h.sum)
	if !h.minUnknown {
		dp.SetMin(h.min)
	}
	dp.SetMax(h.max)
	dp.SetScale(int32(h.scale))
	dp.SetZeroCount(h.zero)
	if len(h.counts) > 0 {
		dp.Positive().SetOffset(int32(h.offset))
		dp.Positive().BucketCounts().FromRaw(h.counts)
	}
}
