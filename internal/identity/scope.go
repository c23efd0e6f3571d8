package identity

import (
	"context"
	"fmt"
	"strings"
)

// ScopeError refuses an operation for which the principal lacks a scope. Its text is for
// the client, and for a model.
type ScopeError struct {
	Operation string   // the refused operation, such as "calling github_create_issue"
	Needed    string   // a sufficient scope, "" if there is none
	Ask       []string // the scopes to ask for: Needed, and the scopes that the principal has
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

// WithChallenge returns a context of admitted HTTP requests. challenge makes the value of WWW-Authenticate for a
// request that lacks a scope after its admission.
func WithChallenge(ctx context.Context, challenge func(*ScopeError) string) context.Context {
	return context.WithValue(ctx, challengeKey{}, challenge)
}

// Challenge returns the value of WWW-Authenticate for an answer with status 403 to the HTTP request of a context; ""
// if no scopes are configured.
func Challenge(ctx context.Context, e *ScopeError) string {
	if challenge, ok := ctx.Value(challengeKey{}).(func(*ScopeError) string); ok {
		return challenge(e)
	}
	return ""
}
