package web_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"toolfinch/internal/must"
	"toolfinch/internal/rawjson"
	"toolfinch/internal/schema"
)

// document is the OpenAPI document as it is served.
type document struct {
	raw   json.RawMessage
	paths map[string]map[string]described // by template and method
}

// described is what the document says of one operation.
type described struct {
	OperationID string
	Parameters  []parameter
	RequestBody *struct {
		Required bool
		Content  map[string]content
	}
	Responses map[string]struct {
		Ref         string `json:"$ref"`
		Description string
		Content     map[string]content
	}
}

type parameter struct {
	Ref      string `json:"$ref"`
	Name, In string
	Required bool
}

type content struct{ Schema json.RawMessage }

// readDocument reads the document that handler serves, references resolved.
func readDocument(t testing.TB, handler http.Handler) *document {
	t.Helper()
	answer := ask(handler, http.MethodGet, "/openapi.json", "")
	if answer.Code != http.StatusOK {
		t.Fatalf("/openapi.json: %d %s", answer.Code, answer.Body)
	}
	d := &document{raw: answer.Body.Bytes()}
	var of struct {
		Paths map[string]map[string]described
	}
	must.Do(t, json.Unmarshal(d.raw, &of))
	d.paths = of.Paths
	for _, operations := range d.paths {
		for _, op := range operations {
			for status, response := range op.Responses {
				if response.Ref != "" {
					must.Do(t, json.Unmarshal(d.at(response.Ref), &response))
					op.Responses[status] = response
				}
			}
			for i, p := range op.Parameters {
				if p.Ref != "" {
					must.Do(t, json.Unmarshal(d.at(p.Ref), &op.Parameters[i]))
				}
			}
		}
	}
	return d
}

// at is what a reference leads to, nil where that is nothing.
func (d *document) at(ref string) json.RawMessage {
	at := d.raw
	way, local := strings.CutPrefix(ref, "#/")
	if !local {
		return nil
	}
	for _, part := range strings.Split(way, "/") {
		at = rawjson.Member(at, part)
	}
	return at
}

// compile makes a schema of the document one that stands alone.
func (d *document) compile(t testing.TB, raw json.RawMessage) *schema.Schema {
	t.Helper()
	alone := fmt.Sprintf(`{"$defs":%s,"allOf":[%s]}`, d.at("#/components/schemas"), raw)
	compiled, err := schema.Compile(json.RawMessage(strings.ReplaceAll(alone, "#/components/schemas/", "#/$defs/")))
	if err != nil {
		t.Fatalf("%s: %v", raw, err)
	}
	return compiled
}

func violations(t testing.TB, of *schema.Schema, value json.RawMessage) []string {
	t.Helper()
	return must.Get(of.Check(t.Context(), value))(t)
}

// template is the path of the document that a request's path is of: of two the
// one with fewer parameters.
func (d *document) template(path string) string {
	parts := strings.Split(path, "/")
	found, fewest := "", len(parts)+1
	for template := range d.paths {
		of := strings.Split(template, "/")
		parameters := 0
		fits := len(of) == len(parts)
		for i := 0; fits && i < len(of); i++ {
			if strings.HasPrefix(of[i], "{") {
				parameters++
			} else {
				fits = of[i] == parts[i]
			}
		}
		if fits && parameters < fewest {
			found, fewest = template, parameters
		}
	}
	return found
}

func TestTheDocumentIsOpenAPI(t *testing.T) {
	raw := must.Get(os.ReadFile("testdata/oas-3.1-2022-10-07.json"))(t)
	// The official schema has dynamic references, which package schema refuses.
	compiler := jsonschema.NewCompiler()
	parse := func(raw []byte) any {
		return must.Get(jsonschema.UnmarshalJSON(bytes.NewReader(raw)))(t)
	}
	must.Do(t, compiler.AddResource("official", parse(raw)))
	official := must.Get(compiler.Compile("official"))(t)
	d := readDocument(t, newRig(t).handler)
	if err := official.Validate(parse(d.raw)); err != nil {
		t.Error(err)
	}
	if err := official.Validate(parse([]byte(`{"openapi":"3.1.0","info":{"title":"x"},"paths":{"x":{}}}`))); err == nil {
		t.Error("the official schema takes anything")
	}
	if version := rawjson.Text(d.at("#/info/version")); version != "1.2.3" {
		t.Errorf("version %q is not the program's", version)
	}
	for name, component := range rawjson.Members(d.at("#/components/schemas")) {
		d.compile(t, component)
		if !strings.Contains(string(d.raw), `"#/components/schemas/`+name+`"`) {
			t.Errorf("schema %s is used nowhere", name)
		}
	}
	references(d.raw, func(ref string) {
		if d.at(ref) == nil {
			t.Errorf("%s leads nowhere", ref)
		}
	})
}

// references calls found with every reference in a JSON value.
func references(value json.RawMessage, found func(ref string)) {
	for name, member := range rawjson.Members(value) {
		if name == "$ref" {
			found(rawjson.Text(member))
		}
		references(member, found)
	}
	for element := range rawjson.Elements(value) {
		references(element, found)
	}
}

func TestTheDocumentSaysWhatItShould(t *testing.T) {
	d := readDocument(t, newRig(t).handler)
	ids := map[string]string{}
	for path, operations := range d.paths {
		for method, op := range operations {
			where := method + " " + path
			if other, taken := ids[op.OperationID]; taken || op.OperationID == "" {
				t.Errorf("%s: operationId %q is empty, or that of %s too", where, op.OperationID, other)
			}
			ids[op.OperationID] = where
			var inPath []string
			for _, p := range op.Parameters {
				if p.In == "path" {
					inPath = append(inPath, "{"+p.Name+"}")
					if !p.Required {
						t.Errorf("%s: the path parameter %s must be required", where, p.Name)
					}
				}
			}
			var want []string
			for part := range strings.SplitSeq(path, "/") {
				if strings.HasPrefix(part, "{") {
					want = append(want, part)
				}
			}
			if !slices.Equal(inPath, want) {
				t.Errorf("%s: path parameters %v, want %v", where, inPath, want)
			}
			if strings.HasPrefix(path, "/api/") && path != "/api/openapi.json" &&
				!slices.ContainsFunc(op.Parameters, func(p parameter) bool { return p.Name == "view" }) {
				t.Errorf("%s: no parameter view", where)
			}
			for status, response := range op.Responses {
				if response.Description == "" || len(response.Content) != 1 {
					t.Errorf("%s %s: no description, or not one type of content", where, status)
				}
			}
		}
	}
}

// Where the answers are this program's own, they have nothing but what is
// documented: the requests of TestEveryStatus would not show it otherwise.
func TestOwnAnswersAreClosed(t *testing.T) {
	d := readDocument(t, newRig(t).handler)
	open := []string{"CallToolResult"} // the tool's
	for _, name := range slices.Sorted(maps.Keys(membersOf(d.at("#/components/schemas")))) {
		closed := string(rawjson.Member(d.at("#/components/schemas/"+name), "additionalProperties")) == "false"
		if closed == slices.Contains(open, name) {
			t.Errorf("schema %s: closed is %t", name, closed)
		}
	}
}

func membersOf(object json.RawMessage) map[string]json.RawMessage {
	return maps.Collect(rawjson.Members(object))
}
