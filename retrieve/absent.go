package retrieve

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"toolfinch/internal/printable"
	"toolfinch/internal/rawjson"
)

// Absent is a server that cannot be called now, and why.
type Absent struct {
	Server      string
	Description string
	Prefix      string // what the exposed names of its tools begin with; "" for nothing
	// Starting is how long it has been starting for the first time, and How what it
	// is started with ("npx") or reached by ("HTTP"). 0 for one that has failed.
	Starting time.Duration
	Listed   bool // its tools are known from before
	How      string
	Reason   string // why it has failed
	Login    string // how to log in, where it waits for that
	// Held is how many of its definitions wait for approval. The server is there then.
	Held int
}

// Bounds, in bytes and servers, of what answers say of absent servers.
const (
	maxReason = 200
	maxAbsent = 5
)

// String says it in words that a model acts on: "still starting: github (npx, 6 s)",
// "failed: linear: 401 Unauthorized".
func (a Absent) String() string {
	switch {
	case a.Held > 0:
		return fmt.Sprintf("held: %d of what %s has, new or changed by the server, until the user approves: toolfinch pins", a.Held, a.Server)
	case a.Starting > 0:
		return "still starting: " + a.Server + strings.TrimPrefix(a.why(), "still starting")
	case a.Login != "":
		return "needs login: " + a.Server + strings.TrimPrefix(a.why(), "needs login")
	}
	return "failed: " + a.Server + ": " + a.why()
}

// why is String without the name of the server.
func (a Absent) why() string {
	if a.Starting > 0 {
		return fmt.Sprintf("still starting (%s, %d s)", a.How, int(a.Starting.Seconds()))
	}
	if a.Login != "" {
		return "needs login: " + rawjson.Clip(printable.Line(a.Login), maxReason)
	}
	return rawjson.Clip(printable.Line(a.Reason), maxReason)
}

// described says of each which server is absent and why; nil without any.
func described(all []Absent) (lines []string) {
	for _, a := range all[:min(len(all), maxAbsent)] {
		lines = append(lines, a.String())
	}
	if more := len(all) - maxAbsent; more > 0 {
		lines = append(lines, fmt.Sprintf("and %d more", more))
	}
	return lines
}

// has reports whether a name may be that of a tool of the server.
func (a Absent) has(name string) bool {
	return a.Held == 0 && (strings.HasPrefix(name, a.Server+".") || strings.HasPrefix(name, a.Server+":") || a.Prefix != "" && strings.HasPrefix(name, a.Prefix+"_"))
}

// unknownBecause says after the error for an unknown name which servers are not
// there that may have it: the one whose name it begins with, else those that are
// starting. It is "" if that explains nothing.
func unknownBecause(all []Absent, name string) string {
	may := slices.DeleteFunc(slices.Clone(all), func(a Absent) bool { return !a.has(name) })
	if len(may) == 0 {
		may = slices.DeleteFunc(slices.Clone(all), func(a Absent) bool { return a.Starting == 0 })
	}
	if len(may) == 0 {
		return ""
	}
	return "; " + strings.Join(described(may), "; ")
}
