package configs

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"toolfinch/configs/clients"
	"toolfinch/embed"
	"toolfinch/internal/document"
	"toolfinch/store/vault"
)

// Load finds, reads and checks the configuration. The file is opts.Path, else
// MCPPROXY_CONFIG, else toolfinch.yaml, .yml or .json in the working directory, or a
// config.yaml that names servers, else a file of these names in the folder toolfinch of
// the user's configuration directory. Flags win over environment, environment over file.
// An empty variable counts as unset, but an empty MCPPROXY_LIST_CHANGED_EXEC turns the
// hook off.
//
// Errors holds everything wrong with the file. An error in a server removes that server,
// and an unknown server removes the views that name it: see Config.Broken. The error wraps
// ErrNoConfig if there is no file. A file found in the working folder must be trusted: the
// error is an *UntrustedError, and nothing but the file was read.
func Load(opts Options) (*Config, error) {
	d, data, err := opts.decoder()
	if err != nil {
		return nil, err
	}
	defer d.stored.close()
	c := top.fresh()
	c.Path, c.Found = d.from.path, d.from.found
	d.load(&c, data)
	c.Python.Dir = d.dir
	d.overrides(&c, opts.Flags)
	c.completeServers()
	d.completeViews(&c)
	d.checkOpenAI(&c)
	d.checkHook(&c)
	d.checkSkills(&c)
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
	c.secrets, c.read = d.secrets.orNil(), &d.read
	return &c, nil
}

// decoder finds and reads the file, and returns the decoder of its data.
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
	if data = opts.Data; data == nil {
		var bad *Error
		if data, bad = read(file); bad != nil {
			return nil, nil, Errors{bad}
		}
	}
	if err := opts.checkTrust(file, data); err != nil {
		return nil, nil, err
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
	d.unnoted = d.stored.lookup(opts.Env)
	d.env = func(name string) (string, bool) {
		value, set := d.unnoted(name)
		if set {
			d.read[name] = value
		}
		return value, set
	}
	return d, data, nil
}

func (d *decoder) load(c *Config, data []byte) {
	if root := d.parse(data); root != nil {
		c.fingerprint = digest(root, make(map[*document.Node]string), "listen", "data_dir") // before decoding changes the tree
		d.root(root, c)
	}
}

// parse returns the tree of the file, nil if it is none, and notes why.
func (d *decoder) parse(data []byte) *document.Node {
	root, isJSON, problems := parse(d.from.path, data)
	for _, p := range problems {
		if p.Message == document.Empty {
			p.Hint = emptyHint
		}
		d.fail(&document.Node{Line: p.Line, Column: p.Column}, p.Message, p.Hint)
	}
	d.isJSON = isJSON
	if root != nil && (isJSON || clients.IsTOML(d.from.path)) && !slices.ContainsFunc(root.Pairs, isTopKey) {
		root = bare(d.from.path, root)
	}
	d.tree = root
	if root != nil && root.Kind != document.Mapping {
		d.fail(root, "the file must be a mapping of keys to values, not "+string(root.Kind), emptyHint)
		return nil
	}
	return root
}

func isTopKey(p document.Pair) bool { return top.find(p.Key.Text) != nil }

// completeServers gives servers the settings of the top level that they do not have.
func (c *Config) completeServers() {
	for i := range c.Servers {
		c.Servers[i].ConnectTimeout = cmp.Or(c.Servers[i].ConnectTimeout, c.ConnectTimeout)
		c.Servers[i].Groups = c.Groups == GroupsOn
	}
}

// checkBeside warns of other configurations in the folder of the found file.
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
		env := d.env
		if strings.HasPrefix(k.name, "openai_") && !strings.EqualFold(c.Embed.Kind, embed.KindOpenAI) { // agents have them, too
			env = d.unnoted
		}
		if value, ok := env(k.env); ok && k.env != "" {
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

// root reads the whole file into c.
func (d *decoder) root(root *document.Node, c *Config) {
	blocks := d.blocks(root)
	servers := make(map[string]*document.Node)
	var views *document.Node // read last, because views name servers
	for _, p := range d.unique(root, "key") {
		name := p.Key.Text
		switch {
		case slices.ContainsFunc(blocks, func(b block) bool { return b.key == name }): // read below
		case top.find(name) != nil && p.Value.Kind == document.Null: // left at its default
		case name == viewBlock:
			views = p.Value
		case top.find(name) != nil:
			d.setting(c, name, p.Value, name)
		case name == "$schema", name == "inputs", strings.HasPrefix(name, "x-"): // for editors, and for anchors
		case d.foreign:
			d.warn(p.Key, fmt.Sprintf("key %q is not used", shorten(name)), nearHint(name, topKeys()))
		case slices.Contains(serverKeys.names(), name):
			d.fail(p.Key, fmt.Sprintf("unknown key %q", shorten(name)), "it belongs to a server under "+serverBlocks[0])
		default:
			d.fail(p.Key, fmt.Sprintf("unknown key %q", shorten(name)), didYouMean(name, topKeys()))
		}
	}
	for _, b := range blocks {
		d.servers(b, c, servers)
	}
	if views != nil {
		d.expose = c.DefaultExposure
		d.setting(c, viewBlock, views, viewBlock)
	}
	if len(servers) == 0 && len(d.errors) == 0 {
		d.warn(root, "no servers are configured", emptyHint)
	}
}

// blocks returns the blocks of servers, and notes whether the file is another program's. A
// file with mcp_servers or, unless it is JSON, with our name or one of our keys, is ours.
func (d *decoder) blocks(root *document.Node) (blocks []block) {
	isOurs := root.Find(serverBlocks[0]) != nil || !d.isJSON && (slices.Contains(fileNames, filepath.Base(d.from.path)) || slices.ContainsFunc(root.Pairs, isTopKey))
	if isOurs && !clients.IsTOML(d.from.path) {
		for _, name := range serverBlocks {
			if at := root.Find(name); at != nil {
				blocks = append(blocks, block{key: name, label: name, at: at})
			}
		}
		return blocks
	}
	f, _ := clients.FileAt(d.from.path, clients.System{GOOS: runtime.GOOS, Env: d.unnoted, Dir: d.dir})
	for _, f := range blocksIn(f, root) {
		blocks = append(blocks, block{f.Block[0], strings.Join(f.Block, "."), root.Find(f.Block...), dialectOf(f, root, d.home)})
	}
	if d.foreign = len(blocks) > 0; d.foreign && f.Project != "" && !f.Guessed {
		d.dir = f.Project
	}
	return blocks
}

// setting reads the value of a key of the top level.
func (d *decoder) setting(c *Config, name string, n *document.Node, label string) {
	ok := top.find(name).value.read(d, n, label, c)
	d.origins[name] = origin{n, label, ok}
}

// override sets a value from outside of the file. An empty value sets only keys with
// key.empty.
func (d *decoder) override(c *Config, name, label, value string) {
	switch k := top.find(name); {
	case k == nil:
		d.errors = append(d.errors, &Error{Message: "unknown setting " + label, Hint: didYouMean(name, topKeys())})
	case value != "" || k.empty:
		d.setting(c, name, document.NewText(value), label)
	}
}

// places returns the places before the rest is read, because secrets are read from there.
func (d *decoder) places(flags map[string]string, env lookup) (Places, error) {
	probe := newDecoder(d.from, d.workDir, env)
	c := Config{Path: d.from.path}
	for name, flag := range map[string]string{"data_dir": "--data-dir", "store": ""} {
		key := top.find(name)
		if d.tree != nil && d.tree.Given(name) != nil {
			n := d.tree.Given(name)
			if strings.Contains(n.Text, "${"+secretPrefix) {
				return Places{}, probe.at(n, name+" cannot have a secret in it", "secrets are found by it: write it out, or use a variable of the environment")
			}
			probe.setting(&c, name, n, name)
		}
		if value, _ := env(key.env); value != "" {
			probe.override(&c, name, key.env, value)
		}
		if value := flags[name]; value != "" && flag != "" {
			probe.override(&c, name, flag, value)
		}
	}
	probe.defaultDataDir(&c)
	if len(probe.errors) > 0 {
		return Places{}, probe.errors[0]
	}
	return placesOf(&c, env), nil
}

// FindPlaces returns the places of the configuration that Load would read. Errors in other
// keys do not matter.
func FindPlaces(opts Options) (Places, error) {
	d, data, err := opts.decoder()
	if err != nil {
		return Places{}, err
	}
	d.parse(data)
	return d.places(opts.Flags, d.env)
}

// Variables returns the variables of the environment that a configuration uses, sorted:
// variables in texts of enabled servers, in inherit_env, and variables that override keys.
// unset has the unset variables without a default.
func Variables(path string) (set, unset []string, err error) {
	data, err := clients.ReadFile(path)
	if err != nil {
		return nil, nil, err
	}
	d := newDecoder(source{path: path, shown: filepath.Base(path)}, filepath.Dir(path), os.LookupEnv)
	c := top.fresh()
	c.Path = path
	d.load(&c, data)
	set = d.met
	inherited := c.Python.InheritEnv
	for _, s := range c.Servers {
		inherited = append(inherited, s.InheritEnv...)
	}
	for _, name := range inherited {
		if _, ok := os.LookupEnv(name); ok {
			set = append(set, name)
		}
	}
	kind := cmp.Or(os.Getenv("MCPPROXY_EMBEDDER"), c.Embed.Kind)
	for _, k := range top.keys {
		if os.Getenv(k.env) != "" && (!strings.HasPrefix(k.name, "openai_") || strings.EqualFold(kind, embed.KindOpenAI)) {
			set = append(set, k.env)
		}
	}
	slices.Sort(set)
	slices.Sort(d.unset)
	return slices.Compact(set), slices.Compact(d.unset), nil
}
