package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"toolfinch/internal/rawjson"
	"toolfinch/tool"
)

func newCall(s *settings) *cobra.Command {
	var view, object string
	var raw bool
	cmd := &cobra.Command{
		Use:         "call SERVER.TOOL [--ARGUMENT VALUE ...]",
		Annotations: map[string]string{whenInterrupted: "the call was cancelled"},
		Short:       "Call a tool",
		Long: `Call calls a tool, named by its ID or by the name that clients see, with the hooks and
bound arguments of its view. The flags after the tool are its arguments, made from its
schema: toolfinch call SERVER.TOOL --help lists them.

  --NAME VALUE       text, a number, or JSON for an object or an array
  --NAME, --no-NAME  true and false; also --NAME=false
  --NAME A --NAME B  an array
  --NAME=VALUE       any of these; required if the value begins with --
  --arg-NAME VALUE   an argument with the same name as a flag below
  --json OBJECT      all arguments at once, - for standard input; flags override it

Text is printed unchanged; images, sound and resources as a line that describes them;
--raw prints the result as JSON. If the tool fails, its text goes to standard error and
the exit code is 1. The command does not answer a tool's requests to its client.`,
		Example: `  toolfinch call clock.current_time --zone Europe/Paris
  toolfinch call notes.add --title Keys --text "With Ada" --tags home --tags keys
  toolfinch call github.search_code --json '{"query": "retry"}' --raw
  toolfinch call github.search_code --help`,
		// The tool defines its flags.
		DisableFlagParsing:    true,
		DisableFlagsInUseLine: true,
	}
	cmd.RunE = func(cmd *cobra.Command, words []string) error {
		line, err := s.splitCall(cmd, words)
		if err != nil {
			return err
		}
		help, _ := cmd.Flags().GetBool("help")
		switch {
		case line.tool == "" && help:
			return cmd.Help()
		case line.tool == "":
			return callUsage(cmd, "", errors.New("name a tool: toolfinch tool list lists them"))
		}
		var base json.RawMessage
		if cmd.Flags().Changed("json") && !help {
			if base, err = readObject(cmd, object); err != nil {
				return callUsage(cmd, "", err)
			}
		}
		return s.withView(cmd, view, func(d *workspace) error {
			t, err := d.find(line.tool)
			if err != nil {
				return err
			}
			flags := toolFlags(t.Def.InputSchema, isFlagOf(cmd))
			if help {
				return printToolHelp(cmd, t, flags)
			}
			given, err := arguments(flags, line.rest, base)
			if err != nil {
				var list strings.Builder
				_ = printFlags(&list, t, flags) // a Builder cannot fail
				return callUsage(cmd, line.tool, fmt.Errorf("%w\n\n%s", err, list.String()))
			}
			return runCall(cmd, t, given, raw)
		})
	}
	cmd.Flags().StringVar(&view, "view", "", "the view to call it in (default: the one at /mcp)")
	cmd.Flags().StringVar(&object, "json", "", "the arguments as a JSON `OBJECT`, - to read them from standard input")
	cmd.Flags().BoolVar(&raw, "raw", false, "print the result as JSON, as it came")
	return cmd
}

// splitCall divides the command line, and parses the command's own flags.
func (s *settings) splitCall(cmd *cobra.Command, words []string) (callLine, error) {
	cmd.InheritedFlags() // adds the root's flags to Flags
	cmd.InitDefaultHelpFlag()
	takesValue := func(name string) bool { return cmd.Flags().Lookup(name).NoOptDefVal == "" }
	line, err := splitCall(words, isFlagOf(cmd), takesValue)
	if err == nil {
		err = cmd.Flags().Parse(line.ours)
	}
	if err != nil {
		return line, callUsage(cmd, "", err)
	}
	return line, nil
}

func isFlagOf(cmd *cobra.Command) func(string) bool {
	return func(name string) bool { return cmd.Flags().Lookup(name) != nil }
}

func callUsage(cmd *cobra.Command, tool string, err error) error {
	path := cmd.CommandPath()
	if tool != "" {
		path += " " + tool
	}
	return &exitError{exitUsage, fmt.Errorf("%w\nSee: %s --help", err, path)}
}

// maxInput bounds standard input, in bytes.
const maxInput = 64 << 20

// readInput reads standard input to its end, to most bytes, or until ctx ends.
func readInput(ctx context.Context, cmd *cobra.Command, most int64) ([]byte, error) {
	type input struct {
		text []byte
		err  error
	}
	read := make(chan input, 1)
	go func() { // the read cannot be stopped: see readLine
		text, err := io.ReadAll(io.LimitReader(cmd.InOrStdin(), most))
		read <- input{text, err}
	}()
	select {
	case in := <-read:
		return in.text, in.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// readObject reads the arguments of --json.
func readObject(cmd *cobra.Command, text string) (json.RawMessage, error) {
	raw := []byte(text)
	if text == "-" {
		var err error
		if raw, err = readInput(cmd.Context(), cmd, maxInput+1); err != nil {
			return nil, fmt.Errorf("--json: %w", err)
		}
		if len(raw) > maxInput {
			return nil, fmt.Errorf("--json: more than %s on standard input", humanize.Bytes(maxInput))
		}
	}
	raw = bytes.TrimSpace(raw)
	var object map[string]json.RawMessage // only its error is used
	if err := json.Unmarshal(raw, &object); err != nil || object == nil {
		if err == nil || json.Valid(raw) {
			err = errors.New("it is not an object")
		}
		return nil, fmt.Errorf("--json takes a JSON object: %w", err)
	}
	return raw, nil
}

func printToolHelp(cmd *cobra.Command, t *tool.Tool, flags []toolFlag) error {
	out := cmd.OutOrStdout()
	if about := strings.TrimSpace(t.Def.Description); about != "" {
		fmt.Fprintf(out, "%s\n\n", about)
	}
	fmt.Fprintf(out, "Usage:\n  %s %s [--ARGUMENT VALUE ...]\n\n", cmd.CommandPath(), t.Def.ID)
	if err := printFlags(out, t, flags); err != nil {
		return err
	}
	_, err := fmt.Fprintf(out, "\nOther flags:\n%s\nHow values are written: %s --help\n", cmd.LocalFlags().FlagUsages(), cmd.CommandPath())
	return err
}

func runCall(cmd *cobra.Command, t *tool.Tool, given json.RawMessage, raw bool) error {
	call := &tool.Call{Name: t.Name, Local: true, Arguments: given}
	stderr := cmd.ErrOrStderr()
	heard := &narrator{w: unfiltered(stderr), on: screenOf(stderr)}
	if heard.on.terminal {
		call.Notify = heard.notify
		call.Params = json.RawMessage(`{"_meta":{"progressToken":1}}`)
	}
	result, err := t.Handler(cmd.Context(), call)
	heard.end()
	switch {
	case cmd.Context().Err() != nil:
		return context.Cause(cmd.Context())
	case err != nil:
		return err
	case raw:
		if _, err := fmt.Fprintf(cmd.OutOrStdout(), "%s\n", bytes.TrimSpace(result)); err != nil {
			return err
		}
	case !result.Complete():
		return errors.New("the tool asks for more than a command line can answer; --raw prints what")
	case result.Failed():
		err = printResult(stderr, result)
	default:
		err = printResult(cmd.OutOrStdout(), result)
	}
	if err == nil && result.Failed() {
		err = &exitError{code: exitFailed}
	}
	return err
}

// printResult prints a result for people: its text, and a line for each other block. Without text it prints the
// structured content.
func printResult(w io.Writer, result tool.Result) error {
	var out strings.Builder
	hasText := false
	for block := range rawjson.Elements(rawjson.Member(json.RawMessage(result), "content")) {
		text := rawjson.Text(rawjson.Member(block, "text"))
		if rawjson.Text(rawjson.Member(block, "type")) != "text" {
			text = describe(block)
		} else {
			hasText = true
		}
		out.WriteString(strings.TrimSuffix(text, "\n") + "\n")
	}
	structured := rawjson.Member(json.RawMessage(result), "structuredContent")
	if !hasText && structured != nil && string(structured) != "null" {
		if err := printJSON(&out, structured); err != nil {
			return err
		}
	}
	_, err := io.WriteString(w, out.String())
	return err
}

// describe returns a line about a content block that is not text.
func describe(block json.RawMessage) string {
	text := func(name string) string { return rawjson.Text(rawjson.Member(block, name)) }
	kind := text("type")
	words := []string{kind}
	switch kind {
	case "image", "audio":
		words = append(words, text("mimeType")+",", base64Size(text("data")))
	case "resource_link":
		words = append(words, text("uri"), text("mimeType"))
	case "resource":
		block = rawjson.Member(block, "resource")
		words = append(words, text("uri"))
		if kind := text("mimeType"); kind != "" {
			words = append(words, kind+",")
		}
		if blob := rawjson.Member(block, "blob"); blob != nil {
			words = append(words, base64Size(rawjson.Text(blob)))
		} else {
			words = append(words, humanize.Bytes(uint64(len(text("text")))))
		}
	}
	return "[" + strings.TrimSpace(strings.Join(words, " ")) + "]"
}

// base64Size returns the size of the decoded text.
func base64Size(text string) string {
	return humanize.Bytes(uint64(len(strings.TrimRight(text, "=")) * 3 / 4))
}

// narrator shows a running tool's messages.
type narrator struct {
	w  io.Writer // the terminal itself
	on screen

	mu      sync.Mutex // guards the fields below; held over a line, so that lines stay whole
	drawn   bool       // a line of progress is on the screen
	silence bool       // the call has ended
}

func (n *narrator) notify(method string, params json.RawMessage) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.silence {
		return
	}
	switch method {
	case "notifications/progress":
		line := string(rawjson.Member(params, "progress"))
		if total := rawjson.Member(params, "total"); total != nil {
			line += "/" + string(total)
		}
		line += " " + rawjson.Text(rawjson.Member(params, "message"))
		line = visible(oneLine(line))
		if n.on.columns > 0 {
			line = cut(line, n.on.columns-1)
		}
		fmt.Fprint(n.w, "\r\x1b[K"+line)
		n.drawn = true
	case "notifications/message":
		n.clear()
		data := rawjson.Member(params, "data")
		text := rawjson.Text(data)
		if text == "" {
			text = string(data)
		}
		fmt.Fprintln(n.w, n.on.paint(faint, visible(oneLine(rawjson.Text(rawjson.Member(params, "level"))+": "+text))))
	}
}

func (n *narrator) end() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.silence = true
	n.clear()
}

func (n *narrator) clear() {
	if n.drawn {
		fmt.Fprint(n.w, "\r\x1b[K")
	}
	n.drawn = false
}
