// Copyright The otelcol-stream Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"time"
)

type setting struct{ key, value string }

// machine says where and with what something was measured.
func machine() []setting {
	s := []setting{
		{"date", time.Now().UTC().Format("2006-01-02 15:04 UTC")},
		{"go", runtime.Version()},
		{"goos", runtime.GOOS},
		{"goarch", runtime.GOARCH},
		{"cpu", field("/proc/cpuinfo", "model name")},
		{"cpus", strconv.Itoa(runtime.NumCPU())},
		{"memory", field("/proc/meminfo", "MemTotal")},
		{"load", firstWord("/proc/loadavg")},
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, d := range info.Deps {
			if name, ok := shown[d.Path]; ok {
				s = append(s, setting{name, d.Version})
			}
		}
	}
	return s
}

// shown are the modules whose version matters for a comparison.
var shown = map[string]string{"go.opentelemetry.io/collector/pdata": "pdata"}

func field(path, key string) string {
	data, _ := os.ReadFile(path)
	for line := range strings.Lines(string(data)) {
		if k, v, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(k) == key {
			return strings.TrimSpace(v)
		}
	}
	return "unknown"
}

func firstWord(path string) string {
	data, _ := os.ReadFile(path)
	if words := strings.Fields(string(data)); len(words) > 0 {
		return words[0]
	}
	return "unknown"
}
