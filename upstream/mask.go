package upstream

import (
	"context"
	"encoding/json"
	"log/slog"
	"slices"
	"strings"

	"toolfinch/tool"
	"toolfinch/upstream/login"
)

// All texts about a server leave this package through its mask: log lines, errors,
// health and log messages for clients. A server may repeat its secrets, so the mask
// replaces them. Results of calls are not masked.

// maskedError is an error with its text masked.
type maskedError struct {
	error
	text string
}

func (s maskedError) Error() string { return s.text }

func (s maskedError) Unwrap() error { return s.error }

// Brief returns err with the text of Reason: the server's words are for the owner.
func Brief(err error) error {
	if err == nil || Reason(err) == err.Error() {
		return err
	}
	return maskedError{err, Reason(err)}
}

const (
	masked = "***"
	// minSecret is the least length in bytes of a secret that is masked: shorter secrets
	// are parts of too many words.
	minSecret = 5
)

// mask replaces a server's secrets in texts.
type mask struct {
	login    *login.Server // masks tokens; nil for a server without a login
	secrets  []string
	replacer *strings.Replacer
}

func newMask(secrets []string) *mask {
	m := &mask{}
	for _, secret := range secrets {
		if len(secret) < minSecret {
			continue
		}
		m.secrets = append(m.secrets, secret)
		if quoted, err := json.Marshal(secret); err == nil { // the secret as JSON writes it
			m.secrets = append(m.secrets, string(quoted[1:len(quoted)-1]))
		}
	}
	// The replacer prefers the first of two secrets that begin at the same byte.
	slices.SortFunc(m.secrets, func(a, b string) int { return len(b) - len(a) })
	pairs := make([]string, 0, 2*len(m.secrets))
	for _, secret := range m.secrets {
		pairs = append(pairs, secret, masked)
	}
	m.replacer = strings.NewReplacer(pairs...)
	return m
}

func (m *mask) text(s string) string {
	s = m.login.Mask(s)
	if !slices.ContainsFunc(m.secrets, func(secret string) bool { return strings.Contains(s, secret) }) {
		return s
	}
	return m.replacer.Replace(s)
}

// json masks a JSON value. The result is nil if masking breaks the JSON, because a secret
// was outside a string.
func (m *mask) json(raw json.RawMessage) json.RawMessage {
	out := m.text(string(raw))
	switch {
	case out == string(raw):
		return raw
	case !json.Valid([]byte(out)):
		return nil
	}
	return json.RawMessage(out)
}

// error returns err as callers of this package may see it.
func (m *mask) error(err error) error {
	switch e := err.(type) {
	case nil:
		return nil
	case *tool.RPCError:
		return &tool.RPCError{Code: e.Code, Message: m.text(e.Message), Data: m.json(e.Data), Raw: m.json(e.Raw)}
	case *Error:
		return &Error{Server: e.Server, Op: m.text(e.Op), Err: m.error(e.Err)}
	}
	return maskedError{err, m.text(err.Error())}
}

// fixed returns error(err) with its text computed once.
func (m *mask) fixed(err error) error {
	if err = m.error(err); err == nil {
		return nil
	}
	return maskedError{err, err.Error()}
}

// change returns a Change as it leaves the package.
func (m *mask) change(c Change) Change {
	c.Err = m.error(c.Err)
	c.Faults.Described = slices.Clone(c.Faults.Described)
	for i, fault := range c.Faults.Described {
		c.Faults.Described[i].Name, c.Faults.Described[i].Text = m.text(fault.Name), m.text(fault.Text)
	}
	return c
}

// logger returns a logger that masks lines and passes them to log.
func (m *mask) logger(log *slog.Logger) *slog.Logger {
	return slog.New(maskingHandler{log.Handler(), m})
}

type maskingHandler struct {
	slog.Handler
	mask *mask
}

func (h maskingHandler) Handle(ctx context.Context, record slog.Record) error {
	out := slog.NewRecord(record.Time, record.Level, h.mask.text(record.Message), record.PC)
	record.Attrs(func(a slog.Attr) bool {
		out.AddAttrs(h.attr(a))
		return true
	})
	return h.Handler.Handle(ctx, out)
}

func (h maskingHandler) attr(a slog.Attr) slog.Attr {
	switch value := a.Value.Resolve(); value.Kind() {
	case slog.KindString:
		a.Value = slog.StringValue(h.mask.text(value.String()))
	case slog.KindAny:
		err, ok := value.Any().(error)
		if ok {
			a.Value = slog.StringValue(h.mask.text(err.Error()))
		} else if text := value.String(); h.mask.text(text) != text {
			a.Value = slog.StringValue(h.mask.text(text))
		}
	}
	return a
}

func (h maskingHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	own := make([]slog.Attr, len(attrs))
	for i, a := range attrs {
		own[i] = h.attr(a)
	}
	return maskingHandler{h.Handler.WithAttrs(own), h.mask}
}

func (h maskingHandler) WithGroup(name string) slog.Handler {
	return maskingHandler{h.Handler.WithGroup(name), h.mask}
}
