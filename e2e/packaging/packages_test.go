//go:build linux

// Package packaging_test makes packages as a release does, unpacks them and runs what is
// in them.
package packaging_test

import (
	"archive/tar"
	"archive/zip"
	"bufio"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"debug/elf"
	"debug/macho"
	"debug/pe"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"toolfinch/internal/await"
	"toolfinch/internal/must"
)

// What the files of this folder are checked with. None of it is linked into toolfinch.
const (
	nfpmModule       = "github.com/goreleaser/nfpm/v2/cmd/nfpm@v2.45.0"
	goreleaserModule = "github.com/goreleaser/goreleaser/v2@v2.14.3"
	registryModule   = "github.com/modelcontextprotocol/registry@v1.8.7"
	mcpbPackage      = "@anthropic-ai/mcpb@2.1.2"
)

// built here are the platforms that CI vets anyway, and those of servers; GoReleaser builds all.
var builtHere = []string{"linux_amd64", "linux_arm64", "darwin_arm64", "windows_amd64"}

// recipe is what of goreleaser.yaml makes a program and a Linux package.
type recipe struct {
	Builds []struct {
		Main                string
		Env, Flags, Ldflags []string
	}
	NFPMs []map[string]any `yaml:"nfpms"`
}

// TestPackages makes a release as goreleaser.yaml says, for some platforms, unpacks every
// package and runs the program in it.
func TestPackages(t *testing.T) {
	if os.Getenv("TOOLFINCH_LONG") == "" {
		t.Skip("a release is made before a release, in many minutes: set TOOLFINCH_LONG=1")
	}
	t.Chdir("../../packaging")
	root := must.Get(filepath.Abs(".."))(t)
	text := must.Get(os.ReadFile("goreleaser.yaml"))(t)
	var how recipe
	must.Do(t, yaml.Unmarshal(text, &how))
	build := how.Builds[0]
	dist, generated := t.TempDir(), t.TempDir()
	run(t, root, "go", "run", "-tags", "packaging", "./cmd/toolfinch", "generate", generated)
	const version = "0.0.1-snapshot.0123abc"
	programs := map[string]string{}
	for _, p := range builtHere {
		goos, arch, _ := strings.Cut(p, "_")
		programs[p] = filepath.Join(t.TempDir(), "toolfinch")
		if goos == "windows" {
			programs[p] += ".exe"
		}
		cmd := exec.Command("go", slices.Concat([]string{"build"}, build.Flags, []string{"-ldflags", strings.Join(build.Ldflags, " "), "-o", programs[p], build.Main})...)
		cmd.Dir, cmd.Env = root, slices.Concat(os.Environ(), build.Env, []string{"GOOS=" + goos, "GOARCH=" + arch})
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", p, err, out)
		}
		pack(t, filepath.Join(dist, "toolfinch_"+version+"_"+p), root, programs[p], generated)
	}
	native := "linux_" + runtime.GOARCH
	identity := run(t, root, programs[native], "version")
	if !regexp.MustCompile(`^toolfinch v\S+ \(commit [0-9a-f]{12}`).MatchString(identity) {
		t.Errorf("a build of a checkout says %s", identity)
	}
	same := func(t *testing.T, program string, before ...string) {
		t.Helper()
		if got := run(t, t.TempDir(), append(before, program, "version")[0], append(before, program, "version")[1:]...); got != identity {
			t.Errorf("it says %q, and what was packed %q", got, identity)
		}
	}

	t.Run("it is not large", func(t *testing.T) {
		file := must.Get(os.Stat(programs["linux_amd64"]))(t)
		if t.Logf("%.1f MB", float64(file.Size())/1e6); file.Size() > 45e6 {
			t.Error("more than 45 MB: what has made it larger, and is it worth that?")
		}
	})
	t.Run("programs are for their platforms, and static", func(t *testing.T) {
		if f, err := elf.Open(programs["linux_arm64"]); err != nil || f.Machine != elf.EM_AARCH64 {
			t.Errorf("linux_arm64: %v", err)
		}
		if f, err := elf.Open(programs["linux_amd64"]); err != nil || slices.ContainsFunc(f.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP }) {
			t.Errorf("linux_amd64 is not static: %v", err)
		}
		if f, err := macho.Open(programs["darwin_arm64"]); err != nil || f.Cpu != macho.CpuArm64 {
			t.Errorf("darwin_arm64: %v", err)
		}
		if f, err := pe.Open(programs["windows_amd64"]); err != nil || f.Machine != pe.IMAGE_FILE_MACHINE_AMD64 {
			t.Errorf("windows_amd64: %v", err)
		}
	})

	const url = "https://example.com/toolfinch/v" + version
	packer := filepath.Join(t.TempDir(), "packaging")
	run(t, root, "go", "build", "-o", packer, "./packaging")
	if out, err := exec.Command(packer, "-releases", url, "-namespace", "com.example", dist).CombinedOutput(); err == nil || !strings.Contains(string(out), "darwin_amd64, windows_arm64") {
		t.Errorf("missing platforms: %v\n%s", err, out)
	}
	for range 2 { // a second run changes nothing
		run(t, root, packer, "-partial", "-releases", url, "-namespace", "com.example", dist)
	}
	for _, file := range []string{"server.json", "toolfinch.rb", "toolfinch-" + version + ".tgz"} {
		if checked := run(t, dist, "sha256sum", "--check", "--strict", "checksums.txt"); strings.Count("\n"+checked, "\n"+file+": OK") != 1 {
			t.Errorf("checksums.txt has %s not once:\n%s", file, checked)
		}
	}

	t.Run("archive", func(t *testing.T) {
		folder := t.TempDir()
		run(t, folder, "tar", "-xzf", filepath.Join(dist, "toolfinch_"+version+"_"+native+".tar.gz"))
		same(t, filepath.Join(folder, "toolfinch"))
		run(t, folder, "bash", "-n", "completions/toolfinch.bash")
		run(t, folder, "zsh", "-n", "completions/_toolfinch")
		for _, page := range []string{"toolfinch.1", "toolfinch-serve.1", "toolfinch-server-add.1"} {
			if page := run(t, folder, "cat", "man/"+page); !strings.HasPrefix(page, ".nh\n.TH") && !strings.Contains(page, ".SH NAME") {
				t.Errorf("no man page: %.100s", page)
			}
		}
	})

	for _, kind := range []string{"deb", "rpm", "apk"} {
		t.Run(kind, func(t *testing.T) {
			folder := linuxPackage(t, root, how.NFPMs[0], kind, version, programs[native], generated)
			same(t, filepath.Join(folder, "usr/bin/toolfinch"))
			for _, file := range []string{"usr/share/man/man1/toolfinch.1", "usr/share/man/man1/toolfinch-serve.1", "usr/share/bash-completion/completions/toolfinch", "usr/share/zsh/vendor-completions/_toolfinch", "usr/share/fish/vendor_completions.d/toolfinch.fish"} {
				if info, err := os.Stat(filepath.Join(folder, file)); err != nil || info.Size() == 0 {
					t.Errorf("%s: %v", file, err)
				}
			}
			service(t, folder)
		})
	}
	t.Run("image", func(t *testing.T) { image(t, programs[native], build.Flags, build.Ldflags) })
	t.Run("npm", func(t *testing.T) { npm(t, dist, version, identity) })
	t.Run("mcpb", func(t *testing.T) {
		folder := t.TempDir()
		run(t, folder, "unzip", "-q", filepath.Join(dist, "toolfinch_"+version+"_"+native+".mcpb"))
		same(t, filepath.Join(folder, "server/toolfinch"))
		run(t, folder, "npm", "exec", "--yes", "--package="+mcpbPackage, "--", "mcpb", "validate", filepath.Join(folder, "manifest.json"))
		var manifest struct {
			Server struct {
				MCPConfig struct {
					Command string
					Args    []string
				} `json:"mcp_config"`
			}
		}
		must.Do(t, json.Unmarshal([]byte(run(t, folder, "cat", "manifest.json")), &manifest))
		filled := strings.NewReplacer("${__dirname}", folder, "${user_config.configuration}", configuration(t))
		words := []string{filled.Replace(manifest.Server.MCPConfig.Command)}
		for _, arg := range manifest.Server.MCPConfig.Args {
			words = append(words, filled.Replace(arg))
		}
		initialize(t, folder, words...)
	})
	t.Run("server.json", func(t *testing.T) {
		valid(t, filepath.Join(download(t, registryModule), "internal/validators/schemas/2025-12-11.json"), filepath.Join(dist, "server.json"))
	})
	t.Run("goreleaser.yaml", func(t *testing.T) {
		valid(t, filepath.Join(download(t, goreleaserModule), "www/docs/static/schema.json"), "goreleaser.yaml") // to build GoReleaser takes 4 minutes
	})
	t.Run("formula", func(t *testing.T) {
		text := run(t, dist, "cat", "toolfinch.rb")
		for _, file := range must.Get(filepath.Glob(filepath.Join(dist, "toolfinch_*_*_*.[tz]*")))(t) {
			archive := fmt.Sprintf("url \"%s/%s\"\n      sha256 \"%x\"", url, filepath.Base(file), sha256.Sum256([]byte(must.Read(t, file))))
			if there := strings.Contains(text, archive); there == strings.Contains(file, "windows") {
				t.Errorf("the formula has %s: %v\n%s", file, there, text)
			}
		}
		_, config, _ := strings.Cut(text, "<<~YAML\n")
		config, _, _ = strings.Cut(config, "    YAML\n")
		file := filepath.Join(t.TempDir(), "toolfinch.yaml")
		must.Do(t, os.WriteFile(file, []byte(config), 0o600))
		serves(t, exec.Command(programs[native], "serve", "--config", file, "--listen", "127.0.0.1:0"), t.TempDir(), func(url string) *exec.Cmd { return exec.Command(programs[native], "health", url) })
		if _, err := exec.LookPath("ruby"); err != nil {
			t.Skip("no Ruby: nothing has read the formula")
		}
		run(t, dist, "ruby", "-c", "toolfinch.rb")
	})
}

// run is what a program prints. Its failure is the test's.
func run(t *testing.T, folder, name string, args ...string) string {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Dir = folder
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s%s", name, strings.Join(args, " "), err, out, errs.String())
	}
	return string(out)
}

// pack makes an archive as GoReleaser does: .zip for Windows, else .tar.gz.
func pack(t *testing.T, name, root, program, generated string) {
	t.Helper()
	files := map[string]string{filepath.Base(program): program}
	for _, file := range []string{"LICENSE", "README.md", "CHANGELOG.md"} {
		files[file] = filepath.Join(root, file)
	}
	for _, folder := range []string{"man", "completions"} {
		inside := must.Get(os.ReadDir(filepath.Join(generated, folder)))(t)
		for _, file := range inside {
			files[folder+"/"+file.Name()] = filepath.Join(generated, folder, file.Name())
		}
	}
	var out bytes.Buffer
	end := ".tar.gz"
	compressed := gzip.NewWriter(&out)
	tarred, zipped := tar.NewWriter(compressed), zip.NewWriter(&out)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		data := must.Get(os.ReadFile(files[name]))(t)
		w := io.Writer(tarred)
		if strings.HasSuffix(program, ".exe") {
			end = ".zip"
			w = must.Get(zipped.Create(name))(t)
		} else {
			must.Do(t, tarred.WriteHeader(&tar.Header{Name: name, Mode: 0o755, Size: int64(len(data))}))
		}
		must.Get(w.Write(data))(t)
	}
	if end == ".zip" {
		_ = zipped.Close()
	} else {
		_, _ = tarred.Close(), compressed.Close()
	}
	must.Do(t, os.WriteFile(name+end, out.Bytes(), 0o600))
}

// linuxPackage makes a package with nfpm, from GoReleaser's description of it, and
// unpacks it.
func linuxPackage(t *testing.T, root string, about map[string]any, kind, version, program, generated string) string {
	t.Helper()
	about = maps.Clone(about)
	about["name"], about["arch"], about["version"] = about["package_name"], runtime.GOARCH, version
	bindir, _ := about["bindir"].(string)
	contents, _ := about["contents"].([]any)
	about["contents"] = append(slices.Clone(contents), map[string]any{"src": program, "dst": bindir + "/toolfinch", "file_info": map[string]any{"mode": 0o755}})
	for _, ours := range []string{"package_name", "formats", "bindir"} { // GoReleaser's own
		delete(about, ours)
	}
	text, err := json.Marshal(about) // which is YAML
	if err != nil {
		t.Fatal(err)
	}
	config, file := filepath.Join(t.TempDir(), "nfpm.yaml"), filepath.Join(t.TempDir(), "toolfinch."+kind)
	must.Do(t, os.WriteFile(config, []byte(strings.ReplaceAll(string(text), "packaging/generated", generated)), 0o600))
	run(t, root, "go", "run", nfpmModule, "package", "--packager", kind, "--config", config, "--target", file)
	folder := t.TempDir()
	switch kind {
	case "deb":
		run(t, folder, "dpkg-deb", "-x", file, folder)
	case "apk":
		run(t, folder, "tar", "-xzf", file)
	case "rpm":
		data := must.Get(os.ReadFile(file))(t)
		unpackRPM(t, data, folder)
	}
	return folder
}

// unpackRPM writes the regular files of a package: a lead, a signature and a header, each
// with an index, and a compressed cpio archive.
func unpackRPM(t *testing.T, data []byte, folder string) {
	t.Helper()
	section := func(data []byte) int {
		return 16 + 16*int(binary.BigEndian.Uint32(data[8:])) + int(binary.BigEndian.Uint32(data[12:]))
	}
	data = data[96:]
	data = data[(section(data)+7)/8*8:]
	data = data[section(data):]
	unpacked := must.Get(gzip.NewReader(bytes.NewReader(data)))(t)
	data = must.Get(io.ReadAll(unpacked))(t)
	for {
		field := func(i int) int { n, _ := strconv.ParseUint(string(data[6+8*i:14+8*i]), 16, 32); return int(n) }
		mode, size, named := field(1), field(6), field(11)
		name := string(data[110 : 110+named-1])
		data = data[(110+named+3)/4*4:]
		if name == "TRAILER!!!" {
			return
		}
		if mode&syscall.S_IFMT == syscall.S_IFREG {
			path := filepath.Join(folder, name)
			must.Do(t, os.MkdirAll(filepath.Dir(path), 0o755))
			must.Do(t, os.WriteFile(path, data[:size], os.FileMode(mode&0o777)))
		}
		data = data[(size+3)/4*4:]
	}
}

// service starts what the unit of an unpacked package starts, with the configuration of
// the package, and has systemd read the unit.
func service(t *testing.T, folder string) {
	t.Helper()
	unit := run(t, folder, "cat", "usr/lib/systemd/system/toolfinch.service")
	line := regexp.MustCompile(`(?m)^ExecStart=(.*)$`).FindStringSubmatch(unit)
	if line == nil {
		t.Fatalf("no ExecStart in\n%s", unit)
	}
	words := strings.Fields(line[1])
	for i, word := range words {
		if strings.HasPrefix(word, "/") {
			words[i] = filepath.Join(folder, word)
		}
	}
	serves(t, exec.Command(words[0], append(words[1:], "--listen", "127.0.0.1:0")...), t.TempDir(), func(url string) *exec.Cmd { return exec.Command(words[0], "health", url) })
	file := filepath.Join(t.TempDir(), "toolfinch.service")
	must.Do(t, os.WriteFile(file, []byte(strings.ReplaceAll(unit, "/usr/bin/toolfinch", words[0])), 0o600))
	run(t, folder, "systemd-analyze", "verify", file)
	run(t, folder, "systemd-analyze", "security", "--offline=true", "--threshold=20", file) // of 100
}

// serves starts a program that serves HTTP, and asks it whether it does.
func serves(t *testing.T, cmd *exec.Cmd, home string, health func(url string) *exec.Cmd) {
	t.Helper()
	if cmd.Env == nil {
		cmd.Env = append(os.Environ(), "HOME="+home, "MCPPROXY_DATA_DIR="+filepath.Join(home, "store"))
	}
	errs := must.Get(cmd.StderrPipe())(t)
	must.Do(t, cmd.Start())
	var said []string
	listening := regexp.MustCompile(`url=(http://\S+)/mcp`)
	lines := bufio.NewScanner(errs)
	for url := ""; url == "" && lines.Scan(); {
		said = append(said, lines.Text())
		if match := listening.FindStringSubmatch(lines.Text()); match != nil {
			url = match[1]
			await.Nil(t, func() error { // it has 5 s to answer
				if out, err := health(url).CombinedOutput(); err != nil || string(out) != "ok\n" {
					return fmt.Errorf("health of %s: %w\n%s", url, err, out)
				}
				return nil
			})
			_ = cmd.Process.Signal(syscall.SIGTERM)
		}
	}
	for lines.Scan() {
		said = append(said, lines.Text())
	}
	if err := cmd.Wait(); err != nil || !strings.Contains(strings.Join(said, "\n"), "stopped") {
		t.Errorf("%s: %v\n%s", cmd, err, strings.Join(said, "\n"))
	}
}

// image runs the program as the Dockerfile has it: alone in a root folder that it cannot
// write, with the environment, the user and the command of the file.
func image(t *testing.T, program string, flags, ldflags []string) {
	text := must.Get(os.ReadFile("Dockerfile"))(t)
	if want := "go build " + strings.Join(flags, " ") + ` -ldflags="` + strings.Join(ldflags, " ") + `"`; !strings.Contains(string(text), want) {
		t.Errorf("the Dockerfile does not build as goreleaser.yaml does: %s", want)
	}
	_, static, _ := strings.Cut(string(text), "FROM scratch AS static\n")
	static, _, _ = strings.Cut(static, "\nFROM ")
	instruction := func(name string) string {
		_, rest, _ := strings.Cut("\n"+static, "\n"+name+" ")
		line, _, _ := strings.Cut(rest, "\n")
		return line
	}
	words := func(text string) (list []string) {
		if err := json.Unmarshal([]byte(text[strings.Index(text, "["):]), &list); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		return list
	}
	if os.Getuid() != 0 {
		t.Fatal("only root may change the root folder, as this test of the image does")
	}
	root := t.TempDir()
	for _, dir := range []string{root, filepath.Dir(root)} { // testing's are its user's alone
		must.Do(t, os.Chmod(dir, 0o755))
	}
	data := must.Get(os.ReadFile(program))(t)
	config := must.Get(os.ReadFile("toolfinch.yaml"))(t)
	for name, data := range map[string][]byte{"usr/local/bin/toolfinch": data, "etc/toolfinch/toolfinch.yaml": config} {
		must.Do(t, os.MkdirAll(filepath.Dir(filepath.Join(root, name)), 0o755))
		must.Do(t, os.WriteFile(filepath.Join(root, name), data, 0o755))
	}
	user, _ := strconv.Atoi(strings.Split(instruction("USER"), ":")[0])
	if user == 0 {
		t.Fatal("the user of the image is root")
	}
	must.Do(t, os.Mkdir(filepath.Join(root, "data"), 0o700))
	must.Do(t, os.Chown(filepath.Join(root, "data"), user, user))
	inside := func(args ...string) *exec.Cmd {
		cmd := exec.Command("/usr/local/bin/toolfinch", args...)
		cmd.Dir, cmd.Env = "/", strings.Fields(instruction("ENV"))
		cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: root, Credential: &syscall.Credential{Uid: uint32(user), Gid: uint32(user)}}
		return cmd
	}
	start := words(instruction("CMD"))
	if want := ":8080"; start[len(start)-1] != want || !strings.Contains(instruction("HEALTHCHECK"), want) {
		t.Errorf("the image serves %v, and its health is asked for by %s", start, instruction("HEALTHCHECK"))
	}
	start[len(start)-1] = "127.0.0.1:0"
	asked := words(instruction("HEALTHCHECK"))
	serves(t, inside(start...), "", func(url string) *exec.Cmd { return inside(append(asked[1:len(asked)-1], url)...) })
}

// npm installs the package that people name, from tarballs alone, and uses it as a
// client does.
func npm(t *testing.T, dist, version, identity string) {
	if runtime.GOARCH != "amd64" && runtime.GOARCH != "arm64" {
		t.Skip("there is no package for this processor")
	}
	cpu := strings.Replace(runtime.GOARCH, "amd64", "x64", 1)
	install := func(packages ...string) string {
		folder := t.TempDir()
		args := []string{"install", "--offline", "--no-audit", "--no-fund", "--loglevel=error", "--prefix", folder}
		for _, name := range packages {
			args = append(args, filepath.Join(dist, name+"-"+version+".tgz"))
		}
		run(t, folder, "npm", args...)
		return folder
	}
	folder := install("toolfinch", "toolfinch-linux-"+cpu)
	if got := run(t, folder, "npx", "--offline", "--no-install", "toolfinch", "version"); got != identity {
		t.Errorf("npx toolfinch version says %s", got)
	}
	bin := filepath.Join(folder, "node_modules/.bin/toolfinch")
	initialize(t, folder, bin, "serve", "--config", configuration(t))
	_, err := exec.Command(bin, "sreve").Output()
	if exit, ok := errors.AsType[*exec.ExitError](err); !ok || exit.ExitCode() != 2 {
		t.Errorf("an unknown command ends with %v", err)
	}
	serves(t, exec.Command(bin, "serve", "--config", configuration(t), "--port", "0"), t.TempDir(), func(url string) *exec.Cmd { return exec.Command(bin, "health", url) })

	alone := install("toolfinch") // npm leaves out optional dependencies that it cannot have
	_, err = exec.Command(filepath.Join(alone, "node_modules/.bin/toolfinch"), "version").Output()
	if exit, ok := errors.AsType[*exec.ExitError](err); !ok || !strings.Contains(string(exit.Stderr), "the package toolfinch-linux-"+cpu+" is not installed") {
		t.Errorf("without the package for the platform: %v", err)
	}
}

// configuration is a file with no server in it.
func configuration(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "toolfinch.yaml")
	must.Do(t, os.WriteFile(file, []byte("data_dir: store\nmcp_servers: {}\n"), 0o600))
	return file
}

// initialize begins a session over stdio, as a client does that started these words, and ends it.
func initialize(t *testing.T, folder string, words ...string) {
	t.Helper()
	cmd := exec.Command(words[0], words[1:]...)
	cmd.Dir, cmd.WaitDelay = folder, await.Bound
	cmd.Stdin = strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"package","version":"1"}}}` + "\n")
	out, err := cmd.Output()
	if err != nil || !bytes.Contains(out, []byte(`"serverInfo":{"name":"toolfinch"`)) {
		t.Errorf("%s: %v\n%s", cmd, err, out)
	}
}

// download is the folder of a module's source; the proxy of modules is all it asks.
func download(t *testing.T, module string) string {
	t.Helper()
	var about struct{ Dir string }
	must.Do(t, json.Unmarshal([]byte(run(t, t.TempDir(), "go", "mod", "download", "-json", module)), &about))
	return about.Dir
}

// valid checks a JSON or YAML file by a JSON schema.
func valid(t *testing.T, schema, file string) {
	t.Helper()
	compiled := must.Get(jsonschema.NewCompiler().Compile(schema))(t)
	text := must.Get(os.ReadFile(file))(t)
	if strings.HasSuffix(file, ".yaml") {
		text = must.Get(yaml.YAMLToJSON(text))(t)
	}
	value := must.Get(jsonschema.UnmarshalJSON(bytes.NewReader(text)))(t)
	if err := compiled.Validate(value); err != nil {
		t.Error(fmt.Errorf("%s: %w", file, err))
	}
}
