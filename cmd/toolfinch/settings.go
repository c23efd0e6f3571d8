package main

import (
	"cmp"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"toolfinch/configs"
)

// Exit codes. Scripts of users rely on them.
const (
	exitOK     = 0
	exitFailed = 1 // the task failed, at least in part
	exitUsage  = 2 // bad flags, arguments or configuration; nothing was started

	exitNotRunning  = 3   // no running toolfinch could be asked
	exitInterrupted = 130 // Ctrl-C; SIGTERM has no code of its own
)

// whenInterrupted is the key of a command's annotation: the text to print after Ctrl-C.
const whenInterrupted = "interrupted"

// exitError is an error with an exit code. If err is nil, nothing is printed, because the command has printed its
// error.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit code %d", e.code)
	}
	return e.err.Error()
}

func (e *exitError) Unwrap() error { return e.err }

// settings are the flags that all commands with a configuration share. It has more than 30 methods, because each
// command is one, and each way to read the configuration is one.
type settings struct {
	config, dataDir, logLevel, logFormat string

	found    bool         // config was found in the working folder by an earlier read: later reads need trust, too
	vaultKey string       // vault key from the environment; "" for none
	reading  vaultReading // vault of the configuration's secrets
	away     error        // why the store did not answer for these secrets: commands do not wait for it again
}

// load reads the configuration, and returns it with its log. flags are further settings from the command line, by
// configuration key.
func (s *settings) load(cmd *cobra.Command, flags map[string]string) (*configs.Config, *slog.Logger, error) {
	config, err := s.read(cmd, flags)
	if err != nil {
		return nil, nil, err
	}
	return config, s.faulty(cmd, config), nil
}

// loadStored is load for a command that needs the store.
func (s *settings) loadStored(cmd *cobra.Command) (*configs.Config, *slog.Logger, error) {
	config, err := s.read(cmd, nil)
	if err = cmp.Or(err, s.away); err != nil {
		return nil, nil, err
	}
	return config, s.faulty(cmd, config), nil
}

// faulty returns the log of a command, after logging the faults of the configuration.
func (s *settings) faulty(cmd *cobra.Command, config *configs.Config) *slog.Logger {
	log := slog.New(plainLog{w: cmd.ErrOrStderr()})
	if cmd.Name() == "serve" || s.wantsLog() {
		log = newLog(cmd.ErrOrStderr(), config)
	}
	logFaults(log, config)
	return log
}

// logFaults logs the faults of a usable configuration.
func logFaults(log *slog.Logger, config *configs.Config) {
	for _, broken := range config.Broken {
		log.Error("left out: " + broken.Error())
	}
	for _, warning := range config.Warnings {
		log.Warn(warning.Error())
	}
}

// given returns the values of the flags that all commands share, by configuration key.
func (s *settings) given() map[string]string {
	all := map[string]string{"data_dir": s.dataDir, "log_level": s.logLevel, "log_format": s.logFormat}
	maps.DeleteFunc(all, func(_, value string) bool { return value == "" })
	return all
}

func (s *settings) read(cmd *cobra.Command, flags map[string]string) (*configs.Config, error) {
	all := s.given()
	maps.Copy(all, flags)
	if cmd.Name() != "serve" && !s.wantsLog() {
		all["log_level"] = "warn" // a command prints its own messages
	}
	config, err := s.trusting(cmd, func() (*configs.Config, error) {
		return configs.Load(configs.Options{Path: s.config, Found: s.found, Flags: all, Vault: s.readVault})
	})
	if err != nil {
		return nil, err
	}
	if err := leaveOutSelf(config); err != nil {
		return nil, &exitError{exitUsage, err}
	}
	return config, nil
}

func newLog(w io.Writer, config *configs.Config) *slog.Logger {
	options := &slog.HandlerOptions{Level: config.LogLevel}
	if config.LogFormat == "json" {
		return slog.New(slog.NewJSONHandler(w, options))
	}
	return slog.New(slog.NewTextHandler(w, options))
}

// samePath reports whether two paths name the same file.
func samePath(a, b string) bool {
	if a == "" || b == "" {
		return false
	}
	x, errX := os.Stat(a)
	y, errY := os.Stat(b)
	if errX == nil && errY == nil {
		return os.SameFile(x, y)
	}
	absA, _ := filepath.Abs(a)
	absB, _ := filepath.Abs(b)
	return absA == absB
}
