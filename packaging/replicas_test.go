//go:build linux

package main

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
	for _, file := range []string{"compose.yaml", "compose.replicas.yaml"} {
		valid(t, filepath.Join(download(t, composeModule), "schema/compose-spec.json"), file)
	}
	apis := filepath.Join(download(t, kubernetesModule), "api/openapi-spec/v3")
	text, err := os.ReadFile("kubernetes.yaml")
	if err != nil {
		t.Fatal(err)
	}
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
		read, err := os.ReadFile(filepath.Join(apis, api+"_openapi.json"))
		if err != nil {
			t.Fatal(err)
		}
		var schemas any
		if err := json.Unmarshal(read, &schemas); err != nil {
			t.Fatal(err)
		}
		closed(schemas)
		compiler := jsonschema.NewCompiler()
		if err := compiler.AddResource("kubernetes.json", schemas); err != nil {
			t.Fatal(err)
		}
		compiled, err := compiler.Compile("kubernetes.json#/components/schemas/io.k8s.api." + of + "." + kind)
		if err != nil {
			t.Fatal(err)
		}
		encoded, err := json.Marshal(value)
		if err != nil {
			t.Fatal(err)
		}
		plain, err := jsonschema.UnmarshalJSON(bytes.NewReader(encoded))
		if err != nil {
			t.Fatal(err)
		}
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
