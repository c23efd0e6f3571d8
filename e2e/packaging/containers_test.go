//go:build linux

package packaging_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"toolfinch/internal/must"
)

const (
	composeModule    = "github.com/compose-spec/compose-go/v2@v2.16.2"
	kubernetesModule = "k8s.io/kubernetes@v1.34.1"
)

// The files for containers are what Compose and Kubernetes take, without a key that they do not know.
func TestContainers(t *testing.T) {
	if os.Getenv("TOOLFINCH_TEST_REQUIRE") != "all" {
		t.Skip("schemas are modules of others: set TOOLFINCH_TEST_REQUIRE=all")
	}
	t.Chdir("../../packaging")
	for _, file := range []string{"compose.yaml", "compose.replicas.yaml"} {
		valid(t, filepath.Join(download(t, composeModule), "schema/compose-spec.json"), file)
	}
	apis := filepath.Join(download(t, kubernetesModule), "api/openapi-spec/v3")
	text := must.Get(os.ReadFile("kubernetes.yaml"))(t)
	for documents := yaml.NewDecoder(bytes.NewReader(text)); ; {
		var value map[string]any
		if err := documents.Decode(&value); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		kind, _ := value["kind"].(string)
		version, _ := value["apiVersion"].(string)
		api, of := "api__v1", "core.v1"
		if group, _, grouped := strings.Cut(version, "/"); grouped {
			api, of = "apis__"+group+"__v1", group+".v1"
		}
		read := must.Get(os.ReadFile(filepath.Join(apis, api+"_openapi.json")))(t)
		var schemas any
		must.Do(t, json.Unmarshal(read, &schemas))
		closed(schemas)
		compiler := jsonschema.NewCompiler()
		must.Do(t, compiler.AddResource("kubernetes.json", schemas))
		compiled := must.Get(compiler.Compile("kubernetes.json#/components/schemas/io.k8s.api." + of + "." + kind))(t)
		encoded := must.Get(json.Marshal(value))(t)
		plain := must.Get(jsonschema.UnmarshalJSON(bytes.NewReader(encoded)))(t)
		if err := compiled.Validate(plain); err != nil {
			t.Errorf("%s: %v", kind, err)
		}
	}
}

// closed has the schemas of objects take no member that they do not name.
func closed(schema any) {
	switch schema := schema.(type) {
	case map[string]any:
		if _, names := schema["properties"].(map[string]any); names && schema["additionalProperties"] == nil {
			schema["additionalProperties"] = false
		}
		for _, inner := range schema {
			closed(inner)
		}
	case []any:
		for _, inner := range schema {
			closed(inner)
		}
	}
}
