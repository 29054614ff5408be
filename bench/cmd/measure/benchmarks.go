// Copyright The otelcol-stream Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"time"
)

// build compiles the benchmarks once, which leaves the same code to every process and no compiler running beside one.
func build(ctx context.Context, binary string) error {
	cmd := exec.CommandContext(ctx, "go", "test", "-c", "-o", binary, ".")
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	return cmd.Run()
}

// runBenchmarks gives every benchmark a process of its own on one core, all of them in turn and then all again, backwards: what slows the
// machine down for a while hits every benchmark of that round and not one of them. Those of one payload, which are compared, run one after
// the other.
func runBenchmarks(ctx context.Context, binary string, o options) error {
	names, err := list(ctx, binary, o.run)
	if err != nil {
		return err
	}
	f, err := create(benchmarksFile)
	if err != nil {
		return err
	}
	defer f.Close()
	started := time.Now()
	for round := range o.rounds {
		slices.Reverse(names)
		for _, name := range names {
			lines, err := benchmark(ctx, binary, name, o.benchtime.String())
			if err != nil {
				return err
			}
			if _, err := f.WriteString(lines); err != nil {
				return err
			}
		}
		fmt.Printf("Round %d of %d: %d benchmarks, %.0f s so far\n", round+1, o.rounds, len(names), time.Since(started).Seconds())
	}
	return f.Close()
}

func runGrowth(ctx context.Context, binary string, rounds int) error {
	f, err := create(growthFile)
	if err != nil {
		return err
	}
	defer f.Close()
	for round := range rounds {
		lines, err := benchmark(ctx, binary, growthPrefix+".*", "1x")
		if err != nil {
			return err
		}
		if _, err := f.WriteString(lines); err != nil {
			return err
		}
		fmt.Printf("Growth, round %d of %d\n", round+1, rounds)
	}
	return f.Close()
}

const growthPrefix = "BenchmarkGrowth"

func list(ctx context.Context, binary, pattern string) ([]string, error) {
	wanted, err := regexp.Compile(pattern)
	if err != nil {
		return nil, fmt.Errorf("-run: %w", err)
	}
	out, err := exec.CommandContext(ctx, binary, "-test.list", "^Benchmark").Output()
	if err != nil {
		return nil, fmt.Errorf("list benchmarks: %w", err)
	}
	var names []string
	for name := range strings.FieldsSeq(string(out)) {
		if !strings.HasPrefix(name, growthPrefix) && wanted.MatchString(name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	if len(names) == 0 {
		return nil, fmt.Errorf("-run: no benchmark matches %q", pattern)
	}
	return names, nil
}

// benchmark runs the benchmarks of one name in one process and returns the lines of their results.
func benchmark(ctx context.Context, binary, name, benchtime string) (string, error) {
	cmd := exec.CommandContext(ctx, binary, "-test.run=^$", "-test.bench=^"+name+"$", "-test.cpu=1", "-test.benchtime="+benchtime, "-test.timeout=5m")
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%s: %w\n%s", name, err, out)
	}
	var lines strings.Builder
	s := bufio.NewScanner(bytes.NewReader(out))
	for s.Scan() {
		if strings.HasPrefix(s.Text(), "Benchmark") {
			fmt.Fprintln(&lines, s.Text())
		}
	}
	if lines.Len() == 0 {
		return "", fmt.Errorf("%s printed no result:\n%s", name, out)
	}
	return lines.String(), nil
}

// create begins a recording with the machine that it was made on.
func create(path string) (*os.File, error) {
	f, err := os.Create(path)
	if err != nil {
		return nil, err
	}
	for _, m := range machine() {
		fmt.Fprintf(f, "%s: %s\n", m.key, m.value)
	}
	return f, nil
}
