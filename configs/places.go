package configs

import (
	"cmp"
	"os"
	"path/filepath"
	"runtime"
	"toolfinch/store/vault"
)

// Places are the folders of a configuration's data.
type Places struct {
	DataDir string // folder of what stays on this machine
	KeyDir  string // folder of the key file, where there is no keyring
	Store   string // the store: DataDir, or the URL of a PostgreSQL database
}

func placesOf(c *Config, env lookup) Places {
	return Places{c.DataDir, keyDirOf(c.DataDir, env), cmp.Or(c.Store, c.DataDir)}
}

// StoreName is the place of the store, without a password.
func (p Places) StoreName() string {
	if p.Store == p.DataDir {
		return p.Store
	}
	return maskURL(p.Store)
}

// OpenVault opens the vault of a store for reading; done closes it.
type OpenVault func(Places) (v *vault.Vault, done func() error, err error)

// Places returns the folders of the configuration's data.
func (c *Config) Places() Places { return placesOf(c, os.LookupEnv) }

// keyDirOf returns the folder of the key. It lies outside of a data directory of ours, but
// inside of the user's own: beside that, nothing may last, as in a container.
func keyDirOf(dataDir string, env lookup) string {
	if ours, err := defaultDataDir(runtime.GOOS, env); err == nil && filepath.Dir(dataDir) == ours {
		return filepath.Join(ours, "keys")
	}
	return filepath.Join(dataDir, "keys")
}
