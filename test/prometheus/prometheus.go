// Copyright The otelcol-stream Authors
// SPDX-License-Identifier: Apache-2.0

// Package prometheus runs a real Prometheus (the `prometheus` and `promtool` of the PATH) on the example's own
// configuration and rules, for end-to-end tests and for the picture in the README.
package prometheus

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/api"
	v1 "github.com/prometheus/client_golang/api/prometheus/v1"
	"github.com/prometheus/common/model"
)

const readyTimeout = 30 * time.Second

// Speed is how much faster than written the rules run: their windows, offsets and waits are divided by it, so that a rule
// that looks at an hour can be seen to work within a minute. Thresholds and expressions stay as they are.
const Speed = 60

// Example is what Options.Dir usually is: the folder of the example under the root of the repository.
func Example(root string) string { return filepath.Join(root, "examples", "prometheus") }

// Options says what to run.
type Options struct {
	// Dir holds prometheus.yml and rules/.
	Dir string
	// Targets replaces scrape targets of prometheus.yml, such as "127.0.0.1:9464", by those in use.
	Targets map[string]string
	// Work is an existing folder for the configuration as run and for the data.
	Work string
	// Features is the value of --enable-feature.
	Features string
	// Args are further arguments.
	Args []string
}

// Server is a running Prometheus. It scrapes and evaluates its rules every second.
type Server struct {
	// API is its HTTP API.
	API v1.API
	// URL is its address.
	URL string

	cmd  *exec.Cmd
	logs *syncBuffer
	done chan struct{}
}

// Run starts a Prometheus and returns when it is ready.
func Run(ctx context.Context, opts Options) (*Server, error) {
	if err := writeConfig(opts); err != nil {
		return nil, err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // returns at once
	if err != nil {
		return nil, err
	}
	address := listener.Addr().String()
	if err = listener.Close(); err != nil {
		return nil, err
	}
	args := []string{
		"--config.file=" + filepath.Join(opts.Work, "prometheus.yml"),
		"--storage.tsdb.path=" + filepath.Join(opts.Work, "data"),
		"--web.listen-address=" + address,
	}
	if opts.Features != "" {
		args = append(args, "--enable-feature="+opts.Features)
	}
	args = append(args, opts.Args...)
	s := &Server{URL: "http://" + address, logs: &syncBuffer{}, done: make(chan struct{})}
	s.cmd = exec.Command("prometheus", args...) //nolint:noctx // outlives ctx and is ended by Stop
	s.cmd.Stdout, s.cmd.Stderr = s.logs, s.logs
	if err = s.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start prometheus (Debian: apt-get install prometheus): %w", err)
	}
	go func() {
		_ = s.cmd.Wait()
		close(s.done)
	}()
	client, err := api.NewClient(api.Config{Address: s.URL})
	if err != nil {
		return nil, errors.Join(err, s.Stop())
	}
	s.API = v1.NewAPI(client)
	if err = s.waitReady(ctx); err != nil {
		return nil, errors.Join(err, s.Stop())
	}
	return s, nil
}

func (s *Server) waitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-s.done:
			return fmt.Errorf("prometheus ended:\n%s", s.logs)
		case <-ctx.Done():
			return fmt.Errorf("prometheus not ready: %w\n%s", ctx.Err(), s.logs)
		case <-tick.C:
			req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.URL+"/-/ready", http.NoBody)
			if err != nil {
				return err
			}
			resp, err := http.DefaultClient.Do(req)
			if err != nil {
				continue
			}
			_, _ = io.Copy(io.Discard, resp.Body)
			_ = resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return nil
			}
		}
	}
}

// Stop ends the server and waits until it has ended.
func (s *Server) Stop() error {
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	<-s.done
	return nil
}

// Logs is all that the server has written so far.
func (s *Server) Logs() string { return s.logs.String() }

// Query evaluates an instant query now. A warning of the server is an error: nothing here may be partial.
func (s *Server) Query(ctx context.Context, query string) (model.Vector, error) {
	value, warnings, err := s.API.Query(ctx, query, time.Now())
	if err != nil {
		return nil, fmt.Errorf("query %s: %w", query, err)
	}
	if len(warnings) > 0 {
		return nil, fmt.Errorf("query %s: %s", query, strings.Join(warnings, "; "))
	}
	switch value := value.(type) {
	case model.Vector:
		return value, nil
	case *model.Scalar:
		return model.Vector{{Value: value.Value, Timestamp: value.Timestamp}}, nil
	default:
		return nil, fmt.Errorf("query %s: unexpected %s", query, value.Type())
	}
}

// writeConfig copies the configuration and its rules with targets replaced and time sped up.
func writeConfig(opts Options) error {
	raw, err := os.ReadFile(filepath.Join(opts.Dir, "prometheus.yml"))
	if err != nil {
		return err
	}
	config := string(raw)
	for from, to := range opts.Targets {
		if !strings.Contains(config, from) {
			return fmt.Errorf("prometheus.yml has no target %s", from)
		}
		config = strings.ReplaceAll(config, from, to)
	}
	config = intervals.ReplaceAllString(config, "${1}1s")
	if err = os.WriteFile(filepath.Join(opts.Work, "prometheus.yml"), []byte(config), 0o600); err != nil {
		return err
	}
	rules, err := filepath.Glob(filepath.Join(opts.Dir, "rules", "*.yml"))
	if err != nil {
		return err
	}
	if err = os.MkdirAll(filepath.Join(opts.Work, "rules"), 0o700); err != nil {
		return err
	}
	for _, path := range rules {
		if raw, err = os.ReadFile(path); err != nil {
			return err
		}
		target := filepath.Join(opts.Work, "rules", filepath.Base(path))
		if err = os.WriteFile(target, []byte(Accelerate(string(raw))), 0o600); err != nil {
			return err
		}
	}
	return nil
}

var (
	intervals = regexp.MustCompile(`((?:scrape|evaluation)_interval: )\w+`)
	// A range "[5m]", an offset, or how long an alert waits.
	durations = regexp.MustCompile(`(\[|offset |for: )(\d+[smhd])(\]|\b)`)
)

// Accelerate divides every range, offset and wait of a rule file or a query by Speed. Names of recorded series, which say
// what window they were written for, stay.
func Accelerate(text string) string {
	return durations.ReplaceAllStringFunc(text, func(found string) string {
		parts := durations.FindStringSubmatch(found)
		written, err := model.ParseDuration(parts[2])
		if err != nil {
			return found
		}
		return parts[1] + model.Duration(time.Duration(written)/Speed).String() + parts[3]
	})
}

// syncBuffer may be read while the process writes.
type syncBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}
