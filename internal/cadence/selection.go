// Copyright The otelcol-stream Authors
// SPDX-License-Identifier: Apache-2.0

package cadence

import (
	"math"
	"slices"
)

// percentiles returns the 50th, 95th and 99th percentile of a, which is not empty, by linear interpolation between closest ranks (type 7
// of Hyndman and Fan, "Sample Quantiles in Statistical Packages", 1996; the default of NumPy, R and spreadsheets): with
// h = (n−1)·p, x[⌊h⌋] + (h−⌊h⌋)·(x[⌊h⌋+1] − x[⌊h⌋]) of the ascending x.
//
// It reorders a: three of a hundred ranks are wanted, and selecting them costs a third of sorting.
func percentiles(a []int64) (p50, p95, p99 float64) {
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

const (
	// smallRange is the length up to which insertion sort ends a selection.
	smallRange = 12
	// maxRounds is the number of partitions after which the rest is sorted: pivots this unlucky are somebody's intent.
	maxRounds = 40
)

// selectRank reorders a so that a[k] is what sorting would put there, everything before it is not greater and everything after it not
// smaller: Hoare's FIND with the median of three as pivot and a branch-free partition. Runs of equal gaps, which regular streams are
// full of, end it early.
func selectRank(a []int64, k int) {
	for range maxRounds {
		if len(a) <= smallRange {
			break
		}
		pivot := medianOfThree(a[0], a[len(a)/2], a[len(a)-1])
		less := partition(a, pivot)
		if k < less {
			a = a[:less]
			continue
		}
		a, k = a[less:], k-less
		if pivot == math.MaxInt64 {
			return
		}
		equal := partition(a, pivot+1)
		if k < equal {
			return
		}
		a, k = a[equal:], k-equal
	}
	if len(a) <= smallRange {
		insertionSort(a)
		return
	}
	slices.Sort(a)
}

// partition moves everything less than bound to the front and returns how much that is. The loop has no branch that depends on the data.
func partition(a []int64, bound int64) int {
	less := 0
	for i, v := range a {
		a[i] = a[less]
		a[less] = v
		if v < bound {
			less++
		}
	}
	return less
}

func medianOfThree(a, b, c int64) int64 {
	return max(min(a, b), min(max(a, b), c))
}

func insertionSort(a []int64) {
	for i := 1; i < len(a); i++ {
		v := a[i]
		j := i
		for ; j > 0 && a[j-1] > v; j-- {
			a[j] = a[j-1]
		}
		a[j] = v
	}
}
