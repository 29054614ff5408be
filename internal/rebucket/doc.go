// Copyright The otelcol-stream Authors
// SPDX-License-Identifier: Apache-2.0

// Package rebucket converts histogram counts from one bucket layout to another.
//
// A histogram says how many observations lie between two bounds, not where between them. A conversion is therefore exact
// exactly where a target bound is also a source bound, and a guess where it is not; the error of the cumulative count at such
// a bound is at most the count of the one source bucket around it. The package makes that difference visible: a [Plan] knows
// which of its bounds are exact and which source bucket each other bound depends on, and every conversion returns a
// [Certainty].
//
// A plan is a linear map that depends on the two layouts alone. That keeps the total, commutes with adding histograms, and
// works alike on delta and cumulative counts. To stay in integers without ever lowering a bucket of a growing histogram (which
// Prometheus reads as a counter reset), the count of a source bucket is halved recursively: of n observations spread over some
// target buckets, the left half of those gets ⌊n·p + ½⌋ and the right half the rest. Both are non-decreasing in n for every
// share p in [0, 1], and so are all compositions and sums of such steps; rounding every bucket, or every prefix sum, is not.
//
// Rounding each point of a delta stream alone would put every single observation into the same half of its bucket. [Carry]
// keeps the remainders between points instead.
//
// Nothing here knows about OTLP messages; the package imports nothing of the Collector.
package rebucket
