// Copyright The otelcol-stream Authors
// SPDX-License-Identifier: Apache-2.0

//go:generate mdatagen metadata.yaml

// Package streamprocessor finds spans that describe a streamed response, splits each into a request span and a stream span, and replaces
// their per-chunk records by an exact cadence summary. In metrics pipelines it re-buckets latency histograms.
package streamprocessor
