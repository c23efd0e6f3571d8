// Command toolfinch is one MCP server in front of many MCP servers. Agents search tools by purpose instead of listing
// all tools.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"toolfinch/configs"
	"toolfinch/store/vault"
)

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

// newRoot returns the root command with all subcommands. vaultKey is the result of vault.TakeKey.
func newRoot(vaultKey string) *cobra.Command {
	s := &settings{vaultKey: vaultKey}
	root := &cobra.Command{
		Use:   "toolfinch",
		Short: "One MCP server in front of all your tools",
		Long: `toolfinch is one MCP server in front of all your MCP servers. It indexes their tools,
and your agent searches for the tools that it needs instead of listing them all.

Exit codes: 0 success, 1 the command failed (wholly or in part), 2 bad flags, arguments
or configuration, 3 no running toolfinch was found (status, ui, server logs, server
restart), 130 interrupted with Ctrl-C.`,
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
	root.AddCommand(newSetup(s), newConnect(s), newServe(s), newStatus(s), newServer(s), newTool(s), newSearch(s), newCall(s), newUI(s))
	root.AddCommand(newRegistry(), newConfig(s), newValidate(s), newReindex(s), newSecret(s), newPins(s), newKey(s), newAudit(s), newModel(s), newStore(s), newSavings(s), newLogs(s), newStop(s))
	root.AddCommand(unlisted(newPolicy(s), newWhyNot(s), newDemo(s), newInit(s), newImport(s), newHealth(s), newEval(s), newLearned(s), newClean(), newTrust(), newDemoServer())...)
	addOldNames(root, s)
	s.completions(root)
	addHelp(root)
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
		if args == nil {
			args = knownCommand
		}
		if !cmd.Runnable() {
			cmd.Annotations = map[string]string{onlyGroup: ""}
			cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
		}
	}
	cmd.Args = func(cmd *cobra.Command, given []string) error {
		if args == nil {
			return nil
		}
		if err := args(cmd, given); err != nil {
			return &exitError{exitUsage, fmt.Errorf("%w\nSee: %s --help", plainly(cmd, given, err), cmd.CommandPath())}
		}
		return nil
	}
}
