package e2e_test

import (
	"cmp"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"

	"toolfinch/internal/must"
	"toolfinch/internal/rawjson"
	"toolfinch/internal/schema"
)

// testRegistry is a registry that follows the document of the official one's API. It
// checks each answer against that document.
type testRegistry struct {
	t       *testing.T
	servers []entry
	schemas map[string]*schema.Schema // by name in the document
}

// entry is a server.json, and what the registry says of it.
type entry struct {
	Server          json.RawMessage
	Status, Message string
	name, version   string
	latest          bool
}

func startRegistry(t *testing.T) string {
	t.Helper()
	r := &testRegistry{t: t, schemas: map[string]*schema.Schema{}}
	document, err := os.ReadFile("../testdata/registry/openapi.yaml")
	if err != nil {
		t.Fatal(err)
	}
	plain, err := yaml.YAMLToJSON(document)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"ServerList", "ServerResponse"} {
		whole, err := schema.Compile(rawjson.Of(map[string]any{
			"$ref":       "#/components/schemas/" + name,
			"components": rawjson.Member(plain, "components"),
		}))
		if err != nil {
			t.Fatal(err)
		}
		r.schemas[name] = whole
	}
	for _, file := range []string{"servers.json", "more.json"} {
		data := must.Get(os.ReadFile("../testdata/registry/" + file))(t)
		for raw := range rawjson.Elements(data) {
			l := entry{Server: raw, Status: "active"}
			if inner := rawjson.Member(raw, "server"); inner != nil {
				l = entry{Server: inner, Status: rawjson.Text(rawjson.Member(raw, "status")), Message: rawjson.Text(rawjson.Member(raw, "message"))}
			}
			l.name, l.version = rawjson.Text(rawjson.Member(l.Server, "name")), rawjson.Text(rawjson.Member(l.Server, "version"))
			for i, before := range r.servers { // the file has versions in their order
				r.servers[i].latest = before.latest && before.name != l.name
			}
			l.latest = true
			r.servers = append(r.servers, l)
		}
	}
	slices.SortFunc(r.servers, func(a, b entry) int {
		return cmp.Or(strings.Compare(a.name, b.name), strings.Compare(a.version, b.version))
	})
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v0.1/servers", r.list)
	mux.HandleFunc("GET /v0.1/servers/{name}/versions/{version}", r.version)
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	return server.URL
}

func (r *testRegistry) list(w http.ResponseWriter, req *http.Request) {
	query := req.URL.Query()
	search := query.Get("search")
	if search != "" && len(strings.TrimSpace(search)) < 3 {
		// As the official registry says it, which is not as its document has it.
		r.fail(w, http.StatusUnprocessableEntity, rawjson.Of(map[string]any{"title": "Unprocessable Entity", "status": 422, "detail": "search must contain at least 3 characters"}))
		return
	}
	limit, err := strconv.Atoi(cmp.Or(query.Get("limit"), "30"))
	if err != nil || limit < 1 || limit > 100 {
		r.fail(w, http.StatusUnprocessableEntity, rawjson.Of(map[string]any{"status": 422, "detail": "validation failed"}))
		return
	}
	page := []json.RawMessage{}
	next := ""
	for _, l := range r.servers {
		key := l.name + ":" + l.version
		switch {
		case l.Status == "deleted", query.Get("version") == "latest" && !l.latest, !strings.Contains(strings.ToLower(l.name), strings.ToLower(search)), key <= query.Get("cursor"):
			continue
		}
		if len(page) == limit {
			break
		}
		page, next = append(page, l.answer()), key
	}
	if len(page) < limit {
		next = ""
	}
	metadata := rawjson.Of(map[string]any{"count": len(page)})
	if next != "" {
		metadata = rawjson.Of(map[string]any{"count": len(page), "nextCursor": next})
	}
	r.write(w, "ServerList", rawjson.Of(map[string]any{"servers": page, "metadata": metadata}))
}

func (r *testRegistry) version(w http.ResponseWriter, req *http.Request) {
	name, _ := url.PathUnescape(req.PathValue("name"))
	for _, l := range r.servers {
		asked := req.PathValue("version")
		if l.name == name && (asked == l.version || asked == "latest" && l.latest) && (l.Status != "deleted" || req.URL.Query().Get("include_deleted") == "true") {
			r.write(w, "ServerResponse", l.answer())
			return
		}
	}
	r.fail(w, http.StatusNotFound, rawjson.Of(map[string]string{"error": "Server not found"}))
}

func (l entry) answer() json.RawMessage {
	official := map[string]any{"status": l.Status, "isLatest": l.latest, "publishedAt": "2025-12-01T10:30:00Z"}
	if l.Message != "" {
		official["statusMessage"] = l.Message
	}
	return rawjson.Of(map[string]any{"server": l.Server, "_meta": map[string]any{"io.modelcontextprotocol.registry/official": official}})
}

func (r *testRegistry) fail(w http.ResponseWriter, code int, body json.RawMessage) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(code)
	_, _ = w.Write(body)
}

// write answers with what the API's document has.
func (r *testRegistry) write(w http.ResponseWriter, name string, body json.RawMessage) {
	violations, err := r.schemas[name].Check(r.t.Context(), body)
	if err != nil || len(violations) > 0 {
		r.t.Errorf("the registry's own answer is no %s: %v, %v", name, violations, err)
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(body)
}
