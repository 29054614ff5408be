// Copyright The otelcol-stream Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !race

package streamconnector

const raceEnabled = false
