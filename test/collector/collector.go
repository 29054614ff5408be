// Copyright The otelcol-stream Authors
// SPDX-License-Identifier: Apache-2.0

// Package collector runs the built distribution as a process of its own: it chooses free ports, waits until the
// collector says that it is ready, talks OTLP to it and stops it. End-to-end tests and the quickstart share it.
//
// A configuration finds what was chosen in environment variables:
//
//	OTLP_GRPC_ENDPOINT, OTLP_HTTP_ENDPOINT, HEALTH_ENDPOINT   host:port
//	TELEMETRY_PORT                                            port of the collector's own metrics, on 127.0.0.1
//	OUTPUT_DIR                                                folder for what exporters write
//	NAME_ENDPOINT, NAME_PORT                                  for each NAME in Options.Ports
package collector

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

const (
	startTimeout = 60 * time.Second
	stopTimeout  = 60 * time.Second
	// A port that was free when it was chosen may be taken by the time that the collector binds it.
	startAttempts = 3
)

// Options says what to run. Only Configs is needed.
type Options struct {
	// Binary is the collector to run; dist/otelcol-stream under the root of the repository when empty.
	Binary string
	// Configs are what --config takes, merged in this order: paths, or YAML text (anything with a line break), or "yaml:…".
	Configs []string
	// Ports names further endpoints that the configuration needs: "PROMETHEUS" gives PROMETHEUS_ENDPOINT and PROMETHEUS_PORT.
	Ports []string
	// Endpoints are ports to reuse instead of choosing new ones, by variable name without the suffix ("OTLP_HTTP"): for restarts.
	Endpoints map[string]string
	// Env is added to the environment of the collector.
	Env map[string]string
	// OutputDir is where exporters write; it must exist.
	OutputDir string
	// Args are further arguments, such as "--feature-gates=…".
	Args []string
}

// Process is a running collector.
type Process struct {
	// Endpoints are the chosen addresses by name: OTLP_GRPC, OTLP_HTTP, HEALTH, TELEMETRY and those of Options.Ports.
	Endpoints map[string]string
	// OutputDir is Options.OutputDir.
	OutputDir string

	cmd  *exec.Cmd
	logs *logBuffer
	done chan struct{} // closed when the process has ended; err is set before that
	err  error

	grpcOnce sync.Once
	grpcConn *grpc.ClientConn
	grpcErr  error
}

// ExitError tells that a collector ended when it should not have, or not with success.
type ExitError struct {
	// Code is the exit code, -1 after a signal.
	Code int
	// Logs is all that the process wrote.
	Logs string
}

func (e *ExitError) Error() string {
	return fmt.Sprintf("collector ended with exit code %d:\n%s", e.Code, e.Logs)
}

// Root is the root of the repository that this source belongs to. Binaries built with -trimpath have no such path,
// so the working directory and its parents are searched for the builder's manifest.
func Root() string {
	dir, err := os.Getwd()
	if err != nil {
		dir = "."
	}
	for at := dir; ; at = filepath.Dir(at) {
		if _, err := os.Stat(filepath.Join(at, "builder-config.yaml")); err == nil {
			return at
		}
		if at == filepath.Dir(at) {
			return dir
		}
	}
}

// Binary is where `make build` leaves the distribution.
func Binary() string { return filepath.Join(Root(), "dist", "otelcol-stream") }

// Run starts a collector and returns when it is ready: with success from its health check, or at once when the
// configuration has no use for HEALTH_ENDPOINT and it listens for OTLP. ctx limits the start only.
func Run(ctx context.Context, opts Options) (*Process, error) {
	for attempt := 1; ; attempt++ {
		p, err := run(ctx, opts)
		var exit *ExitError
		if attempt < startAttempts && errors.As(err, &exit) && strings.Contains(exit.Logs, "address already in use") {
			continue
		}
		return p, err
	}
}

func run(ctx context.Context, opts Options) (*Process, error) {
	if opts.Binary == "" {
		opts.Binary = Binary()
	}
	endpoints, err := chooseEndpoints(append([]string{"OTLP_GRPC", "OTLP_HTTP", "HEALTH", "TELEMETRY"}, opts.Ports...), opts.Endpoints)
	if err != nil {
		return nil, err
	}

	args := append([]string{}, opts.Args...)
	for _, config := range opts.Configs {
		args = append(args, "--config="+location(config))
	}
	p := &Process{Endpoints: endpoints, OutputDir: opts.OutputDir, logs: &logBuffer{}, done: make(chan struct{})}
	p.cmd = exec.Command(opts.Binary, args...) //nolint:noctx // the collector outlives ctx and is ended by Stop
	p.cmd.Env = append(os.Environ(), environment(endpoints, opts.OutputDir, opts.Env)...)
	p.cmd.Stdout, p.cmd.Stderr = p.logs, p.logs
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s (was `make build` run?): %w", opts.Binary, err)
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.done)
	}()

	if err := p.waitReady(ctx); err != nil {
		_ = p.Kill()
		return nil, err
	}
	return p, nil
}

func location(config string) string {
	if strings.Contains(config, "\n") {
		return "yaml:" + config
	}
	return config
}

func environment(endpoints map[string]string, outputDir string, extra map[string]string) []string {
	vars := map[string]string{"OUTPUT_DIR": outputDir}
	for name, endpoint := range endpoints {
		_, port, _ := net.SplitHostPort(endpoint)
		vars[name+"_ENDPOINT"], vars[name+"_PORT"] = endpoint, port
	}
	maps.Copy(vars, extra)
	list := make([]string, 0, len(vars))
	for name, value := range vars {
		list = append(list, name+"="+value)
	}
	return list
}

// chooseEndpoints keeps all listeners open until the last port is known, so that no two names get the same one.
func chooseEndpoints(names []string, fixed map[string]string) (map[string]string, error) {
	endpoints := make(map[string]string, len(names))
	for _, name := range names {
		if endpoint, ok := fixed[name]; ok {
			endpoints[name] = endpoint
			continue
		}
		listener, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // returns at once
		if err != nil {
			return nil, fmt.Errorf("choose a port for %s: %w", name, err)
		}
		defer listener.Close()
		endpoints[name] = listener.Addr().String()
	}
	return endpoints, nil
}

func (p *Process) waitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-p.done:
			return p.exitError()
		case <-ctx.Done():
			return fmt.Errorf("collector not ready: %w\n%s", ctx.Err(), p.logs)
		case <-tick.C:
			if p.Healthy(ctx) {
				return nil
			}
		}
	}
}

// Healthy asks the health check once.
func (p *Process) Healthy(ctx context.Context) bool {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+p.Endpoints["HEALTH"]+"/", http.NoBody)
	if err != nil {
		return false
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return false
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode == http.StatusOK
}

// Stop asks the collector to end, as a service manager does, and waits until it has. Everything it accepted has then
// left it or been written. A second Stop gives the same result.
func (p *Process) Stop() error {
	// The connection goes last: a sender that breaks off a request which the collector has accepted would send it again.
	defer func() {
		if p.grpcConn != nil {
			_ = p.grpcConn.Close()
		}
	}()
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("stop the collector: %w", err)
	}
	select {
	case <-p.done:
		return p.exitError()
	case <-time.After(stopTimeout):
		_ = p.Kill()
		return fmt.Errorf("collector did not end within %s of SIGTERM:\n%s", stopTimeout, p.logs)
	}
}

// Kill ends the collector without giving it a chance to finish anything.
func (p *Process) Kill() error {
	err := p.cmd.Process.Kill()
	if errors.Is(err, os.ErrProcessDone) {
		err = nil
	}
	<-p.done
	return err
}

// Done is closed when the process has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// PID is the process id.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Logs is all that the collector has written so far.
func (p *Process) Logs() string { return p.logs.String() }

// Usage is the CPU time that the collector took; it is known when the process has ended.
func (p *Process) Usage() (user, system time.Duration) {
	<-p.done
	return p.cmd.ProcessState.UserTime(), p.cmd.ProcessState.SystemTime()
}

func (p *Process) exitError() error {
	if p.err == nil {
		return nil
	}
	return &ExitError{Code: p.cmd.ProcessState.ExitCode(), Logs: p.logs.String()}
}

// GRPC is a connection to the OTLP/gRPC receiver, made when first asked for and closed by Stop.
func (p *Process) GRPC() (*grpc.ClientConn, error) {
	p.grpcOnce.Do(func() {
		p.grpcConn, p.grpcErr = grpc.NewClient(p.Endpoints["OTLP_GRPC"], grpc.WithTransportCredentials(insecure.NewCredentials()))
	})
	return p.grpcConn, p.grpcErr
}

// Command runs the collector's program to its end, for sub-commands such as `validate`, and returns all that it wrote.
// An exit code other than 0 is an *ExitError.
func Command(ctx context.Context, env map[string]string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, Binary(), args...)
	cmd.Env = os.Environ()
	for name, value := range env {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	out, err := cmd.CombinedOutput()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		return string(out), &ExitError{Code: exit.ExitCode(), Logs: string(out)}
	}
	return string(out), err
}

// logBuffer may be read while the process writes.
type logBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *logBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}
