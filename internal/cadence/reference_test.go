// Copyright The otelcol-stream Authors
// SPDX-License-Identifier: Apache-2.0

package cadence

import (
	"bufio"
	"math"
	"math/big"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// figures is what the slow formulas say of an exact stream; NaN is absent.
type figures struct {
	gapFigures
	stallCount                              int64
	stallDuration, stallOffset              float64
	headBurst, peakRate, chunkTokens        float64
	tokenRate, fluidity, readerWait, tail   float64
	histogram                               map[int]int64
	histogramScale, histogramZero, histSize int64
}

func rat(ns int64) *big.Rat { return big.NewRat(ns, 1_000_000_000) }

func float(r *big.Rat) float64 {
	f, _ := r.Float64()
	return f
}

// reference computes an exact stream with at least two chunks from the definitions, word by word, in rational numbers of seconds wherever
// that is possible. It is written for doubt, not for speed.
func reference(s Stream, set Settings) figures {
	nan := math.NaN()
	f := figures{stallDuration: nan, stallOffset: nan, headBurst: nan, chunkTokens: nan, tokenRate: nan, tail: nan}
	n := len(s.Instants)
	c := make([]*big.Rat, n)
	for i, instant := range s.Instants {
		c[i] = rat(instant)
	}
	sub := func(a, b *big.Rat) *big.Rat { return new(big.Rat).Sub(a, b) }
	add := func(a, b *big.Rat) *big.Rat { return new(big.Rat).Add(a, b) }

	var gaps []*big.Rat
	for i := 1; i < n; i++ {
		gaps = append(gaps, sub(c[i], c[i-1]))
	}
	m := big.NewRat(int64(len(gaps)), 1)

	sum := new(big.Rat)
	for _, g := range gaps {
		sum.Add(sum, g)
	}
	mean := new(big.Rat).Quo(sum, m)
	squares := new(big.Rat)
	for _, g := range gaps {
		d := sub(g, mean)
		squares.Add(squares, d.Mul(d, d))
	}
	f.mean, f.stddev = float(mean), math.Sqrt(float(squares.Quo(squares, m)))

	sorted := slices.Clone(gaps)
	slices.SortFunc(sorted, func(a, b *big.Rat) int { return a.Cmp(b) })
	f.max = float(sorted[len(sorted)-1])
	percentile := func(p int64) float64 {
		h := new(big.Rat).Mul(big.NewRat(p, 100), big.NewRat(int64(len(sorted)-1), 1))
		lo := int(new(big.Int).Quo(h.Num(), h.Denom()).Int64())
		hi := min(lo+1, len(sorted)-1)
		part := sub(h, big.NewRat(int64(lo), 1))
		return float(add(sorted[lo], part.Mul(part, sub(sorted[hi], sorted[lo]))))
	}
	f.p50, f.p95, f.p99 = percentile(50), percentile(95), percentile(99)

	for i := 1; i < len(gaps); i++ {
		f.jitter += (math.Abs(float(sub(gaps[i], gaps[i-1]))) - f.jitter) / 16
	}

	threshold, longest := rat(int64(set.StallThreshold)), new(big.Rat)
	stalled := new(big.Rat)
	for i, g := range gaps {
		if g.Cmp(threshold) < 0 {
			continue
		}
		f.stallCount++
		stalled.Add(stalled, g)
		if g.Cmp(longest) > 0 {
			longest, f.stallOffset = g, float(sub(c[i], rat(s.First)))
		}
	}
	if f.stallCount > 0 {
		f.stallDuration = float(stalled)
	}

	w, spread := rat(int64(set.HeadWindow)), sub(c[n-1], c[0])
	if n >= 10 && spread.Cmp(w) > 0 {
		h := int64(0)
		for i := 1; i < n; i++ {
			if c[i].Cmp(add(c[0], w)) <= 0 {
				h++
			}
		}
		f.headBurst = float(new(big.Rat).Quo(big.NewRat(h, int64(n-1)), new(big.Rat).Quo(w, spread)))
	}

	for i := range c {
		inside := 0
		for j := range c {
			if c[j].Cmp(c[i]) >= 0 && c[j].Cmp(add(c[i], big.NewRat(1, 1))) < 0 {
				inside++
			}
		}
		f.peakRate = max(f.peakRate, float64(inside))
	}

	k := big.NewRat(1, 1)
	if s.TokensKnown && s.Tokens > 0 {
		k = big.NewRat(s.Tokens, int64(n))
		f.chunkTokens = float(k)
		switch tokens := big.NewRat(s.Tokens-1, 1); {
		case spread.Sign() > 0:
			f.tokenRate = float(tokens.Quo(tokens, spread))
		case s.End > s.First:
			f.tokenRate = float(tokens.Quo(tokens, rat(s.End-s.First)))
		}
	}

	d, slack, met := new(big.Rat).Mul(rat(int64(set.FluidityDeadline)), k), new(big.Rat), int64(0)
	for _, g := range gaps {
		if g.Cmp(add(d, slack)) <= 0 {
			met++
			slack = add(slack, sub(d, g))
		} else {
			slack = new(big.Rat)
		}
	}
	f.fluidity = float(new(big.Rat).Quo(big.NewRat(met, 1), m))

	step := new(big.Rat).Quo(k, new(big.Rat).SetFloat64(set.ReaderRate))
	r, wait := add(c[0], step), new(big.Rat)
	for _, ci := range c[1:] {
		if ci.Cmp(r) > 0 {
			wait.Add(wait, sub(ci, r))
			r = ci
		}
		r = add(r, step)
	}
	f.readerWait = float(wait)

	if s.End >= s.Instants[n-1] {
		f.tail = float(sub(rat(s.End), c[n-1]))
	}

	f.histogramScale = MaxScale
	for {
		f.histogram, f.histogramZero = map[int]int64{}, 0
		for i := 1; i < n; i++ {
			if g := s.Instants[i] - s.Instants[i-1]; g == 0 {
				f.histogramZero++
			} else {
				f.histogram[slowIndex(float64(g)/1e9, int(f.histogramScale))]++
			}
		}
		if f.histSize = int64(len(f.histogram)); f.histSize <= MaxBuckets {
			return f
		}
		f.histogramScale--
	}
}

func assertReference(t *testing.T, s Stream, set Settings, got Summary) {
	t.Helper()
	want := reference(s, set)
	check := func(name string, want float64, got Value) {
		t.Helper()
		if math.IsNaN(want) {
			assertAbsent(t, got, name)
			return
		}
		if assert.True(t, got.OK, name) {
			assert.InDelta(t, want, got.V, 1e-9*max(1, math.Abs(want)), name)
		}
	}
	assert.Equal(t, QualityExact, got.Quality)
	assert.EqualValues(t, len(s.Instants), got.ChunkCount)
	check("mean", want.mean, got.GapMean)
	check("p50", want.p50, got.GapP50)
	check("p95", want.p95, got.GapP95)
	check("p99", want.p99, got.GapP99)
	check("max", want.max, got.GapMax)
	check("stddev", want.stddev, got.GapStddev)
	check("jitter", want.jitter, got.GapJitter)
	assert.True(t, got.Stalls)
	assert.Equal(t, want.stallCount, got.StallCount)
	check("stall duration", want.stallDuration, got.StallDuration)
	check("stall offset", want.stallOffset, got.StallOffset)
	check("head burst", want.headBurst, got.HeadBurst)
	check("peak rate", want.peakRate, got.PeakRate)
	check("tokens per chunk", want.chunkTokens, got.ChunkTokens)
	check("token rate", want.tokenRate, got.TokenRate)
	check("fluidity", want.fluidity, got.Fluidity)
	check("reader wait", want.readerWait, got.ReaderWait)
	check("tail", want.tail, got.Tail)

	buckets := map[int]int64{}
	for _, b := range got.Histogram.Buckets {
		buckets[b.Index] = b.Count
	}
	assert.Equal(t, want.histogram, buckets)
	assert.Equal(t, want.histogramZero, got.Histogram.Zero)
	if len(buckets) > 0 {
		assert.EqualValues(t, want.histogramScale, got.Histogram.Scale)
	}
}

// Real streams: 20 responses of 200 chunks each; see the head of the file for their origin.
func TestRealStreams(t *testing.T) {
	file, err := os.Open("testdata/aiperf.txt")
	require.NoError(t, err)
	defer func() { assert.NoError(t, file.Close()) }()
	c, streams := NewCalculator(DefaultSettings()), 0
	var sum Summary
	for lines := bufio.NewScanner(file); lines.Scan(); {
		if strings.HasPrefix(lines.Text(), "#") {
			continue
		}
		var n []int64
		for field := range strings.FieldsSeq(lines.Text()) {
			v, err := strconv.ParseInt(field, 10, 64)
			require.NoError(t, err)
			n = append(n, v)
		}
		start, ttft, end, tokens, gaps := n[0], n[1], n[2], n[3], n[4:]
		s := Stream{First: start + ttft, FirstKnown: true, End: end, Tokens: tokens, TokensKnown: true, Instants: []int64{start + ttft}}
		for _, g := range gaps {
			s.Instants = append(s.Instants, s.Instants[len(s.Instants)-1]+g)
		}
		c.Summarize(s, &sum)
		assertReference(t, s, c.Settings(), sum)
		streams++
	}
	assert.Equal(t, 20, streams)
}

// generate makes streams of many shapes: even, jittery, bursty, stalling, with ties, with gaps from nanoseconds to days.
func generate(r *rand.Rand) Stream {
	n := 2 + r.IntN(150)
	shape := r.IntN(6)
	instants := []int64{t0 + r.Int64N(1e9)}
	for i := 1; i < n; i++ {
		var gap int64
		switch shape {
		case 0:
			gap = 20e6
		case 1:
			gap = r.Int64N(40e6)
		case 2:
			if i > n/2 {
				gap = 150e6
			}
		case 3:
			gap = 10e6 + r.Int64N(2)*r.Int64N(2)*r.Int64N(2)*1e9
		case 4:
			gap = r.Int64N(3) * 50e6
		default:
			gap = int64(math.Exp(r.Float64() * math.Log(1e14)))
		}
		instants = append(instants, instants[i-1]+gap)
	}
	return Stream{
		First: instants[0] + r.Int64N(3)*1e6, FirstKnown: true, End: instants[n-1] + r.Int64N(4)*1e8 - 1e8, Instants: instants,
		Tokens: r.Int64N(int64(4 * n)), TokensKnown: r.IntN(3) > 0,
	}
}

func TestGeneratedStreams(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 11))
	var sum Summary
	for range 100 {
		set := DefaultSettings()
		if r.IntN(2) == 0 {
			set = Settings{
				StallThreshold: time.Duration(1 + r.Int64N(5e8)), HeadWindow: time.Duration(1 + r.Int64N(1e9)),
				FluidityDeadline: time.Duration(1 + r.Int64N(1e8)), ReaderRate: 1 + r.Float64()*50,
			}
		}
		c, s := NewCalculator(set), generate(r)
		c.Summarize(s, &sum)
		assertReference(t, s, set, sum)
		checkSound(t, s, sum)
	}
}

// Laws that need no second implementation.
func TestLaws(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 5))
	for range 100 {
		s := generate(r)
		sum := summarize(s)

		shifted := s
		shift := r.Int64N(1e17)
		shifted.First, shifted.End, shifted.Instants = s.First+shift, s.End+shift, slices.Clone(s.Instants)
		for i := range shifted.Instants {
			shifted.Instants[i] += shift
		}
		assert.Equal(t, sum, summarize(shifted), "only differences of instants count")

		// Any cut gives two windows whose gaps and the gap between them are those of the whole.
		cut := 1 + r.IntN(len(s.Instants)-1)
		var merged Histogram
		for _, part := range [][]int64{s.Instants[:cut], s.Instants[cut-1 : cut+1], s.Instants[cut:]} {
			p := summarize(Stream{Instants: part})
			merged.Merge(&p.Histogram)
		}
		assert.Equal(t, sum.Histogram.Count(), merged.Count())
		assert.Equal(t, sum.Histogram, merged)

		// A window followed by Beyond is the whole, as far as Beyond goes.
		b := &Beyond{Last: s.Instants[cut-1]}
		for _, i := range s.Instants[cut:] {
			b.Add(i, time.Second)
		}
		window := s
		window.Instants, window.Beyond = s.Instants[:cut], b
		split := summarize(window)
		assert.Equal(t, sum.Histogram, split.Histogram)
		assert.Equal(t, sum.ChunkCount, split.ChunkCount)
		assert.Equal(t, []any{sum.StallCount, sum.StallDuration, sum.StallOffset, sum.GapMax, sum.Tail},
			[]any{split.StallCount, split.StallDuration, split.StallOffset, split.GapMax, split.Tail})
		assertValue(t, sum.GapMean.V, split.GapMean, "mean")
	}
}

// checkSound asserts what holds for any input at all.
func checkSound(t *testing.T, s Stream, sum Summary) {
	t.Helper()
	nonNegative := map[string]Value{
		"tail": sum.Tail, "mean": sum.GapMean, "p50": sum.GapP50, "p95": sum.GapP95, "p99": sum.GapP99, "max": sum.GapMax,
		"stddev": sum.GapStddev, "jitter": sum.GapJitter, "stall duration": sum.StallDuration, "head burst": sum.HeadBurst,
		"peak rate": sum.PeakRate, "chunk tokens": sum.ChunkTokens, "token rate": sum.TokenRate, "fluidity": sum.Fluidity,
		"reader wait": sum.ReaderWait, "chunk bytes": sum.ChunkBytes,
	}
	for name, v := range nonNegative {
		assert.True(t, finite(v.V) && v.V >= 0, "%s is %v", name, v.V)
	}
	assert.True(t, finite(sum.StallOffset.V))
	assert.LessOrEqual(t, sum.Fluidity.V, 1.0)
	assert.GreaterOrEqual(t, sum.ChunkCount, int64(0))
	assert.LessOrEqual(t, sum.StallCount, sum.Histogram.Count())
	assert.LessOrEqual(t, len(sum.Histogram.Buckets), MaxBuckets)
	if len(s.Instants) > 1 {
		assert.GreaterOrEqual(t, sum.Histogram.Count(), int64(len(s.Instants)-1))
		assert.LessOrEqual(t, sum.GapP50.V, sum.GapP95.V)
		assert.LessOrEqual(t, sum.GapP95.V, sum.GapP99.V)
		assert.LessOrEqual(t, sum.GapP99.V, sum.GapMax.V)
	}
	if sum.Histogram.Count() > 0 {
		parsed, err := ParseHistogram(sum.Histogram.AppendInts(nil))
		require.NoError(t, err)
		assert.Equal(t, sum.Histogram.Count(), parsed.Count())
	}
}

func FuzzSummarize(f *testing.F) {
	f.Add([]byte{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}, int64(0), int64(10), int64(5), int64(100), int64(3), int64(0), 0.1, uint8(0xff))
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f, 0, 0, 0, 0, 0, 0, 0, 0x80}, int64(math.MinInt64), int64(math.MaxInt64),
		int64(math.MaxInt64), int64(math.MaxInt64), int64(math.MaxInt64), int64(math.MaxInt64), math.Inf(1), uint8(0x0f))
	f.Fuzz(func(t *testing.T, raw []byte, first, end, missing, tokens, count, bytes int64, mean float64, flags uint8) {
		s := Stream{
			First: first, End: end, Missing: missing, Tokens: tokens, Count: count, Bytes: bytes, MeanGap: Value{mean, flags&1 != 0},
			FirstKnown: flags&2 != 0, TokensKnown: flags&4 != 0, BytesKnown: flags&8 != 0, NewestKept: flags&16 != 0,
		}
		var instant int64
		for i, b := range raw {
			instant = instant<<8 | int64(b)
			if i%8 == 7 || flags&32 != 0 {
				s.Instants = append(s.Instants, instant)
			}
		}
		slices.Sort(s.Instants)
		if cut := len(s.Instants) / 2; flags&64 != 0 && cut > 0 {
			s.Beyond = &Beyond{Last: s.Instants[cut-1]}
			for _, i := range s.Instants[cut:] {
				s.Beyond.Add(i, time.Second)
			}
			s.Instants = s.Instants[:cut]
		}
		checkSound(t, s, summarize(s))
	})
}
