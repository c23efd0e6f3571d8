// Command packaging makes the packages of a release that GoReleaser does not make: for npm and desktop
// clients (.mcpb), the entry of the MCP registry, and the Homebrew formula. It publishes nothing.
//
//	go run ./packaging -releases https://example.com/toolfinch/v1.2.3 -namespace com.example dist
package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"cmp"
	"compress/gzip"
	"crypto/sha256"
	_ "embed"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"text/template"
)

const about = "One MCP server in front of all your tools."

//go:embed npm/toolfinch.js
var launcher []byte

//go:embed formula.rb
var formula string

func main() {
	r := &release{}
	flag.StringVar(&r.URL, "releases", "", "the `URL` below which the archives of this release will be")
	flag.StringVar(&r.Namespace, "namespace", "", "the namespace in the MCP registry, as com.example")
	partial := flag.Bool("partial", false, "make do with archives of some platforms")
	flag.Parse()
	if flag.NArg() != 1 || r.URL == "" || r.Namespace == "" {
		flag.Usage()
		os.Exit(2)
	}
	r.folder = flag.Arg(0)
	if err := r.make(*partial); err != nil {
		fmt.Fprintln(os.Stderr, "packaging:", err)
		os.Exit(1)
	}
}

// platforms are the platforms of goreleaser.yaml.
var platforms = []string{"darwin_amd64", "darwin_arm64", "linux_amd64", "linux_arm64", "windows_amd64", "windows_arm64"}

// release is the release to pack.
type release struct {
	folder    string
	URL       string
	Namespace string
	Version   string              // without v
	Archives  map[string]*archive // by platform
	license   []byte
}

// archive is an archive of GoReleaser.
type archive struct {
	OS, Arch  string
	File, Sum string // its name, and its SHA-256 in hexadecimal digits
	program   []byte
}

// exe is the name of the program.
func (a *archive) exe() string {
	if a.OS == "windows" {
		return "toolfinch.exe"
	}
	return "toolfinch"
}

// node returns the platform and the architecture in the words of Node and npm.
func (a *archive) node() (string, string) {
	names := map[string]string{"windows": "win32", "amd64": "x64"}
	return cmp.Or(names[a.OS], a.OS), cmp.Or(names[a.Arch], a.Arch)
}

func (r *release) make(partial bool) error {
	if err := r.read(); err != nil {
		return err
	}
	var missing []string
	for _, p := range platforms {
		if r.Archives[p] == nil {
			missing = append(missing, p)
		}
	}
	if len(r.Archives) == 0 || len(missing) > 0 && !partial {
		return fmt.Errorf("%s has no archive for %s", r.folder, strings.Join(missing, ", "))
	}
	var made []string
	for _, step := range []func() ([]string, error){r.npm, r.bundles, r.registryEntry, r.homebrew} {
		files, err := step()
		if err != nil {
			return err
		}
		made = append(made, files...)
	}
	return r.addSums(made)
}

var archiveName = regexp.MustCompile(`^toolfinch_(.+)_(linux|darwin|windows)_(amd64|arm64)\.(tar\.gz|zip)$`)

// read finds the archives, with the programs and the licence in them.
func (r *release) read() error {
	files, err := os.ReadDir(r.folder)
	if err != nil {
		return err
	}
	r.Archives = map[string]*archive{}
	for _, file := range files {
		match := archiveName.FindStringSubmatch(file.Name())
		if match == nil {
			continue
		}
		if r.Version != "" && r.Version != match[1] {
			return fmt.Errorf("%s has archives of %s and of %s", r.folder, r.Version, match[1])
		}
		r.Version = match[1]
		a := &archive{OS: match[2], Arch: match[3], File: file.Name()}
		content, err := os.ReadFile(filepath.Join(r.folder, a.File))
		if err != nil {
			return err
		}
		a.Sum = sum(content)
		unpack := untar
		if match[4] == "zip" {
			unpack = unzip
		}
		inside, err := unpack(content, a.exe(), "LICENSE")
		if err != nil {
			return fmt.Errorf("%s: %w", a.File, err)
		}
		a.program, r.license = inside[a.exe()], inside["LICENSE"]
		r.Archives[a.OS+"_"+a.Arch] = a
	}
	return nil
}

// sorted returns the archives in the order of platforms.
func (r *release) sorted() (all []*archive) {
	for _, p := range platforms {
		if a := r.Archives[p]; a != nil {
			all = append(all, a)
		}
	}
	return all
}

// npm makes a package for each platform and the main package, which depends on them optionally: npm
// installs the right one, and runs no script.
func (r *release) npm() (made []string, err error) {
	common := func(name string) map[string]any {
		return map[string]any{"name": name, "version": r.Version, "description": about, "license": "Apache-2.0"}
	}
	optional := map[string]string{}
	for _, a := range r.sorted() {
		system, cpu := a.node()
		name := "toolfinch-" + system + "-" + cpu
		optional[name] = r.Version
		about := common(name)
		about["description"] = fmt.Sprintf("toolfinch for %s on %s: install toolfinch, which brings it.", system, cpu)
		about["os"], about["cpu"], about["preferUnplugged"] = []string{system}, []string{cpu}, true
		file, err := r.tarball(name, about, content{"bin/" + a.exe(), a.program, 0o755}, content{"LICENSE", r.license, 0o644})
		if err != nil {
			return nil, err
		}
		made = append(made, file)
	}
	about := common("toolfinch")
	about["bin"] = map[string]string{"toolfinch": "toolfinch.js"}
	about["engines"] = map[string]string{"node": ">=18"}
	about["optionalDependencies"] = optional
	about["mcpName"] = r.Namespace + "/toolfinch" // the registry identifies our package by it
	file, err := r.tarball("toolfinch", about, content{"toolfinch.js", launcher, 0o755}, content{"LICENSE", r.license, 0o644})
	return append(made, file), err
}

// content is a file of a package.
type content struct {
	name string
	data []byte
	mode int64
}

// tarball writes an npm package: `npm publish FILE` takes it.
func (r *release) tarball(name string, about map[string]any, files ...content) (string, error) {
	manifest, err := indented(about)
	if err != nil {
		return "", err
	}
	var out bytes.Buffer
	compressed := gzip.NewWriter(&out)
	w := tar.NewWriter(compressed)
	for _, f := range append([]content{{"package.json", manifest, 0o644}}, files...) {
		if err := w.WriteHeader(&tar.Header{Name: "package/" + f.name, Mode: f.mode, Size: int64(len(f.data))}); err != nil {
			return "", err
		}
		if _, err := w.Write(f.data); err != nil {
			return "", err
		}
	}
	if err := errors.Join(w.Close(), compressed.Close()); err != nil {
		return "", err
	}
	return r.write(name+"-"+r.Version+".tgz", out.Bytes())
}

// bundles makes the .mcpb files, which desktop clients install by a double click: one for each
// platform, because a common bundle would have six programs.
func (r *release) bundles() (made []string, err error) {
	for _, a := range r.sorted() {
		system, _ := a.node()
		program := "server/" + a.exe()
		manifest, err := indented(map[string]any{
			"manifest_version": "0.3",
			"name":             "toolfinch", "display_name": "toolfinch", "version": r.Version,
			"description": about,
			"author":      map[string]string{"name": "The toolfinch authors"},
			"license":     "Apache-2.0",
			"keywords":    []string{"mcp", "proxy", "search"},
			"server": map[string]any{
				"type": "binary", "entry_point": program,
				"mcp_config": map[string]any{
					"command": "${__dirname}/" + program,
					"args":    []string{"serve", "--config", "${user_config.configuration}"},
					"env":     map[string]string{},
				},
			},
			"user_config": map[string]any{"configuration": map[string]any{
				"type": "file", "title": "Configuration", "required": true,
				"description": "toolfinch.yaml, or a file of Claude Desktop, Cursor or VS Code with the servers to put behind toolfinch.",
			}},
			"tools_generated": true,
			"compatibility":   map[string]any{"platforms": []string{system}},
		})
		if err != nil {
			return nil, err
		}
		var out bytes.Buffer
		w := zip.NewWriter(&out)
		for _, f := range []content{{"manifest.json", manifest, 0o644}, {program, a.program, 0o755}, {"LICENSE", r.license, 0o644}} {
			header := &zip.FileHeader{Name: f.name, Method: zip.Deflate}
			header.SetMode(os.FileMode(f.mode))
			inside, err := w.CreateHeader(header)
			if err == nil {
				_, err = inside.Write(f.data)
			}
			if err != nil {
				return nil, err
			}
		}
		if err := w.Close(); err != nil {
			return nil, err
		}
		file, err := r.write(fmt.Sprintf("toolfinch_%s_%s_%s.mcpb", r.Version, a.OS, a.Arch), out.Bytes())
		if err != nil {
			return nil, err
		}
		made = append(made, file)
	}
	return made, nil
}

// registryEntry makes server.json. It names only the npm package: the registry cannot state a bundle's
// platform.
func (r *release) registryEntry() ([]string, error) {
	text, err := indented(map[string]any{
		"$schema": "https://static.modelcontextprotocol.io/schemas/2025-12-11/server.schema.json",
		"name":    r.Namespace + "/toolfinch", "title": "toolfinch", "version": r.Version,
		"description": about,
		"packages": []any{map[string]any{
			"registryType": "npm", "identifier": "toolfinch", "version": r.Version,
			"runtimeHint": "npx", "transport": map[string]string{"type": "stdio"},
			"packageArguments": []any{
				map[string]any{"type": "positional", "value": "serve"},
				map[string]any{
					"type": "named", "name": "--config", "format": "filepath", "isRequired": true,
					"description": "the configuration with the servers to put behind toolfinch",
				},
			},
		}},
	})
	if err != nil {
		return nil, err
	}
	file, err := r.write("server.json", text)
	return []string{file}, err
}

// homebrew makes the formula for the owner's tap.
func (r *release) homebrew() ([]string, error) {
	t, err := template.New("formula.rb").Option("missingkey=error").Parse(formula)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	if err := t.Execute(&out, r); err != nil {
		return nil, err
	}
	file, err := r.write("toolfinch.rb", out.Bytes())
	return []string{file}, err
}

// Systems are the archives for Homebrew, by its names of systems and processors.
func (r *release) Systems() map[string]map[string]*archive {
	all := map[string]map[string]*archive{}
	for system, name := range map[string]string{"darwin": "macos", "linux": "linux"} {
		for arch, cpu := range map[string]string{"amd64": "intel", "arm64": "arm"} {
			if a := r.Archives[system+"_"+arch]; a != nil {
				if all[name] == nil {
					all[name] = map[string]*archive{}
				}
				all[name][cpu] = a
			}
		}
	}
	return all
}

func (r *release) write(name string, data []byte) (string, error) {
	return name, os.WriteFile(filepath.Join(r.folder, name), data, 0o644)
}

// addSums adds files to checksums.txt, and replaces their sums of an earlier run.
func (r *release) addSums(files []string) error {
	before, err := os.ReadFile(filepath.Join(r.folder, "checksums.txt"))
	if err != nil && !os.IsNotExist(err) {
		return err
	}
	var lines []string
	for line := range strings.Lines(string(before)) {
		if _, name, _ := strings.Cut(strings.TrimSpace(line), "  "); !slices.Contains(files, name) {
			lines = append(lines, strings.TrimSpace(line))
		}
	}
	for _, file := range files {
		data, err := os.ReadFile(filepath.Join(r.folder, file))
		if err != nil {
			return err
		}
		lines = append(lines, sum(data)+"  "+file)
	}
	_, err = r.write("checksums.txt", []byte(strings.Join(lines, "\n")+"\n"))
	return err
}

func sum(data []byte) string { return fmt.Sprintf("%x", sha256.Sum256(data)) }

// indented is JSON for people.
func indented(value any) ([]byte, error) {
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	err := e.Encode(value)
	return out.Bytes(), err
}

// untar returns the named files of a .tar.gz; all must exist.
func untar(data []byte, names ...string) (map[string][]byte, error) {
	compressed, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	found := map[string][]byte{}
	for r := tar.NewReader(compressed); ; {
		header, err := r.Next()
		if err == io.EOF {
			return found, allOf(found, names)
		}
		if err != nil {
			return nil, err
		}
		if name := path.Clean(header.Name); slices.Contains(names, name) {
			if found[name], err = io.ReadAll(r); err != nil {
				return nil, err
			}
		}
	}
}

// unzip returns the named files of a .zip; all must exist.
func unzip(data []byte, names ...string) (map[string][]byte, error) {
	r, err := zip.NewReader(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		return nil, err
	}
	found := map[string][]byte{}
	for _, f := range r.File {
		if !slices.Contains(names, f.Name) {
			continue
		}
		inside, err := f.Open()
		if err != nil {
			return nil, err
		}
		found[f.Name], err = io.ReadAll(inside)
		if err := errors.Join(err, inside.Close()); err != nil {
			return nil, err
		}
	}
	return found, allOf(found, names)
}

func allOf(found map[string][]byte, names []string) error {
	for _, name := range names {
		if len(found[name]) == 0 {
			return fmt.Errorf("there is no %s in it", name)
		}
	}
	return nil
}
