package output

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"toolfinch/internal/await"
	"toolfinch/internal/must"
	"toolfinch/internal/rawjson"
	"toolfinch/store"
	"toolfinch/tool"
	"toolfinch/view/script"
)

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// fixture is a cache over a real database, with a clock to set and a log to read.
type fixture struct {
	*Cache
	store *store.Store
	dir   string
	clock time.Time
	log   *bytes.Buffer
}

// sandbox evaluates the expressions of all tests.
var sandbox *script.Sandbox

func TestMain(m *testing.M) {
	sandbox = script.NewSandbox(slog.New(slog.DiscardHandler))
	code := m.Run()
	sandbox.Close()
	os.Exit(code)
}

func newFixture(t testing.TB) *fixture {
	t.Helper()
	dir := t.TempDir()
	s := must.Get(store.Open(t.Context(), dir, slog.New(slog.DiscardHandler)))(t)
	t.Cleanup(func() { s.Close() })
	f := &fixture{store: s, dir: dir, clock: noon, log: &bytes.Buffer{}}
	f.Cache = New(s.Outputs(), patient{sandbox}, store.Level, slog.New(slog.NewTextHandler(f.log, nil)))
	f.now = func() time.Time { return f.clock }
	f.keepWithin, f.patience = await.Bound, await.Bound // a machine may be busy
	return f
}

// patient gives expressions the time that a busy machine needs.
type patient struct{ Evaluator }

func (p patient) Query(ctx context.Context, expression string, data []byte, limits script.Limits) (json.RawMessage, error) {
	limits.Time = await.Bound
	return p.Evaluator.Query(ctx, expression, data, limits)
}

var alice = tool.Call{Name: "big", Session: "alice", Client: &tool.Client{}}

func answering(text string) tool.Handler {
	result := tool.Result(text)
	return func(context.Context, *tool.Call) (tool.Result, error) { return result, nil }
}

// call calls a tool that answers with result, through Keep.
func (f *fixture) call(t testing.TB, s Settings, call tool.Call, result string) string {
	t.Helper()
	got := must.Get(f.Keep(s)(answering(result))(context.Background(), &call))(t)
	if !json.Valid(got) {
		t.Fatalf("no JSON: %s", got)
	}
	return string(got)
}

var tokenIn = regexp.MustCompile(`token "([A-Z2-7]{26})"`)

// token keeps a result and returns the token of its answer.
func (f *fixture) token(t testing.TB, result string) string {
	t.Helper()
	match := tokenIn.FindStringSubmatch(note(t, f.call(t, Settings{MinSize: 1, Preview: 1}, alice, result)))
	if match == nil {
		t.Fatal("the answer has no token")
	}
	return match[1]
}

// read calls read_output and returns the texts of its answer.
func (f *fixture) read(t testing.TB, call tool.Call, arguments string) (texts []string, failed bool) {
	t.Helper()
	call.Name, call.Arguments = Name, json.RawMessage(arguments)
	result := must.Get(f.Tool().Handler(context.Background(), &call))(t)
	if !json.Valid(result) {
		t.Fatalf("no JSON: %s", result)
	}
	for block := range rawjson.Elements(rawjson.Member(result, "content")) {
		texts = append(texts, rawjson.Text(rawjson.Member(block, "text")))
	}
	return texts, result.Failed()
}

// piece is the text that arguments, beside the token, read.
func (f *fixture) piece(t testing.TB, token, arguments string) (piece, note string) {
	t.Helper()
	texts, failed := f.read(t, alice, with(token, arguments))
	if failed || len(texts) != 2 {
		t.Fatalf("%s: %q", arguments, texts)
	}
	return texts[0], texts[1]
}

func with(token, arguments string) string {
	return fmt.Sprintf(`{"token":%q%s}`, token, strings.TrimSuffix(","+arguments, ","))
}

func text(s string) string { return `{"content":[` + string(textBlock(s)) + `]}` }

// note is the text of the first block of an answer.
func note(t testing.TB, answer string) string {
	t.Helper()
	for block := range rawjson.Elements(rawjson.Member([]byte(answer), "content")) {
		return rawjson.Text(rawjson.Member(block, "text"))
	}
	t.Fatalf("no content: %s", answer)
	return ""
}

func TestALargeResultIsAnsweredInShort(t *testing.T) {
	f := newFixture(t)
	lines := strings.Repeat("a line of it\n", 1000)
	got := f.call(t, Settings{MinSize: 1000, Preview: 30, TTL: time.Minute}, alice,
		`{"_meta":{"n":12345678901234567890},"content":[`+string(textBlock(lines))+`],"isError":true,"x":1.0}`)
	token := tokenIn.FindStringSubmatch(note(t, got))[1]
	want := `{"_meta":{"n":12345678901234567890},"content":[` + string(textBlock("a line of it\na line of it\n"+
		`[This is 26 of 13000 bytes, of 1000 lines in all. The whole is kept until 2026-01-01T12:01:00Z: read on with read_output, token "`+token+
		`" and offset 26, or lines "from-to".]`)) + `],"isError":true,"x":1.0}`
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if rest, _ := f.piece(t, token, `"offset":26`); rest != lines[26:] {
		t.Errorf("read on: %d bytes", len(rest))
	}
}

func TestWhatIsNotKeptPassesByteForByte(t *testing.T) {
	big := text(strings.Repeat("long ", 1000))
	settings := Settings{MinSize: 1000, Preview: 100}
	inner, prompt, nobody := alice, alice, alice
	inner.Depth, prompt.Kind, nobody.Session = 1, tool.KindPrompt, ""
	for _, test := range []struct {
		what     string
		settings Settings
		call     tool.Call
		result   string
	}{
		{"too small", Settings{MinSize: len(big) + 1}, alice, big},
		{"switched off", Settings{}, alice, big},
		{"a call of another tool", settings, inner, big},
		{"a prompt", settings, prompt, big},
		{"nobody to own it", settings, nobody, big},
		{"a question", settings, alice, `{"resultType":"input_required","x":` + big + `}`},
		{"a task", settings, alice, `{"resultType":"task","x":` + big + `}`},
		{"no JSON", settings, alice, "{" + big},
		{"no content", settings, alice, `{"x":` + big + `}`},
		{"no list of content", settings, alice, `{"content":` + big + `}`},
		{"no object", settings, alice, "[" + big + "]"},
		{"no shorter in short", Settings{MinSize: 100, Preview: 5000}, alice, big},
		{"small images", Settings{MinSize: 100}, alice, `{"content":[{"type":"image","data":"` + strings.Repeat("A", 40) + `","mimeType":"image/png"}],"_meta":{}}`},
	} {
		t.Run(test.what, func(t *testing.T) {
			f := newFixture(t)
			sent := tool.Result(test.result)
			got, err := f.Keep(test.settings)(func(context.Context, *tool.Call) (tool.Result, error) { return sent, nil })(t.Context(), &test.call)
			if err != nil || len(got) != len(sent) || &got[0] != &sent[0] {
				t.Errorf("got %.80s, %v", got, err)
			}
			if n, err := f.store.Outputs().Drop(t.Context(), noon.Add(1000*time.Hour)); n != 0 || err != nil {
				t.Errorf("%d outputs were stored, %v", n, err)
			}
		})
	}
	t.Run("an error", func(t *testing.T) {
		broken := errors.New("broken")
		f := newFixture(t)
		_, err := f.Keep(settings)(func(context.Context, *tool.Call) (tool.Result, error) { return nil, broken })(t.Context(), &alice)
		if err != broken {
			t.Error(err)
		}
	})
}

func TestAResultIsAnsweredWholeWhenTheStoreFails(t *testing.T) {
	f := newFixture(t)
	f.store.Close()
	result := text(strings.Repeat("long ", 1000))
	if got := f.call(t, Settings{MinSize: 100, Preview: 10}, alice, result); got != result {
		t.Errorf("got %.80s", got)
	}
	if !strings.Contains(f.log.String(), "answered whole") {
		t.Errorf("log: %s", f.log)
	}
	texts, failed := f.read(t, alice, with("T", ""))
	if !failed || !strings.Contains(texts[0], "at the moment") || strings.Contains(texts[0], "sql") {
		t.Errorf("read: %q", texts)
	}
}

// However many blocks are left out, the answer is short.
func TestManyBlocksAreLeftOut(t *testing.T) {
	f := newFixture(t)
	link := `{"type":"resource_link","name":"x","uri":"a://` + strings.Repeat("x", 200) + `"}`
	got := f.call(t, Settings{MinSize: 1000, Preview: 20}, alice, `{"content":[`+strings.Repeat(link+",", 5_000)+link+`]}`)
	if len(got) > 10_000 || !strings.Contains(note(t, got), "more are left out: blocks from") {
		t.Errorf("%d bytes: %.2000s", len(got), got)
	}
}

func TestStructuredContentIsWholeOrLeftOut(t *testing.T) {
	f := newFixture(t)
	settings := Settings{MinSize: 1000, Preview: 20}
	small, large := `{"id": 9007199254740993}`, `{"a": "`+strings.Repeat("x", 2000)+`", "id": 9007199254740993}`
	got := f.call(t, settings, alice, `{"content":[`+string(textBlock(strings.Repeat("t", 3000)))+`],"structuredContent":`+small+`}`)
	if data := rawjson.Member([]byte(got), "structuredContent"); string(data) != small || strings.Contains(note(t, got), "left out") {
		t.Errorf("small: %s", got)
	}
	got = f.call(t, settings, alice, `{"content":[],"structuredContent":`+large+`}`)
	if data := rawjson.Member([]byte(got), "structuredContent"); data != nil || !strings.Contains(note(t, got), fmt.Sprintf("Structured content (%d bytes) is left out: read it with jq.", len(large))) {
		t.Errorf("large: %s", got)
	}
	token := tokenIn.FindStringSubmatch(note(t, got))[1]
	if id, _ := f.piece(t, token, jq(".id")); id != "9007199254740993" {
		t.Errorf("id: %s", id)
	}
	if whole, _ := f.piece(t, token, ""); whole != "{\n  \"a\": \""+strings.Repeat("x", 2000)+"\",\n  \"id\": 9007199254740993\n}" {
		t.Errorf("as text: %.60s", whole)
	}
	got = f.call(t, settings, alice, `{"structuredContent":`+large+`}`)
	if note(t, got) == "" {
		t.Errorf("without content: %s", got)
	}
}

func TestBlocksWithoutTextStayOrAreReadOnTheirOwn(t *testing.T) {
	f := newFixture(t)
	image := func(n int) string {
		return `{"type":"image", "data":"` + strings.Repeat("A", n) + `","mimeType":"image/png"}`
	}
	resource := `{"type":"resource","resource":{"uri":"file:///x","mimeType":"text/plain","text":"` + strings.Repeat("R", 2000) + `"}}`
	got := f.call(t, Settings{MinSize: 1000}, alice, `{"content":[`+strings.Join([]string{
		image(300), string(textBlock("see")), image(5000), image(301), image(302), resource, `{"type":"new","x":1.0}`}, ",")+`]}`)
	var blocks []string
	for block := range rawjson.Elements(rawjson.Member([]byte(got), "content")) {
		blocks = append(blocks, string(block))
	}
	if len(blocks) != 4 || blocks[1] != image(300) || blocks[2] != image(301) || blocks[3] != `{"type":"new","x":1.0}` {
		t.Fatalf("blocks: %q", blocks)
	}
	first := note(t, got)
	for _, want := range []string{
		fmt.Sprintf("image image/png (%d bytes); read it with block 3.", len(image(5000))),
		fmt.Sprintf("image image/png (%d bytes); read it with block 5.", len(image(302))),
		fmt.Sprintf("resource file:///x text/plain (%d bytes); read it with block 6.", len(resource)),
	} {
		if !strings.Contains(first, want) {
			t.Errorf("no %q in %s", want, first)
		}
	}
	token := tokenIn.FindStringSubmatch(first)[1]
	for number, want := range map[int]string{3: image(5000), 5: image(302), 6: resource} {
		call := alice
		call.Arguments = json.RawMessage(with(token, fmt.Sprintf(`"block":%d`, number)))
		got, err := f.Tool().Handler(t.Context(), &call)
		if err != nil || string(got) != `{"content":[`+want+`]}` {
			t.Errorf("block %d: %.80s, %v", number, got, err)
		}
	}
	if whole, _ := f.piece(t, token, ""); whole != "see\n"+strings.Repeat("R", 2000) {
		t.Errorf("text: %.20s", whole)
	}
	if texts, failed := f.read(t, alice, with(token, `"block":8`)); !failed || texts[0] != "there is no block 8: the result has 7" {
		t.Errorf("no such block: %q", texts)
	}
	token = f.token(t, text(strings.Repeat("x", MaxRead)))
	if texts, failed := f.read(t, alice, with(token, `"block":1`)); !failed || !strings.Contains(texts[0], "with lines or offset") {
		t.Errorf("long text: %.80q", texts)
	}
}

func TestReadingInPiecesGivesTheWhole(t *testing.T) {
	for what, whole := range map[string]string{
		"lines":             strings.Repeat("a line, not long\n", 12_000),
		"one line":          strings.Repeat("x", 200_000),
		"CRLF":              strings.Repeat("short\r\n", 20_000),
		"runes":             strings.Repeat("漢字😀é", 20_000),
		"quotes":            strings.Repeat("\"\\\u2028</script>\t\x00", 20_000),
		"uneven":            strings.Repeat("x", 30_000) + "\n" + strings.Repeat("\n", 30_000) + "no end",
		"combining and ZWJ": strings.Repeat("👩‍👩‍👧e\u0301\r\n", 10_000),
	} {
		t.Run(what, func(t *testing.T) {
			f := newFixture(t)
			token := f.token(t, text(whole))
			for _, limit := range []int{19_997, MaxRead} {
				var read strings.Builder
				pieces := 0
				for read.Len() < len(whole) {
					piece, note := f.piece(t, token, fmt.Sprintf(`"offset":%d,"limit":%d`, read.Len(), limit))
					if piece == whole && strings.Contains(note, "This is the whole text") {
						read.WriteString(piece)
						break
					}
					if piece == "" || len(piece) > limit || !strings.Contains(note, fmt.Sprintf("bytes %d to %d of %d", read.Len(), read.Len()+len(piece), len(whole))) {
						t.Fatalf("at %d: %d bytes, %s", read.Len(), len(piece), note)
					}
					read.WriteString(piece)
					if ends := strings.Contains(note, "It ends here."); ends != (read.Len() == len(whole)) {
						t.Fatalf("at %d of %d: %s", read.Len(), len(whole), note)
					}
					pieces++
				}
				if read.String() != whole {
					t.Fatal("it is another text")
				}
				if most := 2*len(whole)/limit + 2; pieces > most {
					t.Errorf("%d pieces, more than %d", pieces, most)
				}
			}
		})
	}
}

func TestSmallPiecesAreWholeRunes(t *testing.T) {
	f := newFixture(t)
	whole := "a\r\n漢😀\r\n\r\né" + strings.Repeat("z", 400)
	token := f.token(t, text(whole))
	for limit := 1; limit < 6; limit++ {
		read := ""
		for len(read) < len(whole) {
			piece, _ := f.piece(t, token, fmt.Sprintf(`"offset":%d,"limit":%d`, len(read), limit))
			if piece == "" || strings.ContainsRune(piece, '\uFFFD') || strings.HasPrefix(piece, "\n") {
				t.Fatalf("limit %d, at %d: %q", limit, len(read), piece)
			}
			read += piece
		}
		if read != whole {
			t.Errorf("limit %d: %q", limit, read)
		}
	}
}

func TestReadLinesAndOffsets(t *testing.T) {
	f := newFixture(t)
	whole := "one\ntwo\r\nthrée\n\nfive" + strings.Repeat(".", 300)
	five := whole[strings.Index(whole, "five"):]
	token := f.token(t, text(whole))
	for _, test := range []struct{ arguments, want string }{
		{``, whole},
		{`"lines":"1"`, "one\n"},
		{`"lines":"2-3"`, "two\r\nthrée\n"},
		{`"lines":" 2 - 3 "`, "two\r\nthrée\n"},
		{`"lines":"4"`, "\n"},
		{`"lines":"5-"`, five},
		{`"lines":"4-99"`, "\n" + five},
		{`"lines":"2-4","limit":5`, "two\r\n"},
		{`"offset":0,"limit":4`, "one\n"},
		{`"offset":12`, "ée\n\n" + five}, // within é: from its beginning
		{fmt.Sprintf(`"offset":%d`, len(whole)), ""},
	} {
		if got, _ := f.piece(t, token, test.arguments); got != test.want {
			t.Errorf("%s: got %q, want %q", test.arguments, got, test.want)
		}
	}
	for _, test := range []struct{ arguments, want string }{
		{`"lines":"2-4","limit":5`, `[This is bytes 4 to 9 of 321, lines 2 to 2 of 5, of the text. limit 5 ended it: read on with offset 9.]`},
		{`"lines":"2-3"`, `[This is bytes 4 to 16 of 321, lines 2 to 3 of 5, of the text. Read on with offset 16.]`},
		{`"lines":"4-"`, `[This is bytes 16 to 321 of 321, lines 4 to 5 of 5, of the text. It ends here.]`},
		{``, `[This is the whole text: 321 bytes, 5 lines.]`},
	} {
		if _, got := f.piece(t, token, test.arguments); got != test.want {
			t.Errorf("%s: got %s, want %s", test.arguments, got, test.want)
		}
	}
	for _, test := range []struct{ arguments, want string }{
		{`"lines":"6"`, "line 6 is behind the end"},
		{`"lines":"3-2"`, `like "120-180"`},
		{`"lines":"0-2"`, `like "120-180"`},
		{`"lines":"-2"`, `like "120-180"`},
		{`"lines":"x"`, `like "120-180"`},
		{`"offset":322`, "offset 322 is behind the end: the text has 321 bytes"},
		{`"offset":-1`, "offset must be a whole number from 0, not -1"},
		{`"offset":"x"`, `offset must be a whole number from 0, not "x"`},
		{`"limit":0`, "limit must be a whole number from 1 to 100000, not 0"},
		{`"limit":100001`, "limit must be a whole number from 1 to 100000, not 100001"},
		{`"lines":"1","offset":1`, "exclude each other"},
		{`"block":1,"offset":1`, "block excludes"},
		{`"ofset":1`, "ofset"},
	} {
		if texts, failed := f.read(t, alice, with(token, test.arguments)); !failed || !strings.Contains(texts[0], test.want) {
			t.Errorf("%s: got %q, want %q", test.arguments, texts, test.want)
		}
	}
	if texts, failed := f.read(t, alice, ``); !failed || !strings.Contains(texts[0], "token is missing") {
		t.Errorf("no arguments: %q", texts)
	}
}

func TestOnlyItsOwnerReadsAnOutputUntilItExpires(t *testing.T) {
	f := newFixture(t)
	token := f.token(t, text(strings.Repeat("secret ", 100)))
	bob, nobody, principal := alice, alice, alice
	bob.Session, nobody.Session, principal.Principal = "bob", "", "alice"
	for _, test := range []struct {
		what  string
		call  tool.Call
		token string
		after time.Duration
		ok    bool
	}{
		{"its owner", alice, token, DefaultTTL - time.Second, true},
		{"too late", alice, token, DefaultTTL, false},
		{"another session", bob, token, 0, false},
		{"nobody", nobody, token, 0, false},
		{"a principal of the session's name", principal, token, 0, false},
		{"another token", alice, strings.Repeat("A", 26), 0, false},
		{"no token", alice, "x", 0, false},
	} {
		f.clock = noon.Add(test.after)
		texts, failed := f.read(t, test.call, with(test.token, ""))
		if test.ok == failed || !test.ok && (len(texts) != 1 || texts[0] != unknown) {
			t.Errorf("%s: %.60q", test.what, texts)
		}
	}
}

func TestAPrincipalReadsItFromAnySession(t *testing.T) {
	f := newFixture(t)
	one, two := alice, alice
	one.Principal, two.Principal, two.Session = "carol", "carol", "later"
	answer := f.call(t, Settings{MinSize: 1, Preview: 1}, one, text(strings.Repeat("x", 1000)))
	if _, failed := f.read(t, two, with(tokenIn.FindStringSubmatch(note(t, answer))[1], "")); failed {
		t.Error("refused")
	}
}

// A session goes on in another process when its own has gone.
func TestASessionReadsItInWhateverProcess(t *testing.T) {
	f := newFixture(t)
	token := f.token(t, text(strings.Repeat("long ", 1000)))
	now := f.now
	f.Cache = New(f.store.Outputs(), sandbox, store.Level, slog.New(slog.DiscardHandler))
	f.now = now
	if texts, failed := f.read(t, alice, with(token, "")); failed {
		t.Errorf("refused: %q", texts)
	}
}

func TestTheDatabaseDoesNotTellTokensAndOwners(t *testing.T) {
	f := newFixture(t)
	call := alice
	call.Session = "0123-session-id"
	token := tokenIn.FindStringSubmatch(note(t, f.call(t, Settings{MinSize: 1, Preview: 1}, call, text(strings.Repeat("content ", 100)))))[1]
	files, _ := filepath.Glob(filepath.Join(f.dir, "*.db*"))
	found := false
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Skipf("the database cannot be read while it is open: %v", err)
		}
		found = found || bytes.Contains(content, []byte("content content"))
		if bytes.Contains(content, []byte(token)) || bytes.Contains(content, []byte(call.Session)) {
			t.Errorf("%s tells", filepath.Base(file))
		}
	}
	if !found {
		t.Error("the content is not in the database: this test looks in the wrong place")
	}
}

func TestTokensDiffer(t *testing.T) {
	f := newFixture(t)
	seen := map[string]bool{}
	for range 20 {
		seen[f.token(t, text(strings.Repeat("x", 500)))] = true
	}
	if len(seen) != 20 {
		t.Errorf("%d tokens of 20 outputs", len(seen))
	}
}

func TestPreviewEndsAtABorder(t *testing.T) {
	for _, test := range []struct {
		text string
		n    int
		want string
	}{
		{"one\ntwo\nthree", 9, "one\ntwo\n"},
		{"one\ntwothreefour", 11, "one\ntwothre"}, // no line ends in its second half
		{"one\r\ntwo", 4, "one"},
		{"one\r\ntwo", 5, "one\r\n"},
		{"漢字", 1, "漢"},
		{"漢字", 5, "漢"},
		{"漢字", 6, "漢字"},
		{"\r\nx", 1, "\r\n"},
		{"a😀", 4, "a"},
		{"", 0, ""},
		{"ab", 0, "a"},
		{"\xff\xff\xff\xff\xff\xff", 3, "\xff\xff\xff"},
		{"x\x80\x80\x80\x80\x80\x80\x80", 6, "x\x80"},
	} {
		if got := test.text[:cut(test.text, test.n)]; got != test.want {
			t.Errorf("%q, %d: got %q, want %q", test.text, test.n, got, test.want)
		}
	}
}

func TestManyKeepAndReadAtOnce(t *testing.T) {
	f := newFixture(t)
	f.Cache.log = slog.New(slog.DiscardHandler)
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			call := alice
			call.Session = fmt.Sprint("session ", i)
			for j := range 5 {
				who := fmt.Sprintf("%d.%d ", i, j) + strings.Repeat("x", 2000)
				match := tokenIn.FindStringSubmatch(note(t, f.call(t, Settings{MinSize: 100, Preview: 1}, call, text(who))))
				if texts, failed := f.read(t, call, with(match[1], "")); failed || texts[0] != who {
					t.Errorf("%.100q", texts)
				}
			}
		})
	}
	wg.Wait()
}

// dropping is a store that says when it was asked to drop.
type dropping struct {
	Store
	at chan time.Time
}

func (d dropping) Drop(ctx context.Context, now time.Time) (int, error) {
	n, err := d.Store.Drop(ctx, now)
	d.at <- now
	return n, err
}

func TestSweepDropsWhatHasExpiredAndEnds(t *testing.T) {
	f := newFixture(t)
	f.token(t, text(strings.Repeat("x", 1000)))
	f.clock = noon.Add(DefaultTTL)
	at := make(chan time.Time, 1)
	f.Cache.store = dropping{f.store.Outputs(), at}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); f.Sweep(ctx) }()
	if now := <-at; !now.Equal(f.clock) {
		t.Errorf("swept at %v", now)
	}
	cancel()
	<-done
	if n, err := f.store.Outputs().Drop(t.Context(), f.clock); n != 0 || err != nil {
		t.Errorf("%d were left, %v", n, err)
	}
}

func TestDefinitionOfReadOutput(t *testing.T) {
	def := newFixture(t).Tool().Def
	if !def.Annotations.ReadOnly || def.Annotations.OpenWorld || def.ID.Name != Name {
		t.Errorf("%+v", def)
	}
	var schema struct {
		Properties struct {
			Limit struct{ Maximum, Default int }
		}
	}
	if err := json.Unmarshal(def.InputSchema, &schema); err != nil || schema.Properties.Limit.Maximum != MaxRead || schema.Properties.Limit.Default != DefaultRead {
		t.Errorf("limits of the schema: %+v, %v", schema, err)
	}
}

func BenchmarkKeep(b *testing.B) {
	for _, size := range []int{1 << 10, 1 << 20} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			f := newFixture(b)
			handler := f.Keep(Settings{MinSize: 20_000})(answering(text(strings.Repeat("a line of some text\n", size/20))))
			b.SetBytes(int64(size))
			b.ReportAllocs()
			for b.Loop() {
				must.Get(handler(b.Context(), &alice))(b)
			}
		})
	}
}

func BenchmarkRead(b *testing.B) {
	f := newFixture(b)
	var data strings.Builder
	for i := range 10_000 {
		fmt.Fprintf(&data, `{"id":%d,"name":"number %d","price":%d.50,"tags":["a","b"],"open":true},`, 1767268800000000000+i, i, i)
	}
	token := f.token(b, `{"content":[],"structuredContent":{"items":[`+strings.TrimSuffix(data.String(), ",")+`]}}`)
	for _, arguments := range []string{`"offset":500000`, jq(".items[] | select(.price > 9990) | {id, name}")} {
		b.Run(strings.Fields(arguments)[0], func(b *testing.B) {
			for b.Loop() {
				f.piece(b, token, arguments)
			}
		})
	}
}
