package main

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

	"toolfinch/configs"
	"toolfinch/configs/clients"
)

func TestPreviewShowsTheLinesThatChange(t *testing.T) {
	tests := []struct{ name, before, after, want string }{
		{"added", "a\nb\nc\n", "a\nb\nx\ny\nc\n", "f, line 3\n+ x\n+ y\n"},
		{"changed", "a\r\nb\r\nc", "a\r\nx\r\nc", "f, line 2\n- b\n+ x\n"},
		{"removed", "a\nb\n", "a\n", "f, line 2\n- b\n"},
		{"repeated", "a\na\n", "a\na\na\n", "f, line 3\n+ a\n"},
		{"of a long line", "{" + strings.Repeat("a", 200) + "}", "{" + strings.Repeat("a", 200) + ",new}", "f, line 1\n+ …,new…\n"},
		{"of a line that was short", "{\"k3y\":{}}", "{\"k3y\":{" + strings.Repeat("a", 120) + "}}", "f, line 1\n+ …" + strings.Repeat("a", 120) + "…\n"},
		{"out of a long line", "{" + strings.Repeat("a", 200) + ",old}", "{" + strings.Repeat("a", 200) + "}", "f, line 1\n- …,old…\n"},
		{"of a word in a long line", "{" + strings.Repeat("a", 200) + ",\"/b/c1/d\"}", "{" + strings.Repeat("a", 200) + ",\"/b/c2/d\"}",
			"f, line 1\n- …/b/c1/d…\n+ …/b/c2/d…\n"},
		{"from empty", "", "a\n", "f, line 1\n+ a\n"},
	}
	for _, test := range tests {
		if got := preview("f", []byte(test.before), []byte(test.after)); got != test.want {
			t.Errorf("%s:\n%s\nwant\n%s", test.name, got, test.want)
		}
	}
	if got, want := preview("f", nil, []byte("a\n")), "f (new)\n+ a\n"; got != want {
		t.Errorf("a new file:\n%s\nwant\n%s", got, want)
	}
}

func TestOnlyYesIsYes(t *testing.T) {
	for text, want := range map[string]bool{"y\n": true, "YES\n": true, " y \n": true, "y": true, "\n": false, "no\n": false, "yup\n": false} {
		if got, err := answer(t.Context(), strings.NewReader(text)); got != want || err != nil {
			t.Errorf("%q: %v, %v", text, got, err)
		}
	}
}

// Neither an interrupt nor the end of input is an answer: a no may write something, too.
func TestNoAnswerIsNeitherYesNorNo(t *testing.T) {
	if yes, err := answer(t.Context(), strings.NewReader("")); yes || !errors.Is(err, errNoAnswer) {
		t.Errorf("the end of input: %v, %v", yes, err)
	}
	interrupted := errors.New("interrupted")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(interrupted)
	silent, end := io.Pipe()
	defer end.Close()
	if yes, err := answer(ctx, silent); yes || !errors.Is(err, interrupted) {
		t.Errorf("an interrupt: %v, %v", yes, err)
	}
	for range 50 { // the line and the interrupt come in any order
		if yes, err := answer(ctx, strings.NewReader("y\n")); yes || !errors.Is(err, interrupted) {
			t.Fatalf("an interrupt with a line: %v, %v", yes, err)
		}
	}
}

// What is shown of a server has no secret in it.
func TestSecretsAreNotShown(t *testing.T) {
	const secret = "hunter2"
	for _, args := range [][]string{
		{"x", "--api-key", secret}, {"x", "--token=" + secret}, {"x", "-e", "DB_PASSWORD=" + secret},
		{"x", "--header", "Authorization: Bearer " + secret}, {"x", "https://me:" + secret + "@example.com/a?b=c"},
		{"x", "https://example.com/?key=" + secret}, {"x", "--secret", secret, "y"},
	} {
		shown, _ := configs.Shown(clients.Server{Command: args[0], Args: args[1:]})
		if got := strings.Join(shown, " "); strings.Contains(got, secret) {
			t.Errorf("%q is shown as %s", args, got)
		}
	}
	plain := []string{"npx", "-y", "server", "--port", "80", "/a/b", "https://example.com/mcp"}
	if got, _ := configs.Shown(clients.Server{Command: plain[0], Args: plain[1:]}); !slices.Equal(got, plain) {
		t.Errorf("shown as %q", got)
	}
}
