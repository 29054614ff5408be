// Copyright The otelcol-stream Authors
// SPDX-License-Identifier: Apache-2.0

// Package captures finds the recorded exports of real instrumentations under testdata/captures and testdata/captures-python;
// the READMEs there say what they are.
package captures

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/otelcol-stream/otelcol-stream/test/collector"
)

// Capture is one scenario as one instrumentation exported it.
type Capture struct {
	// Instrumentation is the name of the capture's folder; those of Python, which share names with others, begin with "python/".
	Instrumentation, Scenario string
	dir                       string
}

// families are the folders of captures, by what their instrumentations' names begin with.
var families = []struct{ dir, prefix string }{{"captures", ""}, {"captures-python", "python/"}}

// Dir is the folder of all captures but Python's.
func Dir(root string) string { return filepath.Join(root, "testdata", families[0].dir) }

// All returns every capture of the repository at root that has traces, ordered by family, instrumentation and scenario.
func All(root string) ([]Capture, error) {
	const suffix = ".traces.jsonl"
	var all []Capture
	for _, family := range families {
		paths, err := filepath.Glob(filepath.Join(root, "testdata", family.dir, "*", "*"+suffix))
		if err != nil {
			return nil, err
		}
		for _, path := range paths {
			all = append(all, Capture{
				Instrumentation: family.prefix + filepath.Base(filepath.Dir(path)),
				Scenario:        strings.TrimSuffix(filepath.Base(path), suffix),
				dir:             filepath.Dir(path),
			})
		}
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("no captures under %s", filepath.Join(root, "testdata"))
	}
	return all, nil
}

// Name is "instrumentation/scenario".
func (c Capture) Name() string { return c.Instrumentation + "/" + c.Scenario }

// TracesPath is the file of the exported traces, one OTLP/JSON request a line.
func (c Capture) TracesPath() string { return filepath.Join(c.dir, c.Scenario+".traces.jsonl") }

// Traces reads the exports.
func (c Capture) Traces() ([]ptrace.Traces, error) { return collector.ReadTraces(c.TracesPath()) }

// Attempt is what the server did for one request.
type Attempt struct {
	Outcome      string
	OutputTokens int
	Chunks       int
	// Received is when the server had the request, FirstWrite when it wrote the first piece of the body, be it an opening event without
	// content. FirstWrite is zero when it wrote none.
	Received, FirstWrite time.Time
	// FirstContent and LastContent count from the receipt of the request; zero when there was no content.
	FirstContent, LastContent time.Duration
}

// TokenRate is tokens per second over the chunks, counted like the processor's stream.token.rate.
func (a Attempt) TokenRate() float64 {
	if a.LastContent <= a.FirstContent {
		return 0
	}
	return float64(a.OutputTokens-1) / (a.LastContent - a.FirstContent).Seconds()
}

// Truth reads what the server really did, one entry for each attempt.
func (c Capture) Truth() ([]Attempt, error) {
	path := filepath.Join(c.dir, c.Scenario+".truth.json")
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var records []struct {
		Outcome       string `json:"outcome"`
		OutputTokens  int    `json:"output_tokens"`
		ContentChunks int    `json:"content_chunks"`
		Received      string `json:"request_received_unix_nano"`
		FirstWrite    string `json:"first_write_unix_nano"`
		FirstContent  string `json:"first_content_unix_nano"`
		LastContent   string `json:"last_content_unix_nano"`
	}
	if err := json.Unmarshal(raw, &records); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	attempts := make([]Attempt, len(records))
	for i, record := range records {
		attempts[i] = Attempt{
			Outcome:      record.Outcome,
			OutputTokens: record.OutputTokens,
			Chunks:       record.ContentChunks,
			Received:     instant(record.Received),
			FirstWrite:   instant(record.FirstWrite),
			FirstContent: since(record.Received, record.FirstContent),
			LastContent:  since(record.Received, record.LastContent),
		}
	}
	return attempts, nil
}

func instant(unixNano string) time.Time {
	n, err := strconv.ParseInt(unixNano, 10, 64)
	if err != nil {
		return time.Time{}
	}
	return time.Unix(0, n)
}

func since(from, to string) time.Duration {
	a, errA := strconv.ParseInt(from, 10, 64)
	b, errB := strconv.ParseInt(to, 10, 64)
	if errA != nil || errB != nil {
		return 0
	}
	return time.Duration(b - a)
}
