package main

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"toolfinch/tool"
	"toolfinch/trust"
	"toolfinch/trust/policy"
)

func newPolicy(s *settings) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "policy",
		Short: "Ask the policies who may do what",
		Long: `Policies of the configuration say who may call, get, read and find what. Validate
checks them; test asks them about one request.`,
	}
	cmd.AddCommand(newPolicyTest(s))
	return cmd
}

// question is what policy test asks.
type question struct {
	as, client, transport, action, view string
	groups, scopes                      []string
	tool, prompt, resource, arguments   string
}

func newPolicyTest(s *settings) *cobra.Command {
	var q question
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "test (--tool NAME | --prompt NAME | --resource URI)",
		Short: "Say whether somebody may do something, and which policy decides",
		Long: `Test asks the policies of the configuration about one request, over the definitions
that the store has: no server is asked. Without --as it is somebody over HTTP who proved
nothing; with --transport stdio the client that runs as you.

Exit codes: 0 for allowed, 1 for denied, 2 for a configuration that does not load.`,
		Example: `  toolfinch policy test --as 'https://idp.example|alice' --group dev --tool github.delete_repo
  toolfinch policy test --as 'key|ci' --tool files.write_file --args '{"path": "/etc/passwd"}'
  toolfinch policy test --transport stdio --view reader --tool files.read_file --action search`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return s.withView(cmd, q.view, func(d *desk) error {
				asked, decided, err := q.ask(d)
				if err != nil {
					return err
				}
				if asJSON {
					err = printJSON(cmd.OutOrStdout(), asked.json(decided))
				} else {
					_, err = fmt.Fprint(cmd.OutOrStdout(), asked.text(d.config.Policies != nil, decided))
				}
				if err != nil {
					return err
				}
				if !decided.Allow {
					return &exitError{code: exitFailed}
				}
				return nil
			})
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&q.as, "as", "", "ID of the principal: ISSUER|SUBJECT, key|NAME")
	flags.StringArrayVar(&q.groups, "group", nil, "a group of the principal; may be repeated")
	flags.StringArrayVar(&q.scopes, "scope", nil, "a scope of the principal; may be repeated")
	flags.StringVar(&q.client, "client", "", "name of the client program, and its version after a space")
	flags.StringVar(&q.transport, "transport", trust.TransportHTTP, "stdio, http, sse, rest or ui")
	flags.StringVar(&q.tool, "tool", "", "the tool, as clients call it or server.tool")
	flags.StringVar(&q.prompt, "prompt", "", "the prompt, as clients call it")
	flags.StringVar(&q.resource, "resource", "", "the URI of the resource")
	flags.StringVar(&q.arguments, "args", "", "the arguments, a JSON object")
	flags.StringVar(&q.action, "action", "", "call, get, read or search; what the kind says unless it is search")
	flags.StringVar(&q.view, "view", "", "the view")
	flags.BoolVar(&asJSON, "json", false, "print one JSON object")
	cmd.MarkFlagsOneRequired("tool", "prompt", "resource")
	cmd.MarkFlagsMutuallyExclusive("tool", "prompt", "resource")
	return cmd
}

// judged is a request as its answer names it.
type judged struct {
	request policy.Request
	name    string
}

func (q question) ask(d *desk) (judged, policy.Decision, error) {
	usage := func(format string, args ...any) (judged, policy.Decision, error) {
		return judged{}, policy.Decision{}, &exitError{exitUsage, fmt.Errorf(format, args...)}
	}
	t, err := q.find(d)
	if err != nil {
		return judged{}, policy.Decision{}, err
	}
	party := trust.Party{Transport: q.transport}
	switch q.transport {
	case trust.TransportStdio, trust.TransportHTTP, trust.TransportSSE, trust.TransportREST, trust.TransportUI:
	default:
		return usage("--transport is %q: choose stdio, http, sse, rest or ui", q.transport)
	}
	party.Client, party.Version, _ = strings.Cut(q.client, " ")
	switch {
	case q.as != "":
		party.Principal = &trust.Principal{ID: q.as, Groups: q.groups, Scopes: q.scopes}
	case len(q.groups)+len(q.scopes) > 0:
		return usage("--group and --scope are of a principal: say who with --as")
	}
	if q.arguments != "" && !json.Valid([]byte(q.arguments)) {
		return usage("--args is no JSON")
	}
	request := d.view.Request(party, t)
	switch action := policy.Action(q.action); action {
	case "", request.Action:
	case policy.ActionSearch:
		request.Action = action
	default:
		return usage("--action is %q: here it is %s or search", q.action, request.Action)
	}
	request.Arguments = json.RawMessage(q.arguments)
	return judged{request, t.Def.ID.String()}, d.config.Policies.Decide(request), nil
}

// find finds what the question is about.
func (q question) find(d *desk) (*tool.Tool, error) {
	switch {
	case q.tool != "":
		t, err := d.view.Find(q.tool)
		if err == nil {
			return t, nil
		}
		hint := "toolfinch reindex asks the servers what they have"
		if near := d.view.Nearest(q.tool, 3); len(near) > 0 {
			hint = "nearest: " + strings.Join(near, ", ") + "; " + hint
		}
		return nil, &exitError{exitUsage, fmt.Errorf("the view knows no tool %q (%s)", q.tool, hint)}
	case q.prompt != "":
		if t, ok := d.view.Prompt(q.prompt); ok {
			return t, nil
		}
		return nil, &exitError{exitUsage, fmt.Errorf("the view knows no prompt %q", q.prompt)}
	}
	if t, ok := d.view.Resource(q.resource); ok {
		return t, nil
	}
	return nil, &exitError{exitUsage, fmt.Errorf("no server of the view has the resource %q", q.resource)}
}

func (j judged) text(some bool, d policy.Decision) string {
	word := map[bool]string{true: "allowed", false: "denied"}[d.Allow]
	text := fmt.Sprintf("%s: %s %s", word, j.request.Action, j.name)
	switch {
	case !some:
		text += ": there are no policies"
	case len(d.By) == 0:
		text += ": no policy permits it"
	}
	for i, by := range d.By {
		text += map[bool]string{true: " by ", false: ", "}[i == 0] + place(by)
		if by.Error != "" {
			text += ", which could not be evaluated: " + by.Error
		}
	}
	for _, by := range d.Failed {
		text += fmt.Sprintf("\n%s permits nothing: %s", place(by), by.Error)
	}
	return text + "\n"
}

// place names a policy, and where it is.
func place(by policy.By) string {
	at := fmt.Sprintf("%s:%d", by.File, by.Line)
	if by.ID == at || by.File == "" {
		return by.ID
	}
	return fmt.Sprintf("%q (%s)", by.ID, at)
}

func (j judged) json(d policy.Decision) any {
	type row struct {
		ID     string `json:"id"`
		File   string `json:"file,omitempty"`
		Line   int    `json:"line,omitempty"`
		Effect string `json:"effect"`
		Error  string `json:"error,omitempty"`
	}
	rows := func(all []policy.By) []row {
		out := []row{}
		for _, by := range all {
			out = append(out, row{by.ID, by.File, by.Line, map[bool]string{true: "forbid", false: "permit"}[by.Forbid], by.Error})
		}
		return out
	}
	return struct {
		Allowed bool          `json:"allowed"`
		Action  policy.Action `json:"action"`
		ID      string        `json:"id"`
		User    string        `json:"user"`
		View    string        `json:"view"`
		By      []row         `json:"by"`
		Failed  []row         `json:"failed"`
	}{d.Allow, j.request.Action, j.name, policy.UserOf(j.request.Party), j.request.View, rows(d.By), rows(d.Failed)}
}
