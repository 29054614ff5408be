// Copyright The otelcol-stream Authors
// SPDX-License-Identifier: Apache-2.0

package streamprocessor

// HistogramRule is one rule of re-bucketing.
type HistogramRule struct{}
