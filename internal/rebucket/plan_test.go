// Copyright The otelcol-stream Authors
// SPDX-License-Identifier: Apache-2.0

package rebucket

import (
	"math"
	"math/big"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var (
	httpBounds  = []float64{0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10}
	genAIBounds = []float64{0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92}
	vllmBounds  = []float64{0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80, 160, 640, 2560}
)

func target(tb testing.TB, density Density, cut bool, bounds ...float64) *Target {
	tb.Helper()
	t, err := NewTarget(bounds, density, cut)
	require.NoError(tb, err)
	return t
}

func apply(p *Plan, counts ...uint64) []uint64 {
	dst := make([]uint64, p.Size())
	p.Apply(dst, TotalsOf(counts...), nil)
	return dst
}

func TestExplicit(t *testing.T) {
	for name, tt := range map[string]struct {
		source, target []float64
		keep           bool
		density        Density
		counts         []uint64
		wantBounds     []float64
		want           []uint64
		certainty      Certainty
	}{
		"coarsening sums neighbours": {
			source: []float64{1, 2, 3, 4}, target: []float64{2, 4}, counts: []uint64{1, 2, 3, 4, 5},
			wantBounds: []float64{2, 4}, want: []uint64{3, 7, 5}, certainty: Certainty{Total: 15, Overflow: 5},
		},
		"equal layouts": {
			source: []float64{1, 2}, target: []float64{1, 2}, counts: []uint64{7, 8, 9},
			wantBounds: []float64{1, 2}, want: []uint64{7, 8, 9}, certainty: Certainty{Total: 24, Overflow: 9},
		},
		"60 of 100 above the last bound, cut": {
			source: httpBounds, target: []float64{0.1, 1, 10, 60, 600}, counts: []uint64{0, 0, 0, 0, 0, 4, 6, 5, 3, 2, 8, 6, 4, 2, 60},
			wantBounds: []float64{0.1, 1, 10}, want: []uint64{4, 16, 20, 60}, certainty: Certainty{Total: 100, Overflow: 60},
		},
		"60 of 100 above the last bound, kept": {
			source: httpBounds, target: []float64{0.1, 1, 10, 60, 600}, keep: true, counts: []uint64{0, 0, 0, 0, 0, 4, 6, 5, 3, 2, 8, 6, 4, 2, 60},
			wantBounds: []float64{0.1, 1, 10, 60, 600}, want: []uint64{4, 16, 20, 0, 0, 60}, certainty: Certainty{Total: 100, Overflow: 60},
		},
		"the source's last bound comes in": {
			source: []float64{1, 7}, target: []float64{1, 5, 10}, counts: []uint64{1, 6, 3},
			// (1, 7] is halved at 5: two thirds of 6 are 4.
			wantBounds: []float64{1, 5, 7}, want: []uint64{1, 4, 2, 3}, certainty: Certainty{Total: 10, Split: 6, Worst: 6, Overflow: 3},
		},
		"all target bounds above the source": {
			source: []float64{1, 2}, target: []float64{5, 10}, counts: []uint64{1, 2, 3},
			wantBounds: []float64{2}, want: []uint64{3, 3}, certainty: Certainty{Total: 6, Overflow: 3},
		},
		"targets that end below the source merge the rest": {
			source: []float64{1, 2, 3}, target: []float64{1, 2}, counts: []uint64{1, 2, 3, 4},
			wantBounds: []float64{1, 2}, want: []uint64{1, 2, 7}, certainty: Certainty{Total: 10, Overflow: 7},
		},
		"the first bucket begins at 0": {
			source: []float64{4}, target: []float64{1, 4}, counts: []uint64{8, 1},
			wantBounds: []float64{1, 4}, want: []uint64{2, 6, 1}, certainty: Certainty{Total: 9, Split: 8, Worst: 8, Overflow: 1},
		},
		"a first bucket up to 0 stays whole": {
			source: []float64{0, 4}, target: []float64{0, 1, 4}, counts: []uint64{5, 8, 1},
			wantBounds: []float64{0, 1, 4}, want: []uint64{5, 2, 6, 1}, certainty: Certainty{Total: 14, Split: 8, Worst: 8, Overflow: 1},
		},
		"logarithmic": {
			source: []float64{1, 16}, target: []float64{1, 2, 4, 16}, density: Log, counts: []uint64{1, 40, 1},
			wantBounds: []float64{1, 2, 4, 16}, want: []uint64{1, 10, 10, 20, 1}, certainty: Certainty{Total: 42, Split: 40, Worst: 40, Overflow: 1},
		},
		"three pieces, the left half has one": {
			// ⌊7·1/3 + ½⌋ = 2 of 7, then ⌊5·1/2 + ½⌋ = 3 of 5.
			source: []float64{1, 4}, target: []float64{1, 2, 3, 4}, counts: []uint64{0, 7, 0},
			wantBounds: []float64{1, 2, 3, 4}, want: []uint64{0, 2, 3, 2, 0}, certainty: Certainty{Total: 7, Split: 7, Worst: 7},
		},
		"decimals, not their nearest float64": {
			// 0.3 is in the middle: ⌊1·½ + ½⌋ = 1. The float64 give a share just under ½.
			source: []float64{0.1, 0.5}, target: []float64{0.1, 0.3, 0.5}, counts: []uint64{0, 1, 0},
			wantBounds: []float64{0.1, 0.3, 0.5}, want: []uint64{0, 1, 0, 0}, certainty: Certainty{Total: 1, Split: 1, Worst: 1},
		},
		"bounds a few bits apart are the same": {
			source: []float64{math.Nextafter(0.1, 1), 0.3}, target: []float64{0.1, math.Nextafter(0.3, 0)}, counts: []uint64{1, 2, 3},
			wantBounds: []float64{0.1, math.Nextafter(0.3, 0)}, want: []uint64{1, 2, 3}, certainty: Certainty{Total: 6, Overflow: 3},
		},
		"totals beyond 2^53": {
			// A third of 2^63 - 1 = 3·3074457345618258602 + 1 is 3074457345618258602.33.
			source: []float64{3}, target: []float64{1, 3}, counts: []uint64{math.MaxInt64, 1},
			wantBounds: []float64{1, 3}, want: []uint64{3074457345618258602, 6148914691236517205, 1}, certainty: Certainty{Total: 1 << 63, Split: math.MaxInt64, Worst: math.MaxInt64, Overflow: 1},
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := target(t, tt.density, !tt.keep, tt.target...).Explicit(tt.source)
			assert.Equal(t, tt.wantBounds, p.Bounds())
			got := make([]uint64, p.Size())
			assert.Equal(t, tt.certainty, p.Apply(got, TotalsOf(tt.counts...), nil))
			assert.Equal(t, tt.want, got)
		})
	}
}

func TestPlanKnowsWhatItKnows(t *testing.T) {
	p := target(t, Auto, false, 0.5, 1, 3, 3.5, 4, 9).Explicit([]float64{1, 2, 4})
	type held struct {
		source  int
		isExact bool
	}
	want := []held{{0, false}, {0, true}, {2, false}, {2, false}, {0, true}, {3, false}}
	for i, w := range want {
		source, isExact := p.Holder(i)
		got := held{source, isExact}
		assert.Equal(t, w, got, "bound %v", p.Bounds()[i])
	}
	assert.False(t, p.Exact())
	assert.False(t, p.Identity())

	assert.True(t, target(t, Auto, true, 1, 4).Explicit([]float64{1, 2, 4}).Exact())
	assert.True(t, target(t, Auto, true, 1, 2, 4).Explicit([]float64{1, 2, 4}).Identity())
	assert.False(t, target(t, Auto, false, 1, 9).Explicit([]float64{1, 2}).Exact(), "the overflow lies above 9 as a rule, not by knowledge")
	assert.True(t, target(t, Auto, false, 0, 0.5, 1, 4096).Exponential(0, 0).Exact(), "powers of two are edges of every scale")
}

func TestExponential(t *testing.T) {
	for name, tt := range map[string]struct {
		target        []float64
		density       Density
		x             Exponential
		want          []uint64
		certainty     Certainty
		wantAnomalies uint64
	}{
		"powers of two are exact": {
			target: []float64{1, 2, 4, 8}, x: Exponential{ZeroCount: 2, Positive: Buckets{Counts: TotalsOf(3, 5, 2, 1)}},
			want: []uint64{2, 3, 5, 2, 1}, certainty: Certainty{Total: 13, Overflow: 1},
		},
		"log-linear inside a bucket": {
			// log2(6/4) of 1000 are 584.96.
			target: []float64{4, 6, 8}, x: Exponential{Positive: Buckets{Offset: 2, Counts: TotalsOf(1000)}},
			want: []uint64{0, 585, 415, 0}, certainty: Certainty{Total: 1000, Split: 1000, Worst: 1000},
		},
		"linear if asked": {
			target: []float64{4, 6, 8}, density: Linear, x: Exponential{Positive: Buckets{Offset: 2, Counts: TotalsOf(1000)}},
			want: []uint64{0, 500, 500, 0}, certainty: Certainty{Total: 1000, Split: 1000, Worst: 1000},
		},
		"negative offsets and what lies below all bounds": {
			// Scale 1, base √2. Index -8 is (1/16, …], -2 is (½, 0.71], -1 is (0.71, 1].
			target: []float64{0.5, 1}, x: Exponential{Scale: 1, Positive: Buckets{Offset: -8, Counts: TotalsOf(1, 2, 3, 4, 5, 6, 7, 8, 9)}},
			want: []uint64{21, 15, 9}, certainty: Certainty{Total: 45, Overflow: 9},
		},
		"a window above all bounds": {
			target: []float64{3, 5}, x: Exponential{Positive: Buckets{Offset: 9, Counts: TotalsOf(1, 2)}},
			want: []uint64{0, 0, 3}, certainty: Certainty{Total: 3, Overflow: 3},
		},
		"a window below all bounds": {
			target: []float64{3, 5}, x: Exponential{Positive: Buckets{Offset: -9, Counts: TotalsOf(1, 2)}},
			want: []uint64{3, 0, 0}, certainty: Certainty{Total: 3},
		},
		"a window that begins after a cut bucket": {
			target: []float64{3, 5, 16}, x: Exponential{Positive: Buckets{Offset: 3, Counts: TotalsOf(4)}},
			want: []uint64{0, 0, 4, 0}, certainty: Certainty{Total: 4},
		},
		"zeros under a bound of 0": {
			target: []float64{0, 1}, x: Exponential{ZeroCount: 4, Positive: Buckets{Offset: -1, Counts: TotalsOf(6)}},
			want: []uint64{4, 6, 0}, certainty: Certainty{Total: 10},
		},
		"zeros go where their threshold is": {
			target: []float64{0, 2, 4}, x: Exponential{ZeroThreshold: 2, ZeroCount: 4},
			want: []uint64{0, 4, 0, 0}, certainty: Certainty{Total: 4},
		},
		"bounds under the zero threshold": {
			target: []float64{1, 2, 8}, x: Exponential{ZeroThreshold: 4, ZeroCount: 8},
			want: []uint64{2, 2, 4, 0}, certainty: Certainty{Total: 8, Split: 8, Worst: 8},
		},
		"a zero bucket wider than all bounds": {
			target: []float64{1}, x: Exponential{ZeroThreshold: 4, ZeroCount: 8},
			want: []uint64{2, 6}, certainty: Certainty{Total: 8, Split: 8, Worst: 8, Overflow: 6},
		},
		"negative observations are anomalies of the first bucket": {
			target: []float64{1, 2}, x: Exponential{ZeroCount: 1, Positive: Buckets{Counts: TotalsOf(2)}, Negative: Buckets{Offset: 5, Counts: TotalsOf(3, 4)}},
			want: []uint64{8, 2, 0}, certainty: Certainty{Total: 10}, wantAnomalies: 7,
		},
		"the coarsest scale": {
			// One bucket from 1 to 2^1024: log2(2^256) is a quarter of it.
			target: []float64{1, math.Ldexp(1, 256)}, x: Exponential{Scale: -10, Positive: Buckets{Offset: -1, Counts: TotalsOf(5, 8)}},
			want: []uint64{5, 2, 6}, certainty: Certainty{Total: 13, Split: 8, Worst: 8, Overflow: 6},
		},
		"the coarsest scale, linear": {
			target: []float64{1, math.Ldexp(1, 1023)}, density: Linear, x: Exponential{Scale: -10, Positive: Buckets{Offset: 0, Counts: TotalsOf(8)}},
			want: []uint64{0, 4, 4}, certainty: Certainty{Total: 8, Split: 8, Worst: 8, Overflow: 4},
		},
	} {
		t.Run(name, func(t *testing.T) {
			require.NoError(t, tt.x.Check(tt.certainty.Total))
			p := target(t, tt.density, true, tt.target...).Exponential(tt.x.Scale, tt.x.ZeroThreshold)
			assert.Equal(t, tt.target, p.Bounds())
			got := make([]uint64, p.Size())
			certainty, anomalies := p.ApplyExponential(got, &tt.x, nil)
			assert.Equal(t, tt.want, got)
			assert.Equal(t, tt.certainty, certainty)
			assert.Equal(t, tt.wantAnomalies, anomalies)
		})
	}
}

// Edges of any scale are exact although their decimals are not theirs: 2^(k/8) as float64 and as a rounded decimal.
func TestExponentialEdgesAreExact(t *testing.T) {
	for scale := int32(MinScale); scale <= MaxScale; scale++ {
		bounds := []float64{edge(-3, scale), edge(-1, scale), edge(0, scale), edge(1, scale)}
		if !increasing(bounds) || bounds[0] == 0 || math.IsInf(bounds[3], 1) {
			bounds = []float64{edge(-1, scale), edge(0, scale)}
		}
		for i, b := range bounds {
			bounds[i] = b * (1 + 3e-10)
		}
		if bounds[0] < 1e-300 {
			bounds = bounds[1:]
		}
		p := target(t, Auto, true, bounds...).Exponential(scale, 0)
		assert.True(t, p.Exact(), "scale %d: %v", scale, bounds)
	}
	p := target(t, Auto, true, 1.0905077, 1.1892071).Exponential(3, 0)
	assert.False(t, p.Exact(), "eight digits are not enough to mean an edge")
}

func TestToExponential(t *testing.T) {
	plan := NewExponentialTarget(ExponentialSize{MaxSize: 4, MaxScale: 20}, Auto).Explicit([]float64{1, 2, 6, 16})
	require.NotNil(t, plan)
	// Scale 0 is the finest at which (1, 16] takes four buckets: (1, 2], (2, 4], (4, 8], (8, 16].
	assert.Equal(t, int32(0), plan.Scale)
	assert.Equal(t, int32(0), plan.Offset)
	assert.InDelta(t, 1.0, plan.ZeroThreshold, 0)
	// (2, 6] is halved at 4; of (6, 16] one fifth lies up to 8.
	assert.Equal(t, []uint64{3, 5, 4, 4 + 2, 8}, apply(&plan.Plan, 3, 5, 8, 10, 0))

	// Bounds that are edges: exact at every scale.
	plan = NewExponentialTarget(ExponentialSize{MaxSize: 160, MaxScale: 20}, Auto).Explicit([]float64{0.25, 0.5, 1, 2})
	require.NotNil(t, plan)
	assert.Equal(t, int32(5), plan.Scale) // 3 octaves of 32 buckets are 96; 3 of 64 are too many
	assert.Equal(t, int32(-64), plan.Offset)
	assert.Equal(t, 97, plan.Size())

	// With log density, an explicit layout of edges survives the way there and back.
	there := NewExponentialTarget(ExponentialSize{MaxSize: 160, MaxScale: 20}, Log).Explicit([]float64{0.25, 0.5, 1, 2})
	counts := apply(&there.Plan, 7, 1<<40, 12345, 3, 0)
	back := target(t, Auto, true, 0.25, 0.5, 1, 2).Exponential(there.Scale, there.ZeroThreshold)
	got := make([]uint64, back.Size())
	back.ApplyExponential(got, &Exponential{
		Scale: there.Scale, ZeroThreshold: there.ZeroThreshold, ZeroCount: counts[0], Positive: Buckets{Offset: there.Offset, Counts: TotalsOf(counts[1:]...)},
	}, nil)
	assert.Equal(t, []uint64{7, 1 << 40, 12345, 3, 0}, got)

	// The SDK's default bounds begin at 0: zeros and what lies under 5 are one zero bucket.
	plan = NewExponentialTarget(ExponentialSize{MaxSize: 160, MaxScale: 20}, Auto).Explicit([]float64{0, 5, 10, 20})
	require.NotNil(t, plan)
	assert.InDelta(t, 5.0, plan.ZeroThreshold, 0)
	assert.Equal(t, uint64(3), apply(&plan.Plan, 1, 2, 3, 4, 0)[0])

	for _, source := range [][]float64{{-1, 1, 2}, {1}, {0, 1}, {0}} {
		assert.Nil(t, NewExponentialTarget(ExponentialSize{MaxSize: 160, MaxScale: 20}, Auto).Explicit(source), "%v", source)
	}
}

func TestDownscale(t *testing.T) {
	x := Exponential{
		Scale:    3,
		Positive: Buckets{Offset: -3, Counts: TotalsOf(0, 1, 2, 3, 4, 5, 0)}, // indexes -2 to 2 are in use
		Negative: Buckets{Offset: 5, Counts: TotalsOf(7)},
	}
	require.True(t, Downscale(&x, ExponentialSize{MaxSize: 3, MaxScale: 20}))
	// Shift 1: {-2, -1} -> -1, {0, 1} -> 0, {2} -> 1.
	assert.Equal(t, Exponential{
		Scale: 2, Positive: Buckets{Offset: -1, Counts: TotalsOf(3, 7, 5)}, Negative: Buckets{Offset: 2, Counts: TotalsOf(7)},
	}, x)
	require.True(t, Downscale(&x, ExponentialSize{MaxSize: 160, MaxScale: -1}))
	// Shift 3: -1 -> -1, {0, 1} -> 0.
	assert.Equal(t, Exponential{
		Scale: -1, Positive: Buckets{Offset: -1, Counts: TotalsOf(3, 12)}, Negative: Buckets{Offset: 0, Counts: TotalsOf(7)},
	}, x)
	assert.False(t, Downscale(&x, ExponentialSize{MaxSize: 160, MaxScale: -1}))
}

func TestCheck(t *testing.T) {
	nan, inf := math.NaN(), math.Inf(1)
	require.NoError(t, CheckExplicit([]float64{1, 2}, TotalsOf(1, 2, 3), 6))
	require.NoError(t, CheckExplicit([]float64{1}, TotalsOf(math.MaxUint64-1, 1), math.MaxUint64))
	require.ErrorIs(t, CheckExplicit([]float64{1, 2, 4}, TotalsOf(1, 2, 3), 6), ErrBucketCount)
	require.ErrorIs(t, CheckExplicit([]float64{1, 2}, TotalsOf(1, 2, 3), 9), ErrTotal)
	require.ErrorIs(t, CheckExplicit([]float64{1}, TotalsOf(math.MaxUint64, 1), 0), ErrTotal, "a sum that wraps is no sum")
	for _, bounds := range [][]float64{{1, 4, 2}, {1, 1, 2}, {nan, 1, 2}, {1, nan, 2}, {1, 2, nan}, {1, 2, inf}, {-inf, 1, 2}} {
		require.ErrorIs(t, CheckExplicit(bounds, TotalsOf(1, 1, 1, 0), 3), ErrBounds, "%v", bounds)
	}

	ok := Exponential{ZeroCount: 1, Positive: Buckets{Counts: TotalsOf(2)}, Negative: Buckets{Counts: TotalsOf(3)}}
	require.NoError(t, ok.Check(6))
	require.ErrorIs(t, ok.Check(7), ErrTotal)
	for _, scale := range []int32{-11, 21, math.MaxInt32, math.MinInt32} {
		require.ErrorIs(t, (&Exponential{Scale: scale}).Check(0), ErrScale)
	}
	for _, zero := range []float64{-1, nan, inf} {
		require.ErrorIs(t, (&Exponential{ZeroThreshold: zero}).Check(0), ErrZero)
	}
}

func TestScale(t *testing.T) {
	assert.Equal(t, []float64{70, 0.005 * 1000, 10000}, Scale([]float64{0.07, 0.005, 10}, 1000))
	assert.Equal(t, []float64{70000000}, Scale([]float64{0.07}, 1e9))
}

func TestNewTarget(t *testing.T) {
	for _, bounds := range [][]float64{nil, {2, 1}, {1, 1}, {-1, 1}, {math.NaN()}, {1, math.Inf(1)}} {
		_, err := NewTarget(bounds, Auto, true)
		require.ErrorIs(t, err, ErrBounds, "%v", bounds)
	}
}

// A share applied in 128 bits against big rationals.
func TestShareOf(t *testing.T) {
	half := big.NewRat(1, 2)
	for _, s := range []share{{0, 1}, {1, 0}, {1 << 32, 5}, {1<<63 - 1, math.MaxUint64}, {1 << 63, 0}, {1 << 63, 1}, {math.MaxUint64, math.MaxUint64}} {
		for _, n := range []uint64{0, 1, 2, 3, 255, 1<<53 + 1, math.MaxInt64, math.MaxUint64} {
			num := new(big.Int).Lsh(new(big.Int).SetUint64(s.hi), 64)
			x := new(big.Rat).SetFrac(num.Add(num, new(big.Int).SetUint64(s.lo)), new(big.Int).Lsh(big.NewInt(1), 128))
			x.Mul(x, new(big.Rat).SetInt(new(big.Int).SetUint64(n))).Add(x, half)
			want := new(big.Int).Quo(x.Num(), x.Denom())
			assert.Equal(t, want.Uint64(), s.of(n), "%v of %d", s, n)
			assert.LessOrEqual(t, s.of(n), n)
		}
	}
}

func TestPlansAreKeptAndBounded(t *testing.T) {
	tt := target(t, Auto, true, 1, 3)
	first := tt.Explicit([]float64{1, 2, 4})
	assert.Same(t, first, tt.Explicit([]float64{1, 2, 4}))
	tt.Explicit([]float64{1, 2, 5})
	assert.Same(t, first, tt.Explicit([]float64{1, 2, 4}), "not only the last one")
	for i := range 10 * maxPlans {
		tt.Explicit([]float64{1, 2, 4 + float64(i)})
	}
	assert.LessOrEqual(t, len(tt.explicit.plans), maxPlans)
	exponential := tt.Exponential(3, 0)
	assert.Same(t, exponential, tt.Exponential(3, 0))
	assert.NotSame(t, exponential, tt.Exponential(3, 1))
}
