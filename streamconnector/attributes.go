// Copyright The otelcol-stream Authors
// SPDX-License-Identifier: Apache-2.0

package streamconnector

import (
	"hash/maphash"
	"math"
	"slices"
	"strings"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/otelcol-stream/otelcol-stream/internal/cadence"
	"github.com/otelcol-stream/otelcol-stream/internal/dialect"
)

// Attributes of the metrics. Those of the GenAI conventions are read under the same names.
const (
	attrSpanKind   = "span.kind"
	attrDialect    = "stream.dialect"
	attrOutcome    = "stream.outcome"
	attrQuality    = "stream.cadence.quality"
	attrFirstChunk = "stream.first_chunk"
	attrOverflow   = "otel.metric.overflow"

	attrProvider      = "gen_ai.provider.name"
	attrSystem        = "gen_ai.system" // what gen_ai.provider.name was called before
	attrRequestModel  = "gen_ai.request.model"
	attrResponseModel = "gen_ai.response.model"
	attrOperation     = "gen_ai.operation.name"
	attrServerAddress = "server.address"
	attrServerPort    = "server.port"
	attrErrorType     = "error.type"
	attrRequestStream = "gen_ai.request.stream"
)

func isOwnAttribute(name string) bool {
	switch name {
	case attrSpanKind, attrDialect, attrOutcome, attrQuality, attrFirstChunk, attrOverflow, attrProvider, attrRequestModel:
		return true
	}
	return false
}

// value is an attribute value that can be compared and that refers to no pdata. The zero value is no attribute.
type value struct {
	kind valueKind
	bits uint64 // of an int, a double, a bool
	str  string
	hash uint64 // of the rest; kept because a value is part of the keys of several families
}

type valueKind uint8

const (
	absent valueKind = iota
	isString
	isInt
	isDouble
	isBool
)

var hashSeed = maphash.MakeSeed()

func stringValue(s string) (x value) {
	x.setString(s)
	return x
}

// setString and the other setters fill a value in place, field by field. To return one and assign it costs a copy that has to wait for its
// parts to be stored: a tenth of the time of a stream.
func (x *value) setString(s string) {
	x.kind, x.bits, x.str, x.hash = isString, 0, s, maphash.String(hashSeed, s)
}

func (x *value) setNumber(kind valueKind, bits uint64) {
	x.kind, x.bits, x.str, x.hash = kind, bits, "", (bits+uint64(kind))*0x9e3779b97f4a7c15
}

func (x *value) clear() { x.kind, x.bits, x.str, x.hash = absent, 0, "", 0 }

// set reads an attribute; the zero Value is none. Lists, maps and bytes become their text.
func (x *value) set(v pcommon.Value) {
	if v == (pcommon.Value{}) {
		x.clear()
		return
	}
	switch v.Type() {
	case pcommon.ValueTypeEmpty:
		x.clear()
	case pcommon.ValueTypeStr:
		x.setString(v.Str())
	case pcommon.ValueTypeInt:
		x.setNumber(isInt, uint64(v.Int()))
	case pcommon.ValueTypeDouble:
		x.setNumber(isDouble, math.Float64bits(v.Double()))
	case pcommon.ValueTypeBool:
		bits := uint64(0)
		if v.Bool() {
			bits = 1
		}
		x.setNumber(isBool, bits)
	default:
		x.setString(v.AsString())
	}
}

// setNonEmpty makes the value absent when the string is empty.
func (x *value) setNonEmpty(s string) {
	if s == "" {
		x.clear()
		return
	}
	x.setString(s)
}

// put writes the attribute unless it is absent.
func (x value) put(m pcommon.Map, key string) {
	switch x.kind {
	case isString:
		m.PutStr(key, x.str)
	case isInt:
		m.PutInt(key, int64(x.bits))
	case isDouble:
		m.PutDouble(key, math.Float64frombits(x.bits))
	case isBool:
		m.PutBool(key, x.bits != 0)
	}
}

// owned returns the value with memory of its own, so that a series does not keep the text it was cut from.
func (x value) owned() value {
	x.str = strings.Clone(x.str)
	return x
}

// mix takes the hash of the next value into h. Multiplying first makes the order count.
func mix(h, next uint64) uint64 {
	h ^= h >> 32
	return h*0xd6e8feb86659fd93 + next
}

// wanted is the list of attributes that are looked for, all in one pass. It is fixed when the connector starts.
type wanted []string

// slot returns the position of the key among the wanted ones, which it joins if it is new.
func (w *wanted) slot(key string) int {
	if slot := slices.Index(*w, key); slot >= 0 {
		return slot
	}
	*w = append(*w, key)
	return len(*w) - 1
}

// read fills found, which has one element per wanted key.
func (w wanted) read(attrs pcommon.Map, found []value) {
	clear(found)
	for key, v := range attrs.All() {
		if slot := slices.Index(w, key); slot >= 0 {
			found[slot].set(v)
		}
	}
}

// Values of the attributes that we write ourselves, made once.
var (
	kinds = [...]value{
		ptrace.SpanKindUnspecified: stringValue("SPAN_KIND_UNSPECIFIED"),
		ptrace.SpanKindInternal:    stringValue("SPAN_KIND_INTERNAL"),
		ptrace.SpanKindServer:      stringValue("SPAN_KIND_SERVER"),
		ptrace.SpanKindClient:      stringValue("SPAN_KIND_CLIENT"),
		ptrace.SpanKindProducer:    stringValue("SPAN_KIND_PRODUCER"),
		ptrace.SpanKindConsumer:    stringValue("SPAN_KIND_CONSUMER"),
	}
	outcomeCompleted  = stringValue(string(dialect.OutcomeCompleted))
	outcomeIncomplete = stringValue(string(dialect.OutcomeIncomplete))
	outcomeCancelled  = stringValue(string(dialect.OutcomeCancelled))
	outcomeError      = stringValue(string(dialect.OutcomeError))
	outcomeUnknown    = stringValue(string(dialect.OutcomeUnknown))
	qualities         = [...]value{
		cadence.QualityNone:    stringValue(cadence.QualityNone.String()),
		cadence.QualityMean:    stringValue(cadence.QualityMean.String()),
		cadence.QualityPartial: stringValue(cadence.QualityPartial.String()),
		cadence.QualityExact:   stringValue(cadence.QualityExact.String()),
	}
	firstChunkKnown, firstChunkUnknown, firstChunkNone = stringValue("known"), stringValue("unknown"), stringValue("none")

	// notSaid stands for an attribute that the GenAI conventions require and the span does not have.
	notSaid = stringValue("_OTHER")
)
