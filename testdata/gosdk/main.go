// Lists everything with the client of the Go SDK and writes down the names, or why
// the client refused a list, as ../node/lists.mjs does. The one argument is JSON:
// {command, args, env}. It is a module of its own, so that ours does not grow.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"os"
	"os/exec"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

type seen struct {
	Names   []string `json:"names"`
	Failure string   `json:"failure,omitempty"`
}

func main() {
	var target struct {
		Command string
		Args    []string
		Env     map[string]string
	}
	if err := json.Unmarshal([]byte(os.Args[1]), &target); err != nil {
		log.Fatal(err)
	}
	cmd := exec.Command(target.Command, target.Args...)
	for name, value := range target.Env {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	cmd.Stderr = os.Stderr
	ctx := context.Background()
	session, err := mcp.NewClient(&mcp.Implementation{Name: "toolfinch-lists", Version: "1.0.0"}, nil).Connect(ctx, &mcp.CommandTransport{Command: cmd}, nil)
	if err != nil {
		log.Fatal(err)
	}
	out := map[string]*seen{}
	note := func(list string, err error, names func(*seen)) {
		out[list] = &seen{Names: []string{}}
		if err != nil {
			out[list].Failure = err.Error()
		} else {
			names(out[list])
		}
	}
	tools, err := session.ListTools(ctx, nil)
	note("tools", err, func(s *seen) {
		for _, t := range tools.Tools {
			s.Names = append(s.Names, t.Name)
		}
	})
	prompts, err := session.ListPrompts(ctx, nil)
	note("prompts", err, func(s *seen) {
		for _, p := range prompts.Prompts {
			s.Names = append(s.Names, p.Name)
		}
	})
	resources, err := session.ListResources(ctx, nil)
	note("resources", err, func(s *seen) {
		for _, r := range resources.Resources {
			s.Names = append(s.Names, r.URI)
		}
	})
	templates, err := session.ListResourceTemplates(ctx, nil)
	note("resourceTemplates", err, func(s *seen) {
		for _, t := range templates.ResourceTemplates {
			s.Names = append(s.Names, t.URITemplate)
		}
	})
	if err := session.Close(); err != nil {
		log.Print(err)
	}
	text, err := json.Marshal(out)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(string(text))
}
