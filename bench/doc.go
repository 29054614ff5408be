// Copyright The otelcol-stream Authors
// SPDX-License-Identifier: Apache-2.0

// Package bench measures the processor and the connector beside their peers, through their factories and on the same payloads. README.md
// says how to run it and how to read it.
package bench
