package page

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"toolfinch/internal/identity"
	"toolfinch/tool"
	"toolfinch/trust/pins"
)

// Choice is a definition that the user decides, in the version that the page has shown.
type Choice struct {
	ID   string // server.name
	Hash string // hash of the pins.Held
}

// HeldServer is a server with waiting or rejected definitions.
type HeldServer struct {
	Name     string
	Mode     pins.Mode // what happens to definitions that the server changes
	Versions string    // "1.2 to 1.3": the server's version at the last approval, and now; "" if they are equal
	Reports  []pins.Report
}

// deciding is the Backend of the screen Changes.
type deciding interface {
	// Waiting returns the held and rejected definitions that the user may use, by server. may is an error unless the
	// user may decide.
	Waiting(ctx context.Context) (all []HeldServer, may error, err error)
	// Decided approves or rejects the chosen definitions, and returns when this is served. The user is shown the error.
	// It wraps ErrNotShown if a definition is not held in the chosen version.
	Decided(ctx context.Context, approve bool, chosen []Choice) error
}

// ErrNotShown is wrapped by the error for a definition that is not held in the version that the page has shown.
var ErrNotShown = errors.New("it is not what you have seen: it changed again, or was decided elsewhere. Nothing was decided; look once more")

var changesScreen = &screen{Path: "changes", title: "Changes", Menu: "Changes", file: "changes.html", show: showChanges, do: doChanges, badge: changesBadge}

// changesBadge counts the held definitions.
func changesBadge(q *request) badge {
	held := 0
	for _, s := range q.server.Backend.Servers(q.Context()) {
		held += s.Held
	}
	return badge{held, plural(held, "definition") + " held"}
}

// changes is the data of the template.
type changes struct {
	Servers []heldServer
	Why     string // why the user may not decide
	N       int    // number of waiting definitions
	Pager   pager  // pages of waiting and rejected definitions
}

// heldServer is a server with its waiting and rejected definitions on the shown page.
type heldServer struct {
	HeldServer
	Waiting, Rejected []held
	Warned            int  // waiting definitions with warnings
	More              bool // more definitions wait on other pages
}

// held is a definition that waits or was rejected.
type held struct {
	pins.Report
	Fields []field
}

// Value is the form value that names the definition. The ID is escaped, because browsers change line breaks and
// revealed changes hidden characters.
func (h held) Value() string { return h.Hash + " " + url.PathEscape(h.ID.String()) }

// Anchor is the definition's HTML id. It has the server, because servers may have the same definition.
func (h held) Anchor() string {
	return "held-" + identity.Digest(strings.Join([]string{h.Hash, string(h.ID.Kind), h.ID.String()}, "\n"))
}

// Label is the definition's name, with the kind unless it is a tool.
func (h held) Label() string {
	if kind := h.ID.Kind.String(); kind != h.ID.Name && kind != "tool" {
		return h.ID.Name + " (" + kind + ")"
	}
	return h.ID.Name
}

// Word says what happened to the definition.
func (h held) Word() string {
	if h.New() {
		return "new"
	}
	return "changed"
}

// Whole is the definition as the server lists it now, indented.
func (h held) Whole() string {
	if h.ID.Kind == tool.KindInstructions {
		return string(h.Raw)
	}
	return indented(h.Raw)
}

// field is a changed member of a definition, before and after the change.
type field struct {
	Name          string
	Before, After []pins.Piece // pieces with the sign ' ' are in both
	Was, Is       bool         // the member exists
}

func fieldsOf(r pins.Report) (all []field) {
	for _, change := range r.Changes() {
		f := field{Name: change.Field, Was: change.Before != nil, Is: change.After != nil}
		for _, piece := range change.Words() {
			if piece.Sign != '+' {
				f.Before = append(f.Before, piece)
			}
			if piece.Sign != '-' {
				f.After = append(f.After, piece)
			}
		}
		all = append(all, f)
	}
	return all
}

func showChanges(q *request) (any, error) {
	all, may, err := q.server.Backend.Waiting(q.Context())
	if err != nil {
		return nil, err
	}
	offset, _ := strconv.Atoi(q.URL.Query().Get("offset"))
	c := partOf(all, offset)
	if may != nil {
		c.Why = may.Error()
	}
	return c, nil
}

// partOf returns the page of the list that contains offset.
func partOf(all []HeldServer, offset int) (c changes) {
	c.Pager = pager{Limit: perPage, link: "changes"}
	for _, server := range all {
		c.Pager.Total += len(server.Reports)
	}
	c.Pager.Offset = min(max(offset, 0), max(c.Pager.Total-1, 0)/perPage*perPage)
	n, parts := 0, make([]heldServer, len(all))
	for _, rejected := range []bool{false, true} { // waiting definitions come first
		for i, server := range all {
			one := &parts[i]
			one.HeldServer = server
			for _, r := range server.Reports {
				if r.WasRejected() != rejected {
					continue
				}
				shown := c.Pager.Offset <= n && n < c.Pager.Last()
				n++
				switch {
				case rejected && shown:
					one.Rejected = append(one.Rejected, held{r, fieldsOf(r)})
				case shown:
					one.Waiting = append(one.Waiting, held{r, fieldsOf(r)})
					if len(r.Warnings) > 0 {
						one.Warned++
					}
				case !rejected:
					one.More = true
				}
			}
		}
		if !rejected {
			c.N = n
		}
	}
	c.Servers = slices.DeleteFunc(parts, func(one heldServer) bool { return len(one.Waiting)+len(one.Rejected) == 0 })
	return c
}

func doChanges(q *request) (answer, error) {
	// "approve one HASH ID" decides one definition, "approve ticked" the ticked ones, "approve all" all shown ones.
	if q.PostForm.Get("do") == "nothing" { // Enter was pressed in a check box
		q.say(good, "nothing was decided: press one of the buttons")
		return answer{}, nil
	}
	do, which, _ := strings.Cut(q.PostForm.Get("do"), " ")
	which, one, _ := strings.Cut(which, " ")
	if do != "approve" && do != "reject" {
		return answer{}, refusef(http.StatusBadRequest, "this page approves and rejects")
	}
	var values []string
	switch which {
	case "one":
		values = []string{one}
	case "ticked":
		values = q.PostForm["tick"]
		if len(values) == 0 {
			return answer{}, errors.New("nothing is ticked: nothing was decided")
		}
	case "all":
		values = q.PostForm["shown"]
	}
	if len(values) == 0 {
		return answer{}, refusef(http.StatusBadRequest, "nothing was chosen")
	}
	var chosen []Choice
	for _, value := range values {
		hash, escaped, _ := strings.Cut(value, " ")
		id, err := url.PathUnescape(escaped)
		if err != nil {
			return answer{}, refusef(http.StatusBadRequest, "what was chosen is not of this page")
		}
		chosen = append(chosen, Choice{id, hash})
	}
	if err := q.server.Backend.Decided(q.Context(), do == "approve", chosen); err != nil {
		return answer{}, err
	}
	what := chosen[0].ID
	if len(chosen) > 1 {
		what = plural(len(chosen), "definition")
	}
	past := map[string]string{"approve": "approved", "reject": "rejected"}[do]
	q.say(good, fmt.Sprintf("%s: %s", past, what))
	return answer{to: "changes" + query(q)}, nil
}
