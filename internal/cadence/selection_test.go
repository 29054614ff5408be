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
			g50, g95, g99 := percentiles(a)
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
	g50, g95, g99 := percentiles(a)
	assert.Equal(t, []float64{w50, w95, w99}, []float64{g50, g95, g99})
}
