// Copyright The otelcol-stream Authors
// SPDX-License-Identifier: Apache-2.0

package streamprocessor

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/consumer/consumererror"
	"go.opentelemetry.io/collector/consumer/consumertest"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/otelcol-stream/otelcol-stream/internal/dialect"
	"github.com/otelcol-stream/otelcol-stream/internal/spanlaws"
	"github.com/otelcol-stream/otelcol-stream/internal/streamspan"
	"github.com/otelcol-stream/otelcol-stream/streamprocessor/internal/metadatatest"
)

func folding(c *Config) { c.ChunkSpans.Enabled = true }

// shape is a streamed response as an instrumentation writes it: a parent, its chunk spans, and children of other kinds.
type shape struct {
	scope  string
	parent ptrace.Span
	chunks []ptrace.Span
	others []ptrace.Span
}

const shapeStart = int64(1_764_000_000_000_000_000)

var shapeTrace = pcommon.TraceID{0x72, 1}

func idOf(n int) (id pcommon.SpanID) {
	binary.BigEndian.PutUint64(id[:], uint64(n))
	return id
}

func bareSpan(name string, id, parent int, kind ptrace.SpanKind, start, end int64) ptrace.Span {
	s := ptrace.NewSpan()
	s.SetTraceID(shapeTrace)
	s.SetSpanID(idOf(id))
	if parent != 0 {
		s.SetParentSpanID(idOf(parent))
	}
	s.SetName(name)
	s.SetKind(kind)
	s.SetStartTimestamp(pcommon.Timestamp(start))
	s.SetEndTimestamp(pcommon.Timestamp(end))
	return s
}

const parentID = 1

// asgi is what the instrumentations of ASGI, FastAPI and Starlette write.
func asgi(instants ...time.Duration) shape {
	end := shapeStart + int64(slices.Max(instants)) + int64(70*ms)
	s := shape{scope: "opentelemetry.instrumentation.fastapi", parent: bareSpan("GET /chat", parentID, 0, ptrace.SpanKindServer, shapeStart, end)}
	s.parent.Attributes().PutStr("http.request.method", "GET")
	s.parent.Attributes().PutInt("http.response.status_code", 200)
	send := func(id int, at time.Duration, event string) ptrace.Span {
		c := bareSpan("GET /chat http send", id, parentID, ptrace.SpanKindInternal, shapeStart+int64(at), shapeStart+int64(at+50*us))
		c.Attributes().PutStr("asgi.event.type", event)
		return c
	}
	s.others = append(s.others, send(2, instants[0]-2*ms, "http.response.start"))
	for i, at := range instants {
		s.chunks = append(s.chunks, send(100+i, at, "http.response.body"))
	}
	return s
}

// sglang is what SGLang writes at trace level 3: decode iterations, each with a counter that is no number of tokens.
func sglang(instants ...time.Duration) shape {
	end := shapeStart + int64(slices.Max(instants)) + int64(5*ms)
	s := shape{scope: "sglang server", parent: bareSpan("Req 4af1", parentID, 0, ptrace.SpanKindInternal, shapeStart, end)}
	s.parent.Attributes().PutInt("gen_ai.usage.completion_tokens", 64)
	s.others = append(s.others, bareSpan("prefill_forward", 2, parentID, ptrace.SpanKindInternal, shapeStart, shapeStart+int64(instants[0])))
	for i, at := range instants {
		c := bareSpan("decode_loop", 100+i, parentID, ptrace.SpanKindInternal, shapeStart+int64(at), shapeStart+int64(at+3*ms))
		c.Attributes().PutInt("decode_ct", int64(i+1))
		s.chunks = append(s.chunks, c)
	}
	return s
}

// codex is what the Codex CLI writes at trace level: a span named after each event of the stream.
func codex(instants ...time.Duration) shape {
	end := shapeStart + int64(slices.Max(instants)) + int64(20*ms)
	s := shape{scope: "codex_cli_rs", parent: bareSpan("receiving_stream", parentID, 9, ptrace.SpanKindInternal, shapeStart, end)}
	done := bareSpan("completed", 2, parentID, ptrace.SpanKindInternal, end-1000, end)
	done.Attributes().PutInt("gen_ai.usage.output_tokens", 12)
	s.others = append(s.others, done)
	for i, at := range instants {
		name := "reasoning_content_delta"
		if i > len(instants)/2 {
			name = "text_delta"
		}
		s.chunks = append(s.chunks, bareSpan(name, 100+i, parentID, ptrace.SpanKindInternal, shapeStart+int64(at), shapeStart+int64(at+100*us)))
	}
	return s
}

// batch puts copies of spans into one export, split over resources as an SDK with several processes behind one agent would.
func (s shape) batch(spans ...ptrace.Span) ptrace.Traces {
	td := ptrace.NewTraces()
	for _, span := range spans {
		n := td.ResourceSpans().Len()
		if n == 0 || span.SpanID()[7]%5 == 0 {
			rs := td.ResourceSpans().AppendEmpty()
			rs.SetSchemaUrl("https://opentelemetry.io/schemas/1.30.0")
			rs.Resource().Attributes().PutStr("service.name", "shop-assistant")
			ss := rs.ScopeSpans().AppendEmpty()
			ss.Scope().SetName(s.scope)
			ss.Scope().SetVersion("1.0.0")
			n++
		}
		span.CopyTo(td.ResourceSpans().At(n - 1).ScopeSpans().At(0).Spans().AppendEmpty())
	}
	return td
}

func (s shape) all() []ptrace.Span { return slices.Concat(s.chunks, s.others, []ptrace.Span{s.parent}) }

// contents maps the id of each span to all that went out with it: the span, its resource and its scope.
func contents(t testing.TB, all ...ptrace.Traces) map[pcommon.SpanID]string {
	t.Helper()
	out := map[pcommon.SpanID]string{}
	for _, td := range all {
		for _, rs := range td.ResourceSpans().All() {
			for _, ss := range rs.ScopeSpans().All() {
				for _, s := range ss.Spans().All() {
					one := ptrace.NewTraces()
					r := one.ResourceSpans().AppendEmpty()
					rs.Resource().CopyTo(r.Resource())
					r.SetSchemaUrl(rs.SchemaUrl())
					c := r.ScopeSpans().AppendEmpty()
					ss.Scope().CopyTo(c.Scope())
					s.CopyTo(c.Spans().AppendEmpty())
					text, err := (&ptrace.JSONMarshaler{}).MarshalTraces(one)
					require.NoError(t, err)
					_, twice := out[s.SpanID()]
					require.False(t, twice, "a span went out twice")
					out[s.SpanID()] = string(text)
				}
			}
		}
	}
	return out
}

func (h *harness) consume(t testing.TB, td ptrace.Traces) {
	t.Helper()
	require.NoError(t, h.ConsumeTraces(context.Background(), td))
}

// chunkSpans returns the telemetry's account of chunk spans, or of their streams.
func (h *harness) results(t testing.TB, metric string) map[string]int {
	t.Helper()
	out := map[string]int{}
	m, err := h.tel.GetMetric("otelcol_processor_stream_chunk_" + metric)
	if err != nil {
		return out
	}
	for _, p := range m.Data.(metricdata.Sum[int64]).DataPoints {
		result, _ := p.Attributes.Value("result")
		out[result.AsString()] = int(p.Value)
	}
	return out
}

func TestCase09ASGI(t *testing.T) {
	const server = "a84a6d361daf9ade"
	summary := attrs{
		"stream.phase": "stream", "stream.dialect": "asgi", "stream.chunk.count": 4, "stream.chunk.spans_folded": 4,
		"stream.cadence.quality": "exact", "stream.chunk.gap.mean": 0.4 / 3, "stream.chunk.gap.p50": 0.1, "stream.chunk.gap.p95": 0.19,
		"stream.chunk.gap.p99": 0.198, "stream.chunk.gap.max": 0.2, "stream.chunk.gap.stddev": 0.0471404521,
		"stream.chunk.gap.jitter": 0.012109375, "stream.first_chunk.source": "http send", "stream.source.kind": "SPAN_KIND_SERVER",
	}
	check := func(t *testing.T, out []ptrace.Traces) {
		t.Helper()
		all := ptrace.NewTraces()
		for _, td := range out {
			td.ResourceSpans().MoveAndAppendTo(all.ResourceSpans())
		}
		require.Len(t, spansOf(all), 4)
		r := byID(t, all, server)
		tt := streamOf(t, all, r)
		assertTimes(t, r, r, 0, 150*ms)
		assertTimes(t, r, tt, 150*ms, 620*ms)
		assertAttrs(t, tt, summary)
		assertAttrs(t, tt, attrs{"stream.duration": 0.47, "stream.tail": 0.07, "stream.outcome": "completed", "http.route": "/chat"})
		for _, id := range []string{"7ac0349537ff0960", "b8529c17ea5a622f"} {
			assert.Equal(t, r.SpanID(), byID(t, all, id).ParentSpanID())
		}
	}
	in := readCase(t, "09-asgi-span-per-chunk")

	t.Run("one request", func(t *testing.T) {
		h := newHarness(t, folding)
		td := ptrace.NewTraces()
		in.CopyTo(td)
		h.consume(t, td)
		check(t, h.sink.AllTraces())
		assert.Equal(t, map[string]int{"folded": 4}, h.results(t, "spans"))
		assert.Equal(t, map[string]int{"joined": 1}, h.results(t, "streams"))
	})
	t.Run("children first", func(t *testing.T) {
		h := newHarness(t, folding)
		for i := range in.ResourceSpans().Len() {
			td := ptrace.NewTraces()
			in.ResourceSpans().At(i).CopyTo(td.ResourceSpans().AppendEmpty())
			h.consume(t, td)
		}
		check(t, h.sink.AllTraces())
		assert.Equal(t, map[string]int{"folded": 4}, h.results(t, "spans"))
	})
	t.Run("no parent", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			h := newHarness(t, folding)
			td := ptrace.NewTraces()
			in.ResourceSpans().At(0).CopyTo(td.ResourceSpans().AppendEmpty())
			h.consume(t, td)
			require.Equal(t, 2, h.sink.SpanCount(), "the receive span and the headers")
			time.Sleep(29 * time.Second) // in virtual time, as all sleeps here
			synctest.Wait()
			require.Equal(t, 2, h.sink.SpanCount(), "chunk_spans::wait is not over")
			time.Sleep(2 * time.Second)
			synctest.Wait()
			require.Equal(t, 3, h.sink.SpanCount())
			last := h.sink.AllTraces()[1]
			s := spansOf(last)[0]
			assertAttrs(t, s, summary)
			assertAttrs(t, s, attrs{
				"stream.outcome": "incomplete", "stream.time_to_first_chunk": absent{}, "stream.duration": 0.40005, "stream.tail": 0.00005,
			})
			assert.Equal(t, "GET /chat stream", s.Name())
			assert.Equal(t, ptrace.SpanKindInternal, s.Kind())
			assert.Equal(t, server, s.ParentSpanID().String())
			assert.Equal(t, spansOf(in)[0].TraceID(), s.TraceID())
			assert.Equal(t, pcommon.Timestamp(1764000000150000000), s.StartTimestamp())
			assert.Equal(t, pcommon.Timestamp(1764000000550050000), s.EndTimestamp())
			assert.Equal(t, in.ResourceSpans().At(0).Resource().Attributes().AsRaw(), last.ResourceSpans().At(0).Resource().Attributes().AsRaw())
			assert.Equal(t, "opentelemetry.instrumentation.fastapi", last.ResourceSpans().At(0).ScopeSpans().At(0).Scope().Name())
			assert.Equal(t, map[string]int{"orphaned": 1}, h.results(t, "streams"))
			_, err := h.tel.GetMetric("otelcol_processor_stream_spans")
			assert.Error(t, err, "a summary made here is no span that was processed already")
		})
	})
	t.Run("shutdown", func(t *testing.T) {
		h := newHarness(t, folding)
		td := ptrace.NewTraces()
		in.ResourceSpans().At(0).CopyTo(td.ResourceSpans().AppendEmpty())
		h.consume(t, td)
		require.NoError(t, h.Shutdown(t.Context()))
		require.Equal(t, 3, h.sink.SpanCount())
		assert.Equal(t, map[string]int{"flushed": 1}, h.results(t, "streams"))
	})
}

// TestFoldingInAnyOrder: however a stream's spans are dealt out to requests, what comes out is what one request gives.
func TestFoldingInAnyOrder(t *testing.T) {
	shapes := map[string]func(...time.Duration) shape{"asgi": asgi, "sglang": sglang, "codex": codex}
	for name, build := range shapes {
		for _, parentWait := range []time.Duration{0, 5 * time.Second} {
			t.Run(fmt.Sprintf("%s/%v", name, parentWait), func(t *testing.T) {
				for seed := range uint64(60) {
					rng := rand.New(rand.NewPCG(seed, 1))
					at := 200 * ms
					instants := []time.Duration{at}
					for range 1 + rng.IntN(60) {
						at += time.Duration(rng.Int64N(int64(200 * ms)))
						instants = append(instants, at)
					}
					s := build(instants...)
					want := contents(t, foldOnce(t, s.batch(s.all()...))...)

					spans := s.all()
					rng.Shuffle(len(spans), func(i, j int) { spans[i], spans[j] = spans[j], spans[i] })
					requests := make([][]ptrace.Span, 1+rng.IntN(len(spans)))
					for _, span := range spans {
						i := rng.IntN(len(requests))
						if parentWait == 0 && span.SpanID() == idOf(parentID) {
							i = len(requests) - 1 // its chunk spans have come, or come with it
						}
						requests[i] = append(requests[i], span)
					}
					synctest.Test(t, func(t *testing.T) {
						h := newHarness(t, folding, func(c *Config) { c.ChunkSpans.ParentWait = parentWait })
						for _, r := range requests {
							if len(r) > 0 {
								h.consume(t, s.batch(r...))
							}
							time.Sleep(parentWait / time.Duration(2*len(requests))) // in virtual time
						}
						time.Sleep(2 * parentWait)
						synctest.Wait()
						got := contents(t, h.sink.AllTraces()...)
						require.Equal(t, want, got, "seed %d", seed)
						require.Equal(t, len(instants), h.results(t, "spans")["folded"])
					})
				}
			})
		}
	}
}

// foldOnce passes one request through a processor of its own.
func foldOnce(t testing.TB, td ptrace.Traces, set ...func(*Config)) []ptrace.Traces {
	t.Helper()
	h := newHarness(t, append([]func(*Config){folding}, set...)...)
	h.consume(t, td)
	return h.sink.AllTraces()
}

// TestFoldedSummary checks the summaries of the shapes against sums done by hand.
func TestFoldedSummary(t *testing.T) {
	// Gaps of 100, 300 and 200 ms.
	instants := []time.Duration{200 * ms, 300 * ms, 600 * ms, 800 * ms}
	for name, c := range map[string]struct {
		shape shape
		want  attrs
		spans int // R, T and the child that is no chunk
	}{
		"asgi":   {asgi(instants...), attrs{"stream.first_chunk.source": "http send", "stream.tail": 0.07, "stream.outcome": "completed"}, 3},
		"sglang": {sglang(instants...), attrs{"stream.first_chunk.source": "decode_loop", "stream.tail": 0.005, "stream.token.count": 64, "stream.chunk.tokens": 16.0, "stream.token.source": "gen_ai.usage.completion_tokens"}, 3},
		"codex":  {codex(instants...), attrs{"stream.first_chunk.source": "reasoning_content_delta", "stream.tail": 0.02, "stream.token.count": absent{}}, 3},
	} {
		t.Run(name, func(t *testing.T) {
			out := foldOnce(t, c.shape.batch(c.shape.all()...))[0]
			require.Len(t, spansOf(out), c.spans)
			r := byID(t, out, idOf(parentID).String())
			tt := streamOf(t, out, r)
			assertTimes(t, r, r, 0, 200*ms)
			assertAttrs(t, tt, attrs{
				"stream.dialect": name, "stream.chunk.count": 4, "stream.chunk.spans_folded": 4, "stream.cadence.quality": "exact",
				"stream.chunk.gap.mean": 0.2, "stream.chunk.gap.p50": 0.2, "stream.chunk.gap.max": 0.3,
			})
			assertAttrs(t, tt, c.want)
		})
	}
}

// TestNoStreamKeepsItsChunkSpans: what turns out to be no stream goes out as it came in.
func TestNoStreamKeepsItsChunkSpans(t *testing.T) {
	template := asgi(200*ms, 230*ms, 299*ms) // within min_spread
	single := sglang(200 * ms)
	for name, s := range map[string]shape{"body writes within min_spread": template, "one chunk": single} {
		t.Run(name, func(t *testing.T) {
			want := contents(t, s.batch(s.all()...))
			t.Run("one request", func(t *testing.T) {
				in := s.batch(s.all()...)
				out := foldOnce(t, s.batch(s.all()...))
				assert.Equal(t, spanlaws.Marshal(in), spanlaws.Marshal(out[0]), "byte for byte")
			})
			t.Run("parent later", func(t *testing.T) {
				h := newHarness(t, folding)
				for _, c := range s.chunks {
					h.consume(t, s.batch(c))
				}
				require.Zero(t, h.sink.SpanCount())
				h.consume(t, s.batch(append(s.others, s.parent)...))
				assert.Equal(t, want, contents(t, h.sink.AllTraces()...))
				assert.Equal(t, map[string]int{"no_stream": len(s.chunks)}, h.results(t, "spans"))
			})
			t.Run("parent held", func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					h := newHarness(t, folding, func(c *Config) { c.ChunkSpans.ParentWait = time.Second })
					h.consume(t, s.batch(append(s.others, s.parent)...))
					for _, c := range s.chunks {
						h.consume(t, s.batch(c))
					}
					time.Sleep(2 * time.Second)
					synctest.Wait()
					assert.Equal(t, want, contents(t, h.sink.AllTraces()...))
				})
			})
			t.Run("no parent", func(t *testing.T) {
				h := newHarness(t, folding)
				h.consume(t, s.batch(s.chunks...))
				require.NoError(t, h.Shutdown(t.Context()))
				assert.Equal(t, contents(t, s.batch(s.chunks...)), contents(t, h.sink.AllTraces()...))
			})
		})
	}
}

// TestOtherEvidenceFoldsWhateverTheSpread: when the parent says that it streams, its chunk spans need not show it.
func TestOtherEvidenceFoldsWhateverTheSpread(t *testing.T) {
	for name, set := range map[string]func(pcommon.Map){
		"content type": func(m pcommon.Map) {
			m.PutEmptySlice("http.response.header.content_type").AppendEmpty().SetStr("text/event-stream")
		},
		"flag": func(m pcommon.Map) { m.PutBool("gen_ai.request.stream", true) },
	} {
		for _, split := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/%v", name, split), func(t *testing.T) {
				s := asgi(200*ms, 210*ms)
				set(s.parent.Attributes())
				h := newHarness(t, folding)
				if split {
					h.consume(t, s.batch(s.chunks...))
					h.consume(t, s.batch(s.parent))
				} else {
					h.consume(t, s.batch(slices.Concat(s.chunks, []ptrace.Span{s.parent})...))
				}
				out := h.sink.AllTraces()[0]
				require.Len(t, spansOf(out), 2)
				r := byID(t, out, idOf(parentID).String())
				assertTimes(t, r, r, 0, 200*ms)
				assertAttrs(t, streamOf(t, out, r), attrs{"stream.chunk.spans_folded": 2, "stream.chunk.gap.max": 0.01})
			})
		}
	}
}

func TestLateChunkSpansPass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := asgi(200*ms, 400*ms, 600*ms, 800*ms)
		h := newHarness(t, folding)
		h.consume(t, s.batch(s.chunks[:2]...))
		h.consume(t, s.batch(s.parent))
		require.Equal(t, 2, h.sink.SpanCount())
		time.Sleep(20 * time.Second)
		h.consume(t, s.batch(s.chunks[2]))
		assert.Equal(t, contents(t, s.batch(s.chunks[2])), contents(t, h.sink.AllTraces()[1]))
		assert.Equal(t, map[string]int{"folded": 2, "late": 1}, h.results(t, "spans"))

		// Once the parent is forgotten, nothing tells a straggler from the first chunk of a parent to come.
		time.Sleep(61 * time.Second)
		h.consume(t, s.batch(s.chunks[3]))
		require.Equal(t, 3, h.sink.SpanCount())
		time.Sleep(40 * time.Second)
		synctest.Wait()
		require.Equal(t, 4, h.sink.SpanCount(), "alone it is no stream, so that it goes out as it came")
	})
}

// TestParentBeforeItsChunkSpans: without parent_wait the parent leaves at once and its chunk spans pass.
func TestParentBeforeItsChunkSpans(t *testing.T) {
	for name, s := range map[string]shape{"asgi": asgi(200*ms, 400*ms), "sglang": sglang(200*ms, 400*ms), "codex": codex(200*ms, 400*ms)} {
		t.Run(name, func(t *testing.T) {
			h := newHarness(t, folding)
			h.consume(t, s.batch(s.parent))
			h.consume(t, s.batch(s.chunks...))
			assert.Equal(t, contents(t, s.batch(append(s.chunks, s.parent)...)), contents(t, h.sink.AllTraces()...))
			assert.Equal(t, map[string]int{"late": 2}, h.results(t, "spans"))
		})
	}
}

func TestStragglersBeyondParentWaitPass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := sglang(200*ms, 400*ms, 600*ms, 800*ms)
		h := newHarness(t, folding, func(c *Config) { c.ChunkSpans.ParentWait = time.Second })
		h.consume(t, s.batch(s.parent))
		h.consume(t, s.batch(s.chunks[:3]...))
		time.Sleep(2 * time.Second)
		synctest.Wait()
		require.Equal(t, 2, h.sink.SpanCount())
		h.consume(t, s.batch(s.chunks[3]))
		require.Equal(t, 3, h.sink.SpanCount())
		assert.Equal(t, map[string]int{"folded": 3, "late": 1}, h.results(t, "spans"))
	})
}

func TestSpansBelowChunkSpansMoveUp(t *testing.T) {
	s := asgi(200*ms, 400*ms, 600*ms)
	below := bareSpan("SELECT", 50, 101, ptrace.SpanKindClient, shapeStart, shapeStart+1)
	nested := bareSpan("GET /chat http send", 51, 102, ptrace.SpanKindInternal, shapeStart+int64(600*ms), shapeStart+int64(600*ms))
	nested.Attributes().PutStr("asgi.event.type", "http.response.body") // two middlewares: the inner one's chunk span below the outer one's
	for _, together := range []bool{true, false} {
		t.Run(strconv.FormatBool(together), func(t *testing.T) {
			h := newHarness(t, folding)
			spans := append([]ptrace.Span{below, nested}, s.chunks...)
			if together {
				spans = append(spans, s.parent)
			}
			h.consume(t, s.batch(spans...))
			if !together {
				h.consume(t, s.batch(s.parent))
			}
			all := ptrace.NewTraces()
			for _, td := range h.sink.AllTraces() {
				td.ResourceSpans().MoveAndAppendTo(all.ResourceSpans())
			}
			require.Len(t, spansOf(all), 4)
			for _, id := range []int{50, 51} {
				assert.Equal(t, idOf(parentID), byID(t, all, idOf(id).String()).ParentSpanID())
			}
			assertAttrs(t, streamOf(t, all, byID(t, all, idOf(parentID).String())), attrs{"stream.chunk.count": 3})
		})
	}
}

// TestSpansBelowALoneChunkSpanMoveUp: a chunk span that does not show that it is one of a stream leaves the batch as a whole, and before the
// span below it is looked at.
func TestSpansBelowALoneChunkSpanMoveUp(t *testing.T) {
	s := asgi(200*ms, 400*ms)
	below := bareSpan("SELECT", 50, 100, ptrace.SpanKindClient, shapeStart, shapeStart+1)
	h := newHarness(t, folding)
	h.consume(t, s.batch(s.chunks[0], below))
	out := h.sink.AllTraces()[0]
	require.Len(t, spansOf(out), 1)
	assert.Equal(t, idOf(parentID), byID(t, out, idOf(50).String()).ParentSpanID())
}

// TestChunksRecordedTwice: events of the parent and chunk spans for the same chunks are one stream's chunks once.
func TestChunksRecordedTwice(t *testing.T) {
	for _, events := range []int{3, 5} {
		s := sglang(200*ms, 400*ms, 600*ms)
		for i := range events {
			e := s.parent.Events().AppendEmpty()
			e.SetName("gen_ai.content.completion.chunk")
			e.SetTimestamp(pcommon.Timestamp(shapeStart + int64(200*ms) + int64(i)*int64(100*ms)))
		}
		out := foldOnce(t, s.batch(s.all()...))[0]
		tt := streamOf(t, out, byID(t, out, idOf(parentID).String()))
		assertAttrs(t, tt, attrs{"stream.chunk.count": max(3, events), "stream.chunk.events_collapsed": events, "stream.chunk.spans_folded": 3})
	}
}

func TestTokensAndBytesOfChunkSpans(t *testing.T) {
	build := func(tokens, sizes int) shape {
		s := sglang(200*ms, 400*ms, 600*ms, 800*ms)
		s.parent.Attributes().Clear()
		for i, c := range s.chunks {
			if i < tokens {
				c.Attributes().PutInt("gen_ai.usage.output_tokens", int64(i+2))
			}
			if i < sizes {
				c.Attributes().PutInt("http.response.body.size", 100)
			}
		}
		return s
	}
	check := func(t *testing.T, s shape, want attrs) {
		t.Helper()
		for _, later := range []bool{false, true} {
			h := newHarness(t, folding)
			if later {
				h.consume(t, s.batch(s.chunks[:3]...))
				h.consume(t, s.batch(s.chunks[3], s.parent))
			} else {
				h.consume(t, s.batch(s.all()...))
			}
			out := h.sink.AllTraces()[0]
			assertAttrs(t, streamOf(t, out, byID(t, out, idOf(parentID).String())), want)
		}
	}
	check(t, build(4, 4), attrs{
		"stream.token.count": 14, "stream.token.source": "gen_ai.usage.output_tokens", "stream.chunk.tokens": 3.5,
		"stream.token.rate": 13 / 0.6, "stream.byte.count": 400, "stream.chunk.bytes": 100.0,
	})
	// A sum over some of the chunks would be no count of the stream's.
	check(t, build(3, 3), attrs{"stream.token.count": absent{}, "stream.byte.count": absent{}})
	s := build(4, 0)
	s.parent.Attributes().PutInt("llm.token_count.completion", 20)
	check(t, s, attrs{"stream.token.count": 20, "stream.token.source": "llm.token_count.completion"})
}

func TestUserDefinedChunkSpans(t *testing.T) {
	s := sglang(200*ms, 400*ms)
	s.scope = "my-gateway"
	for _, c := range s.chunks {
		c.SetName("write part")
		c.Attributes().PutBool("last", false)
	}
	row := func(c *Config) {
		c.Vocabulary.Spans = map[string]SpanConfig{" part": {Role: dialect.RoleChunk, Suffix: true, Where: map[string]string{"last": "false"}}}
	}
	out := foldOnce(t, s.batch(s.all()...), row)[0]
	assertAttrs(t, streamOf(t, out, byID(t, out, idOf(parentID).String())), attrs{"stream.chunk.spans_folded": 2, "stream.dialect": "custom", "stream.first_chunk.source": "part"})

	// The scope is known once it wrote a chunk span, so that from then on its parents are remembered, and held.
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, folding, row, func(c *Config) { c.ChunkSpans.ParentWait = time.Second })
		h.consume(t, s.batch(s.chunks[0]))
		h.consume(t, s.batch(s.parent))
		h.consume(t, s.batch(s.chunks[1]))
		time.Sleep(2 * time.Second)
		synctest.Wait()
		require.Equal(t, 2, h.sink.SpanCount())
	})
}

// TestNamesThatMeanNothingElsewhere: names of built-in rows that are ordinary words count in their own scope alone.
func TestNamesThatMeanNothingElsewhere(t *testing.T) {
	for _, s := range []shape{codex(200*ms, 400*ms), sglang(200*ms, 400*ms)} {
		s.scope = "video-encoder"
		in := s.batch(s.all()...)
		assert.Equal(t, spanlaws.Marshal(in), spanlaws.Marshal(foldOnce(t, s.batch(s.all()...))[0]))
	}
}

func TestChunkSpansThatMakeNoSensePass(t *testing.T) {
	base := sglang(200*ms, 400*ms, 600*ms)
	for name, spoil := range map[string]func(ptrace.Span){
		"no trace id":      func(s ptrace.Span) { s.SetTraceID(pcommon.TraceID{}) },
		"no span id":       func(s ptrace.Span) { s.SetSpanID(pcommon.SpanID{}) },
		"no parent id":     func(s ptrace.Span) { s.SetParentSpanID(pcommon.SpanID{}) },
		"no start":         func(s ptrace.Span) { s.SetStartTimestamp(0) },
		"end before start": func(s ptrace.Span) { s.SetEndTimestamp(s.StartTimestamp() - 1) },
		"far future":       func(s ptrace.Span) { s.SetEndTimestamp(1<<64 - 1) },
		"failed":           func(s ptrace.Span) { s.Status().SetCode(ptrace.StatusCodeError) },
	} {
		t.Run(name, func(t *testing.T) {
			bad := ptrace.NewSpan()
			base.chunks[1].CopyTo(bad)
			spoil(bad)
			h := newHarness(t, folding)
			h.consume(t, base.batch(base.chunks[0], bad, base.chunks[2], base.parent))
			out := h.sink.AllTraces()[0]
			require.Len(t, spansOf(out), 3)
			assert.Contains(t, contents(t, out), bad.SpanID())
			assert.Equal(t, contents(t, base.batch(bad))[bad.SpanID()], contents(t, out)[bad.SpanID()])
			assert.Equal(t, map[string]int{"folded": 2, "refused": 1}, h.results(t, "spans"))
		})
	}
}

// TestProcessedSpansAreNotFoldedAgain: stream spans whose name is that of a chunk span, and parents that were split before.
func TestProcessedSpansAreNotFoldedAgain(t *testing.T) {
	s := sglang(200*ms, 400*ms, 600*ms)
	h := newHarness(t, folding, func(c *Config) { c.StreamSpanSuffix = "" })
	h.consume(t, s.batch(s.chunks...))
	require.NoError(t, h.Shutdown(t.Context()))
	once := h.sink.AllTraces()[0]
	require.Equal(t, "decode_loop", spansOf(once)[0].Name())
	want := spanlaws.Marshal(once)
	assert.Equal(t, want, spanlaws.Marshal(foldOnce(t, once)[0]))

	split := foldOnce(t, s.batch(s.all()...))[0]
	want = spanlaws.Marshal(split)
	assert.Equal(t, want, spanlaws.Marshal(foldOnce(t, split)[0]))
}

func TestARequestThatIsSentAgain(t *testing.T) {
	s := sglang(200*ms, 400*ms, 600*ms, 800*ms)
	h := newHarness(t, folding)
	h.consume(t, s.batch(s.chunks[:2]...))
	h.consume(t, s.batch(s.chunks[1], s.chunks[0]))
	h.consume(t, s.batch(s.chunks[2:]...))
	h.consume(t, s.batch(append([]ptrace.Span{s.parent}, s.chunks[2:]...)...))
	require.Equal(t, 2, h.sink.SpanCount())
	out := h.sink.AllTraces()[0]
	assertAttrs(t, streamOf(t, out, byID(t, out, idOf(parentID).String())), attrs{
		"stream.chunk.count": 4, "stream.chunk.spans_folded": 4, "stream.chunk.gap.p50": 0.2, "stream.chunk.gap.stddev": 0.0,
	})
	assert.Equal(t, map[string]int{"folded": 4, "duplicate": 4}, h.results(t, "spans"))

	// The whole stream again gives the same spans under the same ids.
	again := newHarness(t, folding)
	again.consume(t, s.batch(s.all()...))
	again.consume(t, s.batch(s.all()...))
	both := again.sink.AllTraces()
	assert.Equal(t, contents(t, both[0]), contents(t, both[1]))
}

// moody is a next consumer that fails as told.
type moody struct {
	mu   sync.Mutex
	err  error
	got  []ptrace.Traces
	fail int // calls that failed
}

func (m *moody) be(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.err = err
}

func (m *moody) ConsumeTraces(_ context.Context, td ptrace.Traces) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.err != nil {
		m.fail++
		return m.err
	}
	kept := ptrace.NewTraces()
	td.CopyTo(kept)
	m.got = append(m.got, kept)
	return nil
}

func (m *moody) all() []ptrace.Traces {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.got)
}

// newHarnessFor is newHarness with another next consumer. What a test leaves open goes nowhere.
func newHarnessFor(t testing.TB, consume consumer.ConsumeTracesFunc, set ...func(*Config)) *harness {
	t.Helper()
	h := &harness{cfg: createDefaultConfig().(*Config), tel: componenttest.NewTelemetry()}
	for _, f := range set {
		f(h.cfg)
	}
	require.NoError(t, h.cfg.Validate())
	next, err := consumer.NewTraces(consume)
	require.NoError(t, err)
	h.Traces, err = NewFactory().CreateTraces(context.Background(), metadatatest.NewSettings(h.tel), h.cfg, next)
	require.NoError(t, err)
	require.NoError(t, h.Start(context.Background(), componenttest.NewNopHost()))
	t.Cleanup(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		_ = h.Shutdown(ctx)
		require.NoError(t, h.tel.Shutdown(context.Background()))
	})
	return h
}

func newMoody(t testing.TB, set ...func(*Config)) (*harness, *moody) {
	t.Helper()
	m := &moody{}
	h := newHarnessFor(t, m.ConsumeTraces, append([]func(*Config){folding}, set...)...)
	return h, m
}

func TestAFailedRequestLeavesNoTrace(t *testing.T) {
	s := sglang(200*ms, 400*ms, 600*ms, 800*ms, 1000*ms)
	want := contents(t, foldOnce(t, s.batch(s.all()...))...)
	for _, last := range [][]ptrace.Span{
		slices.Concat(s.others, s.chunks[3:], []ptrace.Span{s.parent}), // chunk spans before and with the parent
		slices.Concat(s.others, []ptrace.Span{s.parent}),
	} {
		h, next := newMoody(t)
		h.consume(t, s.batch(s.chunks[:3]...))
		if len(last) < 4 {
			h.consume(t, s.batch(s.chunks[3:]...))
		}
		next.be(errNext)
		for range 3 {
			require.ErrorIs(t, h.ConsumeTraces(t.Context(), s.batch(last...)), errNext)
		}
		next.be(nil)
		h.consume(t, s.batch(last...))
		assert.Equal(t, want, contents(t, next.all()...))
		assert.Equal(t, map[string]int{"folded": 5}, h.results(t, "spans"))
	}

	// The same of a request that brings chunk spans beside others: sent again, they count once.
	h, next := newMoody(t)
	next.be(errNext)
	require.ErrorIs(t, h.ConsumeTraces(t.Context(), s.batch(append(s.others, s.chunks...)...)), errNext)
	next.be(nil)
	h.consume(t, s.batch(append(s.others, s.chunks...)...))
	h.consume(t, s.batch(s.parent))
	assert.Equal(t, want, contents(t, next.all()...))
}

func TestStreamsThatCannotBeSentStay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := sglang(200*ms, 400*ms, 600*ms, 800*ms)
		h, next := newMoody(t)
		h.consume(t, s.batch(s.chunks[:2]...))
		next.be(errNext)
		time.Sleep(40 * time.Second)
		synctest.Wait()
		require.Positive(t, next.fail)
		h.consume(t, s.batch(s.chunks[2:]...)) // joins what waits
		next.be(nil)
		time.Sleep(40 * time.Second)
		synctest.Wait()
		out := next.all()
		require.Len(t, out, 1)
		require.Len(t, spansOf(out[0]), 1)
		assertAttrs(t, spansOf(out[0])[0], attrs{"stream.chunk.count": 4, "stream.chunk.gap.max": 0.2})
	})
}

func TestAHeldParentThatCannotBeSentStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := sglang(200*ms, 400*ms, 600*ms, 800*ms)
		want := contents(t, foldOnce(t, s.batch(s.all()...))...)
		h, next := newMoody(t, func(c *Config) { c.ChunkSpans.ParentWait = time.Second })
		h.consume(t, s.batch(append(s.others[:1:1], s.chunks[:2]...)...))
		next.be(errNext)
		h.consume(t, s.batch(s.parent))
		time.Sleep(5 * time.Second)
		synctest.Wait()
		require.Positive(t, next.fail)
		h.consume(t, s.batch(s.chunks[2:]...))
		next.be(nil)
		time.Sleep(5 * time.Second)
		synctest.Wait()
		assert.Equal(t, want, contents(t, next.all()...))
	})
}

func TestShutdownReturnsTheError(t *testing.T) {
	s := sglang(200*ms, 400*ms, 600*ms)
	h, next := newMoody(t)
	h.consume(t, s.batch(s.chunks...))
	next.be(errNext)
	err := h.Shutdown(t.Context())
	require.ErrorIs(t, err, errNext)
	require.ErrorContains(t, err, "3 spans")
}

func TestPermanentRefusalIsNotRetried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := sglang(200*ms, 400*ms, 600*ms)
		h, next := newMoody(t)
		h.consume(t, s.batch(s.chunks...))
		next.be(consumererror.NewPermanent(errors.New("no")))
		time.Sleep(60 * time.Second)
		synctest.Wait()
		assert.Equal(t, 1, next.fail)
		assert.Equal(t, map[string]int{"dropped": 1}, h.results(t, "streams"))
		next.be(nil)
	})
}

// stream returns a shape under ids of its own.
func (s shape) withTrace(n int) shape {
	out := shape{scope: s.scope}
	again := func(from ptrace.Span) ptrace.Span {
		span := ptrace.NewSpan()
		from.CopyTo(span)
		id := pcommon.TraceID{0xff}
		binary.BigEndian.PutUint64(id[8:], uint64(n))
		span.SetTraceID(id)
		return span
	}
	out.parent = again(s.parent)
	for _, c := range s.chunks {
		out.chunks = append(out.chunks, again(c))
	}
	return out
}

func TestEvictionOldestFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, folding, func(c *Config) { c.ChunkSpans.MaxStreams = 3 })
		base := sglang(200*ms, 400*ms)
		for i := range 5 {
			s := base.withTrace(i)
			h.consume(t, s.batch(s.chunks...))
			time.Sleep(ms)
			if i == 2 {
				first := base.withTrace(0) // touched again, so that 1 is the oldest
				first.chunks[0].SetSpanID(idOf(777))
				h.consume(t, first.batch(first.chunks[0]))
				time.Sleep(ms)
			}
		}
		var left []byte
		for _, td := range h.sink.AllTraces() {
			for _, s := range spansOf(td) {
				id := s.TraceID()
				left = append(left, id[15])
			}
		}
		assert.Equal(t, []byte{1, 2}, left)
		assert.Equal(t, map[string]int{"evicted": 2}, h.results(t, "streams"))
		assert.Equal(t, int64(3), h.level(t, "otelcol_processor_stream_open_streams"))
		assert.Positive(t, h.level(t, "otelcol_processor_stream_open_memory"))
	})
}

// level is the value of a metric without attributes that goes up and down.
func (h *harness) level(t *testing.T, name string) int64 {
	t.Helper()
	m, err := h.tel.GetMetric(name)
	require.NoError(t, err)
	sum := m.Data.(metricdata.Sum[int64])
	require.False(t, sum.IsMonotonic)
	require.Len(t, sum.DataPoints, 1)
	return sum.DataPoints[0].Value
}

// TestOpenStreamsOfSeveralPipelines: a processor in two pipelines is two instances, and what they hold adds up.
func TestOpenStreamsOfSeveralPipelines(t *testing.T) {
	h := newHarness(t, folding)
	s := sglang(200*ms, 400*ms)
	h.consume(t, s.batch(s.chunks...))
	one := h.level(t, "otelcol_processor_stream_open_memory")

	other, err := NewFactory().CreateTraces(t.Context(), metadatatest.NewSettings(h.tel), h.cfg, h.sink)
	require.NoError(t, err)
	require.NoError(t, other.Start(t.Context(), componenttest.NewNopHost()))
	require.NoError(t, other.ConsumeTraces(t.Context(), s.batch(s.chunks...)))
	assert.Equal(t, int64(2), h.level(t, "otelcol_processor_stream_open_streams"))
	assert.Equal(t, 2*one, h.level(t, "otelcol_processor_stream_open_memory"))

	require.NoError(t, other.Shutdown(t.Context()))
	assert.Equal(t, int64(1), h.level(t, "otelcol_processor_stream_open_streams"))
}

// TestFullStoreRefuses: when streams must leave and cannot, new ones are refused instead of memory growing.
func TestFullStoreRefuses(t *testing.T) {
	h, next := newMoody(t, func(c *Config) { c.ChunkSpans.MaxStreams = 2 })
	base := sglang(200*ms, 400*ms)
	next.be(errNext)
	accepted := 0
	for i := range 10 {
		s := base.withTrace(i)
		err := h.ConsumeTraces(t.Context(), s.batch(s.chunks...))
		if err == nil {
			accepted++
			continue
		}
		require.ErrorIs(t, err, errNext)
		require.ErrorContains(t, err, "chunk_spans::max_streams")
	}
	assert.Equal(t, 3, accepted, "one more than max_streams shows that there is no way out")
	next.be(nil)
	require.NoError(t, h.Shutdown(t.Context()))
	spans := 0
	for _, td := range next.all() {
		spans += len(spansOf(td))
	}
	assert.Equal(t, accepted, spans)
}

func TestFoldingIsSafeForConcurrentUse(t *testing.T) {
	const streams, chunks = 40, 30
	h := newHarness(t, folding, func(c *Config) { c.ChunkSpans.MaxStreams = 25 })
	instants := make([]time.Duration, chunks)
	for i := range instants {
		instants[i] = 200*ms + time.Duration(i)*50*ms
	}
	base := asgi(instants...)
	var wg sync.WaitGroup
	for i := range streams {
		wg.Go(func() {
			s := base.withTrace(i)
			for _, span := range append(s.chunks, s.parent) {
				if err := h.ConsumeTraces(context.Background(), s.batch(span)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	require.NoError(t, h.Shutdown(t.Context()))
	// Every chunk span is in a summary or went out.
	folded, plain, parents := 0, 0, 0
	for _, td := range h.sink.AllTraces() {
		for _, s := range spansOf(td) {
			if v, ok := s.Attributes().Get("stream.chunk.spans_folded"); ok {
				folded += int(v.Int())
			} else if s.Name() == "GET /chat http send" {
				plain++
			} else {
				parents++
			}
		}
	}
	assert.Equal(t, streams*chunks, folded+plain)
	assert.Equal(t, streams, parents)
}

func TestNextConsumerThatHangsAtShutdown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := sglang(200*ms, 400*ms, 600*ms)
		h := newHarnessFor(t, hang, folding)
		require.NoError(t, h.ConsumeTraces(t.Context(), s.batch(s.chunks...)))
		time.Sleep(35 * time.Second) // the flush is under way and hangs
		require.NoError(t, h.ConsumeTraces(t.Context(), s.withTrace(1).batch(s.withTrace(1).chunks...)), "and holds up nobody")
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, h.Shutdown(ctx), context.DeadlineExceeded)
	})
}

func hang(ctx context.Context, _ ptrace.Traces) error {
	<-ctx.Done()
	return ctx.Err()
}

func TestFoldingStopsWithoutHavingStarted(t *testing.T) {
	cfg := createDefaultConfig().(*Config)
	folding(cfg)
	p, err := NewFactory().CreateTraces(t.Context(), nopSettings(), cfg, consumertest.NewNop())
	require.NoError(t, err)
	require.NoError(t, p.Shutdown(t.Context()))
}

// TestFoldingInEveryMode: a span that keeps its shape takes the summary itself.
func TestFoldingInEveryMode(t *testing.T) {
	s := asgi(200*ms, 300*ms, 600*ms)
	for mode, phases := range map[streamspan.Mode]map[streamspan.Phase]int{
		streamspan.ModeSplit:    {streamspan.PhaseRequest: 1, streamspan.PhaseStream: 1, streamspan.PhaseNone: 1},
		streamspan.ModeAnnotate: {streamspan.PhaseWhole: 1, streamspan.PhaseNone: 1},
		streamspan.ModeNest:     {streamspan.PhaseEnvelope: 1, streamspan.PhaseRequest: 1, streamspan.PhaseStream: 1, streamspan.PhaseNone: 1},
	} {
		t.Run(string(mode), func(t *testing.T) {
			h := newHarness(t, folding, func(c *Config) { c.Mode = mode })
			h.consume(t, s.batch(s.chunks[:2]...))
			h.consume(t, s.batch(s.chunks[2], s.others[0], s.parent))
			got := map[streamspan.Phase]int{}
			for _, span := range spansOf(h.sink.AllTraces()[0]) {
				got[phaseOf(span)]++
				if p := phaseOf(span); p == streamspan.PhaseStream || p == streamspan.PhaseWhole {
					assertAttrs(t, span, attrs{"stream.chunk.spans_folded": 3, "stream.chunk.gap.max": 0.3})
				}
			}
			assert.Equal(t, phases, got)
		})
	}
}

// TestAHeldParentIsNotLostToAnotherOfItsIDs: nonsense, or a span of ours, that has the ids of a parent that is held passes beside it.
func TestAHeldParentIsNotLostToAnotherOfItsIDs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := sglang(200*ms, 400*ms)
		h := newHarness(t, folding, func(c *Config) { c.ChunkSpans.ParentWait = time.Second })
		h.consume(t, s.batch(append(slices.Clone(s.chunks), s.parent)...))
		bad := bareSpan("bad", parentID, 0, ptrace.SpanKindInternal, shapeStart, shapeStart-1)
		ours := bareSpan("ours", parentID, 0, ptrace.SpanKindInternal, shapeStart, shapeStart+1)
		ours.Attributes().PutStr("stream.phase", "request")
		h.consume(t, s.batch(bad, ours, s.parent))
		time.Sleep(2 * time.Second)
		synctest.Wait()
		names := map[string]int{}
		for _, td := range h.sink.AllTraces() {
			for _, span := range spansOf(td) {
				names[span.Name()]++
			}
		}
		assert.Equal(t, map[string]int{"bad": 1, "ours": 1, "Req 4af1": 2, "Req 4af1 stream": 1}, names)
	})
}

// TestFoldedParentAfterAStreamingSpan: what the span before it said must not be taken for the parent's own. The parent says nothing itself.
func TestFoldedParentAfterAStreamingSpan(t *testing.T) {
	s := asgi(150*ms, 250*ms, 350*ms)
	client := bareSpan("chat gpt-4o", 50, 0, ptrace.SpanKindClient, shapeStart, shapeStart+int64(400*ms))
	client.SetTraceID(pcommon.TraceID{0x72, 2})
	client.Attributes().PutBool("gen_ai.request.stream", true)
	client.Attributes().PutDouble("gen_ai.response.time_to_first_chunk", 0.3)
	client.Attributes().PutStr("error.type", "timeout")

	h := newHarness(t, folding)
	h.consume(t, s.batch(append([]ptrace.Span{client}, s.all()...)...))
	out := h.sink.AllTraces()[0]
	r := byID(t, out, idOf(parentID).String())
	assertTimes(t, r, r, 0, 150*ms)
	assertAttrs(t, r, attrs{"stream.first_chunk.source": "http send", "stream.dialect": "asgi", "stream.outcome": "completed"})
}
