// Copyright The otelcol-stream Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/otelcol-stream/otelcol-stream/test/captures"
	"github.com/otelcol-stream/otelcol-stream/test/collector"
)

const none = "-"

type spanID struct {
	trace pcommon.TraceID
	span  pcommon.SpanID
}

func idOf(span ptrace.Span) spanID { return spanID{span.TraceID(), span.SpanID()} }

// stream is one streamed response as it left the collector: the stream half of a split span, or a span left whole.
type stream struct {
	capture captures.Capture
	span    ptrace.Span
	// request is the other half; false ok when the span was left whole.
	request ptrace.Span
	split   bool
}

type report struct {
	in        input
	streams   []stream
	spans     int
	bytes     int // of spans, without resources and scopes
	collapsed int
	folded    int
	// Of the spans that had per-chunk events: bytes as they came in, and as they left, both halves together.
	chunkedBefore, chunkedAfter int
	split                       int
	results                     map[[2]string]int // by result and reason, from the processor's own telemetry
	nestedCalls                 int
}

func newReport(in input, exported []ptrace.Traces, samples []collector.Sample) *report {
	r := &report{in: in, results: map[[2]string]int{}}
	requests := map[spanID]ptrace.Span{}
	collector.Spans(exported, func(_ ptrace.ResourceSpans, _ ptrace.ScopeSpans, span ptrace.Span) {
		r.spans++
		if text(span, "stream.phase") == "request" {
			requests[idOf(span)] = span
		}
	})
	sizer := ptrace.ProtoMarshaler{}
	collector.Spans(exported, func(_ ptrace.ResourceSpans, _ ptrace.ScopeSpans, span ptrace.Span) {
		r.bytes += sizer.SpanSize(span)
		r.folded += int(number(span, "stream.chunk.spans_folded"))
		if collapsed := int(number(span, "stream.chunk.events_collapsed")); collapsed > 0 {
			r.collapsed += collapsed
			r.chunkedAfter += sizer.SpanSize(span)
			if request, ok := requests[spanID{span.TraceID(), span.ParentSpanID()}]; ok {
				r.chunkedAfter += sizer.SpanSize(request)
			}
			before, whole := in.size[idOf(span)]
			if !whole {
				before = in.size[spanID{span.TraceID(), span.ParentSpanID()}]
			}
			r.chunkedBefore += before
		}
		phase := text(span, "stream.phase")
		if phase != "stream" && phase != "whole" {
			return
		}
		one := stream{span: span, capture: in.origin[idOf(span)]}
		if phase == "stream" {
			id := spanID{span.TraceID(), span.ParentSpanID()}
			one.capture = in.origin[id]
			one.request, one.split = requests[id]
			r.split++
		}
		if nested, ok := span.Attributes().Get("stream.nested"); ok && nested.Bool() {
			r.nestedCalls++
		}
		r.streams = append(r.streams, one)
	})
	slices.SortStableFunc(r.streams, func(a, b stream) int {
		return cmp.Or(cmp.Compare(a.capture.Name(), b.capture.Name()), cmp.Compare(a.span.StartTimestamp(), b.span.StartTimestamp()))
	})
	for _, sample := range samples {
		if sample.Name == "otelcol_processor_stream_spans" && sample.Value > 0 {
			r.results[[2]string{sample.Labels["result"], sample.Labels["reason"]}] += int(sample.Value)
		}
	}
	return r
}

// showcase holds one line for each thing that a newcomer may want to see.
var showcase = map[string]bool{
	"browser-fetch/smooth4": true, "go-otelgrpc-v0.60/smooth4": true,
	"go-otelhttp/stall3s": true, "go-otelhttp/many200": true, "go-otelhttp/truncated": true, "go-otelhttp/cancelled": true,
	"langfuse-openai/smooth4": true, "mastra/smooth4": true, "openinference-anthropic/stall3s": true, "openlit-openai/smooth4": true,
	"sentry-openai/smooth4": true, "vercel-ai6/headburst": true, "vercel-ai7/thinking": true, "vercel-ai7/error_midstream": true,
	"python/openllmetry-openai/smooth4": true, "python/openllmetry-openai/smooth1": true, "python/openllmetry-openai/headburst": true, "python/fastapi/smooth4": true,
}

func (s stream) featured() bool {
	if nested, ok := s.span.Attributes().Get("stream.nested"); ok && nested.Bool() {
		return false
	}
	return showcase[s.capture.Name()]
}

func (r *report) countFeatured() int {
	n := 0
	for _, s := range r.streams {
		if s.featured() {
			n++
		}
	}
	return n
}

func (r *report) writeStreams(w io.Writer, want func(stream) bool) {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "capture\tinstrumentation\tkind\trequest\tstream\tchunks\tmedian gap\tworst gap\tstalls\thead burst\tcadence\toutcome")
	for _, s := range r.streams {
		if !want(s) {
			continue
		}
		request, duration := none, seconds(s.span, "stream.duration")
		if s.split {
			request = seconds(s.span, "stream.time_to_first_chunk")
		} else {
			duration = "not split"
		}
		outcome := text(s.span, "stream.outcome")
		if nested, ok := s.span.Attributes().Get("stream.nested"); ok && nested.Bool() {
			outcome += " (nested)"
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n",
			s.capture.Name(), text(s.span, "stream.dialect"), s.kind(), request, duration,
			count(s.span, "stream.chunk.count"), seconds(s.span, "stream.chunk.gap.p50"), seconds(s.span, "stream.chunk.gap.max"),
			stalls(s.span), ratio(s.span, "stream.head_burst"), text(s.span, "stream.cadence.quality"), outcome)
	}
	_ = table.Flush()
}

// kind is that of the span that came in, which the stream half keeps in an attribute.
func (s stream) kind() string {
	if s.split {
		return strings.ToLower(s.request.Kind().String())
	}
	return strings.ToLower(s.span.Kind().String())
}

// find returns the split stream of a capture on one side of the call.
func (r *report) find(name, kind string) (stream, bool) {
	for _, s := range r.streams {
		if s.split && s.capture.Name() == name && s.kind() == kind {
			return s, true
		}
	}
	return stream{}, false
}

// trickScenarios are the even stream that the tricks start from, then the two tricks.
var trickScenarios = []struct{ scenario, title string }{
	{"smooth4", "four tokens a chunk"},
	{"smooth1", "one token a chunk"},
	{"headburst", "head burst"},
}

// The instrumentation that shows the tricks records an event for every chunk and the provider's count of tokens.
const trickInstrumentation, trickKind = "python/openllmetry-openai", "client"

func (r *report) writeTricks(w io.Writer) {
	columns := make([]stream, 0, len(trickScenarios))
	titles := []string{""}
	for _, trick := range trickScenarios {
		name := trickInstrumentation + "/" + trick.scenario
		s, ok := r.find(name, trickKind)
		if !ok {
			fmt.Fprintf(w, "\nTWO PROVIDER TRICKS: cannot be shown, %s was not split.\n", name)
			return
		}
		columns = append(columns, s)
		titles = append(titles, trick.title)
	}
	fmt.Fprint(w, "\nTWO PROVIDER TRICKS, side by side. Tokens come at the same rate in four-token and in one-token chunks; and a head burst\n"+
		"sends most of them at once and lets the rest trickle. (OpenAI's Python client under OpenLLMetry; it records the opening and the\n"+
		"closing events of a stream as chunks too.)\n\n")
	table := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	row := func(title string, cell func(stream) string) {
		fmt.Fprint(table, title)
		for _, s := range columns {
			fmt.Fprint(table, "\t"+cell(s))
		}
		fmt.Fprintln(table)
	}
	attribute := func(format func(ptrace.Span, string) string, key string) func(stream) string {
		return func(s stream) string { return format(s.span, key) }
	}
	fmt.Fprintln(table, strings.Join(titles, "\t"))
	row("before: the span's duration", func(s stream) string {
		return formatSeconds(s.span.EndTimestamp().AsTime().Sub(s.request.StartTimestamp().AsTime()).Seconds())
	})
	row("after: time to first chunk", attribute(seconds, "stream.time_to_first_chunk"))
	row("tokens per second", attribute(ratio, "stream.token.rate"))
	row("tokens per chunk", attribute(ratio, "stream.chunk.tokens"))
	row("chunks", attribute(count, "stream.chunk.count"))
	row("median gap", attribute(seconds, "stream.chunk.gap.p50"))
	row("worst gap", attribute(seconds, "stream.chunk.gap.max"))
	row("most chunks in one second", attribute(count, "stream.chunk.rate.peak"))
	row("head burst (about 1 or less is even)", attribute(ratio, "stream.head_burst"))
	row("reader waits for text", attribute(seconds, "stream.reader.wait"))
	_ = table.Flush()
}

func (r *report) writeTotals(w io.Writer) {
	fmt.Fprint(w, "\nTOTALS\n\n")
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(table, "spans in\t%d\twith %d events\n", r.in.spans, r.in.events)
	fmt.Fprintf(table, "streaming\t%d\tof which %d belong to a call that another span stands for\n", len(r.streams), r.nestedCalls)
	fmt.Fprintf(table, "split\t%d\teach into a request span and a stream span\n", r.split)
	fmt.Fprintf(table, "not split\t%d\tannotated only, because of\n", len(r.streams)-r.split)
	keys := slices.SortedFunc(maps.Keys(r.results), func(a, b [2]string) int {
		return cmp.Or(cmp.Compare(r.results[b], r.results[a]), cmp.Compare(a[0]+a[1], b[0]+b[1]))
	})
	for _, key := range keys {
		if key[0] == "whole" {
			fmt.Fprintf(table, "  %s\t%d\t\n", strings.ReplaceAll(key[1], "_", " "), r.results[key])
		}
	}
	for _, key := range keys {
		if key[0] == "refused" {
			fmt.Fprintf(table, "left as they came\t%d\t%s\n", r.results[key], strings.ReplaceAll(key[1], "_", " "))
		}
	}
	fmt.Fprintf(table, "per-chunk events\t%d\tof %d events were replaced by summaries\n", r.collapsed, r.in.events)
	fmt.Fprintf(table, "span bytes\t%s\tbefore, %s after\n", kilobytes(r.in.bytes), kilobytes(r.bytes))
	fmt.Fprintf(table, "  with per-chunk events\t%s\tbefore, %s after\n", kilobytes(r.chunkedBefore), kilobytes(r.chunkedAfter))
	folded := ""
	if r.folded > 0 {
		fmt.Fprintf(table, "per-chunk spans\t%d\twere folded into the span that they belong to\n", r.folded)
		folded = fmt.Sprintf(" - %d folded", r.folded)
	}
	fmt.Fprintf(table, "spans out\t%d\t= %d in + %d stream spans%s\n", r.spans, r.in.spans, r.split, folded)
	_ = table.Flush()
}

func text(span ptrace.Span, key string) string {
	if value, ok := span.Attributes().Get(key); ok {
		return value.AsString()
	}
	return none
}

// number is 0 for what is absent.
func number(span ptrace.Span, key string) float64 {
	value, ok := span.Attributes().Get(key)
	switch {
	case ok && value.Type() == pcommon.ValueTypeInt:
		return float64(value.Int())
	case ok && value.Type() == pcommon.ValueTypeDouble:
		return value.Double()
	default:
		return 0
	}
}

func formatted(span ptrace.Span, key string, format func(float64) string) string {
	if _, ok := span.Attributes().Get(key); !ok {
		return none
	}
	return format(number(span, key))
}

func seconds(span ptrace.Span, key string) string { return formatted(span, key, formatSeconds) }

func ratio(span ptrace.Span, key string) string {
	return formatted(span, key, func(v float64) string { return fmt.Sprintf("%.1f", v) })
}

func count(span ptrace.Span, key string) string {
	return formatted(span, key, func(v float64) string { return fmt.Sprintf("%.0f", v) })
}

func stalls(span ptrace.Span) string {
	n := count(span, "stream.stall.count")
	if duration := seconds(span, "stream.stall.duration"); duration != none {
		return n + " (" + duration + ")"
	}
	return n
}

func formatSeconds(s float64) string {
	switch {
	case s >= 1:
		return fmt.Sprintf("%.2f s", s)
	case s >= 0.01 || s == 0:
		return fmt.Sprintf("%.0f ms", s*1e3)
	default:
		return fmt.Sprintf("%.1f ms", s*1e3)
	}
}

func kilobytes(n int) string { return fmt.Sprintf("%.0f kB", float64(n)/1e3) }
