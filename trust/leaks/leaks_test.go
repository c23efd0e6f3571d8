package leaks

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"

	"toolfinch/internal/must"
)

// made puts a token together, so that none stands in this file for scanners to find.
func made(parts ...string) string { return strings.Join(parts, "") }

const (
	alnum = "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8s9T0u1V2w3X4y5Z6a7B8c9D0e1F2g3H4i5J6k7L8m9N0p1Q2r3S4t5U6v7W8x9Y0"
	hex   = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	upper = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"
	alpha = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
)

// tokens are one of each form, by kind; some kinds have several forms.
func tokens() (all [][2]string) {
	add := func(kind string, parts ...string) { all = append(all, [2]string{kind, made(parts...)}) }
	add("AWS access key", "AK", "IA", upper[:16])
	add("AWS access key", "AS", "IA", upper[3:19])
	add("Google API key", "AI", "za", alnum[:33], "-_")
	add("Google OAuth secret", "GOC", "SPX-", alnum[:28])
	add("Google access token", "ya", "29.", alnum[:60])
	add("Azure client secret", "abc", "8Q", "~", alnum[:34])
	add("GitHub token", "gh", "p_", alnum[:36])
	add("GitHub token", "gh", "s_", alnum[:36])
	add("GitHub token", "github", "_pat_", alnum[:22], "_", alnum[:59])
	add("GitLab token", "gl", "pat-", alnum[:20])
	add("GitLab token", "gl", "rt-", alnum[:27], ".01.", "0a1b2c3d4")
	add("Slack token", "xo", "xb-", "123456789012-123456789012-", alnum[:24])
	add("Slack token", "xa", "pp-", "1-A012-345-", hex[:64])
	add("Stripe key", "sk", "_live_", alnum[:24])
	add("Stripe key", "rk", "_test_", alnum[:99])
	add("Stripe webhook secret", "wh", "sec_", alnum[:32])
	add("Anthropic key", "sk-", "ant-", "api03-", alnum[:93], "-AA")
	add("OpenAI key", "sk-", "proj-", alnum[:80], "_-x")
	add("OpenRouter key", "sk-", "or-v1-", hex[:64])
	add("API key", "sk-", alnum[:48])
	add("Groq key", "gs", "k_", alnum[:52])
	add("xAI key", "xa", "i-", alnum[:80])
	add("Perplexity key", "pp", "lx-", alnum[:48])
	add("Replicate token", "r", "8_", alnum[:37])
	add("Hugging Face token", "h", "f_", alpha[:34])
	add("npm token", "np", "m_", alnum[:36])
	add("PyPI token", "py", "pi-", "AgEIcHlwaS5vcmc", alnum[:70])
	add("Docker token", "dckr", "_pat_", alnum[:27])
	add("Twilio key", "S", "K", hex[:32])
	add("SendGrid key", "S", "G.", alnum[:22], ".", alnum[:43])
	add("Shopify token", "shp", "at_", hex[:32])
	add("DigitalOcean token", "dop", "_v1_", hex[:64])
	add("Databricks token", "da", "pi", hex[:32])
	add("HashiCorp Vault token", "hv", "s.", alnum[:90])
	add("Linear key", "lin", "_api_", alnum[:40])
	add("Notion token", "nt", "n_", alnum[:46])
	add("Figma token", "fig", "d_", alnum[:40])
	add("Postman key", "PM", "AK-", hex[:24], "-", hex[:34])
	add("Grafana token", "gl", "sa_", alnum[:32], "_", hex[:8])
	add("Sentry token", "sn", "trys_", alnum[:60])
	add("Supabase key", "sb", "p_", hex[:40])
	add("toolfinch API key", "tf", "key_", strings.ToLower(upper[:52]))
	add("age key", "AGE-", "SECRET-KEY-1", upper[:58])
	add("Telegram bot token", "1234567890", ":A", "A", alnum[:33])
	add("JSON web token", "ey", "JhbGciOiJIUzI1NiJ9", ".ey", "JzdWIiOiIxMjM0NTY3ODkwIn0", ".", alnum[:43])
	add("private key", "-----BEGIN ", "OPENSSH PRIVATE ", "KEY-----\n", alnum, "\n", alnum[:20], "==\n-----END ", "OPENSSH PRIVATE ", "KEY-----")
	add("private key", "-----BEGIN ", "PGP PRIVATE ", "KEY BLOCK-----\nVersion: 2\n\n", alnum, "\n-----END ", "PGP PRIVATE ", "KEY BLOCK-----")
	return all
}

// kept are secrets of which only a part is replaced: what is before, the secret, what is after.
func kept() [][4]string {
	return [][4]string{
		{"password in a URL", "postgres://app:", made("s3cr", "et!"), "@db.internal:5432/app?sslmode=require"},
		{"password in a URL", "mongodb+srv://u:", "p%40ss", "@cluster0.example.net"},
		{"password in a URL", "redis://:", "hunter2", "@cache:6379/0"},
		{"Azure storage key", "AccountName=x;AccountKey=", made(alnum[:86], "=="), ";EndpointSuffix=core.windows.net"},
		{"Azure SAS signature", "https://x.blob.core.windows.net/c?se=2030&sig=", made(alnum[:43], "%3D"), "&sp=r"},
		{"Slack webhook", "https://hooks.slack.com/services/", made("T0AAAAAAA/B0AAAAAAA/", alnum[:24]), ""},
		{"AWS secret key", "aws_secret_access_key = ", alnum[:40], "\n"},
		{"AWS secret key", `"SecretAccessKey": "`, alnum[:40], `", "x": 1`},
	}
}

// surroundings are what stands around a token in a text.
var surroundings = [][2]string{
	{"", ""}, {"token: ", "\n"}, {"a\n", "\nb"}, {"\t", "\t"}, {`{"k":"`, `"}`}, {`{\"k\":\"`, `\"}`}, {`line\n`, `\nline`}, {"é", "ü"}, {"(", ")"}, {"TOKEN=", ";"}, {"<b>", "</b>"},
}

func TestTokensAreReplacedWhereverTheyStand(t *testing.T) {
	for _, token := range tokens() {
		for _, around := range surroundings {
			text := around[0] + token[1] + around[1]
			checkText(t, text, around[0]+Replaces(token[0])+around[1], token[0])
		}
	}
	for _, k := range kept() {
		checkText(t, "see "+k[1]+k[2]+k[3], "see "+k[1]+Replaces(k[0])+k[3], k[0])
	}
}

func checkText(t *testing.T, text, want, kind string) {
	t.Helper()
	if got, kinds := Text(text); got != want || !slices.Equal(kinds, []string{kind}) {
		t.Errorf("%q:\ngot  %q, %v\nwant %q, %s", text, got, kinds, want, kind)
	}
	for name, raw := range encodings(t, text) {
		got, kinds := JSON(raw)
		var value struct{ Text string }
		if err := json.Unmarshal(got, &value); err != nil || value.Text != want || !slices.Equal(kinds, []string{kind}) {
			t.Errorf("%s %s:\ngot  %s, %v, %v\nwant %q", name, raw, got, kinds, err, want)
		}
		if !bytes.HasPrefix(got, []byte(`{ "a" :1.0, "text":`)) || !bytes.HasSuffix(got, []byte(`, "z":[ ]}`)) {
			t.Errorf("%s: bytes around were changed: %s", name, got)
		}
	}
}

// encodings are spellings of one JSON value that encoders of servers use.
func encodings(t *testing.T, text string) map[string][]byte {
	t.Helper()
	plain := must.Get(json.Marshal(text))(t)
	var ascii strings.Builder
	for _, r := range string(plain) {
		if r > 127 {
			fmt.Fprintf(&ascii, `\u%04x`, r)
		} else {
			ascii.WriteRune(r)
		}
	}
	out := map[string][]byte{}
	for name, quoted := range map[string]string{"Go": string(plain), "PHP": strings.ReplaceAll(string(plain), "/", `\/`), "Python": ascii.String()} {
		out[name] = []byte(`{ "a" :1.0, "text":` + quoted + `, "z":[ ]}`)
	}
	return out
}

func TestWhatIsNoSecretKeepsItsBytes(t *testing.T) {
	for _, text := range []string{
		"a task-list, a disk-image, risk-free", "sk-learn and sk-", "ghp_short", "https://example.com:8080/@user/x", "https://unpkg.com/@scope/pkg@1.2.3",
		"mailto:a@b.example ssh://git@github.com/x", "http://user@host/", "postgres://user:password@localhost/db", "postgres://u:${PASSWORD}@h/d", "postgres://u:***@h", "postgres://u:xx.-X@h", "postgres://u:[x]@h", "postgres://u:%s@h", "a\xffb",
		"eyJhbGciOi", "eyJ not a token. eyJ", "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----", "-----BEGIN PUBLIC KEY-----",
		hex[:40], "0b8f7f0e-3c0e-4b6e-9f43-0c54a0d3a6f1", "sha512-" + alnum[:86] + "==", "xoxo-love", "npm_config_registry", "SK1234", "SG.1.2", "AKIA", "xAKIA" + upper[:16], "tAKIA" + upper[:16],
		made("AK", "IA", upper[:16], "x"), "the AccountKey= of your account", "https://x/?sig=abc", "see hooks.slack.com/help", "12:AA", "dapi-docs", "glsa_x", "hf_hub_download",
	} {
		if got, kinds := Text(text); got != text || kinds != nil {
			t.Errorf("%q: %q, %v", text, got, kinds)
		}
		for _, raw := range encodings(t, text) {
			got, kinds := JSON(raw)
			if len(kinds) > 0 || &got[0] != &raw[0] || len(got) != len(raw) {
				t.Errorf("%s: %s, %v", raw, got, kinds)
			}
		}
	}
}

// Of secrets that overlap nothing stays.
func TestOverlappingSecretsAreReplacedWhole(t *testing.T) {
	of := func(kind, form string) *pattern {
		return &pattern{kind: kind, form: regexp.MustCompile(form), within: true}
	}
	for text, want := range map[string]string{"-abcde-": "-[redacted: first]-", "-abc-cde-": "-[redacted: first]-[redacted: second]-", "-abcdeabc-": "-[redacted: first][redacted: first]-"} {
		if got, _ := replace(text, []*pattern{of("second", "cde"), of("first", "abc")}, nil); got != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
}

// A token that is cut anywhere is looked at within what there is.
func TestCutTokensAreReadWithinBounds(t *testing.T) {
	for _, p := range patterns {
		for _, needle := range p.needles {
			for end := range len(needle) {
				raw := []byte(`"` + needle[:end])
				if got, kinds := JSON(raw[:len(raw):len(raw)]); string(got) != string(raw) || kinds != nil {
					t.Errorf("%s: %s, %v", raw, got, kinds)
				}
			}
		}
	}
}

func TestSecretsInStructuredContent(t *testing.T) {
	token := made("gh", "p_", alnum[:36])
	tests := []struct{ in, want string }{
		{`{"Credentials":{"AccessKeyId":"` + made("AS", "IA", upper[:16]) + `","SecretAccessKey" : "` + alnum[:40] + `","SessionToken":"x"}}`,
			`{"Credentials":{"AccessKeyId":"[redacted: AWS access key]","SecretAccessKey" : "[redacted: AWS secret key]","SessionToken":"x"}}`},
		{`{"SecretAccessKey":null,"other":"` + alnum[:40] + `"}`, `{"SecretAccessKey":null,"other":"` + alnum[:40] + `"}`},
		{`{"` + token + `":["` + token + `",1e3, "\u00e9"]}`, `{"[redacted: GitHub token]":["[redacted: GitHub token]",1e3, "\u00e9"]}`},
		{`"` + token + ` ` + token + `"`, `"[redacted: GitHub token] [redacted: GitHub token]"`},
		{`{"a":"x","b":"` + token, `{"a":"x","b":"` + token}, // it is not JSON
		{`{"text":"https://u:` + token + `@github.com/x"}`, `{"text":"https://u:[redacted: password in a URL]@github.com/x"}`},
		{`{"text":"-----BEGIN ` + `RSA PRIVATE KEY-----\nMIIE\nabcd"}`, `{"text":"[redacted: private key]"}`}, // cut
	}
	for _, tt := range tests {
		if got, _ := JSON([]byte(tt.in)); string(got) != tt.want {
			t.Errorf("%s\ngot  %s\nwant %s", tt.in, got, tt.want)
		}
	}
}

// Any value with any secrets in it is another value of the same shape, without them.
func TestRedactionKeepsShape(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	all := tokens()
	var planted []string
	var value func(depth int) any
	text := func() string {
		words := []string{"plain", "ünïcode", "quote\"", `back\slash`, "line\nbreak", "\u2028", "https://a.b/c?d=e", "", "{\"a\":1}"}
		var b strings.Builder
		for range random.IntN(5) {
			b.WriteString(words[random.IntN(len(words))] + " ")
			if random.IntN(6) == 0 {
				token := all[random.IntN(len(all))][1]
				planted = append(planted, token)
				b.WriteString(token + " ")
			}
		}
		return b.String()
	}
	value = func(depth int) any {
		switch n := random.IntN(8); {
		case n == 0 && depth < 5:
			m := map[string]any{}
			for i := range random.IntN(5) {
				m[fmt.Sprint(i, text())] = value(depth + 1)
			}
			return m
		case n == 1 && depth < 5:
			list := []any{}
			for range random.IntN(5) {
				list = append(list, value(depth+1))
			}
			return list
		case n == 2:
			return random.Float64()
		case n == 3:
			return nil
		case n == 4: // JSON within a text, as most servers answer
			inner, _ := json.Marshal(map[string]any{"k": text()})
			return string(inner)
		}
		return text()
	}
	for range 500 {
		planted = nil
		raw := must.Get(json.Marshal([]any{value(0), value(0), value(0)}))(t)
		got, kinds := JSON(raw)
		if !json.Valid(got) || (len(planted) > 0) != (len(kinds) > 0) {
			t.Fatalf("%s\n%s, %v", raw, got, kinds)
		}
		for _, token := range planted {
			quoted, _ := json.Marshal(token)
			if bytes.Contains(got, quoted[1:len(quoted)-1]) {
				t.Fatalf("%s is still there:\n%s", token, got)
			}
		}
		if again, kinds := JSON(got); len(kinds) > 0 || !bytes.Equal(again, got) {
			t.Fatalf("what was put in is a secret again: %s, %v", again, kinds)
		}
		if shape(t, raw) != shape(t, got) {
			t.Fatalf("the shape differs:\n%s\n%s", raw, got)
		}
	}
}

// shape is a JSON value with every string but names of members as "".
func shape(t *testing.T, raw []byte) string {
	t.Helper()
	var b strings.Builder
	d := json.NewDecoder(bytes.NewReader(raw))
	for {
		token, err := d.Token()
		if err != nil {
			return b.String()
		}
		if _, text := token.(string); text {
			token = ""
		}
		fmt.Fprintf(&b, "%v ", token)
	}
}

func FuzzRedactionKeepsJSONValid(f *testing.F) {
	for _, token := range tokens() {
		raw, _ := json.Marshal(map[string]string{"text": "a\n" + token[1]})
		f.Add(raw)
	}
	for _, k := range kept() {
		raw, _ := json.Marshal([]string{k[1] + k[2] + k[3]})
		f.Add(raw)
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		before := bytes.Clone(raw)
		got, kinds := JSON(raw)
		switch {
		case !bytes.Equal(raw, before):
			t.Fatal("the input was written to")
		case len(kinds) == 0 && !bytes.Equal(got, raw):
			t.Fatal("nothing was found, and yet bytes differ")
		case json.Valid(raw) && !json.Valid(got):
			t.Fatalf("%q became invalid: %q", raw, got)
		}
	})
}

func BenchmarkJSON(b *testing.B) {
	prose := strings.Repeat("The task-list has a disk-image at https://example.com/a/b?c=d and a long_name_of_a_variable, 12:34:56. ", 200)
	rows := make([]map[string]any, 200)
	for i := range rows {
		rows[i] = map[string]any{"id": i, "url": "https://api.example.com/v1/items/1", "sha": hex[:40], "name": "item-" + fmt.Sprint(i)}
	}
	encode := func(v any) []byte {
		return must.Get(json.Marshal(map[string]any{"content": []any{map[string]any{"type": "text", "text": v}}, "structuredContent": rows}))(b)
	}
	for name, raw := range map[string][]byte{"nothing": encode(prose), "one": encode(prose + made("gh", "p_", alnum[:36]))} {
		b.Run(fmt.Sprintf("%s/%dkB", name, len(raw)>>10), func(b *testing.B) {
			b.SetBytes(int64(len(raw)))
			for b.Loop() {
				JSON(raw)
			}
		})
	}
	small := []byte(`{"content":[{"type":"text","text":"{\"time\":\"2026-01-01T00:00:00Z\",\"zone\":\"Europe/Paris\"}"}]}`)
	b.Run("small", func(b *testing.B) {
		for b.Loop() {
			JSON(small)
		}
	})
}
