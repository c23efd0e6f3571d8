package page

import (
	"cmp"
	"regexp"
	"slices"
	"strings"
)

// need is a server that needs somebody, with the steps that mend it.
type need struct {
	Upstream
	Steps []step
}

// step mends a server: a button, a link or a command, with a text before it.
type step struct {
	Text    string // what to do; "" if button or link say it
	Button  string // label of a button that sends Do to the server's page; "" for none
	Do      string
	Link    string // address of Label; "" for none
	Label   string
	Command string // to copy into a shell; "" for none
}

var (
	offPath    = regexp.MustCompile(`the command "([^"]+)" is not on the PATH`)
	unset      = regexp.MustCompile(`variable ([A-Za-z_][A-Za-z0-9_]*) is not set`)
	variable   = regexp.MustCompile(`\b[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+\b`)
	lacks      = regexp.MustCompile(`(?i)\b(?:set|required?|requires|missing|need(?:ed|s)?|provide|environment|undefined|must)\b`)
	refused    = regexp.MustCompile(`(?i)\b(?:401|403|unauthorized|forbidden)\b`)
	outOfTime  = regexp.MustCompile(`(?i)deadline exceeded|timed out|no answer|did not answer|timeout`)
	noDownload = regexp.MustCompile(`\b(?:ENOTFOUND|EAI_AGAIN|ETIMEDOUT|E404|ECONNREFUSED)\b`)
)

// maxVariables bounds the variables that a step names.
const maxVariables = 5

// sources say where the programs come from that most servers are started by.
var sources = map[string]string{
	"npx": "Install Node.js from nodejs.org", "node": "Install Node.js from nodejs.org", "npm": "Install Node.js from nodejs.org",
	"uvx": "Install uv from docs.astral.sh/uv", "uv": "Install uv from docs.astral.sh/uv",
	"docker": "Install Docker from docs.docker.com", "podman": "Install Podman from podman.io",
	"bunx": "Install Bun from bun.com", "bun": "Install Bun from bun.com", "deno": "Install Deno from deno.com",
	"python": "Install Python from python.org", "python3": "Install Python from python.org",
}

// needsOf returns the servers that need somebody, those that fail first. file is the name of the configuration file.
func needsOf(all []Upstream, file string, owner bool) (needs []need) {
	for _, s := range all {
		if s.State == StateDisabled || s.State == "ready" && s.Held == 0 {
			continue
		}
		needs = append(needs, need{s, stepsOf(s, file, owner)})
	}
	order := []string{"failed", "needs_login", "pending", "queued", "downloading", "ready"}
	slices.SortStableFunc(needs, func(a, b need) int {
		return cmp.Compare(slices.Index(order, a.State), slices.Index(order, b.State))
	})
	return needs
}

// stepsOf returns what mends a server, the likeliest step first.
func stepsOf(s Upstream, file string, owner bool) (steps []step) {
	switch s.State {
	case "needs_login":
		steps = append(steps, loginStep(s, owner)...)
	case "failed":
		steps = append(steps, mending(s, cmp.Or(file, "the configuration"), owner)...)
	}
	if s.Held > 0 {
		label := "Look at " + plural(s.Held, "changed definition")
		steps = append(steps, step{Link: "changes", Label: label})
	}
	return steps
}

func loginStep(s Upstream, owner bool) []step {
	switch {
	case s.MayLogIn:
		one := step{Button: "Log in", Do: "login"}
		if owner {
			one.Command = "toolfinch server login " + s.Name
		}
		return []step{one}
	case owner:
		return []step{{Text: "Everybody logs in alone (per_user), on this page with an API key of their own."}}
	}
	return []step{{Text: "The owner has to log in."}}
}

func mending(s Upstream, file string, owner bool) []step {
	restart := step{Button: "Restart", Do: "reconnect"}
	if !owner {
		return []step{restart}
	}
	words := s.Error + "\n" + strings.Join(s.Stderr, "\n")
	switch {
	case offPath.MatchString(s.Error):
		program := offPath.FindStringSubmatch(s.Error)[1]
		from := cmp.Or(sources[program], "Install "+program)
		restart.Text = from + ", or write its whole path into " + file + " as the command of " + s.Name + ". Then:"
	case unset.MatchString(s.Error):
		names := variablesIn(unset, s.Error)
		text := "Set " + names + " where toolfinch starts and start it again, or write the value into " + file + "."
		return []step{{Text: text}}
	case len(missing(words)) > 0:
		restart.Text = "Write " + strings.Join(missing(words), ", ") + " under env of " + s.Name + " in " + file + ": toolfinch takes an edit at once. If they are there:"
	case refused.MatchString(s.Error):
		restart.Text = "The server refuses the token: renew it under headers or env of " + s.Name + " in " + file + ". Then:"
	case noDownload.MatchString(words):
		restart.Text = "It could not reach the network. When that works:"
	case outOfTime.MatchString(s.Error):
		restart.Text = "It may need longer, for a download at its first start: connect_timeout: 2m under " + s.Name + " in " + file + ". Else:"
	}
	return []step{restart}
}

// missing returns the environment variables that a server says it lacks.
func missing(words string) (names []string) {
	for line := range strings.Lines(words) {
		if !lacks.MatchString(line) {
			continue
		}
		for _, name := range variable.FindAllString(line, -1) {
			if !slices.Contains(names, name) && len(names) < maxVariables {
				names = append(names, name)
			}
		}
	}
	return names
}

// variablesIn returns the first groups of all matches, joined.
func variablesIn(pattern *regexp.Regexp, text string) string {
	var names []string
	for _, match := range pattern.FindAllStringSubmatch(text, maxVariables) {
		if !slices.Contains(names, match[1]) {
			names = append(names, match[1])
		}
	}
	return strings.Join(names, ", ")
}
