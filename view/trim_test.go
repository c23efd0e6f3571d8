package view

import (
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"toolfinch/tool"
)

func TestADescriptionIsCutAfterASentence(t *testing.T) {
	for _, test := range []struct {
		name, text string
		limit      int
		want       string
	}{
		{"short enough", "Lists files.", 12, "Lists files."},
		{"a sentence fits", "Lists files. Takes a path.", 20, "Lists files."},
		{"it ends at the limit", "Lists files. Takes a path.", 12, "Lists files."},
		{"it ends past the limit", "Lists files. Takes a path.", 11, "Lists…"},
		{"the last that fits", "One. Two! Three? Four goes on.", 20, "One. Two! Three?"},
		{"dots within words", "Reads a.b and v1.2 files of any size whatsoever.", 30, "Reads a.b and v1.2 files of…"},
		{"an abbreviation", "Reads files (e.g. a.txt) and folders. Then more.", 28, "Reads files (e.g. a.txt)…"},
		{"a line", "Lists files\nwith their sizes and much more", 30, "Lists files"},
		{"a line that announces another", "Lists files.\n\nArgs:\n  path: where they are", 24, "Lists files."},
		{"a language without spaces", "列出文件。需要路径和很多其他东西。", 20, "列出文件。"},
		{"no end of a word", "列出文件需要路径和很多其他东西", 20, "列出文件需…"},
		{"no room for a mark", "abcdefghij", 3, "abc"},
		{"one character that does not fit", "文件", 2, ""},
	} {
		if got := trimText(test.text, test.limit); got != test.want || len(got) > test.limit {
			t.Errorf("%s: %q, want %q", test.name, got, test.want)
		}
	}
}

func FuzzTrimText(f *testing.F) {
	f.Add("One. Two.\nThree", 7)
	f.Add("列出文件。需要", 10)
	f.Fuzz(func(t *testing.T, text string, limit int) {
		if limit < 1 || limit > 1000 || !utf8.ValidString(text) {
			return
		}
		got := trimText(text, limit)
		if len(got) > limit || !utf8.ValidString(got) {
			t.Fatalf("%q of %d bytes: %q", text, limit, got)
		}
		kept, marked := strings.CutSuffix(got, ellipsis)
		if rest, ok := strings.CutPrefix(strings.TrimLeftFunc(text, unicode.IsSpace), kept); !ok && !strings.HasPrefix(text, kept) {
			t.Fatalf("%q does not begin with %q (%v, %q)", text, kept, marked, rest)
		}
	})
}

func TestDescriptionsAreTrimmedAsTheNearestSays(t *testing.T) {
	const raw = `{ "name":"a" , "description":"Lists files. Takes \"a path\".", "inputSchema":{"properties":{"path":{"description":"Where. They are."}}},"x":12345678901234567890}`
	const cut = `{ "name":"a" , "description":"Lists files.", "inputSchema":{"properties":{"path":{"description":"Where. They are."}}},"x":12345678901234567890}`
	for _, test := range []struct {
		name         string
		server, view int
		want         string
	}{
		{"nothing said", 0, 0, raw},
		{"the server", 15, 0, cut},
		{"the server says none", TrimOff, 0, raw},
		{"the view", 0, 15, cut},
		{"the view wins", 500, 15, cut},
		{"the view wants all", 15, TrimOff, raw},
		{"it is short enough", 100, 0, raw},
	} {
		t.Run(test.name, func(t *testing.T) {
			own := defined(t, tool.KindTool, "s", raw)
			base, problems := Base([]Upstream{{Server: "s", Listed: true, Tools: []*tool.Tool{own}}}, []UpstreamTools{{Name: "s", Trim: test.server}})
			wantProblems(t, problems)
			got := compiled(t, Settings{Name: "v", IncludeAll: true, Trim: test.view}, base...).Upstreams[0].Tools[0]
			if string(got.Def.Raw) != test.want {
				t.Errorf("listed %s\nwant %s", got.Def.Raw, test.want)
			}
			if got.Def.Full() != own.Def || got.Def.ID != own.Def.ID {
				t.Errorf("the whole definition is %s", got.Def.Full().Raw)
			}
			if (got.Def == own.Def) != (test.want == raw) || (got.Def.Hash == own.Def.Hash) != (test.want == raw) {
				t.Error("the hash is not that of what is listed")
			}
		})
	}
}
