package main

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"toolfinch/internal/must"
	"toolfinch/tool"
)

func TestResultsArePrintedForPeople(t *testing.T) {
	for _, test := range []struct{ name, result, want string }{
		{"text as it is", `{"content":[{"type":"text","text":"a <b>\n"},{"type":"text","text":"c"}]}`, "a <b>\nc\n"},
		{"text before structure", `{"content":[{"type":"text","text":"{}"}],"structuredContent":{"a":1}}`, "{}\n"},
		{"structure without text", `{"content":[],"structuredContent":{"b":9007199254740993,"a":1.0}}`, "{\n  \"b\": 9007199254740993,\n  \"a\": 1.0\n}\n"},
		{"what is no text", `{"content":[
			{"type":"image","mimeType":"image/png","data":"` + strings.Repeat("AAAA", 4000) + `"},
			{"type":"audio","mimeType":"audio/wav","data":"AA=="},
			{"type":"resource_link","uri":"file:///a","name":"a","mimeType":"text/plain"},
			{"type":"resource","resource":{"uri":"file:///b","mimeType":"text/plain","text":"four"}},
			{"type":"resource","resource":{"uri":"file:///c","blob":"AAAAAA=="}},
			{"type":"hologram"}]}`,
			"[image image/png, 12 kB]\n[audio audio/wav, 1 B]\n[resource_link file:///a text/plain]\n" +
				"[resource file:///b text/plain, 4 B]\n[resource file:///c 4 B]\n[hologram]\n"},
		{"nothing", `{"content":[]}`, ""},
		{"no content at all", `{}`, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			var out strings.Builder
			must.Do(t, printResult(&out, tool.Result(test.result)))
			if out.String() != test.want {
				t.Errorf("got\n%s\nwant\n%s", out.String(), test.want)
			}
		})
	}
}

func TestWhatAToolSaysMeanwhileIsShown(t *testing.T) {
	var out strings.Builder
	n := &narrator{w: &out, on: screen{terminal: true, columns: 24}}
	n.notify("notifications/progress", json.RawMessage(`{"progressToken":1,"progress":1,"total":3,"message":"reading\nall\u001b[2J of it"}`))
	n.notify("notifications/message", json.RawMessage(`{"level":"warning","data":"slow"}`))
	n.notify("notifications/message", json.RawMessage(`{"level":"info","data":{"n":1.0}}`))
	n.notify("notifications/unheard_of", nil)
	n.notify("notifications/progress", json.RawMessage(`{"progressToken":1,"progress":2}`))
	n.end()
	n.notify("notifications/message", json.RawMessage(`{"level":"info","data":"too late"}`))
	const line = "\r\x1b[K"
	want := line + `1/3 reading all\u001b[…` + line + "warning: slow\n" + `info: {"n":1.0}` + "\n" + line + "2" + line
	if out.String() != want {
		t.Errorf("got  %q\nwant %q", out.String(), want)
	}
}

// Ctrl-C ends the context of the command; the tool is told, and nothing is printed.
func TestACallEndsWithItsCommand(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	interrupted := errors.New("interrupted")
	endless := &tool.Tool{Name: "endless", Handler: func(ctx context.Context, _ *tool.Call) (tool.Result, error) {
		cancel(interrupted)
		<-ctx.Done()
		return tool.TextResult("too late"), nil
	}}
	cmd := &cobra.Command{}
	cmd.SetContext(ctx)
	var out strings.Builder
	cmd.SetOut(&out)
	if err := runCall(cmd, endless, nil, false); !errors.Is(err, interrupted) {
		t.Errorf("error %v, want %v", err, interrupted)
	}
	if out.Len() > 0 {
		t.Errorf("printed %q", out.String())
	}
}
