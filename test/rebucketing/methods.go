// Copyright The otelcol-stream Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"math"
	"sort"

	"github.com/otelcol-stream/otelcol-stream/internal/rebucket"
)

// layout is a source histogram's layout: explicit bounds, or exponential buckets of a scale.
type layout struct {
	name   string
	bounds []float64 // nil if exponential
	scale  int32
}

// histogram is a source: bucket i holds counts[i] observations in (edges[i], edges[i+1]].
type histogram struct {
	layout layout
	edges  []float64 // the last is +Inf for explicit layouts
	counts []uint64
	offset int32 // of exponential buckets
	total  uint64
}

// count fills a layout with observations.
func count(l layout, s series) histogram {
	h := histogram{layout: l, total: uint64(len(s.values))}
	if l.bounds != nil {
		h.edges = append(append([]float64{0}, l.bounds...), math.Inf(1))
		h.counts = make([]uint64, len(l.bounds)+1)
		for _, x := range s.values {
			h.counts[sort.SearchFloat64s(l.bounds, x)]++
		}
		return h
	}
	index := func(x float64) int { return int(math.Ceil(math.Ldexp(math.Log2(x), int(l.scale)))) - 1 }
	first, last := index(s.values[0]), index(s.values[len(s.values)-1])
	h.offset = int32(first)
	h.counts = make([]uint64, last-first+1)
	for _, x := range s.values {
		h.counts[index(x)-first]++
	}
	for i := first; i <= last+1; i++ {
		h.edges = append(h.edges, math.Exp2(math.Ldexp(float64(i), -int(l.scale))))
	}
	return h
}

// last is the last bound of which the source knows something.
func (h histogram) last() float64 {
	if h.layout.bounds != nil {
		return h.layout.bounds[len(h.layout.bounds)-1]
	}
	return h.edges[len(h.edges)-1]
}

// method converts a source to target bounds and returns the share of observations at or below each.
type method struct {
	name    string
	convert func(h histogram, target []float64) ([]float64, error)
}

// within is the target bucket that holds x; edges of a source that equal a bound but for their last bits count as equal, which is
// more than peers do.
func within(target []float64, x float64) int {
	return sort.Search(len(target), func(i int) bool { return target[i] >= x*(1-1e-9) })
}

// assign puts each source bucket somewhere by a rule.
func assign(rule func(dst []float64, target []float64, lo, hi, n float64)) func(histogram, []float64) ([]float64, error) {
	return func(h histogram, target []float64) ([]float64, error) {
		dst := make([]float64, len(target)+1)
		for i, n := range h.counts {
			rule(dst, target, h.edges[i], h.edges[i+1], float64(n))
		}
		return shares(dst, float64(h.total)), nil
	}
}

func shares(counts []float64, total float64) []float64 {
	below := make([]float64, len(counts)-1)
	sum := 0.0
	for j := range below {
		sum += counts[j]
		below[j] = sum / total
	}
	return below
}

// upper puts a bucket where its upper bound lies, midpoint where its arithmetic middle lies, and equal in equal parts into all target
// buckets that it overlaps, however little.
func upper(dst, target []float64, _, hi, n float64) { dst[within(target, hi)] += n }

func midpoint(dst, target []float64, lo, hi, n float64) { dst[within(target, (lo+hi)/2)] += n }

func equal(dst, target []float64, lo, hi, n float64) {
	from := sort.Search(len(target), func(i int) bool { return target[i] > lo*(1+1e-9) })
	to := within(target, hi)
	for j := from; j <= to; j++ {
		dst[j] += n / float64(to-from+1)
	}
}

// product is the conversion of this project, with whole counts.
func product(density rebucket.Density) func(histogram, []float64) ([]float64, error) {
	return func(h histogram, target []float64) ([]float64, error) {
		t, err := rebucket.NewTarget(target, density, false)
		if err != nil {
			return nil, err
		}
		counts := make([]uint64, len(target)+1)
		if h.layout.bounds != nil {
			t.Explicit(h.layout.bounds).Apply(counts, rebucket.TotalsOf(h.counts...), nil)
		} else {
			t.Exponential(h.layout.scale, 0).ApplyExponential(counts, &rebucket.Exponential{
				Scale: h.layout.scale, Positive: rebucket.Buckets{Offset: h.offset, Counts: rebucket.TotalsOf(h.counts...)},
			}, nil)
		}
		dst := make([]float64, len(counts))
		var total uint64
		for j, n := range counts {
			dst[j] = float64(n)
			total += n
		}
		if total != h.total {
			return nil, fmt.Errorf("%s: %d of %d observations", h.layout.name, total, h.total)
		}
		return shares(dst, float64(h.total)), nil
	}
}

// score is the error of the cumulative share, in percentage points, over the target bounds up to the source's last.
type score struct{ worst, mean float64 }

func rate(s series, target, got []float64, last float64) score {
	var r score
	n := 0
	for j, b := range target {
		if b > last*(1+1e-9) {
			break
		}
		e := 100 * math.Abs(got[j]-s.below(b))
		r.worst = math.Max(r.worst, e)
		r.mean += e
		n++
	}
	r.mean /= float64(n)
	return r
}
