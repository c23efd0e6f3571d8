package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"toolfinch/configs"
	"toolfinch/embed"
	"toolfinch/enrich"
	"toolfinch/printable"
	"toolfinch/rawjson"
	"toolfinch/store"
	"toolfinch/tool"
)

// maxMisses is how many answers in a row may be of no use before a run ends: the model
// does not understand what it is asked for.
const maxMisses = 5

func newEnrich(s *settings) *cobra.Command {
	var model, server string
	var limit int
	var review, forget bool
	cmd := &cobra.Command{
		Use:   "enrich",
		Short: "Have a model of yours describe tools for searches",
		Long: `Enrich asks a model of yours, behind any endpoint with OpenAI's chat API, when to
use each of your tools, and for tags: words that users say and the definitions do
not. --review shows what it wrote; what you accept is searched as a field of its
own, with half the weight of a description, from the next start of toolfinch on, or at
once where the store is in PostgreSQL.

It is off until you run it, and never asks while somebody searches. The endpoint
and the key are those of openai_base_url and openai_api_key (OPENAI_BASE_URL,
OPENAI_API_KEY); names, descriptions and input schemas of your tools are sent there.
Each definition is asked about once; one that changes is asked about again. Ctrl-C
keeps what was written.

Descriptions are texts of strangers, and may try to make the model write what draws
queries to their tool: read what you accept. Whether it finds more is not measured.`,
		Example: `  OPENAI_BASE_URL=http://localhost:11434/v1 toolfinch enrich --model qwen3
  toolfinch enrich --model gpt-5-mini --server github --limit 20
  toolfinch enrich --review
  toolfinch enrich --forget`,
		Args:        cobra.NoArgs,
		Annotations: map[string]string{whenInterrupted: "what was written or decided is kept"},
		RunE: func(cmd *cobra.Command, _ []string) error {
			if wrong := enrichUsage(model, limit, review, forget); wrong != nil {
				return &exitError{exitUsage, wrong}
			}
			return s.withStore(cmd, true, func(ctx context.Context, config *configs.Config, db *store.Store) error {
				if forget {
					return db.ForgetEnriched(ctx)
				}
				run, err := newEnriching(ctx, cmd, config, db, server)
				switch {
				case err != nil:
					return err
				case review:
					return run.review(ctx, cmd.InOrStdin())
				}
				endpoint := config.Embed.OpenAI
				endpoint.Model = model
				chat, err := embed.OpenChat(endpoint, slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), nil)))
				if err != nil {
					return fmt.Errorf("enrich: %w", err)
				}
				defer chat.Close()
				return run.write(ctx, chat, limit)
			})
		},
	}
	cmd.Flags().StringVar(&model, "model", "", "the `MODEL` to ask, as its endpoint names it")
	cmd.Flags().StringVar(&server, "server", "", "only tools of this `SERVER`")
	cmd.Flags().IntVar(&limit, "limit", 100, "ask about so many tools at most")
	cmd.Flags().BoolVar(&review, "review", false, "accept, reject or edit what was written")
	cmd.Flags().BoolVar(&forget, "forget", false, "forget all that was written")
	return cmd
}

func enrichUsage(model string, limit int, review, forget bool) error {
	switch {
	case review && forget:
		return errors.New("--review and --forget: choose one")
	case (review || forget) && model != "":
		return errors.New("--model is for asking: leave it out, or leave out --review and --forget")
	case !review && !forget && model == "":
		return errors.New("say which model to ask: --model MODEL")
	case limit < 1:
		return fmt.Errorf("--limit %d: ask about one tool at least", limit)
	}
	return nil
}

// enriching is one run of the command.
type enriching struct {
	db       *store.Store
	out, log io.Writer
	defs     []*tool.Def // in the order of the store, each definition once
	known    map[string]store.Enriched
}

func newEnriching(ctx context.Context, cmd *cobra.Command, config *configs.Config, db *store.Store, server string) (*enriching, error) {
	e := &enriching{db: db, out: cmd.OutOrStdout(), log: cmd.ErrOrStderr()}
	configured := slices.Clone(config.Disabled)
	for _, s := range config.Servers {
		configured = append(configured, s.Name)
	}
	if server != "" && !slices.Contains(configured, server) {
		return nil, &exitError{exitUsage, fmt.Errorf("no server is named %q", server)}
	}
	all, err := db.Tools(ctx)
	if err != nil {
		return nil, err
	}
	seen := map[string]bool{}
	for _, def := range all {
		if def.ID.Kind == tool.KindTool && slices.Contains(configured, def.ID.Server) && (server == "" || def.ID.Server == server) && !seen[def.Hash] {
			seen[def.Hash] = true
			e.defs = append(e.defs, def)
		}
	}
	e.known, err = db.Enriched(ctx)
	return e, err
}

// write asks about definitions that nothing is known of, and keeps each answer at once.
func (e *enriching) write(ctx context.Context, chat *embed.Chat, limit int) error {
	var todo []*tool.Def
	for _, def := range e.defs {
		if _, known := e.known[def.Hash]; !known {
			todo = append(todo, def)
		}
	}
	if len(todo) == 0 {
		fmt.Fprintln(e.log, "there is nothing to ask about: every tool that is known was asked about (toolfinch reindex lists servers anew)")
		return nil
	}
	asked := todo[:min(limit, len(todo))]
	written, misses, failed := 0, 0, 0
	for _, def := range asked {
		text, err := enrich.Ask(ctx, chat, def)
		if err == nil { // an interrupt does not lose it
			err = e.db.PutEnriched(context.WithoutCancel(ctx), store.Enriched{Hash: def.Hash, When: text.When, Tags: text.Tags, State: store.Proposed})
		}
		switch {
		case err == nil:
			written, misses = written+1, 0
			fmt.Fprintf(e.log, "%s: %s\n", label(def), text.When)
			continue
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case !errors.Is(err, enrich.ErrAnswer):
			return fmt.Errorf("%s: %w (what was written of %s is kept)", label(def), err, plural(written, "tool"))
		}
		failed++
		misses++
		fmt.Fprintf(e.log, "%s: %v\n", label(def), err)
		if misses == maxMisses {
			return fmt.Errorf("%d answers in a row cannot be used: try another model (what was written of %s is kept)", misses, plural(written, "tool"))
		}
	}
	fmt.Fprintf(e.out, "wrote of %s; %d are left\n", plural(written, "tool"), len(todo)-written)
	if written > 0 {
		fmt.Fprintln(e.log, "Next: toolfinch enrich --review")
	}
	if failed > 0 {
		return fmt.Errorf("%s could not be used", plural(failed, "answer"))
	}
	return nil
}

// label names a tool on a terminal.
func label(def *tool.Def) string { return rawjson.Head(printable.Line(def.ID.String()), 200) }

const reviewKeys = "[a]ccept, [r]eject, [e]dit, [S]kip, accept a[l]l, [q]uit: "

// review asks about each proposal, and keeps each decision at once.
func (e *enriching) review(ctx context.Context, in io.Reader) error {
	lines := bufio.NewReader(in)
	next := func(prompt string) (string, bool) {
		fmt.Fprint(e.out, prompt)
		line, err := readLine(ctx, lines)
		return strings.TrimSpace(line), err == nil || line != ""
	}
	count := map[store.EnrichedState]int{}
	decide := func(text store.Enriched, state store.EnrichedState) error {
		text.State = state
		count[state]++
		return e.db.PutEnriched(ctx, text)
	}
	all, left := false, 0
	for _, def := range e.defs {
		text, known := e.known[def.Hash]
		if !known || text.State != store.Proposed {
			continue
		}
		if all {
			if err := decide(text, store.Accepted); err != nil {
				return err
			}
			continue
		}
		fmt.Fprintf(e.out, "\n%s: %s\n", label(def), rawjson.Head(printable.Line(def.Description), 300))
	asking:
		for {
			fmt.Fprintf(e.out, "  when: %s\n  tags: %s\n", text.When, strings.Join(text.Tags, ", "))
			key, ok := next(reviewKeys)
			if !ok {
				key = "q"
			}
			var err error
			switch key {
			case "a", "l":
				all = key == "l"
				err = decide(text, store.Accepted)
			case "r":
				err = decide(text, store.Rejected)
			case "e":
				edit(&text, next)
				continue
			case "s", "": // the end of the input skips the rest
				left++
			case "q":
				return e.reviewed(count)
			default:
				continue
			}
			if err != nil {
				return err
			}
			break asking
		}
	}
	if left+len(count) == 0 {
		fmt.Fprintln(e.log, "there is nothing to review")
		return nil
	}
	return e.reviewed(count)
}

func (e *enriching) reviewed(count map[store.EnrichedState]int) error {
	_, err := fmt.Fprintf(e.out, "\naccepted %d, rejected %d; toolfinch searches it from its next start on\n", count[store.Accepted], count[store.Rejected])
	return err
}

// edit asks for other texts. An empty line leaves one as it is.
func edit(text *store.Enriched, next func(prompt string) (string, bool)) {
	if when, ok := next("  when (empty: as it is): "); ok && when != "" {
		text.When = printable.Line(when)
	}
	if tags, ok := next("  tags, with commas (empty: as they are): "); ok && tags != "" {
		text.Tags = nil
		for tag := range strings.SplitSeq(tags, ",") {
			if tag = printable.Line(tag); tag != "" {
				text.Tags = append(text.Tags, tag)
			}
		}
	}
}
