// Copyright The otelcol-stream Authors
// SPDX-License-Identifier: Apache-2.0

package streamconnector

import (
	"hash/maphash"
	"math"
	"strings"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"
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

// notSaid is the value of an attribute that the GenAI conventions require and the span does not have.
const notSaid = "_OTHER"

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
}

type valueKind uint8

const (
	absent valueKind = iota
	isString
	isInt
	isDouble
	isBool
)

func stringValue(s string) value { return value{kind: isString, str: s} }

// valueOf reads an attribute. Lists, maps and bytes become their text.
func valueOf(v pcommon.Value) value {
	switch v.Type() {
	case pcommon.ValueTypeEmpty:
		return value{}
	case pcommon.ValueTypeStr:
		return stringValue(v.Str())
	case pcommon.ValueTypeInt:
		return value{kind: isInt, bits: uint64(v.Int())}
	case pcommon.ValueTypeDouble:
		return value{kind: isDouble, bits: math.Float64bits(v.Double())}
	case pcommon.ValueTypeBool:
		if v.Bool() {
			return value{kind: isBool, bits: 1}
		}
		return value{kind: isBool}
	default:
		return stringValue(v.AsString())
	}
}

// put writes the attribute unless it is absent.
func (v value) put(m pcommon.Map, key string) {
	switch v.kind {
	case isString:
		m.PutStr(key, v.str)
	case isInt:
		m.PutInt(key, int64(v.bits))
	case isDouble:
		m.PutDouble(key, math.Float64frombits(v.bits))
	case isBool:
		m.PutBool(key, v.bits != 0)
	}
}

// owned returns the value with memory of its own, so that a series does not keep the text it was cut from.
func (v value) owned() value {
	v.str = strings.Clone(v.str)
	return v
}

var hashSeed = maphash.MakeSeed()

func (v value) hash() uint64 {
	h := v.bits*0x9e3779b97f4a7c15 ^ uint64(v.kind)
	if v.kind == isString {
		h ^= maphash.String(hashSeed, v.str)
	}
	return h
}

// mix takes the hash of the next value into h. Multiplying first makes the order count.
func mix(h, next uint64) uint64 {
	h ^= h >> 32
	return h*0xd6e8feb86659fd93 + next
}

// span attributes that are looked for, found in one pass. Their number is small and fixed when the connector starts.
type wanted struct {
	keys []string
	// byLength holds, per length, the keys of that length: most attributes of a span are told apart by it without a look at their text.
	byLength [64][]wantedKey
}

type wantedKey struct {
	key  string
	slot int
}

// slot returns the position of the key among the wanted ones, which it joins if it is new.
func (w *wanted) slot(key string) int {
	at := len(key) % len(w.byLength)
	for _, k := range w.byLength[at] {
		if k.key == key {
			return k.slot
		}
	}
	slot := len(w.keys)
	w.keys = append(w.keys, key)
	w.byLength[at] = append(w.byLength[at], wantedKey{key, slot})
	return slot
}

// read fills found, which has one element per wanted key.
func (w *wanted) read(attrs pcommon.Map, found []value) {
	clear(found)
	for key, v := range attrs.All() {
		for _, k := range w.byLength[len(key)%len(w.byLength)] {
			if k.key == key {
				found[k.slot] = valueOf(v)
			}
		}
	}
}

var kindNames = [...]string{
	ptrace.SpanKindUnspecified: "SPAN_KIND_UNSPECIFIED",
	ptrace.SpanKindInternal:    "SPAN_KIND_INTERNAL",
	ptrace.SpanKindServer:      "SPAN_KIND_SERVER",
	ptrace.SpanKindClient:      "SPAN_KIND_CLIENT",
	ptrace.SpanKindProducer:    "SPAN_KIND_PRODUCER",
	ptrace.SpanKindConsumer:    "SPAN_KIND_CONSUMER",
}

func kindName(k ptrace.SpanKind) string {
	if k < 0 || int(k) >= len(kindNames) {
		k = ptrace.SpanKindUnspecified
	}
	return kindNames[k]
}
