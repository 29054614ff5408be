// Copyright The otelcol-stream Authors
// SPDX-License-Identifier: Apache-2.0

package cadence

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// t0 is the start of every stream in these tests: an instant of today, at which float64 would be 256 ns wide.
const t0 int64 = 1_790_000_000_123_456_789

// at turns seconds after t0 into instants.
func at(after ...float64) []int64 {
	instants := make([]int64, len(after))
	for i, s := range after {
		instants[i] = t0 + int64(math.Round(s*1e9))
	}
	return instants
}

// every returns n instants a fixed gap apart, the first one at start.
func every(gap time.Duration, n int, start float64) []int64 {
	instants := make([]int64, n)
	for i := range instants {
		instants[i] = at(start)[0] + int64(i)*int64(gap)
	}
	return instants
}

// streamOf is an exact stream: first chunk at its first instant, end and tokens as given.
func streamOf(end float64, tokens int64, instants []int64) Stream {
	return Stream{
		First: instants[0], FirstKnown: true, End: at(end)[0], Instants: instants,
		Tokens: tokens, TokensKnown: tokens > 0,
	}
}

func summarize(s Stream) Summary {
	var sum Summary
	NewCalculator(DefaultSettings()).Summarize(s, &sum)
	return sum
}

func assertValue(t *testing.T, want float64, got Value, name string) {
	t.Helper()
	if assert.True(t, got.OK, "%s is absent", name) {
		assert.InDelta(t, want, got.V, 1e-9, name)
	}
}

func assertAbsent(t *testing.T, got Value, name string) {
	t.Helper()
	assert.Equal(t, Value{}, got, name)
}

type gapFigures struct{ mean, p50, p95, p99, max, stddev, jitter float64 }

func assertGaps(t *testing.T, want gapFigures, got Summary) {
	t.Helper()
	assertValue(t, want.mean, got.GapMean, "mean")
	assertValue(t, want.p50, got.GapP50, "p50")
	assertValue(t, want.p95, got.GapP95, "p95")
	assertValue(t, want.p99, got.GapP99, "p99")
	assertValue(t, want.max, got.GapMax, "max")
	assertValue(t, want.stddev, got.GapStddev, "stddev")
	assertValue(t, want.jitter, got.GapJitter, "jitter")
}

// The opening chunk of many providers carries a role and no text. Its gap to the first text is the only trace of the real prefill.
func TestRoleOnlyFirstChunk(t *testing.T) {
	sum := summarize(streamOf(0.6, 0, at(0.080, 0.500, 0.520, 0.540, 0.560, 0.580)))

	assert.Equal(t, QualityExact, sum.Quality)
	assert.EqualValues(t, 6, sum.ChunkCount)
	assertGaps(t, gapFigures{0.100, 0.020, 0.340, 0.404, 0.420, 0.160, 0.020599365234375}, sum)
	assert.True(t, sum.Stalls)
	assert.Zero(t, sum.StallCount)
	assertAbsent(t, sum.StallDuration, "stall duration")
	assertAbsent(t, sum.StallOffset, "stall offset")
	assertAbsent(t, sum.HeadBurst, "head burst of 6 chunks")
	assertValue(t, 0.020, sum.Tail, "tail")
	// The chunks lie within half a second: all in one window.
	assertValue(t, 6, sum.PeakRate, "peak rate")
	// Deadline 0.1: 0.42 missed, then 0.02 met four times.
	assertValue(t, 0.8, sum.Fluidity, "fluidity")
	// The reader has read the first chunk at 0.1 and waits until 0.42.
	assertValue(t, 0.32, sum.ReaderWait, "reader wait")
	assert.False(t, sum.TokensKnown)
	assertAbsent(t, sum.TokenRate, "token rate")
}

func TestWindowOfNewestChunks(t *testing.T) {
	s := streamOf(12, 100, at(11.6, 11.7, 11.8, 11.9))
	s.First, s.FirstKnown = at(0.35)[0], true
	s.Missing, s.NewestKept = 296, true
	sum := summarize(s)

	assert.Equal(t, QualityPartial, sum.Quality)
	assert.EqualValues(t, 300, sum.ChunkCount)
	assertGaps(t, gapFigures{0.1, 0.1, 0.1, 0.1, 0.1, 0, 0}, sum)
	assertValue(t, 0.1, sum.Tail, "tail")
	assertValue(t, 99/11.65, sum.TokenRate, "token rate over t1 − f, not over the window")
	assertValue(t, 100./300, sum.ChunkTokens, "tokens per chunk")
	assertAbsent(t, sum.HeadBurst, "head burst")
	assertAbsent(t, sum.Fluidity, "fluidity")
	assertAbsent(t, sum.ReaderWait, "reader wait")
	assertAbsent(t, sum.PeakRate, "peak rate")

	s.NewestKept, s.FirstKnown = false, false
	sum = summarize(s)
	assertAbsent(t, sum.Tail, "tail when the oldest chunks survived")
	assertAbsent(t, sum.TokenRate, "token rate without f")
	assertAbsent(t, sum.StallOffset, "stall offset without f")
}

func TestTiesAreGaps(t *testing.T) {
	sum := summarize(streamOf(0.45, 0, at(0.1, 0.2, 0.2, 0.3, 0.4)))

	assert.EqualValues(t, 5, sum.ChunkCount)
	assertGaps(t, gapFigures{0.075, 0.1, 0.1, 0.1, 0.1, 0.0433012702, 0.0113525390625}, sum)
	assert.EqualValues(t, 1, sum.Histogram.Zero)
	assert.EqualValues(t, 4, sum.Histogram.Count())
}

func TestFourBodyMessages(t *testing.T) {
	sum := summarize(streamOf(0.62, 0, at(0.15, 0.25, 0.45, 0.55)))

	assertGaps(t, gapFigures{0.1333333333, 0.1, 0.19, 0.198, 0.2, 0.0471404521, 0.012109375}, sum)
	assertValue(t, 0.07, sum.Tail, "tail")
}

func TestCancelledStream(t *testing.T) {
	sum := summarize(streamOf(0.3, 0, at(0.040, 0.140, 0.240)))

	assert.EqualValues(t, 3, sum.ChunkCount)
	assertGaps(t, gapFigures{0.1, 0.1, 0.1, 0.1, 0.1, 0, 0}, sum)
}

func TestMidStreamStall(t *testing.T) {
	s := streamOf(5.2, 0, at(0.2, 0.3, 0.4, 0.5, 0.6, 3.6, 3.7, 3.8, 3.9, 4.0, 5.0, 5.1))
	sum := summarize(s)

	assertGaps(t, gapFigures{0.4454545455, 0.1, 2.0, 2.8, 3.0, 0.8478460799, 0.3633017946}, sum)
	assert.EqualValues(t, 2, sum.StallCount, "the gap of exactly the threshold counts")
	assertValue(t, 4.0, sum.StallDuration, "stall duration")
	assertValue(t, 0.4, sum.StallOffset, "stall offset")
	assertValue(t, 5, sum.PeakRate, "peak rate")
	// Chunks 0.3 and 0.4 of 11 come within 0.2 s of the first; an even stream of 4.9 s would bring 11 · 0.2/4.9.
	assertValue(t, (2./11)/(0.2/4.9), sum.HeadBurst, "head burst")
	// Two missed of eleven.
	assertValue(t, 9./11, sum.Fluidity, "fluidity")
	// The reader needs 0.1 s a chunk: 2.9 s without text, then 0.9 s.
	assertValue(t, 3.8, sum.ReaderWait, "reader wait")

	s.FirstKnown = false
	assertAbsent(t, summarize(s).StallOffset, "offset from an unknown f")
}

func TestSameTokenRateSmallerChunks(t *testing.T) {
	a := summarize(streamOf(3.3, 29, every(400*time.Millisecond, 8, 0.4)))
	b := summarize(streamOf(3.3, 29, every(100*time.Millisecond, 29, 0.4)))

	for _, sum := range []Summary{a, b} {
		assertValue(t, 10, sum.TokenRate, "token rate")
		assertValue(t, 0, sum.GapStddev, "stddev")
		assertValue(t, 0, sum.GapJitter, "jitter")
		assertValue(t, 0.1, sum.Tail, "tail")
		assert.Zero(t, sum.StallCount)
	}
	assertValue(t, 3.625, a.ChunkTokens, "tokens per chunk")
	assertValue(t, 1, b.ChunkTokens, "tokens per chunk")
	assertValue(t, 0.4, a.GapP50, "p50")
	assertValue(t, 0.4, a.GapMax, "max")
	assertValue(t, 0.1, b.GapP50, "p50")
	assertValue(t, 0.1, b.GapMax, "max")
	// 3.625 tokens take the reader 0.3625 s: 0.0375 s short in each of 7 gaps of 0.4 s, and none of them meets its deadline.
	assertValue(t, 7*0.0375, a.ReaderWait, "reader wait")
	assertValue(t, 0, a.Fluidity, "fluidity")
	// One token each 0.1 s is the reader's pace and the deadline exactly.
	assertValue(t, 0, b.ReaderWait, "reader wait")
	assertValue(t, 1, b.Fluidity, "fluidity")
}

// An unknown number of lost instants makes the cadence a window, with nothing added to the count.
func TestTruncated(t *testing.T) {
	s := Stream{Instants: at(0.1, 0.2, 0.3), End: at(0.5)[0], Truncated: true}
	sum := summarize(s)
	assert.Equal(t, QualityPartial, sum.Quality)
	assert.EqualValues(t, 3, sum.ChunkCount)
	assertAbsent(t, sum.Tail, "tail: the newest may be gone")
	assertAbsent(t, sum.Fluidity, "fluidity")
	s.NewestKept = true
	assertValue(t, 0.2, summarize(s).Tail, "tail")
}

func TestWithoutInstants(t *testing.T) {
	base := Stream{First: at(0.3)[0], FirstKnown: true, End: at(2)[0], Tokens: 86, TokensKnown: true}

	assert.Equal(t, QualityNone, summarize(Stream{First: base.First, FirstKnown: true, End: base.End}).Quality)
	none := summarize(base)
	assert.Equal(t, QualityMean, none.Quality, "tokens are a count")
	assertValue(t, 50, none.TokenRate, "(86 − 1) / 1.7")
	assertAbsent(t, none.ChunkTokens, "tokens per chunk")
	assertAbsent(t, none.Tail, "tail")
	assert.Zero(t, none.ChunkCount)
	assert.False(t, none.Stalls)

	counted := base
	counted.Count = 43
	sum := summarize(counted)
	assert.Equal(t, QualityMean, sum.Quality)
	assert.EqualValues(t, 43, sum.ChunkCount)
	assertValue(t, 2, sum.ChunkTokens, "tokens per chunk")
	assertAbsent(t, sum.GapMean, "mean gap: a count alone does not say when the last chunk came")

	reported := base
	reported.MeanGap = Of(0.02)
	sum = summarize(reported)
	assert.Equal(t, QualityMean, sum.Quality)
	assertValue(t, 0.02, sum.GapMean, "mean gap")
	assert.Zero(t, sum.Histogram.Count())
	assertAbsent(t, sum.GapMax, "max")

	lost := base
	lost.Missing = 40
	sum = summarize(lost)
	assert.Equal(t, QualityMean, sum.Quality)
	assert.EqualValues(t, 40, sum.ChunkCount)

	for _, nonsense := range []float64{-1, math.NaN(), math.Inf(1)} {
		reported.MeanGap = Of(nonsense)
		assert.Equal(t, none, summarize(reported))
	}
}

func TestOneChunk(t *testing.T) {
	sum := summarize(streamOf(0.5, 5, at(0.25)))

	assert.Equal(t, QualityExact, sum.Quality)
	assert.EqualValues(t, 1, sum.ChunkCount)
	assertValue(t, 0.25, sum.Tail, "tail")
	assertValue(t, 16, sum.TokenRate, "4 tokens after the first in t1 − f")
	assertValue(t, 5, sum.ChunkTokens, "tokens per chunk")
	assertValue(t, 1, sum.PeakRate, "peak rate")
	assertValue(t, 0, sum.ReaderWait, "reader wait")
	assert.False(t, sum.Stalls)
	for _, v := range []Value{sum.GapMean, sum.GapP50, sum.GapP95, sum.GapP99, sum.GapMax, sum.GapStddev, sum.GapJitter, sum.Fluidity} {
		assertAbsent(t, v, "of no gaps")
	}
	assert.Zero(t, sum.Histogram.Count())
}

func TestDivisorsOfZero(t *testing.T) {
	allAtOnce := streamOf(0.25, 5, at(0.25, 0.25, 0.25))
	sum := summarize(allAtOnce)
	assertAbsent(t, sum.TokenRate, "rate over no time at all")
	assertGaps(t, gapFigures{}, sum)

	allAtOnce.End = at(0.75)[0]
	assertValue(t, 8, summarize(allAtOnce).TokenRate, "t1 − f stands in when cn = c1")

	for _, tokens := range []int64{0, -3} {
		s := streamOf(1, 0, at(0.25, 0.5))
		s.Tokens, s.TokensKnown = tokens, true
		sum := summarize(s)
		assertAbsent(t, sum.TokenRate, "token rate")
		assertAbsent(t, sum.ChunkTokens, "tokens per chunk")
		assert.Equal(t, tokens == 0, sum.TokensKnown)
		// k is 1: 0.25 s is later than 0.1 s.
		assertValue(t, 0, sum.Fluidity, "fluidity")
	}

	negativeTail := streamOf(0.4, 0, at(0.25, 0.5))
	assertAbsent(t, summarize(negativeTail).Tail, "tail of a span that ended before its last chunk")
}

func TestHeadBurst(t *testing.T) {
	// 8 chunks 25 ms apart, then 4 a second apart: 7 of the 11 after the first come within 0.2 s (the window's end included: 0.175).
	s := every(25*time.Millisecond, 8, 0)
	s = append(s, at(1.175, 2.175, 3.175, 4.175)...)
	assertValue(t, (7./11)/(0.2/4.175), summarize(streamOf(5, 0, s)).HeadBurst, "sprint and trickle")

	// A chunk exactly at c1 + W counts.
	assertValue(t, (2./9)/(0.2/0.9), summarize(streamOf(5, 0, every(100*time.Millisecond, 10, 0))).HeadBurst, "even")

	assertAbsent(t, summarize(streamOf(5, 0, every(100*time.Millisecond, 9, 0))).HeadBurst, "9 chunks")
	assertAbsent(t, summarize(streamOf(5, 0, at(0, 0, 0, 0, 0, 0, 0, 0, 0, 0.2))).HeadBurst, "cn − c1 = W")
	assertValue(t, 8./9*1.005, summarize(streamOf(5, 0, at(0, 0, 0, 0, 0, 0, 0, 0, 0, 0.201))).HeadBurst, "cn − c1 > W")
}

func TestPeakRateIsHalfOpen(t *testing.T) {
	assertValue(t, 1, summarize(streamOf(9, 0, at(0, 1, 2, 3))).PeakRate, "a second apart")
	assertValue(t, 2, summarize(streamOf(9, 0, at(0, 1, 1.999999999, 3))).PeakRate, "a nanosecond less")
	assertValue(t, 3, summarize(streamOf(9, 0, at(0, 2, 4, 4.5, 4.9, 6, 6.9))).PeakRate, "in the middle")
}

// 4 tokens in 6 chunks are due every 0.0666… s, which no nanosecond and no float64 hits; three of them are due after 0.2 s exactly.
func TestFluidityAtThePace(t *testing.T) {
	assertValue(t, 1, summarize(streamOf(1, 4, at(0, 0.05, 0.1, 0.2, 0.25, 0.3))).Fluidity, "exactly on time")
	assertValue(t, 0.8, summarize(streamOf(1, 4, at(0, 0.05, 0.1, 0.200000001, 0.25, 0.3))).Fluidity, "a nanosecond late")
}

func TestBytes(t *testing.T) {
	s := streamOf(1, 0, at(0.1, 0.2, 0.3, 0.4))
	s.Bytes, s.BytesKnown = 1000, true
	sum := summarize(s)
	assert.EqualValues(t, 1000, sum.ByteCount)
	assertValue(t, 250, sum.ChunkBytes, "bytes per chunk")

	s.Missing = 96
	assertValue(t, 250, summarize(s).ChunkBytes, "bytes are of the chunks seen")

	s.Bytes = -1
	assert.False(t, summarize(s).BytesKnown)

	counted := Stream{Count: 10, Bytes: 1000, BytesKnown: true}
	assertValue(t, 100, summarize(counted).ChunkBytes, "bytes per reported chunk")
}

// Gap figures before f count as they are: f only sets the split.
func TestStallBeforeTheFirstChunkInstant(t *testing.T) {
	s := streamOf(4, 0, at(0.5, 2.5, 3.5))
	s.First = at(1)[0]
	sum := summarize(s)
	assertValue(t, -0.5, sum.StallOffset, "offset")
	assertValue(t, 3, sum.StallDuration, "duration")
}

func TestFirstOfEqualStallsCounts(t *testing.T) {
	sum := summarize(streamOf(9, 0, at(0, 0.5, 2.5, 3, 5, 6)))
	assert.EqualValues(t, 3, sum.StallCount)
	assertValue(t, 0.5, sum.StallOffset, "offset")
}

func TestBeyondTheWindow(t *testing.T) {
	kept := at(0, 0.1, 0.2, 1.7)
	b := &Beyond{Last: kept[3]}
	// 0.3, 3, 0.5 s on; one chunk comes late and splits nothing.
	for _, i := range at(2.0, 5.0, 1.9, 5.5) {
		b.Add(i, time.Second)
	}
	s := streamOf(6, 0, kept)
	s.Beyond = b
	sum := summarize(s)

	assert.Equal(t, QualityPartial, sum.Quality)
	assert.EqualValues(t, 8, sum.ChunkCount)
	assertValue(t, 5.5/6, sum.GapMean, "mean over all six gaps")
	assertValue(t, 3, sum.GapMax, "max over all")
	assertValue(t, 0.1, sum.GapP50, "p50 of the window")
	assert.EqualValues(t, 6, sum.Histogram.Count())
	assert.EqualValues(t, 2, sum.StallCount)
	assertValue(t, 4.5, sum.StallDuration, "stall duration")
	assertValue(t, 2, sum.StallOffset, "the longest stall lies beyond the window")
	assertValue(t, 0.5, sum.Tail, "tail")

	var all Histogram
	for _, g := range []float64{0.1, 0.1, 1.5, 0.3, 3, 0.5} {
		all.Observe(g)
	}
	assert.Equal(t, all, sum.Histogram)

	late := &Beyond{Last: kept[0]}
	late.Add(kept[0]-1, time.Second)
	counted := summarize(Stream{Instants: kept[:1], Beyond: late})
	assert.EqualValues(t, 2, counted.ChunkCount)
	assert.Equal(t, QualityPartial, counted.Quality)
	assert.False(t, counted.Stalls, "two chunks, but no gap is known")

	s.Missing = 2
	assertAbsent(t, summarize(s).Tail, "tail when chunks are missing as well")
	s.NewestKept = true
	assertValue(t, 0.5, summarize(s).Tail, "tail")
}

func TestExtremeInstants(t *testing.T) {
	extremes := []int64{math.MinInt64, 5, 6, 7, math.MaxInt64 - 1, math.MaxInt64, math.MaxInt64}
	s := Stream{First: math.MinInt64, FirstKnown: true, End: math.MaxInt64, Instants: extremes, Tokens: math.MaxInt64, TokensKnown: true}
	sum := summarize(s)
	checkSound(t, s, sum)
	assertValue(t, 0, sum.Tail, "tail")
	assert.InEpsilon(t, 18446744073.709551615/6, sum.GapMean.V, 1e-12)
	assert.InEpsilon(t, 9223372036.854775807, sum.GapMax.V, 1e-12)
	// The first gap is 2^63 + 5 ns, which saturates; the other stall is 8 ns shorter than that.
	assertValue(t, 0, sum.StallOffset, "offset")
	assert.EqualValues(t, 2, sum.StallCount)
}

func TestReuse(t *testing.T) {
	c := NewCalculator(DefaultSettings())
	long := streamOf(5.2, 40, at(0.2, 0.3, 0.4, 0.5, 0.6, 3.6, 3.7, 3.8, 3.9, 4.0, 5.0, 5.1))
	short := streamOf(0.6, 0, at(0.080, 0.500))
	original := slices.Clone(long.Instants)

	var first, reused, fresh Summary
	c.Summarize(long, &first)
	assert.Equal(t, original, long.Instants, "the input is left alone")
	held := first
	held.Histogram.Buckets = slices.Clone(first.Histogram.Buckets)

	c.Summarize(long, &reused)
	c.Summarize(short, &reused)
	NewCalculator(DefaultSettings()).Summarize(short, &fresh)
	assert.Equal(t, fresh, reused, "nothing of the stream before is left")
	assert.Equal(t, held, first, "a summary shares nothing with the calculator")
}

func TestNoAllocations(t *testing.T) {
	c, s := NewCalculator(DefaultSettings()), randomStream(100)
	var sum Summary
	c.Summarize(s, &sum)
	assert.Zero(t, testing.AllocsPerRun(100, func() { c.Summarize(s, &sum) }))

	ints := sum.Histogram.AppendInts(nil)
	var h Histogram
	require.NoError(t, h.SetInts(ints))
	assert.Zero(t, testing.AllocsPerRun(100, func() {
		ints = h.AppendInts(ints[:0])
		_ = h.SetInts(ints)
	}))
}

func TestQualityNames(t *testing.T) {
	for q, want := range map[Quality]string{QualityNone: "none", QualityMean: "mean", QualityPartial: "partial", QualityExact: "exact"} {
		assert.Equal(t, want, q.String())
	}
}
