// Copyright The otelcol-stream Authors
// SPDX-License-Identifier: Apache-2.0

// Package dialect knows how instrumentations write a streamed response into a span. Its knowledge is a table: an attribute key, an event
// name or a span name maps to what it means (a role), its unit and how far it can be trusted. One pass over a span collects Evidence; one
// decision applies the precedence of the table's order. Adding an instrumentation is adding rows, and users add rows from the
// configuration.
//
// The package does no arithmetic on gaps and changes no span: it says whether a span streams, where its first chunk lies and which of its
// events are chunks.
package dialect
