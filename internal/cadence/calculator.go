// Copyright The otelcol-stream Authors
// SPDX-License-Identifier: Apache-2.0

package cadence

import (
	"math"
	"math/bits"
	"slices"
	"time"
)

// Calculator summarises streams. It keeps scratch memory between calls, so that a call in the steady state allocates nothing, and is not
// safe for concurrent use. No number of one stream is left to the next.
type Calculator struct {
	settings Settings
	gaps     []int64 // ns
	buckets  denseBuckets
}

// NewCalculator returns a Calculator with the given thresholds. A HeadWindow or ReaderRate that is not positive leaves out the measure
// that needs it.
func NewCalculator(s Settings) *Calculator {
	return &Calculator{settings: s}
}

// Settings returns the thresholds.
func (c *Calculator) Settings() Settings {
	return c.settings
}

// Summarize computes the summary of one stream. What sum held before is overwritten, the capacity of its histogram is reused, and it
// shares no memory with the Calculator or with s.
//
// Every value is finite. What the definition leaves undefined is absent: a ratio by zero, the gap figures of a single chunk, and, of a
// partial stream, everything that needs all instants (head burst, peak rate, fluidity, reader wait, the token rate between chunks). Two
// cases are decided here: the tail of a stream whose last chunk is stamped after the end of its span is absent rather than negative, and
// a token count of 0 gives no tokens per chunk, since instrumentations write 0 when they were not told.
func (c *Calculator) Summarize(s Stream, sum *Summary) {
	buckets := sum.Histogram.Buckets[:0]
	*sum = Summary{}
	sum.Histogram.Buckets = buckets

	sum.Quality = s.quality()
	sum.ChunkCount = s.chunkCount()
	s.volumes(sum)
	s.tokenRate(sum)
	if len(s.Instants) == 0 {
		if validGap(s.MeanGap) {
			sum.GapMean = s.MeanGap
		}
		return
	}

	s.tail(sum)
	c.gaps = AppendGaps(c.gaps[:0], s.Instants)
	if len(c.gaps) > 0 || s.hasBeyond() {
		c.gapFigures(&s, sum)
	}
	if sum.Quality == QualityExact {
		c.wholeStreamFigures(&s, sum)
	}
}

func (s *Stream) hasBeyond() bool {
	return s.Beyond != nil && s.Beyond.Chunks > 0
}

func (s *Stream) quality() Quality {
	switch {
	case len(s.Instants) > 0 && (s.Missing > 0 || s.Truncated || s.hasBeyond()):
		return QualityPartial
	case len(s.Instants) > 0:
		return QualityExact
	case s.Count > 0 || s.Missing > 0 || s.TokensKnown && s.Tokens > 0 || validGap(s.MeanGap):
		return QualityMean
	default:
		return QualityNone
	}
}

// chunkCount is the number of chunks seen plus those known to be missing or, without instants, what the instrumentation reported.
func (s *Stream) chunkCount() int64 {
	if len(s.Instants) == 0 && s.Count > 0 {
		return s.Count
	}
	return addSaturated(s.seen(), max(s.Missing, 0))
}

func (s *Stream) seen() int64 {
	n := int64(len(s.Instants))
	if s.Beyond != nil {
		n += s.Beyond.Chunks
	}
	return n
}

// volumes fills in tokens and bytes, in all and per chunk. Tokens are of the whole stream and so are divided by all chunks; bytes are
// those of the chunks that were seen.
func (s *Stream) volumes(sum *Summary) {
	if s.TokensKnown && s.Tokens >= 0 {
		sum.TokenCount, sum.TokensKnown = s.Tokens, true
		if s.Tokens > 0 && sum.ChunkCount > 0 {
			sum.ChunkTokens = Of(float64(s.Tokens) / float64(sum.ChunkCount))
		}
	}
	if s.BytesKnown && s.Bytes >= 0 {
		sum.ByteCount, sum.BytesKnown = s.Bytes, true
		chunks := s.seen()
		if len(s.Instants) == 0 {
			chunks = sum.ChunkCount
		}
		if chunks > 0 {
			sum.ChunkBytes = Of(float64(s.Bytes) / float64(chunks))
		}
	}
}

// tokenRate is (tokens − 1) / (cn − c1), the reciprocal of the time per output token as benchmarks define it (AIPerf, BentoML: the first
// token is the prefill's). Without two distinct instants, or with a part of them, the stream phase t1 − f stands for cn − c1.
func (s *Stream) tokenRate(sum *Summary) {
	if !sum.TokensKnown || sum.TokenCount < 1 {
		return
	}
	var span uint64 // ns
	if sum.Quality == QualityExact {
		span = s.spread()
	}
	if span == 0 && s.FirstKnown && s.End > s.First {
		span = uint64(s.End) - uint64(s.First)
	}
	if span > 0 {
		sum.TokenRate = Of(float64(sum.TokenCount-1) / (float64(span) / nanos))
	}
}

// spread is cn − c1 in ns. It is unsigned because two int64 can lie further apart than an int64 holds.
func (s *Stream) spread() uint64 {
	return uint64(s.Instants[len(s.Instants)-1]) - uint64(s.Instants[0])
}

// tail is t1 − cn, where the last chunk is known.
func (s *Stream) tail(sum *Summary) {
	last := s.Instants[len(s.Instants)-1]
	known := sum.Quality == QualityExact || s.NewestKept
	if s.hasBeyond() {
		last = s.Beyond.Last
		known = known || s.Missing <= 0 && !s.Truncated
	}
	if known && s.End >= last {
		sum.Tail = Of(secondsBetween(last, s.End))
	}
}

// gapFigures fills in what follows from the gaps.
func (c *Calculator) gapFigures(s *Stream, sum *Summary) {
	var stalls stallTotals
	count, total := float64(len(c.gaps)), float64(s.spread())
	if len(c.gaps) > 0 {
		seq := sequenceOf(s.Instants, c.gaps, c.pace(sum, total/count))
		stalls = seq.stalls
		sum.GapStddev, sum.GapJitter = Of(seq.deviation/nanos), Of(seq.jitter/nanos)
		if sum.Quality == QualityExact {
			sum.Fluidity, sum.ReaderWait = Of(seq.fluidity), Of(seq.wait/nanos)
		}
		c.buckets.count(c.gaps, &sum.Histogram)
		p50, p95, p99 := c.buckets.percentiles(c.gaps, &sum.Histogram)
		sum.GapP50, sum.GapP95, sum.GapP99 = Of(p50/nanos), Of(p95/nanos), Of(p99/nanos)
		sum.Histogram.fit()
	}
	if b := s.Beyond; b != nil && b.Gaps.Count() > 0 {
		count += float64(b.Gaps.Count())
		total += float64(b.sum)
		stalls.follow(&b.stalls)
		sum.Histogram.Merge(&b.Gaps)
	}
	if count == 0 {
		return
	}
	sum.GapMean = Of(total / count / nanos)
	sum.GapMax = Of(seconds(stalls.longest))
	sum.Stalls = true
	sum.StallCount = stalls.count
	if stalls.count > 0 {
		sum.StallDuration = Of(seconds(stalls.duration))
		if s.FirstKnown {
			sum.StallOffset = Of(secondsBetween(s.First, stalls.longestStart))
		}
	}
}

// pace is what gaps are held against.
type pace struct {
	mean     float64 // ns, of the gaps
	stall    int64   // ns, the shortest gap that is a stall
	deadline float64 // ns, of all chunks together
	chunks   float64 // that the deadline is for
	perChunk float64 // ns, in which a reader takes a chunk
}

func (c *Calculator) pace(sum *Summary, mean float64) pace {
	// k, the tokens per chunk, as a fraction; 1 if unknown.
	tokens, chunks := 1.0, 1.0
	if sum.ChunkTokens.OK {
		tokens, chunks = float64(sum.TokenCount), float64(sum.ChunkCount)
	}
	return pace{
		mean: mean, stall: int64(c.settings.StallThreshold),
		deadline: float64(c.settings.FluidityDeadline) * tokens, chunks: chunks,
		perChunk: tokens / chunks / c.settings.ReaderRate * nanos,
	}
}

// sequence are the measures that take one gap after the other.
type sequence struct {
	stalls stallTotals

	// deviation is the population standard deviation of the gaps in ns, about their mean: the difference of two sums of squares would leave
	// noise where regular gaps should give 0.
	deviation float64

	// jitter is the interarrival jitter of RFC 3550, section 6.4.1, in ns: J = 0, then J += (|D| − J)/16 for each difference D of two
	// successive gaps. RFC 3550 compares arrival with a media clock; chunks have none, so that the gap before stands for the expected one.
	jitter float64

	// fluidity is the fluidity index of Etalon (arXiv 2407.07000) as its text defines it, over the gaps: the share of deadlines met, where a
	// gap g ≤ D + slack meets its deadline and leaves D − g more slack to those after it, and a miss starts anew without slack. (The code
	// published with the paper counts a late token as several missed deadlines; that is not done here.)
	fluidity float64

	// wait is the time, in ns, in which a reader has nothing left to read: the playhead of video players (rebuffering), with
	// R_1 = c_1 + k/r, R_i = max(R_{i−1}, c_i) + k/r and the sum over i ≥ 2 of max(0, c_i − R_{i−1}).
	//
	// That sum is the greatest of 0 and c_i − c_1 − (i−1)·k/r: by the time chunk i comes, i−1 chunks have been read, and whatever of the
	// time since c_1 that does not fill was waited (Lindley's recursion unrolled). Without the recursion nothing adds up errors.
	wait float64
}

// sequenceOf goes over the gaps, of which there is one at least, and the instants between which they lie. All measures share the loop since
// each is a chain of operations that wait for the one before: side by side they take little more time than the longest chain.
func sequenceOf(instants, gaps []int64, p pace) sequence {
	var (
		stalls                       stallTotals
		squares, jitter, slack, wait float64
		met                          int
		first, previous              = uint64(instants[0]), float64(gaps[0])
		ends                         = instants[1:][:len(gaps)]
	)
	// Copies that stay in registers.
	mean, stall, deadline, chunks, perChunk := p.mean, p.stall, p.deadline, p.chunks, p.perChunk
	for i, g := range gaps {
		stalls.observe(g, instants[i], stall)
		gap := float64(g)
		squares += (gap - mean) * (gap - mean)
		jitter = jitter*(15.0/16) + math.Abs(gap-previous)/16
		previous = gap
		// D is deadline / chunks. Both sides are multiplied by the number of chunks, which keeps them whole numbers: an even stream at
		// exactly the deadline's pace must not depend on how D is rounded.
		slack += deadline - gap*chunks
		if slack >= 0 {
			met++
		} else {
			slack = 0
		}
		if behind := float64(uint64(ends[i])-first) - float64(i+1)*perChunk; behind > wait {
			wait = behind
		}
	}
	n := float64(len(gaps))
	return sequence{stalls: stalls, deviation: math.Sqrt(squares / n), jitter: jitter, fluidity: float64(met) / n, wait: wait}
}

// wholeStreamFigures fills in what needs every instant of the stream.
func (c *Calculator) wholeStreamFigures(s *Stream, sum *Summary) {
	sum.HeadBurst = headBurst(s.Instants, c.settings.HeadWindow)
	sum.PeakRate = Of(float64(peakRate(s.Instants)))
	switch {
	case c.settings.ReaderRate <= 0:
		sum.ReaderWait = Value{}
	case len(c.gaps) == 0:
		sum.ReaderWait = Of(0)
	}
}

// headBurstChunks is the fewest chunks of which a burst can be told from chance.
const headBurstChunks = 10

// headBurst compares the chunks after the first that arrive within the window W of it with what an even stream would bring there:
// (h / (n−1)) / (W / (cn−c1)). About 1 or less is even. Absent under 10 chunks, or when the whole stream fits into the window.
func headBurst(instants []int64, window time.Duration) Value {
	n := len(instants)
	if n < headBurstChunks || window <= 0 {
		return Value{}
	}
	first := uint64(instants[0])
	spread := uint64(instants[n-1]) - first
	if spread <= uint64(window) {
		return Value{}
	}
	h := 0
	for h+1 < n && uint64(instants[h+1])-first <= uint64(window) {
		h++
	}
	return Of(float64(h) / float64(n-1) * float64(spread) / float64(window))
}

// peakRate is the most chunks in any half-open second [c, c + 1 s) that starts at a chunk. The window from..i grows when it fits into a
// second and else moves on without shrinking: a shorter one would be no maximum.
func peakRate(instants []int64) int {
	from := 0
	for _, instant := range instants {
		if uint64(instant)-uint64(instants[from]) >= uint64(time.Second) {
			from++
		}
	}
	return len(instants) - from
}

// nanos is the number of nanoseconds in a second. Values are divided by it, never multiplied by its reciprocal: 2^-9 s is 1,953,125 ns,
// and only the division gives that power of two back, on which bucket bounds lie.
const nanos = 1e9

func seconds(ns int64) float64 { return float64(ns) / nanos }

// secondsBetween is to − from. The difference is taken before the conversion: a float64 of an instant is 256 ns wide.
func secondsBetween(from, to int64) float64 {
	if to < from {
		return -secondsBetween(to, from)
	}
	return float64(uint64(to)-uint64(from)) / nanos
}

func finite(v float64) bool { return !math.IsInf(v, 0) && !math.IsNaN(v) }

func validGap(v Value) bool { return v.OK && v.V >= 0 && finite(v.V) }

// AppendGaps appends the n−1 gaps, in ns, of n ascending instants. A gap that an int64 cannot hold (292 years) is the greatest it can.
func AppendGaps(dst, instants []int64) []int64 {
	if len(instants) < 2 {
		return dst
	}
	dst = slices.Grow(dst, len(instants)-1)
	previous := instants[0]
	for _, instant := range instants[1:] {
		dst = append(dst, gapBetween(previous, instant))
		previous = instant
	}
	return dst
}

func gapBetween(from, to int64) int64 {
	if gap := to - from; gap >= 0 {
		return gap
	}
	return math.MaxInt64
}

// addSaturated adds two numbers that are not negative.
func addSaturated(a, b int64) int64 {
	if sum := a + b; sum >= 0 {
		return sum
	}
	return math.MaxInt64
}

// denseBuckets counts gaps at MaxScale in a plain array: the 63 powers of two between 1 ns and the greatest int64 need 2,016 buckets.
// A set of the buckets in use makes reading them out cost what is in them and not what could be.
type denseBuckets struct {
	counts [denseSize]int64
	used   [denseSize / 64]uint64
	// slots has the bucket of each gap counted last, 0 for gaps of 0.
	slots []uint16

	// Scratch of percentiles; holds is 1 for the buckets of holders, found has the gaps in them.
	holders  []holder
	holds    [denseSize]uint8
	found    []int32
	gathered []int64
}

const (
	denseLeast = -30 * subBuckets // 2^-30 s is less than 1 ns, so that no gap has bucket 0
	denseSize  = 64 * subBuckets  // 2^34 s is more than the greatest int64 in ns
)

// count replaces the content of h by the gaps, in as many buckets at MaxScale as it takes. The counts of d are 0 before and after.
func (d *denseBuckets) count(gaps []int64, h *Histogram) {
	h.Reset()
	if len(gaps) > 0 {
		h.Scale = MaxScale
	}
	d.slots = slices.Grow(d.slots[:0], len(gaps))[:len(gaps)]
	for at, gap := range gaps {
		if gap == 0 {
			h.Zero++
			d.slots[at] = 0
			continue
		}
		i := uint(IndexOf(seconds(gap)) - denseLeast)
		d.slots[at] = uint16(i)
		d.counts[i]++
		d.used[i/64] |= 1 << (i % 64)
	}
	for w := range d.used {
		for set := d.used[w]; set != 0; set &= set - 1 {
			i := w*64 + bits.TrailingZeros64(set)
			h.Buckets = append(h.Buckets, Bucket{i + denseLeast, d.counts[i]})
			d.counts[i] = 0
		}
		d.used[w] = 0
	}
}
