package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"

	"github.com/spf13/cobra"

	"toolfinch/index"
	"toolfinch/internal/rawjson"
	"toolfinch/retrieve"
	"toolfinch/tool"
)

func newSearch(s *settings) *cobra.Command {
	var limit int
	var server, kind string
	var explain bool
	cmd := &cobra.Command{
		Use:   "search QUERY",
		Short: "Search the stored tools, prompts and resources, as retrieve_tools does",
		Long: `Search runs the search of retrieve_tools over the store. It starts no server. It says if
probably nothing fits, and marks deprecated tools. The JSON is the answer that an agent
gets with detail: full. toolfinch why-not explains a tool that is not found first.`,
		Example: `  toolfinch search create a calendar event
  toolfinch search "read a file" -k 3 --server filesystem --json
  toolfinch search --kind prompt review my code
  toolfinch search --explain report a bug`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if cmd.Flags().Changed("limit") && (limit < 1 || limit > retrieve.MaxLimit) {
				return &exitError{exitUsage, fmt.Errorf("-k is to be from 1 to %d, not %d", retrieve.MaxLimit, limit)}
			}
			arguments := map[string]any{"query": strings.Join(args, " "), "detail": retrieve.DetailFull}
			for flag, value := range map[string]any{"limit": limit, "server": server, "kind": kind} {
				if cmd.Flags().Changed(flag) {
					arguments[flag] = value
				}
			}
			config, log, err := s.loadStored(cmd)
			if err != nil {
				return err
			}
			return s.withWorkspace(cmd, config, log, false, func(d *workspace) error {
				if d.Tools() == 0 && kind == defaultKind {
					return errors.New("the store knows no tools yet; run: toolfinch reindex")
				}
				q, err := d.Retriever().ParseQuery(rawjson.Of(arguments))
				if err != nil {
					return &exitError{exitUsage, err}
				}
				if err := d.embed(); err != nil {
					return err
				}
				q.Explain = explain
				found, err := d.Retriever().Search(cmd.Context(), q)
				switch {
				case err != nil:
					return err
				case asJSON(cmd):
					return printJSON(cmd.OutOrStdout(), d.Retriever().Answer(q, found))
				}
				if words := found.NotMentioned(); words != "" {
					defer fmt.Fprintln(cmd.ErrOrStderr(), words)
				}
				if len(found.Hits) > 0 && found.Confidence < retrieve.Confident {
					defer fmt.Fprintln(cmd.ErrOrStderr(), "perhaps none of these fits: the answer is not confident")
				}
				switch {
				case explain && len(found.Hits) > 0:
					return printExplained(cmd.OutOrStdout(), found)
				case len(q.Kinds) == len(tool.Kinds):
					kind = "tool, prompt or resource"
				}
				return show(cmd, nil, hitTable(q, found), "no "+kind+" found")
			})
		},
	}
	cmd.Flags().IntVarP(&limit, "limit", "k", 0, fmt.Sprintf("how many tools, 1 to %d (default: top_k of the configuration)", retrieve.MaxLimit))
	cmd.Flags().StringVar(&server, "server", "", "search only this server")
	cmd.Flags().StringVar(&kind, "kind", defaultKind, "what to find: tool, prompt, resource (templates too), skill, any")
	cmd.Flags().BoolVar(&explain, "explain", false, "explain each hit's score")
	withJSON(cmd, "print the answer an agent gets with detail: full")
	return cmd
}

const defaultKind = "tool"

// hitTable returns a table of hits. It has a column for kinds if the query allows several.
func hitTable(q retrieve.Query, found retrieve.Found) *table {
	t := &table{head: []string{"SCORE", "TOOL", "SERVER", "DESCRIPTION"}}
	if q.Kinds != nil {
		t.head = []string{"SCORE", "KIND", "NAME", "SERVER", "DESCRIPTION"}
	}
	for _, hit := range found.Hits {
		score, about := fmt.Sprintf("%.3f", hit.Score), summaryOf(hit.Def)
		if q.Kinds == nil {
			t.add(score, hit.Name, hit.Def.ID.Server, about)
		} else {
			t.add(score, hit.Def.ID.Kind.String(), hit.Name, hit.Def.ID.Server, about)
		}
	}
	return t
}

// deprecation matches a description that calls its tool deprecated, because MCP has no field for this. It does not
// match a tool that handles deprecated things.
var deprecation = regexp.MustCompile(`(?i:^\W*deprecated\b|[\[(]deprecated\b|\bdeprecated:|\bthis (?:tool|prompt|resource) (?:is|has been) deprecated\b)|\bDEPRECATED\b`)

// summaryOf returns the first sentence of a description, with a mark if the tool is deprecated.
func summaryOf(def *tool.Def) string {
	about := retrieve.FirstSentence(def.Description)
	if deprecated(def) {
		about = strings.TrimSpace("[deprecated] " + about)
	}
	return about
}

// deprecated reports whether a definition has a member deprecated or a matching description.
func deprecated(def *tool.Def) bool {
	for _, in := range []json.RawMessage{def.Raw, rawjson.Member(def.Raw, "annotations"), rawjson.Member(def.Raw, "_meta")} {
		if string(rawjson.Member(in, "deprecated")) == "true" {
			return true
		}
	}
	return deprecation.MatchString(def.Title) || deprecation.MatchString(def.Description)
}

// printExplained prints each hit's points by ranker, field and word.
func printExplained(w io.Writer, found retrieve.Found) error {
	ranking := "words"
	if found.Hybrid {
		ranking = "words and vectors"
	}
	fmt.Fprintf(w, "Ranked by %s; the probability that one of these is meant is %.2f.\n", ranking, found.Confidence)
	if found.Reason != "" {
		fmt.Fprintf(w, "No vectors: %s.\n", found.Reason)
	}
	for i, hit := range found.Hits {
		mark := ""
		if deprecated(hit.Def) {
			mark = "  [deprecated]"
		}
		fmt.Fprintf(w, "\n%d. %s  %.3f%s\n", i+1, hit.Def.ID, hit.Score, mark)
		printParts(w, hit.Why.Parts(found.Hybrid))
	}
	return nil
}

// printParts prints the parts of a score, one a line.
func printParts(w io.Writer, parts []index.Part) {
	for _, part := range parts {
		value := ""
		if part.Name != "" {
			value = fmt.Sprintf("%+.3f", part.Value)
		}
		fmt.Fprintf(w, "   %-8s %8s  %s\n", part.Name, value, part.Reason)
	}
}
