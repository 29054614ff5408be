// Copyright The otelcol-stream Authors
// SPDX-License-Identifier: Apache-2.0

package rebucket

import (
	"math"
	"math/big"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A conversion is one source layout and one target, with a plan behind a common face.
type conversion struct {
	name    string
	sources int // number of source counts
	size    int
	bounds  []float64
	simple  bool // no source bucket is cut more than once
	apply   func(counts []uint64, carry *Carry) ([]uint64, Certainty)
	// below is the range of what can truly lie at or below target bound j: the source buckets surely below it, and with the one around it.
	below func(counts []uint64, j int) (atLeast, atMost uint64)
}

func explicitConversion(name string, source []float64, tt *Target) conversion {
	p := tt.Explicit(source)
	return conversion{
		name: name, sources: len(source) + 1, size: p.Size(), bounds: p.Bounds(), simple: simple(p.stops),
		apply: func(counts []uint64, carry *Carry) ([]uint64, Certainty) {
			dst := make([]uint64, p.Size())
			return dst, p.Apply(dst, TotalsOf(counts...), carry)
		},
		below: func(counts []uint64, j int) (atLeast, atMost uint64) {
			x := p.Bounds()[j]
			for i, n := range counts {
				lo := -math.MaxFloat64
				if i > 0 {
					lo = source[i-1]
				}
				if i < len(source) && (source[i] <= x || same(source[i], x)) {
					atLeast += n
				}
				if lo < x && !same(lo, x) {
					atMost += n
				}
			}
			return atLeast, atMost
		},
	}
}

func exponentialConversion(name string, scale, offset int32, size int, tt *Target) conversion {
	p := tt.Exponential(scale, 0)
	return conversion{
		name: name, sources: size, size: p.Size(), bounds: p.Bounds(), simple: simple(p.stops),
		apply: func(counts []uint64, carry *Carry) ([]uint64, Certainty) {
			dst := make([]uint64, p.Size())
			c, _ := p.ApplyExponential(dst, &Exponential{Scale: scale, Positive: Buckets{Offset: offset, Counts: TotalsOf(counts...)}}, carry)
			return dst, c
		},
		below: func(counts []uint64, j int) (atLeast, atMost uint64) {
			x := p.Bounds()[j]
			for i, n := range counts {
				lo, hi := edge(int64(offset)+int64(i), scale), edge(int64(offset)+int64(i)+1, scale)
				if hi = math.Max(hi, math.SmallestNonzeroFloat64); hi <= x || same(hi, x) {
					atLeast += n
				}
				if lo < x && !same(lo, x) {
					atMost += n
				}
			}
			return atLeast, atMost
		},
	}
}

func simple(stops []stop) bool {
	return !slices.ContainsFunc(stops, func(s stop) bool { return s.until-s.from > 1 })
}

func conversions(tb testing.TB) []conversion {
	tb.Helper()
	all := []conversion{}
	for _, d := range []struct {
		name    string
		density Density
	}{{"linear", Linear}, {"log", Log}} {
		for _, cut := range []bool{true, false} {
			all = append(all,
				explicitConversion("HTTP to vLLM, "+d.name, httpBounds, target(tb, d.density, cut, vllmBounds...)),
				explicitConversion("GenAI to vLLM, "+d.name, genAIBounds, target(tb, d.density, cut, vllmBounds...)),
				explicitConversion("vLLM to GenAI, "+d.name, vllmBounds, target(tb, d.density, cut, genAIBounds...)),
				explicitConversion("one bound to many, "+d.name, []float64{5}, target(tb, d.density, cut, httpBounds...)),
			)
		}
		all = append(all,
			exponentialConversion("scale 0 to vLLM, "+d.name, 0, -12, 30, target(tb, d.density, true, vllmBounds...)),
			exponentialConversion("scale -2 to vLLM, "+d.name, -2, -4, 8, target(tb, d.density, true, vllmBounds...)),
			exponentialConversion("scale 3 to GenAI, "+d.name, 3, -60, 160, target(tb, d.density, true, genAIBounds...)),
		)
	}
	rng := rand.New(rand.NewPCG(1, 2))
	for range 40 {
		all = append(all, explicitConversion("generated", someBounds(rng), target(tb, Density(rng.IntN(3)), rng.IntN(2) == 0, someBounds(rng)...)))
	}
	return all
}

func someBounds(rng *rand.Rand) []float64 {
	bounds := make([]float64, 1+rng.IntN(12))
	for i := range bounds {
		bounds[i] = float64(rng.IntN(60)) / 4 // so that some bounds agree
	}
	slices.Sort(bounds)
	return slices.Compact(bounds)
}

// someCounts are small or huge, with empty buckets among them; the total is at most 2^63.
func someCounts(rng *rand.Rand, n int) []uint64 {
	counts := make([]uint64, n)
	largest := uint64(1) << rng.IntN(64) / uint64(n)
	for i := range counts {
		if rng.IntN(4) > 0 && largest > 0 {
			counts[i] = rng.Uint64N(largest + 1)
		}
	}
	return counts
}

func plus(a, b []uint64) []uint64 {
	out := make([]uint64, len(a))
	for i := range a {
		out[i] = a[i] + b[i]
	}
	return out
}

// The laws of a plan, for one pair of histograms of which the second is not smaller.
func checkPlan(tb testing.TB, c conversion, counts, more []uint64) {
	tb.Helper()
	got, certainty := c.apply(counts, nil)
	again, _ := c.apply(counts, nil)
	require.Equal(tb, got, again, "%s: deterministic", c.name)
	require.Equal(tb, sum(counts), sum(got), "%s: the total is kept", c.name)
	require.Equal(tb, sum(counts), certainty.Total, c.name)
	require.Equal(tb, got[len(got)-1], certainty.Overflow, c.name)
	require.LessOrEqual(tb, certainty.Worst, certainty.Split, c.name)

	var prefix uint64
	for j := range c.bounds {
		prefix += got[j]
		atLeast, atMost := c.below(counts, j)
		require.GreaterOrEqual(tb, prefix, atLeast, "%s: at bound %v only the bucket around it is in doubt", c.name, c.bounds[j])
		require.LessOrEqual(tb, prefix, atMost, "%s: at bound %v only the bucket around it is in doubt", c.name, c.bounds[j])
	}

	grown, _ := c.apply(plus(counts, more), nil)
	for j := range got {
		require.GreaterOrEqual(tb, grown[j], got[j], "%s: no bucket decreases", c.name)
	}

	// T(a+b) = T(a) + T(b) with the remainders carried; delta points against one cumulative point.
	carry := NewCarry(1 << 63)
	first, _ := c.apply(counts, carry)
	second, _ := c.apply(more, carry)
	require.Equal(tb, sum(counts), sum(first), c.name)
	require.Equal(tb, sum(more), sum(second), c.name)
	for j, n := range plus(first, second) {
		// The logarithms behind the shares have 53 bits.
		require.LessOrEqual(tb, distance(n, grown[j]), 3+sum(grown)>>50, "%s: bucket %d", c.name, j)
	}
}

func sum(counts []uint64) (total uint64) {
	for _, n := range counts {
		total += n
	}
	return total
}

func distance(a, b uint64) uint64 { return max(a, b) - min(a, b) }

func TestPlanLaws(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for _, c := range conversions(t) {
		for range 40 {
			counts := someCounts(rng, c.sources)
			more := someCounts(rng, c.sources)
			if sum(counts) > 1<<62 || sum(more) > 1<<62 {
				more = make([]uint64, c.sources)
			}
			checkPlan(t, c, counts, more)
		}
	}
}

// Every single observation a snapshot, as a counter in Prometheus would see it.
func TestNoSnapshotShowsAReset(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	for _, c := range conversions(t) {
		counts := make([]uint64, c.sources)
		last, _ := c.apply(counts, nil)
		for range 500 {
			counts[rng.IntN(c.sources)]++
			got, _ := c.apply(counts, nil)
			for j := range got {
				require.GreaterOrEqual(t, got[j], last[j], c.name)
			}
			last = got
		}
	}
}

func TestIdempotent(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	for range 200 {
		bounds := someBounds(rng)
		tt := target(t, Density(rng.IntN(3)), rng.IntN(2) == 0, bounds...)
		once := tt.Explicit(someBounds(rng))
		twice := tt.Explicit(once.Bounds())
		assert.True(t, twice.Identity() || !slices.Equal(twice.Bounds(), once.Bounds()))
		counts := someCounts(rng, len(bounds)+1)
		assert.Equal(t, counts, apply(tt.Explicit(bounds), counts...))
	}
}

// reference is the recursive split as field practice writes it, on rationals: half the pieces left, ⌊n·p + ½⌋ of n to them.
func reference(n *big.Int, ends []*big.Rat) []uint64 {
	if len(ends) == 2 {
		return []uint64{n.Uint64()}
	}
	m := (len(ends) - 1) / 2
	p := new(big.Rat).Quo(new(big.Rat).Sub(ends[m], ends[0]), new(big.Rat).Sub(ends[len(ends)-1], ends[0]))
	p.Mul(p, new(big.Rat).SetInt(n)).Add(p, big.NewRat(1, 2))
	left := new(big.Int).Quo(p.Num(), p.Denom())
	return append(reference(left, ends[:m+1]), reference(new(big.Int).Sub(n, left), ends[m:])...)
}

func TestSplitAgainstRationals(t *testing.T) {
	rng := rand.New(rand.NewPCG(9, 10))
	for range 500 {
		bounds := someBounds(rng)
		if len(bounds) < 3 || bounds[0] == 0 {
			continue
		}
		ends := make([]*big.Rat, len(bounds))
		for i, b := range bounds {
			ends[i] = new(big.Rat).SetFloat64(b) // quarters
		}
		p := target(t, Linear, true, bounds...).Explicit([]float64{bounds[0], bounds[len(bounds)-1]})
		for range 20 {
			n := rng.Uint64() >> rng.IntN(64)
			got := apply(p, 0, n, 0)
			assert.Equal(t, reference(new(big.Int).SetUint64(n), ends), got[1:len(got)-1], "%d over %v", n, bounds)
		}
	}
}

// Lowering the scale before or after counting is the same.
func TestDownscaleAgainstRecounting(t *testing.T) {
	rng := rand.New(rand.NewPCG(11, 12))
	for range 500 {
		fine := map[int64]uint64{}
		scale := int32(rng.IntN(8))
		offset := int32(rng.IntN(400) - 200)
		counts := someCounts(rng, 1+rng.IntN(170))
		for i, n := range counts {
			fine[int64(offset)+int64(i)] = n
		}
		x := Exponential{Scale: scale, Positive: Buckets{Offset: offset, Counts: TotalsOf(counts...)}}
		size := ExponentialSize{MaxSize: 2 + rng.IntN(60), MaxScale: int32(rng.IntN(12) - 4)}
		Downscale(&x, size)
		require.LessOrEqual(t, x.Positive.Counts.Len(), size.MaxSize)
		require.LessOrEqual(t, x.Scale, size.MaxScale)
		coarse := map[int64]uint64{}
		for i, n := range fine {
			coarse[int64(math.Floor(math.Ldexp(float64(i), int(x.Scale-scale))))] += n
		}
		for i, n := range x.Positive.Counts.Counts(nil) {
			require.Equal(t, coarse[int64(x.Positive.Offset)+int64(i)], n)
		}
		require.Equal(t, sum(counts), x.Positive.Counts.Sum())
	}
}

// Of delta streams with any phase and any sizes of points, the sums are those of the cumulative path within one count a bucket. Where two
// source buckets that are both cut more than once share a target bucket it may be two, once in a while.
func TestCarryAgreesWithCumulative(t *testing.T) {
	rng := rand.New(rand.NewPCG(13, 14))
	var snapshots, twoOff int
	for _, c := range conversions(t) {
		for range 8 {
			carry := NewCarry(rng.Uint64())
			total := make([]uint64, c.sources)
			emitted := make([]uint64, c.size)
			size := 1 + rng.IntN(40)
			for range 60 {
				delta := make([]uint64, c.sources)
				for range 1 + rng.IntN(size) {
					delta[rng.IntN(c.sources)]++
				}
				got, _ := c.apply(delta, carry)
				require.Equal(t, sum(delta), sum(got))
				total, emitted = plus(total, delta), plus(emitted, got)
				want, _ := c.apply(total, nil)
				var off uint64
				for j := range want {
					off = max(off, distance(emitted[j], want[j]))
				}
				if c.simple {
					require.LessOrEqual(t, off, uint64(1), "%s: %v against %v", c.name, emitted, want)
				}
				require.LessOrEqual(t, off, uint64(2), "%s: %v against %v", c.name, emitted, want)
				if c.name != "generated" {
					snapshots++
					twoOff += int(off / 2)
				}
			}
		}
	}
	assert.Less(t, float64(twoOff)/float64(snapshots), 0.002)
}

// sglangBounds cut the first bucket of a source that begins at 0.1 thirteen times.
var sglangBounds = []float64{0.002, 0.004, 0.006, 0.008, 0.01, 0.015, 0.02, 0.025, 0.03, 0.035, 0.04, 0.06, 0.08, 0.1}

// However often one bucket is cut and however small the points are: within one count of the cumulative path at any time, and equal to it
// once every bound has seen enough.
func TestCarryOfManyCuts(t *testing.T) {
	p := target(t, Auto, true, sglangBounds...).Explicit([]float64{0.1})
	rng := rand.New(rand.NewPCG(21, 22))
	for stream := range uint64(200) {
		carry := NewCarry(golden * stream)
		total, emitted := uint64(0), make([]uint64, p.Size())
		size := 1 + rng.Uint64N(3)
		for range 1000 {
			n := 1 + rng.Uint64N(size)
			total += n
			got := make([]uint64, p.Size())
			p.Apply(got, TotalsOf(n, 0), carry)
			emitted = plus(emitted, got)
			want := apply(p, total, 0)
			for j := range want {
				require.LessOrEqual(t, distance(emitted[j], want[j]), uint64(1), "stream %d: %v against %v", stream, emitted, want)
			}
		}
		got := make([]uint64, p.Size())
		p.Apply(got, TotalsOf(100_000, 0), carry)
		require.Equal(t, apply(p, total+100_000, 0), plus(emitted, got))
	}
}

// With one bound in a bucket a stream that has seen enough gives exactly what its cumulative counts would give, whatever its phase.
func TestCarryForgetsItsPhase(t *testing.T) {
	p := target(t, Auto, true, 1, 3, 4, 7).Explicit([]float64{1, 2, 4, 8})
	rng := rand.New(rand.NewPCG(15, 16))
	for range 50 {
		carry := NewCarry(rng.Uint64())
		total, emitted := make([]uint64, 5), make([]uint64, p.Size())
		for range 400 {
			delta := []uint64{0, 0, rng.Uint64N(3), rng.Uint64N(3), 0}
			got := make([]uint64, p.Size())
			p.Apply(got, TotalsOf(delta...), carry)
			total, emitted = plus(total, delta), plus(emitted, got)
			if total[2] >= fade && total[3] >= fade {
				require.Equal(t, apply(p, total...), emitted)
			}
		}
		require.GreaterOrEqual(t, min(total[2], total[3]), uint64(fade))
	}
}

// Single observations: over the points of one stream, over the first points of many streams, and over many short streams.
func TestCarryIsUnbiased(t *testing.T) {
	many := make([]float64, len(sglangBounds)+1)
	last := 0.0
	for i, b := range sglangBounds {
		many[i] = (b - last) / 0.1
		last = b
	}
	const observations = 10_000
	for _, c := range []struct {
		target, source []float64
		into           []int // source buckets that get an observation in turn
		want           []float64
		tolerance      float64 // of streams of a few points
	}{
		// Even density: 0.2, 0.7 and 0.1 of (1, 2]; one half each of (2, 4].
		{[]float64{1, 1.2, 1.9, 3, 4}, []float64{1, 2, 4}, []int{1, 2}, []float64{0, 0.2 / 2, 0.7 / 2, 0.1/2 + 0.5/2, 0.5 / 2, 0}, 0.01},
		// So many cuts that halves of halves are narrow: to agree with the cumulative path goes first.
		{sglangBounds, []float64{0.1}, []int{0}, many, 0.11},
	} {
		p := target(t, Auto, true, c.target...).Explicit(c.source)
		for _, points := range []int{1, 2, 5, 20, 300, observations} {
			got := make([]uint64, p.Size())
			for stream := range observations / points {
				carry := NewCarry(golden * uint64(stream+1)) // evenly spread
				dst := make([]uint64, p.Size())
				for i := range points {
					delta := make([]uint64, len(c.source)+1)
					delta[c.into[(stream+i)%len(c.into)]] = 1
					p.Apply(dst, TotalsOf(delta...), carry)
					got = plus(got, dst)
				}
			}
			all := sum(got)
			tolerance := 0.01
			if points < 20 {
				tolerance = c.tolerance
			}
			for j, n := range got {
				assert.InDelta(t, c.want[j], float64(n)/float64(all), tolerance, "%d points a stream, bucket %d", points, j)
			}
		}
	}
}

// golden is 2^64 over the golden ratio: its multiples spread evenly.
const golden = 0x9e3779b97f4a7c15

// A delta source of exponential histograms changes its offset and scale with every point; the remainders stay with the target's bounds.
func TestCarrySurvivesChangesOfScale(t *testing.T) {
	tt := target(t, Auto, true, 1.5, 3, 6)
	rng := rand.New(rand.NewPCG(17, 18))
	carry := NewCarry(rng.Uint64())
	emitted := make([]uint64, 4)
	expected := make([]float64, 4) // real-valued
	for range 2000 {
		scale := int32(rng.IntN(4))
		index := int32(rng.IntN(3 << scale)) // (1, 8]
		dst := make([]uint64, 4)
		tt.Exponential(scale, 0).ApplyExponential(dst, &Exponential{Scale: scale, Positive: Buckets{Offset: index, Counts: TotalsOf(1)}}, carry)
		emitted = plus(emitted, dst)
		lo, hi := math.Ldexp(float64(index), -int(scale)), math.Ldexp(float64(index+1), -int(scale))
		last := 0.0
		for j, b := range []float64{1.5, 3, 6, 8} {
			share := math.Min(1, math.Max(0, (math.Log2(b)-lo)/(hi-lo)))
			expected[j] += share - last
			last = share
		}
		for j := range expected {
			require.InDelta(t, expected[j], float64(emitted[j]), 1.5)
		}
	}
}

// A change of target or source does no harm to the carry, even if it is used for another plan.
func TestCarryAcrossPlans(t *testing.T) {
	carry := NewCarry(12345)
	rng := rand.New(rand.NewPCG(19, 20))
	all := conversions(t)
	to := NewExponentialTarget(ExponentialSize{MaxSize: 20, MaxScale: 3}, Auto)
	for range 2000 {
		c := all[rng.IntN(len(all))]
		counts := someCounts(rng, c.sources)
		got, _ := c.apply(counts, carry)
		require.Equal(t, sum(counts), sum(got), c.name)
		if p := to.Explicit(httpBounds); rng.IntN(3) == 0 {
			counts := someCounts(rng, len(httpBounds)+1)
			dst := make([]uint64, p.Size())
			p.Apply(dst, TotalsOf(counts...), carry)
			require.Equal(t, sum(counts), sum(dst))
		}
	}
}

func FuzzPlan(f *testing.F) {
	f.Add([]byte("\x01\x02\x04\x08"), []byte("\x01\x03\x04"), []byte("\x00\x01\x02\x03\xff\xff\xff\xff"), uint8(0), int8(0))
	f.Add([]byte("\x05\x0a\x19"), []byte("\x00\x07\x09\x30"), []byte("\x80"), uint8(3), int8(3))
	f.Add([]byte{}, []byte("\x01"), []byte{}, uint8(7), int8(-10))
	f.Fuzz(func(t *testing.T, sourceBytes, targetBytes, countBytes []byte, options uint8, scale int8) {
		source, targetBounds := fuzzBounds(sourceBytes, options&8 != 0), fuzzBounds(targetBytes, options&16 != 0)
		tt, err := NewTarget(targetBounds, Density(options%3), options&4 != 0)
		if err != nil {
			return
		}
		if len(source) > 0 {
			c := explicitConversion("explicit", source, tt)
			checkPlan(t, c, fuzzCounts(countBytes, c.sources), fuzzCounts(reversed(countBytes), c.sources))
			if to := NewExponentialTarget(ExponentialSize{MaxSize: 2 + int(options), MaxScale: MaxScale}, Auto).Explicit(source); to != nil {
				counts := fuzzCounts(countBytes, len(source)+1)
				counts[len(counts)-1] = 0
				require.LessOrEqual(t, to.Size()-1, 2+int(options))
				require.Equal(t, sum(counts), sum(apply(&to.Plan, counts...)))
			}
		}
		s := max(MinScale, min(MaxScale, int32(scale)))
		offset := int32(len(sourceBytes)) - int32(options)
		c := exponentialConversion("exponential", s, offset, 1+len(countBytes)/2, tt)
		checkPlan(t, c, fuzzCounts(countBytes, c.sources), fuzzCounts(reversed(countBytes), c.sources))
		x := Exponential{Scale: s, Positive: Buckets{Offset: offset, Counts: TotalsOf(fuzzCounts(countBytes, c.sources)...)}}
		total := x.Positive.Counts.Sum()
		Downscale(&x, ExponentialSize{MaxSize: 2 + int(options), MaxScale: MaxScale})
		require.Equal(t, total, x.Positive.Counts.Sum())
		require.LessOrEqual(t, x.Positive.Counts.Len(), 2+int(options))
	})
}

// fuzzBounds are increasing: each byte is a step, of quarters or, if wild, of powers of two of any size.
func fuzzBounds(data []byte, wild bool) []float64 {
	bounds := make([]float64, 0, len(data))
	x := 0.0
	for _, b := range data[:min(len(data), 200)] {
		if wild {
			x += math.Ldexp(1, int(b)*8-1024)
		} else {
			x += float64(b) / 4
		}
		if len(bounds) > 0 && x <= bounds[len(bounds)-1] || math.IsInf(x, 0) {
			continue
		}
		bounds = append(bounds, x)
	}
	return bounds
}

// fuzzCounts sum up to less than 2^63.
func fuzzCounts(data []byte, n int) []uint64 {
	counts := make([]uint64, n)
	for i := range counts {
		if i < len(data) {
			counts[i] = uint64(1) << (data[i] % 64) >> 1 / uint64(n)
			if data[i] >= 64 {
				counts[i] += uint64(data[i])
			}
		}
	}
	for sum(counts) >= 1<<62 {
		for i := range counts {
			counts[i] /= 2
		}
	}
	return counts
}

func reversed(data []byte) []byte {
	data = slices.Clone(data)
	slices.Reverse(data)
	return data
}
