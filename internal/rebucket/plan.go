// Copyright The otelcol-stream Authors
// SPDX-License-Identifier: Apache-2.0

package rebucket

import (
	"math"
	"slices"
	"sort"
)

// Plan is the fixed linear map from one source layout to one list of target bounds. It is immutable and safe for concurrent use.
type Plan struct {
	bounds []float64
	holder []int // by target bound: the source bucket around it, or exact
	stops  []stop
	cuts   []cut
	slots  int    // remainders that a Carry keeps for it
	family uint64 // plans of the same family share the meaning of the slots
	same   bool   // source and target layout are equal
}

// exact is the holder of a bound that is also a bound of the source; no bucket has this index.
const exact = math.MinInt

// A stop is one place of the source axis at which the target bucket changes: the source buckets before index go whole into
// bucket `to`, then, if there are cuts, the bucket at index is spread over `to` and as many buckets after it as there are cuts.
type stop struct {
	index       int64
	to          int
	from, until int // cuts[from:until]
}

// A cut is a target bound inside of a source bucket.
type cut struct {
	left share // of the observations in its half of the tree, those at or below the bound
	slot int   // where a Carry keeps its remainder
}

// Bounds are the target bounds; the caller must not change them.
func (p *Plan) Bounds() []float64 { return p.bounds }

// Size is the number of target buckets.
func (p *Plan) Size() int { return len(p.bounds) + 1 }

// Identity tells whether source and target layouts are equal, so that there is nothing to convert.
func (p *Plan) Identity() bool { return p.same }

// Exact tells whether every target bound is a bound of the source.
func (p *Plan) Exact() bool {
	return !slices.ContainsFunc(p.holder, func(h int) bool { return h != exact })
}

// Slots is the number of remainders that a Carry keeps for the plan, each 16 bytes.
func (p *Plan) Slots() int { return p.slots }

// Splits tells whether some source bucket is spread over several target buckets, so that a Carry has something to keep.
func (p *Plan) Splits() bool { return len(p.cuts) > 0 }

// Holder returns the source bucket around target bound i, or for an exponential source its index. The cumulative count at the bound
// is off by at most what that bucket holds. It is the overflow bucket for bounds above the source's last. isExact means that there is
// none, and every observation is on its true side of the bound.
func (p *Plan) Holder(i int) (source int, isExact bool) {
	if p.holder[i] == exact {
		return 0, true
	}
	return p.holder[i], false
}

// Certainty is what is known about one converted point, in observations.
type Certainty struct {
	Total    uint64 // observations of the point
	Split    uint64 // those in source buckets that had to be split: their target bucket is a guess
	Worst    uint64 // those in the largest of these buckets, which bounds the error of every cumulative count
	Overflow uint64 // those above the last target bound: where is not known
}

// Apply writes into dst, of length Size, what becomes of counts. With a nil carry the result depends on counts alone, as cumulative
// points need; the carry of a stream makes the roundings of successive delta points cancel. counts must fit the layout that the plan
// was made for, and their sum must fit an uint64.
func (p *Plan) Apply(dst []uint64, counts Totals, carry *Carry) Certainty {
	clear(dst)
	carry.begin(p)
	c := p.spread(dst, 0, counts, carry)
	c.Overflow = dst[len(dst)-1]
	return c
}

// spread adds to dst what becomes of counts, the first of which is source bucket offset. The certainty lacks the overflow.
func (p *Plan) spread(dst []uint64, offset int64, counts Totals, carry *Carry) (c Certainty) {
	size := counts.Len()
	if size == 0 {
		return c
	}
	c.Total = counts[size] - counts[0]
	done := 0
	for i := range p.stops {
		s := &p.stops[i]
		here := min(max(s.index-offset, int64(done)), int64(size))
		dst[s.to] += counts[here] - counts[done]
		done = int(here)
		if s.from == s.until || done == size || offset+here != s.index {
			continue
		}
		n := counts[done+1] - counts[done]
		done++
		if n == 0 {
			continue
		}
		c.Split += n
		c.Worst = max(c.Worst, n)
		switch cuts := p.cuts[s.from:s.until]; {
		case carry != nil:
			carry.split(dst[s.to:s.to+len(cuts)+1], n, cuts)
		case len(cuts) == 1: // by far the most frequent, and worth a fifth of the time without the calls
			left := cuts[0].left.of(n)
			dst[s.to] += left
			dst[s.to+1] += n - left
		default:
			halve(dst[s.to:s.to+len(cuts)+1], n, cuts)
		}
	}
	dst[len(dst)-1] += counts[size] - counts[done]
	return c
}

// halve is the recursive binary split of n over one more piece than there are cuts.
func halve(pieces []uint64, n uint64, cuts []cut) {
	for len(cuts) > 0 {
		m := middle(len(cuts))
		left := cuts[m].left.of(n)
		halve(pieces[:m+1], left, cuts[:m])
		pieces, n, cuts = pieces[m+1:], n-left, cuts[m+1:]
	}
	pieces[0] += n
}

// middle is the cut that halves the pieces around n cuts.
func middle(n int) int { return (n+1)/2 - 1 }

// planner collects stops in ascending order of the target bounds.
type planner struct {
	Plan
	at     []float64 // by cut: its bound in the coordinates of the density
	lo, hi float64   // of the source bucket that is being cut, in the same coordinates
	spread spread    // of that bucket: one density holds for all of its cuts
}

// edge adds target bound number i, which separates the source buckets before index from the others.
func (b *planner) edge(i int, index int64, holder int) {
	b.close()
	b.stops = append(b.stops, stop{index: index, to: i, from: len(b.cuts), until: len(b.cuts)})
	b.holder = append(b.holder, holder)
}

// cut adds target bound number i, which lies at x inside of source bucket index = (lo, hi].
func (b *planner) cut(i int, index int64, lo, hi, x float64, s spread) {
	last := len(b.stops) - 1
	if last < 0 || b.stops[last].index != index || b.stops[last].from == b.stops[last].until {
		b.close()
		b.stops = append(b.stops, stop{index: index, to: i, from: len(b.cuts)})
		last++
		b.lo, b.hi, b.spread = lo, hi, s
	}
	b.cuts = append(b.cuts, cut{slot: i})
	b.at = append(b.at, x)
	b.stops[last].until = len(b.cuts)
	b.holder = append(b.holder, int(index))
}

// close computes the shares of the newest cut bucket.
func (b *planner) close() {
	if len(b.stops) == 0 {
		return
	}
	s := b.stops[len(b.stops)-1]
	b.halve(b.lo, b.hi, s.from, s.until)
}

// halve gives cuts[from:until], which lie in (lo, hi), their share in the tree of halves that the function halve walks.
func (b *planner) halve(lo, hi float64, from, until int) {
	if from == until {
		return
	}
	m := from + middle(until-from)
	b.cuts[m].left = b.spread(lo, hi, b.at[m])
	b.halve(lo, b.at[m], from, m)
	b.halve(b.at[m], hi, m+1, until)
}

func (b *planner) plan(bounds []float64, slots int) *Plan {
	b.close()
	b.bounds, b.slots = bounds, slots
	p := b.Plan
	return &p
}

// planExplicit maps source bounds to target bounds; neither is empty. Target bounds above the last source bound stay, and the overflow
// stays above them.
func planExplicit(source, target []float64, density Density) *Plan {
	var b planner
	last := len(source) - 1
	for i, x := range target {
		k := sort.SearchFloat64s(source, x) // bucket k is (source[k-1], source[k]]
		switch {
		case k <= last && same(source[k], x):
			b.edge(i, int64(k)+1, exact)
		case k > 0 && same(source[k-1], x):
			b.edge(i, int64(k), exact)
		case k > last:
			b.edge(i, int64(last)+1, last+1)
		case k > 0:
			b.cut(i, int64(k), source[k-1], source[k], x, explicitSpread(density, source[k-1]))
		case x > 0:
			// The first bucket has no lower bound. Durations are not negative, so it begins at 0.
			b.cut(i, 0, 0, source[0], x, linear)
		default:
			// Nothing is at or below a bound of 0 under a positive first bound, and a bucket that ends at or below 0 is kept whole.
			b.edge(i, 0, 0)
		}
	}
	p := b.plan(target, len(target))
	p.same = slices.Equal(source, target)
	return p
}

// explicitSpread is the density of a bucket of an explicit source that begins at lo.
func explicitSpread(d Density, lo float64) spread {
	if d == Log && lo > 0 {
		return logarithmic
	}
	return linear
}

// planExponential maps the positive range of a scale to target bounds.
func planExponential(scale int32, target []float64, density Density) *Plan {
	var b planner
	for i, x := range target {
		if x <= 0 {
			b.edge(i, lowest, exact)
			continue
		}
		pos, isEdge := position(x, scale)
		if isEdge {
			b.edge(i, int64(pos), exact)
			continue
		}
		index := ceil(pos) - 1
		if density == Linear {
			b.cut(i, index, edge(index, scale), math.Min(edge(index+1, scale), math.MaxFloat64), x, linear)
		} else {
			b.cut(i, index, float64(index), float64(index+1), pos, onScale)
		}
	}
	return b.plan(target, len(target))
}

// lowest is below every index that a range of exponential buckets can hold.
const lowest = -1 << 40

func ceil(x float64) int64 {
	n := int64(x)
	if float64(n) < x {
		n++
	}
	return n
}
