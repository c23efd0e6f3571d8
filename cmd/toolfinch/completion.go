package main

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"toolfinch/configs"
	"toolfinch/embed/models"
	"toolfinch/retrieve"
	"toolfinch/tool"
)

// completions makes the shell complete the names of servers, views and tools, and
// the flags of tools. They come from the configuration and the store alone.
func (s *settings) completions(root *cobra.Command) {
	root.InitDefaultCompletionCmd()
	for flag, words := range fixedWords {
		complete := cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp)
		for _, cmd := range append(root.Commands(), root) {
			if cmd.Flags().Lookup(flag) != nil || cmd.PersistentFlags().Lookup(flag) != nil {
				_ = cmd.RegisterFlagCompletionFunc(flag, complete)
			}
		}
	}
	for _, cmd := range root.Commands() {
		if cmd.Flags().Lookup("server") != nil && cmd.Name() != "import" { // those are of other clients
			_ = cmd.RegisterFlagCompletionFunc("server", s.completing(func(d *desk) []string { return serverNames(d.config) })) // fails for a second one only
		}
		if cmd.Flags().Lookup("view") != nil {
			_ = cmd.RegisterFlagCompletionFunc("view", s.completing((*desk).views))
		}
		switch cmd.Name() {
		case "model":
			for _, below := range cmd.Commands() {
				if below.Flags().Lookup("from") != nil {
					_ = below.RegisterFlagCompletionFunc("from", func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
						return []string{models.FromHub, models.FromNPM}, cobra.ShellCompDirectiveDefault // or a folder
					})
				}
			}
		case "schema":
			cmd.ValidArgsFunction = s.completeSchema
		case "call":
			cmd.ValidArgsFunction = s.completeCall
		case "server":
			s.completeNames(cmd, (*desk).servers)
		case "view":
			s.completeNames(cmd, (*desk).views)
		}
	}
}

// fixedWords are the values of flags that take one of a few words.
var fixedWords = map[string][]string{
	"log-level":  {"debug", "info", "warn", "error"},
	"log-format": {configs.LogText, configs.LogJSON},
	"transport":  {configs.TransportStdio, configs.TransportHTTP},
	"kind":       {"tool", "prompt", "resource", "any"},
}

// completeNames completes the operand NAME of the commands below cmd. Commands that add
// something are left out: they take a new name.
func (s *settings) completeNames(cmd *cobra.Command, names func(*desk) []string) {
	for _, below := range cmd.Commands() {
		if _, operand, _ := strings.Cut(below.Use, " "); operand == "NAME" && below.ValidArgsFunction == nil {
			below.ValidArgsFunction = func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
				if len(args) > 0 {
					return nil, cobra.ShellCompDirectiveNoFileComp
				}
				return s.completing(names)(cmd, args, typed)
			}
		}
	}
}

// completeWithin bounds what a key press may wait for.
const completeWithin = 500 * time.Millisecond

// servers are all that are configured, disabled ones too.
func (d *desk) servers() []string { return slices.Concat(serverNames(d.config), d.config.Disabled) }

func (d *desk) views() []string {
	var names []string
	for _, v := range d.Views() {
		names = append(names, v.Settings().Name)
	}
	return names
}

// known are the tools of a view, as far as the store knows them.
func (d *desk) known(name string) []*tool.Tool {
	v, err := d.View(name)
	if err != nil {
		return nil
	}
	return v.Tools()
}

// typedName is how a tool of a view is named on the command line: by its ID, unless it
// has a name of its own.
func typedName(t *tool.Tool) string {
	if t.Name == t.Def.ID.Server+"_"+t.Def.ID.Name {
		return t.Def.ID.String()
	}
	return t.Name
}

func toolNames(tools []*tool.Tool) []string {
	var names []string
	for _, t := range tools {
		names = append(names, cobra.CompletionWithDesc(typedName(t), retrieve.FirstSentence(t.Def.Description)))
	}
	slices.Sort(names)
	return names
}

// completing makes a completion of what is known without connecting. What cannot be
// read in time completes nothing.
func (s *settings) completing(what func(*desk) []string) cobra.CompletionFunc {
	return func(cmd *cobra.Command, _ []string, typed string) (names []string, _ cobra.ShellCompDirective) {
		ctx, cancel := context.WithTimeout(cmd.Context(), completeWithin)
		defer cancel()
		cmd.SetContext(ctx)
		if config, err := s.read(cmd, nil); err == nil {
			_ = s.withDesk(cmd, config, slog.New(slog.DiscardHandler), func(d *desk) error {
				names = starting(what(d), typed)
				return nil
			})
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	}
}

// starting are the names that begin with what was typed.
func starting(names []string, typed string) []string {
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool { return !strings.HasPrefix(name, typed) })
}

func (s *settings) completeSchema(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	name, _ := cmd.Flags().GetString("view")
	return s.completing(func(d *desk) []string { return toolNames(d.known(name)) })(cmd, args, typed)
}

// completeCall completes the tool, then its flags, then the values of flags that
// have few.
func (s *settings) completeCall(cmd *cobra.Command, words []string, typed string) ([]string, cobra.ShellCompDirective) {
	const none = cobra.ShellCompDirectiveNoFileComp
	last := ""
	if len(words) > 0 {
		last = words[len(words)-1]
	}
	if last == "-c" || last == "--config" || last == "--data-dir" {
		return nil, cobra.ShellCompDirectiveDefault // files
	}
	if fixed := fixedWords[strings.TrimPrefix(last, "--")]; fixed != nil && isFlagOf(cmd)(strings.TrimPrefix(last, "--")) {
		return starting(fixed, typed), none
	}
	before := words
	if last == "--view" {
		before = words[:len(words)-1]
	}
	line, err := s.splitCall(cmd, before)
	if err != nil {
		return nil, none
	}
	directive := none
	names, _ := s.completing(func(d *desk) []string {
		name, _ := cmd.Flags().GetString("view")
		tools := d.known(name)
		switch {
		case last == "--view":
			return d.views()
		case line.tool == "" && !strings.HasPrefix(typed, "-"):
			return toolNames(tools)
		}
		var flags []toolFlag
		for _, t := range tools {
			if line.tool != "" && (typedName(t) == line.tool || t.Def.ID.String() == line.tool) {
				flags = toolFlags(t.Def.InputSchema, isFlagOf(cmd))
				break
			}
		}
		if flag, isFlag := strings.CutPrefix(last, "--"); isFlag && len(line.rest) > 0 {
			if f, _ := findFlag(flags, flag); f != nil && !f.shape.isOnly(typeBoolean) {
				if f.shape.enum == nil {
					directive = cobra.ShellCompDirectiveDefault // perhaps a file
				}
				return f.shape.choices()
			}
		}
		var names []string
		for _, f := range flags {
			names = append(names, cobra.CompletionWithDesc("--"+f.name, oneLine(f.about)))
		}
		for _, ours := range []string{"view", "json", "raw", "help"} {
			names = append(names, cobra.CompletionWithDesc("--"+ours, cmd.Flags().Lookup(ours).Usage))
		}
		return names
	})(cmd, nil, typed)
	return names, directive
}
