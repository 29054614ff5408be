// Copyright The otelcol-stream Authors
// SPDX-License-Identifier: Apache-2.0

package streamconnector

import (
	"math"

	"github.com/otelcol-stream/otelcol-stream/internal/cadence"
	"github.com/otelcol-stream/otelcol-stream/internal/streamspan"
)

// valueID names a number that one stream gives. A metric is a name, a unit and one of these.
type valueID uint8

const (
	valueTimeToFirstChunk valueID = iota
	valueDuration
	valueGapMax
	valueChunkCount
	valueChunkTokens
	valueTokenRate
	valueHeadBurst
	valueFluidity
	valueReaderWait
	valueOpen // t1 − t0
	valueOne
	valueStallCount
	valueStallDuration
	numValues
)

// values are the numbers of one stream; NaN is absent.
type values [numValues]float64

// maxValue is beyond anything that can be measured: 31 million years. Without it a span with a duration of 1e308 s would turn a sum into
// infinity for good.
const maxValue = 1e15

// maxStalls is the same for a count that is multiplied by a weight.
const maxStalls = 1 << 36

// fill reads the numbers of one stream and returns how many of them make no sense. open is t1 − t0.
func (v *values) fill(r *streamspan.Record, open cadence.Value) (refused int64) {
	c := &r.Cadence
	take := func(id valueID, value cadence.Value) {
		switch {
		case !value.OK:
			v[id] = math.NaN()
		case value.V >= 0 && value.V <= maxValue:
			v[id] = value.V
		default:
			v[id] = math.NaN()
			refused++
		}
	}
	take(valueTimeToFirstChunk, r.TimeToFirstChunk)
	take(valueDuration, r.Duration)
	take(valueGapMax, c.GapMax)
	take(valueChunkCount, cadence.Value{V: float64(c.ChunkCount), OK: c.ChunkCount > 0})
	take(valueChunkTokens, c.ChunkTokens)
	take(valueTokenRate, c.TokenRate)
	take(valueHeadBurst, c.HeadBurst)
	take(valueFluidity, c.Fluidity)
	take(valueReaderWait, c.ReaderWait)
	take(valueOpen, open)
	v[valueOne] = 1
	// Streams without a stall count as 0, so that the series are there before the first stall.
	stalls, stalled := cadence.Value{V: float64(c.StallCount), OK: c.Stalls}, c.StallDuration
	if c.Stalls && !stalled.OK {
		stalled = cadence.Of(0)
	}
	if c.StallCount > maxStalls {
		stalls.V = math.Inf(1)
	}
	take(valueStallCount, stalls)
	take(valueStallDuration, stalled)
	return refused
}

// powersOfTwo is the ladder 2^from … 2^to. Its bounds are exact in every base-2 exponential histogram, which is how gaps arrive and how
// our own exponential histograms are read.
func powersOfTwo(from, to int) []float64 {
	var bounds []float64
	for e := from; e <= to; e++ {
		bounds = append(bounds, math.Ldexp(1, e))
	}
	return bounds
}

var (
	// gapLadder fits waiting: from 1 ms, which is a chunk in the same packet, to 64 s, which is past the usual idle timeout.
	gapLadder = powersOfTwo(-10, 6)
	// durationLadder fits bodies: from an answer of a few words to more than an hour.
	durationLadder = powersOfTwo(-3, 12)
	// chunkCountLadder: from an answer in one piece to one of 16,384 chunks, an answer of a model's full output one token at a time.
	chunkCountLadder = powersOfTwo(0, 14)
	// chunkTokensLadder: below 1 are chunks without text (tool calls, envelopes); 4 to 1 is two bounds; 512 is an answer in one piece.
	chunkTokensLadder = powersOfTwo(-2, 9)
	// tokenRateLadder: a reader's pace is 4 to 16 tokens a second, and the fastest hardware gives some thousands.
	tokenRateLadder = powersOfTwo(-1, 12)
	// headBurstLadder: 1 is even. The most that a stream of s seconds can reach is s / head_window, 300 for a minute.
	headBurstLadder = powersOfTwo(-2, 8)
	// fluidityLadder is dense where it matters. Etalon calls a stream fluid from 0.9 on; its share is the mass above that bound.
	fluidityLadder = []float64{0, 0.25, 0.5, 0.75, 0.875, 0.9, 0.95, 0.99}
	// readerWaitLadder keeps those who never waited, which should be most, apart from those who waited a little.
	readerWaitLadder = append([]float64{0}, powersOfTwo(-5, 7)...)
	// genAILadder is the one of the GenAI semantic conventions: 0.01 · 2^k.
	genAILadder = []float64{0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92}
)

// instrument is one metric.
type instrument struct {
	name, unit, description string
	value                   valueID
	// ladder makes it a histogram with these bounds unless configured otherwise, nil a sum.
	ladder []float64
	// gaps, of a histogram, records every gap of a stream; value then is what an exemplar shows.
	gaps bool
	// integer makes a sum one of whole numbers.
	integer bool
}

// streamInstruments have the attributes common to all metrics of the namespace.
var streamInstruments = []instrument{
	{name: "time_to_first_chunk", unit: "s", value: valueTimeToFirstChunk, ladder: gapLadder, description: "Time from the start of the span to the first chunk."},
	{name: "duration", unit: "s", value: valueDuration, ladder: durationLadder, description: "Time from the first chunk to the end of the span."},
	{name: "chunk.gap", unit: "s", value: valueGapMax, ladder: gapLadder, gaps: true, description: "Time between two successive chunks: every gap of every stream."},
	{name: "chunk.gap.max", unit: "s", value: valueGapMax, ladder: gapLadder, description: "Longest time between two successive chunks of a stream."},
	{name: "chunk.count", unit: "{chunk}", value: valueChunkCount, ladder: chunkCountLadder, description: "Chunks of a stream."},
	{name: "chunk.tokens", unit: "{token}", value: valueChunkTokens, ladder: chunkTokensLadder, description: "Output tokens per chunk of a stream."},
	{name: "token.rate", unit: "{token}/s", value: valueTokenRate, ladder: tokenRateLadder, description: "Output tokens per second after the first."},
	{name: "head_burst", unit: "1", value: valueHeadBurst, ladder: headBurstLadder, description: "Chunks shortly after the first, relative to an even stream; about 1 or less is even."},
	{name: "fluidity", unit: "1", value: valueFluidity, ladder: fluidityLadder, description: "Share of the chunks that met their deadline (fluidity index)."},
	{name: "reader.wait", unit: "s", value: valueReaderWait, ladder: readerWaitLadder, description: "Time in which a reader had nothing left to read, after the first chunk."},
	{name: "stall.count", unit: "{stall}", value: valueStallCount, integer: true, description: "Gaps of at least the stall threshold."},
	{name: "stall.duration", unit: "s", value: valueStallDuration, description: "Sum of the gaps of at least the stall threshold."},
	{name: "active_time", unit: "s", value: valueOpen, description: "Time from start to end of the streams that ended; its rate is the mean number of open streams."},
}

// countInstruments have the outcome and what is known of the stream as attributes besides.
var countInstruments = []instrument{
	{name: "count", unit: "{stream}", value: valueOne, integer: true, description: "Streams that ended."},
}

// genAIInstruments and genAIDurationInstruments are those of the GenAI semantic conventions.
var (
	genAIInstruments = []instrument{
		{name: "time_to_first_chunk", unit: "s", value: valueTimeToFirstChunk, ladder: genAILadder, description: "Time to receive the first chunk of a streaming GenAI operation."},
		{name: "time_per_output_chunk", unit: "s", value: valueGapMax, ladder: genAILadder, gaps: true, description: "Time per output chunk of a streaming GenAI operation, after the first."},
	}
	genAIDurationInstruments = []instrument{
		{name: "duration", unit: "s", value: valueOpen, ladder: genAILadder, description: "Duration of a streaming GenAI operation."},
	}
)
