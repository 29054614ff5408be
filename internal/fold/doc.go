// Copyright The otelcol-stream Authors
// SPDX-License-Identifier: Apache-2.0

// Package fold keeps the chunk spans of streams whose parent span has not come yet. A chunk span is reduced to its instant and to what
// the summary needs besides; only until a stream's chunk spans show that it is one are the spans themselves kept, so that a response
// that turns out to be no stream gives back what it was made of.
//
// The store is bounded and has no clock: time is passed in, as nanoseconds on any monotonic scale. It decides what is due and what has
// to give way; sending it, and putting it back when that fails, is its user's part. It sits beside dialect and cadence, below streamspan.
package fold
