package register

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"toolfinch/tool"
)

// A session that came from another process is subscribed to what it was there, also where the
// server is away at first, and its client hears once of what it may have missed.
func TestSubscriptionsOfASessionThatWasTakenOverAreRestoredWhenTheyCanBe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		upstream := newFollowed()
		upstream.fail = errors.New("away")
		live := newLive(t, setup{Subscriptions: NewSubscriptions(upstream.subscribe)})
		resources(t, live)
		c := overHTTP(t, serveHTTP(t, live), `{}`)
		messages := c.listen()
		live.Restore(c.session, State{Subscribed: []string{"srv+x:r"}})
		if got := receive(t, upstream.told, "the first attempt"); got != "+x:r" {
			t.Errorf("the upstream was told %s", got)
		}
		if state, _ := live.State(c.session); !slices.Equal(state.Subscribed, []string{"srv+x:r"}) {
			t.Errorf("while it is not restored, the state has %q", state.Subscribed)
		}
		upstream.mu.Lock()
		upstream.fail = nil
		upstream.mu.Unlock()
		if got := await(t, messages, updated); !strings.Contains(got, `"srv+x:r"`) {
			t.Errorf("the client is told %s", got)
		}
		if state, _ := live.State(c.session); !slices.Equal(state.Subscribed, []string{"srv+x:r"}) {
			t.Errorf("then the state has %q", state.Subscribed)
		}
	})
}

// Whoever unsubscribes while a subscription is restored is not subscribed afterwards, but for who
// subscribes again.
func TestAnUnsubscribeOvertakesTheRestoring(t *testing.T) {
	for name, again := range map[string]bool{"for good": false, "and again": true} {
		t.Run(name, func(t *testing.T) {
			upstream, joining, join := newFollowed(), make(chan struct{}), make(chan struct{})
			live := newLive(t, setup{Subscriptions: NewSubscriptions(func(ctx context.Context, id tool.ID, on bool) error {
				if on {
					close(joining)
					<-join
				}
				return upstream.subscribe(ctx, id, on)
			})})
			resources(t, live)
			c := overHTTP(t, serveHTTP(t, live), `{}`)
			messages := c.listen()
			live.Restore(c.session, State{Subscribed: []string{"srv+x:r"}})
			receive(t, joining, "the attempt")
			await(t, c.post(unsubscribe(1, "srv+x:r")), `"id":1`)
			if !again {
				close(join)
				eventually(t, "the upstream is left", func() bool { return upstream.seen() == "+x:r -x:r" })
				if state, _ := live.State(c.session); len(state.Subscribed) != 0 {
					t.Errorf("the state has %q", state.Subscribed)
				}
				return
			}
			answered := make(chan struct{})
			go func() {
				defer close(answered)
				await(t, c.post(subscribe(2, "srv+x:r")), `"id":2`)
			}()
			s := live.session(c.session)
			eventually(t, "the client subscribes again", func() bool {
				s.restoring.mu.Lock()
				defer s.restoring.mu.Unlock()
				return s.restoring.wanted
			})
			close(join)
			receive(t, answered, "the answer")
			await(t, messages, updated) // the restoring has come to its end
			if state, _ := live.State(c.session); !slices.Equal(state.Subscribed, []string{"srv+x:r"}) || upstream.seen() != "+x:r" {
				t.Errorf("the state has %q, the upstream %q", state.Subscribed, upstream.seen())
			}
		})
	}
}

// A client whose session was taken over may have missed that lists of what is no tool have changed, and is told so:
// of what there is.
func TestAClientOfASessionThatWasTakenOverListsPromptsAgain(t *testing.T) {
	live := newLive(t, setup{})
	addItem(t, live, tool.KindPrompt, "p", `{"name":"p"}`, nil)
	c := overHTTP(t, serveHTTP(t, live), `{}`)
	messages := c.listen()
	live.Sync()
	state, _ := live.State(c.session)
	live.Restore(c.session, state)
	live.Notify(c.session, "notifications/last", nil)
	var told []string
	for m := range messages {
		if strings.Contains(m, "notifications/last") {
			break
		}
		told = append(told, m)
	}
	if len(told) != 1 || !strings.Contains(told[0], promptsChanged) {
		t.Errorf("the client is told %q", told)
	}
}

// Whoever keeps the state of a session hears of each change of it.
func TestAChangeOfTheStateOfASessionIsTold(t *testing.T) {
	changed := make(chan string, 100)
	var upstream *followed
	live := newLive(t, setup{follows: &upstream, Changed: func(session string) { changed <- session }})
	resources(t, live)
	c := connect(t, serveHTTP(t, live), "agent")
	for len(changed) > 0 { // it was opened
		<-changed
	}
	for _, step := range []struct{ what, message string }{
		{"a tool is registered", find(1, "srv_t005")},
		{"a resource is subscribed to", subscribe(2, "srv+x:r")},
		{"a subscription ends", unsubscribe(3, "srv+x:r")},
	} {
		c.messages(step.message)
		if len(changed) == 0 {
			t.Errorf("%s, and nothing is told", step.what)
		}
		for len(changed) > 0 {
			if got := <-changed; got != c.session {
				t.Errorf("%s: %q is told of, want %q", step.what, got, c.session)
			}
		}
	}
	show(live, func(v *Served) { v.Source = catalog{} })
	live.Sync()
	if len(changed) == 0 {
		t.Error("its tool is away, and nothing is told")
	}
}
