package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"toolfinch/configs"
	"toolfinch/internal/identity"
	"toolfinch/internal/rawjson"
	"toolfinch/retrieve"
	"toolfinch/tool"
	"toolfinch/trust/policy"
)

func newWhyNot(s *settings) *cobra.Command {
	var as policy.Question
	var query, view string
	var add bool
	cmd := &cobra.Command{
		Use:   "why-not TOOL --query TEXT",
		Short: "Explain why a search does not find a tool first, and what would change that",
		Long: `Why-not searches like toolfinch search and explains one tool: its rank, the parts of its
score, which tools stand above it and by what, the words of the query that it lacks, and
the words that would bring it to the top. These are tried before they are proposed. If no
query can find the tool, it says why: no such tool, its server, a held definition, a hidden
tool, the view, or a policy. It reads the store and starts no server.

TOOL is the ID, SERVER.TOOL, or the name that clients see. With --as it explains what this
principal finds.`,
		Example: `  toolfinch why-not github.create_issue --query "report a bug"
  toolfinch why-not github.create_issue --query "report a bug" --add
  toolfinch why-not files.write_file --query "save a note" --view reader --as 'key|ci'`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if strings.TrimSpace(query) == "" {
				return &exitError{exitUsage, errors.New("--query is missing: say what was searched for")}
			}
			return s.withView(cmd, view, func(d *workspace) error {
				if err := d.embed(); err != nil {
					return err
				}
				why, err := d.whyNot(args[0], query, as)
				switch {
				case err != nil:
					return err
				case why.Out == retrieve.OutUnknown:
					return &exitError{exitUsage, errors.New(strings.TrimSuffix(fmt.Sprintf("no such tool: %q; %s", why.Tool, why.Reason), "; "))}
				case asJSON(cmd):
					err = printJSON(cmd.OutOrStdout(), why)
				default:
					err = d.printWhyNot(cmd.OutOrStdout(), why)
				}
				if err == nil && add {
					err = d.addWords(why)
				}
				return err
			})
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&query, "query", "", "the search")
	flags.StringVar(&view, "view", "", "the view to search (default: the one at /mcp)")
	flags.StringVar(&as.As, "as", "", "ID of the principal whose policies apply: ISSUER|SUBJECT, key|NAME")
	flags.StringArrayVar(&as.Groups, "group", nil, "a group of the principal: ISSUER|GROUP, key|GROUP; may be repeated")
	flags.BoolVar(&add, "add", false, "add the proposed words to the tool's description, in the configuration")
	withJSON(cmd, "print one JSON object")
	return cmd
}

// whyNot explains the rank of a tool, for a principal if one is named.
func (d *workspace) whyNot(name, query string, as policy.Question) (retrieve.Why, error) {
	v := d.view
	if t, err := v.Find(name); err == nil && (as.As != "" || as.Groups != nil) {
		as.Tool, as.Action, as.Transport = t.Name, "search", identity.TransportHTTP
		verdict, err := v.Ask(d.config.Policies, as)
		if err != nil {
			return retrieve.Why{}, flagError(err)
		}
		if !verdict.Allow {
			return retrieve.Why{Tool: t.Name, ID: t.Def.ID.String(), Query: query, Out: retrieve.OutPolicy, Reason: verdict.String()}, nil
		}
		party, err := as.Party()
		if err != nil {
			return retrieve.Why{}, flagError(err)
		}
		v = v.As(party)
	}
	return d.WhyNot(d.cmd.Context(), v, name, retrieve.Query{Text: query})
}

// addWords adds the proposed words to the description of the tool.
func (d *workspace) addWords(why retrieve.Why) error {
	if why.Change == nil || !why.Change.First || len(why.Change.Words) == 0 {
		return errors.New("nothing was added: no words were found that bring the tool to the top")
	}
	t, err := d.view.Find(why.Tool)
	if err != nil {
		return err
	}
	added, err := configs.AddWords(d.config.Path, t.Def.ID.Server, t.Def.ID.Name, why.Change.Words)
	switch {
	case errors.Is(err, configs.ErrPattern):
		return &exitError{exitUsage, err}
	case err != nil:
		return editError(err)
	case len(added) == 0:
		return fmt.Errorf("%s has these words under its server, but view %s describes it without {original}: add them there", t.Def.ID, d.view.Settings.Name)
	}
	_, err = fmt.Fprintf(d.cmd.OutOrStdout(), "added to the description of %s in %s: %s\n", t.Def.ID, shown(d.config.Path), strings.Join(added, ", "))
	return err
}

// printWhyNot prints an explanation for people.
func (d *workspace) printWhyNot(w io.Writer, why retrieve.Why) error {
	name := cmp.Or(why.ID, why.Tool)
	if why.Out != "" {
		_, err := fmt.Fprintf(w, "No query finds %s: %s.\n", name, strings.TrimSuffix(why.Reason, "."))
		return err
	}
	ranking := map[bool]string{false: "words", true: "words and vectors"}[why.Hybrid]
	if why.Rank > 0 {
		fmt.Fprintf(w, "%s has rank %d by %s, score %.3f.", name, why.Rank, ranking, why.Score)
	} else {
		fmt.Fprintf(w, "The query does not find %s by %s.", name, ranking)
	}
	fmt.Fprintf(w, " A client gets %s; the probability that one of these is meant is %.2f.\n", plural(why.Answer, "hit"), why.Confidence)
	if why.Score != 0 {
		printParts(w, why.Parts)
	}
	if why.Server != "" {
		fmt.Fprintf(w, "Its server cannot be called now: %s.\n", why.Server)
	}
	if why.Gated {
		fmt.Fprintln(w, "The view is gated: a client must provision the tool before a call.")
	}
	if len(why.Above) > 0 {
		fmt.Fprintln(w, "\nAbove it, and what they have more of:")
	}
	for _, above := range why.Above {
		leads := make([]string, len(above.Leads))
		for i, lead := range above.Leads {
			leads[i] = fmt.Sprintf("%s %.2f", lead.Name, lead.Value)
		}
		fmt.Fprintf(w, "%d. %s  %.3f\n   %s\n", above.Rank, above.ID, above.Score, cmp.Or(strings.Join(leads, ", "), "nothing: equal scores are in the order of names"))
	}
	if len(why.Lacks) > 0 {
		fmt.Fprintf(w, "\nWords of the query that it lacks: %s\n", strings.Join(why.Lacks, ", "))
	}
	if why.Change == nil {
		return nil
	}
	t, err := d.view.Find(why.Tool)
	if err != nil {
		return err
	}
	return printChange(w, why, t.Def.ID)
}

// printChange prints what would bring the tool to the top, and where to write it.
func printChange(w io.Writer, why retrieve.Why, id tool.ID) (err error) {
	c := why.Change
	switch {
	case !c.First && len(why.Above) > 0 && len(why.Above[0].Leads) > 0 && why.Above[0].Leads[0].Name == "name":
		_, err = fmt.Fprintf(w, "\nNo words bring it to the top: the query is the name of %s. Search for what the tool does.\n", why.Above[0].ID)
	case !c.First:
		_, err = fmt.Fprintf(w, "\nNo words of the query bring it to the top. A narrower query would, or the argument server: %q.\n", id.Server)
	default:
		_, err = fmt.Fprintf(w, "\nThis brings it to the top%s:\n  mcp_servers:\n    %s:\n      tools:\n        %s: {%s}\n",
			map[bool]string{true: ", without a change of its vector"}[why.Hybrid], yamlKey(id.Server), yamlKey(id.Name), entryOf(*c))
	}
	return err
}

// yamlKey quotes a name that is no plain word.
func yamlKey(name string) string {
	if strings.Trim(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-") == "" && strings.Trim(name, "-0123456789") != "" {
		return name
	}
	return string(rawjson.Quote(name))
}

// entryOf returns the settings of a tool that make a change.
func entryOf(c retrieve.Change) string {
	var parts []string
	if c.Name != "" {
		parts = append(parts, "name: "+c.Name)
	}
	if len(c.Words) > 0 {
		parts = append(parts, `description: "{original}\n`+tool.AlsoFor+strings.Join(c.Words, ", ")+`"`)
	}
	return strings.Join(parts, ", ")
}
