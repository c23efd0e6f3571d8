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
	Prefix      string // prefix of the exposed names of its tools; "" for none
	// Starting is the time since its first start, 0 for a server that has failed. How says what starts it ("npx")
	// or how it is reached ("HTTP").
	Starting time.Duration
	Listed   bool // its tools are known from an earlier run
	How      string
	Reason   string // why it failed
	Login    string // how to log in, if it waits for a login
	// Held counts its definitions that wait for approval. Such a server is reachable.
	Held int
}

// Bounds of what answers say of absent servers: bytes of a reason, number of servers.
const (
	maxReason = 200
	maxAbsent = 5
)

// String describes the server so that a model can act on it: "still starting: github (npx, 6 s)", "failed: linear:
// 401 Unauthorized".
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

// why is String without the server's name.
func (a Absent) why() string {
	if a.Starting > 0 {
		return fmt.Sprintf("still starting (%s, %d s)", a.How, int(a.Starting.Seconds()))
	}
	if a.Login != "" {
		return "needs login: " + rawjson.Clip(printable.Line(a.Login), maxReason)
	}
	return rawjson.Clip(printable.Line(a.Reason), maxReason)
}

// described returns a line for each absent server; nil without any.
func described(all []Absent) (lines []string) {
	for _, a := range all[:min(len(all), maxAbsent)] {
		lines = append(lines, a.String())
	}
	if more := len(all) - maxAbsent; more > 0 {
		lines = append(lines, fmt.Sprintf("and %d more", more))
	}
	return lines
}

// mayHave reports whether a name may belong to a tool of the server.
func (a Absent) mayHave(name string) bool {
	return a.Held == 0 && (strings.HasPrefix(name, a.Server+".") || strings.HasPrefix(name, a.Server+":") || a.Prefix != "" && strings.HasPrefix(name, a.Prefix+"_"))
}

// unknownBecause completes the error for an unknown name with the absent servers that may have it: the server whose
// name it begins with, else every server that is starting. It is "" if there is none.
func unknownBecause(all []Absent, name string) string {
	may := slices.DeleteFunc(slices.Clone(all), func(a Absent) bool { return !a.mayHave(name) })
	if len(may) == 0 {
		may = slices.DeleteFunc(slices.Clone(all), func(a Absent) bool { return a.Starting == 0 })
	}
	if len(may) == 0 {
		return ""
	}
	return "; " + strings.Join(described(may), "; ")
}
