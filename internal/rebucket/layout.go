// Copyright The otelcol-stream Authors
// SPDX-License-Identifier: Apache-2.0

package rebucket

import (
	"errors"
	"fmt"
	"math"
	"math/bits"
	"slices"
)

// tolerance is the relative distance within which two bounds are the same bound. Edges of exponential buckets and bounds that
// went through a change of unit differ from their decimal spelling in the last bits; at the finest scale, 20, buckets are
// 6.6e-7 wide, so that nothing distinct is taken for equal.
const tolerance = 1e-9

// Scales of base-2 exponential histograms that are converted; SDKs write -10 to 20. Outside of them a bucket is wider than the
// range of float64, or narrower than the tolerance allows.
const (
	MinScale = -10
	MaxScale = 20
)

// Errors that tell why a point is not a histogram.
var (
	ErrBucketCount = errors.New("the number of counts is not the number of bounds plus one")
	ErrBounds      = errors.New("bounds are not finite and strictly increasing")
	ErrTotal       = errors.New("the bucket counts do not add up to the count")
	ErrScale       = fmt.Errorf("the scale is outside [%d, %d]", MinScale, MaxScale)
	ErrZero        = errors.New("the zero threshold is negative or not finite")
)

// Totals are the counts of a histogram as running totals: 0, the first count, the sum of the first two, and so on, one more than there
// are buckets. A conversion needs sums over ranges of buckets, which are differences of totals; that is why they, and not counts,
// are what it reads.
type Totals []uint64

// TotalsOf returns the running totals of counts.
func TotalsOf(counts ...uint64) Totals {
	t := make(Totals, len(counts)+1)
	for i, n := range counts {
		t[i+1] = t[i] + n
	}
	return t
}

// Len is the number of buckets.
func (t Totals) Len() int { return max(len(t)-1, 0) }

// Sum is the sum of all counts.
func (t Totals) Sum() uint64 {
	if len(t) == 0 {
		return 0
	}
	return t[len(t)-1]
}

// Counts appends the counts to dst.
func (t Totals) Counts(dst []uint64) []uint64 {
	for i := 1; i < len(t); i++ {
		dst = append(dst, t[i]-t[i-1])
	}
	return dst
}

// fits tells whether no sum has left the range of uint64.
func (t Totals) fits() bool { return slices.IsSorted(t) }

// CheckExplicit returns nil if counts over bounds make a histogram of total observations, else one of ErrBucketCount,
// ErrBounds and ErrTotal.
func CheckExplicit(bounds []float64, counts Totals, total uint64) error {
	if counts.Len() != len(bounds)+1 {
		return ErrBucketCount
	}
	if !increasing(bounds) {
		return ErrBounds
	}
	if counts.Sum() != total || !counts.fits() {
		return ErrTotal
	}
	return nil
}

// Exponential is a base-2 exponential histogram as OTLP has it: bucket i of the positive range holds (base^i, base^(i+1)] with
// base = 2^(2^-Scale), the negative range mirrors it, and the zero bucket holds what is at most ZeroThreshold away from 0.
type Exponential struct {
	Scale         int32
	ZeroThreshold float64
	ZeroCount     uint64
	Positive      Buckets
	Negative      Buckets
}

// Buckets are the counts of a contiguous range of exponential buckets, the first of which has index Offset.
type Buckets struct {
	Offset int32
	Counts Totals
}

// Check returns nil if x is a histogram of total observations, else one of ErrScale, ErrZero and ErrTotal.
func (x *Exponential) Check(total uint64) error {
	if err := x.CheckLayout(); err != nil {
		return err
	}
	sum, carry1 := bits.Add64(x.Positive.Counts.Sum(), x.Negative.Counts.Sum(), 0)
	sum, carry2 := bits.Add64(sum, x.ZeroCount, 0)
	if sum != total || carry1+carry2 > 0 || !x.Positive.Counts.fits() || !x.Negative.Counts.fits() {
		return ErrTotal
	}
	return nil
}

// CheckLayout is Check without the counts, which takes no time.
func (x *Exponential) CheckLayout() error {
	if x.Scale < MinScale || x.Scale > MaxScale {
		return ErrScale
	}
	if !(x.ZeroThreshold >= 0) || math.IsInf(x.ZeroThreshold, 1) {
		return ErrZero
	}
	return nil
}

// increasing tells whether bounds are finite and strictly increasing.
func increasing(bounds []float64) bool {
	last := math.Inf(-1)
	for _, b := range bounds {
		if !(b > last) { // also false for NaN
			return false
		}
		last = b
	}
	return len(bounds) == 0 || !math.IsInf(last, 1)
}

// same tells whether a and b are the same bound.
func same(a, b float64) bool {
	d := math.Abs(a - b)
	return a == b || d <= tolerance*math.Max(math.Abs(a), math.Abs(b)) && !math.IsInf(d, 1)
}

// position is where x > 0 lies on the axis of exponential buckets: edge k of a scale is at k. If x is the same bound as an
// edge, the edge's number comes back exactly.
func position(x float64, scale int32) (pos float64, exact bool) {
	pos = math.Ldexp(math.Log2(x), int(scale))
	edge := math.Round(pos)
	if math.Abs(math.Ldexp(pos-edge, -int(scale)))*math.Ln2 <= tolerance {
		return edge, true
	}
	return pos, false
}

// edge is the lower bound of bucket index, base^index. The whole powers of two in it are applied last, so that edges which are
// powers of two come out exactly.
func edge(index int64, scale int32) float64 {
	if scale <= 0 {
		return math.Ldexp(1, int(max(-1<<20, min(1<<20, index<<-scale))))
	}
	whole := index >> scale
	return math.Ldexp(math.Exp2(math.Ldexp(float64(index-whole<<scale), -int(scale))), int(max(-1<<20, min(1<<20, whole))))
}
