// Copyright The otelcol-stream Authors
// SPDX-License-Identifier: Apache-2.0

// Instrumentationtable writes docs/instrumentations.md: it passes every capture of testdata through the processor and compares what comes
// out with what the server of the capture really did. Run it from the root of the repository:
//
//	go run ./test/instrumentationtable
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/otelcol-stream/otelcol-stream/test/captures"
)

func main() {
	if err := run("."); err != nil {
		fmt.Fprintln(os.Stderr, "instrumentationtable:", err)
		os.Exit(1)
	}
}

func path(root string) string { return filepath.Join(root, "docs", "instrumentations.md") }

func run(root string) error {
	doc, err := generate(root)
	if err != nil {
		return err
	}
	return os.WriteFile(path(root), doc, 0o644)
}

func generate(root string) ([]byte, error) {
	all, err := captures.All(root)
	if err != nil {
		return nil, err
	}
	rows, err := measure(all)
	if err != nil {
		return nil, err
	}
	return render(rows), nil
}
