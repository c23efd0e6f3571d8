package main

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"toolfinch/configs"
	"toolfinch/embed/models"
	"toolfinch/retrieve"
	"toolfinch/script"
	"toolfinch/store"
	"toolfinch/tool"
	"toolfinch/view"
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
			_ = cmd.RegisterFlagCompletionFunc("server", s.completing(func(k *knownOffline) []string { return serverNames(k.config) })) // fails for a second one only
		}
		if cmd.Flags().Lookup("view") != nil {
			_ = cmd.RegisterFlagCompletionFunc("view", s.completing((*knownOffline).views))
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
			s.completeNames(cmd, (*knownOffline).servers)
		case "view":
			s.completeNames(cmd, (*knownOffline).views)
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

// completeNames completes what the commands below cmd take the name of: those that
// add take a new one.
func (s *settings) completeNames(cmd *cobra.Command, names func(*knownOffline) []string) {
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

// knownOffline is what is known without connecting.
type knownOffline struct {
	config *configs.Config
	defs   []*tool.Def // of enabled servers
}

// offline reads configuration and store. What cannot be read completes nothing.
func (s *settings) offline(cmd *cobra.Command) (*knownOffline, error) {
	ctx, cancel := context.WithTimeout(cmd.Context(), completeWithin)
	defer cancel()
	config, err := s.read(cmd, nil)
	if err != nil {
		return nil, err
	}
	db, err := store.OpenReadOnly(ctx, config.DataDir, slog.New(slog.DiscardHandler))
	if err != nil {
		return nil, err
	}
	defer db.Close()
	k := &knownOffline{config: config}
	k.defs, err = db.Tools(ctx)
	return k, err
}

// servers are all that are configured, disabled ones too.
func (k *knownOffline) servers() []string {
	return slices.Concat(serverNames(k.config), k.config.Disabled)
}

func (k *knownOffline) views() []string {
	names := []string{view.Default}
	for _, v := range k.config.Views {
		if v.Name != view.Default {
			names = append(names, v.Name)
		}
	}
	return names
}

// tools are those of a view, as far as the store knows them. They cannot be
// called.
func (k *knownOffline) tools(name string) []*tool.Tool {
	settings := view.Settings{Name: view.Default, IncludeAll: true}
	for _, v := range k.config.Views {
		if v.Name == cmp.Or(name, view.Default) {
			settings = v
		}
	}
	if name != "" && settings.Name != name {
		return nil
	}
	var upstreams []view.Upstream
	for _, s := range k.config.Servers {
		var defs []*tool.Def
		for _, def := range k.defs {
			if def.ID.Server == s.Name && def.ID.Kind == tool.KindTool {
				defs = append(defs, def)
			}
		}
		upstreams = append(upstreams, view.Upstream{Server: s.Name, Listed: defs != nil, Tools: tool.Of(defs, func(*tool.Def) tool.Handler { return nil })})
	}
	base, _ := view.Base(upstreams, k.config.Tools)
	known := map[string]*tool.Tool{}
	for _, u := range base {
		for _, t := range u.Tools {
			known[t.Def.ID.String()] = t
		}
	}
	quiet := slog.New(slog.DiscardHandler)
	compiled, _ := view.Compile(settings, base, view.Env{
		Log:     quiet,
		Program: func(path string) (*script.Program, error) { return script.Load(path, nil, func(string) {}) },
		Find:    func(id string) (*tool.Tool, bool) { t, ok := known[id]; return t, ok },
		Nearest: func(string, int) []string { return nil },
	})
	var tools []*tool.Tool
	for _, u := range compiled.Upstreams {
		tools = append(tools, u.Tools...)
	}
	return append(tools, compiled.Own...)
}

// typedName is how a tool of a view is named on the command line.
func typedName(t *tool.Tool) string { return cmp.Or(t.Name, t.Def.ID.String()) }

func toolNames(tools []*tool.Tool) []string {
	var names []string
	for _, t := range tools {
		names = append(names, cobra.CompletionWithDesc(typedName(t), retrieve.FirstSentence(t.Def.Description)))
	}
	slices.Sort(names)
	return names
}

// completing makes a completion of what is known offline.
func (s *settings) completing(what func(*knownOffline) []string) cobra.CompletionFunc {
	return func(cmd *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
		k, err := s.offline(cmd)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return starting(what(k), typed), cobra.ShellCompDirectiveNoFileComp
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
	return s.completing(func(k *knownOffline) []string { return toolNames(k.tools(name)) })(cmd, args, typed)
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
	k, err := s.offline(cmd)
	if err != nil {
		return nil, none
	}
	if last == "--view" {
		return starting(k.views(), typed), none
	}
	name, _ := cmd.Flags().GetString("view")
	tools := k.tools(name)
	if line.tool == "" && !strings.HasPrefix(typed, "-") {
		return starting(toolNames(tools), typed), none
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
			if f.shape.enum != nil {
				return starting(f.shape.choices(), typed), none
			}
			return nil, cobra.ShellCompDirectiveDefault // perhaps a file
		}
	}
	var names []string
	for _, f := range flags {
		names = append(names, cobra.CompletionWithDesc("--"+f.name, oneLine(f.about)))
	}
	for _, ours := range []string{"view", "json", "raw", "help"} {
		names = append(names, cobra.CompletionWithDesc("--"+ours, cmd.Flags().Lookup(ours).Usage))
	}
	return starting(names, typed), none
}
