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
	// alignedToPowers says that every bound but 0 is a power of two, so that the buckets of a gap histogram are never cut.
	alignedToPowers bool
	// byIndex has the explicit bucket of every bucket that a gap histogram has at its finest scale: a stream brings dozens of them, and each
	// would be a search.
	byIndex []uint16
	maxSize int
}

// The buckets of a gap histogram at its finest scale: a gap is 1 ns or more and less than 2^34 s.
const (
	leastGapIndex = -30 << cadence.MaxScale
	gapIndexes    = 64 << cadence.MaxScale
)

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
	return l
}

// exponent is that of the power of two at or below a positive v, the least normal one's for those that are not normal.
func exponent(v float64) int { return int(math.Float64bits(v)>>52) - 1023 }

// indexGaps fills byIndex. It is for layouts that take gap histograms; the others are spared 4 KiB.
func (l *layout) indexGaps() {
	if !l.explicit() || len(l.bounds) > math.MaxUint16 {
		return
	}
	l.byIndex = make([]uint16, gapIndexes)
	for i := range l.byIndex {
		l.byIndex[i] = uint16(l.bucket(cadence.Midpoint(i+leastGapIndex, cadence.MaxScale)))
	}
}

func exponentialLayout(maxSize int) *layout {
	return &layout{maxSize: maxSize}
}

func (l *layout) explicit() bool { return l.bounds != nil }

// bucket returns the index of the explicit bucket (b_(i−1), b_i] that holds v, which is not negative.
func (l *layout) bucket(v float64) int {
	if v == 0 {
		return 0
	}
	i := l.first[max(0, min(exponent(v)-l.minExponent, len(l.first)-1))]
	for i < len(l.bounds) && v > l.bounds[i] {
		i++
	}
	return i
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
	h.sum += v * float64(weight)
	l.add(h, v, weight)
}

// widen extends min and max; it comes before the count.
func (h *histogram) widen(least, most float64) {
	if h.count == 0 {
		h.min, h.max = least, most
		return
	}
	h.min, h.max = min(h.min, least), max(h.max, most)
}

func (l *layout) add(h *histogram, v float64, n uint64) {
	switch {
	case l.explicit():
		h.counts[l.bucket(v)] += n
	case v == 0:
		h.zero += n
	default:
		h.addIndexed(cadence.IndexOf(v), cadence.MaxScale, n, l.maxSize)
	}
}

// recordGaps adds all gaps of one stream, weight times. gaps are the same gaps in nanoseconds, or nil.
//
// The buckets of the gap histogram go to where their midpoints belong, which is exact unless a bound cuts them; then the gaps are used
// where they are known.
func (l *layout) recordGaps(h *histogram, sum *cadence.Summary, gaps []int64, weight uint64) {
	gh := &sum.Histogram
	n := gh.Count()
	least := 0.0
	switch {
	case len(gaps) > 0 && int64(len(gaps)) == n:
		least = float64(slices.Min(gaps)) / 1e9
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
	case !l.alignedToPowers && int64(len(gaps)) == n:
		for _, gap := range gaps {
			h.counts[l.bucket(float64(gap)/1e9)] += weight
		}
	default:
		l.addBuckets(h, gh, weight)
	}
}

// addBuckets adds a gap histogram to the explicit buckets. Several of its buckets in a row fall into the same one: to add them up first
// spares a store that the next addition would wait for.
func (l *layout) addBuckets(h *histogram, gh *cadence.Histogram, weight uint64) {
	byIndex := l.byIndex
	if gh.Scale != cadence.MaxScale {
		byIndex = nil
	}
	at, n := 0, uint64(gh.Zero)
	for _, b := range gh.Buckets {
		var to int
		if i := uint(b.Index - leastGapIndex); i < uint(len(byIndex)) {
			to = int(byIndex[i])
		} else {
			to = l.bucket(cadence.Midpoint(b.Index, gh.Scale))
		}
		if to != at {
			h.counts[at] += n * weight
			at, n = to, 0
		}
		n += uint64(b.Count)
	}
	h.counts[at] += n * weight
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
	shift := gh.Scale - h.scale
	for _, b := range gh.Buckets[1:last] {
		h.counts[b.Index>>shift-h.offset] += uint64(b.Count) * weight
	}
}

// addIndexed adds n to an exponential bucket of the given scale, and lowers the scale of the histogram where it is finer or would have
// more than maxSize buckets.
func (h *histogram) addIndexed(index, scale int, n uint64, maxSize int) {
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
