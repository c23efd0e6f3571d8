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

	"toolfinch/internal/must"
)

// floors are those of docs/architecture.md, by the folders at the top: imports run down only, or stay within
// one folder.
var floors = map[string]int{
	"cmd": 7, "packaging": 7,
	"proxy":   6,
	"configs": 5, "retrieve": 5,
	"view": 4, "index": 4,
	"register": 3, "upstream": 3, "store": 3, "embed": 3, "trust": 3, "proxytool": 3,
	"tool":     2,
	"internal": 1,
}

// beside them lie the folders that the program imports nothing from.
var beside = []string{"docs", "e2e", "testdata"}

// forTests are packages that only tests import, so they may import any room.
var forTests = []string{"internal/authserver", "internal/await", "internal/collector", "internal/fetch", "internal/must", "internal/pipes", "store/catalogue", "store/storetest"}

// only lists who may import what; a prefix of the import path counts.
var only = map[string][]string{
	"os/exec":                                {"internal/group", "internal/hook", "view/script", "view/python", "upstream/conn", "embed/models", "configs", "upstream/sandbox", "cmd/toolfinch", "internal/authserver"},
	"github.com/mark3labs/mcp-go/client":     {"internal/demo", "proxytool/client"},
	"github.com/mark3labs/mcp-go/server":     {"register", "register/transport", "internal/demo", "proxytool"},
	"github.com/blevesearch":                 {"index"},
	"github.com/philippgille/chromem-go":     {"index"},
	"github.com/sashabaranov/go-openai":      {"embed"},
	"database/sql":                           {"store", "store/storetest", "internal/demo"},
	"modernc.org/sqlite":                     {"store", "internal/demo"},
	"net/http":                               {"internal/discovery", "trust/inbound", "internal/wire", "upstream", "upstream/conn", "upstream/login", "register", "register/transport", "proxytool", "proxytool/client", "proxy", "proxy/web", "proxy/web/page", "embed", "embed/models", "internal/demo", "configs/registry", "internal/telemetry", "cmd/toolfinch", "internal/authserver", "internal/collector", "internal/fetch", "internal/pipes"},
	"toolfinch/cmd":                          {},
	"toolfinch/e2e/postgres":                 {}, // tests only
	"github.com/jackc/pgx":                   {"store"},
	"github.com/pressly/goose":               {"store"},
	"github.com/spf13/cobra":                 {"cmd/toolfinch"},
	"github.com/goccy/go-yaml":               {"internal/document"},
	"github.com/fsnotify/fsnotify":           {"configs"},
	"github.com/tailscale/hujson":            {"internal/document", "internal/demo"},
	"github.com/pelletier/go-toml":           {"configs/clients"},
	"github.com/santhosh-tekuri/jsonschema":  {"internal/schema"},
	"github.com/itchyny/gojq":                {"view/script"},
	"github.com/landlock-lsm":                {"upstream/sandbox"},
	"github.com/modelcontextprotocol/go-sdk": {"upstream/login", "internal/authserver"},
	"github.com/cedar-policy/cedar-go":       {"trust/policy"},
	"golang.org/x/oauth2":                    {"upstream/login"},
	"github.com/go-jose":                     {"trust/inbound"},
	"github.com/zalando/go-keyring":          {"store/vault"},
	"github.com/prometheus":                  {"internal/telemetry"},
	"go.starlark.net":                        {"view/script", "internal/demo"},
	"go.opentelemetry.io":                    {"internal/telemetry", "internal/collector"},
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
		top, _, _ := strings.Cut(room, "/")
		for _, spec := range parsed.Imports {
			imported, _ := strconv.Unquote(spec.Path.Value)
			if ours, ok := strings.CutPrefix(imported, "toolfinch/"); ok && !slices.Contains(forTests, room) {
				if of, _, _ := strings.Cut(ours, "/"); of != top && floors[of] >= floors[top] {
					t.Errorf("%s imports %s, which is not below %s", file, ours, top)
				}
				if slices.Contains(forTests, ours) {
					t.Errorf("%s imports %s, which is for tests", file, ours)
				}
			}
			for restricted, allowed := range only {
				if (imported == restricted || strings.HasPrefix(imported, restricted+"/")) && !slices.Contains(allowed, room) {
					t.Errorf("%s imports %s, which is for %v only", file, imported, allowed)
				}
			}
		}
	})
}

func TestTheFoldersAtTheTopAreTheseAlone(t *testing.T) {
	entries := must.Get(os.ReadDir("."))(t)
	for _, e := range entries {
		if _, is := floors[e.Name()]; e.IsDir() && !strings.HasPrefix(e.Name(), ".") && !is && !slices.Contains(beside, e.Name()) {
			t.Errorf("%s/ is no folder of docs/architecture.md", e.Name())
		}
	}
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
		must.Do(t, os.WriteFile("linked.txt", []byte(now), 0o644))
	}
	listed := must.Get(os.ReadFile("linked.txt"))(t)
	if string(listed) != now {
		t.Errorf("linked.txt is out of date: go test . -run Linked -update, and look at the difference")
	}
}

// linkedPackages are the packages of others in the program for Linux on amd64, sorted.
func linkedPackages(t *testing.T) []string {
	t.Helper()
	cmd := exec.Command("go", "list", "-deps", "-f", "{{if not .Standard}}{{if not .Module.Main}}{{.ImportPath}}{{end}}{{end}}", "./cmd/toolfinch")
	cmd.Env = append(os.Environ(), "GOOS=linux", "GOARCH=amd64", "CGO_ENABLED=0")
	out := must.Get(cmd.Output())(t)
	all := strings.Fields(string(out))
	slices.Sort(all)
	return all
}
