// Command toolfinch is one MCP server in front of many MCP servers. Agents search tools by purpose instead of listing
// all tools.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"toolfinch/configs"
	"toolfinch/store/vault"
)

// Exit codes. Scripts of users rely on them.
const (
	exitOK     = 0
	exitFailed = 1 // the task failed, at least in part
	exitUsage  = 2 // bad flags, arguments or configuration; nothing was started

	exitNotRunning  = 3   // no running toolfinch could be asked
	exitInterrupted = 130 // Ctrl-C; SIGTERM has no code of its own
)

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

func main() { os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr)) }

// run runs the program with the given streams. Tests call it.
func run(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	outer, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	ctx, stop := signal.NotifyContext(outer, os.Interrupt)
	defer stop()
	defer endAtOnce(ctx)()
	collectGarbage(200) // rarely at first: building the index makes much garbage in a tenth of a second

	root := newRoot(vault.TakeKey())
	root.SetArgs(args)
	root.SetIn(stdin)
	out, errs := &console{w: stdout}, &console{w: stderr}
	defer out.flush()
	defer errs.flush()
	root.SetOut(out)
	root.SetErr(errs)
	cmd, err := root.ExecuteContextC(ctx)
	if ctx.Err() != nil && outer.Err() == nil {
		fmt.Fprintln(errs, "toolfinch: interrupted"+afterInterrupt(cmd, err))
		return exitInterrupted
	}
	var coded *exitError
	var bad configs.Errors
	var untrusted *configs.UntrustedError
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &coded):
		if coded.err != nil {
			fmt.Fprintln(errs, coded.err)
		}
		return coded.code
	case errors.As(err, &bad), errors.As(err, &untrusted), errors.Is(err, configs.ErrNoConfig):
		fmt.Fprintln(errs, err)
		return exitUsage
	default:
		fmt.Fprintln(errs, "toolfinch:", err)
		return exitFailed
	}
}

// endAtOnce ends the program on a second Ctrl-C, after the end of ctx, without waiting for Close. stop turns this off.
func endAtOnce(ctx context.Context) (stop func()) {
	again := make(chan os.Signal, 1)
	done := make(chan struct{})
	var waiting sync.WaitGroup
	waiting.Go(func() {
		select {
		case <-done:
			return
		case <-ctx.Done():
		}
		select { // one Ctrl-C may arrive twice: from the terminal, and from npm if npm started the program
		case <-done:
			return
		case <-time.After(300 * time.Millisecond):
		}
		signal.Notify(again, os.Interrupt)
		defer signal.Stop(again)
		select {
		case <-done:
		case <-again:
			os.Exit(exitInterrupted)
		}
	})
	return func() {
		close(done)
		waiting.Wait()
	}
}

// whenInterrupted is the key of a command's annotation: the text to print after Ctrl-C.
const whenInterrupted = "interrupted"

// afterInterrupt returns cmd's text after an interrupt. It adds err unless the interrupt has caused it.
func afterInterrupt(cmd *cobra.Command, err error) string {
	said := ""
	if text := cmd.Annotations[whenInterrupted]; text != "" {
		said = ": " + text
	}
	if coded, ok := errors.AsType[*exitError](err); ok {
		err = coded.err
	}
	switch {
	case err == nil, err.Error() == context.Canceled.Error(), err.Error() == context.Cause(cmd.Context()).Error():
		return said
	case said != "" && errors.Is(err, context.Canceled):
		return said
	}
	return said + ": " + err.Error()
}

// collectGarbage sets the garbage allowed between collections, in percent of live memory, unless the
// user has set it.
func collectGarbage(percent int) {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(percent)
	}
}

// settings are the flags that all commands with a configuration share. It has more than 30 methods, because each
// command is one, and each way to read the configuration is one.
type settings struct {
	config, dataDir, logLevel, logFormat string

	found    bool         // config was found in the working folder by an earlier read: later reads need trust, too
	vaultKey string       // vault key from the environment; "" for none
	reading  vaultReading // vault of the configuration's secrets
	away     error        // why the store did not answer for these secrets: commands do not wait for it again
}

// newRoot returns the root command with all subcommands. vaultKey is the result of vault.TakeKey.
func newRoot(vaultKey string) *cobra.Command {
	s := &settings{vaultKey: vaultKey}
	root := &cobra.Command{
		Use:   "toolfinch",
		Short: "One MCP server in front of all your tools",
		Long: `toolfinch is one MCP server in front of all your MCP servers. It indexes their tools,
and your agent searches for the tools that it needs instead of listing them all.

Exit codes: 0 success, 1 the command failed (wholly or in part), 2 bad flags, arguments
or configuration, 3 no running toolfinch was found (status, ui), 130 interrupted with
Ctrl-C.`,
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	// Cobra's Version is not used: its template makes the linker keep every method.
	asked := root.Flags().Bool("version", false, "print the version")
	root.RunE = func(cmd *cobra.Command, _ []string) error {
		if *asked {
			printVersion(cmd)
			return nil
		}
		return cmd.Help()
	}
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		if value, ok := errors.AsType[*pflag.InvalidValueError](err); ok && errors.Is(err, strconv.ErrSyntax) {
			err = fmt.Errorf("--%s is to be a number, not %q", value.GetFlag().Name, value.GetValue())
		}
		return &exitError{exitUsage, fmt.Errorf("%w\nSee: %s --help", err, cmd.CommandPath())}
	})
	flags := root.PersistentFlags()
	flags.StringVarP(&s.config, "config", "c", "", "configuration file (default: $MCPPROXY_CONFIG, ./toolfinch.yaml, then the user's)")
	flags.StringVar(&s.dataDir, "data-dir", "", "folder of the store")
	flags.StringVar(&s.logLevel, "log-level", "", "debug, info, warn or error")
	flags.StringVar(&s.logFormat, "log-format", "", "text or json")
	group := func(title string, commands ...*cobra.Command) {
		root.AddGroup(&cobra.Group{ID: title, Title: title + ":"})
		for _, cmd := range commands {
			cmd.GroupID = title
		}
		root.AddCommand(commands...)
	}
	group("Begin", newSetup(s), newDemo(s), newInit(s), newImport(s), newConnect(s), newServe(s))
	group("Configure", newServers(s), newRegistry(s), newConfig(s), newSecret(s), newPolicy(s), newValidate(s), newModel(s), newKey(s))
	group("Use", newStatus(s), newUI(s), newTools(s), newSearch(s), newCall(s), newReindex(s), newPins(s), newLogin(s), newLogout(s), newAudit(s), newStore(s), newClean(), newHealth(s))
	group("Measure", newSavings(s), newLearned(s), newEval(s))
	root.AddCommand(newDemoServer(), newVersion(), newTrust())
	s.completions(root)
	finish(root)
	return root
}

// finish completes a command and its subcommands: wrong arguments cause exitUsage, and a command that only has
// subcommands prints its help.
func finish(cmd *cobra.Command) {
	cmd.SuggestionsMinimumDistance = 2
	for _, below := range cmd.Commands() {
		finish(below)
	}
	args := cmd.Args
	if cmd.HasSubCommands() {
		args = knownCommand
		if !cmd.Runnable() {
			cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
		}
	}
	cmd.Args = func(cmd *cobra.Command, given []string) error {
		if args == nil {
			return nil
		}
		if err := args(cmd, given); err != nil {
			return &exitError{exitUsage, fmt.Errorf("%w\nSee: %s --help", err, cmd.CommandPath())}
		}
		return nil
	}
}

func knownCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	err := fmt.Errorf("unknown command %q for %s", args[0], cmd.CommandPath())
	near := calledSo(cmd, args[0])
	if len(near) == 0 {
		near = unique(cmd.SuggestionsFor(args[0]))
	}
	if len(near) > 0 {
		err = fmt.Errorf("%w; did you mean %s?", err, strings.Join(near, " or "))
	}
	return err
}

// otherNames are other programs' names of our commands.
var otherNames = map[string][]string{
	"serve":       {"start", "run", "up", "server-start", "proxy"},
	"ui":          {"web", "dashboard", "open", "page"},
	"status":      {"ps", "top", "monitor", "watch"},
	"servers":     {"list", "ls"},
	"tools":       {"list", "ls", "describe", "inspect", "info", "schema"},
	"search":      {"find", "query", "retrieve"},
	"call":        {"exec", "execute", "invoke"},
	"reindex":     {"index", "refresh", "sync", "update"},
	"validate":    {"check", "doctor", "lint", "test"},
	"setup":       {"install"},
	"connect":     {"install"},
	"login":       {"auth", "authenticate", "signin"},
	"logout":      {"signout"},
	"init":        {"new", "create"},
	"servers add": {"install"},
	"registry":    {"browse", "marketplace", "catalog"},
	"savings":     {"stats", "usage"},
	"config":      {"where"},
	"audit read":  {"log", "logs", "tail", "grep"},
	"model rm":    {"delete"},
	"pins":        {"held", "approvals", "quarantine", "review"},
	"secret set":  {"put"},
	"secret rm":   {"unset"},
}

// calledSo returns the paths below cmd of commands with this name: at a deeper level, or in other programs.
func calledSo(cmd *cobra.Command, name string) (paths []string) {
	name = strings.ToLower(name)
	root := cmd.Root().CommandPath() + " "
	var walk func(*cobra.Command)
	walk = func(below *cobra.Command) {
		for _, c := range below.Commands() {
			if !c.IsAvailableCommand() {
				continue
			}
			if c.Name() == name && below != cmd || slices.Contains(otherNames[strings.TrimPrefix(c.CommandPath(), root)], name) {
				paths = append(paths, strings.TrimPrefix(c.CommandPath(), cmd.CommandPath()+" "))
			}
			walk(c)
		}
	}
	walk(cmd)
	return paths
}

// load reads the configuration, and returns it with its log. flags are further settings from the command line, by
// configuration key.
func (s *settings) load(cmd *cobra.Command, flags map[string]string) (*configs.Config, *slog.Logger, error) {
	config, err := s.read(cmd, flags)
	if err != nil {
		return nil, nil, err
	}
	return config, faulty(cmd, config), nil
}

// loadStored is load for a command that needs the store.
func (s *settings) loadStored(cmd *cobra.Command) (*configs.Config, *slog.Logger, error) {
	config, err := s.read(cmd, nil)
	if err = cmp.Or(err, s.away); err != nil {
		return nil, nil, err
	}
	return config, faulty(cmd, config), nil
}

// faulty returns the log of a command, after logging the faults of the configuration.
func faulty(cmd *cobra.Command, config *configs.Config) *slog.Logger {
	log := newLog(cmd.ErrOrStderr(), config)
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
	if cmd.Name() != "serve" && all["log_level"] == "" && os.Getenv("MCPPROXY_LOG_LEVEL") == "" {
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
