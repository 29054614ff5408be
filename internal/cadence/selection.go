// Copyright The otelcol-stream Authors
// SPDX-License-Identifier: Apache-2.0

package cadence

import (
	"math"
	"slices"
)

// percentiles returns the 50th, 95th and 99th percentile of the gaps, of which there is one at least, by linear interpolation between
// closest ranks (type 7 of Hyndman and Fan, "Sample Quantiles in Statistical Packages", 1996; the default of NumPy, R and spreadsheets):
// with h = (n−1)·p, x[⌊h⌋] + (h−⌊h⌋)·(x[⌊h⌋+1] − x[⌊h⌋]) of the ascending x.
//
// The gaps have just been counted into buckets, h has all of these, and the counts tell which bucket holds a rank: only the gaps of three
// buckets or so are looked at, a few of a hundred. Selecting among all of them takes more than twice as long.
func (d *denseBuckets) percentiles(gaps []int64, h *Histogram) (p50, p95, p99 float64) {
	d.locate(len(gaps), h)
	d.gather(gaps)
	rank := func(percent int) float64 {
		lo, part := rankOf(len(gaps), percent)
		w := d.holding(lo)
		// What lies before the rank selected last is smaller: the search goes on behind it.
		k := lo - w.below
		selectRank(w.gaps[w.from:], k-w.from)
		w.from = k
		x := float64(w.gaps[k])
		if part == 0 {
			return x
		}
		above := w.gaps[k+1:]
		if len(above) == 0 {
			above = d.holding(lo + 1).gaps
		}
		return x + float64(part)/100*(float64(slices.Min(above))-x)
	}
	return rank(50), rank(95), rank(99)
}

// rankOf returns ⌊h⌋ and the hundredths beyond it, whole numbers so that no rounding of p moves a rank.
func rankOf(n, percent int) (lo, hundredths int) {
	h := (n - 1) * percent
	return h / 100, h % 100
}

// holder is a bucket that holds a rank.
type holder struct {
	slot  int     // of denseBuckets; 0 holds gaps of 0
	below int     // the number of gaps in the buckets below
	count int     // of its gaps
	gaps  []int64 // its gaps
	from  int     // the rank selected last
}

// locate finds the buckets that hold the three ranks and those that follow them.
func (d *denseBuckets) locate(n int, h *Histogram) {
	var ranks [7]int // ascending
	for i, percent := range [...]int{50, 95, 99} {
		lo, part := rankOf(n, percent)
		ranks[2*i], ranks[2*i+1] = lo, lo
		if part > 0 {
			ranks[2*i+1]++
		}
	}
	ranks[6] = n // none is that high
	d.holders = d.holders[:0]
	below, rank := 0, 0
	take := func(slot int, count int64) {
		if end := below + int(count); ranks[rank] < end {
			d.holders = append(d.holders, holder{slot: slot, below: below, count: int(count)})
			for ranks[rank] < end {
				rank++
			}
		}
		below += int(count)
	}
	take(0, h.Zero)
	for _, b := range h.Buckets {
		take(b.Index-denseLeast, b.Count)
	}
}

// gather collects the gaps of the located buckets.
func (d *denseBuckets) gather(gaps []int64) {
	d.gathered = slices.Grow(d.gathered[:0], len(gaps))
	end := 0
	for i := range d.holders {
		w := &d.holders[i]
		w.gaps = d.gathered[end : end : end+w.count]
		end += w.count
		d.holds[w.slot] = 1
	}
	// The loop over all gaps has no branch that depends on them: one in ten or so is in such a bucket, and the processor cannot guess which.
	d.found = slices.Grow(d.found[:0], len(gaps)+1)[:len(gaps)+1]
	n := 0
	for i, slot := range d.slots {
		d.found[n] = int32(i)
		n += int(d.holds[slot])
	}
	for _, i := range d.found[:n] {
		w := d.holder(int(d.slots[i]))
		w.gaps = append(w.gaps, gaps[i])
	}
	for i := range d.holders {
		d.holds[d.holders[i].slot] = 0
	}
}

// holder returns the located bucket of a slot.
func (d *denseBuckets) holder(slot int) *holder {
	for i := range d.holders {
		if w := &d.holders[i]; w.slot == slot {
			return w
		}
	}
	return nil // not one that was located
}

// holding returns the located bucket that holds a rank.
func (d *denseBuckets) holding(rank int) *holder {
	for i := range d.holders {
		if w := &d.holders[i]; rank < w.below+w.count {
			return w
		}
	}
	return nil // not of a rank that was located
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
