// Copyright The otelcol-stream Authors
// SPDX-License-Identifier: Apache-2.0

package streamprocessor

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/confmap"
	"go.yaml.in/yaml/v3"

	"github.com/otelcol-stream/otelcol-stream/internal/dialect"
	"github.com/otelcol-stream/otelcol-stream/internal/spanlaws"
	"github.com/otelcol-stream/otelcol-stream/internal/streamspan"
	"github.com/otelcol-stream/otelcol-stream/streamprocessor/internal/metadata"
)

func readme(t *testing.T) string {
	t.Helper()
	raw, err := os.ReadFile("README.md")
	require.NoError(t, err)
	return string(raw)
}

// TestReadmeSettings: the table has a row for every setting of the schema, with the default that the schema (and so the struct) states.
func TestReadmeSettings(t *testing.T) {
	text := readme(t)
	root := readSchema(t)
	var walk func(path string, s *schemaNode)
	walk = func(path string, s *schemaNode) {
		if s.Ref != "" {
			s = root.Defs[s.Ref]
		}
		if len(s.Properties) > 0 {
			for key, p := range s.Properties {
				walk(strings.TrimPrefix(path+"::"+key, "::"), p)
			}
			return
		}
		row := regexp.MustCompile("(?m)^\\| `" + regexp.QuoteMeta(path) + "` \\| (.*?) \\| .+ \\|$").FindStringSubmatch(text)
		if !assert.NotNil(t, row, "no row for %s", path) {
			return
		}
		switch stated := s.Default.(type) {
		case nil:
			assert.Contains(t, []string{"`{}`", "`[]`", "`false`"}, row[1], path)
		case []any:
			for _, v := range stated {
				assert.Contains(t, row[1], fmt.Sprintf("`%v`", v), path)
			}
		case string:
			assert.Contains(t, []string{"`" + stated + "`", fmt.Sprintf("`%q`", stated)}, row[1], path)
		default:
			assert.Equal(t, fmt.Sprintf("`%v`", stated), row[1], path)
		}
	}
	walk("", root)
}

// TestReadmeExamples: the configurations shown are valid.
func TestReadmeExamples(t *testing.T) {
	blocks := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllStringSubmatch(readme(t), -1)
	require.Len(t, blocks, 2)
	for _, block := range blocks {
		var doc map[string]any
		require.NoError(t, yaml.Unmarshal([]byte(block[1]), &doc))
		cfg := NewFactory().CreateDefaultConfig()
		if own, ok := doc["processors"].(map[string]any)["stream"].(map[string]any); ok {
			require.NoError(t, confmap.NewFromStringMap(own).Unmarshal(cfg))
		}
		require.NoError(t, confmap.Validate(cfg))
	}
}

// TestReadmeNames: every attribute, result and reason is explained.
func TestReadmeNames(t *testing.T) {
	text := readme(t)
	for _, name := range []string{
		streamspan.AttrPhase, streamspan.AttrDialect, streamspan.AttrFirstChunkSource, streamspan.AttrOutcome, streamspan.AttrTimeToFirstChunk,
		streamspan.AttrDuration, streamspan.AttrTail, streamspan.AttrNested, streamspan.AttrChunkCount, streamspan.AttrEventsCollapsed,
		streamspan.AttrSpansFolded, streamspan.AttrQuality, streamspan.AttrGapMean, streamspan.AttrGapP50, streamspan.AttrGapP95,
		streamspan.AttrGapP99, streamspan.AttrGapMax, streamspan.AttrGapStddev, streamspan.AttrGapJitter, streamspan.AttrGapHistogram,
		streamspan.AttrStallCount, streamspan.AttrStallDuration, streamspan.AttrStallOffset, streamspan.AttrHeadBurst, streamspan.AttrPeakRate,
		streamspan.AttrTokenCount, streamspan.AttrTokenSource, streamspan.AttrChunkTokens, streamspan.AttrTokenRate, streamspan.AttrFluidity,
		streamspan.AttrReaderWait, streamspan.AttrByteCount, streamspan.AttrChunkBytes, streamspan.AttrSourceKind, streamspan.AttrSourceOperation,
	} {
		assert.Regexp(t, "(?m)^\\|.*`"+regexp.QuoteMeta(name)+"`.*\\| (R T S|T S|T) \\|", text, name)
	}
	for _, name := range []any{
		streamspan.ResultSplit, streamspan.ResultAnnotated, streamspan.ResultEnveloped, streamspan.ResultWhole, resultNotStreaming, resultProcessed, resultRefused,
		dialect.ReasonNoFirstChunk, dialect.ReasonFailedBeforeData, dialect.ReasonFirstDropped, dialect.ReasonEndStamped, dialect.ReasonWrongOrigin,
		dialect.ReasonOutOfSpan, dialect.ReasonInvalidValue, dialect.ReasonEndBeforeStart, dialect.ReasonTimeOutOfRange, dialect.ReasonZeroID,
	} {
		assert.Regexp(t, fmt.Sprintf("(?m)^\\|.*`%v`", name), text, name)
	}
	for _, role := range []dialect.Role{
		dialect.RoleStreamFlag, dialect.RoleTimeToFirstChunk, dialect.RoleFirstChunkTime, dialect.RoleOutputTokens, dialect.RoleFinishReason,
		dialect.RoleChunkCount, dialect.RoleFirstChunk, dialect.RoleChunk, dialect.RoleEnd,
	} {
		assert.Contains(t, text, "`"+string(role)+"`")
	}
	assert.Contains(t, text, "otelcol_processor_"+metadata.Type.String()+"_spans")
}

// TestReadmeBeforeAndAfter: the numbers of the example are those of the capture, and the sizes those of the section on limits.
func TestReadmeBeforeAndAfter(t *testing.T) {
	h := newHarness(t)
	exports := readCapture(t, "python/openllmetry-openai", "stall3s")
	require.Len(t, exports, 1)
	out := h.send(t, exports[0])
	before := spansOf(exports[0])[0]
	r := spansOf(out)[0]
	s := streamOf(t, out, r)
	text := readme(t)
	for _, line := range []string{
		fmt.Sprintf("%s            %.3f s   CLIENT    %d events named", before.Name(), inSeconds(before.EndTimestamp()-before.StartTimestamp()), before.Events().Len()),
		fmt.Sprintf("%s            %.3f s   CLIENT ", r.Name(), inSeconds(r.EndTimestamp()-r.StartTimestamp())),
		fmt.Sprintf("%s   %.3f s   INTERNAL  %d events", s.Name(), inSeconds(s.EndTimestamp()-s.StartTimestamp()), s.Events().Len()),
	} {
		assert.Contains(t, text, line)
	}
	number := func(key string) float64 {
		v, ok := s.Attributes().Get(key)
		require.True(t, ok, key)
		return v.Double()
	}
	count := func(key string) int64 {
		v, ok := s.Attributes().Get(key)
		require.True(t, ok, key)
		return v.Int()
	}
	for _, line := range []string{
		fmt.Sprintf("| `stream.time_to_first_chunk` | %.3f |", number("stream.time_to_first_chunk")),
		fmt.Sprintf("| `stream.chunk.count` | %d |", count("stream.chunk.count")),
		fmt.Sprintf("| `stream.chunk.gap.p50`, `.max` | %.3f, %.3f |", number("stream.chunk.gap.p50"), number("stream.chunk.gap.max")),
		fmt.Sprintf("| `stream.stall.count`, `.duration`, `.offset` | %d, %.3f, %.3f |", count("stream.stall.count"), number("stream.stall.duration"), number("stream.stall.offset")),
		fmt.Sprintf("| `stream.token.rate` | %.1f | (%d − 1) tokens in the %.3f s", number("stream.token.rate"), count("stream.token.count"), number("stream.duration")-number("stream.tail")),
	} {
		assert.Contains(t, text, line)
	}
	// The summary by itself: what a span grows by when it keeps its shape and its events.
	bare := newHarness(t, func(c *Config) { c.Mode, c.ChunkEvents.Action = streamspan.ModeAnnotate, actionKeep })
	grown := len(spanlaws.Marshal(bare.send(t, exports[0]))) - len(spanlaws.Marshal(exports[0]))
	assert.InDelta(t, 1300, grown, 200, "the README says 1.3 kB")
}

func inSeconds[T ~uint64](ns T) float64 { return float64(ns) / 1e9 }
