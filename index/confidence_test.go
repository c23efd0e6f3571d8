package index

import (
	"slices"
	"testing"

	"toolfinch/internal/must"
)

func confidence(t *testing.T, x *Index, q Query) float64 {
	t.Helper()
	q.Limit = 5
	found := must.Get(x.Search(t.Context(), q))(t)
	if !(found.Confidence >= 0 && found.Confidence <= 1) {
		t.Fatalf("%q: confidence %v, which is no probability", q.Text, found.Confidence)
	}
	return found.Confidence
}

func TestConfidenceIsAProbability(t *testing.T) {
	docs, queries := corpus(t, 60)
	queries = append(queries, "", " ", "...", "to be or not to be", "get", "zyx", "necessary zyx and then zyx", "必应", "\xff")
	words, full := build(t, docs...), buildMeant(t, docs...)
	one := buildMeant(t, docs[0])
	for _, text := range queries {
		for _, server := range []string{"", "s1", "nobody"} {
			prior := map[string]float64{docs[1].Name: 1}
			confidence(t, words, Query{Text: text, Server: server, Prior: prior})
			confidence(t, full, Query{Text: text, Server: server, Prior: prior, Vectors: meant(text)})
			confidence(t, one, Query{Text: text, Server: server, Vectors: meant(text)})
		}
	}
}

func TestConfidenceAtItsEnds(t *testing.T) {
	x := buildMeant(t, small(t)...)
	for _, test := range []struct {
		what string
		q    Query
		want float64
	}{
		{"a bare name", Query{Text: "search_code"}, 1},
		{"a name spelt otherwise", Query{Text: "Search Code"}, 1},
		{"an exposed name", Query{Text: "github_search"}, 1},
		{"server.name", Query{Text: "mail.send"}, 1},
		{"a name, with vectors that say another", Query{Text: "mail.send", Vectors: [][]float32{meaning("issue")}}, 1},
		{"a name, of the server that is asked for", Query{Text: "send", Server: "mail"}, 1},
		{"nothing found", Query{Text: "zyx"}, 0},
		{"nothing asked", Query{}, 0},
		{"nothing of that server", Query{Text: "issue", Server: "mail"}, 0},
	} {
		if got := confidence(t, x, test.q); got != test.want {
			t.Errorf("%s: confidence %v, want %v", test.what, got, test.want)
		}
	}
	if got := confidence(t, x, Query{Text: "send", Server: "github", Vectors: meant("send")}); got >= .5 {
		t.Errorf("a name of another server: confidence %v", got)
	}
	if found, err := x.Search(t.Context(), Query{Text: "issue"}); err != nil || found.Confidence != 0 {
		t.Errorf("a limit of 0: confidence %v, error %v", found.Confidence, err)
	}
	if got := confidence(t, build(t), Query{Text: "issue"}); got != 0 {
		t.Errorf("an empty index: confidence %v", got)
	}
}

// office is a catalogue like real ones: servers that have verbs and objects in
// common, and each thing once.
func office(t testing.TB) []Document {
	var docs []Document
	for _, d := range []struct{ server, name, description string }{
		{"github", "create_issue", "Open a new issue in a GitHub repository with a title and a body."},
		{"github", "search_code", "Search for code across GitHub repositories."},
		{"github", "merge_pull_request", "Merge a pull request into its base branch."},
		{"github", "list_commits", "List the commits of a branch of a repository."},
		{"calendar", "create_event", "Create an event in a calendar with a start and an end time."},
		{"calendar", "list_events", "List upcoming events of a calendar."},
		{"mail", "send_message", "Send an email message to one or more recipients."},
		{"mail", "search_messages", "Search email messages by sender, subject or text."},
		{"weather", "get_forecast", "Get the weather forecast for a city for the next days."},
		{"maps", "find_route", "Find the fastest route between two places by car or train."},
		{"files", "read_file", "Read the contents of a file from disk."},
		{"files", "delete_file", "Delete a file or an empty directory."},
		{"bank", "list_transactions", "List the transactions of an account in a period."},
		{"bank", "transfer_money", "Transfer money from one account to another."},
		{"translate", "translate_text", "Translate text from one language to another."},
		{"music", "play_song", "Play a song by its title and artist."},
	} {
		docs = append(docs, doc(t, d.server, d.name, d.description))
	}
	return docs
}

// Where the tool that is asked for is taken away, the nearest of the others is
// found, and is less certain: on average clearly, and for nearly every query. One
// may find a neighbour that fits by its words.
func TestConfidenceFallsWithoutTheRelevantTool(t *testing.T) {
	docs := office(t)
	words, full := build(t, docs...), buildMeant(t, docs...)
	asked := []struct{ query, relevant string }{
		{"open an issue about the crash", "github_create_issue"},
		{"merge the pull request of yesterday", "github_merge_pull_request"},
		{"put an event with my boss into the calendar", "calendar_create_event"},
		{"email a message to all recipients of the letter", "mail_send_message"},
		{"weather forecast for the city of Oslo", "weather_get_forecast"},
		{"fastest route to the airport by train", "maps_find_route"},
		{"delete the empty directory", "files_delete_file"},
		{"transfer money to my landlord's account", "bank_transfer_money"},
		{"translate this text into another language", "translate_translate_text"},
		{"play the song by that artist", "music_play_song"},
	}
	var byWords, byBoth float64 // how far it falls on average
	falls := 0
	for _, a := range asked {
		rest := slices.DeleteFunc(slices.Clone(docs), func(d Document) bool { return d.Name == a.relevant })
		q := Query{Text: a.query}
		fall := confidence(t, words, q) - confidence(t, build(t, rest...), q)
		q.Vectors = meant(a.query)
		fallOfBoth := confidence(t, full, q) - confidence(t, buildMeant(t, rest...), q)
		byWords += fall / float64(len(asked))
		byBoth += fallOfBoth / float64(len(asked))
		if fall > .03 && fallOfBoth > .03 {
			falls++
		} else {
			t.Logf("%q without %s: the confidence falls by %.3f by words, by %.3f with vectors", a.query, a.relevant, fall, fallOfBoth)
		}
	}
	t.Logf("it falls for %d of %d; by %.3f on average by words, by %.3f with vectors", falls, len(asked), byWords, byBoth)
	if falls < len(asked)-1 || byWords < .4 || byBoth < .4 {
		t.Errorf("it falls for %d of %d queries, by %.3f on average by words and by %.3f with vectors; want all but one, and .4", falls, len(asked), byWords, byBoth)
	}
}

// calibratedBy is by how much the mean confidence must be higher for queries
// whose relevant tools are there, and separated the share of pairs of queries,
// one with and one without, that confidence orders rightly. Both are a little
// under what was reached.
const (
	calibratedBy = .14
	separated    = .69
)

func TestQualityOfConfidence(t *testing.T) {
	data := load(t, "livemcp")
	x := build(t, data.docs...)
	byName := map[string]Document{}
	for _, d := range data.docs {
		byName[d.Name] = d
	}
	var with, without []float64
	for _, q := range data.queries {
		var relevant []Document
		for _, name := range q.Relevant {
			if d, ok := byName[name]; ok {
				relevant = append(relevant, d)
			}
		}
		with = append(with, confidence(t, x, Query{Text: q.Query}))
		must.Do(t, x.Apply(t.Context(), nil, q.Relevant))
		without = append(without, confidence(t, x, Query{Text: q.Query}))
		must.Do(t, x.Apply(t.Context(), relevant, nil))
	}
	var meanWith, meanWithout, right float64
	for i := range with {
		meanWith += with[i] / float64(len(with))
		meanWithout += without[i] / float64(len(without))
		for _, other := range without {
			switch {
			case with[i] > other:
				right++
			case with[i] == other:
				right += .5
			}
		}
	}
	right /= float64(len(with) * len(without))
	t.Logf("mean confidence %.3f with the relevant tools, %.3f without; %.3f of the pairs are in order", meanWith, meanWithout, right)
	if meanWith < meanWithout+calibratedBy {
		t.Errorf("mean confidence %.3f with the relevant tools and %.3f without, want a difference of %.2f", meanWith, meanWithout, calibratedBy)
	}
	if right < separated {
		t.Errorf("%.3f of the pairs are in order, want %.2f", right, separated)
	}
}

// A verb that some tool has, too, says nothing of what is asked for: with servers for files and a
// memory "open an issue" finds open_nodes, and nobody knows of issues.
func TestAVerbAloneIsNoAnswer(t *testing.T) {
	x := build(t,
		doc(t, "files", "read_file", "Read a file as text."),
		doc(t, "files", "create_directory", "Create a new directory."),
		doc(t, "files", "list_directory", "List the files in a directory."),
		doc(t, "memory", "open_nodes", "Open specific nodes by their names."),
		doc(t, "memory", "create_entities", "Create new entities in the graph."),
		doc(t, "memory", "search_nodes", "Search for nodes by a query."))
	for query, known := range map[string]bool{
		"open an issue":         false,
		"query the database":    false,
		"create a wedding cake": false,
		"read a file":           true,
		"list my folders":       true, // by the concept
		"create a directory":    true,
		"open the node of Ann":  true,
	} {
		if got := confidence(t, x, Query{Text: query}); known != (got > surenessOfUnknown) {
			t.Errorf("%q: confidence %.2f, known %v", query, got, known)
		}
	}
}
