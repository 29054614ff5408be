// Copyright The otelcol-stream Authors
// SPDX-License-Identifier: Apache-2.0

package dialect

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestUserVocabulary: rows of the configuration stand beside the built-in ones and before them.
func TestUserVocabulary(t *testing.T) {
	custom := func(first time.Duration, source string) verdict {
		return verdict{streams: true, first: first, source: source, dialect: "custom", outcome: OutcomeUnknown}
	}
	rows := Vocabulary{
		Attributes: map[string]AttributeRow{
			"my.flag":   {Role: RoleStreamFlag},
			"my.ttfc_s": {Role: RoleTimeToFirstChunk, Unit: UnitSeconds},
			"my.ttfc":   {Role: RoleTimeToFirstChunk, Unit: UnitMilliseconds},
			"my.us":     {Role: RoleTimeToFirstChunk, Unit: UnitMicroseconds},
			"my.ns":     {Role: RoleTimeToFirstChunk, Unit: UnitNanoseconds},
			"my.auto":   {Role: RoleTimeToFirstChunk},
			"my.time":   {Role: RoleFirstChunkTime},
			"my.tokens": {Role: RoleOutputTokens},
			"my.finish": {Role: RoleFinishReason},
			"my.count":  {Role: RoleChunkCount},
		},
		Events: map[string]EventRow{
			"my.first": {Role: RoleFirstChunk},
			"my.chunk": {Role: RoleChunk},
			"my.part.": {Role: RoleChunk, Prefix: true},
			"my.end":   {Role: RoleEnd},
		},
	}
	for _, tt := range []struct {
		name string
		v    Vocabulary
		span built
		want verdict
	}{
		{"flag", rows, build(attr("my.flag", "true")), verdict{streams: true, reason: ReasonNoFirstChunk, dialect: "custom", outcome: OutcomeUnknown}},
		{"seconds", rows, build(attr("my.ttfc_s", 1)), custom(1*time.Second, "my.ttfc_s")},
		{"milliseconds", rows, build(attr("my.ttfc", 400)), custom(400*ms, "my.ttfc")},
		{"microseconds", rows, build(attr("my.us", 400_000)), custom(400*ms, "my.us")},
		{"nanoseconds", rows, build(attr("my.ns", 400_000_000)), custom(400*ms, "my.ns")},
		{"seconds fit", rows, build(attr("my.auto", 1.5)), custom(1500*ms, "my.auto")},
		{"only milliseconds fit", rows, build(attr("my.auto", 1500)), custom(1500*ms, "my.auto")},
		{"only microseconds fit", rows, build(attr("my.auto", 1_500_000)), custom(1500*ms, "my.auto")},
		{"only nanoseconds fit", rows, build(attr("my.auto", 1_500_000_000)), custom(1500*ms, "my.auto")},
		{"a duration says its own unit", rows, build(attr("my.auto", "400ms")), custom(400*ms, "my.auto")},
		{"unix time in seconds", rows, build(attr("my.time", 1_780_000_000.5)), custom(500*ms, "my.time")},
		{"unix time in milliseconds", rows, build(attr("my.time", 1_780_000_000_500)), custom(500*ms, "my.time")},
		{"unix time in microseconds", rows, build(attr("my.time", 1_780_000_000_500_000)), custom(500*ms, "my.time")},
		{"unix time in nanoseconds, to the nanosecond", rows, build(attr("my.time", int64(testStart)+500_000_001)), custom(500*ms+1, "my.time")},
		{"unix time as text", rows, build(attr("my.time", "1780000000500000001")), custom(500*ms+1, "my.time")},
		{"first-chunk event", rows, build(event("my.first", 300*ms)), custom(300*ms, "my.first")},
		{"chunk events", rows, build(event("my.chunk", 300*ms, 400*ms)), custom(300*ms, "my.chunk")},
		{"one chunk event is no evidence", rows, build(event("my.chunk", 300*ms)), verdict{}},
		{"chunk events by prefix", rows, build(event("my.part.b", 400*ms), event("my.part.a", 300*ms)), custom(300*ms, "my.part.a")},
		{"the prefix itself", rows, build(event("my.part.", 300*ms), event("my.part.1", 400*ms)), custom(300*ms, "my.part.")},
		{"not the prefix", rows, build(event("my.parts", 300*ms), event("other.my.part.1", 400*ms)), verdict{}},
		{"a name that is not meant as a prefix", rows, build(event("my.chunk.1", 300*ms, 400*ms)), verdict{}},
		{"end event", rows, build(attr("my.ttfc", 400), event("my.end", 900*ms)), verdict{streams: true, first: 400 * ms, source: "my.ttfc", dialect: "custom", outcome: OutcomeCompleted}},
		{
			"tokens and finish reason", rows, build(attr("my.ttfc", 400), attr("my.tokens", 7), attr("gen_ai.usage.output_tokens", 9), attr("my.finish", "cancelled")),
			verdict{streams: true, first: 400 * ms, source: "my.ttfc", dialect: "custom", outcome: OutcomeCancelled, tokens: 7, from: "my.tokens"},
		},
		{"a user's key beside OpenLIT's", rows, build(scope("@openlit/instrumentation-openai"), attr("my.ttfc", 400)), verdict{streams: true, first: 400 * ms, source: "my.ttfc", dialect: "openlit", outcome: OutcomeIncomplete}},
		{"before the built-in rows", rows, build(attr(semconvTTFC, 0.3), attr("my.ttfc", 400)), custom(400*ms, "my.ttfc")},

		{
			"a built-in key with another unit",
			Vocabulary{Attributes: map[string]AttributeRow{semconvTTFC: {Role: RoleTimeToFirstChunk, Unit: UnitMilliseconds}}},
			build(attr(semconvTTFC, 400)), custom(400*ms, semconvTTFC),
		},
		{
			"a built-in event with another role",
			Vocabulary{Events: map[string]EventRow{"write": {Role: RoleFirstChunk}}},
			build(event("write", 300*ms)), custom(300*ms, "write"),
		},
		{
			"a built-in prefix as a name",
			Vocabulary{Events: map[string]EventRow{"mlflow.chunk.item.": {Role: RoleChunk}}},
			build(event("mlflow.chunk.item.0", 300*ms), event("mlflow.chunk.item.1", 400*ms)),
			verdict{},
		},

		{"disabled attribute", Vocabulary{Disable: []string{semconvTTFC}}, build(attr(semconvTTFC, 0.4)), verdict{}},
		{"disabled event", Vocabulary{Disable: []string{"First Token Stream Event"}}, build(event("First Token Stream Event", 300*ms)), verdict{}},
		{"disabled prefix", Vocabulary{Disable: []string{"mlflow.chunk.item."}}, build(event("mlflow.chunk.item.0", 300*ms), event("mlflow.chunk.item.1", 400*ms)), verdict{}},
		{"disabled span name", Vocabulary{Disable: []string{"generate_stream"}}, build(named("generate_stream")), verdict{}},
		{"disabled content type", Vocabulary{Disable: []string{"http.response.header.content-type"}}, build(attr("http.response.header.content-type", "text/event-stream")), verdict{}},

		{
			"trusted ambiguous key",
			Vocabulary{Trust: []string{latencyTTFT}},
			build(scope("vllm"), attr(latencyTTFT, 0.4)),
			verdict{streams: true, first: 400 * ms, source: latencyTTFT, dialect: "vllm", outcome: OutcomeUnknown},
		},
		{"trusted key of a plain call: the whole duration", Vocabulary{Trust: []string{latencyTTFT}}, build(scope("vllm"), attr(latencyTTFT, 2.0)), verdict{}},
		{"trust does not beat a flag that is false", Vocabulary{Trust: []string{latencyTTFT}}, build(attr("gen_ai.request.stream", false), attr(latencyTTFT, 0.4)), verdict{}},
		{
			"trusted margin key",
			Vocabulary{Trust: []string{"mastra.completion_start_time"}},
			build(attr("mastra.completion_start_time", stamp(1950*ms, time.RFC3339Nano, time.UTC))),
			verdict{streams: true, first: 1950 * ms, source: "mastra.completion_start_time", dialect: "mastra", outcome: OutcomeIncomplete},
		},
		{
			"trusted protocol event",
			Vocabulary{Trust: []string{"first_upstream_rx_byte_received"}},
			build(event("first_upstream_rx_byte_received", 300*ms)),
			verdict{streams: true, first: 300 * ms, source: "first_upstream_rx_byte_received", dialect: "envoy", outcome: OutcomeUnknown},
		},
		{
			"trust of another key", Vocabulary{Trust: []string{serverTTFT}}, build(attr(latencyTTFT, 0.4)), verdict{},
		},
	} {
		t.Run(tt.name, func(t *testing.T) { tt.want.check(t, tt.v, tt.span) })
	}
}

// TestSourceKeyIsBounded: what goes into a metric is the row, not each name that a prefix matches.
func TestSourceKeyIsBounded(t *testing.T) {
	b := build(event("mlflow.chunk.item.7", 300*ms), event("mlflow.chunk.item.8", 400*ms))
	r := NewReader(table(t, Vocabulary{}), testMinSpread)
	d := r.Decide(evidenceOf(r, b.Span), b.res, b.scope)
	assert.Equal(t, "mlflow.chunk.item.7", d.Source)
	assert.Equal(t, "mlflow.chunk.item.", d.SourceKey)
}

func TestValidate(t *testing.T) {
	require.NoError(t, Vocabulary{}.Validate())
	require.NoError(t, Vocabulary{Trust: []string{"my.key", "my.event", latencyTTFT}, Attributes: map[string]AttributeRow{"my.key": {Role: RoleStreamFlag}}, Events: map[string]EventRow{"my.event": {Role: RoleChunk}}}.Validate())
	for _, tt := range []struct {
		v    Vocabulary
		want []string
	}{
		{Vocabulary{Attributes: map[string]AttributeRow{"": {Role: RoleStreamFlag}}}, []string{"vocabulary::attributes", "empty"}},
		{Vocabulary{Attributes: map[string]AttributeRow{"k": {}}}, []string{"vocabulary::attributes::k::role", `""`}},
		{Vocabulary{Attributes: map[string]AttributeRow{"k": {Role: "json_flag"}}}, []string{"vocabulary::attributes::k::role", `"json_flag"`, "stream_flag"}},
		{Vocabulary{Attributes: map[string]AttributeRow{"k": {Role: RoleTimeToFirstChunk, Unit: "h"}}}, []string{"vocabulary::attributes::k::unit", `"h"`}},
		{Vocabulary{Attributes: map[string]AttributeRow{"k": {Role: RoleFirstChunkTime, Unit: "s"}}}, []string{"vocabulary::attributes::k::unit", `"s"`}},
		{Vocabulary{Attributes: map[string]AttributeRow{"stream.phase": {Role: RoleStreamFlag}}}, []string{"vocabulary::attributes", `"stream.phase"`}},
		{Vocabulary{Events: map[string]EventRow{"": {Role: RoleChunk}}}, []string{"vocabulary::events", "empty"}},
		{Vocabulary{Events: map[string]EventRow{"e": {Role: RoleStreamFlag}}}, []string{"vocabulary::events::e::role", `"stream_flag"`}},
		{Vocabulary{Spans: map[string]SpanRow{"": {Role: RoleChunk}}}, []string{"vocabulary::spans", "empty"}},
		{Vocabulary{Spans: map[string]SpanRow{"s": {Role: RoleEnd}}}, []string{"vocabulary::spans::s::role", `"end"`}},
		{Vocabulary{Trust: []string{"gen_ai.latency.time_to_first_tokens"}}, []string{"vocabulary::trust", `"gen_ai.latency.time_to_first_tokens"`}},
		{Vocabulary{Disable: []string{"my.key"}, Attributes: map[string]AttributeRow{"my.key": {Role: RoleStreamFlag}}}, []string{"vocabulary::disable", `"my.key"`}},
		{Vocabulary{Disable: []string{"stream.phase"}}, []string{"vocabulary::disable", `"stream.phase"`}},
	} {
		_, err := Compile(tt.v)
		require.Error(t, err)
		for _, w := range tt.want {
			require.ErrorContains(t, err, w)
		}
		assert.NotContains(t, err.Error(), "\n")
	}
}

// TestBuiltinTable: the table itself is well formed.
func TestBuiltinTable(t *testing.T) {
	seen := map[string]bool{}
	unique := func(kind, key string) {
		assert.NotEmpty(t, key)
		assert.False(t, seen[kind+key], "%s %s stands twice", kind, key)
		seen[kind+key] = true
	}
	for _, e := range builtinAttributes {
		unique("attribute ", e.key)
		assert.NotEmpty(t, e.row.Role, e.key)
		if signalRoles[e.row.Role] && e.row.Role != rolePhase {
			assert.NotEmpty(t, e.row.dialect, e.key)
		}
	}
	for _, e := range builtinEvents {
		unique("event ", e.key)
	}
	for _, e := range builtinSpans {
		unique("span ", e.key)
		assert.NotEmpty(t, e.row.dialect, e.key)
	}
	// A longer prefix must stand before a shorter one that it starts with, or it is never found.
	for i, s := range scopes {
		for _, before := range scopes[:i] {
			if !before.exact {
				assert.False(t, strings.HasPrefix(s.prefix, before.prefix), "%s hides %s", before.prefix, s.prefix)
			}
		}
	}
}
