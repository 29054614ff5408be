// Copyright The otelcol-stream Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/consumer/consumertest"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/processor"

	"github.com/otelcol-stream/otelcol-stream/internal/cadence"
	"github.com/otelcol-stream/otelcol-stream/internal/dialect"
	"github.com/otelcol-stream/otelcol-stream/internal/streamspan"
	"github.com/otelcol-stream/otelcol-stream/streamprocessor"
	"github.com/otelcol-stream/otelcol-stream/test/captures"
)

// row is what is known of one kind of stream that one instrumentation records. A client's and a server's span are two rows.
type row struct {
	instrumentation string
	kind            string // "", or the span kind when the instrumentation records both
	scopes          map[string]bool
	// alone lists the evidence of which each piece by itself makes the span a stream.
	alone   map[string]bool
	sources map[string]bool
	// qualities counts the streams by the quality of their cadence.
	qualities map[cadence.Quality]int
	// outcomes by scenario.
	outcomes map[string]string
	// errors of the time to first chunk against the wire: first write of the body, and first write with content.
	toWrite, toContent []time.Duration
	// opening says what the first chunk is when an opening event and the first content lie 1.5 s apart.
	opening string
	chunks  int64 // of smooth4
	written int   // content chunks that were written in smooth4
	folded  bool
	nested  bool // another span of the same call is marked
	apart   bool // the call is recorded twice, in two traces
	// overLimit: a stream whose first chunk was among the events that its SDK dropped.
	overLimit bool
	// retry is the error of the first chunk when a first attempt failed inside the same span or beside it.
	retry    time.Duration
	retried  bool
	streamed int // streams with a first chunk
	unsplit  int // streams without
	spans    int // of smooth4, streaming or not
}

// stream is one stream that the processor found, from its stream span or from the span that was left whole.
type stream struct {
	span   ptrace.Span
	source ptrace.Span // as it came in; the zero value for streams of chunk spans alone
	record streamspan.Record
}

// process passes the exports of one capture through the processor, chunk spans folded, until it shuts down.
func process(exports []ptrace.Traces) ([]ptrace.Traces, error) {
	ctx := context.Background()
	factory := streamprocessor.NewFactory()
	cfg := factory.CreateDefaultConfig().(*streamprocessor.Config)
	cfg.ChunkSpans.Enabled = true
	sink := &consumertest.TracesSink{}
	set := processor.Settings{ID: component.NewID(factory.Type()), TelemetrySettings: componenttest.NewNopTelemetrySettings()}
	p, err := factory.CreateTraces(ctx, set, cfg, sink)
	if err != nil {
		return nil, err
	}
	if err := p.Start(ctx, componenttest.NewNopHost()); err != nil {
		return nil, err
	}
	for _, export := range exports {
		in := ptrace.NewTraces()
		export.CopyTo(in)
		if err := p.ConsumeTraces(ctx, in); err != nil {
			return nil, err
		}
	}
	return sink.AllTraces(), p.Shutdown(ctx)
}

type spanID struct {
	trace pcommon.TraceID
	span  pcommon.SpanID
}

func eachSpan(traces []ptrace.Traces, f func(scope pcommon.InstrumentationScope, s ptrace.Span)) {
	for _, td := range traces {
		for _, rs := range td.ResourceSpans().All() {
			for _, ss := range rs.ScopeSpans().All() {
				for _, s := range ss.Spans().All() {
					f(ss.Scope(), s)
				}
			}
		}
	}
}

// inTwoTraces reports whether streams of one call lie in more than one trace, where nothing ties them together.
func inTwoTraces(streams []stream) bool {
	return slices.ContainsFunc(streams, func(s stream) bool { return s.span.TraceID() != streams[0].span.TraceID() })
}

// scenarios whose truth is a streamed response with at least one write of the body.
var answered = map[string]bool{
	"smooth4": true, "smooth1": true, "headburst": true, "stall3s": true, "long20s": true, "many200": true, "thinking": true,
	"roleonly": true, "single": true, "truncated": true, "cancelled": true, "cancelled_break": true, "cancelled_task": true, "error_midstream": true,
}

// shown are the scenarios whose outcomes the table shows.
var shown = []string{"smooth4", "truncated", "cancelled", "error_midstream"}

func measure(all []captures.Capture) ([]*row, error) {
	rows := map[string]*row{}
	m := &measurer{finder: newFinder(), reader: streamspan.NewReader(nil), rows: rows}
	for _, c := range all {
		if err := m.capture(c); err != nil {
			return nil, fmt.Errorf("%s: %w", c.Name(), err)
		}
	}
	var out []*row
	for _, key := range slices.Sorted(maps.Keys(rows)) {
		out = append(out, rows[key])
	}
	return dropEmptyTwins(out), nil
}

func newFinder() *streamspan.Finder {
	table, err := dialect.Compile(dialect.Vocabulary{})
	if err != nil {
		panic(err) // the built-in table compiles
	}
	return streamspan.NewFinder(table, 100*time.Millisecond, cadence.DefaultSettings())
}

type measurer struct {
	finder *streamspan.Finder
	reader *streamspan.Reader
	rows   map[string]*row
}

func (m *measurer) row(instrumentation, kind string) *row {
	key := instrumentation + "\x00" + kind
	r := m.rows[key]
	if r == nil {
		r = &row{
			instrumentation: instrumentation, kind: kind, scopes: map[string]bool{}, alone: map[string]bool{}, sources: map[string]bool{},
			qualities: map[cadence.Quality]int{}, outcomes: map[string]string{},
		}
		m.rows[key] = r
	}
	return r
}

func (m *measurer) capture(c captures.Capture) error {
	exports, err := c.Traces()
	if err != nil {
		return err
	}
	truth, err := c.Truth()
	if err != nil {
		return err
	}
	out, err := process(exports)
	if err != nil {
		return err
	}
	sources := map[spanID]ptrace.Span{}
	scopes := map[spanID]pcommon.InstrumentationScope{}
	bare := m.row(c.Instrumentation, "")
	eachSpan(exports, func(scope pcommon.InstrumentationScope, s ptrace.Span) {
		id := spanID{s.TraceID(), s.SpanID()}
		sources[id], scopes[id] = s, scope
		bare.scopes[scopeName(scope)] = true
		if c.Scenario == "smooth4" {
			bare.spans++
		}
	})

	var streams []stream
	eachSpan(out, func(_ pcommon.InstrumentationScope, s ptrace.Span) {
		var rec streamspan.Record
		if !m.reader.Read(s.Attributes(), &rec) || rec.Phase != streamspan.PhaseStream && rec.Phase != streamspan.PhaseWhole {
			return
		}
		rec.Cadence.Histogram = cadence.Histogram{}
		st := stream{span: s, record: rec}
		id := spanID{s.TraceID(), s.SpanID()}
		if rec.Phase == streamspan.PhaseStream {
			id.span = s.ParentSpanID()
		}
		st.source = sources[id]
		streams = append(streams, st)
	})
	apart := len(truth) == 1 && inTwoTraces(streams)
	for _, st := range streams {
		if c.Scenario == "nonstream" {
			return fmt.Errorf("the plain call %q was taken for a stream", st.span.Name())
		}
		kind := ""
		if st.source != (ptrace.Span{}) {
			kind = st.source.Kind().String()
		}
		r := m.row(c.Instrumentation, kind)
		r.apart = r.apart || apart
		if st.source != (ptrace.Span{}) {
			scope := scopes[spanID{st.source.TraceID(), st.source.SpanID()}]
			r.scopes[scopeName(scope)] = true
			for _, e := range m.alone(scope, st.source) {
				r.alone[e] = true
			}
		}
		m.add(r, c, truth, st)
	}
	return nil
}

func (m *measurer) add(r *row, c captures.Capture, truth []captures.Attempt, st stream) {
	rec := &st.record
	if rec.Nested {
		r.nested = true
		return
	}
	r.folded = r.folded || rec.SpansFolded > 0
	last := truth[len(truth)-1]
	if rec.Phase == streamspan.PhaseWhole {
		if answered[c.Scenario] {
			r.unsplit++
		}
		r.overLimit = r.overLimit || rec.Cadence.Quality == cadence.QualityPartial
		if c.Scenario == "smooth4" {
			r.qualities[rec.Cadence.Quality]++
		}
		r.outcome(c.Scenario, rec)
		return
	}
	r.sources[sourceName(rec.FirstChunkSource)] = true
	r.qualities[rec.Cadence.Quality]++
	r.outcome(c.Scenario, rec)
	f := st.span.StartTimestamp().AsTime()
	switch {
	case c.Scenario == "retry_ok" && !last.FirstWrite.IsZero():
		r.retry, r.retried = f.Sub(last.FirstWrite), true
	case !answered[c.Scenario] || last.FirstWrite.IsZero() || len(truth) != 1:
		return
	default:
		r.streamed++
		write := f.Sub(last.FirstWrite)
		content := f.Sub(last.Received.Add(last.FirstContent))
		if c.Scenario == "roleonly" {
			r.opening = "content"
			if write.Abs() < content.Abs() {
				r.opening = "opening event"
			}
			return
		}
		r.toWrite = append(r.toWrite, write)
		r.toContent = append(r.toContent, content)
	}
	if c.Scenario == "smooth4" {
		r.chunks, r.written = rec.Cadence.ChunkCount, last.Chunks
	}
}

func (r *row) outcome(scenario string, rec *streamspan.Record) {
	if slices.Contains(shown, scenario) {
		r.outcomes[scenario] = string(rec.Outcome)
	}
}

// alone tries each attribute, each kind of event and the name of a span by itself, on a bare span of the same times, and returns what
// makes it a stream.
func (m *measurer) alone(scope pcommon.InstrumentationScope, s ptrace.Span) []string {
	var found []string
	try := func(what string, fill func(ptrace.Span)) {
		td := ptrace.NewTraces()
		ss := td.ResourceSpans().AppendEmpty().ScopeSpans().AppendEmpty()
		scope.CopyTo(ss.Scope())
		bare := ss.Spans().AppendEmpty()
		bare.SetTraceID(s.TraceID())
		bare.SetSpanID(s.SpanID())
		bare.SetKind(s.Kind())
		bare.SetStartTimestamp(s.StartTimestamp())
		bare.SetEndTimestamp(s.EndTimestamp())
		fill(bare)
		if len(m.finder.Find(td)) > 0 {
			found = append(found, what)
		}
		m.finder.Release()
	}
	try("span name", func(bare ptrace.Span) { bare.SetName(s.Name()) })
	for key, v := range s.Attributes().All() {
		try("`"+key+"`", func(bare ptrace.Span) { v.CopyTo(bare.Attributes().PutEmpty(key)) })
	}
	names := map[string]bool{}
	for _, e := range s.Events().All() {
		names[sourceName(e.Name())] = true
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		try("events `"+name+"`", func(bare ptrace.Span) {
			for _, e := range s.Events().All() {
				if sourceName(e.Name()) == name {
					e.CopyTo(bare.Events().AppendEmpty())
				}
			}
		})
	}
	return found
}

// sourceName takes the number off the names of numbered events.
func sourceName(name string) string {
	if i := strings.LastIndexByte(name, '.'); i >= 0 && strings.Trim(name[i+1:], "0123456789") == "" && i+1 < len(name) {
		return name[:i+1] + "N"
	}
	return name
}

func scopeName(scope pcommon.InstrumentationScope) string {
	if scope.Version() == "" {
		return scope.Name()
	}
	return scope.Name() + "@" + scope.Version()
}

// dropEmptyTwins removes the row without a kind of an instrumentation that has rows with one, and hands its scopes on where they have none.
func dropEmptyTwins(rows []*row) []*row {
	kinds := map[string]int{}
	for _, r := range rows {
		if r.kind != "" {
			kinds[r.instrumentation]++
		}
	}
	out := rows[:0]
	for _, r := range rows {
		if r.kind == "" && kinds[r.instrumentation] > 0 && r.streamed == 0 {
			continue
		}
		if kinds[r.instrumentation] == 1 {
			r.kind = ""
		}
		out = append(out, r)
	}
	return out
}

// spread is the median and the greatest by magnitude.
func spread(ds []time.Duration) (median, worst time.Duration) {
	if len(ds) == 0 {
		return 0, 0
	}
	sorted := slices.Clone(ds)
	slices.Sort(sorted)
	n := len(sorted)
	median = sorted[n/2]
	if n%2 == 0 {
		median = (sorted[n/2-1] + sorted[n/2]) / 2
	}
	worst = slices.MaxFunc(sorted, func(a, b time.Duration) int { return int(math.Copysign(1, float64(a.Abs()-b.Abs()))) })
	return median, worst
}
