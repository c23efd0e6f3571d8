package configs

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"toolfinch/configs/document"
	"toolfinch/store/vault"
)

// Options say where to look. The zero value is that of a plain command line.
type Options struct {
	Path    string                      // the file named by --config; "" to search
	Env     func(string) (string, bool) // default os.LookupEnv
	Dir     string                      // working directory; default the process's
	UserDir string                      // user's configuration directory, searched for toolfinch/; default os.UserConfigDir
	Flags   map[string]string           // values of flags, by the key of the file ("top_k"); lists are comma-separated
	Vault   OpenVault                   // opens the vault for the first ${secret:NAME}; nil: the file can have none
}

// fileNames are looked for in this order.
var fileNames = []string{"toolfinch.yaml", "toolfinch.yml", "toolfinch.json"}

// sharedName is looked for where none of fileNames is. Many programs call their
// configuration so: it is ours only if it names servers (see ours).
const sharedName = "config.yaml"

// maxSize bounds the file, in bytes.
const maxSize = 5 << 20

// Load finds, reads and checks the configuration: the file of opts.Path, else
// that of MCPPROXY_CONFIG, else toolfinch.yaml, .yml or .json in the working
// directory, or a config.yaml that names servers, else the same in the folder
// toolfinch of the user's configuration directory.
// Flags win over environment, environment over file. An empty variable counts
// as unset, but an empty MCPPROXY_LIST_CHANGED_EXEC turns the hook off.
//
// Bad input is an Errors with all that is wrong. What is wrong with a server alone
// costs that server, and a server that there is not the view that names it: see
// Config.Broken. When there is no file anywhere,
// errors.Is(err, ErrNoConfig).
func Load(opts Options) (*Config, error) {
	d, data, err := opts.decoder()
	if err != nil {
		return nil, err
	}
	defer d.stored.close()
	c := top.fresh()
	c.Path = d.from.path
	d.load(&c, data)
	c.Python.Dir = d.dir
	d.overrides(&c, opts.Flags)
	d.completeViews(&c)
	d.checkOpenAI(&c)
	d.checkHook(&c)
	d.checkAuth(&c)
	d.checkClients(&c)
	d.defaultDataDir(&c)
	d.checkBeside()
	d.leaveOut(&c)
	d.compilePolicies(&c)
	if len(d.errors) > 0 {
		return nil, Errors(inOrder(append(d.errors, c.Broken...)))
	}
	c.Broken = inOrder(c.Broken)
	c.Warnings = inOrder(d.warnings)
	c.secrets = d.secrets.orNil()
	return &c, nil
}

// decoder finds and reads the file, and returns what decodes it.
func (opts Options) decoder() (d *decoder, data []byte, err error) {
	if opts.Env == nil {
		opts.Env = os.LookupEnv
	}
	dir, err := filepath.Abs(opts.Dir)
	if err != nil {
		return nil, nil, fmt.Errorf("working directory: %w", err)
	}
	file, err := find(opts, dir, homeDir(runtime.GOOS, opts.Env))
	if err != nil {
		return nil, nil, err
	}
	data, bad := read(file)
	if bad != nil {
		return nil, nil, Errors{bad}
	}
	d = newDecoder(file, dir, opts.Env)
	d.stored = newStored(func() (*vault.Vault, func() error, error) {
		places, err := d.places(opts.Flags, opts.Env)
		if err != nil {
			return nil, nil, err
		}
		if opts.Vault == nil {
			return nil, nil, errors.New("secrets are not read here")
		}
		return opts.Vault(places)
	})
	d.env = d.stored.lookup(opts.Env)
	return d, data, nil
}

// newDecoder reads file; workDir is where relative paths from outside of it start.
func newDecoder(file source, workDir string, env lookup) *decoder {
	return &decoder{
		scalars: scalars{
			report:  report{file: file.shown},
			env:     env,
			dir:     filepath.Dir(file.path),
			workDir: workDir,
			home:    homeDir(runtime.GOOS, env),
			secrets: new(secrets),
		},
		from:        file,
		serverNames: serverNames{off: make(map[string]bool)},
		origins:     make(map[string]origin),
		taken:       make(claims),
	}
}

func (d *decoder) load(c *Config, data []byte) {
	root, isJSON, problems := document.Parse(c.Path, data)
	d.tree = root
	for _, p := range problems {
		if p.Message == document.Empty {
			p.Hint = emptyHint
		}
		d.fail(&document.Node{Line: p.Line, Column: p.Column}, p.Message, p.Hint)
	}
	if root != nil {
		d.isJSON = isJSON
		c.fingerprint = digest(root, make(map[*document.Node]string), "listen", "data_dir") // before decoding, which changes the tree
		d.root(root, c)
	}
}

// emptyHint is for a file without servers.
const emptyHint = "list servers under mcp_servers"

// checkBeside warns of further configurations in the folder of one that was found.
func (d *decoder) checkBeside() {
	file := d.from
	for _, name := range fileNames {
		if other := filepath.Join(filepath.Dir(file.path), name); file.by == "" && other != file.path && exists(other) {
			d.warnings = append(d.warnings, &Error{File: file.shown, Message: name + " beside it is not read", Hint: "--config names one"})
		}
	}
}

func (d *decoder) overrides(c *Config, flags map[string]string) {
	for _, k := range top.keys {
		if value, ok := d.env(k.env); ok && k.env != "" {
			d.override(c, k.name, k.env, value)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(flags)) {
		d.override(c, key, "--"+strings.ReplaceAll(key, "_", "-"), flags[key])
	}
}

func (d *decoder) defaultDataDir(c *Config) {
	if c.DataDir != "" {
		return
	}
	dir, err := defaultDataDir(runtime.GOOS, d.env)
	if err != nil {
		d.errors = append(d.errors, &Error{Message: "no place for data: " + err.Error(), Hint: "set data_dir or MCPPROXY_DATA_DIR"})
		return
	}
	c.DataDir = filepath.Join(dir, storeName(c.Path))
}

// storeName is the name of the folder of a configuration's store. Each has its own: a
// store forgets the servers that its configuration does not name, and users have several.
func storeName(path string) string {
	sum := sha256.Sum256([]byte(path))
	return hex.EncodeToString(sum[:4])
}

// DefaultDataDir returns the folder of the store of a configuration without data_dir;
// path is the absolute path of its file.
func DefaultDataDir(path string) (string, error) {
	dir, err := UserDataDir()
	if err != nil {
		return "", err
	}
	return filepath.Join(dir, storeName(path)), nil
}

// source is a file and who named it.
type source struct {
	path  string // absolute
	shown string // as the user would name it
	by    string // "--config", "MCPPROXY_CONFIG", or "" when it was found
}

func find(opts Options, dir, home string) (source, error) {
	if opts.Path != "" {
		return source{within(dir, opts.Path), opts.Path, "--config"}, nil
	}
	if path, _ := opts.Env(envConfig); path != "" {
		full, err := tilde(path, home) // no shell has expanded it in a client's file
		if err != nil {
			return source{}, Errors{{File: path, Message: err.Error(), Hint: "named by " + envConfig}}
		}
		return source{within(dir, full), path, envConfig}, nil
	}
	if name, ok := configIn(dir); ok {
		return source{filepath.Join(dir, name), name, ""}, nil
	}
	looked := []string{dir}
	if opts.UserDir == "" {
		opts.UserDir, _ = os.UserConfigDir() // without a home there is one place less
	}
	if opts.UserDir != "" {
		userDir := within(dir, filepath.Join(opts.UserDir, "toolfinch"))
		if name, ok := configIn(userDir); ok {
			path := filepath.Join(userDir, name)
			return source{path, path, ""}, nil
		}
		looked = append(looked, userDir)
	}
	return source{}, noConfig(looked)
}

// configIn returns the name of the configuration in a folder, and whether there is one.
func configIn(dir string) (name string, ok bool) {
	for _, name := range fileNames {
		if exists(filepath.Join(dir, name)) {
			return name, true
		}
	}
	return sharedName, ours(filepath.Join(dir, sharedName))
}

// ours reports whether a file has a block of servers. It need not be valid, so that
// its mistakes are told; a file that cannot be read is somebody else's.
func ours(path string) bool {
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxSize))
	return err == nil && slices.ContainsFunc([]string{"mcp_servers", "mcpServers"}, func(block string) bool {
		return bytes.Contains(data, []byte(block))
	})
}

// exists reports whether something is there, readable or not: a file that
// cannot be read is an error, not a reason to take another.
func exists(path string) bool {
	_, err := os.Stat(path)
	return !errors.Is(err, fs.ErrNotExist)
}

func noConfig(looked []string) error {
	return fmt.Errorf(`%w: looked for %s in %s

  toolfinch setup                           takes over the servers of your MCP clients, and connects the clients
  toolfinch demo                            shows what it does, without a configuration
  toolfinch import                          takes over the servers of other clients
  toolfinch servers add NAME -- COMMAND...  makes a toolfinch.yaml with one server
  toolfinch init                            writes a toolfinch.yaml with every key explained

Or name a file with --config or %s; that of Claude Desktop, Cursor or VS Code will do`,
		ErrNoConfig, oneOf(append(slices.Clone(fileNames), sharedName)), strings.Join(looked, " and "), envConfig)
}

func read(from source) ([]byte, *Error) {
	bad := func(message, hint string) *Error {
		if hint == "" && from.by != "" {
			hint = "named by " + from.by
		}
		return &Error{File: from.shown, Message: message, Hint: hint}
	}
	f, err := os.Open(from.path)
	if err != nil {
		return nil, bad(reason(err), "")
	}
	defer f.Close()
	if info, err := f.Stat(); err == nil && info.IsDir() {
		return nil, bad("is a folder", "name the file in it")
	}
	data, err := io.ReadAll(io.LimitReader(f, maxSize+1))
	if err != nil {
		return nil, bad(reason(err), "")
	}
	if strings.EqualFold(filepath.Ext(from.path), ".toml") {
		return nil, bad("is a TOML file", "toolfinch import FILE takes over the servers in it")
	}
	if len(data) > maxSize {
		return nil, bad(fmt.Sprintf("is larger than %d MiB", maxSize>>20), "is it a configuration?")
	}
	return data, nil
}

// reason is an error of a file without the path, which the message has already.
func reason(err error) string {
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		err = e.Err
	}
	return "cannot be read: " + err.Error()
}
