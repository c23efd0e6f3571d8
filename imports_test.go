// Package toolfinch_test holds the rules of the repository as tests.
package toolfinch_test

import (
	"flag"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// floors is the table of docs/architecture.md: imports run down only, and from a
// package to those in its folder.
var floors = map[string]int{
	"cmd/toolfinch": 6,
	"proxy":         5,
	"web":           4, "eval": 4, "proxy/replicas": 4,
	"web/page": 4,
	"retrieve": 3, "configs": 3, "savings": 3, "proxytool/client": 3, "transport": 3,
	"upstream": 2, "upstream/conn": 2, "store": 2, "index": 2, "register": 2, "gate": 2, "view": 2, "output": 2, "proxytool": 2, "registry": 2,
	"tool": 1, "telemetry": 1, "hook": 1, "wire": 1, "script": 1, "python": 1,
	"embed": 1, "embed/hf": 1,
	"tool/args":           1,
	"tool/o200k":          0,
	"trust/inbound":       2,
	"trust/sandbox":       1,
	"trust/login":         1,
	"trust/vault":         1,
	"trust/audit":         1,
	"trust/leaks":         1,
	"trust/pins":          2,
	"trust/rate":          1,
	"trust/policy":        2,
	"demo":                1,
	"clients":             1,
	"packaging":           6,
	"trust":               0,
	"trust/discovery":     0,
	"internal/catalogue":  3,
	"internal/authserver": 1, "internal/collector": 0, "internal/fetch": 0,
	"store/storetest": 3,                      // the contract of a store, which tests of both databases run
	"internal/must":   0, "internal/pipes": 0, // tests only
	"internal/await": 1, "internal/leeway": 0, "group": 0, "limit": 0, "nearest": 0, "printable": 0, "rawjson": 0, "schema": 0, "embed/kernel": 0, "embed/models": 0,
}

// only lists who may import what; a prefix of the import path counts.
var only = map[string][]string{
	"os/exec":                                {"group", "hook", "script", "python", "upstream/conn", "embed/models", "configs", "trust/sandbox", "cmd/toolfinch", "internal/authserver"},
	"github.com/mark3labs/mcp-go/client":     {"demo", "proxytool/client"},
	"github.com/mark3labs/mcp-go/server":     {"register", "transport", "demo", "proxytool"},
	"github.com/blevesearch":                 {"index"},
	"github.com/philippgille/chromem-go":     {"index"},
	"github.com/sashabaranov/go-openai":      {"embed"},
	"database/sql":                           {"store", "store/storetest", "demo"},
	"modernc.org/sqlite":                     {"store", "demo"},
	"net/http":                               {"trust/discovery", "trust/inbound", "wire", "upstream", "upstream/conn", "trust/login", "register", "transport", "proxytool", "proxytool/client", "proxy", "web", "web/page", "embed", "embed/models", "demo", "registry", "telemetry", "cmd/toolfinch", "internal/authserver", "internal/collector", "internal/fetch", "internal/pipes"},
	"toolfinch/cmd":                          {},
	"toolfinch/internal/await":               {"store/storetest"},     // tests only
	"toolfinch/internal/authserver":          {},                      // tests only
	"toolfinch/internal/catalogue":           {},                      // tests only
	"toolfinch/internal/collector":           {},                      // tests only
	"toolfinch/internal/fetch":               {},                      // tests only
	"toolfinch/internal/must":                {},                      // tests only
	"toolfinch/internal/pipes":               {"internal/authserver"}, // tests only
	"toolfinch/e2e/postgres":                 {},                      // tests only
	"toolfinch/store/storetest":              {},                      // tests only
	"github.com/jackc/pgx":                   {"store"},
	"github.com/pressly/goose":               {"store"},
	"github.com/spf13/cobra":                 {"cmd/toolfinch"},
	"github.com/goccy/go-yaml":               {"configs"},
	"github.com/fsnotify/fsnotify":           {"configs"},
	"github.com/tailscale/hujson":            {"clients", "configs", "demo"},
	"github.com/pelletier/go-toml":           {"clients"},
	"github.com/santhosh-tekuri/jsonschema":  {"schema"},
	"github.com/itchyny/gojq":                {"script"},
	"github.com/landlock-lsm":                {"trust/sandbox"},
	"github.com/modelcontextprotocol/go-sdk": {"trust/login", "internal/authserver"},
	"github.com/cedar-policy/cedar-go":       {"trust/policy"},
	"golang.org/x/oauth2":                    {"trust/login"},
	"github.com/go-jose":                     {"trust/inbound"},
	"github.com/zalando/go-keyring":          {"trust/vault"},
	"github.com/prometheus":                  {"telemetry"},
	"go.starlark.net":                        {"script", "demo"},
	"go.opentelemetry.io":                    {"telemetry", "internal/collector"},
}

// inFiles calls do with every file of Go that is no test.
func inFiles(t *testing.T, mode parser.Mode, do func(file string, parsed *ast.File)) {
	t.Helper()
	err := filepath.WalkDir(".", func(file string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() && (file == "e2e" || entry.Name() == "testdata" || strings.HasPrefix(entry.Name(), ".") && file != ".") {
			return filepath.SkipDir
		}
		if !strings.HasSuffix(file, ".go") || strings.HasSuffix(file, "_test.go") {
			return nil
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, mode)
		if err == nil {
			do(file, parsed)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestImportsRunDownTheHouse(t *testing.T) {
	inFiles(t, parser.ImportsOnly, func(file string, parsed *ast.File) {
		room := path.Dir(filepath.ToSlash(file))
		floor, known := floors[room]
		if !known {
			t.Errorf("%s: package %s is not in the table of docs/architecture.md", file, room)
		}
		for _, spec := range parsed.Imports {
			imported, _ := strconv.Unquote(spec.Path.Value)
			if ours, ok := strings.CutPrefix(imported, "toolfinch/"); ok && floors[ours] >= floor && path.Dir(ours) != room {
				t.Errorf("%s imports %s, which is not below %s", file, ours, room)
			}
			for restricted, allowed := range only {
				if (imported == restricted || strings.HasPrefix(imported, restricted+"/")) && !slices.Contains(allowed, room) {
					t.Errorf("%s imports %s, which is for %v only", file, imported, allowed)
				}
			}
		}
	})
}

// maxMethods bounds the exported methods of a type: one that has more is several.
const maxMethods = 30

func TestNoTypeHasTooManyMethods(t *testing.T) {
	methods := map[string]int{}
	inFiles(t, parser.SkipObjectResolution, func(file string, parsed *ast.File) {
		for _, decl := range parsed.Decls {
			method, is := decl.(*ast.FuncDecl)
			if !is || method.Recv == nil || !method.Name.IsExported() {
				continue
			}
			of, _, _ := strings.Cut(strings.TrimPrefix(types.ExprString(method.Recv.List[0].Type), "*"), "[")
			methods[path.Dir(filepath.ToSlash(file))+"."+of]++
		}
	})
	for of, n := range methods {
		if n > maxMethods {
			t.Errorf("%s has %d exported methods, more than %d", of, n, maxMethods)
		}
	}
}

// left out of the program: what it had, or has through a library where nothing needs it, with
// what that weighs. Tests may import them.
var leftOut = map[string]string{
	"github.com/tiktoken-go":                   "a vocabulary as a Go map, 5.4 MB: tool/o200k has it compressed",
	"google.golang.org/grpc":                   "2.2 MB: telemetry sends spans by HTTP alone",
	"golang.org/x/net/trace":                   "it executes templates in the program, whatever the page does",
	"go.opentelemetry.io/proto/otlp/collector": "gRPC's messages",
	"github.com/blevesearch/bleve/v2/registry": "1.6 MB of geometry and JSON for bleve's token filters: index has its own",
}

func TestTheProgramIsLean(t *testing.T) {
	for _, linked := range linkedPackages(t) {
		for heavy, why := range leftOut {
			if linked == heavy || strings.HasPrefix(linked, heavy+"/") {
				t.Errorf("the program has %s: %s", linked, why)
			}
		}
	}
}

var update = flag.Bool("update", false, "write linked.txt")

// What of others is linked into the program stands in linked.txt: a new line there asks its reader whether it is worth it.
func TestWhatIsLinkedIsListed(t *testing.T) {
	now := strings.Join(linkedPackages(t), "\n") + "\n"
	if *update {
		if err := os.WriteFile("linked.txt", []byte(now), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	listed, err := os.ReadFile("linked.txt")
	if err != nil {
		t.Fatal(err)
	}
	if string(listed) != now {
		t.Errorf("linked.txt is out of date: go test . -run Linked -update, and look at the difference")
	}
}

// linkedPackages are the packages of others in the program for Linux on amd64, sorted.
func linkedPackages(t *testing.T) []string {
	t.Helper()
	cmd := exec.Command("go", "list", "-deps", "-f", "{{if not .Standard}}{{if not .Module.Main}}{{.ImportPath}}{{end}}{{end}}", "./cmd/toolfinch")
	cmd.Env = append(os.Environ(), "GOOS=linux", "GOARCH=amd64", "CGO_ENABLED=0")
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	all := strings.Fields(string(out))
	slices.Sort(all)
	return all
}
