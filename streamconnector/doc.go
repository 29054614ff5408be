// Copyright The otelcol-stream Authors
// SPDX-License-Identifier: Apache-2.0

//go:generate mdatagen metadata.yaml

// Package streamconnector turns spans that describe streamed responses into chunk-cadence metrics: time to first chunk, gaps between
// chunks, stalls, tokens per chunk, what a reader felt, and open streams.
package streamconnector
