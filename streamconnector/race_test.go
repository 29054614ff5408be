// Copyright The otelcol-stream Authors
// SPDX-License-Identifier: Apache-2.0

//go:build race

package streamconnector

// raceEnabled: under the race detector a sync.Pool drops some of what it is given, so allocations say nothing.
const raceEnabled = true
