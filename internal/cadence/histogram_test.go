// Copyright The otelcol-stream Authors
// SPDX-License-Identifier: Apache-2.0

package cadence

import (
	"math"
	"math/big"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/lightstep/go-expohisto/mapping/logarithm"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// bound is 2^(i/2^scale) to 200 bits.
func bound(i, scale int) *big.Float {
	b := new(big.Float).SetPrec(200).SetInt64(1)
	if scale < 0 {
		return b.SetMantExp(b, i<<-scale)
	}
	part := i & (1<<scale - 1)
	b.SetMantExp(b, part)
	for range scale {
		b.Sqrt(b)
	}
	return b.SetMantExp(b, (i-part)>>scale)
}

// slowIndex finds the bucket of v by its definition.
func slowIndex(v float64, scale int) int {
	x := new(big.Float).SetFloat64(v)
	i := int(math.Floor(math.Log2(v) * math.Ldexp(1, scale)))
	for x.Cmp(bound(i, scale)) <= 0 {
		i--
	}
	for x.Cmp(bound(i+1, scale)) > 0 {
		i++
	}
	return i
}

func TestIndexIsExact(t *testing.T) {
	// Around every bound of one power of two, and at powers of two far away.
	for j := range 2*subBuckets + 1 {
		near, _ := bound(j-subBuckets, MaxScale).Float64()
		for _, v := range []float64{math.Nextafter(math.Nextafter(near, 0), 0), math.Nextafter(near, 0), near, math.Nextafter(near, 9)} {
			assert.Equal(t, slowIndex(v, MaxScale), IndexOf(v), "%v", v)
		}
	}
	for _, e := range []int{-1022, -1021, -30, -9, -1, 0, 1, 34, 1023} {
		assert.Equal(t, e*32-1, IndexOf(math.Ldexp(1, e)), "2^%d ends its bucket", e)
		assert.Equal(t, e*32, IndexOf(math.Nextafter(math.Ldexp(1, e), math.Inf(1))), "above 2^%d", e)
	}
	assert.Equal(t, -1022*32-1, IndexOf(math.SmallestNonzeroFloat64))
	assert.Equal(t, 1024*32-1, IndexOf(math.MaxFloat64))

	// 2^-9 s is a whole number of nanoseconds.
	assert.Equal(t, -9*32-1, IndexOf(seconds(1_953_125)))
}

func TestMidpointLiesInItsBucket(t *testing.T) {
	for index := denseLeast - 40; index < denseLeast+denseSize+40; index++ {
		m := Midpoint(index, MaxScale)
		assert.Equal(t, index, IndexOf(m))
		coarse := Midpoint(index>>3, MaxScale-3)
		assert.Equal(t, index>>3, IndexOf(coarse)>>3)
		assert.InEpsilon(t, math.Exp2((float64(index)+0.5)/32), m, 1e-12)
	}
	assert.InDelta(t, math.Sqrt2, Midpoint(0, 0), 1e-15)
	assert.InDelta(t, 2, Midpoint(0, -1), 0, "(1, 4]")
}

// The library's mapping takes a logarithm, which can be a bucket off next to a bound and is right elsewhere.
func TestIndexAgreesWithTheLibrary(t *testing.T) {
	mapping, err := logarithm.NewMapping(MaxScale)
	require.NoError(t, err)
	r := rand.New(rand.NewPCG(1, 1))
	for range 100_000 {
		v := math.Exp(r.Float64()*60 - 30)
		assert.EqualValues(t, mapping.MapToIndex(v), IndexOf(v), "%v", v)
	}
}

func TestObserve(t *testing.T) {
	var h Histogram
	for _, v := range []float64{0, 0, 1, 1, 2, 0.5, -1, math.NaN(), math.Inf(1)} {
		h.Observe(v)
	}
	assert.Equal(t, Histogram{Scale: 5, Zero: 2, Buckets: []Bucket{{-33, 1}, {-1, 2}, {31, 1}}}, h)
	assert.EqualValues(t, 6, h.Count())
	assert.Equal(t, []int64{5, 2, -33, 1, -1, 2, 31, 1}, h.AppendInts(nil))

	h.Reset()
	assert.Zero(t, h.Count())
	assert.Equal(t, []int64{7, 0, 0}, h.AppendInts([]int64{7}))
}

func TestDownscaleKeepsBounds(t *testing.T) {
	h := Histogram{Scale: 1, Buckets: []Bucket{{-3, 1}, {-2, 2}, {-1, 4}, {0, 8}, {1, 16}, {5, 32}}}
	h.Downscale(0)
	h.Downscale(1)
	// (2^-1.5, 2^-1] goes to (2^-2, 2^-1], (2^-1, 2^0] stays, …
	assert.Equal(t, Histogram{Scale: 0, Buckets: []Bucket{{-2, 1}, {-1, 6}, {0, 24}, {2, 32}}}, h)
}

func TestTooManyBucketsDownscale(t *testing.T) {
	var h, whole Histogram
	for i := range 129 {
		v := math.Exp2((float64(i) + 0.5) / 32)
		h.Observe(v)
		if i < 128 {
			whole = Histogram{h.Scale, h.Zero, slices.Clone(h.Buckets)}
		}
	}
	assert.Equal(t, MaxScale, whole.Scale)
	assert.Len(t, whole.Buckets, 128)
	assert.Equal(t, MaxScale-1, h.Scale)
	assert.Len(t, h.Buckets, 65)
	assert.EqualValues(t, 129, h.Count())
}

func TestMerge(t *testing.T) {
	fine := Histogram{Scale: 2, Zero: 1, Buckets: []Bucket{{-1, 1}, {3, 2}, {4, 3}}}
	coarse := Histogram{Scale: 0, Zero: 2, Buckets: []Bucket{{0, 10}, {7, 20}}}
	want := Histogram{Scale: 0, Zero: 3, Buckets: []Bucket{{-1, 1}, {0, 12}, {1, 3}, {7, 20}}}

	a := Histogram{fine.Scale, fine.Zero, slices.Clone(fine.Buckets)}
	a.Merge(&coarse)
	assert.Equal(t, want, a)
	b := Histogram{coarse.Scale, coarse.Zero, slices.Clone(coarse.Buckets)}
	b.Merge(&fine)
	assert.Equal(t, want, b)

	var empty Histogram
	empty.Merge(&Histogram{Zero: 4})
	empty.Merge(&fine)
	assert.Equal(t, 2, empty.Scale, "a histogram without buckets takes the scale of the other")
	assert.EqualValues(t, 5, empty.Zero)
}

// Merging is what observing everything in one histogram gives, in any order.
func TestMergeIsExact(t *testing.T) {
	r := rand.New(rand.NewPCG(2, 3))
	for range 100 {
		var all Histogram
		parts := make([]Histogram, 3)
		spread := r.Float64() * 40
		for range 400 {
			v := math.Exp((r.Float64() - 0.5) * spread)
			all.Observe(v)
			parts[r.IntN(3)].Observe(v)
		}
		var forward, backward Histogram
		for i := range parts {
			forward.Merge(&parts[i])
			backward.Merge(&parts[len(parts)-1-i])
		}
		assert.Equal(t, all, forward)
		assert.Equal(t, all, backward)
	}
}

func TestParseHistogram(t *testing.T) {
	full := []int64{0, 0}
	for i := range int64(128) {
		full = append(full, i, 1)
	}
	valid := [][]int64{{5, 0}, {5, 7}, {5, 0, -33, 1, 31, 2}, {-10, 0, -1, 1, 0, 2}, {5, 0, -32705, 1, 32767, 1}, full}
	for _, ints := range valid {
		h, err := ParseHistogram(ints)
		require.NoError(t, err, "%v", ints)
		assert.Equal(t, ints, h.AppendInts(nil))
	}

	invalid := map[string][]int64{
		"nothing":           nil,
		"a scale only":      {5},
		"half a pair":       {5, 0, 1},
		"too fine":          {6, 0, 1, 1},
		"too coarse":        {-11, 0, 1, 1},
		"negative zeros":    {5, -1},
		"too many zeros":    {5, math.MaxInt64},
		"an empty bucket":   {5, 0, 1, 0},
		"a negative count":  {5, 0, 1, -1},
		"descending":        {5, 0, 2, 1, 1, 1},
		"repeated":          {5, 0, 2, 1, 2, 1},
		"beyond float64":    {5, 0, 32768, 1},
		"below float64":     {5, 0, -32706, 1},
		"beyond int":        {5, 0, math.MaxInt64, 1},
		"below int":         {5, 0, math.MinInt64, 1},
		"counts that wrap":  {5, 0, 1, math.MaxInt64, 2, math.MaxInt64},
		"counts adding up":  {5, 1 << 35, 1, 1<<35 + 1},
		"too many buckets":  append(slices.Clone(full), 128, 1),
		"beyond at scale 0": {0, 0, 1024, 1},
	}
	for name, ints := range invalid {
		h, err := ParseHistogram(ints)
		require.Error(t, err, name)
		assert.Zero(t, h.Count(), name)
	}
}

func FuzzParseHistogram(f *testing.F) {
	f.Add([]byte{5, 0, 0xdf, 1, 31, 2})
	f.Add([]byte{5, 0, 1, 1, 1, 1})
	f.Fuzz(func(t *testing.T, raw []byte) {
		ints := make([]int64, len(raw))
		for i, b := range raw {
			// Small numbers of both signs and, from the extremes of a byte, those of int64.
			switch v := int64(int8(b)); v {
			case math.MaxInt8:
				ints[i] = math.MaxInt64
			case math.MinInt8:
				ints[i] = math.MinInt64
			default:
				ints[i] = v
			}
		}
		h, err := ParseHistogram(ints)
		if err != nil {
			assert.Zero(t, h.Count())
			return
		}
		assert.Equal(t, ints, h.AppendInts(nil))
		count := h.Count()
		assert.GreaterOrEqual(t, count, int64(0))
		h.Merge(&Histogram{Scale: MinScale, Zero: 1, Buckets: []Bucket{{0, 1}}})
		assert.Equal(t, count+2, h.Count())
		assert.True(t, slices.IsSortedFunc(h.Buckets, func(a, b Bucket) int { return a.Index - b.Index }))
	})
}
