// Copyright The otelcol-stream Authors
// SPDX-License-Identifier: Apache-2.0

// Package cadence turns the instants at which the chunks of one streamed response were delivered into a Summary: gaps, stalls, jitter,
// burst shape, rates and what a reader would have felt. It is pure arithmetic: it knows nothing of spans, of the Collector or of who
// recorded the instants, so that a number on a span and the same number in a metric come from the same lines.
//
// All instants are nanoseconds since the Unix epoch; all durations in a Summary are seconds.
package cadence

import "time"

// Quality says how much of a stream's cadence is known.
type Quality uint8

const (
	// QualityNone: neither instants nor counts.
	QualityNone Quality = iota
	// QualityMean: only counts, or a mean gap that the instrumentation itself reported.
	QualityMean
	// QualityPartial: a window of the instants.
	QualityPartial
	// QualityExact: every instant.
	QualityExact
)

// String returns the value of the attribute stream.cadence.quality.
func (q Quality) String() string {
	return [...]string{"none", "mean", "partial", "exact"}[q]
}

// Value is a number that may be absent. Absent is not zero: a stream of one chunk has no gaps, which differs from gaps of 0 s.
type Value struct {
	V  float64
	OK bool
}

// Of returns a present Value.
func Of(v float64) Value { return Value{V: v, OK: true} }

// Settings are the thresholds of the measures that need one.
type Settings struct {
	// StallThreshold is the shortest gap that counts as a stall.
	StallThreshold time.Duration
	// HeadWindow is W of the head burst: the time after the first chunk in which a burst is looked for.
	HeadWindow time.Duration
	// FluidityDeadline is the time allowed per token before a deadline counts as missed.
	FluidityDeadline time.Duration
	// ReaderRate is the reading speed of the playhead model in tokens per second.
	ReaderRate float64
}

// DefaultSettings returns the defaults of the configuration block `cadence`.
func DefaultSettings() Settings {
	return Settings{StallThreshold: time.Second, HeadWindow: 200 * time.Millisecond, FluidityDeadline: 100 * time.Millisecond, ReaderRate: 10}
}

// Stream is what is known of one streamed response.
type Stream struct {
	// First is the first-chunk instant f; meaningful when FirstKnown.
	First      int64
	FirstKnown bool
	// End is the end of the span.
	End int64
	// Instants are the chunk instants in ascending order, ties kept. Summarize does not change or keep the slice.
	Instants []int64
	// Missing is the number of chunks that are known to have been delivered at instants that were lost (dropped span events, chunks
	// beyond a limit). More than 0 makes the cadence partial.
	Missing int64
	// Truncated says that instants were lost, though how many is not known. It makes the cadence partial like Missing does.
	Truncated bool
	// NewestKept says, of a partial stream, that the last of the Instants is the last chunk of the stream.
	NewestKept bool
	// Beyond accounts for chunks whose instants were seen but not kept; nil without such chunks. They follow the Instants and make the
	// cadence partial.
	Beyond *Beyond
	// Count is a chunk count reported by the instrumentation, used only when there are no Instants; 0 when unknown.
	Count int64
	// MeanGap is a mean gap in seconds that the instrumentation itself reports, used only when there are no Instants.
	MeanGap Value
	// Tokens is the number of output tokens, TokensKnown false when nobody said.
	Tokens      int64
	TokensKnown bool
	// Bytes is the sum of the chunk sizes, BytesKnown false when sizes were not recorded.
	Bytes      int64
	BytesKnown bool
}

// Summary is the cadence of one stream. Its fields correspond one to one to the stream.* attributes of the stream span.
type Summary struct {
	Quality    Quality
	ChunkCount int64 // chunks seen plus those known to be missing; 0 when unknown
	Tail       Value // s

	GapMean, GapP50, GapP95, GapP99, GapMax, GapStddev, GapJitter Value // s
	// Histogram holds every known gap, those of Stream.Beyond too; GapMean and GapMax are of the same gaps, so that GapMean times
	// Histogram.Count() is the sum of all gaps. Empty without gaps.
	Histogram Histogram

	// StallCount is meaningful when Stalls is true, that is whenever there are gaps.
	Stalls                     bool
	StallCount                 int64
	StallDuration, StallOffset Value // s

	HeadBurst   Value // ratio; about 1 or less is even
	PeakRate    Value // chunks in the busiest second
	TokenCount  int64 // meaningful when TokensKnown
	TokensKnown bool
	ChunkTokens Value // tokens per chunk
	TokenRate   Value // tokens per second
	Fluidity    Value // 0..1
	ReaderWait  Value // s
	ByteCount   int64 // meaningful when BytesKnown
	BytesKnown  bool
	ChunkBytes  Value // bytes per chunk
}
