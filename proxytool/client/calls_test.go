package client_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mark3labs/mcp-go/client"
	"github.com/mark3labs/mcp-go/client/transport"
	"github.com/mark3labs/mcp-go/mcp"

	"toolfinch/internal/await"
	"toolfinch/internal/must"
	"toolfinch/proxytool"
	proxyclient "toolfinch/proxytool/client"
	"toolfinch/tool/args"
)

// counting counts the requests sent over a transport.
type counting struct {
	transport.Interface
	requests *atomic.Int64
}

func (c counting) SendRequest(ctx context.Context, r transport.JSONRPCRequest) (*transport.JSONRPCResponse, error) {
	c.requests.Add(1)
	return c.Interface.SendRequest(ctx, r)
}

func TestWhatTheServerWouldRefuseIsNotSent(t *testing.T) {
	var requests atomic.Int64
	dial := overNothing(t, newHouse(t).MCPServer)
	c := open(t, func(ctx context.Context) (transport.Interface, error) {
		inner, err := dial(ctx)
		return counting{inner, &requests}, err
	})
	before := requests.Load()
	for _, test := range []struct {
		typ    proxytool.Type
		action proxytool.Action
		path   string
		args   any
		about  string // the parameter
	}{
		{"", proxytool.ActionList, "", nil, "type"},
		{"widget", proxytool.ActionList, "", nil, "type"},
		{proxytool.TypeTool, "", "", nil, "action"},
		{proxytool.TypeTool, "run", "", nil, "action"},
		{proxytool.TypeTool, proxytool.ActionList, "echo", nil, "path"},
		{proxytool.TypeTool, proxytool.ActionInfo, "", nil, "path"},
		{proxytool.TypeTool, proxytool.ActionCall, "", nil, "path"},
		{proxytool.TypeTool, proxytool.ActionInfo, "echo", map[string]any{}, "args"},
		{proxytool.TypeTool, proxytool.ActionCall, "echo", []int{1}, "args"},
		{proxytool.TypeResource, proxytool.ActionCall, "house://notes", map[string]int{"a": 1}, "args"},
	} {
		_, err := c.Proxy(t.Context(), test.typ, test.action, test.path, test.args)
		var wrong *args.Error
		if !errors.As(err, &wrong) || !strings.Contains(wrong.Problem, test.about) {
			t.Errorf("%+v: %v", test, err)
		}
	}
	if _, err := c.Proxy(t.Context(), proxytool.TypeTool, proxytool.ActionCall, "echo", func() {}); err == nil {
		t.Error("args that are no JSON were taken")
	}
	if sent := requests.Load() - before; sent != 0 {
		t.Errorf("%d requests were sent", sent)
	}
	var none map[string]any
	if _, err := c.Proxy(t.Context(), proxytool.TypeTool, proxytool.ActionInfo, "echo", none); err != nil {
		t.Errorf("a nil map is no args: %v", err)
	}
	if sent := requests.Load() - before; sent != 1 {
		t.Errorf("%d requests were sent", sent)
	}
}

func TestProgressReachesTheCallItIsOf(t *testing.T) {
	for _, way := range ways {
		for _, transparent := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/transparent %v", way.name, transparent), func(t *testing.T) {
				h := newHouse(t)
				options := []proxyclient.Option{proxyclient.WithClientOptions(way.options...)}
				if transparent {
					options = append(options, proxyclient.WithTransparent())
				}
				c := open(t, way.dial(t, h.MCPServer), options...)
				calls := 4
				if way.loses {
					calls = 1
				}
				var running sync.WaitGroup
				for i := range calls {
					running.Go(func() {
						label := fmt.Sprint("call ", i)
						var got []string
						ctx := proxyclient.OnProgress(t.Context(), func(progress, total float64, message string) {
							got = append(got, fmt.Sprint(progress, total, message))
							h.step(label) <- struct{}{}
						})
						_, err := c.CallTool(ctx, callTool("steps", map[string]string{"label": label}))
						// The call has returned, so nothing writes to got any more.
						if want := []string{"1 3" + label, "2 3" + label, "3 3" + label}; err != nil || !slices.Equal(got, want) {
							t.Errorf("%s: %q, %v", label, got, err)
						}
					})
				}
				running.Wait()
			})
		}
	}
}

func TestProgressOfAllCallsAndOfOne(t *testing.T) {
	h := newHouse(t)
	var all, one atomic.Int64
	c := open(t, overPipe(t, h.MCPServer), proxyclient.WithProgress(func(float64, float64, string) {
		all.Add(1)
		h.step("") <- struct{}{}
	}))
	for range 2 {
		must.Get(c.Proxy(t.Context(), proxytool.TypeTool, proxytool.ActionCall, "steps", nil))(t)
	}
	ctx := proxyclient.OnProgress(t.Context(), func(float64, float64, string) {
		one.Add(1)
		// A ProgressFunc may use the client.
		if _, err := c.Proxy(t.Context(), proxytool.TypeTool, proxytool.ActionCall, "echo", nil); err != nil {
			t.Error(err)
		}
		h.step("") <- struct{}{}
	})
	must.Get(c.Proxy(ctx, proxytool.TypeTool, proxytool.ActionCall, "steps", nil))(t)
	if all.Load() != 6 || one.Load() != 3 {
		t.Errorf("%d of all calls, %d of one", all.Load(), one.Load())
	}
}

// telling closes answered once a call of a tool was answered.
type telling struct {
	transport.Interface
	answered chan struct{}
}

func (c telling) SendRequest(ctx context.Context, r transport.JSONRPCRequest) (*transport.JSONRPCResponse, error) {
	response, err := c.Interface.SendRequest(ctx, r)
	if r.Method == "tools/call" {
		close(c.answered)
	}
	return response, err
}

func TestACallReturnsAfterItsProgress(t *testing.T) {
	h := newHouse(t)
	answered := make(chan struct{})
	dial := overPipe(t, h.MCPServer)
	c := open(t, func(ctx context.Context) (transport.Interface, error) {
		inner, err := dial(ctx)
		return telling{inner, answered}, err
	})
	steps := 0
	ctx := proxyclient.OnProgress(t.Context(), func(float64, float64, string) {
		h.step("") <- struct{}{}
		if steps == 2 {
			<-answered
		}
		steps++
	})
	_, err := c.Proxy(ctx, proxytool.TypeTool, proxytool.ActionCall, "steps", nil)
	if err != nil || steps != 3 { // read without a lock: the race detector minds if it is not over
		t.Errorf("%d steps, %v", steps, err)
	}
}

// A caller with a token of its own hears of it as of any notification.
func TestAProgressTokenOfTheCallersOwnIsKept(t *testing.T) {
	h := newHouse(t)
	c := open(t, overPipe(t, h.MCPServer), proxyclient.WithTransparent(), proxyclient.WithProgress(func(float64, float64, string) {
		t.Error("the progress went elsewhere")
	}))
	var heard atomic.Int64
	c.OnNotification(func(n mcp.JSONRPCNotification) {
		if n.Method == "notifications/progress" && n.Params.AdditionalFields["progressToken"] == "mine" {
			heard.Add(1)
			h.step("") <- struct{}{}
		}
	})
	request := callTool("steps", nil)
	request.Params.Meta = &mcp.Meta{ProgressToken: "mine"}
	if _, err := c.CallTool(t.Context(), request); err != nil || heard.Load() != 3 {
		t.Errorf("%d notifications, %v", heard.Load(), err)
	}
}

func TestAServerIsToldOfACallThatIsGivenUp(t *testing.T) {
	for _, way := range ways {
		t.Run(way.name, func(t *testing.T) {
			h := newHouse(t)
			c := open(t, way.dial(t, h.MCPServer), proxyclient.WithClientOptions(way.options...))
			for name, hang := range map[string]func(context.Context) error{
				"proxy": func(ctx context.Context) error {
					_, err := c.Proxy(ctx, proxytool.TypeTool, proxytool.ActionCall, "hang", nil)
					return err
				},
				"direct": func(ctx context.Context) error {
					_, err := c.CallTool(ctx, callTool("hang", nil))
					return err
				},
			} {
				ctx, cancel := context.WithCancel(t.Context())
				go func() {
					<-h.hanging
					cancel()
				}()
				if err := hang(ctx); !errors.Is(err, context.Canceled) {
					t.Errorf("%s: %v", name, err)
				}
				<-h.cancelled
			}
			if _, err := c.Proxy(t.Context(), proxytool.TypeTool, proxytool.ActionCall, "echo", nil); err != nil {
				t.Errorf("the next call: %v", err)
			}
		})
	}
}

// noting hands over the notifications that are sent over HTTP.
type noting struct {
	*transport.StreamableHTTP
	sent chan mcp.JSONRPCNotification
}

func (n noting) SendNotification(ctx context.Context, notification mcp.JSONRPCNotification) error {
	n.sent <- notification
	return n.StreamableHTTP.SendNotification(ctx, notification)
}

// In the legacy era the end of an HTTP request says nothing of the call.
func TestOverHTTPTheLegacyEraIsTold(t *testing.T) {
	for _, era := range eras {
		t.Run(era.name, func(t *testing.T) {
			h := newHouse(t)
			site := newSite(t)
			site.start(h.MCPServer)
			sent := make(chan mcp.JSONRPCNotification, 10)
			c := open(t, func(ctx context.Context) (transport.Interface, error) {
				inner, err := site.dial(ctx)
				return noting{inner.(*transport.StreamableHTTP), sent}, err
			}, proxyclient.WithClientOptions(era.options...))
			ctx, cancel := context.WithCancel(t.Context())
			go func() {
				<-h.hanging
				cancel()
			}()
			if _, err := c.Proxy(ctx, proxytool.TypeTool, proxytool.ActionCall, "hang", nil); !errors.Is(err, context.Canceled) {
				t.Errorf("error = %v", err)
			}
			<-h.cancelled
			if err := c.Close(); err != nil { // and waits for what is being sent
				t.Fatal(err)
			}
			close(sent)
			var cancels int
			for n := range sent {
				if n.Method == "notifications/cancelled" && n.Params.AdditionalFields["requestId"] != nil {
					cancels++
				}
			}
			if want := map[bool]int{true: 0, false: 1}[era.options == nil]; cancels != want {
				t.Errorf("told %d times, want %d", cancels, want)
			}
		})
	}
}

// Even one that hears nothing of it holds up nobody.
func TestACallEndsInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t)
		c := open(t, overNothing(t, h.MCPServer), proxyclient.WithTimeout(5*time.Second))
		_, err := c.Proxy(t.Context(), proxytool.TypeTool, proxytool.ActionCall, "deaf", nil)
		if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "no answer within 5s") {
			t.Errorf("error = %v", err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := c.ListTools(ctx, mcp.ListToolsRequest{}); !errors.Is(err, context.Canceled) {
			t.Errorf("with a context that has ended: %v", err)
		}
		close(h.release)
	})
}

func TestCloseEndsCalls(t *testing.T) {
	for _, way := range ways {
		t.Run(way.name, func(t *testing.T) {
			h := newHouse(t)
			c := open(t, way.dial(t, h.MCPServer), proxyclient.WithClientOptions(way.options...))
			go func() {
				<-h.hanging
				if err := c.Close(); err != nil {
					t.Error(err)
				}
			}()
			if _, err := c.Proxy(t.Context(), proxytool.TypeTool, proxytool.ActionCall, "hang", nil); !errors.Is(err, proxyclient.ErrClosed) {
				t.Errorf("the call in flight: %v", err)
			}
			if _, err := c.ListTools(t.Context(), mcp.ListToolsRequest{}); !errors.Is(err, proxyclient.ErrClosed) {
				t.Errorf("a call afterwards: %v", err)
			}
		})
	}
}

func TestNothingStaysRunning(t *testing.T) {
	for _, way := range ways {
		t.Run(way.name, func(t *testing.T) {
			await.NoLeak(t, func() {
				t.Run("client", func(t *testing.T) {
					h := newHouse(t)
					c := open(t, way.dial(t, h.MCPServer), proxyclient.WithTransparent(), proxyclient.WithClientOptions(way.options...))
					ctx, cancel := context.WithCancel(proxyclient.OnProgress(t.Context(), func(float64, float64, string) { h.step("") <- struct{}{} }))
					if _, err := c.CallTool(ctx, callTool("steps", nil)); err != nil {
						t.Error(err)
					}
					go func() {
						<-h.hanging
						cancel()
					}()
					if _, err := c.CallTool(ctx, callTool("hang", nil)); !errors.Is(err, context.Canceled) {
						t.Error(err)
					}
				})
			}, "mark3labs/mcp-go/")
		})
	}
}

func TestTheClientSaysWhoItIs(t *testing.T) {
	for _, options := range [][]client.ClientOption{nil, {client.WithProtocolVersion(mcp.LATEST_LEGACY_PROTOCOL_VERSION)}} {
		c := open(t, overPipe(t, newHouse(t).MCPServer), proxyclient.WithClientInfo("finch", "7"), proxyclient.WithClientOptions(options...))
		r, err := c.Proxy(t.Context(), proxytool.TypeTool, proxytool.ActionCall, "whoami", nil)
		if err != nil || r.Text() != "finch 7" {
			t.Errorf("%+v, %v", r, err)
		}
	}
}
