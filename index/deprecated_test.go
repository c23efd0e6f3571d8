package index

import "testing"

// What a definition says of itself, in words of real servers.
func TestWhatIsDeprecated(t *testing.T) {
	for _, test := range []struct {
		name, title, description string
		want                     bool
	}{
		{"read_file", "Read File (Deprecated)", "Read a file.", true},
		{"read_file", "", "Read a file as text. DEPRECATED: Use read_text_file instead.", true},
		{"packages/track (Deprecated)", "", "Track a package.", true},
		{"SessionsController_DEPRECATED_stop", "", "Stop the session.", true},
		{"get_html", "", "Deprecated, please use get_markdown instead.", true},
		{"get_protocols", "", "⚠️ DEPRECATED: Use get_top_protocols.", true},
		{"reply", "", "DEPRECATED - set reply_to when you send.", true},
		{"confirm", "", "Confirms.\n.. deprecated:: for old clients.", true},
		{"old", "", "Lists items. This tool is deprecated and will go.", true},
		{"get_canvas_courses", "", "Use this tool to retrieve all courses. This is an alias for get_courses.", true},
		{"generate_thumbnail", "", "Generate a thumbnail of a PCB layout (Alias for generate_pcb_thumbnail).", true},
		{"get_live_temp", "", "\n    Legacy tool: Get the temperature (for backward compatibility).", true},
		{"put_alias", "", "Create or update an alias for a specific index.", false},
		{"search", "", "Search by query (or its alias, q). Answers legacy clients, too.", false},
		{"npmDeprecated", "", "Check if packages are deprecated", false},
		{"deprecated_packages", "", "Deprecated packages of a project", false},
		{"get", "", "Reads by jql. NOTE: `/rest/api/3/search` is deprecated!", false},
		{"list", "", "List models by status: ACTIVE, DEPRECATED or DELETED.", false},
		{"read_file", "Read File", "Read a file.", false},
	} {
		d := doc(t, "s", test.name, test.description)
		d.Def.Title = test.title
		if got := deprecated(d.Def); got != test.want {
			t.Errorf("%+v: %v", test, got)
		}
	}
}

// The files server of the protocol's own project lists the old tool beside the new one.
func TestADeprecatedToolRanksBelowTheLivingOne(t *testing.T) {
	old := docOf(t, "files", `{"name":"read_file","title":"Read File (Deprecated)","description":"Read the complete contents of a file as text. DEPRECATED: Use read_text_file instead."}`, "")
	living := docOf(t, "files", `{"name":"read_text_file","title":"Read Text File","description":"Read the complete contents of a file from the file system as text."}`, "")
	docs := []Document{old, living, doc(t, "files", "list_directory", "List a directory."), doc(t, "notes", "read_note", "Read a note.")}
	words, full := build(t, docs...), buildMeant(t, docs...)
	for query, want := range map[string]string{
		"read file":                  "files_read_text_file",
		"Read File":                  "files_read_text_file",
		"read a file":                "files_read_text_file",
		"show the contents of files": "files_read_text_file",
		"read_file":                  "files_read_file", // this one and no other is named
		"files.read_file":            "files_read_file",
	} {
		q := Query{Text: query, Limit: 3, Explain: true}
		for _, hits := range [][]Hit{search(t, words, q), hybrid(t, full, q)} {
			if hits[0].Name != want {
				t.Errorf("%q finds %v, want %s first", query, names(hits), want)
			}
			for _, hit := range hits {
				checkExplained(t, query, hit)
				if lost := hit.Why.Deprecated < 0; lost != (hit.Name == "files_read_file") {
					t.Errorf("%q: %s loses %v", query, hit.Name, hit.Why.Deprecated)
				}
			}
		}
	}
}
