package audit

import (
	"cmp"
	"encoding/json"
	"strings"
	"time"

	"toolfinch/internal/identity"
	"toolfinch/internal/printable"
	"toolfinch/internal/rawjson"
)

// Line is one event in the log. It has more than 25 fields: each is a member of the JSON line.
type Line struct {
	Time time.Time `json:"time"`
	PID  int       `json:"pid"` // of the writing process
	// Replica is the name and ID of the writing replica; "" for a single process.
	Replica string `json:"replica,omitempty"`

	Event string `json:"event"` // a kind of package identity
	// Call is equal in both lines of a call that may change something: the first has the outcome identity.Begun.
	Call      string     `json:"call,omitempty"`
	Principal *Principal `json:"principal,omitempty"`
	Client    *Client    `json:"client,omitempty"`
	// Session is a digest, because the ID would let a reader take over the session.
	Session     string       `json:"session,omitempty"`
	Request     string       `json:"request,omitempty"` // the JSON-RPC ID, as sent
	Depth       int          `json:"depth,omitempty"`   // nesting depth of a call inside another call
	View        string       `json:"view,omitempty"`
	Server      string       `json:"server,omitempty"`
	Tool        string       `json:"tool,omitempty"` // the ID: server.name
	Name        string       `json:"name,omitempty"` // the client's name for the tool
	DefHash     string       `json:"def_hash,omitempty"`
	Annotations *Annotations `json:"annotations,omitempty"`
	Decision    *Decision    `json:"decision,omitempty"`
	Outcome     string       `json:"outcome"`
	Reason      string       `json:"reason,omitempty"`
	DurationMS  float64      `json:"duration_ms,omitempty"`
	BytesIn     int          `json:"bytes_in,omitempty"`  // of the arguments
	BytesOut    int          `json:"bytes_out,omitempty"` // of the result
	// ArgsSHA256 is the hash of the arguments, as sent.
	ArgsSHA256 string            `json:"args_sha256,omitempty"`
	Args       json.RawMessage   `json:"args,omitempty"`
	Result     json.RawMessage   `json:"result,omitempty"`
	SourceIP   string            `json:"source_ip,omitempty"`
	Transport  string            `json:"transport,omitempty"`
	Era        string            `json:"era,omitempty"`
	Details    map[string]string `json:"details,omitempty"`
}

// Principal is the principal that caused an event.
type Principal struct {
	ID     string   `json:"id"`
	Groups []string `json:"groups,omitempty"`
}

// Client is the program that caused an event, as it states.
type Client struct {
	Name    string `json:"name"`
	Version string `json:"version,omitempty"`
}

// Annotations are a tool's annotations, with the defaults of the MCP specification.
type Annotations struct {
	ReadOnly    bool `json:"read_only"`
	Destructive bool `json:"destructive"`
	Idempotent  bool `json:"idempotent"`
	OpenWorld   bool `json:"open_world"`
}

// Decision is the decision about a call.
type Decision struct {
	Allow  bool   `json:"allow"`
	Policy string `json:"policy,omitempty"`
}

// Bounds of texts from outside, in bytes.
const (
	maxName    = 256
	maxReason  = 500
	maxContent = 4 << 10 // of arguments and results
	maxDetails = 32      // members
)

func (l *Line) bound() {
	for _, text := range []*string{&l.Session, &l.Request, &l.View, &l.Server, &l.Tool, &l.Name, &l.DefHash, &l.SourceIP, &l.Transport, &l.Outcome} {
		*text = rawjson.Clip(*text, maxName)
	}
	l.Reason = rawjson.Clip(l.Reason, maxReason)
	if p := l.Principal; p != nil {
		l.Principal = &Principal{ID: rawjson.Clip(p.ID, 1024), Groups: clipped(p.Groups)}
	}
	if c := l.Client; c != nil {
		l.Client = &Client{Name: rawjson.Clip(c.Name, maxName), Version: rawjson.Clip(c.Version, maxName)}
	}
	if l.Decision != nil {
		l.Decision.Policy = rawjson.Clip(l.Decision.Policy, maxName)
	}
	if len(l.Details) > 0 {
		details := make(map[string]string, len(l.Details))
		for name, value := range l.Details {
			if len(details) < maxDetails {
				details[rawjson.Clip(name, maxName)] = rawjson.Clip(value, maxReason)
			}
		}
		l.Details = details
	}
}

func clipped(texts []string) []string {
	const most = 32
	out := make([]string, 0, min(len(texts), most))
	for _, text := range texts[:min(len(texts), most)] {
		out = append(out, rawjson.Clip(text, maxName))
	}
	return out
}

// encode returns the line with its line break.
func (l *Line) encode() ([]byte, error) {
	body, err := json.Marshal(l)
	if err != nil {
		return nil, err
	}
	return append(printable.JSON(body), '\n'), nil
}

// parse reads a line without its line break; ok is false for text that is no line.
func parse(text []byte) (l Line, ok bool) {
	return l, json.Unmarshal(text, &l) == nil && !l.Time.IsZero() && l.Event != ""
}

func lineOf(e identity.Event) Line {
	l := Line{
		Event: e.Kind, Session: identity.Digest(e.Session), View: e.View, Server: e.Server, Tool: e.Tool, DefHash: e.DefHash,
		Outcome: e.Outcome, Reason: e.Reason, Details: e.Details, Client: ClientOf(e.Client), DurationMS: float64(e.Took.Milliseconds()),
	}
	l.Outcome = cmp.Or(l.Outcome, identity.Success)
	if e.Principal != "" {
		l.Principal = &Principal{ID: e.Principal}
	}
	return l
}

// ClientOf returns the client with the name "name version"; nil for "".
func ClientOf(named string) *Client {
	if named == "" {
		return nil
	}
	if i := strings.LastIndexByte(named, ' '); i > 0 {
		return &Client{Name: named[:i], Version: named[i+1:]}
	}
	return &Client{Name: named}
}
