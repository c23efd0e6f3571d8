package configs

import (
	"cmp"
	"os"
	"path/filepath"
	"runtime"
	"toolfinch/store/vault"
)

// Places are where a configuration keeps what is stored.
type Places struct {
	DataDir string // folder of what stays on this machine
	KeyDir  string // folder of the key file, where there is no keyring
	Store   string // the store: DataDir, or the URL of a PostgreSQL database
}

func placesOf(c *Config, env lookup) Places {
	return Places{c.DataDir, keyDirOf(c.DataDir, env), cmp.Or(c.Store, c.DataDir)}
}

// StoreName is the place of the store as it may be printed.
func (p Places) StoreName() string {
	if p.Store == p.DataDir {
		return p.Store
	}
	return maskURL(p.Store)
}

// OpenVault opens the vault of a store for reading. done ends its use.
type OpenVault func(Places) (v *vault.Vault, done func() error, err error)

// Places are where the configuration keeps what is stored.
func (c *Config) Places() Places { return placesOf(c, os.LookupEnv) }

// keyDirOf keeps the key apart from the store where both folders are ours. Beside a folder
// that the user chose there may be nothing that lasts, as in a container.
func keyDirOf(dataDir string, env lookup) string {
	if ours, err := defaultDataDir(runtime.GOOS, env); err == nil && filepath.Dir(dataDir) == ours {
		return filepath.Join(ours, "keys")
	}
	return filepath.Join(dataDir, "keys")
}
