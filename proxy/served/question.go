package served

import (
	"fmt"
	"strings"

	"toolfinch/internal/identity"
	"toolfinch/tool"
	"toolfinch/trust/policy"
)

// Ask asks policies about something of the view. The error is a *identity.FieldError.
func (v *View) Ask(policies *policy.Policies, q policy.Question) (policy.Verdict, error) {
	t, err := v.asked(q)
	if err != nil {
		return policy.Verdict{}, err
	}
	party, err := q.Party()
	if err != nil {
		return policy.Verdict{}, err
	}
	return q.Ask(policies, v.Request(party, t))
}

// asked finds what a question is about.
func (v *View) asked(q policy.Question) (*tool.Tool, error) {
	switch {
	case q.Tool != "":
		t, err := v.Find(q.Tool)
		if err == nil {
			return t, nil
		}
		hint := "toolfinch reindex asks the servers what they have"
		if near := v.Catalog.Nearest(q.Tool, 3); len(near) > 0 {
			hint = "nearest: " + strings.Join(near, ", ") + "; " + hint
		}
		return nil, &identity.FieldError{Text: fmt.Sprintf("the view knows no tool %q (%s)", q.Tool, hint)}
	case q.Prompt != "":
		if t, ok := v.Catalog.Prompt(q.Prompt); ok {
			return t, nil
		}
		return nil, &identity.FieldError{Text: fmt.Sprintf("the view knows no prompt %q", q.Prompt)}
	}
	if t, ok := v.Catalog.Resource(q.Resource); ok {
		return t, nil
	}
	return nil, &identity.FieldError{Text: fmt.Sprintf("no server of the view has the resource %q", q.Resource)}
}
