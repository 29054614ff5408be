// Copyright The otelcol-stream Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e && image

package e2e

import (
	"bytes"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/otelcol-stream/otelcol-stream/test/captures"
	"github.com/otelcol-stream/otelcol-stream/test/collector"
)

// maxImageBytes is what the image may hold, uncompressed.
const maxImageBytes = 90_000_000

func buildah(t *testing.T, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "buildah", args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	require.NoError(t, err, "buildah %s: %s", strings.Join(args, " "), &stderr)
	return strings.TrimSpace(string(out))
}

// The image named by IMAGE, as `make image` built it, run with the configuration that is in it. buildah's chroot isolation shares the
// machine's network, so the ports of the default configuration have to be free.
func TestImage(t *testing.T) {
	image := os.Getenv("IMAGE")
	require.NotEmpty(t, image, "IMAGE names the image to test; `make image-check` sets it")
	container := buildah(t, "from", "--pull-never", image)
	t.Cleanup(func() { cleanUp("rm", container) })

	t.Run("holds three files and no more", func(t *testing.T) {
		root := buildah(t, "mount", container)
		t.Cleanup(func() { cleanUp("umount", container) })
		var size int64
		var files []string
		require.NoError(t, filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
			if err != nil || !entry.Type().IsRegular() {
				return err
			}
			info, err := entry.Info()
			if err != nil {
				return err
			}
			size += info.Size()
			name, err := filepath.Rel(root, path)
			files = append(files, name)
			return err
		}))
		assert.ElementsMatch(t, []string{"otelcol-stream", "etc/otelcol-stream/config.yaml", "etc/ssl/certs/ca-certificates.crt"}, files)
		assert.Less(t, size, int64(maxImageBytes))
		t.Logf("%s holds %.1f MB uncompressed", image, float64(size)/1e6)
	})

	t.Run("says who runs it and where it listens", func(t *testing.T) {
		assert.Equal(t, "10001", buildah(t, "inspect", "--type", "image", "--format", "{{.OCIv1.Config.User}}", image))
		ports := buildah(t, "inspect", "--type", "image", "--format", "{{.OCIv1.Config.ExposedPorts}}", image)
		for _, port := range []string{"4317/tcp", "4318/tcp", "13133/tcp", "8888/tcp", "8889/tcp"} {
			assert.Contains(t, ports, port)
		}
	})

	t.Run("answers", func(t *testing.T) {
		const mark = "OTELCOL_STREAM_IMAGE_TEST"
		var log bytes.Buffer
		run := exec.CommandContext(t.Context(), "buildah", "run", "--isolation", "chroot", "--env", mark+"="+container, container, "--",
			"/otelcol-stream", "--config", "/etc/otelcol-stream/config.yaml")
		run.Stdout, run.Stderr = &log, &log
		require.NoError(t, run.Start())
		ended := make(chan error, 1)
		go func() { ended <- run.Wait() }()

		c := &collector.Process{Endpoints: map[string]string{
			"OTLP_GRPC": "127.0.0.1:4317", "OTLP_HTTP": "127.0.0.1:4318", "HEALTH": "127.0.0.1:13133", "TELEMETRY": "127.0.0.1:8888",
		}}
		require.Eventually(t, func() bool { return c.Healthy(t.Context()) }, time.Minute, 50*time.Millisecond)

		pid := processWith(t, mark+"="+container)
		status, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "status"))
		require.NoError(t, err)
		assert.Contains(t, string(status), "\nUid:\t10001\t10001\t10001\t10001\n")

		all, err := captures.All(collector.Root())
		require.NoError(t, err)
		for _, capture := range all {
			if capture.Name() == "vercel-ai6/smooth4" {
				postCapture(t.Context(), t, c, capture)
				requests, readErr := capture.Traces()
				require.NoError(t, readErr)
				for _, td := range requests {
					require.NoError(t, c.SendTraces(t.Context(), td))
				}
			}
		}
		samples, err := c.Telemetry(t.Context())
		require.NoError(t, err)
		// The capture has two spans, of which the inner one records the first chunk; it went in once by HTTP and once by gRPC.
		assert.InDelta(t, 4, collector.Sum(samples, "otelcol_receiver_accepted_spans", map[string]string{"receiver": "otlp"}), 0)
		assert.InDelta(t, 2, collector.Sum(samples, "otelcol_processor_stream_spans", map[string]string{"result": "split"}), 0)

		require.NoError(t, syscall.Kill(pid, syscall.SIGTERM))
		require.NoError(t, <-ended, "SIGTERM ends it with success")
		assert.Contains(t, log.String(), "Shutdown complete")
	})
}

// cleanUp cleans up, when the test's context has ended already.
func cleanUp(args ...string) { _ = exec.Command("buildah", args...).Run() }

// processWith finds the collector among all processes by a variable of its environment.
func processWith(t *testing.T, variable string) int {
	t.Helper()
	entries, err := os.ReadDir("/proc")
	require.NoError(t, err)
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		environ, _ := os.ReadFile(filepath.Join("/proc", entry.Name(), "environ"))
		cmdline, _ := os.ReadFile(filepath.Join("/proc", entry.Name(), "cmdline"))
		if bytes.HasPrefix(cmdline, []byte("/otelcol-stream\x00")) && bytes.Contains(environ, []byte(variable)) {
			return pid
		}
	}
	require.Fail(t, "no process of the image is running")
	return 0
}
