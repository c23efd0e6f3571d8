package main

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"toolfinch/configs"
	"toolfinch/embed"
	"toolfinch/retrieve/eval"
	"toolfinch/store"
)

type evalFlags struct {
	tools, queries, embedder, misses string
	sets                             []string
	limit                            int
}

func newEval(s *settings) *cobra.Command {
	var f evalFlags
	cmd := &cobra.Command{
		Use:         "eval",
		Annotations: map[string]string{whenInterrupted: "there is no report"},
		Short:       "Measure how well tools are found, on queries with known answers",
		Long: `Eval searches as retrieve_tools does, for queries whose relevant tools are known, and
prints how many relevant tools it finds and at what cost. Without --tools it uses the
tools in the store.

A tool is a line of JSON, as servers list it, with the name of its server:
  {"server": "files", "name": "read", "description": "...", "inputSchema": {...}}
A query is a line of JSON; id and kind may be absent:
  {"id": "q1", "query": "show me a file", "relevant": ["files:read"], "kind": "easy"}
Relevant tools are named server:tool, server.tool, or as clients see them.

Metrics, each the mean over the queries, from 0 to 1:
  recall@k     share of the relevant tools that are among the first k
  ndcg@k       the same, with early ranks weighted more; 1 is the best order
  mrr@10       1 / rank of the first relevant tool, 0 if it is not among the first 10
  complete@10  share of the queries with all relevant tools among the first 10
  whole        the same in the whole answer: its hits, and the producers that it names
  ±            half of the 95 % confidence interval over the queries
The macro average weights every set equally. A metric with k above --limit is "-", in
JSON null.
  build, embed     time to index all tools, and to make vectors of them
  p50, p95         median and 95th percentile of a retrieval's time
  memory           of the process after the queries`,
		Example: `  toolfinch eval --queries mine.jsonl --misses misses.jsonl
  toolfinch eval --set livemcp=sets/livemcp --set mine=sets/mine --json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return f.measure(cmd, s) },
	}
	flags := cmd.Flags()
	flags.StringVar(&f.tools, "tools", "", "`FILE` of tools, a JSON object a line (default: the tools in the store)")
	flags.StringVar(&f.queries, "queries", "", "`FILE` of queries, a JSON object a line")
	flags.StringArrayVar(&f.sets, "set", nil, "`NAME=DIR`, a folder with tools.jsonl and queries.jsonl; may be given several times")
	flags.StringVar(&f.embedder, "embedder", "", "`KIND`: "+strings.Join(eval.Embedders, ", ")+" (default: the configuration's, else AUTO)")
	flags.IntVarP(&f.limit, "limit", "k", 10, fmt.Sprintf("tools in an answer, 1 to %d", eval.MaxLimit))
	withJSON(cmd, "print one JSON object")
	flags.StringVar(&f.misses, "misses", "", "write the queries with a relevant tool missing to this `FILE`, a JSON object a line")
	return cmd
}

// unusable marks a mistake in the user's input: nothing was measured.
func unusable(err error) error { return &exitError{exitUsage, err} }

func (f *evalFlags) measure(cmd *cobra.Command, s *settings) (err error) {
	if f.limit < 1 || f.limit > eval.MaxLimit {
		return unusable(fmt.Errorf("--limit must be from 1 to %d, not %d", eval.MaxLimit, f.limit))
	}
	switch {
	case len(f.sets) > 0 && f.tools+f.queries != "":
		return unusable(errors.New("--set brings its own tools and queries: leave out --tools and --queries"))
	case len(f.sets) == 0 && f.queries == "":
		return unusable(errors.New("nothing to ask: give --queries FILE, or --set NAME=DIR\nSee: toolfinch eval --help"))
	}
	// Files can be measured without a configuration; a store cannot.
	config, log, err := s.load(cmd, nil)
	if errors.Is(err, configs.ErrNoConfig) && (f.tools != "" || len(f.sets) > 0) {
		err = nil
	}
	if err != nil {
		return err
	}
	embedder, err := f.embedding(config)
	if err != nil {
		return err
	}
	sets, err := f.read()
	if err != nil {
		return unusable(err)
	}
	if len(f.sets) == 0 && f.tools == "" {
		if err := s.fillFromStore(cmd, sets[0], config, log); err != nil {
			return err
		}
	}
	for _, set := range sets {
		if set.Resolve() == 0 {
			_, first := set.Unknown()
			return unusable(fmt.Errorf("%s: no tool has any of the names under relevant; the first is at %s%s",
				set.Name, first, orNearest(set.Queries[0].Relevant[0], set.Labels())))
		}
		if n, first := set.Unknown(); n > 0 {
			fmt.Fprintf(cmd.ErrOrStderr(), "warning: %s: no tool has %d of the relevant labels, which count as missed; the first is at %s\n", set.Name, n, first)
		}
	}
	if log == nil {
		log = slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), &slog.HandlerOptions{Level: slog.LevelWarn}))
	}
	settings := eval.Options{Limit: f.limit}
	settings.Embedder, err = embed.Open(cmd.Context(), embedder, log)
	if err != nil {
		return unusable(err)
	}
	if settings.Embedder != nil {
		kept, err := store.Open(cmd.Context(), f.vectorsDir(config), log)
		if err != nil {
			return errors.Join(err, settings.Embedder.Close())
		}
		defer func() { err = errors.Join(err, kept.Close(), settings.Embedder.Close()) }()
		settings.Vectors = kept
		bar := newBar(cmd.ErrOrStderr(), 1)
		defer bar.clear()
		settings.Progress = func(set string, done, total int) {
			bar.done, bar.total = done, max(1, total)
			bar.draw("embedding " + set)
		}
	}
	if f.misses != "" {
		file, err := os.Create(f.misses)
		if err != nil {
			return unusable(err)
		}
		defer func() { err = errors.Join(err, file.Close()) }()
		settings.Misses = file
	}
	report, err := eval.Run(cmd.Context(), sets, settings)
	if err != nil {
		return fmt.Errorf("eval: %w", err)
	}
	if asJSON(cmd) {
		return printJSON(cmd.OutOrStdout(), report)
	}
	return report.WriteTable(cmd.OutOrStdout())
}

// vectorsDir returns the folder for tools' vectors: the store, or a cache for tools from files, so that a second run
// embeds nothing.
func (f *evalFlags) vectorsDir(config *configs.Config) string {
	if len(f.sets) == 0 && f.tools == "" {
		return config.Places().Store
	}
	return evalCache()
}

// evalCache returns the folder for the vectors of tools from files.
func evalCache() string {
	cache, err := os.UserCacheDir()
	if err != nil {
		cache = os.TempDir()
	}
	return filepath.Join(cache, "toolfinch", "eval")
}

// embedding returns the embedder of the configuration or, without a configuration, of the environment. --embedder
// overrides its kind.
func (f *evalFlags) embedding(config *configs.Config) (embed.Settings, error) {
	settings := embed.Settings{
		Kind:    cmp.Or(os.Getenv("MCPPROXY_EMBEDDER"), embed.KindAuto),
		HFModel: os.Getenv("MCPPROXY_HF_MODEL"), HFAdapter: os.Getenv("MCPPROXY_HF_ADAPTER"),
		OpenAI: embed.OpenAI{
			APIKey:  embed.Secret(os.Getenv("OPENAI_API_KEY")),
			BaseURL: os.Getenv("OPENAI_BASE_URL"),
			Model:   os.Getenv("MCPPROXY_OPENAI_MODEL"),
		},
	}
	if config != nil {
		settings = config.Embed
	}
	kind, err := eval.ParseEmbedder(cmp.Or(f.embedder, settings.Kind))
	if err != nil {
		return settings, unusable(err)
	}
	settings.Kind = kind
	return settings, nil
}

// read returns the sets to measure. Without --set and --tools, the one set has no tools yet. An error is a mistake in
// the user's input.
func (f *evalFlags) read() ([]*eval.Set, error) {
	var sets []*eval.Set
	names := map[string]bool{}
	for _, arg := range f.sets {
		name, dir, ok := strings.Cut(arg, "=")
		if !ok || name == "" || dir == "" {
			return nil, fmt.Errorf("--set takes NAME=DIR, not %q", arg)
		}
		if names[name] {
			return nil, fmt.Errorf("--set %s is given twice", name)
		}
		names[name] = true
		set, err := eval.ReadSet(name, dir)
		if err != nil {
			return nil, err
		}
		sets = append(sets, set)
	}
	if sets != nil {
		return sets, nil
	}

	set := &eval.Set{Name: strings.TrimSuffix(filepath.Base(f.queries), filepath.Ext(f.queries))}
	var err error
	if set.Queries, err = eval.ReadQueries(f.queries); err != nil {
		return nil, err
	}
	if f.tools != "" {
		if set.Defs, err = eval.ReadTools(f.tools); err != nil {
			return nil, err
		}
	}
	return []*eval.Set{set}, nil
}

// fillFromStore fills set with the stored tools of the configured servers. It only reads, because a proxy may be using
// the store.
func (s *settings) fillFromStore(cmd *cobra.Command, set *eval.Set, config *configs.Config, log *slog.Logger) (err error) {
	db, err := store.OpenReadOnly(cmd.Context(), config.Places().Store, log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	defs, err := db.Tools(cmd.Context())
	if err != nil {
		return err
	}
	set.About = map[string]string{}
	for _, server := range config.Servers {
		set.About[server.Name] = server.Description
	}
	for _, def := range defs {
		if _, configured := set.About[def.ID.Server]; configured {
			set.Defs = append(set.Defs, def)
		}
	}
	if len(set.Defs) == 0 {
		return errors.New("the store knows no tools yet; run: toolfinch reindex")
	}
	set.Names = map[string]string{}
	return s.withWorkspace(cmd, config, log, true, func(d *workspace) error {
		for _, v := range d.Views() {
			for _, t := range v.Tools() {
				if _, twice := set.Names[t.Name]; !twice {
					set.Names[t.Name] = t.Def.ID.Server + ":" + t.Def.ID.Name
				}
			}
		}
		return nil
	})
}
