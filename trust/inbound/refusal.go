package inbound

import (
	"net/http"
	"sync/atomic"
	"time"
)

// Reason is why a request was refused, or the kind of proof that admitted it. It is a label of metrics.
type Reason string

// The reasons.
const (
	ByKey    Reason = "key"
	ByToken  Reason = "token"
	ByOpaque Reason = "opaque_token"
	ByProxy  Reason = "principal_header"

	NoCredentials Reason = "no_credentials"
	BadRequest    Reason = "bad_request" // credentials in the query, repeated, or of an unknown form
	UnknownKey    Reason = "unknown_key"
	Expired       Reason = "expired"
	NotYet        Reason = "not_yet_valid"
	Malformed     Reason = "malformed"
	WrongAlg      Reason = "wrong_algorithm"
	WrongIssuer   Reason = "wrong_issuer"
	WrongAudience Reason = "wrong_audience"
	WrongKey      Reason = "wrong_signature" // or the issuer has no such key
	WrongClaims   Reason = "wrong_claims"
	Inactive      Reason = "inactive"
	WrongView     Reason = "wrong_view"
	NoScope       Reason = "insufficient_scope"
	TooMany       Reason = "too_many_failures"
	Unavailable   Reason = "unavailable" // the issuer or the store cannot be reached
)

// Accepted and Refused are all reasons.
var (
	Accepted = []Reason{ByKey, ByToken, ByOpaque, ByProxy}
	Refused  = []Reason{
		NoCredentials, BadRequest, UnknownKey, Expired, NotYet, Malformed, WrongAlg, WrongIssuer, WrongAudience, WrongKey,
		WrongClaims, Inactive, WrongView, NoScope, TooMany, Unavailable,
	}
)

// counts has the number of requests for each reason.
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

// refusal describes the answer to a refused request.
type refusal struct {
	status int
	reason Reason
	words  string // message for the client
	code   string // error of WWW-Authenticate (RFC 6750), "" for none
	scope  string // scope of WWW-Authenticate, "" for the default
	wait   time.Duration
}

func invalid(reason Reason, words string) *refusal {
	return &refusal{status: http.StatusUnauthorized, reason: reason, words: words, code: "invalid_token"}
}

func unavailable(words string) *refusal {
	return &refusal{status: http.StatusServiceUnavailable, reason: Unavailable, words: words + ": try again later", wait: 5 * time.Second}
}
