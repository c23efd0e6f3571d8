package index

import (
	"slices"
	"testing"
)

func TestAddresses(t *testing.T) {
	for word, want := range map[string]struct{ kind, words string }{
		"https://github.com/a/b/issues/5": {addressURL, "github"},
		"www.nytimes.com":                 {addressURL, "nytimes"},
		"example.org/page?x=1":            {addressURL, "example"},
		"localhost:8080/login":            {addressURL, "localhost:8080"},
		"amaz0n.com.":                     {addressURL, "amaz0n"},
		"me@example.com,":                 {addressEmail, ""},
		"mailto:me@example.com":           {addressEmail, ""},
		"203.0.113.7":                     {addressIP, ""},
		"10.0.0.0/8":                      {addressIP, ""},
		"/root/notes/trip.md":             {addressFile, "md"},
		"src/main.go:":                    {addressFile, "go"},
		"`config.yaml`":                   {addressFile, "yaml"},
		`C:\notes\trip.txt`:               {addressFile, "txt"},
		"*.log":                           {addressFile, "log"},
		"~/report.pdf.":                   {addressDocument, "pdf"},
		"sheet.xlsx":                      {addressDocument, "xlsx"},
		"/etc/hosts":                      {addressFolder, ""},
		"src/":                            {addressFolder, ""},
		"./build":                         {addressFolder, ""},
		"Node.js":                         {},
		"v1.2":                            {},
		"e.g.":                            {},
		"and/or":                          {},
		"owner/repo":                      {},
		"@scope":                          {},
		"github.create_issue":             {},
		"3.14":                            {},
		"example.in,":                     {addressURL, "example"},
		"built-in":                        {},
		"/":                               {},
		"":                                {},
	} {
		if kind, words := address(word); kind != want.kind || words != want.words {
			t.Errorf("%q is of kind %q with the words %q, want %+v", word, kind, words, want)
		}
	}
}

// What a query says is found where it means something else than its words.
func TestWhatIsMeantIsFound(t *testing.T) {
	x := build(t,
		doc(t, "files", "read_file", "Read the contents of a file."),
		doc(t, "files", "write_file", "Write a file."),
		doc(t, "files", "list_directory", "List a directory."),
		doc(t, "files", "create_directory", "Create a directory."),
		doc(t, "browser", "navigate", "Navigate to a page."),
		doc(t, "browser", "create_page", "Create a new page."),
		doc(t, "github", "create_issue", "Create an issue."),
		doc(t, "github", "create_pull_request", "Create a pull request."),
		doc(t, "github", "list_pull_requests", "List the pull requests."),
		doc(t, "memory", "add_observations", "Add observations to the knowledge graph."),
		doc(t, "memory", "search_nodes", "Search for nodes in the knowledge graph."),
		doc(t, "chat", "send_message", "Send a message."),
		doc(t, "net", "ping", "Ping a host."),
		doc(t, "cluster", "get_pods", "Get the pods of kubernetes."),
		doc(t, "flags", "delete_flag", "Delete a feature flag."),
		doc(t, "flags", "set_flag", "Set a feature flag."),
		doc(t, "tickets", "jira_delete", "Delete an issue of the project."),
		doc(t, "tickets", "jira_put", "Put an issue of the project."),
	)
	for query, want := range map[string]string{
		"save the summary to /root/out.md":   "files_write_file",
		"cat notes.txt":                      "files_read_file",
		"mkdir build":                        "files_create_directory",
		"ls src/":                            "files_list_directory",
		"open https://example.com":           "browser_navigate",
		"open an issue":                      "github_create_issue",
		"open a PR":                          "github_create_pull_request",
		"show my prs":                        "github_list_pull_requests",
		"remember that I like tea":           "memory_add_observations",
		"what do you remember of the launch": "memory_search_nodes",
		"ping me when it is done":            "chat_send_message",
		"ping the host":                      "net_ping",
		"k8s pods":                           "cluster_get_pods",
		"turn off the beta flag":             "flags_set_flag",
		"drop the beta flag":                 "flags_delete_flag",
		"assign the issue of the project":    "tickets_jira_put",
		"creat a isue":                       "github_create_issue", // misspelt
		"lsit the pull reqeusts":             "github_list_pull_requests",
	} {
		hits := search(t, x, Query{Text: query, Limit: 3})
		if len(hits) == 0 || hits[0].Name != want {
			t.Errorf("%q finds %v, want %s first", query, names(hits), want)
		}
	}
}

// Each name in a query has a place before all that is only similar, however the client prefixes it.
func TestNamesInAQueryAreFound(t *testing.T) {
	x := build(t,
		doc(t, "github", "create_issue", ""), doc(t, "gitlab", "create_issue", ""), doc(t, "jira", "create_issue", ""),
		doc(t, "github", "add_issue_comment", "Comments on issues that create_issue made."), doc(t, "files", "readFile", ""),
		doc(t, "mail", "e-mail", ""), doc(t, "web", "real_time", ""))
	for query, want := range map[string][]string{
		"use create_issue, then readFile":                {"files_readFile", "github_create_issue"},
		"`github.create_issue` or jira.create_issue":     {"github_create_issue", "jira_create_issue"},
		"mcp__github__create_issue":                      {"github_create_issue"},
		"call mcp__toolfinch__github_create_issue now":   {"github_create_issue"},
		"functions.add_issue_comment":                    {"github_add_issue_comment"},
		"please mcp_jira_create_issue":                   {"jira_create_issue"},
		"gitlab/create_issue and github:create_issue":    {"github_create_issue", "gitlab_create_issue"},
		"comment on an issue with github_create_issue()": {"github_create_issue"},
	} {
		hits := search(t, x, Query{Text: query, Limit: len(want), Explain: true})
		found := names(hits)
		for _, name := range want {
			if !slices.Contains(found, name) {
				t.Errorf("%q finds %v, want %v", query, found, want)
			}
		}
	}
	for _, query := range []string{"real-time prices", "an e-mailer"} { // words, not names
		for _, hit := range search(t, x, Query{Text: query, Limit: 5, Explain: true}) {
			if hit.Why.Exact != 0 {
				t.Errorf("%q names %s", query, hit.Name)
			}
		}
	}
}
