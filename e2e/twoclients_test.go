//go:build unix

package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/mark3labs/mcp-go/client"
	"github.com/mark3labs/mcp-go/client/transport"
	"github.com/mark3labs/mcp-go/mcp"
	"golang.org/x/sync/errgroup"

	"toolfinch/internal/await"
	"toolfinch/internal/must"
)

// Two clients of one toolfinch are asked things at the same time, by servers
// that cannot tell them apart. Each must be asked for its own calls alone.

// Of each client: how many calls ask something, and how many are in flight.
const (
	askingCalls = 24
	inFlight    = 8
)

func TestTwoClientsAreAskedTheirOwn(t *testing.T) {
	t.Parallel()
	h, url := askingServers(t)
	ada, bob := h.asked(t, url, "Ada"), h.asked(t, url, "Bob")
	ada.makeKnown(t)
	var calls errgroup.Group
	for _, c := range []*askedClient{ada, bob} {
		calls.Go(func() error { return c.callAll(await.Context(t), askingCalls) })
	}
	if err := calls.Wait(); err != nil {
		t.Error(err)
	}
	for _, c := range []*askedClient{ada, bob} {
		if n := c.wrong.Load(); n != 0 {
			t.Errorf("%s was asked %d times what another's call wants to know", c.name, n)
		}
	}
	if a, b := ada.count.Load(), bob.count.Load(); a != askingCalls+int64(len(asks)) || b != askingCalls {
		t.Errorf("the clients were asked %d and %d times, want %d each after the first %d", a, b, askingCalls, len(asks))
	}
}

func TestAClientThatLeavesWhileItIsAskedEndsItsCall(t *testing.T) {
	t.Parallel()
	h, url := serveAsker(t)
	ada, bob := h.asked(t, url, "Ada"), h.asked(t, url, "Bob")
	beingAsked := make(chan struct{}, 1)
	ada.think = func(ctx context.Context) {
		beingAsked <- struct{}{}
		<-ctx.Done()
	}
	ctx, hangUp := context.WithCancel(await.Context(t))
	defer hangUp()
	var calls errgroup.Group
	calls.Go(func() error {
		if answer, err := ada.try(ctx, "asker_ask", map[string]any{"message": "Ada leaves"}); err == nil {
			return fmt.Errorf("the call of the client that left answered %q", answer)
		}
		return nil
	})
	await.Value(t, beingAsked)
	hangUp()
	h.waitFor(t, "given up: Ada leaves")
	if err := calls.Wait(); err != nil {
		t.Error(err)
	}
	for i := range 5 {
		message := fmt.Sprintf("Bob %d", i)
		if answer, err := bob.try(await.Context(t), "asker_ask", map[string]any{"message": message}); err != nil || answer != bob.answer(message) {
			t.Errorf("Bob got the answer %q, %v", answer, err)
		}
	}
	if n := bob.wrong.Load(); n != 0 {
		t.Errorf("Bob was asked %d times what another's call wants to know", n)
	}
}

// waitFor waits until the asker has written that line.
func (h house) waitFor(t *testing.T, line string) {
	t.Helper()
	await.Nil(t, func() error {
		text, err := os.ReadFile(h.askerLog())
		if err != nil || !strings.Contains(string(text), line+"\n") {
			return fmt.Errorf("the server never wrote %q but %q, %w", line, text, err)
		}
		return nil
	})
}

func (h house) askerLog() string { return filepath.Join(h.home, "asker.log") }

// serveAsker starts a toolfinch with a server that has never asked anything, and
// returns its URL.
func serveAsker(t *testing.T) (house, string) {
	t.Helper()
	h := newHouse(t, nil)
	file := must.Get(filepath.Abs("../testdata/node/asker.mjs"))(t)
	s := script(t, file)
	h.configure(t, map[string]any{"asker": map[string]any{
		"command": s.Command, "args": s.Args, "connect_timeout": s.ConnectTimeout, "env": map[string]string{"ASKER_LOG": h.askerLog()},
	}})
	url, _ := h.serveHTTP(t)
	waitConnected(t, url)
	return h, url
}

// askingServers starts a toolfinch with servers that ask: a legacy one on
// stdio, where nothing says whose call a question belongs to, and one over HTTP
// in either era.
func askingServers(t *testing.T) (house, string) {
	t.Helper()
	c := newConformance(t)
	h := c.house
	everything := c.serveEverything(t, c.build(t, "everything"))
	s := script(t, module(t, everythingJS), "stdio")
	h.configure(t, map[string]any{
		"stdio":  map[string]any{"command": s.Command, "args": s.Args, "connect_timeout": s.ConnectTimeout},
		"modern": map[string]any{"url": everything},
		"legacy": map[string]any{"url": everything, "protocol": "legacy"},
	})
	if out, err := h.output(t, "reindex"); err != nil { // so that all is known when the clients come
		t.Fatalf("reindex: %v\n%s", err, out)
	}
	return h, h.startOf(t, busy(t)).url
}

// kindOfCall is a tool and how to call it. What is said with the call comes
// back in the answer: in that of an asking tool because the client says it when
// it is asked.
type kindOfCall struct {
	tool       string
	capability string // that a client needs for it
	argument   string // that what is said goes into; "" when the tool has none
}

func (k kindOfCall) arguments(said string) map[string]any {
	if k.argument == "" {
		return map[string]any{}
	}
	return map[string]any{k.argument: said}
}

var (
	asks = []kindOfCall{
		{"stdio_trigger-elicitation-request", "elicitation", ""},
		{"modern_test_elicitation", "elicitation", "message"},
		{"legacy_test_elicitation", "elicitation", "message"},
		{"stdio_trigger-sampling-request", "sampling", "prompt"},
		{"modern_test_sampling", "sampling", "prompt"},
		{"legacy_test_sampling", "sampling", "prompt"},
	}
	plains = []kindOfCall{
		{"stdio_echo", "", "message"},
		{"modern_test_custom_header", "", "region"},
		{"legacy_test_custom_header", "", "region"},
	}
)

// askedClient is a client with a name that answers what it is asked with it.
type askedClient struct {
	name  string
	mcp   *client.Client
	think func(ctx context.Context) // before an answer, if set
	count atomic.Int64              // how often it was asked
	wrong atomic.Int64              // how often what another's call wants to know
}

// asked connects a client that can be asked. The test's end closes it.
func (h house) asked(t *testing.T, url, name string) *askedClient {
	t.Helper()
	c := &askedClient{name: name}
	c.connect(t, url, client.WithElicitationHandler(c), client.WithSamplingHandler(c))
	return c
}

func (c *askedClient) connect(t *testing.T, url string, options ...client.ClientOption) {
	t.Helper()
	connections := http.DefaultTransport.(*http.Transport).Clone()
	// With connections used again, a request of this client under load is now and
	// then cancelled together with the one before it.
	connections.DisableKeepAlives = true
	way, err := transport.NewStreamableHTTP(url, transport.WithHTTPBasicClient(&http.Client{Transport: connections}),
		transport.WithHTTPLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		t.Fatal(err)
	}
	c.mcp = client.NewClient(way, append(options, client.WithProtocolVersion(legacyVersion))...)
	t.Cleanup(func() { _ = c.mcp.Close() })
	ctx := await.Context(t)
	must.Do(t, c.mcp.Start(context.WithoutCancel(ctx)))
	var hello mcp.InitializeRequest
	hello.Params.ProtocolVersion = legacyVersion
	hello.Params.ClientInfo = mcp.Implementation{Name: c.name, Version: "1.0.0"}
	must.Get(c.mcp.Initialize(ctx, hello))(t)
}

// answer is what the client says when it is asked about its own call.
func (c *askedClient) answer(question string) string { return c.name + " says: " + question }

// judge counts a question, which has what was said with the call in it, where
// the server lets it in.
func (c *askedClient) judge(ctx context.Context, question string) {
	c.count.Add(1)
	for _, other := range []string{"Ada", "Bob", "nobody"} {
		if other != c.name && strings.Contains(question, other) {
			c.wrong.Add(1)
		}
	}
	if c.think != nil {
		c.think(ctx)
	}
}

func (c *askedClient) Elicit(ctx context.Context, request mcp.ElicitationRequest) (*mcp.ElicitationResult, error) {
	question := request.Params.Message
	c.judge(ctx, question)
	return &mcp.ElicitationResult{ElicitationResponse: mcp.ElicitationResponse{
		Action:  mcp.ElicitationResponseActionAccept,
		Content: map[string]any{"name": c.answer(question), "username": c.answer(question), "email": c.name + "@example.com"},
	}}, nil
}

func (c *askedClient) CreateMessage(ctx context.Context, request mcp.CreateMessageRequest) (*mcp.CreateMessageResult, error) {
	var question strings.Builder
	for _, message := range request.Messages {
		question.WriteString(mcp.GetTextFromContent(message.Content))
	}
	c.judge(ctx, question.String())
	return &mcp.CreateMessageResult{
		SamplingMessage: mcp.SamplingMessage{Role: mcp.RoleAssistant, Content: mcp.NewTextContent(c.answer(question.String()))},
		Model:           "a model of " + c.name,
		StopReason:      "endTurn",
	}, nil
}

// makeKnown lets every server ask something, so that toolfinch knows that it does.
func (c *askedClient) makeKnown(t *testing.T) {
	t.Helper()
	for _, ask := range asks {
		said := c.name + " first."
		if answer, err := c.try(t.Context(), ask.tool, ask.arguments(said)); err != nil || !strings.Contains(answer, c.name+" says") {
			t.Fatalf("%s answered %q, %v", ask.tool, answer, err)
		}
	}
}

// callAll makes that many calls that ask something, of all kinds, and half as
// many between them that do not. It returns the first wrong answer.
func (c *askedClient) callAll(ctx context.Context, asking int) error {
	calls, ctx := errgroup.WithContext(ctx)
	calls.SetLimit(inFlight)
	for n := range asking {
		calls.Go(func() error {
			ask := asks[n%len(asks)]
			said := fmt.Sprintf("%s %d.", c.name, n)
			answer, err := c.try(ctx, ask.tool, ask.arguments(said))
			switch {
			case err != nil:
				return fmt.Errorf("call %d of %s: %s: %w", n, c.name, ask.tool, err)
			case !strings.Contains(answer, c.name+" says"), ask.argument != "" && !strings.Contains(answer, said):
				return fmt.Errorf("call %d of %s: %s answered %q", n, c.name, ask.tool, answer)
			}
			return nil
		})
		if n%2 == 1 {
			continue
		}
		calls.Go(func() error {
			plain := plains[n/2%len(plains)]
			said := fmt.Sprintf("%s between %d.", c.name, n)
			if answer, err := c.try(ctx, plain.tool, plain.arguments(said)); err != nil || !strings.Contains(answer, said) {
				return fmt.Errorf("between the calls %s: %s answered %q, %w", c.name, plain.tool, answer, err)
			}
			return nil
		})
	}
	return calls.Wait()
}

// try calls a tool and returns the text of its answer; a tool's failure is an
// error.
func (c *askedClient) try(ctx context.Context, tool string, arguments map[string]any) (string, error) {
	var request mcp.CallToolRequest
	request.Params.Name, request.Params.Arguments = tool, arguments
	result, err := c.mcp.CallTool(ctx, request)
	if err != nil {
		return "", err
	}
	var text strings.Builder
	for _, block := range result.Content {
		text.WriteString(mcp.GetTextFromContent(block))
	}
	if result.IsError {
		return "", errors.New(text.String())
	}
	return text.String(), nil
}
