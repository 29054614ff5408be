// Copyright The otelcol-stream Authors
// SPDX-License-Identifier: Apache-2.0

// Command rebucketing measures how far re-bucketed histograms of real latencies are from the truth, beside what other
// conversions make of them, and draws what re-bucketing can and cannot repair. It rewrites the table and the picture of
// docs/rebucketing.md:
//
//	go run . -docs ../../docs
//
// It is a module of its own, so that a plotting library and the processors it is compared with stay out of the product.
package main

import (
	"flag"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"strings"

	"github.com/otelcol-stream/otelcol-stream/internal/rebucket"
)

var (
	http14 = []float64{0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10}
	genAI  = []float64{0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92}
	vllm   = []float64{0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80, 160, 640, 2560}
)

func exponential(scale int32) layout {
	return layout{name: fmt.Sprintf("exponential, scale %d", scale), scale: scale}
}

// conversions are what is compared: which layout, to which bounds, of which latencies.
var conversions = []struct {
	from   layout
	to     string
	target []float64
	data   string
}{
	{layout{name: "HTTP", bounds: http14}, "vLLM TTFT", vllm, "exp-2 TTFT"},
	{layout{name: "GenAI", bounds: genAI}, "vLLM TTFT", vllm, "exp-2 TTFT"},
	{layout{name: "vLLM TTFT", bounds: vllm}, "GenAI", genAI, "exp-2 TTFT"},
	{layout{name: "HTTP", bounds: http14}, "GenAI", genAI, "exp-2 body"},
	{layout{name: "GenAI", bounds: genAI}, "vLLM TTFT", vllm, "exp-2 body"},
	{layout{name: "vLLM TTFT", bounds: vllm}, "GenAI", genAI, "exp-2 body"},
	{layout{name: "GenAI", bounds: genAI}, "vLLM TTFT", vllm, "exp-0 body"},
	{layout{name: "vLLM TTFT", bounds: vllm}, "GenAI", genAI, "exp-0 body"},
	{exponential(0), "vLLM TTFT", vllm, "exp-2 TTFT"},
	{exponential(2), "vLLM TTFT", vllm, "exp-2 TTFT"},
	{exponential(3), "vLLM TTFT", vllm, "exp-2 TTFT"},
	{exponential(5), "vLLM TTFT", vllm, "exp-2 TTFT"},
	{exponential(0), "vLLM TTFT", vllm, "exp-2 body"},
	{exponential(2), "vLLM TTFT", vllm, "exp-2 body"},
	{exponential(3), "vLLM TTFT", vllm, "exp-2 body"},
	{exponential(5), "vLLM TTFT", vllm, "exp-2 body"},
}

var methods = []method{
	{"upper", assign(upper)},
	{"midpoint", assign(midpoint)},
	{"equal split", assign(equal)},
	{"transform, upper", stock("upper")},
	{"transform, midpoint", stock("midpoint")},
	{"transform, uniform", stock("uniform")},
	{"this, linear", product(rebucket.Linear)},
	{"this, log", product(rebucket.Log)},
	{"**this, auto**", product(rebucket.Auto)},
}

// compare returns the scores by conversion and method; nil where a method has no such conversion.
func compare() ([][]*score, error) {
	data, err := readData()
	if err != nil {
		return nil, err
	}
	all := make([][]*score, len(conversions))
	for i, c := range conversions {
		s := data[c.data]
		h := count(c.from, s)
		for _, m := range methods {
			got, err := m.convert(h, c.target)
			if err != nil {
				return nil, fmt.Errorf("%s to %s by %s: %w", c.from.name, c.to, m.name, err)
			}
			if got == nil {
				all[i] = append(all[i], nil)
				continue
			}
			r := rate(s, c.target, got, h.last())
			all[i] = append(all[i], &r)
		}
	}
	return all, nil
}

func table(all [][]*score) string {
	var b strings.Builder
	b.WriteString("| conversion |")
	for _, m := range methods {
		fmt.Fprintf(&b, " %s |", m.name)
	}
	b.WriteString("\n| --- |" + strings.Repeat(" ---: |", len(methods)) + "\n")
	for i, c := range conversions {
		fmt.Fprintf(&b, "| %s → %s, %s |", c.from.name, c.to, c.data)
		for j := range methods {
			if r := all[i][j]; r != nil {
				fmt.Fprintf(&b, " %.1f / %.2f |", r.worst, r.mean)
			} else {
				b.WriteString(" |")
			}
		}
		b.WriteString("\n")
	}
	for _, kind := range []struct {
		name     string
		explicit bool
	}{{"explicit", true}, {"exponential", false}} {
		fmt.Fprintf(&b, "| **mean of the %s sources** |", kind.name)
		for j := range methods {
			if mean, ok := meanOf(all, j, kind.explicit); ok {
				fmt.Fprintf(&b, " %.2f |", mean)
			} else {
				b.WriteString(" |")
			}
		}
		b.WriteString("\n")
	}
	return b.String()
}

// meanOf is the mean of a method's mean errors over one kind of source.
func meanOf(all [][]*score, method int, explicit bool) (float64, bool) {
	sum, n := 0.0, 0
	for i, c := range conversions {
		if r := all[i][method]; r != nil && (c.from.bounds != nil) == explicit {
			sum += r.mean
			n++
		}
	}
	return sum / float64(n), n > 0
}

const (
	beginTable = "<!-- begin table: go run . -docs ../../docs in test/rebucketing -->\n"
	endTable   = "<!-- end table -->\n"
)

// insert replaces the table of a page.
func insert(page, table string) (string, error) {
	before, rest, ok := strings.Cut(page, beginTable)
	if !ok {
		return "", fmt.Errorf("the page has no line %q", beginTable)
	}
	_, after, ok := strings.Cut(rest, endTable)
	if !ok {
		return "", fmt.Errorf("the page has no line %q", endTable)
	}
	return before + beginTable + table + endTable + after, nil
}

func run(docs string) error {
	all, err := compare()
	if err != nil {
		return err
	}
	fmt.Print(table(all))
	if docs == "" {
		return nil
	}
	page := filepath.Join(docs, "rebucketing.md")
	text, err := os.ReadFile(page)
	if err != nil {
		return err
	}
	updated, err := insert(string(text), table(all))
	if err != nil {
		return fmt.Errorf("%s: %w", page, err)
	}
	if err := os.WriteFile(page, []byte(updated), 0o644); err != nil {
		return err
	}
	return drawPicture(filepath.Join(docs, "rebucketing.svg"))
}

func main() {
	docs := flag.String("docs", "", "folder of the page and the picture to rewrite; none: only print the table")
	flag.Parse()
	if err := run(*docs); err != nil {
		log.Fatal(err)
	}
}
