package inbound

import (
	"net/http"
	"sync/atomic"
	"time"
)

// Reason is why a request was refused, or by what it was let in: a label of metrics.
type Reason string

// The reasons.
const (
	ByKey    Reason = "key"
	ByToken  Reason = "token"
	ByOpaque Reason = "opaque_token"
	ByProxy  Reason = "principal_header"

	NoCredentials Reason = "no_credentials"
	BadRequest    Reason = "bad_request" // credentials in the query, twice, or in no form that is known
	UnknownKey    Reason = "unknown_key"
	Expired       Reason = "expired"
	NotYet        Reason = "not_yet_valid"
	Malformed     Reason = "malformed"
	WrongAlg      Reason = "wrong_algorithm"
	WrongIssuer   Reason = "wrong_issuer"
	WrongAudience Reason = "wrong_audience"
	WrongKey      Reason = "wrong_signature" // or of a key that the issuer does not have
	WrongClaims   Reason = "wrong_claims"
	Inactive      Reason = "inactive"
	WrongView     Reason = "wrong_view"
	NoScope       Reason = "insufficient_scope"
	TooMany       Reason = "too_many_failures"
	Unavailable   Reason = "unavailable" // the issuer or the store cannot be asked
)

// Accepted and Refused are all reasons there are.
var (
	Accepted = []Reason{ByKey, ByToken, ByOpaque, ByProxy}
	Refused  = []Reason{
		NoCredentials, BadRequest, UnknownKey, Expired, NotYet, Malformed, WrongAlg, WrongIssuer, WrongAudience, WrongKey,
		WrongClaims, Inactive, WrongView, NoScope, TooMany, Unavailable,
	}
)

// counts is how often each reason was given.
type counts map[Reason]*atomic.Int64

func newCounts() counts {
	c := counts{}
	for _, reasons := range [][]Reason{Accepted, Refused} {
		for _, reason := range reasons {
			c[reason] = &atomic.Int64{}
		}
	}
	return c
}

// refusal is why a request is not let in.
type refusal struct {
	status int
	reason Reason
	words  string // for the client
	code   string // error of WWW-Authenticate (RFC 6750), "" for none
	scope  string // of WWW-Authenticate, "" for the usual
	wait   time.Duration
}

func invalid(reason Reason, words string) *refusal {
	return &refusal{status: http.StatusUnauthorized, reason: reason, words: words, code: "invalid_token"}
}

func unavailable(words string) *refusal {
	return &refusal{status: http.StatusServiceUnavailable, reason: Unavailable, words: words + ": try again later", wait: 5 * time.Second}
}
