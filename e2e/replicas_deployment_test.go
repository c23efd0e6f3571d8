//go:build unix

package e2e_test

import (
	"bytes"
	"crypto/rand"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"

	"toolfinch/e2e/postgres"
	"toolfinch/internal/must"
)

// The configuration of the replicas in packaging is valid with the environment that the compose
// file and the manifests give them, and both leave a replica the time to drain.
func TestReplicasOfPackaging(t *testing.T) {
	t.Parallel()
	read := func(name string) []byte {
		t.Helper()
		text := must.Get(os.ReadFile("../packaging/" + name))(t)
		return text
	}
	config := string(read("replicas.yaml"))
	server, _ := grower(t, "search")
	database := postgres.Start(t)
	// validates has toolfinch check the configuration of one replica.
	validates := func(t *testing.T, config string, environment map[string]string, grace time.Duration) {
		t.Helper()
		h := newHouse(t, nil)
		file := filepath.Join(h.home, "replica.yaml")
		must.Do(t, os.WriteFile(file, []byte(strings.Replace(config, "https://mcp.example.com/mcp", server, 1)), 0o600))
		env := append(h.env, "MCPPROXY_DATA_DIR="+h.home)
		for name, value := range environment {
			switch name {
			case "DATABASE_URL":
				value = database
			case "MCPPROXY_VAULT_KEY": // whoever applies the file writes it
				value = "MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE="
			}
			env = append(env, name+"="+value)
		}
		for _, words := range [][]string{{"key", "create", rand.Text()}, {"validate"}} { // the first makes the tables
			cmd := exec.Command(program(t), append(words, "--config", file)...)
			cmd.Env = env
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%s: %v\n%s", words[0], err, out)
			}
		}
		if grace < 30*time.Second { // http_limits.drain, and 10 s to end
			t.Errorf("a replica has %v to end", grace)
		}
	}

	t.Run("compose", func(t *testing.T) {
		var file struct {
			Services map[string]struct {
				Environment map[string]string
				Grace       time.Duration `yaml:"stop_grace_period"`
			}
		}
		must.Do(t, yaml.Unmarshal(read("compose.replicas.yaml"), &file))
		for _, name := range []string{"replica-1", "replica-2", "replica-3"} {
			one := file.Services[name]
			validates(t, config, one.Environment, one.Grace)
		}
	})

	t.Run("kubernetes", func(t *testing.T) {
		var environment, data map[string]string
		var grace time.Duration
		for documents := yaml.NewDecoder(bytes.NewReader(read("kubernetes.yaml"))); ; {
			var one struct {
				Kind       string
				StringData map[string]string `yaml:"stringData"`
				Data       map[string]string
				Spec       struct {
					Template struct {
						Spec struct {
							Grace      int `yaml:"terminationGracePeriodSeconds"`
							Containers []struct {
								Env []struct{ Name, Value string }
							}
						}
					}
				}
			}
			if err := documents.Decode(&one); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatal(err)
			}
			switch one.Kind {
			case "Secret":
				environment = one.StringData
			case "ConfigMap":
				data = one.Data
			case "Deployment":
				grace = time.Duration(one.Spec.Template.Spec.Grace) * time.Second
				for _, variable := range one.Spec.Template.Spec.Containers[0].Env {
					environment[variable.Name] = variable.Value
				}
			}
		}
		if _, same, _ := strings.Cut(config, "\n"); data["toolfinch.yaml"] != same {
			t.Errorf("the manifests have another configuration than replicas.yaml:\n%s", data["toolfinch.yaml"])
		}
		if page, err := os.ReadFile("../docs/scale.md"); err != nil || !strings.Contains(string(page), "```yaml\n"+data["toolfinch.yaml"]+"```") {
			t.Errorf("docs/scale.md shows another configuration: %v", err)
		}
		validates(t, data["toolfinch.yaml"], environment, grace)
	})
}
