// Copyright The otelcol-stream Authors
// SPDX-License-Identifier: Apache-2.0

package cadence

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
)

// sortedPercentiles is the simple version: sort, then read the ranks.
func sortedPercentiles(a []int64) (p50, p95, p99 float64) {
	sorted := slices.Sorted(slices.Values(a))
	rank := func(percent int) float64 {
		h := (len(sorted) - 1) * percent
		lo, hi := h/100, (h+99)/100
		return float64(sorted[lo]) + float64(h%100)/100*(float64(sorted[hi])-float64(sorted[lo]))
	}
	return rank(50), rank(95), rank(99)
}

// selectedPercentiles selects among all values where the buckets are not known. It returns the 50th, 95th and 99th percentile of a, which is not empty, by linear interpolation between closest ranks (type 7
// of Hyndman and Fan, "Sample Quantiles in Statistical Packages", 1996; the default of NumPy, R and spreadsheets): with
// h = (n−1)·p, x[⌊h⌋] + (h−⌊h⌋)·(x[⌊h⌋+1] − x[⌊h⌋]) of the ascending x.
//
// It reorders a: three of a hundred ranks are wanted, and selecting them costs a third of sorting.
func selectedPercentiles(a []int64) (p50, p95, p99 float64) {
	from := 0
	rank := func(percent int) float64 {
		// h in hundredths, so that no rounding of p moves a rank.
		h := (len(a) - 1) * percent
		lo, part := h/100, h%100
		// What lies before the rank selected last is smaller: the search goes on behind it.
		selectRank(a[from:], lo-from)
		from = lo
		x := float64(a[lo])
		if part == 0 {
			return x
		}
		return x + float64(part)/100*(float64(slices.Min(a[lo+1:]))-x)
	}
	return rank(50), rank(95), rank(99)
}

// TestPercentilesByBuckets: finding the ranks by way of the buckets gives what sorting gives.
func TestPercentilesByBuckets(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 9))
	shapes := map[string]func(i int) int64{
		"random":       func(int) int64 { return r.Int64N(1e9) },
		"wide":         func(int) int64 { return r.Int64() >> r.IntN(63) },
		"few values":   func(int) int64 { return r.Int64N(3) },
		"equal":        func(int) int64 { return 7 },
		"zero":         func(int) int64 { return 0 },
		"one bucket":   func(int) int64 { return 15_000_000 + r.Int64N(1000) },
		"mostly zeros": func(int) int64 { return r.Int64N(40) / 38 * r.Int64N(1e9) },
		"saw":          func(i int) int64 { return int64(i % 10) },
		"descending":   func(i int) int64 { return 1e7 - int64(i) },
		"extremes":     func(int) int64 { return []int64{0, math.MaxInt64, math.MaxInt64 - 1, 1}[r.IntN(4)] },
	}
	var d denseBuckets
	for name, value := range shapes {
		for n := 1; n < 2000; n += 1 + n/7 {
			gaps := make([]int64, n)
			for i := range gaps {
				gaps[i] = value(i)
			}
			before := slices.Clone(gaps)
			var h Histogram
			d.count(gaps, &h)
			w50, w95, w99 := sortedPercentiles(gaps)
			g50, g95, g99 := d.percentiles(gaps, &h)
			assert.Equal(t, []float64{w50, w95, w99}, []float64{g50, g95, g99}, "%s of %d", name, n)
			assert.Equal(t, before, gaps, "%s of %d: left as they were", name, n)
		}
	}
}

func TestSelectionAgreesWithSorting(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 8))
	shapes := map[string]func(i int) int64{
		"random":     func(int) int64 { return r.Int64N(1e9) },
		"few values": func(int) int64 { return r.Int64N(3) },
		"equal":      func(int) int64 { return 7 },
		"ascending":  func(i int) int64 { return int64(i) },
		"descending": func(i int) int64 { return int64(-i) },
		"saw":        func(i int) int64 { return int64(i % 10) },
		"extremes":   func(int) int64 { return []int64{0, math.MaxInt64, math.MaxInt64 - 1, 1}[r.IntN(4)] },
	}
	for name, value := range shapes {
		for n := 1; n < 2000; n += 1 + n/7 {
			a := make([]int64, n)
			for i := range a {
				a[i] = value(i)
			}
			w50, w95, w99 := sortedPercentiles(a)
			before := slices.Sorted(slices.Values(a))
			g50, g95, g99 := selectedPercentiles(a)
			assert.Equal(t, []float64{w50, w95, w99}, []float64{g50, g95, g99}, "%s of %d", name, n)
			assert.Equal(t, before, slices.Sorted(slices.Values(a)), "%s of %d: a permutation", name, n)
		}
	}
}

// Values laid out against the median of three take two elements off per partition; the selection must not go quadratic on them. The
// layout is made as in McIlroy, "A killer adversary for quicksort" (1999): run the partitions on positions, and let whatever is looked at
// as a pivot turn out to be the least that is left.
func TestSelectionSurvivesItsWorstCase(t *testing.T) {
	const n, unknown = 2_000, math.MaxInt64 / 2
	a := make([]int64, n)
	positions := make([]int, n)
	for i := range a {
		a[i], positions[i] = unknown+int64(i), i
	}
	split := func(window []int, bound int64) []int {
		less := 0
		for i, p := range window {
			window[i], window[less] = window[less], p
			if a[p] < bound {
				less++
			}
		}
		return window[less:]
	}
	window, rounds, next := positions, 0, int64(0)
	for ; rounds <= maxRounds; rounds++ {
		for _, p := range []int{window[0], window[len(window)/2], window[len(window)-1]} {
			if a[p] >= unknown {
				a[p] = next
				next++
			}
		}
		pivot := medianOfThree(a[window[0]], a[window[len(window)/2]], a[window[len(window)-1]])
		window = split(split(window, pivot), pivot+1)
	}
	assert.Greater(t, len(window), n-3*rounds, "each partition took a few elements only")

	w50, w95, w99 := sortedPercentiles(a)
	g50, g95, g99 := selectedPercentiles(a)
	assert.Equal(t, []float64{w50, w95, w99}, []float64{g50, g95, g99})
}
