// Copyright The otelcol-stream Authors
// SPDX-License-Identifier: Apache-2.0

// Package streamspan joins dialect and cadence to spans: it finds the streaming spans of a batch, tells which of them describe the same
// call, splits each into a request span and a stream span, and writes and reads the stream.* attributes. Processor and connector both
// work through it, so that the number on a span and the same number in a metric cannot disagree.
package streamspan
