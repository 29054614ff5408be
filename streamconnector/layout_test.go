// Copyright The otelcol-stream Authors
// SPDX-License-Identifier: Apache-2.0

package streamconnector

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/otelcol-stream/otelcol-stream/internal/cadence"
	"github.com/otelcol-stream/otelcol-stream/internal/streamspan"
)

// ladders are those of the metrics and some that nobody would choose.
func ladders() [][]float64 {
	all := [][]float64{{0}, {1}, {0, 1}, {0.3, 0.30001, 0.30002, 1e9}, {1e-300, 1e300}, {5e-324}, {0, 5e-324}, {0, 5e-324, 1}, {0.015625, 48, 60, 64, 128, 300}}
	for _, ins := range [][]instrument{streamInstruments, genAIInstruments, genAIDurationInstruments} {
		for _, in := range ins {
			if in.ladder != nil {
				all = append(all, in.ladder)
			}
		}
	}
	return all
}

func TestBucketAgreesWithTheDefinition(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, bounds := range ladders() {
		l := explicitLayout(bounds)
		check := func(v float64) { assert.Equal(t, bucketOf(bounds, v), l.bucket(v), "%v in %v", v, bounds) }
		check(0)
		check(maxValue)
		check(math.SmallestNonzeroFloat64)
		for _, b := range bounds {
			check(b)
			check(math.Nextafter(b, math.Inf(1)))
			check(math.Abs(math.Nextafter(b, 0)))
		}
		for range 1000 {
			check(math.Exp(r.Float64()*60 - 30))
		}
	}
}

func TestLaddersAscend(t *testing.T) {
	for _, bounds := range ladders() {
		require.NoError(t, checkBoundaries(bounds))
	}
	assert.Equal(t, 1./1024, gapLadder[0])
	assert.Equal(t, 64., gapLadder[16])
	assert.Equal(t, 0.125, durationLadder[0])
	assert.Equal(t, 4096., durationLadder[15])
	for k, b := range genAILadder {
		assert.InEpsilon(t, 0.01*math.Pow(2, float64(k)), b, 1e-12)
	}
	assert.True(t, explicitLayout(gapLadder).alignedToPowers)
	assert.True(t, explicitLayout(readerWaitLadder).alignedToPowers)
	assert.False(t, explicitLayout(genAILadder).alignedToPowers)
}

// slowExponential counts values at the finest scale of at most 5 at which they take maxSize buckets.
func slowExponential(vs []float64, maxSize int) (scale int, counts map[int]uint64) {
	for scale = cadence.MaxScale; ; scale-- {
		counts = map[int]uint64{}
		least, most := math.MaxInt, math.MinInt
		for _, v := range vs {
			if v > 0 {
				i := cadence.IndexOf(v) >> (cadence.MaxScale - scale)
				counts[i]++
				least, most = min(least, i), max(most, i)
			}
		}
		if len(counts) == 0 || most-least < maxSize {
			return scale, counts
		}
	}
}

func exponentialCounts(h *histogram) map[int]uint64 {
	counts := map[int]uint64{}
	for i, n := range h.counts {
		if n > 0 {
			counts[h.offset+i] = n
		}
	}
	return counts
}

func TestExponentialHistogram(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for range 200 {
		maxSize := 2 + r.IntN(200)
		l, h := exponentialLayout(maxSize), histogram{}
		l2, parts := exponentialLayout(maxSize), [2]histogram{}
		spread := r.Float64() * 50
		var vs []float64
		sum, zeros := 0.0, uint64(0)
		for range r.IntN(300) {
			v := math.Exp((r.Float64() - 0.5) * spread)
			if r.IntN(10) == 0 {
				v = 0
				zeros++
			}
			vs = append(vs, v)
			sum += v
			l.record(&h, v, 1)
			l2.record(&parts[r.IntN(2)], v, 1)
		}
		scale, counts := slowExponential(vs, maxSize)
		assert.Equal(t, counts, exponentialCounts(&h))
		assert.Equal(t, zeros, h.zero)
		assert.EqualValues(t, len(vs), h.count)
		assert.InDelta(t, sum, h.sum, 1e-9*sum)
		assert.LessOrEqual(t, len(h.counts), maxSize)
		if len(counts) > 0 {
			assert.Equal(t, scale, h.scale)
			assert.Equal(t, slices.Max(vs), h.max)
			assert.Equal(t, slices.Min(vs), h.min)
		}

		l2.merge(&parts[0], &parts[1])
		assert.Equal(t, counts, exponentialCounts(&parts[0]), "merging two gives the same")
		assert.Equal(t, h.count, parts[0].count)

		h.reset(l)
		assert.Zero(t, h.count)
		l.record(&h, 1.5, 3)
		assert.Equal(t, map[int]uint64{cadence.IndexOf(1.5): 3}, exponentialCounts(&h), "a reset histogram is as fine as a new one")
	}
}

// streamOf is a stream of that cadence, whose gaps are recorded in l.
func streamOf(l *layout, sum *cadence.Summary, gaps []int64, weight uint64) *stream {
	s := &stream{record: &streamspan.Record{Cadence: *sum}, gapCount: sum.Histogram.Count(), gaps: gaps, weight: weight}
	s.cells.fill(newGapTable([]*family{gapFamily(l)}), &sum.Histogram)
	return s
}

// gapFamily has a histogram of gaps for each of the layouts.
func gapFamily(ls ...*layout) *family {
	f := &family{layouts: ls}
	for range ls {
		f.instruments = append(f.instruments, instrument{gaps: true})
	}
	return f
}

// Gaps that arrive as a histogram, or raw, or one by one, give the same counts on ladders of powers of two and in exponential
// histograms; on others a raw stream is exact, and the histogram's is off only where a bound cuts a bucket.
func TestRecordGaps(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	calc := cadence.NewCalculator(cadence.DefaultSettings())
	for range 300 {
		instants := []int64{1e18}
		spread := 3 + r.Float64()*20
		for range 1 + r.IntN(200) {
			gap := int64(1e6 * math.Exp(r.Float64()*spread-2))
			if r.IntN(20) == 0 {
				gap = 0
			}
			instants = append(instants, instants[len(instants)-1]+gap)
		}
		var sum cadence.Summary
		calc.Summarize(cadence.Stream{Instants: instants}, &sum)
		gaps := cadence.AppendGaps(nil, instants)
		weight := 1 + r.Uint64N(3)

		for _, bounds := range [][]float64{gapLadder, genAILadder, {0.7, 0.71, 0.72}} {
			l := explicitLayout(bounds)
			fresh := func() *histogram { return &histogram{counts: make([]uint64, len(bounds)+1)} }
			want, raw, read := fresh(), fresh(), fresh()
			for _, g := range gaps {
				l.record(want, float64(g)/1e9, weight)
			}
			l.recordGaps(raw, streamOf(l, &sum, gaps, weight))
			l.recordGaps(read, streamOf(l, &sum, nil, weight))
			for _, h := range []*histogram{raw, read} {
				assert.Equal(t, want.count, h.count)
				assert.InEpsilon(t, want.sum, h.sum, 1e-9)
				assert.Equal(t, want.max, h.max)
			}
			assert.Equal(t, want.counts, raw.counts)
			assert.Equal(t, want.min, raw.min)
			if l.alignedToPowers && sum.Histogram.Scale >= 0 {
				assert.Equal(t, want.counts, read.counts)
				continue
			}
			// Up to a bound, at most the bucket that it cuts can be on the wrong side.
			var below, wantBelow uint64
			for i, b := range bounds {
				below += read.counts[i]
				wantBelow += want.counts[i]
				cut := uint64(0)
				for _, bucket := range sum.Histogram.Buckets {
					if bucket.Index == cadence.IndexOf(b)>>(cadence.MaxScale-sum.Histogram.Scale) {
						cut = uint64(bucket.Count) * weight
					}
				}
				assert.LessOrEqual(t, max(below, wantBelow)-min(below, wantBelow), cut)
			}
		}

		l, read := exponentialLayout(160), histogram{}
		l.recordGaps(&read, streamOf(l, &sum, gaps, weight))
		var parts cadence.Histogram
		for _, g := range gaps {
			parts.Observe(float64(g) / 1e9)
		}
		want := map[int]uint64{}
		for _, b := range parts.Buckets {
			want[b.Index>>(parts.Scale-read.scale)] += uint64(b.Count) * weight
		}
		assert.Equal(t, want, exponentialCounts(&read))
		assert.Equal(t, uint64(parts.Zero)*weight, read.zero)
	}
}

func FuzzExponential(f *testing.F) {
	f.Add(0.001, 5.0, int16(-3), int8(-10), uint8(160))
	f.Add(1e-300, 1e300, int16(32767), int8(5), uint8(2))
	f.Fuzz(func(t *testing.T, a, b float64, index int16, scale int8, maxSize uint8) {
		if !(a >= 0 && a <= maxValue && b >= 0 && b <= maxValue) || scale > cadence.MaxScale || scale < cadence.MinScale || maxSize < 2 {
			return
		}
		// What a parsed gap histogram can hold.
		i := int(index) >> (cadence.MaxScale - int(scale))
		l, h := exponentialLayout(int(maxSize)), histogram{}
		l.record(&h, a, 1)
		h.addIndexed(i, int(scale), 1, int(maxSize))
		h.count++
		l.record(&h, b, 1)
		total := h.zero
		for _, n := range h.counts {
			total += n
		}
		assert.EqualValues(t, 3, total)
		assert.LessOrEqual(t, len(h.counts), int(maxSize))
	})
}
