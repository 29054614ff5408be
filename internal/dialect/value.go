// Copyright The otelcol-stream Authors
// SPDX-License-Identifier: Apache-2.0

package dialect

import (
	"encoding/json"
	"math"
	"strconv"
	"strings"
	"time"

	"go.opentelemetry.io/collector/pdata/pcommon"
)

// maxJSON bounds the JSON texts that are looked into: a prompt may come along in one.
const maxJSON = 1 << 20

// boolOf reads a flag written as a boolean or as the text of one.
func boolOf(v pcommon.Value) (value, ok bool) {
	switch v.Type() {
	case pcommon.ValueTypeBool:
		return v.Bool(), true
	case pcommon.ValueTypeStr:
		switch s := strings.TrimSpace(v.Str()); {
		case strings.EqualFold(s, "true"):
			return true, true
		case strings.EqualFold(s, "false"):
			return false, true
		}
	default:
	}
	return false, false
}

// numberOf reads a number written as a number or as the text of one.
func numberOf(v pcommon.Value) (float64, bool) {
	switch v.Type() {
	case pcommon.ValueTypeInt:
		return float64(v.Int()), true
	case pcommon.ValueTypeDouble:
		return v.Double(), true
	case pcommon.ValueTypeStr:
		f, err := strconv.ParseFloat(strings.TrimSpace(v.Str()), 64)
		return f, err == nil
	default:
		return 0, false
	}
}

// countOf reads a count, which is neither negative nor beyond what a double holds exactly.
func countOf(v pcommon.Value) (int64, bool) {
	f, ok := numberOf(v)
	if !ok || !(f >= 0 && f <= 1<<53) {
		return 0, false
	}
	return int64(f), true
}

var unitNanos = map[Unit]float64{UnitSeconds: 1e9, UnitMilliseconds: 1e6, UnitMicroseconds: 1e3, UnitNanoseconds: 1}

// durationOf reads a time to first chunk in nanoseconds. limit is the duration of the span, which settles a unit that is not known.
func durationOf(v pcommon.Value, row *compiledAttr, limit int64) (int64, bool) {
	if v.Type() == pcommon.ValueTypeStr {
		// Text with a unit of its own, as Rust's Debug and Go's String write durations.
		if d, err := time.ParseDuration(strings.TrimSpace(v.Str())); err == nil {
			return int64(d), d >= 0
		}
	}
	f, ok := numberOf(v)
	if !ok || math.IsNaN(f) || f < 0 {
		return 0, false
	}
	unit := row.Unit
	if row.intMillis && v.Type() == pcommon.ValueTypeInt {
		unit = UnitMilliseconds
	}
	if unit == UnitAuto {
		unit = largestUnit(f, limit)
	}
	ns := f * unitNanos[unit]
	if ns > math.MaxInt64/2 {
		return 0, false
	}
	return int64(math.Round(ns)), true
}

// largestUnit is the rule for keys whose unit is not known: the largest unit under which the value fits into the span.
func largestUnit(f float64, limit int64) Unit {
	for _, u := range []Unit{UnitSeconds, UnitMilliseconds, UnitMicroseconds} {
		if f*unitNanos[u] <= float64(limit) {
			return u
		}
	}
	return UnitNanoseconds
}

// instantLayouts are the forms of ISO 8601 in use: with a T or, as Python's str writes it, a space; with an offset of hours and minutes, with
// or without a colon (strftime and Java leave it out), of hours, or with none, which is read as UTC.
var instantLayouts = []string{
	time.RFC3339Nano, "2006-01-02T15:04:05.999999999", "2006-01-02T15:04:05.999999999Z0700", "2006-01-02T15:04:05.999999999Z07",
	"2006-01-02 15:04:05.999999999Z07:00", "2006-01-02 15:04:05.999999999", "2006-01-02 15:04:05.999999999Z0700", "2006-01-02 15:04:05.999999999Z07",
}

// instantOf reads an absolute time: ISO 8601, bare or inside JSON quotes, or a unix time of any resolution.
func instantOf(v pcommon.Value) (int64, bool) {
	if v.Type() == pcommon.ValueTypeStr {
		s := strings.Trim(strings.TrimSpace(v.Str()), `"`)
		for _, layout := range instantLayouts {
			if t, err := time.Parse(layout, s); err == nil {
				if y := t.Year(); y < 1971 || y > 2261 {
					return 0, false
				}
				return t.UnixNano(), true
			}
		}
		if n, err := strconv.ParseInt(s, 10, 64); err == nil {
			return unixNanosInt(n)
		}
		f, err := strconv.ParseFloat(s, 64)
		return unixNanos(f), err == nil && unixNanos(f) > 0
	}
	if v.Type() == pcommon.ValueTypeInt {
		return unixNanosInt(v.Int())
	}
	f, ok := numberOf(v)
	return unixNanos(f), ok && unixNanos(f) > 0
}

// unixNanosInt keeps what a double of nanoseconds would round to 256 of them.
func unixNanosInt(n int64) (int64, bool) {
	if n >= 1e17 && n < 9e18 {
		return n, true
	}
	at := unixNanos(float64(n))
	return at, at > 0
}

// unixNanos scales a unix time to nanoseconds by its magnitude: seconds stay below 1e11 until the year 5138. 0 when it is none.
func unixNanos(f float64) int64 {
	switch {
	case !(f >= 1e8 && f < 9e18):
		return 0
	case f < 1e11:
		return int64(math.Round(f * 1e9))
	case f < 1e14:
		return int64(math.Round(f * 1e6))
	case f < 1e17:
		return int64(math.Round(f * 1e3))
	default:
		return int64(f)
	}
}

// jsonFlag reads the member "stream" of a JSON object. The search for the quoted word comes first, since few texts hold it.
func jsonFlag(s string) (value, ok bool) {
	if len(s) > maxJSON || !strings.Contains(s, `"stream"`) {
		return false, false
	}
	var o struct {
		Stream *bool `json:"stream"`
	}
	if json.Unmarshal([]byte(s), &o) != nil || o.Stream == nil {
		return false, false
	}
	return *o.Stream, true
}

// jsonTokens reads the output tokens out of a JSON object of usage.
func jsonTokens(s string) (int64, bool) {
	if len(s) > maxJSON {
		return 0, false
	}
	var o struct {
		Output           *float64 `json:"output"`
		OutputTokens     *float64 `json:"output_tokens"`
		CompletionTokens *float64 `json:"completion_tokens"`
	}
	if json.Unmarshal([]byte(s), &o) != nil {
		return 0, false
	}
	for _, f := range []*float64{o.Output, o.OutputTokens, o.CompletionTokens} {
		if f != nil && *f >= 0 && *f <= 1<<53 {
			return int64(*f), true
		}
	}
	return 0, false
}

// streamingTypes are the media types that only a streamed response has.
var streamingTypes = []string{"text/event-stream", "application/x-ndjson", "application/ndjson", "application/stream+json", "application/jsonl", "application/vnd.amazon.eventstream"}

func isStreamingType(v pcommon.Value) bool {
	switch v.Type() {
	case pcommon.ValueTypeSlice:
		for _, e := range v.Slice().All() {
			if e.Type() == pcommon.ValueTypeStr && isStreamingType(e) {
				return true
			}
		}
		return false
	case pcommon.ValueTypeStr:
		s := v.Str()
		if len(s) > 1024 {
			return false
		}
		s = strings.ToLower(s)
		for _, t := range streamingTypes {
			if strings.Contains(s, t) {
				return true
			}
		}
		return false
	default:
		return false
	}
}

// eachReason calls f for every finish reason in v: a text, a JSON array of texts, or an array.
func eachReason(v pcommon.Value, f func(string)) {
	switch v.Type() {
	case pcommon.ValueTypeSlice:
		for _, e := range v.Slice().All() {
			if e.Type() == pcommon.ValueTypeStr && e.Str() != "" {
				f(e.Str())
			}
		}
	case pcommon.ValueTypeStr:
		s := strings.TrimSpace(v.Str())
		if strings.HasPrefix(s, "[") && len(s) <= maxJSON {
			var list []string
			if json.Unmarshal([]byte(s), &list) == nil {
				for _, e := range list {
					if e != "" {
						f(e)
					}
				}
				return
			}
		}
		if s = strings.Trim(s, `"`); s != "" && s != "null" && s != "None" {
			f(s)
		}
	default:
	}
}

// eachMessageReason calls f for every finish reason in a JSON array of output messages as the GenAI convention has them. The search for the
// quoted word comes first, since the texts of the messages come along.
func eachMessageReason(s string, f func(string)) {
	if len(s) > maxJSON || !strings.Contains(s, `"finish_reason"`) {
		return
	}
	var messages []struct {
		FinishReason string `json:"finish_reason"`
	}
	if json.Unmarshal([]byte(s), &messages) != nil {
		return
	}
	for _, m := range messages {
		if m.FinishReason != "" {
			f(m.FinishReason)
		}
	}
}
