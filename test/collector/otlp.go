// Copyright The otelcol-stream Authors
// SPDX-License-Identifier: Apache-2.0

package collector

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"

	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/pmetric/pmetricotlp"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/pdata/ptrace/ptraceotlp"
)

// An export of a long soak is one line, and 100,000 chunk events make a long one.
const maxLine = 1 << 30

// StatusError is an answer to OTLP/HTTP other than 200.
type StatusError struct {
	Status int
	Body   string
}

func (e *StatusError) Error() string {
	return fmt.Sprintf("OTLP/HTTP answered %d: %s", e.Status, e.Body)
}

// Post sends one export request as it is to path ("/v1/traces" or "/v1/metrics"). An answer other than 200 is a *StatusError.
func (p *Process) Post(ctx context.Context, path, contentType string, body []byte) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+p.Endpoints["OTLP_HTTP"]+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", contentType)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return &StatusError{Status: resp.StatusCode, Body: string(answer)}
	}
	return nil
}

// PostJSON sends a request that is already OTLP/JSON, such as a line of a capture.
func (p *Process) PostJSON(ctx context.Context, path string, body []byte) error {
	return p.Post(ctx, path, "application/json", body)
}

// PostTraces sends traces over OTLP/HTTP with protobuf.
func (p *Process) PostTraces(ctx context.Context, td ptrace.Traces) error {
	body, err := ptraceotlp.NewExportRequestFromTraces(td).MarshalProto()
	if err != nil {
		return err
	}
	return p.Post(ctx, "/v1/traces", "application/x-protobuf", body)
}

// PostMetrics sends metrics over OTLP/HTTP with protobuf.
func (p *Process) PostMetrics(ctx context.Context, md pmetric.Metrics) error {
	body, err := pmetricotlp.NewExportRequestFromMetrics(md).MarshalProto()
	if err != nil {
		return err
	}
	return p.Post(ctx, "/v1/metrics", "application/x-protobuf", body)
}

// SendTraces sends traces over OTLP/gRPC. The error has the gRPC status that the receiver gave.
func (p *Process) SendTraces(ctx context.Context, td ptrace.Traces) error {
	conn, err := p.GRPC()
	if err != nil {
		return err
	}
	_, err = ptraceotlp.NewGRPCClient(conn).Export(ctx, ptraceotlp.NewExportRequestFromTraces(td))
	return err
}

// SendMetrics sends metrics over OTLP/gRPC.
func (p *Process) SendMetrics(ctx context.Context, md pmetric.Metrics) error {
	conn, err := p.GRPC()
	if err != nil {
		return err
	}
	_, err = pmetricotlp.NewGRPCClient(conn).Export(ctx, pmetricotlp.NewExportRequestFromMetrics(md))
	return err
}

// ReadTraces reads OTLP/JSON with one export request a line: a capture, or what the file exporter wrote.
// The exporter's last lines are on disk when the collector has stopped.
func ReadTraces(path string) ([]ptrace.Traces, error) {
	return readLines(path, (&ptrace.JSONUnmarshaler{}).UnmarshalTraces)
}

// ReadMetrics is ReadTraces for metrics.
func ReadMetrics(path string) ([]pmetric.Metrics, error) {
	return readLines(path, (&pmetric.JSONUnmarshaler{}).UnmarshalMetrics)
}

func readLines[T any](path string, unmarshal func([]byte) (T, error)) ([]T, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	var all []T
	lines := bufio.NewScanner(file)
	lines.Buffer(make([]byte, 0, 1<<20), maxLine)
	for n := 1; lines.Scan(); n++ {
		if len(bytes.TrimSpace(lines.Bytes())) == 0 {
			continue
		}
		one, err := unmarshal(lines.Bytes())
		if err != nil {
			return nil, fmt.Errorf("%s line %d: %w", path, n, err)
		}
		all = append(all, one)
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return all, nil
}

// Spans calls f for every span, with what it belongs to.
func Spans(all []ptrace.Traces, f func(rs ptrace.ResourceSpans, ss ptrace.ScopeSpans, span ptrace.Span)) {
	for _, td := range all {
		for _, rs := range td.ResourceSpans().All() {
			for _, ss := range rs.ScopeSpans().All() {
				for _, span := range ss.Spans().All() {
					f(rs, ss, span)
				}
			}
		}
	}
}
