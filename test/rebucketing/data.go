// Copyright The otelcol-stream Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"compress/gzip"
	_ "embed"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"slices"
	"sort"
	"strconv"
)

//go:embed testdata/llm-d-benchmark.csv.gz
var benchmark []byte

// series is a set of measured latencies in seconds, ascending.
type series struct {
	name   string
	values []float64
}

// below is the share of observations at or below x: the truth that conversions are held against.
func (s series) below(x float64) float64 {
	n := sort.Search(len(s.values), func(i int) bool { return s.values[i] > x })
	return float64(n) / float64(len(s.values))
}

// readData returns time to first token and generation time of each set.
func readData() (map[string]series, error) {
	raw, err := gzip.NewReader(bytes.NewReader(benchmark))
	if err != nil {
		return nil, err
	}
	rows := csv.NewReader(raw)
	if _, err := rows.Read(); err != nil {
		return nil, err
	}
	all := map[string]series{}
	for {
		row, err := rows.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		for i, what := range []string{"TTFT", "body"} {
			x, err := strconv.ParseFloat(row[1+i], 64)
			if err != nil {
				return nil, fmt.Errorf("row %v: %w", row, err)
			}
			s := all[row[0]+" "+what]
			s.values = append(s.values, x)
			all[row[0]+" "+what] = s
		}
	}
	for name, s := range all {
		slices.Sort(s.values)
		s.name = name
		all[name] = s
	}
	return all, nil
}
