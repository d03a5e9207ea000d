package cli

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"semel/engine/config"
	"semel/storage"
)

// defaultConfig is the config file where --config names none.
const defaultConfig = "semel.toml"

// loadConfig reads the config file that this call is about.
func (a *app) loadConfig() (*config.Config, error) {
	return loadConfigFile(a.configPath(), a.getenv)
}

// loadConfigWithoutSecrets is loadConfig for a call that sends nothing to
// anybody, so that looking at a store needs no login.
func (a *app) loadConfigWithoutSecrets() (*config.Config, error) {
	return loadConfigFile(a.configPath(), nil)
}

// configPath is the file that --config names, else semel.toml where there is
// one, else what $SEMEL_CONFIG names.
func (a *app) configPath() string {
	if a.config != "" {
		return a.config
	}
	if _, err := os.Stat(defaultConfig); err == nil {
		return defaultConfig
	}
	return cmp.Or(a.getenv("SEMEL_CONFIG"), defaultConfig)
}

func loadConfigFile(path string, getenv func(string) string) (*config.Config, error) {
	c, err := config.Load(path, getenv)
	var invalid config.Errors
	switch {
	case err == nil:
		return c, nil
	case errors.As(err, &invalid):
		return nil, err
	case errors.Is(err, fs.ErrNotExist):
		return nil, &fault{exitConfig, err, "name the config file with -c FILE or $SEMEL_CONFIG"}
	}
	return nil, &fault{exitConfig, err, ""}
}

// openStore opens the store, which must be there already unless create is set.
func openStore(c *config.Config, create bool, opts storage.Options) (*storage.Store, error) {
	if !create {
		if _, err := os.Stat(c.Store.Path); errors.Is(err, fs.ErrNotExist) {
			return nil, storeFault(fmt.Errorf("opening store %s: %w", c.Store.Path, storage.ErrNotFound))
		}
	}
	s, err := storage.Open(c.Store.Path, opts)
	if errors.Is(err, storage.ErrOlderSchema) { // writing brings it up to date
		opts.ReadOnly = false
		s, err = storage.Open(c.Store.Path, opts)
	}
	if err != nil {
		return nil, storeFault(err)
	}
	return s, nil
}

// findSource finds a source that the config must have.
func findSource(c *config.Config, name string) (*config.Source, error) {
	if s := c.Source(name); s != nil {
		return s, nil
	}
	return nil, sourceFault(c, name)
}
