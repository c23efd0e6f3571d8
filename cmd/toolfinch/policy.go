package main

import (
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"toolfinch/internal/identity"
	"toolfinch/trust/policy"
)

func newPolicy(s *settings) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "policy",
		Short: "Test which requests the policies allow",
		Long: `The configuration's policies decide who may call, get, read and find what. validate
checks the policies; test evaluates them for one request.`,
	}
	cmd.AddCommand(newPolicyTest(s))
	return cmd
}

func newPolicyTest(s *settings) *cobra.Command {
	var q policy.Question
	cmd := &cobra.Command{
		Use:   "test (--tool NAME | --prompt NAME | --resource URI)",
		Short: "Say whether somebody may do something, and which policy decides",
		Long: `Test evaluates the configuration's policies for one request, with the definitions in the
store. It contacts no server. Without --as the principal is an unauthenticated HTTP
client; with --transport stdio, the client that runs as you.

Exit codes: 0 for allowed, 1 for denied, 2 for a configuration that does not load.`,
		Example: `  toolfinch policy test --as 'https://idp.example|alice' --group 'https://idp.example|dev' --tool github.delete_repo
  toolfinch policy test --as 'key|ci' --tool files.write_file --args '{"path": "/etc/passwd"}'
  toolfinch policy test --transport stdio --view reader --tool files.read_file --action search`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if given := []string{q.Tool, q.Prompt, q.Resource}; len(slices.DeleteFunc(given, func(name string) bool { return name == "" })) != 1 {
				return &exitError{exitUsage, errors.New("say what is asked for: one of --tool, --prompt and --resource")}
			}
			return s.withView(cmd, q.View, func(d *workspace) error {
				verdict, err := d.view.Ask(d.config.Policies, q)
				if err != nil {
					return flagError(err)
				}
				if asJSON(cmd) {
					err = printJSON(cmd.OutOrStdout(), verdict)
				} else {
					_, err = fmt.Fprintln(cmd.OutOrStdout(), verdict)
				}
				if err != nil {
					return err
				}
				if !verdict.Allow {
					return &exitError{code: exitFailed}
				}
				return nil
			})
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&q.As, "as", "", "ID of the principal: ISSUER|SUBJECT, key|NAME")
	flags.StringArrayVar(&q.Groups, "group", nil, "a group of the principal: ISSUER|GROUP, key|GROUP; may be repeated")
	flags.StringArrayVar(&q.Scopes, "scope", nil, "a scope of the principal; may be repeated")
	flags.StringVar(&q.Client, "client", "", "name of the client program, and its version after a space")
	flags.StringVar(&q.Transport, "transport", identity.TransportHTTP, "stdio, http, sse, rest or ui")
	flags.StringVar(&q.Tool, "tool", "", "the tool, as clients call it or server.tool")
	flags.StringVar(&q.Prompt, "prompt", "", "the prompt, as clients call it")
	flags.StringVar(&q.Resource, "resource", "", "the URI of the resource")
	flags.StringVar(&q.Arguments, "args", "", "the arguments, a JSON object")
	flags.StringVar(&q.Action, "action", "", "search, or call, get, read (default: call for tools, get for prompts, read for resources)")
	flags.StringVar(&q.View, "view", "", "the view")
	withJSON(cmd, "print one JSON object")
	return cmd
}

// flagError turns a wrong field into an error about its flag.
func flagError(err error) error {
	wrong, ok := errors.AsType[*identity.FieldError](err)
	if !ok {
		return err
	}
	if wrong.Field != "" {
		err = &identity.FieldError{Field: "--" + wrong.Field, Text: wrong.Text}
	}
	return &exitError{exitUsage, err}
}
