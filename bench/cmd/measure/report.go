// Copyright The otelcol-stream Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/perf/benchfmt"
)

// recording is what one file of results holds: the machine, and per benchmark and unit the values in the order of the rounds.
type recording struct {
	config []benchfmt.Config
	names  []string
	values map[string]map[string][]float64
}

func read(path string) (*recording, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return &recording{}, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	rec := &recording{values: map[string]map[string][]float64{}}
	r := benchfmt.NewReader(f, path)
	for r.Scan() {
		result, ok := r.Result().(*benchfmt.Result)
		if !ok {
			continue
		}
		rec.config = result.Clone().Config
		name := result.Name.String()
		if rec.values[name] == nil {
			rec.names = append(rec.names, name)
			rec.values[name] = map[string][]float64{}
		}
		for _, v := range result.Values {
			rec.values[name][v.Unit] = append(rec.values[name][v.Unit], v.Value)
		}
	}
	return rec, r.Err()
}

// of returns the values of a benchmark, one per round.
func (r *recording) of(name, unit string) []float64 { return r.values[name][unit] }

// Units as benchfmt tidies them.
const (
	unitTime   = "sec/op"
	unitApart  = "apart-sec/op"
	unitAllocs = "allocs/op"
	unitBytes  = "B/op"
)

// summary is a median with the quartiles around it.
type summary struct{ median, low, high float64 }

func summarize(values []float64) summary {
	sorted := slices.Sorted(slices.Values(values))
	return summary{quantile(sorted, 0.5), quantile(sorted, 0.25), quantile(sorted, 0.75)}
}

func quantile(sorted []float64, q float64) float64 {
	if len(sorted) == 0 {
		return math.NaN()
	}
	at := q * float64(len(sorted)-1)
	lo := int(at)
	hi := min(lo+1, len(sorted)-1)
	return sorted[lo] + (at-float64(lo))*(sorted[hi]-sorted[lo])
}

// ratios divides round by round: what made one of the two slow in a round made the other slow too.
func ratios(over, under []float64) []float64 {
	var r []float64
	for i := range min(len(over), len(under)) {
		r = append(r, over[i]/under[i])
	}
	return r
}

// target is a ratio that must not exceed a limit, or must reach it.
type target struct {
	what        string
	over, under string
	limit       float64
	atLeast     bool
}

var targets = []target{
	{what: "non-streaming span of 15 attributes: processor ÷ unmarshal", over: "PlainProcessor", under: "PlainUnmarshal", limit: 0.02},
	{what: "the same: processor ÷ transform's never-matching condition", over: "PlainProcessor", under: "PlainTransformNever", limit: 0.7},
	{what: "span of 100 chunk events: processor ÷ unmarshal", over: "ChunkedProcessor", under: "ChunkedUnmarshal", limit: 0.5},
	{what: "the same: processor ÷ transform's six event statements", over: "ChunkedProcessor", under: "ChunkedTransformEvents", limit: 0.1},
	{what: "stream of 100 chunks, explicit: connector ÷ spanmetrics", over: "ChunkedConnectorExplicit", under: "ChunkedSpanMetricsExplicit", limit: 1},
	{what: "stream of 100 chunks, exponential: connector ÷ spanmetrics", over: "ChunkedConnectorExponential", under: "ChunkedSpanMetricsExponential", limit: 1},
	{what: "stream without chunks, explicit: connector ÷ spanmetrics", over: "GenAIConnectorExplicit", under: "GenAISpanMetricsExplicit", limit: 1},
	{what: "stream without chunks, exponential: connector ÷ spanmetrics", over: "GenAIConnectorExponential", under: "GenAISpanMetricsExponential", limit: 1},
	{what: "exponential 160 → 16 boundaries: processor ÷ transform's conversion", over: "ExponentialProcessor", under: "ExponentialTransform", limit: 0.1},
}

// comparisons are ratios without a limit that say where a number stands.
var comparisons = []target{
	{what: "non-streaming span: processor ÷ a bare walk over its keys", over: "PlainProcessor", under: "PlainWalk"},
	{what: "span of 100 chunk events: processor ÷ a bare walk over its events", over: "ChunkedProcessor", under: "ChunkedWalk"},
	{what: "bare walk over the keys of a plain span ÷ unmarshal", over: "PlainWalk", under: "PlainUnmarshal"},
	{what: "bare walk over 100 chunk events ÷ unmarshal", over: "ChunkedWalk", under: "ChunkedUnmarshal"},
	{what: "copying a ready-made stream span of 100 chunks ÷ unmarshal of the span that it is made from", over: "ChunkedCopy", under: "ChunkedUnmarshal"},
	{what: "non-streaming span: processor ÷ transform's `set`", over: "PlainProcessor", under: "PlainTransformSet"},
	{what: "non-streaming span: processor ÷ groupbytrace", over: "PlainProcessor", under: "PlainGroupByTrace"},
	{what: "non-streaming span: connector ÷ unmarshal", over: "PlainConnector", under: "PlainUnmarshal"},
	{what: "GenAI span of 25 attributes: processor ÷ unmarshal", over: "GenAIProcessor", under: "GenAIUnmarshal"},
	{what: "mix: processor ÷ unmarshal", over: "MixProcessor", under: "MixUnmarshal"},
	{what: "mix: marshal and compress, split ÷ as it came", over: "MixSplitExport", under: "MixExport"},
	{what: "mix: processor ÷ (transform's never-matching condition)", over: "MixProcessor", under: "MixTransformNever"},
	{what: "stream of 100 chunks, the same batch with its request spans to both: connector ÷ spanmetrics", over: "ChunkedConnectorExplicit", under: "ChunkedSpanMetricsAllSpans"},
	{what: "stream without chunks, the same batch with its request spans to both: connector ÷ spanmetrics", over: "GenAIConnectorExplicit", under: "GenAISpanMetricsAllSpans"},
	{what: "stream of 100 chunks: a bare reading of the stream span ÷ spanmetrics", over: "ChunkedRead", under: "ChunkedSpanMetricsExplicit"},
	{what: "stream without chunks: a bare reading of the stream span ÷ spanmetrics", over: "GenAIRead", under: "GenAISpanMetricsExplicit"},
	{what: "raw GenAI spans: connector ÷ spanmetrics on split ones", over: "GenAIRawConnectorExplicit", under: "GenAISpanMetricsExplicit"},
	{what: "chunk spans, parents in the same batch: processor ÷ groupbytrace", over: "ChunkSpansProcessor", under: "ChunkSpansGroupByTrace"},
	{what: "chunk spans, parents in a later batch: processor ÷ groupbytrace", over: "ChunkSpansProcessorOpen", under: "ChunkSpansGroupByTrace"},
	{what: "chunk spans: processor ÷ unmarshal", over: "ChunkSpansProcessor", under: "ChunkSpansUnmarshal"},
	{what: "explicit 23 → 12 buckets: processor ÷ unmarshal", over: "ExplicitProcessor", under: "ExplicitUnmarshal"},
}

func (t target) met(v float64) string {
	switch {
	case t.limit == 0:
		return ""
	case t.atLeast == (v >= t.limit) || v == t.limit:
		return "met"
	default:
		return "**not met**"
	}
}

func (t target) bound() string {
	switch {
	case t.limit == 0:
		return ""
	case t.atLeast:
		return "≥ " + number(t.limit)
	default:
		return "≤ " + number(t.limit)
	}
}

func report(ctx context.Context, path string) error {
	benchmarks, err := read(benchmarksFile)
	if err != nil {
		return err
	}
	growth, err := read(growthFile)
	if err != nil {
		return err
	}
	load, err := read(loadFile)
	if err != nil {
		return err
	}
	if err := benchstat(ctx); err != nil {
		return err
	}
	var w bytes.Buffer
	fmt.Fprint(&w, "# Results\n\nWritten by `make bench`; README.md says how this was measured. ns are CPU time per span or per histogram point.\n"+
		"Ratios are taken round by round; the median is given with the quartiles around it. The last column has what the ratio is with the garbage\n"+
		"collector kept out of the timed parts. Raw numbers and what benchstat makes of them are in `results/`.\n")

	fmt.Fprint(&w, "\n## Targets\n\n")
	table := newTable("what", "ratio", "quartiles", "target", "", "no GC")
	for _, t := range targets {
		if cells := ratioCells(benchmarks, t); cells != nil {
			table.add(cells...)
		}
	}
	countRow(table, benchmarks, "non-streaming span: allocations", "PlainProcessor", unitAllocs, 0)
	countRow(table, benchmarks, "explicit → explicit: allocations per point", "ExplicitProcessor", unitAllocs, 0)
	held(table, benchmarks)
	for _, t := range loadTargets {
		loadRow(table, load, t)
	}
	table.write(&w)

	fmt.Fprint(&w, "\n## Further comparisons\n\n")
	table = newTable("what", "ratio", "quartiles", "no GC")
	for _, t := range comparisons {
		if cells := ratioCells(benchmarks, t); cells != nil {
			table.add(slices.Delete(cells, 3, 5)...) // no target
		}
	}
	table.write(&w)

	fmt.Fprint(&w, "\n## End to end\n\nThe built binary on one core, OTLP/gRPC in, mix of 95 % plain, 4 % GenAI and 1 % spans of 100 chunks.\n\n")
	loadTable(&w, load)

	fmt.Fprint(&w, "\n## Growth\n\nns per span, or per event, as the size grows.\n\n")
	growthTable(&w, growth)

	fmt.Fprint(&w, "\n## All benchmarks\n\n")
	allTable(&w, benchmarks)

	fmt.Fprint(&w, "\n## Machine\n\n")
	for _, part := range []struct {
		name string
		rec  *recording
	}{{"benchmarks", benchmarks}, {"end to end", load}, {"growth", growth}} {
		var s []string
		for _, c := range part.rec.config {
			s = append(s, c.Key+" "+string(c.Value))
		}
		fmt.Fprintf(&w, "- %s: %s\n", part.name, strings.Join(s, ", "))
	}
	fmt.Fprint(&w, "- compared with: transformprocessor, spanmetricsconnector, groupbytraceprocessor v0.161.0\n")

	if err := os.WriteFile(path, w.Bytes(), 0o644); err != nil {
		return err
	}
	fmt.Println()
	fmt.Print(strings.SplitN(w.String(), "\n## Further", 2)[0])
	fmt.Println("\nWritten to", path)
	return nil
}

// ratioCells is nil when one of the two benchmarks was not run.
func ratioCells(rec *recording, row target) []string {
	r := summarize(ratios(rec.of(row.over, unitTime), rec.of(row.under, unitTime)))
	if math.IsNaN(r.median) {
		return nil
	}
	apart := summarize(ratios(rec.of(row.over, unitApart), rec.of(row.under, unitApart)))
	return []string{row.what, number(r.median), number(r.low) + " – " + number(r.high), row.bound(), row.met(r.median), number(apart.median)}
}

func countRow(t *table, rec *recording, what, name, unit string, limit float64) {
	if v := rec.of(name, unit); len(v) > 0 {
		s := summarize(v)
		met := "met"
		if s.median > limit {
			met = "**not met**"
		}
		t.add(what, number(s.median), number(s.low)+" – "+number(s.high), "≤ "+number(limit), met)
	}
}

// held compares the bytes of an open stream with 1 KiB and 8 bytes a chunk.
func held(t *table, rec *recording) {
	for _, name := range rec.names {
		base, chunks, ok := strings.Cut(name, "/")
		if base != "OpenStreamBytes" || !ok {
			continue
		}
		n, err := strconv.Atoi(chunks)
		if err != nil {
			continue
		}
		limit := 1024 + 8*float64(n)
		s := summarize(rec.of(name, "B/stream"))
		met := "met"
		if s.median > limit {
			met = "**not met**"
		}
		t.add("folding: bytes of an open stream of "+chunks+" chunks", number(s.median), number(s.low)+" – "+number(s.high), "≤ "+number(limit), met)
	}
}

var loadTargets = []target{
	{what: "end to end: CPU per span, without ÷ with the processor, OTLP export as it is by default", over: "Load/otlp/without", under: "Load/otlp/processor", limit: 0.97, atLeast: true},
	{what: "the same, export without compression", over: "Load/uncompressed/without", under: "Load/uncompressed/processor", limit: 0.97, atLeast: true},
}

const (
	unitCPU  = "cpu-s/Mspan"
	unitRate = "spans/s"
)

func loadRow(t *table, rec *recording, row target) {
	r := summarize(ratios(rec.of(row.over, unitCPU), rec.of(row.under, unitCPU)))
	if !math.IsNaN(r.median) {
		t.add(row.what+fmt.Sprintf(" (%d rounds)", len(rec.of(row.over, unitCPU))), number(r.median), number(r.low)+" – "+number(r.high), row.bound(), row.met(r.median))
	}
}

func loadTable(w io.Writer, rec *recording) {
	t := newTable("exporter / pipeline", "CPU s per million spans", "spans/s", "CPU without ÷ with", "quartiles", "spans/s with ÷ without", "rounds")
	for _, name := range rec.names {
		cpu, rate := rec.of(name, unitCPU), rec.of(name, unitRate)
		kind := strings.Split(name, "/")[1]
		without := "Load/" + kind + "/without"
		r := summarize(ratios(rec.of(without, unitCPU), cpu))
		s := summarize(ratios(rate, rec.of(without, unitRate)))
		row := []string{strings.TrimPrefix(name, "Load/"), number(summarize(cpu).median), number(summarize(rate).median), number(r.median), number(r.low) + " – " + number(r.high), number(s.median), strconv.Itoa(len(cpu))}
		if name == without {
			row[3], row[4], row[5] = "", "", ""
		}
		t.add(row...)
	}
	t.write(w)
}

// growthTable puts the sizes side by side.
func growthTable(w io.Writer, rec *recording) {
	labels := map[string]string{
		"GrowthPlain": "plain spans in a batch, per span", "GrowthStreaming": "streaming spans of four attributes in a batch, per span",
		"GrowthEvents": "chunk events on a span, per event", "GrowthOpenStreams": "open streams, per chunk span",
	}
	var rows, sizes []string
	for _, name := range rec.names {
		row, size, _ := strings.Cut(name, "/")
		if !slices.Contains(rows, row) {
			rows = append(rows, row)
		}
		if !slices.Contains(sizes, size) {
			sizes = append(sizes, size)
		}
	}
	t := newTable(append([]string{"size"}, sizes...)...)
	for _, row := range rows {
		cells := []string{labels[row]}
		for _, size := range sizes {
			cells = append(cells, number(summarize(rec.of(row+"/"+size, unitTime)).median*1e9))
		}
		t.add(cells...)
	}
	t.write(w)
}

func allTable(w io.Writer, rec *recording) {
	t := newTable("benchmark", "ns", "quartiles", "ns, no GC", "allocations", "bytes", "rounds")
	for _, name := range rec.names {
		v := rec.of(name, unitTime)
		if strings.HasPrefix(name, "OpenStreamBytes") {
			continue
		}
		s := summarize(v)
		t.add(name, number(s.median*1e9), number(s.low*1e9)+" – "+number(s.high*1e9), number(summarize(rec.of(name, unitApart)).median*1e9),
			number(summarize(rec.of(name, unitAllocs)).median), number(summarize(rec.of(name, unitBytes)).median), strconv.Itoa(len(v)))
	}
	t.write(w)
}

// benchstat keeps what that program says of the recording, when it is installed.
func benchstat(ctx context.Context) error {
	if _, err := os.Stat(benchmarksFile); err != nil {
		return nil
	}
	program, err := exec.LookPath("benchstat")
	if err != nil {
		fmt.Println("benchstat is not installed: results/benchstat.txt stays as it is.")
		return nil
	}
	out, err := exec.CommandContext(ctx, program, benchmarksFile).Output()
	if err != nil {
		return fmt.Errorf("benchstat: %w", err)
	}
	return os.WriteFile(benchstatFile, out, 0o644)
}

// number gives three digits, or all of an integer part.
func number(v float64) string {
	switch {
	case math.IsNaN(v):
		return "–"
	case v >= 100 || v == math.Trunc(v):
		return strconv.FormatFloat(math.Round(v), 'f', 0, 64)
	default:
		return strconv.FormatFloat(v, 'g', 3, 64)
	}
}

type table struct {
	rows [][]string
}

func newTable(head ...string) *table { return &table{rows: [][]string{head}} }

// add takes as many cells as the head has.
func (t *table) add(cells ...string) {
	t.rows = append(t.rows, cells[:min(len(cells), len(t.rows[0]))])
}

// write aligns the columns, so that the table can be read on a terminal as well.
func (t *table) write(w io.Writer) {
	widths := make([]int, len(t.rows[0]))
	for _, row := range t.rows {
		for i, cell := range row {
			widths[i] = max(widths[i], len([]rune(cell)), 3)
		}
	}
	line := func(row []string, pad string) {
		fmt.Fprint(w, "|")
		for i := range widths {
			cell := ""
			if i < len(row) {
				cell = row[i]
			}
			fmt.Fprintf(w, " %s%s |", cell, strings.Repeat(pad, widths[i]-len([]rune(cell))))
		}
		fmt.Fprintln(w)
	}
	line(t.rows[0], " ")
	rule := make([]string, len(widths))
	line(rule, "-")
	for _, row := range t.rows[1:] {
		line(row, " ")
	}
}
