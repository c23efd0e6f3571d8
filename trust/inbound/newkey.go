package inbound

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"toolfinch/internal/identity"
	"toolfinch/internal/nearest"
)

// KeyRequest describes an API key to make.
type KeyRequest struct {
	Name           string
	View           string // the only view that the key opens; "" for all
	Scopes, Groups []string
	Lasts          string // a number of days like 30d, or a time.Duration; "": for ever
}

// Make makes the key: its text, which is not stored, and its stored form. views are the names of all views. The error
// is a *identity.FieldError.
func (k KeyRequest) Make(settings Settings, views []string, now time.Time) (text string, key identity.Key, err error) {
	if err := CheckKeyName(k.Name); err != nil {
		return "", key, &identity.FieldError{Text: err.Error()}
	}
	lasts, err := k.lasts()
	if err != nil {
		return "", key, err
	}
	if err := k.checkView(views); err != nil {
		return "", key, err
	}
	if err := k.checkScopes(settings); err != nil {
		return "", key, err
	}
	text, hash := NewKey()
	key = identity.Key{Name: k.Name, ID: identity.NewKeyID(k.Name), Hash: hash, View: k.View, Scopes: sortedOnce(k.Scopes), Groups: sortedOnce(k.Groups), Created: now}
	if lasts > 0 {
		key.Expires = now.Add(lasts)
	}
	return text, key, nil
}

func (k KeyRequest) lasts() (lasts time.Duration, err error) {
	if k.Lasts == "" {
		return 0, nil
	}
	lasts, err = time.ParseDuration(k.Lasts)
	if days, is := strings.CutSuffix(k.Lasts, "d"); is {
		var n int
		n, err = strconv.Atoi(days)
		lasts = time.Duration(n) * 24 * time.Hour
	}
	const most = 100 * 365 * 24 * time.Hour
	if err != nil || lasts <= 0 || lasts > most {
		return 0, &identity.FieldError{Field: "expires", Text: fmt.Sprintf(" must be a time like 30d or 12h, not %q", k.Lasts)}
	}
	return lasts, nil
}

// checkView refuses an unknown view: the key would open nothing.
func (k KeyRequest) checkView(views []string) error {
	if k.View == "" || slices.Contains(views, k.View) {
		return nil
	}
	if near := nearest.Names(k.View, views, 1, nearest.Loose); len(near) > 0 {
		return &identity.FieldError{Field: "view", Text: fmt.Sprintf(": there is no view %q; did you mean %s?", k.View, near[0])}
	}
	return &identity.FieldError{Field: "view", Text: fmt.Sprintf(": there is no view %q in tool_views", k.View)}
}

// checkScopes refuses unknown scopes, and a key without scopes if the configuration has some.
func (k KeyRequest) checkScopes(settings Settings) error {
	var known []string
	for _, scope := range settings.Scopes {
		known = append(known, scope.Name)
	}
	if len(known) > 0 && len(k.Scopes) == 0 {
		return &identity.FieldError{Field: "scope", Text: " is needed, as the configuration has auth.scopes: " + strings.Join(known, ", ")}
	}
	for _, scope := range k.Scopes {
		if len(known) > 0 && !slices.Contains(known, scope) {
			return &identity.FieldError{Field: "scope", Text: fmt.Sprintf(": auth.scopes has no %q; there are %s", scope, strings.Join(known, ", "))}
		}
	}
	return nil
}

func sortedOnce(names []string) []string {
	names = slices.Clone(names)
	slices.Sort(names)
	return slices.Compact(names)
}
