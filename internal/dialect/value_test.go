// Copyright The otelcol-stream Authors
// SPDX-License-Identifier: Apache-2.0

package dialect

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"
)

func valueOf(t testing.TB, v any) pcommon.Value {
	t.Helper()
	out := pcommon.NewValueEmpty()
	require.NoError(t, out.FromRaw(v))
	return out
}

func TestBoolOf(t *testing.T) {
	for _, tt := range []struct {
		v      any
		on, ok bool
	}{
		{true, true, true},
		{false, false, true},
		{"true", true, true},
		{"True", true, true},
		{" TRUE ", true, true},
		{"false", false, true},
		{"False", false, true},
		{"", false, false},
		{"yes", false, false},
		{"1", false, false},
		{1, false, false},
		{1.0, false, false},
		{nil, false, false},
	} {
		on, ok := boolOf(valueOf(t, tt.v))
		assert.Equal(t, tt.on, on, "%v", tt.v)
		assert.Equal(t, tt.ok, ok, "%v", tt.v)
	}
}

func TestDurationOf(t *testing.T) {
	const second = int64(time.Second)
	for _, tt := range []struct {
		v    any
		row  AttributeRow
		want int64
		ok   bool
	}{
		{0.25, AttributeRow{Unit: UnitSeconds}, 250_000_000, true},
		{250, AttributeRow{Unit: UnitMilliseconds}, 250_000_000, true},
		{"0.25", AttributeRow{Unit: UnitSeconds}, 250_000_000, true},
		{"0", AttributeRow{Unit: UnitSeconds}, 0, true},
		{"0s", AttributeRow{Unit: UnitSeconds}, 0, true},
		{"1.2s", AttributeRow{Unit: UnitMilliseconds}, 1_200_000_000, true},
		{"12.3ms", AttributeRow{Unit: UnitSeconds}, 12_300_000, true},
		{"850µs", AttributeRow{Unit: UnitSeconds}, 850_000, true},
		{0, AttributeRow{Unit: UnitSeconds}, 0, true},
		{3, AttributeRow{Unit: UnitSeconds, intMillis: true}, 3_000_000, true},
		{3.0, AttributeRow{Unit: UnitSeconds, intMillis: true}, 3_000_000_000, true},
		// 10 s is the length of the span: what fits in seconds is seconds.
		{10.0, AttributeRow{}, 10 * second, true},
		{10.1, AttributeRow{}, 10_100_000, true},
		{10_001.0, AttributeRow{}, 10_001_000, true},
		{20_000_000.0, AttributeRow{}, 20_000_000, true},
		{1e15, AttributeRow{}, 1e15, true},
		{-0.25, AttributeRow{Unit: UnitSeconds}, 0, false},
		{"-1s", AttributeRow{Unit: UnitSeconds}, 0, false},
		{math.NaN(), AttributeRow{Unit: UnitSeconds}, 0, false},
		{math.NaN(), AttributeRow{}, 0, false},
		{math.Inf(1), AttributeRow{Unit: UnitSeconds}, 0, false},
		{math.Inf(1), AttributeRow{}, 0, false},
		{math.MaxFloat64, AttributeRow{Unit: UnitSeconds}, 0, false},
		{int64(math.MaxInt64), AttributeRow{Unit: UnitSeconds}, 0, false},
		{"", AttributeRow{Unit: UnitSeconds}, 0, false},
		{"fast", AttributeRow{Unit: UnitSeconds}, 0, false},
		{true, AttributeRow{Unit: UnitSeconds}, 0, false},
		{[]any{0.25}, AttributeRow{Unit: UnitSeconds}, 0, false},
		{nil, AttributeRow{Unit: UnitSeconds}, 0, false},
	} {
		got, ok := durationOf(valueOf(t, tt.v), &compiledAttr{AttributeRow: tt.row}, 10*second)
		assert.Equal(t, tt.ok, ok, "%v", tt.v)
		if tt.ok {
			assert.Equal(t, tt.want, got, "%v", tt.v)
		}
	}
}

func TestInstantOf(t *testing.T) {
	const want = int64(1_780_000_000_400_000_000) // 2026-05-28T20:26:40.4Z
	for v, ok := range map[any]bool{
		"2026-05-28T20:26:40.4Z":                  true,
		`"2026-05-28T20:26:40.400Z"`:              true,
		"2026-05-28T20:26:40.400000Z":             true,
		"2026-05-28T22:26:40.4+02:00":             true,
		"2026-05-28T13:26:40.400-07:00":           true,
		"2026-05-28T22:26:40.4+0200":              true,
		"2026-05-28T13:26:40.4-07":                true,
		`"2026-05-28T20:26:40.400+0000"`:          true,
		"2026-05-28 22:26:40.4+0200":              true,
		"2026-05-28T20:26:40.4":                   true,
		"2026-05-28 20:26:40.4":                   true,
		"2026-05-28 20:26:40.4+00:00":             true,
		"1780000000.4":                            true,
		"1780000000400":                           true,
		int64(1_780_000_000_400):                  true,
		int64(1_780_000_000_400_000):              true,
		int64(1_780_000_000_400_000_000):          true,
		1_780_000_000.4:                           true,
		1_780_000_000_400.0:                       true,
		"":                                        false,
		"null":                                    false,
		"0001-01-01T00:00:00Z":                    false,
		"9999-12-31T23:59:59Z":                    false,
		"2026-13-01T00:00:00Z":                    false,
		"NaN":                                     false,
		int64(0):                                  false,
		int64(-1):                                 false,
		int64(math.MaxInt64):                      false,
		math.NaN():                                false,
		math.Inf(1):                               false,
		true:                                      false,
		`{"time":"2026-05-28T20:26:40.400Z"}`:     false,
		strings.Repeat("2026-05-28T20:26:40Z", 9): false,
	} {
		got, gotOK := instantOf(valueOf(t, v))
		assert.Equal(t, ok, gotOK, "%v", v)
		if ok {
			assert.InDelta(t, want, got, 256, "%v: a double of seconds is 256 ns wide here", v)
		}
	}
}

func TestCountOf(t *testing.T) {
	for _, tt := range []struct {
		v    any
		want int64
		ok   bool
	}{
		{0, 0, true},
		{7, 7, true},
		{"7", 7, true},
		{7.0, 7, true},
		{int64(1) << 53, 1 << 53, true},
		{int64(1)<<53 + 2, 0, false},
		{-1, 0, false},
		{"-1", 0, false},
		{math.NaN(), 0, false},
		{math.Inf(1), 0, false},
		{"seven", 0, false},
		{true, 0, false},
	} {
		got, ok := countOf(valueOf(t, tt.v))
		assert.Equal(t, tt.ok, ok, "%v", tt.v)
		assert.Equal(t, tt.want, got, "%v", tt.v)
	}
}

func TestReasons(t *testing.T) {
	for _, tt := range []struct {
		v    any
		want []string
	}{
		{"stop", []string{"stop"}},
		{`["stop"]`, []string{"stop"}},
		{`["stop","length"]`, []string{"stop", "length"}},
		{[]any{"stop", 5, "", "length"}, []string{"stop", "length"}},
		{`"stop"`, []string{"stop"}},
		{`[stop]`, []string{"[stop]"}},
		{"null", nil},
		{"None", nil},
		{"", nil},
		{`[]`, nil},
		{`[""]`, nil},
		{5, nil},
		{nil, nil},
	} {
		var got []string
		eachReason(valueOf(t, tt.v), func(s string) { got = append(got, s) })
		assert.Equal(t, tt.want, got, "%v", tt.v)
	}
}

func TestJSONTokens(t *testing.T) {
	for s, want := range map[string]int64{
		`{"input":17,"output":120}`:               120,
		`{"output_tokens": 8, "input_tokens": 1}`: 8,
		`{"completion_tokens": 9}`:                9,
		`{"output": 0}`:                           0,
	} {
		n, ok := jsonTokens(s)
		assert.True(t, ok, s)
		assert.Equal(t, want, n, s)
	}
	for _, s := range []string{"", "{}", `{"output":"120"}`, `{"output":-1}`, `{"output":1e300}`, `["output"]`, `{"output":`} {
		_, ok := jsonTokens(s)
		assert.False(t, ok, s)
	}
}

// FuzzValues feeds text and numbers to every reader of a value: no panic, and what comes out is in the range that is promised.
func FuzzValues(f *testing.F) {
	for _, s := range []string{"", "true", "0.4", "12.3ms", `"2026-05-28T20:26:40.400Z"`, "1780000000400", `["stop"]`, `{"stream":true}`, `{"output":5}`, "NaN", "-1", "0x1p-2", "9e999"} {
		f.Add(s, 0.4, int64(400))
	}
	f.Add("x", math.NaN(), int64(math.MinInt64))
	f.Add("x", math.Inf(-1), int64(math.MaxInt64))
	f.Fuzz(func(t *testing.T, s string, d float64, n int64) {
		for _, v := range []any{s, d, n, []any{s}} {
			value := valueOf(t, v)
			boolOf(value)
			isStreamingType(value)
			eachReason(value, func(reason string) { assert.NotEmpty(t, reason) })
			for _, unit := range units {
				for _, millis := range []bool{false, true} {
					if ns, ok := durationOf(value, &compiledAttr{AttributeRow: AttributeRow{Unit: unit, intMillis: millis}}, n); ok {
						assert.GreaterOrEqual(t, ns, int64(0))
					}
				}
			}
			if at, ok := instantOf(value); ok {
				assert.Positive(t, at)
			}
			if count, ok := countOf(value); ok {
				assert.GreaterOrEqual(t, count, int64(0))
				assert.LessOrEqual(t, count, int64(1)<<53)
			}
		}
		if tokens, ok := jsonTokens(s); ok {
			assert.GreaterOrEqual(t, tokens, int64(0))
		}
		jsonFlag(s)
	})
}

// FuzzVocabulary compiles arbitrary vocabularies: no panic; what passes Validate compiles, and the table can be read with.
func FuzzVocabulary(f *testing.F) {
	f.Add("my.key", "stream_flag", "", "my.event", "chunk", true, "my span", "chunk", true, latencyTTFT, "write")
	f.Add("", "", "s", "", "", false, "", "", false, "", "")
	f.Add("stream.phase", "time_to_first_chunk", "ms", "mlflow.chunk.item.", "first_chunk", false, " http send", "chunk", false, "write", "stream.phase")
	f.Add("k\xff", "first_chunk_time", "ns", "e\xff", "end", true, "\xff", "chunk", true, "k\xff", "generate_stream")
	f.Fuzz(func(t *testing.T, key, role, unit, name, eventRole string, prefix bool, spanName, spanRole string, suffix bool, trust, disable string) {
		v := Vocabulary{
			Attributes: map[string]AttributeRow{key: {Role: Role(role), Unit: Unit(unit)}},
			Events:     map[string]EventRow{name: {Role: Role(eventRole), Prefix: prefix}},
			Spans:      map[string]SpanRow{spanName: {Role: Role(spanRole), Suffix: suffix, Where: map[string]string{key: name}}},
			Trust:      []string{trust},
			Disable:    []string{disable},
		}
		compiled, err := Compile(v)
		assert.Equal(t, v.Validate() == nil, err == nil)
		if err != nil {
			assert.Contains(t, err.Error(), "vocabulary::")
			return
		}
		r := NewReader(compiled, testMinSpread)
		b := build(named(spanName), attr(key, name), attr("gen_ai.request.stream", true), event(name, 100*ms, 300*ms), event(name+"1", 400*ms))
		ev := evidenceOf(r, b.Span)
		require.NotNil(t, ev)
		d := r.Decide(ev, b.res, b.scope)
		r.Detail(ev, &d)
		compiled.ChunkSpan("scope", b.Span)
	})
}
