package identity

import (
	"context"
	"fmt"
	"strings"
)

// ScopeError refuses an operation for which the principal lacks a scope. Its text is for
// the client, and for a model.
type ScopeError struct {
	Operation string   // what was refused, as in "calling github_create_issue"
	Needed    string   // a scope that suffices, "" where there is none
	Ask       []string // the scopes to ask for, that one and those that the principal has
	Key       bool     // the principal is an API key, whose scopes do not change
}

func (e *ScopeError) Error() string {
	if e.Needed == "" {
		return e.Operation + " is not allowed here: the configuration has no scope for it (auth.scopes)"
	}
	how := fmt.Sprintf("log in again and ask for the scopes %q", strings.Join(e.Ask, " "))
	if e.Key {
		how = "use another API key, which has it"
	}
	return fmt.Sprintf("%s needs the scope %q, which was not granted: %s", e.Operation, e.Needed, how)
}

type challengeKey struct{}

// WithChallenge returns a context of HTTP requests that were let in. challenge makes the
// value of WWW-Authenticate for one that lacks a scope after all.
func WithChallenge(ctx context.Context, challenge func(*ScopeError) string) context.Context {
	return context.WithValue(ctx, challengeKey{}, challenge)
}

// Challenge is the value of WWW-Authenticate for the answer, with status 403, to the HTTP
// request of a context; "" where it was not let in by its scopes.
func Challenge(ctx context.Context, e *ScopeError) string {
	if challenge, ok := ctx.Value(challengeKey{}).(func(*ScopeError) string); ok {
		return challenge(e)
	}
	return ""
}
