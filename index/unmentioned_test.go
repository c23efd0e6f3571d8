package index

import (
	"slices"
	"strings"
	"testing"

	"toolfinch/internal/must"
	"toolfinch/tool"
)

func TestUnmentionedThings(t *testing.T) {
	x := build(t,
		doc(t, "github", "create_issue", "Create an issue in a repository."),
		doc(t, "music", "play_song", "Play a song by its title."),
		docOf(t, "photos", `{"name":"resize","description":"Change the size of a picture"}`, ""),
		item(t, tool.KindPrompt, "github", `{"name":"review","description":"Critique a change"}`))
	s := x.snapshot()
	for _, test := range []struct {
		what, query string
		hidden      string // a document that may not be found
		kinds       []tool.Kind
		want        string
		telling     int
	}{
		{"a thing", "play a song on spotify", "", nil, "spotify", 3},
		{"each once, as written", "sign the Contract: the Contract with docusign!", "", nil, "Contract docusign", 4},
		{"another form of a word", "titles of songs", "", nil, "", 2},
		{"a concept", "resize the photo", "", nil, "", 2},
		{"an exchange", "a new isseu", "", nil, "", 2},
		{"a letter less", "look in the repositry", "", nil, "", 2},
		{"a letter more", "look in the repossitory", "", nil, "", 2},
		{"another letter", "a big rasize", "", nil, "big", 2},
		{"exchanged letters of a short word", "play a sogn", "", nil, "", 2},
		{"where verbs stand", "tweet a song, whistle it and hum it", "", nil, "", 4},
		{"after words that only ask", "please tweet a song", "", nil, "", 2},
		{"verbs", "a song to delete and a title purge", "", nil, "", 4},
		{"places and topics", "the songs about my cat from Berlin to the Alps", "", nil, "", 4},
		{"what is to be kept", "remember that Bob drinks tea. play a song that rocks on radio", "", nil, "rocks radio", 8},
		{"values", "a song \"called yesterday\" in ~/music/x.mp3 of me@example.com, 12 x2 #general some_name", "", nil, "", 9},
		{"what may not be found is not mentioned", "play a song", "music_play_song", nil, "song", 2},
		{"nor misspelt", "a songg is titel", "music_play_song", nil, "songg titel", 2},
		{"prompts are apart", "a good critique", "", nil, "good critique", 2},
		{"unless they are searched", "a critique", "", tool.Kinds, "", 1},
		{"nothing", "", "", nil, "", 0},
		{"long words", "a " + strings.Repeat("x", maxWord) + " " + strings.Repeat("y", maxWord+1), "", nil, strings.Repeat("x", maxWord), 2},
	} {
		var among *Subset
		if test.hidden != "" {
			var names []string
			s.each(func(_ int, e *entry) { names = append(names, e.Name) })
			among = s.Subset(slices.DeleteFunc(names, func(name string) bool { return name == test.hidden }))
			if len(names) == 0 {
				t.Fatal("nothing is hidden")
			}
		}
		things, telling := Things(test.query)
		var missed []string
		for _, thing := range things {
			if !must.Get(s.Mentions(thing, test.kinds, among))(t) {
				missed = append(missed, thing)
			}
		}
		if got := strings.Join(missed, " "); got != test.want || telling != test.telling {
			t.Errorf("%s: %q has %q, %d telling words; want %q, %d", test.what, test.query, got, telling, test.want, test.telling)
		}
	}
	must.Do(t, x.Close())
	if _, err := s.Mentions("x", nil, nil); err != ErrClosed {
		t.Errorf("closed: error %v", err)
	}
}
