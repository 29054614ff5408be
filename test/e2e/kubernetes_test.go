// Copyright The otelcol-stream Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/otelcol-stream/otelcol-stream/test/collector"
)

// object is what the tests need of a Kubernetes object; other fields are not looked at.
type object struct {
	Kind     string
	Metadata struct {
		Name, Namespace string
	}
	Data map[string]string
	Spec struct {
		ServiceName string `yaml:"serviceName"`
		ClusterIP   string `yaml:"clusterIP"`
		Selector    yaml.Node
		Ports       []struct {
			Name       string
			TargetPort string `yaml:"targetPort"`
		}
		ScaleTargetRef struct {
			Kind, Name string
		} `yaml:"scaleTargetRef"`
		Template struct {
			Metadata struct {
				Labels map[string]string
			}
			Spec podSpec
		}
		VolumeClaimTemplates []struct {
			Metadata struct{ Name string }
		} `yaml:"volumeClaimTemplates"`
	}
}

type podSpec struct {
	Containers []struct {
		Image string
		Args  []string
		Env   []struct{ Name, Value string }
		Ports []struct {
			Name          string
			ContainerPort int `yaml:"containerPort"`
		}
		Resources struct {
			Requests, Limits map[string]string
		}
		StartupProbe   *probe `yaml:"startupProbe"`
		ReadinessProbe *probe `yaml:"readinessProbe"`
		LivenessProbe  *probe `yaml:"livenessProbe"`
		VolumeMounts   []struct {
			Name      string
			MountPath string `yaml:"mountPath"`
		} `yaml:"volumeMounts"`
	}
	Volumes []struct {
		Name      string
		ConfigMap struct{ Name string } `yaml:"configMap"`
	}
}

type probe struct {
	HTTPGet struct{ Port string } `yaml:"httpGet"`
}

// kustomized is what `kubectl apply -k` would send: as `make` left it, or else built by kubectl.
func kustomized(t *testing.T) []byte {
	t.Helper()
	built := filepath.Join(collector.Root(), "dist", "kustomized", "examples-kubernetes.yaml")
	if raw, err := os.ReadFile(built); err == nil {
		return raw
	}
	raw, err := exec.CommandContext(t.Context(), "kubectl", "kustomize", filepath.Join(collector.Root(), "examples", "kubernetes")).Output()
	require.NoError(t, err, "neither %s (make kustomizations) nor kubectl", built)
	return raw
}

func kubernetesObjects(t *testing.T) map[string]object {
	t.Helper()
	all := map[string]object{}
	decoder := yaml.NewDecoder(strings.NewReader(string(kustomized(t))))
	for {
		var o object
		err := decoder.Decode(&o)
		if errors.Is(err, io.EOF) {
			return all
		}
		require.NoError(t, err)
		all[o.Kind+" "+o.Metadata.Name] = o
	}
}

var (
	configVariable = regexp.MustCompile(`\$\{env:(\w+)\}`)
	configPort     = regexp.MustCompile(`\$\{env:POD_IP\}:(\d+)|port: (\d+)`)
)

// What one manifest says of another is checked by nobody until it is applied.
func TestKubernetesManifestsFitTogether(t *testing.T) {
	objects := kubernetesObjects(t)
	for _, name := range []string{"DaemonSet agent", "StatefulSet gateway"} {
		workload, ok := objects[name]
		require.True(t, ok, name)
		assert.Equal(t, "streams", workload.Metadata.Namespace, name)
		pod := workload.Spec.Template.Spec
		require.Len(t, pod.Containers, 1, name)
		container := pod.Containers[0]

		ports, byNumber := map[string]bool{}, map[int]bool{}
		for _, port := range container.Ports {
			ports[port.Name], byNumber[port.ContainerPort] = true, true
		}
		for _, p := range []*probe{container.StartupProbe, container.ReadinessProbe, container.LivenessProbe} {
			require.NotNil(t, p, name)
			assert.True(t, ports[p.HTTPGet.Port], "%s: probe of port %s", name, p.HTTPGet.Port)
		}

		volumes, configMap := map[string]bool{}, ""
		for _, volume := range pod.Volumes {
			volumes[volume.Name] = true
			if volume.ConfigMap.Name != "" {
				configMap = volume.ConfigMap.Name
			}
		}
		for _, claim := range workload.Spec.VolumeClaimTemplates {
			volumes[claim.Metadata.Name] = true
		}
		mounts := map[string]string{}
		for _, mount := range container.VolumeMounts {
			assert.True(t, volumes[mount.Name], "%s: volume %s", name, mount.Name)
			mounts[mount.Name] = mount.MountPath
		}

		config, ok := objects["ConfigMap "+configMap]
		require.True(t, ok, "%s: config map %s", name, configMap)
		text := config.Data["config.yaml"]
		assert.Equal(t, []string{"--config=" + mounts["config"] + "/config.yaml"}, container.Args, name)
		assert.Contains(t, text, "directory: "+mounts["queue"]+"/", "%s: the queue is on its volume", name)
		env := map[string]string{}
		for _, variable := range container.Env {
			env[variable.Name] = variable.Value
		}
		for _, variable := range configVariable.FindAllStringSubmatch(text, -1) {
			assert.Contains(t, env, variable[1], name)
		}
		for _, port := range configPort.FindAllStringSubmatch(text, -1) {
			number, err := strconv.Atoi(port[1] + port[2])
			require.NoError(t, err)
			assert.True(t, byNumber[number], "%s: the collector listens on %d", name, number)
		}

		// Go collects where the limiter begins to refuse, and the node has what the percentages are of.
		assert.Equal(t, container.Resources.Limits["memory"], container.Resources.Requests["memory"], name)
		refuses := (setting(t, text, "limit_percentage") - setting(t, text, "spike_limit_percentage")) / 100 * mebibytes(t, container.Resources.Limits["memory"])
		assert.InDelta(t, refuses, mebibytes(t, env["GOMEMLIMIT"]), 1, name)
		assert.NotContains(t, container.Resources.Limits, "cpu", name)
		if strings.Contains(text, "max_streams") {
			// What docs/chunk-spans.md says an open stream takes; 50 chunks are usual, and ten times as many have to fit.
			assert.Less(t, setting(t, text, "max_streams")*(510+5*500)/(1<<20), refuses/2, name)
		}
	}

	for service, workload := range map[string]string{"Service agent": "DaemonSet agent", "Service gateway-headless": "StatefulSet gateway"} {
		var selector map[string]string
		node := objects[service].Spec.Selector
		require.NoError(t, node.Decode(&selector))
		template := objects[workload].Spec.Template
		for label, value := range selector {
			assert.Equal(t, value, template.Metadata.Labels[label], service)
		}
		ports := map[string]bool{}
		for _, port := range template.Spec.Containers[0].Ports {
			ports[port.Name] = true
		}
		for _, port := range objects[service].Spec.Ports {
			assert.True(t, ports[port.TargetPort], "%s: port %s", service, port.TargetPort)
		}
	}
	gateway := objects["StatefulSet gateway"].Spec
	assert.Equal(t, "None", objects["Service "+gateway.ServiceName].Spec.ClusterIP, "names for each pod need a headless service")
	var budget struct {
		MatchLabels map[string]string `yaml:"matchLabels"`
	}
	pdb := objects["PodDisruptionBudget gateway"].Spec.Selector
	require.NoError(t, pdb.Decode(&budget))
	for label, value := range budget.MatchLabels {
		assert.Equal(t, value, gateway.Template.Metadata.Labels[label])
	}
	scaled := objects["HorizontalPodAutoscaler gateway"].Spec.ScaleTargetRef
	assert.Contains(t, objects, scaled.Kind+" "+scaled.Name)

	for name, o := range objects {
		if config := o.Data["config.yaml"]; strings.Contains(config, "return_hostnames") {
			assert.Contains(t, config, "service: "+gateway.ServiceName+".${env:POD_NAMESPACE}", name)
		}
	}
}

// setting reads a number of a configuration.
func setting(t *testing.T, config, key string) float64 {
	t.Helper()
	found := regexp.MustCompile(`(?m)^\s+` + key + `: ([0-9.]+)$`).FindStringSubmatch(config)
	require.NotNil(t, found, key)
	value, err := strconv.ParseFloat(found[1], 64)
	require.NoError(t, err, key)
	return value
}

func mebibytes(t *testing.T, quantity string) float64 {
	t.Helper()
	for suffix, factor := range map[string]float64{"MiB": 1, "Mi": 1, "GiB": 1024, "Gi": 1024} {
		if number, ok := strings.CutSuffix(quantity, suffix); ok {
			value, err := strconv.ParseFloat(number, 64)
			require.NoError(t, err)
			return value * factor
		}
	}
	require.Failf(t, "no quantity", "%q", quantity)
	return 0
}

// The operator's resource has to give the collector what the manifests give it.
func TestKubernetesOperatorResourceHasTheSameConfiguration(t *testing.T) {
	var plain map[string]any
	readYAML(t, &plain, "examples", "kubernetes", "gateway", "config.yaml")
	var resource struct {
		Spec struct{ Config map[string]any }
	}
	readYAML(t, &resource, "examples", "kubernetes", "operator", "gateway.yaml")
	assert.Equal(t, plain, resource.Spec.Config)
}
