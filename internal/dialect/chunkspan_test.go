// Copyright The otelcol-stream Authors
// SPDX-License-Identifier: Apache-2.0

package dialect

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"
)

func chunkSpan(name string, attributes map[string]string) ptrace.Span {
	s := ptrace.NewSpan()
	s.SetTraceID(pcommon.TraceID{1})
	s.SetSpanID(pcommon.SpanID{2})
	s.SetParentSpanID(pcommon.SpanID{3})
	s.SetName(name)
	s.SetStartTimestamp(1000)
	s.SetEndTimestamp(1010)
	for k, v := range attributes {
		s.Attributes().PutStr(k, v)
	}
	return s
}

func TestChunkSpanRows(t *testing.T) {
	const websocket = " websocket"
	custom, err := Compile(Vocabulary{
		Spans: map[string]SpanRow{
			"part":        {Role: RoleChunk},
			websocket:     {Role: RoleChunk, Suffix: true, Where: map[string]string{"asgi.event.type": "websocket.send", "n": "1"}},
			"decode_loop": {Role: RoleChunk}, // the user's row for it: any scope
		},
		Disable: []string{"text_delta"},
	})
	require.NoError(t, err)
	builtin, err := Compile(Vocabulary{})
	require.NoError(t, err)
	body := map[string]string{"asgi.event.type": "http.response.body"}
	for _, c := range []struct {
		name, scope, span string
		attributes        map[string]string
		table             *Table
		want              bool
	}{
		{"asgi body", "opentelemetry.instrumentation.asgi", "GET /chat http send", body, builtin, true},
		{"in any scope", "my.middleware", "POST /v1/chat http send", body, builtin, true},
		{"headers", "opentelemetry.instrumentation.asgi", "GET /chat http send", map[string]string{"asgi.event.type": "http.response.start"}, builtin, false},
		{"no event type", "opentelemetry.instrumentation.asgi", "GET /chat http send", nil, builtin, false},
		{"receive", "opentelemetry.instrumentation.asgi", "GET /chat http receive", body, builtin, false},
		{"sglang", "sglang server", "decode_loop", nil, builtin, true},
		{"decode_loop of others", "ffmpeg", "decode_loop", nil, builtin, false},
		{"user's own decode_loop", "ffmpeg", "decode_loop", nil, custom, true},
		{"codex", "codex_cli_rs", "text_delta", nil, builtin, true},
		{"codex summary", "codex-app-server", "reasoning_summary_delta", nil, builtin, true},
		{"codex end", "codex_cli_rs", "completed", nil, builtin, false},
		{"text_delta of others", "editor", "text_delta", nil, builtin, false},
		{"disabled", "codex_cli_rs", "text_delta", nil, custom, false},
		{"user's name", "x", "part", nil, custom, true},
		{"not a longer one", "x", "a part", nil, custom, false},
		{"user's suffix", "x", "GET /ws websocket", map[string]string{"asgi.event.type": "websocket.send", "n": "1"}, custom, true},
		{"one of two attributes", "x", "GET /ws websocket", map[string]string{"asgi.event.type": "websocket.send"}, custom, false},
		{"a row of another role", "x", "generate_stream", nil, builtin, false},
		{"no name", "x", "", nil, builtin, false},
		{"already ours", "sglang server", "decode_loop", map[string]string{"stream.phase": "stream"}, builtin, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, bad, ok := c.table.ChunkSpan(c.scope, chunkSpan(c.span, c.attributes))
			assert.Equal(t, c.want, ok)
			assert.Empty(t, bad)
		})
	}
}

func TestChunkSpanWhereComparesText(t *testing.T) {
	table, err := Compile(Vocabulary{Spans: map[string]SpanRow{"part": {Role: RoleChunk, Where: map[string]string{"n": "3", "last": "false"}}}})
	require.NoError(t, err)
	s := chunkSpan("part", nil)
	s.Attributes().PutInt("n", 3)
	s.Attributes().PutBool("last", false)
	_, _, ok := table.ChunkSpan("", s)
	assert.True(t, ok)
}

func TestWritesChunkSpans(t *testing.T) {
	table, err := Compile(Vocabulary{})
	require.NoError(t, err)
	for scope, kind := range map[string]ptrace.SpanKind{
		"opentelemetry.instrumentation.fastapi": ptrace.SpanKindServer, "opentelemetry.instrumentation.asgi": ptrace.SpanKindServer,
		"sglang server": ptrace.SpanKindUnspecified, "codex_cli_rs": ptrace.SpanKindUnspecified,
	} {
		got, ok := table.WritesChunkSpans(scope)
		assert.True(t, ok, scope)
		assert.Equal(t, kind, got, scope)
	}
	for _, scope := range []string{"", "my-service", "opentelemetry.instrumentation.openai.v1"} {
		_, ok := table.WritesChunkSpans(scope)
		assert.False(t, ok, scope)
	}
	none, err := Compile(Vocabulary{Disable: []string{" http send"}})
	require.NoError(t, err)
	_, ok := none.WritesChunkSpans("opentelemetry.instrumentation.asgi")
	assert.False(t, ok)
}

func TestParentName(t *testing.T) {
	table, err := Compile(Vocabulary{})
	require.NoError(t, err)
	c, _, _ := table.ChunkSpan("", chunkSpan("GET /chat http send", map[string]string{"asgi.event.type": "http.response.body"}))
	assert.Equal(t, "GET /chat", c.ParentName("GET /chat http send"))
	assert.Equal(t, " http send", c.ParentName(" http send"), "a name must not become empty")
	c, _, _ = table.ChunkSpan("sglang server", chunkSpan("decode_loop", nil))
	assert.Equal(t, "decode_loop", c.ParentName("decode_loop"))
}

// TestChunkTotalsIgnoreTheOrder adds the same chunk spans in any order and in any parts.
func TestChunkTotalsIgnoreTheOrder(t *testing.T) {
	table, err := Compile(Vocabulary{})
	require.NoError(t, err)
	for seed := range uint64(100) {
		rng := rand.New(rand.NewPCG(seed, 6))
		var all []ChunkSpan
		for i := range 1 + rng.IntN(12) {
			s := chunkSpan([]string{"text_delta", "reasoning_content_delta"}[rng.IntN(2)], nil)
			s.SetStartTimestamp(pcommon.Timestamp(1 + rng.IntN(4))) // ties
			s.SetEndTimestamp(s.StartTimestamp() + pcommon.Timestamp(rng.IntN(5)))
			if rng.IntN(10) > 0 {
				s.Attributes().PutInt([]string{"gen_ai.usage.output_tokens", "llm.token_count.completion"}[rng.IntN(2)], int64(i))
			}
			if rng.IntN(10) > 0 {
				s.Attributes().PutInt("http.response.body.size", math.MaxInt64/4)
			}
			c, _, ok := table.ChunkSpan("codex", s)
			require.True(t, ok)
			all = append(all, c)
		}
		sum := func() ChunkTotals {
			rng.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
			parts := make([]ChunkTotals, 1+rng.IntN(3))
			for i := range all {
				parts[rng.IntN(len(parts))].Add(&all[i])
			}
			var total ChunkTotals
			for i := range parts {
				total.Merge(&parts[i])
			}
			return total
		}
		first := sum()
		for range 5 {
			got := sum()
			require.Equal(t, first, got)
		}
		require.Equal(t, int64(len(all)), first.Seen)
	}
}

func TestChunksOfAParent(t *testing.T) {
	table, err := Compile(Vocabulary{})
	require.NoError(t, err)
	var totals ChunkTotals
	for _, at := range []pcommon.Timestamp{5_000_000_000, 6_000_000_000, 9_000_000_000} {
		s := chunkSpan("decode_loop", nil)
		s.SetStartTimestamp(at)
		s.SetEndTimestamp(at)
		c, _, _ := table.ChunkSpan("sglang", s)
		totals.Add(&c)
	}
	parent := chunkSpan("Req", nil)
	parent.SetStartTimestamp(5_000_500_000) // half a millisecond after the first chunk: clocks differ by that much
	parent.SetEndTimestamp(8_000_000_000)
	c := totals.Chunks(parent, []int64{9_000_000_000, 5_000_000_000, 6_000_000_000})
	assert.Equal(t, []int64{5_000_000_000, 6_000_000_000}, c.Instants, "what lies outside cannot be right")
	assert.Equal(t, int64(3), c.Seen)
	assert.Equal(t, int64(3), c.Spans)
	assert.False(t, c.BytesKnown)
	assert.Empty(t, c.TokenSource)
}
