// Copyright The otelcol-stream Authors
// SPDX-License-Identifier: Apache-2.0

package cadence

import (
	"errors"
	"fmt"
	"math"
	"slices"
)

const (
	// MaxBuckets is the most populated buckets that a Histogram keeps. One more, and it is downscaled until it fits.
	MaxBuckets = 128
	// MaxCount bounds what ParseHistogram accepts: a chunk every millisecond for two years. Counts are added up over many streams, so
	// that one span with a count near the limit of int64 could otherwise wrap a metric round.
	MaxCount = 1 << 36
)

// Histogram is a base-2 exponential histogram of gaps with OTLP's bucket indexes: bucket i holds (2^(i/2^scale), 2^((i+1)/2^scale)]
// seconds. The gaps of two streams merge exactly, after the finer one is downscaled. The zero value is empty and ready to use: the Scale
// of a histogram without buckets says nothing, and the first bucket sets it.
type Histogram struct {
	Scale int
	// Zero counts gaps of exactly 0 s.
	Zero int64
	// Buckets holds the populated buckets in ascending order of Index.
	Buckets []Bucket
}

// Bucket is one populated bucket of a Histogram.
type Bucket struct {
	Index int
	Count int64
}

// Count returns the number of gaps.
func (h *Histogram) Count() int64 {
	n := h.Zero
	for _, b := range h.Buckets {
		n += b.Count
	}
	return n
}

// Reset empties the histogram and keeps the capacity of its buckets.
func (h *Histogram) Reset() {
	*h = Histogram{Buckets: h.Buckets[:0]}
}

// Observe adds one gap in seconds. A gap that is negative, NaN or infinite is none and is not added.
func (h *Histogram) Observe(seconds float64) {
	switch {
	case seconds == 0:
		h.Zero++
	case seconds > 0 && seconds <= math.MaxFloat64:
		if len(h.Buckets) == 0 {
			h.Scale = MaxScale
		}
		h.add(IndexOf(seconds)>>(MaxScale-h.Scale), 1)
		h.fit()
	}
}

// Merge adds the gaps of o. The result has the scale of the coarser of the two, or less when it would have too many buckets.
func (h *Histogram) Merge(o *Histogram) {
	h.Zero += o.Zero
	if len(o.Buckets) == 0 {
		return
	}
	if len(h.Buckets) == 0 {
		h.Scale = o.Scale
	}
	if o.Scale < h.Scale {
		h.Downscale(h.Scale - o.Scale)
	}
	shift := o.Scale - h.Scale
	for _, b := range o.Buckets {
		h.add(b.Index>>shift, b.Count)
	}
	h.fit()
}

// add adds count to the bucket at index, at the scale of the histogram.
func (h *Histogram) add(index int, count int64) {
	at, found := slices.BinarySearchFunc(h.Buckets, index, func(b Bucket, index int) int { return b.Index - index })
	if found {
		h.Buckets[at].Count += count
		return
	}
	h.Buckets = slices.Insert(h.Buckets, at, Bucket{index, count})
}

// Downscale lowers the scale by the given number of steps. Each step joins the buckets 2i and 2i+1 to one of index i, which loses
// nothing but resolution.
func (h *Histogram) Downscale(steps int) {
	if steps <= 0 {
		return
	}
	h.Scale -= steps
	joined := h.Buckets[:0]
	for _, b := range h.Buckets {
		b.Index >>= steps
		if last := len(joined) - 1; last >= 0 && joined[last].Index == b.Index {
			joined[last].Count += b.Count
		} else {
			joined = append(joined, b)
		}
	}
	h.Buckets = joined
}

// fit downscales until there are at most MaxBuckets.
func (h *Histogram) fit() {
	for len(h.Buckets) > MaxBuckets {
		h.Downscale(1)
	}
}

// AppendInts appends the form of the attribute stream.chunk.gap.histogram: [scale, zero_count, index, count, index, count, …].
func (h Histogram) AppendInts(dst []int64) []int64 {
	dst = append(dst, int64(h.Scale), h.Zero)
	for _, b := range h.Buckets {
		dst = append(dst, int64(b.Index), b.Count)
	}
	return dst
}

// ParseHistogram reads the form that AppendInts writes. It is strict, since what it accepts is added to metrics: see SetInts.
func ParseHistogram(ints []int64) (Histogram, error) {
	var h Histogram
	err := h.SetInts(ints)
	return h, err
}

// SetInts is ParseHistogram into h, whose bucket capacity is reused. It returns an error, and leaves h empty, when a number is missing,
// there are more than MaxBuckets pairs, the scale is not in MinScale..MaxScale, a count is not positive or counts add up to more than
// 2^36, or the indexes do not ascend or lie beyond what a float64 can hold.
func (h *Histogram) SetInts(ints []int64) error {
	h.Reset()
	if len(ints) < 2 || len(ints)%2 != 0 {
		return fmt.Errorf("gap histogram has %d numbers, not a scale, a zero count and pairs", len(ints))
	}
	scale, zero, pairs := ints[0], ints[1], ints[2:]
	if len(pairs) > 2*MaxBuckets {
		return fmt.Errorf("gap histogram has %d buckets, more than %d", len(pairs)/2, MaxBuckets)
	}
	if scale < MinScale || scale > MaxScale {
		return fmt.Errorf("gap histogram has scale %d, outside %d..%d", scale, MinScale, MaxScale)
	}
	if zero < 0 || zero > MaxCount {
		return fmt.Errorf("gap histogram has zero count %d", zero)
	}
	if err := h.setPairs(pairs, int(scale), zero); err != nil {
		h.Reset()
		return err
	}
	h.Scale, h.Zero = int(scale), zero
	return nil
}

// setPairs appends the buckets. total is what has been counted before.
func (h *Histogram) setPairs(pairs []int64, scale int, total int64) error {
	least, most := Indexes(scale)
	for ; len(pairs) > 0; pairs = pairs[2:] {
		index, count := pairs[0], pairs[1]
		switch {
		case index > most:
			return fmt.Errorf("gap histogram has bucket index %d at scale %d", index, scale)
		case index < least:
			return errors.New("gap histogram has bucket indexes that do not ascend or are too small")
		case count <= 0 || count > MaxCount-total:
			return fmt.Errorf("gap histogram has count %d in bucket %d", count, index)
		}
		least = index + 1
		total += count
		h.Buckets = append(h.Buckets, Bucket{int(index), count})
	}
	return nil
}

// Indexes returns the bucket indexes of the smallest and the greatest float64 at a scale of MinScale to MaxScale.
func Indexes(scale int) (least, most int64) {
	// Those at MaxScale, shifted as Downscale shifts.
	return int64(minExponent*subBuckets-1) >> (MaxScale - scale), int64(IndexOf(math.MaxFloat64)) >> (MaxScale - scale)
}
