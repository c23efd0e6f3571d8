package cluster

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	"toolfinch/trust"
)

// Headers between replicas. Those of clients with such a name are dropped.
const (
	headerPrefix = "Toolfinch-"
	// headerCarried has what a replica that hands a request on knows of it.
	headerCarried = headerPrefix + "Carried"
	// headerAnswer says what an answer is that is no answer for the client.
	headerAnswer = headerPrefix + "Answer"
	// headerLacks has the scope that the client lacks.
	headerLacks = headerPrefix + "Lacks"
)

// Values of headerAnswer.
const (
	answerElsewhere = "elsewhere" // the session is not here
	answerOther     = "other"     // the replica that was asked for is not here any more
)

// carried is what goes with a request from the replica that a client came to: who makes it and
// where it comes from, which was proved there.
type carried struct {
	To        string           `json:"to"`             // ID of the replica that is to answer
	Pass      bool             `json:"pass,omitempty"` // it is to adopt the session, or to open one
	Principal *trust.Principal `json:"principal,omitempty"`
	From      *trust.Source    `json:"from,omitempty"`
	Scopes    bool             `json:"scopes,omitempty"` // the client is told which scope it lacks
}

// carry returns what of the request of a context goes with it, as a header.
func carry(ctx context.Context, to string, pass bool) string {
	c := carried{To: to, Pass: pass, Principal: trust.PrincipalOf(ctx), Scopes: trust.Challenges(ctx)}
	if from, ok := trust.SourceOf(ctx); ok {
		c.From = &from
	}
	text, _ := json.Marshal(c) // never fails
	return base64.RawStdEncoding.EncodeToString(text)
}

type carriedKey struct{}

// Inside serves requests that other replicas hand on, as if their clients had come here. The
// other side has proved that it is a replica.
func (h *Homes) Inside(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var c carried
		text, err := base64.RawStdEncoding.DecodeString(r.Header.Get(headerCarried))
		if err == nil {
			err = json.Unmarshal(text, &c)
		}
		if err != nil {
			http.Error(w, fmt.Sprintf("the header %s cannot be read: this replica and the one that sent it may be of versions that do not go together", headerCarried), http.StatusBadRequest)
			return
		}
		if c.To != h.me.ID {
			refuse(w, answerOther)
			return
		}
		ctx := context.WithValue(trust.WithPrincipal(r.Context(), c.Principal), carriedKey{}, c)
		if c.From != nil {
			ctx = trust.WithSource(ctx, *c.From)
		}
		if c.Scopes {
			ctx = trust.WithChallenge(ctx, func(lacks *trust.ScopeError) string {
				text, _ := json.Marshal(lacks) // never fails
				w.Header().Set(headerLacks, base64.RawStdEncoding.EncodeToString(text))
				return "Bearer" // what is said in its place is made where the client is
			})
		}
		r = r.WithContext(ctx)
		r.Header.Del(headerCarried)
		next.ServeHTTP(handed{w}, r)
	})
}

// handed is a ResponseWriter without deadlines: whoever handed the request on bounds how long its
// client takes.
type handed struct{ http.ResponseWriter }

// FlushError is for http.ResponseController.
func (h handed) FlushError() error { return http.NewResponseController(h.ResponseWriter).Flush() }

// refuse answers a replica whose request is not for this one.
func refuse(w http.ResponseWriter, why string) {
	w.Header().Set(headerAnswer, why)
	w.WriteHeader(http.StatusMisdirectedRequest)
}

// uncarry turns the answer of another replica into one for the client of a request.
func uncarry(ctx context.Context, header http.Header) {
	if sent := header.Get(headerLacks); sent != "" {
		var lacks trust.ScopeError
		text, err := base64.RawStdEncoding.DecodeString(sent)
		if err == nil && json.Unmarshal(text, &lacks) == nil {
			header.Set("WWW-Authenticate", trust.Challenge(ctx, &lacks))
		}
	}
	dropOwn(header)
}

// dropOwn removes what only replicas say.
func dropOwn(header http.Header) {
	for name := range header {
		if strings.HasPrefix(name, headerPrefix) {
			delete(header, name)
		}
	}
}
