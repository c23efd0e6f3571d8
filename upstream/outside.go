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

// What this package says of a server passes through here: log lines, errors,
// health and log messages for clients. Values of the server's secrets, which it
// may repeat, are masked. Results of calls pass as they are.

// shown is an error with another text.
type shown struct {
	error
	text string
}

func (s shown) Error() string { return s.text }

func (s shown) Unwrap() error { return s.error }

const (
	masked = "***"
	// minSecret is how long a secret must be to be masked, in bytes: a shorter one
	// is a piece of too many words.
	minSecret = 5
)

// mask replaces the secrets of a server in texts.
type mask struct {
	login    *login.Server // masks tokens; nil where there are none
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
		if quoted, err := json.Marshal(secret); err == nil { // as JSON has it
			m.secrets = append(m.secrets, string(quoted[1:len(quoted)-1]))
		}
	}
	// Of two that begin at one place the longer one counts.
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

// json masks a JSON value, which is nil when a secret was not within a string.
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

// error is err as the caller of this package may see it.
func (m *mask) error(err error) error {
	switch e := err.(type) {
	case nil:
		return nil
	case *tool.RPCError:
		return &tool.RPCError{Code: e.Code, Message: m.text(e.Message), Data: m.json(e.Data), Raw: m.json(e.Raw)}
	case *Error:
		return &Error{Server: e.Server, Op: m.text(e.Op), Err: m.error(e.Err)}
	}
	return shown{err, m.text(err.Error())}
}

// fixed is error, with a text that costs nothing to read again.
func (m *mask) fixed(err error) error {
	if err = m.error(err); err == nil {
		return nil
	}
	return shown{err, err.Error()}
}

// change is a Change as it leaves the package.
func (m *mask) change(c Change) Change {
	c.Err = m.error(c.Err)
	c.Faults.Described = slices.Clone(c.Faults.Described)
	for i, fault := range c.Faults.Described {
		c.Faults.Described[i].Name, c.Faults.Described[i].Text = m.text(fault.Name), m.text(fault.Text)
	}
	return c
}

// logger masks what is logged with log.
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
